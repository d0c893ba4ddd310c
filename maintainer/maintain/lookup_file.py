"""Walking through the keys of one file of a higher level (spec 04 §6.1; Java `LookupLevels`).

Keys to find come in ascending order, so a file is walked once, from front to back, with a piece of its keys in memory. They come in blocks:

    from the data file    a block is a row group; key columns only, and only the row groups that may hold one of the keys by their bounds
    from the cache        of an earlier pass (`maintainer.data.key_cache`): the data file is not even opened

Other columns are read of the row groups with hits only, once and from front to back, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Protocol
from zlib import crc32

import numpy as np
import pyarrow as pa

from maintainer.data.key_cache import DamagedCache, KeyCache, KeyFileWriter
from maintainer.data.reader import DataFile
from maintainer.errors import CorruptFile
from maintainer.format import binary_row
from maintainer.merge import order
from maintainer.merge.matching import match
from maintainer.merge.order import Int64s, Keys
from maintainer.merge.spilling import width_of
from maintainer.merge.stream import EXPANSION, PROBE_ROWS, PROBED, key_batch_rows
from maintainer.merge.windows import BATCH_ROWS, batch_rows_of, keys_of
from maintainer.model.files import DataFileMeta
from maintainer.model.types import DataType

Comparable = tuple[Any, ...]
"""A key, or its first columns, in the form in which keys compare (`maintainer.merge.order`)."""

VALUE_BATCH_BYTES = 8 << 20
"""Of rows of which some are hits."""
WORTH_CACHING = 2
"""The keys of a file are kept for the next pass if at least one row group in so many has to be read anyway."""
_NONE: Int64s = np.empty(0, dtype=np.int64)
_Bound = tuple[Comparable, Comparable]


@dataclass(frozen=True)
class Walk:
    """What all files of a lookup have in common."""

    open_file: Callable[[DataFileMeta], DataFile]
    key_names: tuple[str, ...]
    key_types: tuple[DataType, ...]
    columns: tuple[str, ...]
    cache: KeyCache | None
    place: str

    def identity(self, meta: DataFileMeta) -> str:
        """By which the cache knows the keys of a file: what they are and what they compare like. A name alone is none: a table that was
        dropped and made again from a copy of other files may have the same names."""
        key = ", ".join(f"{name} {data_type}" for name, data_type in zip(self.key_names, self.key_types, strict=True))
        made = f"{meta.creation_time} {meta.min_sequence_number}-{meta.max_sequence_number} {crc32(meta.min_key + meta.max_key)}"
        return f"{self.place}/{meta.file_name} {meta.file_size} bytes {meta.row_count} rows {made} ({key})"


class _Blocks(Protocol):
    """The keys of a file, in order, in parts; of some is known between which keys (or beginnings of keys) they are."""

    @property
    def bounds(self) -> Sequence[_Bound | None]: ...

    def read(self, blocks: range) -> Iterator[tuple[int, Keys]]:
        """Position of the first row, and keys, piece by piece."""

    def close(self) -> None: ...


class LookupFile:
    """One file of a higher level, read once from front to back, and only where a key may be.

    `piece` holds rows that the next keys may be in: the position of the first, and the keys of all; `last` is the last of them.
    """

    def __init__(self, meta: DataFileMeta, walk: Walk) -> None:
        self.meta = meta
        self.walk = walk
        self.smallest = order.comparable(binary_row.deserialize(meta.min_key, walk.key_types), walk.key_types)
        self.largest = order.comparable(binary_row.deserialize(meta.max_key, walk.key_types), walk.key_types)
        self.row_bytes = EXPANSION * meta.file_size / max(meta.row_count, 1)
        self.bytes_read = 0
        self.file: DataFile | None = None
        self.filling: KeyFileWriter | None = None
        self.values: _Rows | None = None
        self._forget()

    def _forget(self) -> None:
        self.blocks: _Blocks | None = None
        self.next_block = 0
        self.pieces: Iterator[tuple[int, Keys]] = iter(())
        self.piece: tuple[int, Keys] | None = None
        self.last: Comparable = ()

    def span(self, keys: Keys) -> tuple[int, int]:
        """Which keys lie between the smallest and the largest key of the file."""
        start = keys.search(self.smallest, "left")
        return start, max(start, keys.search(self.largest, "right"))

    def find(self, keys: Keys) -> tuple[Int64s, Int64s]:
        """Physical positions of the keys that are in the file, ascending, and their indices in `keys`."""
        if self.blocks is None and self.walk.cache is not None:
            self.blocks = self.walk.cache.open(self.walk.identity(self.meta))
        try:
            return self._find(keys)
        except DamagedCache:
            assert self.blocks is not None
            self.blocks.close()
            self._forget()
            return self._find(keys)

    def _find(self, keys: Keys) -> tuple[Int64s, Int64s]:
        if self.blocks is None:
            self.blocks = _FileBlocks(self)
            if self.walk.cache is not None and self._is_worth_caching(self.blocks, keys):
                self.filling = self.walk.cache.create(self.walk.identity(self.meta))
        positions, indices = [_NONE], [_NONE]
        start = 0
        while start < len(keys) and self._reach(self.blocks, keys, start):
            assert self.piece is not None
            first, here = self.piece
            stop = keys.search(self.last, "right")
            rows, found = match(here, keys.slice(start, stop))
            positions.append(rows + first)
            indices.append(found + start)
            start = stop
        return np.concatenate(positions), np.concatenate(indices)

    def rows(self, positions: Int64s) -> pa.Table:
        """The rows at ascending positions, which are larger than those of earlier calls."""
        if self.values is None:
            self.values = _Rows(self, self.walk.columns)
        return self.values.take(positions)

    def probe(self) -> float:
        """How wide rows are in memory, as far as the first ones tell: texts that repeat take next to nothing in a file."""
        rows = min(PROBE_ROWS, batch_rows_of(VALUE_BATCH_BYTES, self.row_bytes))
        found = next(self.opened().batches(self.walk.columns, rows, range(1)), None)
        return 0.0 if found is None else PROBED * width_of(found[1])

    def opened(self) -> DataFile:
        if self.file is None:
            self.file = self.walk.open_file(self.meta)
        return self.file

    def release(self, complete: bool = True) -> None:
        """Let go of the file: no later key is in it. `complete`: its keys may be kept, if most were read."""
        try:
            if self.filling is not None and complete and self.blocks is not None:
                self._fill(self.filling, self.blocks)
        finally:
            if self.filling is not None:
                self.filling.abandon()
            if self.blocks is not None:
                self.blocks.close()
            if self.file is not None:
                self.file.close()
            self._forget()
            self.file = self.filling = self.values = None

    def _fill(self, filling: KeyFileWriter, blocks: _Blocks) -> None:
        count = len(blocks.bounds)
        if self.next_block * WORTH_CACHING >= count:
            rest = blocks.read(range(self.next_block, count)) if self.next_block < count else iter(())
            for _ in chain(self.pieces, rest):
                pass  # reading them is what fills
            filling.commit()

    def _reach(self, blocks: _Blocks, keys: Keys, start: int) -> bool:
        """Read on to the piece that the key at `start` is in if it is anywhere; False: no later key is in the file either."""
        key = keys.at(start)
        while self.piece is None or self.last < key:
            self.piece = next(self.pieces, None)
            if self.piece is not None:
                self.last = self.piece[1].at(len(self.piece[1]) - 1)
                continue
            run = self._next_run(blocks, keys.slice(start, len(keys)))
            if not run:
                return False
            self.pieces = blocks.read(run)
            self.next_block = run.stop
        return True

    def _next_run(self, blocks: _Blocks, keys: Keys) -> range:
        """The next blocks, one after another, that may hold one of the keys; while the cache is filled, all up to the last of those."""
        run = range(0)
        for block in self._touched(blocks, keys):
            if run and block != run.stop and self.filling is None:
                break
            run = range(run.start if run else block, block + 1)
        return range(self.next_block, run.stop) if run and self.filling is not None else run

    def _touched(self, blocks: _Blocks, keys: Keys) -> Iterator[int]:
        """The blocks, of those not read yet, that may hold a key."""
        end = keys.at(len(keys) - 1)
        for block in range(self.next_block, len(blocks.bounds)):
            bound = blocks.bounds[block]
            if bound is not None:
                low, high = bound
                if low > end[: len(low)]:
                    return
                at = keys.search(low, "left")
                if at == len(keys) or keys.at(at)[: len(high)] > high:
                    continue
            yield block

    def _is_worth_caching(self, blocks: _Blocks, keys: Keys) -> bool:
        touched = list(self._touched(blocks, keys))
        return bool(touched) and len(touched) * WORTH_CACHING > touched[-1] - touched[0]


class _FileBlocks:
    """The key columns of a data file by row group."""

    def __init__(self, owner: LookupFile) -> None:
        self._owner = owner
        self._walk = owner.walk
        self._file = owner.opened()
        self._last: Comparable = ()
        self._bytes = sum(map(self._file.stored_bytes, self._walk.key_names))
        self.bounds = _group_bounds(self._file, self._walk.key_names, self._walk.key_types)

    def read(self, blocks: range) -> Iterator[tuple[int, Keys]]:
        walk, meta = self._walk, self._owner.meta
        for first, batch in self._file.batches(walk.key_names, key_batch_rows(meta, BATCH_ROWS), blocks):
            keys = keys_of(batch, walk.key_names, walk.key_types, meta)
            if not (self._last < keys.at(0) and keys.ascending()):
                raise CorruptFile(f"a file of level {meta.level} is not in key order", path=meta.file_name)
            self._last = keys.at(len(keys) - 1)
            self._owner.bytes_read += self._bytes * len(keys) // meta.row_count
            if self._owner.filling is not None:
                self._owner.filling.append(first, keys)
            yield first, keys

    def close(self) -> None:
        """The file belongs to another."""


class _Rows:
    """Columns of a data file at ascending positions, read once from front to back, and only the row groups with such positions."""

    def __init__(self, owner: LookupFile, columns: tuple[str, ...]) -> None:
        self._owner = owner
        self._file = owner.opened()
        self._columns = columns
        self._firsts = np.array([group.first for group in self._file.row_groups], dtype=np.int64)
        self._rows = batch_rows_of(VALUE_BATCH_BYTES, owner.row_bytes)
        self._batches: Iterator[tuple[int, pa.RecordBatch]] = iter(())
        self._batch: tuple[int, pa.RecordBatch] | None = None
        self._end = 0
        self._bytes = sum(map(self._file.stored_bytes, columns))

    def take(self, positions: Int64s) -> pa.Table:
        taken = []
        at = 0
        while at < len(positions):
            first, batch = self._reach(positions[at:])
            stop = int(np.searchsorted(positions, first + batch.num_rows))
            taken.append(batch.take(pa.array(positions[at:stop] - first)))
            at = stop
        return pa.Table.from_batches(taken)

    def _reach(self, positions: Int64s) -> tuple[int, pa.RecordBatch]:
        """Read on to the batch with the first of these positions."""
        wanted = int(positions[0])
        while self._batch is None or self._batch[0] + self._batch[1].num_rows <= wanted:
            self._batch = next(self._batches, None) if wanted < self._end else None
            if self._batch is not None:
                self._owner.bytes_read += self._bytes * self._batch[1].num_rows // self._owner.meta.row_count
                continue
            groups = np.unique(np.searchsorted(self._firsts, positions, "right") - 1).tolist()
            last = self._file.row_groups[groups[-1]]
            self._end = last.first + last.rows
            self._batches = self._file.batches(self._columns, self._rows, groups)
        return self._batch


def _group_bounds(file: DataFile, names: Sequence[str], types: Sequence[DataType]) -> list[_Bound | None]:
    """Per row group the smallest and the largest key, as far as the footer tells; what follows a column that is not constant has no order."""
    lows: list[Comparable] = [()] * len(file.row_groups)
    highs = lows.copy()
    undecided = set(range(len(lows)))
    for name, data_type in zip(names, types, strict=True):
        if not undecided:
            break
        for group, bound in enumerate(file.group_bounds(name)):
            if group in undecided and bound is not None:
                low, high = order.comparable(bound[:1], [data_type]), order.comparable(bound[1:], [data_type])
                lows[group] += low
                highs[group] += high
            if bound is None or bound[0] != bound[1]:
                undecided.discard(group)
    return [(low, high) if low else None for low, high in zip(lows, highs, strict=True)]
