"""Merging in as many windows and passes as there may be is merging at once: random files of every engine and option, whatever the budget."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maintainer.data.arrow_types import to_arrow
from maintainer.data.spill import Spill
from maintainer.merge import passes, spilling, stream
from maintainer.merge.candidates import Source
from maintainer.merge.engine import merge_function
from maintainer.merge.passes import runs_at_a_time
from maintainer.merge.stream import merge_runs
from maintainer.table.merging import MergeRules
from tests.merge.test_engines import FIELDS, KINDS, OPTIONS, plain, schema_of
from tests.support.builders import file_meta
from tests.support.campaign import share
from tests.support.merge_model import Record, Refused, merge

ROUNDS = share("merging in windows and passes against the model, examples", short=150, long=10_000)
COLUMNS = [*(field.name for field in FIELDS), "_SEQUENCE_NUMBER", "_VALUE_KIND"]
ARROW = pa.schema([*((field.name, to_arrow(field.type)) for field in FIELDS), ("_SEQUENCE_NUMBER", pa.int64()), ("_VALUE_KIND", pa.int8())])
SCARCE = [1, 1000, 5000, 20_000, 1 << 30]


def file_of(name: str, level: int, records: Sequence[Record], ordered: bool, sequences: tuple[int, int]) -> Source:
    """A file of these records, in this order."""
    keys = [record.values[0] for record in records]
    meta = file_meta(name, level, len(records), keys=(min(keys), max(keys)), sequences=sequences, size=8 * len(records))
    rows = [[*record.values, record.sequence, KINDS.index(record.kind)] for record in records]
    table = pa.Table.from_arrays(
        [pa.array(column, kind) for column, kind in zip(zip(*rows, strict=True), ARROW.types, strict=True)], schema=ARROW
    )

    def read(names: Sequence[str], batch_rows: int) -> Iterator[pa.RecordBatch]:
        yield from table.select(names).to_batches(max_chunksize=min(batch_rows, 3))

    return Source(meta, read, ordered)


def random_records(seed: random.Random, options: dict[str, str], keys: int) -> dict[int, list[Record]]:
    """By file, oldest first: those of levels 5 to 1, then files of level 0, some of which hold keys several times."""
    first_row = options.get("merge-engine") == "first-row"
    files: dict[int, list[Record]] = {}
    age = 0
    for place in range(seed.randint(3, 9)):
        level = max(5 - place, 0) if seed.random() < 0.5 else 0
        level = min(level, min((record.level for found in files.values() for record in found), default=5))
        if any(record.level == level > 0 for found in files.values() for record in found):
            level -= 1
        chosen = seed.sample(range(keys), seed.randint(1, keys))
        if level == 0 and seed.random() < 0.3:
            chosen += seed.choices(chosen, k=seed.randint(1, 4))
            seed.shuffle(chosen)
        else:
            chosen.sort()
        files[place] = []
        for key in chosen:
            kind = seed.choice(KINDS) if not first_row and seed.random() < 0.3 else "+I"
            texts, numbers = [None, "", "a", "é", "ab"], [None, 0, 1, 2]
            values = (
                *(key, seed.choice(texts), seed.choice(numbers), seed.choice(texts), seed.choice([None, 0.0, -0.0, -1.5])),
                *(seed.choice(texts), seed.choice(numbers), seed.choice(numbers)),
            )
            files[place].append(Record(kind, seed.randint(0, 4), values, level, age))
            age += 1
    return files


@settings(max_examples=ROUNDS)
@given(st.integers(0, 1 << 32), st.sampled_from(OPTIONS), st.sampled_from(SCARCE), st.integers(1, 12), st.booleans())
def test_the_budget_changes_nothing(number: int, options: dict[str, str], budget: int, keys: int, lookup: bool) -> None:
    seed = random.Random(number)
    files = random_records(seed, options, keys)
    expected: list[Any] = []
    for key in range(keys):
        group = [record for found in files.values() for record in found if record.values[0] == key]
        try:
            expected += [plain(merge(options, FIELDS, ["k"], group, lookup))] if group else []
        except Refused:
            files = {place: [record for record in found if record.values[0] != key] for place, found in files.items()}
    runs = []
    for place, found in files.items():
        if found:
            ordered = all(one.values[0] < other.values[0] for one, other in pairwise(found))
            runs.append([replace(file_of(f"f{place}", found[0].level, found, ordered, (place, place)), held=seed.choice([0, 0, 100 << 20]))])
    seed.shuffle(runs)
    schema = schema_of(options)
    rules = MergeRules.of(schema)
    function = merge_function(rules, schema)
    spill = Spill()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stream, "LEAST_FOR_OPEN_FILES", 150 << 20)
        patch.setattr(spilling, "MOST_CHUNKS", 2)
        found = []
        for window in merge_runs(runs, COLUMNS, rules, ["k"], [FIELDS[0].type], budget, spill):
            merged = function.merge(window, lookup)
            kinds = [KINDS[kind] for kind in merged.kinds.tolist()]
            for row, kind in zip(merged.take().to_pylist(), kinds, strict=True):
                found.append(plain(Record(kind, row["_SEQUENCE_NUMBER"], tuple(row[field.name] for field in FIELDS))))
    assert found == [one for one in expected if one is not None]
    assert not spill.used


def test_the_smallest_runs_become_one_and_full_passes_come_last() -> None:
    taken: list[list[float]] = []
    sizes = {name: float(size) for name, size in [("a", 100), ("b", 1), ("c", 2), ("d", 3), ("e", 4), ("f", 50)]}

    def merged(some: Sequence[Any], file: object) -> Any:
        taken.append([sum(sizes[name] for name in run) for run in some])
        return [name for run in some for name in run]

    spill = Spill()
    with ExitStack() as files:
        left = passes.reduced([[name] for name in sizes], list(sizes.values()), 3, merged, spill, files)
    assert taken == [[1, 2, 3], [4, 6]]
    assert left == [["a"], ["f"], ["e", "b", "c", "d"]]


def test_passes_are_as_few_as_is_cheap_and_let_a_row_of_each_run_in() -> None:
    megabyte = float(1 << 20)
    assert runs_at_a_time([100 * megabyte] * 5, 100, 10, 64 << 20) == 5
    assert runs_at_a_time([megabyte] * 40, 100, 500, 64 << 20) == 40
    assert runs_at_a_time([100 * megabyte] * 40, 100, 10, 10 << 20) == 40
    assert runs_at_a_time([100 * megabyte] * 40, 4000, 500, 5 << 20) == 7
    assert runs_at_a_time([100 * megabyte] * 1000, 1000, 100, 10 << 20) == 10
    assert runs_at_a_time([100 * megabyte] * 40, 2 * megabyte, 3, 5 << 20) == 2
