"""Damaged payloads: every answer is corrupt, or right, or a superset, except where nothing in the format could tell (bare postings)."""

from __future__ import annotations

import struct
import zlib
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maintainer.errors import CorruptFile
from maintainer.format.bitmap_file import BitmapFile
from maintainer.format.btree_file import BTreeFile
from maintainer.format.stored_block import PayloadBytes
from maintainer.model.predicate import Leaf, Op
from tests.support.campaign import share
from tests.support.sorted_index import ask, build, content, definition, open_payload, reading, reference_bitmap, reference_btree
from tests.support.strategies import mutated

EACH = share("changed bytes of bitmap payloads, each n-th", short=5, long=1)

COLUMNS: dict[str, list[Any]] = {
    "INT": [None if i % 9 == 4 else i * 37 % 50 - 20 for i in range(120)],
    "STRING": [None if i % 9 == 4 else f"key-{i * 37 % 50}" for i in range(120)],
}
LEAVES = {
    text: [
        Leaf(Op.IS_NULL, "c"),
        Leaf(Op.IS_NOT_NULL, "c"),
        *(
            Leaf(op, "c", (value,))
            for value in COLUMNS[text][:3]
            for op in (Op.EQ, Op.NE, Op.LT, Op.GE)
        ),
        Leaf(Op.BETWEEN, "c", (COLUMNS[text][0], COLUMNS[text][2])),
        *([Leaf(Op.STARTS_WITH, "c", ("key-1",)), Leaf(Op.LIKE, "c", ("%1_",))] if text == "STRING" else []),
    ]
    for text in COLUMNS
}  # fmt: skip
OPTIONS = {
    "plain": {"btree-index.block-size": "100 b", "bitmap-index.dictionary-block-size": "100 b", "maintain.bitmap-peer-blocks": "off"},
    "zstd": {"btree-index.compression": "zstd", "bitmap-index.compression": "zstd"},
    "lz4": {"btree-index.compression": "lz4", "bitmap-index.compression": "lz4"},
}
PAYLOADS = {
    (family, text, form): (definition(family, text, OPTIONS[form]), build(definition(family, text, OPTIONS[form]), COLUMNS[text]))
    for family in ("btree", "bitmap")
    for text in COLUMNS
    for form in OPTIONS
}
ANSWERS = {key: [ask(built, index, leaf) for leaf in LEAVES[key[1]]] for key, (index, built) in PAYLOADS.items()}


def check(key: tuple[str, str, str], data: bytes, some: slice = slice(None)) -> None:
    """The answers of a damaged payload to some of the leaves."""
    index, built = PAYLOADS[key]
    total = built.row_count
    for leaf, right in zip(LEAVES[key[1]][some], ANSWERS[key][some], strict=True):
        try:
            found = open_payload(data, index, built.index_meta, total).evaluate(leaf)
        except CorruptFile:
            continue
        if not data:
            assert not found  # nothing to scan
            continue
        assert found is not None
        assert right is not None
        assert not found or found.max() < total
        if key[0] == "btree":
            assert set(right) <= set(found), leaf
    with suppress(CorruptFile):
        open_payload(data, index, built.index_meta, total).verify()


@pytest.mark.parametrize("key", PAYLOADS, ids="-".join)
@given(data=st.data())
def test_changed_bytes_are_noticed(key: tuple[str, str, str], data: st.DataObject) -> None:
    check(key, data.draw(mutated(content(PAYLOADS[key][1]))))


@pytest.mark.parametrize("key", [key for key in PAYLOADS if key[0] == "btree"], ids="-".join)
def test_every_byte_of_a_btree_is_protected(key: tuple[str, str, str]) -> None:
    whole = content(PAYLOADS[key][1])
    for at in range(len(whole)):
        check(key, whole[:at] + bytes((whole[at] ^ 0x41,)) + whole[at + 1 :], slice(at % 5, None, 5))


@pytest.mark.parametrize("key", [key for key in PAYLOADS if key[0] == "bitmap"], ids="-".join)
def test_verify_notices_changed_bytes_of_a_bitmap(key: tuple[str, str, str]) -> None:
    index, built = PAYLOADS[key]
    whole = content(built)
    for at in range(0, len(whole), EACH):
        changed = whole[:at] + bytes((whole[at] ^ 0x01,)) + whole[at + 1 :]
        try:
            reader = open_payload(changed, index, built.index_meta, built.row_count)
            problems = reader.verify()
        except CorruptFile:
            continue
        # What verify does not mind must not change an answer: a container's offset, which readers do not need.
        if not problems:
            assert [ask_again(reader, leaf) for leaf in LEAVES[key[1]]] == ANSWERS[key]


def ask_again(reader: Any, leaf: Leaf) -> list[int] | None:
    found = reader.evaluate(leaf)
    return None if found is None else list(found)


