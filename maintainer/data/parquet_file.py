"""Reading key-value Parquet files (spec 02 §3; Java `ParquetReaderFactory`).

Memory: batches stream, some pages of each wanted column at a time. Threads are not used, as the callers' work is what runs in parallel; a scan
may allow them (`uses_threads`), for large row groups.

On a remote store some pages at a time would be a request each, so there the wanted columns of a few row groups are fetched at once (files that
this package writes have row groups of a few megabytes); only of larger row groups are they read piece by piece, and the pieces are larger.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from maintainer.data import footer, int96
from maintainer.data.data_file import Column, DataFile, cut
from maintainer.data.footer import Footer, Sizes

_LARGEST_BUFFER = 256 << 10
_SMALLEST_BUFFER = 16 << 10
_ALL_BUFFERS = 4 << 20
_AT_ONCE = 8 << 20
"""Bytes of row groups that are fetched together from a remote store."""
_MOST_AT_ONCE = 16 << 20
"""A row group of which more is wanted is not fetched, but read piece by piece."""
_PIECE = 8 << 20
"""Decoded bytes of row groups that one thread reads before it looks for other work."""
_LARGE = 16 << 20
"""Decoded bytes from which on a row group is worth the threads of Arrow."""
_REMOTE_BUFFERS = 16 << 20
_LARGEST_REMOTE_BUFFER = 4 << 20

Prefetch = Callable[[Sequence[tuple[int, int]]], None]
"""Fetches ranges of a file at once, and holds them until the next call."""


class ParquetDataFile(DataFile):
    known: Footer | None
    names: Sequence[str] = ()

    def _open(self) -> None:
        self._prefetch: Prefetch | None = getattr(self._source, "prefetch", None)
        if self.known is None:
            metadata = pq.read_metadata(self._source)
            if int96.has_int96(metadata):
                metadata = int96.raw_footer(self._source)
            self._file = self._reader(metadata)
            footer.check_names(metadata)
            self._footer = self.known = Footer.of(metadata, self._file.schema_arrow)
        else:
            self._footer = self.known
            self._file = self._reader(self.known.metadata)
        self.metadata = self._footer.metadata
        self.names = self._footer.names
        self.row_groups = self._footer.row_groups
        self.row_count = self.metadata.num_rows

    def _reader(self, metadata: pq.FileMetaData) -> pq.ParquetFile:
        return pq.ParquetFile(self._source, metadata=metadata, **_reading(metadata, self._prefetch is not None))

    def group_bytes(self, group: int, columns: Sequence[str] | None = None) -> int:
        if columns is None:
            return int(self.metadata.row_group(group).total_byte_size)
        return int(self._footer.decoded_bytes(self._leaves(columns))[group])

    def pieces(self, groups: Sequence[int], columns: Sequence[str]) -> list[list[int]]:
        return self.together(groups, columns)

    def together(self, groups: Sequence[int], columns: Sequence[str]) -> list[list[int]]:
        if self._prefetch is None:
            return cut(groups, self._footer.decoded_bytes(self._leaves(columns)), _PIECE)
        return cut(groups, self._footer.stored_bytes(self._leaves(columns)), _AT_ONCE)

    def _leaves(self, columns: Sequence[str]) -> list[int]:
        """The column chunks of columns of the read schema that the file has."""
        plans = [self._plan_checked(name) for name in columns]
        return [leaf for name in dict.fromkeys(_names(plans)) for leaf in self._footer.leaves[name]]

    def _bounds(self, plan: Column, groups: Sequence[int]) -> list[tuple[Any, Any] | None]:
        assert plan.name is not None
        schema = self._footer.arrow_schema
        index = footer.leaf_index(schema, plan.name)
        if index is None:
            return [None] * len(groups)
        arrow = schema.field(plan.name).type
        return [footer.bounds(self.metadata, group, index, arrow, plan.target.type) for group in groups]

    def _stored_bytes(self, name: str) -> int:
        return int(self._footer.stored_bytes(self._footer.leaves[name]).sum())

    def _read(self, groups: list[int], plans: Sequence[Column]) -> pa.Table:
        pieces = self._split(groups, plans) if groups else [[]]
        names = _names(plans)
        tables = [self._file.read_row_groups(piece, columns=names, use_threads=False) for piece in pieces]
        return tables[0] if len(tables) == 1 else pa.concat_tables(tables)

    def _raw_batches(self, plans: Sequence[Column], batch_rows: int, piece: list[int], rows: int) -> Iterator[pa.RecordBatch]:
        names = _names(plans)
        threads = self.uses_threads and len(piece) == 1 and self._prefetch is None and self._decoded(names)[piece[0]] > _LARGE
        batches: Iterator[pa.RecordBatch] = self._file.iter_batches(batch_rows, row_groups=piece, columns=names, use_threads=bool(threads))
        return batches

    def _decoded(self, names: Sequence[str]) -> Sizes:
        return self._footer.decoded_bytes(leaf for name in names for leaf in self._footer.leaves[name])

    def _split(self, piece: list[int], plans: Sequence[Column]) -> Iterator[list[int]]:
        """The groups in order, as many at a time as are fetched at once. What was fetched is let go when the next ones are asked for."""
        if self._prefetch is None:
            yield list(piece)
            return
        wanted = [leaf for name in _names(plans) for leaf in self._footer.leaves[name]]
        stored = self._footer.stored_bytes(wanted)
        for together in cut(piece, stored, _AT_ONCE):
            size = int(stored[together].sum())
            spans = [span for leaf in wanted for span in self._footer.spans(leaf, together)]
            self._prefetch(spans if size <= _MOST_AT_ONCE else ())
            yield together
        self._prefetch(())


def _reading(metadata: pq.FileMetaData, remote: bool) -> Mapping[str, Any]:
    """With a buffer, a column chunk is read piece by piece; without one, all of it (40 MB or more) would be held for every open file."""
    columns = max(metadata.num_columns, 1)
    buffer_size = min(max(_ALL_BUFFERS // columns, _SMALLEST_BUFFER), _LARGEST_BUFFER)
    if remote and any(metadata.row_group(group).total_byte_size > _MOST_AT_ONCE for group in range(metadata.num_row_groups)):
        buffer_size = min(max(_REMOTE_BUFFERS // columns, _SMALLEST_BUFFER), _LARGEST_REMOTE_BUFFER)
    return {"pre_buffer": False, "buffer_size": buffer_size, "page_checksum_verification": True}


def _names(plans: Sequence[Column]) -> list[str]:
    return [plan.name for plan in plans if plan.name is not None]
