"""What one reader reads by itself: some files of one bucket, or some rows of one file (spec 07 §7, §8; Java `DataSplit`, `IndexedSplit`)."""

from __future__ import annotations

from dataclasses import dataclass

from maintainer.model.files import DataFileMeta

Ranges = tuple[tuple[int, int], ...]
"""Physical positions of a file: inclusive, ascending, disjoint, not adjacent."""


@dataclass(frozen=True, slots=True)
class DeletionFile:
    """Where the deletion vector of a data file lies; `path` is that of the whole file of vectors, as a URI or path."""

    path: str
    offset: int
    length: int
    cardinality: int | None = None


@dataclass(frozen=True, slots=True)
class DataSplit:
    """Files of a bucket in one snapshot, each read by itself if `raw_convertible`, or else merged with one another.

    `deletion_files` is None, or has an entry for each file (None: no row of it is deleted).
    """

    snapshot_id: int
    partition: bytes
    bucket: int
    bucket_path: str
    total_buckets: int | None
    files: tuple[DataFileMeta, ...]
    deletion_files: tuple[DeletionFile | None, ...] | None = None
    raw_convertible: bool = False
    is_streaming: bool = False

    @property
    def rows(self) -> int:
        """Physical rows, deleted ones included."""
        return sum(file.row_count for file in self.files)


@dataclass(frozen=True, slots=True)
class IndexedSplit:
    """Rows of the one file of a split, with a score for each in the order of positions where a search found them."""

    split: DataSplit
    ranges: Ranges
    scores: tuple[float, ...] | None = None

    @property
    def rows(self) -> int:
        """Selected rows, deleted ones included."""
        return sum(last - first + 1 for first, last in self.ranges)


Split = DataSplit | IndexedSplit
