"""Sorted runs of keys in temporary files, and how many of them are merged at a time (DESIGN rule 5; Java `BinaryExternalSortBuffer`).

A batch is a row of byte strings, the arrays that a `KeyBatch` consists of:

| column | bytes                                                           |
| ------ | --------------------------------------------------------------- |
| keys   | the keys back to back                                           |
| ends   | int64 end of each key; empty where all have the same width      |
| short  | the rows of all keys as uint32; empty where they do not fit     |
| ids    | else as int64                                                   |
| counts | int64 rows of each key; empty where each has one                |

Of each run a batch is held while runs are merged, and a merge holds some copies of what it has (`_COPIES`). Where there are more runs than this
allows, some become one first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from types import TracebackType

import numpy as np
import pyarrow as pa

from maintainer.data.spill import Spill, SpillFile
from maintainer.format.byte_column import ByteColumn
from maintainer.index.family.key_runs import KeyBatch, merge_runs
from maintainer.index.family.spilled_arrays import pack, unpack
from maintainer.model.types import DataType

BATCH_BYTES = 512 << 10
_BATCHES = 256
"""A batch has at most this part of the memory."""
_COPIES = 8
"""Of what is merged at a time: the batches, their keys and rows one behind the other, words, orders, and the result."""
_ID_BYTES = 8
_NONE = np.empty(0, np.int64)
_DTYPES = (np.uint8, np.int64, np.uint32, np.int64, np.int64)
_END_OF_SHORT_IDS = 1 << 32


class SpilledRuns:
    """Runs that were written; a context manager that makes them disappear."""

    def __init__(self, spill: Spill, memory: int, key_type: DataType) -> None:
        """`memory` is what a merge may hold."""
        self._spill = spill
        self._memory = memory
        self._type = key_type
        self._file: SpillFile | None = None
        self._runs: list[list[int]] = []
        self._largest = 1
        self.batch_bytes = max(1, min(BATCH_BYTES, memory // _BATCHES))
        """Keys, and ids, of a batch that is to be written."""

    def __len__(self) -> int:
        return len(self._runs)

    def append(self, batches: Iterable[KeyBatch]) -> None:
        """Write a run."""
        if self._file is None:
            self._file = self._spill.file()
        numbers = []
        for batch in batches:
            row = _packed(batch)
            self._largest = max(self._largest, row.nbytes)
            numbers.append(self._file.append(row))
        if numbers:
            self._runs.append(numbers)

    def merged(self, *beside: Iterator[KeyBatch]) -> Iterator[KeyBatch]:
        """The keys of all runs, and of others."""
        most = max(2, self._memory // (_COPIES * self._largest))
        while len(self._runs) > 1 and len(self._runs) + len(beside) > most:
            file, runs = self._file, self._runs
            assert file is not None
            self._file, self._runs = None, []
            with closing(file):
                for start in range(0, len(runs), most):
                    some = [_read(file, numbers) for numbers in runs[start : start + most]]
                    self.append(piece for batch in merge_runs(some, self._type) for piece in _cut(batch, self.batch_bytes))
        own = [] if self._file is None else [_read(self._file, numbers) for numbers in self._runs]
        return merge_runs([*beside, *own], self._type)

    def __enter__(self) -> SpilledRuns:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._file is not None:
            self._file.close()


def _read(file: SpillFile, numbers: Sequence[int]) -> Iterator[KeyBatch]:
    return (_unpacked(file.read(number)) for number in numbers)


def _cut(batch: KeyBatch, most_bytes: int) -> Iterator[KeyBatch]:
    """The batch in pieces of about so many bytes; a key of more rows comes in several."""
    counts = np.diff(batch.starts, append=len(batch.ids))
    ends = np.cumsum(batch.keys.lengths + _ID_BYTES * counts)
    start = done = 0
    while start < len(batch):
        stop = max(start + 1, int(np.searchsorted(ends, done + most_bytes, "right")))
        piece = batch.slice(start, stop)
        most_ids = max(1, most_bytes // _ID_BYTES)
        if stop == start + 1 and len(piece.ids) > most_ids:
            for first in range(0, len(piece.ids), most_ids):
                yield KeyBatch(piece.keys, piece.ids[first : first + most_ids], piece.starts)
        else:
            yield piece
        start, done = stop, int(ends[stop - 1])


def _packed(batch: KeyBatch) -> pa.RecordBatch:
    keys, ids = batch.keys, batch.ids
    ends = _NONE if keys.width is not None else keys.offsets[1:] - keys.offsets[0]
    counts = _NONE if len(ids) == len(keys) else np.diff(batch.starts, append=len(ids))
    short = int(ids.max()) < _END_OF_SHORT_IDS
    return pack((keys.data, ends, ids.astype(np.uint32) if short else _NONE, _NONE if short else ids, counts))


def _unpacked(row: pa.RecordBatch) -> KeyBatch:
    data, ends, short, ids, counts = unpack(row, _DTYPES)
    if len(short):
        ids = short.astype(np.int64)
    count = len(counts) or len(ids)
    keys = ByteColumn(data, np.append(0, ends)) if len(ends) else ByteColumn(data, None, width=len(data) // count)
    return KeyBatch(keys, ids, np.cumsum(counts) - counts if len(counts) else np.arange(count))
