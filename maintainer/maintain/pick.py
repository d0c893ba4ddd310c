"""Which files of a bucket a compaction takes (spec 04 §2, §3; Java 2.1 `Levels`, `UniversalCompaction`, `ForceUpLevel0Compaction`,
`CompactStrategy.pickFullCompaction`).

The runs of a bucket are ordered by age, newest first: each file of level 0, then each level from 1 upwards. Invariant: a unit takes a prefix of
the runs, because a run that was skipped would be older than the result. Everything here is a pure function of levels, options and clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from maintainer.errors import CorruptTable, UsageError
from maintainer.merge.sections import KeyRange, newest_first
from maintainer.model.files import DataFileMeta
from maintainer.model.work import CompactionUnit
from maintainer.table.options import TableOptions, parse_duration, parse_memory_size


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
    def highest_level(self) -> int:
        """The highest level with files; −1 when there are none."""
        return self.runs[-1].level if self.runs else -1


@dataclass(frozen=True)
class CompactionOptions:
    """The options that picking depends on. `force_level_0`: no file may stay in level 0, as in every table with deletion vectors."""

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
    force_rewrite_all_files: bool = False

    @classmethod
    def of(cls, options: TableOptions) -> CompactionOptions:
        """The options of a table whose level 0 is forced up (any with deletion vectors, whatever `lookup-compact` says)."""
        interval = options.parse("compaction.optimization-interval", parse_duration, None)
        return cls(
            num_levels=options.num_levels,
            compaction_trigger=options.compaction_trigger,
            max_size_amplification_percent=options.max_size_amplification_percent,
            size_ratio=options.size_ratio,
            offpeak_start_hour=options.integer("compaction.offpeak.start.hour", -1),
            offpeak_end_hour=options.integer("compaction.offpeak.end.hour", -1),
            offpeak_ratio=options.integer("compaction.offpeak-ratio", 0),
            optimization_interval=None if interval is None else int(interval * 1000),
            total_size_threshold=options.parse("compaction.total-size-threshold", parse_memory_size, None),
            incremental_size_threshold=options.parse("compaction.incremental-size-threshold", parse_memory_size, None),
            force_level_0=options.deletion_vectors_enabled or options.boolean("compaction.force-up-level-0", False),
            force_rewrite_all_files=options.boolean("compaction.force-rewrite-all-files", False),
        )


@dataclass(frozen=True)
class Clock:
    """What time it is: epoch milliseconds, the local hour, and when all runs were last compacted (None: unknown)."""

    now: int = 0
    local_hour: int = 0
    last_full: int | None = None


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


def pick_normal(levels: Levels, options: CompactionOptions, clock: Clock) -> CompactionUnit | None:
    """The first hit of the rules that this table picks by (spec 04 §3). It never is one file that is at the output level already."""
    unit = pick_by_size(levels, options, clock)
    return pick_forced(levels, options, clock) if unit is None and options.force_level_0 else unit


def pick_by_size(levels: Levels, options: CompactionOptions, clock: Clock) -> CompactionUnit | None:
    """What the number and the sizes of the runs demand: early full compaction, amplification, ratio and count (spec 04 §3.1–§3.4)."""
    unit = _early_full(levels, options, clock) or _size_amplification(levels, options)
    if unit is None and len(levels.runs) >= options.compaction_trigger:
        unit = _extend(levels, options, clock, 1)
    if unit is None and len(levels.runs) > options.compaction_trigger:
        unit = _extend(levels, options, clock, len(levels.runs) - options.compaction_trigger + 1)
    return unit


def pick_forced(levels: Levels, options: CompactionOptions, clock: Clock) -> CompactionUnit | None:
    """All of level 0, and the runs after it that go well with it (spec 04 §3.5, radical)."""
    count = sum(run.level == 0 for run in levels.runs)
    return _extend(levels, options, clock, count, forced=True) if count else None


def pick_full(levels: Levels, options: CompactionOptions, deleted: frozenset[str] = frozenset()) -> CompactionUnit | None:
    """All runs into the highest level, or None when nothing would change (spec 04 §3.6); `deleted` names the files with a deletion vector."""
    if not levels.runs:
        return None
    if len(levels.runs) > 1 or levels.runs[0].level != levels.max_level:
        return CompactionUnit(levels.max_level, levels.files)
    files = tuple(file for file in levels.files if options.force_rewrite_all_files or file.file_name in deleted)
    return CompactionUnit(levels.max_level, files, file_rewrite=True) if files else None


def _early_full(levels: Levels, options: CompactionOptions, clock: Clock) -> CompactionUnit | None:
    if len(levels.runs) < 2:
        return None
    interval, total, incremental = options.optimization_interval, options.total_size_threshold, options.incremental_size_threshold
    due = (
        (interval is not None and (clock.last_full is None or clock.now - clock.last_full > interval))
        or (total is not None and sum(run.size for run in levels.runs) < total)
        or (incremental is not None and sum(run.size for run in levels.runs if run.level != levels.max_level) > incremental)
    )
    return CompactionUnit(levels.max_level, levels.files) if due else None


def _size_amplification(levels: Levels, options: CompactionOptions) -> CompactionUnit | None:
    if len(levels.runs) < options.compaction_trigger:
        return None
    newer = sum(run.size for run in levels.runs[:-1])
    hit = newer * 100 > options.max_size_amplification_percent * levels.runs[-1].size
    return CompactionUnit(levels.max_level, levels.files) if hit else None


def _extend(levels: Levels, options: CompactionOptions, clock: Clock, count: int, forced: bool = False) -> CompactionUnit | None:
    """Take `count` runs and then each next one that is not much larger than all before it together.

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
    return _unit(levels, count) if triggered else None


def _unit(levels: Levels, count: int) -> CompactionUnit:
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
    return CompactionUnit(output, tuple(file for run in runs[:count] for file in run.files))


def _offpeak_ratio(options: CompactionOptions, clock: Clock) -> int:
    start, end, hour = options.offpeak_start_hour, options.offpeak_end_hour, clock.local_hour
    if -1 in (start, end) or start == end:
        return 0
    inside = start <= hour < end if start <= end else hour < end or hour >= start
    return options.offpeak_ratio if inside else 0
