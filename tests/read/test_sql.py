from __future__ import annotations

import contextlib
import math
import random
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maintainer.errors import UsageError
from maintainer.model.predicate import And, Leaf, Op, Or, Predicate
from maintainer.read.sql import parse_predicate
from tests.support.builders import schema

SCHEMA = schema(
    {
        "id": "INT",
        "a": "INT",
        "b": "BOOLEAN",
        "d": "DOUBLE",
        "dec": "DECIMAL(10, 2)",
        "s": "STRING",
        "by": "BYTES",
        "dt": "DATE",
        "t": "TIME(3)",
        "ts": "TIMESTAMP(9)",
        "ltz": "TIMESTAMP(3) WITH LOCAL TIME ZONE",
        "tags": "ARRAY<STRING>",
        "nums": "ARRAY<INT>",
        "we`ird name": "INT",
        "order": "INT",
        "date": "INT",
        "x.y": "INT",
    }
)


def parsed(sql: str) -> Predicate:
    return parse_predicate(sql, SCHEMA)


@pytest.mark.parametrize(
    ("sql", "predicate"),
    [
        ("a = 1", Leaf(Op.EQ, "a", (1,))),
        ("a == 1", Leaf(Op.EQ, "a", (1,))),
        ("a <> -1", Leaf(Op.NE, "a", (-1,))),
        ("a != 1", Leaf(Op.NE, "a", (1,))),
        ("a < 1", Leaf(Op.LT, "a", (1,))),
        ("1 < a", Leaf(Op.GT, "a", (1,))),
        ("a <= 1", Leaf(Op.LE, "a", (1,))),
        ("a >= +1", Leaf(Op.GE, "a", (1,))),
        ("(a) = (1)", Leaf(Op.EQ, "a", (1,))),
        ("a = NULL", Leaf(Op.EQ, "a", (None,))),
        ("a IN (1, 2, NULL)", Leaf(Op.IN, "a", (1, 2, None))),
        ("a NOT IN (1)", Leaf(Op.NOT_IN, "a", (1,))),
        ("a in ()", Leaf(Op.IN, "a", ())),
        ("a BETWEEN 1 AND 2", Leaf(Op.BETWEEN, "a", (1, 2))),
        ("a NOT BETWEEN 1 AND 2", Leaf(Op.NOT_BETWEEN, "a", (1, 2))),
        ("a IS NULL", Leaf(Op.IS_NULL, "a")),
        ("a IS NOT NULL", Leaf(Op.IS_NOT_NULL, "a")),
        ("NOT a IS NULL", Leaf(Op.IS_NOT_NULL, "a")),
        ("b", Leaf(Op.EQ, "b", (True,))),
        ("NOT b", Leaf(Op.NE, "b", (True,))),
        ("b = false", Leaf(Op.EQ, "b", (False,))),
        ("s = 'it''s'", Leaf(Op.EQ, "s", ("it's",))),
        ("s = 'a\\n'", Leaf(Op.EQ, "s", ("a\\n",))),
        ("s = ''", Leaf(Op.EQ, "s", ("",))),
        ("s = '😀' -- a comment", Leaf(Op.EQ, "s", ("😀",))),
        ("s LIKE 'a\\%%'", Leaf(Op.LIKE, "s", ("a\\%%",))),
        ("s LIKE 'a!%\\' ESCAPE '!'", Leaf(Op.LIKE, "s", ("a\\%\\\\",))),
        ("s LIKE 'a\\_b' ESCAPE '\\'", Leaf(Op.LIKE, "s", ("a\\_b",))),
        ("s NOT LIKE 'a%'", Leaf(Op.LIKE, "s", ("a%",), negated=True)),
        ("s NOT LIKE 'a!_' ESCAPE '!'", Leaf(Op.LIKE, "s", ("a\\_",), negated=True)),
        ("NOT s NOT LIKE 'a%'", Leaf(Op.LIKE, "s", ("a%",))),
        ("isnan(d)", Leaf(Op.IS_NAN, "d")),
        ("NOT isnan(d)", Leaf(Op.IS_NAN, "d", negated=True)),
        ("startswith(s, 'x')", Leaf(Op.STARTS_WITH, "s", ("x",))),
        ("ENDSWITH(s, 'x')", Leaf(Op.ENDS_WITH, "s", ("x",))),
        ("contains(by, X'ff00')", Leaf(Op.CONTAINS, "by", (b"\xff\x00",))),
        ("array_contains(tags, 'x')", Leaf(Op.ARRAY_CONTAINS, "tags", ("x",))),
        ("arrays_overlap(nums, array(1, NULL))", Leaf(Op.ARRAYS_OVERLAP, "nums", (1, None))),
        ("arrays_overlap(array(1), nums)", Leaf(Op.ARRAYS_OVERLAP, "nums", (1,))),
        ("array_contains_all(nums, array(1, 2))", Leaf(Op.ARRAY_CONTAINS_ALL, "nums", (1, 2))),
        ("NOT array_contains_all(nums, array())", Leaf(Op.ARRAY_CONTAINS_ALL, "nums", (), negated=True)),
        ("dt = DATE '1970-01-02'", Leaf(Op.EQ, "dt", (1,))),
        ("t = TIME '00:00:01.5'", Leaf(Op.EQ, "t", (1500,))),
        ("ts = TIMESTAMP '1970-01-01 00:00:00.000000001'", Leaf(Op.EQ, "ts", (1,))),
        ("ltz > TIMESTAMP '1970-01-01 00:00:01'", Leaf(Op.GT, "ltz", (10**9,))),
        ("by = X'0aFF'", Leaf(Op.EQ, "by", (b"\x0a\xff",))),
        ("by = x''", Leaf(Op.EQ, "by", (b"",))),
        ("s = X'c3a9'", Leaf(Op.EQ, "s", ("é",))),
        ("dec > 1.5", Leaf(Op.GT, "dec", (Decimal("1.50"),))),
        ("dec = -1e1", Leaf(Op.EQ, "dec", (Decimal("-10.00"),))),
        ("d = 1e-3", Leaf(Op.EQ, "d", (0.001,))),
        ("d = CAST('-Infinity' AS DOUBLE)", Leaf(Op.EQ, "d", (-math.inf,))),
        ("d = CAST(1 AS DOUBLE)", Leaf(Op.EQ, "d", (1.0,))),
        ("a = 5L", Leaf(Op.EQ, "a", (5,))),
        ("`we``ird name` = 1", Leaf(Op.EQ, "we`ird name", (1,))),
        ("`order` = 1 AND date = 2", And((Leaf(Op.EQ, "order", (1,)), Leaf(Op.EQ, "date", (2,))))),
        ("`x.y` = 1", Leaf(Op.EQ, "x.y", (1,))),
        ("a = 1 OR a = 2 AND d = 3", Or((Leaf(Op.EQ, "a", (1,)), And((Leaf(Op.EQ, "a", (2,)), Leaf(Op.EQ, "d", (3.0,))))))),
        ("NOT (a = 1 OR s LIKE 'x_')", And((Leaf(Op.NE, "a", (1,)), Leaf(Op.LIKE, "s", ("x_",), negated=True)))),
        ("contains(s, 'x') = FALSE", Leaf(Op.CONTAINS, "s", ("x",), negated=True)),
        ("TRUE", And(())),
        ("a = 1 AND FALSE", And((Leaf(Op.EQ, "a", (1,)), Or(())))),
        ("NOT NULL", Or(())),
    ],
)
def test_conditions(sql: str, predicate: Predicate) -> None:
    assert parsed(sql) == predicate


