"""One key-value Parquet file in the making (spec 02 §3.5; Java `KeyValueDataFileWriter`).

Rows go in as row groups; what the file's metadata needs to know comes out: its size, its first and last key, its footer, and of each row group
what the footer does not tell (`maintainer.data.statistics`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from maintainer.data import encoding, int96
from maintainer.errors import MaintainerError, StorageError
from maintainer.format.simple_stats import ColumnStats
from maintainer.model.schema import KIND_FIELD
from maintainer.model.types import BINARIES, CHARACTERS, FLOATS, DataField
from maintainer.storage.storage import Storage

_FOOTER_BOUND = 4096
"""Bounds longer than this are left out of a footer."""


class NewFile:
    """A file that is being written. After an error it is gone."""

    def __init__(
        self,
        storage: Storage,
        path: str,
        name: str,
        schema: pa.Schema,
        keys: Sequence[DataField],
        described: Sequence[DataField],
        rows: pa.Table,
        compression: str,
        zstd_level: int,
    ) -> None:
        """`keys`: the first columns of the schema; `described`: the other columns of which statistics are wanted; `rows`: the first ones, which
        are still to be written."""
        self.name = name
        self.path = storage.display(path)
        self.rows = self.groups = self.size = self.deletes = 0
        self.first_key: pa.Table | None = None
        self.last_key: pa.Table | None = None
        self.metadata: pq.FileMetaData | None = None
        self.with_nan: set[str] = set()
        self.known: dict[tuple[str, int], ColumnStats] = {}
        self._keys = range(len(keys))
        self._described = [*keys, *described]
        self._schema = int96.raw_schema(schema)
        self._has_int96 = self._schema != schema
        self._collected: list[pq.FileMetaData] = []
        options = encoding.writer_options(self._raw(rows), compression, zstd_level)
        self._output: BinaryIO = storage.create(path)
        self._sink = _Sink(self._output)
        self._parquet: Any = None
        with self._undone_on_error():
            sink = pa.PythonFile(self._sink, mode="w")
            self._parquet = pq.ParquetWriter(sink, self._schema, metadata_collector=self._collected, **options)

    def write(self, rows: pa.Table) -> None:
        """One row group."""
        with self._undone_on_error():
            self._parquet.write_table(self._raw(rows), row_group_size=rows.num_rows)
            self._look_at(rows)
        self.size = self._sink.size
        keys = rows.select(list(self._keys))
        if self.first_key is None:
            self.first_key = keys.take([0])  # a slice would keep the whole row group in memory
        self.last_key = keys.slice(rows.num_rows - 1)
        self.rows += rows.num_rows
        self.groups += 1

    def _raw(self, rows: pa.Table) -> pa.Table:
        """The rows with INT96 values as bytes."""
        if not self._has_int96:
            return rows
        columns = [
            pa.chunked_array([int96.raw_array(chunk, field.type) for chunk in column.chunks], field.type)
            for column, field in zip(rows.columns, self._schema, strict=True)
        ]
        return pa.Table.from_arrays(columns, schema=self._schema)

    def _look_at(self, rows: pa.Table) -> None:
        """Notes what the footer will not tell."""
        self.deletes += sum(int(np.count_nonzero(chunk.to_numpy() & 1)) for chunk in rows.column(KIND_FIELD.name).chunks)  # 1 -U, 3 -D
        for field in self._described:
            name, root, column = field.name, field.type.root, rows.column(field.name)
            if root in FLOATS:
                if name in self.with_nan or pc.any(pc.is_nan(column)).as_py():
                    self.with_nan.add(name)
                else:
                    found = _stats(column)
                    low, high = (-0.0 if found.min == 0 else found.min), (0.0 if found.max == 0 else found.max)
                    self.known[name, self.groups] = ColumnStats(low, high, found.null_count)
            elif root in CHARACTERS or root in BINARIES:
                longest = pc.max(pc.binary_length(column)).as_py()
                if longest is not None and longest > _FOOTER_BOUND:
                    self.known[name, self.groups] = _stats(column)
            elif pa.types.is_timestamp(column.type) and column.type.unit == "ns":
                self.known[name, self.groups] = _stats(column)

    def finish(self) -> None:
        with self._undone_on_error():
            if self._has_int96:
                self._sink.hold()
            self._parquet.close()
            if self._has_int96:
                self._sink.release(int96.finished)
            self.size = self._sink.size
        self._output.close()
        self.metadata = self._collected[0]

    def abandon(self) -> None:
        """Makes the file disappear; twice is fine."""
        if self._parquet is not None:
            self._parquet.is_open = False  # or it writes a footer when it is collected
        error = StorageError("given up")
        self._output.__exit__(type(error), error, None)

    @contextmanager
    def _undone_on_error(self) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            self.abandon()
            if isinstance(error, pa.ArrowException):
                raise MaintainerError(f"{self.path}: cannot write: {error}") from error
            raise


class _Sink:
    """What Arrow writes to: counts the bytes, and can hold back those of the footer."""

    closed = False

    def __init__(self, output: BinaryIO) -> None:
        self.size = 0
        self._output = output
        self._held: list[bytes] | None = None

    def write(self, data: Any) -> int:
        if self._held is None:
            self._output.write(data)
        else:
            self._held.append(bytes(data))
        self.size += len(data)
        return len(data)

    def hold(self) -> None:
        self._held = []

    def release(self, change: Callable[[bytes], bytes]) -> None:
        held = b"".join(self._held or ())
        self._held = None
        self.size -= len(held)
        self.write(change(held))

    def tell(self) -> int:
        return self.size

    def flush(self) -> None:
        """The output is flushed when it is closed."""


def _stats(column: pa.ChunkedArray) -> ColumnStats:
    """Of floats, texts, binaries and nanoseconds."""
    found = pc.min_max(column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column).as_py()
    return ColumnStats(found["min"], found["max"], column.null_count)
