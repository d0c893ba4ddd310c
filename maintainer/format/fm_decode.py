"""Blocks of the vectors of an FM payload, decoded so that ranks are looked up by arrays (spec 09 §6, §7, §10; Java `FMIndexFile`).

A block of digits or bits becomes

    words    (w)            the words as they are: the first value of a word is in its lowest bits
    inner    (counted, w)   how often each digit occurs before a word, within its group of 64 words
    groups   (counted, g)   and before that group, within the block

so that the rank of a digit at a position is the sum of the counts before the block, the group and the word, and of the matching digits before
the position in its word. All that a block says is checked against what it holds: header, every prefix, the directory's counts, unused bits.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from maintainer.errors import CorruptFile
from maintainer.format.fm_vector import DIGITS, GROUP_WORDS, SAMPLES, Counts, VectorKind

Words = npt.NDArray[np.uint64]
Bytes = npt.NDArray[np.uint8]

LOW = np.uint64(0x5555555555555555)
"""The low bit of each digit of a word."""
_ONE = np.uint64(1)
_REPEATED = np.array([0, 0x5555555555555555, 0xAAAAAAAAAAAAAAAA, 0xFFFFFFFFFFFFFFFF], np.uint64)

_FOUR_DIGITS = ((np.arange(256, dtype=np.uint8)[:, None] >> np.arange(0, 8, 2, dtype=np.uint8)) & 3).view(np.uint32).reshape(-1)


class RankBlock(NamedTuple):
    """See the module."""

    words: Words
    inner: npt.NDArray[np.uint16]
    groups: npt.NDArray[np.int32]


def _swar(words: Words) -> npt.NDArray[np.uint8]:
    """Ones of each word, for numpy before 2.0."""
    words = words - ((words >> _ONE) & LOW)
    pairs = np.uint64(0x3333333333333333)
    words = (words & pairs) + ((words >> np.uint64(2)) & pairs)
    words = (words + (words >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    with np.errstate(over="ignore"):
        ones: npt.NDArray[np.uint8] = ((words * np.uint64(0x0101010101010101)) >> np.uint64(56)).astype(np.uint8)
    return ones


ones = getattr(np, "bitwise_count", _swar)
"""How many bits of each word are set."""


def matching(words: Words, digits: npt.NDArray[np.int64]) -> Words:
    """The low bit of each digit of a word that is the wanted one."""
    different = words ^ _REPEATED[digits]
    found: Words = ~(different | (different >> _ONE)) & LOW
    return found


def word_counts(kind: VectorKind, words: Words, values: int) -> npt.NDArray[np.int32]:
    """How often each digit occurs in each word: an array (counted, words); unused bits do not count."""
    if kind is not DIGITS:
        return ones(words).astype(np.int32)[None]
    low, high = words & LOW, (words >> _ONE) & LOW
    both = ones(low & high)
    counts = np.empty((4, len(words)), np.int32)
    counts[1] = ones(low) - both
    counts[2] = ones(high) - both
    counts[3] = both
    counts[0] = kind.word_values - counts[1] - counts[2] - counts[3]
    counts[0, -1] -= len(words) * kind.word_values - values
    return counts


def decode_ranks(kind: VectorKind, raw: bytes, values: int, inside: Counts, offset: int = 0) -> RankBlock:
    """A block of so many digits or bits, of which the directory says these counts; `offset` is where it lies, for the error."""
    size = kind.words(values)
    groups = -(-size // GROUP_WORDS)
    if len(raw) != kind.size(values) or [*np.frombuffer(raw, ">i4", 2)] != [size, groups + 1]:
        raise CorruptFile(f"a block of {values} {kind.name} has another header", offset=offset)
    counted = kind.counted
    prefixes = np.frombuffer(raw, ">i4", (groups + 1) * counted, 8).reshape(-1, counted).T.astype(np.int32)
    words = np.frombuffer(raw, ">u8", size, len(raw) - 8 * size).astype(np.uint64)
    used = values - (size - 1) * kind.word_values
    if used < kind.word_values and int(words[-1]) >> (used * 64 // kind.word_values):
        raise CorruptFile(f"unused bits of a block of {kind.name} are set", offset=offset)
    before = np.zeros((counted, (groups + 1) * GROUP_WORDS), np.int32)
    np.cumsum(word_counts(kind, words, values), axis=1, out=before[:, 1 : size + 1])
    before[:, size + 1 :] = before[:, size : size + 1]
    in_groups = before.reshape(counted, groups + 1, GROUP_WORDS)
    if bool((prefixes != in_groups[:, :, 0]).any()) or bool((prefixes[:, -1] != inside).any()):
        raise CorruptFile(f"a block of {kind.name} does not hold what it counts", offset=offset)
    inner = np.subtract(in_groups[:, :-1], prefixes[:, :-1, None], dtype=np.int32).astype(np.uint16)
    return RankBlock(words, inner.reshape(counted, -1)[:, :size], prefixes[:, :-1])


def decode_samples(raw: bytes, values: int, rate: int, length: int, offset: int = 0) -> npt.NDArray[np.int32]:
    """A block of so many samples of a text of this length."""
    samples = np.frombuffer(raw, ">i4").astype(np.int32) if len(raw) == SAMPLES.size(values) else np.empty(0, np.int32)
    if len(samples) != values or bool(((samples < 0) | (samples >= length) | (samples % rate != 0)).any()):
        raise CorruptFile(f"a block of {values} samples has impossible ones", offset=offset)
    return samples


def digits(words: Words, values: int) -> Bytes:
    """All digits of a block, one a byte."""
    return _FOUR_DIGITS[words.astype("<u8").view(np.uint8)].view(np.uint8)[:values]


def bits(words: Words, values: int) -> npt.NDArray[np.bool_]:
    """All bits of a block."""
    return np.unpackbits(words.astype("<u8").view(np.uint8), count=values, bitorder="little").view(np.bool_)
