from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maintainer.errors import CorruptFile
from maintainer.format import index_meta
from maintainer.format.index_meta import IndexMeta
from tests.support.strategies import mutated

# spec 08 §3
VECTORS = [
    (IndexMeta(b"name-1", b"name-4", False), "06000000 6e616d652d31 06000000 6e616d652d34 00 01 00"),
    (IndexMeta(None, None, True), "00000000 00000000 01 01 03"),
    (IndexMeta(b"", b"", True), "00000000 00000000 01 01 00"),
    (IndexMeta(None, None, False), "00000000 00000000 00 01 03"),
    (IndexMeta(bytes.fromhex("fdffffff"), bytes.fromhex("2c010000"), True), "04000000 fdffffff 04000000 2c010000 01 01 00"),
]
METAS = st.builds(IndexMeta, st.binary(max_size=8), st.binary(max_size=8), st.booleans()) | st.builds(
    IndexMeta, st.none(), st.none(), st.booleans()
)


@pytest.mark.parametrize(("meta", "text"), VECTORS)
def test_bytes_are_those_of_java(meta: IndexMeta, text: str) -> None:
    assert index_meta.encode(meta) == bytes.fromhex(text)
    assert index_meta.decode(bytes.fromhex(text)) == meta


@pytest.mark.parametrize(
    ("text", "meta"),
    [
        ("01000000 61 01000000 62 00", IndexMeta(b"a", b"b", False)),
        ("01000000 61 01000000 62 01", IndexMeta(b"a", b"b", True)),
        ("00000000 00000000 01", IndexMeta(None, None, True)),
        ("00000000 00000000 00", IndexMeta(b"", b"", False)),
        ("00000000 01000000 62 01", IndexMeta(b"", b"b", True)),
        ("01000000 61 01000000 62 01 01", IndexMeta(b"a", b"b", True)),  # one more byte: still the legacy form
        ("00000000 00000000 01 02 03", IndexMeta(b"", b"", True)),  # flags of an unknown version say nothing
        ("00000000 00000000 01 01 03 ffff", IndexMeta(None, None, True)),  # what follows is ignored
    ],
)
def test_other_forms_are_read(text: str, meta: IndexMeta) -> None:
    assert index_meta.decode(bytes.fromhex(text)) == meta


@pytest.mark.parametrize(
    "text", ["", "000000", "00000000", "05000000 61", "ffffffff 00000000 00", "00000000 00000000", "00000000 00000000 00 01 01"]
)
def test_malformed_metadata_is_corrupt(text: str) -> None:
    with pytest.raises(CorruptFile):
        index_meta.decode(bytes.fromhex(text))


@given(METAS)
def test_metadata_survives_a_round_trip(meta: IndexMeta) -> None:
    assert index_meta.decode(index_meta.encode(meta)) == meta
    assert meta.only_nulls == (meta.first_key is None)


@given(st.data(), METAS)
def test_changed_bytes_are_decoded_or_corrupt(data: st.DataObject, meta: IndexMeta) -> None:
    changed = data.draw(mutated(index_meta.encode(meta)))
    try:
        found = index_meta.decode(changed)
    except CorruptFile:
        return
    assert (found.first_key is None) == (found.last_key is None)
