"""Key order of whole columns against the order of single values (`maintainer.model.values`)."""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maintainer.data.values import to_arrow_array
from maintainer.errors import CorruptFile
from maintainer.merge import order
from maintainer.merge.order import Keys
from maintainer.model.types import DataType
from maintainer.model.values import order_keys
from tests.support import strategies
from tests.support.builders import type_, types

Rows = list[tuple[Any, ...]]


def columns_of(rows: Rows, key_types: Sequence[DataType], cuts: Sequence[int] = ()) -> list[pa.ChunkedArray]:
    """Key columns in chunks, each a slice of a longer array."""
    columns = []
    for index, data_type in enumerate(key_types):
        array = to_arrow_array([row[index] for row in [rows[0], *rows]] if rows else [], data_type).slice(1)
        bounds = [0, *sorted(cut % (len(rows) + 1) for cut in cuts), len(rows)]
        columns.append(pa.chunked_array([array.slice(a, b - a) for a, b in itertools.pairwise(bounds)], array.type))
    return columns


@st.composite
def keyed_rows(draw: st.DrawFn, max_size: int = 40) -> tuple[tuple[DataType, ...], Rows]:
    """Key types, and rows of which many are equal in some columns or in all."""
    key_types = tuple(draw(st.lists(strategies.key_types(), min_size=1, max_size=3)))
    pools = [draw(st.lists(strategies.values(data_type), min_size=1, max_size=6)) for data_type in key_types]
    row = st.tuples(*(st.sampled_from(pool) | strategies.values(t) for pool, t in zip(pools, key_types, strict=True)))
    return key_types, draw(st.lists(row, max_size=max_size))


def model_order(rows: Rows) -> tuple[list[int], list[int]]:
    ordered = sorted(range(len(rows)), key=lambda index: order_keys(rows[index]))
    keys = [order_keys(rows[index]) for index in ordered]
    return ordered, [index for index, key in enumerate(keys) if index == 0 or key != keys[index - 1]]


@given(keyed_rows(), st.lists(st.integers(0, 100), max_size=3))
def test_rows_are_ordered_stably_and_grouped_like_single_values(case: tuple[tuple[DataType, ...], Rows], cuts: list[int]) -> None:
    key_types, rows = case
    ordered, starts = order.sort_groups(columns_of(rows, key_types, cuts), key_types)
    assert (ordered.tolist(), starts.tolist()) == model_order(rows)


@given(keyed_rows(max_size=8), st.booleans())
def test_strictly_ascending_is_what_single_values_say(case: tuple[tuple[DataType, ...], Rows], distinct: bool) -> None:
    key_types, rows = case
    if distinct:
        rows = [rows[index] for index in np.array(model_order(rows)[0], int)[model_order(rows)[1]].tolist()]
    keys = [order_keys(row) for row in rows]
    expected = all(before < after for before, after in itertools.pairwise(keys))
    assert Keys.of(columns_of(rows, key_types), key_types).ascending() == expected
    assert expected or not distinct


@given(keyed_rows(), st.data())
def test_searching_finds_where_a_key_belongs(case: tuple[tuple[DataType, ...], Rows], data: st.DataObject) -> None:
    key_types, rows = case
    rows = [rows[index] for index in model_order(rows)[0]]
    wanted = data.draw(st.tuples(*map(strategies.values, key_types)) | (st.sampled_from(rows) if rows else st.nothing()))
    keys = [order_keys(row) for row in rows]
    columns = columns_of(rows, key_types)
    ours, sought = Keys.of(columns, key_types), order.comparable(wanted, key_types)
    assert ours.search(sought, "left") == bisect_left(keys, order_keys(wanted))
    assert ours.search(sought, "right") == bisect_right(keys, order_keys(wanted))


@given(keyed_rows(), st.integers(0, 40))
def test_slicing_taking_and_concatenating_keys_keeps_them(case: tuple[tuple[DataType, ...], Rows], cut: int) -> None:
    key_types, rows = case
    keys = Keys.of(columns_of(rows, key_types), key_types)
    expected = [order.comparable(row, key_types) for row in rows]
    cut = min(cut, len(rows))
    again = Keys.concat([keys.slice(0, cut), keys.slice(cut, len(rows))])
    assert [again.at(index) for index in range(len(again))] == expected
    odd = keys.take(np.arange(len(rows)) % 2 == 1)
    assert [odd.at(index) for index in range(len(odd))] == expected[1::2]


