"""What an older payload says of the rows of files that are still there: one more run of keys for the build of a new payload (spec 06 §10).

    keys of the older payload, all of them ─▶ checked ─▶ rows of files that are gone left out ─▶ ordinals of the new group ─▶ run

A payload is believed only if its keys ascend, are what a writer makes of values, and if every ordinal of its group occurs exactly once among
keys and null rows: nothing but that protects postings, which have no checksum. Whether it holds is known at the end of the run. What does not
hold is `CorruptFile`, and means to build from all rows. Arrays have any number of keys per row, so that only the range of ordinals is checked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from maintainer.errors import CorruptFile
from maintainer.format import key_bytes
from maintainer.format.byte_column import ByteColumn
from maintainer.index.family.key_runs import KeyBatch, ascending_ids, keys_ascend
from maintainer.index.payload import Move
from maintainer.model.types import DataType

Int64s = npt.NDArray[np.int64]
Entries = Iterable[tuple[ByteColumn, Int64s, Int64s]]
"""Keys in ascending order, the ordinals of all of them, and where those of each key start."""


@dataclass(frozen=True)
class Carried:
    """`rows` rows in ordinals of the new group: a run of keys, to be read once, and the null rows among them, ascending."""

    run: Iterator[KeyBatch]
    null_ids: Int64s
    rows: int


def carried(entries: Entries, null_ids: Int64s, moves: Sequence[Move], key_type: DataType, total_rows: int, one_key: bool = True) -> Carried:
    """What is left of a payload of `total_rows` rows; `one_key`: every row has one key, or is null."""
    renumbering = _Renumbering(moves, total_rows)
    nulls, alive = renumbering.apply(null_ids)
    account = _Account(total_rows, null_ids) if one_key else None
    return Carried(_run(entries, renumbering, key_type, account), np.sort(nulls[alive]), sum(move.rows for move in moves))


def _run(entries: Entries, renumbering: _Renumbering, key_type: DataType, account: _Account | None) -> Iterator[KeyBatch]:
    last: bytes | None = None
    for keys, ids, starts in entries:
        if not len(keys):
            continue
        follows = last is None or key_bytes.comparable(last, key_type) < key_bytes.comparable(keys[0], key_type)
        if not (follows and keys_ascend(keys, key_type)):
            raise CorruptFile("the keys of an index payload are not in order")
        last = keys[-1]
        moved, alive = renumbering.apply(ids)
        if account is not None:
            account.add(ids)
        if not alive.all():
            keys, moved, starts = _left(keys, moved, starts, alive)
        if len(keys):
            yield KeyBatch(keys, moved if len(moved) == len(keys) else ascending_ids(moved, starts), starts)
    if account is not None:
        account.close()


def _left(keys: ByteColumn, ids: Int64s, starts: Int64s, alive: npt.NDArray[np.bool_]) -> tuple[ByteColumn, Int64s, Int64s]:
    """Without the ordinals that are not alive, and without keys that have no other."""
    if len(ids) == len(keys):
        return keys.take(np.flatnonzero(alive)), ids[alive], np.arange(int(alive.sum()))
    counts = np.add.reduceat(alive, starts, dtype=np.int64)
    kept = np.flatnonzero(counts)
    counts = counts[kept]
    return keys.take(kept), ids[alive], np.cumsum(counts) - counts


class _Renumbering:
    """Ordinals of the older group in the new one."""

    def __init__(self, moves: Sequence[Move], total_rows: int) -> None:
        self._total = total_rows
        # Ranges of neighbours that move alike are one; ordinals between them are of files that are gone.
        firsts, shifts, alive = [0], [0], [False]
        for old, new, rows in sorted(moves):
            if not rows:
                continue
            if old < firsts[-1] or old + rows > total_rows:
                raise ValueError(f"the rows from {old} on are moved twice, or are not there")
            if old == firsts[-1]:
                firsts, shifts, alive = firsts[:-1], shifts[:-1], alive[:-1]
            if not (alive and alive[-1] and shifts[-1] == new - old):
                firsts, shifts, alive = [*firsts, old], [*shifts, new - old], [*alive, True]
            firsts, shifts, alive = [*firsts, old + rows], [*shifts, 0], [*alive, False]
        self._firsts, self._shifts, self._alive = np.array(firsts), np.array(shifts), np.array(alive)

    def apply(self, ids: Int64s) -> tuple[Int64s, npt.NDArray[np.bool_]]:
        """Where these ordinals are now, and which are at all."""
        if len(ids) and not 0 <= int(ids.min()) <= int(ids.max()) < self._total:
            raise CorruptFile(f"an ordinal of an index payload is not below {self._total}")
        part = np.searchsorted(self._firsts, ids, "right") - 1
        return ids + self._shifts[part], self._alive[part]


class _Account:
    """That every ordinal occurs once: as many as there are, and each at least once. A byte for each."""

    def __init__(self, total_rows: int, null_ids: Int64s) -> None:
        self._seen = np.zeros(total_rows, bool)
        self._count = 0
        self.add(null_ids)

    def add(self, ids: Int64s) -> None:
        self._seen[ids] = True
        self._count += len(ids)

    def close(self) -> None:
        if self._count != len(self._seen) or not self._seen.all():
            raise CorruptFile("not every row of a group occurs exactly once in its index payload")
