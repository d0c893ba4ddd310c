"""Which files of a bucket a compaction takes (spec 04 §2, §3; Java 2.1 `Levels`, `UniversalCompaction`, `EarlyFullCompaction`, `OffPeakHours`,
`ForceUpLevel0Compaction`, `CompactStrategy.pickFullCompaction`).

The runs of a bucket are ordered by age, newest first: each file of level 0, then each level from 1 upwards. Invariant: a unit takes a prefix of
the runs, because a run that was skipped would be older than the result. Everything here is a pure function of levels, options, clock, and what
was remembered from the time before; so picking again and again comes to an end, as each unit leaves fewer runs, or as many and fewer of them in
level 0. Sizes are added and compared as whole numbers where Java does so (its sums overflow above 2⁶³, ours do not), ratios as doubles.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, tzinfo
from enum import Enum
from itertools import pairwise

from maintainer.errors import CorruptTable, UsageError
from maintainer.merge.sections import KeyRange, newest_first
from maintainer.model.files import DataFileMeta
from maintainer.model.work import Clock, CompactionUnit, PickMemory
from maintainer.table.options import TableOptions


@dataclass(frozen=True)
class SortedRun:
    """Files that do not overlap, in key order: one file of level 0, or a whole level."""

    level: int
    files: tuple[DataFileMeta, ...]

    @property
    def size(self) -> int:
        return sum(file.file_size for file in self.files)


@dataclass(frozen=True)
class Levels:
    """The runs of a bucket, newest first, and the highest level that there may be."""

    runs: tuple[SortedRun, ...]
    max_level: int

    @property
    def files(self) -> tuple[DataFileMeta, ...]:
        return tuple(file for run in self.runs for file in run.files)

    @property
    def level_0(self) -> tuple[DataFileMeta, ...]:
        return tuple(file for run in self.runs if run.level == 0 for file in run.files)

    @property
    def highest_level(self) -> int:
        """The highest level with files; −1 when there are none."""
        return self.runs[-1].level if self.runs else -1


@dataclass(frozen=True)
class CompactionOptions:
    """The options that picking depends on.

    `force_level_0`: no file may stay in level 0, or, with a `gentle_interval`, each time but one in so many it may. Sizes in bytes, times in
    milliseconds, ratios in percent.
    """

    num_levels: int = 6
    compaction_trigger: int = 5
    max_size_amplification_percent: int = 200
    size_ratio: int = 1
    offpeak_start_hour: int = -1
    offpeak_end_hour: int = -1
    offpeak_ratio: int = 0
    optimization_interval: int | None = None
    total_size_threshold: int | None = None
    incremental_size_threshold: int | None = None
    force_level_0: bool = True
    gentle_interval: int | None = None
    force_rewrite_all_files: bool = False

    @classmethod
    def of(cls, options: TableOptions, gentle: bool = False) -> CompactionOptions:
        """The options of a table; `gentle`: whether `lookup-compact = gentle` is heeded, which needs somebody who remembers."""
        start, end = options.offpeak_hours
        is_gentle = gentle and options.needs_lookup and options.lookup_compact_gentle
        return cls(
            num_levels=options.num_levels,
            compaction_trigger=options.compaction_trigger,
            max_size_amplification_percent=options.max_size_amplification_percent,
            size_ratio=options.size_ratio,
            offpeak_start_hour=start,
            offpeak_end_hour=end,
            offpeak_ratio=options.offpeak_ratio,
            optimization_interval=options.optimization_interval,
            total_size_threshold=options.total_size_threshold,
            incremental_size_threshold=options.incremental_size_threshold,
            force_level_0=options.needs_lookup or options.force_up_level_0,
            gentle_interval=options.lookup_compact_max_interval if is_gentle else None,
            force_rewrite_all_files=options.force_rewrite_all_files,
        )


class Rule(Enum):
    """What made a pick take something, in the order in which the rules are asked."""

    INTERVAL = "compaction.optimization-interval"
    TOTAL_SIZE = "compaction.total-size-threshold"
    INCREMENTAL_SIZE = "compaction.incremental-size-threshold"
    AMPLIFICATION = "compaction.max-size-amplification-percent"
    RATIO = "compaction.size-ratio"
    COUNT = "num-sorted-run.compaction-trigger"
    LEVEL_0 = "level 0"


@dataclass(frozen=True)
class Pick:
    """What a normal pick takes, by which rule, and what is to be remembered once it is done (or at once, if it takes nothing).

    A rule can apply to a bucket without files, too.
    """

    unit: CompactionUnit | None
    rule: Rule | None
    memory: PickMemory


def restore(files: Sequence[DataFileMeta], num_levels: int, key: KeyRange) -> Levels:
    """The levels of a bucket (spec 04 §2); `CorruptTable` when two files of a level above 0 overlap."""
    count = max(num_levels, max((file.level for file in files), default=0) + 1)
    if count < 2:
        raise UsageError(f"option num-levels = {num_levels}: must be at least 2")
    runs = [SortedRun(0, (file,)) for file in sorted((file for file in files if file.level == 0), key=newest_first)]
    for level in sorted({file.level for file in files if file.level > 0}):
        ordered = sorted((file for file in files if file.level == level), key=lambda file: key(file)[0])
        for before, after in pairwise(ordered):
            if not key(before)[1] < key(after)[0]:
                raise CorruptTable(f"the key ranges of {before.file_name} and {after.file_name} of level {level} overlap")
        runs.append(SortedRun(level, tuple(ordered)))
    return Levels(tuple(runs), count - 1)


def clock_at(now: int, zone: tzinfo | None) -> Clock:
    """The clock at this time, in epoch milliseconds; without a zone it is the machine's, as in Java."""
    return Clock(now, (datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=now)).astimezone(zone).hour)