@pytest.mark.parametrize(
    ("kind", "ascending"),
    [
        ("BOOLEAN", [False, True]),
        ("TINYINT", [-128, -1, 0, 127]),
        ("BIGINT", [-(2**63), -1, 0, 2**63 - 1]),
        ("FLOAT", [-float("inf"), -1.5, -0.0, 0.0, 1e-45, float("inf"), float("nan")]),
        ("DOUBLE", [-float("inf"), -1.5, -0.0, 0.0, 5e-324, float("inf"), float("nan")]),
        ("DECIMAL(10, 2)", [Decimal("-99999999.99"), Decimal("-0.01"), Decimal(0), Decimal("0.01")]),
        ("DECIMAL(38, 10)", [Decimal("-1e27"), Decimal(-1), Decimal("-1e-10"), Decimal(0), Decimal("1e-10"), Decimal(2**63), Decimal("1e27")]),
        ("STRING", ["", "a", "a\0", "a\0\0", "aa", "b", "\ue000", "\uffff", "😀"]),
        ("STRING", ["0123456", "01234560", "01234561", "0123457", "x" * 7, "x" * 8, "x" * 14, "x" * 15]),
        ("BYTES", [b"", b"\0", b"\0\0", b"\x7f", b"\x80", b"\xff", b"\xff\xff"]),
        ("TIMESTAMP(3)", [-1_000_000, 0, 1_000_000]),
        ("TIMESTAMP(9)", [-1, 0, 1]),
        ("TIMESTAMP(6) WITH LOCAL TIME ZONE", [-1_000, 0, 1_000]),
        ("TIME(3)", [0, 1, 86_399_999]),
    ],
)
def test_order_of_a_type(kind: str, ascending: list[Any]) -> None:
    column = [to_arrow_array(ascending[::-1], type_(kind))]
    assert order.sort_groups(column, types(kind))[0].tolist() == list(range(len(ascending)))[::-1]
    assert Keys.of([to_arrow_array(ascending, type_(kind))], types(kind)).ascending()


def test_every_nan_is_the_same_key() -> None:
    negative, payload = np.array([0xFFF8000000000000, 0x7FF8000000000001], np.uint64).view(np.float64)
    _, starts = order.sort_groups([pa.array([negative, payload, float("nan")])], types("DOUBLE"))
    assert starts.tolist() == [0]


def test_values_that_share_long_prefixes_and_differ_late() -> None:
    """More words than are tried one by one, in groups of their own, equal values among them."""
    random = np.random.default_rng(1)
    values = [f"{'abc'[i % 3]}{'/very/long/way' * 20}/{random.integers(0, 40)}" for i in range(500)]
    ordered, starts = order.sort_groups([pa.array(values)], types("STRING"))
    assert (ordered.tolist(), starts.tolist()) == model_order([(value,) for value in values])


def test_keys_wider_than_a_word_in_every_column() -> None:
    random = np.random.default_rng(2)
    pools = [random.integers(-(2**63), 2**63 - 1, 3) for _ in range(3)]
    rows = [tuple(int(pool[random.integers(0, 3)]) for pool in pools) for _ in range(300)]
    columns = [pa.array(list(column)) for column in zip(*rows, strict=True)]
    ordered, starts = order.sort_groups(columns, types("BIGINT", "BIGINT", "BIGINT"))
    assert (ordered.tolist(), starts.tolist()) == model_order(rows)


@pytest.mark.parametrize("top", [1, 1000, 2**16, 2**40, 2**63 - 1], ids=str)
def test_a_stable_sort_by_whichever_way_is_the_fastest(top: int) -> None:
    random = np.random.default_rng(3)
    words = random.integers(-top, top, 20_000)
    runs = np.concatenate([np.sort(part) for part in np.split(words, 4)])
    for case in (words, runs, np.sort(words), words[:1], words[:0]):
        assert order.stable_argsort(case).tolist() == sorted(range(len(case)), key=case.tolist().__getitem__)


def test_a_dictionary_of_strings_sorts_by_its_values() -> None:
    column = pa.array(["b", "a", "b"]).dictionary_encode()
    assert order.sort_groups([column], types("STRING"))[0].tolist() == [1, 0, 2]


def test_a_null_in_a_key_is_corrupt() -> None:
    with pytest.raises(CorruptFile, match="null"):
        order.sort_groups([pa.array([1, None])], types("BIGINT"))
