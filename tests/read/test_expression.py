from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from functools import reduce
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maintainer.errors import UsageError
from maintainer.model.predicate import And, Leaf, Op, Or, Predicate
from maintainer.read.expression import Expression, bind, col
from maintainer.read.residual import mask
from tests.support.builders import schema
from tests.support.built_tables import table_of

SCHEMA = schema(
    {
        "id": "INT",
        "b": "BOOLEAN",
        "ti": "TINYINT",
        "l": "BIGINT",
        "f": "FLOAT",
        "d": "DOUBLE",
        "dec": "DECIMAL(10, 2)",
        "s": "STRING",
        "by": "BYTES",
        "dt": "DATE",
        "t": "TIME(3)",
        "ts0": "TIMESTAMP(0)",
        "ts": "TIMESTAMP(6)",
        "ns": "TIMESTAMP(9)",
        "ltz": "TIMESTAMP(6) WITH LOCAL TIME ZONE",
        "a": "ARRAY<TINYINT>",
        "r": "ROW<x INT>",
    }
)
HOUR = 3_600_000_000_000
NEVER = ()


def bound(expression: Expression, time_zone: str = "UTC") -> Predicate:
    return bind(expression, SCHEMA, time_zone)


@pytest.mark.parametrize(
    ("expression", "leaf"),
    [
        (col("id") == 1, Leaf(Op.EQ, "id", (1,))),
        (col("s") == "é".encode(), Leaf(Op.EQ, "s", ("é",))),
        (col("s").isin([b"a", bytearray(b"b")]), Leaf(Op.IN, "s", ("a", "b"))),
        (col("id") != 1, Leaf(Op.NE, "id", (1,))),
        (col("id") < 1, Leaf(Op.LT, "id", (1,))),
        (1 < col("id"), Leaf(Op.GT, "id", (1,))),  # noqa: SIM300
        (col("id") <= 1, Leaf(Op.LE, "id", (1,))),
        (col("id") >= 1, Leaf(Op.GE, "id", (1,))),
        (col("id").isin([1, None]), Leaf(Op.IN, "id", (1, None))),
        (col("id").notin(range(2)), Leaf(Op.NOT_IN, "id", (0, 1))),
        (col("id").between(1, 2), Leaf(Op.BETWEEN, "id", (1, 2))),
        (col("id").is_null(), Leaf(Op.IS_NULL, "id")),
        (col("id").is_not_null(), Leaf(Op.IS_NOT_NULL, "id")),
        (col("r").is_null(), Leaf(Op.IS_NULL, "r")),
        (col("d").is_nan(), Leaf(Op.IS_NAN, "d")),
        (col("s").like("a%"), Leaf(Op.LIKE, "s", ("a%",))),
        (col("s").like("a!%!!\\", escape="!"), Leaf(Op.LIKE, "s", ("a\\%!\\\\",))),
        (col("s").startswith("a"), Leaf(Op.STARTS_WITH, "s", ("a",))),
        (col("s").endswith("a"), Leaf(Op.ENDS_WITH, "s", ("a",))),
        (col("by").contains(b"\xff"), Leaf(Op.CONTAINS, "by", (b"\xff",))),
        (col("s").contains(b"\xc3"), Leaf(Op.CONTAINS, "s", (b"\xc3",))),
        (col("s").startswith(bytearray("é".encode())), Leaf(Op.STARTS_WITH, "s", ("é",))),
        (col("a").array_contains(1), Leaf(Op.ARRAY_CONTAINS, "a", (1,))),
        (col("a").arrays_overlap([1, None]), Leaf(Op.ARRAYS_OVERLAP, "a", (1, None))),
        (col("a").array_contains_all({2}), Leaf(Op.ARRAY_CONTAINS_ALL, "a", (2,))),
        (col("id") == None, Leaf(Op.EQ, "id", (None,))),  # noqa: E711
    ],
)
def test_tests(expression: Expression, leaf: Leaf) -> None:
    assert bound(expression) == leaf


@pytest.mark.parametrize(
    ("expression", "predicate"),
    [
        (~(col("id") == 1), Leaf(Op.NE, "id", (1,))),
        (~(col("id") < 1), Leaf(Op.GE, "id", (1,))),
        (~(col("id") > 1), Leaf(Op.LE, "id", (1,))),
        (~col("id").isin([1, None]), Leaf(Op.NOT_IN, "id", (1, None))),
        (~col("id").between(1, 2), Leaf(Op.NOT_BETWEEN, "id", (1, 2))),
        (~~col("id").between(1, 2), Leaf(Op.BETWEEN, "id", (1, 2))),
        (~col("id").is_null(), Leaf(Op.IS_NOT_NULL, "id")),
        (~col("s").like("a"), Leaf(Op.LIKE, "s", ("a",), negated=True)),
        (~~col("s").like("a"), Leaf(Op.LIKE, "s", ("a",))),
        (~((col("id") == 1) & (col("l") == 2)), Or((Leaf(Op.NE, "id", (1,)), Leaf(Op.NE, "l", (2,))))),
        (~((col("id") == 1) | ~(col("l") == 2)), And((Leaf(Op.NE, "id", (1,)), Leaf(Op.EQ, "l", (2,))))),
    ],
)
def test_negation_goes_down_to_the_leaves(expression: Expression, predicate: Predicate) -> None:
    assert bound(expression) == predicate


