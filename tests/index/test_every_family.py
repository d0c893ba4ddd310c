"""All families against a model that shares nothing with them (tests/support/plain_values): payloads, answers, and chains of rebuilds."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest

from maintainer.data.spill import Spill
from maintainer.format import bitmap_file
from maintainer.format.kept import Cache
from maintainer.format.stored_block import KeepingRanges
from maintainer.index import family
from maintainer.index.build import build_payload
from maintainer.index.definition import FamilyName, IndexDefinition
from maintainer.index.family import column_sort, ordering
from maintainer.index.payload import Move, Resources, Rows
from maintainer.model.predicate import Op
from tests.support.campaign import share
from tests.support.plain_values import (
    KINDS,
    TEXT_OPS,
    Kind,
    Question,
    array_matches,
    array_of,
    array_questions,
    arrays,
    column,
    matches,
    questions,
)
from tests.support.sorted_index import Built, definition, reading

FAMILIES = ["btree", "bitmap", "multivalue", "fm"]
ROUNDS = share("every type and predicate of every family", short=40, long=20_000)
CHAINS = share("chains of rebuilds of every family", short=8, long=1500)
GENERATIONS = 10
FM_ANSWERS = {Op.IS_NULL, Op.IS_NOT_NULL, Op.EQ, Op.IN, *TEXT_OPS}


@dataclass
class Case:
    """A definition, and how much memory its builds have."""

    kind: Kind
    index: IndexDefinition
    resources: Resources
    exact: bool
    """For FM: whether needles are located whatever it costs."""

    @property
    def takes_arrays(self) -> bool:
        return self.index.family is FamilyName.MULTIVALUE

    def values(self, chance: random.Random, size: int) -> list[Any]:
        return arrays(chance, self.kind, size) if self.takes_arrays else column(chance, self.kind, size)

    def array(self, values: Sequence[Any]) -> pa.Array:
        return array_of(self.kind, values) if self.takes_arrays else self.kind.arrow(values)

    def pieces(self, chance: random.Random, values: Sequence[Any]) -> list[pa.Array]:
        """Pieces of any size, some of them views into longer arrays."""
        found, start = [], 0
        while start < len(values):
            end = min(len(values), start + chance.choice([1, 5, 40, 1000]))
            before = chance.randint(0, start)
            found.append(self.array(values[before:end]).slice(start - before))
            start = end
        return found

    def build(self, chance: random.Random, values: Sequence[Any]) -> Built:
        data = bytearray()
        made = build_payload(self.index, self.pieces(chance, values), len(values), data.extend, self.resources)
        assert made.size == len(data)
        assert made.row_count == len(values)
        return Built(bytes(data), made.size, made.row_count, made.index_meta)


def options_of(chance: random.Random, name: str) -> dict[str, str]:
    found = {f"{name}-index.compression": chance.choice(["none", "zstd", "lz4"])}
    if name == "fm":
        found |= {
            "fm-index.partition-row-count": str(chance.choice([11, 40, 100_000])),
            "fm-index.partition-size": chance.choice(["16 kb", "16 mb"]),
            "fm-index.sa-sample-rate": chance.choice(["1", "4", "32"]),
            "fm-index.locate-cost-ratio": chance.choice(["1", "0.05"]),
            "fm-index.read-cache-size": chance.choice(["40 kb", "64 mb"]),
        }
    else:
        found[f"{name}-index.{'block-size' if name == 'btree' else 'dictionary-block-size'}"] = f"{chance.choice([1, 20, 100, 65536])} b"
    if name == "bitmap":
        found["maintain.bitmap-peer-blocks"] = chance.choice(["off", "auto"])
    return found


def case_of(chance: random.Random, name: str) -> Case:
    groups = ["STRING", "VARCHAR", "CHAR"] if name == "fm" else sorted({text.partition("(")[0] for text in KINDS})
    group = chance.choice(groups)
    kind = chance.choice([each for each in KINDS.values() if each.text.partition("(")[0] == group])
    options = options_of(chance, name)
    text = f"ARRAY<{kind.text}>" if name == "multivalue" else kind.text
    exact = options.get("fm-index.locate-cost-ratio") == "1" and options.get("fm-index.sa-sample-rate") == "1"
    return Case(kind, definition(name, text, options), Resources(chance.choice([1, 1000, 30_000, 256 << 20]), Spill()), exact)


def ask_all(case: Case, built: Built, values: Sequence[Any], chance: random.Random, about: str) -> None:
    """Every predicate, of a reader that is new and of readers that share what they keep."""
    asked = (array_questions if case.takes_arrays else questions)(chance, case.kind, values)
    cache = Cache(chance.choice([0, 3000, 64 << 20]))
    for question in asked:
        kept = KeepingRanges(reading(built.data), cache.of("payload"))
        for read in (kept, kept) if cache.limit else (reading(built.data),):
            reader = family.family(case.index.family).open(read, built.size, case.index, built.index_meta, built.row_count)
            check(case, question, reader.evaluate(question.leaf), values, f"{question} of {case.index}: {about}")


def check(case: Case, question: Question, answer: Any, values: Sequence[Any], about: str) -> None:
    kind, op = case.kind, question.op
    right = {row for row, value in enumerate(values) if (array_matches if case.takes_arrays else matches)(kind, question, value)}
    if answer is None:
        assert not answers(case, question), about
        return
    found = set(answer)
    assert right <= found, about
    assert found <= set(range(len(values))), about
    if is_exact(case, question):
        assert found == right, about
    elif case.index.family is not FamilyName.FM and op is not Op.LIKE:
        assert all(values[row] is not None for row in found), about


def answers(case: Case, question: Question) -> bool:
    """Whether the family promises an answer (spec 07 §4.1, 09 §11; the payloads are small)."""
    match case.index.family:
        case FamilyName.MULTIVALUE:
            return question.op is not Op.ARRAY_CONTAINS_ALL or bool(question.plain)
        case FamilyName.FM:
            return question.op in (Op.IS_NULL, Op.IS_NOT_NULL)  # needles may occur too often
        case _:
            return None not in question.plain or question.op in (Op.EQ, Op.NE, Op.IN, Op.NOT_IN)


def is_exact(case: Case, question: Question) -> bool:
    if case.index.family is FamilyName.MULTIVALUE:
        return True
    if case.index.family is FamilyName.FM:
        return question.op in (Op.IS_NULL, Op.IS_NOT_NULL)
    if case.kind.is_float and any(each is not None and case.kind.literal(each) == 0 for each in question.plain):
        return False
    return case.index.family is FamilyName.BITMAP or question.op not in (Op.ENDS_WITH, Op.CONTAINS, Op.LIKE)


def vary(chance: random.Random, patch: pytest.MonkeyPatch) -> None:
    """Limits so low that a few rows are many."""
    patch.setattr(ordering, "BATCH_ROWS", chance.choice([1, 7, 1 << 18]))
    patch.setattr(ordering, "BATCH_KEY_BYTES", chance.choice([1, 40, 32 << 20]))
    patch.setattr(ordering, "_PIECE", chance.choice([1, 5, 1 << 16]))
    patch.setattr(column_sort, "_SAMPLE", chance.choice([1, 5, 2048]))
    patch.setattr(column_sort, "_REPEATS", chance.choice([1, 2, 4]))
    patch.setattr(bitmap_file, "CHUNK_IDS", chance.choice([1, 3, 1 << 20]))


@pytest.mark.parametrize("name", FAMILIES)
def test_answers_to_every_predicate_about_every_type(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(ROUNDS // len(FAMILIES)):
        chance = random.Random(f"{name} {seed}")
        vary(chance, monkeypatch)
        case = case_of(chance, name)
        values = case.values(chance, chance.choice([1, 2, 9, 60, 60 if name == "fm" else 300]))
        built = case.build(chance, values)
        reader = family.family(case.index.family).open(reading(built.data), built.size, case.index, built.index_meta, built.row_count)
        assert reader.verify() == []
        ask_all(case, built, values, chance, f"seed {seed}")
        assert not case.resources.spill.used


@dataclass
class Files:
    """The source files of a group, by name."""

    values: dict[str, list[Any]] = field(default_factory=dict)

    @property
    def rows(self) -> list[Any]:
        return [value for name in sorted(self.values) for value in self.values[name]]

    def firsts(self) -> dict[str, int]:
        found, at = {}, 0
        for name in sorted(self.values):
            found[name] = at
            at += len(self.values[name])
        return found

    def change(self, chance: random.Random, case: Case) -> Files:
        """Some are gone, some are new."""
        left = {name: values for name, values in self.values.items() if chance.random() < 0.8}
        for _ in range(chance.randint(0 if left else 1, 2)):
            number = chance.choice([chance.randrange(10**10), 9 * 10**9 + chance.randrange(10**9)])  # many are behind the others
            left[f"{number:010}"] = case.values(chance, chance.choice([1, 3, 40]))
        return Files(left)


def rebuilt(case: Case, built: Built, before: Files, after: Files) -> tuple[Built, bool]:
    """A payload that is built from an older one, and whether that could be used."""
    old, new = before.firsts(), after.firsts()
    moves = [Move(old[name], new[name], len(after.values[name])) for name in sorted(after.values) if name in before.values]
    module: Any = family.family(case.index.family)
    reader = module.open(reading(built.data), built.size, case.index, built.index_meta, built.row_count)
    carried = module.carry(reader, moves) if moves else None
    known = set() if carried is None else {move.new for move in carried.moves}
    rows = [Rows(new[name], case.array(after.values[name])) for name in sorted(after.values) if new[name] not in known]
    data = bytearray()
    made = module.build(rows, case.index, len(after.rows), data.extend, case.resources, carried)
    return Built(bytes(data), made.size, made.row_count, made.index_meta), carried is not None


@pytest.mark.parametrize("name", FAMILIES)
def test_ten_generations_of_files_that_change(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """After each a payload is what all rows give, byte for byte, and is right."""
    used = 0
    for seed in range(CHAINS // len(FAMILIES)):
        chance = random.Random(f"{name} {seed}")
        vary(chance, monkeypatch)
        case = case_of(chance, name)
        files = Files({f"{number}": case.values(chance, chance.choice([1, 5, 60])) for number in range(chance.randint(1, 6))})
        built = case.build(chance, files.rows)
        for generation in range(GENERATIONS):
            changed = files.change(chance, case)
            built, carried = rebuilt(case, built, files, changed)
            used += carried
            about = f"seed {seed}, generation {generation}: {case.index}"
            assert built == case.build(chance, changed.rows), about
            files = changed
            if generation % 5 == 4:
                ask_all(case, built, files.rows, chance, about)
        assert not case.resources.spill.used
    assert used


@pytest.mark.parametrize("name", ["btree", "bitmap", "multivalue"])
def test_rows_of_more_than_one_container_move(name: str) -> None:
    """Ordinals of runs and of scattered rows that come to lie across multiples of 65536; memory for a part of them."""
    for seed in range(share("moves of many rows", short=2, long=300)):
        chance = random.Random(f"{name} {seed}")
        case = case_of(chance, name)
        case.resources = Resources(chance.choice([500_000, 256 << 20]), Spill())
        rows = chance.choice([65_535, 65_536, 70_001])
        pool = case.array(case.values(chance, chance.choice([2, 40])))
        width = chance.choice([1, 9, 70_000])
        picked = [chance.randrange(len(pool)) for _ in range(-(-rows // width))]
        column = pool.take(pa.array([picked[row // width] for row in range(rows)]))
        data = bytearray()
        made = build_payload(case.index, [column], rows, data.extend, case.resources)
        cut, new = chance.randrange(rows), chance.choice([1, 40_000, 65_536])
        module: Any = family.family(case.index.family)
        reader = module.open(reading(bytes(data)), made.size, case.index, made.index_meta, rows)
        assert reader.verify() == []
        carried = module.carry(reader, [Move(cut, new, rows - cut)])
        assert carried is not None
        first = column.take(pa.array([chance.randrange(rows)] * new))
        found, expected = bytearray(), bytearray()
        total = new + rows - cut
        again = module.build([Rows(0, first)], case.index, total, found.extend, case.resources, carried)
        whole = build_payload(case.index, [first, column.slice(cut)], total, expected.extend)
        assert (bytes(found), again.index_meta) == (bytes(expected), whole.index_meta), f"seed {seed}: {case.index}"
