"""The deduplicate engine: of all records of a key, the newest survives (spec 04 §6.1, §14.4; Java `DeduplicateMergeFunction`,
`LookupMergeFunction`).

Candidates of a key, oldest first:

    level > 0    higher level first; only the last of them, that of the smallest level, counts
    level 0      oldest file first; all of them count

Of those that count, the record with the largest (sequence number, retract < add) survives, and of equal ones the last in this order. Where each
candidate has a larger number than the one before it, which is the rule, that is the last candidate.
"""

from __future__ import annotations

from typing import cast

import numpy as np
import numpy.typing as npt

from maintainer.merge.order import Int64s, Keys

RETRACT_BIT = 1
"""`_VALUE_KIND`: 0 +I, 1 −U, 2 +U, 3 −D; the odd ones retract."""


def survivors(order: Int64s, starts: Int64s, sequences: Int64s, kinds: npt.NDArray[np.int8], high_rows: int) -> Int64s:
    """The row that survives of each group.

    `order` lists the rows of group after group, each group's oldest first; `starts` says where in it a group begins. `sequences` and `kinds`
    are by row; rows below `high_rows` are from levels above 0.
    """
    size = len(order)
    if len(starts) == size:
        return order
    new = np.zeros(size, np.bool_)
    new[starts] = True
    ordered = sequences[order]
    ends = np.append(starts[1:], size) - 1
    if (new[1:] | (ordered[1:] > ordered[:-1])).all():
        return cast(Int64s, order[ends])
    counts = np.ones(size, np.bool_)
    counts[:-1] = new[1:] | (order[:-1] >= high_rows) | (order[1:] >= high_rows)
    rows = order[counts]
    group = (np.cumsum(new) - 1)[counts]
    added = (kinds[rows].astype(np.int64) & RETRACT_BIT) ^ RETRACT_BIT
    by_age, _ = Keys([group, sequences[rows], added], len(rows)).sort()
    last = np.flatnonzero(np.append(group[1:] != group[:-1], True))
    return rows[by_age][last]