def test_nan_and_minus_zero_can_be_said() -> None:
    nan = parsed("d = CAST('NaN' AS DOUBLE)")
    zeros = parsed("d IN (-0.0, -0, 0.0, CAST('-0.0' AS DOUBLE))")
    assert isinstance(nan, Leaf) and isinstance(zeros, Leaf)
    assert math.isnan(nan.literal)
    assert [math.copysign(1, value) for value in zeros.literals] == [-1, -1, 1, -1]


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("", "a condition is needed"),
        ("   ", "a condition is needed"),
        ("a = ", "cannot be parsed: something is missing beside '=' in line 1, column 3$"),
        ("a = 1 LIMIT 5", "cannot be parsed: unexpected 'LIMIT' in line 1, column 7; a condition is only what stands after WHERE$"),
        ("a = 1 ORDER BY b", "unexpected 'ORDER BY' in line 1, column 7; a condition is only what stands after WHERE$"),
        ("SELECT * FROM t WHERE a = 1", "unexpected 'SELECT' in line 1, column 1; a condition is only what stands after WHERE$"),
        ("a = 1 a", "unexpected 'a' in line 1, column 7$"),
        ("(s='new'", r"expecting \) beside \"'new'\" in line 1, column 4$"),
        ("(a = 1", r"cannot be parsed: expecting \) beside '1' in line 1, column 6$"),
        ("a = 'open", "cannot be parsed: a quote is not closed: '$"),
        ("/* open", "cannot be parsed: it ends in the middle of a literal or comment$"),
        ("s = X'0g'", "cannot be parsed: X'…' holds hexadecimal digits, two for each byte$"),
        ("a = 1; a = 2", "not one condition"),
        ("DROP TABLE x", "cannot be parsed|not supported|not one"),
        ("a IN (SELECT 1)", "is not supported"),
        ("a = d", "'d' is a column"),
        ("a + 1 = 2", "does not compare a column with a literal"),
        ("1 = 1", "does not compare a column with a literal"),
        ("s RLIKE 'x'", "'s RLIKE \\\\'x\\\\'' is not supported|is not supported"),
        ("s ILIKE 'x'", "is not supported"),
        ("a <=> 1", "is not supported"),
        ("upper(s) = 'X'", "does not compare a column"),
        ("s LIKE d", "is a column"),
        ("s LIKE 5", "must be text"),
        ("s LIKE ANY ('a', 'b')", "not"),
        ("s LIKE 'a\\b'", "invalid escape"),
        ("s LIKE 'a' ESCAPE 'xy'", "one character"),
        ("a IS TRUE", r"only IS \[NOT\] NULL is supported \(a BOOLEAN column alone is a condition: c, or NOT c\)$"),
        ("a IS NOT FALSE", r"only IS \[NOT\] NULL is supported \(a BOOLEAN"),
        ("year(ts) = 2026", r"nothing is computed from columns.*; a range does: c >= '2026-01-01' AND c < '2027-01-01'\)$"),
        ("CAST(ts AS DATE) = '2026-01-01'", "a range does"),
        ("upper(s) = 'X'", r"\(nothing is computed from columns, and literals are only written down\)$"),
        ("frobnicate(a)", "is not supported; a condition may use =, "),
        ("tags = 'x'", "cannot be compared; its elements are tested by array_contains, arrays_overlap and array_contains_all$"),
        ("startswith(s)", "startswith takes 2 arguments|cannot be parsed"),
        ("array_contains(tags, 'x', 'y')", "takes 2 arguments|is not supported"),
        ("arrays_overlap(tags, 'x')", "takes a column and array"),
        ("frobnicate(a)", "is not supported"),
        ("x.y = 1", "only top-level columns can be tested, without the name of a table"),
        ("nope = 1", "there is no column 'nope'; the columns are id, a, b"),
        ("A = 1", "there is no column 'A'; did you mean a[?] The columns are id, a, b"),
        ("tag = 1", "there is no column 'tag'; did you mean tags[?] "),
        ("contain(s, 'x')", "is not supported; did you mean contains[?]$"),
        ("s ILIKE 'x'", "is not supported; LIKE heeds the case$"),
        ("a IN (SELECT 1)", "a condition is about the columns of one table"),
        ("length(s) > 1", r"does not compare a column with a literal \(nothing is computed from columns"),
        ("'a' = 1", r"\(a name stands in backticks, not in quotes\)"),
        ("ts > now()", r"'NOW\(\)' is not a literal \(nothing is computed"),
        ("s = DATE '2024-01-31'", "^DATE '2024-01-31' is not a value for column 's' of type STRING; give text$"),
        ("d = 'NaN'", r"give a number \(in SQL also CAST\('NaN' AS DOUBLE\)\)$"),
        ("s = X'ff'", "are not UTF-8"),
        ("a = 'x'", "str 'x' is not a value for column 'a' of type INT"),
        ("dt = DATE '2024-13-01'", "no such day"),
        ("dt = DATE 'x'", "is not a date"),
        ("ts = TIMESTAMP 'x'", "is not a timestamp"),
        ("t = TIME '99:00'", "not a time"),
        ("by = X'0g'", "hex|parsed"),
        ("a = ?", "is not a literal"),
        ("a = :name", "is not a literal"),
        ("d = CAST('x' AS DOUBLE)", "is not a number"),
        ("d = CAST(a AS DOUBLE)", "is a column"),
        ("a = CAST('1' AS INTERVAL)", "not supported|parsed"),
        ("-s = 'x'", "does not compare"),
        ("s = -'x'", "not a number"),
        ("CASE WHEN a = 1 THEN TRUE END", "not supported"),
        ("a = 1 AND", "cannot be parsed"),
        ('"a" = 1', "does not compare a column with a literal"),
    ],
)
def test_everything_else_is_a_usage_error(sql: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parsed(sql)


@pytest.mark.parametrize(
    "opening", ["(", "NOT ", "(NOT ", "- ", "CASE WHEN ", "a IN (", "f(", "a[", "CAST(", "array(", "EXISTS ", "a = 1 AND (b OR "]
)
def test_deep_nesting_is_refused(opening: str) -> None:
    for times in (40, 20_000):
        with pytest.raises(UsageError):
            parsed(opening * times + "a = 1")
        if opening == "(":
            with pytest.raises(UsageError, match="nested too deeply"):
                parsed("(" * times + "a = 1" + ")" * times)


def test_long_chains_and_lists_are_fine() -> None:
    chain = parsed(" OR ".join(f"a = {i}" for i in range(2_000)))
    assert isinstance(chain, Or) and len(chain.children) == 2_000
    many = parsed(f"a IN ({', '.join(map(str, range(5_000)))})")
    assert isinstance(many, Leaf) and many.literals == tuple(range(5_000))


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=20))
def test_any_text_can_be_quoted(text: str) -> None:
    quoted = text.replace("'", "''")
    assert parsed(f"s = '{quoted}'") == Leaf(Op.EQ, "s", (text,))


WORDS = [
    "a",
    "s",
    "1",
    "'x'",
    "=",
    "<",
    "(",
    ")",
    ",",
    "AND",
    "OR",
    "NOT",
    "IN",
    "LIKE",
    "IS",
    "NULL",
    "BETWEEN",
    "CAST",
    "AS",
    "DATE",
    "X'00'",
    "-",
    ".",
    "[",
    "::",
]


def test_of_many_columns_some_are_named() -> None:
    wide = schema({"id": "INT", **{f"column_{i}": "INT" for i in range(200)}})
    with pytest.raises(UsageError, match=r"did you mean column_77 or column_\d+\? The columns are id, .*column_48 and 151 more$"):
        parse_predicate("Colum_77 = 1", wide)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
def test_nonsense_is_a_predicate_or_a_usage_error(seed: int) -> None:
    source = random.Random(seed)
    for _ in range(5):
        sql = " ".join(source.choices(WORDS, k=source.randrange(1, 14)))
        with contextlib.suppress(UsageError):
            assert isinstance(parsed(sql), Leaf | And | Or)
