"""Searching one partition of an FM payload (spec 09 §10; Java `FMIndexFile`).

The rows of the sorted suffixes that start with a needle are an interval. It is found from the last symbol of the needle to the first: each step
maps both ends of the interval by ranks in the Burrows–Wheeler transform, a wavelet matrix. A suffix becomes a position of the text by steps to
the left until one that is sampled, and a position becomes a row of the table by the row boundaries before it. All is done for arrays of needles
and of suffixes at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap64

from maintainer.errors import CorruptFile
from maintainer.format import posting
from maintainer.format.fm_decode import bits, decode_ranks
from maintainer.format.fm_layout import SEPARATOR, TERMINATOR, PartitionDirectory
from maintainer.format.stored_block import ReadRange
from maintainer.index.family.fm_ranks import Numbers, Pages, Ranks, Samples, decoded_size

END_OF_ROW, END_OF_TEXT = 256, 257
"""Codes of needles beside those of bytes."""

Codes = npt.NDArray[np.uint16]

_LOCATED = 1 << 16
"""How many suffixes are located at once."""


class Partition:
    """An open partition. Its blocks take at most `budget` bytes, or one block of each vector."""

    def __init__(self, directory: PartitionDirectory, read: ReadRange, page_size: int, budget: int) -> None:
        self.directory = directory
        vectors = [*directory.levels, directory.sampled, directory.boundaries, directory.samples]
        total = sum(decoded_size(vector) * len(vector.blocks) for vector in vectors)
        pages = budget // 4
        share = min(1.0, (budget - pages) / total)
        rooms = [max(1, int(len(vector.blocks) * share)) for vector in vectors]
        self._pages = Pages(read, page_size, pages)
        *self._levels, self._sampled, self._boundaries = (
            Ranks(vector, room, self._pages) for vector, room in zip(vectors[:-1], rooms[:-1], strict=True)
        )
        self._samples = Samples(directory.samples, rooms[-1], self._pages, directory.rate, directory.length)
        self._held = (*self._levels, self._sampled, self._boundaries, self._samples)
        self._directory_size = 4096 + 300 * sum(len(vector.blocks) for vector in directory.vectors)
        self._symbol_of = np.append(directory.symbols, [SEPARATOR, TERMINATOR]).astype(np.int64)

    @property
    def size(self) -> int:
        """Bytes that are held."""
        return self._directory_size + self._pages.size + sum(held.size for held in self._held)

    @cached_property
    def bottoms(self) -> Numbers:
        """Where each symbol starts in the order of the last level of the wavelet matrix."""
        return bottom_starts(self.directory)

    def intervals(self, needles: Sequence[Codes]) -> tuple[Numbers, Numbers]:
        """Start and end of the rows of each needle, which has at least one code."""
        ends = np.cumsum([len(needle) for needle in needles])
        lengths = np.diff(ends, prepend=0)
        symbols = self._symbol_of[np.concatenate(needles)]
        possible = (np.minimum.reduceat(symbols, ends - lengths) >= 0) & (lengths <= self.directory.length)
        last = np.maximum(symbols[ends - 1], 0)
        smaller = self.directory.smaller
        low = np.where(possible, smaller[last], 0)
        high = np.where(possible, smaller[last + 1], 0)
        done = 1
        while len(active := np.flatnonzero((lengths > done) & (low < high))):
            symbol = symbols[ends[active] - 1 - done]
            moved = self._step(np.tile(symbol, 2), np.concatenate((low[active], high[active])))
            low[active], high[active] = moved[: len(active)], moved[len(active) :]
            done += 1
        return low, high

    def _step(self, symbols: Numbers, positions: Numbers) -> Numbers:
        """Where the suffixes start that are made by putting a symbol before all suffixes before a position."""
        starts = self.directory.starts
        at = positions
        for number, level in enumerate(self._levels):
            digits = symbols >> 2 * (len(self._levels) - 1 - number) & 3
            at = starts[number, digits] + level.rank(digits, at)
        return self.directory.smaller[symbols] + at - self.bottoms[symbols]

    def mark(self, found: npt.NDArray[np.bool_], low: int, high: int, after: bool = False) -> None:
        """Mark the rows that the suffixes of an interval are of; with `after`, those that follow."""
        for start in range(low, high, _LOCATED):
            positions = self._locate(np.arange(start, min(start + _LOCATED, high), dtype=np.int64))
            numbers = self._boundaries.rank(np.zeros_like(positions), positions) + after
            if numbers.max() >= len(found):
                raise CorruptFile("a suffix of an FM partition is of no row")
            found[numbers] = True

    def _locate(self, suffixes: Numbers) -> Numbers:
        """The positions of the text at which these suffixes start."""
        directory = self.directory
        found = np.empty_like(suffixes)
        left, at = np.arange(len(suffixes)), suffixes
        for steps in range(directory.rate):
            sampled, rank = self._sampled.read(at)
            here = sampled == 1
            found[left[here]] = self._samples.take(rank[here]) + steps
            left, at = left[~here], at[~here]
            if not len(left):
                break
            at = self._before(at)
        if len(left) or (len(found) and found.max() >= directory.length - 1):
            raise CorruptFile("a suffix of an FM partition starts nowhere")
        return found

    def _before(self, suffixes: Numbers) -> Numbers:
        """The suffixes that are longer by one symbol."""
        starts = self.directory.starts
        symbols = np.zeros_like(suffixes)
        at = suffixes
        for number, level in enumerate(self._levels):
            digits, rank = level.read(at)
            at = starts[number, digits] + rank
            symbols = symbols << 2 | digits
        if symbols.max() >= len(self.bottoms):
            raise CorruptFile("an FM partition has a symbol that is none")
        return self.directory.smaller[symbols] + at - self.bottoms[symbols]

    def null_rows(self) -> BitMap64:
        """The rows of the partition that are null."""
        vector = self.directory.nulls
        found = BitMap64()
        if vector.totals[0] == vector.length:
            found.add_range(0, vector.length)
        elif vector.totals[0]:
            wanted = np.flatnonzero(vector.inside[:, 0]).tolist()
            for block, raw in self._pages(vector, wanted):
                values = vector.values(block)
                words = decode_ranks(vector.kind, raw, values, vector.inside[block], vector.blocks[block].offset).words
                found |= posting.to_bitmap(np.flatnonzero(bits(words, values)) + block * vector.kind.block_values)
        return found


def bottom_starts(directory: PartitionDirectory) -> Numbers:
    """Where each symbol starts in the order of the last level: that of the symbols with their digits reversed."""
    symbols = np.arange(len(directory.smaller) - 1)
    turned = np.zeros_like(symbols)
    for number in range(len(directory.levels)):
        turned = turned << 2 | (symbols >> 2 * number & 3)
    order = np.argsort(turned)
    occurrences = np.diff(directory.smaller)[order]
    starts = np.empty_like(symbols)
    starts[order] = np.cumsum(occurrences) - occurrences
    return starts
