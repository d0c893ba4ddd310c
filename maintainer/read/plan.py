"""Which files of a snapshot a scan reads, and which of their rows (spec 07 §1, §7, §10.3).

    partition → bucket → level → statistics → index groups

Every step only removes. For each live file there is one decision:

| decision  | meaning                                                                                        |
| --------- | ---------------------------------------------------------------------------------------------- |
| pruned    | no row of it can match (or it is not visible); it is not opened                                |
| indexed   | index groups narrowed it to `ranges` of physical positions, inclusive, ascending, not adjacent |
| raw       | all of its rows are read; `reason` says why no index helped                                    |

The predicate itself is evaluated on every row that is read, so a decision can only be slow, never wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from maintainer.data.values import to_arrow_array
from maintainer.index.definition import SORTED, IndexDefinition, definitions
from maintainer.index.groups import NOT_VISIBLE
from maintainer.index.usable import why_unusable
from maintainer.model.bucket import BucketState
from maintainer.model.files import DataFileMeta
from maintainer.model.predicate import Predicate, fields_of
from maintainer.model.schema import TableSchema
from maintainer.model.snapshot import Snapshot
from maintainer.read.evaluate import BucketIndexes
from maintainer.read.project import project
from maintainer.read.prune import Buckets, FileBounds, compiled
from maintainer.read.residual import mask
from maintainer.table.state import TableState
from maintainer.table.store import TableStore

MOST_RANGES = 4096
"""A file with more ranges is read raw (Java's limit)."""

PRUNED = "pruned"
INDEXED = "indexed"
RAW = "raw"


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


class _Planner:
    def __init__(self, store: TableStore, state: TableState, predicate: Predicate | None, use_index: bool) -> None:
        self._store = store
        self._predicate = predicate
        self._schema = state.schema
        self._buckets = sorted(state.buckets.values(), key=lambda bucket: bucket.key)
        options = store.options(state.schema)
        self._hides_level_0 = options.deletion_vectors_enabled
        self._relaxed = options.relaxed_group_acceptance
        self._partitions = self._matching_partitions()
        self._bucket_test = None if predicate is None else Buckets(predicate, state.schema, options.bucket_function)
        self._bounds = FileBounds(state.schema, store.schema, frozenset() if predicate is None else fields_of(predicate))
        self._test = None if predicate is None else compiled(predicate)
        self._definitions: tuple[IndexDefinition, ...] = ()
        self._projected: Predicate | None = None
        if predicate is None:
            self._no_index = "no condition"
        elif not use_index or not options.boolean("global-index.enabled", True):
            self._no_index = "indexes are switched off"
        else:
            wanted = fields_of(predicate)
            found = [each for each in definitions(state.schema) if each.family in SORTED and each.column in wanted]
            schemas = [store.schema(schema_id) for schema_id in state.schema_ids] if found else []
            unusable = {each.column: why for each in found if (why := why_unusable(each, schemas)) is not None}
            readable = [each for each in found if each.column not in unusable]
            self._projected = project(predicate, {each.column for each in readable})
            self._definitions = tuple(each for each in readable if self._projected and each.column in fields_of(self._projected))
            if not found:
                self._no_index = "no index on the columns of the condition"
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
        if self._projected is None:
            for file in bucket.files:
                pruned = self._why_pruned_file(file)
                yield (
                    FilePlan(bucket, file, RAW, self._no_index, rows=file.row_count)
                    if pruned is None
                    else FilePlan(bucket, file, PRUNED, pruned)
                )
            return
        with BucketIndexes(self._store, bucket, self._definitions, self._relaxed) as indexes:
            for file in bucket.files:
                pruned = self._why_pruned_file(file)
                yield _narrowed(bucket, file, indexes, self._projected) if pruned is None else FilePlan(bucket, file, PRUNED, pruned)

    def _why_pruned(self, bucket: BucketState) -> str | None:
        if bucket.bucket < 0:
            return "postponed: not visible until it is in a bucket"
        if not self._partitions.get(bucket.partition, True):
            return "partition: no row can match"
        if self._bucket_test is not None and not self._bucket_test.allow(bucket.bucket, bucket.total_buckets):
            return "bucket: the keys of the condition are in others"
        return None

    def _why_pruned_file(self, file: DataFileMeta) -> str | None:
        if file.level == 0 and self._hides_level_0:
            return NOT_VISIBLE
        if self._test is not None and not self._test(self._bounds.of(file)):
            return "statistics: no row can match"
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
