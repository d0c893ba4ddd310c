"""nested_update, nested_partial_update (spec 05 §6.5, §6.6; Java `FieldNestedUpdateAgg`, `FieldNestedPartialUpdateAgg`).

Like `collections`: groups are folded one by one, over numbers of nested rows. What identifies a row, and how new it is, is a number for each
row, computed for all of them at once. Rows come in the order in which their keys were first seen.

A row of nested_partial_update has members of several rows: it is a tuple, for each member the number of the row that it comes from.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from maintainer.merge.aggregate.identity import combined, identities
from maintainer.merge.aggregate.lists import Elements, Lists, column_of, list_column, struct_column
from maintainer.merge.aggregate.positions import valid_of
from maintainer.merge.aggregate.records import Folded, Records, StepError, Verdict, counted, fold_one_by_one, refuse_retracts
from maintainer.merge.order import Int64s, Keys, comparable_columns
from maintainer.model.types import BINARIES, CHARACTERS, DataType, TypeRoot
from maintainer.table.aggregates import Aggregate, NullStrategy

PartialRow = tuple[int, ...] | None
PartialRows = list[PartialRow] | None


def fold(aggregate: Aggregate, values: pa.Array, records: Records) -> Folded:
    is_partial = aggregate.name == "nested_partial_update"
    if is_partial:
        refuse_retracts(records)
    sources, groups = _chosen(records, values, aggregate)
    if not len(groups):
        return Folded(sources)
    sources[groups] = len(values) + np.arange(len(groups))
    records = records.part(groups)
    lists = Lists.of(values, records.rows)
    if is_partial:
        return Folded(sources, _partial_update(aggregate, lists, records, groups))
    update = _Update(aggregate, lists)
    agg, retract = (update.agg, update.retract) if aggregate.nested_key else (update.append, update.remove)
    return Folded(sources, column_of(lists, fold_one_by_one(records, groups, lists.at, agg, retract)))


def _chosen(records: Records, values: pa.Array, aggregate: Aggregate) -> tuple[Int64s, Int64s]:
    """The source of groups with one value of one row, which stays as it is, and the groups that are computed."""
    given = valid_of(values)[records.rows]
    counts = counted(records, given)
    sizes = np.diff(values.offsets.to_numpy())[records.rows]
    plain = counted(records, records.verdicts == Verdict.APPLY) == records.lengths()
    group = records.group_of_rows()
    single = given & (sizes == 1) & ((counts == 1) & plain)[group]
    if aggregate.count_limit < 1 or aggregate.null_strategy is not NullStrategy.MERGE or values.values.null_count:
        single[:] = False
    sources = np.full(len(records), -1, np.int64)
    sources[group[single]] = records.rows[single]
    return sources, np.flatnonzero((counts > 0) & (sources < 0))


class _Update:
    """The steps of nested_update, with a key and without."""

    def __init__(self, aggregate: Aggregate, lists: Lists) -> None:
        self.limit = aggregate.count_limit
        self.there = valid_of(lists.elements).tolist()
        self.key = _nested_key(aggregate, lists.elements) if aggregate.nested_key else identities(lists.elements).__getitem__
        self.newness = _newness(aggregate, lists.elements)

    def append(self, acc: Elements, value: Elements) -> Elements:
        if value is None:
            return acc
        new = [row for row in value if self.there[row]]
        if acc is None:
            return new[: max(self.limit, 0)]
        if len(acc) >= self.limit:
            return acc
        return [row for row in acc if self.there[row]] + new[: self.limit - len(acc)]

    def remove(self, acc: Elements, value: Elements) -> Elements:
        if acc is None or value is None:
            return acc
        gone = {self.key(row) for row in value if self.there[row]}
        return [row for row in acc if self.there[row] and self.key(row) not in gone]

    def agg(self, acc: Elements, value: Elements) -> Elements:
        if value is None:
            return acc
        found: dict[int, int] = {}
        for rows, limit in ((acc or [], None), (value, self.limit)):
            for row in rows:
                key = self.key(row) if self.there[row] else None
                if key is None:
                    continue
                if key in found:
                    if self.newness is None or self.newness[row] >= self.newness[found[key]]:
                        found[key] = row
                elif limit is None or len(found) < limit:
                    found[key] = row
        return list(found.values())

    def retract(self, acc: Elements, value: Elements) -> Elements:
        if acc is None or value is None:
            return acc
        found = {key: row for row in acc if self.there[row] and (key := self.key(row)) is not None}
        for row in value:
            key = self.key(row) if self.there[row] else None
            if key is not None:
                found.pop(key, None)
        return list(found.values())


def _partial_update(aggregate: Aggregate, lists: Lists, records: Records, groups: Int64s) -> pa.Array:
    elements = lists.elements
    members = elements.flatten()
    there = valid_of(elements).tolist()
    known = [valid_of(member).tolist() for member in members]
    key = _nested_key(aggregate, elements)
    key_at = elements.type.get_field_index(aggregate.nested_key[0])

    def value(n: int) -> PartialRows:
        numbers = lists.at(n)
        return None if numbers is None else [(row,) * len(members) if there[row] else None for row in numbers]

    def agg(acc: PartialRows, new: PartialRows) -> PartialRows:
        if new is None:
            return acc
        found: dict[int, tuple[int, ...]] = {}
        for row in [*(acc or []), *new]:
            name = None if row is None else key(row[key_at])
            if row is None or name is None:
                continue
            old = found.get(name)
            found[name] = row if old is None else tuple(b if known[i][b] else a for i, (a, b) in enumerate(zip(old, row, strict=True)))
        return list(found.values())

    results: list[PartialRows] = fold_one_by_one(records, groups, value, agg)
    rows = [row for result in results if result is not None for row in result]
    columns = [pc.take(member, pa.array([0 if row is None else row[i] for row in rows], pa.int64())) for i, member in enumerate(members)]
    return list_column(lists.type, results, struct_column(elements.type, columns, [row is not None for row in rows]))


def _nested_key(aggregate: Aggregate, elements: pa.Array) -> Callable[[int], int | None]:
    """What identifies a row; None: it is left out."""
    parts = [pc.struct_field(elements, name) for name in aggregate.nested_key]
    keys = combined([identities(part) for part in parts]).tolist()
    complete = np.logical_and.reduce([valid_of(part) for part in parts])
    if complete.all() or aggregate.null_strategy is NullStrategy.MERGE:
        return lambda row: int(keys[row])
    has_null = (~complete).tolist()

    def key(row: int) -> int | None:
        if not has_null[row]:
            return int(keys[row])
        if aggregate.null_strategy is NullStrategy.IGNORE:
            return None
        names = ", ".join(aggregate.nested_key)
        raise StepError(0, f"met a NULL in the nested key ({names}); fields.<column>.nested-key-null-strategy = ignore leaves such rows out")

    return key


def _newness(aggregate: Aggregate, elements: pa.Array) -> list[int] | None:
    """A number for each row that is the larger the newer it is; NULL is oldest."""
    if not aggregate.nested_sequence_field or aggregate.type.element is None:
        return None
    types: dict[str, DataType] = {field.name: field.type for field in aggregate.type.element.fields}
    columns: list[Any] = []
    for name in aggregate.nested_sequence_field:
        column, data_type = pc.struct_field(elements, name), types[name]
        valid = valid_of(column)
        columns.append(valid.astype(np.int64))
        if column.null_count and data_type.root in CHARACTERS | BINARIES:
            column = pc.fill_null(column, b"" if data_type.root in BINARIES else "")
        elif column.null_count and data_type.root is TypeRoot.BOOLEAN:
            column = pc.fill_null(column, False)
        columns.extend(np.where(valid, words, 0) if isinstance(words, np.ndarray) else words for words in comparable_columns(column, data_type))
    numbers = np.empty(len(elements), np.int64)
    order, starts = Keys(columns, len(elements)).sort()
    numbers[order] = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(elements)))
    newness: list[int] = numbers.tolist()
    return newness
