"""What a compaction makes of keys and tells of them, against a plain model of one key at a time (spec 04 §6.1, §8.2–§8.4)."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from maintainer.maintain.changelog import ChangelogRules
from maintainer.maintain.evaluation import Evaluated, LookupEvaluation, PlainEvaluation, wants_older_rows
from maintainer.maintain.lookup import Hits
from maintainer.merge.candidates import Candidates, SequenceOrder
from maintainer.merge.engine import merge_function
from maintainer.merge.order import Keys
from maintainer.model.schema import KIND_FIELD, SEQUENCE_FIELD, TableSchema
from maintainer.model.types import DataField
from maintainer.table.merging import MergeRules
from maintainer.table.options import MergeEngine
from tests.support.builders import type_
from tests.support.merge_model import ADDS, Record, merge
from tests.support.small_table import KINDS

TOP = 5
FIELDS = (DataField(0, "k", type_("INT NOT NULL")), DataField(1, "a", type_("BIGINT")), DataField(2, "s", type_("INT")))
LOOKUP = {"changelog-producer": "lookup"}
VECTORS = {"deletion-vectors.enabled": "true"}
SILENT = {"changelog-producer.row-deduplicate": "true"}
SUM = {"merge-engine": "aggregation", "fields.a.aggregate-function": "sum", "fields.s.aggregate-function": "last_value"}
REMOVING = {"merge-engine": "partial-update", "partial-update.remove-record-on-delete": "true"}
Told = list[tuple[str, int, tuple[int | None, ...]]]

LOOKUPS: dict[str, Mapping[str, str]] = {
    "vectors": VECTORS,
    "lookup": LOOKUP,
    "both": {**LOOKUP, **VECTORS},
    "silent": {**LOOKUP, **SILENT},
    "but for s": {**LOOKUP, **SILENT, "changelog-producer.row-deduplicate-ignore-fields": "s"},
    "sequence": {**LOOKUP, **VECTORS, "sequence.field": "s"},
    "sequence, descending": {**VECTORS, "sequence.field": "s", "sequence.field.sort-order": "descending"},
    "ignored deletes": {**LOOKUP, **VECTORS, "ignore-delete": "true"},
    "first row": {"merge-engine": "first-row", **LOOKUP, "ignore-delete": "true"},
    "sums": {**SUM, **LOOKUP},
    "sums, silent": {**SUM, **LOOKUP, **VECTORS, **SILENT},
    "removing": {**REMOVING, **LOOKUP},
}
FULL = {"changelog-producer": "full-compaction"}
FULLS: dict[str, Mapping[str, str]] = {
    "newest": FULL,
    "silent": {**FULL, **SILENT},
    "sequence": {**FULL, "sequence.field": "s"},
    "sums": {**FULL, **SUM},
    "removing, silent": {**FULL, **REMOVING, **SILENT},
}


class Older:
    """A lookup that knows what is above the output level."""

    has_files = True

    def __init__(self, records: Mapping[int, Record], wants_rows: bool) -> None:
        self.records = records
        self.wants_rows = wants_rows
        self.marked: set[int] = set()

    def find(self, keys: Keys, mark: bool = False) -> Hits:
        asked = [keys.at(index)[0] for index in range(len(keys))]
        found = [index for index, key in enumerate(asked) if key in self.records]
        if mark:
            self.marked |= {asked[index] for index in found}
        records = {asked[index]: self.records[asked[index]] for index in found}
        nothing = np.empty(0, np.int64)
        return Hits(
            np.array(found, np.int64),
            np.array([record.level for record in records.values()], np.int8),
            np.empty(0, object),
            nothing,
            rows_of(list(records.items())) if self.wants_rows else None,
        )


@pytest.mark.parametrize("name", LOOKUPS)
@pytest.mark.parametrize("drop_deletes", [True, False])
def test_lookup(name: str, drop_deletes: bool) -> None:
    options = LOOKUPS[name]
    generator = random.Random(f"{name} {drop_deletes}")
    tells = options.get("changelog-producer") == "lookup"
    for _ in range(20):
        groups = random_groups(generator, levels=[0, 0, 0, 2, 3], size=30)
        older = {key: record(generator, 0, 4) for key in range(30) if generator.random() < 0.5}
        table = schema(options)
        rules = MergeRules.of(table)
        wants_rows = wants_older_rows(rules, tells)
        lookup = Older(older, wants_rows)
        is_first_row = rules.engine is MergeEngine.FIRST_ROW
        marks = "deletion-vectors.enabled" in options
        evaluation = LookupEvaluation(
            merge_function(rules, table),
            ChangelogRules.of(table),
            lookup,  # type: ignore[arg-type]
            is_first_row,
            marks,
            wants_rows,
            tells,
        )
        found = evaluation.evaluate(candidates(table, groups), drop_deletes)
        expected, told, marked = modelled_lookup(options, groups, older, drop_deletes)
        assert listed(found) == (expected, told if tells else None)
        assert lookup.marked == (marked if marks else set())


@pytest.mark.parametrize("name", FULLS)
def test_full_compactions(name: str) -> None:
    options = FULLS[name]
    generator = random.Random(name)
    table = schema(options)
    for _ in range(20):
        groups = random_groups(generator, levels=[0, 0, 0, 2, TOP], size=30)
        evaluation = PlainEvaluation(merge_function(MergeRules.of(table), table), ChangelogRules.of(table), TOP)
        assert listed(evaluation.evaluate(candidates(table, groups), True)) == modelled_full(options, groups)
        silent = replace(evaluation, top_level=None)
        assert silent.evaluate(candidates(table, groups), True).changes is None


def modelled_lookup(
    options: Mapping[str, str], groups: Mapping[int, Sequence[Record]], older: Mapping[int, Record], drop_deletes: bool
) -> tuple[Told, Told, set[int]]:
    """Rows, changes, and the keys of which the older version ends (spec 04 §6.1, §8.2)."""
    rows: Told = []
    told: Told = []
    marked = set()
    for key, records in groups.items():
        above = [record for record in records if record.level > 0]
        high = min(above, key=lambda record: record.level) if above else None
        hit = older.get(key) if high is None else None
        if options.get("merge-engine") == "first-row":
            after = merge(options, FIELDS, ["k"], valued(key, records), lookup=True)
            if after is None or hit is not None:
                continue
            rows.append(entry(after))
            if high is None:
                told.append(entry(after))
            continue
        if hit is not None:
            marked.add(key)
            high = hit
        taken = [record for record in records if record.level <= 0] + ([] if high is None else [high])
        after = merge(options, FIELDS, ["k"], valued(key, taken), lookup=True)
        if after is not None and not (drop_deletes and after.kind not in ADDS):
            rows.append(entry(after))
        if any(record.level == 0 for record in records):
            told += changes(options, None if high is None else valued(key, [high])[0], after)
    return rows, told, marked


def modelled_full(options: Mapping[str, str], groups: Mapping[int, Sequence[Record]]) -> tuple[Told, Told]:
    """Rows and changes of a compaction into the highest level (spec 04 §8.3)."""
    rows: Told = []
    told: Told = []
    for key, records in groups.items():
        after = merge(options, FIELDS, ["k"], valued(key, records))
        if after is not None and after.kind in ADDS:
            rows.append(entry(after))
        top = [record for record in valued(key, records) if record.level == TOP]
        if top and len(records) == 1:
            continue
        told += changes(options, top[0] if top else None, after)
    return rows, told


def changes(options: Mapping[str, str], before: Record | None, after: Record | None) -> Told:
    had, has = before is not None and before.kind in ADDS, after is not None and after.kind in ADDS
    if had and has:
        assert before is not None and after is not None
        ignored = options.get("changelog-producer.row-deduplicate-ignore-fields", "").split(",")
        compared = [index for index, field in enumerate(FIELDS) if field.name not in ignored]
        if "changelog-producer.row-deduplicate" in options and all(before.values[index] == after.values[index] for index in compared):
            return []
        return [entry(before, "-U"), entry(after, "+U")]
    if has:
        assert after is not None
        return [entry(after, "+I")]
    return [entry(before, "-D")] if before is not None and had and after is not None else []


def entry(record: Record, kind: str = "") -> tuple[str, int, tuple[int | None, ...]]:
    return kind or record.kind, record.sequence, record.values


def valued(key: int, records: Sequence[Record]) -> list[Record]:
    return [replace(record, values=(key, *record.values)) for record in records]


def record(generator: random.Random, sequence: int, level: int) -> Record:
    """Above level 0 mostly adds; few values, so that rows are equal now and then."""
    retracts = generator.random() < (0.3 if level == 0 else 0.1)
    kind = generator.choice(["-U", "-D"] if retracts else ["+I", "+U"])
    return Record(kind, sequence, (generator.choice([None, 1, 2]), generator.choice([None, 1, 2])), level)


def random_groups(generator: random.Random, levels: Sequence[int], size: int) -> dict[int, list[Record]]:
    """Some keys; of each at most one record of a level above 0, and the older the higher it is."""
    groups = {}
    for key in range(size):
        chosen = sorted((level for level in levels if generator.random() < 0.4), reverse=True)
        if chosen:
            groups[key] = [record(generator, 10 + number, level) for number, level in enumerate(chosen)]
    return groups


def schema(options: Mapping[str, str]) -> TableSchema:
    return TableSchema(0, FIELDS, 2, primary_keys=("k",), options={"bucket": "1", **options})


def rows_of(records: Sequence[tuple[int, Record]]) -> pa.Table:
    return pa.table(
        {
            "k": pa.array([key for key, _ in records], pa.int32()),
            "a": pa.array([record.values[0] for _, record in records], pa.int64()),
            "s": pa.array([record.values[1] for _, record in records], pa.int32()),
            SEQUENCE_FIELD.name: pa.array([record.sequence for _, record in records], pa.int64()),
            KIND_FIELD.name: pa.array([KINDS.index(record.kind) for _, record in records], pa.int8()),
        }
    )


def candidates(table: TableSchema, groups: Mapping[int, Sequence[Record]]) -> Candidates:
    flat = [(key, record) for key, records in groups.items() for record in records]
    flat.sort(key=lambda pair: -pair[1].level)  # oldest first, as files come
    rows = rows_of(flat)
    levels = np.array([record.level for _, record in flat], np.int8)
    return Candidates.sorted(rows, Keys.of([rows.column("k")], table.key_types), levels, SequenceOrder.of(MergeRules.of(table), table))


def listed(found: Evaluated) -> tuple[Told, Told | None]:
    return entries(found.rows), None if found.changes is None else entries(found.changes)


def entries(table: pa.Table) -> Told:
    return [
        (KINDS[row[KIND_FIELD.name]], row[SEQUENCE_FIELD.name], (row["k"], row["a"], row["s"]))
        for row in table.select(["k", "a", "s", SEQUENCE_FIELD.name, KIND_FIELD.name]).to_pylist()
    ]
