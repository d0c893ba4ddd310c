"""Which files of a snapshot a scan reads, and which of their rows (spec 07 §1, §7, §10.1, §10.3; Java `MergeTreeSplitGenerator`).

    partition → bucket → level → statistics → sections → index groups

Every step only removes. For each live file there is one decision:

| decision  | meaning                                                                                        |
| --------- | ---------------------------------------------------------------------------------------------- |
| pruned    | no row of it can match (or it is not visible); it is not opened                                |
| indexed   | index groups narrowed it to `ranges` of physical positions, inclusive, ascending, not adjacent |
| raw       | all of its rows are read; `reason` says why no index helped                                    |
| merged    | its rows are merged with those of other files, or its deletes are taken out                    |

The predicate itself is evaluated on every row that comes out, so a decision can only be slow, never wrong.

Where deletion vectors, or the first-row engine, leave one live row of each key above level 0, no file is merged. Elsewhere files whose key
ranges overlap are (`maintainer.merge.sections`), and of these statistics may remove single files only for what a condition says of the key:
what they say of other columns may be about rows that newer ones replace. All files of a section together may be removed where a row that
comes out of it is one that went in, as it is with the deduplicate engine. A file that overlaps nothing and holds no delete is read as it is.

Tables that got deletion vectors after they were compacted without them have buckets that must be merged all the same, until they are compacted
in full (`maintainer.maintain.unmarked`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from maintainer.data.values import to_arrow_array
from maintainer.errors import Unsupported, UsageError
from maintainer.index.cache import cache_of
from maintainer.index.definition import SORTED, IndexDefinition, definitions
from maintainer.index.groups import NOT_VISIBLE, POSTPONED
from maintainer.index.usable import why_unusable
from maintainer.maintain.unmarked import schemas_without_vectors, unmarked
from maintainer.merge.sections import Section, key_range, sections
from maintainer.model.bucket import BucketState
from maintainer.model.files import DataFileMeta
from maintainer.model.predicate import Predicate, fields_of
from maintainer.model.schema import TableSchema
from maintainer.model.snapshot import Snapshot
from maintainer.model.types import FLOATS
from maintainer.read.evaluate import BucketIndexes
from maintainer.read.project import project
from maintainer.read.prune import Buckets, FileBounds, compiled
from maintainer.read.residual import mask
from maintainer.table.options import MergeEngine
from maintainer.table.state import TableState
from maintainer.table.store import TableStore

MOST_RANGES = 4096
"""A file with more ranges is read raw (Java's limit)."""

PRUNED = "pruned"
INDEXED = "indexed"
RAW = "raw"
MERGED = "merged"
NO_ROW = "statistics: no row can match"


@dataclass(frozen=True)
class FilePlan:
    """What a scan does with one file. `rows` are the physical rows it reads, `positions` which ones (None: all)."""

    bucket: BucketState
    file: DataFileMeta
    decision: str
    reason: str
    column: str | None = None
    group: str | None = None
    ranges: tuple[tuple[int, int], ...] | None = None
    rows: int = 0
    positions: BitMap64 | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True)
class ScanPlan:
    """The decisions for all live files of a snapshot (None: the table has no snapshot yet)."""

    snapshot: Snapshot | None
    schema: TableSchema
    predicate: Predicate | None
    files: tuple[FilePlan, ...]

    @property
    def to_read(self) -> tuple[FilePlan, ...]:
        return tuple(plan for plan in self.files if plan.decision != PRUNED)


def plan_files(store: TableStore, state: TableState, predicate: Predicate | None, use_index: bool = True) -> tuple[FilePlan, ...]:
    """The decisions, in order of partition, bucket and manifest."""
    return tuple(_Planner(store, state, predicate, use_index).files())


def overlapping(schema: TableSchema, files: Iterable[DataFileMeta]) -> list[Section]:
    """Files of one bucket in sections; those of a section with more than one run have to be merged.

    A level-0 file with FLOAT or DOUBLE keys may lie outside of what its metadata says (spec 02 §17), so it is taken to overlap all others.
    """
    bounds = key_range(schema.key_types)
    if not any(data_type.root in FLOATS for data_type in schema.key_types):
        return sections(files, bounds)
    ranges = {file.file_name: bounds(file) for file in files}
    keys = [key for ends in ranges.values() for key in ends]
    wide = (min(keys), max(keys)) if keys else None
    return sections(files, lambda file: ranges[file.file_name] if file.level > 0 or wide is None else wide)


