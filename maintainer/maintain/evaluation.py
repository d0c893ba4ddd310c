"""What the records of each key become in a compaction, and what is told of it (spec 04 §6.1, §8.2, §8.3; Java `LookupMergeFunction`,
`LookupChangelogMergeFunctionWrapper`, `FirstRowMergeFunctionWrapper`, `FullChangelogMergeFunctionWrapper`).

    plain           the merge function decides
    lookup          of keys without a record above level 0 the older version is looked up above the output level; with deletion vectors it ends
                    there. It joins the records of its key, unless the newest record wins anyway and nobody wants to know what was before
    first row       a key that has a row above the output level has its first row already
    full changelog  the row of the highest level is what readers of changes know

Invariant: a window holds all records of its keys, so nothing is remembered from one window to the next.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from maintainer.maintain import changelog
from maintainer.maintain.changelog import NOTHING, Bools, ChangelogRules
from maintainer.maintain.lookup import Lookup
from maintainer.merge.candidates import Candidates
from maintainer.merge.engine import Merged, MergeFunction
from maintainer.merge.order import Int64s, Keys
from maintainer.model.schema import KIND_FIELD
from maintainer.table.merging import MergeRules
from maintainer.table.options import MergeEngine


def wants_older_rows(rules: MergeRules, writes_changelog: bool) -> bool:
    """Whether the older version of a key is needed itself, and not only where it is."""
    is_first_row = rules.engine is MergeEngine.FIRST_ROW
    newest_wins = rules.engine is MergeEngine.DEDUPLICATE and not rules.sequence_fields and not rules.ignore_delete
    return not is_first_row and (writes_changelog or not newest_wins)


@dataclass(frozen=True)
class Evaluated:
    """`rows` are what is written, `changes` what is told; None: no changelog is written here."""

    rows: pa.Table
    changes: pa.Table | None = None


@dataclass(frozen=True)
class PlainEvaluation:
    """`top_level`: a changelog is written from what this level, the highest one, has of a key; None: none is."""

    function: MergeFunction
    rules: ChangelogRules
    top_level: int | None = None

    def evaluate(self, candidates: Candidates, drop_deletes: bool) -> Evaluated:
        merged = self.function.merge(candidates, lookup=False)
        if self.top_level is None:
            return Evaluated(merged.rows(drop_deletes))
        top = _rows_of_level(candidates, self.top_level)
        touched = (top < 0) | (candidates.lengths > 1)
        return Evaluated(merged.rows(drop_deletes), _changes(candidates, merged, top, touched, self.rules))


@dataclass(frozen=True)
class LookupEvaluation:
    """`marks`: versions that are found end in a deletion vector; `wants_rows`: see `wants_older_rows`."""

    function: MergeFunction
    rules: ChangelogRules
    lookup: Lookup
    first_row: bool
    marks: bool
    wants_rows: bool
    writes_changelog: bool

    def mark(self, keys: Keys) -> None:
        """End the older versions of keys of which nothing else is wanted."""
        self.lookup.find(keys, mark=self.marks)

    def evaluate(self, candidates: Candidates, drop_deletes: bool) -> Evaluated:
        if self.first_row:
            return self._first_rows(candidates)
        new = candidates.high < 0
        if (self.marks or self.wants_rows) and self.lookup.has_files:
            hits = self.lookup.find(candidates.group_keys(new), mark=self.marks)
            if self.wants_rows and len(hits):
                assert hits.rows is not None
                candidates = candidates.joined(hits.rows, np.flatnonzero(new)[hits.indices], hits.levels)
        merged = self.function.merge(candidates, lookup=True)
        if not self.writes_changelog:
            return Evaluated(merged.rows(drop_deletes))
        changes = _changes(candidates, merged, candidates.high, candidates.has_level_0, self.rules)
        return Evaluated(merged.rows(drop_deletes), changes)

    def _first_rows(self, candidates: Candidates) -> Evaluated:
        new = candidates.high < 0
        known = np.flatnonzero(new)[self.lookup.find(candidates.group_keys(new)).indices]
        is_known = np.zeros(candidates.groups, dtype=np.bool_)
        is_known[known] = True
        merged = self.function.merge(candidates, lookup=True)
        rows = merged.take(np.flatnonzero(~is_known[merged.groups]))
        if not self.writes_changelog:
            return Evaluated(rows)
        return Evaluated(rows, merged.take(np.flatnonzero((new & ~is_known)[merged.groups])))  # of the kind that they have


def inserts(rows: pa.Table) -> pa.Table:
    """The changelog of a file that nobody knew a row of."""
    kinds = rows.column(KIND_FIELD.name).to_numpy()
    none = np.full(len(kinds), NOTHING, dtype=np.int8)
    return changelog.records(rows.slice(0, 0), none, rows, kinds, ChangelogRules())


def _changes(candidates: Candidates, merged: Merged, before: Int64s, touched: Bools, rules: ChangelogRules) -> pa.Table:
    """`before`: by group the row that readers know, or −1; `touched`: the groups that may have changed."""
    result = np.full(candidates.groups, -1, dtype=np.int64)
    result[merged.groups] = np.arange(len(merged.groups))
    groups = np.flatnonzero(touched)
    before, result = before[groups], result[groups]
    had, has = before >= 0, result >= 0
    before_kinds = np.full(len(groups), NOTHING, dtype=np.int8)
    before_kinds[had] = candidates.kinds[before[had]]
    after_kinds = np.full(len(groups), NOTHING, dtype=np.int8)
    after_kinds[has] = merged.kinds[result[has]]
    after = merged.take(result[has])
    rows = candidates.rows.select(after.column_names).take(pa.array(before[had]))
    return changelog.records(rows, before_kinds, after, after_kinds, rules)


def _rows_of_level(candidates: Candidates, level: int) -> Int64s:
    """By group the row of a level, or −1."""
    found = np.full(candidates.groups, -1, dtype=np.int64)
    at = np.flatnonzero(candidates.levels[candidates.order] == level)
    found[np.searchsorted(candidates.starts, at, "right") - 1] = candidates.order[at]
    return found
