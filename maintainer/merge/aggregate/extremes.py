"""max, min, bool_and, bool_or (spec 05 §6, §6.1; Java `FieldMaxAgg`, `FieldMinAgg`, `FieldBoolAndAgg`, `FieldBoolOrAgg`).

Like `positions`, the accumulator is the row that the value comes from. Values compare in the order of keys (`merge.order`): −0.0 < 0.0, NaN is
the largest, texts by their bytes, false < true. Of equal values max keeps the accumulator and min takes the new one. bool_and is the min of
booleans, bool_or their max.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from maintainer.merge.aggregate.positions import valid_of
from maintainer.merge.aggregate.records import Bools, Folded, Int8s, Records, Slots, Verdict, fold_by_rank, unsupported
from maintainer.merge.order import Int64s, comparable_columns
from maintainer.model.types import TypeRoot
from maintainer.table.aggregates import Aggregate

Less = Callable[[Int64s, Int64s], Bools]
"""Which of the first rows hold a smaller value than the second ones."""


class _Extreme:
    def __init__(self, groups: int, valid: Bools, less: Less, largest: bool) -> None:
        self.rows = np.full(groups, -1, np.int64)
        self.valid = valid
        self.less = less
        self.largest = largest

    def apply(self, slots: Slots, rows: Int64s) -> None:
        self.rows[slots] = self._better(self.rows[slots], np.where(self.valid[rows], rows, -1))

    def reversed(self, slots: Slots, rows: Int64s) -> None:
        self.rows[slots] = self._better(np.where(self.valid[rows], rows, -1), self.rows[slots])

    def retract(self, slots: Slots, rows: Int64s) -> None:
        raise unsupported()

    def replace(self, slots: Slots, rows: Int64s) -> None:
        self.rows[slots] = np.where(self.valid[rows], rows, -1)

    def run(self, slot: int, rows: Int64s, verdicts: Int8s) -> bool:
        """Neighbours play against one another until one is left."""
        if not (verdicts == Verdict.APPLY).all():
            return False
        rows = rows[self.valid[rows]]
        while len(rows) > 1:
            even = len(rows) // 2 * 2
            rows = np.append(self._better(rows[:even:2], rows[1:even:2]), rows[even:])
        self.rows[slot] = rows[0] if len(rows) else -1
        return True

    def _better(self, accumulators: Int64s, values: Int64s) -> Int64s:
        """The function itself: a NULL on one side gives the other one."""
        chosen = np.where(accumulators < 0, values, accumulators)
        both = np.flatnonzero((accumulators >= 0) & (values >= 0))
        if len(both):
            before, new = accumulators[both], values[both]
            less = self.less(before, new)
            chosen[both] = np.where(less == self.largest, new, before)
        return chosen


def fold(aggregate: Aggregate, values: pa.Array, records: Records) -> Folded:
    """The row that the value of each group comes from."""
    extreme = _Extreme(len(records), valid_of(values), _less(aggregate, values), aggregate.name in ("max", "bool_or"))
    slot_of = fold_by_rank(records, extreme)
    return Folded(extreme.rows[slot_of])


def _less(aggregate: Aggregate, values: pa.Array) -> Less:
    if aggregate.type.root is TypeRoot.BOOLEAN and values.null_count:
        values = pc.fill_null(values, False)
    columns = list(comparable_columns(values, aggregate.type))
    if len(columns) == 2:
        high, low = columns
        return lambda a, b: (high[a] < high[b]) | ((high[a] == high[b]) & (low[a] < low[b]))
    (column,) = columns
    if isinstance(column, np.ndarray):
        words: Any = column
        return lambda a, b: words[a] < words[b]
    return lambda a, b: _texts_less(column, a, b)


def _texts_less(column: Any, a: Int64s, b: Int64s) -> Bools:
    less: Bools = pc.less(pc.take(column, pa.array(a)), pc.take(column, pa.array(b))).to_numpy(zero_copy_only=False)
    return less