class _Planner:
    def __init__(self, store: TableStore, state: TableState, predicate: Predicate | None, use_index: bool) -> None:
        self._store = store
        self._predicate = predicate
        self._schema = state.schema
        self._buckets = sorted(state.buckets.values(), key=lambda bucket: bucket.key)
        options = store.options(state.schema)
        self._engine = options.merge_engine
        self._hides_level_0 = options.hides_level_0 and bool(state.schema.primary_keys)
        self._without_vectors: frozenset[int] = frozenset()
        if options.deletion_vectors_enabled and self._hides_level_0:
            self._without_vectors = schemas_without_vectors(store.schema(schema_id) for schema_id in state.schema_ids)
        self._relaxed = options.relaxed_group_acceptance
        self._cache = cache_of(store, options.index_cache_size)
        self._partitions = self._matching_partitions()
        self._bucket_test = None if predicate is None else Buckets(predicate, state.schema, options.bucket_function)
        self._bounds = FileBounds(state.schema, store.schema, frozenset() if predicate is None else fields_of(predicate))
        self._test = None if predicate is None else compiled(predicate)
        of_keys = None if predicate is None else project(predicate, state.schema.trimmed_primary_keys)
        self._key_test = None if of_keys is None else compiled(of_keys)
        self._definitions: tuple[IndexDefinition, ...] = ()
        self._projected: Predicate | None = None
        if predicate is None:
            self._no_index = "no condition"
        elif not use_index or not options.boolean("global-index.enabled", True):
            self._no_index = "indexes are switched off"
        elif not self._hides_level_0:
            self._no_index = "tables that are merged while they are read have no index"
        else:
            wanted = fields_of(predicate)
            found, mistake = [], None
            try:
                found = [each for each in definitions(state.schema) if each.family in SORTED and each.column in wanted]
            except UsageError as error:  # rows are what they are, whatever options of indexes say
                mistake = str(error)
            schemas = state.schemas_since(store) if found else ()
            unusable = {each.column: why for each in found if (why := why_unusable(each, schemas)) is not None}
            readable = [each for each in found if each.column not in unusable]
            self._projected = project(predicate, {each.column for each in readable})
            self._definitions = tuple(each for each in readable if self._projected and each.column in fields_of(self._projected))
            if not found:
                self._no_index = mistake or "no index on the columns of the condition"
            elif not readable:
                self._no_index = "; ".join(f"{column}: {why}" for column, why in unusable.items())
            else:
                self._no_index = "a row may satisfy the condition by a column without index"

    def files(self) -> Iterator[FilePlan]:
        for bucket in self._buckets:
            if bucket.files:
                yield from self._bucket(bucket)

    def _bucket(self, bucket: BucketState) -> Iterator[FilePlan]:
        reason = self._why_pruned(bucket)
        if reason is not None:
            yield from (FilePlan(bucket, file, PRUNED, reason) for file in bucket.files)
            return
        found = {}
        visible = []
        for file in bucket.files:
            if file.level == 0 and self._hides_level_0:
                found[file.file_name] = FilePlan(bucket, file, PRUNED, NOT_VISIBLE)
            elif self._key_test is not None and not self._key_test(self._bounds.of(file)):
                found[file.file_name] = FilePlan(bucket, file, PRUNED, NO_ROW)
            else:
                visible.append(file)
        alone = []
        for files in self._sections(bucket, visible):
            allowed = [file for file in files if self._test is None or self._test(self._bounds.of(file))]
            if len(files) > 1 and (allowed or self._engine is not MergeEngine.DEDUPLICATE):
                reason = f"its keys may be in {len(files) - 1} other file{'s' if len(files) > 2 else ''}, too"
                found |= {file.file_name: FilePlan(bucket, file, MERGED, reason, rows=file.row_count) for file in files}
                continue
            alone += allowed
            found |= {file.file_name: FilePlan(bucket, file, PRUNED, NO_ROW) for file in files if file not in allowed}
        found |= {plan.file.file_name: plan for plan in self._alone(bucket, alone)}
        yield from (found[file.file_name] for file in bucket.files)

    def _sections(self, bucket: BucketState, visible: list[DataFileMeta]) -> Iterator[list[DataFileMeta]]:
        """Files that have to be merged with one another together, all others by themselves."""
        schema = self._schema
        merges = bool(schema.primary_keys) and not self._hides_level_0
        if merges and any(data_type.nullable for data_type in schema.key_types):
            raise Unsupported("primary-key.nullable: null keys are not merged yet")
        if merges or unmarked(bucket.files, self._without_vectors, key_range(schema.key_types)):
            for runs in overlapping(schema, visible):
                files = [file for run in runs for file in run]
                yield from [files] if len(runs) > 1 else ([file] for file in files)
        else:
            yield from ([file] for file in visible)

    def _alone(self, bucket: BucketState, files: list[DataFileMeta]) -> Iterator[FilePlan]:
        """Files of which every row that is not a delete comes out."""
        indexes: BucketIndexes | None = None
        for file in files:
            if self._may_hold_deletes(file):
                yield FilePlan(bucket, file, MERGED, "its deletes are taken out", rows=file.row_count)
            elif self._projected is None:
                yield FilePlan(bucket, file, RAW, self._no_index, rows=file.row_count)
            else:
                indexes = indexes or BucketIndexes(self._store, bucket, self._definitions, self._relaxed, self._cache)
                yield _narrowed(bucket, file, indexes, self._projected)

    def _may_hold_deletes(self, file: DataFileMeta) -> bool:
        """Old writers did not count deletes; with deletion vectors they left none above level 0."""
        if not self._schema.primary_keys:
            return False
        return not self._hides_level_0 if file.delete_row_count is None else file.delete_row_count > 0

    def _why_pruned(self, bucket: BucketState) -> str | None:
        if bucket.bucket < 0:
            return POSTPONED
        if not self._partitions.get(bucket.partition, True):
            return "partition: no row can match"
        if self._bucket_test is not None and not self._bucket_test.allow(bucket.bucket, bucket.total_buckets):
            return "bucket: the keys of the condition are in others"
        return None

    def _matching_partitions(self) -> Mapping[bytes, bool]:
        """For each partition whether the part of the predicate that speaks of partition columns holds for it."""
        keys = self._schema.partition_keys
        part = None if self._predicate is None else project(self._predicate, keys)
        if part is None:
            return {}
        partitions = list(dict.fromkeys(bucket.partition for bucket in self._buckets))
        rows = [self._store.layout.partition_values(partition) for partition in partitions]
        table = pa.table({name: to_arrow_array([row[i] for row in rows], self._schema.field(name).type) for i, name in enumerate(keys)})
        return dict(zip(partitions, mask(part, table, self._schema).tolist(), strict=True))


