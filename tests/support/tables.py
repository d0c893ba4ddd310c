"""Small tables in any state of the read path, written file by file: levels, sources, buckets, partitions, deletion vectors, index groups.

What the maintainer itself would never leave behind (stale groups, APPEND files above level 0, damaged payloads) can be made here, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from maintainer.commit.committer import Committer
from maintainer.data.deletions import write_deletions
from maintainer.data.reader import open_data_file
from maintainer.data.values import to_arrow_array
from maintainer.data.writer import DataFileWriter
from maintainer.index.definition import definitions
from maintainer.index.family import family
from maintainer.index.groups import sources
from maintainer.index.payload import payload_entry
from maintainer.model.commit import CommitMessage
from maintainer.model.files import EMPTY_ROW, BucketKey, DataFileMeta, FileSource, IndexFileMeta
from maintainer.model.schema import TableSchema
from maintainer.model.snapshot import Snapshot
from maintainer.model.values import order_keys
from maintainer.storage.layout import FileNames
from maintainer.table.store import TableStore, create_store
from maintainer.write.bucketing import group

Row = Mapping[str, Any]


@dataclass
class _Bucket:
    files: list[DataFileMeta] = field(default_factory=list)
    deletions: dict[str, BitMap64] = field(default_factory=dict)
    payloads: list[IndexFileMeta] = field(default_factory=list)


class BuiltTable:
    """A table of one snapshot: `put` files, `index` their levels, `publish`."""

    def __init__(self, directory: Path | str, schema: TableSchema) -> None:
        self.schema = schema
        self.store: TableStore = create_store(str(directory), schema)
        self._names = FileNames("index-")
        self._buckets: dict[BucketKey, _Bucket] = {}

    def put(
        self,
        rows: Sequence[Row],
        level: int = 5,
        source: FileSource = FileSource.COMPACT,
        deleted: Sequence[int] = (),
        key: BucketKey | None = None,
        schema: TableSchema | None = None,
    ) -> list[DataFileMeta]:
        """One file per bucket with these rows, in key order; `deleted` are positions in the (only) file."""
        schema = schema or self.schema
        table = table_of(rows, schema)
        options = self.store.options()
        groups = (
            [(key, np.arange(len(rows)))]
            if key is not None
            else [(part.key, part.rows) for part in group(table, schema, options.bucket, options.bucket_function)]
        )
        metas = []
        for where, picked in groups:
            chosen = sorted((rows[i] for i in picked.tolist()), key=lambda row: order_keys(row[name] for name in schema.trimmed_primary_keys))
            batch = table_of(chosen, schema)
            batch = batch.append_column("_SEQUENCE_NUMBER", pa.array(range(len(chosen)), pa.int64()))
            batch = batch.append_column("_VALUE_KIND", pa.array([0] * len(chosen), pa.int8()))
            writer = DataFileWriter(self.store.storage, self.store.layout, schema, options, where, level=level, source=source)
            writer.write(batch)
            (meta,) = writer.close()
            bucket = self._buckets.setdefault(where, _Bucket())
            bucket.files.append(meta)
            if deleted:
                bucket.deletions[meta.file_name] = BitMap64(deleted)
            metas.append(meta)
        return metas

    def index(self, columns: Sequence[str] | None = None) -> list[IndexFileMeta]:
        """A payload for every definition and level of every bucket, as it is now."""
        built = []
        for key, bucket in self._buckets.items():
            files = {file.file_name: file for file in bucket.files}
            for definition in definitions(self.schema):
                if columns is not None and definition.column not in columns:
                    continue
                for level, members in sources(bucket.files).items():
                    column = [self._column(key, files[name], definition.column) for name, _ in members]
                    total = sum(rows for _, rows in members)
                    payload = family(str(definition.family)).build(pa.chunked_array(column), definition, total)
                    name = self._names.next()
                    self.store.storage.write(self.store.layout.index_file_path(name), b"".join(payload.chunks))
                    built.append(payload_entry(definition, level, members, payload, name))
                    bucket.payloads.append(built[-1])
        return built

    def publish(self) -> Snapshot:
        messages = []
        for key, bucket in self._buckets.items():
            indexes = list(bucket.payloads)
            if bucket.deletions:
                indexes.append(write_deletions(self.store.storage, self.store.layout, self._names, bucket.deletions, False))
            message = CommitMessage(
                key.partition,
                key.bucket,
                self.store.options().bucket,
                new_files=tuple(bucket.files),
                new_index_files=tuple(indexes),
            )
            messages.append(message)
        self._buckets = {}
        snapshot = Committer(self.store).commit_append(messages)
        assert snapshot is not None
        return snapshot

    def index_path(self, payload: IndexFileMeta) -> Path:
        return Path(self.store.uri) / self.store.layout.index_file_path(payload)

    def _column(self, key: BucketKey, file: DataFileMeta, column: str) -> pa.Array:
        path = self.store.layout.data_file_path(key.partition, key.bucket, file)
        with open_data_file(self.store.storage, path, file, self.store.schema(file.schema_id), self.schema) as data:
            return data.read([column]).column(column).combine_chunks()


ONLY_BUCKET = BucketKey(EMPTY_ROW, 0)


def table_of(rows: Sequence[Row], schema: TableSchema) -> pa.Table:
    """The rows as columns of the schema; columns that a row lacks are NULL."""
    return pa.table({column.name: to_arrow_array([row.get(column.name) for row in rows], column.type) for column in schema.fields})
