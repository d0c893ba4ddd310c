"""Compacting the files of one bucket (spec 04 §4–§7, §9.4; Java `MergeTreeCompactTask`, `CompactResult`).

Holds the bucket as the attempt has left it so far: its files, its deletion vectors, and the two lists that the commit needs. A unit can be
followed by another one that takes what the first produced. Invariants:

    before   for each file that was there at the start and is not any more, or is elsewhere now: its metadata as they were at the start
    after    for each file that is new, or elsewhere now: its metadata as they are now
    neither  a file that the attempt made and consumed itself; it is deleted at once

Rewriting reads live rows only, so every vector of an input ends with it. What the records of a key become, what happens to its older version
above the output level, and what is told of it is `maintainer.maintain.evaluation`'s. Changelog files are created with the data files of the
same step, and are part of the same result: a compaction that fails leaves none, and one that is done again writes its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from maintainer.data.reader import DataFile, open_data_file
from maintainer.data.spill import Spill
from maintainer.data.writer import DataFileWriter
from maintainer.errors import MergeError, UsageError
from maintainer.maintain.attempt import Attempt
from maintainer.maintain.changelog import ChangelogRules
from maintainer.maintain.evaluation import LookupEvaluation, PlainEvaluation, inserts, wants_older_rows
from maintainer.maintain.lookup import DeletionVectors, Lookup
from maintainer.maintain.pick import Levels, restore
from maintainer.maintain.record_expiry import AliveRows, RecordExpiry
from maintainer.maintain.unit import Rewrite, Rewriter, UnitOptions, Upgrade, steps
from maintainer.maintain.unmarked import bucket_rules, schemas_without_vectors
from maintainer.merge.candidates import Candidates, SequenceOrder, Source
from maintainer.merge.engine import merge_function
from maintainer.merge.sections import key_range
from maintainer.merge.stream import held_bytes, key_batch_rows, merge_runs, row_width, scan
from maintainer.merge.windows import BATCH_ROWS, batch_rows_of, keys_of
from maintainer.model.bucket import BucketState
from maintainer.model.files import DataFileMeta, FileRole, FileSource
from maintainer.model.schema import KIND_FIELD, SEQUENCE_FIELD, TableSchema
from maintainer.model.work import CompactionUnit
from maintainer.table.merging import MergeRules
from maintainer.table.options import MergeEngine, TableOptions
from maintainer.table.store import TableStore

BATCH_BYTES = 8 << 20
"""Of rows of a file that moves as it is, and of which a changelog is written."""


def unit_options(
    schema: TableSchema,
    levels: Levels,
    rewrite_append: bool,
    expire_files: frozenset[str] = frozenset(),
    without_vectors: frozenset[int] = frozenset(),
) -> UnitOptions:
    """What the steps of a unit depend on, for a table with this schema."""
    options, rules = TableOptions.of(schema), MergeRules.of(schema)
    producer = options.changelog_producer
    rewriter = Rewriter.LOOKUP if options.needs_lookup else Rewriter.PLAIN
    return UnitOptions(
        max_level=levels.max_level,
        highest_level=levels.highest_level,
        small_file_size=int(options.target_file_size * options.small_file_ratio),
        rewriter=Rewriter.FULL_CHANGELOG if producer == "full-compaction" else rewriter,
        deletion_vectors=options.deletion_vectors_enabled,
        last_wins=rules.engine is MergeEngine.DEDUPLICATE and not rules.sequence_fields,
        ignore_delete=rules.ignore_delete,
        lookup_changelog=producer == "lookup",
        vector_index=bool(options.text("pk-vector.index.columns")),
        file_format=options.file_format,
        file_formats=options.file_format_per_level,
        rewrite_append=rewrite_append,
        force_rewrite_all_files=options.force_rewrite_all_files,
        expire_files=expire_files,
        without_vectors=without_vectors if options.deletion_vectors_enabled else frozenset(),
    )


def append_files(files: Iterable[DataFileMeta]) -> list[DataFileMeta]:
    """Files above level 0 that no index may cover, because no compaction wrote them; lowest level first."""
    found = (file for file in files if file.level > 0 and not file.is_index_source)
    return sorted(found, key=lambda file: (file.level, file.file_name))


class BucketCompaction:
    """The compaction of one bucket: `run` units, then take `before`, `after`, `changelog`, `files` and `deletions`."""

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
        now: int = 0,
    ) -> None:
        """`schema` is what is written; `rewrite_append`: index definitions want COMPACT files; `memory` is the budget of merging, in bytes, and
        what does not fit goes to `spill`; `now` is the time, in seconds, at which records expire."""
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
        self.rules = bucket_rules(schema, bucket.files, store.schema)
        self.sequence = SequenceOrder.of(self.rules, schema)
        self.function = merge_function(self.rules, schema)
        self.changelog_rules = ChangelogRules.of(schema)
        expiry = RecordExpiry.of(schema)
        self.alive = None if expiry is None else AliveRows(expiry, now)
        self.key_names = schema.trimmed_primary_keys
        self.key_types = schema.key_types
        self.files = {file.file_name: file for file in bucket.files}
        self.before: dict[str, DataFileMeta] = {}
        self.after: dict[str, DataFileMeta] = {}
        self.changelog: list[DataFileMeta] = []
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
        expired = frozenset() if self.alive is None else self.alive.expire_files(unit.files, self.store.schema)
        without_vectors = schemas_without_vectors(map(self.store.schema, {file.schema_id for file in unit.files} - {self.schema.id}))
        options = unit_options(self.schema, levels, self.rewrite_append, expired, without_vectors)
        disordered = self._disordered(unit.files)
        try:
            for step in steps(unit, key_range(self.key_types), options, disordered):
                if isinstance(step, Rewrite):
                    self._rewrite(step, unit, levels, options, disordered)
                elif isinstance(step, Upgrade):
                    if step.evaluate:
                        self._evaluate(step.file, unit, levels, options)
                    self._replace([step.file], [replace(step.file, level=unit.output_level)])
        except MergeError as error:
            place = self.store.storage.display(self.store.layout.bucket_directory(self.bucket.partition, self.bucket.bucket))
            raise MergeError(f"{place}: {error}") from error

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

    def _rewrite(
        self, step: Rewrite, unit: CompactionUnit, levels: Levels, options: UnitOptions, disordered: dict[str, tuple[Any, Any]]
    ) -> None:
        looks_up = options.rewriter is Rewriter.LOOKUP and unit.output_level > 0 and step.takes_level_0
        memory = self.memory // 2 if looks_up and self._wants_older_rows(options) else self.memory  # hits take as much as a window
        with self._writers(unit, options) as (writer, changelog), self._lookup(unit, levels, options) as lookup:
            top = levels.max_level if self._tells_inserts(unit, options) else None
            evaluation = lookup if looks_up else PlainEvaluation(self.function, self.changelog_rules, top)
            joined = lookup.lookup.row_bytes if looks_up else 0.0
            for section in step.sections:
                runs = [[self._source(file, file.file_name not in disordered, counted=True) for file in files] for files in section]
                merged = merge_runs(runs, self._columns, self.rules, self.key_names, self.key_types, memory, self.spill, joined)
                with closing(merged) as windows:
                    for window in windows:
                        self.progress(0)
                        found = evaluation.evaluate(window, step.drop_deletes)
                        writer.write(found.rows)
                        if found.changes is not None:
                            changelog.write(found.changes)
                        del window, found  # or they are held while the next ones are made
            made = writer.close()
            told = changelog.close()
        self.attempt.bytes_written += sum(file.file_size for file in (*made, *told))
        for file in step.files:
            self.deletions.remove(file.file_name)
        self._made.update(file.file_name for file in made)
        self.changelog += told
        self._replace(step.files, made)

    def _evaluate(self, file: DataFileMeta, unit: CompactionUnit, levels: Levels, options: UnitOptions) -> None:
        """What a file that stays as it is does to the files above the output level, and what is told of it (spec 04 §6.2, §8.3)."""
        if not (options.lookup_changelog or self._wants_older_rows(options) or self._tells_inserts(unit, options)):
            with self._lookup(unit, levels, options) as lookup:
                for batch in self._read(file, self.key_names, key_batch_rows(file, BATCH_ROWS)):
                    lookup.mark(keys_of(batch, self.key_names, self.key_types, file))
            return
        with self._writers(unit, options) as (_, changelog), self._lookup(unit, levels, options) as lookup:
            size = min(BATCH_BYTES, self.memory // 16)
            batch_rows = batch_rows_of(size, max(row_width([self._source(file)], self._columns, size), lookup.lookup.row_bytes))
            for batch in self._read(file, self._columns, batch_rows, counted=True):
                self.progress(0)
                rows = pa.Table.from_batches([batch])
                if self._tells_inserts(unit, options):
                    changelog.write(inserts(rows))
                    continue
                keys = keys_of(batch, self.key_names, self.key_types, file)
                candidates = Candidates.unique(rows, keys, np.full(len(keys), file.level, dtype=np.int8), self.sequence)
                changes = lookup.evaluate(candidates, drop_deletes=False).changes
                if changes is not None:
                    changelog.write(changes)
            told = changelog.close()
        self.attempt.bytes_written += sum(made.file_size for made in told)
        self.changelog += told

    @property
    def _columns(self) -> list[str]:
        return [*self.schema.names, SEQUENCE_FIELD.name, KIND_FIELD.name]

    def _wants_older_rows(self, options: UnitOptions) -> bool:
        return wants_older_rows(self.rules, options.lookup_changelog)

    def _tells_inserts(self, unit: CompactionUnit, options: UnitOptions) -> bool:
        """Whether readers of changes are told what is in the highest level from now on."""
        return options.rewriter is Rewriter.FULL_CHANGELOG and unit.output_level == options.max_level

    @contextmanager
    def _writers(self, unit: CompactionUnit, options: UnitOptions) -> Iterator[tuple[DataFileWriter, DataFileWriter]]:
        """Of data and of the changelog. Whatever happens, all files that they began are on record; when something does, they are given up."""
        with ExitStack() as given_up:
            pair = []
            for role, source in ((FileRole.DATA, FileSource.COMPACT), (FileRole.CHANGELOG, FileSource.APPEND)):
                writer = DataFileWriter(
                    self.store.storage,
                    self.store.layout,
                    self.schema,
                    self.options,
                    self.bucket.key,
                    level=unit.output_level,
                    source=source,
                    role=role,
                    memory=self.memory,
                )
                given_up.callback(self._give_up, writer)
                pair.append(writer)
            yield pair[0], pair[1]
            given_up.pop_all()
            for writer in pair:
                self.attempt.created.extend(writer.created)

    def _give_up(self, writer: DataFileWriter) -> None:
        self.attempt.created.extend(writer.created)
        writer.abort()

    @contextmanager
    def _lookup(self, unit: CompactionUnit, levels: Levels, options: UnitOptions) -> Iterator[LookupEvaluation]:
        wants_rows = self._wants_older_rows(options)
        is_first_row = self.rules.engine is MergeEngine.FIRST_ROW
        with Lookup(
            [run.files for run in levels.runs if run.level > unit.output_level],
            self.open,
            self.deletions,
            self.key_names,
            self.key_types,
            columns=self._columns if wants_rows else (),
            keep=None if is_first_row else self.alive,
            cache=self.attempt.cache,
            place=self.attempt.place,
        ) as lookup:
            marks = options.deletion_vectors
            yield LookupEvaluation(self.function, self.changelog_rules, lookup, is_first_row, marks, wants_rows, options.lookup_changelog)

    def _source(self, file: DataFileMeta, ordered: bool = True, counted: bool = False) -> Source:
        def read(columns: Sequence[str], batch_rows: int) -> Iterator[pa.RecordBatch]:
            for batch in self._read(file, columns, batch_rows, counted, rewritten=counted):
                self.progress(0)  # may raise to stop the work
                yield batch

        return Source(file, read, ordered, held_bytes(file, len(self._columns), self.store.storage.remote))

    def _read(
        self, file: DataFileMeta, columns: Sequence[str], batch_rows: int, counted: bool = False, rewritten: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """The rows of a file without those that its vector deletes, in file order; to be `rewritten`, without those that have expired, too.
        They are `counted` as their share of its bytes, so that work on a large file is seen to go on."""
        vector = self.deletions.of(file.file_name)
        left = file.file_size
        alive = self.alive if self.alive is not None and rewritten else None
        with self.open(file) as opened:
            for first, physical in opened.batches(columns, batch_rows):
                batch = physical if vector is None else _alive(physical, first, vector)
                yield batch if alive is None else batch.filter(pa.array(alive.keeps(batch)))
                if counted:
                    share = min(left, file.file_size * physical.num_rows // max(file.row_count, 1))
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
