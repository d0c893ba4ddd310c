"""A part of a scan that any process can read by itself (spec 07 §8, §9).

A scan is planned once, in one process; its splits travel, as pickles or as Java's bytes, and whoever has one reads the rows of its files as the
scan would have: with the columns, the condition and the snapshot that were asked for.

| travels as | holds                                                                          | is read by                             |
| ---------- | ------------------------------------------------------------------------------ | -------------------------------------- |
| a pickle   | all that reading takes: also how the table is opened, with its storage options | this package, without looking at the   |
|            |                                                                                | table's metadata again                 |
| `to_bytes` | files, rows and deletion vectors: no schema, columns, condition or secrets     | Java, pypaimon, Rust; `Table.read_split` |
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from maintainer.errors import MissingFile
from maintainer.format import split as codec
from maintainer.model.predicate import Predicate
from maintainer.model.schema import TableSchema
from maintainer.model.split import DataSplit, IndexedSplit, Split
from maintainer.quiet import log_quietly
from maintainer.read.split_reader import SplitReader
from maintainer.table.state import SnapshotExpired, is_leaving
from maintainer.table.store import TableStore


@dataclass(frozen=True, eq=False, repr=False)
class ScanSplit:
    """Some files of a snapshot, or some rows of one, and what is asked of them."""

    reader: SplitReader
    split: Split

    def __repr__(self) -> str:
        data, files, rows = self._data, len(self._data.files), self.rows
        held = f"{files} file{'' if files == 1 else 's'}, {rows} row{'' if rows == 1 else 's'}"
        return f"<ScanSplit {self.reader.store.name}, snapshot {data.snapshot_id}, bucket {data.bucket}: {held}>"

    @property
    def _data(self) -> DataSplit:
        return self.split.split if isinstance(self.split, IndexedSplit) else self.split

    @property
    def rows(self) -> int:
        """How many rows there are to read, at most: those that are deleted or that the condition rejects are counted, too."""
        return self.split.rows

    @property
    def files(self) -> tuple[str, ...]:
        """The names of the data files."""
        return tuple(file.file_name for file in self._data.files)

    @property
    def schema(self) -> pa.Schema:
        """Of the rows that come out."""
        return self.reader.arrow_schema

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """The rows as a stream."""
        with _expiring(self.reader.store, self._data.snapshot_id):
            yield from self.reader.batches(self.split)

    def to_arrow(self) -> pa.Table:
        return pa.Table.from_batches(self.to_batches(), schema=self.schema)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return pa.RecordBatchReader.from_batches(self.schema, self.to_batches()).__arrow_c_stream__(requested_schema)

    def to_bytes(self, version: int = codec.VERSION) -> bytes:
        """As Java's `SplitSerializer` writes it; `version` is that of the data split: 9, or 8 for Java 2.0.0."""
        return codec.encode(self.split, version)

    def __reduce__(self) -> tuple[Any, ...]:
        reader = self.reader
        schemas = tuple(reader.store.schema(schema_id) for schema_id in sorted({file.schema_id for file in self._data.files}))
        asked = (reader.store, reader.schema, reader.columns, reader.predicate, reader.memory, reader.spill)
        return _again, (*asked, schemas, codec.encode(self.split))


def _again(
    store: TableStore,
    schema: TableSchema,
    columns: tuple[str, ...],
    predicate: Predicate | None,
    memory: int | None,
    spill: Any,
    schemas: Sequence[TableSchema],
    split: bytes,
) -> ScanSplit:
    log_quietly()
    store.know(schema, schemas)
    return ScanSplit(SplitReader(store, schema, columns, predicate, memory, spill), codec.decode(split))


@contextmanager
def _expiring(store: TableStore, snapshot_id: int) -> Iterator[None]:
    """A file that is missing is no damage when the snapshot goes away."""
    try:
        yield
    except MissingFile as error:
        snapshot = store.find_snapshot(snapshot_id)
        tags = () if snapshot else map(store.find_tag, store.tag_names())
        leaves = is_leaving(store, snapshot) if snapshot else all(tag is None or tag.id != snapshot_id for tag in tags)
        if leaves:
            raise SnapshotExpired(f"{store.name}: snapshot {snapshot_id} expired before its splits were read; plan again") from error
        raise
