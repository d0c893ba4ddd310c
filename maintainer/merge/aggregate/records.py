"""What is folded, and the order in which it is (spec 05 §8: fold by rank).

    records   a a a b c c     group by group, each group's oldest first
    rank 0    a     b c       one step: the first record of every group,
    rank 1      a       c     then the second one of those that have one, …
    rank 2        a

Each step is computed for all groups at once, so that a fold costs as many steps as the largest group has records, and every intermediate result
is the one that Java has. Groups are taken in order of their length, longest first: those that take part in a step are neighbours.

A few groups that are much longer than the others (a key that was updated thousands of times before a flush) are folded as a whole, one after
the other, if the function knows how to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from itertools import chain
from typing import Any, Protocol, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from maintainer.errors import MaintainerError, MergeError
from maintainer.merge.order import Int64s, stable_argsort

Int8s = npt.NDArray[np.int8]
Bools = npt.NDArray[np.bool_]
_LONG = 64
"""Records of a group that are folded step by step in any case."""
Slots = slice | Int64s
"""Which accumulators of a `Folding`: some neighbours, or these."""


class Verdict(IntEnum):
    """What one record does to the accumulator of its group."""

    SKIP = 0
    """Nothing; as if the record were not there."""
    APPLY = 1
    """acc := agg(acc, v)"""
    REVERSED = 2
    """acc := agg(v, acc), as if the record had come first (spec 05 §4.3 says where functions differ from that)"""
    RETRACT = 3
    """acc := retract(acc, v)"""
    REPLACE = 4
    """acc := v, whatever the function; what else it remembers stays as it is"""


@dataclass(frozen=True)
class Records:
    """The records of some groups, and what each does.

    `rows` are indices into the column, group by group, each group's oldest first; `starts` says where in `rows` a group begins; `verdicts` are
    by record. `key` gives the key of a group as text, for errors.
    """

    rows: Int64s
    starts: Int64s
    verdicts: Int8s
    key: Callable[[int], str]

    def __len__(self) -> int:
        """How many groups there are."""
        return len(self.starts)

    def lengths(self) -> Int64s:
        return np.diff(self.starts, append=len(self.rows))

    @cached_property
    def plan(self) -> Plan:
        """The steps of folding these records, which are the same for all columns."""
        lengths = self.lengths()
        longest_first = stable_argsort(-lengths)
        slot_of = np.empty(len(self), np.int64)
        slot_of[longest_first] = np.arange(len(self))
        lengths = lengths[longest_first]
        # a run costs about as much as a step
        runs = int(np.argmin(np.append(lengths, 0) + np.arange(len(self) + 1))) if len(self) and lengths[0] > _LONG else 0
        return Plan(longest_first, slot_of, runs, tuple(self._steps(lengths, self.starts[longest_first], runs)))

    def _steps(self, lengths: Int64s, starts: Int64s, first: int) -> Iterator[tuple[Slots, Int64s, Verdict]]:
        for rank in range(int(lengths[first]) if len(lengths) > first else 0):
            size = int(np.searchsorted(-lengths, -rank, "left"))
            at = starts[first:size] + rank
            rows, verdicts = self.rows[at], self.verdicts[at]
            for verdict in Verdict:
                chosen = verdicts == verdict
                if verdict is Verdict.SKIP or not chosen.any():
                    continue
                if chosen.all():
                    yield slice(first, size), rows, verdict
                else:
                    at = np.flatnonzero(chosen)
                    yield at + first, rows[at], verdict

    def part(self, groups: Int64s) -> Records:
        """Only these groups."""
        lengths = self.lengths()
        chosen = np.zeros(len(self), np.bool_)
        chosen[groups] = True
        rows = np.repeat(chosen, lengths)
        starts = np.cumsum(lengths[groups]) - lengths[groups]
        return Records(self.rows[rows], starts, self.verdicts[rows], lambda group: self.key(int(groups[group])))

    def group_of_rows(self) -> Int64s:
        """The group of each record."""
        return np.repeat(np.arange(len(self)), self.lengths())

    def without(self, *verdicts: Verdict) -> Records:
        """The same groups, some of them empty perhaps, without records of these verdicts."""
        kept = ~np.isin(self.verdicts, verdicts)
        if kept.all():
            return self
        before = np.concatenate(([0], np.cumsum(kept)))
        return Records(self.rows[kept], before[self.starts], self.verdicts[kept], self.key)


@dataclass(frozen=True)
class Plan:
    """The steps of a fold: `longest_first` is the group of each slot, `slot_of` the slot of each group; rows are by slot."""

    longest_first: Int64s
    slot_of: Int64s
    runs: int
    """How many slots, the first ones, are folded as a whole."""
    steps: tuple[tuple[Slots, Int64s, Verdict], ...]
    """Of the slots behind them."""


class Folding(Protocol):
    """Accumulators, one for each slot, and the four things that a record may do to them; `rows` are by slot."""

    def apply(self, slots: Slots, rows: Int64s) -> None: ...

    def reversed(self, slots: Slots, rows: Int64s) -> None: ...

    def retract(self, slots: Slots, rows: Int64s) -> None: ...

    def replace(self, slots: Slots, rows: Int64s) -> None: ...

    def run(self, slot: int, rows: Int64s, verdicts: Int8s) -> bool:
        """All records of one group at once, which has none before them; whether the function knows how to with these."""
        ...


@dataclass(frozen=True)
class Folded:
    """The value of each group: a row of the column, `len(column) + n` for the n-th computed value, −1 for NULL."""

    sources: Int64s
    computed: pa.Array | None = None


class StepError(Exception):
    """A step that has no result, at the n-th of its slots; outside of `fold_by_rank`, of the n-th group. `<column>` stands for the column."""

    def __init__(self, index: int, reason: str, kind: type[MaintainerError] = MergeError) -> None:
        self.index = index
        self.reason = reason
        self.kind = kind
        super().__init__(reason)


def unsupported(index: int = 0) -> StepError:
    """Of a function that cannot take a value back."""
    return StepError(index, "cannot take back what -U and -D records hold; fields.<column>.ignore-retract = true leaves the value as it is")


def fold_by_rank(records: Records, folding: Folding) -> Int64s:
    """Folds all records; returns the slot of each group. `StepError` names the group."""
    plan = records.plan
    do = {
        Verdict.APPLY: folding.apply,
        Verdict.REVERSED: folding.reversed,
        Verdict.RETRACT: folding.retract,
        Verdict.REPLACE: folding.replace,
    }
    for slots, rows, verdict in chain(_runs(records, plan, folding), plan.steps):
        try:
            do[verdict](slots, rows)
        except StepError as error:
            slot = slots.start + error.index if isinstance(slots, slice) else int(slots[error.index])
            raise StepError(int(plan.longest_first[slot]), error.reason) from None
    return plan.slot_of


def _runs(records: Records, plan: Plan, folding: Folding) -> Iterator[tuple[Slots, Int64s, Verdict]]:
    """Folds the long groups; those that have to be folded record by record come out as steps."""
    ends = records.starts + records.lengths()
    for slot, group in enumerate(plan.longest_first[: plan.runs].tolist()):
        start, stop = int(records.starts[group]), int(ends[group])
        try:
            done = folding.run(slot, records.rows[start:stop], records.verdicts[start:stop])
        except StepError as error:
            raise StepError(group, error.reason) from None
        if not done:
            for n in range(start, stop):
                if records.verdicts[n] != Verdict.SKIP:
                    yield slice(slot, slot + 1), records.rows[n : n + 1], Verdict(int(records.verdicts[n]))


def refuse_retracts(records: Records) -> None:
    """For functions that cannot take a value back, whatever it is."""
    retracts = np.flatnonzero(records.verdicts == Verdict.RETRACT)
    if len(retracts):
        raise unsupported(int(np.searchsorted(records.starts, retracts[0], "right")) - 1)


def counted(records: Records, mask: Bools) -> Int64s:
    """How many of the records of each group are in the mask."""
    before = np.concatenate(([0], np.cumsum(mask)))
    return cast(Int64s, before[records.starts + records.lengths()] - before[records.starts])


def meetings(records: Records, valid: Bools) -> tuple[Int64s, Int64s]:
    """For functions where NULL on one side gives the other one: the source of each group, and the groups that have to be computed, as at least
    two values meet in them or a value is taken back or put in place of others."""
    given = valid[records.rows]
    counts = counted(records, given)
    plain = counted(records, records.verdicts == Verdict.APPLY) == records.lengths()
    sources = np.full(len(records), -1, np.int64)
    single = (counts == 1) & plain
    group = records.group_of_rows()
    taken = given & single[group]
    sources[group[taken]] = records.rows[taken]
    return sources, np.flatnonzero((counts > 0) & ~single)


def fold_one_by_one(
    records: Records,
    names: Int64s,
    value: Callable[[int], Any],
    agg: Callable[[Any, Any], Any],
    retract: Callable[[Any, Any], Any] | None = None,
    swaps: bool = True,
) -> list[Any]:
    """What all groups become, for functions without a form for whole columns; None is NULL. `value` gives that of the n-th record, `swaps` says
    whether reversed means agg(v, acc), and errors call the groups by their `names`."""
    results = []
    ends = records.starts + records.lengths()
    for name, start, end in zip(names.tolist(), records.starts.tolist(), ends.tolist(), strict=True):
        acc = None
        for n, verdict in zip(range(start, end), records.verdicts[start:end].tolist(), strict=True):
            try:
                if verdict == Verdict.APPLY:
                    acc = agg(acc, value(n))
                elif verdict == Verdict.REVERSED:
                    acc = agg(value(n), acc) if swaps else agg(acc, value(n))
                elif verdict == Verdict.REPLACE:
                    acc = value(n)
                elif verdict == Verdict.RETRACT:
                    if retract is None:
                        raise unsupported()
                    acc = retract(acc, value(n))
            except StepError as error:
                raise StepError(name, error.reason, error.kind) from None
        results.append(acc)
    return results
