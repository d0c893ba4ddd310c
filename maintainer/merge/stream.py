"""Merging sorted runs by key range, in bounded memory (spec 04 §4.4, §6.1; Java `SortMergeReader`, `MergeSorter`).

    runs      a ─────────┤ ...        Each run is read batch by batch. The run whose buffer ends at the smallest key bounds the window:
              b ────┤ ...             every row up to that key is there, so all groups up to it are complete.
              c ──────────────┤ ...
    window    ══════                  Rows up to the bound leave the buffers and are concatenated, oldest first; one stable sort by key then
                                      brings the candidates of each key together, in order of age; `deduplicate` chooses.

Invariant: rows of a run are strictly ascending by key, over all its files. A level-0 file that is not in key order (spec 02 §17; `scan` tells)
is sorted before it takes part, in memory if it is small, else as sorted chunks in a temporary file, which are merged as runs are; any other
disorder is a corrupt file. As long as the budget allows, the bounding run is read on, so that windows are large whatever the sizes of the runs.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from maintainer.errors import CorruptFile
from maintainer.merge.deduplicate import RETRACT_BIT, survivors
from maintainer.merge.order import Int64s, Keys
from maintainer.merge.sections import newest_first
from maintainer.model.files import DataFileMeta
from maintainer.model.schema import KIND_FIELD, SEQUENCE_FIELD
from maintainer.model.types import DataType

SHARE_OF_BUDGET = 6
"""Buffers may hold one part in six: a window is held up to three times while its survivors are gathered, and what decodes, encodes and frees
memory late needs the rest."""
WINDOW_ROWS = 256 * 1024
"""More rows make a window no faster."""
BATCH_ROWS = 32 * 1024
LARGEST_BUFFER = 1 << 30
"""Arrow's string arrays cannot hold more than 2 GiB."""
EXPANSION = 8
"""How much larger than its file a row may be in memory, unless the first rows show more."""
PROBE_ROWS = 512
PROBED_ROWS = 8 * 1024
"""Of the longest file of a run the first rows are looked at, if it has more than this: texts that repeat take next to nothing in a file."""

LEAST_SPILLED_BATCH = 128 << 10
MOST_CHUNKS = 64
"""Sorted chunks of a file that are merged at a time, fewer where two batches of this size for each of them are too much."""

ReadBatches = Callable[[Sequence[str], int], Iterator[pa.RecordBatch]]
"""(columns, most rows of a batch) → the live rows of a file, in file order."""


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
class Source:
    """A data file that takes part in a merge; `ordered` is False for a level-0 file that `scan` found out of order."""

    file: DataFileMeta
    read: ReadBatches
    ordered: bool = True


@dataclass(frozen=True)
class Scan:
    """What the key columns of a file say: whether it is strictly in order, and its real smallest and largest key in comparable form."""

    ordered: bool
    smallest: tuple[Any, ...] | None
    largest: tuple[Any, ...] | None


@dataclass
class MergedWindow:
    """All keys of one key range, ascending, with one survivor each.

    `candidates` are the concatenated rows, `survivors` the indices of those that survive (None: all of them, in order), `has_high` whether a
    record of a level above 0 was among the candidates of the key.
    """

    candidates: pa.Table
    keys: Keys
    survivors: Int64s | None
    has_high: npt.NDArray[np.bool_]

    def rows(self, drop_deletes: bool) -> pa.Table:
        """The surviving records, without retracts if they are to be dropped."""
        chosen = self.survivors
        if drop_deletes:
            retracts = (_numbers(self.candidates, KIND_FIELD.name) & RETRACT_BIT).astype(np.bool_)
            if retracts.any():
                chosen = np.flatnonzero(~retracts) if chosen is None else chosen[~retracts[chosen]]
        return self.candidates if chosen is None else pc.take(self.candidates, pa.array(chosen), boundscheck=False)

    @property
    def lookup_keys(self) -> Keys:
        """The keys that only level 0 knows, deletes included: older versions may be in levels above the output level (spec 04 §6.1)."""
        if self.has_high.all():
            return self.keys.slice(0, 0)
        return self.keys.take(~self.has_high if self.survivors is None else self.survivors[~self.has_high])


