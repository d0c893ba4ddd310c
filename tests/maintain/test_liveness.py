"""A pass on the result of a pass plans nothing, for all options: whatever compactions make of the rows, planning comes to rest in a few rounds.

Units are not executed here; what they leave is made up: rewritten files get any size, vanish, or become several, and lookups mark any rows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from maintainer.maintain.compact import unit_options
from maintainer.maintain.pick import CompactionOptions, pick_by_size, pick_normal, restore
from maintainer.maintain.plan import PlanRequest, plan_table
from maintainer.maintain.unit import Rewrite, Upgrade, steps
from maintainer.merge.sections import key_range
from maintainer.model.bucket import BucketState
from maintainer.model.files import EMPTY_ROW, BucketKey, DataFileMeta, FileSource
from maintainer.model.schema import TableSchema
from maintainer.model.snapshot import CommitKind, Snapshot
from maintainer.model.work import CompactionUnit, PickMemory, Work, WorkKind
from maintainer.table.options import TableOptions
from maintainer.table.state import TableState
from tests.support import builders
from tests.support.campaign import share

KEY = BucketKey(EMPTY_ROW, 0)
NOW = 1_800_000_000_000
SNAPSHOT = Snapshot(7, 0, "base", "delta", "user", 1, CommitKind.APPEND, 0, 0, 0, uuid="u-7")
MOST_ROUNDS = 6
RANGE = key_range(builders.types("INT"))


def choice(key: str, *values: str) -> st.SearchStrategy[dict[str, str]]:
    return st.sampled_from([{}, *({key: value} for value in values)])


option_sets = st.tuples(
    st.sampled_from(
        [
            {"deletion-vectors.enabled": "true"},
            {"deletion-vectors.enabled": "true", "deletion-vectors.merge-on-read": "true"},
            {"merge-engine": "first-row"},
            {"changelog-producer": "lookup"},
            {"changelog-producer": "full-compaction"},
            {"force-lookup": "true"},
            {"compaction.force-up-level-0": "true"},
            {},
        ]
    ),
    choice("num-sorted-run.compaction-trigger", "1", "2", "9"),
    choice("num-levels", "2", "3", "8"),
    choice("compaction.optimization-interval", "0 ms", "1 h"),
    choice("compaction.total-size-threshold", "10 kb", "1 tb"),
    choice("compaction.incremental-size-threshold", "0", "1 kb"),
    choice("compaction.force-rewrite-all-files", "true"),
    choice("lookup-compact", "gentle"),
    choice("full-compaction.delta-commits", "1", "3"),
    choice("target-file-size", "2 kb"),
    choice("compaction.max-size-amplification-percent", "0", "100000"),
).map(lambda sets: {key: value for one in sets for key, value in one.items()})


@st.composite
def levels(draw: st.DrawFn) -> tuple[DataFileMeta, ...]:
    files = []
    for level in [0] * draw(st.integers(0, 12)) + sorted(draw(st.sets(st.integers(1, 6)))):
        for part in range(draw(st.integers(1, 3)) if level else 1):
            number = len(files)
            low = 100 * part + draw(st.integers(0, 90))
            source = draw(st.sampled_from(FileSource)) if level else FileSource.APPEND
            file = builders.file_meta(f"f{number}", level, keys=(low, low + 9), size=draw(st.integers(0, 5000)), source=source)
            files.append(replace(file, max_sequence_number=1000 - number, creation_time=NOW - draw(st.integers(0, 10**7))))
    return tuple(files)


class Simulation:
    """Compactions the outcome of which is drawn."""

    def __init__(self, data: st.DataObject, schema: TableSchema, files: tuple[DataFileMeta, ...]) -> None:
        self.data, self.schema, self.files = data, schema, files
        self.options = TableOptions.of(schema)
        self.vectors: set[str] = set()
        self.made = 0

    def bucket(self) -> BucketState:
        ranges = [(name, 1, 22, 1) for name in sorted(self.vectors)]
        return BucketState(EMPTY_ROW, 0, 1, self.files, builders.deletion_file(ranges=ranges) if ranges else None)

    def do(self, work: Work) -> PickMemory:
        assert work.unit is not None and work.kind is not WorkKind.INDEX
        self.run(work.unit)
        memory = work.memory
        if work.second_round:
            options = CompactionOptions.of(self.options)
            pick = pick_by_size if work.gentle else pick_normal
            found = pick(restore(self.files, options.num_levels, RANGE), options, work.clock, memory)
            memory = found.memory
            if found.unit is not None:
                self.run(found.unit)
        return memory

    def run(self, unit: CompactionUnit) -> None:
        levels = restore(self.files, self.options.num_levels, RANGE)
        for step in steps(unit, RANGE, unit_options(self.schema, levels, False)):
            if isinstance(step, Upgrade):
                self._put([step.file], [replace(step.file, level=unit.output_level)])
            elif isinstance(step, Rewrite):
                self._put(step.files, self._rewritten(step.files, unit.output_level))
        if self.options.deletion_vectors_enabled:
            older = [file.file_name for file in self.files if file.level > unit.output_level]
            self.vectors |= set(self.data.draw(st.lists(st.sampled_from(older), max_size=2))) if older else set()
        self.vectors &= {file.file_name for file in self.files}

    def _rewritten(self, files: tuple[DataFileMeta, ...], level: int) -> list[DataFileMeta]:
        """None, one, or two files, within the keys of those that were read, and no larger together."""
        low = min(RANGE(file)[0] for file in files)[0]
        high = max(RANGE(file)[1] for file in files)[0]
        middle = (low + high) // 2
        parts = self.data.draw(st.sampled_from([[], [(low, high)], [(low, middle), (middle + 1, high)]] if low < high else [[], [(low, high)]]))
        size = self.data.draw(st.integers(0, sum(file.file_size for file in files)))
        made = []
        for first, last in parts:
            self.made += 1
            file = builders.file_meta(f"made-{self.made}", level, keys=(first, last), size=size // len(parts), source=FileSource.COMPACT)
            made.append(replace(file, creation_time=NOW))
        return made

    def _put(self, before: Any, after: list[DataFileMeta]) -> None:
        gone = {file.file_name for file in before}
        self.files = tuple(file for file in self.files if file.file_name not in gone) + tuple(after)


@settings(max_examples=share("passes on made-up compactions", short=400, long=50_000), deadline=None)
@given(levels(), option_sets, st.booleans(), st.booleans(), st.data())
def test_a_pass_on_the_result_of_a_pass_plans_nothing(
    files: tuple[DataFileMeta, ...], options: dict[str, str], patient: bool, full: bool, data: st.DataObject
) -> None:
    table = builders.schema(options={"bucket": "1", **options})
    simulation = Simulation(data, table, files)
    memories: dict[BucketKey, PickMemory] = {}

    def planned(full: bool, settled: frozenset[BucketKey]) -> tuple[Work, ...]:
        request = PlanRequest(full=full, now=NOW, settled=settled, patient=patient, memories=memories)
        plan = plan_table(TableState(SNAPSHOT, table, {KEY: simulation.bucket()}), "t", table, request)
        memories.update(plan.memories)
        assert plan.work or plan.idle_reason
        return plan.work

    for turn in range(3):
        settled: frozenset[BucketKey] = frozenset()
        for _ in range(MOST_ROUNDS):
            work = planned(full and turn == 0, settled)
            if not work:
                break
            memory = simulation.do(work[0])
            if memory != PickMemory():
                memories[KEY] = memory
            settled = frozenset({KEY})
        else:
            raise AssertionError(f"no end: {[(file.level, file.file_size) for file in simulation.files]}")
        if turn:
            assert not settled, "the pass before left something to do"
        if not patient:
            memories.clear()  # the next pass is of another process
