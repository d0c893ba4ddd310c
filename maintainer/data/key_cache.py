"""Key columns of data files, kept on a local disk for the next lookup (spec 04 §6.1; Java keeps its lookup files for a similar reason).

Data files never change, so what was read of one stays true. A pass that looks for older versions of some keys reads the key columns of the
files that may hold them, and the next pass over the bucket asks the same files. A cache file is called by the SHA-256 of its identity:

    block …    the keys of some rows in comparable form (`maintainer.merge.order`), column after column, each padded to 8 bytes:
               a number as int64; bytes as int64 offsets, one more than there are rows, and the bytes
    fences     like a block: the first and the last key of each block
    footer     JSON: version, identity, kinds of the columns, [first position, rows, offset, size, crc32] of each block and of the fences
    tail       footer size and crc32, 4 bytes each, little-endian; `MAGIC`

Invariants: a file is complete when it gets its name; what is not what its checksum says is removed and not believed, and the caller reads the
data file instead. Files are used by any number of threads and processes; whoever adds one removes those that were used longest ago until all
are within the limit. Readers keep a file open, so one that is removed can be read to its end.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import tempfile
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import structlog

from maintainer.errors import StorageError
from maintainer.merge.order import Column, Keys

MAGIC = b"PKEYS\x00\x00\x01"
DEFAULT_LIMIT = 1 << 30
_TAIL = 8 + len(MAGIC)
_LARGEST_FOOTER = 64 << 20
_STALE_PART = 3600.0
"""Seconds after which an unfinished file is one that a dead process has left."""
_SUFFIX, _PART = ".keys", ".part"

log = structlog.get_logger(__name__)


class DamagedCache(Exception):
    """A cache file is not what it was written as; it is gone now."""


class KeyCache:
    """A directory of key columns; one object for all threads of a process."""

    def __init__(self, directory: str, limit: int = DEFAULT_LIMIT) -> None:
        """`directory` is made when it is missing; `limit` is in bytes of files."""
        self.directory = Path(os.path.abspath(os.path.expanduser(directory)))
        self.limit = limit
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            if self.directory.stat().st_uid != os.geteuid():
                raise PermissionError("it belongs to somebody else")
            with self._locked():
                pass
        except OSError as error:
            raise StorageError(
                f"{self.directory}: cannot keep keys there: {error.strerror or error}; set `cache.directory` to a directory of a local disk"
            ) from error

    @staticmethod
    def default_directory() -> str:
        """One for each user, among the temporary files."""
        return os.path.join(tempfile.gettempdir(), f"maintainer-keys-{os.geteuid()}")

    @property
    def used(self) -> int:
        """Bytes of all files, unfinished ones included."""
        return sum(size for _, size, _ in self._entries())

    def open(self, identity: str) -> CachedKeys | None:
        """The keys that were kept under this identity; None: there are none. Close them."""
        path = self._path(identity)
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            cached = CachedKeys(path, descriptor, identity)
            with suppress(OSError):
                os.utime(path)
            return cached
        except DamagedCache:
            os.close(descriptor)
            return None
        except BaseException:
            os.close(descriptor)
            raise

    def create(self, identity: str) -> KeyFileWriter:
        """A writer of the keys that are to be found under this identity."""
        return KeyFileWriter(self, identity)

    def _path(self, identity: str) -> Path:
        return self.directory / (hashlib.sha256(identity.encode("utf-8", "surrogatepass")).hexdigest() + _SUFFIX)

    def _publish(self, part: str, identity: str, size: int) -> None:
        with self._locked():
            entries = [entry for entry in sorted(self._entries()) if str(entry[2]) != part]
            total = size + sum(entry[1] for entry in entries)
            now = time.time()
            for used, bytes_of_it, path in entries:
                old_part = path.suffix == _PART and now - used > _STALE_PART
                if old_part or (total > self.limit and path.suffix == _SUFFIX):
                    path.unlink(missing_ok=True)
                    total -= bytes_of_it
            os.replace(part, self._path(identity))

    def _entries(self) -> list[tuple[float, int, Path]]:
        """When each file was used last, its size and its path."""
        found = []
        for path in self.directory.iterdir():
            if path.suffix in (_SUFFIX, _PART):
                with suppress(FileNotFoundError):
                    status = path.stat()
                    found.append((status.st_mtime, status.st_size, path))
        return found

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Nobody else adds or removes files meanwhile."""
        with open(self.directory / "lock", "a", encoding="ascii") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


