from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maintainer.data import values
from maintainer.model.files import EMPTY_ROW
from maintainer.model.types import DataField, DataType
from tests.support import builders, strategies

typed = strategies.data_types(variants=True).flatmap(lambda t: st.tuples(st.just(t), st.lists(strategies.values(t), max_size=8)))


@given(typed, st.integers(0, 8), st.integers(0, 8))
def test_round_trip_of_every_type_also_from_slices(case: tuple[DataType, list[Any]], start: int, length: int) -> None:
    data_type, given_values = case
    array = values.to_arrow_array(given_values, data_type)
    assert builders.same(values.from_arrow(array, data_type), given_values)
    assert builders.same(values.from_arrow(array.slice(start, length), data_type), given_values[start : start + length])
    chunked = pa.chunked_array([array.slice(0, start), array.slice(start)])
    assert builders.same(values.from_arrow(chunked, data_type), given_values)


@given(st.integers(-719_162, 2_932_896))
def test_dates_are_those_of_the_calendar(days: int) -> None:
    assert values.date_text(days) == (datetime.date(1970, 1, 1) + datetime.timedelta(days)).isoformat()


def test_partitions_are_their_values() -> None:
    schema = builders.schema({"day": "DATE", "p": "STRING", "id": "INT"}, ("day", "p", "id"), ("day", "p"))
    assert values.partition_json(schema, builders.row((0, None), ("DATE", "STRING"))) == {"day": "1970-01-01", "p": None}
    assert values.partition_json(builders.schema(), EMPTY_ROW) == {}


def test_dates_beyond_four_digits() -> None:
    assert [values.date_text(days) for days in (2_932_897, -719_163, -719_529)] == ["+10000-01-01", "0000-12-31", "-0001-12-31"]


@pytest.mark.parametrize(
    ("text", "value", "shown"),
    [
        ("BIGINT", 2**63 - 1, 2**63 - 1),
        ("BOOLEAN", True, True),
        ("DOUBLE", float("nan"), "NaN"),
        ("FLOAT", float("-inf"), "-Infinity"),
        ("DOUBLE", -0.0, "-0.0"),
        ("DOUBLE", 0.0, 0.0),
        ("BYTES", b"\x00\xff", "AP8="),
        ("DATE", -1, "1969-12-31"),
        ("TIME(3)", 86_399_999, "23:59:59.999"),
        ("TIMESTAMP(9)", -1, "1969-12-31T23:59:59.999999999"),
        ("TIMESTAMP(3) WITH LOCAL TIME ZONE", 1_000_000, "1970-01-01T00:00:00.001000000Z"),
        ("ARRAY<DATE>", [0, None], ["1970-01-01", None]),
        ("MAP<INT, DOUBLE>", [(9, -0.0), (10, None)], [[10, None], [9, "-0.0"]]),
        ("MAP<STRING, INT>", [("b", 1), ("ключ", 2), ("😀", 3)], [["ключ", 2], ["😀", 3], ["b", 1]]),
        ("MULTISET<STRING>", [("a", 2)], [["a", 2]]),
        ("ROW<x INT, y BYTES>", (1, b"\x00"), {"x": 1, "y": "AA=="}),
        ("VARIANT", (b"\x0c", b"\x01"), {"value": "DA==", "metadata": "AQ=="}),
    ],
)
def test_json_value(text: str, value: Any, shown: Any) -> None:
    assert values.json_value(value, builders.type_(text)) == shown
    assert values.json_value(None, builders.type_(text)) is None


@pytest.mark.parametrize("text", ["-9999999999999999999999999999.9999999999", "0.0000000001", "0.0000000000"])
def test_decimals_are_plain_text_with_their_scale(text: str) -> None:
    assert values.json_value(Decimal(text), builders.type_("DECIMAL(38, 10)")) == text


def test_rows() -> None:
    fields = [DataField(0, "a", builders.type_("INT")), DataField(1, "t", builders.type_("TIMESTAMP(0)"))]
    table = pa.table({"t": pa.array([0, None], pa.timestamp("ms")), "more": [1, 2], "a": pa.array([None, 7], pa.int32())})
    assert list(values.json_rows(table, fields)) == [{"a": None, "t": "1970-01-01T00:00:00.000000000"}, {"a": 7, "t": None}]
