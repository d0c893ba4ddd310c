"""Rows of whole columns are, byte for byte, the rows that are encoded one by one."""

from __future__ import annotations

from decimal import Decimal
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maintainer.data.values import to_arrow_array
from maintainer.format import binary_row
from maintainer.format.binary_row_columns import encode_columns
from maintainer.model.types import DataType
from tests.support import strategies
from tests.support.builders import types

Rows = list[tuple[Any, ...]]


def bodies(arrays: list[Any], kinds: tuple[DataType, ...]) -> list[bytes]:
    data, offsets = encode_columns(arrays, kinds)
    assert offsets[0] == 0
    assert offsets[-1] == len(data)
    return [data[start:end].tobytes() for start, end in pairwise(offsets)]


@st.composite
def tables(draw: st.DrawFn) -> tuple[tuple[DataType, ...], Rows]:
    kinds = tuple(draw(st.lists(strategies.scalar_types(), min_size=1, max_size=4)))
    return kinds, draw(st.lists(strategies.rows(kinds), max_size=20))


@given(tables(), st.integers(0, 3))
def test_equal_to_rows_encoded_one_by_one(table: tuple[tuple[DataType, ...], Rows], skipped: int) -> None:
    kinds, rows = table
    expected = [binary_row.encode_row(row, kinds) for row in rows]
    columns = [to_arrow_array([row[index] for row in rows], kind) for index, kind in enumerate(kinds)]
    assert bodies(columns, kinds) == expected
    assert bodies([column[skipped:] for column in columns], kinds) == expected[skipped:]
    assert bodies([pa.chunked_array([column[:2], column[2:]]) for column in columns], kinds) == expected


def test_wide_rows() -> None:
    kinds = types("INT") * 60
    rows = [tuple(range(60)), (None,) * 60, (*range(55), None, None, 1, None, 2)]
    columns = [to_arrow_array([row[index] for row in rows], kind) for index, kind in enumerate(kinds)]
    assert bodies(columns, kinds) == [binary_row.encode_row(row, kinds) for row in rows]


@pytest.mark.parametrize("size", [0, 1, 6, 7, 8, 9, 15, 16, 17, 64, 1000])
def test_texts_around_the_borders_of_words(size: int) -> None:
    texts = ["a" * size, None, "é" * (size // 2), "", "b" * (size + 1)]
    kinds = types("STRING", "INT", "STRING")
    rows = [(text, 1, other) for text, other in zip(texts, reversed(texts), strict=True)]
    columns = [pa.array([row[index] for row in rows], kind) for index, kind in enumerate([pa.string(), pa.int32(), pa.string()])]
    assert bodies(columns, kinds) == [binary_row.encode_row(row, kinds) for row in rows]


@pytest.mark.parametrize("arrow_type", [pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())])
def test_other_arrow_layouts_of_a_text(arrow_type: pa.DataType) -> None:
    texts = ["a", None, "longer than a slot", "a"]
    array = pa.array(texts).cast(arrow_type)
    assert bodies([array], types("STRING")) == [binary_row.encode_row([text], types("STRING")) for text in texts]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("text", ["TIMESTAMP(0)", "TIMESTAMP(3)", "TIMESTAMP(6)", "TIMESTAMP(9) WITH LOCAL TIME ZONE"])
def test_timestamps_of_every_unit(unit: str, text: str) -> None:
    nanos = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}[unit]
    numbers = [0, -1, 1_234_567, None, -1_234_567]
    expected = [binary_row.encode_row([None if n is None else n * nanos], types(text)) for n in numbers]
    assert bodies([pa.array(numbers, pa.timestamp(unit))], types(text)) == expected


def test_decimals_at_every_length_of_their_bytes() -> None:
    kinds = types("DECIMAL(38, 0)")
    numbers = [sign * (2**bits + delta) for bits in range(126) for sign in (1, -1) for delta in (-1, 0, 1)]
    array = to_arrow_array([Decimal(number) for number in numbers], kinds[0])
    assert bodies([array], kinds) == [binary_row.encode_row([Decimal(number)], kinds) for number in numbers]


def test_no_rows() -> None:
    assert bodies([pa.array([], pa.string()), pa.array([], pa.int32())], types("STRING", "INT")) == []


def test_nested_types_and_wrong_widths_are_refused() -> None:
    with pytest.raises(ValueError, match="not a scalar type"):
        encode_columns([pa.array([[1]])], types("ARRAY<INT>"))
    with pytest.raises(ValueError, match="int64 for INT"):
        encode_columns([pa.array([1])], types("INT"))
