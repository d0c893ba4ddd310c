from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maintainer.data.values import to_arrow_array
from maintainer.model.predicate import And, Leaf, Op, Or, Predicate
from maintainer.read.residual import evaluate, mask
from tests.support.campaign import share
from tests.support.predicates import PATTERNS, SCHEMA, WORDS, holds, like, predicates, rows

ROUNDS = share("residual against the model", short=250, long=20_000)


def column(name: str, values: Sequence[Any]) -> pa.Table:
    return pa.table({name: to_arrow_array(values, SCHEMA.field(name).type)})


def selected(predicate: Predicate, name: str, values: Sequence[Any]) -> list[Any]:
    chosen = mask(predicate, column(name, values), SCHEMA)
    return [value for value, keep in zip(values, chosen, strict=True) if keep]


@settings(max_examples=ROUNDS, deadline=None)
@given(st.data(), st.lists(st.sampled_from(SCHEMA.names), min_size=1, max_size=3, unique=True))
def test_rows_are_selected_as_in_the_model(data: st.DataObject, names: list[str]) -> None:
    values, predicate = data.draw(rows(names)), data.draw(predicates(names))
    table = pa.table({name: to_arrow_array([row[name] for row in values], SCHEMA.field(name).type) for name in names})
    found = evaluate(predicate, table, SCHEMA)
    assert found.null_count == 0
    assert found.to_pylist() == [holds(predicate, row) for row in values]


def test_chunks_and_slices_are_evaluated_by_position() -> None:
    table = pa.concat_tables([column("i", [1, None, 2]), column("i", []), column("i", [2, 3])]).slice(1)
    assert mask(Leaf(Op.EQ, "i", (2,)), table, SCHEMA).tolist() == [False, True, True, False]
    arrays = pa.concat_tables([column("ai", [[1], None, [2, None]]), column("ai", [[], [2]])]).slice(1)
    assert mask(Leaf(Op.ARRAY_CONTAINS, "ai", (2,)), arrays, SCHEMA).tolist() == [False, True, False, True]
    assert mask(Leaf(Op.ARRAY_CONTAINS, "ai", (2,), negated=True), arrays, SCHEMA).tolist() == [False, False, True, False]


def test_dictionary_encoded_text_is_evaluated_as_text() -> None:
    table = pa.table({"s": pa.array(["b", None, "a"]).dictionary_encode()})
    assert mask(Leaf(Op.GE, "s", ("b",)), table, SCHEMA).tolist() == [True, False, False]


def test_nan_equals_nan_and_is_above_infinity() -> None:
    nan, inf = float("nan"), float("inf")
    other_nan = pa.table({"d": pa.array([0xFFF8000000000001], pa.uint64()).view(pa.float64())})
    assert mask(Leaf(Op.EQ, "d", (nan,)), other_nan, SCHEMA).tolist() == [True]
    assert mask(Leaf(Op.GT, "d", (inf,)), column("d", [nan, inf, None]), SCHEMA).tolist() == [True, False, False]
    assert mask(Leaf(Op.NE, "d", (nan,)), column("d", [nan, 1.0, None]), SCHEMA).tolist() == [False, True, False]


def test_minus_zero_is_below_zero() -> None:
    for name in ("f", "d"):
        assert mask(Leaf(Op.LT, name, (0.0,)), column(name, [-0.0, 0.0]), SCHEMA).tolist() == [True, False]
        assert mask(Leaf(Op.IN, name, (0.0,)), column(name, [-0.0, 0.0]), SCHEMA).tolist() == [False, True]


def test_text_compares_by_its_bytes_and_not_by_utf16_units() -> None:
    assert selected(Leaf(Op.GT, "s", ("\uffff",)), "s", ["😀", "\uffff", "z"]) == ["😀"]


@pytest.mark.parametrize(
    ("predicate", "expected"),
    [
        (Leaf(Op.EQ, "i", (None,)), []),
        (Leaf(Op.NE, "i", (None,)), []),
        (Leaf(Op.IN, "i", ()), []),
        (Leaf(Op.IN, "i", (None,)), []),
        (Leaf(Op.NOT_IN, "i", ()), [1, 2]),
        (Leaf(Op.NOT_IN, "i", (1, None)), []),
        (And((Leaf(Op.IS_NULL, "i"), Leaf(Op.IS_NOT_NULL, "i"))), []),
        (Leaf(Op.NE, "i", (1,)), [2]),
        (Leaf(Op.BETWEEN, "i", (2, 1)), []),
        (Leaf(Op.NOT_BETWEEN, "i", (2, 1)), [1, 2]),
        (And(()), [1, None, 2]),
        (Or(()), []),
    ],
)
def test_nulls_and_empty_lists(predicate: Predicate, expected: list[Any]) -> None:
    assert selected(predicate, "i", [1, None, 2]) == expected


@pytest.mark.parametrize("negated", [False, True])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_like(pattern: str, negated: bool) -> None:
    leaf = Leaf(Op.LIKE, "s", (pattern,), negated)
    assert selected(leaf, "s", [*WORDS, None]) == [word for word in WORDS if like(word, pattern) != negated]


def test_like_one_character_is_not_the_end_of_a_line_but_any_text_is() -> None:
    words = ["a\nb", "a\rb", "a\x85b", "a\u2028b", "a\u2029b", "a\tb", "a😀b"]
    assert selected(Leaf(Op.LIKE, "s", ("a_b",)), "s", words) == ["a\tb", "a😀b"]
    assert selected(Leaf(Op.LIKE, "s", ("a%b",)), "s", words) == words
    assert selected(Leaf(Op.LIKE, "s", ("a_",)), "s", ["ab\n", "ab"]) == ["ab"]


@pytest.mark.parametrize(
    ("leaf", "expected"),
    [
        (Leaf(Op.ARRAY_CONTAINS, "ai", (1,)), [[1], [1, None], [1, 2, 1]]),
        (Leaf(Op.ARRAY_CONTAINS, "ai", (1,), True), [[], [2]]),
        (Leaf(Op.ARRAY_CONTAINS, "ai", (None,)), []),
        (Leaf(Op.ARRAYS_OVERLAP, "ai", (1, None)), [[1], [1, None], [1, 2, 1]]),
        (Leaf(Op.ARRAYS_OVERLAP, "ai", ()), []),
        (Leaf(Op.ARRAYS_OVERLAP, "ai", (1, None), True), [[]]),
        (Leaf(Op.ARRAY_CONTAINS_ALL, "ai", (1, 2, 1)), [[1, 2, 1]]),
        (Leaf(Op.ARRAY_CONTAINS_ALL, "ai", (1, None)), []),
        (Leaf(Op.ARRAY_CONTAINS_ALL, "ai", ()), [[], [1], [2], [1, None], [None], [1, 2, 1]]),
        (Leaf(Op.ARRAY_CONTAINS_ALL, "ai", (1, 2), True), [[], [1], [2]]),
        (Leaf(Op.IS_NULL, "ai"), [None]),
    ],
)
def test_arrays(leaf: Leaf, expected: list[Any]) -> None:
    assert selected(leaf, "ai", [None, [], [1], [2], [1, None], [None], [1, 2, 1]]) == expected
