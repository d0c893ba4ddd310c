"""Splits as bytes: the worked example of spec 07 §8, round trips, and bytes that are none."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maintainer.errors import CorruptFile, Unsupported, UsageError
from maintainer.format import split as codec
from maintainer.format.file_rows import encode_data_file
from maintainer.model.files import EMPTY_ROW
from maintainer.model.split import DataSplit, DeletionFile, IndexedSplit, Split
from tests.format.test_file_rows import DATA_FILE
from tests.support import strategies

FILE = replace(DATA_FILE, file_name="data-00112233-4455-6677-8899-aabbccddeeff-0.parquet")
"""Its row has the 464 bytes of the example."""
VECTOR = DeletionFile("/t/index/index-dv-0", 1, 22, 1)
PLANNED = DataSplit(6, EMPTY_ROW, 0, "/t/bucket-0", 1, (FILE,), (VECTOR,))
INDEXED = IndexedSplit(PLANNED, ((1, 1), (3, 3)))
ROW = encode_data_file(FILE, 13)
EXAMPLE = f"""
53504c49545f5631 00000001 00000003
f2f9e05442242e31 00000001
dec3d2302c19ec66 00000009 0000000000000006
0000000c 000000000000000000000000 00000000
000b 2f742f6275636b65742d30  01 00000001
00000000 00  00000001 000001d0 {ROW.hex()}
01 00000001 01 0013 2f742f696e6465782f696e6465782d64762d30
   0000000000000001 0000000000000016 0000000000000001
00 00
00000002 0000000000000001 0000000000000001 0000000000000003 0000000000000003 00
"""
SCORES = "01 00000002 3f000000 3e800000"


def test_the_worked_example_byte_for_byte() -> None:
    data = bytes.fromhex(EXAMPLE)
    assert (len(ROW), len(data)) == (464, 653)
    assert codec.encode(INDEXED).hex() == data.hex()
    assert codec.decode(data) == INDEXED
    scored = replace(INDEXED, scores=(0.5, 0.25))
    assert codec.encode(scored) == data[:-1] + bytes.fromhex(SCORES)
    assert codec.decode(codec.encode(scored)) == scored


def test_version_8_has_files_without_the_sequences_of_columns() -> None:
    file = replace(FILE, write_cols=("a",), write_cols_sequences=(7,))
    split = replace(PLANNED, files=(file,), raw_convertible=True)
    assert codec.decode(codec.encode(split)) == split
    old = codec.encode(split, 8)
    assert old[24:28] == (8).to_bytes(4, "big")
    assert codec.decode(old) == replace(split, files=(replace(file, write_cols_sequences=None),))
    with pytest.raises(UsageError, match="version 7"):
        codec.encode(split, 7)


def test_a_data_split_without_a_frame_is_read_too() -> None:
    assert codec.decode(codec.encode_data_split(PLANNED)) == PLANNED


@st.composite
def splits(draw: st.DrawFn) -> Split:
    files = tuple(draw(st.lists(strategies.file_metas(sequences_of_columns=True), max_size=3)))
    int64s = st.integers(0, 2**63 - 1)
    vector = st.none() | st.builds(DeletionFile, st.text(max_size=8), int64s, int64s, st.none() | int64s)
    split = DataSplit(
        draw(st.integers(-1, 2**63 - 1)),
        draw(strategies.serialized_rows()),
        draw(st.integers(-2, 2**31 - 1)),
        draw(st.text(max_size=20)),
        draw(st.none() | st.integers(-1, 2**31 - 1)),
        files,
        draw(st.none() | st.tuples(*(vector for _ in files))),
        draw(st.booleans()),
        draw(st.booleans()),
    )
    if draw(st.booleans()):
        return split
    ranges = draw(st.lists(st.tuples(int64s, int64s), max_size=4))
    scores = draw(st.none() | st.lists(st.floats(width=32, allow_nan=False), max_size=4).map(tuple))
    return IndexedSplit(split, tuple(ranges), scores)


@given(splits())
def test_round_trip(split: Split) -> None:
    assert codec.decode(codec.encode(split)) == split


@given(splits(), st.data())
def test_mutated_bytes_decode_or_are_refused(split: Split, data: st.DataObject) -> None:
    mutated = data.draw(strategies.mutated(codec.encode(split)))
    try:
        found = codec.decode(mutated)
    except (CorruptFile, Unsupported):
        return
    again = codec.encode(found)
    assert codec.encode(codec.decode(again)) == again  # bytes, as a score may have become NaN


def patched(at: int, value: bytes) -> bytes:
    data = bytes.fromhex(EXAMPLE)
    return data[:at] + value + data[at + len(value) :]


@pytest.mark.parametrize(
    ("data", "error", "match"),
    [
        (b"", CorruptFile, "claims 8 more bytes and has 0"),
        (patched(0, b"X"), CorruptFile, "do not begin like a split"),
        (patched(8, b"\0\0\0\2"), Unsupported, "splits of version 2"),
        (patched(12, (99).to_bytes(4, "big")), Unsupported, "type 99"),
        (patched(12, (5).to_bytes(4, "big")), Unsupported, r"type 5 \(query-auth\)"),
        (patched(16, b"X"), CorruptFile, "magic number of an indexed split"),
        (patched(24, b"\0\0\0\2"), Unsupported, "indexed splits of version 2"),
        (patched(28, b"\0"), Unsupported, "data splits of version 1"),
        (patched(36, b"\0\0\0\x0a"), Unsupported, "data splits of version 10"),
        (patched(48, b"\x7f"), CorruptFile, "claims 2130706444 more bytes"),
        (patched(86, b"\0\0\0\1"), Unsupported, "before and after"),
        (patched(91, b"\x7f\xff\xff\xff"), CorruptFile, "claims a list of 2147483647"),
        (patched(91, b"\xff\xff\xff\xff"), CorruptFile, "claims a list of -1"),
        (patched(564, b"\0\0\0\2"), CorruptFile, "."),
        (patched(616, b"\x7f\xff\xff\xff"), CorruptFile, "claims a list of 2147483647"),
        (bytes.fromhex(EXAMPLE)[:-1], CorruptFile, "claims 1 more bytes and has 0"),
        (bytes.fromhex(EXAMPLE) + b"\0", CorruptFile, "1 bytes follow the split"),
        (bytes.fromhex(EXAMPLE)[:-1] + b"\1" + struct.pack(">i", 2**31 - 1), CorruptFile, "claims a list of 2147483647"),
    ],
)
def test_what_is_wrong_is_said(data: bytes, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        codec.decode(data)
