"""The aggregation engine: the vectors of spec 05 §9, and random groups against the plain model."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maintainer.data.arrow_types import to_arrow
from maintainer.errors import MergeError
from maintainer.format.data_type import parse
from maintainer.merge.aggregation import Aggregation
from maintainer.merge.candidates import Candidates
from maintainer.merge.order import Keys
from maintainer.model.schema import TableSchema
from maintainer.model.types import DataField, DataType, TypeRoot
from maintainer.table.merging import MergeRules
from tests.support.campaign import share
from tests.support.folding import alike
from tests.support.merge_model import Record, Refused, merge

ROUNDS = share("aggregation against the model, examples", short=150, long=20_000)
KINDS = ("+I", "-U", "+U", "-D")
REMOVE = {"aggregation.remove-record-on-delete": "true"}
MEMBERS = tuple(DataField(index, name, parse("INT")) for index, name in enumerate("kvs"))
ROWS = DataType(TypeRoot.ARRAY, element=DataType(TypeRoot.ROW, fields=MEMBERS))


def candidates(fields: Sequence[DataField], groups: Sequence[Sequence[Record]]) -> Candidates:
    """Groups of records, oldest first, as rows of a table from the last to the first."""
    flat = [record for group in groups for record in group][::-1]
    columns = {field.name: pa.array([record.values[index] for record in flat], to_arrow(field.type)) for index, field in enumerate(fields)}
    columns["_SEQUENCE_NUMBER"] = pa.array([record.sequence for record in flat], pa.int64())
    columns["_VALUE_KIND"] = pa.array([KINDS.index(record.kind) for record in flat], pa.int8())
    whole = pa.table({"_KEY_k": columns["k"], **columns})
    half = len(flat) // 2
    order = np.arange(len(flat), dtype=np.int64)[::-1]
    starts = np.cumsum([0, *map(len, groups)])[:-1].astype(np.int64)
    levels = np.array([record.level for record in flat], np.int8)
    keys = Keys.of([whole.column("k")], [fields[0].type])
    return Candidates(pa.concat_tables([whole.slice(0, half), whole.slice(half)]), keys, levels, order, starts)


def engine(options: dict[str, str], fields: Sequence[DataField]) -> Aggregation:
    schema = TableSchema(0, tuple(fields), 99, primary_keys=("k",), options=options)
    return Aggregation.of(schema, MergeRules.of(schema))


def results(options: dict[str, str], fields: Sequence[DataField], groups: Sequence[Sequence[Record]], lookup: bool) -> list[Any]:
    merged = engine(options, fields).merge(candidates(fields, groups), lookup)
    table = merged.take()
    found = []
    for row, kind in zip(table.to_pylist(), merged.kinds.tolist(), strict=True):
        assert (row["_VALUE_KIND"], row["_KEY_k"]) == (kind, row["k"])
        found.append((KINDS[kind], row["_SEQUENCE_NUMBER"], [row[field.name] for field in fields]))
    odd = np.arange(1, len(groups), 2)
    assert merged.take(odd).equals(table.take(pa.array(odd)))
    kept = merged.rows(drop_deletes=True)
    assert kept.num_rows == sum(kind in ("+I", "+U") for kind, _, _ in found)
    assert kept.schema == table.schema
    return found


def outcome(function: str, data_type: str | DataType, *records: tuple[str, Any], more: dict[str, str] | None = None, **options: str) -> Any:
    """The (kind, value) that one key becomes; the error as text when it has none."""
    fields = [DataField(0, "k", parse("INT NOT NULL")), DataField(1, "f", parse(data_type) if isinstance(data_type, str) else data_type)]
    full = {"merge-engine": "aggregation", "fields.f.aggregate-function": function, **(more or {})}
    full |= {f"fields.f.{name.replace('_', '-')}": value for name, value in options.items()}
    group = [Record(kind, number, (1, value)) for number, (kind, value) in enumerate(records)]
    try:
        ((kind, sequence, values),) = results(full, fields, [group], lookup=False)
    except MergeError as error:
        return str(error)
    assert sequence == len(records) - 1
    return kind, values[1]


def test_sums_retract_and_never_forget_a_removed_record() -> None:
    assert outcome("sum", "INT", ("+I", 5), ("-U", 5), ("+U", 7)) == ("+I", 7)
    assert outcome("sum", "INT", ("-D", 5), ("+I", 7)) == ("+I", 2)
    assert outcome("sum", "INT", ("+I", 5), ("-D", 5), ("+I", 7), more=REMOVE) == ("+I", 12)
    assert outcome("sum", "INT", ("+I", 5), ("-D", 9), more=REMOVE) == ("-D", 9)


def test_an_intermediate_overflow_is_an_error_that_says_where() -> None:
    message = outcome("sum", "INT", ("+I", 2147483647), ("+I", 1), ("+I", -5))
    assert message == "key (k = 1), field f: sum goes beyond INT; give the column a wider type"


def test_a_function_that_cannot_retract_says_what_to_set() -> None:
    assert "fields.f.ignore-retract" in outcome("max", "INT", ("+I", 5), ("-D", 5))
    assert outcome("max", "INT", ("+I", 5), ("-D", 5), ignore_retract="true") == ("+I", 5)


def test_decimals_keep_java_s_rules_of_width() -> None:
    assert outcome("sum", "DECIMAL(5, 2)", ("+I", Decimal("999.99")), ("+I", Decimal("5.00"))) == ("+I", Decimal("1004.99"))
    assert outcome("sum", "DECIMAL(20, 2)", ("+I", Decimal("999999999999999999.99")), ("+I", Decimal("0.01"))) == ("+I", None)
    assert outcome("product", "DECIMAL(18, 2)", ("+I", Decimal("1.05")), ("+I", Decimal("1.05"))) == ("+I", Decimal("1.10"))
    assert outcome("product", "INT", ("+I", -7), ("-U", 2)) == ("+I", -3)


def test_listagg() -> None:
    assert outcome("listagg", "STRING", ("+I", "a"), ("+I", " "), ("+I", "b")) == ("+I", "a,b")
    for first, second, expected in (("a", "b,a,c", "a,b,c"), ("a,a", "a", "a,a"), ("x,", "y,,x", "x,,y")):
        assert outcome("listagg", "STRING", ("+I", first), ("+I", second), distinct="true") == ("+I", expected)


def rows(*members: tuple[Any, ...]) -> list[dict[str, Any]]:
    return [dict(zip("kvs", member, strict=True)) for member in members]


@pytest.mark.parametrize(("new", "expected"), [((1, 2, 4), (1, 1, 5)), ((1, 2, 5), (1, 2, 5)), ((1, 2, None), (1, 1, 5))])
def test_nested_rows_are_replaced_by_newer_ones(new: Any, expected: Any) -> None:
    options = {"nested_key": "k", "nested_sequence_field": "s"}
    assert outcome("nested_update", ROWS, ("+I", rows((1, 1, 5))), ("+I", rows(new)), **options) == ("+I", rows(expected))


def test_nested_rows_without_a_key_are_all_retracted() -> None:
    start = rows((1, 1, 1), (1, 1, 1), (2, 2, 2))
    assert outcome("nested_update", ROWS, ("+I", start), ("-U", rows((1, 1, 1)))) == ("+I", rows((2, 2, 2)))


def test_more_nested_rows_than_the_limit_do_not_come_in() -> None:
    found = outcome(
        "nested_update", ROWS, ("+I", rows((1, 0, 0), (2, 0, 0))), ("+I", rows((3, 0, 0), (2, 9, 9))), nested_key="k", count_limit="2"
    )
    assert found == ("+I", rows((1, 0, 0), (2, 9, 9)))


def test_nested_rows_are_updated_member_by_member() -> None:
    found = outcome("nested_partial_update", ROWS, ("+I", rows((1, 1, None))), ("+I", rows((1, None, 7), (2, 2, 2))), nested_key="k")
    assert found == ("+I", rows((1, 1, 7), (2, 2, 2)))


def test_a_removal_with_a_null_where_none_may_be_names_the_field() -> None:
    fields = [DataField(0, "k", parse("INT NOT NULL")), DataField(1, "f", parse("INT NOT NULL"))]
    options = {"merge-engine": "aggregation", "fields.f.aggregate-function": "sum", **REMOVE}
    with pytest.raises(MergeError, match=r"key \(k = 8\), field f: a -D record holds NULL"):
        results(options, fields, [[Record("+I", 1, (7, 1))], [Record("+I", 1, (8, 1)), Record("-D", 2, (8, None))]], lookup=False)


FIELDS = tuple(
    DataField(index, name, parse(text))
    for index, (name, text) in enumerate(
        [
            ("k", "INT NOT NULL"),
            ("total", "BIGINT"),
            ("top", "STRING"),
            ("last", "STRING"),
            ("first", "INT"),
            ("version", "INT"),
            ("tail", "INT"),
        ]
    )
)
FUNCTIONS = {
    "merge-engine": "aggregation",
    "fields.total.aggregate-function": "sum",
    "fields.top.aggregate-function": "max",
    "fields.first.aggregate-function": "first_non_null_value",
    "fields.default-aggregate-function": "last_non_null_value",
    "fields.tail.aggregate-function": "last_value",
}
IGNORING = {f"fields.{name}.ignore-retract": "true" for name in ("top", "first")}
OPTIONS = [
    FUNCTIONS,
    FUNCTIONS | IGNORING,
    FUNCTIONS | REMOVE,
    FUNCTIONS | {"sequence.field": "version"},
    FUNCTIONS | IGNORING | {"force-lookup": "true"},
]

small = st.none() | st.integers(-2, 3)
texts = st.none() | st.sampled_from(["", "a", "b", "é", "\uffff", "\U0001f600"])


@st.composite
def random_groups(draw: st.DrawFn) -> list[list[Record]]:
    found = []
    for key in range(draw(st.integers(0, 6))):
        size = draw(st.integers(1, 5))
        above = draw(st.permutations(range(1, 6)))
        group = []
        for number in range(size):
            values = (key, draw(small), draw(texts), draw(texts), draw(small), 10 + number, draw(small))
            kind = draw(st.sampled_from(["+I", "+U", "+I", "+U", "+I", "-U", "-D"]))
            group.append(Record(kind, 100 + number, values, level=draw(st.sampled_from([-1, 0, 0, above[number]]))))
        found.append(group)
    return found


@settings(max_examples=ROUNDS, deadline=None, database=None)
@given(random_groups(), st.sampled_from(OPTIONS), st.booleans())
def test_random_groups_are_merged_like_the_model_merges_them(groups: list[list[Record]], options: dict[str, str], lookup: bool) -> None:
    expected, refused = [], []
    for group in groups:
        try:
            expected.append((group, merge(options, FIELDS, ["k"], group, lookup)))
        except Refused:
            refused.append(group)
    if refused:
        with pytest.raises(MergeError, match="|".join(rf"key \(k = {group[0].values[0]}\)" for group in refused)):
            results(options, FIELDS, groups, lookup)
    found = results(options, FIELDS, [group for group, _ in expected], lookup)
    wanted = [(record.kind, record.sequence, list(record.values)) for _, record in expected if record is not None]
    assert alike(found) == alike(wanted)
