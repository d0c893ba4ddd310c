"""Planning: what one table needs, bucket by bucket, as plain data (DESIGN §3; spec 04 §3, §9.4, 06 §9, §12).

A pure function of the table's state, its options and the clock; nothing is opened. Per bucket the first of these that applies:

| kind           | when                                                                                                     |
| -------------- | -------------------------------------------------------------------------------------------------------- |
| compact        | picking takes files (level 0 always, or all on request), and at least one of them has to be rewritten    |
| upgrade        | picking takes files, and all of them just move to another level                                          |
| rewrite-append | APPEND files lie above level 0 of a table with definitions, where no index can cover them (decision 5)   |
| index          | only groups are missing, stale, superfluous, or to be rebuilt on request                                 |

What options put off to a later time is put off only for who is patient, which is the daemon: it comes again, and remembers. To any other pass
that time is now: `lookup-compact = gentle` is treated as radical, and `full-compaction.delta-commits` as reached (as Java's batch jobs do it),
whatever `changelog-producer.compaction-interval` says.
A bucket that is done plans nothing, so a pass on the result of a pass is idle: neither the thresholds of early full compaction nor
`compaction.force-rewrite-all-files` make one of a lone run at the highest level, which is what a full compaction leaves.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from maintainer.errors import CorruptFile, CorruptTable, UsageError
from maintainer.index import groups
from maintainer.index.definition import definitions
from maintainer.index.definition_changes import why_dropped
from maintainer.maintain.compact import append_files, unit_options
from maintainer.maintain.estimate import index_memory, merging_memory
from maintainer.maintain.pick import (
    CompactionOptions,
    Levels,
    Pick,
    Rule,
    clock_at,
    last_full,
    pick_by_size,
    pick_full,
    pick_normal,
    restore,
)
from maintainer.maintain.rebuild import group_plans
from maintainer.maintain.unit import Rewrite, Upgrade, steps
from maintainer.maintain.unmarked import HEAL, unmarked, unmerged
from maintainer.merge.sections import key_range
from maintainer.model.bucket import BucketState
from maintainer.model.files import BucketKey, DataFileMeta, FileSource, IndexFileMeta
from maintainer.model.schema import TableSchema
from maintainer.model.work import CompactionUnit, Group, PickMemory, Plan, Rebuild, Work, WorkKind
from maintainer.storage.layout import Layout, partition_text
from maintainer.table.options import TableOptions
from maintainer.table.state import TableState


@dataclass(frozen=True)
class PlanRequest:
    """What is wanted of a pass.

    `partitions`: only these, each given by some or all of its columns. `columns`, `force` (with `index_only`): only these definitions, and also
    groups that are current. `rewrite_append_bytes`: so much of the APPEND files above level 0 is rewritten where it is, but of one bucket
    all when it is more than 0; None: all. `settled`: buckets for which `full` and `force` were fulfilled already. `quarantined`: groups that
    could not be built, and why; they are not tried again yet from the same sources. `groups_first`: buckets whose groups have waited for a
    commit of their own, and do not wait for another compaction.

    `patient`: whoever asks comes again and hands in the `memories` that the plan before left. `by_commits`: `full-compaction.delta-commits` is
    heeded. `without_vectors` are the ids of schemas of live files under which there were no deletion vectors, though there are now,
    `without_lookup` those under which nothing was looked up, and `expired` the names of files with records to be dropped for their age.
    """

    full: bool = False
    partitions: Sequence[Mapping[str, str]] | None = None
    rewrite_append: bool = True
    rewrite_append_bytes: int | None = None
    index_only: bool = False
    columns: tuple[str, ...] | None = None
    force: bool = False
    now: int = 0
    settled: frozenset[BucketKey] = frozenset()
    quarantined: Mapping[Group, str] = field(default_factory=dict)
    groups_first: frozenset[BucketKey] = frozenset()
    patient: bool = False
    by_commits: bool = True
    memories: Mapping[BucketKey, PickMemory] = field(default_factory=dict)
    without_vectors: frozenset[int] = frozenset()
    without_lookup: frozenset[int] = frozenset()
    expired: frozenset[str] = frozenset()


def plan_table(state: TableState | None, table_name: str, schema: TableSchema, request: PlanRequest) -> Plan:
    """All work that the table needs in this state (None: there is no snapshot); `schema` is what would be written."""
    planner = _Planner(table_name, schema, request)
    work: list[Work] = []
    idle_reason = None
    if state is None:
        idle_reason = "the table has no snapshot"
    else:
        chosen = [state.buckets[key] for key in sorted(state.buckets) if planner.is_wanted(key.partition)]
        work = [item for item in (planner.plan_bucket(bucket) for bucket in chosen) if item is not None]
        if not work:
            idle_reason = planner.idle_reason(chosen)
    return Plan(
        table=table_name,
        snapshot_id=None if state is None else state.snapshot.id,
        snapshot_uuid=None if state is None else state.snapshot.uuid,
        schema_id=schema.id,
        work=tuple(work),
        idle_reason=idle_reason,
        held=planner.held,
        quarantined=planner.quarantined,
        due=planner.due,
        memories=planner.memories,
    )


def append_bytes(work: Work) -> int:
    """How much of `PlanRequest.rewrite_append_bytes` a work item takes."""
    if not (work.unit and work.rewrite_append and work.rewrite_elsewhere):
        return 0
    taken = () if work.kind is WorkKind.REWRITE_APPEND else work.unit.files
    return sum(file.file_size for file in append_files(work.bucket.files) if file not in taken)


class _Planner:
    """What planning any bucket of a table depends on."""

    def __init__(self, table_name: str, schema: TableSchema, request: PlanRequest) -> None:
        self.table_name = table_name
        self.schema = schema
        self.request = request
        self.table_options = TableOptions.of(schema)
        self.options = CompactionOptions.of(self.table_options, gentle=request.patient)
        self.clock = clock_at(request.now, _zone(self.table_options))
        self.delta_commits = self.table_options.full_compaction_delta_commits if request.by_commits else None
        self.remembers = self.options.optimization_interval is not None
        if request.patient:
            self.remembers |= self.options.gentle_interval is not None or self.delta_commits is not None
        self.held: dict[BucketKey, str] = {}
        self.quarantined: dict[Group, str] = {}
        self.memories: dict[BucketKey, PickMemory] = {}
        self.layout = Layout.of(schema)
        self.key = key_range(schema.key_types)
        self.definitions = definitions(schema)
        self.is_async = self.table_options.index_mode == "async"
        self.rewrite_append = request.rewrite_append and bool(self.definitions)
        self.rewritten_bytes = 0
        self.waiting = 0
        """APPEND files that are not planned because of `rewrite_append_bytes`."""
        self.due: int | None = None
        self.putting_off = 0
        """Files of level 0 that a gentle compaction leaves there."""
        self._quarantined: defaultdict[BucketKey, dict[Group, str]] = defaultdict(dict)
        for group, reason in request.quarantined.items():
            self._quarantined[group.key][group] = reason
        self._check_request()

    def _check_request(self) -> None:
        for spec in self.request.partitions or ():
            for name in spec:
                if name not in self.schema.partition_keys:
                    keys = ", ".join(self.schema.partition_keys)
                    there = f"the partition columns are {keys}" if keys else "the table has no partitions"
                    raise UsageError(f"{self.table_name}: {name!r} is no partition column; {there}")
        for column in self.request.columns or ():
            if column not in {definition.column for definition in self.definitions}:
                columns = ", ".join(definition.column for definition in self.definitions)
                there = f"indexed columns: {columns}" if columns else "the table defines no index"
                raise UsageError(f"{self.table_name}: there is no index on {column!r}; {there}")

    def is_wanted(self, partition: bytes) -> bool:
        """Whether the request is about this partition."""
        if self.request.partitions is None:
            return True
        values = self.layout.partition_values(partition) if self.schema.partition_keys else ()
        texts: dict[str, set[str]] = {}
        for name, data_type, value in zip(self.schema.partition_keys, self.schema.partition_types, values, strict=True):
            null = self.table_options.text("partition.default-name", "__DEFAULT_PARTITION__")
            texts[name] = {null} if value is None else {partition_text(value, data_type, legacy) for legacy in (True, False)}
        return any(all(value in texts[name] for name, value in spec.items()) for spec in self.request.partitions)

    def plan_bucket(self, bucket: BucketState) -> Work | None:
        """The work of one bucket, or None when there is none."""
        named = self._quarantined.get(bucket.key, {})
        self.quarantined |= {group: named[group] for group in sorted(named)}
        try:
            levels = restore(bucket.files, self.options.num_levels, self.key)
            settled = bucket.key in self.request.settled
            if not (self.request.full and not settled) and self._is_held(bucket):
                return None
            if bucket.key in self.request.groups_first:
                work = self._plan_groups(bucket, force=False)
                if work is not None:
                    return work
            if not self.request.index_only:
                work = self._plan_compaction(bucket, levels, full=self.request.full and not settled)
                if work is not None:
                    return work
            return self._plan_groups(bucket, force=self.request.force and not settled)
        except (CorruptTable, CorruptFile) as error:
            where = f"{self.table_name}: {self.layout.bucket_directory(bucket.partition, bucket.bucket)}"
            raise CorruptTable(f"{where}: {error}") from error

    def idle_reason(self, chosen: Sequence[BucketState]) -> str:
        """Why nothing is planned for these buckets."""
        if not any(bucket.files for bucket in chosen):
            return "the table holds no data" if self.request.partitions is None else "no data in these partitions"
        failed = len(self.quarantined)
        if self.held:
            first = next(iter(self.held))
            more = f" (and so in {len(self.held) - 1} more)" if len(self.held) > 1 else ""
            return f"{self.layout.bucket_directory(first.partition, first.bucket)}: {self.held[first]}{more}"
        if self.due is not None:
            return "what is new is left for later: changelog-producer.compaction-interval"
        if self.putting_off:
            return f"{_files(self.putting_off, 'level-0')} left for later: lookup-compact = gentle"
        if self.waiting:
            return f"{_files(self.waiting, 'APPEND')} above level 0 wait{'s' * (self.waiting == 1)} for the budget of rewriting such files"
        if failed:
            return f"no file is to be compacted, {failed} group{'s' * (failed > 1)} could not be built"
        return "no file is to be compacted" + (", and every index group is current" if self.definitions else "")

    def _is_held(self, bucket: BucketState) -> bool:
        """Whether the bucket waits for a full compaction that somebody asks for: levels of it were made without deletion vectors,
        or without a look at older versions."""
        if self.table_options.deletion_vectors_enabled:
            since, pair = "deletion-vectors.enabled was set", unmarked(bucket.files, self.request.without_vectors, self.key)
        else:
            since, pair = "the table looked older versions up", unmerged(bucket.files, self.request.without_lookup, self.schema)
        if pair is None:
            return False
        levels = " and ".join(f"{file.file_name} (level {file.level})" for file in pair)
        self.held[bucket.key] = f"{levels} overlap, and were made before {since}: {HEAL}"
        return True

    def _pick(self, bucket: BucketState, levels: Levels, full: bool) -> tuple[CompactionUnit | None, str, PickMemory]:
        """What compaction takes, why, and what is to be remembered."""
        request, options = self.request, self.options
        memory = request.memories.get(bucket.key)
        if memory is None:
            memory = PickMemory(last_full(bucket.files, options.num_levels) if options.optimization_interval is not None else None)
        names = frozenset(file.file_name for file in levels.level_0) if request.patient else frozenset()
        is_new = not names <= memory.level_0
        memory = replace(memory, level_0=names, commits=memory.commits + (is_new and self.delta_commits is not None))
        if full:
            return pick_full(levels, options, self._with_deletions(bucket), request.expired), "full compaction was asked for", memory
        if self._full_is_due(bucket, levels, memory):
            reason = f"full-compaction.delta-commits = {self.delta_commits}: all runs together"
            if self.table_options.full_compaction_interval is not None:
                reason = "changelog-producer.compaction-interval has gone by: all runs together"
            if self.table_options.changelog_producer == "full-compaction":
                reason = f"{len(levels.runs)} sorted runs, the changelog of which a full compaction writes"
            memory = replace(memory, commits=0, last_full=self.clock.now)
            return pick_full(levels, options, self._with_deletions(bucket), request.expired), reason, memory
        puts_off = options.gentle_interval is not None and not is_new
        found = (pick_by_size if puts_off else pick_normal)(levels, options, self.clock, memory)
        if found.unit is None and options.gentle_interval is not None and names:
            self.putting_off += len(names)
        return found.unit, "" if found.unit is None else self._reason(levels, found, found.unit), found.memory

    def _full_is_due(self, bucket: BucketState, levels: Levels, memory: PickMemory) -> bool:
        """Whether there were commits enough since all was last compacted, or it was long enough ago, and there is something to compact."""
        if self.delta_commits is None or not any(run.level != levels.max_level for run in levels.runs):
            return False
        interval = self.table_options.full_compaction_interval
        if not self.request.patient:
            return True
        if interval is None:
            return memory.commits >= self.delta_commits
        last = last_full(bucket.files, self.options.num_levels) if memory.last_full is None else memory.last_full
        if last is None or self.clock.now - last >= interval:
            return True
        self.due = last + interval if self.due is None else min(self.due, last + interval)
        return False

    def _reason(self, levels: Levels, found: Pick, unit: CompactionUnit) -> str:
        level_0 = sum(file.level == 0 for file in unit.files)
        options = self.table_options
        if level_0 and options.hides_level_0:
            return f"{_files(level_0, 'level-0')} cannot be seen by batch readers"
        if found.rule is Rule.LEVEL_0:
            why = "compaction.force-up-level-0" if options.force_up_level_0 else "force-lookup"
            if options.changelog_producer == "lookup":
                return f"{_files(level_0, 'level-0')} the changelog of which is not written yet"
            if options.deletion_vectors_enabled:
                return f"{_files(level_0, 'level-0')} without deletion vectors for the rows that they replace"
            return f"{_files(level_0, 'level-0')}, where {why} leaves none"
        runs = f"{len(levels.runs)} sorted runs"
        match found.rule:
            case Rule.INTERVAL:
                return f"{runs}, and the last full compaction is longer ago than {Rule.INTERVAL.value} says"
            case Rule.TOTAL_SIZE:
                return f"{runs}, together smaller than {Rule.TOTAL_SIZE.value}"
            case Rule.INCREMENTAL_SIZE:
                return f"{runs}, below the highest level larger than {Rule.INCREMENTAL_SIZE.value}"
            case Rule.AMPLIFICATION:
                return f"{runs}, the newer ones too large for the oldest ({Rule.AMPLIFICATION.value})"
            case Rule.COUNT:
                return f"{runs}, more than {Rule.COUNT.value}"
            case _:
                return f"{runs} of like sizes ({Rule.RATIO.value})"

    def _plan_compaction(self, bucket: BucketState, levels: Levels, full: bool) -> Work | None:
        options = unit_options(self.schema, levels, self.rewrite_append, self.request.expired, self.request.without_vectors)
        unit, reason, memory = self._pick(bucket, levels, full)
        taken = () if unit is None else unit.files
        where_they_are = [file for file in append_files(bucket.files) if file not in taken] if self.rewrite_append else []
        affordable = self._affords(where_they_are)
        if not affordable:
            where_they_are = []
        if unit is None and not where_they_are:
            if self.remembers:
                self.memories[bucket.key] = memory
            return None
        kind = WorkKind.COMPACT
        if unit is None:
            kind = WorkKind.REWRITE_APPEND
            level = where_they_are[0].level
            unit = CompactionUnit(level, tuple(file for file in where_they_are if file.level == level), file_rewrite=True)
            reason = f"{_files(len(where_they_are), 'APPEND')} above level 0: no index can cover what no compaction wrote"
        planned = steps(unit, self.key, options)
        rewritten = [file for step in planned if isinstance(step, Rewrite) for file in step.files]
        elsewhere = [file for file in where_they_are if file not in unit.files]
        if not rewritten and not elsewhere:
            kind = WorkKind.UPGRADE
        moved = [step.file for step in planned if isinstance(step, Upgrade)]
        expected = _expected(bucket, unit, rewritten, moved, elsewhere)
        rebuilds, index = self._expected_rebuilds(bucket, expected)
        merged = [*rewritten, *elsewhere]
        told = [step.file for step in planned if isinstance(step, Upgrade) and options.reads(step)]
        return Work(
            kind=kind,
            bucket=bucket,
            reason=reason,
            unit=unit,
            rewrite_append=self.rewrite_append,
            rewrite_elsewhere=affordable,
            gentle=self.options.gentle_interval is not None,
            clock=self.clock,
            memory=memory if self.remembers else PickMemory(),
            rebuilds=rebuilds,
            quarantined=tuple(sorted(Rebuild(group.column, group.level) for group in self._quarantined.get(bucket.key, ()))),
            estimated_bytes=sum(file.file_size for file in (*merged, *told)),
            estimated_memory=max(merging_memory(self.schema, self.table_options, bucket, unit, merged), index),
        )

    def _with_deletions(self, bucket: BucketState) -> frozenset[str]:
        if bucket.deletion_file is None or not self.table_options.deletion_vectors_enabled:
            return frozenset()
        return frozenset(entry.data_file for entry in bucket.deletion_file.deletion_ranges or ())

    def _affords(self, files: Sequence[DataFileMeta]) -> bool:
        """Whether these APPEND files of a bucket may be rewritten, too; if so, they are accounted for."""
        most, size = self.request.rewrite_append_bytes, sum(file.file_size for file in files)
        if files and most is not None and (most <= 0 or (self.rewritten_bytes and self.rewritten_bytes + size > most)):
            self.waiting += len(files)
            return False
        self.rewritten_bytes += size
        return True

    def _expected_rebuilds(self, bucket: BucketState, expected: BucketState) -> tuple[tuple[Rebuild, ...], int]:
        """Groups to build once the files are as expected, and the memory of the largest of them."""
        if self.is_async:
            return (), 0
        before = groups.sources(bucket.files)
        quarantined = self._quarantined.get(bucket.key, {})
        plans = [
            (definition, plan)
            for definition, plan in group_plans(expected, self.definitions)
            if plan.sources
            and not (Group(bucket.key, definition.column, plan.level) in quarantined and tuple(before.get(plan.level, ())) == plan.sources)
        ]
        return tuple(sorted(Rebuild(definition.column, plan.level) for definition, plan in plans)), index_memory(expected, plans)

    def _plan_groups(self, bucket: BucketState, force: bool) -> Work | None:
        request = self.request
        wanted = [one for one in self.definitions if request.columns is None or one.column in request.columns]
        levels = groups.sources(bucket.files) if force else {}
        forced = frozenset(Rebuild(definition.column, level) for definition in wanted for level in levels)
        plans = [
            (definition, plan)
            for definition, plan in group_plans(bucket, wanted, forced)
            if not plan.sources or Group(bucket.key, definition.column, plan.level) not in request.quarantined
        ]
        orphans = groups.orphans(bucket, self.definitions)
        if not plans and not orphans:
            return None
        built = [(definition, plan) for definition, plan in plans if plan.sources]
        sources = {name for _, plan in built for name, _ in plan.sources}
        size = sum(file.file_size for file in bucket.files if file.file_name in sources)
        return Work(
            kind=WorkKind.INDEX,
            bucket=bucket,
            reason=_groups_reason(len(built), sum(len(plan.inputs) for _, plan in plans), bool(forced), self._why_dropped(orphans)),
            rebuilds=tuple(sorted(Rebuild(definition.column, plan.level) for definition, plan in built)),
            second_round=False,
            estimated_bytes=size,
            estimated_memory=index_memory(bucket, built),
        )

    def _why_dropped(self, orphans: Sequence[IndexFileMeta]) -> str | None:
        """Why payloads are of no definition, with the columns that they have, or had."""
        if not orphans:
            return None
        columns: dict[str, dict[str, None]] = {}
        for payload in orphans:
            column, why = why_dropped(payload, self.schema)
            columns.setdefault(why, {}).update({} if column is None else {column: None})
        told = "; ".join(f"{', '.join(names)}: {why}" if names else why for why, names in columns.items())
        return f"{len(orphans)} payload{'s' * (len(orphans) > 1)} of no definition to be dropped ({told})"


def _expected(
    bucket: BucketState,
    unit: CompactionUnit,
    rewritten: Sequence[DataFileMeta],
    moved: Sequence[DataFileMeta],
    elsewhere: Sequence[DataFileMeta],
) -> BucketState:
    """The bucket as the first round will leave it, with one new file for all that are rewritten, as far as can be known before."""
    gone = {file.file_name for file in (*rewritten, *moved, *elsewhere)}
    files = [file for file in bucket.files if file.file_name not in gone]
    files += [replace(file, level=unit.output_level) for file in moved]
    files += [replace(file, file_source=FileSource.COMPACT, file_name=f"new {file.file_name}") for file in elsewhere]
    if rewritten:
        rows = sum(file.row_count for file in rewritten)
        size = sum(file.file_size for file in rewritten)
        source = FileSource.COMPACT
        files.append(replace(rewritten[0], file_name="new", level=unit.output_level, file_source=source, row_count=rows, file_size=size))
    return replace(bucket, files=tuple(files))


def _zone(options: TableOptions) -> ZoneInfo | None:
    """Where off-peak hours are meant; None: where this machine is, as in Java."""
    name = options.text("read.time-zone")
    try:
        return ZoneInfo(name) if name else None
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise UsageError(f"option read.time-zone = {name!r}: there is no such time zone") from None


def _groups_reason(built: int, replaced: int, forced: bool, orphans: str | None) -> str:
    parts = []
    if built:
        parts.append(f"{built} group{'s' * (built > 1)} {'to be built as asked' if forced else 'missing or stale'}")
    if replaced and not forced:
        parts.append(f"{replaced} stale payload{'s' * (replaced > 1)} to be dropped")
    if orphans:
        parts.append(orphans)
    return "; ".join(parts)


def _files(count: int, kind: str) -> str:
    return f"{count} {kind} file" if count == 1 else f"{count} {kind} files"
