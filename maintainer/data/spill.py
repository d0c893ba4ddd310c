"""Temporary files for what does not fit into the memory budget (DESIGN rule 5; Java `IOManager`, `FileChannelManager`).

    spill file   record batches as Arrow IPC messages, one after another; each is read again by its number

No file has a name: it is unlinked when it is opened (`O_TMPFILE` where the file system has it). So nothing is ever left over, not even by a
process that is killed, there is nothing to clean up at the next start, and processes that share a directory, in containers or not, cannot
take each other's files for those of a dead one. What a process holds is given back when it closes the files.

Batches are compressed by zstd unless their columns are short, as that takes 25 µs for each buffer of a column, both ways. Measured on texts and
numbers, it halves the bytes at 500 MB/s of rows (write and read together, one thread), without compression it is 700 MB/s, and with lz4 450
MB/s for hardly fewer bytes; a disk of a cloud machine is slower than all of them, and the limit is one of bytes.
"""

from __future__ import annotations

import os
import tempfile
import threading
from contextlib import suppress
from types import TracebackType
from typing import Any

import pyarrow as pa

from maintainer.errors import SpillError

_PREFIX = "maintainer-spill-"
"""Of the name that a file has for an instant where the file system cannot make one without."""
_OPTIONS = {"compression": "zstd", "use_threads": False}
_LEAST_COMPRESSED = 16 << 10
"""Bytes of a column, on average."""


class Spill:
    """Where to spill to and how much; one for all threads of a process, as they share the limit."""

    def __init__(self, directory: str | None = None, limit: int | None = None) -> None:
        """`directory` is made when it is missing, and should be on a disk: what spills to memory is not spilled. By default it is the system's
        directory for temporary files. `limit` is in bytes of files; None: as much as there is."""
        self.limit = limit
        self._directory = None if directory is None else os.path.abspath(os.path.expanduser(directory))
        self._used = 0
        self._lock = threading.Lock()
        if self._directory is not None:
            try:
                os.makedirs(self._directory, exist_ok=True)
            except OSError as error:
                raise self._unusable(error) from error
            self.file().close()

    def __reduce__(self) -> tuple[Any, ...]:
        return Spill, (self._directory, self.limit)  # for another process, with a limit of its own

    @property
    def directory(self) -> str:
        return self._directory or tempfile.gettempdir()

    @property
    def used(self) -> int:
        """Bytes of all files that are open."""
        return self._used

    def file(self) -> SpillFile:
        """A new file, which is gone when it is closed."""
        try:
            return SpillFile(self, tempfile.TemporaryFile(dir=self._directory, prefix=_PREFIX, buffering=0))
        except OSError as error:
            raise self._unusable(error) from error

    def take(self, size: int) -> None:
        """Count bytes that are about to be written."""
        with self._lock:
            if self.limit is not None and self._used + size > self.limit:
                raise SpillError(
                    f"{self.directory}: {self._used} bytes are spilled, and {size} more would be above the limit of {self.limit}; "
                    "raise `spill.limit`, or `memory`, so that less is spilled"
                )
            self._used += size

    def give_back(self, size: int) -> None:
        with self._lock:
            self._used -= size

    def _unusable(self, error: OSError) -> SpillError:
        where = self._directory or "the system's directory for temporary files"
        return SpillError(f"{where}: cannot make a file to spill to: {error.strerror or error}; set `spill.directory` to a directory of a disk")


class SpillFile:
    """Batches of rows, all of one schema, in a temporary file; a context manager that makes it disappear. For one thread at a time."""

    def __init__(self, spill: Spill, file: Any) -> None:
        self._spill = spill
        self._file = file
        self._size = 0
        self._places: list[tuple[int, int]] = []
        self._sink = _Sink()
        self._compressing: Any = None
        self._schema: pa.Schema | None = None

    def append(self, batch: pa.RecordBatch) -> int:
        """Write a batch; the number by which it is read again."""
        if self._schema is None:
            self._schema = batch.schema
        data = batch.serialize() if batch.nbytes < _LEAST_COMPRESSED * batch.num_columns else self._compressed(batch)
        self._places.append((self._size, len(data)))
        self._write(data)
        return len(self._places) - 1

    def _compressed(self, batch: pa.RecordBatch) -> bytes:
        if self._compressing is None:
            sink = pa.PythonFile(self._sink, mode="w")
            self._compressing = pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(**_OPTIONS))
            self._compressing.write_batch(batch.slice(0, 0))  # the schema goes out with the first batch
            self._sink.take()
        self._compressing.write_batch(batch)
        return self._sink.take()

    def read(self, number: int) -> pa.RecordBatch:
        offset, size = self._places[number]
        buffer = pa.allocate_buffer(size)
        view = memoryview(buffer)
        done = 0
        while done < size:
            try:
                count = os.preadv(self._file.fileno(), [view[done:]], offset + done)
            except OSError as error:
                raise SpillError(f"{self._spill.directory}: cannot read what was spilled: {error.strerror or error}") from error
            if not count:
                raise SpillError(f"{self._spill.directory}: a file that was spilled has become shorter")
            done += count
        return pa.ipc.read_record_batch(pa.ipc.read_message(buffer), self._schema)

    def close(self) -> None:
        """Give the file up, and its bytes back; twice is fine."""
        self._compressing = None
        if not self._file.closed:
            with suppress(OSError):
                self._file.close()
            self._spill.give_back(self._size)

    def __enter__(self) -> SpillFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _write(self, data: Any) -> None:
        left = memoryview(data)
        self._spill.take(len(left))
        self._size += len(left)
        try:
            while left:
                left = left[self._file.write(left) :]
        except OSError as error:
            raise SpillError(
                f"{self._spill.directory}: cannot spill: {error.strerror or error}; {self._spill.used} bytes are spilled; make room there, "
                "set `spill.directory` to a larger disk, or raise `memory`, so that less is spilled"
            ) from error


class _Sink:
    """What Arrow writes a message to."""

    closed = False

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def write(self, data: Any) -> int:
        self._parts.append(bytes(data))
        return len(data)

    def take(self) -> bytes:
        """What was written since the last call."""
        data = b"".join(self._parts)
        self._parts.clear()
        return data

    def flush(self) -> None:
        """Nothing to do."""
