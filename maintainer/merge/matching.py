"""Equal keys of two ascending sequences of distinct keys.

Few keys among many are searched for, all at once: each step of a binary search is one comparison of columns. Sequences of about the same length
are sorted together, which reads each key once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from maintainer.merge.order import Column, Int64s, Keys

_FEW = 16
"""Keys are searched for if there are so many times more on the other side."""
_NONE: Int64s = np.empty(0, dtype=np.int64)


def match(left: Keys, right: Keys) -> tuple[Int64s, Int64s]:
    """Indices of the keys that both have, ascending, in the one and in the other."""
    if not len(left) or not len(right):
        return _NONE, _NONE
    if len(left.columns) == 1 and isinstance(left.columns[0], np.ndarray):
        return _found(left, right, np.searchsorted(left.columns[0], right.columns[0]))
    if len(right) * _FEW <= len(left):
        return _found(left, right, _lower_bounds(left, right))
    rows = len(left)
    ordered, starts = Keys.concat([left, right]).sort()
    pairs = starts[np.flatnonzero(np.diff(np.append(starts, len(ordered))) == 2)]
    return ordered[pairs], ordered[pairs + 1] - rows


def _found(left: Keys, right: Keys, at: Int64s) -> tuple[Int64s, Int64s]:
    at = np.minimum(at, len(left) - 1)
    equal = np.ones(len(right), dtype=bool)
    for here, there in zip(left.columns, right.columns, strict=True):
        equal &= _compare(here, at, there)[1]
    hits = np.flatnonzero(equal)
    return at[hits], hits


def _lower_bounds(left: Keys, right: Keys) -> Int64s:
    """For each of the keys on the right, how many on the left are smaller."""
    low = np.zeros(len(right), dtype=np.int64)
    high = np.full(len(right), len(left), dtype=np.int64)
    for _ in range(len(left).bit_length()):
        middle = np.minimum((low + high) >> 1, len(left) - 1)
        smaller, equal = _compare(left.columns[0], middle, right.columns[0])
        for here, there in zip(left.columns[1:], right.columns[1:], strict=True):
            if not equal.any():
                break
            next_smaller, next_equal = _compare(here, middle, there)
            smaller, equal = smaller | (equal & next_smaller), equal & next_equal
        smaller &= low < high
        low, high = np.where(smaller, middle + 1, low), np.where(smaller, high, middle)
    return low


def _compare(column: Column, rows: Int64s, other: Column) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Whether the values of these rows are smaller than, and whether they are equal to, those of another column."""
    if isinstance(column, np.ndarray):
        values = column[rows]
        return values < other, values == other
    values = column.take(pa.array(rows))
    return _bools(pc.less(values, other)), _bools(pc.equal(values, other))


def _bools(array: Any) -> npt.NDArray[np.bool_]:
    found: npt.NDArray[np.bool_] = array.to_numpy(zero_copy_only=False)
    return found
