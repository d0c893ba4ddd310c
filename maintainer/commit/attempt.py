"""Writing everything that a snapshot names, before anybody can see it (spec 03 §8.1–§8.7, §12).

An attempt writes: the merged manifests of older snapshots, the base list, the manifests of the delta, the delta list, the same of the
changelog if there is one, and an index manifest if index files change. A lost attempt's files are deleted, except merged manifests, which the
next attempt uses again if they still fit.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Collection, Mapping, Sequence

import structlog

import maintainer
from maintainer.commit.changes import BucketChange
from maintainer.commit.index_files import combine
from maintainer.commit.manifest_files import ManifestWriter, Merged, merge_manifests, splice
from maintainer.errors import MaintainerError
from maintainer.model.files import FileKind, ManifestEntry, ManifestFileMeta
from maintainer.model.schema import TableSchema
from maintainer.model.snapshot import BATCH_IDENTIFIER, CommitKind, Snapshot
from maintainer.table.state import TableState
from maintainer.table.store import TableStore

log = structlog.get_logger(__name__)

MAX_SEQUENCE_NUMBER = "sequence.generation.max-sequence-number"
"""The snapshot property that writers continue from with `write.sequence-number-init-mode = snapshot`."""


class Attempts:
    """All attempts at one commit."""

    def __init__(self, store: TableStore, schema: TableSchema, kind: CommitKind, user: str, properties: Mapping[str, str] | None) -> None:
        self._store = store
        self._schema = schema
        self._options = store.options(schema)
        self._kind = kind
        self._user = user
        self._properties = properties or {}
        self._writer = ManifestWriter(store.storage, store.layout, schema.partition_types, self._options)
        self._merged: Merged | None = None
        self._base: Sequence[ManifestFileMeta] = ()
        self.replaced_from: int | None = None
        """The first snapshot that was published and is not the table's any more: others may have built on it."""

    def prepare(self, state: TableState | None, changes: Sequence[BucketChange]) -> Snapshot:
        """The next snapshot on top of a state; everything that it names is durable. An error leaves nothing behind."""
        try:
            return self._prepare(state, changes)
        except BaseException:
            self.discard()
            raise

    def discard(self) -> None:
        """Nothing of what was prepared was published, and nothing will be."""
        self._delete_except(())
        self._merged = None

    def lost(self) -> None:
        """The last attempt was certainly not published; what was merged for it may be of use to the next one."""
        self._delete_except(self._merged.created if self._merged else ())

    @property
    def was_replaced(self) -> bool:
        return self.replaced_from is not None

    def replaced(self, snapshot: Snapshot) -> None:
        """The last attempt was published, but it is not the table's snapshot any more; its files stay."""
        self._writer.created = []
        self.replaced_from = self.replaced_from or snapshot.id

    def won(self) -> None:
        """The last attempt is published: left over is only what was merged for an earlier one and did not fit this one."""
        used = {self._store.layout.manifest_path(meta.file_name) for meta in self._base}
        unused = {path for path in (self._merged.created if self._merged else ()) if path not in used}
        self._delete_except([path for path in self._writer.created if path not in unused])

    def _delete_except(self, kept: Collection[str]) -> None:
        doomed = [path for path in self._writer.created if path not in kept]
        self._writer.created = [path for path in self._writer.created if path in kept]
        self._store.delete_abandoned(doomed)

    def _prepare(self, state: TableState | None, changes: Sequence[BucketChange]) -> Snapshot:
        store, writer = self._store, self._writer
        latest = None if state is None else state.snapshot
        before: list[ManifestFileMeta] = []
        if latest is not None:
            base, delta = store.manifests.lists_of(latest)
            before = [*base, *delta]
        if self._merged is None:
            named_by = "a snapshot" if latest is None else f"snapshot {latest.id}"
            self._merged = merge_manifests(
                before,
                lambda meta: store.manifests.entries(meta.file_name, named_by),
                writer,
                self._options,
                self._schema.partition_types,
            )
        self._base = splice(self._merged, before)
        entries = [entry for change in changes for entry in change.entries]
        base_list, base_size = writer.write_list(self._base)
        delta_list, delta_size = writer.write_list(writer.write_entries(entries))
        changelog = [entry for change in changes for entry in change.changelog]
        changelog_list, changelog_size = writer.write_list(writer.write_entries(changelog)) if changelog else (None, None)
        rows = sum(entry.file.row_count if entry.kind is FileKind.ADD else -entry.file.row_count for entry in entries)
        return Snapshot(
            id=1 if latest is None else latest.id + 1,
            schema_id=self._schema.id,
            base_manifest_list=base_list,
            base_manifest_list_size=base_size,
            delta_manifest_list=delta_list,
            delta_manifest_list_size=delta_size,
            changelog_manifest_list=changelog_list,
            changelog_manifest_list_size=changelog_size,
            changelog_record_count=sum(entry.file.row_count for entry in changelog) if changelog else None,
            index_manifest=self._index_manifest(latest, changes),
            commit_user=self._user,
            commit_identifier=BATCH_IDENTIFIER,
            commit_kind=self._kind,
            time_millis=max(time.time_ns() // 1_000_000, 0 if latest is None else latest.time_millis),
            total_record_count=(0 if latest is None else latest.total_record_count) + rows,
            delta_record_count=rows,
            watermark=None if latest is None else latest.watermark,
            statistics=self._statistics(latest),
            properties=self._snapshot_properties(state, entries) or None,
            next_row_id=0 if latest is None else latest.next_row_id or 0,
            writer_version=f"maintainer-{maintainer.__version__}",
            uuid=str(uuid.uuid4()),
        )

    def _index_manifest(self, latest: Snapshot | None, changes: Sequence[BucketChange]) -> str | None:
        previous = None if latest is None else latest.index_manifest
        entries = [entry for change in changes for entry in change.index_entries]
        if not entries:
            return previous
        before = () if previous is None or latest is None else self._store.manifests.index(previous, f"snapshot {latest.id}")
        return self._writer.write_index_manifest(combine(before, entries))

    def _statistics(self, latest: Snapshot | None) -> str | None:
        """The statistics file of the latest snapshot, as long as it speaks of the newest schema."""
        if latest is None or latest.statistics is None:
            return None
        try:
            document = json.loads(self._store.storage.read(self._store.layout.statistics_path(latest.statistics)))
            return latest.statistics if document["schemaId"] == self._schema.id else None
        except (MaintainerError, ValueError, KeyError, TypeError) as error:
            log.warning("commit.statistics-dropped", table=self._store.name, file=latest.statistics, error=str(error))
            return None

    def _snapshot_properties(self, state: TableState | None, entries: Sequence[ManifestEntry]) -> dict[str, str]:
        """Those of the commit alone; except that the largest sequence number is carried along where writers continue from it."""
        properties = dict(self._properties)
        if self._options.sequence_number_in_snapshot:
            numbers = [entry.file.max_sequence_number for entry in entries if entry.kind is FileKind.ADD]
            known = (state.snapshot.properties or {}).get(MAX_SEQUENCE_NUMBER) if state is not None else None
            if known is not None:
                numbers.append(int(known))
            elif state is not None:
                numbers += [file.max_sequence_number for file in state.files()]
            if numbers:
                properties[MAX_SEQUENCE_NUMBER] = str(max(numbers))
        return properties
