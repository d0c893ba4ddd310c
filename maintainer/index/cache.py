"""Opening index payloads, with one bounded memory of what was read of them for all queries of an opened table.

    payload ── read_end, read_range ──▶ bytes, checked ──▶ what a family makes of them ──▶ kept (`maintainer.format.kept`)
                                                                                           by table, path and size of the payload

A payload file never changes and its name is never used again, so nothing that is kept grows old; a table that is dropped and made again has
payloads of other names. What turns out to be wrong with a payload is not kept: whoever finds it calls `forget`, and asks the file again next
time. The size is the option `read.index-cache-size` (128 mb); 0 keeps nothing.
"""

from __future__ import annotations

from collections.abc import Hashable

from maintainer.errors import CorruptTable
from maintainer.format.kept import Cache
from maintainer.format.stored_block import KeepingRanges, ReadRange
from maintainer.index.definition import IndexDefinition
from maintainer.index.family import FamilyReader, family
from maintainer.model.bucket import BucketState
from maintainer.model.files import IndexFileMeta
from maintainer.table.store import TableStore


def cache_of(store: TableStore, limit: int) -> Cache:
    """What an opened table keeps of its payloads as long as it is open: at most `limit` bytes, by the first call."""
    return store.cache("index", limit)


def open_payload(
    store: TableStore, bucket: BucketState, payload: IndexFileMeta, definition: IndexDefinition, total_rows: int, cache: Cache | None = None
) -> FamilyReader:
    """A reader of a payload of a bucket, over sources with so many rows. Nothing is read, and nothing need be closed.

    Without a `cache`, all that is asked comes from the file, and little is kept as long as the reader lives.
    """
    if payload.global_index is None:
        raise CorruptTable(f"{payload.file_name}: no index metadata")
    read = _reading(store, bucket, payload)
    if cache is not None:
        read = KeepingRanges(read, cache.of(_name(store, bucket, payload)))
    return family(definition.family).open(read, payload.file_size, definition, payload.global_index.index_meta, total_rows)


def forget(store: TableStore, bucket: BucketState, payload: IndexFileMeta, cache: Cache) -> None:
    """Keep nothing of a payload with which something is wrong."""
    cache.forget(_name(store, bucket, payload))


def _reading(store: TableStore, bucket: BucketState, payload: IndexFileMeta) -> ReadRange:
    path = store.layout.index_file_path(payload, bucket.partition, bucket.bucket)
    size = payload.file_size

    def read(offset: int, length: int) -> bytes:
        if offset + length == size:
            return store.storage.read_end(path, offset, size)  # which proves the size
        return store.storage.read_range(path, offset, length)

    return read


def _name(store: TableStore, bucket: BucketState, payload: IndexFileMeta) -> Hashable:
    return store.uri, store.layout.index_file_path(payload, bucket.partition, bucket.bucket), payload.file_size
