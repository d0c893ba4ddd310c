"""Ordinals of an index group and positions in its files (spec 07 §6): a group has the rows of its files one after the other.

ordinals     0 1 2 3 4 | 5 6 7 | 8 9 …
positions    0 1 2 3 4 | 0 1 2 | 0 1 …       `first` is 0, 5, 8; `rows` is 5, 3, …
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap64

Numbers = npt.NDArray[np.int64]

MOST_RANGES = 4096
"""A file with more ranges is read raw (Java's limit)."""
MANY_ORDINALS = 1 << 20
"""More are cut into files as bitmaps, one file after the other, since they take 8 bytes each otherwise."""


def window(ordinals: BitMap64, first: int, rows: int) -> BitMap64:
    """The positions in a file whose rows have these ordinals."""
    inside = BitMap64()
    inside.add_range(first, first + rows)
    return (ordinals & inside).shift(-first)


def by_file(ordinals: BitMap64, first: Numbers, rows: Numbers) -> tuple[Numbers, Numbers]:
    """All positions in files, ascending by file, and the file of each: its number in `first` and `rows`."""
    order = np.lexsort((rows, first))  # of files that begin at the same ordinal, all but the last one are empty
    hits = np.asarray(ordinals.to_array()).astype(np.int64)
    at = order[np.maximum(np.searchsorted(first[order], hits, side="right") - 1, 0)]
    positions = hits - first[at]
    inside = (positions >= 0) & (positions < rows[at])
    return positions[inside], at[inside]


def moved(ordinals: BitMap64, first: Numbers, to: Numbers, rows: Numbers) -> BitMap64:
    """Ordinals of files that begin at `first`, where they begin at `to`."""
    if np.array_equal(first, to):
        return ordinals
    positions, at = by_file(ordinals, first, rows)
    return BitMap64((positions + to[at]).astype(np.uint64))


def ranges_of(ordinals: BitMap64, first: Numbers, rows: Numbers) -> Iterator[tuple[int, int, int, Numbers]]:
    """Of the files that have any of the ordinals: the number of each, how many they are, in how many ranges of positions, and these if they
    are not too many: maximal runs, the first and the last of each."""
    if len(ordinals) > MANY_ORDINALS:
        for at in range(len(first)):
            positions = window(ordinals, int(first[at]), int(rows[at]))
            if positions:
                count = len(positions) - len(positions & positions.shift(1))
                few = np.asarray(positions.to_array()).astype(np.int64) if count <= MOST_RANGES else np.zeros(0, np.int64)
                starts = np.flatnonzero(np.diff(few, prepend=-2) != 1)
                yield at, len(positions), count, _runs(few, starts)
        return
    every, of_file = by_file(ordinals, first, rows)
    if len(every):
        starts = np.flatnonzero((np.diff(every, prepend=-2) != 1) | (np.diff(of_file, prepend=-1) != 0))
        runs = _runs(every, starts)
        of_run = of_file[starts]
        cuts = np.flatnonzero(np.diff(of_run, prepend=-1))
        selected = np.add.reduceat(runs[:, 1] - runs[:, 0] + 1, cuts)
        ends = np.append(cuts[1:], len(runs))
        for at, rows_of, start, end in zip(*(each.tolist() for each in (of_run[cuts], selected, cuts, ends)), strict=True):
            yield at, rows_of, end - start, runs[start:end].copy()  # the plan lives longer than the runs of other files


def _runs(positions: Numbers, starts: Numbers) -> Numbers:
    """The first and the last position of each run; `starts` is where they begin."""
    return np.stack([positions[starts], positions[np.append(starts[1:], len(positions))[: len(starts)] - 1]], axis=1)