@pytest.mark.parametrize("key", PAYLOADS, ids="-".join)
def test_sound_payloads_verify(key: tuple[str, str, str]) -> None:
    index, built = PAYLOADS[key]
    assert open_payload(content(built), index, built.index_meta, built.row_count).verify() == []


@pytest.mark.parametrize("family", ["btree", "bitmap"])
def test_verify_says_what_is_wrong(family: str) -> None:
    index = definition(family, "INT")
    built = build(index, [1, 2, None])
    other = build(index, [1, 3, None])
    data = content(built)
    assert any("1 of 4 rows" in problem for problem in open_payload(data, index, built.index_meta, 4).verify())
    with pytest.raises(CorruptFile, match="ordinal 2"):
        open_payload(data, index, built.index_meta, 2).verify()
    if family == "bitmap":
        assert open_payload(data, index, other.index_meta, 3).verify() == ["the payload does not hold what its metadata says"]
    else:
        with pytest.raises(CorruptFile, match="does not hold what its metadata says"):
            open_payload(data, index, other.index_meta, 3).verify()
        first = build(index, [0, 2, None])
        assert open_payload(data, index, first.index_meta, 3).verify() == ["the first key is not that of the metadata"]


def test_overlapping_postings_are_noticed() -> None:
    for family, data in {
        "btree": reference_btree([(b"a", [0, 1]), (b"b", [1])], [1]),
        "bitmap": reference_bitmap([(b"a", [0, 1]), (b"b", [1])], [1]),
    }.items():
        index = definition(family, "STRING")
        meta = build(index, ["a", "b", None]).index_meta
        problems = open_payload(data, index, meta, 2).verify()
        assert any("more than one key" in problem for problem in problems)
        assert any("null" in problem for problem in problems)


def test_ordinals_beyond_the_group_are_corrupt() -> None:
    for family in ("btree", "bitmap"):
        index = definition(family, "INT")
        built = build(index, [1, 2, None, 3])
        for leaf in (Leaf(Op.EQ, "c", (3,)), Leaf(Op.GE, "c", (3,))):
            with pytest.raises(CorruptFile, match=r"ordinal 3 in the payload of a group of 3 rows|not below 3"):
                open_payload(content(built), index, built.index_meta, 3).evaluate(leaf)
    with pytest.raises(CorruptFile):
        open_payload(content(built), index, built.index_meta, 3).evaluate(Leaf(Op.IS_NULL, "c"))


@pytest.mark.parametrize("key", PAYLOADS, ids="-".join)
def test_a_wrong_file_size_is_corrupt(key: tuple[str, str, str]) -> None:
    index, built = PAYLOADS[key]
    whole = content(built)
    for data in (whole[:-1], whole[1:], b"", whole[: len(whole) // 2]):
        with pytest.raises(CorruptFile):
            open_payload(data, index, built.index_meta, built.row_count).evaluate(Leaf(Op.EQ, "c", (COLUMNS[key[1]][0],)))


def blocks_of(family: str, data: bytes) -> list[tuple[int, int]]:
    """Offset and size of all stored blocks, the index block last."""
    source = PayloadBytes(reading(data), len(data))
    index = PAYLOADS[(family, "STRING", "plain")][0]
    if family == "btree":
        btree = BTreeFile(source, index.data_type)
        return [*zip(btree.index.offsets.tolist(), btree.index.sizes.tolist(), strict=True), btree._index_handle]
    bitmap = BitmapFile(source, index.data_type)
    return [*((offset, size) for _, offset, size in bitmap.blocks), bitmap._index_handle]


@pytest.mark.parametrize("family", ["btree", "bitmap"])
@given(data=st.data())
def test_wrong_bytes_under_a_right_checksum_do_no_harm(family: str, data: st.DataObject) -> None:
    """Nothing but CorruptFile comes out of blocks that were made up."""
    index, built = PAYLOADS[(family, "STRING", "plain")]
    whole = bytearray(content(built))
    offset, size = data.draw(st.sampled_from(blocks_of(family, bytes(whole))))
    for _ in range(data.draw(st.integers(1, 3))):
        at = offset + data.draw(st.integers(0, size - 1) | st.integers(max(0, size - 9), size - 1))
        whole[at] = data.draw(st.sampled_from([0, 1, 2, 0x7F, 0x80, 0xFF]) | st.integers(0, 255))
    whole[offset + size + 1 : offset + size + 5] = struct.pack("<I", zlib.crc32(whole[offset : offset + size + 1]))
    for leaf in LEAVES["STRING"]:
        with suppress(CorruptFile):
            found = open_payload(bytes(whole), index, built.index_meta, built.row_count).evaluate(leaf)
            assert found is not None
            assert not found or found.max() < built.row_count
    with suppress(CorruptFile):
        open_payload(bytes(whole), index, built.index_meta, built.row_count).verify()