def last_full(files: Iterable[DataFileMeta], num_levels: int) -> int | None:
    """When the bucket was last compacted in full, as its files show somebody who does not remember: the newest of the highest level.

    Files say what their writer's wall clock showed. Like Java, this takes it for one that shows this machine's time.
    """
    times = (_epoch_millis(file) for file in files if file.level == num_levels - 1)
    return max((time for time in times if time is not None and time >= 0), default=None)


def pick_normal(levels: Levels, options: CompactionOptions, clock: Clock, memory: PickMemory) -> Pick:
    """The first hit of the rules that this table picks by (spec 04 §3). It never is one file that is at the output level already."""
    found = pick_by_size(levels, options, clock, memory)
    if found.rule is not None or not options.force_level_0:
        return found
    if options.gentle_interval is None:
        return pick_forced(levels, options, clock, found.memory)
    put_off = found.memory.put_off + 1
    if put_off < options.gentle_interval:
        return replace(found, memory=replace(found.memory, put_off=put_off))
    return pick_forced(levels, options, clock, replace(found.memory, put_off=0))


def pick_by_size(levels: Levels, options: CompactionOptions, clock: Clock, memory: PickMemory) -> Pick:
    """What the number and the sizes of the runs demand: early full compaction, amplification, ratio and count (spec 04 §3.1–§3.4)."""
    runs, trigger = len(levels.runs), options.compaction_trigger
    rule = _early_full(levels, options, clock, memory)
    count: int | None = runs
    if rule is None and _is_amplified(levels, options):
        rule = Rule.AMPLIFICATION
    if rule is None and runs >= trigger:
        rule, count = Rule.RATIO, _extend(levels, options, clock, 1)
        if count is None and runs > trigger:
            rule, count = Rule.COUNT, _extend(levels, options, clock, runs - trigger + 1)
    return Pick(None, None, memory) if rule is None or count is None else _picked(levels, count, rule, clock, memory)


def pick_forced(levels: Levels, options: CompactionOptions, clock: Clock, memory: PickMemory) -> Pick:
    """All of level 0, and the runs after it that go well with it (spec 04 §3.5, radical)."""
    level_0 = len(levels.level_0)
    count = _extend(levels, options, clock, level_0, forced=True) if level_0 else None
    return Pick(None, None, memory) if count is None else _picked(levels, count, Rule.LEVEL_0, clock, memory)


