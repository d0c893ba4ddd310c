"""A local disk that loses power at the n-th change, and with it everything that was not made durable before.

What POSIX promises and no more: the bytes of a file are there after an fsync of it, names of a directory are as they were at an fsync of the
directory, or as after some later change of it. What was not synced is lost or not, by chance; directories do not wait for one another.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

from maintainer.storage import local


class LosingDisk:
    """`at`: the number of the change that is not done any more, nor any later one (`KeyboardInterrupt`); 0: none. `changes` counts them."""

    def __init__(self, graves: Path, at: int = 0) -> None:
        """`graves`: an empty directory beside the table, for what may have to come back."""
        self.at = at
        self.changes = 0
        self._graves = graves
        self._undo: defaultdict[str, list[Callable[[], object]]] = defaultdict(list)
        self._unsynced: set[int] = set()
        self._directories: dict[int, str] = {}
        self._lock = threading.Lock()

    def lose_power(self, root: str, random: Random) -> None:
        for path in Path(root).rglob("*"):
            if path.is_file() and path.stat().st_ino in self._unsynced:
                os.truncate(path, random.randint(0, path.stat().st_size))
        for undo in self._undo.values():
            for _ in range(random.randint(0, len(undo))):
                undo.pop()()

    @contextmanager
    def inserted(self) -> Iterator[None]:
        """As the disk of all local storage of this process."""
        disk = self

        class File(FileIO):
            def __init__(self, path: str, mode: str) -> None:
                with disk.changing():
                    super().__init__(path, mode)
                    disk.undo_by(path, lambda: os.unlink(path))

            def write(self, data: Any, /) -> int:
                with disk.changing():
                    disk._unsynced.add(os.fstat(self.fileno()).st_ino)
                    return super().write(data)

        with mock.patch.object(local, "os", _System(disk)), mock.patch.object(local, "FileIO", File):
            yield

    @contextmanager
    def changing(self) -> Iterator[None]:
        with self._lock:
            self.changes += 1
            if 0 < self.at <= self.changes:
                raise KeyboardInterrupt
            yield

    def undo_by(self, path: str, undo: Callable[[], object]) -> None:
        self._undo[os.path.dirname(path)].append(undo)

    def bury(self, path: str) -> Path | None:
        """Keeps a file that loses its name."""
        grave = self._graves / str(self.changes)
        with suppress(FileNotFoundError):
            os.link(path, grave)
            return grave
        return None

    def synced(self, descriptor: int) -> None:
        if descriptor in self._directories:
            self._undo[self._directories[descriptor]].clear()
        else:
            self._unsynced.discard(os.fstat(descriptor).st_ino)


class _System:
    """The module `os`, with changes that are remembered."""

    def __init__(self, disk: LosingDisk) -> None:
        self._disk = disk

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def open(self, path: str, flags: int) -> int:
        descriptor = os.open(path, flags)
        self._disk._directories[descriptor] = path
        return descriptor

    def close(self, descriptor: int) -> None:
        self._disk._directories.pop(descriptor)
        os.close(descriptor)

    def fsync(self, descriptor: int) -> None:
        with self._disk.changing():
            self._disk.synced(descriptor)

    def mkdir(self, path: str) -> None:
        with self._disk.changing():
            os.mkdir(path)
            self._disk.undo_by(path, lambda: shutil.rmtree(path))

    def link(self, source: str, target: str) -> None:
        with self._disk.changing():
            os.link(source, target)
            self._disk.undo_by(target, lambda: os.unlink(target))

    def unlink(self, path: str) -> None:
        with self._disk.changing():
            grave = self._disk.bury(path)
            os.unlink(path)
            assert grave is not None
            self._disk.undo_by(path, lambda: os.link(grave, path))

    def replace(self, source: str, target: str) -> None:
        with self._disk.changing():
            grave = self._disk.bury(target)
            os.replace(source, target)

            def undo() -> None:
                os.rename(target, source)
                if grave is not None:
                    os.link(grave, target)

            self._disk.undo_by(target, undo)

    rename = replace