def test_chains_of_one_connective_become_one_node() -> None:
    a, b, c, d = (col("id") == i for i in range(4))
    assert bound(a & b & (c & d)) == And(tuple(Leaf(Op.EQ, "id", (i,)) for i in range(4)))
    assert bound(~(a | b | c)) == And(tuple(Leaf(Op.NE, "id", (i,)) for i in range(3)))


def test_a_long_chain_is_bound_and_a_deep_one_is_refused() -> None:
    long = reduce(lambda left, right: left | right, [col("id") == i for i in range(20_000)])
    assert len(bound(long).children) == 20_000  # type: ignore[union-attr]
    many_nots: Expression = col("id") == 1
    for _ in range(20_001):
        many_nots = ~many_nots
    assert bound(many_nots) == Leaf(Op.NE, "id", (1,))
    deep: Expression = col("id") == 1
    for i in range(10_000):
        deep = (deep | (col("id") == i)) & (col("l") == i)
    with pytest.raises(UsageError, match="nested too deeply"):
        bound(deep)


@pytest.mark.parametrize(
    ("column", "literal", "value"),
    [
        ("b", True, True),
        ("id", np.int64(5), 5),
        ("id", 5.0, 5),
        ("id", Decimal("5.00"), 5),
        ("l", 2**62, 2**62),
        ("d", 3, 3.0),
        ("d", Decimal("0.1"), 0.1),
        ("f", 0.1, 0.10000000149011612),
        ("dec", 1, Decimal("1.00")),
        ("dec", 1.1, Decimal("1.10")),
        ("dec", Decimal("-99999999.99"), Decimal("-99999999.99")),
        ("by", bytearray(b"x"), b"x"),
        ("dt", dt.date(1969, 12, 31), -1),
        ("dt", dt.datetime(1970, 1, 2), 1),
        ("dt", "0001-01-01", -719162),
        ("t", dt.time(0, 0, 1, 5000), 1005),
        ("t", "23:59:59.999", 86_399_999),
        ("ts", dt.datetime(1970, 1, 1, 1, 0, 0, 1), HOUR + 1000),
        ("ts", dt.date(1970, 1, 2), 24 * HOUR),
        ("ts", "1969-12-31T23:59:59.999999", -1000),
        ("ns", pd.Timestamp(1), 1),
        ("ns", np.datetime64(7, "ns"), 7),
        ("ns", np.datetime64(7_000_000, "fs"), 7),
        ("dt", np.datetime64("2024-03-01"), 19_783),
        ("ts", np.datetime64("3000-01-01"), 32_503_680_000 * 10**9),
        ("ts", np.datetime64("0001-01-01", "s"), -62_135_596_800 * 10**9),
        ("ts", np.datetime64("9999-12", "M"), 253_399_622_400 * 10**9),
        ("ts", np.datetime64("-0001", "Y"), -62_198_755_200 * 10**9),
        ("ns", pa.scalar(9, pa.timestamp("ns")), 9),
        ("ltz", dt.datetime(1970, 1, 1, 2, tzinfo=dt.timezone(dt.timedelta(hours=2))), 0),
        ("ltz", "1970-01-01 00:00:00+01:00", -HOUR),
        ("ltz", "1970-01-01 00:00:00Z", 0),
        ("ltz", "1970-07-01 00:00:00 Europe/Berlin", 181 * 24 * HOUR - HOUR),
    ],
)
def test_literals_become_internal_values_of_the_column_s_type(column: str, literal: Any, value: Any) -> None:
    leaf = bound(col(column) == literal)
    assert leaf == Leaf(Op.EQ, column, (value,))
    assert type(leaf.literal) is type(value)  # type: ignore[union-attr]


@pytest.mark.parametrize("null", [pd.NaT, pd.NA, np.datetime64("NaT"), np.datetime64("NaT", "us"), pa.scalar(None, pa.string())])
def test_nulls_of_libraries_are_null(null: Any) -> None:
    assert bound(col("ts") == null) == Leaf(Op.EQ, "ts", (None,))
    assert bound(col("id").isin([1, null])) == Leaf(Op.IN, "id", (1, None))
    assert bound(col("s").startswith(null)) == Leaf(Op.STARTS_WITH, "s", (None,))
    assert bound(col("a").array_contains(null)) == Leaf(Op.ARRAY_CONTAINS, "a", (None,))


