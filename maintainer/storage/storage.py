"""A store: the files below the directory of one table (DESIGN §4 `storage`; spec 03 §9.1).

Paths are relative to the root, with "/" between their parts; a path can never lead out of the root. Rules that every store keeps:

* **Write once.** `create` and `write` never replace a file; only `replace` does (it is for hints). What they made is durable when they return.
* **Publication is exclusive.** `create_if_absent` makes a file appear complete and at most once, whoever else tries.
* **Missing is its own error.** `MissingFile` where a file is not there, `StorageError` where the store cannot do its work.

One class per kind of store gives the primitives; `Storage.open` chooses by the scheme of the URI.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO
from urllib.parse import unquote

from maintainer.errors import CorruptTable, StorageError, UsageError

MAKING = ("create", "publish", "write")
"""What is done to a file that need not be there: then it is the directory that is missing, and no part of the table."""
_SCHEME = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]+):")


class OutcomeUnknown(StorageError):
    """A request was sent that makes a file appear, and it may have happened or may still happen."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A member of a directory."""

    name: str
    size: int
    is_directory: bool
    modified_ms: int


class Storage(ABC):
    """The files below one directory. Safe to use from several threads."""

    root: str
    """The directory, as a URI or path that people recognise."""
    remote = False
    """Whether this is an object store, where every request takes a round trip, and other writers publish by check and copy."""

    @staticmethod
    def open(uri: str, storage_options: Mapping[str, Any] | None = None) -> Storage:
        """The store of this directory (it need not exist): a path or `file:` URI is local, other schemes go to fsspec."""
        scheme = _SCHEME.match(uri)
        if scheme is None or scheme[1].lower() == "file":
            from maintainer.storage.local import LocalStorage

            return LocalStorage(_local_path(uri) if scheme else uri)
        from maintainer.storage.remote import RemoteStorage

        return RemoteStorage(uri, storage_options or {})

    @abstractmethod
    def read(self, path: str) -> bytes:
        """The whole file."""

    @abstractmethod
    def read_start(self, path: str, most: int) -> bytes:
        """The first bytes of a file, at most `most`, in one request."""

    @abstractmethod
    def read_range(self, path: str, offset: int, length: int) -> bytes:
        """Exactly `length` bytes from `offset`; `CorruptFile` when the file is shorter."""

    @abstractmethod
    def read_end(self, path: str, offset: int, size: int) -> bytes:
        """The bytes from `offset` to the end of a file, in one request; `CorruptFile` when the file does not have `size` bytes."""

    @abstractmethod
    def size(self, path: str) -> int: ...

    @abstractmethod
    def exists(self, path: str) -> bool: ...

    @abstractmethod
    def list(self, path: str) -> list[Entry]:
        """The members of a directory in order of their names; a directory that is not there is empty."""

    @abstractmethod
    def open_input(self, path: str, size: int | None = None, known: bool = False) -> Any:
        """A seekable file for pyarrow. With the `size` that its metadata says a remote store needs no request to learn it; `CorruptFile` when
        that turns out to be wrong. Of a file that is `known` to have this size, and whose end need not be read, nothing is fetched yet."""

    @abstractmethod
    def create(self, path: str) -> BinaryIO:
        """A writer of a new file, a context manager: closing makes the file durable, leaving by an exception removes it. Makes directories."""

    @abstractmethod
    def create_if_absent(self, path: str, data: bytes, exclusive: bool = True) -> bool:
        """Makes the file with exactly this content, or answers False when there is one already; never a part of it, never twice.

        `OutcomeUnknown` when it may have happened, `StorageError` when it certainly did not. `Unsupported` where the store cannot do that;
        unless it need not be `exclusive`, because nobody else makes this file: then it is looked for and then written.
        """

    @abstractmethod
    def prove_exclusive_create(self) -> None:
        """Raises `Unsupported` when this store does not keep the promise of `create_if_absent`. Tried out once per process and store."""

    @abstractmethod
    def replace(self, path: str, data: bytes) -> None:
        """Makes or replaces a file, atomically where the store can do that."""

    @abstractmethod
    def delete(self, path: str) -> None:
        """Removes a file; one that is not there is fine."""

    def delete_directory(self, path: str) -> bool:
        """Removes a directory if it is empty; whether it is gone. Object stores have none, so nothing happens there."""
        return False

    def write(self, path: str, data: bytes | bytearray | memoryview) -> None:
        """A whole new file."""
        with self.create(path) as output:
            output.write(data)

    def display(self, path: str = "") -> str:
        """How people call this file."""
        return f"{self.root}/{path}" if path else self.root


def check_path(path: str) -> str:
    """The path itself, if it can only lead below the root."""
    parts = path.split("/")
    if "\0" in path or any(part in ("", ".", "..") for part in parts):
        raise CorruptTable(f"refusing the path {path!r}: it may lead out of the table's directory")
    return path


def join_uri(directory: str, *names: str) -> str:
    """A URI or path below another one."""
    return "/".join([directory.rstrip("/"), *names])


def _local_path(uri: str) -> str:
    """The path of a `file:` URI; `?` and `#` are characters like others, as they are for Hadoop."""
    path = uri.partition(":")[2]
    if path.startswith("//"):
        host, slash, below = path[2:].partition("/")
        if host not in ("", "localhost"):
            raise UsageError(f"{uri}: a file: URI names a path of this machine, like file:///data/warehouse")
        path = slash + below
    return unquote(path)
