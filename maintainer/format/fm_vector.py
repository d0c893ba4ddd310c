"""Vectors of an FM partition: what its directory says of them (spec 09 §6; Java `FMIndexFile`).

A vector is cut into blocks. Its directory entry, all numbers int32 and big-endian:

    length | total × counted | blocks | for each block: first, values, before × counted, inside × counted, block info

*counted* is what its blocks are counted by: four digits (a wavelet level), the ones (bits), nothing (samples). `first` is the first value of
the block, `before` and `inside` say how often each digit occurs before and in it.

| kind                  | values of a full block | raw block                                                                        |
| --------------------- | ---------------------- | -------------------------------------------------------------------------------- |
| two-bit digits, bits  | 131072, 262144         | words, prefixes, prefixes × counted × int32, words × uint64 (lowest bits first)  |
| samples               | 8192                   | int32 values                                                                     |

Prefix g counts in the words before 64 × g, the last prefix in all. The raw size of a block follows from the number of its values, and all of an
entry but its block infos from the counts of its blocks.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from maintainer.errors import CorruptFile
from maintainer.format.fm_block import MAX_BLOCK, BlockInfo
from maintainer.format.stored_block import COMPRESSION_IDS, NONE

BLOCK_WORDS = 4096
GROUP_WORDS = 64

Counts = npt.NDArray[np.int64]

_INFO_TYPE = [("offset", ">i8"), ("stored_size", ">i4"), ("size", ">i4"), ("codec", ">i4"), ("checksum", ">u4")]


@dataclass(frozen=True)
class VectorKind:
    """What a vector holds: values of a full block, values of a word, and how many digits are counted."""

    name: str
    block_values: int
    word_values: int
    counted: int

    def blocks(self, length: int) -> int:
        return -(-length // self.block_values)

    def words(self, values: int) -> int:
        return -(-values // self.word_values)

    def size(self, values: int) -> int:
        """Raw size of a block of so many values."""
        if not self.counted:
            return 4 * values
        words = self.words(values)
        return 8 + 4 * self.counted * (-(-words // GROUP_WORDS) + 1) + 8 * words

    @cached_property
    def entry(self) -> np.dtype[np.void]:
        """The entry of a block in the directory."""
        numbers = [("first", ">i4"), ("values", ">i4"), ("before", ">i4", (self.counted,)), ("inside", ">i4", (self.counted,))]
        return np.dtype([*numbers, *_INFO_TYPE])


DIGITS = VectorKind("wavelet level", BLOCK_WORDS * 32, 32, 4)
BITS = VectorKind("bits", BLOCK_WORDS * 64, 64, 1)
SAMPLES = VectorKind("samples", 8192, 0, 0)


@dataclass(frozen=True, eq=False)
class Vector:
    """The directory entry of a vector of `length` values. `inside` counts the digits of each block: an array (blocks, counted).

    >>> Vector(DIGITS, 5, np.array([[2, 3, 0, 0]]), (info,)).encode()
    """

    kind: VectorKind
    length: int
    inside: Counts
    blocks: tuple[BlockInfo, ...]

    @cached_property
    def before(self) -> Counts:
        """How often each digit occurs before each block, and (one row more) in the whole vector: an array (blocks + 1, counted)."""
        before = np.zeros((len(self.inside) + 1, self.kind.counted), np.int64)
        np.cumsum(self.inside, axis=0, out=before[1:])
        return before

    @property
    def totals(self) -> Counts:
        """How often each digit occurs."""
        totals: Counts = self.before[-1]
        return totals

    def values(self, block: int) -> int:
        """How many values a block has."""
        return min(self.kind.block_values, self.length - block * self.kind.block_values)

    def encode(self) -> bytes:
        count = len(self.blocks)
        entries = np.zeros(count, self.kind.entry)
        entries["first"] = np.arange(count) * self.kind.block_values
        entries["values"] = np.minimum(self.length - entries["first"].astype(np.int64), self.kind.block_values)
        entries["before"] = self.before[:-1]
        entries["inside"] = self.inside
        for name, _ in _INFO_TYPE:
            entries[name] = [getattr(block, name) for block in self.blocks]
        return np.array([self.length, *self.totals, count], ">i4").tobytes() + entries.tobytes()

    @classmethod
    def decode(cls, kind: VectorKind, length: int, data: bytes, at: int, offset: int, end: int) -> tuple[Vector, int]:
        """The vector at this position of a directory, and the position behind it.

        It must have this length; its blocks lie from `offset` on, one behind the other, and not behind `end`.
        """
        count = kind.blocks(length)
        head = 4 * (kind.counted + 2)
        stop = at + head + count * kind.entry.itemsize
        if stop > len(data):
            raise CorruptFile(f"the directory of an FM partition is cut off: {kind.name} of {length} values")
        numbers = np.frombuffer(data, ">i4", kind.counted + 2, at)
        entries = np.frombuffer(data, kind.entry, count, at + head)
        infos = np.column_stack([entries[name].astype(np.int64) for name, _ in _INFO_TYPE])
        inside = entries["inside"].astype(np.int64)
        vector = cls(kind, length, inside, tuple(BlockInfo(*row) for row in infos.tolist()))
        first = np.arange(count, dtype=np.int64) * kind.block_values
        values = np.minimum(length - first, kind.block_values)
        if (
            numbers[0] != length
            or numbers[-1] != count
            or bool((numbers[1:-1] != vector.totals).any())
            or bool((entries["first"] != first).any())
            or bool((entries["values"] != values).any())
            or bool((entries["before"] != vector.before[:-1]).any())
            or bool((inside < 0).any())
            or (kind is DIGITS and bool((inside.sum(axis=1) != values).any()))
            or (kind is BITS and bool((inside[:, 0] > values).any()))
        ):
            raise CorruptFile(f"the directory of an FM partition contradicts itself: {kind.name} of {length} values")
        for block, expected in zip(vector.blocks, values.tolist(), strict=True):
            known = block.codec in COMPRESSION_IDS.values() and (block.codec != NONE or block.stored_size == block.size)
            if not known or block.offset != offset or block.size != kind.size(expected) or not 0 < block.stored_size <= block.size <= MAX_BLOCK:
                raise CorruptFile(f"impossible block of {kind.name}: {block}", offset=offset)
            offset = block.end
        if offset > end:
            raise CorruptFile(f"blocks of {kind.name} lie outside of their partition", offset=offset)
        return vector, stop
