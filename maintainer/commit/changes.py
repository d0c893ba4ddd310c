"""What a message changes, as manifest entries (spec 03 §6.2; Java `ManifestEntryChanges`).

The order is part of the format. An upgrade is a DELETE at the old level and then an ADD at the new one: snapshot expiry walks a delta in order
with a map keyed by path, and would delete a live file if the ADD came first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from maintainer.errors import UsageError
from maintainer.model.commit import CommitMessage
from maintainer.model.files import (
    BucketKey,
    DataFileMeta,
    FileKind,
    IndexFileMeta,
    IndexManifestEntry,
    ManifestEntry,
)
from maintainer.model.snapshot import CommitKind
from maintainer.model.work import Result


@dataclass(frozen=True)
class Base:
    """What a bucket's change was computed from: a snapshot, and the name of the deletion-vector file that the bucket had in it."""

    snapshot_id: int
    snapshot_uuid: str | None
    deletion_file: str | None


@dataclass(frozen=True)
class BucketChange:
    """The entries of one message; `base` is None for a writer's files, which rely on nothing. Changelog files have a list of their own."""

    bucket: BucketKey
    total_buckets: int
    entries: tuple[ManifestEntry, ...]
    index_entries: tuple[IndexManifestEntry, ...]
    base: Base | None = None
    changelog: tuple[ManifestEntry, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not (self.entries or self.index_entries or self.changelog)


def kind_of(result: Result) -> CommitKind | None:
    """The kind of snapshot that a result makes (decision 3): COMPACT with data, APPEND with index files alone; None when it changes nothing."""
    message = result.message
    if message.new_files or message.deleted_files or message.changelog_files or (message.has_append_part and message.has_compact_part):
        raise UsageError(f"the result for bucket {message.bucket} mixes new rows with a compaction; they are committed on their own")
    if message.has_compact_part:
        return CommitKind.COMPACT
    return CommitKind.APPEND if message.has_append_part else None


def of_result(result: Result, default_buckets: int) -> BucketChange:
    """The change of one bucket that a compaction or an index build made."""
    message = result.message
    compact = kind_of(result) is CommitKind.COMPACT
    total = default_buckets if message.total_buckets is None else message.total_buckets
    deletes, adds = message.compact_before, message.compact_after
    index_deletes = message.compact_deleted_index_files if compact else message.deleted_index_files
    index_adds = message.compact_new_index_files if compact else message.new_index_files
    return BucketChange(
        message.bucket_key,
        total,
        (*_entries(message, total, FileKind.DELETE, deletes), *_entries(message, total, FileKind.ADD, adds)),
        (*_index_entries(message, FileKind.DELETE, index_deletes), *_index_entries(message, FileKind.ADD, index_adds)),
        Base(result.snapshot_id, result.snapshot_uuid, result.deletion_file),
        _entries(message, total, FileKind.ADD, message.compact_changelog_files),
    )


def of_append(message: CommitMessage, default_buckets: int) -> BucketChange:
    """New files of a writer, and the changelog that it wrote beside them."""
    if message.has_compact_part or message.deleted_files or message.new_index_files or message.deleted_index_files:
        raise UsageError(f"an append may only add data and changelog files, but its message for bucket {message.bucket} holds more")
    total = default_buckets if message.total_buckets is None else message.total_buckets
    changelog = _entries(message, total, FileKind.ADD, message.changelog_files)
    return BucketChange(message.bucket_key, total, _entries(message, total, FileKind.ADD, message.new_files), (), changelog=changelog)


def _entries(message: CommitMessage, total_buckets: int, kind: FileKind, files: Sequence[DataFileMeta]) -> tuple[ManifestEntry, ...]:
    return tuple(ManifestEntry(kind, message.partition, message.bucket, total_buckets, file) for file in files)


def _index_entries(message: CommitMessage, kind: FileKind, files: Sequence[IndexFileMeta]) -> tuple[IndexManifestEntry, ...]:
    return tuple(IndexManifestEntry(kind, message.partition, message.bucket, file) for file in files)
