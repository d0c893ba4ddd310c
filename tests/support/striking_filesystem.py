"""An fsspec file system that strikes: a store of objects in a directory, whose library fails at its n-th request of any kind.

It behaves as gcsfs does: objects appear whole when a file is closed, `mode="create"` and "xb" let the store decide who is first, listings are
never remembered. Strikes:

| denied      | 403 instead of the request, which is certainly not done                                                             |
| busy        | 503 instead of the request                                                                                          |
| lost        | the request is done, and the connection breaks before its answer                                                    |
| slow        | a time-out; the request is done later, when whoever asked has given up (`do_what_is_late`)                          |
| short       | half of the bytes                                                                                                   |
| stale       | from here on listings show the directory as it was three objects ago                                                |
| gone        | 404, although the object is there                                                                                   |
| down        | the connection is refused from here on; `down after`: this request is done                                          |
| interrupt   | `KeyboardInterrupt` before the request is done, `interrupt after` it is                                             |
"""

from __future__ import annotations

import io
import os
import threading
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any, TypeVar

from fsspec import AbstractFileSystem
from fsspec.exceptions import FSTimeoutError

from maintainer.storage.remote import RemoteStorage

T = TypeVar("T")

STRIKES = ("denied", "busy", "lost", "slow", "short", "stale", "gone", "down", "down after", "interrupt", "interrupt after")
_UNRELIABLE = ("busy", "lost", "slow")
"""What happens to a store that keeps its promises."""
_MAKES = ("pipe_file", "close")


class StoreError(OSError):
    """What a library raises for an answer of the store."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status = status


class StrikingFileSystem(AbstractFileSystem):  # type: ignore[misc]
    """`at`: the number of the request that `strike` hits, counted from 1; 0 never strikes. `requests` is what was asked for, in order."""

    cachable = False

    def __init__(self, strike: str = "busy", at: int = 0, random: Random | None = None, chance: float = 0.0) -> None:
        """With `random` every request is struck with this chance, and what is late is done at some later time."""
        super().__init__()
        self.strike = strike
        self.at = at
        self.random = random
        self.chance = chance
        self.requests: list[str] = []
        self._late: list[Callable[[], object]] = []
        self._made: list[str] = []
        self._lock = threading.Lock()

    def storage(self, path: str) -> RemoteStorage:
        """A directory as a store."""
        return RemoteStorage(f"gs://{path}", filesystem=self)

    @property
    def struck(self) -> str | None:
        return self.requests[self.at - 1] if 0 < self.at <= len(self.requests) else None

    def do_what_is_late(self) -> None:
        while self._late:
            self._do_late(0)

    def _do_late(self, index: int) -> None:
        with suppress(OSError):
            self._late.pop(index)()

    def asked(self, name: str, path: str, do: Callable[[], T]) -> T:
        """Do a request, unless it is one that is struck."""
        strike = self._strike(name, path)
        match strike:
            case "denied":
                raise StoreError(403, "forbidden")
            case "busy":
                raise StoreError(503, "slow down")
            case "gone":
                raise FileNotFoundError(path)
            case "slow":
                self._late.append(do)
                raise FSTimeoutError
            case "down":
                raise ConnectionRefusedError("connection refused")
            case "interrupt":
                raise KeyboardInterrupt
        answer = do()
        match strike:
            case "interrupt after":
                raise KeyboardInterrupt
            case "lost" | "down after":
                raise ConnectionResetError("connection reset")
        return answer[: len(answer) // 2] if strike == "short" and isinstance(answer, bytes) else answer  # type: ignore[return-value]

    def _strike(self, name: str, path: str) -> str:
        """What happens to a request; empty: nothing."""
        with self._lock:
            self.requests.append(f"{name} {os.path.basename(path)}")
            number = len(self.requests)
            if name in _MAKES:
                self._made.append(path)
            if self.random is not None:
                if self._late and self.random.random() < 0.1:
                    self._do_late(self.random.randrange(len(self._late)))
                return self.random.choice(_UNRELIABLE) if self.random.random() < self.chance else ""
        if number == self.at:
            return "" if self.strike == "stale" or (self.strike == "gone" and name == "rm_file") else self.strike
        return "down" if 0 < self.at < number and self.strike.startswith("down") else ""

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return path.removeprefix("gs://")

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: Any) -> bytes:
        return self.asked("cat_file", path, lambda: Path(path).read_bytes()[start:end])

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        return self.asked("info", path, lambda: _info(path))

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[dict[str, Any]]:
        found = self.asked("ls", path, lambda: [_info(f"{path}/{name}") for name in os.listdir(path) if not name.endswith(".new")])
        unseen = self._made[-3:] if self.strike == "stale" and 0 < self.at <= len(self.requests) else []
        return [one for one in found if one["name"] not in unseen]

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **_: Any) -> None:
        self.asked("pipe_file", path, lambda: _put(path, value, mode == "create"))

    def rm_file(self, path: str) -> None:
        self.asked("rm_file", path, lambda: os.unlink(path))

    def open(self, path: str, mode: str = "rb", block_size: int | None = None, **_: Any) -> Any:
        assert mode == "xb"
        return _Object(self, path)


class _Object(io.BytesIO):
    """A file that is written."""

    def __init__(self, filesystem: StrikingFileSystem, path: str) -> None:
        super().__init__()
        self._filesystem, self._path, self._is_over = filesystem, path, False

    def write(self, data: Any, /) -> int:
        return self._filesystem.asked("write", self._path, lambda: super(_Object, self).write(data))

    def close(self) -> None:
        if not self._is_over:
            self._is_over = True
            data = self.getvalue()
            self._filesystem.asked("close", self._path, lambda: _put(self._path, data, True))

    def discard(self) -> None:
        self._is_over = True


def _info(path: str) -> dict[str, Any]:
    status = os.stat(path)
    return {"name": path, "type": "directory" if os.path.isdir(path) else "file", "size": status.st_size, "mtime": status.st_mtime}


def _put(path: str, data: bytes, exclusive: bool) -> None:
    """An object appears whole, or not at all."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    temporary = Path(f"{path}.{uuid.uuid4()}.new")
    temporary.write_bytes(data)
    try:
        os.link(temporary, path) if exclusive else os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
