"""Rows as bytes: the vectors of the specification, round trips of every type, and hostile bytes."""

from __future__ import annotations

import struct
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maintainer.errors import CorruptFile
from maintainer.format import binary_row
from maintainer.model.types import DataType
from tests.support import strategies
from tests.support.builders import row, same, type_, types

Case = tuple[tuple[DataType, ...], tuple[Any, ...]]

VECTORS = [
    (("INT",), (1,), "0000000000000000 0100000000000000"),
    (("INT",), (None,), "0001000000000000 0000000000000000"),
    (("STRING",), ("",), "0000000000000000 0000000000000080"),
    (("STRING",), ("abcdefg",), "0000000000000000 6162636465666787"),
    (("STRING",), ("abcdefgh",), "0000000000000000 0800000010000000 6162636465666768"),
    (("STRING",), ("😀é",), "0000000000000000 f09f9880c3a90086"),
    (("DECIMAL(18, 3)",), (Decimal("-123.456"),), "0000000000000000 c01dfeffffffffff"),
    (
        ("DECIMAL(38, 10)",),
        (Decimal("-123.4560000000"),),
        "0000000000000000 0600000010000000 fee08e7d60000000 0000000000000000",
    ),
    (("TIMESTAMP(6)",), (-1000,), "0000000000000000 583e0f0010000000 ffffffffffffffff"),
    (
        ("DECIMAL(38, 10)", "STRING"),
        (None, "abcdefgh"),
        "0001000000000000 0000000018000000 0800000028000000 0000000000000000 0000000000000000 6162636465666768",
    ),
    (
        ("ARRAY<INT>",),
        ([1, None, 3],),
        "0000000000000000 1800000010000000 03000000 02000000 01000000 00000000 03000000 00000000",
    ),
    (
        ("ARRAY<DECIMAL(38, 2)>",),
        ([Decimal("1.00"), None, Decimal("-1.00")],),
        "0000000000000000 4000000010000000 03000000 02000000 0100000020000000 0000000000000000 0100000030000000"
        "64000000000000000000000000000000 9c000000000000000000000000000000",
    ),
    (
        ("MAP<STRING, INT>",),
        ([("k1", 1), ("k2", None)],),
        "0000000000000000 2c00000010000000 18000000 02000000 00000000 6b31000000000082 6b32000000000082"
        "02000000 02000000 01000000 00000000 00000000",
    ),
    (
        ("VECTOR<FLOAT, 3>",),
        ([1.0, 2.0, 3.0],),
        "0000000000000000 1400000010000000 03000000 0000803f 00000040 00004040 00000000 00000000",
    ),
    (("ARRAY<INT>",), ([],), "0000000000000000 0800000010000000 0000000000000000"),
    ((), (), "0000000000000000"),
]


@pytest.mark.parametrize(("texts", "values", "encoded"), VECTORS)
def test_vectors(texts: tuple[str, ...], values: tuple[Any, ...], encoded: str) -> None:
    body = bytes.fromhex(encoded)
    assert binary_row.encode_row(values, types(*texts)).hex() == body.hex()
    assert same(binary_row.decode_row(body, types(*texts)), values)
    serialized = len(texts).to_bytes(4, "big") + body
    assert binary_row.serialize(values, types(*texts)) == serialized
    assert same(binary_row.deserialize(serialized, types(*texts)), values)


@given(strategies.typed_rows(strategies.data_types(variants=True)))
def test_round_trip(case: Case) -> None:
    kinds, values = case
    body = binary_row.encode_row(values, kinds)
    assert len(body) % 8 == 0
    assert same(binary_row.decode_row(body, kinds), values)


@pytest.mark.parametrize("text", ["BLOB", "GEOMETRY(OGC:CRS84)"])
def test_opaque_binaries(text: str) -> None:
    body = binary_row.encode_row([b"123456789"], types(text))
    assert binary_row.decode_row(body, types(text)) == (b"123456789",)


