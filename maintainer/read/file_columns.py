"""The live data files of a state as columns: one array for each thing that planning asks of every file.

    buckets, starts         those with files, in order of partition and number, and where their files begin
    files                   in order of the buckets, in each as manifests have them
    rows, sizes, levels, deletes, bucket_of
    partition_values(…)     of each partition        covering(…)         the index groups of a bucket
    bounds(column)          of each file             key_ranks(types)    where the keys of each file begin and end

The view is made once and lives as long as the state does; bounds of a column and ranks of keys are made when they are first asked for, and
those that were asked for last are kept, up to `MOST_KEPT`. All of it takes some 50 bytes for each file, and 10 more for each column whose
bounds are kept, beside the distinct bounds themselves.

Bounds are in terms of the schema that is read with, deleted rows included, from the statistics of the values, else of the keys, else, of the
first key column, from the first and last key, since files are in key order. What may not hold for every row says nothing: a file of another
writer may have left NaN (the largest value) out of its statistics, or −0.0 beside 0.0, so bounds of FLOAT and DOUBLE are widened to −0.0 and to
NaN. A column that the file's schema does not have holds NULL only; missing or undecodable statistics are no bounds. Partition columns have
none: their values are those of the manifest, whatever the file says.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from maintainer.data.evolution import keeps_nulls, keeps_order
from maintainer.data.values import to_arrow_array
from maintainer.format.kept import Cache
from maintainer.format.serialized_rows import NAN_ORDER, SerializedRows
from maintainer.index.definition import FamilyName, IndexDefinition
from maintainer.merge.sections import key_range
from maintainer.model.bucket import BucketState
from maintainer.model.files import DataFileMeta, SimpleStats
from maintainer.model.schema import TableSchema
from maintainer.model.types import CHARACTERS, FLOATS, DataField, DataType, TypeRoot
from maintainer.read.covering import Covering
from maintainer.read.ranked import ABOVE, BELOW, RankedBounds, first_known, ranked
from maintainer.table.state import TableState

Flags = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int64]
T = TypeVar("T")

UNKNOWN = -1
"""A number of deletes or nulls that nobody wrote down."""
MOST_KEPT = 128 << 20
"""Bytes of what is kept beside the last thing that was made: the bounds of some ten columns of texts of 100,000 files."""


class FileColumns:
    """Safe to use from several threads."""

    def __init__(self, state: TableState) -> None:
        self.buckets: tuple[BucketState, ...] = tuple(
            sorted((each for each in state.buckets.values() if each.files), key=lambda each: each.key)
        )
        self.files: tuple[DataFileMeta, ...] = tuple(file for bucket in self.buckets for file in bucket.files)
        counts = _numbers(len(bucket.files) for bucket in self.buckets)
        self.starts: Numbers = np.cumsum(counts) - counts
        self.bucket_of: Numbers = np.repeat(np.arange(len(counts)), counts)
        self.rows: Numbers = _numbers(file.row_count for file in self.files)
        self.sizes: Numbers = _numbers(file.file_size for file in self.files)
        self.levels: Numbers = _numbers(file.level for file in self.files)
        self.deletes: Numbers = _numbers(UNKNOWN if file.delete_row_count is None else file.delete_row_count for file in self.files)
        self.bucket_numbers: Numbers = _numbers(bucket.bucket for bucket in self.buckets)
        self.total_buckets: Numbers = _numbers(bucket.total_buckets for bucket in self.buckets)
        numbers: dict[bytes, int] = {}
        self.partition_of: Numbers = _numbers(numbers.setdefault(bucket.partition, len(numbers)) for bucket in self.buckets)
        self.partitions: tuple[bytes, ...] = tuple(numbers)
        self._coverings: dict[tuple[int, FamilyName, tuple[str, int], bool], Covering] = {}
        self._kept: dict[Hashable, tuple[Any, int]] = {}
        self._lock = threading.Lock()

    @classmethod
    def of(cls, state: TableState) -> FileColumns:
        """The view that is kept with the state."""
        found: FileColumns | None = state.kept.get("file columns")
        if found is None:
            found = state.kept.setdefault("file columns", cls(state))
        return found

    def __len__(self) -> int:
        return len(self.files)

    def partition_values(self, schema: TableSchema, values: Callable[[bytes], Sequence[Any]]) -> pa.Table:
        """The values of the partition columns, a row for each of `partitions`."""

        def make() -> pa.Table:
            rows = [values(partition) for partition in self.partitions]
            keys = [schema.field(name) for name in schema.partition_keys]
            return pa.table({key.name: to_arrow_array([row[i] for row in rows], key.type) for i, key in enumerate(keys)})

        return self.kept(("partitions", schema.partition_types), make)

    def bounds(self, column: DataField, schema_of: Callable[[int], TableSchema]) -> RankedBounds:
        """What is known of a column in each file."""
        return self.kept(("bounds", column.id, column.type), lambda: self._bounds(column, schema_of))

    def key_ranks(self, types: tuple[DataType, ...]) -> tuple[Numbers, Numbers]:
        """The ranks of the smallest and of the largest key of each file among all of them; −1 where there is no such key."""

        def make() -> tuple[Numbers, Numbers]:
            count = len(self)
            keys = SerializedRows([file.min_key for file in self.files] + [file.max_key for file in self.files], len(types))
            found = np.zeros(2 * count, np.int64)
            known = keys.whole
            for index, data_type in enumerate(types):
                _, ranks = ranked([keys.column(index, data_type)])
                known = known & (ranks >= 0)
                found = found * (int(ranks.max(initial=0)) + 1) + ranks
                found = np.unique(found, return_inverse=True)[1].reshape(-1)
            found[~known] = UNKNOWN
            return found[:count], found[count:]

        return self.kept(("keys", types), make)

    def sections(self, files: Numbers, types: tuple[DataType, ...]) -> tuple[Numbers, Numbers, Numbers]:
        """These files, at least one, section by section as `maintainer.merge.sections` has them, bucket by bucket; where each section starts;
        and how many files it holds."""
        low, high = (ends[files] for ends in self.key_ranks(types))
        for index in files[(low < 0) | (high < 0)].tolist():
            key_range(types)(self.files[index])  # says what is wrong with it
        above = 2 * len(self)
        if any(data_type.root in FLOATS for data_type in types):  # level 0 may lie outside of what its metadata says (spec 02 §17)
            everywhere = self.levels[files] == 0
            low, high = np.where(everywhere, 0, low), np.where(everywhere, above - 1, high)
        bucket = self.bucket_of[files]
        order = np.lexsort((high, low, bucket))
        low, high = (low + bucket * above)[order], (high + bucket * above)[order]
        starts = np.flatnonzero(np.r_[True, low[1:] > np.maximum.accumulate(high)[:-1]])
        return files[order], starts, np.diff(np.r_[starts, len(files)])

    def covering(self, bucket: int, definition: IndexDefinition, relaxed: bool, cache: Cache) -> Covering:
        """The groups of a definition in the bucket of this number; `cache` is of all states."""
        key = bucket, definition.family, definition.identity, relaxed
        found = self._coverings.get(key)
        if found is None:
            found = self._coverings[key] = Covering.kept(cache, self.buckets[bucket], definition, relaxed)
        return found

    def kept(self, key: Hashable, make: Callable[[], T]) -> T:
        """What was made under this key: arrays; those that were asked for long ago make way for others."""
        with self._lock:
            if key in self._kept:
                self._kept[key] = kept = self._kept.pop(key)
                found: T = kept[0]
                return found
        made = make()
        with self._lock:
            used = sum(size for _, size in self._kept.values())
            while self._kept and used > MOST_KEPT:
                used -= self._kept.pop(next(iter(self._kept)))[1]
            self._kept[key] = made, _bytes(made)
        return made

    @cached_property
    def _written(self) -> list[tuple[int, tuple[str, ...] | None, Numbers]]:
        """Files by the schema that they were written with and the columns that they have statistics of."""
        groups: dict[tuple[int, tuple[str, ...] | None], list[int]] = {}
        for index, file in enumerate(self.files):
            groups.setdefault((file.schema_id, file.value_stats_cols), []).append(index)
        return [(schema_id, columns, np.array(indices)) for (schema_id, columns), indices in groups.items()]

    def _bounds(self, column: DataField, schema_of: Callable[[int], TableSchema]) -> RankedBounds:
        parts = [self._of_group(column, schema_of(schema_id), stats, at) for schema_id, stats, at in self._written]
        if not parts:
            return RankedBounds.unknown(0)
        order = np.argsort(np.concatenate([at for _, _, at in self._written]))
        nulls = np.concatenate([part[2] for part in parts])[order]
        values, ranks = ranked([*(part[0] for part in parts), *(part[1] for part in parts)])
        low, high = ranks[: len(self)][order], ranks[len(self) :][order]
        return RankedBounds(values, low, np.where(high == BELOW, ABOVE, high), nulls != 0, nulls == self.rows, column.type)

    def _of_group(
        self, column: DataField, written: TableSchema, stats_columns: tuple[str, ...] | None, at: Numbers
    ) -> tuple[pa.Array, pa.Array, Numbers]:
        files = [self.files[index] for index in at.tolist()]
        rows = self.rows[at]
        source = written.field_by_id(column.id)
        if source is None:
            return pa.nulls(len(files)), pa.nulls(len(files)), rows
        names = written.names if stats_columns is None else stats_columns
        low, high, nulls = _statistics(files, [file.value_stats for file in files], names, source)
        if not keeps_order(source.type, column.type):
            return pa.nulls(len(files)), pa.nulls(len(files)), nulls if keeps_nulls(column.type) else np.where(nulls == rows, nulls, UNKNOWN)
        keys = written.trimmed_primary_keys
        if source.name in keys and low.null_count + high.null_count:
            of_keys = _statistics(files, [file.key_stats for file in files], keys, source)
            low, high = first_known(low, of_keys[0]), first_known(high, of_keys[1])
            nulls = np.where(nulls == UNKNOWN, of_keys[2], nulls)
        if source.name in keys[:1] and low.null_count + high.null_count:
            low = first_known(low, SerializedRows([file.min_key for file in files], len(keys)).column(0, source.type))
            high = first_known(high, SerializedRows([file.max_key for file in files], len(keys)).column(0, source.type))
        return *_widened(low, high, column.type), nulls


def _statistics(
    files: Sequence[DataFileMeta], stats: Sequence[SimpleStats], names: tuple[str, ...], source: DataField
) -> tuple[pa.Array, pa.Array, Numbers]:
    """Smallest and largest value and number of nulls of a column, which need not be among `names`."""
    nothing = pa.nulls(len(files))
    if source.name not in names:
        return nothing, nothing, np.full(len(files), UNKNOWN)
    index = names.index(source.name)
    low = SerializedRows([each.min_values for each in stats], len(names))
    high = SerializedRows([each.max_values for each in stats], len(names))
    nulls = np.where(low.whole & high.whole, _numbers(_null_count(each, index) for each in stats), UNKNOWN)
    if source.type.root is not TypeRoot.CHAR:
        return low.column(index, source.type), high.column(index, source.type), nulls
    padded = pa.array([file.file_name.endswith(".orc") for file in files], pa.bool_())  # and the values are not: no bounds
    low_values, high_values = (pc.if_else(padded, None, each.column(index, source.type)) for each in (low, high))
    return low_values, high_values, nulls


def _null_count(stats: SimpleStats, index: int) -> int:
    counts = stats.null_counts or ()
    found = counts[index] if index < len(counts) else None
    return UNKNOWN if found is None else found


def _widened(low: pa.Array, high: pa.Array, data_type: DataType) -> tuple[pa.Array, pa.Array]:
    if data_type.root in FLOATS and pa.types.is_int64(low.type):
        low = pc.if_else(pc.equal(low, NAN_ORDER), None, pc.if_else(pc.equal(low, 0), -1, low))  # -1 is the order of -0.0
        return low, pa.nulls(len(high))
    if data_type.root in CHARACTERS and pa.types.is_large_binary(high.type):
        # Java cuts a text after U+D7FF to one with half a surrogate pair, which becomes a "?" that is below the text
        return low, pc.if_else(pc.equal(pc.binary_slice(high, -1), b"?"), None, high)
    return low, high


def _bytes(made: Any) -> int:
    return sum(map(_bytes, made)) if isinstance(made, tuple) else int(made.nbytes)


def _numbers(values: Iterable[int]) -> Numbers:
    return np.array(list(values), np.int64)
