"""The values of a source group in key order: what every sorted family is built from (spec 08 §2.2, §2.3, §9.1; Java `PkSortedIndexBuilder`).

    rows ─▶ pairs (value, row) ─┬─ they fit ──▶ sorted in memory ───────────────────────────┐
                                └─ else ──▶ sorted by so many as fit ──▶ runs in a file ──▶ merged ─▶ keys with their rows
    what an older payload has, a run too ─────────────────────────────────────────────────▶┘

Keys come out in batches, each with all of its rows. What has so many rows that a run or a batch would have to be large for it comes in parts on
the way, and is put together to a `LargeKey` at the end: a bitmap of the rows. So what is held is bounded by the memory that is given, and by an
eighth of a byte for each row of the group.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from maintainer.errors import MaintainerError
from maintainer.format import key_bytes
from maintainer.format.row_set import RowSet
from maintainer.format.stored_block import Sink
from maintainer.index.definition import IndexDefinition
from maintainer.index.family.carried import Carried
from maintainer.index.family.column_sort import Column, Pairs, SortedColumn, plain
from maintainer.index.family.key_runs import KeyBatch, merge_runs
from maintainer.index.family.spilled_runs import SpilledRuns
from maintainer.index.payload import BuiltPayload, Resources, Rows
from maintainer.model.types import DataType

BATCH_ROWS = 1 << 18
BATCH_KEY_BYTES = 32 << 20
_PIECE = 1 << 16
"""Values that are taken in at once."""
_MERGE_SHARE = 2
"""Of the memory a merge has this part; the rest is for what is made of the keys."""

DEFAULT_RESOURCES = Resources()


@dataclass(frozen=True)
class LargeKey:
    """A key with very many rows."""

    key: bytes
    rows: RowSet


class SortedFamily(Protocol):
    """A family whose payloads are keys in order, each with its rows."""

    def build_keys(
        self,
        keys: Iterable[KeyBatch | LargeKey],
        null_rows: RowSet,
        definition: IndexDefinition,
        total_rows: int,
        sink: Sink,
        resources: Resources,
    ) -> BuiltPayload:
        """A payload of all keys; `null_rows` is complete when they have been taken."""


def all_rows(rows: Iterable[Rows], total_rows: int, carried: Carried | None) -> Iterator[Rows]:
    """The same rows in pieces. They must be all that a payload has; there may be gaps between them only where others are carried."""
    after = taken = 0
    for first, values in rows:
        if first != after and (carried is None or first < after):
            raise MaintainerError(f"rows from {after} on are missing, or come twice: the next is {first}")
        after = first + len(values)
        taken += len(values)
        for start in range(0, len(values), _PIECE):
            yield Rows(first + start, values.slice(start, _PIECE))
    taken += 0 if carried is None else carried.rows
    if taken != total_rows or after > total_rows:
        raise MaintainerError(f"the source files hold {taken} rows instead of the {total_rows} that their metadata says")
    if not taken:
        raise MaintainerError("an index payload needs at least one row")


class Values:
    """The values of rows that are not null; `null_rows` are the others, complete when all rows have been taken."""

    def __init__(self, rows: Iterable[Rows], data_type: DataType, total_rows: int, carried: Carried | None = None) -> None:
        key_bytes.check_type(data_type)
        self.null_rows = RowSet()
        self.carried = None if carried is None else carried.run
        self._rows = all_rows(rows, total_rows, carried)
        self._type = data_type
        for ids in () if carried is None else carried.null_ids:
            self.null_rows.add(ids)

    def __iter__(self) -> Iterator[Pairs]:
        for first, values in self._rows:
            yield self._pairs(first, plain(values, self._type))

    def _pairs(self, first: int, values: pa.Array) -> Pairs:
        if not values.null_count:
            return Pairs(values, range(first, first + len(values)))
        null = values.is_null().to_numpy(zero_copy_only=False)
        self.null_rows.add(np.flatnonzero(null) + first)
        return Pairs(values.drop_null(), np.flatnonzero(~null) + first)


@contextmanager
def in_key_order(
    pairs: Iterable[Pairs], key_type: DataType, resources: Resources, carried: Iterator[KeyBatch] | None = None
) -> Iterator[Iterator[KeyBatch | LargeKey]]:
    """All keys of the pairs, and of a run that is merged with them, each once and in order. What is spilled is gone when the block ends."""
    with SpilledRuns(resources.spill, resources.memory // _MERGE_SHARE, key_type) as runs:
        column = Column(key_type)
        for values, ids in pairs:
            for start in range(0, len(values), _PIECE):
                column.add(Pairs(values.slice(start, _PIECE), ids[start : start + _PIECE]))
                if column.memory >= resources.memory:
                    _spill(column, runs)
        beside = [] if carried is None else [carried]
        if not len(runs):
            keys = merge_runs([*beside, SortedColumn(column).batches(BATCH_ROWS, BATCH_KEY_BYTES)], key_type)
        else:
            _spill(column, runs)
            keys = runs.merged(*beside)
        yield whole_keys(keys)


def _spill(column: Column, runs: SpilledRuns) -> None:
    """Write what a column holds as a run; it is empty then."""
    runs.append(SortedColumn(column).batches(max(1, runs.batch_bytes // 8), runs.batch_bytes))


def each_row_once(keys: Iterable[KeyBatch | LargeKey], null_rows: RowSet, total_rows: int) -> Iterator[KeyBatch | LargeKey]:
    """The same keys; at their end `MaintainerError` unless they have as many rows as there are besides those without a value."""
    count = 0
    for batch in keys:
        count += len(batch.rows) if isinstance(batch, LargeKey) else len(batch.ids)
        yield batch
    count += len(null_rows)
    if count != total_rows:
        raise MaintainerError(f"an index payload would have {count} rows instead of {total_rows}")


def whole_keys(batches: Iterable[KeyBatch]) -> Iterator[KeyBatch | LargeKey]:
    """A key at the end of a batch may go on at the begin of the next ones: its rows are put together."""
    held: KeyBatch | None = None
    large: LargeKey | None = None
    for batch in batches:
        if held is not None and len(batch) and held.keys[-1] == batch.keys[0]:
            if len(held) > 1:
                yield held.slice(0, len(held) - 1)
            large = LargeKey(batch.keys[0], RowSet())
            large.rows.add(held.ids[held.starts[-1] :])
            held = None
        if large is not None and len(batch):
            if batch.keys[0] == large.key:
                large.rows.add(batch.slice(0, 1).ids)
                batch = batch.slice(1, len(batch))
            if len(batch):
                yield large
                large = None
        if len(batch):
            if held is not None:
                yield held
            held = batch
    if held is not None:
        yield held
    if large is not None:
        yield large
