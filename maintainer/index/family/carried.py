"""What an older payload says of the rows of files that are still there: one more run of keys for the build of a new payload (spec 06 §10).

    keys of the older payload, all of them ─▶ checked ─▶ rows of files that are gone left out ─▶ ordinals of the new group ─▶ run

A payload is believed only if its keys ascend, are what a writer makes of values, end where its metadata says, and if every ordinal of its group
occurs exactly once among keys and null rows: nothing but that protects postings, which have no checksum. Whether it holds is known at the end
of the run. What does not hold is `CorruptFile`, and means to build from all rows. A row with an array has any number of keys, so that there
only the range of ordinals is checked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap64

from maintainer.errors import CorruptFile
from maintainer.format import key_bytes, posting
from maintainer.format.byte_column import ByteColumn
from maintainer.format.index_meta import IndexMeta
from maintainer.index.family.key_runs import KeyBatch, ascending_ids, keys_ascend
from maintainer.index.payload import Move
from maintainer.model.types import DataType

Int64s = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Entries = Iterable[tuple[ByteColumn, Int64s, Int64s]]
"""Keys in ascending order, the ordinals of all of them, and where those of each key start; a key may go on in the next batch."""

_PART = 1 << 18
_FEW_RANGES = 16
"""So many are compared with one after the other."""


@dataclass(frozen=True)
class Carried:
    """The rows of `moves` in ordinals of the new group: a run of keys, and the null rows among them, ascending. Each is to be read once."""

    run: Iterator[KeyBatch]
    null_ids: Iterator[Int64s]
    moves: tuple[Move, ...]

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return sum(move.rows for move in self.moves)


@dataclass(frozen=True)
class Older:
    """A payload of `total_rows` rows that is read from its first to its last key; `one_key`: every row has one key, or is null."""

    entries: Entries
    null_rows: BitMap64
    meta: IndexMeta
    total_rows: int
    key_type: DataType
    one_key: bool = True


def carried(older: Older, moves: Sequence[Move]) -> Carried:
    """What is left of a payload when these rows of it are."""
    if older.null_rows and older.null_rows.max() >= older.total_rows:
        raise CorruptFile(f"a null row of an index payload is not below {older.total_rows}")
    if bool(older.null_rows) != older.meta.has_nulls:
        raise CorruptFile("the null rows of an index payload are not what its metadata says")
    renumbering = _Renumbering(moves, older.total_rows)
    nulls = (moved[alive] for part in posting.parts(older.null_rows, _PART) for moved, alive in (renumbering.apply(part),))
    return Carried(_run(older, renumbering), nulls, tuple(moves))


def _run(older: Older, renumbering: _Renumbering) -> Iterator[KeyBatch]:
    account = _Account(older.total_rows, older.null_rows) if older.one_key else None
    first = last = None
    for keys, ids, starts in older.entries:
        if not len(keys):
            continue
        first = keys[0] if first is None else first
        follows = last is None or key_bytes.comparable(last, older.key_type) <= key_bytes.comparable(keys[0], older.key_type)
        if not (follows and keys_ascend(keys, older.key_type)):
            raise CorruptFile("the keys of an index payload are not in order")
        last = keys[-1]
        moved, alive = renumbering.apply(ids)
        if account is not None:
            account.add(ids)
        if not alive.all():
            keys, moved, starts = _left(keys, moved, starts, alive)
        if len(keys):
            yield KeyBatch(keys, moved if len(moved) == len(keys) else ascending_ids(moved, starts), starts)
    if (first, last) != (older.meta.first_key, older.meta.last_key):
        raise CorruptFile("the keys of an index payload are not between those that its metadata says")
    if account is not None:
        account.close()


def _left(keys: ByteColumn, ids: Int64s, starts: Int64s, alive: Flags) -> tuple[ByteColumn, Int64s, Int64s]:
    """Without the ordinals that are not alive, and without keys that have no other."""
    if len(ids) == len(keys):
        return keys.take(np.flatnonzero(alive)), ids[alive], np.arange(int(alive.sum()))
    counts = np.add.reduceat(alive, starts, dtype=np.int64)
    kept = np.flatnonzero(counts)
    counts = counts[kept]
    return keys.take(kept), ids[alive], np.cumsum(counts) - counts


class _Renumbering:
    """Ordinals of the older group in the new one. Both are in the order of file names, so what is left stays in order."""

    def __init__(self, moves: Sequence[Move], total_rows: int) -> None:
        self._total = total_rows
        # First ordinal, shift, and whether it is there: neighbours that move alike are one range, between ranges are files that are gone.
        ranges = [(0, 0, False)]
        after = 0
        for old, new, rows in moves:
            if old < ranges[-1][0] or new < after or old + rows > total_rows:
                raise ValueError(f"the rows from {old} on are not moved in order, or are not there")
            after = new + rows
            if not rows:
                continue
            if old == ranges[-1][0]:
                ranges.pop()
            if not ranges or ranges[-1][1:] != (new - old, True):
                ranges.append((old, new - old, True))
            ranges.append((old + rows, 0, False))
        self._firsts, self._shifts, self._alive = map(np.array, zip(*ranges, strict=True))

    def apply(self, ids: Int64s) -> tuple[Int64s, Flags]:
        """Where these ordinals are now, and which are at all."""
        if len(ids) and not 0 <= int(ids.min()) <= int(ids.max()) < self._total:
            raise CorruptFile(f"an ordinal of an index payload is not below {self._total}")
        if len(self._firsts) > _FEW_RANGES:
            part = np.searchsorted(self._firsts, ids, "right") - 1
        else:
            part = np.zeros(len(ids), np.int8)
            for first in self._firsts[1:].tolist():
                part += (ids >= first).view(np.int8)
            part = part.astype(np.intp)
        return ids + self._shifts[part], self._alive[part]


class _Account:
    """That every ordinal occurs once: as many as there are, and each at least once. A byte for each."""

    def __init__(self, total_rows: int, null_rows: BitMap64) -> None:
        self._seen = np.zeros(total_rows, bool)
        self._count = 0
        for part in posting.parts(null_rows, _PART):
            self.add(part)

    def add(self, ids: Int64s) -> None:
        self._seen[ids] = True
        self._count += len(ids)

    def close(self) -> None:
        if self._count != len(self._seen) or not self._seen.all():
            raise CorruptFile("not every row of a group occurs exactly once in its index payload")