class KeyFileWriter:
    """Takes the keys of a data file, from the first row to the last; `commit` makes them known. What cannot be kept is let go silently."""

    def __init__(self, cache: KeyCache, identity: str) -> None:
        self._cache = cache
        self._identity = identity
        self._size = 0
        self._blocks: list[list[int]] = []
        self._fences: list[Keys] = []
        self._file: Any = None
        with self._giving_up():
            self._file = tempfile.NamedTemporaryFile(dir=cache.directory, suffix=_PART, delete=False)  # noqa: SIM115

    def append(self, first: int, keys: Keys) -> None:
        """The keys of the rows from position `first` on, ascending."""
        if self._file is None or not len(keys):
            return
        with self._giving_up():
            self._blocks.append(self._write(first, keys))
            self._fences += [keys.slice(0, 1), keys.slice(len(keys) - 1, len(keys))]
        if self._size > self._cache.limit:
            self.abandon()

    def commit(self) -> None:
        """Let others find what was appended."""
        if self._file is None or not self._blocks:
            self.abandon()
            return
        with self._giving_up():
            fences = Keys.concat(self._fences)
            footer = {
                "version": 1,
                "identity": self._identity,
                "kinds": ["int64" if isinstance(column, np.ndarray) else "bytes" for column in fences.columns],
                "blocks": self._blocks,
                "fences": self._write(0, fences),
            }
            data = json.dumps(footer).encode()
            self._append(data + len(data).to_bytes(4, "little") + zlib.crc32(data).to_bytes(4, "little") + MAGIC)
            self._file.close()
            if self._size > self._cache.limit:
                self.abandon()
                return
            self._cache._publish(self._file.name, self._identity, self._size)
            self._file = None

    def abandon(self) -> None:
        """Keep nothing; twice is fine."""
        file, self._file = self._file, None
        if file is not None:
            with suppress(OSError):
                file.close()
            with suppress(OSError):
                os.unlink(file.name)

    def _write(self, first: int, keys: Keys) -> list[int]:
        start, crc = self._size, 0
        for column in keys.columns:
            for part in _parts(column):
                self._append(part)
                crc = zlib.crc32(part, crc)
        return [first, len(keys), start, self._size - start, crc]

    def _append(self, data: Any) -> None:
        self._file.write(data)
        self._size += len(data)

    @contextmanager
    def _giving_up(self) -> Iterator[None]:
        """A disk that is full, or gone, is no reason for a lookup to fail."""
        try:
            yield
        except OSError as error:
            log.warning("key-cache.not-kept", directory=str(self._cache.directory), error=error.strerror or str(error))
            self.abandon()


class CachedKeys:
    """The keys of a data file, in blocks; `bounds` are the smallest and the largest key of each."""

    def __init__(self, path: Path, descriptor: int, identity: str) -> None:
        self._path = path
        self._descriptor = descriptor
        size = os.fstat(descriptor).st_size
        tail = self._read(size - _TAIL, _TAIL) if size > _TAIL else b""
        length = int.from_bytes(tail[:4], "little")
        if tail[8:] != MAGIC or length > min(size - _TAIL, _LARGEST_FOOTER):
            raise self._damaged()
        footer = bytes(self._read(size - _TAIL - length, length))
        if zlib.crc32(footer) != int.from_bytes(tail[4:8], "little"):
            raise self._damaged()
        try:
            said = json.loads(footer)
            if said["version"] != 1 or said["identity"] != identity:
                raise self._damaged()
            self._kinds: list[str] = said["kinds"]
            self._blocks: list[list[int]] = said["blocks"]
            fences = self._keys(said["fences"])
        except (ValueError, KeyError, TypeError) as error:
            raise self._damaged() from error
        self.bounds = [(fences.at(2 * block), fences.at(2 * block + 1)) for block in range(len(self._blocks))]

    def read(self, blocks: Sequence[int]) -> Iterator[tuple[int, Keys]]:
        """Position of the first row, and keys, of some blocks; `DamagedCache` when they are not what they were."""
        for block in blocks:
            yield self._blocks[block][0], self._keys(self._blocks[block])

    def close(self) -> None:
        """Twice is fine."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def _keys(self, block: Sequence[int]) -> Keys:
        _, rows, offset, size, crc = block
        data = self._read(offset, size)
        if zlib.crc32(data) != crc:
            raise self._damaged()
        columns: list[Column] = []
        at = 0
        for kind in self._kinds:
            words = np.frombuffer(data, np.int64, rows + (kind == "bytes"), at)
            at += words.nbytes
            if kind == "bytes":
                length = int(words[-1])
                buffers = [None, pa.py_buffer(words), pa.py_buffer(data[at : at + length])]
                columns.append(pa.Array.from_buffers(pa.large_binary(), rows, buffers))
                at += length + -length % 8
            else:
                columns.append(words)
        return Keys(columns, rows)

    def _read(self, offset: int, size: int) -> memoryview:
        buffer = memoryview(bytearray(size))
        done = 0
        while done < size:
            try:
                count = os.preadv(self._descriptor, [buffer[done:]], offset + done)
            except OSError as error:
                raise self._damaged() from error
            if not count:
                raise self._damaged()
            done += count
        return buffer

    def _damaged(self) -> DamagedCache:
        log.warning("key-cache.damaged", file=str(self._path))
        with suppress(OSError):
            self._path.unlink()
        return DamagedCache(str(self._path))


def _parts(column: Column) -> Iterator[bytes | memoryview]:
    """The bytes of a column."""
    if isinstance(column, np.ndarray):
        yield np.ascontiguousarray(column).data.cast("B")
        return
    _, offset_buffer, data_buffer = column.buffers()
    offsets = np.frombuffer(offset_buffer, np.int64)[column.offset : column.offset + len(column) + 1]
    yield (offsets - offsets[0]).data.cast("B")
    if offsets[-1] > offsets[0]:
        yield memoryview(data_buffer)[int(offsets[0]) : int(offsets[-1])].cast("B")
    yield bytes(int(offsets[0] - offsets[-1]) % 8)
