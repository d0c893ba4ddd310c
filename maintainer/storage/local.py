"""The local file system, without a library in between: start-up time of a pass is a target.

Publication (spec 03 §9.1): write `.<name>.<uuid>.tmp` beside the target, fsync it, `os.link` it to the target (atomic, and fails when the
target exists: no other call is both), unlink the temporary name, fsync the directory. A crash leaves the old state or the new one, and at
worst a temporary file, which readers skip by its name.
"""

from __future__ import annotations

import errno
import os
import stat
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BufferedWriter, FileIO
from types import TracebackType
from typing import Any, BinaryIO

from maintainer.errors import CorruptFile, MaintainerError, MissingFile, StorageError, Unsupported
from maintainer.storage.storage import MAKING, Entry, OutcomeUnknown, Storage, check_path

_BUFFER = 1 << 18
_NO_HARD_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})


class LocalStorage(Storage):
    """Files below a local directory."""

    def __init__(self, root: str) -> None:
        self.root = os.path.abspath(os.path.expanduser(root))

    def _path(self, path: str) -> str:
        return f"{self.root}/{check_path(path)}"

    def read(self, path: str) -> bytes:
        with self._errors("read", path), open(self._path(path), "rb", buffering=0) as file:
            data: bytes = file.readall()
            return data

    def read_start(self, path: str, most: int) -> bytes:
        with self._errors("read", path), open(self._path(path), "rb", buffering=0) as file:
            return os.pread(file.fileno(), most, 0)

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        if offset < 0 or length < 0:
            raise CorruptFile(f"a range of {length} bytes", path=self.display(path), offset=offset)
        with self._errors("read", path), open(self._path(path), "rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            if offset + length > size:
                raise CorruptFile(f"{length} bytes expected, but the file has {size}", path=self.display(path), offset=offset)
            return self._read(path, file.fileno(), offset, length)

    def read_end(self, path: str, offset: int, size: int) -> bytes:
        with self._errors("read", path), open(self._path(path), "rb", buffering=0) as file:
            found = os.fstat(file.fileno()).st_size
            if found != size:
                raise CorruptFile(f"it has {found} bytes, its metadata says {size}", path=self.display(path))
            return self._read(path, file.fileno(), offset, size - offset)

    def _read(self, path: str, descriptor: int, offset: int, length: int) -> bytes:
        data = os.pread(descriptor, length, offset)
        while len(data) < length:  # a single call returns at most 2 GiB
            more = os.pread(descriptor, length - len(data), offset + len(data))
            if not more:
                raise CorruptFile("the file became shorter while it was read", path=self.display(path), offset=offset + len(data))
            data += more
        return data

    def size(self, path: str) -> int:
        with self._errors("look at", path):
            return os.stat(self._path(path)).st_size

    def exists(self, path: str) -> bool:
        try:
            with self._errors("look at", path):
                return stat.S_ISREG(os.stat(self._path(path)).st_mode)
        except FileNotFoundError:
            return False

    def list(self, path: str) -> list[Entry]:
        directory = self._path(path) if path else self.root
        entries = []
        try:
            with self._errors("list", path), os.scandir(directory) as members:
                for member in members:
                    status = _status(member)
                    if status is not None:
                        entries.append(Entry(member.name, status.st_size, stat.S_ISDIR(status.st_mode), status.st_mtime_ns // 1_000_000))
        except FileNotFoundError:
            return []
        return sorted(entries, key=lambda entry: entry.name)

    def open_input(self, path: str, size: int | None = None, known: bool = False) -> Any:
        import pyarrow as pa

        with self._errors("open", path):
            return pa.OSFile(self._path(path), "rb")

    def create(self, path: str) -> BinaryIO:
        target = self._path(path)
        with self._errors("create", path):
            return _NewFile(_exclusive(target), target)

    def create_if_absent(self, path: str, data: bytes, exclusive: bool = True) -> bool:
        target = self._path(path)
        with self._errors("publish", path), self._temporary(target, data) as temporary:
            try:
                if exclusive:
                    os.link(temporary, target)
                elif os.path.lexists(target):
                    raise FileExistsError(target)
                else:
                    os.rename(temporary, target)
            except FileExistsError:
                if os.path.isdir(target):
                    raise StorageError(f"{self.display(path)}: a directory stands where this file must be; move it away") from None
                return False
            except OSError as error:
                if exclusive and error.errno in _NO_HARD_LINKS:
                    raise Unsupported(
                        f"{self.display(path)}: the file system has no hard links, without which two writers could publish the same snapshot; "
                        "set the table's option publish.single-writer = true if nothing else ever commits to the table"
                    ) from error
                raise OutcomeUnknown(f"{self.display(path)}: cannot publish: {error.strerror or error}") from error
        _sync_directory(target)
        return True

    def prove_exclusive_create(self) -> None:
        """Hard links are exclusive by definition; where there are none, the first publication says so before anything refers to it."""

    def replace(self, path: str, data: bytes) -> None:
        target = self._path(path)
        with self._errors("write", path), self._temporary(target, data, durable=False) as temporary:
            os.replace(temporary, target)

    def delete(self, path: str) -> None:
        try:
            with self._errors("delete", path):
                os.unlink(self._path(path))
        except FileNotFoundError:
            pass

    def delete_directory(self, path: str) -> bool:
        try:
            os.rmdir(self._path(path))
        except FileNotFoundError:
            pass
        except OSError:  # somebody has a file in it
            return False
        return True

    @contextmanager
    def _errors(self, doing: str, path: str) -> Iterator[None]:
        """Library errors as ours, naming what was being done to which file."""
        try:
            yield
        except MaintainerError:
            raise
        except FileExistsError as error:
            raise StorageError(f"{self.display(path)}: there is such a file already, and files are never replaced") from error
        except OSError as error:
            if isinstance(error, FileNotFoundError | NotADirectoryError | IsADirectoryError) and doing not in MAKING:
                raise MissingFile(f"{self.display(path)}: there is no such file") from error
            raise StorageError(f"{self.display(path)}: cannot {doing}: {error.strerror or error}") from error

    @contextmanager
    def _temporary(self, target: str, data: bytes, durable: bool = True) -> Iterator[str]:
        """A complete file under a name that no reader looks at; gone afterwards."""
        directory, name = os.path.split(target)
        temporary = f"{directory}/.{name}.{uuid.uuid4()}.tmp"
        try:
            with _exclusive(temporary) as file:
                view = memoryview(data)
                while len(view):
                    view = view[file.write(view) :]
                if durable:
                    os.fsync(file.fileno())
            yield temporary
        finally:
            with suppress(OSError):
                os.unlink(temporary)


class _NewFile(BufferedWriter):
    """A file in the making. Closing it makes it durable; leaving its `with` block by an exception removes it."""

    def __init__(self, raw: FileIO, path: str) -> None:
        super().__init__(raw, _BUFFER)
        self._path = path

    def close(self) -> None:
        if self.closed:
            return
        try:
            self.flush()
            os.fsync(self.fileno())
            super().close()
        except OSError as error:
            self._abandon()
            raise StorageError(f"{self._path}: cannot write: {error.strerror or error}") from error
        _sync_directory(self._path)

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            raise StorageError(f"{self._path}: cannot write: {error.strerror or error}") from error

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None:
            self.close()
        elif not self.closed:
            self._abandon()

    def _abandon(self) -> None:
        with suppress(OSError):
            self.raw.close()
        with suppress(OSError, ValueError):
            super().close()
        with suppress(OSError):
            os.unlink(self._path)


def _status(member: os.DirEntry[str]) -> os.stat_result | None:
    """Of what a name leads to; None when it leads nowhere: the file went away in between, or it is a link without an end."""
    try:
        return member.stat()
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno == errno.ELOOP:
            return None
        raise


def _exclusive(path: str) -> FileIO:
    """A new file; directories on the way are made when they are missing, again if somebody cleans up empty ones meanwhile."""
    for _ in range(3):
        with suppress(FileNotFoundError):
            return FileIO(path, "xb")
        _make_directory(os.path.dirname(path))
    return FileIO(path, "xb")


def _make_directory(path: str) -> None:
    """A directory and those above it, each name durable: a snapshot may soon refer to a file in it."""
    try:
        os.mkdir(path)
    except FileNotFoundError:
        _make_directory(os.path.dirname(path))
        with suppress(FileExistsError):
            os.mkdir(path)
    except FileExistsError:
        return
    _sync_directory(path)


def _sync_directory(path: str) -> None:
    """Makes the name of a file durable; file systems that cannot do that keep their own promise."""
    with suppress(OSError):
        descriptor = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
