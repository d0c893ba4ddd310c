"""What manifests say about data files and index files (spec 01 §8–§10; Java `DataFileMeta`, `ManifestEntry`, `IndexFileMeta`, …).

Rows inside the metadata (partitions, keys, bounds) stay serialized, as they are compared and copied byte for byte; who needs values decodes
them with `maintainer.format.binary_row` and the types of the schema.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import NamedTuple

EMPTY_ROW = bytes(12)
"""The serialized row without columns: int32 arity 0 and 8 zero bytes. The partition of a table that has no partitions."""

DELETION_VECTORS = "DELETION_VECTORS"
HASH = "HASH"


class FileSource(IntEnum):
    """Who wrote a data file; only COMPACT files above level 0 are index sources."""

    APPEND = 0
    COMPACT = 1


class FileRole(StrEnum):
    """What a file of rows is for: the table's data, or the changes that a snapshot made."""

    DATA = "data"
    CHANGELOG = "changelog"


class FileKind(IntEnum):
    ADD = 0
    DELETE = 1


class BucketKey(NamedTuple):
    """Where a data file lives: the serialized partition row, and the bucket number."""

    partition: bytes
    bucket: int


@dataclass(frozen=True, slots=True)
class SimpleStats:
    """Per column: smallest and largest value (two serialized rows, null = unknown) and number of nulls (None = unknown)."""

    min_values: bytes = EMPTY_ROW
    max_values: bytes = EMPTY_ROW
    null_counts: tuple[int | None, ...] | None = ()


@dataclass(frozen=True, slots=True)
class DataFileMeta:
    """A data file as its manifest entry describes it; sizes in bytes, `creation_time` in milliseconds of the writer's local wall clock."""

    file_name: str
    file_size: int
    row_count: int
    min_key: bytes
    max_key: bytes
    key_stats: SimpleStats
    value_stats: SimpleStats
    min_sequence_number: int
    max_sequence_number: int
    schema_id: int
    level: int
    extra_files: tuple[str, ...] = ()
    creation_time: int | None = None
    delete_row_count: int | None = None
    embedded_file_index: bytes | None = None
    file_source: FileSource | None = None
    value_stats_cols: tuple[str, ...] | None = None
    external_path: str | None = None
    first_row_id: int | None = None
    write_cols: tuple[str, ...] | None = None
    write_cols_sequences: tuple[int, ...] | None = None

    @property
    def is_index_source(self) -> bool:
        """Whether primary-key indexes are built from this file (spec 06 §6)."""
        return self.file_source == FileSource.COMPACT and self.level > 0

    @property
    def may_hold_deletes(self) -> bool:
        return self.delete_row_count is None or self.delete_row_count > 0


class FileIdentity(NamedTuple):
    """What makes two entries speak of the same file (spec 01 §9.3); the level is part of it, so an upgrade is a DELETE and an ADD."""

    partition: bytes
    bucket: int
    level: int
    file_name: str
    extra_files: tuple[str, ...]
    embedded_file_index: bytes | None
    external_path: str | None


@dataclass(frozen=True, slots=True)
class ManifestEntry:
    """One change of the set of live data files."""

    kind: FileKind
    partition: bytes
    bucket: int
    total_buckets: int
    file: DataFileMeta

    @property
    def identity(self) -> FileIdentity:
        file = self.file
        return FileIdentity(
            self.partition, self.bucket, file.level, file.file_name, file.extra_files, file.embedded_file_index, file.external_path
        )

    @property
    def bucket_key(self) -> BucketKey:
        return BucketKey(self.partition, self.bucket)


@dataclass(frozen=True, slots=True)
class ManifestFileMeta:
    """A manifest as its manifest list describes it."""

    file_name: str
    file_size: int
    num_added_files: int
    num_deleted_files: int
    partition_stats: SimpleStats
    schema_id: int
    min_bucket: int | None = None
    max_bucket: int | None = None
    min_level: int | None = None
    max_level: int | None = None
    min_row_id: int | None = None
    max_row_id: int | None = None


@dataclass(frozen=True, slots=True)
class DeletionRange:
    """Where the deletion vector of one data file lies in a deletion-vector file (spec 02 §12.1: what `length` counts depends on the form)."""

    data_file: str
    offset: int
    length: int
    cardinality: int | None = None


@dataclass(frozen=True, slots=True)
class GlobalIndexMeta:
    """What ties an index payload to a column and to rows; `source_meta` is set for primary-key indexes (spec 06 §7, §8)."""

    row_range_start: int
    row_range_end: int
    index_field_id: int
    extra_field_ids: tuple[int, ...] | None = None
    index_meta: bytes | None = None
    source_meta: bytes | None = None
    build_schema_id: int | None = None


@dataclass(frozen=True, slots=True)
class IndexFileMeta:
    """An index file: the deletion vectors of a bucket, or the payload of a column index."""

    index_type: str
    file_name: str
    file_size: int
    row_count: int
    deletion_ranges: tuple[DeletionRange, ...] | None = None
    external_path: str | None = None
    global_index: GlobalIndexMeta | None = None


@dataclass(frozen=True, slots=True)
class IndexManifestEntry:
    """One entry of an index manifest, or one change on the way into the next one."""

    kind: FileKind
    partition: bytes
    bucket: int
    file: IndexFileMeta

    @property
    def bucket_key(self) -> BucketKey:
        return BucketKey(self.partition, self.bucket)
