"""What a Parquet footer says about columns (spec 02 §3.6): where they are, and the bounds of their row groups as internal values.

A file never changes, so a footer that was read and checked once is kept with the table and shared by all readers of the file.

Statistics stand in the footer in the physical form of the column: the raw number or bytes, to be read by the column's annotation, which is
what Arrow made the file's type from.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from maintainer.data.data_file import RowGroup
from maintainer.errors import CorruptFile
from maintainer.model.types import FLOATS, TIMESTAMPS, DataType

Sizes = npt.NDArray[np.int64]

_CHUNK_BYTES = 700
"""What Arrow holds of a column chunk of a footer, beside names and bounds."""
_LEAST_DECODED = 8
"""Bytes of a value, about, of which the file has no more than a number in a dictionary, and of a text beside its letters."""
_MOST = 1 << 50
"""Beyond the size of any file: sums of it are still numbers of 64 bits."""
_NANOS = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}
_MILLIS_DIVISOR = {"us": 1_000, "ns": 1_000_000}


class Footer:
    """A checked footer. What is asked of a column is looked up once for all row groups."""

    def __init__(self, metadata: pq.FileMetaData, arrow_schema: pa.Schema, row_groups: tuple[RowGroup, ...]) -> None:
        self.metadata = metadata
        self.arrow_schema = arrow_schema
        self.names: Sequence[str] = arrow_schema.names
        self.row_groups = row_groups
        self.leaves: Mapping[str, range] = _leaves(arrow_schema)
        self._chunks: dict[int, _Chunks] = {}

    @classmethod
    def of(cls, metadata: pq.FileMetaData, arrow_schema: pa.Schema) -> Footer:
        groups, first = [], 0
        for index in range(metadata.num_row_groups):
            rows = metadata.row_group(index).num_rows
            if rows < 0:
                raise CorruptFile(f"row group {index} has {rows} rows")
            groups.append(RowGroup(first, rows))
            first += rows
        return cls(metadata, arrow_schema, tuple(groups))

    @property
    def held(self) -> int:
        """Bytes in memory: what Arrow makes of a column chunk is many times what it takes in the file."""
        chunks = self.metadata.num_columns * self.metadata.num_row_groups
        return int(4096 + 4 * self.metadata.serialized_size + _CHUNK_BYTES * chunks)

    def stored_bytes(self, leaves: Iterable[int]) -> Sizes:
        """By row group, what these column chunks take in the file."""
        return self._sum(self._of(leaf).stored for leaf in leaves)

    def decoded_bytes(self, leaves: Iterable[int]) -> Sizes:
        """By row group, what they take when they are decoded, about."""
        return self._sum(self._of(leaf).decoded for leaf in leaves)

    def spans(self, leaf: int, groups: Iterable[int]) -> list[tuple[int, int]]:
        """Start and end of the chunks of a column in the file, as the footer says."""
        chunks = self._of(leaf)
        return [(int(chunks.start[group]), int(chunks.start[group]) + int(chunks.stored[group])) for group in groups]

    def _sum(self, sizes: Iterable[Sizes]) -> Sizes:
        return sum(sizes, np.zeros(len(self.row_groups), dtype=np.int64))

    def _of(self, leaf: int) -> _Chunks:
        found = self._chunks.get(leaf)
        if found is None:
            found = self._chunks[leaf] = _chunks(self.metadata, leaf)
        return found


class _Chunks(NamedTuple):
    """The chunks of one column, by row group."""

    start: Sizes
    stored: Sizes
    decoded: Sizes


def _chunks(metadata: pq.FileMetaData, leaf: int) -> _Chunks:
    found = []
    for group in range(metadata.num_row_groups):
        chunk = metadata.row_group(group).column(leaf)
        start = chunk.data_page_offset
        if chunk.has_dictionary_page and chunk.dictionary_page_offset is not None:
            start = min(start, chunk.dictionary_page_offset)
        value = _LEAST_DECODED + _text_size(metadata, leaf, chunk)
        found.append((start, chunk.total_compressed_size, max(chunk.total_uncompressed_size, value * chunk.num_values)))
    return _Chunks(*np.array([[min(max(number, 0), _MOST) for number in row] for row in found], dtype=np.int64).reshape(-1, 3).T)


def _text_size(metadata: pq.FileMetaData, leaf: int, chunk: Any) -> int:
    """Bytes of a text, about, of which the file has no more than a number in a dictionary: those of the longer one of its bounds."""
    if chunk.physical_type != "BYTE_ARRAY" or metadata.schema.column(leaf).physical_type != chunk.physical_type:
        return 0
    statistics = chunk.statistics if any(encoding.endswith("_DICTIONARY") for encoding in chunk.encodings) else None
    return max(len(statistics.min_raw), len(statistics.max_raw)) if statistics is not None and statistics.has_min_max else 0


def leaf_index(schema: pa.Schema, name: str) -> int | None:
    """The leaf column of a column that is not nested, in the order of the file, and None for any other."""
    nested = any(field.name == name and pa.types.is_nested(field.type) for field in schema)
    found = _leaves(schema).get(name)
    return None if nested or not found else found[0]


def _leaves(schema: pa.Schema) -> Mapping[str, range]:
    """By name, the leaf columns of a column, nested or not, in the order of the file. Nobody may ask for a name that two columns have."""
    leaves, first = {}, 0
    for field in schema:
        count = leaf_count(field.type)
        leaves[field.name] = range(first, first + count)
        first += count
    return leaves


def leaf_count(data_type: pa.DataType) -> int:
    """Columns of the file that a column of this type takes."""
    if pa.types.is_dictionary(data_type) or not data_type.num_fields:
        return 1
    return sum(leaf_count(data_type.field(index).type) for index in range(data_type.num_fields))


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
