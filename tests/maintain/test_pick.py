"""Picking: the cases in `pick/*.txt`, and what holds for every bucket.

A case is a title, options of the table, what the clock says, runs (`level:size`, newest first), `----`, and an answer for each rule asked.
`pytest tests/maintain/test_pick.py --rewrite` writes the answers anew, for reading the difference.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maintainer.errors import CorruptFile, CorruptTable, UsageError
from maintainer.maintain.pick import (
    Clock,
    CompactionOptions,
    Levels,
    pick_by_size,
    pick_forced,
    pick_full,
    pick_normal,
    restore,
)
from maintainer.merge.sections import key_range
from maintainer.model.files import DataFileMeta
from maintainer.model.work import CompactionUnit
from maintainer.table.options import TableOptions
from tests.support.builders import file_meta, types

KEY = key_range(types("INT"))
CASES = sorted((Path(__file__).parent / "pick").glob("*.txt"))


@dataclass
class Bucket:
    """Files as a case writes them: each is a level, a size, and whether rows of it are deleted."""

    files: list[DataFileMeta] = field(default_factory=list)
    deleted: set[str] = field(default_factory=set)
    shown: dict[str, str] = field(default_factory=dict)

    def add(self, level: int, size: int, deleted: bool = False) -> None:
        number = len(self.files)
        name = f"file-{number}"
        age = 1_000_000 - number  # as cases list the newest first
        self.files.append(file_meta(name, level, keys=(10 * number, 10 * number + 9), size=size, sequences=(age, age)))
        self.shown[name] = f"{level}:{size}{'*' if deleted else ''}"
        if deleted:
            self.deleted.add(name)

    def show(self, unit: CompactionUnit | None) -> str:
        if unit is None:
            return "nothing"
        files = " ".join(self.shown[file.file_name] for file in unit.files)
        return f"level {unit.output_level} {'rewriting' if unit.file_rewrite else 'from'} {files}"


def parse(lines: list[str]) -> tuple[TableOptions, Clock, Bucket]:
    options = {"deletion-vectors.enabled": "true"}
    clock = Clock()
    bucket = Bucket()
    for word in (word for line in lines for word in line.split()):
        key, equals, value = word.partition("=")
        if key in ("now", "hour", "last-full"):
            clock = replace(clock, **{{"now": "now", "hour": "local_hour", "last-full": "last_full"}[key]: int(value)})
        elif equals:
            options[key] = value
        else:
            level, _, sizes = word.partition(":")
            for size in sizes.split("+"):
                bucket.add(int(level), int(size.rstrip("*")), size.endswith("*"))
    return TableOptions(options), clock, bucket


def answer(block: str) -> str:
    """A case with the answers that the code gives to its questions."""
    question, _, expected = block.partition("\n----\n")
    table_options, clock, bucket = parse(question.splitlines()[1:])
    options = CompactionOptions.of(table_options)
    levels = restore(bucket.files, options.num_levels, KEY)
    rules = {
        "by size": lambda: pick_by_size(levels, options, clock),
        "forced": lambda: pick_forced(levels, options, clock),
        "normal": lambda: pick_normal(levels, options, clock),
        "full": lambda: pick_full(levels, options, frozenset(bucket.deleted)),
    }
    asked = [line[:8].strip() for line in expected.splitlines()]
    return "\n".join([question, "----", *(f"{rule:8} {bucket.show(rules[rule]())}" for rule in asked)])


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
    assert len(blocks) > 40
    assert all(re.search(r"\n?----\n(by size|forced|normal|full) ", block) for block in blocks)


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
            bucket.add(level, draw(sizes), draw(st.booleans()))
    return bucket


option_sets = st.builds(
    CompactionOptions,
    num_levels=st.integers(2, 8),
    compaction_trigger=st.integers(1, 8),
    max_size_amplification_percent=st.integers(0, 400),
    size_ratio=st.integers(0, 100),
    total_size_threshold=st.none() | sizes,
    incremental_size_threshold=st.none() | sizes,
    force_level_0=st.booleans(),
)


def prefixes(levels: Levels) -> Iterator[tuple[DataFileMeta, ...]]:
    files: tuple[DataFileMeta, ...] = ()
    for run in levels.runs:
        files += run.files
        yield files


@given(buckets(), option_sets)
def test_a_unit_is_a_prefix_of_the_runs_into_a_level_that_keeps_their_order(bucket: Bucket, options: CompactionOptions) -> None:
    levels = restore(bucket.files, options.num_levels, KEY)
    unit = pick_normal(levels, options, Clock())
    if unit is None:
        assert not (options.force_level_0 and levels.runs and levels.runs[0].level == 0)
        return
    assert unit.files in list(prefixes(levels))
    rest = [run for run in levels.runs if run.files[0] not in unit.files]
    assert 1 <= unit.output_level <= levels.max_level
    assert all(run.level > unit.output_level for run in rest)
    assert all(file.level <= unit.output_level for file in unit.files)
    assert len(unit.files) > 1 or unit.files[0].level != unit.output_level
    if options.force_level_0:
        assert not any(run.level == 0 for run in rest)


@given(buckets(), option_sets)
def test_after_a_full_compaction_there_is_nothing_left_to_compact(bucket: Bucket, options: CompactionOptions) -> None:
    levels = restore(bucket.files, options.num_levels, KEY)
    unit = pick_full(levels, options, frozenset(bucket.deleted))
    if unit is None:
        assert all(file.level == levels.max_level and file.file_name not in bucket.deleted for file in levels.files)
    else:
        kept = set(levels.files) - set(unit.files)
        assert all(file.level == levels.max_level and file.file_name not in bucket.deleted for file in kept)
        assert unit.output_level == levels.max_level
