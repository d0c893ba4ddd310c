"""Older versions of keys in higher levels, and the vectors that end them (spec 04 §6.1, §7; Java `LookupLevels`, `BucketedDvMaintainer`).

Invariant (spec 04 §7.2): among the files of level ≥ 1 of a bucket, after applying deletion vectors, every key has at most one live row. A
compaction that writes a new version of a key below the level of the old one keeps it by marking the old one's physical position:

    levels     output + 1, …, highest, as they were before the compaction; the first live hit is the one, and the search for this key ends
    position   counted over all physical rows of the file, deleted ones included
    dead rows  do not exist: a hit that the deletion vector already names, or that has expired, is no hit (spec 04 §14.1, §9.1); but who marks
               marks what has expired, too: it is in its file still, where readers would see it beside the new version

Keys come in ascending order, call after call. How a file is walked through is said in `maintainer.maintain.lookup_file`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import TracebackType
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap64

from maintainer.data.key_cache import KeyCache
from maintainer.data.reader import DataFile
from maintainer.maintain.lookup_file import Comparable, LookupFile, Walk
from maintainer.merge.order import Int64s, Keys
from maintainer.merge.stream import PROBE_ROWS
from maintainer.model.files import DataFileMeta
from maintainer.model.types import DataType

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


class RowFilter(Protocol):
    """Rows that exist as far as a lookup is concerned, for example those that have not expired."""

    @property
    def columns(self) -> Sequence[str]:
        """What the filter has to see of a row."""

    def keeps(self, rows: pa.Table) -> npt.NDArray[np.bool_]:
        """For each row whether it exists."""


@dataclass(frozen=True)
class Hits:
    """The live older versions of some keys, in the order of the keys."""

    indices: Int64s
    """Which of the keys."""
    levels: npt.NDArray[np.int8]
    files: npt.NDArray[np.object_]
    """Names."""
    positions: Int64s
    """Physical, in the file."""
    rows: pa.Table | None
    """The columns that were asked for; None: only positions were."""

    def __len__(self) -> int:
        return len(self.indices)


class Lookup:
    """Finds the live older versions of keys in the files of some levels; a context manager that closes them."""

    def __init__(
        self,
        levels: Sequence[Sequence[DataFileMeta]],
        open_file: Callable[[DataFileMeta], DataFile],
        deletions: DeletionVectors,
        key_names: Sequence[str],
        key_types: Sequence[DataType],
        columns: Sequence[str] = (),
        keep: RowFilter | None = None,
        cache: KeyCache | None = None,
        place: str = "",
    ) -> None:
        """`levels`: the files of the levels above the output level, lowest level first, files of a level in key order. `columns`: what is
        wanted of a hit beside its place. `place` is the URI of the bucket, by which `cache` knows the files."""
        self.deletions = deletions
        self.columns = tuple(columns)
        self.keep = keep
        self._read = tuple(dict.fromkeys((*columns, *(keep.columns if keep else ()))))
        self._last: Comparable = ()
        walk = Walk(open_file, tuple(key_names), tuple(key_types), self._read, cache, place)
        self._levels = [[LookupFile(meta, walk) for meta in files] for files in levels]

    def __enter__(self) -> Lookup:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for file in self._files:
            file.release(complete=error is None)

    @property
    def _files(self) -> Iterator[LookupFile]:
        return (file for files in self._levels for file in files)

    @property
    def has_files(self) -> bool:
        """Whether there is anything to find keys in."""
        return any(self._levels)

    @property
    def bytes_read(self) -> int:
        """About what was read of data files so far; what came from the cache does not count."""
        return sum(file.bytes_read for file in self._files)

    @cached_property
    def row_bytes(self) -> float:
        """About what a hit takes in memory, at most; the first rows of the longest file are looked at. Ask before anything is looked up."""
        longest = max(self._files, key=lambda file: file.meta.row_count, default=None) if self._read else None
        if longest is None:
            return 0.0
        width = longest.probe() if longest.meta.row_count > PROBE_ROWS else 0.0
        for file in self._files:
            file.row_bytes = max(file.row_bytes, width)
        return max(file.row_bytes for file in self._files)

    def find(self, keys: Keys, mark: bool = False) -> Hits:
        """The newest live older version of each of these keys that has one; all keys of all calls ascend. `mark`: it is deleted."""
        if len(keys):
            if not self._last < keys.at(0):
                raise ValueError("keys to look up must ascend from call to call")
            self._last = keys.at(len(keys) - 1)
        asked = np.arange(len(keys))
        found: list[_Found] = []
        for files in self._levels:
            missing = np.ones(len(keys), dtype=bool)
            for file in files if len(keys) else ():
                start, stop = file.span(keys)
                if start < stop:
                    hits = self._find_in(file, keys.slice(start, stop), mark)
                    missing[hits.indices + start] = False
                    found.append(_Found(file.meta, asked[hits.indices + start], hits.positions, hits.rows))
                if stop < len(keys):
                    file.release()
            if not missing.all():
                keys, asked = keys.take(missing), asked[missing]
        return self._hits([one for one in found if len(one.indices)])

    def mark(self, keys: Keys) -> int:
        """Delete the newest live older version of each of these keys; how many there were."""
        return len(self.find(keys, mark=True))

    def _find_in(self, file: LookupFile, keys: Keys, mark: bool) -> _Found:
        name = file.meta.file_name
        positions, indices = file.find(keys)
        alive = ~self.deletions.dead(name, positions)
        positions, indices = positions[alive], indices[alive]
        if mark:
            self.deletions.mark(name, positions)
        rows = file.rows(positions) if self._read and len(positions) else None
        if rows is not None and self.keep is not None:
            kept = self.keep.keeps(rows)
            positions, indices, rows = positions[kept], indices[kept], rows.filter(pa.array(kept))
        return _Found(file.meta, indices, positions, None if rows is None else rows.select(self.columns))

    def _hits(self, found: Sequence[_Found]) -> Hits:
        if not found:
            return Hits(_NONE, np.empty(0, np.int8), np.empty(0, object), _NONE, None)
        indices = np.concatenate([one.indices for one in found])
        ordered = indices.argsort(kind="stable")
        sizes = [len(one.indices) for one in found]
        rows = None
        if self.columns:
            rows = pa.concat_tables([one.rows for one in found])
            if len(found) > 1 and (ordered[1:] < ordered[:-1]).any():
                rows = rows.take(pa.array(ordered))
        return Hits(
            indices[ordered],
            np.repeat(np.array([one.meta.level for one in found], np.int8), sizes)[ordered],
            np.repeat(np.array([one.meta.file_name for one in found], object), sizes)[ordered],
            np.concatenate([one.positions for one in found])[ordered],
            rows,
        )


@dataclass(frozen=True)
class _Found:
    """What one file has of some keys, in their order."""

    meta: DataFileMeta
    indices: Int64s
    positions: Int64s
    rows: pa.Table | None
