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
from dataclasses import replace
from itertools import groupby

from maintainer.errors import CorruptFile, Unsupported, UsageError
from maintainer.format import split as codec
from maintainer.format.binary_row import arity
from maintainer.merge.sections import overlapping
from maintainer.model.bucket import BucketState
from maintainer.model.files import DELETION_VECTORS, DataFileMeta
from maintainer.model.schema import TableSchema
from maintainer.model.split import DataSplit, DeletionFile, IndexedSplit, Split
from maintainer.read.decisions import INDEXED, MERGED, FilePlan, ScanPlan
from maintainer.table.store import TableStore
from maintainer.table.support import check_live_files, naming


def splits_of(store: TableStore, plan: ScanPlan) -> Iterator[Split]:
    """The splits in order of the plan, a bucket at a time; a section is where its first file is."""
    for _, files in groupby(plan.to_read, key=lambda file: file.bucket.key):
        yield from _of_bucket(store, plan, list(files))


def deletion_files(store: TableStore, bucket: BucketState) -> Mapping[str, DeletionFile]:
    """Where the vectors of a bucket lie, by data file; only append-only tables have more than one file of them."""
    found = {}
    for index in (bucket.deletion_file, *bucket.other_index_files):
        if index is not None and index.index_type == DELETION_VECTORS:
            path = store.storage.display(store.layout.index_file_path(index, bucket.partition, bucket.bucket))
            if index.deletion_ranges is None:
                raise CorruptFile("the index manifest has no ranges for this deletion-vector file", path=path)
            for vector in index.deletion_ranges:
                found[vector.data_file] = DeletionFile(path, vector.offset, vector.length, vector.cardinality)
    return found


def adopted(store: TableStore, schema: TableSchema, split: bytes | Split) -> Split:
    """A split that somebody else planned, of this table as it is opened here; refused where it is of another table, or not one of rows.

    Where files are is a matter of the table's layout, and paths in a split only have to agree with it: they begin as whoever planned it reaches
    the table, and planners that do not know a bucket's directory name each file's.
    """
    if isinstance(split, bytes):
        try:
            split = codec.decode(split)
        except CorruptFile as error:
            raise error.at(f"a split for {store.name}") from error
    data = split.split if isinstance(split, IndexedSplit) else split
    where = f"{store.name}: a split of bucket {data.bucket}"
    if data.is_streaming:
        raise Unsupported(f"{where} is one of a streaming read: its rows are changes, and only those of a snapshot are read")
    if data.bucket < 0:
        raise Unsupported(f"{where}, which holds rows that have no bucket yet: they are not visible")
    if arity(data.partition) != len(schema.partition_keys):
        raise UsageError(f"{where} has {arity(data.partition)} partition values, the table {len(schema.partition_keys)}")
    directory = store.layout.bucket_directory(data.partition, data.bucket)
    if data.bucket_path and not _leads_to(data.bucket_path, directory):
        raise UsageError(f"{where} is of another table: its files are in {data.bucket_path}, those of this one in {directory}")
    files = tuple(
        replace(file, external_path=None) if file.external_path and _leads_to(file.external_path, f"{directory}/{file.file_name}") else file
        for file in data.files
    )
    with naming(store.name):
        check_live_files(files)
    for vector in data.deletion_files or ():
        if vector is not None:
            path = store.layout.index_file_path(vector.path.rpartition("/")[2], data.partition, data.bucket)
            if not _leads_to(vector.path, path):
                raise Unsupported(f"{where} has its deletion vectors in {vector.path}, outside of the table's {path}")
    data = replace(data, files=files)
    return replace(split, split=data) if isinstance(split, IndexedSplit) else data


def _leads_to(path: str, relative: str) -> bool:
    return f"/{path.rstrip('/')}".endswith(f"/{relative}")


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
