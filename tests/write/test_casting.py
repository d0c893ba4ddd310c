"""Casts lose nothing, or say where they would."""

from __future__ import annotations

from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maintainer.data.arrow_types import arrow_field, to_arrow
from maintainer.data.values import to_arrow_array
from maintainer.errors import UsageError
from maintainer.model.types import DataField
from maintainer.write.casting import cast, holds_forbidden_null
from tests.support.builders import type_
from tests.support.strategies import data_types, values

LOSSLESS = [
    (pa.array([1, None], pa.int64()), "INT", [1, None]),
    (pa.array([1], pa.uint8()), "TINYINT", [1]),
    (pa.array([5], pa.int64()), "DECIMAL(20, 2)", [Decimal("5.00")]),
    (pa.array([1.25, None]), "DECIMAL(5, 2)", [Decimal("1.25"), None]),
    (pa.array(["-12.30", None]), "DECIMAL(10, 2)", [Decimal("-12.30"), None]),
    (pa.array([1.5]), "FLOAT", [1.5]),
    (pa.array([3]), "DOUBLE", [3.0]),
    (pa.array(["x"], pa.large_string()), "STRING", ["x"]),
    (pa.array(["x", None, "x"]).dictionary_encode(), "STRING", ["x", None, "x"]),
    (pa.array([b"ab"], pa.binary(2)), "BYTES", [b"ab"]),
    (pa.array(["2024-02-29"]), "DATE", [date(2024, 2, 29)]),
    (pa.array(["10:11:12.125", "23:59:59"]), "TIME(3)", [time(10, 11, 12, 125000), time(23, 59, 59)]),
    (pa.array(["2024-02-29 10:11:12.5"]), "TIMESTAMP(3)", [datetime(2024, 2, 29, 10, 11, 12, 500000)]),
    (pa.array([datetime(2024, 1, 1)], pa.timestamp("ns")), "TIMESTAMP(3)", [datetime(2024, 1, 1)]),
    (pa.array(["true", "false"]), "BOOLEAN", [True, False]),
    (pa.nulls(2), "ARRAY<INT>", [None, None]),
    (pa.array([[1, None], None, []], pa.large_list(pa.int64())), "ARRAY<INT>", [[1, None], None, []]),
    (pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int64(), 2)), "ARRAY<INT>", [[1, 2], None, [3, 4]]),
    (pa.array([{"b": 1, "a": "x"}, None]), "ROW<a STRING, b INT, c DOUBLE>", [{"a": "x", "b": 1, "c": None}, None]),
    (pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int64())), "MAP<STRING, INT>", [[("k", 1)], None, []]),
    (pa.array([[{"key": "k", "value": 1}]]), "MAP<STRING, INT>", [[("k", 1)]]),
    (pa.array([[("k", 2)]], pa.map_(pa.string(), pa.int64())), "MULTISET<STRING>", [[("k", 2)]]),
    (pa.array([[{"x": [1]}]]), "ARRAY<ROW<x ARRAY<BIGINT>>>", [[{"x": [1]}]]),
]


@pytest.mark.parametrize(("array", "target", "expected"), LOSSLESS, ids=lambda value: str(getattr(value, "type", value))[:40])
def test_a_value_that_fits_is_kept(array: pa.Array, target: str, expected: list[Any]) -> None:
    result = cast(array, to_arrow(type_(target)), "c")
    result.validate(full=True)
    assert result.type == to_arrow(type_(target))
    assert result.to_pylist() == expected


def test_slices_are_cast_from_where_they_start() -> None:
    array = pa.array([[1], [2, 3], None, [4]], pa.list_(pa.int64())).slice(1)
    assert cast(array, to_arrow(type_("ARRAY<INT>")), "c").to_pylist() == [[2, 3], None, [4]]
    pairs = pa.array([[("a", 1)], None, [("b", 2), ("c", None)]], pa.map_(pa.string(), pa.int64())).slice(1)
    assert cast(pairs, to_arrow(type_("MAP<STRING, INT>")), "c").to_pylist() == [None, [("b", 2), ("c", None)]]


