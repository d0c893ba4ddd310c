"""Windows over sorted runs: the inner loop of a merge (spec 04 §4.4, §6.1; Java `SortMergeReader`).

    runs      a ─────────┤ ...        Each run is read batch by batch. The run whose buffer ends at the smallest key bounds the window:
              b ────┤ ...             every row up to that key is there, so all groups up to it are complete.
              c ──────────────┤ ...
    window    ══════                  Rows up to the bound leave the buffers and are concatenated, oldest first; one stable sort by key then
                                      brings the candidates of each key together; a merge function makes one record of them.

As long as the limit allows, the bounding run is read on, so that windows are large whatever the sizes of the runs.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from maintainer.errors import CorruptFile
from maintainer.merge.candidates import AGE, Candidates, SequenceOrder, Source
from maintainer.merge.order import Int64s, Keys
from maintainer.merge.sections import newest_first
from maintainer.model.files import DataFileMeta
from maintainer.model.types import DataType
from maintainer.table.merging import MergeRules
from maintainer.table.options import MergeEngine

BATCH_ROWS = 32 * 1024
WINDOW_ROWS = 256 * 1024
"""More rows make a window no faster."""


def windows(cursors: Sequence[Cursor], merge: Merge, limit: int, most_rows: int = WINDOW_ROWS) -> Generator[Candidates, None, None]:
    """Merge runs while their buffers hold about `limit` bytes, and `most_rows` rows."""
    with ExitStack() as stack:
        for cursor in cursors:
            stack.enter_context(closing(cursor))
        while True:
            _fill(cursors, limit, most_rows)
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


@dataclass(frozen=True)
class Piece:
    """Consecutive rows of one file; `ages` if they are of several, `size` in bytes (what Arrow says takes it long for many columns)."""

    source: Source
    rows: pa.RecordBatch
    keys: Keys
    size: int
    ages: Int64s | None = None
    goes_on: bool = False
    """Whether the next piece begins with the key that this one ends with."""

    def __len__(self) -> int:
        return len(self.keys)

    def split(self, at: int) -> tuple[Piece, Piece]:
        return self._part(0, at), self._part(at, len(self))

    def _part(self, start: int, stop: int) -> Piece:
        size = self.size * (stop - start) // len(self)
        ages = None if self.ages is None else self.ages[start:stop]
        return Piece(self.source, self.rows.slice(start, stop - start), self.keys.slice(start, stop), size, ages)


@dataclass(frozen=True)
class Merge:
    """What all runs of a merge have in common."""

    columns: tuple[str, ...]
    key_names: tuple[str, ...]
    key_types: tuple[DataType, ...]
    ages: dict[str, int]
    rules: MergeRules
    aged: bool = False
    """Whether windows say how old each row is."""

    @property
    def collapses(self) -> bool:
        """Whether records of a key that are merged before the others are there change nothing: the newest of the newest is the newest."""
        return self.rules.engine is MergeEngine.DEDUPLICATE and not self.rules.ignore_delete

    def piece(self, source: Source, rows: pa.RecordBatch) -> Piece:
        size, ages = rows.nbytes, None
        if source.aged:
            ages = rows.column(AGE).to_numpy()
            rows = rows.select(self.columns)
        return Piece(source, rows, keys_of(rows, self.key_names, self.key_types, source.file), size, ages)

    def window(self, pieces: list[Piece], alone: bool) -> Candidates:
        """Rows of which all candidates are there; `alone`: they are of one run, so there is one candidate for each key."""
        aged = self.aged or any(piece.ages is not None for piece in pieces)
        if not (alone or aged):
            pieces.sort(key=lambda piece: piece.keys.at(0))
            alone = all(before.keys.at(len(before) - 1) < after.keys.at(0) for before, after in pairwise(pieces))  # runs take turns
            if not alone:
                pieces.sort(key=self._age)
        rows = pa.Table.from_batches([piece.rows for piece in pieces])
        keys = Keys.concat([piece.keys for piece in pieces])
        sequence = SequenceOrder.of(self.rules, self.rules.schema)
        if aged:
            ages = self._row_ages(pieces)
            return Candidates.sorted(rows, keys, np.maximum(-ages, 0).astype(np.int8), sequence, ages)
        levels = np.repeat(np.array([piece.source.file.level for piece in pieces], np.int8), [len(piece) for piece in pieces])
        return (Candidates.unique if alone else Candidates.sorted)(rows, keys, levels, sequence)

    def _row_ages(self, pieces: Sequence[Piece]) -> Int64s:
        """The age of each row."""
        return np.concatenate([np.full(len(piece), self._age(piece), np.int64) if piece.ages is None else piece.ages for piece in pieces])

    def _age(self, piece: Piece) -> int:
        return self.ages[piece.source.file.file_name]


@dataclass
class Cursor:
    """The buffered rows of a run, and what is still to be read of it."""

    run: Sequence[Source]
    merge: Merge
    batch_rows: int
    pieces: list[Piece] = field(default_factory=list)
    finished: bool = False
    last: tuple[Any, ...] = ()
    """The last key that was read."""

    def __post_init__(self) -> None:
        self._batches = self._whole_keys()

    def _read(self) -> Generator[Piece, None, None]:
        for source in self.run:
            with closing(self._batches_of(source)) as batches:
                for batch in batches:
                    if batch.num_rows:
                        yield self.merge.piece(source, batch)

    def _whole_keys(self) -> Generator[Piece, None, None]:
        """The pieces; one is read ahead where keys repeat, as the records of a key may go on in it."""
        before: Piece | None = None
        for piece in self._read():
            if before is not None:
                yield replace(before, goes_on=piece.source is before.source and before.keys.at(len(before) - 1) == piece.keys.at(0))
            before = piece if piece.source.aged else None
            if before is None:
                yield piece
        if before is not None:
            yield before

    def _batches_of(self, source: Source) -> Generator[pa.RecordBatch, None, None]:
        yield from source.read(self.merge.columns, self.batch_rows)

    def close(self) -> None:
        """Let go of what is open for reading."""
        self._batches.close()

    def advance(self) -> int:
        """Buffer the next batch, and more as long as the records of its last key go on; the size in bytes."""
        size = 0
        goes_on = True
        while goes_on:
            piece = next(self._batches, None)
            if piece is None:
                self.finished = True
                break
            follows = self.last <= piece.keys.at(0) if size else self.last < piece.keys.at(0)
            if not (follows and (piece.source.aged or piece.keys.ascending())):
                raise CorruptFile(
                    f"its keys are not in order, or not within the bounds of its metadata (level {piece.source.file.level})",
                    path=piece.source.file.file_name,
                )
            self.last = piece.keys.at(len(piece) - 1)
            self.pieces.append(piece)
            size += piece.size
            goes_on = piece.goes_on
        return size

    def cut(self, bound: tuple[Any, ...] | None) -> list[Piece]:
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


def _fill(cursors: Sequence[Cursor], limit: int, most_rows: int) -> None:
    """Buffer at least a batch of each run, then more of the run that bounds the window."""
    for cursor in cursors:
        while not cursor.pieces and not cursor.finished:
            cursor.advance()
    size = sum(piece.size for cursor in cursors for piece in cursor.pieces)
    rows = sum(len(piece) for cursor in cursors for piece in cursor.pieces)
    while size < limit and rows < most_rows:
        bounding = min((cursor for cursor in cursors if not cursor.finished), key=lambda cursor: cursor.last, default=None)
        if bounding is None:
            return
        size += bounding.advance()
        rows += 0 if bounding.finished else len(bounding.pieces[-1])


def batch_rows_of(size: int, width: float) -> int:
    """How many rows of this width, in bytes, make a batch of this size."""
    return max(1, min(BATCH_ROWS, int(size / max(1.0, width))))


def ages(runs: Sequence[Sequence[Source]]) -> dict[str, int]:
    """Ranks of files by name, oldest first: from the highest level down to 1 (the level, negative), then the files of level 0."""
    files = [source.file for run in runs for source in run]
    level_0 = sorted((file for file in files if file.level == 0), key=newest_first, reverse=True)
    return {file.file_name: -file.level for file in files} | {file.file_name: rank for rank, file in enumerate(level_0)}


def keys_of(rows: pa.RecordBatch, names: Sequence[str], types: Sequence[DataType], file: DataFileMeta) -> Keys:
    try:
        return Keys.of([rows.column(name) for name in names], types)
    except CorruptFile as error:
        raise error.at(file.file_name) from None
