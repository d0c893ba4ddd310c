"""Candidates: all records of the keys of one range, before they are merged (spec 05 §1; Java `SortMergeReader`, `MergeSorter`).

    rows     3 records of key a, 1 of b, 2 of c, as they came out of the files
    order    a₂ a₀ a₁ │ b₀ │ c₁ c₀        rows, key by key; the records of a key from the oldest to the newest one
    starts   0          3    4            where in `order` a key begins

A record is older than another one of its key if its sequence fields are smaller (NULL is smallest, in either order), then its sequence number,
then if it retracts and the other one adds, then if it is in an older file: a higher level, an older file of level 0 (spec 04 §14.4). Merging
looks at nothing but this order; what the levels mean for it is `high`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from maintainer.merge.order import Int64s, Keys, comparable_columns, stable_argsort
from maintainer.model.files import DataFileMeta
from maintainer.model.row_kind import RETRACT_BIT
from maintainer.model.schema import KIND_FIELD, SEQUENCE_FIELD, TableSchema
from maintainer.model.types import DataType, TypeRoot
from maintainer.model.values import order_key
from maintainer.table.merging import MergeRules

BUFFERED = -1
"""The level of records that a writer has not flushed yet."""
AGE = "_AGE"
"""In temporary files: the age of a row, by which those of a key are ordered where nothing else does. Not of level 0: the level, negative."""
_NO_LEVEL = np.int8(127)
_RANKED = frozenset({TypeRoot.ARRAY, TypeRoot.VECTOR, TypeRoot.ROW})

ReadBatches = Callable[[Sequence[str], int], Iterator[pa.RecordBatch]]
"""(columns, most rows of a batch) → the live rows of a file, in file order."""


@dataclass(frozen=True)
class Source:
    """A data file that takes part in a merge.

    `ordered` is False for a level-0 file that `scan` found out of order; `held` is what reading it holds in memory beside the batches; `width`
    are the bytes of a row, where they are known. `aged`: keys repeat, and each row says how old it is, as in `ages` (column `AGE`).
    """

    file: DataFileMeta
    read: ReadBatches
    ordered: bool = True
    held: int = 0
    width: float = 0.0
    aged: bool = False


@dataclass(frozen=True)
class SequenceOrder:
    """The sequence fields of a table with their types, and whether larger values are older."""

    types: Mapping[str, DataType] = field(default_factory=dict)
    descending: bool = False

    @classmethod
    def of(cls, rules: MergeRules, schema: TableSchema) -> SequenceOrder:
        return cls({name: schema.field(name).type for name in rules.sequence_fields}, rules.descending)


@dataclass(frozen=True)
class Candidates:
    """All records of some keys. `rows` are in the order of `keys` and `levels`; `order` and `starts` are described above. `by_file`: the order
    of the records of each key is that of their files, as it is nearly always: higher levels first, so that the last one always counts."""

    rows: pa.Table
    keys: Keys
    levels: npt.NDArray[np.int8]
    order: Int64s
    starts: Int64s
    sequence: SequenceOrder = SequenceOrder()
    by_file: bool = False
    ages: Int64s | None = None
    """By row, if that was asked for."""

    @classmethod
    def sorted(
        cls, rows: pa.Table, keys: Keys, levels: npt.NDArray[np.int8], sequence: SequenceOrder, ages: Int64s | None = None
    ) -> Candidates:
        """Of rows that come oldest first as far as their files say; if they do not, `ages` says it."""
        if ages is None or (ages[1:] >= ages[:-1]).all():
            order, starts = keys.sort()
        else:
            by_file = stable_argsort(ages)
            order, starts = keys.take(by_file).sort()
            order = by_file[order]
        by_age = _by_age(rows, order, starts, sequence)
        return cls(rows, keys, levels, by_age, starts, sequence, by_age is order, ages)

    @classmethod
    def unique(cls, rows: pa.Table, keys: Keys, levels: npt.NDArray[np.int8], sequence: SequenceOrder) -> Candidates:
        """Of rows that are in key order, one of each key."""
        every = np.arange(len(keys))
        return cls(rows, keys, levels, every, every, sequence, by_file=True)

    @property
    def groups(self) -> int:
        """How many keys there are."""
        return len(self.starts)

    @property
    def is_unique(self) -> bool:
        """Whether the rows are in key order, and no key has two."""
        return self.order is self.starts

    @cached_property
    def lengths(self) -> Int64s:
        """How many records each key has."""
        return np.diff(self.starts, append=len(self.order))

    @cached_property
    def last(self) -> Int64s:
        """The newest record of each key."""
        return self.order if len(self.starts) == len(self.order) else self.order[np.append(self.starts[1:], len(self.order)) - 1]

    @cached_property
    def kinds(self) -> npt.NDArray[np.int8]:
        """By row."""
        return cast("npt.NDArray[np.int8]", self.rows.column(KIND_FIELD.name).to_numpy())

    @cached_property
    def high(self) -> Int64s:
        """Of each key the record of the smallest level above 0, −1 if there is none: it contains those of higher levels."""
        if not (self.levels > 0).any():
            return np.full(self.groups, -1, np.int64)
        levels = self.levels[self.order]
        if self.groups == len(self.order):
            return np.where(levels > 0, self.order, -1)
        if self.by_file:
            counts = np.add.reduceat(levels > 0, self.starts, dtype=np.int64)
            return np.where(counts > 0, self.order[self.starts + counts - 1], -1)
        above = np.where(levels > 0, levels, _NO_LEVEL)
        smallest = np.minimum.reduceat(above, self.starts)
        chosen = np.flatnonzero((above == np.repeat(smallest, self.lengths)) & (above != _NO_LEVEL))
        found = np.full(self.groups, -1, np.int64)
        found[self.group_of_records[chosen]] = self.order[chosen]
        return found

    @cached_property
    def group_of_records(self) -> Int64s:
        """The number of the key of each record in `order`."""
        return np.repeat(np.arange(self.groups), self.lengths)

    @cached_property
    def has_level_0(self) -> npt.NDArray[np.bool_]:
        """Whether a record of a key is in level 0, or buffered."""
        low = self.levels[self.order] <= 0
        return low if self.groups == len(low) else np.logical_or.reduceat(low, self.starts)

    def group_keys(self, groups: npt.NDArray[Any] | None = None) -> Keys:
        """The keys of some groups (numbers, or a mask), ascending; None: all."""
        first = self.order[self.starts]
        return self.keys.take(first if groups is None else first[groups])

    def counting(self) -> Candidates:
        """Without the records that are contained in another one: above level 0, but not of the smallest level (spec 05 §1.3)."""
        if not (self.levels > 0).any():
            return self
        high = self.high if len(self.order) == self.groups else np.repeat(self.high, self.lengths)
        counts = (self.levels[self.order] <= 0) | (self.order == high)
        if counts.all():
            return self
        before = np.concatenate(([0], np.cumsum(counts)))
        return replace(self, order=self.order[counts], starts=before[self.starts], by_file=False)

    def joined(self, rows: pa.Table, groups: Int64s, levels: npt.NDArray[np.int8]) -> Candidates:
        """One more record for each of some keys: what a lookup found in levels above."""
        if not len(groups):
            return self
        size = len(self.keys)
        keys = Keys.concat([self.keys, self.group_keys(groups)])
        of_group = np.concatenate((groups, self.group_of_records))
        by_group = of_group.argsort(kind="stable")  # found records come first, as they are in older files
        order = np.concatenate((np.arange(size, size + len(groups)), self.order))[by_group]
        starts = np.searchsorted(of_group[by_group], np.arange(self.groups))
        table = pa.concat_tables([self.rows, rows.select(self.rows.column_names).cast(self.rows.schema)])
        order = _by_age(table, order, starts, self.sequence)
        return Candidates(table, keys, np.concatenate((self.levels, levels.astype(np.int8))), order, starts, self.sequence)


def _by_age(rows: pa.Table, order: Int64s, starts: Int64s, sequence: SequenceOrder) -> Int64s:
    """The order with the records of each key from the oldest to the newest; what is equal stays as it is."""
    size = len(order)
    if len(starts) == size:
        return order
    new = np.zeros(size, np.bool_)
    new[starts] = True
    numbers = rows.column(SEQUENCE_FIELD.name).to_numpy()
    if not sequence.types:
        ordered = numbers[order]
        if (new[1:] | (ordered[1:] > ordered[:-1])).all():
            return order
    several = ~new
    several[:-1] |= several[1:]
    at = np.flatnonzero(several)
    chosen = order[at]
    group = (np.cumsum(new) - 1)[at]
    adds = (rows.column(KIND_FIELD.name).to_numpy()[chosen].astype(np.int64) & RETRACT_BIT) ^ RETRACT_BIT
    words: list[Any] = [group]
    for name, data_type in sequence.types.items():
        words += sequence_words(rows.column(name), data_type, chosen, sequence.descending)
    by_age, _ = Keys([*words, numbers[chosen], adds], len(chosen)).sort()
    order = order.copy()
    order[at] = chosen[by_age]
    return order


def sequence_words(column: pa.ChunkedArray, data_type: DataType, rows: Int64s, descending: bool = False) -> list[Int64s]:
    """What orders these rows by a column: whether there is a value, and words that compare like the values."""
    values = column.take(pa.array(rows)).combine_chunks()
    valid = np.asarray(values.is_valid()) if values.null_count else np.ones(len(values), np.bool_)
    words = (np.where(valid, ~part if descending else part, 0) for part in _words(values, data_type))
    return [valid.astype(np.int64), *words]


def _words(values: pa.Array, data_type: DataType) -> Iterator[Int64s]:
    """What is said of a NULL means nothing."""
    if data_type.root in _RANKED:
        # nested values have no words: distinct ones are few among records that meet
        found = values.to_pylist()
        by_text = {repr(value): value for value in found}
        ranks = {text: rank for rank, text in enumerate(sorted(by_text, key=lambda text: _nested_order(by_text[text])))}
        yield np.array([ranks[repr(value)] for value in found], np.int64)
        return
    for part in comparable_columns(values, data_type):
        if isinstance(part, np.ndarray):
            yield part
        else:
            yield cast(Int64s, pc.rank(part, "ascending", tiebreaker="dense").to_numpy().astype(np.int64))


def _nested_order(value: Any) -> Any:
    """Element by element, member by member; what is shorter comes first, and NULL before everything."""
    match value:
        case None:
            return (0,)
        case list():
            return (1, tuple(_nested_order(part) for part in value))
        case dict():
            return (1, tuple(_nested_order(part) for part in value.values()))
    return order_key(value)
