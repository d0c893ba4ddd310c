"""Finding the older version of a key in higher levels, and the deletion vectors that say so (spec 04 §6.1, §7; Java `LookupLevels`, `BucketedDvMaintainer`).

Invariant (spec 04 §7.2): among the files of level ≥ 1 of a bucket, after applying deletion vectors, every key has at most one live row. A
compaction that writes a new version of a key below the level of the old one keeps it by marking the old one's physical position:

    levels     output + 1, …, highest, as they were before the compaction; the first live hit is marked, and the search for this key ends
    position   counted over all physical rows of the file, deleted ones included
    dead rows  do not exist: a hit that the deletion vector already names is no hit (spec 04 §14.1)

Only key columns are read, and of those only the row groups that may hold one of the keys. Keys come in ascending order, so that a merge
walks every file once from front to back: the row groups that it touched last are kept per file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from maintainer.data.reader import DataFile
from maintainer.errors import CorruptFile
from maintainer.format import binary_row
from maintainer.merge import order
from maintainer.model.files import DataFileMeta
from maintainer.model.types import FLOATS, DataType

Keys = list[pa.Array]
"""Key columns of rows that are sorted by key, each key once."""


@dataclass
class DeletionVectors:
    """The deletion vectors of one bucket while it is being worked on; `modified` says whether they have to be written again."""

    vectors: dict[str, BitMap64] = field(default_factory=dict)
    modified: bool = False

    def of(self, file_name: str) -> BitMap64 | None:
        """The deleted positions of a file; None when there is no vector for it."""
        return self.vectors.get(file_name)

    def mark(self, file_name: str, positions: np.ndarray) -> int:
        """Delete positions of a file; how many of them were alive. Deleting what is deleted changes nothing."""
        vector = self.vectors.get(file_name)
        if vector is None:
            vector = BitMap64()
        before = len(vector)
        vector |= BitMap64(positions.astype(np.uint64).tolist())
        added = len(vector) - before
        if added:
            self.vectors[file_name] = vector
            self.modified = True
        return added

    def remove(self, file_name: str) -> None:
        """Forget a file that was rewritten."""
        if self.vectors.pop(file_name, None) is not None:
            self.modified = True

    def retain(self, file_names: set[str]) -> Mapping[str, BitMap64]:
        """What goes into a new file: vectors of live files, by name (an older Java may have left vectors of files that are gone)."""
        return {name: self.vectors[name] for name in sorted(self.vectors) if name in file_names}

    def dead(self, file_name: str, positions: np.ndarray) -> np.ndarray:
        """For each position whether it is deleted."""
        vector = self.vectors.get(file_name)
        if not vector:
            return np.zeros(len(positions), dtype=bool)
        low, high = int(positions[0]), int(positions[-1])
        deleted = np.fromiter(vector & BitMap64.from_range(low, high + 1), dtype=np.uint64)
        return np.isin(positions.astype(np.uint64), deleted, assume_unique=True)


class PositionLookup:
    """Marks the live older versions of keys in the files of some levels."""

    def __init__(
        self,
        levels: Sequence[Sequence[DataFileMeta]],
        open_file: Callable[[DataFileMeta], DataFile],
        deletions: DeletionVectors,
        key_names: Sequence[str],
        key_types: Sequence[DataType],
    ) -> None:
        """`levels`: the files of the levels above the output level, lowest level first, files of a level in key order."""
        self.key_names = tuple(key_names)
        self.key_types = tuple(key_types)
        self.levels = [[_LookupFile(meta, open_file, self.key_names, self.key_types) for meta in files] for files in levels]
        self.deletions = deletions

    def mark(self, keys: Keys) -> int:
        """Delete the newest live older version of each key; how many there were."""
        marked = 0
        for files in self.levels:
            if not len(keys[0]):
                break
            found = np.zeros(len(keys[0]), dtype=bool)
            for file in files:
                start, stop = file.span(keys)
                if start == stop:
                    continue
                positions, indices = file.find([column.slice(start, stop - start) for column in keys])
                if not len(positions):
                    continue
                alive = ~self.deletions.dead(file.meta.file_name, positions)
                marked += self.deletions.mark(file.meta.file_name, positions[alive])
                found[indices[alive] + start] = True
            if found.any():
                keep = pa.array(~found)
                keys = [column.filter(keep) for column in keys]
        return marked


class _LookupFile:
    """One file of a higher level; opened when the first key may be in it."""

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
        self.smallest = binary_row.deserialize(meta.min_key, key_types)
        self.largest = binary_row.deserialize(meta.max_key, key_types)
        self.file: DataFile | None = None
        self.cached: dict[int, Keys] = {}

    def span(self, keys: Keys) -> tuple[int, int]:
        """Which keys lie between the smallest and the largest key of the file."""
        start = order.search(keys, self.key_types, self.smallest, "left")
        return start, max(start, order.search(keys, self.key_types, self.largest, "right"))

    def find(self, keys: Keys) -> tuple[np.ndarray, np.ndarray]:
        """Physical positions of the keys that are in the file, ascending, and their indices in `keys`."""
        if self.file is None:
            self.file = self.open_file(self.meta)
        wanted = self._row_groups(self.file, keys)
        self.cached = {number: columns for number, columns in self.cached.items() if number in wanted}
        positions, indices = [], []
        for number in wanted:
            columns = self._keys_of(self.file, number)
            here, there = match(columns, keys, self.key_types)
            positions.append(here + self.file.row_groups[number].first)
            indices.append(there)
        if not positions:
            return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
        return np.concatenate(positions), np.concatenate(indices)

    def _row_groups(self, file: DataFile, keys: Keys) -> list[int]:
        """Row groups that may hold one of the keys, by their bounds of the first key column."""
        numbers = range(len(file.row_groups))
        if self.key_types[0].root in FLOATS:  # Parquet leaves NaN out of its bounds
            return list(numbers)
        first, types = keys[:1], self.key_types[:1]
        bounds = file.key_bounds(self.key_names[0])
        return [
            number
            for number, bound in zip(numbers, bounds, strict=True)
            if bound is None or order.search(first, types, (bound[0],), "left") < order.search(first, types, (bound[1],), "right")
        ]

    def _keys_of(self, file: DataFile, number: int) -> Keys:
        columns = self.cached.get(number)
        if columns is None:
            table = file.read(self.key_names, [number])
            columns = self.cached[number] = [table[name].combine_chunks() for name in self.key_names]
            if not order.is_sorted(columns, self.key_types):
                raise CorruptFile(f"a file of level {self.meta.level} is not in key order", path=self.meta.file_name)
        return columns


def match(left: Keys, right: Keys, types: Sequence[DataType]) -> tuple[np.ndarray, np.ndarray]:
    """Indices of the rows with equal keys in two sorted sets of distinct keys."""
    rows = len(left[0])
    columns = [pa.concat_arrays([one, _like(other, one)]) for one, other in zip(left, right, strict=True)]
    ordered, starts = order.sort_groups(columns, types)
    pairs = starts[np.flatnonzero(np.diff(np.append(starts, len(ordered))) == 2)]
    return ordered[pairs], ordered[pairs + 1] - rows


def _like(array: pa.Array, model: pa.Array) -> pa.Array:
    return array if array.type == model.type else array.cast(model.type)
