"""Small tables in any state of the read path, written file by file: levels, sources, buckets, partitions, deletion vectors, index groups.

What the maintainer itself would never leave behind (stale groups, APPEND files above level 0, damaged payloads) can be made here, too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

from maintainer.commit.manifest_files import ManifestWriter
from maintainer.data.deletions import write_deletions
from maintainer.data.reader import open_data_file
from maintainer.data.values import to_arrow_array
from maintainer.data.writer import DataFileWriter
from maintainer.format import snapshot_json
from maintainer.index.definition import definitions
from maintainer.index.groups import sources
from maintainer.index.payload import payload_entry
from maintainer.model.files import (
    EMPTY_ROW,
    BucketKey,
    DataFileMeta,
    FileKind,
    FileSource,
    IndexFileMeta,
    IndexManifestEntry,
    ManifestEntry,
    ManifestFileMeta,
)
from maintainer.model.schema import TableSchema
from maintainer.model.snapshot import BATCH_IDENTIFIER, CommitKind, Snapshot
from maintainer.model.values import order_keys
from maintainer.storage.layout import FileNames
from maintainer.table.opening import create_store, open_store
from maintainer.table.store import TableStore
from maintainer.write.bucketing import group
from tests.support.sorted_index import build_arrays

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
        self._manifests: list[ManifestFileMeta] = []
        self._indexes: list[IndexManifestEntry] = []

    def put(
        self,
        rows: Sequence[Row],
        level: int = 5,
        source: FileSource = FileSource.COMPACT,
        deleted: Sequence[int] = (),
        key: BucketKey | None = None,
        schema: TableSchema | None = None,
        kinds: Sequence[int] | None = None,
        first_sequence: int = 0,
    ) -> list[DataFileMeta]:
        """One file per bucket with these rows, in key order; `deleted` are positions in the (only) file, `kinds` what its rows are; sequence
        numbers go up from `first_sequence`."""
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
            batch = batch.append_column("_SEQUENCE_NUMBER", pa.array(range(first_sequence, first_sequence + len(chosen)), pa.int64()))
            batch = batch.append_column("_VALUE_KIND", pa.array(kinds or [0] * len(chosen), pa.int8()))
            writer = DataFileWriter(self.store.storage, self.store.layout, schema, options, where, level=level, source=source)
            writer.write(batch)
            (meta,) = writer.close()
            bucket = self._buckets.setdefault(where, _Bucket())
            bucket.files.append(meta)
            if deleted:
                bucket.deletions[meta.file_name] = BitMap64(deleted)
            metas.append(meta)
        return metas

    def change(self, file: DataFileMeta, **others: Any) -> DataFileMeta:
        """Let the metadata of a file say something else."""
        changed = replace(file, **others)
        for bucket in self._buckets.values():
            bucket.files = [changed if each is file else each for each in bucket.files]
        return changed

    def rewrite(self, file: DataFileMeta, change: Callable[[pa.Table], pa.Table]) -> DataFileMeta:
        """Let the file hold other rows, about which its metadata says nothing new."""
        key = next(key for key, bucket in self._buckets.items() if file in bucket.files)
        path = Path(self.store.uri) / self.store.layout.data_file_path(key.partition, key.bucket, file)
        pq.write_table(change(pq.ParquetFile(path).read()), path)
        return self.change(file, file_size=path.stat().st_size)

    def put_index_file(self, file: IndexFileMeta, replacing: IndexFileMeta | None = None, key: BucketKey | None = None) -> None:
        """An index file of any kind, in place of another one or beside the others."""
        for where, bucket in self._buckets.items():
            if replacing is not None:
                bucket.payloads = [file if each is replacing else each for each in bucket.payloads]
            elif where == (key or ONLY_BUCKET):
                bucket.payloads.append(file)

    def delete(self, file: DataFileMeta, positions: Collection[int]) -> set[Any]:
        """Marks rows of a file as deleted; their first key columns."""
        key, bucket = next((key, bucket) for key, bucket in self._buckets.items() if file in bucket.files)
        bucket.deletions[file.file_name] = BitMap64(positions)
        keys = self._column(key, file, self.schema.trimmed_primary_keys[0]).to_pylist()
        return {keys[position] for position in positions}

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
                    payload = build_arrays(column, definition, total)
                    name = self._names.next()
                    self.store.storage.write(self.store.layout.index_file_path(name), payload.data)
                    built.append(payload_entry(definition, level, members, payload, name))
                    bucket.payloads.append(built[-1])
        return built

    def swap_payload(self, column: str, data: bytes) -> IndexFileMeta:
        """As `index` of one column, but with these bytes as the payload."""
        (payload,) = self.index([column])
        self.index_path(payload).write_bytes(data)
        changed = replace(payload, file_size=len(data))
        for bucket in self._buckets.values():
            bucket.payloads = [changed if each is payload else each for each in bucket.payloads]
        return changed

    @staticmethod
    def opened(table: BuiltTable, options: Mapping[str, str]) -> TableStore:
        """The table with dynamic options."""
        return open_store(table.store.uri, options=options)

    def publish(self) -> Snapshot:
        """A snapshot with what was put since the last one, on top of all that was there."""
        store, buckets = self.store, self._buckets
        writer = ManifestWriter(store.storage, store.layout, self.schema.partition_types, store.options())
        total = store.options().bucket
        entries = [ManifestEntry(FileKind.ADD, *key, total, file) for key, bucket in buckets.items() for file in bucket.files]
        for key, bucket in buckets.items():
            indexes = list(bucket.payloads)
            if bucket.deletions:
                indexes.append(write_deletions(store.storage, store.layout, self._names, bucket.deletions, False))
            self._indexes += [IndexManifestEntry(FileKind.ADD, *key, file) for file in indexes]
        base, base_size = writer.write_list(self._manifests)
        new = writer.write_entries(entries)
        delta, delta_size = writer.write_list(new)
        self._manifests += new
        self._buckets = {}
        rows = sum(entry.file.row_count for entry in entries)
        snapshot = Snapshot(
            id=(store.latest_snapshot_id() or 0) + 1,
            schema_id=store.latest_schema().id,
            base_manifest_list=base,
            base_manifest_list_size=base_size,
            delta_manifest_list=delta,
            delta_manifest_list_size=delta_size,
            commit_user="test",
            commit_identifier=BATCH_IDENTIFIER,
            commit_kind=CommitKind.COMPACT,
            time_millis=int(time.time() * 1000),
            total_record_count=rows,
            delta_record_count=rows,
            index_manifest=writer.write_index_manifest(self._indexes) if self._indexes else None,
        )
        assert store.storage.create_if_absent(store.layout.snapshot_path(snapshot.id), snapshot_json.encode(snapshot))
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
