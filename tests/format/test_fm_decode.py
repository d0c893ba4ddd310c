"""Ranks of decoded blocks are counts of digits before a position (spec 09 §6)."""

from __future__ import annotations

import numpy as np
import pytest

from maintainer.errors import CorruptFile
from maintainer.format import fm_decode
from maintainer.format.fm_vector import BITS, DIGITS, SAMPLES, VectorKind


def raw_block(kind: VectorKind, values: np.ndarray) -> bytes:
    """The block of digits or bits, laid out value by value."""
    width = 64 // kind.word_values
    words = [0] * kind.words(len(values))
    for number, value in enumerate(values.tolist()):
        words[number // kind.word_values] |= value << width * (number % kind.word_values)
    counted = range(4) if kind is DIGITS else range(1, 2)
    groups = -(-len(words) // 64)
    prefixes = [int((values[: 64 * group * kind.word_values] == digit).sum()) for group in range(groups + 1) for digit in counted]
    return np.array([len(words), groups + 1, *prefixes], ">i4").tobytes() + np.array(words, ">u8").tobytes()


def inside(kind: VectorKind, values: np.ndarray) -> np.ndarray:
    return np.array([(values == digit).sum() for digit in (range(4) if kind is DIGITS else range(1, 2))])


@pytest.mark.parametrize("kind", [DIGITS, BITS])
@pytest.mark.parametrize("count", [1, 31, 32, 33, 63, 64, 65, 2047, 2048, 2049, 4096, 4097, 20_000])
def test_ranks(kind: VectorKind, count: int) -> None:
    values = np.random.default_rng(count).integers(0, 4 if kind is DIGITS else 2, count)
    block = fm_decode.decode_ranks(kind, raw_block(kind, values), count, inside(kind, values))
    for number, digit in enumerate(range(4) if kind is DIGITS else range(1, 2)):
        before = np.cumsum(values == digit) - (values == digit)
        words = np.arange(len(block.words))
        assert (block.groups[number, words // 64] + block.inner[number] == before[words * kind.word_values]).all()
    unpacked = fm_decode.digits(block.words, count) if kind is DIGITS else fm_decode.bits(block.words, count)
    assert (unpacked == values).all()


def test_ones_without_numpy_2() -> None:
    words = np.random.default_rng(1).integers(0, 2**64, 1000, dtype=np.uint64)
    words[:3] = 0, 2**64 - 1, 1
    expected = [int(word).bit_count() for word in words]
    assert fm_decode._swar(words).tolist() == expected
    assert fm_decode.ones(words).tolist() == expected


def test_matching_digits() -> None:
    words = np.array([0b11_10_01_00], np.uint64)
    for digit in range(4):
        low = int(fm_decode.matching(words, np.array([digit]))[0]) & 0xFF
        assert low == 1 << 2 * digit


@pytest.mark.parametrize("kind", [DIGITS, BITS])
def test_any_other_bit_is_found(kind: VectorKind) -> None:
    values = np.random.default_rng(3).integers(0, 2, 70)
    raw, counts = raw_block(kind, values), inside(kind, values)
    for bit in range(8 * len(raw)):
        changed = bytearray(raw)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptFile):
            fm_decode.decode_ranks(kind, bytes(changed), 70, counts)
    for cut in (raw[:-8], raw + bytes(8), b""):
        with pytest.raises(CorruptFile):
            fm_decode.decode_ranks(kind, cut, 70, counts)


@pytest.mark.parametrize("samples", [[0, 4, 5], [0, 4, -4], [0, 4, 100], [0, 4], [0, 4, 8, 12]])
def test_samples_that_cannot_be(samples: list[int]) -> None:
    with pytest.raises(CorruptFile):
        fm_decode.decode_samples(np.array(samples, ">i4").tobytes(), 3, 4, 100)
    assert SAMPLES.size(3) == 12
