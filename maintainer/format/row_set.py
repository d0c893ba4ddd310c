"""A set of row ids that is given a piece at a time, and written as Java writes it (spec 08 §6).

The rows of a large group that have no value, or one value, are more than a list should hold: a bitmap takes at most an eighth of a byte for
each row of the group. Its bytes must be those of a bitmap that was made of all ids at once, whose containers become runs where runs are
smaller. Operations on bitmaps with runs leave some where an array is as small; so there are none here before the end.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap64

from maintainer.format import posting, roaring

_WAITING = 1 << 17
"""Ids that are put in at once."""
_CONTAINER = 1 << 16
_WINDOW = 16 * _CONTAINER
_NO_RUN = 3
"""A run takes as many bytes as an array of so many ids: such a container stays an array."""

Ids = npt.NDArray[np.int64]


class RowSet:
    """Grows by pieces; only its end is a bitmap with runs."""

    def __init__(self) -> None:
        self._rows = BitMap64()
        self._waiting: list[Ids] = []
        self._held = 0

    def add(self, ids: Ids) -> None:
        """More ids, ascending; they may be in the set, and repeat."""
        self._waiting.append(ids)
        self._held += len(ids)
        if self._held >= _WAITING:
            self._flush()

    def __len__(self) -> int:
        return len(self._bitmap)

    def __bool__(self) -> bool:
        return self._held > 0 or bool(self._rows)

    def below(self, bound: int) -> int:
        """How many of the ids are smaller."""
        return int(self._bitmap.rank(bound - 1)) if bound > 0 else 0

    def parts(self, most: int) -> Iterator[Ids]:
        """The ids, ascending, at most so many at a time."""
        return posting.parts(self._bitmap, most)

    def encode(self) -> bytes:
        """The bytes of the bitmap."""
        return roaring.encode64(self._bitmap.copy())

    def complement(self, total: int) -> RowSet:
        """The rows of `[0, total)` that are not in the set."""
        others = RowSet()
        for start in range(0, total, _WINDOW):
            stop = min(start + _WINDOW, total)
            mine = self._bitmap.range_cardinality(start, stop)
            if mine == stop - start:
                continue
            if not mine and not 0 < stop % _CONTAINER <= _NO_RUN:
                others._rows.add_range(start, stop)
                continue
            window = BitMap64()
            window.add_range(start, stop)
            present = np.ones(stop - start, bool)
            for part in posting.parts(self._bitmap & window, _WINDOW):
                present[part - start] = False
            others.add(np.flatnonzero(present) + start)
        return others

    @property
    def _bitmap(self) -> BitMap64:
        self._flush()
        return self._rows

    def _flush(self) -> None:
        if self._waiting:
            self._rows |= posting.to_bitmap(np.concatenate(self._waiting))
            self._waiting, self._held = [], 0
