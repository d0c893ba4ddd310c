from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from maintainer.data import int96
from maintainer.data.arrow_types import to_arrow
from maintainer.data.physical import conform
from maintainer.data.values import from_arrow
from maintainer.errors import CorruptFile, Unsupported
from maintainer.model.types import DataField, DataType
from tests.support import builders


def conformed(array: pa.Array, text: str) -> list[Any]:
    data_type = builders.type_(text)
    found = conform(array, data_type, data_type)
    found.validate(full=True)
    assert found.type == to_arrow(data_type)
    return from_arrow(found, data_type)


ACCEPTED = [
    ("TINYINT", pa.array([1, None, -128], pa.int64()), [1, None, -128]),
    ("BIGINT", pa.array([1], pa.int32()), [1]),
    ("FLOAT", pa.array([0.5, None], pa.float64()), [0.5, None]),
    ("DOUBLE", pa.array([0.5], pa.float32()), [0.5]),
    ("DECIMAL(5, 2)", pa.array([Decimal("1.50")], pa.decimal128(18, 2)), [Decimal("1.50")]),
    ("DECIMAL(5, 2)", pa.array([Decimal("1.5")], pa.decimal128(18, 1)), [Decimal("1.50")]),
    ("DECIMAL(20, 2)", pa.array([Decimal("-1.50")], pa.decimal256(60, 2)), [Decimal("-1.50")]),
    ("DECIMAL(5, 2)", pa.array([-150, None, 3], pa.int32()), [Decimal("-1.50"), None, Decimal("0.03")]),
    ("DECIMAL(18, 0)", pa.array([-(10**18) + 1], pa.int64()), [Decimal(-(10**18) + 1)]),
    ("STRING", pa.array(["é", None], pa.large_string()), ["é", None]),
    ("STRING", pa.array(["é"]).cast(pa.binary()), ["é"]),
    ("STRING", pa.array(["a", "b", "a", None]).dictionary_encode(), ["a", "b", "a", None]),
    ("BYTES", pa.array(["é"]), ["é".encode()]),
    ("BYTES", pa.array([b"ab"], pa.binary(2)), [b"ab"]),
    ("DATE", pa.array([-1, None], pa.int32()), [-1, None]),
    ("TIME(3)", pa.array([1000], pa.int32()), [1000]),
    ("TIME(3)", pa.array([1_999_999], pa.time64("us")), [1999]),
    ("TIMESTAMP(3)", pa.array([-1, 1_999_999, None], pa.timestamp("us")), [-1_000_000, 1_999_000_000, None]),
    ("TIMESTAMP(6)", pa.array([-1, 1999], pa.timestamp("ns")), [-1000, 1000]),
    ("TIMESTAMP(6)", pa.array([-1], pa.timestamp("ms")), [-1_000_000]),
    ("TIMESTAMP(9)", pa.array([-1, None], pa.timestamp("us")), [-1000, None]),
    ("TIMESTAMP(6)", pa.array([5], pa.timestamp("us", tz="Asia/Shanghai")), [5000]),
    ("TIMESTAMP(6) WITH LOCAL TIME ZONE", pa.array([5], pa.timestamp("us")), [5000]),
    ("TIMESTAMP(3)", pa.array([5], pa.int64()), [5_000_000]),
    ("TIMESTAMP(6)", pa.array([5], pa.int64()), [5_000]),
    ("ARRAY<INT>", pa.array([[1, None], None, []], pa.large_list(pa.int64())), [[1, None], None, []]),
    ("ARRAY<INT>", pa.array([[1, 2], None], pa.list_(pa.int32(), 2)), [[1, 2], None]),
    ("VECTOR<FLOAT, 2>", pa.array([[1, 2], None], pa.list_(pa.float64(), 2)), [[1.0, 2.0], None]),
    ("MAP<STRING, INT>", pa.array([[("a", 1)], None, []], pa.map_(pa.large_string(), pa.int64())), [[("a", 1)], None, []]),
    ("MULTISET<STRING>", pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int64())), [[("a", 1)], None]),
    ("VARIANT", pa.array([{"metadata": b"m", "value": b"v"}, None]), [(b"v", b"m"), None]),
]


@pytest.mark.parametrize(("text", "array", "values"), ACCEPTED)
def test_accepted_form(text: str, array: pa.Array, values: list[Any]) -> None:
    assert builders.same(conformed(array, text), values)
    padded = pa.concat_arrays([array, array])
    assert builders.same(conformed(padded.slice(1, len(array)), text), (values * 2)[1 : 1 + len(array)])


