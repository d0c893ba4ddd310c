"""Older versions of keys in higher levels, and the vectors that end them (spec 04 §6.1, §7; Java `LookupLevels`, `BucketedDvMaintainer`).

Invariant (spec 04 §7.2): among the files of level ≥ 1 of a bucket, after applying deletion vectors, every key has at most one live row. A
compaction that writes a new version of a key below the level of the old one keeps it by marking the old one's physical position:

    levels     output + 1, …, highest, as they were before the compaction; the first live hit is marked, and the search for this key ends
    position   counted over all physical rows of the file, deleted ones included
    dead rows  do not exist: a hit that the deletion vector already names is no hit (spec 04 §14.1)

Only key columns are read, and of those only the row groups that may hold one of the keys. Keys come in ascending order, so every file is walked
once, from front to back, with one batch of its keys in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap64

from maintainer.data.reader import DataFile
from maintainer.errors import CorruptFile
from maintainer.format import binary_row
from maintainer.merge import order
from maintainer.merge.order import Int64s, Keys
from maintainer.merge.stream import key_batch_rows
from maintainer.model.files import DataFileMeta
from maintainer.model.types import DataType

Comparable = tuple[Any, ...]
"""A key, or its first column, in the form in which keys compare (`maintainer.merge.order`)."""

BATCH_ROWS = 64 * 1024
_NONE: Int64s = np.empty(0, dtype=np.int64)


@dataclass
class DeletionVectors:
    """The deletion vectors of one bucket while it is being worked on; `modified` says whether they have to be written again."""

    vectors: dict[str, BitMap64] = field(default_factory=dict)
    modified: bool = False

    def of(self, file_name: str) -> BitMap64 | None:
        """The deleted positions of a file; None when there is no vector for it."""
        return self.vectors.get(file_name)

    def mark(self, file_name: str, positions: Int64s) -> int:
        """Delete positions of a file; how many of them were alive. Deleting what is deleted changes nothing."""
        if not len(positions):
            return 0
        vector = self.vectors.get(file_name)
        if vector is None:
            vector = BitMap64()
        before = len(vector)
        vector |= BitMap64(positions.astype(np.uint64))
        added = len(vector) - before
        if added:
            self.vectors[file_name] = vector
            self.modified = True
        return added

    def remove(self, file_name: str) -> None:
        """Forget a file that was rewritten."""
        if self.vectors.pop(file_name, None) is not None:
            self.modified = True

    def retain(self, file_names: Collection[str]) -> Mapping[str, BitMap64]:
        """What goes into a new file: vectors of live files, by name (an older Java may have left vectors of files that are gone)."""
        return {name: self.vectors[name] for name in sorted(self.vectors) if name in file_names}

    def dead(self, file_name: str, positions: Int64s) -> npt.NDArray[np.bool_]:
        """For each position whether it is deleted."""
        vector = self.vectors.get(file_name)
        if not vector or not len(positions):
            return np.zeros(len(positions), dtype=bool)
        deleted = vector & BitMap64(positions.astype(np.uint64))
        return np.isin(positions, np.asarray(deleted.to_array(), dtype=np.int64), assume_unique=True)


class PositionLookup:
    """Marks the live older versions of keys in the files of some levels; a context manager that closes them."""

    def __init__(
        self,
        levels: Sequence[Sequence[DataFileMeta]],
        open_file: Callable[[DataFileMeta], DataFile],
        deletions: DeletionVectors,
        key_names: Sequence[str],
        key_types: Sequence[DataType],
    ) -> None:
        """`levels`: the files of the levels above the output level, lowest level first, files of a level in key order."""
        self.levels = [[_LookupFile(meta, open_file, tuple(key_names), tuple(key_types)) for meta in files] for files in levels]
        self.deletions = deletions
        self.last: Comparable = ()

    def __enter__(self) -> PositionLookup:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for files in self.levels:
            for file in files:
                file.release()

    def mark(self, keys: Keys) -> int:
        """Delete the newest live older version of each of these keys; how many there were. All keys of all calls ascend."""
        if len(keys):
            if not self.last < keys.at(0):
                raise ValueError("keys to look up must ascend from call to call")
            self.last = keys.at(len(keys) - 1)
        marked = 0
        for files in self.levels:
            if not len(keys):
                break
            found = np.zeros(len(keys), dtype=bool)
            for file in files:
                start, stop = file.span(keys)
                if start < stop:
                    positions, indices = file.find(keys.slice(start, stop))
                    alive = ~self.deletions.dead(file.meta.file_name, positions)
                    marked += self.deletions.mark(file.meta.file_name, positions[alive])
                    found[indices[alive] + start] = True
                if stop < len(keys):
                    file.release()
            if found.any():
                keys = keys.take(~found)
        return marked


class _LookupFile:
    """One file of a higher level, read once from front to back, and only where a key may be.

    `batch` holds rows that the next keys may be in: the position of the first, and the keys of all.
    """

    def __init__(
        self,
        meta: DataFileMeta,
        open_file: Callable[[DataFileMeta], DataFile],
        key_names: tuple[str, ...],
        key_types: tuple[DataType, ...],
    ) -> None:
        self.meta = meta
        self.open_file = open_file
        self.key_names = key_names
        self.key_types = key_types
        self.smallest = order.comparable(binary_row.deserialize(meta.min_key, key_types), key_types)
        self.largest = order.comparable(binary_row.deserialize(meta.max_key, key_types), key_types)
        self.file: DataFile | None = None
        self.bounds: list[tuple[Comparable, Comparable] | None] = []
        self.next_group = 0
        self.batches: Iterator[tuple[int, Keys]] = iter(())
        self.batch: tuple[int, Keys] | None = None
        self.last: Comparable = ()

    def span(self, keys: Keys) -> tuple[int, int]:
        """Which keys lie between the smallest and the largest key of the file."""
        start = keys.search(self.smallest, "left")
        return start, max(start, keys.search(self.largest, "right"))

    def find(self, keys: Keys) -> tuple[Int64s, Int64s]:
        """Physical positions of the keys that are in the file, ascending, and their indices in `keys`."""
        if self.file is None:
            self.file = self.open_file(self.meta)
            self.bounds = self._bounds(self.file)
        positions, indices = [_NONE], [_NONE]
        start, end = 0, keys.at(len(keys) - 1)
        while start < len(keys) and (batch := self._reach(self.file, keys.at(start), end)) is not None:
            first, here = batch
            stop = keys.search(here.at(len(here) - 1), "right")
            rows, found = match(here, keys.slice(start, stop))
            positions.append(rows + first)
            indices.append(found + start)
            start = stop
        return np.concatenate(positions), np.concatenate(indices)

    def release(self) -> None:
        """Let go of the file: no later key is in it."""
        if self.file is not None:
            self.file.close()
        self.file = self.batch = None
        self.batches = iter(())

    def _reach(self, file: DataFile, key: Comparable, end: Comparable) -> tuple[int, Keys] | None:
        """Read on to the batch that `key` is in if it is anywhere; None when all that follows is larger than `end`."""
        while self.batch is None or self.last < key:
            self.batch = next(self.batches, None)
            if self.batch is None:
                group = self._next_group(key)
                bound = self.bounds[group] if group < len(self.bounds) else None
                if group == len(self.bounds) or (bound is not None and bound[0] > end[: len(bound[0])]):
                    return None
                self.batches = self._read(file, group)
                self.next_group = group + 1
            else:
                self.last = self.batch[1].at(len(self.batch[1]) - 1)
        return self.batch

    def _next_group(self, key: Comparable) -> int:
        """The next row group that may hold `key` or larger ones, by the bounds of the first key column."""
        group = self.next_group
        while group < len(self.bounds) and (bound := self.bounds[group]) is not None and bound[1] < key[: len(bound[1])]:
            group += 1
        return group

    def _bounds(self, file: DataFile) -> list[tuple[Comparable, Comparable] | None]:
        """Smallest and largest value of the first key column per row group; None where they are unknown."""
        types = self.key_types[:1]
        return [
            None if bound is None else (order.comparable(bound[:1], types), order.comparable(bound[1:], types))
            for bound in file.group_bounds(self.key_names[0])
        ]

    def _read(self, file: DataFile, group: int) -> Iterator[tuple[int, Keys]]:
        last = self.last
        for first, batch in file.batches(self.key_names, key_batch_rows(self.meta, BATCH_ROWS), [group]):
            keys = Keys.of([batch.column(name) for name in self.key_names], self.key_types)
            if not (last < keys.at(0) and keys.ascending()):
                raise CorruptFile(f"a file of level {self.meta.level} is not in key order", path=self.meta.file_name)
            last = keys.at(len(keys) - 1)
            yield first, keys


def match(left: Keys, right: Keys) -> tuple[Int64s, Int64s]:
    """Indices of the rows with equal keys in two ascending sequences of distinct keys."""
    if len(left.columns) == 1 and isinstance(left.columns[0], np.ndarray):
        return _match_words(left.columns[0], right.columns[0])
    rows = len(left)
    ordered, starts = Keys.concat([left, right]).sort()
    pairs = starts[np.flatnonzero(np.diff(np.append(starts, len(ordered))) == 2)]
    return ordered[pairs], ordered[pairs + 1] - rows


def _match_words(left: Int64s, right: Int64s) -> tuple[Int64s, Int64s]:
    if not len(left):
        return _NONE, _NONE
    at = np.minimum(np.searchsorted(left, right), len(left) - 1)
    hits = np.flatnonzero(left[at] == right)
    return at[hits], hits
