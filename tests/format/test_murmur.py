"""The hash of bucket keys."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maintainer.format import binary_row
from maintainer.format.murmur import FEW_ROWS, hash_rows
from tests.support.builders import types


def hash_all(bodies: list[bytes]) -> list[int]:
    offsets = np.cumsum([0, *map(len, bodies)]).astype(np.int64)
    return hash_rows(np.frombuffer(b"".join(bodies), np.uint8), offsets).tolist()  # type: ignore[no-any-return]


def reference(body: bytes) -> int:
    """murmur3-32 as its specification says it, a word at a time."""
    mask = 0xFFFFFFFF

    def rotated(value: int, bits: int) -> int:
        return (value << bits | value >> (32 - bits)) & mask

    state = 42
    for at in range(0, len(body), 4):
        word = int.from_bytes(body[at : at + 4], "little") * 0xCC9E2D51 & mask
        state = rotated(state ^ rotated(word, 15) * 0x1B873593 & mask, 13) * 5 + 0xE6546B64 & mask
    state ^= len(body)
    state = (state ^ state >> 16) * 0x85EBCA6B & mask
    state = (state ^ state >> 13) * 0xC2B2AE35 & mask
    state ^= state >> 16
    return state - (1 << 32) if state >> 31 else state


@pytest.mark.parametrize(
    ("texts", "values", "expected"),
    [
        (("INT",), (-7,), 1485184587),
        (("BIGINT",), (123456789012,), -290760731),
        (("STRING",), ("abc",), -101922419),
        (("STRING",), ("hello world, paimon",), -2034202288),
        (("INT", "STRING"), (5, "x"), 369293497),
        (("DECIMAL(10, 2)",), (Decimal("-12.30"),), 642718286),
        (("DECIMAL(30, 5)",), (Decimal("12345678901234567890.12"),), 975491674),
        (("TIMESTAMP(3)",), (1700000000123 * 10**6,), -1285420957),
        (("TIMESTAMP(6)",), (1700000000123456 * 10**3,), 1196670069),
        (("DATE",), (19000,), -1241043695),
        (("DOUBLE",), (-0.0,), 302122119),
        (("BOOLEAN",), (True,), 1465514398),
        (("BYTES",), (b"\x01\x02\x03",), 1066645297),
    ],
)
def test_vectors(texts: tuple[str, ...], values: tuple[Any, ...], expected: int) -> None:
    assert hash_all([binary_row.encode_row(values, types(*texts))]) == [expected]


@given(st.lists(st.integers(0, 40).flatmap(lambda words: st.binary(min_size=8 * words, max_size=8 * words)), max_size=3 * FEW_ROWS))
def test_rows_of_all_sizes_hash_as_each_alone(bodies: list[bytes]) -> None:
    assert hash_all(bodies) == [reference(body) for body in bodies]


@given(st.integers(0, 5).flatmap(lambda words: st.lists(st.binary(min_size=8 * words, max_size=8 * words), max_size=20)))
def test_rows_of_one_size_hash_as_each_alone(bodies: list[bytes]) -> None:
    assert hash_all(bodies) == [reference(body) for body in bodies]


def test_part_of_a_batch() -> None:
    bodies = [bytes([n]) * 16 for n in range(5)]
    data = np.frombuffer(b"".join(bodies), np.uint8)
    assert hash_rows(data, np.array([16, 32, 48], np.int64)).tolist() == [reference(body) for body in bodies[1:3]]


@pytest.mark.parametrize("offsets", [[0, 6], [0, 24], [2, 10]])
def test_rows_outside_the_data_or_between_words_are_refused(offsets: list[int]) -> None:
    with pytest.raises(ValueError, match="inside the data"):
        hash_rows(np.zeros(16, np.uint8), np.array(offsets, np.int64))
