from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maintainer.errors import CorruptFile
from maintainer.format import varint
from maintainer.format.byte_column import ByteColumn

NUMBERS = st.integers(0, 2**63 - 1) | st.integers(0, 63).map(lambda n: (1 << n) - 1) | st.integers(0, 62).map(lambda n: 1 << n)


@pytest.mark.parametrize(
    ("number", "text"), [(0, "00"), (127, "7f"), (128, "8001"), (200, "c801"), (16384, "808001"), (2**63 - 1, "ff" * 8 + "7f")]
)
def test_bytes_are_those_of_java(number: int, text: str) -> None:
    data = bytes.fromhex(text)
    assert varint.encode(number) == data
    assert varint.decode(data, 0) == (number, len(data))


def test_negative_numbers_are_refused() -> None:
    with pytest.raises(ValueError, match="negative"):
        varint.encode(-1)


@given(st.lists(NUMBERS, max_size=20))
def test_columns_of_numbers_equal_single_ones(numbers: list[int]) -> None:
    values = np.array(numbers, np.int64)
    column = ByteColumn.varints(values)
    assert [column[i] for i in range(len(column))] == [varint.encode(n) for n in numbers]
    assert varint.decode_all(column.data).tolist() == numbers
    found, ends = varint.decode_at(column.data, column.offsets[:-1])
    assert found.tolist() == numbers
    assert ends.tolist() == column.offsets[1:].tolist()


@pytest.mark.parametrize("text", ["", "80", "ff" * 9, "ff" * 9 + "01"])
def test_numbers_that_do_not_end_are_corrupt(text: str) -> None:
    data = bytes.fromhex(text)
    with pytest.raises(CorruptFile):
        varint.decode(data, 0)
    array = np.frombuffer(data, np.uint8)
    with pytest.raises(CorruptFile):
        varint.decode_at(array, np.array([0]))
    if data:
        with pytest.raises(CorruptFile):
            varint.decode_all(array)
