"""Compacting the files of one bucket (spec 04 §4–§7, §9.4; Java `MergeTreeCompactTask`, `CompactResult`).

Holds the bucket as the attempt has left it so far: its files, its deletion vectors, and the two lists that the commit needs. A unit can be
followed by another one that takes what the first produced. Invariants:

    before   for each file that was there at the start and is not any more, or is elsewhere now: its metadata as they were at the start
    after    for each file that is new, or elsewhere now: its metadata as they are now
    neither  a file that the attempt made and consumed itself; it is deleted at once

Rewriting reads live rows only, so every vector of an input ends with it; a key without a record above level 0 may have a live older version
above the output level, which is marked in that file's vector (`maintainer.maintain.lookup`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from maintainer.data.reader import DataFile, open_data_file
from maintainer.data.spill import Spill
from maintainer.data.writer import DataFileWriter
from maintainer.errors import UsageError
from maintainer.maintain.attempt import Attempt
from maintainer.maintain.lookup import DeletionVectors, PositionLookup
from maintainer.maintain.pick import Levels, restore
from maintainer.maintain.unit import Rewrite, UnitOptions, Upgrade, drops_deletes, steps
from maintainer.merge.candidates import Source
from maintainer.merge.engine import merge_function
from maintainer.merge.order import Keys
from maintainer.merge.sections import key_range
from maintainer.merge.stream import EXPANSION, key_batch_rows, merge_runs, scan
from maintainer.merge.windows import BATCH_ROWS
from maintainer.model.bucket import BucketState
from maintainer.model.files import DataFileMeta, FileSource
from maintainer.model.schema import KIND_FIELD, SEQUENCE_FIELD, TableSchema
from maintainer.model.work import CompactionUnit
from maintainer.table.merging import MergeRules
from maintainer.table.options import TableOptions
from maintainer.table.store import TableStore

PAGE_BYTES = 1 << 20
"""What writers make a page of, as a rule."""
REMOTE_BYTES = 16 << 20
"""What is fetched at a time from a remote store, and held, is no more than this."""


def unit_options(options: TableOptions, max_level: int, rewrite_append: bool) -> UnitOptions:
    """What the steps of a unit depend on, for a table with these options."""
    return UnitOptions(
        max_level=max_level,
        small_file_size=int(options.target_file_size * options.small_file_ratio),
        deletion_vectors=options.deletion_vectors_enabled,
        rewrite_append=rewrite_append,
    )


def append_files(files: Iterable[DataFileMeta]) -> list[DataFileMeta]:
    """Files above level 0 that no index may cover, because no compaction wrote them; lowest level first."""
    found = (file for file in files if file.level > 0 and not file.is_index_source)
    return sorted(found, key=lambda file: (file.level, file.file_name))


class BucketCompaction:
    """The compaction of one bucket: `run` units, then take `before`, `after`, `files` and `deletions`."""

    def __init__(
        self,
        store: TableStore,
        schema: TableSchema,
        bucket: BucketState,
        deletions: DeletionVectors,
        attempt: Attempt,
        memory: int,
        spill: Spill,
        rewrite_append: bool,
        progress: Callable[[int], None],
    ) -> None:
        """`schema` is what is written; `rewrite_append`: index definitions want COMPACT files; `memory` is the budget of merging, in bytes, and
        what does not fit goes to `spill`."""
        self.store = store
        self.schema = schema
        self.bucket = bucket
        self.deletions = deletions
        self.attempt = attempt
        self.memory = memory
        self.spill = spill
        self.rewrite_append = rewrite_append
        self.progress = progress
        self.options = TableOptions.of(schema)
        self.key_names = schema.trimmed_primary_keys
        self.key_types = schema.key_types
        self.files = {file.file_name: file for file in bucket.files}
        self.before: dict[str, DataFileMeta] = {}
        self.after: dict[str, DataFileMeta] = {}
        self.bytes_read = 0
        self._made: set[str] = set()

    def levels(self) -> Levels:
        """The bucket as it is now."""
        return restore(list(self.files.values()), self.options.num_levels, key_range(self.key_types))

    def run(self, unit: CompactionUnit) -> None:
        """Compact the files of a unit."""
        levels = self.levels()
        if not 0 <= unit.output_level <= levels.max_level:
            raise UsageError(f"there is no level {unit.output_level} to compact into; the highest is {levels.max_level}")
        options = unit_options(self.options, levels.max_level, self.rewrite_append)
        disordered = self._disordered(unit.files)
        for step in steps(unit, key_range(self.key_types), options, disordered):
            if isinstance(step, Rewrite):
                self._rewrite(step, unit, levels, disordered)
            elif isinstance(step, Upgrade):
                if step.lookup:
                    self._mark_older_versions(step.file, unit, levels)
                self._replace([step.file], [replace(step.file, level=unit.output_level)])

    def rewrite_where_they_are(self) -> None:
        """Rewrite each APPEND file above level 0 in its level, so that indexes may cover it (decision 5)."""
        for file in append_files(self.files.values()):
            self.run(CompactionUnit(file.level, (file,), file_rewrite=True))

    def open(self, meta: DataFileMeta) -> DataFile:
        """A data file of the bucket, read with the schema that is written."""
        path = self.store.layout.data_file_path(self.bucket.partition, self.bucket.bucket, meta)
        return open_data_file(self.store.storage, path, meta, self.store.schema(meta.schema_id), self.schema)

    def _disordered(self, files: Sequence[DataFileMeta]) -> dict[str, tuple[Any, Any]]:
        """The real key ranges of level-0 files whose rows are not in key order, or not within the bounds of their metadata."""
        bounds = key_range(self.key_types)
        disordered = {}
        for file in (file for file in files if file.level == 0):
            found = scan(self._source(file), self.key_names, self.key_types)
            if found.smallest is not None and found.largest is not None:
                low, high = bounds(file)
                if not (found.ordered and low <= found.smallest and found.largest <= high):
                    disordered[file.file_name] = (found.smallest, found.largest)
        return disordered

    def _rewrite(self, step: Rewrite, unit: CompactionUnit, levels: Levels, disordered: dict[str, tuple[Any, Any]]) -> None:
        drop_deletes = drops_deletes(unit.output_level, levels.highest_level, self.options.deletion_vectors_enabled)
        columns = [*self.schema.names, SEQUENCE_FIELD.name, KIND_FIELD.name]
        rules = MergeRules.of(self.schema)
        function = merge_function(rules, self.schema)
        writer = DataFileWriter(
            self.store.storage,
            self.store.layout,
            self.schema,
            self.options,
            self.bucket.key,
            level=unit.output_level,
            source=FileSource.COMPACT,
            memory=self.memory,
        )
        try:
            with self._lookup(unit, levels) as lookup:
                for section in step.sections:
                    runs = [[self._source(file, file.file_name not in disordered, counted=True) for file in files] for files in section]
                    with closing(merge_runs(runs, columns, rules, self.key_names, self.key_types, self.memory, self.spill)) as windows:
                        for window in windows:
                            self.progress(0)
                            if step.lookup:
                                lookup.mark(window.group_keys(window.high < 0))
                            writer.write(function.merge(window, lookup=False).rows(drop_deletes))
                            del window  # or it is held while the next one is made
            made = writer.close()
        except BaseException:
            writer.abort()
            raise
        finally:
            self.attempt.created.extend(writer.created)
        self.attempt.bytes_written += sum(file.file_size for file in made)
        for file in step.files:
            self.deletions.remove(file.file_name)
        self._made.update(file.file_name for file in made)
        self._replace(step.files, made)

    def _mark_older_versions(self, file: DataFileMeta, unit: CompactionUnit, levels: Levels) -> None:
        """What a level-0 file that stays as it is does to the files above the output level (spec 04 §6.2 "lookup, no rewrite")."""
        with self._lookup(unit, levels) as lookup:
            for batch in self._read(file, self.key_names, key_batch_rows(file, BATCH_ROWS)):
                lookup.mark(Keys.of([batch.column(name) for name in self.key_names], self.key_types))

    def _lookup(self, unit: CompactionUnit, levels: Levels) -> PositionLookup:
        older = [run.files for run in levels.runs if run.level > unit.output_level]
        return PositionLookup(older, self.open, self.deletions, self.key_names, self.key_types)

    def _source(self, file: DataFileMeta, ordered: bool = True, counted: bool = False) -> Source:
        def read(columns: Sequence[str], batch_rows: int) -> Iterator[pa.RecordBatch]:
            for batch in self._read(file, columns, batch_rows, counted):
                self.progress(0)  # may raise to stop the work
                yield batch

        return Source(file, read, ordered, self._held(file))

    def _held(self, file: DataFileMeta) -> int:
        """About what a file holds in memory while it is read, beside the batches: a page of every column."""
        pages = min((len(self.schema.fields) + 2) * PAGE_BYTES, EXPANSION * file.file_size)
        return pages + (min(REMOTE_BYTES, file.file_size) if self.store.storage.remote else 0)

    def _read(self, file: DataFileMeta, columns: Sequence[str], batch_rows: int, counted: bool = False) -> Iterator[pa.RecordBatch]:
        """The live rows of a file, in file order. `counted`: as their share of its bytes, so that work on a large file is seen to go on."""
        vector = self.deletions.of(file.file_name)
        left = file.file_size
        with self.open(file) as opened:
            for first, batch in opened.batches(columns, batch_rows):
                yield batch if vector is None else _alive(batch, first, vector)
                if counted:
                    share = min(left, file.file_size * batch.num_rows // max(file.row_count, 1))
                    self.count(share)
                    left -= share
        if counted:
            self.count(left)

    def count(self, size: int) -> None:
        """So many bytes of input were worked through."""
        self.bytes_read += size
        self.progress(size)

    def _replace(self, before: Sequence[DataFileMeta], after: Sequence[DataFileMeta]) -> None:
        """Put files in the place of others, keeping both lists as the commit needs them."""
        for file in before:
            del self.files[file.file_name]
            self.after.pop(file.file_name, None)
            if file.file_name not in self._made:
                self.before.setdefault(file.file_name, file)
        for file in after:
            self.files[file.file_name] = self.after[file.file_name] = file
        gone = {file.file_name for file in before} & self._made - self.files.keys()
        layout = self.store.layout
        self.attempt.discard([layout.data_file_path(self.bucket.partition, self.bucket.bucket, name) for name in sorted(gone)])


def _alive(batch: pa.RecordBatch, first: int, vector: BitMap64) -> pa.RecordBatch:
    """The rows of a batch, the first of which is at position `first`, that a deletion vector leaves."""
    dead = vector & BitMap64(range(first, first + batch.num_rows))
    if not dead:
        return batch
    keep = np.ones(batch.num_rows, dtype=bool)
    keep[np.asarray(dead.to_array(), dtype=np.int64) - first] = False
    return batch.filter(pa.array(keep))