@pytest.mark.parametrize(("columns", "null_area"), [(1, 8), (56, 8), (57, 16), (120, 16), (121, 24)])
def test_null_area_grows_with_the_57th_column(columns: int, null_area: int) -> None:
    kinds = types("INT") * columns
    values = [None] * (columns - 1) + [7]
    body = binary_row.encode_row(values, kinds)
    assert len(body) == null_area + 8 * columns
    assert binary_row.decode_row(body, kinds) == tuple(values)
    nulls = int.from_bytes(body[:null_area], "little") >> 8
    assert nulls == (1 << (columns - 1)) - 1


def test_numbers_of_every_width_leave_the_rest_of_their_slot_zero() -> None:
    body = binary_row.encode_row([True, -1, -1, -1, -1], types("BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT"))
    assert body[8:].hex() == "01" + "00" * 7 + "ff" + "00" * 7 + "ffff" + "00" * 6 + "ffffffff" + "00" * 4 + "ff" * 8


def test_floats_keep_their_bits_in_rows_and_nan_is_canonical_in_arrays() -> None:
    odd_nan = struct.unpack("<d", bytes.fromhex("010000000000f8ff"))[0]
    assert binary_row.encode_row([odd_nan], types("DOUBLE"))[8:].hex() == "010000000000f8ff"
    assert binary_row.encode_row([-0.0], types("DOUBLE"))[8:].hex() == "0000000000000080"
    assert binary_row.encode_row([[odd_nan, -0.0]], types("ARRAY<DOUBLE>"))[24:].hex() == "000000000000f87f0000000000000080"
    assert binary_row.encode_row([[odd_nan]], types("ARRAY<FLOAT>"))[24:].hex() == "0000c07f00000000"


def test_null_decimal_and_timestamp_keep_their_place_in_rows_but_not_in_arrays() -> None:
    assert len(binary_row.encode_row([None, None], types("DECIMAL(19, 0)", "TIMESTAMP(4)"))) == 8 + 16 + 16 + 8
    assert len(binary_row.encode_row([None, None], types("DECIMAL(18, 0)", "TIMESTAMP(3)"))) == 8 + 16
    assert len(binary_row.encode_row([[None]], types("ARRAY<DECIMAL(19, 0)>"))) == 16 + 8 + 8
    nested = binary_row.encode_row([(None,)], types("ROW<d DECIMAL(19, 0)>"))
    assert len(nested) == 16 + 8 + 8 + 16


@pytest.mark.parametrize(("scale", "value"), [(2, Decimal("1.005")), (2, Decimal("1E17")), (0, Decimal("1E18"))])
def test_decimal_that_does_not_fit_its_type_is_the_callers_mistake(scale: int, value: Decimal) -> None:
    with pytest.raises(ValueError, match="does not fit"):
        binary_row.encode_row([value], [type_(f"DECIMAL(18, {scale})")])


def test_number_of_values_must_be_that_of_the_types() -> None:
    with pytest.raises(ValueError, match="2 values"):
        binary_row.encode_row([1, 2], types("INT"))
    with pytest.raises(CorruptFile, match="1 columns where 2"):
        binary_row.deserialize(row(1), types("INT", "INT"))


