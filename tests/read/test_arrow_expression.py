"""Conditions as pyarrow expressions: the rows are those that pyarrow itself keeps."""

from __future__ import annotations

import datetime as dt
import math
from contextlib import suppress
from decimal import Decimal
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maintainer.data.values import to_arrow_array
from maintainer.errors import UsageError
from maintainer.model.predicate import And, Leaf, Op, Or, Predicate
from maintainer.read import arrow_expression
from maintainer.read.arrow_expression import bind_arrow
from maintainer.read.residual import evaluate
from tests.support.builders import schema
from tests.support.built_tables import table_of
from tests.support.campaign import share
from tests.support.predicates import PATTERNS, SCHEMA, VALUES, WORDS, rows

ROUNDS = share("pyarrow expressions against pyarrow", short=150, long=20_000)
SMALL = schema(
    {"id": "INT", "b": "BOOLEAN", "x": "DOUBLE", "s": "STRING", "by": "BYTES", "ts": "TIMESTAMP(6)", "tags": "ARRAY<STRING>", "a.b": "INT"}
)
ID, X, S = pc.field("id"), pc.field("x"), pc.field("s")


def bound(expression: pc.Expression) -> Predicate:
    return bind_arrow(expression, SMALL)


@pytest.mark.parametrize(
    ("expression", "predicate"),
    [
        (ID == 1, Leaf(Op.EQ, "id", (1,))),
        (pc.scalar(1) < ID, Leaf(Op.GT, "id", (1,))),
        (pc.equal(pc.scalar(1), ID), Leaf(Op.EQ, "id", (1,))),
        (pc.field("a.b") != 1, Leaf(Op.NE, "a.b", (1,))),
        (pa.scalar(None, pa.int32()) == ID, Leaf(Op.EQ, "id", (None,))),
        (pc.field("b"), Leaf(Op.EQ, "b", (True,))),
        (~pc.field("b"), Leaf(Op.NE, "b", (True,))),
        ((ID > 1) == pc.scalar(False), Leaf(Op.LE, "id", (1,))),
        (ID.is_null(), Leaf(Op.IS_NULL, "id")),
        (~ID.is_valid(), Leaf(Op.IS_NULL, "id")),
        (pc.is_nan(X), Leaf(Op.IS_NAN, "x")),
        (X.is_null(nan_is_null=True), Or((Leaf(Op.IS_NULL, "x"), Leaf(Op.IS_NAN, "x")))),
        (S.is_null(nan_is_null=True), Leaf(Op.IS_NULL, "s")),
        (X > 1, And((Leaf(Op.GT, "x", (1.0,)), Leaf(Op.LE, "x", (math.inf,))))),
        (X <= -0.0, Leaf(Op.LE, "x", (0.0,))),
        (math.nan == X, Leaf(Op.IN, "x", ())),
        (ID.isin([1, 2]), And((Leaf(Op.IN, "id", (1, 2)), Leaf(Op.IS_NOT_NULL, "id")))),
        (~ID.isin([1, None]), And((Leaf(Op.NOT_IN, "id", (1,)), Leaf(Op.IS_NOT_NULL, "id")))),
        (pc.starts_with(S, "ab"), Leaf(Op.STARTS_WITH, "s", ("ab",))),
        (pc.match_substring(pc.field("by"), b"\xff\x00"), Leaf(Op.CONTAINS, "by", (b"\xff\x00",))),
        (~pc.match_like(S, "a\\%%"), Leaf(Op.LIKE, "s", ("a\\%%",), negated=True)),
        (pc.and_not_kleene(ID > 1, ID > 5), And((Leaf(Op.GT, "id", (1,)), Leaf(Op.LE, "id", (5,))))),
        (pc.field("ts") >= dt.datetime(1970, 1, 1, 0, 0, 1), Leaf(Op.GE, "ts", (10**9,))),
        (pc.field("ts").isin(pa.array([1_500], pa.timestamp("ns"))), And((Leaf(Op.IN, "ts"), Leaf(Op.IS_NOT_NULL, "ts")))),
        (pa.scalar("x").dictionary_encode() == S if hasattr(pa.Scalar, "dictionary_encode") else S == "x", Leaf(Op.EQ, "s", ("x",))),
        (pc.scalar(True) & (Decimal("1.5") == ID), And((And(()), Leaf(Op.IN, "id")))),
    ],
)
def test_expressions(expression: pc.Expression, predicate: Predicate) -> None:
    assert bound(expression) == predicate


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        (pc.and_(ID > 1, X > 2), "and_ does not translate to a condition: instead of and_ write `a & b`"),
        (pc.xor(ID > 1, X > 2), r"instead of xor write `\(a & ~b\)"),
        (ID.cast(pa.int64()) > 1, "instead of cast write the column and a literal without the cast"),
        (pc.utf8_upper(S) == "A", "does not test a column; a pyarrow expression may use == != < "),
        (pc.match_substring_regex(S, "a.*"), "instead of match_substring_regex write `pc.match_like`"),
        (pc.match_substring(S, "a", ignore_case=True), "match_substring with ignore_case does not translate"),
        (ID + 1 > 2, r"greater\(add_checked\(id, 1\), 2\) does not test a column"),
        (ID == X, r"equal\(id, x\) does not compare a column with a literal"),
        (pc.list_element(pc.field("tags"), 0) == "a", r'col\("c"\).array_contains\(v\)'),
        (pc.field("r", "x") == 1, "r.x: only top-level columns can be tested"),
        (pc.field(0) == 1, "columns are given by their names"),
        (pc.field("nope") == 1, "there is no column 'nope'"),
        (pc.is_null(ID > 1), r"is_null\(greater\(id, 1\)\) does not test a column"),
        (pc.scalar(5), "5 is not a condition"),
        (ID == "x", "str 'x' is not a value for column 'id' of type INT; give a number"),
        (S > 5, "is not a value for column 's' of type STRING; give text"),
        (pc.is_nan(ID), "only FLOAT and DOUBLE can be NaN"),
        (pc.match_like(S, "a\\b"), "invalid escape"),
        (pc.match_like(S, b"\xff"), "is not text"),
        (pc.if_else(ID > 1, ID > 2, ID > 3), "if_else does not translate"),
    ],
)
def test_what_does_not_translate_is_refused_with_what_to_write(expression: pc.Expression, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        bound(expression)


def test_long_chains_are_fine_and_deep_ones_are_refused() -> None:
    chain = bound(reduce(lambda left, right: left | right, [i == ID for i in range(5_000)]))
    assert isinstance(chain, Or) and len(chain.children) == 5_000
    alternating = ID == 0
    for i in range(5_000):
        alternating = ((alternating & (i < ID)) | (i > ID)) == pc.scalar(True)
    with pytest.raises(UsageError, match="nested too deeply"):
        bound(alternating)


def test_a_form_that_is_not_known_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow_expression, "_metadata", lambda schema: [("call", "equal"), ("lambda", "x"), ("end", "equal")])
    with pytest.raises(UsageError, match=r"pickles expressions in an unknown form \(lambda\)"):
        bound(ID == 1)


