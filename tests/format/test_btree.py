"""The BTree payload's bytes; building from values is in tests/index."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from maintainer.errors import CorruptFile
from maintainer.format import posting
from maintainer.format.btree import FOOTER, BTreeWriter
from maintainer.format.btree_file import Block, BTreeFile
from maintainer.format.byte_column import ByteColumn
from maintainer.format.stored_block import PayloadBytes
from tests.support.builders import type_
from tests.support.sorted_index import LZ4_BTREE, bitmap, reading, reference_btree, stored, varint

STRING = type_("STRING")
NO_IDS = np.empty(0, np.int64)


def opened(data: bytes, size: int | None = None) -> BTreeFile:
    return BTreeFile(PayloadBytes(reading(data), len(data) if size is None else size), STRING)


def one_block(values: dict[bytes, bytes], version: int, index_keys: list[bytes] | None = None) -> bytes:
    """A payload whose entries have these raw values."""
    entries = [varint(len(key)) + key + varint(len(value)) + value for key, value in values.items()]

    def raw(parts: list[bytes]) -> bytes:
        positions = [sum(map(len, parts[:i])) for i in range(len(parts))]
        return b"".join(parts) + struct.pack(f"<{len(parts)}iib", *positions, len(parts), 1)

    data, size = stored(raw(entries), "none")
    handle = b"\x00" + varint(size)
    index, index_size = stored(raw([varint(len(k)) + k + varint(len(handle)) + handle for k in index_keys or [list(values)[-1]]]), "none")
    return data + index + FOOTER.pack(0, 0, 0, len(data), index_size, 0, 0, version, 0x50425449)


def test_lz4_payload_is_read() -> None:
    # spec 08 §4.11 F
    assert {key.decode(): ids.tolist() for key, ids in opened(LZ4_BTREE).entries()} == {"a" * 24 + f"{i:02}": [i] for i in range(12)}


def test_version_2_is_read() -> None:
    ids = list(range(1000, 1128))
    values = {
        b"a": bytes.fromhex("000a"),
        b"b": bytes.fromhex("01031414d9ffffff0f"),
        b"c": b"\x02" + bitmap(ids),
    }
    file = opened(one_block(values, 2))
    assert {key: found.tolist() for key, found in file.entries()} == {b"a": [10], b"b": [20, 40, 2**32 + 1], b"c": ids}
    assert file.lookup(b"b").tolist() == [20, 40, 2**32 + 1]


@pytest.mark.parametrize("value", ["", "00", "000a0b", "0102", "010205", "01020500", "0103050101 01", "020000000000000000", "03", "0201"])
def test_malformed_values_of_version_2_are_corrupt(value: str) -> None:
    with pytest.raises(CorruptFile):
        opened(one_block({b"a": bytes.fromhex(value)}, 2)).lookup(b"a")


@pytest.mark.parametrize("value", ["", "00", "01", "0180", "020105ff", "03 0102", "01 0102", "ffffffffffffffffff 01"])
def test_malformed_values_of_version_1_are_corrupt(value: str) -> None:
    with pytest.raises(CorruptFile):
        opened(one_block({b"a": bytes.fromhex(value), b"b": b"\x01\x00"}, 1)).lookup(b"a")


@pytest.mark.parametrize("version", [0, 3, -1])
def test_unknown_versions_are_refused(version: int) -> None:
    with pytest.raises(CorruptFile, match=f"Unsupported BTree index version: {version}"):
        opened(one_block({b"a": b"\x01\x00"}, version))


def test_bad_magic_and_sizes_are_noticed() -> None:
    data = reference_btree([(b"a", [0])], [])
    with pytest.raises(CorruptFile, match="bad magic"):
        opened(data[:-1] + b"\x00")
    with pytest.raises(CorruptFile, match="bad magic"):
        opened(data, len(data) - 1)
    with pytest.raises(CorruptFile, match="shorter"):
        opened(data, len(data) + 1)
    with pytest.raises(CorruptFile, match="51 bytes"):
        opened(data[-51:])


def test_blocks_out_of_order_are_noticed() -> None:
    value = b"\x01\x00"
    with pytest.raises(CorruptFile, match="not in key order"):
        opened(one_block({b"a": value, b"b": value}, 1, [b"b", b"a"])).lookup(b"a")
    with pytest.raises(CorruptFile, match="does not end with the key"):
        opened(one_block({b"a": value}, 1, [b"b"])).lookup(b"a")
    with pytest.raises(CorruptFile, match="overlap"):
        opened(one_block({b"a": value, b"c": value}, 1, [b"b", b"c"])).lookup(b"c")


@pytest.mark.parametrize(
    "text",
    ["", "0000000002", "0000000000", "ffffffff00", "05000000 00", "61 02000000 00", "ffffffff 01", "ffffff7f 01", "61 01000000 01000000 01",
     "6161 00000000 00000000 02000000 01"],
)  # fmt: skip
def test_malformed_blocks_are_corrupt(text: str) -> None:
    with pytest.raises(CorruptFile):
        Block(bytes.fromhex(text)).entry(0)


def test_blocks_are_cut_alike_however_keys_come() -> None:
    rows = [(b"k%03d" % i if i % 7 else b"key-%d" % i, [i, i + 1000] if i % 3 else [i]) for i in range(200)]
    rows.sort()
    for block_size in (1, 30, 100, 1000, 10**9):
        expected = reference_btree(rows, [5, 9], block_size)
        for batch in (1, 3, 50, 200):
            parts: list[bytes] = []
            writer = BTreeWriter(lambda data, parts=parts: parts.append(bytes(data)), block_size)
            for start in range(0, len(rows), batch):
                some = rows[start : start + batch]
                ids = np.array([i for _, found in some for i in found], np.int64)
                starts = np.cumsum([0, *(len(found) for _, found in some)])[:-1].astype(np.int64)
                writer.add(ByteColumn.of_rows([key for key, _ in some]), ids, starts)
            writer.finish(posting.encode(np.array([5, 9])))
            assert b"".join(parts) == expected


def test_ranges_begin_and_end_anywhere() -> None:
    keys = [b"%02d" % i for i in range(0, 40, 2)]
    data = reference_btree([(key, [int(key)]) for key in keys], [], 30)
    bounds = [None, *(b"%02d" % i for i in range(42))]
    for low in bounds:
        for high in bounds:
            for low_inclusive in (True, False):
                for high_inclusive in (True, False):
                    found = [int(i) for ids in opened(data).between(low, low_inclusive, high, high_inclusive) for i in ids]
                    assert found == [
                        int(key)
                        for key in keys
                        if (low is None or key > low or (key == low and low_inclusive))
                        and (high is None or key < high or (key == high and high_inclusive))
                    ], (low, low_inclusive, high, high_inclusive)
