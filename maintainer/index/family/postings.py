"""Keys with their rows as bitmaps, and a look at the first ones before anything is written (spec 08 §6, §7.6)."""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType

import numpy as np
import pyarrow.compute as pc

from maintainer.data.spill import SpillFile
from maintainer.format import posting
from maintainer.format.byte_column import ByteColumn
from maintainer.index.family.key_runs import KeyBatch
from maintainer.index.family.ordering import LargeKey
from maintainer.index.family.spilled_arrays import pack, unpack
from maintainer.index.payload import Resources

Entries = tuple[ByteColumn, ByteColumn]
"""Keys and the bitmap of each."""

_MEMORY_SHARE = 8
"""Of the memory this part is for entries that wait; the keys are sorted in most of it."""
_DTYPES = (np.uint8, np.int64, np.uint8, np.int64)


def posted(batch: KeyBatch | LargeKey) -> Entries:
    """Keys with the bitmaps of their rows."""
    if isinstance(batch, LargeKey):
        return ByteColumn.of_rows((batch.key,)), ByteColumn.of_rows((batch.rows.encode(),))
    return batch.keys, posting.encode_groups(batch.ids, batch.starts)


class FirstEntries:
    """All entries, of which the first are held, or spilled, until as many keys are known as are asked for; a context manager.

    `are_all`: there are no more; `in_byte_order`: their keys are in the order of their bytes.
    """

    def __init__(self, entries: Iterator[Entries], most_keys: int, resources: Resources) -> None:
        self._rest = entries
        self._resources = resources
        self._held: list[Entries | int] = []
        self._file: SpillFile | None = None
        self._size = count = 0
        self.in_byte_order = True
        last: bytes | None = None
        for keys, postings in entries:
            count += len(keys)
            column = keys.to_arrow()
            self.in_byte_order &= last is None or last < keys[0]
            self.in_byte_order &= pc.all(pc.less(column[:-1], column[1:])).as_py() is not False
            last = keys[-1]
            self._hold(keys, postings)
            if count > most_keys:
                self.are_all = False
                return
        self.are_all = True

    def __iter__(self) -> Iterator[Entries]:
        for number, entries in enumerate(self._held):
            self._held[number] = -1
            yield entries if isinstance(entries, tuple) else self._read(entries)
        yield from self._rest

    def _hold(self, keys: ByteColumn, postings: ByteColumn) -> None:
        self._size += len(keys.data) + len(postings.data)
        if self._size <= self._resources.memory // _MEMORY_SHARE:
            self._held.append((keys, postings))
            return
        if self._file is None:
            self._file = self._resources.spill.file()
        self._held.append(self._file.append(pack((keys.data, keys.offsets, postings.data, postings.offsets))))

    def _read(self, number: int) -> Entries:
        assert self._file is not None
        keys, key_offsets, postings, offsets = unpack(self._file.read(number), _DTYPES)
        return ByteColumn(keys, key_offsets), ByteColumn(postings, offsets)

    def __enter__(self) -> FirstEntries:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._file is not None:
            self._file.close()
