"""The state of one bucket in one snapshot: the input of planning."""

from __future__ import annotations

from dataclasses import dataclass

from maintainer.model.files import BucketKey, DataFileMeta, IndexFileMeta


@dataclass(frozen=True, slots=True)
class BucketState:
    """Live data files and index files of a (partition, bucket).

    `deletion_file` is the bucket's deletion-vector file (at most one in a bucketed table); `payloads` are the entries with primary-key source
    metadata, valid or not; `other_index_files` are carried along untouched (HASH, unknown kinds, row-id indexes).
    """

    partition: bytes
    bucket: int
    total_buckets: int
    files: tuple[DataFileMeta, ...]
    deletion_file: IndexFileMeta | None = None
    payloads: tuple[IndexFileMeta, ...] = ()
    other_index_files: tuple[IndexFileMeta, ...] = ()

    @property
    def key(self) -> BucketKey:
        return BucketKey(self.partition, self.bucket)
