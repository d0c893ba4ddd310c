"""INT96 timestamps: TIMESTAMP and TIMESTAMP_LTZ of 7 to 9 digits (spec 02 §3.2), read and written as the bytes that they are.

| bytes | field                                                                               |
| 8     | nanoseconds of the day, int64 little-endian; Java writes negative ones before 1970  |
| 4     | Julian day, int32 little-endian; 2440588 is 1970-01-01                              |

Arrow turns INT96 into 64-bit nanoseconds without a look at the range (year 2300 becomes 1715), and into coarser units without a thought of
negative nanoseconds; and it writes all timestamps of a file as INT96 or none, while released Java reads nothing but INT96 as a timestamp of
more than 6 digits. So Arrow only ever sees columns of 12 bytes, which are encoded the same, and the footer is told otherwise.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from maintainer.data import footer_bytes
from maintainer.errors import CorruptFile, Unsupported

RAW = pa.binary(footer_bytes.WIDTH)
OUT_OF_RANGE = "a timestamp outside of 1677-09-21 … 2262-04-11, which 64-bit nanoseconds cannot hold"
_VALUE = np.dtype([("nanos", "<i8"), ("day", "<i4")])
_EPOCH_DAY = 2440588
_DAY_NANOS = 86_400_000_000_000
_PER_SECOND = {"ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_MAGIC = b"PAR1"
_TAIL = 8


def has_int96(metadata: pq.FileMetaData) -> bool:
    """Whether a file holds INT96 values at all."""
    schema = metadata.schema
    return any(schema.column(index).physical_type == "INT96" for index in range(len(schema)))


def raw_footer(source: Any) -> pq.FileMetaData:
    """The footer of an open Parquet file in which INT96 columns are columns of 12 bytes."""
    size = source.size()
    source.seek(size - _TAIL)
    length = int.from_bytes(source.read(4), "little")
    if length > size - _TAIL:
        raise CorruptFile(f"a footer of {length} bytes")
    source.seek(size - _TAIL - length)
    footer = footer_bytes.int96_to_fixed(source.read(length))
    return pq.read_metadata(pa.BufferReader(_MAGIC + footer + len(footer).to_bytes(4, "little") + _MAGIC))


def finished(end: bytes) -> bytes:
    """The end of a file, from some point before its footer on, in which columns of 12 bytes are INT96 columns."""
    length = int.from_bytes(end[-_TAIL:-4], "little")
    footer = footer_bytes.fixed_to_int96(end[-_TAIL - length : -_TAIL])
    return end[: -_TAIL - length] + footer + len(footer).to_bytes(4, "little") + _MAGIC


def raw_type(data_type: pa.DataType) -> pa.DataType:
    """The type with 12 bytes in place of nanoseconds, at any depth; the type itself if it has none."""
    if pa.types.is_timestamp(data_type):
        return RAW if data_type.unit == "ns" else data_type
    if pa.types.is_struct(data_type):
        return pa.struct([_raw_field(field) for field in data_type])
    if pa.types.is_map(data_type):
        return pa.map_(_raw_field(data_type.key_field), _raw_field(data_type.item_field))
    if pa.types.is_list(data_type):
        return pa.list_(_raw_field(data_type.value_field))
    return data_type


def raw_schema(schema: pa.Schema) -> pa.Schema:
    return pa.schema([_raw_field(field) for field in schema])


def _raw_field(field: pa.Field) -> pa.Field:
    return field.with_type(raw_type(field.type))


def raw_array(array: pa.Array, target: pa.DataType) -> pa.Array:
    """The array as one of the type that `raw_type` gives."""
    if array.type == target:
        return array
    if pa.types.is_timestamp(array.type):
        return _raw_values(array)
    if pa.types.is_struct(target):
        children = [raw_array(array.field(index), field.type) for index, field in enumerate(target)]
        return pa.StructArray.from_arrays(children, fields=list(target), mask=array.is_null() if array.null_count else None)
    if pa.types.is_map(target):
        entries = [raw_array(array.keys, target.key_type), raw_array(array.items, target.item_type)]
        children = [pa.StructArray.from_arrays(entries, fields=[target.key_field, target.item_field])]
    else:
        children = [raw_array(array.values, target.value_type)]
    return pa.Array.from_buffers(target, len(array), array.buffers()[:2], array.null_count, array.offset, children)


def _raw_values(array: pa.TimestampArray) -> pa.Array:
    numbers = array.view(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    parts = np.empty(len(numbers), _VALUE)
    days = np.floor_divide(numbers, _DAY_NANOS)
    parts["nanos"] = numbers - days * _DAY_NANOS
    parts["day"] = days + _EPOCH_DAY
    raw = pa.Array.from_buffers(RAW, len(array), [None, pa.py_buffer(parts)])
    return pc.if_else(array.is_valid(), raw, pa.scalar(None, RAW)) if array.null_count else raw


def timestamps(array: pa.FixedSizeBinaryArray, arrow: pa.TimestampType) -> pa.Array:
    """12-byte values as timestamps of this type; excess digits are cut, towards the past."""
    rows = len(array)
    data = array.buffers()[1]
    if data is None or array.null_count == rows:
        return pa.nulls(rows, arrow)
    parts = np.frombuffer(data, _VALUE, count=rows, offset=array.offset * footer_bytes.WIDTH)
    valid = None if not array.null_count else array.is_valid().to_numpy(zero_copy_only=False)
    nanos, days = parts["nanos"], parts["day"].astype(np.int64) - _EPOCH_DAY
    if valid is not None:  # what lies under a NULL means nothing
        nanos, days = np.where(valid, nanos, 0), np.where(valid, days, 0)
    carry = np.floor_divide(nanos, _DAY_NANOS)
    nanos, days = nanos - carry * _DAY_NANOS, days + carry
    per_day = 86_400 * _PER_SECOND[arrow.unit]
    limits = np.iinfo(np.int64)
    if days.min() <= limits.min // per_day or days.max() >= limits.max // per_day:
        _check_edges(days, nanos, per_day, limits)
    numbers = days * per_day + nanos // (_DAY_NANOS // per_day)
    return pa.array(numbers, pa.int64(), mask=None if valid is None else ~valid).view(arrow)


def _check_edges(days: Any, nanos: Any, per_day: int, limits: Any) -> None:
    """Exactly, for the few values of the first and last days that 64 bits reach."""
    edges = np.flatnonzero((days <= limits.min // per_day) | (days >= limits.max // per_day))
    for day, nano in zip(days[edges].tolist(), nanos[edges].tolist(), strict=True):
        if not limits.min <= day * per_day + nano // (_DAY_NANOS // per_day) <= limits.max:
            raise Unsupported(OUT_OF_RANGE)
