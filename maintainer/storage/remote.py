"""Every other store, through fsspec (imported only here: it costs start-up time).

Publication needs a create that fails when the file exists. fsspec has it as `pipe_file(path, data, mode="create")`, with which some
libraries send a conditional request and others only look first; stores whose library is not known to do the former are refused by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from io import BytesIO
from types import TracebackType
from typing import Any, BinaryIO, cast

from maintainer.errors import CorruptFile, StorageError, Unsupported, UsageError
from maintainer.storage.storage import Entry, OutcomeUnknown, Storage, check_path

_EXCLUSIVE_CREATE = frozenset({"s3", "s3a"})
"""Schemes whose fsspec library creates by a conditional request: s3fs sends `If-None-Match: *`."""


class RemoteStorage(Storage):
    """Files below a URI that fsspec understands."""

    def __init__(self, uri: str, storage_options: Mapping[str, Any]) -> None:
        import fsspec

        self.root = uri.rstrip("/")
        self._scheme = uri.split(":", 1)[0].lower()
        try:
            self._fs, base = fsspec.core.url_to_fs(uri, **storage_options)
        except (ImportError, ValueError) as error:
            raise UsageError(f"{uri}: {error}") from error
        except OSError as error:  # Arrow's says where it looked for a JVM, a hundred times
            raise StorageError(f"{uri}: cannot open: {(error.strerror or str(error))[:200]}") from error
        self._base = base.rstrip("/")

    def _path(self, path: str) -> str:
        return f"{self._base}/{check_path(path)}"

    def read(self, path: str) -> bytes:
        with self._errors("read", path):
            return bytes(self._fs.cat_file(self._path(path)))

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        if offset < 0 or length < 0:
            raise CorruptFile(f"a range of {length} bytes", path=self.display(path), offset=offset)
        with self._errors("read", path):
            data = bytes(self._fs.cat_file(self._path(path), start=offset, end=offset + length)) if length else b""
        if len(data) != length:
            raise CorruptFile(f"{length} bytes expected, {len(data)} found", path=self.display(path), offset=offset)
        return data

    def size(self, path: str) -> int:
        with self._errors("look at", path):
            return int(self._fs.size(self._path(path)))

    def exists(self, path: str) -> bool:
        with self._errors("look at", path):
            return bool(self._fs.isfile(self._path(path)))

    def list(self, path: str) -> list[Entry]:
        directory = self._path(path) if path else self._base
        try:
            with self._errors("list", path):
                infos = self._fs.ls(directory, detail=True, refresh=True)
        except FileNotFoundError:
            return []
        entries = [
            Entry(info["name"].rstrip("/").rsplit("/", 1)[-1], int(info.get("size") or 0), info["type"] == "directory", _modified_ms(info))
            for info in infos
            if info["name"].rstrip("/") != directory.rstrip("/")
        ]
        return sorted(entries, key=lambda entry: entry.name)

    def open_input(self, path: str) -> Any:
        import pyarrow as pa

        with self._errors("open", path):
            return pa.PythonFile(self._fs.open(self._path(path), "rb"), mode="r")

    def create(self, path: str) -> BinaryIO:
        return cast(BinaryIO, _NewObject(lambda data: self._put(path, data)))

    def _put(self, path: str, data: bytes) -> None:
        with self._errors("create", path):
            if self._fs.exists(self._path(path)):
                raise FileExistsError(path)
            self._fs.pipe_file(self._path(path), data)

    def create_if_absent(self, path: str, data: bytes) -> bool:
        if self._scheme not in _EXCLUSIVE_CREATE:
            kind = f"stores of kind {self._scheme!r}"
            raise Unsupported(f"{self.display(path)}: {kind} cannot be written yet: no way is known to create a file only if it is absent")
        with self._errors("publish", path):
            try:
                self._fs.pipe_file(self._path(path), data, mode="create")
            except FileExistsError:
                return False
            except OSError as error:
                raise OutcomeUnknown(f"{self.display(path)}: cannot publish: {error}") from error
            return True

    def replace(self, path: str, data: bytes) -> None:
        with self._errors("write", path):
            self._fs.pipe_file(self._path(path), data)

    def delete(self, path: str) -> None:
        try:
            with self._errors("delete", path):
                self._fs.rm_file(self._path(path))
        except FileNotFoundError:
            pass


class _NewObject(BytesIO):
    """An object in the making: it is sent when it is closed, and never when its `with` block is left by an exception."""

    def __init__(self, send: Callable[[bytes], None]) -> None:
        super().__init__()
        self._send = send

    def close(self) -> None:
        if not self.closed:
            data = self.getvalue()
            super().close()
            self._send(data)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None:
            self.close()
        else:
            super().close()

    def __del__(self) -> None:
        super().close()


def _modified_ms(info: Mapping[str, Any]) -> int:
    for key in ("LastModified", "mtime", "last_modified", "modified", "created"):
        value = info.get(key)
        if isinstance(value, int | float):
            return int(value * 1000)
        if value is not None and hasattr(value, "timestamp"):
            return int(value.timestamp() * 1000)
    return 0