def pick_full(
    levels: Levels, options: CompactionOptions, deleted: frozenset[str] = frozenset(), expired: frozenset[str] = frozenset()
) -> CompactionUnit | None:
    """All runs into the highest level, or None when nothing would change (spec 04 §3.6).

    `deleted` names the files with a deletion vector, `expired` those with records that are to be dropped for their age.
    """
    if not levels.runs:
        return None
    if len(levels.runs) > 1 or levels.runs[0].level != levels.max_level:
        return CompactionUnit(levels.max_level, levels.files)
    wanted = deleted | expired
    files = tuple(file for file in levels.files if options.force_rewrite_all_files or file.file_name in wanted)
    return CompactionUnit(levels.max_level, files, file_rewrite=True) if files else None


def _early_full(levels: Levels, options: CompactionOptions, clock: Clock, memory: PickMemory) -> Rule | None:
    if len(levels.runs) == 1:
        return None
    interval, total, incremental = options.optimization_interval, options.total_size_threshold, options.incremental_size_threshold
    if interval is not None and (memory.last_full is None or clock.now - memory.last_full > interval):
        return Rule.INTERVAL
    if total is not None and sum(run.size for run in levels.runs) < total:
        return Rule.TOTAL_SIZE
    if incremental is not None and sum(run.size for run in levels.runs if run.level != levels.max_level) > incremental:
        return Rule.INCREMENTAL_SIZE
    return None


def _is_amplified(levels: Levels, options: CompactionOptions) -> bool:
    if len(levels.runs) < options.compaction_trigger:
        return False
    newer = sum(run.size for run in levels.runs[:-1])
    return newer * 100 > options.max_size_amplification_percent * levels.runs[-1].size


def _extend(levels: Levels, options: CompactionOptions, clock: Clock, count: int, forced: bool = False) -> int | None:
    """How many runs to take: `count`, and each next one that is not much larger than all before it together; None: one is not enough.

    A larger run is also taken when it is at level 0 or 1 and something is taken anyway. Sizes are compared as doubles, as Java does.
    """
    runs = levels.runs
    size = sum(run.size for run in runs[:count])
    triggered = forced or count > 1
    percent = 100.0 + options.size_ratio + _offpeak_ratio(options, clock)
    for run in runs[count:]:
        if size * percent / 100.0 < float(run.size) and (not triggered or run.level > 1):
            break
        size += run.size
        count += 1
        triggered = True
    return count if triggered else None


def _picked(levels: Levels, count: int, rule: Rule, clock: Clock, memory: PickMemory) -> Pick:
    """The first `count` runs into the level below the next run; a run more where that would be level 0."""
    runs = levels.runs
    output = levels.max_level if count == len(runs) else max(0, runs[count].level - 1)
    if output == 0:
        for run in runs[count:]:
            count += 1
            if run.level != 0:
                output = run.level
                break
    if count == len(runs):
        output = levels.max_level
        memory = replace(memory, last_full=clock.now)
    files = tuple(file for run in runs[:count] for file in run.files)
    return Pick(CompactionUnit(output, files) if files else None, rule, memory)


def _offpeak_ratio(options: CompactionOptions, clock: Clock) -> int:
    start, end, hour = options.offpeak_start_hour, options.offpeak_end_hour, clock.local_hour
    if -1 in (start, end) or start == end:
        return 0
    inside = start <= hour < end if start <= end else hour < end or hour >= start
    return options.offpeak_ratio if inside else 0


def _epoch_millis(file: DataFileMeta) -> int | None:
    """When a file was made; None when it does not say, or no calendar has such a day."""
    try:
        shown = datetime(1970, 1, 1) + timedelta(milliseconds=file.creation_time or 0)
        return None if file.creation_time is None else round(shown.timestamp() * 1000)
    except (OverflowError, ValueError, OSError):
        return None