LOSSY = [
    (pa.array([2**31]), "INT"),
    (pa.array([1.5]), "INT"),
    (pa.array([1.257]), "DECIMAL(5, 2)"),
    (pa.array([1.257], pa.float32()), "DECIMAL(5, 2)"),
    (pa.array([np.float16(1.1)]), "DECIMAL(5, 2)"),
    (pa.array(["1.257"]), "DECIMAL(5, 2)"),
    (pa.array([12345]), "DECIMAL(5, 2)"),
    (pa.array([1e300]), "FLOAT"),
    (pa.array([2**53 + 1]), "DOUBLE"),
    (pa.array([2]), "BOOLEAN"),
    (pa.array(["x"]), "INT"),
    (pa.array(["2024-13-01"]), "DATE"),
    (pa.array(["25:00:00"]), "TIME(3)"),
    (pa.array([1001], pa.timestamp("us")), "TIMESTAMP(3)"),
    (pa.array([1]), "ARRAY<INT>"),
    (pa.array([[1]]), "ROW<a INT>"),
    (pa.array([{"a": 1, "z": 2}]), "ROW<a INT>"),
    (pa.array([[1]]), "MAP<INT, INT>"),
]


@pytest.mark.parametrize(("array", "target"), LOSSY, ids=lambda value: str(getattr(value, "type", value))[:40])
def test_a_value_that_would_change_is_refused_by_the_name_of_its_column(array: pa.Array, target: str) -> None:
    with pytest.raises(UsageError, match="'price"):
        cast(array, to_arrow(type_(target)), "price")


@pytest.mark.parametrize("floating", [pa.float64(), pa.float32()], ids=str)
def test_every_amount_of_money_fits_a_decimal(floating: pa.DataType) -> None:
    amounts = pa.array(np.arange(100_000) / 100.0, floating)
    assert cast(amounts, pa.decimal128(12, 2), "c").to_pylist() == [Decimal(cents).scaleb(-2) for cents in range(100_000)]


def test_a_number_that_would_change_is_shown() -> None:
    with pytest.raises(UsageError, match=r"'c': cannot convert 1.257 to decimal128\(12, 2\)"):
        cast(pa.array([1.1, None, 1.257, 1.258]), pa.decimal128(12, 2), "c")
    for position in range(7):
        texts = pa.array(["1"] * position + ["x"] + ["y"] * (6 - position))
        with pytest.raises(UsageError, match="cannot convert 'x' to int64"):
            cast(texts, pa.int64(), "c")
    with pytest.raises(UsageError, match=r"cannot convert 1970-01-01 00:00:00.000000001 to timestamp\[ms\]"):
        cast(pa.array([0, 1], pa.timestamp("ns")), pa.timestamp("ms"), "c")
    with pytest.raises(UsageError, match="cannot convert bool to date32"):
        cast(pa.array([True]), pa.date32(), "c")


def test_the_error_names_the_member() -> None:
    with pytest.raises(UsageError, match=r"'c\.a\.element'"):
        cast(pa.array([{"a": ["x"]}]), to_arrow(type_("ROW<a ARRAY<INT>>")), "c")


@pytest.mark.parametrize(
    ("target", "found", "forbidden"),
    [
        ("INT NOT NULL", [1, None], True),
        ("ARRAY<INT NOT NULL>", [[1], None], False),
        ("ARRAY<INT NOT NULL>", [[1, None]], True),
        ("ROW<a INT NOT NULL>", [{"a": 1}, None], False),
        ("ROW<a INT NOT NULL>", [{"a": None}], True),
        ("MAP<STRING, INT NOT NULL>", [[("k", None)]], True),
        ("MAP<STRING, INT NOT NULL>", [[("k", 1)], None], False),
        ("ARRAY<ROW<a ARRAY<INT NOT NULL>>>", [[{"a": [None]}]], True),
    ],
)
def test_nulls_are_found_at_every_depth_but_not_below_a_null(target: str, found: list[Any], forbidden: bool) -> None:
    field = arrow_field(DataField(0, "c", type_(target)), with_ids=False)
    nullable = arrow_field(DataField(0, "c", type_(target.replace(" NOT NULL", ""))), with_ids=False)
    array = cast(pa.array(found, nullable.type), field.type, "c")
    assert holds_forbidden_null(array, field) is forbidden


@given(data=st.data())
def test_values_of_the_type_itself_pass_unchanged(data: st.DataObject) -> None:
    data_type = data.draw(data_types())
    column = data.draw(st.lists(values(data_type), max_size=5))
    array = to_arrow_array(column, data_type)
    result = cast(array, to_arrow(data_type), "c")
    assert result.equals(array) or repr(result.to_pylist()) == repr(array.to_pylist())
    assert not holds_forbidden_null(result, arrow_field(DataField(0, "c", data_type), with_ids=False))
