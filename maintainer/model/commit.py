"""What one unit of work changed in one bucket (spec 03 §2; Java `CommitMessageImpl`)."""

from __future__ import annotations

from dataclasses import dataclass

from maintainer.model.files import BucketKey, DataFileMeta, IndexFileMeta


@dataclass(frozen=True, slots=True)
class CommitMessage:
    """The ten lists of a commit message. The first five make an APPEND snapshot, the last five a COMPACT snapshot."""

    partition: bytes
    bucket: int
    total_buckets: int | None = None
    new_files: tuple[DataFileMeta, ...] = ()
    deleted_files: tuple[DataFileMeta, ...] = ()
    changelog_files: tuple[DataFileMeta, ...] = ()
    new_index_files: tuple[IndexFileMeta, ...] = ()
    deleted_index_files: tuple[IndexFileMeta, ...] = ()
    compact_before: tuple[DataFileMeta, ...] = ()
    compact_after: tuple[DataFileMeta, ...] = ()
    compact_changelog_files: tuple[DataFileMeta, ...] = ()
    compact_new_index_files: tuple[IndexFileMeta, ...] = ()
    compact_deleted_index_files: tuple[IndexFileMeta, ...] = ()
    check_from_snapshot: int | None = None

    @property
    def bucket_key(self) -> BucketKey:
        return BucketKey(self.partition, self.bucket)

    @property
    def has_append_part(self) -> bool:
        return bool(self.new_files or self.deleted_files or self.changelog_files or self.new_index_files or self.deleted_index_files)

    @property
    def has_compact_part(self) -> bool:
        return bool(
            self.compact_before
            or self.compact_after
            or self.compact_changelog_files
            or self.compact_new_index_files
            or self.compact_deleted_index_files
        )

    @property
    def is_empty(self) -> bool:
        return not (self.has_append_part or self.has_compact_part)

    @property
    def added_files(self) -> tuple[DataFileMeta, ...]:
        """Data files that are there after the message, in either half."""
        return (*self.new_files, *self.changelog_files, *self.compact_after, *self.compact_changelog_files)

    @property
    def removed_files(self) -> tuple[DataFileMeta, ...]:
        return (*self.deleted_files, *self.compact_before)

    @property
    def added_index_files(self) -> tuple[IndexFileMeta, ...]:
        return (*self.new_index_files, *self.compact_new_index_files)

    @property
    def removed_index_files(self) -> tuple[IndexFileMeta, ...]:
        return (*self.deleted_index_files, *self.compact_deleted_index_files)
