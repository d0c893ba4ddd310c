"""Picking: the cases in `pick/*.txt`, and what holds for every bucket.

A case is a title, options of the table, what the clock says and what is remembered, runs (`level:size`, newest first), `----`, and an answer
for each rule asked. Sizes joined by `+` are files of one level; after a size, `*` is a deletion vector, and `!` records that have expired.
`pytest tests/maintain/test_pick.py --rewrite` writes the answers anew, for reading the difference.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maintainer.errors import CorruptFile, CorruptTable, UsageError
from maintainer.maintain.pick import (
    CompactionOptions,
    Levels,
    clock_at,
    last_full,
    pick_by_size,
    pick_forced,
    pick_full,
    pick_normal,
    restore,
)
from maintainer.merge.sections import key_range
from maintainer.model.files import DataFileMeta
from maintainer.model.work import Clock, CompactionUnit, PickMemory
from maintainer.table.options import TableOptions
from tests.support import pick_model
from tests.support.builders import file_meta, types
from tests.support.campaign import share

KEY = key_range(types("INT"))
CASES = sorted((Path(__file__).parent / "pick").glob("*.txt"))


@dataclass
class Bucket:
    """Files as a case writes them: each is a level, a size, and whether rows of it are deleted."""

    files: list[DataFileMeta] = field(default_factory=list)
    deleted: set[str] = field(default_factory=set)
    expired: set[str] = field(default_factory=set)
    shown: dict[str, str] = field(default_factory=dict)

    def add(self, level: int, size: int, deleted: bool = False, expired: bool = False) -> None:
        number = len(self.files)
        name = f"file-{number}"
        age = 1_000_000 - number  # as cases list the newest first
        self.files.append(file_meta(name, level, keys=(10 * number, 10 * number + 9), size=size, sequences=(age, age)))
        self.shown[name] = f"{level}:{size}{'*' * deleted}{'!' * expired}"
        if deleted:
            self.deleted.add(name)
        if expired:
            self.expired.add(name)

    def show(self, unit: CompactionUnit | None) -> str:
        if unit is None:
            return "nothing"
        files = " ".join(self.shown[file.file_name] for file in unit.files)
        return f"level {unit.output_level} {'rewriting' if unit.file_rewrite else 'from'} {files}"


@dataclass
class Question:
    options: TableOptions
    clock: Clock
    memory: PickMemory
    bucket: Bucket


def parse(lines: list[str]) -> Question:
    options = {"deletion-vectors.enabled": "true"}
    clock, memory, bucket = Clock(), PickMemory(), Bucket()
    for word in (word for line in lines for word in line.split()):
        key, equals, value = word.partition("=")
        match key:
            case "now":
                clock = replace(clock, now=int(value))
            case "hour":
                clock = replace(clock, local_hour=int(value))
            case "last-full":
                memory = replace(memory, last_full=int(value))
            case "put-off":
                memory = replace(memory, put_off=int(value))
            case _ if equals:
                options[key] = value
            case _:
                level, _, sizes = word.partition(":")
                for size in sizes.split("+"):
                    bucket.add(int(level), int(size.rstrip("*!")), "*" in size, "!" in size)
    return Question(TableOptions(options), clock, memory, bucket)


def remembered(memory: PickMemory) -> str:
    return f"last full {memory.last_full}, put off {memory.put_off}"


def answer(block: str) -> str:
    """A case with the answers that the code gives to its questions."""
    text, _, expected = block.partition("\n----\n")
    question = parse(text.splitlines()[1:])
    bucket, clock, memory = question.bucket, question.clock, question.memory
    options, gentle = (CompactionOptions.of(question.options, gentle) for gentle in (False, True))
    levels = restore(bucket.files, options.num_levels, KEY)
    rules = {
        "by size": lambda: bucket.show(pick_by_size(levels, options, clock, memory).unit),
        "forced": lambda: bucket.show(pick_forced(levels, options, clock, memory).unit),
        "normal": lambda: bucket.show(pick_normal(levels, options, clock, memory).unit),
        "gentle": lambda: bucket.show(pick_normal(levels, gentle, clock, memory).unit),
        "full": lambda: bucket.show(pick_full(levels, options, frozenset(bucket.deleted), frozenset(bucket.expired))),
        "rule": lambda: str(rule.value if (rule := pick_normal(levels, options, clock, memory).rule) else "none"),
        "memory": lambda: remembered(pick_normal(levels, gentle, clock, memory).memory),
    }
    asked = [line[:8].strip() for line in expected.splitlines()]
    return "\n".join([text, "----", *(f"{rule:8} {rules[rule]()}" for rule in asked)])


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_cases(path: Path, request: pytest.FixtureRequest) -> None:
    comment, *blocks = path.read_text(encoding="utf-8").rstrip("\n").split("\n\n")
    answered = [answer(block) for block in blocks]
    if request.config.getoption("--rewrite"):
        path.write_text("\n\n".join([comment, *answered]) + "\n", encoding="utf-8")
    else:
        assert answered == blocks


def test_there_are_cases_and_each_has_an_answer() -> None:
    blocks = [block for path in CASES for block in path.read_text(encoding="utf-8").rstrip("\n").split("\n\n")[1:]]
    assert len(blocks) > 100
    assert all(re.search(r"\n?----\n(by size|forced|normal|gentle|full|rule|memory) ", block) for block in blocks)


def test_level_0_is_ordered_newest_first() -> None:
    ages = [((5, 9), 100, "b"), ((3, 9), 100, "a"), ((5, 9), 90, "c"), ((0, 8), 1, "d"), ((5, 9), 100, "a0")]
    files = [file_meta(name, 0, sequences=sequences, creation_time=time) for sequences, time, name in ages]
    assert [run.files[0].file_name for run in restore(files, 6, KEY).runs] == ["a", "c", "a0", "b", "d"]


def test_levels_above_0_are_one_run_each_in_key_order() -> None:
    files = [
        file_meta("c", 2, keys=(20, 29)),
        file_meta("z", 0, keys=(0, 99)),
        file_meta("b", 2, keys=(-5, 19)),
        file_meta("a", 1, keys=(0, 99)),
    ]
    levels = restore(files, 3, KEY)
    assert [(run.level, [file.file_name for file in run.files]) for run in levels.runs] == [(0, ["z"]), (1, ["a"]), (2, ["b", "c"])]
    assert (levels.max_level, levels.highest_level, levels.runs[2].size) == (2, 2, 2000)


def test_overlapping_files_of_a_level_are_named() -> None:
    files = [file_meta("left", 3, keys=(0, 10)), file_meta("right", 3, keys=(10, 20))]
    with pytest.raises(CorruptTable, match="left and right of level 3 overlap"):
        restore(files, 6, KEY)


def test_metadata_without_a_readable_key_names_the_file() -> None:
    with pytest.raises(CorruptFile, match="broken"):
        restore([replace(file_meta("broken", 3), min_key=b"\0\0"), file_meta("fine", 3, keys=(20, 29))], 6, KEY)


def test_one_level_is_not_enough() -> None:
    with pytest.raises(UsageError, match="num-levels"):
        restore([], 1, KEY)


def test_an_empty_bucket_has_no_highest_level() -> None:
    assert (restore([], 6, KEY).runs, restore([], 6, KEY).highest_level, restore([], 6, KEY).max_level) == ((), -1, 5)


sizes = st.integers(0, 300) | st.integers(0, 2**62)


@st.composite
def buckets(draw: st.DrawFn) -> Bucket:
    bucket = Bucket()
    for _ in range(draw(st.integers(0, 8))):
        bucket.add(0, draw(sizes))
    for level in sorted(draw(st.sets(st.integers(1, 7)))):
        for _ in range(draw(st.integers(1, 3))):
            bucket.add(level, draw(sizes), draw(st.booleans()), draw(st.booleans()))
    return bucket


hours = st.integers(-1, 23)
option_sets = st.builds(
    CompactionOptions,
    num_levels=st.integers(2, 8),
    compaction_trigger=st.integers(1, 8),
    max_size_amplification_percent=st.integers(0, 400),
    size_ratio=st.integers(0, 100),
    offpeak_start_hour=hours,
    offpeak_end_hour=hours,
    offpeak_ratio=st.integers(0, 200),
    optimization_interval=st.none() | st.integers(0, 200),
    total_size_threshold=st.none() | sizes,
    incremental_size_threshold=st.none() | sizes,
    force_level_0=st.booleans(),
    gentle_interval=st.none() | st.integers(1, 4),
    force_rewrite_all_files=st.booleans(),
)
clocks = st.builds(Clock, now=st.integers(0, 300), local_hour=st.integers(0, 23))
memories = st.builds(PickMemory, last_full=st.none() | st.integers(0, 300), put_off=st.integers(0, 3))


def prefixes(levels: Levels) -> Iterator[tuple[DataFileMeta, ...]]:
    files: tuple[DataFileMeta, ...] = ()
    for run in levels.runs:
        files += run.files
        yield files


@given(buckets(), option_sets, clocks, memories)
def test_a_unit_is_a_prefix_of_the_runs_into_a_level_that_keeps_their_order(
    bucket: Bucket, options: CompactionOptions, clock: Clock, memory: PickMemory
) -> None:
    levels = restore(bucket.files, options.num_levels, KEY)
    found = pick_normal(levels, options, clock, memory)
    unit = found.unit
    assert (unit is None) == (found.rule is None or not levels.runs)
    if unit is None:
        assert not (options.force_level_0 and options.gentle_interval is None and levels.level_0)
        return
    assert unit.files in list(prefixes(levels))
    rest = [run for run in levels.runs if run.files[0] not in unit.files]
    assert 1 <= unit.output_level <= levels.max_level
    assert all(run.level > unit.output_level for run in rest)
    assert all(file.level <= unit.output_level for file in unit.files)
    assert len(unit.files) > 1 or unit.files[0].level != unit.output_level
    if options.force_level_0 and options.gentle_interval is None:
        assert not any(run.level == 0 for run in rest)
    assert rest or found.memory.last_full == clock.now


def model_of(options: CompactionOptions) -> dict[str, Any]:
    """The same options for the plain model."""
    return {
        "T": options.compaction_trigger,
        "num-levels": options.num_levels,
        "amplification": options.max_size_amplification_percent,
        "ratio": options.size_ratio,
        "offpeak": (options.offpeak_start_hour, options.offpeak_end_hour, options.offpeak_ratio),
        "interval": options.optimization_interval,
        "total": options.total_size_threshold,
        "incremental": options.incremental_size_threshold,
        "forced": options.force_level_0,
        "gentle": options.gentle_interval if options.force_level_0 else None,
    }


@settings(max_examples=share("picks against the plain model", short=2000, long=200_000))
@given(buckets(), option_sets, st.lists(clocks, min_size=1, max_size=3), st.none() | st.integers(0, 300))
def test_picks_are_those_of_a_plain_model(bucket: Bucket, options: CompactionOptions, times: list[Clock], last_full: int | None) -> None:
    """What the specification says, written down a second time; with the memory of several picks in a row."""
    levels = restore(bucket.files, options.num_levels, KEY)
    model = pick_model.Bucket([(run.level, run.size) for run in levels.runs], model_of(options), last_full)
    memory = PickMemory(last_full)
    for clock in times:
        found = pick_normal(levels, options, clock, memory)
        memory = found.memory
        taken = None
        if found.unit is not None:
            count = list(prefixes(levels)).index(found.unit.files) + 1
            taken = (found.unit.output_level, count)
        assert taken == model.pick(clock.now, clock.local_hour)
        assert memory.put_off == model.counter
        if model.o["interval"] or model.o["total"] or model.o["incremental"]:
            assert memory.last_full == model.last_full


@given(buckets(), option_sets)
def test_full_picks_are_those_of_a_plain_model(bucket: Bucket, options: CompactionOptions) -> None:
    levels = restore(bucket.files, options.num_levels, KEY)
    unit = pick_full(levels, options, frozenset(bucket.deleted), frozenset(bucket.expired))
    runs = [[(file.level, file.file_name) for file in run.files] for run in levels.runs]
    expected = pick_model.full(runs, levels.max_level, options.force_rewrite_all_files, bucket.deleted, bucket.expired)
    assert (None if unit is None else ([file.file_name for file in unit.files], unit.file_rewrite)) == expected
    assert unit is None or unit.output_level == levels.max_level


@given(buckets(), option_sets)
def test_after_a_full_compaction_there_is_nothing_left_to_compact(bucket: Bucket, options: CompactionOptions) -> None:
    levels = restore(bucket.files, options.num_levels, KEY)
    wanted = bucket.deleted | bucket.expired
    unit = pick_full(levels, replace(options, force_rewrite_all_files=False), frozenset(bucket.deleted), frozenset(bucket.expired))
    kept = set(levels.files) - set(() if unit is None else unit.files)
    assert all(file.level == levels.max_level and file.file_name not in wanted for file in kept)


@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo", "America/New_York"])
def test_the_hour_of_the_day_is_that_of_the_zone(zone: str) -> None:
    at = datetime(2024, 7, 1, 23, 59, 59, 999_000, tzinfo=ZoneInfo(zone))
    assert clock_at(round(at.timestamp() * 1000), ZoneInfo(zone)) == Clock(round(at.timestamp() * 1000), 23)


def test_without_a_zone_the_hour_is_that_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        assert clock_at(0, None).local_hour == 9
    finally:
        monkeypatch.undo()
        time.tzset()


def test_the_last_full_compaction_is_as_old_as_the_newest_file_of_the_highest_level(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        tokyo = 9 * 3_600_000
        files = [
            file_meta("a", 5, creation_time=tokyo + 1_784_213_019_480),
            file_meta("b", 5, creation_time=tokyo + 1_784_213_019_479),
            file_meta("c", 4, creation_time=tokyo + 1_884_213_019_480),
            file_meta("no time", 5, creation_time=None),
            file_meta("no such day", 5, creation_time=2**62),
            file_meta("long ago", 5, creation_time=-(2**40)),
        ]
        assert last_full(files, 6) == 1_784_213_019_480
        assert last_full(files[2:], 6) is None
        assert last_full(files, 7) is None
    finally:
        monkeypatch.undo()
        time.tzset()
