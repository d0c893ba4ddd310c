"""Runs that do not fit into memory while they are merged go to temporary files (DESIGN rule 5; Java `MergeSorter`, `BinaryExternalSortBuffer`).

    a file out of order   chunks that fit are sorted and written; then they are merged as runs are
    too many open files   each holds a page of every column; a run that was copied holds one small batch
    too many runs         the smallest ones become one (`maintainer.merge.passes`)

No merge function is called for what is written: all records stay, with their ages, so that what a key becomes does not depend on the budget.
Only where the newest record is all that counts, those that mean nothing beside it are left out.

What is in a temporary file is given back when the merge is over or left.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from typing import Protocol, cast

import numpy as np
import pyarrow as pa

from maintainer.merge.candidates import AGE, Candidates, Source
from maintainer.merge.order import Int64s
from maintainer.merge.windows import BATCH_ROWS, Cursor, Merge, Piece, batch_rows_of, windows
from maintainer.model.files import DataFileMeta

LEAST_BATCH = 128 << 10
MOST_CHUNKS = 64
"""Sorted chunks of a file that are merged at a time, fewer where two batches of `LEAST_BATCH` for each of them are too much."""

WIDE = 64 << 10
"""Bytes of a row that is copied by itself."""


class SpillFile(Protocol):
    """Batches in a temporary file."""

    def append(self, batch: pa.RecordBatch) -> int:
        """Write a batch; the number by which it is read again."""

    def read(self, number: int) -> pa.RecordBatch: ...


class Spill(Protocol):
    """What does not fit into memory goes there (`maintainer.data.spill`)."""

    def file(self) -> AbstractContextManager[SpillFile]:
        """A new file, which is gone when it is closed."""


@dataclass(frozen=True)
class Sorting:
    """Sorting a file that is not in order: a chunk of `chunk` bytes at a time; what is buffered of it after that has `share` bytes."""

    spill: Spill
    chunk: int
    share: int

    @property
    def most_chunks(self) -> int:
        return max(2, min(MOST_CHUNKS, self.share // (2 * LEAST_BATCH)))

    def ordered(self, source: Source, merge: Merge) -> Source:
        """The same file with its rows in order; it is sorted when it is read."""
        if source.ordered:
            return source
        aged = replace(merge, aged=True)
        return replace(source, read=lambda columns, batch_rows: self._sorted(source, aged, batch_rows), ordered=True, aged=True)

    def _sorted(self, source: Source, merge: Merge, batch_rows: int) -> Iterator[pa.RecordBatch]:
        with ExitStack() as stack:
            file: SpillFile | None = None
            chunks: list[list[int]] = []
            pieces: list[Piece] = []
            size = 0
            for batch in source.read(merge.columns, batch_rows):
                if size and size + batch.nbytes > self.chunk:
                    file = file or stack.enter_context(self.spill.file())
                    chunks.append(self._append(merge, file, [merge.window(pieces, alone=False)]))
                    pieces, size = [], 0
                pieces.append(merge.piece(source, batch))
                size += batch.nbytes
            if not size:
                return
            window = merge.window(pieces, alone=False)
            del pieces
            if file is None and size <= self.share:
                yield from in_order(window, merge, batch_rows)
                return
            file = file or stack.enter_context(self.spill.file())
            chunks.append(self._append(merge, file, [window]))
            del window
            while len(chunks) > self.most_chunks:
                with ExitStack() as done:
                    done.push(stack.pop_all())  # the chunks so far go when those that they make up are there
                    larger = stack.enter_context(self.spill.file())
                    several = [chunks[start : start + self.most_chunks] for start in range(0, len(chunks), self.most_chunks)]
                    chunks = [self._append(merge, larger, self._merged(file, some, source, merge)) for some in several]
                    file = larger
            for merged in self._merged(file, chunks, source, merge):
                yield from in_order(merged, merge, batch_rows)

    def _append(self, merge: Merge, file: SpillFile, windows: Iterable[Candidates]) -> list[int]:
        """Write rows in order, in batches of which two are buffered for each chunk; the numbers of these."""
        return appended(windows, merge, file, self.share // (2 * self.most_chunks))

    def _merged(self, file: SpillFile, chunks: Sequence[list[int]], source: Source, merge: Merge) -> Iterator[Candidates]:
        """Merge chunks, of which the rows of the first come first in the file."""
        return windows([Cursor([spilled(file, numbers, source.file)], merge, BATCH_ROWS) for numbers in chunks], merge, self.share)


def appended(windows: Iterable[Candidates], merge: Merge, file: SpillFile, batch_bytes: int, width: float = 0.0) -> list[int]:
    """Write the records of windows; the numbers of the batches. Rows count as so many bytes at least."""
    numbers = []
    for window in windows:
        batch_rows = batch_rows_of(batch_bytes, max(width, width_of(window.rows)))
        numbers += [file.append(batch) for batch in in_order(window, merge, batch_rows)]
        del window
    return numbers


def spilled(file: SpillFile, numbers: Sequence[int], like: DataFileMeta, width: float = 0.0) -> Source:
    """What was written, in the place of a file."""
    return Source(like, lambda columns, batch_rows: map(file.read, numbers), width=width, aged=True)


def in_order(window: Candidates, merge: Merge, batch_rows: int) -> Iterator[pa.RecordBatch]:
    """The records in key order, oldest first, with their ages."""
    order = _needed(window, merge) if merge.collapses else window.order
    ages = cast(Int64s, window.ages)
    step = len(order) if width_of(window.rows) < WIDE else batch_rows  # of wide rows no second window is made
    for start in range(0, len(order), step):
        chosen = order[start : start + step]
        if step == len(order):
            rows = window.rows.take(pa.array(chosen))
        else:
            rows = pa.concat_tables([window.rows.slice(row, 1) for row in chosen.tolist()]).combine_chunks()
        yield from rows.append_column(AGE, pa.array(ages[chosen])).combine_chunks().to_batches(max_chunksize=batch_rows)


def _needed(window: Candidates, merge: Merge) -> Int64s:
    """Where the newest record is all that counts: it, that of the smallest level above 0, and the newest one of level 0."""
    if window.groups == len(window.order):
        return window.order
    needed = np.zeros(len(window.keys), np.bool_)
    needed[(window.counting() if merge.rules.needs_lookup else window).last] = True
    needed[window.high[window.high >= 0]] = True
    low = np.maximum.reduceat(np.where(window.levels[window.order] <= 0, np.arange(len(window.order)), -1), window.starts)
    needed[window.order[low[low >= 0]]] = True
    return window.order[needed[window.order]]


def copied(run: Sequence[Source], columns: Sequence[str], file: SpillFile, read_rows: int, batch_bytes: int) -> list[Source]:
    """The same run, read from a temporary file in batches of about `batch_bytes`; what has to be sorted stays as it is."""
    return [_copied(source, columns, file, read_rows, batch_bytes) if source.ordered else source for source in run]


def _copied(source: Source, columns: Sequence[str], file: SpillFile, read_rows: int, batch_bytes: int) -> Source:
    numbers = []
    for batch in source.read(columns, read_rows):
        rows = batch_rows_of(batch_bytes, width_of(batch))
        numbers += [file.append(batch.slice(start, rows)) for start in range(0, batch.num_rows, rows)]
    return replace(source, read=lambda columns, batch_rows: map(file.read, numbers), held=0)


def width_of(rows: pa.RecordBatch | pa.Table) -> float:
    """Bytes of a row in memory."""
    return float(rows.nbytes / max(1, rows.num_rows))