def merge_runs(
    runs: Sequence[Sequence[Source]],
    columns: Sequence[str],
    key_names: Sequence[str],
    key_types: Sequence[DataType],
    budget: int,
    spill: Spill,
) -> Generator[MergedWindow, None, None]:
    """Merge the runs of one section; `columns` are what survivors consist of, keys and system columns included; `budget` is in bytes. Close the
    generator if it is left early, as it may hold temporary files."""
    limit = min(budget // SHARE_OF_BUDGET, LARGEST_BUFFER)
    to_sort = sum(not all(source.ordered for source in run) for run in runs)
    sorting = _Sorting(spill, limit, limit // 2 // max(to_sort, 1))
    if to_sort:
        limit -= limit // 2
    merge = _Merge(tuple(columns), tuple(key_names), tuple(key_types), _ages(runs))
    share = limit // max(len(runs), 1)
    yield from _windows([_Cursor(run, merge, _batch_rows(run, merge.columns, share), sorting) for run in runs], merge, limit)


def _windows(cursors: Sequence[_Cursor], merge: _Merge, limit: int) -> Iterator[MergedWindow]:
    with ExitStack() as stack:
        for cursor in cursors:
            stack.enter_context(closing(cursor))
        while True:
            _fill(cursors, limit)
            bounds = [cursor.last for cursor in cursors if not cursor.finished]
            bound = min(bounds) if bounds else None
            parts = [cursor.cut(bound) for cursor in cursors]
            pieces = [piece for part in parts for piece in part]
            if not pieces:
                return
            window = merge.window(pieces, alone=sum(map(bool, parts)) == 1)
            del parts, pieces
            yield window
            del window  # what the caller has let go of is not held here


def scan(source: Source, key_names: Sequence[str], key_types: Sequence[DataType]) -> Scan:
    """Read the keys of a level-0 file before it is merged, as its order and the bounds in its metadata cannot be relied on."""
    ordered = True
    smallest: tuple[Any, ...] | None = None
    largest: tuple[Any, ...] | None = None
    for batch in source.read(key_names, BATCH_ROWS):
        if not batch.num_rows:
            continue
        keys = _keys(batch, key_names, key_types, source.file)
        first, last = keys.at(0), keys.at(len(keys) - 1)
        ordered = ordered and (largest is None or largest < first) and keys.ascending()
        if not ordered:
            by_key, _ = keys.sort()
            first, last = keys.at(int(by_key[0])), keys.at(int(by_key[-1]))
        smallest = first if smallest is None else min(smallest, first)
        largest = last if largest is None else max(largest, last)
    return Scan(ordered, smallest, largest)


@dataclass(frozen=True)
class _Piece:
    """Consecutive rows of one file."""

    source: Source
    rows: pa.RecordBatch
    keys: Keys

    def __len__(self) -> int:
        return len(self.keys)

    def split(self, at: int) -> tuple[_Piece, _Piece]:
        size = len(self)
        return (
            _Piece(self.source, self.rows.slice(0, at), self.keys.slice(0, at)),
            _Piece(self.source, self.rows.slice(at), self.keys.slice(at, size)),
        )


@dataclass(frozen=True)
class _Merge:
    """What all runs of a merge have in common."""

    columns: tuple[str, ...]
    key_names: tuple[str, ...]
    key_types: tuple[DataType, ...]
    ages: dict[str, int]

    def piece(self, source: Source, rows: pa.RecordBatch) -> _Piece:
        return _Piece(source, rows, _keys(rows, self.key_names, self.key_types, source.file))

    def window(self, pieces: list[_Piece], alone: bool) -> MergedWindow:
        """The survivors of rows of which all candidates are there; `alone`: they are of one run, so there is one candidate for each key."""
        if not alone:
            pieces.sort(key=lambda piece: self.ages[piece.source.file.file_name])
        candidates = pa.Table.from_batches([piece.rows for piece in pieces])
        keys = Keys.concat([piece.keys for piece in pieces])
        high_rows = sum(len(piece) for piece in pieces if piece.source.file.level > 0)
        if alone:
            high = np.repeat([piece.source.file.level > 0 for piece in pieces], [len(piece) for piece in pieces])
            return MergedWindow(candidates, keys, None, high)
        order, starts = keys.sort()
        sequences = _numbers(candidates, SEQUENCE_FIELD.name)
        chosen = survivors(order, starts, sequences, _numbers(candidates, KIND_FIELD.name), high_rows)
        return MergedWindow(candidates, keys, chosen, order[starts] < high_rows)


@dataclass(frozen=True)
class _Sorting:
    """Sorting a file that is not in order: a chunk of `chunk` bytes at a time; what is buffered of it after that has `share` bytes."""

    spill: Spill
    chunk: int
    share: int

    @property
    def most_chunks(self) -> int:
        return max(2, min(MOST_CHUNKS, self.share // (2 * LEAST_SPILLED_BATCH)))

    def batches(self, source: Source, merge: _Merge, batch_rows: int) -> Iterator[pa.RecordBatch]:
        """The rows of a file in order, one record for each key."""
        with ExitStack() as stack:
            file: SpillFile | None = None
            chunks: list[list[int]] = []
            pieces: list[_Piece] = []
            size = 0
            for batch in source.read(merge.columns, batch_rows):
                if size and size + batch.nbytes > self.chunk:
                    file = file or stack.enter_context(self.spill.file())
                    chunks.append(self._append(file, [merge.window(pieces, alone=False)]))
                    pieces, size = [], 0
                pieces.append(merge.piece(source, batch))
                size += batch.nbytes
            if not size:
                return
            window = merge.window(pieces, alone=False)
            del pieces
            if file is None and size <= self.share:
                yield from window.rows(drop_deletes=False).to_batches(max_chunksize=batch_rows)
                return
            file = file or stack.enter_context(self.spill.file())
            chunks.append(self._append(file, [window]))
            del window
            while len(chunks) > self.most_chunks:
                with ExitStack() as done:
                    done.push(stack.pop_all())  # the chunks so far go when those that they make up are there
                    larger = stack.enter_context(self.spill.file())
                    several = [chunks[start : start + self.most_chunks] for start in range(0, len(chunks), self.most_chunks)]
                    chunks = [self._append(larger, self._merged(file, some, source, merge)) for some in several]
                    file = larger
            for merged in self._merged(file, chunks, source, merge):
                yield from merged.rows(drop_deletes=False).to_batches(max_chunksize=batch_rows)

    def _append(self, file: SpillFile, windows: Iterable[MergedWindow]) -> list[int]:
        """Write rows that are in order, in batches of which two are buffered for each chunk; the numbers of these."""
        numbers = []
        for window in windows:
            rows = window.rows(drop_deletes=False)
            width = max(1, rows.nbytes // max(1, rows.num_rows))
            batch_rows = max(1, min(BATCH_ROWS, self.share // (2 * self.most_chunks) // width))
            numbers += [file.append(batch) for batch in rows.to_batches(max_chunksize=batch_rows)]
        return numbers

    def _merged(self, file: SpillFile, chunks: Sequence[list[int]], source: Source, merge: _Merge) -> Iterator[MergedWindow]:
        """Merge chunks, of which the rows of the first come first in the file: among equal records the last one survives."""

        def part(numbers: list[int]) -> Source:
            return Source(source.file, lambda columns, batch_rows: map(file.read, numbers))

        return _windows([_Cursor([part(numbers)], merge, BATCH_ROWS, self) for numbers in chunks], merge, self.share)


@dataclass
class _Cursor:
    """The buffered rows of a run, and what is still to be read of it."""

    run: Sequence[Source]
    merge: _Merge
    batch_rows: int
    sorting: _Sorting
    pieces: list[_Piece] = field(default_factory=list)
    finished: bool = False
    last: tuple[Any, ...] = ()
    """The last key that was read."""

    def __post_init__(self) -> None:
        self._batches = self._read()

    def _read(self) -> Generator[_Piece, None, None]:
        for source in self.run:
            with closing(self._batches_of(source)) as batches:
                for batch in batches:
                    if batch.num_rows:
                        yield self.merge.piece(source, batch)

    def _batches_of(self, source: Source) -> Generator[pa.RecordBatch, None, None]:
        if source.ordered:
            yield from source.read(self.merge.columns, self.batch_rows)
        else:
            yield from self.sorting.batches(source, self.merge, self.batch_rows)

    def close(self) -> None:
        """Let go of what is open for reading."""
        self._batches.close()

    def advance(self) -> int:
        """Buffer the next batch; its size in bytes."""
        piece = next(self._batches, None)
        if piece is None:
            self.finished = True
            return 0
        if not (self.last < piece.keys.at(0) and piece.keys.ascending()):
            raise CorruptFile(
                f"its keys are not in order, or not within the bounds of its metadata (level {piece.source.file.level})",
                path=piece.source.file.file_name,
            )
        self.last = piece.keys.at(len(piece) - 1)
        self.pieces.append(piece)
        return cast(int, piece.rows.nbytes)

    def cut(self, bound: tuple[Any, ...] | None) -> list[_Piece]:
        """Take the rows up to the bound out of the buffer; None: all."""
        if bound is None or self.last <= bound:
            taken, self.pieces = self.pieces, []
            return taken
        taken = []
        while self.pieces:
            at = self.pieces[0].keys.search(bound, "right")
            if at < len(self.pieces[0]):
                if at:
                    before, self.pieces[0] = self.pieces[0].split(at)
                    taken.append(before)
                break
            taken.append(self.pieces.pop(0))
        return taken


def _fill(cursors: Sequence[_Cursor], limit: int) -> None:
    """Buffer at least a batch of each run, then more of the run that bounds the window."""
    for cursor in cursors:
        while not cursor.pieces and not cursor.finished:
            cursor.advance()
    size = sum(piece.rows.nbytes for cursor in cursors for piece in cursor.pieces)
    rows = sum(len(piece) for cursor in cursors for piece in cursor.pieces)
    while size < limit and rows < WINDOW_ROWS:
        bounding = min((cursor for cursor in cursors if not cursor.finished), key=lambda cursor: cursor.last, default=None)
        if bounding is None:
            return
        size += bounding.advance()
        rows += 0 if bounding.finished else len(bounding.pieces[-1])


def _batch_rows(run: Sequence[Source], columns: Sequence[str], share: int) -> int:
    """Rows of a batch, so that two of them fit into a run's share of the buffers, as far as can be told."""
    width = max((EXPANSION * source.file.file_size // max(source.file.row_count, 1) for source in run), default=0)
    longest = max(run, key=lambda source: source.file.row_count, default=None)
    if longest is not None and longest.file.row_count > PROBED_ROWS:
        first = next(longest.read(columns, PROBE_ROWS), None)
        if first is not None and first.num_rows:
            width = max(width, first.nbytes // first.num_rows)
    return max(1, min(BATCH_ROWS, share // 2 // max(width, 1)))


def _ages(runs: Sequence[Sequence[Source]]) -> dict[str, int]:
    """Ranks of files by name, oldest first: from the highest level down to 1, then the files of level 0."""
    files = [source.file for run in runs for source in run]
    level_0 = sorted((file for file in files if file.level == 0), key=newest_first, reverse=True)
    return {file.file_name: -file.level for file in files} | {file.file_name: rank for rank, file in enumerate(level_0)}


def _keys(rows: pa.RecordBatch, names: Sequence[str], types: Sequence[DataType], file: DataFileMeta) -> Keys:
    try:
        return Keys.of([rows.column(name) for name in names], types)
    except CorruptFile as error:
        raise error.at(file.file_name) from None


def _numbers(table: pa.Table, name: str) -> Any:
    """A column of numbers without nulls as a numpy array."""
    return table.column(name).to_numpy()
