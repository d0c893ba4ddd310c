"""What somebody knows of a table who follows its changelog from the first snapshot on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from maintainer.data.reader import open_data_file
from maintainer.format.manifest import ManifestEntry
from maintainer.model.schema import KIND_FIELD
from maintainer.model.snapshot import Snapshot
from maintainer.table.store import TableStore

INSERT, BEFORE, AFTER, DELETE = range(4)


def changelog_entries(store: TableStore, snapshot: Snapshot) -> Iterator[ManifestEntry]:
    """The files of a snapshot's changelog, in order."""
    if snapshot.changelog_manifest_list is None:
        return
    named_by = f"snapshot {snapshot.id}"
    for meta in store.manifests.files_of(snapshot.changelog_manifest_list, named_by, snapshot.changelog_manifest_list_size):
        yield from store.manifests.entries(meta.file_name, named_by)


def followed(store: TableStore, strict: bool = True) -> list[dict[str, Any]]:
    """The rows that the changelog adds up to. `strict`: no row is inserted that is there, and none is taken back that is not."""
    schema, rows = store.latest_schema(), {}
    for snapshot in map(store.snapshot, store.snapshot_ids()):
        count = 0
        for entry in changelog_entries(store, snapshot):
            path = store.layout.data_file_path(entry.partition, entry.bucket, entry.file)
            with open_data_file(store.storage, path, entry.file, schema, schema) as file:
                records = file.read([KIND_FIELD.name, *schema.names]).to_pylist()
            count += len(records)
            for record in records:
                kind = record.pop(KIND_FIELD.name)
                key = tuple(record[name] for name in schema.primary_keys)
                if strict and kind != AFTER:
                    assert rows.get(key) == (None if kind == INSERT else record), (snapshot.id, kind, record, rows.get(key))
                if kind in (INSERT, AFTER):
                    rows[key] = record
                else:
                    rows.pop(key, None)
        assert count == (snapshot.changelog_record_count or 0)
    return list(rows.values())