def scalar(name: str, value: Any) -> pa.Scalar:
    return to_arrow_array([value], VALUES[name][0])[0]


def leaves(name: str) -> st.SearchStrategy[pc.Expression]:
    column = pc.field(name)
    data_type, pool = VALUES[name]
    value = st.sampled_from(pool)
    compare = [pc.equal, pc.not_equal, pc.less, pc.less_equal, pc.greater, pc.greater_equal]
    found = [
        st.builds(lambda of, literal: of(column, scalar(name, literal)), st.sampled_from(compare), st.none() | value),
        st.builds(lambda of, literal: of(pc.scalar(scalar(name, literal)), column), st.sampled_from(compare), value),
        st.builds(
            lambda literals, nulls: pc.is_in(column, options=pc.SetLookupOptions(to_arrow_array(literals, data_type), skip_nulls=nulls)),
            st.lists(st.none() | value, max_size=3),
            st.booleans(),
        ),
        st.sampled_from([column.is_null(), column.is_valid()]),
    ]
    if name in ("f", "d"):
        found.append(st.sampled_from([pc.is_nan(column), column.is_null(nan_is_null=True)]))
    if name in ("s", "by"):
        of = st.sampled_from([pc.starts_with, pc.ends_with, pc.match_substring])
        found.append(st.builds(lambda of, part: of(column, part), of, st.sampled_from(WORDS if name == "s" else pool)))
    if name == "s":
        found.append(
            st.sampled_from([pattern for pattern in PATTERNS if "_" not in pattern]).map(lambda pattern: pc.match_like(column, pattern))
        )
    if name == "bo":
        found.append(st.just(column))
    return st.one_of(found)


def trees() -> st.SearchStrategy[pc.Expression]:
    return st.recursive(
        st.sampled_from(sorted(VALUES)).flatmap(leaves) | st.sampled_from([True, False]).map(pc.scalar),
        lambda children: st.one_of(
            st.builds(lambda a, b: a & b, children, children),
            st.builds(lambda a, b: a | b, children, children),
            st.builds(pc.and_not_kleene, children, children),
            children.map(lambda child: ~child),
        ),
        max_leaves=5,
    )


@settings(max_examples=ROUNDS, deadline=None)
@given(rows(tuple(VALUES)), trees())
def test_the_rows_are_those_that_pyarrow_keeps(values: list[dict[str, Any]], expression: pc.Expression) -> None:
    table = table_of(values, SCHEMA).select(list(VALUES)).append_column("row", pa.array(range(len(values)), pa.int64()))
    kept = table.filter(evaluate(bind_arrow(expression, SCHEMA), table, SCHEMA))
    assert kept["row"].to_pylist() == table.filter(expression)["row"].to_pylist()


SCALARS = [
    *(
        pa.scalar(value)
        for value in (1, 1.5, math.nan, "x", b"\xff", True, None, dt.date(2020, 1, 1), dt.time(1), Decimal("1.23"), [1], {"a": 1})
    ),
    *(
        pa.scalar(1, of)
        for of in (pa.uint64(), pa.timestamp("ns", "UTC"), pa.date64(), pa.time64("ns"), pa.duration("s"), pa.decimal256(40, 2))
    ),
    *(pa.scalar(2**62, of) for of in (pa.timestamp("s"), pa.duration("s"), pa.date64())),
    *(pa.scalar("x", of) for of in (pa.large_string(), pa.large_binary(), pa.string_view())),
    pa.scalar((1, 2, 3), pa.month_day_nano_interval()),
    pa.array(["a"]).dictionary_encode()[0],
]
"""Also such as Python has no value for."""


@pytest.mark.parametrize("name", SCHEMA.names)
def test_a_literal_of_any_type_is_taken_or_refused(name: str) -> None:
    taken = 0
    for value in SCALARS:
        for expression in (pc.field(name) == pc.scalar(value), pc.scalar(value) < pc.field(name)):
            with suppress(UsageError):
                assert isinstance(bind_arrow(expression, SCHEMA), Leaf | And | Or)
                taken += 1
    assert taken >= 2  # NULL is of all types
