"""Executing one item of work: from a decision to a result that can be committed (spec 04 §4, §9.4; Java `MergeTreeCompactManager`).

    unit ──▶ steps: rewrite, upgrade, keep           `maintainer.maintain.compact`
         ──▶ second round: what a normal pick takes from the state that the first one left
         ──▶ APPEND files that still lie above level 0 (tables with definitions)
         ──▶ one deletion-vector file, if a vector changed
         ──▶ the groups of every level that changed   `maintainer.maintain.rebuild`; not with `maintain.index-mode = async`: they are
             work of their own, once the data is committed
         ──▶ result

Data, deletion vectors and groups are in one half of the message: the compact increment when data changed, else the data increment (decision 3).
An attempt only creates files, and when it fails it deletes exactly those (`maintainer.maintain.attempt`).
"""

from __future__ import annotations

from collections.abc import Callable

import structlog

from maintainer.data.deletions import read_deletions, write_deletions
from maintainer.data.key_cache import KeyCache
from maintainer.data.spill import Spill
from maintainer.errors import CorruptFile, MaintainerError, UsageError
from maintainer.format.stored_block import ReadRange
from maintainer.index import groups
from maintainer.index.definition import IndexDefinition, definitions
from maintainer.index.groups import GroupPlan
from maintainer.index.payload import Resources
from maintainer.maintain.attempt import Attempt
from maintainer.maintain.compact import BucketCompaction
from maintainer.maintain.lookup import DeletionVectors
from maintainer.maintain.pick import CompactionOptions, pick_by_size, pick_normal
from maintainer.maintain.rebuild import GroupChanges, Site, group_plans, rebuild_groups
from maintainer.model.bucket import BucketState
from maintainer.model.commit import CommitMessage
from maintainer.model.files import DataFileMeta, IndexFileMeta
from maintainer.model.schema import TableSchema
from maintainer.model.work import Plan, Rebuild, Result, Work, WorkKind
from maintainer.table.options import TableOptions
from maintainer.table.store import TableStore

log = structlog.get_logger(__name__)

Progress = Callable[[Work, int], None]
"""Called now and then with the number of bytes of input that were worked through since the last call; may raise to stop the work."""


def execute(
    plan: Plan,
    work: Work,
    store: TableStore,
    schema: TableSchema,
    memory: int,
    progress: Progress | None = None,
    spill: Spill | None = None,
    cache: KeyCache | None = None,
) -> Result:
    """Do one item of a plan. `schema` is that of the plan, with the dynamic options of the call; `memory` is a budget in bytes; what does not
    fit into it goes to `spill`, by default to the system's directory for temporary files without a limit; what is read of keys is kept in
    `cache`."""
    if plan.snapshot_id is None or schema.id != plan.schema_id:
        raise UsageError(
            f"{store.name}: this plan was made for snapshot {plan.snapshot_id} and schema {plan.schema_id}, not for schema {schema.id}"
        )
    attempt = Attempt(store, work.bucket, cache)
    try:
        return _Execution(plan, work, store, schema, memory, spill or Spill(), attempt, progress).run()
    except CorruptFile as error:
        attempt.abandon()
        if "/" in error.path:
            raise
        directory = store.layout.bucket_directory(work.bucket.partition, work.bucket.bucket)
        raise CorruptFile(error.reason, path=store.storage.display(f"{directory}/{error.path}"), offset=error.offset) from error
    except BaseException:
        attempt.abandon()
        raise


