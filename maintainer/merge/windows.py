"""Windows over sorted runs: the inner loop of a merge (spec 04 §4.4, §6.1; Java `SortMergeReader`).

    runs      a ─────────┤ ...        Each run is read batch by batch. The run whose buffer ends at the smallest key bounds the window:
              b ────┤ ...             every row up to that key is there, so all groups up to it are complete.
              c ──────────────┤ ...
    window    ══════                  Rows up to the bound leave the buffers and are concatenated, oldest first; one stable sort by key then
                                      brings the candidates of each key together, in order of age; `deduplicate` chooses.

As long as the limit allows, the bounding run is read on, so that windows are large whatever the sizes of the runs.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from typing import Any, cast

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

BATCH_ROWS = 32 * 1024
WINDOW_ROWS = 256 * 1024
"""More rows make a window no faster."""

ReadBatches = Callable[[Sequence[str], int], Iterator[pa.RecordBatch]]
"""(columns, most rows of a batch) → the live rows of a file, in file order."""


@dataclass(frozen=True)
class Source:
    """A data file that takes part in a merge.

    `ordered` is False for a level-0 file that `scan` found out of order; `held` is what reading it holds in memory beside the batches.
    """

    file: DataFileMeta
    read: ReadBatches
    ordered: bool = True
    held: int = 0


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


def windows(cursors: Sequence[Cursor], merge: Merge, limit: int) -> Generator[MergedWindow, None, None]:
    """Merge runs while their buffers hold about `limit` bytes."""
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


@dataclass(frozen=True)
class Piece:
    """Consecutive rows of one file."""

    source: Source
    rows: pa.RecordBatch
    keys: Keys

    def __len__(self) -> int:
        return len(self.keys)

    def split(self, at: int) -> tuple[Piece, Piece]:
        size = len(self)
        return (
            Piece(self.source, self.rows.slice(0, at), self.keys.slice(0, at)),
            Piece(self.source, self.rows.slice(at), self.keys.slice(at, size)),
        )


@dataclass(frozen=True)
class Merge:
    """What all runs of a merge have in common."""

    columns: tuple[str, ...]
    key_names: tuple[str, ...]
    key_types: tuple[DataType, ...]
    ages: dict[str, int]

    def piece(self, source: Source, rows: pa.RecordBatch) -> Piece:
        return Piece(source, rows, keys_of(rows, self.key_names, self.key_types, source.file))

    def window(self, pieces: list[Piece], alone: bool) -> MergedWindow:
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
        self._batches = self._read()

    def _read(self) -> Generator[Piece, None, None]:
        for source in self.run:
            with closing(self._batches_of(source)) as batches:
                for batch in batches:
                    if batch.num_rows:
                        yield self.merge.piece(source, batch)

    def _batches_of(self, source: Source) -> Generator[pa.RecordBatch, None, None]:
        yield from source.read(self.merge.columns, self.batch_rows)

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


def _fill(cursors: Sequence[Cursor], limit: int) -> None:
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


def batch_rows_of(size: int, width: float) -> int:
    """How many rows of this width, in bytes, make a batch of this size."""
    return max(1, min(BATCH_ROWS, int(size / max(1.0, width))))


def ages(runs: Sequence[Sequence[Source]]) -> dict[str, int]:
    """Ranks of files by name, oldest first: from the highest level down to 1, then the files of level 0."""
    files = [source.file for run in runs for source in run]
    level_0 = sorted((file for file in files if file.level == 0), key=newest_first, reverse=True)
    return {file.file_name: -file.level for file in files} | {file.file_name: rank for rank, file in enumerate(level_0)}


def keys_of(rows: pa.RecordBatch, names: Sequence[str], types: Sequence[DataType], file: DataFileMeta) -> Keys:
    try:
        return Keys.of([rows.column(name) for name in names], types)
    except CorruptFile as error:
        raise error.at(file.file_name) from None


def _numbers(table: pa.Table, name: str) -> Any:
    """A column of numbers without nulls as a numpy array."""
    return table.column(name).to_numpy()
