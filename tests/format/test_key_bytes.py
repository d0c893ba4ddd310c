from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maintainer.data.values import to_arrow_array
from maintainer.errors import CorruptFile, Unsupported
from maintainer.format import key_bytes
from maintainer.model.types import DataType, TypeRoot
from maintainer.model.values import order_key
from tests.support.builders import same, type_
from tests.support.strategies import scalar_types, values

KEY_TYPES = scalar_types(st.just(False)).filter(lambda t: t.root not in (TypeRoot.BINARY, TypeRoot.VARBINARY))
TYPED = KEY_TYPES.flatmap(lambda t: st.tuples(st.just(t), st.lists(values(t), min_size=1, max_size=8)))

MILLIS = 1_700_000_000_123 * 1_000_000

# spec 08 §2.1
VECTORS = [
    ("BOOLEAN", True, "01"),
    ("BOOLEAN", False, "00"),
    ("TINYINT", -1, "ff"),
    ("SMALLINT", -32768, "0080"),
    ("INT", -1, "ffffffff"),
    ("INT", 256, "00010000"),
    ("BIGINT", -2, "feffffffffffffff"),
    ("DATE", 1, "01000000"),
    ("TIME(3)", 86_399_999, "ff5b2605"),
    ("FLOAT", math.nan, "0000c07f"),
    ("FLOAT", -0.0, "00000080"),
    ("DOUBLE", math.nan, "000000000000f87f"),
    ("DECIMAL(10, 2)", Decimal("-1.23"), "85ffffffffffffff"),
    ("DECIMAL(18, 0)", Decimal(255), "ff00000000000000"),
    ("DECIMAL(19, 0)", Decimal(255), "00ff"),
    ("DECIMAL(19, 0)", Decimal(0), "00"),
    ("DECIMAL(19, 0)", Decimal(-1), "ff"),
    ("DECIMAL(19, 0)", Decimal(127), "7f"),
    ("DECIMAL(19, 0)", Decimal(128), "0080"),
    ("DECIMAL(19, 0)", Decimal(-128), "80"),
    ("DECIMAL(19, 0)", Decimal(-129), "ff7f"),
    ("DECIMAL(19, 0)", Decimal(9999999999999999999), "008ac7230489e7ffff"),
    ("DECIMAL(38, 10)", Decimal(1), "02540be400"),
    ("DECIMAL(38, 10)", Decimal(-1), "fdabf41c00"),
    ("TIMESTAMP(3)", MILLIS, "7b68e5cf8b010000"),
    ("TIMESTAMP(6)", MILLIS + 456_000, "7b68e5cf8b010000c0ea1b"),
    ("TIMESTAMP(6)", -1_000, "ffffffffffffffffd8fc3c"),
    ("TIMESTAMP(9) WITH LOCAL TIME ZONE", 1, "000000000000000001"),
    ("STRING", "😀", "f09f9880"),
    ("CHAR(3)", "a  ", "612020"),
    ("STRING", "", ""),
]


@pytest.mark.parametrize(("text", "value", "expected"), VECTORS)
def test_bytes_are_those_of_java(text: str, value: Any, expected: str) -> None:
    data_type = type_(text)
    key = bytes.fromhex(expected)
    assert key_bytes.encode(value, data_type) == key
    column = key_bytes.encode_column(to_arrow_array([value], data_type), data_type)
    assert column[0] == key
    decoded = key_bytes.decode(key, data_type)
    assert decoded == value or (decoded != decoded and value != value)


@given(TYPED)
def test_columns_of_keys_equal_single_ones(typed: tuple[DataType, list[Any]]) -> None:
    data_type, found = typed
    array = to_arrow_array([*found, *found], data_type).slice(1, len(found))
    column = key_bytes.encode_column(array, data_type)
    expected = [*found, *found][1 : 1 + len(found)]
    assert [column[i] for i in range(len(column))] == [key_bytes.encode(value, data_type) for value in expected]


@given(TYPED)
def test_keys_compare_as_their_values(typed: tuple[DataType, list[Any]]) -> None:
    data_type, found = typed
    by_key = sorted(found, key=lambda value: key_bytes.comparable(key_bytes.encode(value, data_type), data_type))
    assert [order_key(value) for value in by_key] == [order_key(value) for value in sorted(found, key=order_key)]


@given(TYPED)
def test_keys_become_their_values_again(typed: tuple[DataType, list[Any]]) -> None:
    data_type, found = typed
    assert same([key_bytes.decode(key_bytes.encode(value, data_type), data_type) for value in found], found)


def test_every_nan_has_one_key() -> None:
    array = pa.array([0x7F800001, 0xFFC00000, 0x7FC00000], pa.uint32()).view(pa.float32())
    column = key_bytes.encode_column(array, type_("FLOAT"))
    assert {column[i].hex() for i in range(3)} == {"0000c07f"}


def test_milliseconds_are_the_floor() -> None:
    array = pa.array([-1, 999, -1_000], pa.timestamp("us"))
    column = key_bytes.encode_column(array, type_("TIMESTAMP(3)"))
    assert [int.from_bytes(column[i], "little", signed=True) for i in range(3)] == [-1, 0, -1]
    words, _ = key_bytes.sortable(array, type_("TIMESTAMP(3)"))
    assert words.to_pylist() == [-1, 0, -1]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("INT", 2**31),
        ("TINYINT", "1"),
        ("STRING", 1),
        ("STRING", "\ud800"),
        ("FLOAT", 0.1),
        ("FLOAT", 1e300),
        ("DECIMAL(10, 2)", Decimal("0.001")),
        ("DECIMAL(38, 0)", Decimal(10) ** 50),
        ("DECIMAL(10, 2)", Decimal("NaN")),
        ("TIMESTAMP(3)", 1),
    ],
)
def test_what_is_no_value_of_the_type_has_no_key(text: str, value: Any) -> None:
    with pytest.raises(ValueError, match=r"."):
        key_bytes.encode(value, type_(text))


@pytest.mark.parametrize(
    ("text", "key"),
    [("INT", "00"), ("BOOLEAN", ""), ("DECIMAL(19, 0)", ""), ("DECIMAL(19, 0)", "00" * 17), ("TIMESTAMP(6)", "00" * 8),
     ("TIMESTAMP(6)", "00" * 8 + "ffff7f"), ("TIMESTAMP(3)", "00" * 9), ("DOUBLE", "00")],
)  # fmt: skip
def test_malformed_keys_are_corrupt(text: str, key: str) -> None:
    with pytest.raises(CorruptFile):
        key_bytes.decode(bytes.fromhex(key), type_(text))


@pytest.mark.parametrize("text", ["BYTES", "BINARY(3)", "ARRAY<INT>", "MAP<INT, INT>", "ROW<a INT>"])
def test_other_types_have_no_keys(text: str) -> None:
    with pytest.raises(Unsupported, match="is not supported by global index now"):
        key_bytes.check_type(type_(text))
