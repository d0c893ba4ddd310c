"""What a compaction tells readers of changes (spec 04 §8; Java `LookupChangelogMergeFunctionWrapper`, `FullChangelogMergeFunctionWrapper`).

For a key, `before` is the row that readers of changes know, and `after` what the compaction makes of it:

    before                  after    told
    none, or a retract      add      +I after
    none, or a retract      retract  nothing
    add                     retract  -D before
    add                     add      -U before, +U after; nothing if the rows are equal and the table does not want to hear of that (§8.4)

Which row `before` is, and which keys are looked at, depends on the producer (§8.2, §8.3). Each record told keeps the key, the sequence number
and the columns of the row that it is taken from.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from maintainer.merge.order import Int64s
from maintainer.model.row_kind import DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE
from maintainer.model.schema import KIND_FIELD, TableSchema
from maintainer.table.options import TableOptions

Bools = npt.NDArray[np.bool_]
Int8s = npt.NDArray[np.int8]

NOTHING = -1
"""The kind of a row that is not there."""


@dataclass(frozen=True)
class ChangelogRules:
    """`compared`: the columns of which one at least has to differ for an update to be told; None: every update is told."""

    compared: tuple[str, ...] | None = None

    @classmethod
    def of(cls, schema: TableSchema) -> ChangelogRules:
        options = TableOptions.of(schema)
        if not options.boolean("changelog-producer.row-deduplicate", False):
            return cls()
        ignored = {name.strip() for name in options.text("changelog-producer.row-deduplicate-ignore-fields").split(",")}
        return cls(tuple(name for name in schema.names if name not in ignored))


def records(before: pa.Table, before_kinds: Int8s, after: pa.Table, after_kinds: Int8s, rules: ChangelogRules) -> pa.Table:
    """The changelog of some keys, in their order.

    The kinds are by key, NOTHING where there is no row; `before` and `after` have a row for each other key, in order, and the same columns.
    """
    before_rows, after_rows = _positions(before_kinds), _positions(after_kinds)
    had, has = is_add(before_kinds), is_add(after_kinds)
    updated = had & has
    if rules.compared is not None and updated.any():
        keys = np.flatnonzero(updated)
        old, new = (table.select(rules.compared).take(pa.array(rows[keys])) for table, rows in ((before, before_rows), (after, after_rows)))
        updated[keys[_equal_rows(old, new)]] = False
    inserted = has & ~had
    deleted = had & ~has & (after_kinds != NOTHING)
    size = len(had)
    # two places for each key: what was, and what is
    kinds = np.full((size, 2), NOTHING, dtype=np.int8)
    kinds[updated] = (UPDATE_BEFORE, UPDATE_AFTER)
    kinds[deleted, 0] = DELETE
    kinds[inserted, 1] = INSERT
    rows = np.stack([before_rows, after_rows + before.num_rows], axis=1)
    told = kinds != NOTHING
    table = pa.concat_tables([before, after.select(before.column_names)]).take(pa.array(rows[told]))
    position = table.schema.get_field_index(KIND_FIELD.name)
    return table.set_column(position, table.schema.field(position), pa.chunked_array([pa.array(kinds[told])]))


def is_add(kinds: Int8s) -> Bools:
    """Whether a row is there and does not retract."""
    adds: Bools = (kinds == INSERT) | (kinds == UPDATE_AFTER)
    return adds


def _positions(kinds: Int8s) -> Int64s:
    return np.cumsum(kinds != NOTHING) - 1


def _equal_rows(left: pa.Table, right: pa.Table) -> Bools:
    equal = np.ones(left.num_rows, dtype=np.bool_)
    for one, other in zip(left.columns, right.columns, strict=True):
        equal &= equal_values(one.combine_chunks(), other.combine_chunks())
    return equal


def equal_values(left: pa.Array, right: pa.Array) -> Bools:
    """Whether values are equal, one by one, as Java's generated code has it: NULL equals NULL, and NaN nothing (spec 04 §8.4)."""
    valid, other_valid = _numpy(left.is_valid()), _numpy(right.is_valid())
    equal: Bools = valid == other_valid
    both = np.flatnonzero(valid & other_valid)
    if len(both) < len(left):
        left, right = left.take(pa.array(both)), right.take(pa.array(both))
    equal[both] = _equal_valid(left, right)
    return equal


def _equal_valid(left: pa.Array, right: pa.Array) -> Bools:
    kind = left.type
    if pa.types.is_struct(kind):
        equal = np.ones(len(left), dtype=np.bool_)
        for index in range(kind.num_fields):
            equal &= equal_values(pc.struct_field(left, [index]), pc.struct_field(right, [index]))
        return equal
    if pa.types.is_map(kind):
        return _equal_maps(left, right)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return _equal_lists(left, right)
    same: Bools = _numpy(pc.equal(left, right))
    return same


def _equal_lists(left: pa.Array, right: pa.Array) -> Bools:
    lengths, others = _numpy(pc.list_value_length(left)), _numpy(pc.list_value_length(right))
    equal = lengths == others
    alike = np.flatnonzero(equal)
    left, right = (pc.list_flatten(values.take(pa.array(alike))) for values in (left, right))
    return _all_of(equal, alike, lengths[alike], equal_values(left, right))


def _equal_maps(left: pa.Array, right: pa.Array) -> Bools:
    """Entry by entry; only where that says no, which may be for their order alone, entry sets are compared in Python."""
    offsets, others = _numpy(left.offsets), _numpy(right.offsets)
    lengths = np.diff(offsets)
    equal = lengths == np.diff(others)
    alike = np.flatnonzero(equal)
    entries = np.ones(int(lengths[alike].sum()), dtype=np.bool_)
    for part in ("keys", "items"):
        pieces = (
            getattr(values, part).take(pa.array(_spans(starts[alike], lengths[alike]))) for values, starts in ((left, offsets), (right, others))
        )
        entries &= equal_values(*pieces)
    equal = _all_of(equal, alike, lengths[alike], entries)
    for index in alike[~equal[alike]]:
        one, other = left[int(index)].as_py(), right[int(index)].as_py()
        equal[index] = all(entry in other for entry in one)
    return equal


def _spans(starts: Int64s, lengths: Int64s) -> Int64s:
    """The positions of consecutive values, for each start as many as its length."""
    ends = np.cumsum(lengths)
    return np.repeat(starts - (ends - lengths), lengths) + np.arange(int(ends[-1]) if len(ends) else 0)


def _all_of(equal: Bools, alike: Int64s, lengths: Int64s, values: Bools) -> Bools:
    """`equal`, and of the lists `alike` only those of which all values are."""
    unequal = np.concatenate(([0], np.cumsum(~values)))
    ends = np.cumsum(lengths)
    equal[alike] = unequal[ends] == unequal[ends - lengths]
    return equal


def _numpy(values: pa.Array) -> Any:
    return values.to_numpy(zero_copy_only=False)
