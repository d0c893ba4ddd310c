from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from maintainer.errors import CorruptFile
from maintainer.format import binary_row
from maintainer.format.serialized_rows import SerializedRows
from maintainer.model.types import CHARACTERS, DataType, TypeRoot
from maintainer.model.values import order_key
from tests.support.builders import type_
from tests.support.campaign import share
from tests.support.predicates import VALUES

ROUNDS = share("columns of serialized rows against rows", short=150, long=10_000)
MORE = {
    "dec19": (type_("DECIMAL(19, 3)"), st.integers(1 - 10**19, 10**19 - 1).map(lambda number: Decimal(number).scaleb(-3))),
    "dec38": (type_("DECIMAL(38, 0)"), st.integers(1 - 10**38, 10**38 - 1).map(Decimal)),
    "l": (type_("BIGINT"), st.integers(-(2**63), 2**63 - 1)),
    "s": (type_("STRING"), st.text(max_size=20)),
    "by": (type_("BYTES"), st.binary(max_size=20)),
    "t9": (type_("TIMESTAMP(9)"), st.integers(-(10**21), 10**21)),
    "t3": (type_("TIMESTAMP(3)"), st.integers(-(10**15), 10**15).map(lambda millis: millis * 10**6)),
    "d": (type_("DOUBLE"), st.floats()),
}
COLUMNS = [(data_type, st.sampled_from(pool)) for data_type, pool in VALUES.values()] + list(MORE.values())


def plain(value: Any, data_type: DataType) -> Any:
    """What the module's table says."""
    if value is None:
        return None
    if data_type.root is TypeRoot.DECIMAL and data_type.precision <= 18:
        return int(value.scaleb(data_type.scale))
    return order_key(value)[1]


def values_of(array: pa.Array) -> list[Any]:
    return array.to_pylist()  # type: ignore[no-any-return]


@settings(max_examples=ROUNDS, deadline=None)
@given(st.data(), st.lists(st.sampled_from(COLUMNS), min_size=1, max_size=70), st.integers(0, 8))
def test_columns_are_those_of_each_row(data: st.DataObject, columns: list[Any], count: int) -> None:
    types = [data_type for data_type, _ in columns]
    index = data.draw(st.integers(0, len(columns) - 1))
    rows = [[None] * len(columns) for _ in range(count)]
    for row in rows:
        for column in {0, index, len(columns) - 1}:
            row[column] = data.draw(st.none() | columns[column][1])
    found = SerializedRows([binary_row.serialize(row, types) for row in rows], len(types)).column(index, types[index])
    assert values_of(found) == [plain(row[index], types[index]) for row in rows]


@settings(max_examples=ROUNDS, deadline=None)
@given(st.data(), st.sampled_from(COLUMNS))
def test_changed_bytes_give_the_value_or_null(data: st.DataObject, column: Any) -> None:
    data_type, values = column
    rows = []
    for value in data.draw(st.lists(values, min_size=1, max_size=4)):
        row = bytearray(binary_row.serialize([1, value], [type_("INT"), data_type]))
        for _ in range(data.draw(st.integers(0, 3))):
            row[data.draw(st.integers(0, len(row) - 1))] = data.draw(st.integers(0, 255))
        rows.append(bytes(row[: data.draw(st.integers(0, len(row)) | st.just(len(row)))]))
    found = values_of(SerializedRows(rows, 2).column(1, data_type))
    for row, value in zip(rows, found, strict=True):
        try:
            expected = plain(binary_row.deserialize(row, [type_("INT"), data_type])[1], data_type)
        except CorruptFile:
            if data_type.root in CHARACTERS or data_type.precision > 18:  # not UTF-8, or too many digits: in order all the same
                continue
            expected = None
        assert value == expected


def test_other_types_and_no_rows_say_nothing() -> None:
    types = [type_("ARRAY<INT>")]
    assert values_of(SerializedRows([binary_row.serialize([[1]], types)], 1).column(0, types[0])) == [None]
    for data_type, _ in COLUMNS:
        assert values_of(SerializedRows([], 1).column(0, data_type)) == []