def test_times_without_a_zone_are_of_the_session_time_zone_for_columns_with_one() -> None:
    assert bound(col("ltz") == "1970-01-01 00:00:00", "Asia/Tokyo") == Leaf(Op.EQ, "ltz", (-9 * HOUR,))
    assert bound(col("ts") == "1970-01-01 00:00:00", "Asia/Tokyo") == Leaf(Op.EQ, "ts", (0,))
    assert bound(col("ts") == "1970-01-01 00:00:00Z", "Asia/Tokyo") == Leaf(Op.EQ, "ts", (9 * HOUR,))
    with pytest.raises(UsageError, match="no time zone 'Nowhere'"):
        bound(col("ltz") == "1970-01-01 00:00:00", "Nowhere")


@pytest.mark.parametrize(
    ("expression", "predicate"),
    [
        (col("ti") == 128, Leaf(Op.IN, "ti", NEVER)),
        (col("ti") != 128, Leaf(Op.NOT_IN, "ti", NEVER)),
        (col("ti") < 128, Leaf(Op.NOT_IN, "ti", NEVER)),
        (col("ti") > 128, Leaf(Op.IN, "ti", NEVER)),
        (col("ti") >= -129, Leaf(Op.NOT_IN, "ti", NEVER)),
        (col("ti") <= -129, Leaf(Op.IN, "ti", NEVER)),
        (col("id") > 1.5, Leaf(Op.GT, "id", (1,))),
        (col("id") >= 1.5, Leaf(Op.GT, "id", (1,))),
        (col("id") < 1.5, Leaf(Op.LE, "id", (1,))),
        (col("id") <= -1.5, Leaf(Op.LE, "id", (-2,))),
        (col("id") == 1.5, Leaf(Op.IN, "id", NEVER)),
        (col("id").isin([1, 1.5, 2**31]), Leaf(Op.IN, "id", (1,))),
        (col("id").between(0.5, 3), And((Leaf(Op.GT, "id", (0,)), Leaf(Op.LE, "id", (3,))))),
        (~col("id").between(0.5, 3), Or((Leaf(Op.LE, "id", (0,)), Leaf(Op.GT, "id", (3,))))),
        (col("id").between(1, None), And((Leaf(Op.GE, "id", (1,)), Leaf(Op.LE, "id", (None,))))),
        (~col("id").between(1, None), Or((Leaf(Op.LT, "id", (1,)), Leaf(Op.GT, "id", (None,))))),
        (col("dec") < Decimal("1.005"), Leaf(Op.LE, "dec", (Decimal("1.00"),))),
        (col("dec") < Decimal("1e400"), Leaf(Op.NOT_IN, "dec", NEVER)),
        (col("dec") > Decimal("1e-999999"), Leaf(Op.GT, "dec", (Decimal("0.00"),))),
        (col("dec") >= -math.inf, Leaf(Op.NOT_IN, "dec", NEVER)),
        (col("f") > 1e300, Leaf(Op.GT, "f", (3.4028234663852886e38,))),
        (col("f") == 1e300, Leaf(Op.IN, "f", NEVER)),
        (col("f") == math.inf, Leaf(Op.EQ, "f", (math.inf,))),
        (col("d") < 10**400, Leaf(Op.LE, "d", (1.7976931348623157e308,))),
        (col("ts0") < "1970-01-01 00:00:00.0005", Leaf(Op.LE, "ts0", (0,))),
        (col("ts") == "1970-01-01 00:00:00.000000001", Leaf(Op.IN, "ts", NEVER)),
        (col("ns") < "9999-01-01", Leaf(Op.NOT_IN, "ns", NEVER)),
        (col("dt") < dt.datetime(1970, 1, 2, 12), Leaf(Op.LE, "dt", (1,))),
        (col("t") > "00:00:00.0009", Leaf(Op.GT, "t", (0,))),
        (col("a").array_contains(1000), Leaf(Op.ARRAYS_OVERLAP, "a", ())),
        (col("a").arrays_overlap([1000, 1]), Leaf(Op.ARRAYS_OVERLAP, "a", (1,))),
        (col("a").array_contains_all([1000, 1]), Leaf(Op.ARRAYS_OVERLAP, "a", ())),
    ],
)
def test_a_literal_between_two_values_asks_the_same_of_a_value(expression: Expression, predicate: Predicate) -> None:
    assert bound(expression) == predicate


