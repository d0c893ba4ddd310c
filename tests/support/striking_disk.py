"""A local disk that strikes below `LocalStorage`: its n-th change fails as on a disk that is full, worn out or read-only.

Changes are the opening of a new file, every write, fsync, link, rename, unlink and mkdir. Strikes:

| ENOSPC, EDQUOT | no new files, directories and bytes from here on until something is deleted; a write may do a part of its work      |
| EIO            | this change fails                                                                                                  |
| EIO for good   | this change and all later ones fail                                                                                |
| EROFS          | the disk is read-only from here on                                                                                 |
| EMFILE         | this file cannot be opened                                                                                         |
| EINTR          | a write does a part of its work and says so, which is no error                                                     |
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import FileIO
from typing import Any
from unittest import mock

from maintainer.storage import local

STRIKES = ("ENOSPC", "EDQUOT", "EIO", "EIO for good", "EROFS", "EMFILE", "EINTR")
_GROWS = ("open", "write", "link", "mkdir")
_CHANGES = ("fsync", "link", "rename", "replace", "unlink", "mkdir")


class StrikingDisk:
    """`at`: the number of the change that `strike` hits, counted from 1; 0 never strikes. `changes` is what was asked for, in order."""

    def __init__(self, strike: str = "EIO", at: int = 0) -> None:
        self.strike = strike
        self.at = at
        self.changes: list[str] = []
        self._is_full = False
        self._lock = threading.Lock()

    @property
    def struck(self) -> str | None:
        return self.changes[self.at - 1] if 0 < self.at <= len(self.changes) else None

    def changing(self, name: str) -> bool:
        """Before a change: raises what the system says; True when only a part of it is done."""
        with self._lock:
            self.changes.append(name)
            number = len(self.changes)
            code = self.strike.split()[0]
            if code in ("ENOSPC", "EDQUOT"):
                if name == "unlink":
                    self._is_full = False
                elif number == self.at:
                    self._is_full = True
                    if name == "write":
                        return True
                if self._is_full and name in _GROWS:
                    raise _error(code)
                return False
            if number == self.at and code == "EINTR":
                return name == "write"
            if number == self.at and (code != "EMFILE" or name == "open"):
                raise _error(code)
            if 0 < self.at < number and self.strike in ("EROFS", "EIO for good"):
                raise _error(code)
            return False

    @contextmanager
    def inserted(self) -> Iterator[None]:
        """As the disk of all local storage of this process."""
        disk = self

        class File(FileIO):
            def __init__(self, path: str, mode: str) -> None:
                disk.changing("open")
                super().__init__(path, mode)

            def write(self, data: Any, /) -> int:
                part = disk.changing("write")
                return super().write(memoryview(data)[: max(1, len(data) // 2)] if part else data)

        with mock.patch.object(local, "os", _System(disk)), mock.patch.object(local, "FileIO", File):
            yield


class _System:
    """The module `os`, with changes that may be struck."""

    def __init__(self, disk: StrikingDisk) -> None:
        self._disk = disk

    def __getattr__(self, name: str) -> Any:
        return self._changing(name, getattr(os, name)) if name in _CHANGES else getattr(os, name)

    def _changing(self, name: str, do: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            self._disk.changing(name)
            return None if name == "fsync" else do(*arguments)

        return call


def _error(code: str) -> OSError:
    number = getattr(errno, code)
    return OSError(number, os.strerror(number))
