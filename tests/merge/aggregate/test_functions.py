"""Every aggregate function, a column at a time, against the plain model one record at a time (spec 05 §6)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maintainer.format.data_type import parse
from maintainer.merge.aggregate import Verdict
from maintainer.model.types import DataField, DataType, TypeRoot
from tests.support.campaign import share
from tests.support.folding import check

ROUNDS = share("aggregate functions against the model, examples of each", short=25, long=2000)
INTEGER_BITS = {TypeRoot.TINYINT: 8, TypeRoot.SMALLINT: 16, TypeRoot.INT: 32, TypeRoot.BIGINT: 64}
WORDS = [
    "",
    " ",
    "\u00a0",
    "a",
    "b",
    "a,b",
    "b,a,c",
    "a,a",
    "x,",
    ",",
    "y,,x",
    "a--b",
    "-",
    "\u2003",
    "\x1f",
    "é",
    "\uffff",
    "\U0001f600",
    "zz b a",
]
NUMBERS = ("TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL(5, 2)", "DECIMAL(18, 2)", "DECIMAL(20, 2)", "DECIMAL(38, 10)")
ORDERED = (*NUMBERS, "STRING", "BYTES", "BOOLEAN", "DATE", "TIMESTAMP(6)", "TIMESTAMP(3)")


def row_of(**members: str) -> DataType:
    return DataType(TypeRoot.ROW, fields=tuple(DataField(index, name, parse(text)) for index, (name, text) in enumerate(members.items())))


def array_of(element: DataType) -> DataType:
    return DataType(TypeRoot.ARRAY, element=element)


def map_of(key: str, value: DataType) -> DataType:
    return DataType(TypeRoot.MAP, key=parse(key).with_nullable(False), element=value)


ROWS = array_of(row_of(k="INT", v="STRING", s="DOUBLE"))
PAIR = row_of(a="INT", b="STRING")
TIMED = row_of(v="INT", ts="STRING")

CASES: list[tuple[str, DataType, Mapping[str, str]]] = [
    *((name, parse(text), {}) for name in ("sum", "product") for text in NUMBERS),
    *((name, parse(text), {}) for name in ("max", "min") for text in ORDERED),
    *((name, parse("BOOLEAN"), {}) for name in ("bool_and", "bool_or")),
    *(
        (name, parse(text), {})
        for name in ("last_value", "last_non_null_value", "first_value", "first_non_null_value", "first_not_null_value", "primary-key")
        for text in ("INT", "STRING")
    ),
    *((name, parse("INT"), {"ignore-retract": "true"}) for name in ("sum", "max", "first_value", "last_value", "primary-key")),
    *(
        ("listagg", parse("STRING"), {"list-agg-delimiter": delimiter, "distinct": distinct, "ignore-retract": "true"})
        for delimiter in (",", "--", "", "é,")
        for distinct in ("true", "false")
    ),
    ("listagg", parse("STRING"), {}),
    *(
        ("collect", array_of(element), {"distinct": distinct, "ignore-retract": ignore})
        for element in (
            *map(parse, ("INT", "STRING", "DOUBLE", "BYTES", "DECIMAL(20, 2)")),
            row_of(a="INT", b="STRING"),
            array_of(parse("INT")),
        )
        for distinct in ("true", "false")
        for ignore in ("true", "false")
    ),
    *(("merge_map", map_of(key, parse("INT")), {}) for key in ("STRING", "INT", "BYTES", "DOUBLE")),
    ("merge_map_with_keytime", map_of("STRING", TIMED), {"ignore-retract": "true"}),
    ("merge_map_with_keytime", map_of("INT", TIMED), {"ts-field": "ts"}),
    ("nested_update", ROWS, {}),
    ("nested_update", ROWS, {"count-limit": "2"}),
    *(
        ("nested_update", ROWS, {"nested-key": key, "nested-key-null-strategy": strategy, **more})
        for key in ("k", "k, v")
        for strategy in ("merge", "ignore", "error")
        for more in ({}, {"count-limit": "2"}, {"nested-sequence-field": "s"}, {"nested-sequence-field": "v,s"})
    ),
    *(
        ("nested_partial_update", ROWS, {"nested-key": key, "nested-key-null-strategy": strategy})
        for key in ("k", "v,k")
        for strategy in ("merge", "ignore", "error")
    ),
]


def values(data_type: DataType) -> st.SearchStrategy[Any]:
    """Few values of a type, so that they meet again; NULL is one of them."""
    root, names = data_type.root, [field.name for field in data_type.fields]
    some: st.SearchStrategy[Any]
    if root in INTEGER_BITS:
        limit = 1 << (INTEGER_BITS[root] - 1)
        some = st.sampled_from([0, 1, -1, 2, 3, -7, limit - 1, -limit, limit // 3])
    elif root in (TypeRoot.FLOAT, TypeRoot.DOUBLE):
        floats = [0.0, -0.0, float("nan"), float("inf"), float("-inf"), 1.0, 3.0]
        some = st.sampled_from(floats) | st.floats(width=32 if root is TypeRoot.FLOAT else 64, allow_nan=False)
    elif root is TypeRoot.DECIMAL:
        limit = 10**data_type.precision
        odd = [0, 1, -1, 5, 105, -105, limit - 1, 1 - limit, limit // 2, 2 * 10**data_type.scale]
        unscaled = st.sampled_from(odd) | st.integers(1 - limit, limit - 1)
        some = unscaled.map(lambda number: Decimal((number < 0, tuple(map(int, str(abs(number)))), -data_type.scale)))
    elif root is TypeRoot.VARCHAR:
        some = st.sampled_from(WORDS)
    elif root is TypeRoot.VARBINARY:
        some = st.sampled_from([b"", b"a", b"\x7f", b"\x80", b"ab"])
    elif root is TypeRoot.BOOLEAN:
        some = st.booleans()
    elif root is TypeRoot.DATE:
        some = st.sampled_from([date(1, 1, 1), date(1970, 1, 1), date(2026, 5, 4)])
    elif root is TypeRoot.TIMESTAMP:
        some = st.integers(-3, 3).map(lambda n: datetime(1970, 1, 1) + timedelta(milliseconds=n))
    elif root is TypeRoot.ARRAY:
        some = st.lists(values(_of(data_type.element)), max_size=4)
    elif root is TypeRoot.MAP:
        keys = values(_of(data_type.key)).filter(lambda key: key is not None)
        some = st.lists(st.tuples(keys, values(_of(data_type.element))), max_size=4, unique_by=lambda entry: repr(entry[0]))
    else:
        some = st.tuples(*(values(field.type) for field in data_type.fields)).map(lambda row: dict(zip(names, row, strict=True)))
    return some if not data_type.nullable else st.none() | some | some | some


def _of(data_type: DataType | None) -> DataType:
    assert data_type is not None
    return data_type


def groups(data_type: DataType) -> st.SearchStrategy[Any]:
    often = [Verdict.APPLY] * 8
    verdicts = st.sampled_from([*often, Verdict.REVERSED, Verdict.RETRACT, Verdict.SKIP, Verdict.REPLACE]) | st.just(Verdict.APPLY)
    return st.lists(st.lists(st.tuples(verdicts, values(data_type)), max_size=5), max_size=5)


@pytest.mark.parametrize(("name", "data_type", "options"), CASES, ids=lambda part: str(part))
def test_a_column_at_a_time_is_what_a_record_at_a_time_is(name: str, data_type: DataType, options: Mapping[str, str]) -> None:
    @settings(max_examples=ROUNDS, deadline=None, database=None)
    @given(groups(data_type))
    def run(examples: Any) -> None:
        check(name, data_type, examples, options)

    run()


LONG = [case for case in CASES if case[0] in ("sum", "product", "max", "bool_or") or "_value" in case[0] or case[0] == "primary-key"]


@pytest.mark.parametrize(("name", "data_type", "options"), LONG, ids=lambda part: str(part))
def test_groups_of_many_records_are_no_different(name: str, data_type: DataType, options: Mapping[str, str]) -> None:
    some = st.lists(st.tuples(st.sampled_from([Verdict.APPLY, Verdict.APPLY, Verdict.RETRACT]), values(data_type)), max_size=4)
    only_adds = st.lists(st.tuples(st.just(Verdict.APPLY), values(data_type)), max_size=4)

    @settings(max_examples=share("long groups against the model, examples of each", short=8, long=500), deadline=None, database=None)
    @given(st.lists(only_adds | some, max_size=4), groups(data_type))
    def run(long: Any, short: Any) -> None:
        check(name, data_type, [*(group * (20 * number) for number, group in enumerate(long, 1)), *short], options)

    run()
