"""Which files of a snapshot a scan reads, and which of their rows (spec 07 §1, §7, §10.1, §10.3; Java `MergeTreeSplitGenerator`).

    partition → bucket → level → key range → statistics → index

Every step only removes, and all of them work on the columns of all files (`maintainer.read.file_columns`); what is left after each is counted.
For each live file there is one decision (`maintainer.read.decisions`).

The predicate itself is evaluated on every row that comes out, so a file too many only costs time. One that is pruned is never looked at: bounds
and indexes may err to one side only.

Where deletion vectors, or the first-row engine, leave one live row of each key above level 0, no file is merged. Elsewhere files whose key
ranges overlap are (`maintainer.merge.sections`), and of these statistics may remove single files only for what a condition says of the key:
what they say of other columns may be about rows that newer ones replace. All files of a section together may be removed where a row that
comes out of it is one that went in, as it is with the deduplicate engine. A file that overlaps nothing and holds no delete is read as it is.

Tables that got deletion vectors after they were compacted without them have buckets that must be merged all the same, until they are compacted
in full (`maintainer.maintain.unmarked`).
"""

from __future__ import annotations

from functools import partial
from threading import Semaphore

import numpy as np
import numpy.typing as npt

from maintainer.errors import Unsupported, UsageError
from maintainer.index.cache import cache_of
from maintainer.index.definition import SORTED, IndexDefinition, definitions
from maintainer.index.groups import NOT_VISIBLE, POSTPONED
from maintainer.index.usable import why_unusable
from maintainer.maintain.unmarked import schemas_without_vectors, unmarked
from maintainer.merge.sections import key_range
from maintainer.model.predicate import Predicate, fields_of
from maintainer.read.covering import MOST_KEPT
from maintainer.read.decisions import INDEXED, MERGED, PRUNED, RAW, Decisions, FilePlans, ScanPlan, Step, Why
from maintainer.read.evaluate import Answers, BucketIndexes
from maintainer.read.file_columns import UNKNOWN, FileColumns
from maintainer.read.ordinals import MOST_RANGES, ranges_of
from maintainer.read.project import project
from maintainer.read.prune import Buckets
from maintainer.read.ranked import RankedBounds, may_match
from maintainer.read.residual import mask
from maintainer.storage.ahead import in_turn
from maintainer.table.options import MergeEngine
from maintainer.table.state import TableState
from maintainer.table.store import TableStore

Flags = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int64]

LAST_POSITION = 2**31 - 1
"""A file is read raw if a selected row is behind it (spec 07 §7)."""
NO_PARTITION = "partition: no row can match"
NO_BUCKET = "bucket: the keys of the condition are in others"
NO_KEY = "key range: no row can match"
NO_ROW = "statistics: no row can match"
NO_POSITION = "index: no row matches"


def plan_scan(store: TableStore, state: TableState, predicate: Predicate | None, use_index: bool = True) -> ScanPlan:
    """The decisions, in order of partition, bucket and manifest."""
    return _Planner(store, state, predicate, use_index).plan()


