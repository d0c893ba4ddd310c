"""Merging runs of keys in ascending order, in bounded memory: what an external sort spilled and what an older payload holds are such runs.

    run 0: keys k0 < k1 < … with their ordinals, batch by batch ──┐
    run 1: …                                                    ──┼─▶ windows ──▶ batches of strictly ascending keys
    …                                                           ──┘

A window is all that is loaded of every run up to the smallest last key of the loaded batches: what follows in any run is larger. So a batch of
each run is held, and a window is about a batch. Runs that do not overlap within a window are handed on as they are.

A window is put in order by one stable sort of int64 words, which are parts in order one behind the other (timsort merges them): the value
itself where it fits into a word, for texts the eight bytes that follow what all texts of the window begin with. Only texts that share these
are compared further. Equal keys of several runs become one, whose ordinals ascend whatever the runs had.

A key with very many ordinals may go on in the next batch of a run; it then does so in the merged batches, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from maintainer.format import byte_column, key_bytes
from maintainer.format.byte_column import ByteColumn
from maintainer.format.key_bytes import Comparable
from maintainer.merge.order import Keys, common_prefix, stable_argsort
from maintainer.model.types import CHARACTERS, DataType

Int64s = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

_PREFIX_ONLY = np.array([0] + [(1 << 64) - (1 << (64 - 8 * count)) for count in range(1, 9)], np.uint64)
_SIGN = np.uint64(1 << 63)


@dataclass(frozen=True)
class KeyBatch:
    """Consecutive keys; key i has the ordinals `ids[starts[i]:starts[i + 1]]`, ascending."""

    keys: ByteColumn
    ids: Int64s
    starts: Int64s

    def __len__(self) -> int:
        return len(self.keys)

    def slice(self, start: int, stop: int) -> KeyBatch:
        """Some of the keys, without a copy."""
        if start == 0 and stop == len(self):
            return self
        first = int(self.starts[start]) if start < len(self) else len(self.ids)
        last = int(self.starts[stop]) if stop < len(self) else len(self.ids)
        return KeyBatch(self.keys.slice(start, stop), self.ids[first:last], self.starts[start:stop] - first)


def merge_runs(runs: Sequence[Iterator[KeyBatch]], key_type: DataType) -> Iterator[KeyBatch]:
    """The keys of all runs, each once and in order; the keys of a run ascend, over all its batches."""
    cursors = [cursor for run in runs if (cursor := _Cursor(run, key_type)).advance()]
    while len(cursors) > 1:
        bound = min(cursor.last for cursor in cursors)
        parts = [part for cursor in cursors if len(part := cursor.take(bound))]
        yield parts[0] if len(parts) == 1 else _merged(parts, key_type)
        cursors = [cursor for cursor in cursors if len(cursor) or cursor.advance()]
    for cursor in cursors:
        yield cursor.rest()
        yield from cursor.run


class _Cursor:
    """What is loaded of a run."""

    def __init__(self, run: Iterator[KeyBatch], key_type: DataType) -> None:
        self.run = run
        self.last: Comparable = None
        self._type = key_type
        self._batch: KeyBatch | None = None
        self._from = 0

    def __len__(self) -> int:
        return 0 if self._batch is None else len(self._batch) - self._from

    def advance(self) -> bool:
        """Load the next batch; whether there is one."""
        self._batch = next((batch for batch in self.run if len(batch)), None)
        self._from = 0
        if self._batch is None:
            return False
        self.last = self._key(len(self._batch) - 1)
        return True

    def take(self, bound: Comparable) -> KeyBatch:
        """The keys up to a bound, which is among what is loaded of some run."""
        assert self._batch is not None
        start, stop = self._from, len(self._batch)
        if self.last > bound:
            low = start
            while low < stop:  # the first key above the bound
                middle = (low + stop) // 2
                low, stop = (low, middle) if self._key(middle) > bound else (middle + 1, stop)
        self._from = stop
        return self._batch.slice(start, stop)

    def rest(self) -> KeyBatch:
        """All that is loaded."""
        return self.take(self.last)

    def _key(self, row: int) -> Comparable:
        assert self._batch is not None
        return key_bytes.comparable(self._batch.keys[row], self._type)


def _merged(parts: Sequence[KeyBatch], key_type: DataType) -> KeyBatch:
    """The keys of some parts, each of which is in order."""
    keys = byte_column.concat(*(part.keys for part in parts))
    if key_type.root in CHARACTERS:
        order, new = text_order(keys, min(part.keys[0] for part in parts), max(part.keys[-1] for part in parts))
    else:
        order, new = _order(key_bytes.words(keys, key_type))
    ids = np.concatenate([part.ids for part in parts])
    if len(ids) == len(keys):
        ids = ids[order]
        starts = np.flatnonzero(new)
    else:
        counts = np.concatenate([np.diff(part.starts, append=len(part.ids)) for part in parts])
        begins = np.cumsum(counts) - counts
        counts = counts[order]
        at = np.cumsum(counts) - counts
        ids = ids[np.repeat(begins[order] - at, counts) + np.arange(len(ids))]
        starts = at[new]
    if not new.all():
        order = order[new]
        ids = ascending_ids(ids, starts)
    return KeyBatch(keys.take(order), ids, starts)


def _order(words: Sequence[Int64s]) -> tuple[Int64s, Flags]:
    """A stable order by words, and which rows of it differ from the one before."""
    if len(words) > 1:
        order, starts = Keys(words, len(words[0])).sort()
        new = np.zeros(len(order), bool)
        new[starts] = True
        return order, new
    order = stable_argsort(words[0])
    ordered = words[0][order]
    return order, _differs(ordered)


def text_order(keys: ByteColumn, smallest: bytes, largest: bytes) -> tuple[Int64s, Flags]:
    """A stable order of texts, and which rows of it differ from the one before."""
    words, are_all = _eight_bytes(keys, common_prefix(smallest, largest))
    order, new = _order([words])
    tied = ~new
    if are_all or not tied.any():
        return order, new
    tied[:-1] |= tied[1:]  # with the first of those that begin alike
    at = np.flatnonzero(tied)
    rows = order[at]
    group = np.cumsum(new[at]) - 1
    texts: Any = keys.take(rows).to_arrow()
    # Texts that repeat are alike to the end, mostly; only where some of a group are not, the others matter.
    unlike = (group[1:] == group[:-1]) & pc.not_equal(texts[1:], texts[:-1]).to_numpy(zero_copy_only=False)
    mixed = np.zeros(int(group[-1]) + 1, bool)
    mixed[group[1:][unlike]] = True
    some = mixed[group]
    if not some.any():
        return order, new
    if not some.all():
        at, rows, texts = at[some], rows[some], texts.filter(pa.array(some))
        group = np.cumsum(new[at]) - 1
    inner, inner_new = _order([group, texts])
    order[at] = rows[inner]
    new[at] = inner_new
    return order, new


def _eight_bytes(keys: ByteColumn, skip: int) -> tuple[Int64s, bool]:
    """Words that compare as the eight bytes after the first `skip`, and whether these are all of each text, so that equal words are equal
    texts. Bytes behind the end are zeros; where there is room, the length behind them tells which."""
    data = np.zeros(len(keys.data) + 8, np.uint8)
    data[:-8] = keys.data
    offsets = keys.offsets
    left = offsets[1:] - offsets[:-1] - skip
    shortest, longest = int(left.min(initial=8)), int(left.max(initial=0))
    octets = np.ndarray((len(keys.data) + 1,), "<u8", data, strides=(1,))[offsets[:-1] + skip].byteswap()
    if shortest < 8:
        octets &= _PREFIX_ONLY[np.minimum(left, 8)]
        if longest < 8:
            octets |= left.astype(np.uint64)
    return cast(Int64s, (octets ^ _SIGN).view(np.int64)), longest < 8 or shortest == longest == 8


def ascending_ids(ids: Int64s, starts: Int64s) -> Int64s:
    """The ids with those of each key in order."""
    falls = ids[1:] < ids[:-1]
    falls[starts[1:] - 1] = False
    if not falls.any():
        return ids
    counts = np.diff(starts, append=len(ids))
    mixed = np.logical_or.reduceat(np.append(falls, False), starts)
    rows = np.repeat(mixed, counts)
    bits = int(ids.max()).bit_length()
    group = np.repeat(np.arange(int(mixed.sum())), counts[mixed])
    ids = ids.copy()
    if bits + int(group[-1]).bit_length() <= 63:
        packed = group << bits | ids[rows]
        packed.sort(kind="stable")  # a few runs each
        ids[rows] = packed & ((1 << bits) - 1)
    else:
        some = ids[rows]
        ids[rows] = some[np.lexsort((some, group))]
    return ids


def _differs(ordered: npt.NDArray[Any]) -> Flags:
    new = np.ones(len(ordered), bool)
    np.not_equal(ordered[1:], ordered[:-1], out=new[1:])
    return new


def keys_ascend(keys: ByteColumn, key_type: DataType) -> bool:
    """Whether each key is larger than the one before it; `CorruptFile` for what is no key."""
    columns: Sequence[Any] = (keys.to_arrow(),) if key_type.root in CHARACTERS else key_bytes.words(keys, key_type)
    return Keys(columns, len(keys)).ascending()
