"""The live data files of a snapshot, and the snapshots of a table, as lists for people and scripts (DESIGN §5 "files", "snapshots")."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from maintainer.data.values import partition_json, timestamp_text
from maintainer.index.definition import definitions
from maintainer.index.groups import evaluate
from maintainer.inspect.coverage import deleted_rows, unusable
from maintainer.model.report import Entry, Report
from maintainer.table.state import TableState
from maintainer.table.store import TableStore


@dataclass(frozen=True)
class LiveFile(Entry):
    """A data file of the snapshot; `deleted_rows` counts the positions in its deletion vector, `covered_by` names the indexed columns."""

    partition: Mapping[str, Any]
    bucket: int
    level: int
    name: str
    rows: int
    size: int
    source: str | None
    min_sequence: int
    max_sequence: int
    deleted_rows: int
    schema_id: int
    covered_by: tuple[str, ...]


@dataclass(frozen=True)
class Files(Report):
    """All live data files of one snapshot."""

    snapshot: int | None
    files: tuple[LiveFile, ...]

    def __iter__(self) -> Iterator[LiveFile]:
        return iter(self.files)

    def __len__(self) -> int:
        return len(self.files)


@dataclass(frozen=True)
class SnapshotSummary(Entry):
    """One snapshot; `time` is when it was committed, in UTC, to nine digits and with a `Z`."""

    id: int
    kind: str
    time: str
    schema_id: int
    total_records: int
    delta_records: int
    user: str
    identifier: int


@dataclass(frozen=True)
class Snapshots(Report):
    """All snapshots that have not expired, oldest first."""

    snapshots: tuple[SnapshotSummary, ...]

    def __iter__(self) -> Iterator[SnapshotSummary]:
        return iter(self.snapshots)

    def __len__(self) -> int:
        return len(self.snapshots)


def files(store: TableStore, state: TableState | None) -> Files:
    """The data files of a state, in order of partition, bucket, level and key."""
    if state is None:
        return Files(store.name, None, ())
    relaxed = store.options(state.schema).relaxed_group_acceptance
    unused = unusable(store, state, definitions(state.schema))
    defined = [definition for definition in definitions(state.schema) if definition.column not in unused]
    found: list[LiveFile] = []
    for bucket in sorted(state.buckets.values(), key=lambda bucket: bucket.key):
        groups = [(definition.column, evaluate(bucket, definition, relaxed)) for definition in defined]
        deleted = deleted_rows(store, bucket)
        partition = partition_json(state.schema, bucket.partition)
        found.extend(
            LiveFile(
                partition=partition,
                bucket=bucket.bucket,
                level=file.level,
                name=file.file_name,
                rows=file.row_count,
                size=file.file_size,
                source=None if file.file_source is None else file.file_source.name,
                min_sequence=file.min_sequence_number,
                max_sequence=file.max_sequence_number,
                deleted_rows=deleted.get(file.file_name, 0),
                schema_id=file.schema_id,
                covered_by=tuple(column for column, group in groups if file.file_name in group.covered),
            )
            for file in sorted(bucket.files, key=lambda file: (file.level, file.min_sequence_number, file.file_name))
        )
    return Files(store.name, state.snapshot.id, tuple(found))


def snapshots(store: TableStore) -> Snapshots:
    """The snapshots that are there; one that expires meanwhile is left out."""
    found = (store.find_snapshot(snapshot_id) for snapshot_id in store.snapshot_ids())
    return Snapshots(
        store.name,
        tuple(
            SnapshotSummary(
                id=snapshot.id,
                kind=str(snapshot.commit_kind),
                time=f"{timestamp_text(snapshot.time_millis * 1_000_000)}Z",
                schema_id=snapshot.schema_id,
                total_records=snapshot.total_record_count,
                delta_records=snapshot.delta_record_count,
                user=snapshot.commit_user,
                identifier=snapshot.commit_identifier,
            )
            for snapshot in found
            if snapshot is not None
        ),
    )