def _narrowed(bucket: BucketState, file: DataFileMeta, indexes: BucketIndexes, predicate: Predicate) -> FilePlan:
    answer = indexes.ask(predicate, file)
    column = ", ".join(dict.fromkeys(name for name, _ in answer.used)) or None
    group = ", ".join(dict.fromkeys(payload for _, payload in answer.used)) or None
    positions = answer.positions
    if positions is None:
        return FilePlan(bucket, file, RAW, "; ".join(answer.why_unknown) or "no index answers the condition", rows=file.row_count)
    if not positions:
        return FilePlan(bucket, file, PRUNED, "index: no row matches", column, group)
    count = _range_count(positions)
    if count > MOST_RANGES:
        reason = f"the index selects {count} ranges, more than {MOST_RANGES}"
        return FilePlan(bucket, file, RAW, reason, column, group, rows=file.row_count)
    reason = f"index: {len(positions)} of {file.row_count} rows"
    return FilePlan(bucket, file, INDEXED, reason, column, group, _ranges(positions), len(positions), positions)


def _range_count(positions: BitMap64) -> int:
    return len(positions) - len(positions & positions.shift(1))


def _ranges(positions: BitMap64) -> tuple[tuple[int, int], ...]:
    """Maximal runs of consecutive positions."""
    values = np.asarray(positions.to_array()).astype(np.int64)
    ends = np.flatnonzero(np.diff(values) != 1)
    firsts, lasts = values[np.r_[0, ends + 1]], values[np.r_[ends, len(values) - 1]]
    return tuple(zip(firsts.tolist(), lasts.tolist(), strict=True))
