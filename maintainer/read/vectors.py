"""The deletion vectors of the files of a split (spec 02 §12, 07 §9; Java `DeletionVector.read`).

A split says where the vector of each of its files lies, and a file of vectors often holds those of all files of a bucket. So the start of such
a file, which is nearly always all of it, is read in one request and kept for the next splits; a vector behind that is read by itself. What was
decoded is kept, too. Files of vectors never change, and their names are never used again.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import partial

from pyroaring import BitMap64

from maintainer.errors import CorruptFile
from maintainer.format import deletion_vector
from maintainer.format.kept import Kept
from maintainer.model.files import DeletionRange
from maintainer.model.split import DataSplit, DeletionFile
from maintainer.storage.ahead import ahead
from maintainer.table.options import TableOptions
from maintainer.table.store import TableStore

START = 1 << 20
"""Bytes of a file of vectors that are read at once: on an object store they take about as long as a request by itself."""
FRAMING = 8
"""The length before a vector and the checksum behind it."""

NONE_DELETED = BitMap64()
"""For files without a vector; like all vectors that come from here it is shared, so nobody changes it."""


class DeletionVectors:
    """The vectors that the splits of one reader need. For all threads."""

    def __init__(self, store: TableStore, options: TableOptions) -> None:
        self._store = store
        self._kept = store.cache("files", options.file_cache_size)
        self._lock = threading.Lock()
        self._reading: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)

    def of(self, split: DataSplit) -> Mapping[str, BitMap64]:
        """The deleted positions of those files of a split that have any, by their names."""
        if split.deletion_files is None:
            return {}
        pairs = zip(split.files, split.deletion_files, strict=True)
        return {file.file_name: self._vector(split, file.file_name, where) for file, where in pairs if where is not None}

    def ahead(self, split: DataSplit) -> Callable[[], Mapping[str, BitMap64]]:
        """The same, asked of a remote store now, while others look at the files."""
        if not any(split.deletion_files or ()):
            return dict
        return ahead(self._store.storage, partial(self.of, split))

    def _vector(self, split: DataSplit, file: str, where: DeletionFile) -> BitMap64:
        path = self._store.layout.index_file_path(where.path.rpartition("/")[2], split.partition, split.bucket)
        kept = self._kept.of(path)
        found: BitMap64 | None = kept.get(where)
        if found is not None:
            return found
        with self._lock:
            reading = self._reading[path]
        vector = DeletionRange(file, where.offset, where.length, where.cardinality)
        with reading:  # others that want a vector of this file find the bytes
            try:
                try:
                    found = self._read(path, vector, kept)
                except CorruptFile:
                    self._kept.forget(path)  # bytes that were kept may be of a reading that went wrong, or of a file that was repaired
                    found = self._read(path, vector, kept)
            except CorruptFile as error:
                raise error.at(self._store.storage.display(path)) from error
        kept.put(where, found, where.length)
        return found

    def _read(self, path: str, vector: DeletionRange, kept: Kept) -> BitMap64:
        data, offset = self._bytes(path, vector, kept)
        return deletion_vector.decode_at(data, vector, offset)

    def _bytes(self, path: str, vector: DeletionRange, kept: Kept) -> tuple[bytes, int]:
        """Bytes with a vector in them, and where they begin in the file."""
        if vector.offset < 1 or vector.length < 0:
            raise CorruptFile(f"the vector of {vector.data_file} has {vector.length} bytes", offset=vector.offset)
        end = vector.offset + vector.length + FRAMING
        if end <= START:
            return kept.made("start", lambda: _sized(self._store.storage.read_start(path, START))), 0
        try:
            return self._store.storage.read_range(path, vector.offset, vector.length + FRAMING), vector.offset
        except CorruptFile:  # 64-bit vectors count the framing in, and this one is the last of its file
            return self._store.storage.read_range(path, vector.offset, vector.length), vector.offset


def _sized(data: bytes) -> tuple[bytes, int]:
    return data, len(data)
