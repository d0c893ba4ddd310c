"""One attempt at a unit of work: the paths that it created, and what it takes to undo it (DESIGN §4 rule 8, decision 14).

Invariant: every path is recorded. So an attempt that fails can delete everything it left behind, and never deletes anything else; one that is
killed leaves unreferenced files, which the orphan cleaner finds.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

from maintainer.data.key_cache import KeyCache
from maintainer.format.stored_block import Buffer
from maintainer.model.bucket import BucketState
from maintainer.storage.layout import FileNames
from maintainer.table.store import TableStore


class Attempt:
    """Creates the index files of a bucket, and keeps account of all files."""

    def __init__(self, store: TableStore, bucket: BucketState, cache: KeyCache | None = None) -> None:
        """`cache` has key columns of data files that earlier attempts read."""
        self.store = store
        self.bucket = bucket
        self.cache = cache
        self.index_names = FileNames("index-")
        self.created: list[str] = []
        self.bytes_written = 0

    @property
    def place(self) -> str:
        """The URI of the bucket."""
        return f"{self.store.uri}/{self.store.layout.bucket_directory(self.bucket.partition, self.bucket.bucket)}"

    @contextmanager
    def new_index(self) -> Iterator[NewIndexFile]:
        """An index file to write to; when the block ends with an error it is not there."""
        name = self.index_names.next()
        path = self.store.layout.index_file_path(name, self.bucket.partition, self.bucket.bucket)
        self.created.append(path)
        try:
            with self.store.storage.create(path) as output:
                file = NewIndexFile(name, output)
                yield file
        except Exception:
            self.discard([path])
            raise
        self.bytes_written += file.size

    def discard(self, paths: Collection[str]) -> None:
        """Delete paths that this attempt created and has no use for any more."""
        for path in paths:
            self.store.storage.delete(path)
            self.created.remove(path)

    def abandon(self) -> None:
        """Delete everything that this attempt created; what cannot be deleted is an orphan."""
        self.store.delete_abandoned(self.created)
        self.created.clear()


class NewIndexFile:
    """An index file that is being written."""

    def __init__(self, name: str, output: Any) -> None:
        self.name = name
        self.size = 0
        self._output = output

    def write(self, data: Buffer) -> None:
        self._output.write(data)
        self.size += len(data)
