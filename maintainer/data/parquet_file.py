"""Reading key-value Parquet files (spec 02 §3; Java `ParquetReaderFactory`).

Memory: batches stream, some pages of each wanted column at a time. Threads are not used; the callers' work is what runs in parallel.

On a remote store some pages at a time would be a request each, so there the wanted columns of a few row groups are fetched at once (files that
this package writes have row groups of a few megabytes); only of larger row groups are they read piece by piece, and the pieces are larger.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from maintainer.data import footer, int96
from maintainer.data.data_file import Column, DataFile, RowGroup
from maintainer.errors import CorruptFile

_LARGEST_BUFFER = 256 << 10
_SMALLEST_BUFFER = 16 << 10
_ALL_BUFFERS = 4 << 20
_AT_ONCE = 8 << 20
"""Bytes of row groups that are fetched together from a remote store."""
_MOST_AT_ONCE = 16 << 20
"""A row group of which more is wanted is not fetched, but read piece by piece."""
_REMOTE_BUFFERS = 16 << 20
_LARGEST_REMOTE_BUFFER = 4 << 20

Prefetch = Callable[[Sequence[tuple[int, int]]], None]
"""Fetches ranges of a file at once, and holds them until the next call."""


class ParquetDataFile(DataFile):
    metadata: pq.FileMetaData

    def _open(self) -> None:
        self._prefetch: Prefetch | None = getattr(self._source, "prefetch", None)
        self.metadata = pq.read_metadata(self._source)
        if int96.has_int96(self.metadata):
            self.metadata = int96.raw_footer(self._source)
        self._file = pq.ParquetFile(self._source, metadata=self.metadata, **_reading(self.metadata, self._prefetch is not None))
        footer.check_names(self.metadata)
        self._arrow_schema = self._file.schema_arrow
        self.names = self._arrow_schema.names
        self.row_groups = _row_groups(self.metadata)
        self.row_count = self.metadata.num_rows

    names: Sequence[str] = ()

    def group_bytes(self, group: int) -> int:
        return int(self.metadata.row_group(group).total_byte_size)

    def _bounds(self, plan: Column) -> list[tuple[Any, Any] | None]:
        assert plan.name is not None
        index = footer.leaf_index(self._arrow_schema, plan.name)
        if index is None:
            return [None] * len(self.row_groups)
        arrow = self._arrow_schema.field(plan.name).type
        return [footer.bounds(self.metadata, group, index, arrow, plan.target.type) for group in range(len(self.row_groups))]

    def _stored_bytes(self, name: str) -> int:
        leaves = footer.leaves(self._arrow_schema, name)
        groups = map(self.metadata.row_group, range(len(self.row_groups)))
        return sum(group.column(leaf).total_compressed_size for group in groups for leaf in leaves)

    def _read(self, groups: list[int], plans: Sequence[Column]) -> pa.Table:
        pieces = self._split(groups, plans) if groups else [[]]
        names = _names(plans)
        tables = [self._file.read_row_groups(piece, columns=names, use_threads=False) for piece in pieces]
        return tables[0] if len(tables) == 1 else pa.concat_tables(tables)

    def _raw_batches(self, plans: Sequence[Column], batch_rows: int, piece: list[int], rows: int) -> Iterator[pa.RecordBatch]:
        batches: Iterator[pa.RecordBatch] = self._file.iter_batches(batch_rows, row_groups=piece, columns=_names(plans), use_threads=False)
        return batches

    def _split(self, piece: list[int], plans: Sequence[Column]) -> Iterator[list[int]]:
        """The groups in order, as many at a time as are fetched at once. What was fetched is let go when the next ones are asked for."""
        if self._prefetch is None:
            yield list(piece)
            return
        wanted = [index for name in _names(plans) for index in self._leaves.get(name, ())]
        together: list[int] = []
        spans: list[tuple[int, int]] = []
        size = 0
        for group in piece:
            found = footer.column_spans(self.metadata, group, wanted)
            bytes_found = sum(end - start for start, end in found)
            if together and size + bytes_found > _AT_ONCE:
                self._prefetch(spans if size <= _MOST_AT_ONCE else ())
                yield together
                together, spans, size = [], [], 0
            together.append(group)
            spans += found
            size += bytes_found
        if together:
            self._prefetch(spans if size <= _MOST_AT_ONCE else ())
            yield together
        self._prefetch(())

    @cached_property
    def _leaves(self) -> Mapping[str, range]:
        """By name, the column chunks of a column."""
        leaves, first = {}, 0
        for field in self._arrow_schema:
            count = footer.leaf_count(field.type)
            leaves[field.name] = range(first, first + count)
            first += count
        return leaves


def _reading(metadata: pq.FileMetaData, remote: bool) -> Mapping[str, Any]:
    """With a buffer, a column chunk is read piece by piece; without one, all of it (40 MB or more) would be held for every open file."""
    columns = max(metadata.num_columns, 1)
    buffer_size = min(max(_ALL_BUFFERS // columns, _SMALLEST_BUFFER), _LARGEST_BUFFER)
    if remote and any(metadata.row_group(group).total_byte_size > _MOST_AT_ONCE for group in range(metadata.num_row_groups)):
        buffer_size = min(max(_REMOTE_BUFFERS // columns, _SMALLEST_BUFFER), _LARGEST_REMOTE_BUFFER)
    return {"pre_buffer": False, "buffer_size": buffer_size, "page_checksum_verification": True}


def _row_groups(metadata: pq.FileMetaData) -> tuple[RowGroup, ...]:
    groups = []
    first = 0
    for index in range(metadata.num_row_groups):
        rows = metadata.row_group(index).num_rows
        if rows < 0:
            raise CorruptFile(f"row group {index} has {rows} rows")
        groups.append(RowGroup(first, rows))
        first += rows
    return tuple(groups)


def _names(plans: Sequence[Column]) -> list[str]:
    return [plan.name for plan in plans if plan.name is not None]