@pytest.mark.parametrize(
    ("text", "body", "reason"),
    [
        ("INT", "00" * 15, "needs 16 bytes"),
        ("STRING", "0000000000000000 0900000010000000 6162636465666768", "9 bytes at 16"),
        ("STRING", "0000000000000000 08000000ffffff7f 6162636465666768", "at 2147483647"),
        ("STRING", "0000000000000000 6162636465666788", "inline value of 8"),
        ("STRING", "0000000000000000 ff00000000000081", "UTF-8"),
        ("DECIMAL(5, 2)", "0000000000000000 a086010000000000", "beyond its precision"),
        ("DECIMAL(38, 2)", "0000000000000000 1100000010000000" + "00" * 24, "decimal of 17"),
        ("DECIMAL(38, 2)", "0000000000000000 0000000010000000" + "00" * 16, "decimal of 0"),
        ("DECIMAL(38, 2)", "0000000000000000 1000000018000000" + "00" * 16, "at 24"),
        ("TIMESTAMP(6)", "0000000000000000 40420f0010000000 0000000000000000", "1000000 ns"),
        ("TIMESTAMP(6)", "0000000000000000 0000000018000000 0000000000000000", "at 24"),
        ("ARRAY<INT>", "0000000000000000 0800000010000000 ffffffff00000000", "count -1"),
        ("ARRAY<INT>", "0000000000000000 0800000010000000 ffffff7f00000000", "claims 2147483647"),
        ("ARRAY<INT>", "0000000000000000 0200000010000000 0000000000000000", "nested value of 2"),
        ("MAP<INT, INT>", "0000000000000000 0800000010000000 0800000000000000", "claims 8 bytes of keys"),
        ("MAP<INT, INT>", "0000000000000000 2400000010000000 10000000 01000000 00000000 01000000 00000000" + "00" * 20, "1 keys and 0"),
        ("VECTOR<FLOAT, 3>", "0000000000000000 0800000010000000 0200000000000000", "claims 2 elements"),
        ("VARIANT", "0000000000000000 0800000010000000 0500000000000000", "claims a value of 5"),
        ("ROW<a INT>", "0000000000000000 0800000010000000 0000000000000000", "needs 16 bytes"),
    ],
)
def test_inconsistent_bytes_are_corrupt(text: str, body: str, reason: str) -> None:
    with pytest.raises(CorruptFile, match=reason):
        binary_row.decode_row(bytes.fromhex(body), types(text))


def test_overlapping_values_cannot_make_a_small_row_large() -> None:
    """Every element of every array refers to the whole next array: 100³ strings of 8 KB, in a row of 11 KB."""
    count = 100
    text = b"x" * 8000

    def array(inner: bytes, at: int) -> bytes:
        header = struct.pack("<i", count) + bytes(16)
        fixed = header + bytes(4) if len(header) % 8 else header
        slots = struct.pack("<II", len(inner), len(fixed) + 8 * count + at) * count
        return struct.pack("<i", count) + bytes(16) + slots + bytes(4) + inner

    body = text
    for _ in range(3):
        body = array(body, 0)
    row_bytes = bytes(8) + struct.pack("<II", len(body), 16) + body
    with pytest.raises(CorruptFile, match="longer than"):
        binary_row.decode_row(row_bytes, types("ARRAY<ARRAY<ARRAY<STRING>>>"))


@given(strategies.typed_rows(strategies.data_types(variants=True), max_size=3), st.data())
def test_mutated_bytes_decode_or_are_corrupt(case: Case, data: st.DataObject) -> None:
    kinds, values = case
    mutated = data.draw(strategies.mutated(binary_row.serialize(values, kinds)))
    try:
        decoded = binary_row.deserialize(mutated, kinds)
    except CorruptFile:
        return
    assert len(decoded) == len(kinds)


@given(strategies.typed_rows(strategies.data_types(), max_size=3))
def test_truncated_bytes_are_corrupt_or_lose_only_padding(case: Case) -> None:
    kinds, values = case
    data = binary_row.serialize(values, kinds)
    for size in range(len(data)):
        try:
            decoded = binary_row.deserialize(data[:size], kinds)
        except CorruptFile:
            continue
        assert same(decoded, values)


@pytest.mark.parametrize(
    "data", [b"", bytes(4), bytes(11), bytes.fromhex("ffffffff") + bytes(8), bytes.fromhex("00000002") + bytes(16), b"\x7f" * 12]
)
def test_arity_is_checked(data: bytes) -> None:
    with pytest.raises(CorruptFile):
        binary_row.arity(data)
