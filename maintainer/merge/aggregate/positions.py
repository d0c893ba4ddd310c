"""Functions that take the value of one record: the first or the last one (spec 05 §6; Java `FieldLastValueAgg`, `FieldFirstValueAgg`, …).

The accumulator is the row that the value comes from, or −1 for NULL; no value is looked at, only whether it is NULL.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from maintainer.merge.aggregate.records import Bools, Folded, Int8s, Records, Slots, Verdict, fold_by_rank, unsupported
from maintainer.merge.order import Int64s
from maintainer.table.aggregates import Aggregate


def valid_of(values: pa.Array) -> Bools:
    """Which rows of a column are not NULL."""
    if not values.null_count:
        return np.ones(len(values), np.bool_)
    valid: Bools = values.is_valid().to_numpy(zero_copy_only=False)
    return valid


class _Position:
    """What all of them have in common: rows as accumulators, −1 wherever the value is NULL."""

    def __init__(self, groups: int, valid: Bools) -> None:
        self.rows = np.full(groups, -1, np.int64)
        self.valid = valid

    def replace(self, slots: Slots, rows: Int64s) -> None:
        self.rows[slots] = np.where(self.valid[rows], rows, -1)

    def retract(self, slots: Slots, rows: Int64s) -> None:
        raise unsupported()

    def run(self, slot: int, rows: Int64s, verdicts: Int8s) -> bool:
        """Only the record that decides is looked at."""
        if not np.isin(verdicts, (Verdict.APPLY, Verdict.RETRACT)).all():
            return False
        at = self.deciding(self.valid[rows], verdicts)
        if at is not None:
            step = self.apply if verdicts[at] == Verdict.APPLY else self.retract
            step(slice(slot, slot + 1), rows[at : at + 1])
        return True

    def apply(self, slots: Slots, rows: Int64s) -> None:
        raise NotImplementedError

    def deciding(self, valid: Bools, verdicts: Int8s) -> int | None:
        """Which of some records, given by whether they are not NULL, the result comes from."""
        return len(valid) - 1


class _PrimaryKey(_Position):
    def apply(self, slots: Slots, rows: Int64s) -> None:
        self.replace(slots, rows)

    def reversed(self, slots: Slots, rows: Int64s) -> None:
        """The accumulator comes last, and stays."""

    def retract(self, slots: Slots, rows: Int64s) -> None:
        self.replace(slots, rows)


class _LastValue(_PrimaryKey):
    def retract(self, slots: Slots, rows: Int64s) -> None:
        self.rows[slots] = -1


class _LastNonNullValue(_Position):
    def apply(self, slots: Slots, rows: Int64s) -> None:
        self.rows[slots] = np.where(self.valid[rows], rows, self.rows[slots])

    def reversed(self, slots: Slots, rows: Int64s) -> None:
        before = self.rows[slots]
        self.rows[slots] = np.where((before < 0) & self.valid[rows], rows, before)

    def retract(self, slots: Slots, rows: Int64s) -> None:
        self.rows[slots] = np.where(self.valid[rows], -1, self.rows[slots])

    def deciding(self, valid: Bools, verdicts: Int8s) -> int | None:
        there = np.flatnonzero(valid)
        return int(there[-1]) if len(there) else None


class _First(_Position):
    """`met` says of which groups the function has taken a value already: of those it gives what it is called with as accumulator."""

    def __init__(self, groups: int, valid: Bools) -> None:
        super().__init__(groups, valid)
        self.met = np.zeros(groups, np.bool_)

    def deciding(self, valid: Bools, verdicts: Int8s) -> int | None:
        retracts = verdicts == Verdict.RETRACT  # which is an error
        found = np.flatnonzero(retracts if retracts.any() else self.takes(np.where(valid, 0, -1)))
        return int(found[0]) if len(found) else None

    def takes(self, rows: Int64s) -> Bools:
        """Whether these values, −1 for NULL, are taken where none was yet."""
        raise NotImplementedError

    def apply(self, slots: Slots, rows: Int64s) -> None:
        self._call(slots, self.rows[slots], np.where(self.valid[rows], rows, -1))

    def reversed(self, slots: Slots, rows: Int64s) -> None:
        self._call(slots, np.where(self.valid[rows], rows, -1), self.rows[slots])

    def _call(self, slots: Slots, accumulators: Int64s, values: Int64s) -> None:
        taken = ~self.met[slots] & self.takes(values)
        self.rows[slots] = np.where(taken, values, accumulators)
        self.met[slots] |= taken


class _FirstValue(_First):
    def takes(self, rows: Int64s) -> Bools:
        return np.ones(len(rows), np.bool_)


class _FirstNonNullValue(_First):
    def takes(self, rows: Int64s) -> Bools:
        return rows >= 0


_FUNCTIONS: dict[str, Any] = {
    "primary-key": _PrimaryKey,
    "last_value": _LastValue,
    "last_non_null_value": _LastNonNullValue,
    "first_value": _FirstValue,
    "first_non_null_value": _FirstNonNullValue,
}


def fold(aggregate: Aggregate, values: pa.Array, records: Records) -> Folded:
    """The row that the value of each group comes from."""
    position = _FUNCTIONS[aggregate.name](len(records), valid_of(values))
    slot_of = fold_by_rank(records, position)
    return Folded(position.rows[slot_of])
