"""The rows of one data file that a scan wants (spec 07 §9, 02 §12.9): selected positions, less deleted ones, that satisfy the predicate.

Only row groups that hold a selected, live position, and whose bounds allow the predicate, are read. Where the predicate does not need all
wanted columns, its own are read first, and the others only for row groups in which a row is left. Partition columns come from the manifest.

Memory: one row group of at most `WHOLE_GROUP` bytes at a time; larger ones stream in batches of about `BATCH_BYTES`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap64

from maintainer.data.reader import DataFile, open_data_file
from maintainer.data.values import to_arrow_array
from maintainer.model.files import BucketKey, DataFileMeta
from maintainer.model.predicate import Predicate, fields_of
from maintainer.model.schema import TableSchema
from maintainer.read.prune import Bounds, Test, compiled
from maintainer.read.residual import mask
from maintainer.table.store import TableStore

BATCH_ROWS = 65_536
BATCH_BYTES = 32 << 20
WHOLE_GROUP = 128 << 20

Positions = npt.NDArray[np.int64]


@dataclass(frozen=True)
class RowReader:
    """How the files of one scan are read: which columns come out, and what rows must satisfy."""

    store: TableStore
    schema: TableSchema
    columns: tuple[str, ...]
    predicate: Predicate | None = None

    def read(self, key: BucketKey, file: DataFileMeta, positions: BitMap64 | None, deleted: BitMap64) -> Iterator[pa.RecordBatch]:
        """The wanted rows of a file of a bucket in file order: at `positions` (None: all of them), less the `deleted` ones."""
        if positions is not None:
            positions = positions - deleted
            if not positions:
                return
        path = self.store.layout.data_file_path(*key, file)
        with open_data_file(self.store.storage, path, file, self.store.schema(file.schema_id), self.schema) as data:
            if positions is not None:
                data.narrow(positions)
            yield from _FileRows(self, key.partition, data, positions, deleted).batches()


class _FileRows:
    def __init__(self, reader: RowReader, partition: bytes, data: DataFile, selected: BitMap64 | None, deleted: BitMap64) -> None:
        self._schema = reader.schema
        self._columns = reader.columns
        self._predicate = reader.predicate
        self._data = data
        self._selected = selected
        self._deleted = deleted
        names = self._schema.partition_keys
        values = reader.store.layout.partition_values(partition) if names else ()
        self._constants = {
            name: to_arrow_array([value], self._schema.field(name).type)[0] for name, value in zip(names, values, strict=True)
        }  # fmt: skip
        tested = frozenset() if reader.predicate is None else fields_of(reader.predicate)
        self._tested = [name for name in self._schema.names if name in tested and name not in self._constants]
        self._others = [name for name in dict.fromkeys(self._columns) if name not in tested and name not in self._constants]

    def batches(self) -> Iterator[pa.RecordBatch]:
        groups = self._groups()
        if not groups:
            return
        if not (self._tested and self._others and self._data.is_columnar):
            yield from self._stream(groups)
            return
        for group in groups:
            if self._bytes(group) <= WHOLE_GROUP:
                yield from self._predicate_first(group)
            else:
                yield from self._stream([group])

    def _groups(self) -> list[int]:
        """The row groups that can hold a wanted row."""
        test: Test | None = None
        bounds: dict[str, list[Bounds]] = {}
        if self._predicate is not None and self._tested:
            test = compiled(self._predicate)
            bounds = {
                name: [Bounds() if found is None else Bounds(*found) for found in self._data.group_bounds(name)] for name in self._tested
            }  # fmt: skip
        wanted = []
        for index, group in enumerate(self._data.row_groups):
            end = group.first + group.rows
            if self._selected is not None:
                alive = self._selected.range_cardinality(group.first, end)
            else:
                alive = group.rows - self._deleted.range_cardinality(group.first, end)
            if alive and (test is None or test({name: of_groups[index] for name, of_groups in bounds.items()})):
                wanted.append(index)
        return wanted

    def _stream(self, groups: Sequence[int]) -> Iterator[pa.RecordBatch]:
        """All columns at once, batch by batch."""
        names = [*self._tested, *self._others]
        rows = max(1, sum(self._data.row_groups[group].rows for group in groups))
        size = max(1, sum(self._bytes(group) for group in groups))
        batch_rows = min(BATCH_ROWS, max(256, BATCH_BYTES * rows // size))
        for first, batch in self._data.batches(names, batch_rows, groups):
            at = self._wanted(first, batch.num_rows)
            if at is not None:
                if not len(at):
                    continue
                batch = batch.take(pa.array(at))
            batch = self._with_constants(batch)
            if self._predicate is not None:
                batch = batch.filter(pa.array(mask(self._predicate, batch, self._schema)))
            if batch.num_rows:
                yield batch.select(list(self._columns))

    def _predicate_first(self, group: int) -> Iterator[pa.RecordBatch]:
        """The columns of the predicate for the whole row group, the others if a row is left."""
        assert self._predicate is not None
        where = self._data.row_groups[group]
        tested = self._data.read(self._tested, [group])
        at = self._wanted(where.first, where.rows)
        if at is not None:
            tested = tested.take(pa.array(at))
        kept = np.flatnonzero(mask(self._predicate, self._with_constants(tested), self._schema))
        if not len(kept):
            return
        if len(kept) < tested.num_rows:
            tested = tested.take(pa.array(kept))
            at = kept if at is None else at[kept]
        others = self._data.read(self._others, [group])
        if at is not None:
            others = others.take(pa.array(at))
        for name in self._others:
            tested = tested.append_column(others.schema.field(name), others.column(name))
        yield from self._with_constants(tested).select(list(self._columns)).to_batches(max_chunksize=BATCH_ROWS)

    def _wanted(self, first: int, rows: int) -> Positions | None:
        """The selected, live rows among these, counted from the first; None: all of them."""
        if self._selected is not None:
            return within(self._selected, first, rows)
        if not self._deleted.range_cardinality(first, first + rows):
            return None
        alive = np.ones(rows, dtype=bool)
        alive[within(self._deleted, first, rows)] = False
        return np.flatnonzero(alive)

    def _with_constants(self, batch: pa.RecordBatch | pa.Table) -> pa.RecordBatch | pa.Table:
        for name, value in self._constants.items():
            field = pa.field(name, value.type, self._schema.field(name).type.nullable)
            batch = batch.append_column(field, pa.repeat(value, batch.num_rows))
        return batch

    def _bytes(self, group: int) -> int:
        """Decoded size of a row group, as its footer has it, of all columns."""
        return self._data.group_bytes(group)


def within(positions: BitMap64, first: int, rows: int) -> Positions:
    if positions.range_cardinality(first, first + rows) == 0:
        return np.zeros(0, dtype=np.int64)
    window = BitMap64()
    window.add_range(first, first + rows)
    return np.asarray((positions & window).to_array()).astype(np.int64) - first
