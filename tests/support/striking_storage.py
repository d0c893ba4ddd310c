"""A local store that strikes: at its n-th request of any kind something goes wrong. And which files a table needs.

Requests are every call of `Storage`, and every write, close and read of the files that it opened. Strikes:

| fail         | `StorageError` instead of the request (no space, no permission, no network)                                 |
| unknown      | the request is done, and then its answer is lost                                                            |
| down         | this request and all later ones fail, so nothing can be cleaned up; `down after`: this one is done          |
| interrupt    | `KeyboardInterrupt` before the request is done, `interrupt after` it is                                     |
| no memory    | `MemoryError` before the request is done, `no memory after` it is                                           |
| short        | half of the bytes, or a listing without its last member                                                     |
| stale        | from here on listings show the directory as it was three files ago                                          |
| vanished     | a file or directory is not there                                                                            |
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import pyarrow as pa

from maintainer.errors import MissingFile, StorageError
from maintainer.model.snapshot import Snapshot
from maintainer.storage.local import LocalStorage
from maintainer.storage.storage import Entry, OutcomeUnknown
from maintainer.table.state import load_state
from maintainer.table.store import TableStore
from tests.support.consumer import changelog_entries

T = TypeVar("T")

STRIKES = (
    *("fail", "unknown", "down", "down after", "short", "stale", "vanished"),
    *("interrupt", "interrupt after", "no memory", "no memory after"),
)
ERRORS: dict[str, type[BaseException]] = {"interrupt": KeyboardInterrupt, "no memory": MemoryError}


class StrikingStorage(LocalStorage):
    """`at`: the number of the request that `strike` hits, counted from 1; 0 never strikes. `requests` is what was asked for, in order."""

    def __init__(self, root: str, strike: str = "fail", at: int = 0) -> None:
        super().__init__(root)
        self.strike = strike
        self.at = at
        self.requests: list[str] = []
        self._made: list[str] = []
        self._lock = threading.Lock()

    @property
    def struck(self) -> str | None:
        return self.requests[self.at - 1] if 0 < self.at <= len(self.requests) else None

    def asked(self, name: str, path: str, do: Callable[[], T], error: BaseException | None = None) -> T:
        """Do a request, unless it is the one that is struck. `error`: how this request fails, if not by a `StorageError`."""
        with self._lock:
            self.requests.append(f"{name} {path}")
            number = len(self.requests)
            if name in ("create", "create_if_absent", "replace"):
                self._made.append(path)
        cause = self.strike.removesuffix(" after")
        failure = error or StorageError(f"{self.display(path)}: cannot {name}: struck")
        if self.at and number > self.at and cause == "down":
            raise failure
        if number != self.at or cause == "stale":
            return do()
        if cause == "short":
            return _short(do())
        if cause == "vanished" and name not in ("exists", "list", "delete"):
            raise MissingFile(f"{self.display(path)}: there is no such file")
        if cause == "unknown" or self.strike.endswith("after"):
            do()
            if name == "create_if_absent" and cause not in ERRORS:
                raise OutcomeUnknown(f"{self.display(path)}: time-out")
        raise ERRORS[cause]() if cause in ERRORS else failure

    def read(self, path: str) -> bytes:
        return self.asked("read", path, lambda: super(StrikingStorage, self).read(path))

    def read_start(self, path: str, most: int) -> bytes:
        return self.asked("read_start", path, lambda: super(StrikingStorage, self).read_start(path, most))

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        return self.asked("read_range", path, lambda: super(StrikingStorage, self).read_range(path, offset, length))

    def read_end(self, path: str, offset: int, size: int) -> bytes:
        return self.asked("read_end", path, lambda: super(StrikingStorage, self).read_end(path, offset, size))

    def size(self, path: str) -> int:
        return self.asked("size", path, lambda: super(StrikingStorage, self).size(path))

    def exists(self, path: str) -> bool:
        return self.asked("exists", path, lambda: super(StrikingStorage, self).exists(path))

    def list(self, path: str) -> list[Entry]:
        entries = self.asked("list", path, lambda: super(StrikingStorage, self).list(path))
        unseen = self._made[-3:] if self.strike == "stale" and 0 < self.at <= len(self.requests) else []
        return [entry for entry in entries if f"{path}/{entry.name}" not in unseen]

    def open_input(self, path: str, size: int | None = None, known: bool = False) -> Any:
        file = self.asked("open_input", path, lambda: super(StrikingStorage, self).open_input(path, size, known))
        return pa.PythonFile(_Input(self, path, file), mode="r")

    def create(self, path: str) -> BinaryIO:
        return _Output(self, path, self.asked("create", path, lambda: super(StrikingStorage, self).create(path)))  # type: ignore[return-value]

    def create_if_absent(self, path: str, data: bytes, exclusive: bool = True) -> bool:
        return self.asked("create_if_absent", path, lambda: super(StrikingStorage, self).create_if_absent(path, data, exclusive))

    def replace(self, path: str, data: bytes) -> None:
        self.asked("replace", path, lambda: super(StrikingStorage, self).replace(path, data))

    def delete(self, path: str) -> None:
        self.asked("delete", path, lambda: super(StrikingStorage, self).delete(path))


class _Input:
    """A file that is read."""

    closed = False

    def __init__(self, storage: StrikingStorage, path: str, file: Any) -> None:
        self.storage, self.path, self.file = storage, path, file

    def read(self, size: int = -1) -> bytes:
        error = OSError(errno.EIO, "struck")
        return self.storage.asked("input.read", self.path, lambda: bytes(self.file.read(size)), error)

    def seek(self, offset: int, whence: int = 0) -> int:
        return int(self.file.seek(offset, whence))

    def tell(self) -> int:
        return int(self.file.tell())

    def close(self) -> None:
        self.closed = True
        self.file.close()


class _Output:
    """A file that is written."""

    def __init__(self, storage: StrikingStorage, path: str, file: Any) -> None:
        self.storage, self.path, self.file = storage, path, file

    def write(self, data: Any) -> int:
        return self.storage.asked("output.write", self.path, lambda: int(self.file.write(data)))

    def close(self) -> None:
        if not self.file.closed:
            try:
                self.storage.asked("output.close", self.path, self.file.close)
            except StorageError as error:
                self.file.__exit__(type(error), error, None)
                raise

    def __enter__(self) -> _Output:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is None:
            self.close()
        else:
            self.file.__exit__(kind, error, trace)


def _short(answer: T) -> T:
    if isinstance(answer, bytes):
        return answer[: len(answer) // 2]  # type: ignore[return-value]
    if isinstance(answer, list):
        return answer[:-1]  # type: ignore[return-value]
    return answer


def referenced(store: TableStore, since: int = 0) -> set[str]:
    """Every file that the snapshots from `since` on or the table itself need, without the hints."""
    needed = {f"schema/schema-{number}" for number in store.schema_ids()}
    for number in store.snapshot_ids():
        if number < since:
            continue
        needed |= {f"snapshot/snapshot-{number}", *named_by(store, store.snapshot(number))}
    return needed


def named_by(store: TableStore, snapshot: Snapshot) -> set[str]:
    """Manifests, data, index and changelog files of a snapshot."""
    lists = [snapshot.base_manifest_list, snapshot.delta_manifest_list]
    manifests = [meta.file_name for metas in store.manifests.lists_of(snapshot) for meta in metas]
    named = {f"manifest/{name}" for name in (*lists, *manifests, *filter(None, [snapshot.index_manifest]))}
    for bucket in load_state(store, snapshot).buckets.values():
        named |= {store.layout.data_file_path(bucket.partition, bucket.bucket, file) for file in bucket.files}
        index = (*bucket.payloads, *bucket.other_index_files, *filter(None, [bucket.deletion_file]))
        named |= {store.layout.index_file_path(file, bucket.partition, bucket.bucket) for file in index}
    if snapshot.changelog_manifest_list is not None:
        metas = store.manifests.files_of(snapshot.changelog_manifest_list, f"snapshot {snapshot.id}", snapshot.changelog_manifest_list_size)
        named |= {f"manifest/{name}" for name in (snapshot.changelog_manifest_list, *(meta.file_name for meta in metas))}
        changelog = changelog_entries(store, snapshot)
        named |= {store.layout.data_file_path(entry.partition, entry.bucket, entry.file) for entry in changelog}
    return named


def files_below(path: str) -> set[str]:
    """All files of a table's directory, without the hints and notes that nothing depends on."""
    root = Path(path)
    found = {str(file.relative_to(root)) for file in root.rglob("*") if file.is_file()}
    return found - {"snapshot/LATEST", "snapshot/EARLIEST", "maintainer/index-failures.json"}