class _Execution:
    """One attempt at one item of work."""

    def __init__(
        self,
        plan: Plan,
        work: Work,
        store: TableStore,
        schema: TableSchema,
        memory: int,
        spill: Spill,
        attempt: Attempt,
        progress: Progress | None,
    ) -> None:
        self.plan = plan
        self.work = work
        self.store = store
        self.schema = schema
        self.attempt = attempt
        self.definitions = definitions(schema)
        self.reason = work.reason
        self.memory = work.memory
        self.budget = memory
        self.spill = spill
        bucket = work.bucket
        vectors = read_deletions(store.storage, store.layout, bucket.deletion_file, bucket.partition, bucket.bucket) if work.unit else {}
        self.deletions = DeletionVectors(vectors)
        self.compaction = BucketCompaction(
            store=store,
            schema=schema,
            bucket=bucket,
            deletions=self.deletions,
            attempt=attempt,
            memory=memory,
            spill=spill,
            rewrite_append=work.rewrite_append and bool(self.definitions),
            progress=self._progress(progress),
            now=work.clock.now // 1000,
        )

    def run(self) -> Result:
        if self.work.unit is not None:
            self._compact()
        deletion_file = self._write_deletions()
        changes = self._rebuild_groups()
        message = self._message(deletion_file, changes)
        compaction = self.compaction
        place = {"partition": self.store.layout.partition_directory(message.partition), "bucket": message.bucket}
        log.info("work.executed", table=self.plan.table, **place, kind=str(self.work.kind), created=len(self.attempt.created))
        return Result(
            table=self.plan.table,
            snapshot_id=self.plan.snapshot_id or 0,
            snapshot_uuid=self.plan.snapshot_uuid,
            schema_id=self.schema.id,
            kind=self.work.kind,
            reason=self.reason,
            deletion_file=None if self.work.bucket.deletion_file is None else self.work.bucket.deletion_file.file_name,
            message=message,
            created=tuple(self.attempt.created),
            counts={
                "input_files": len(compaction.before),
                "output_files": len(compaction.after),
                "groups_built": len(changes.added),
                "groups_dropped": len(changes.removed),
                "bytes_read": compaction.bytes_read,
                "bytes_written": self.attempt.bytes_written,
            },
            failures=changes.failures,
            memory=self.memory,
        )

    def _compact(self) -> None:
        """The unit, and what Java's job does before it commits: one more normal pick (spec 04 §9.4)."""
        compaction = self.compaction
        assert self.work.unit is not None
        compaction.run(self.work.unit)
        if self.work.second_round:
            options = CompactionOptions.of(TableOptions.of(self.schema))
            pick = pick_by_size if self.work.gentle else pick_normal
            found = pick(compaction.levels(), options, self.work.clock, self.work.memory)
            self.memory = found.memory
            if found.unit is not None:
                self.reason += f"; second round: {len(found.unit.files)} files into level {found.unit.output_level}"
                compaction.run(found.unit)
        if compaction.rewrite_append and self.work.rewrite_elsewhere:
            compaction.rewrite_where_they_are()

    def _write_deletions(self) -> IndexFileMeta | None:
        """The bucket's new deletion-vector file, in the configured form; None when no vector changed."""
        if not self.deletions.modified:
            return None
        vectors = self.deletions.retain(self.compaction.files.keys())
        bitmap64 = TableOptions.of(self.schema).bitmap64
        meta = write_deletions(self.store.storage, self.store.layout, self.attempt.index_names, vectors, bitmap64)
        self.attempt.created.append(self.store.layout.index_file_path(meta))
        self.attempt.bytes_written += meta.file_size
        return meta

    def _rebuild_groups(self) -> GroupChanges:
        before = self.work.bucket
        state = BucketState(
            partition=before.partition,
            bucket=before.bucket,
            total_buckets=before.total_buckets,
            files=tuple(self.compaction.files.values()),
            deletion_file=before.deletion_file,
            payloads=before.payloads,
        )
        plans = self._asked_for(state) if self.work.kind is WorkKind.INDEX else group_plans(state, self.definitions)
        site = Site(
            open_file=self.compaction.open,
            open_payload=self._open_payload,
            create=self.attempt.new_index,
            count=self.compaction.count,
            check_store=lambda: _check_store(self.store),
            resources=Resources(self.budget, self.spill),
            unchanged=self._unchanged if TableOptions.of(self.schema).incremental_index else None,
        )
        return rebuild_groups(state, plans, groups.orphans(state, self.definitions), site, self._waits(state))

    def _waits(self, state: BucketState) -> Callable[[Rebuild], bool]:
        """Whether a group is not built with this work: groups may have a commit of their own, and what could not be built of the same files is
        not tried again."""
        if self.work.kind is WorkKind.INDEX:
            return lambda group: False
        if TableOptions.of(self.schema).index_mode == "async":
            return lambda group: True
        before, after = groups.sources(self.work.bucket.files), groups.sources(state.files)
        return lambda group: group in self.work.quarantined and before.get(group.level) == after.get(group.level)

    def _unchanged(self, definition: IndexDefinition, file: DataFileMeta) -> bool:
        """Whether the column had the type that it has in all schemas since the file was written."""
        try:
            since = [self.store.schema(number) for number in range(file.schema_id, self.schema.id + 1)]
        except MaintainerError:
            return False
        found = [field.type for schema in since if (field := schema.field_by_id(definition.field_id)) is not None]
        return len(found) > 0 and all(one.same_values(definition.data_type) for one in found)

    def _open_payload(self, payload: IndexFileMeta) -> ReadRange:
        bucket = self.work.bucket
        path = self.store.layout.index_file_path(payload, bucket.partition, bucket.bucket)

        def read(offset: int, length: int) -> bytes:
            data = self.store.storage.read_range(path, offset, length)
            self.compaction.count(length)
            return data

        return read

    def _asked_for(self, state: BucketState) -> list[tuple[IndexDefinition, GroupPlan]]:
        """Groups only: those that the planner named, current or not, and what is to be dropped."""
        named = frozenset(self.work.rebuilds)
        plans = group_plans(state, self.definitions, named)
        return [(one, plan) for one, plan in plans if Rebuild(one.column, plan.level) in named or not plan.sources]

    def _message(self, deletion_file: IndexFileMeta | None, changes: GroupChanges) -> CommitMessage:
        before, after = tuple(self.compaction.before.values()), tuple(self.compaction.after.values())
        changelog = tuple(self.compaction.changelog)
        added = changes.added if deletion_file is None else (deletion_file, *changes.added)
        bucket = self.work.bucket
        if not (before or after or changelog):
            return CommitMessage(
                bucket.partition, bucket.bucket, bucket.total_buckets, new_index_files=added, deleted_index_files=changes.removed
            )
        return CommitMessage(
            partition=bucket.partition,
            bucket=bucket.bucket,
            total_buckets=bucket.total_buckets,
            compact_before=before,
            compact_after=after,
            compact_changelog_files=changelog,
            compact_new_index_files=added,
            compact_deleted_index_files=changes.removed,
        )

    def _progress(self, progress: Progress | None) -> Callable[[int], None]:
        if progress is None:
            return lambda size: None
        return lambda size: progress(self.work, size)


def _check_store(store: TableStore) -> None:
    """`StorageError` when the store does not answer even a question about the table itself: then no file is at fault."""
    store.schema_ids()
