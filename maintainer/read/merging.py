"""The rows of files that a scan has to merge (spec 07 §10.1, 05 §1.2, §1.3, §4.6; Java `MergeFileSplitRead`).

    files of a bucket → sections → windows of candidates → merge function → deletes out → predicate → columns

Only what the wanted columns take is read: they themselves, those of the condition, the keys, and what the merge engine needs beside them. What
a condition says of the key is tried before the merge, on row groups and on rows, as a record that it rejects never meets one that it accepts;
everything else after it. Partition columns come from the manifest.

Deletion vectors are applied before the merge. In a table that has had them from the start there is one live record of a key above level 0; in
one that got them later there may be several (`maintainer.maintain.unmarked`).

Memory: `budget` bytes; what does not fit goes to temporary files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from maintainer.data.reader import DataFile, open_data_file
from maintainer.data.values import to_arrow_array
from maintainer.errors import CorruptTable, MergeError
from maintainer.maintain.unmarked import bucket_rules
from maintainer.merge.candidates import Source
from maintainer.merge.engine import merge_function
from maintainer.merge.sections import overlapping
from maintainer.merge.spilling import Spill
from maintainer.merge.stream import held_bytes, merge_runs, scan
from maintainer.model.files import BucketKey, DataFileMeta, FileSource
from maintainer.model.predicate import Predicate, fields_of
from maintainer.model.schema import KIND_FIELD, SEQUENCE_FIELD, TableSchema
from maintainer.read.project import project
from maintainer.read.prune import Bounds, compiled
from maintainer.read.residual import mask
from maintainer.read.rows import BATCH_ROWS, within
from maintainer.table.merging import MergeRules
from maintainer.table.options import TableOptions
from maintainer.table.store import TableStore


@dataclass(frozen=True)
class MergeReader:
    """How the files of one scan are merged: which columns come out, and what rows must satisfy."""

    store: TableStore
    schema: TableSchema
    columns: tuple[str, ...]
    predicate: Predicate | None
    budget: int
    spill: Spill

    def read(self, key: BucketKey, files: Iterable[DataFileMeta], deletions: Mapping[str, BitMap64]) -> Iterator[pa.RecordBatch]:
        """The wanted rows of whole sections of a bucket, one after the other in key order."""
        constants = self._constants(key)
        for section in overlapping(self.schema, files):
            # What other files of the bucket are like has no say, as they hold none of these keys.
            rules = bucket_rules(self.schema, [file for run in section for file in run], self.store.schema)
            runs = [[self._source(key, file, deletions.get(file.file_name)) for file in run] for run in section]
            for rows in self._merged(runs, rules):
                rows = self._wanted(rows, constants)
                if rows.num_rows:
                    yield from rows.to_batches(max_chunksize=BATCH_ROWS)
                del rows  # or they are held while the next ones are made

    def _merged(self, runs: Sequence[Sequence[Source]], rules: MergeRules) -> Iterator[pa.Table]:
        schema, function = self.schema, merge_function(rules, self.schema)
        try:
            with closing(
                merge_runs(runs, self._read, rules, schema.trimmed_primary_keys, schema.key_types, self.budget, self.spill)
            ) as windows:
                for candidates in windows:
                    rows = function.merge(candidates, lookup=False).rows(drop_deletes=True)
                    del candidates
                    yield rows
                    del rows
        except MergeError as error:
            raise MergeError(f"{self.store.name}: {error}") from error

    def _wanted(self, rows: pa.Table, constants: Mapping[str, pa.Scalar]) -> pa.Table:
        for name, value in constants.items():
            if name in rows.column_names:
                rows = rows.drop_columns([name])
            rows = rows.append_column(pa.field(name, value.type, self.schema.field(name).type.nullable), pa.repeat(value, rows.num_rows))
        if self.predicate is not None:
            rows = rows.filter(pa.array(mask(self.predicate, rows, self.schema)))
        return rows.select(list(self.columns))

    @cached_property
    def _options(self) -> TableOptions:
        return self.store.options(self.schema)

    @cached_property
    def _read(self) -> tuple[str, ...]:
        """The columns that are read, in the order of the schema."""
        tested = frozenset() if self.predicate is None else fields_of(self.predicate)
        wanted = [name for name in self.schema.names if (name in self.columns or name in tested) and name not in self.schema.partition_keys]
        function = merge_function(MergeRules.of(self.schema), self.schema)
        needed = {*self.schema.trimmed_primary_keys, *function.columns(wanted)}
        return (*(name for name in self.schema.names if name in needed), SEQUENCE_FIELD.name, KIND_FIELD.name)

    def _constants(self, key: BucketKey) -> dict[str, pa.Scalar]:
        names = self.schema.partition_keys
        values = self.store.layout.partition_values(key.partition) if names else ()
        return {name: to_arrow_array([value], self.schema.field(name).type)[0] for name, value in zip(names, values, strict=True)}

    def _source(self, key: BucketKey, file: DataFileMeta, deleted: BitMap64 | None) -> Source:
        held = held_bytes(file, len(self._read), self.store.storage.remote)
        source = Source(file, _Rows(self, key, file, deleted or BitMap64()).batches, held=held)
        if file.level > 0:
            return source
        return replace(source, ordered=scan(source, self.schema.trimmed_primary_keys, self.schema.key_types).ordered)

    @cached_property
    def _of_keys(self) -> Predicate | None:
        return None if self.predicate is None else project(self.predicate, self.schema.trimmed_primary_keys)

    @cached_property
    def _is_stamped(self) -> bool:
        """Whether writers' records have the number that is in the metadata of their file (spec 04 §9.2)."""
        return self._options.boolean("sequence.snapshot-ordering", False)


@dataclass(frozen=True)
class _Rows:
    """The live rows of a file whose keys the condition allows."""

    reader: MergeReader
    key: BucketKey
    file: DataFileMeta
    deleted: BitMap64

    def batches(self, columns: Sequence[str], batch_rows: int) -> Iterator[pa.RecordBatch]:
        reader, file = self.reader, self.file
        store, predicate = reader.store, reader._of_keys
        path = store.layout.data_file_path(*self.key, file)
        with open_data_file(store.storage, path, file, store.schema(file.schema_id), reader.schema) as data:
            for first, batch in data.batches(columns, batch_rows, self._groups(data)):
                keep = np.ones(batch.num_rows, dtype=bool)
                keep[within(self.deleted, first, batch.num_rows)] = False
                if predicate is not None:
                    keep &= mask(predicate, batch, reader.schema)
                yield self._stamped(batch if keep.all() else batch.filter(pa.array(keep)))

    def _groups(self, data: DataFile) -> list[int] | None:
        """The row groups with keys that the condition allows; None: all."""
        predicate = self.reader._of_keys
        if predicate is None:
            return None
        test = compiled(predicate)
        bounds = {
            name: [Bounds() if found is None else Bounds(*found) for found in data.group_bounds(name)] for name in fields_of(predicate)
        }  # fmt: skip
        return [number for number in range(len(data.row_groups)) if test({name: of_groups[number] for name, of_groups in bounds.items()})]

    def _stamped(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        at = batch.schema.get_field_index(SEQUENCE_FIELD.name)
        if at < 0 or not self.reader._is_stamped or self.file.file_source is FileSource.COMPACT:
            return batch
        if self.file.file_source is None:
            raise CorruptTable(f"{self.file.file_name}: nothing says who wrote it, so its records have no order")
        number = pa.repeat(pa.scalar(self.file.min_sequence_number, pa.int64()), batch.num_rows)
        return batch.set_column(at, batch.schema.field(at), number)
