"""The rows of splits: the one way rows are read, in this process or another (spec 07 §9; Java `KeyValueTableRead`, `MergeFileSplitRead`,
`RawFileSplitRead`).

| split                                                              | is read                                             |
| ------------------------------------------------------------------ | --------------------------------------------------- |
| `IndexedSplit`                                                     | the selected rows of its file                       |
| of an append-only table; raw-convertible; one file without deletes | file by file                                        |
| any other                                                          | its files merged with one another, section by section |

Deletion vectors and the complete predicate are applied in all cases. An indexed split that contradicts itself is an error, never read in some
other way: whoever planned it has checked it. The scores of a search are a column as any other, where they are asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap64

from maintainer.data.arrow_types import value_schema
from maintainer.errors import CorruptFile
from maintainer.model.files import BucketKey, DataFileMeta
from maintainer.model.predicate import Predicate, fields_of
from maintainer.model.schema import TableSchema
from maintainer.model.split import IndexedSplit, Split
from maintainer.model.types import DataField, DataType, TypeRoot
from maintainer.read.parallel import Alone, Part, Task, flat
from maintainer.read.residual import mask
from maintainer.read.rows import RowReader
from maintainer.read.vectors import NONE_DELETED, DeletionVectors
from maintainer.table.options import TableOptions
from maintainer.table.store import TableStore

if TYPE_CHECKING:
    from maintainer.merge.spilling import Spill
    from maintainer.read.merging import MergeReader

MEMORY = 256 << 20
"""Bytes that merging may hold, unless the call says otherwise."""
SCORE = DataField(-1, "__paimon_search_score", DataType(TypeRoot.FLOAT))
"""What a search found, NULL for other rows; a column of no table, so that it has no id."""
MOST_POSITION = 2**31 - 1


@dataclass(frozen=True)
class SplitReader:
    """How the splits of one scan are read: which columns come out, and what rows must satisfy. For all threads.

    Where files are merged, `memory` is a budget in bytes for each split, and what does not fit goes to `spill`.
    """

    store: TableStore
    schema: TableSchema
    columns: tuple[str, ...]
    predicate: Predicate | None = None
    memory: int | None = None
    spill: Spill | None = None

    def batches(self, split: Split) -> Iterator[pa.RecordBatch]:
        """The wanted rows of a split."""
        return flat(self._parts(split))

    def task(self, split: Split) -> Task:
        """The same, for several threads; splits whose files are merged are read one at a time, as each takes the whole memory."""
        parts = partial(self._parts, split)
        return Alone(parts) if self._is_merged(split) else parts

    def _parts(self, split: Split) -> Iterator[Part]:
        if SCORE.name in self.columns:
            yield from self._scored(split)
            return
        data = split.split if isinstance(split, IndexedSplit) else split
        key = BucketKey(data.partition, data.bucket)
        selected = self._selected(split)
        deleted = self._vectors.ahead(data)
        if self._is_merged(split):
            yield from self._merging.read(key, data.files, deleted())
            return
        for file in data.files:
            yield from self._rows.parts(key, file, selected, partial(_of, deleted, file.file_name))

    def _is_merged(self, split: Split) -> bool:
        if isinstance(split, IndexedSplit) or not self.schema.primary_keys:
            return False
        files = split.files
        if split.raw_convertible:  # old writers did not count deletes, and left none in files of which this is said
            return any(file.delete_row_count for file in files)
        return len(files) > 1 or any(map(self._may_hold_deletes, files))

    def _may_hold_deletes(self, file: DataFileMeta) -> bool:
        """Old writers did not count deletes; with deletion vectors they left none above level 0."""
        return not self._options.hides_level_0 if file.delete_row_count is None else file.delete_row_count > 0

    def _scored(self, split: Split) -> Iterator[pa.RecordBatch]:
        """The same with the score of each row, which belongs to a position: so the condition is tested after the scores are there."""
        tested = frozenset() if self.predicate is None else fields_of(self.predicate)
        read = tuple(name for name in self.schema.names if name in self.columns or name in tested) or self.schema.names[:1]
        scores = self._scores(split)
        first = 0
        for batch in replace(self, columns=read, predicate=None).batches(split):
            last = first + batch.num_rows
            column = pa.nulls(batch.num_rows, pa.float32()) if scores is None else pa.array(scores[first:last])
            if self.predicate is not None:
                keep = pa.array(mask(self.predicate, batch, self.schema))
                batch, column = batch.filter(keep), column.filter(keep)
            if batch.num_rows:
                values = [column if name == SCORE.name else batch.column(name) for name in self.columns]
                yield pa.record_batch(values, schema=self.arrow_schema)
            first = last

    def _scores(self, split: Split) -> npt.NDArray[np.float32] | None:
        """Of the rows that are alive, in order of their positions."""
        selected = self._selected(split)
        if selected is None or not isinstance(split, IndexedSplit) or split.scores is None:
            return None
        deleted = self._vectors.of(split.split).get(split.split.files[0].file_name, NONE_DELETED)
        return np.array(split.scores, dtype=np.float32)[~np.isin(selected.to_array(), (selected & deleted).to_array())]

    def _selected(self, split: Split) -> BitMap64 | None:
        """The positions that are read; None: all of them."""
        if not isinstance(split, IndexedSplit):
            return None
        try:
            return selection(split)
        except CorruptFile as error:
            raise error.at(f"a split of {self.store.name}") from None

    @cached_property
    def arrow_schema(self) -> pa.Schema:
        """Of the rows that come out."""
        return value_schema(SCORE if name == SCORE.name else self.schema.field(name) for name in self.columns)

    @cached_property
    def _options(self) -> TableOptions:
        return self.store.options(self.schema)

    @cached_property
    def _vectors(self) -> DeletionVectors:
        return DeletionVectors(self.store, self._options)

    @cached_property
    def _rows(self) -> RowReader:
        return RowReader(self.store, self.schema, self.columns, self.predicate)

    @cached_property
    def _merging(self) -> MergeReader:
        from maintainer.data.spill import Spill
        from maintainer.read.merging import MergeReader

        return MergeReader(self.store, self.schema, self.columns, self.predicate, self.memory or MEMORY, self.spill or Spill())


def _of(deleted: Callable[[], Mapping[str, BitMap64]], file: str) -> BitMap64:
    return deleted().get(file, NONE_DELETED)


def selection(split: IndexedSplit) -> BitMap64:
    """The positions that an indexed split selects; `CorruptFile` when they cannot be those of its file."""
    files = split.split.files
    if len(files) != 1:
        raise CorruptFile(f"an indexed split has one data file, and this one {len(files)}")
    name, rows = files[0].file_name, files[0].row_count
    if files[0].delete_row_count:
        raise CorruptFile(f"an indexed split selects rows of {name}, which holds deletes")
    selected = BitMap64()
    for first, last in split.ranges:
        if not 0 <= first <= last < rows or last > MOST_POSITION:
            raise CorruptFile(f"an indexed split selects positions {first} to {last} of {name}, which has {rows} rows")
        selected.add_range(first, last + 1)
    if not selected:
        raise CorruptFile(f"an indexed split selects no row of {name}")
    if split.scores is not None and len(split.scores) != len(selected):
        raise CorruptFile(f"an indexed split has {len(split.scores)} scores for {len(selected)} rows of {name}")
    return selected