@given(st.sampled_from(["==", "!=", "<", "<=", ">", ">="]), st.booleans(), st.decimals(-300, 300, places=1), st.integers(-128, 127))
def test_comparisons_with_any_number_hold_as_in_arithmetic(op: str, negate: bool, literal: Decimal, value: int) -> None:
    column = col("ti")
    expression = eval(f"column {op} literal", {"column": column, "literal": literal})
    expected = eval(f"value {op} literal", {"value": value, "literal": literal}) != negate
    predicate = bound(~expression if negate else expression)
    assert mask(predicate, table_of([{"ti": value}, {}], SCHEMA), SCHEMA).tolist() == [expected, False]


def test_a_column_alone_is_a_condition_and_is_joined_as_any_other() -> None:
    alone, other = Leaf(Op.EQ, "b", (True,)), Leaf(Op.GT, "id", (1,))
    assert bound(col("b")) == alone
    assert bound(~col("b")) == Leaf(Op.NE, "b", (True,))
    assert bound(col("b") & (col("id") > 1)) == And((alone, other))
    assert bound((col("id") > 1) | col("b")) == Or((other, alone))
    assert bound(col("b") | ~col("b")) == Or((alone, Leaf(Op.NE, "b", (True,))))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: col("nope") == 1, "no column 'nope'; the columns are id, b, ti"),
        (lambda: col("id") == "5", "str '5' is not a value for column 'id' of type INT; give a number"),
        (lambda: col("id") == True, "column 'id' is of type INT; only a BOOLEAN column is true, or a condition by itself$"),  # noqa: E712
        (lambda: col("id") != True, "bool True is not a value for column 'id' of type INT"),  # noqa: E712
        (lambda: col("id") == math.nan, "float nan is not a value for column 'id' of type INT"),
        (lambda: col("d") == Decimal("sNaN"), "Decimal Decimal\\('sNaN'\\) is not a value for column 'd' of type DOUBLE"),
        (lambda: col("ns") == np.datetime64(1, "ps"), "000000000001'\\) is not a value for column 'ns'"),
        (lambda: col("b") == 1, "int 1 is not a value for column 'b' of type BOOLEAN; give true or false"),
        (lambda: col("s") == 5, "int 5 is not a value for column 's' of type STRING; give text"),
        (lambda: col("s") == "\ud800", "half of a surrogate pair"),
        (lambda: col("by") == "x", "is not a value for column 'by' of type BYTES; give bytes"),
        (lambda: col("dt") == 5, "column 'dt' of type DATE; give a date"),
        (lambda: col("dt") == "2024-02-30", "there is no such day"),
        (lambda: col("dt") == "yesterday", "'yesterday' is not a date"),
        (lambda: col("t") == "25:00:00", "'25:00:00' is not a time of day"),
        (lambda: col("ts") == "2024-01-01 1:2:3 XX", "is not a timestamp"),
        (lambda: col("ts") == 5, "type TIMESTAMP\\(6\\); give a timestamp"),
        (lambda: col("r") == 5, "column 'r' is of type ROW<x INT>, whose values cannot be compared"),
        (lambda: col("a") == [1], "whose values cannot be compared"),
        (lambda: col("id").is_nan(), "only FLOAT and DOUBLE can be NaN"),
        (lambda: col("id").startswith("x"), "column 'id' is of type INT; startswith needs text"),
        (lambda: col("by").like("x"), "like needs text"),
        (lambda: col("s").like("a\\b"), "invalid escape sequence"),
        (lambda: col("s").like("a\\"), "invalid escape sequence"),
        (lambda: col("s").like("a!", escape="!"), "invalid escape sequence"),
        (lambda: col("s").like("a", escape="ab"), "must be one character"),
        (lambda: col("s").like(b"a%"), "the pattern of like must be text, not b'a%'"),
        (lambda: col("s").like("_" * 5000), "too long"),
        (lambda: col("s").array_contains("x"), "array_contains needs an ARRAY"),
        (lambda: col("a").array_contains("x"), r"column 'a \(element\)' of type TINYINT"),
        (lambda: col("id").isin("abc"), "give a list of values"),
        (lambda: col("id") == col("l"), "only be compared with a literal"),
        (lambda: (col("id") == 1) and (col("id") == 2), "join conditions with &"),
        (lambda: (col("id") == 1) & 5, "5 is not a condition"),
        (lambda: col("b") and col("id") == 2, "join conditions with &"),
        (lambda: not col("b"), "negate with ~"),
        (lambda: col("id"), "column 'id' is of type INT; only a BOOLEAN column is true, or a condition by itself$"),
        (lambda: ~col("id"), "only a BOOLEAN column is true"),
        (lambda: col("b") == True & (col("id") == 2), r"True is not a condition; each comparison beside & and \| stands in parentheses"),
        (lambda: col("id") == 1 | col("id") == 2, r"1 is not a condition; each comparison beside & and \| stands in parentheses"),  # type: ignore[operator]
        (lambda: col(5), "given by its name"),  # type: ignore[arg-type]
    ],
)
def test_what_does_not_fit_is_refused_with_a_reason(make: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        bound(make())
