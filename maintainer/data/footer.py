"""What a Parquet footer says about columns (spec 02 §3.6): where they are, and the bounds of their row groups as internal values.

Statistics stand in the footer in the physical form of the column: the raw number or bytes, to be read by the column's annotation, which is
what Arrow made the file's type from.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from maintainer.errors import CorruptFile
from maintainer.model.types import FLOATS, TIMESTAMPS, DataType

_NANOS = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}
_MILLIS_DIVISOR = {"us": 1_000, "ns": 1_000_000}


def leaf_index(schema: pa.Schema, name: str) -> int | None:
    """The leaf column of a column that is not nested, in the order of the file, and None for any other."""
    nested = any(field.name == name and pa.types.is_nested(field.type) for field in schema)
    found = leaves(schema, name)
    return None if nested or not found else found[0]


def leaves(schema: pa.Schema, name: str) -> range:
    """All leaf columns of a column, nested or not, in the order of the file."""
    first = 0
    for field in schema:
        count = leaf_count(field.type)
        if field.name == name:
            return range(first, first + count)
        first += count
    return range(0)


def leaf_count(data_type: pa.DataType) -> int:
    """Columns of the file that a column of this type takes."""
    if pa.types.is_dictionary(data_type) or not data_type.num_fields:
        return 1
    return sum(leaf_count(data_type.field(index).type) for index in range(data_type.num_fields))


def column_spans(metadata: pq.FileMetaData, group: int, leaves: Iterable[int]) -> list[tuple[int, int]]:
    """Start and end of these column chunks in the file, as the footer says."""
    spans = []
    row_group = metadata.row_group(group)
    for leaf in leaves:
        chunk = row_group.column(leaf)
        start = chunk.data_page_offset
        if chunk.has_dictionary_page and chunk.dictionary_page_offset is not None:
            start = min(start, chunk.dictionary_page_offset)
        spans.append((start, start + chunk.total_compressed_size))
    return spans


def check_names(metadata: pq.FileMetaData) -> None:
    """The footer names its columns twice, in the schema and with each chunk: a name that is wrong in one place must not make values NULL."""
    if metadata.num_row_groups:
        group = metadata.row_group(0)
        for index in range(metadata.num_columns):
            path, chunk_path = metadata.schema.column(index).path, group.column(index).path_in_schema
            if path != chunk_path:
                raise CorruptFile(f"a column of the footer is called {path} and {chunk_path}")


def bounds(metadata: pq.FileMetaData, group: int, index: int, arrow: pa.DataType, data_type: DataType) -> tuple[Any, Any] | None:
    """Values between which those of a column chunk are, in the order of `maintainer.model.values`."""
    if pa.types.is_fixed_size_binary(arrow):  # INT96 in disguise, or a decimal without annotation
        return None
    chunk = metadata.row_group(group).column(index)
    if chunk.physical_type != metadata.schema.column(index).physical_type:  # Arrow ends the process when it is asked for such statistics
        raise CorruptFile(f"a column chunk of row group {group} has type {chunk.physical_type}")
    statistics = chunk.statistics
    if statistics is None or not statistics.has_min_max:
        return None
    low, high = value(statistics.min_raw, arrow, data_type), value(statistics.max_raw, arrow, data_type)
    if low is None or high is None:
        return None
    if data_type.root in FLOATS:
        return (-0.0 if low == 0 else low), math.nan
    return low, high


def value(raw: Any, arrow: pa.DataType, data_type: DataType) -> Any:
    """A bound of the footer as an internal value; None if it cannot be one (a cut text, for example)."""
    types = pa.types
    if types.is_dictionary(arrow):
        arrow = arrow.value_type
    if types.is_decimal(arrow):
        unscaled = int.from_bytes(raw, "big", signed=True) if isinstance(raw, bytes) else raw
        return Decimal(f"{unscaled}E{-arrow.scale}")
    if isinstance(raw, bytes):
        if types.is_string(arrow) or types.is_large_string(arrow) or types.is_string_view(arrow):
            return _text(raw)
        return raw
    if types.is_timestamp(arrow):
        return raw * _NANOS[arrow.unit]
    if types.is_time(arrow):
        return raw // _MILLIS_DIVISOR.get(arrow.unit, 1)
    if data_type.root in FLOATS and math.isnan(raw):
        return None
    if data_type.root in TIMESTAMPS:
        return None
    return raw


def _text(raw: bytes) -> str | None:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return None