@pytest.mark.parametrize(
    ("text", "array", "reason"),
    [
        ("TINYINT", pa.array([128], pa.int64()), "128"),
        ("INT", pa.array(["1"]), "the file holds string, the schema says INT"),
        ("INT", pa.array([1.0]), "the file holds double"),
        ("STRING", pa.array([1]), "the file holds int64"),
        ("STRING", pa.array([b"\xff"]), "(?i)utf"),
        ("BOOLEAN", pa.array([1]), "the file holds int64"),
        ("DECIMAL(5, 2)", pa.array([Decimal("1000.00")]), "DECIMAL"),
        ("DECIMAL(5, 2)", pa.array([Decimal("1.005")]), "DECIMAL"),
        ("DECIMAL(5, 2)", pa.array([100_000], pa.int32()), "DECIMAL"),
        ("DATE", pa.array([1], pa.int64()), "the file holds int64"),
        ("TIMESTAMP(3)", pa.array([1], pa.int32()), "the file holds int32"),
        ("VECTOR<FLOAT, 2>", pa.array([[1.0]], pa.list_(pa.float32())), "a vector of 1 elements, the type says 2"),
        ("VECTOR<FLOAT, 2>", pa.array([[1.0, 2.0, 3.0]], pa.list_(pa.float32(), 3)), "a vector of 3 elements"),
        ("VECTOR<FLOAT, 2>", pa.array([[1.0, None]], pa.list_(pa.float32())), "NULL element"),
        ("ARRAY<INT>", pa.array([1]), "the file holds int64"),
        ("MAP<INT, INT>", pa.array([[1]]), "the file holds list"),
        ("ROW<x INT>", pa.array([1]), "the file holds int64"),
        ("VARIANT", pa.array([{"value": b"v"}]), "the file holds struct"),
    ],
)
def test_refused_form(text: str, array: pa.Array, reason: str) -> None:
    with pytest.raises(CorruptFile, match=reason):
        conformed(array, text)


@pytest.mark.parametrize("seconds", [-9_223_372_037, 9_223_372_037])
def test_timestamps_that_64_bits_cannot_hold_are_refused(seconds: int) -> None:
    with pytest.raises(Unsupported, match="1677-09-21"):
        conformed(pa.array([seconds * 1000], pa.timestamp("ms")), "TIMESTAMP(9)")


def test_shredded_variants_are_refused() -> None:
    shredded = pa.array([{"metadata": b"1", "value": None, "typed_value": 3}])
    with pytest.raises(Unsupported, match="shredded"):
        conformed(shredded, "VARIANT")


def test_a_vector_under_null_may_have_any_length() -> None:
    assert conformed(pa.array([[1.0, 2.0], None], pa.list_(pa.float32())), "VECTOR<FLOAT, 2>") == [[1.0, 2.0], None]


def test_what_lies_under_a_row_that_is_null_is_not_looked_at() -> None:
    """A NOT NULL timestamp of 9 digits is twelve zero bytes there, 4713 BC, and a vector has no elements."""
    raw = pa.struct([pa.field("t", int96.RAW, nullable=False), pa.field("v", pa.list_(pa.float32()), nullable=False)])
    column = pa.StructArray.from_arrays(
        [pa.array([bytes(12)] * 2, int96.RAW), pa.array([[], [1.0]], pa.list_(pa.float32()))], fields=list(raw), mask=pa.array([True, True])
    )
    assert conformed(column, "ROW<t TIMESTAMP(9) NOT NULL, v VECTOR<FLOAT, 2> NOT NULL>") == [None, None]


def row(*members: tuple[int, str, str]) -> DataType:
    return replace(builders.type_("ROW<x INT>"), fields=tuple(DataField(number, name, builders.type_(text)) for number, name, text in members))


OLD = row((5, "x", "INT"), (6, "y", "STRING"), (7, "z", "INT"))
NEW = row((7, "x", "INT"), (8, "added", "DATE"), (6, "renamed", "STRING"))
ROWS = [{"x": 1, "y": "a", "z": 10}, None, {"x": None, "y": None, "z": None}, {"x": 4, "y": "d", "z": 40}]
EVOLVED = [(10, None, "a"), None, (None, None, None), (40, None, "d")]


def evolved(array: pa.Array, old: DataType, new: DataType) -> list[Any]:
    found = conform(array, old, new)
    found.validate(full=True)
    assert found.type == to_arrow(new)
    return from_arrow(found, new)


@pytest.mark.parametrize("start", [0, 1, 2])
def test_rows_evolve_by_the_ids_of_their_members(start: int) -> None:
    assert evolved(pa.array(ROWS, to_arrow(OLD)).slice(start), OLD, NEW) == EVOLVED[start:]


def test_rows_evolve_inside_of_collections() -> None:
    array, mapping = builders.type_("ARRAY<INT>"), builders.type_("MAP<STRING, INT>")
    old, new = (replace(mapping, element=replace(array, element=inner)) for inner in (OLD, NEW))
    data = [[("k", ROWS), ("l", None)], None, [("m", [])]]
    wanted = [[("k", EVOLVED), ("l", None)], None, [("m", [])]]
    built = pa.array(data, to_arrow(old))
    assert evolved(built, old, new) == wanted
    assert evolved(built.slice(1), old, new) == wanted[1:]


def test_a_member_that_the_file_lacks_is_null() -> None:
    assert evolved(pa.array([{"z": 1}]), OLD, OLD) == [(None, None, 1)]


def test_a_member_that_was_dropped_and_added_again_is_null() -> None:
    again = row((5, "x", "INT"), (9, "y", "STRING"), (7, "z", "INT"))
    assert evolved(pa.array(ROWS[:1], to_arrow(OLD)), OLD, again) == [(1, None, 10)]