class _Planner:
    def __init__(self, store: TableStore, state: TableState, predicate: Predicate | None, use_index: bool) -> None:
        self._store = store
        self._state = state
        self._schema = state.schema
        self._predicate = predicate
        self._columns = FileColumns.of(state)
        self._decisions = Decisions(self._columns)
        options = store.options(state.schema)
        self._engine = options.merge_engine
        self._hides_level_0 = options.hides_level_0 and bool(state.schema.primary_keys)
        self._merges = bool(state.schema.primary_keys) and not self._hides_level_0
        self._without_vectors: frozenset[int] = frozenset()
        if options.deletion_vectors_enabled and self._hides_level_0:
            self._without_vectors = schemas_without_vectors(store.schema(schema_id) for schema_id in state.schema_ids)
        self._relaxed = options.relaxed_group_acceptance
        self._threads = options.integer("global-index.thread-num", 32, minimum=1)
        self._gate = Semaphore(self._threads)
        self._coverings = store.cache("coverings", MOST_KEPT)
        self._cache = cache_of(store, options.index_cache_size)
        self._bucket_function = options.bucket_function
        self._steps: list[Step] = []
        self._definitions: tuple[IndexDefinition, ...] = ()
        self._projected: Predicate | None = None
        if predicate is None:
            self._no_index = "no condition"
        elif not use_index or not options.boolean("global-index.enabled", True):
            self._no_index = "indexes are switched off"
        elif not state.schema.primary_keys:
            self._no_index = "tables without a primary key have no index"
        elif not self._hides_level_0:
            self._no_index = "tables that are merged while they are read have no index"
        else:
            self._no_index = self._choose_indexes(predicate)

    def _choose_indexes(self, predicate: Predicate) -> str:
        """Sets the indexes that are asked, and what of them; the result says why there may be none."""
        wanted = fields_of(predicate)
        found, mistake = [], None
        try:
            found = [each for each in definitions(self._schema) if each.family in SORTED and each.column in wanted]
        except UsageError as error:  # rows are what they are, whatever options of indexes say
            mistake = str(error)
        schemas = self._state.schemas_since(self._store) if found else ()
        unusable = {each.column: why for each in found if (why := why_unusable(each, schemas)) is not None}
        readable = [each for each in found if each.column not in unusable]
        self._projected = project(predicate, {each.column for each in readable})
        self._definitions = tuple(each for each in readable if self._projected and each.column in fields_of(self._projected))
        if not found:
            return mistake or "no index on the columns of the condition"
        if not readable:
            return "; ".join(f"{column}: {why}" for column, why in unusable.items())
        return "a row may satisfy the condition by a column without index"

    def plan(self) -> ScanPlan:
        columns, decisions = self._columns, self._decisions
        left = np.ones(len(columns), bool)
        self._count("files", left)
        left = self._keep("partition", left, self._of_partitions()[columns.bucket_of], NO_PARTITION)
        left = self._keep("bucket", left, self._of_buckets()[columns.bucket_of], NO_BUCKET)
        postponed = (columns.bucket_numbers < 0)[columns.bucket_of]
        seen = ~postponed & ((columns.levels > 0) if self._hides_level_0 else True)
        decisions.decide(left & postponed, Why(PRUNED, POSTPONED))
        decisions.decide(left & ~postponed & ~seen, Why(PRUNED, NOT_VISIBLE))
        hidden = left & ~seen
        left = left & seen
        self._count("level", left)
        by_key, by_row = self._of_keys(), self._of_rows()
        left = self._keep("key range", left, by_key, NO_KEY)
        # what a row of level 0 becomes when it is merged may match where it does not itself
        may_appear = by_row if self._engine in (MergeEngine.DEDUPLICATE, MergeEngine.FIRST_ROW) else by_key
        left, alone = self._merge(left, by_row)
        self._count("statistics", left)
        alone = self._take_deletes_out(alone)
        if self._projected is None:
            decisions.decide(alone, Why(RAW, self._no_index))
        else:
            self._ask_indexes(alone)
            left = decisions.read(np.arange(len(columns)))
        self._steps.append(Step("index", int(left.sum()), decisions.rows, int(columns.sizes[left].sum())))
        every = np.arange(len(columns))
        return ScanPlan(
            self._state.snapshot,
            self._schema,
            self._predicate,
            FilePlans(decisions, every),
            tuple(self._steps),
            FilePlans(decisions, every[hidden & may_appear]),
        )

    def _count(self, name: str, left: Flags) -> None:
        columns = self._columns
        self._steps.append(Step(name, int(left.sum()), int(columns.rows[left].sum()), int(columns.sizes[left].sum())))

    def _keep(self, step: str, left: Flags, allowed: Flags, reason: str) -> Flags:
        self._decisions.decide(left & ~allowed, Why(PRUNED, reason))
        left = left & allowed
        self._count(step, left)
        return left

    def _of_partitions(self) -> Flags:
        """For each bucket whether the part of the predicate that speaks of partition columns holds for it."""
        columns, keys = self._columns, self._schema.partition_keys
        part = None if self._predicate is None or not keys else project(self._predicate, keys)
        if part is None:
            return np.ones(len(columns.buckets), bool)
        values = columns.partition_values(self._schema, self._store.layout.partition_values)
        found: Flags = mask(part, values, self._schema)[columns.partition_of]
        return found

    def _of_buckets(self) -> Flags:
        """For each bucket whether keys of the predicate can be in it."""
        columns = self._columns
        found = np.ones(len(columns.buckets), bool)
        if self._predicate is None:
            return found
        buckets = Buckets(self._predicate, self._schema, self._bucket_function)
        for total in np.unique(columns.total_buckets).tolist():
            numbers = buckets.numbers(total)
            if numbers is not None:
                found &= (columns.total_buckets != total) | (columns.bucket_numbers < 0) | np.isin(columns.bucket_numbers, numbers)
        return found

    def _of_keys(self) -> Flags:
        """For each file whether its keys can be those of a matching row."""
        keys = self._schema.trimmed_primary_keys
        return self._may_match(None if self._predicate is None else project(self._predicate, keys))

    def _of_rows(self) -> Flags:
        """For each file whether a row in it can match."""
        return self._may_match(self._predicate)

    def _may_match(self, predicate: Predicate | None) -> Flags:
        columns = self._columns
        if predicate is None:
            return np.ones(len(columns), bool)

        def bounds(name: str) -> RankedBounds:
            if name in self._schema.partition_keys:
                return RankedBounds.unknown(len(columns))
            return columns.bounds(self._schema.field(name), self._store.schema)

        return may_match(predicate, bounds, len(columns))

    def _merge(self, left: Flags, by_row: Flags) -> tuple[Flags, Flags]:
        """Decides for files that have to be merged with one another, and for those in which statistics find no row. Which files are left, and
        which of them are read alone."""
        merged = np.zeros(len(left), bool)
        overlap = np.flatnonzero(left & self._overlapping_buckets()[self._columns.bucket_of])
        if len(overlap):
            ordered, starts, sizes = self._columns.sections(overlap, self._schema.key_types)
            together = sizes > 1
            if self._engine is MergeEngine.DEDUPLICATE:  # a row that comes out of a section is one that went in
                together &= np.logical_or.reduceat(by_row[ordered], starts)
            files, others = ordered[np.repeat(together, sizes)], np.repeat(sizes[together], sizes[together]) - 1
            merged[files] = True
            self._decisions.merge(files, np.repeat(np.minimum.reduceat(ordered, starts)[together], sizes[together]))
            for count in np.unique(others).tolist():
                reason = f"its keys may be in {count} other file{'s' if count > 1 else ''}, too"
                self._decisions.decide(files[others == count], Why(MERGED, reason))
        alone = left & ~merged
        self._decisions.decide(alone & ~by_row, Why(PRUNED, NO_ROW))
        alone = alone & by_row
        return alone | merged, alone

    def _overlapping_buckets(self) -> Flags:
        """For each bucket whether keys may be in several of its files."""
        columns, schema = self._columns, self._schema
        if self._merges:
            if any(data_type.nullable for data_type in schema.key_types):
                raise Unsupported("primary-key.nullable: null keys are not merged yet")
            return np.ones(len(columns.buckets), bool)
        if not self._without_vectors:
            return np.zeros(len(columns.buckets), bool)
        key = key_range(schema.key_types)
        return columns.kept(
            ("unmarked", self._without_vectors, schema.key_types),
            lambda: np.array([unmarked(bucket.files, self._without_vectors, key) is not None for bucket in columns.buckets], bool),
        )

    def _take_deletes_out(self, alone: Flags) -> Flags:
        """Decides for files that may hold deletes. Old writers did not count those; with deletion vectors they left none above level 0."""
        if not self._schema.primary_keys:
            return alone
        deletes = self._columns.deletes
        holds = alone & ((deletes > 0) | ((deletes == UNKNOWN) & (not self._hides_level_0)))
        self._decisions.decide(holds, Why(MERGED, "its deletes are taken out"))
        self._decisions.merge(np.flatnonzero(holds), np.flatnonzero(holds))
        rest: Flags = alone & ~holds
        return rest

    def _ask_indexes(self, files: Flags) -> None:
        """Decides for files of which every row comes out."""
        assert self._projected is not None
        columns = self._columns
        candidates = np.flatnonzero(files)
        if not len(candidates):
            return
        buckets = np.split(candidates, np.flatnonzero(np.diff(columns.bucket_of[candidates])) + 1)
        found = in_turn(self._store.storage, (partial(self._answers, files, self._projected) for files in buckets), self._threads)
        for of_bucket, several in zip(buckets, found, strict=True):
            start = columns.starts[columns.bucket_of[of_bucket[0]]]
            for answers in several:
                self._narrow(answers, answers.places + start)

    def _answers(self, files: Numbers, predicate: Predicate) -> list[Answers]:
        """What the indexes say about files of one bucket."""
        columns, number = self._columns, int(self._columns.bucket_of[files[0]])
        coverings = [columns.covering(number, definition, self._relaxed, self._coverings) for definition in self._definitions]
        indexes = BucketIndexes(self._store, columns.buckets[number], self._definitions, coverings, self._cache, self._gate)
        return indexes.answers(predicate, files - columns.starts[number])

    def _narrow(self, answers: Answers, files: Numbers) -> None:
        """Decides for files by what the indexes say."""
        decisions, rows = self._decisions, self._columns.rows[files]
        column = ", ".join(dict.fromkeys(name for name, _ in answers.used)) or None
        group = ", ".join(dict.fromkeys(payload for _, payload in answers.used)) or None
        if answers.ordinals is None:
            decisions.decide(files, Why(RAW, "; ".join(answers.why_unknown) or "no index answers the condition"))
            return
        decisions.decide(files, Why(PRUNED, NO_POSITION, column, group))
        for at, selected, count, ranges in ranges_of(answers.ordinals, answers.first, rows):
            if count > MOST_RANGES:
                decisions.decide(files[at : at + 1], Why(RAW, f"the index selects {count} ranges, more than {MOST_RANGES}", column, group))
            elif (last := int(ranges[-1, 1])) > LAST_POSITION:
                reason = f"the index selects position {last}, and {LAST_POSITION} is the last that a split can hold"
                decisions.decide(files[at : at + 1], Why(RAW, reason, column, group))
            else:
                reason = f"index: {selected} of {rows[at]} rows"
                decisions.narrow(int(files[at]), Why(INDEXED, reason, column, group), selected, ranges)
