"""The splits of a plan: what is read together, by whoever reads it (spec 07 §7, §8; Java `MergeTreeSplitGenerator`).

| files of the plan                      | split                                                                                      |
| -------------------------------------- | ------------------------------------------------------------------------------------------ |
| an indexed one                         | `IndexedSplit` of the file and its ranges                                                  |
| a raw one                              | `DataSplit` of the file                                                                    |
| those of a section that is merged      | one `DataSplit`, not raw-convertible                                                       |

Java packs raw files into splits of some size. Here each is by itself, so that several are read at a time whatever reads them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from maintainer.model.bucket import BucketState
from maintainer.model.files import DELETION_VECTORS, DataFileMeta
from maintainer.model.split import DataSplit, DeletionFile, IndexedSplit, Split
from maintainer.read.plan import INDEXED, MERGED, FilePlan, ScanPlan, overlapping
from maintainer.table.store import TableStore


def splits_of(store: TableStore, plan: ScanPlan) -> tuple[Split, ...]:
    """The splits in order of the plan; a section is where its first file is."""
    if plan.snapshot is None:
        return ()
    splits: list[Split] = []
    for _, files in groupby(plan.to_read, key=lambda file: file.bucket.key):
        splits += _of_bucket(store, plan, list(files))
    return tuple(splits)


def deletion_files(store: TableStore, bucket: BucketState) -> Mapping[str, DeletionFile]:
    """Where the vectors of a bucket lie, by data file; only append-only tables have more than one file of them."""
    found = {}
    for index in (bucket.deletion_file, *bucket.other_index_files):
        if index is not None and index.index_type == DELETION_VECTORS:
            path = store.storage.display(store.layout.index_file_path(index, bucket.partition, bucket.bucket))
            for vector in index.deletion_ranges or ():
                found[vector.data_file] = DeletionFile(path, vector.offset, vector.length, vector.cardinality)
    return found


def _of_bucket(store: TableStore, plan: ScanPlan, files: Sequence[FilePlan]) -> Iterator[Split]:
    assert plan.snapshot is not None
    bucket, snapshot_id = files[0].bucket, plan.snapshot.id
    path = store.storage.display(store.layout.bucket_directory(bucket.partition, bucket.bucket))
    vectors = deletion_files(store, bucket)

    def split(together: Sequence[DataFileMeta], raw: bool) -> DataSplit:
        where = tuple(vectors.get(file.file_name) for file in together)
        deleted = where if any(where) else None
        return DataSplit(snapshot_id, bucket.partition, bucket.bucket, path, bucket.total_buckets, tuple(together), deleted, raw)

    merged = [file.file for file in files if file.decision == MERGED]
    sections: dict[str, list[DataFileMeta]] = {}
    for runs in overlapping(plan.schema, merged) if merged else ():
        section = [file for run in runs for file in run]
        sections |= {file.file_name: section for file in section}
    for each in files:
        if each.decision == MERGED:
            together = sections.pop(each.file.file_name, None)
            if together is not None:
                for file in together:
                    sections.pop(file.file_name, None)
                yield split(together, raw=False)
        elif each.decision == INDEXED:
            assert each.ranges is not None
            yield IndexedSplit(split([each.file], raw=False), each.ranges)
        else:
            yield split([each.file], raw=each.file.level > 0 or not plan.schema.primary_keys)  # Java merges what is in level 0
