"""Ranks in the vectors of an FM partition, whose blocks are read when they are needed (spec 09 §9, §10; Java `FMIndexReadContext`).

    positions ─▶ the blocks they lie in ─▶ pages that hold these ─▶ decoded into arrays with room for some blocks ─▶ digits and ranks

Positions come as arrays. What is asked at once is looked up by a few array operations, wherever its blocks lie. Of a page that was read, the
blocks that were not asked for stay compressed.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby

import numpy as np
import numpy.typing as npt

from maintainer.format import fm_block
from maintainer.format.fm_decode import decode_ranks, decode_samples, matching, ones
from maintainer.format.fm_vector import GROUP_WORDS, SAMPLES, Vector
from maintainer.format.stored_block import ReadRange

Numbers = npt.NDArray[np.int64]
RawBlocks = Callable[[Vector, Iterable[int]], Iterator[tuple[int, bytes]]]
"""Gives blocks of a vector, which ascend; their checksums hold."""

_ONE = np.uint64(1)


class Pages:
    """Reads the blocks of a vector by pages of at most `page_size` raw bytes, counted from its start. At most `limit` bytes of pages are held,
    each until all of its blocks have been given."""

    def __init__(self, read: ReadRange, page_size: int, limit: int) -> None:
        self._read = read
        self._page_size = page_size
        self._limit = limit
        self._held: OrderedDict[int, tuple[bytes, set[int]]] = OrderedDict()
        self.size = 0
        """Bytes that are held."""

    def __call__(self, vector: Vector, blocks: Iterable[int]) -> Iterator[tuple[int, bytes]]:
        """See `RawBlocks`."""
        step = max(1, self._page_size // vector.kind.size(vector.values(0)))
        for page, wanted in groupby(blocks, lambda block: block // step):
            first = page * step
            infos = vector.blocks[first : first + step]
            start, end = infos[0].offset, infos[-1].end
            data, left = self._held.pop(start, (b"", set()))
            self.size -= len(data)
            if not data:
                data, left = self._read(start, end - start), set(range(first, first + len(infos)))
            for block in wanted:
                info = vector.blocks[block]
                yield block, fm_block.load(info, data[info.offset - start : info.end - start])
                left.discard(block)
            if left and len(data) <= self._limit:
                self._held[start] = data, left
                self.size += len(data)
                while self.size > self._limit:
                    self.size -= len(self._held.popitem(last=False)[1][0])


def decoded_size(vector: Vector) -> int:
    """Bytes of a decoded block of a vector."""
    kind, values = vector.kind, vector.values(0)
    if kind is SAMPLES:
        return 4 * values
    words = kind.words(values)
    return words * (8 + 2 * kind.counted) + 4 * kind.counted * -(-words // GROUP_WORDS)


class HeldBlocks:
    """The decoded blocks of a vector, `room` of them at most; the one that was loaded first makes place."""

    block_size = 0
    """Bytes of a decoded block."""

    def __init__(self, vector: Vector, room: int, raw_blocks: RawBlocks) -> None:
        self._vector = vector
        self._raw_blocks = raw_blocks
        self._shift = vector.kind.block_values.bit_length() - 1
        self._slot_of = np.full(len(vector.blocks), -1, np.int64)
        self._block_of = np.full(min(room, len(vector.blocks)), -1, np.int64)
        self._next = 0
        self.size = 0
        """Bytes that are held."""

    def _portions(self, positions: Numbers) -> Iterator[tuple[Numbers | slice, Numbers]]:
        """The slots of the blocks of all positions: for as many positions at a time as there is room for their blocks."""
        blocks = positions >> self._shift
        slots = self._slot_of[blocks]
        if not len(slots) or slots.min() >= 0:
            yield slice(None), slots
            return
        needed = np.unique(blocks)
        room = len(self._block_of)
        if len(needed) <= room:
            self._load(needed)
            yield slice(None), self._slot_of[blocks]
            return
        for start in range(0, len(needed), room):
            part = needed[start : start + room]
            self._load(part)
            at = np.flatnonzero((blocks >= part[0]) & (blocks <= part[-1]))
            yield at, self._slot_of[blocks[at]]

    def _load(self, needed: Numbers) -> None:
        missing = needed[self._slot_of[needed] < 0]
        room = len(self._block_of)
        order = (np.arange(room) + self._next) % room
        free = order[~np.isin(self._block_of[order], needed)][: len(missing)]
        for slot, (block, raw) in zip(free.tolist(), self._raw_blocks(self._vector, missing.tolist()), strict=True):
            gone = self._block_of[slot]
            self._block_of[slot] = -1  # until it is filled: what is read may be damaged
            if gone >= 0:
                self._slot_of[gone] = -1
                self.size -= self.block_size
            self._fill(slot, block, raw)
            self._block_of[slot], self._slot_of[block] = block, slot
            self.size += self.block_size
            self._next = (slot + 1) % room

    def _fill(self, slot: int, block: int, raw: bytes) -> None:
        raise NotImplementedError


class Ranks(HeldBlocks):
    """A vector of digits or bits."""

    def __init__(self, vector: Vector, room: int, raw_blocks: RawBlocks) -> None:
        super().__init__(vector, room, raw_blocks)
        kind = vector.kind
        self._counted = kind.counted
        self._width = kind.words(vector.values(0))
        self._groups_width = -(-self._width // GROUP_WORDS)
        self._word_shift = kind.word_values.bit_length() - 1
        self._mask = kind.block_values - 1
        self._in_word = kind.word_values - 1
        self.block_size = decoded_size(vector)
        room = len(self._block_of)
        # Of what is not filled nothing is taken from the system.
        self._words = np.zeros((room, self._width), np.uint64)
        self._inner = np.zeros((room, self._counted, self._width), np.uint16)
        self._groups = np.zeros((room, self._counted, self._groups_width), np.int32)

    def _fill(self, slot: int, block: int, raw: bytes) -> None:
        vector = self._vector
        found = decode_ranks(vector.kind, raw, vector.values(block), vector.inside[block], vector.blocks[block].offset)
        size = len(found.words)
        self._words[slot, :size] = found.words
        self._inner[slot, :, :size] = found.inner
        self._groups[slot, :, : found.groups.shape[1]] = found.groups

    def rank(self, digits: Numbers, positions: Numbers) -> Numbers:
        """How often each digit (a bit: 0) occurs before its position, which may be the end of the vector."""
        length = self._vector.length
        blocks = np.where(positions == length, len(self._vector.blocks), positions >> self._shift)
        result: Numbers = self._vector.before[blocks, digits]
        inside = np.flatnonzero((positions & self._mask != 0) & (positions < length))
        if len(inside):
            at, digits = positions[inside], digits[inside]
            for part, slots in self._portions(at):
                word = (at[part] & self._mask) >> self._word_shift
                found = self._words.reshape(-1)[slots * self._width + word]
                result[inside[part]] += self._in_block(slots, word, digits[part], found, at[part])
        return result

    def read(self, positions: Numbers) -> tuple[Numbers, Numbers]:
        """The digits at these positions, and how often each occurs before it (a bit: how many ones there are before it)."""
        digits, ranks = np.empty_like(positions), np.empty_like(positions)
        for part, slots in self._portions(positions):
            at = positions[part]
            word = (at & self._mask) >> self._word_shift
            found = self._words.reshape(-1)[slots * self._width + word]
            shift = (at & self._in_word).astype(np.uint64)
            if self._counted == 1:
                digits[part] = (found >> shift & _ONE).astype(np.int64)
                counted = np.zeros_like(at)
            else:
                digits[part] = counted = (found >> (shift << _ONE) & np.uint64(3)).astype(np.int64)
            before = self._vector.before[at >> self._shift, counted]
            ranks[part] = before + self._in_block(slots, word, counted, found, at)
        return digits, ranks

    def _in_block(self, slots: Numbers, word: Numbers, digits: Numbers, found: npt.NDArray[np.uint64], positions: Numbers) -> Numbers:
        """How often digits occur before positions in their blocks; `found` are the words there."""
        row = slots * self._counted + digits
        count: Numbers = self._groups.reshape(-1)[row * self._groups_width + word // GROUP_WORDS].astype(np.int64)
        count += self._inner.reshape(-1)[row * self._width + word]
        shift = (positions & self._in_word).astype(np.uint64)
        if self._counted > 1:
            shift, found = shift << _ONE, matching(found, digits)
        count += ones(found & ((_ONE << shift) - _ONE))
        return count


class Samples(HeldBlocks):
    """The vector of samples."""

    def __init__(self, vector: Vector, room: int, raw_blocks: RawBlocks, rate: int, length: int) -> None:
        super().__init__(vector, room, raw_blocks)
        self._rate = rate
        self._length = length
        self._width = vector.values(0)
        self.block_size = decoded_size(vector)
        self._values = np.zeros((len(self._block_of), self._width), np.int32)

    def _fill(self, slot: int, block: int, raw: bytes) -> None:
        vector = self._vector
        count = vector.values(block)
        self._values[slot, :count] = decode_samples(raw, count, self._rate, self._length, vector.blocks[block].offset)

    def take(self, positions: Numbers) -> Numbers:
        """The samples at these positions."""
        result = np.empty_like(positions)
        for part, slots in self._portions(positions):
            result[part] = self._values.reshape(-1)[slots * self._width + (positions[part] & (SAMPLES.block_values - 1))]
        return result
