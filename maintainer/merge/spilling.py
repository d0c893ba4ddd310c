"""Runs that do not fit into memory while they are merged go to temporary files (DESIGN rule 5; Java `MergeSorter`, `BinaryExternalSortBuffer`).

    a file out of order   chunks that fit are sorted, one record for each key, and written; then they are merged as runs are. Chunks keep the
                          order of their rows in the file, which decides between records that are alike in everything else.
    too many runs         each open data file holds a page of every column; a run that was copied holds one small batch. Copies keep all
                          rows, so the age of a record and what it means for older ones stay what they are.

What is in a temporary file is given back when the merge is over or left.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from typing import Protocol

import pyarrow as pa

from maintainer.merge.candidates import Candidates, Source
from maintainer.merge.windows import BATCH_ROWS, Cursor, Merge, Piece, batch_rows_of, windows

LEAST_BATCH = 128 << 10
MOST_CHUNKS = 64
"""Sorted chunks of a file that are merged at a time, fewer where two batches of `LEAST_BATCH` for each of them are too much."""


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
        """The same file with its rows in order, one record for each key; it is sorted when it is read."""
        if source.ordered:
            return source
        return replace(source, read=lambda columns, batch_rows: self._sorted(source, merge, batch_rows), ordered=True)

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
                yield from merge.collapsed(window).to_batches(max_chunksize=batch_rows)
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
                yield from merge.collapsed(merged).to_batches(max_chunksize=batch_rows)

    def _append(self, merge: Merge, file: SpillFile, windows: Iterable[Candidates]) -> list[int]:
        """Write rows that are in order, in batches of which two are buffered for each chunk; the numbers of these."""
        numbers = []
        for window in windows:
            rows = merge.collapsed(window)
            batch_rows = batch_rows_of(self.share // (2 * self.most_chunks), width_of(rows))
            numbers += [file.append(batch) for batch in rows.to_batches(max_chunksize=batch_rows)]
        return numbers

    def _merged(self, file: SpillFile, chunks: Sequence[list[int]], source: Source, merge: Merge) -> Iterator[Candidates]:
        """Merge chunks, of which the rows of the first come first in the file: among equal records the last one survives."""

        def part(numbers: list[int]) -> Source:
            return Source(source.file, lambda columns, batch_rows: map(file.read, numbers))

        return windows([Cursor([part(numbers)], merge, BATCH_ROWS) for numbers in chunks], merge, self.share)


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
