from __future__ import annotations

import struct

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maintainer.data import int96
from maintainer.errors import CorruptFile, Unsupported

NS = pa.timestamp("ns")
FIRST, LAST = -(2**63), 2**63 - 1
DAY = 86_400 * 10**9


def raw(*values: int | None, negative: bool = False) -> pa.Array:
    """Nanoseconds as INT96; `negative`: as Java writes times before 1970, with the day rounded towards it and negative nanoseconds."""
    parts = []
    for value in values:
        if value is None:
            parts.append(None)
            continue
        day, nanos = divmod(value, DAY)
        if negative and value < 0 and nanos:
            day, nanos = day + 1, nanos - DAY
        parts.append(struct.pack("<qI", nanos, day + 2440588))
    return pa.array(parts, pa.binary(12))


nanoseconds = st.integers(FIRST, LAST) | st.sampled_from([FIRST, FIRST + 1, LAST - 1, LAST, 0, -1, 1, DAY, -DAY])


@given(st.lists(st.none() | nanoseconds, max_size=8), st.booleans(), st.integers(0, 3))
def test_every_64_bit_nanosecond_is_read(values: list[int | None], negative: bool, start: int) -> None:
    array = raw(*values, negative=negative).slice(start)
    assert int96.timestamps(array, NS).view(pa.int64()).to_pylist() == values[start:]
    microseconds = int96.timestamps(array, pa.timestamp("us"))
    assert microseconds.view(pa.int64()).to_pylist() == [None if value is None else value // 1000 for value in values[start:]]


@given(st.integers(-(2**37), 2**42).map(lambda second: second * 10**9) | st.sampled_from([FIRST - 1, LAST + 1]), st.booleans())
def test_other_times_are_refused_and_never_wrapped(value: int, negative: bool) -> None:
    if FIRST <= value <= LAST:
        assert int96.timestamps(raw(value, negative=negative), NS).view(pa.int64()).to_pylist() == [value]
    else:
        with pytest.raises(Unsupported, match="1677-09-21"):
            int96.timestamps(raw(0, value, negative=negative), NS)


def test_coarser_units_reach_further() -> None:
    year_9999 = 253_402_300_799 * 10**9
    assert int96.timestamps(raw(year_9999), pa.timestamp("us")).view(pa.int64()).to_pylist() == [year_9999 // 1000]


def test_what_lies_under_a_null_is_not_looked_at() -> None:
    garbage = pa.Array.from_buffers(
        pa.binary(12), 2, [pa.py_buffer(b"\x01"), pa.py_buffer(bytes(8) + struct.pack("<I", 2440588) + b"\xff" * 12)]
    )
    assert int96.timestamps(garbage, NS).view(pa.int64()).to_pylist() == [0, None]


SAMPLE = pa.table(
    {
        "before": pa.array([1, 2, 3]),
        "a": pa.array([0, None, -1], NS),
        "nested": pa.array([[{"t": 5, "n": 1}], None, []], pa.list_(pa.struct([("t", NS), ("n", pa.int32())]))),
        "b": pa.array([1, 2, None], NS),
        "after": pa.array(["x", "y", None]),
    }
)


def written(**options: object) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    pq.write_table(SAMPLE, sink, use_deprecated_int96_timestamps=True, **options)
    return sink.getvalue()


@pytest.mark.parametrize("store_schema", [True, False])
def test_a_footer_in_which_int96_is_12_bytes(store_schema: bool) -> None:
    source = pa.BufferReader(written(store_schema=store_schema))
    assert int96.has_int96(pq.ParquetFile(source).metadata)
    metadata = int96.raw_footer(source)
    assert not int96.has_int96(metadata)
    file = pq.ParquetFile(source, metadata=metadata)
    assert [str(field.type) for field in file.schema_arrow][:2] == ["int64", "fixed_size_binary[12]"]
    table = file.read()
    assert int96.timestamps(table["a"].combine_chunks(), NS) == SAMPLE["a"].combine_chunks()
    assert int96.timestamps(table["b"].combine_chunks(), NS) == SAMPLE["b"].combine_chunks()
    assert table.select(["before", "after"]) == SAMPLE.select(["before", "after"])
    assert table["nested"].combine_chunks().flatten().field("t").to_pylist() == raw(5).to_pylist()


def test_files_without_int96_are_left_alone() -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(SAMPLE, sink)
    assert not int96.has_int96(pq.ParquetFile(sink.getvalue()).metadata)
    assert int96.raw_footer(pa.BufferReader(sink.getvalue())).schema.equals(pq.ParquetFile(sink.getvalue()).schema)


def test_mutated_footers_are_an_error_or_a_footer() -> None:
    data = written().to_pybytes()
    length = int.from_bytes(data[-8:-4], "little")
    for at in range(len(data) - 8 - length, len(data) - 4):
        for bits in (1, 16, 128, 255):
            mutated = bytearray(data)
            mutated[at] ^= bits
            try:
                found = int96.raw_footer(pa.BufferReader(bytes(mutated)))
            except (CorruptFile, pa.ArrowException, ValueError, OSError):  # as the reader catches them
                continue
            assert isinstance(found, pq.FileMetaData)
