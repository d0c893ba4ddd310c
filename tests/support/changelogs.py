"""Changelogs as a consumer follows them: the records that snapshots tell of, and the table that they make of nothing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from maintainer.data.reader import open_data_file
from maintainer.data.values import json_rows
from maintainer.model.files import ManifestEntry
from maintainer.model.schema import KIND_FIELD, TableSchema
from maintainer.model.snapshot import Snapshot
from maintainer.table.store import TableStore

KINDS = ("+I", "-U", "+U", "-D")


class Change(NamedTuple):
    """A record of a changelog; the row as JSON values, columns in schema order."""

    snapshot: int
    kind: str
    row: list[Any]


def files_of(store: TableStore, snapshot: Snapshot) -> list[ManifestEntry]:
    """The changelog files of a snapshot."""
    name = snapshot.changelog_manifest_list
    metas = () if name is None else store.manifests.files_of(name, "", snapshot.changelog_manifest_list_size)
    return [entry for meta in metas for entry in store.manifests.entries(meta.file_name, "")]


def changes(store: TableStore) -> list[Change]:
    """Those of all snapshots, as they are in the files."""
    schema, found = store.latest_schema(), []
    for number in store.snapshot_ids():
        snapshot = store.snapshot(number)
        entries = files_of(store, snapshot)
        for entry in entries:
            path = store.layout.data_file_path(entry.partition, entry.bucket, entry.file)
            with open_data_file(store.storage, path, entry.file, store.schema(entry.file.schema_id), schema) as opened:
                rows = opened.read([*schema.names, KIND_FIELD.name])
            kinds = rows.column(KIND_FIELD.name).to_pylist()
            found += [Change(number, KINDS[kind], list(row.values())) for kind, row in zip(kinds, json_rows(rows, schema.fields), strict=True)]
        assert (snapshot.changelog_record_count or 0) == sum(entry.file.row_count for entry in entries)
    return found


class Replay:
    """A table that follows a changelog. Strictly: an insert is of a key that is not there, what an update or a delete takes back is there, and
    every update is told in two records (Java's lookup and full-compaction promise that; writers tell what they please)."""

    def __init__(self, schema: TableSchema, strict: bool) -> None:
        self._keys = [schema.names.index(name) for name in schema.primary_keys]
        self._strict = strict
        self.rows: dict[str, list[Any]] = {}

    def follow(self, told: Iterable[Change]) -> None:
        opened: dict[str, Change] = {}
        for change in told:
            key = repr([change.row[index] for index in self._keys])
            if self._strict:
                before = self.rows.get(key)
                assert (before is None) == (change.kind == "+I") or key in opened, (change, before)
                assert change.kind not in ("-U", "-D") or before == change.row, (change, before)
                assert (change.kind == "+U") == (opened.pop(key, None) is not None), change
            match change.kind:
                case "-D":
                    self.rows.pop(key, None)
                case "-U":
                    opened[key] = change
                    if not self._strict:
                        self.rows.pop(key, None)
                case _:
                    self.rows[key] = change.row
        assert not self._strict or not opened, opened
