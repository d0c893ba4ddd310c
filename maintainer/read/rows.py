"""The rows of one data file that a scan wants (spec 07 §9, 02 §12.9): selected positions, less deleted ones, that satisfy the predicate.

    row groups ── a wanted position? ── bounds allow the predicate? ──▶ pieces, for several threads ──▶ batches

Where an index selects rows, all columns of their row groups are read, and the selected rows are taken out before anything else is done with
them. Where nothing is selected, or what was selected gave no row, the columns of the predicate are read first, and of the others only row
groups in which a row is left. No other columns are read. Partition columns come from the manifest.

Memory: some batches, of about `BATCH_BYTES`, and the tested columns of rows that the predicate leaves of one row group, up to `MOST_LEFT`; on a
remote store, of as many as are fetched at once. Row groups of more than `WHOLE_GROUP` bytes are read with all columns at once, so that they
stream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from maintainer.data.data_file import Positions
from maintainer.data.reader import DataFile, open_data_file
from maintainer.data.values import to_arrow_array
from maintainer.format.kept import Cache
from maintainer.model.files import BucketKey, DataFileMeta
from maintainer.model.predicate import Predicate, fields_of
from maintainer.model.schema import TableSchema
from maintainer.read.parallel import Part, flat
from maintainer.read.prune import Bounds, compiled
from maintainer.read.residual import mask
from maintainer.table.store import TableStore

BATCH_ROWS = 65_536
BATCH_BYTES = 8 << 20
WHOLE_GROUP = 128 << 20
MOST_LEFT = 64 << 20
_FEW = 1000
"""Rows that are not worth a batch by themselves."""


@dataclass(frozen=True)
class RowReader:
    """How the files of one scan are read: which columns come out, and what rows must satisfy."""

    store: TableStore
    schema: TableSchema
    columns: tuple[str, ...]
    predicate: Predicate | None = None

    def read(self, key: BucketKey, file: DataFileMeta, positions: BitMap64 | None, deleted: BitMap64) -> Iterator[pa.RecordBatch]:
        """The wanted rows of a file of a bucket in file order: at `positions` (None: all of them), less the `deleted` ones."""
        return flat(self.parts(key, file, positions, lambda: deleted))

    def parts(self, key: BucketKey, file: DataFileMeta, positions: BitMap64 | None, deletions: Callable[[], BitMap64]) -> Iterator[Part]:
        """The same, as batches or as the pieces of the file in order, each of which may be read by another thread. What is deleted is asked for
        when the file is open."""
        path = self.store.layout.data_file_path(*key, file)
        with open_data_file(self.store.storage, path, file, self.store.schema(file.schema_id), self.schema, self._cache) as data:
            data.uses_threads = True
            deleted = deletions()
            if positions is not None:
                positions = positions - deleted
                if not positions:
                    return
                data.narrow(positions)
            selected = None if positions is None else _array(positions)
            rows = _FileRows(self, self._constants(key.partition), data.is_columnar, selected, _array(deleted))
            pieces = rows.pieces(data)
            if len(pieces) <= 1:
                for piece in pieces:
                    yield from rows.of(data, piece)
                return
        for piece in pieces:
            yield partial(rows.of_another, data, piece)

    @cached_property
    def _cache(self) -> Cache:
        return self.store.cache("files", self.store.options(self.schema).file_cache_size)

    def _constants(self, partition: bytes) -> Mapping[str, pa.Scalar]:
        names = self.schema.partition_keys
        values = self.store.layout.partition_values(partition) if names else ()
        return {name: to_arrow_array([value], self.schema.field(name).type)[0] for name, value in zip(names, values, strict=True)}


@dataclass(frozen=True, eq=False)
class _FileRows:
    """What is wanted of one file; for all threads."""

    reader: RowReader
    constants: Mapping[str, pa.Scalar]
    is_columnar: bool
    selected: Positions | None
    """None: all rows but the deleted ones."""
    deleted: Positions

    @cached_property
    def tested(self) -> list[str]:
        """The columns of the predicate."""
        found = frozenset() if self.reader.predicate is None else fields_of(self.reader.predicate)
        return [name for name in self.reader.schema.names if name in found and name not in self.constants]

    @cached_property
    def others(self) -> list[str]:
        return [name for name in dict.fromkeys(self.reader.columns) if name not in self.tested and name not in self.constants]

    def pieces(self, data: DataFile) -> list[list[int]]:
        """The row groups that can hold a wanted row."""
        groups = self._groups(data)
        return data.pieces(groups, [*self.tested, *self.others]) if groups else []

    def _groups(self, data: DataFile) -> list[int]:
        groups: list[int] = np.flatnonzero(self._alive(data)).tolist()
        if self.reader.predicate is None or not self.tested:
            return groups
        test = compiled(self.reader.predicate)
        bounds = {name: [Bounds(*(found or ())) for found in data.group_bounds(name, groups)] for name in self.tested}
        return [group for at, group in enumerate(groups) if test({name: found[at] for name, found in bounds.items()})]

    def _alive(self, data: DataFile) -> Positions:
        """How many wanted rows each row group has."""
        firsts = np.array([group.first for group in data.row_groups], dtype=np.int64)
        rows = np.array([group.rows for group in data.row_groups], dtype=np.int64)
        counted = self.deleted if self.selected is None else self.selected
        found = np.searchsorted(counted, firsts + rows) - np.searchsorted(counted, firsts)
        return rows - found if self.selected is None else found

    def of_another(self, data: DataFile, groups: Sequence[int]) -> Iterator[pa.RecordBatch]:
        """The rows of a piece of a file that was opened, and may be closed."""
        with data.again() as opened:
            yield from self.of(opened, groups)

    def of(self, data: DataFile, groups: Sequence[int]) -> Iterator[pa.RecordBatch]:
        """The rows of these row groups, which have some that can be wanted."""
        can_wait = bool(self.tested and self.others) and self.is_columnar
        if self.selected is None:
            yield from self._waiting(data, groups) if can_wait else self._all(data, groups)
            return
        if can_wait and len(groups) > 1:  # what is left of the first ones tells what to expect of the others
            first, *others = data.together(groups, [*self.tested, *self.others])
            rows = self._selected(data, first)
            batch = next(rows, None)
            if batch is not None:
                yield batch
                yield from rows
            groups = list(chain.from_iterable(others))
            if batch is None:
                yield from self._waiting(data, groups)
                return
        yield from self._selected(data, groups)

    def _waiting(self, data: DataFile, groups: Sequence[int]) -> Iterator[pa.RecordBatch]:
        """The columns of the predicate before the others, but for row groups that are so large that they must stream."""
        for together in data.together(groups, [*self.tested, *self.others]):
            if all(data.group_bytes(group) <= WHOLE_GROUP for group in together):
                yield from self._tested_first(data, together)
            elif self.selected is None:
                yield from self._all(data, together)
            else:
                yield from self._selected(data, together)

    def _all(self, data: DataFile, groups: Sequence[int]) -> Iterator[pa.RecordBatch]:
        """All columns at once, where every row that is not deleted is wanted, but for the predicate."""
        names = [*self.tested, *self.others]
        for first, batch in data.batches(names, self._batch_rows(data, groups, names), groups):
            keep = self._keep(batch := self._with_constants(self._without_deleted(first, batch)))
            yield from self._out(batch if keep is None else batch.filter(pa.array(keep)))

    def _selected(self, data: DataFile, groups: Sequence[int]) -> Iterator[pa.RecordBatch]:
        """All columns at once, of selected rows."""
        assert self.selected is not None
        names = [*self.tested, *self.others]
        for batch in _joined(data.selected(names, self.selected, self._batch_rows(data, groups, names), groups)):
            keep = self._keep(batch := self._with_constants(batch))
            yield from self._out(batch if keep is None else batch.filter(pa.array(keep)))

    def _tested_first(self, data: DataFile, groups: Sequence[int]) -> Iterator[pa.RecordBatch]:
        """The columns of the predicate, and the others of row groups in which rows are left."""
        found: list[Positions] = []
        left: list[pa.RecordBatch] = []
        size = 0
        for at, batch in self._tested(data, groups):
            keep = self._keep(batch := self._with_constants(batch))
            if keep is not None:
                at, batch = at[keep], batch.filter(pa.array(keep))
            if len(at):
                found.append(at)
                left.append(batch)
                size += batch.nbytes
            if size > MOST_LEFT:  # values that the file has once, and the rows many times
                yield from self._beside(data, groups, np.concatenate(found), left)
                found, left, size = [], [], 0
        if found:
            yield from self._beside(data, groups, np.concatenate(found), left)

    def _beside(self, data: DataFile, groups: Sequence[int], positions: Positions, left: Sequence[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The other columns of the rows at these positions beside those that were tested."""
        tested, start = pa.Table.from_batches(left).combine_chunks(), 0
        rows = self._batch_rows(data, groups, [*self.tested, *self.others])
        for at, batch in data.selected(self.others, positions, rows, groups):
            beside = tested.slice(start, len(at)).to_batches()
            assert len(beside) == 1
            start += len(at)
            arrays = [*beside[0].columns, *batch.columns]
            yield from self._out(pa.RecordBatch.from_arrays(arrays, schema=pa.schema([*beside[0].schema, *batch.schema])))

    def _tested(self, data: DataFile, groups: Sequence[int]) -> Iterator[tuple[Positions, pa.RecordBatch]]:
        """The columns of the predicate of the rows that are wanted but for it."""
        rows = self._batch_rows(data, groups, self.tested)
        if self.selected is not None:
            yield from data.selected(self.tested, self.selected, rows, groups)
            return
        for first, batch in data.batches(self.tested, rows, groups):
            alive = self._live(first, batch.num_rows)
            if alive is None:
                yield np.arange(first, first + batch.num_rows), batch
            else:
                yield alive + first, batch.take(pa.array(alive))

    def _without_deleted(self, first: int, batch: pa.RecordBatch) -> pa.RecordBatch:
        alive = self._live(first, batch.num_rows)
        return batch if alive is None else batch.take(pa.array(alive))

    def _live(self, first: int, rows: int) -> Positions | None:
        """The rows among these that are not deleted, counted from the first; None: all of them."""
        low, high = np.searchsorted(self.deleted, (first, first + rows))
        if low == high:
            return None
        alive = np.ones(rows, dtype=bool)
        alive[self.deleted[low:high] - first] = False
        return np.flatnonzero(alive)

    def _with_constants(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        for name, value in self.constants.items():
            field = pa.field(name, value.type, self.reader.schema.field(name).type.nullable)
            batch = batch.append_column(field, pa.repeat(value, batch.num_rows))
        return batch

    def _keep(self, batch: pa.RecordBatch) -> np.typing.NDArray[np.bool_] | None:
        """Which rows satisfy the predicate; None: all of them."""
        if self.reader.predicate is None:
            return None
        keep = mask(self.reader.predicate, batch, self.reader.schema)
        return None if keep.all() else keep

    def _out(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        if batch.num_rows:
            yield batch.select(list(self.reader.columns))

    @staticmethod
    def _batch_rows(data: DataFile, groups: Sequence[int], names: Sequence[str]) -> int:
        rows = max(1, sum(data.row_groups[group].rows for group in groups))
        size = max(1, sum(data.group_bytes(group, names) for group in groups))
        return min(BATCH_ROWS, max(256, BATCH_BYTES * rows // size))


def _joined(batches: Iterator[tuple[Positions, pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
    """A few rows of each of many row groups as one batch."""
    few: list[pa.RecordBatch] = []
    rows = size = 0
    for _, batch in batches:
        few.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= _FEW or size >= BATCH_BYTES:
            yield _one(few)
            few, rows, size = [], 0, 0
    if few:
        yield _one(few)


def _one(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.Table.from_batches(batches).combine_chunks().to_batches()[0]


def within(positions: BitMap64, first: int, rows: int) -> Positions:
    """The positions among these rows, counted from the first."""
    if positions.range_cardinality(first, first + rows) == 0:
        return np.zeros(0, dtype=np.int64)
    window = BitMap64()
    window.add_range(first, first + rows)
    return _array(positions & window) - first


def _array(positions: BitMap64) -> Positions:
    return np.asarray(positions.to_array()).astype(np.int64)
