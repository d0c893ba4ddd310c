"""Merge engines by their whole interface: random groups of every option against the plain model, record by record (spec 05 §1–§4)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maintainer.data.arrow_types import to_arrow
from maintainer.errors import MergeError, UsageError
from maintainer.format.data_type import parse
from maintainer.merge.candidates import Candidates, SequenceOrder
from maintainer.merge.engine import merge_function
from maintainer.merge.order import Keys
from maintainer.model.schema import TableSchema
from maintainer.model.types import DataField
from maintainer.table.merging import MergeRules
from maintainer.table.support import findings
from tests.support.campaign import share
from tests.support.merge_model import Record, Refused, merge

ROUNDS = share("merge engines against the model, examples", short=300, long=30_000)
KINDS = ("+I", "-U", "+U", "-D")
PARTIAL = {"merge-engine": "partial-update"}
GROUPS = {**PARTIAL, "fields.s.sequence-group": "a", "fields.t,u.sequence-group": "b,n"}
FOLDED = {**GROUPS, "fields.n.aggregate-function": "sum", "fields.a.aggregate-function": "last_non_null_value"}
LATE = {"fields.t,u.sequence-group": "n", "fields.b.aggregate-function": "max", "fields.a.aggregate-function": "listagg"}
FIELDS = tuple(
    DataField(index, name, parse(data_type))
    for index, (name, data_type) in enumerate(
        [("k", "INT NOT NULL"), ("a", "STRING"), ("s", "INT"), ("b", "STRING"), ("t", "DOUBLE"), ("u", "STRING"), ("n", "BIGINT"), ("x", "INT")]
    )
)
OPTIONS: list[dict[str, str]] = [
    {},
    {"ignore-delete": "true"},
    {"deletion-vectors.enabled": "true"},
    {"deletion-vectors.enabled": "true", "ignore-delete": "true"},
    {"sequence.field": "t,u", "force-lookup": "true"},
    {"sequence.field": "u,s", "sequence.field.sort-order": "descending"},
    {"merge-engine": "first-row"},
    {"merge-engine": "first-row", "ignore-delete": "true"},
    PARTIAL,
    {**PARTIAL, "sequence.field": "s"},
    {**PARTIAL, "partial-update.ignore-delete": "true"},
    {**PARTIAL, "partial-update.remove-record-on-delete": "true"},
    GROUPS,
    {**GROUPS, "ignore-delete": "true"},
    {**GROUPS, "partial-update.remove-record-on-sequence-group": "s"},
    {**GROUPS, "partial-update.remove-record-on-sequence-group": "u"},
    FOLDED,
    {**FOLDED, "partial-update.remove-record-on-sequence-group": "s", "sequence.field": "x"},
    {**FOLDED, "fields.n.ignore-retract": "true"},
    {**FOLDED, "changelog-producer": "lookup", "sequence.field": "x"},
    {**FOLDED, "partial-update.remove-record-on-sequence-group": "s,u", "fields.a.aggregate-function": "listagg"},
    {**FOLDED, "partial-update.remove-record-on-sequence-group": "x", "fields.x.sequence-group": "b", **LATE},
]


def schema_of(options: dict[str, str], fields: Sequence[DataField] = FIELDS) -> TableSchema:
    return TableSchema(0, tuple(fields), 99, primary_keys=("k",), options=options)


def merged(
    options: dict[str, str], groups: Sequence[Sequence[Record]], lookup: bool, fields: Sequence[DataField] = FIELDS
) -> list[Record | None]:
    """What each group becomes; its records lie between those of others."""
    schema = schema_of(options, fields)
    rules = MergeRules.of(schema)
    flat = sorted(((record, key) for key, group in enumerate(groups) for record in group), key=lambda one: one[0].age)
    columns = {
        field.name: pa.array([key if field.name == "k" else record.values[index] for record, key in flat], to_arrow(field.type))
        for index, field in enumerate(fields)
    }
    columns["_SEQUENCE_NUMBER"] = pa.array([record.sequence for record, _ in flat], pa.int64())
    columns["_VALUE_KIND"] = pa.array([KINDS.index(record.kind) for record, _ in flat], pa.int8())
    levels = np.array([record.level for record, _ in flat], np.int8)
    keys = Keys.of([columns["k"]], [fields[0].type])
    candidates = Candidates.sorted(pa.table(columns), keys, levels, SequenceOrder.of(rules, schema))
    result = merge_function(rules, schema).merge(candidates, lookup)
    table = result.take()
    assert result.rows(drop_deletes=False).equals(table)
    found: list[Record | None] = [None] * len(groups)
    for group, row, kind in zip(result.groups.tolist(), table.to_pylist(), result.kinds.tolist(), strict=True):
        assert row["k"] == group
        assert row["_VALUE_KIND"] == kind
        found[group] = Record(KINDS[kind], row["_SEQUENCE_NUMBER"], tuple(row[field.name] for field in fields))
    return found


@st.composite
def records(draw: st.DrawFn, key: int, engine: str) -> list[Record]:
    """At most one record of each level above 0, the higher ones older."""
    found = []
    kinds = st.sampled_from(KINDS) if engine != "first-row" else st.sampled_from(("+I", "+I", "+U", "+I", "-D"))
    levels = sorted(draw(st.sets(st.integers(1, 5), max_size=2)), reverse=True) + [0] * draw(st.integers(0, 4))
    for age, level in enumerate(levels or [0]):
        small = st.none() | st.integers(0, 3)
        text = st.none() | st.sampled_from(["", "a", "é", "ab"])
        number = st.none() | st.sampled_from([0.0, -0.0, float("inf"), -1.5])
        values = (key, draw(text), draw(small), draw(text), draw(number), draw(text), draw(small), draw(small))
        found.append(Record(draw(kinds), draw(st.integers(0, 4)), values, level, age))
    return found


@settings(max_examples=ROUNDS)
@given(st.data(), st.sampled_from(OPTIONS), st.booleans())
def test_random_groups_become_what_the_model_says(data: st.DataObject, options: dict[str, str], lookup: bool) -> None:
    engine = options.get("merge-engine", "")
    groups = [data.draw(records(key, engine)) for key in range(data.draw(st.integers(1, 5)))]
    expected: list[Record | None] = []
    taken = []
    for group in groups:
        key = len(taken)
        group = [Record(one.kind, one.sequence, (key, *one.values[1:]), one.level, one.age) for one in group]
        try:
            expected.append(merge(options, FIELDS, ["k"], group, lookup))
        except Refused:
            with pytest.raises(MergeError):
                merged(options, [group], lookup)
            continue
        taken.append(group)
    if taken:
        assert list(map(plain, merged(options, taken, lookup))) == list(map(plain, expected))


def plain(record: Record | None) -> Any:
    return None if record is None else (record.kind, record.sequence, list(map(repr, record.values)))


REFUSED = [
    ({"merge-engine": "replace"}, "merge-engine"),
    ({"sequence.field": "z"}, "sequence.field"),
    ({"sequence.field": "s,s"}, "twice"),
    ({"sequence.field": "s", "fields.s.aggregate-function": "sum"}, "aggregate-function"),
    ({"sequence.field": "s", "merge-engine": "first-row"}, "first-row"),
    ({"sequence.field": "s", "sequence.snapshot-ordering": "true"}, "snapshot-ordering"),
    ({**PARTIAL, "ignore-delete": "true", "partial-update.remove-record-on-delete": "true"}, "ignore-delete"),
    ({**GROUPS, "ignore-delete": "true", "partial-update.remove-record-on-sequence-group": "s"}, "ignore-delete"),
    ({**GROUPS, "partial-update.remove-record-on-delete": "true"}, "sequence groups"),
    ({**GROUPS, "partial-update.remove-record-on-sequence-group": "a"}, "no sequence field"),
    ({**PARTIAL, "fields.s.sequence-group": "k"}, "primary key"),
    ({**PARTIAL, "fields.s.sequence-group": "a", "fields.t.sequence-group": "a"}, "one sequence group only"),
    ({**PARTIAL, "fields.s.sequence-group": "a", "fields.s,t.sequence-group": "b"}, "one sequence group only"),
    ({**PARTIAL, "fields..sequence-group": "a"}, "no sequence field is named"),
    ({**PARTIAL, "fields.s.sequence-group": "z"}, "no column 'z'"),
    ({**PARTIAL, "fields.n.aggregate-function": "sum"}, "needs a sequence group"),
    ({**PARTIAL, "fields.default-aggregate-function": "max"}, "needs a sequence group"),
]


@pytest.mark.parametrize(("options", "message"), REFUSED)
def test_options_that_contradict_one_another_are_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        MergeRules.of(schema_of(options))
    assert any(finding.what == "merging" and re.search(message, finding.why) for finding in findings(schema_of(options)))


@given(st.data(), st.sampled_from(OPTIONS[:6]))
def test_a_record_that_joins_is_in_its_place(data: st.DataObject, options: dict[str, str]) -> None:
    schema = schema_of(options)
    sequence = SequenceOrder.of(MergeRules.of(schema), schema)
    groups = [data.draw(records(key, "")) for key in range(4)]
    flat = sorted((one for group in groups for one in group), key=lambda one: one.age)
    rows = pa.Table.from_pylist(
        [
            {**dict(zip("kasbtunx", one.values, strict=True)), "_SEQUENCE_NUMBER": one.sequence, "_VALUE_KIND": KINDS.index(one.kind)}
            for one in flat
        ],
        pa.schema([*((field.name, to_arrow(field.type)) for field in FIELDS), ("_SEQUENCE_NUMBER", pa.int64()), ("_VALUE_KIND", pa.int8())]),
    )
    levels = np.array([one.level for one in flat], np.int8)
    keys = Keys.of([rows.column("k")], [FIELDS[0].type])
    at = np.flatnonzero(np.array([key % 2 for key in range(4)]))
    found = [next(index for index, one in enumerate(flat) if one.values[0] == key) for key in at.tolist()]
    joined = Candidates.sorted(rows, keys, levels, sequence).joined(rows.take(found), at, np.full(len(at), 6, np.int8))
    tables = pa.concat_tables([rows.take(found), rows])
    whole = Candidates.sorted(
        tables, Keys.of([tables.column("k")], [FIELDS[0].type]), np.concatenate((np.full(len(at), 6, np.int8), levels)), sequence
    )
    assert joined.rows.take(joined.order).equals(whole.rows.take(whole.order))
    assert joined.starts.tolist() == whole.starts.tolist()
