from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maintainer.errors import CorruptFile, MaintainerError
from maintainer.format import source_meta
from maintainer.format.source_meta import SourceMeta
from tests.support.strategies import mutated

# spec 06 §7
VECTORS = [
    (SourceMeta(1, (("data-1", 10),)), "000000010000000100000001 0006 646174612d31 000000000000000a"),
    (
        SourceMeta(3, (("a", 1), ("b", 0), ("c", 2**40))),
        "000000010000000300000003 0001 61 0000000000000001 0001 62 0000000000000000 0001 63 0000010000000000",
    ),
    (SourceMeta(2, (("x\x00é中😀", 7),)), "000000010000000200000001 000e 78 c080 c3a9 e4b8ad eda0bdedb880 0000000000000007"),
]
NAMES = st.text(max_size=12)  # surrogates included: Java names are UTF-16 code units
METAS = st.builds(
    SourceMeta,
    st.integers(1, 2**31 - 1),
    st.lists(st.tuples(NAMES, st.integers(0, 2**63 - 1)), min_size=1, max_size=5).map(tuple),
)


@pytest.mark.parametrize(("meta", "text"), VECTORS)
def test_bytes_are_those_of_java(meta: SourceMeta, text: str) -> None:
    data = bytes.fromhex(text)
    assert source_meta.encode(meta) == data
    assert source_meta.decode(data) == meta


def test_golden_entry_has_73_bytes() -> None:
    meta = SourceMeta(2, (("data-1204a156-ccd1-48bf-96e6-31ac2028e91a-0.parquet", 4),))
    assert len(source_meta.encode(meta)) == 73


def test_rows_are_numbered_file_after_file() -> None:
    meta = SourceMeta(1, (("a", 3), ("b", 0), ("c", 4)))
    assert meta.total_rows == 7
    assert meta.first_ordinals == (0, 3, 3)


def test_sources_are_ordered_as_utf16() -> None:
    # U+1F600 is two surrogates and so comes before U+FF5E (spec 06 §9.1)
    assert source_meta.ordered([("data-～", 1), ("data-😀", 2), ("data-z", 3)]) == (("data-z", 3), ("data-😀", 2), ("data-～", 1))


@pytest.mark.parametrize(("count", "accepted"), [(21845, True), (21846, False)])
def test_a_name_of_more_than_65535_bytes_is_refused(count: int, accepted: bool) -> None:
    meta = SourceMeta(1, (("中" * count, 1),))
    if accepted:
        assert source_meta.decode(source_meta.encode(meta)) == meta
    else:
        with pytest.raises(MaintainerError, match="too long"):
            source_meta.encode(meta)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "truncated"),
        ("000000020000000100000001 0001 61 0000000000000001", "version 2"),
        ("4445495800000001 0000000000000001", "version"),
        ("000000010000000000000001 0001 61 0000000000000001", "level 0"),
        ("00000001ffffffff00000001 0001 61 0000000000000001", "level -1"),
        ("000000010000000100000000", "0 index sources"),
        ("00000001000000017fffffff 0001 61 0000000000000001", "2147483647 index sources"),
        ("0000000100000001ffffffff 0001 61 0000000000000001", "-1 index sources"),
        ("000000010000000100000001 0001 61 ffffffffffffffff", "negative row count"),
        ("000000010000000100000001 0001 61 0000000000000001 00", "after the last"),
        ("000000010000000100000001 0001 61 00000000000001", "truncated"),
        ("000000010000000100000001 ffff 61 0000000000000001", "truncated"),
        ("000000010000000100000001 0001 80 0000000000000001", "UTF-8"),
    ],
)
def test_malformed_metadata_is_corrupt(text: str, reason: str) -> None:
    with pytest.raises(CorruptFile, match=reason):
        source_meta.decode(bytes.fromhex(text))


@given(METAS)
def test_metadata_survives_a_round_trip(meta: SourceMeta) -> None:
    assert source_meta.decode(source_meta.encode(meta)) == meta


@given(st.data(), METAS)
def test_changed_bytes_are_decoded_or_corrupt(data: st.DataObject, meta: SourceMeta) -> None:
    changed = data.draw(mutated(source_meta.encode(meta)))
    try:
        found = source_meta.decode(changed)
    except CorruptFile:
        return
    assert found.level > 0
    assert all(rows >= 0 for _, rows in found.files)


def test_metadata_of_row_id_indexes_is_not_ours() -> None:
    assert source_meta.is_source_meta(bytes.fromhex(VECTORS[0][1]))
    assert not source_meta.is_source_meta(bytes.fromhex("4445495800000001"))
    assert not source_meta.is_source_meta(None)
