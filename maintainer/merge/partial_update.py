"""The partial-update engine: the newest values of a key, column by column (spec 05 §4; Java `PartialUpdateMergeFunction`).

For each column it is worked out which record its value comes from; then one gather for each column makes the rows. Only groups with several
records need that. Records do one of these things to a column:

    plain              an add gives its value unless it is NULL; a removal, and a retract that comes first, gives its value even if it is NULL
    sequence field     a record that is not older, by all sequence fields of its group, gives its value
    protected          so does such an add, even NULL; such a retract makes it NULL
    protected, folded  with an aggregate function: adds apply, or apply reversed where they are older; retracts retract

Whether a record is older depends on what the records before it did, so that groups of columns are followed rank by rank: the first records of
all keys, the second ones, … (spec 05 §8). Sequence fields are compared as ranks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import cast

import numpy as np
import numpy.typing as npt

from maintainer.errors import MergeError
from maintainer.merge.aggregate import Folded, Records, Verdict, folded
from maintainer.merge.candidates import Candidates, sequence_words
from maintainer.merge.computed import Computed
from maintainer.merge.naming import key_text
from maintainer.merge.order import Int64s, Keys
from maintainer.model.row_kind import DELETE, INSERT, RETRACT_BIT
from maintainer.model.schema import KIND_FIELD, SEQUENCE_FIELD
from maintainer.table.merging import MergeRules, SequenceGroup, merged_columns

Bools = npt.NDArray[np.bool_]
Int8s = npt.NDArray[np.int8]


@dataclass(frozen=True)
class PartialUpdate:
    """The engine of one table."""

    rules: MergeRules

    @cached_property
    def groups(self) -> Mapping[str, SequenceGroup]:
        """The sequence group of each column that is in one."""
        return {name: group for group in self.rules.groups for name in group.columns}

    def columns(self, wanted: Iterable[str]) -> tuple[str, ...]:
        """These, and the sequence fields that decide about them; all that may remove the record (spec 05 §4.6)."""
        removing = [name for group in self.rules.groups for name in group.fields if name in self.rules.remove_record_on_sequence_group]
        return merged_columns((*wanted, *removing), self.rules)

    def merge(self, candidates: Candidates, lookup: bool) -> Computed:
        """One record for each key."""
        counting = candidates.counting() if self.rules.needs_lookup else candidates
        order, starts, last = counting.order, counting.starts, counting.last
        kinds = candidates.kinds[last]
        computed = np.flatnonzero(candidates.lengths > (0 if lookup else 1))
        if not len(computed):
            return Computed(candidates.rows, last, kinds, computed, {})
        found = _Records.of(candidates, order, starts, computed, self.rules)
        columns = found.by_groups(self.groups) if self.rules.groups else found.plain()
        kinds = kinds.copy()
        kinds[computed] = found.result_kinds
        return Computed(candidates.rows, last, kinds, computed, columns, found.result_sequences)


class _Records:
    """The records of the groups that are worked out. `rows` are those of the candidates, group by group; all masks are by record."""

    def __init__(self, candidates: Candidates, rows: Int64s, starts: Int64s, computed: Int64s, rules: MergeRules) -> None:
        self.candidates = candidates
        self.rows = rows
        self.starts = starts
        self.computed = computed
        self.rules = rules
        self.kinds = candidates.kinds[rows]
        self.retracts: Bools = (self.kinds & RETRACT_BIT) != 0
        self.at = np.arange(len(rows))
        self.lengths: Int64s = np.diff(starts, append=len(rows))
        self.based = np.zeros(len(rows), np.bool_)
        """A retract that comes first: all its values are those of the row, before anything else."""
        self.based[starts] = self.retracts[starts]
        self.replaces = self.based
        """The record's values become those of the row, even NULL."""
        self.removes = np.zeros(len(rows), np.bool_)
        self.removed_at = np.full(len(rows), -1, np.int64)
        """The place, in the schema, of the sequence field at which a record removes the row; columns before it take back its values first."""
        if not self.retracts.any():
            return
        if rules.remove_record_on_delete:
            self.removes = self.kinds == DELETE
            self.replaces = self.based | self.removes
        elif not rules.ignore_delete and not rules.groups:
            raise MergeError(
                f"key {self._key_of(self.retracts)}: the partial-update engine takes no -U and -D records; set ignore-delete = true, "
                "partial-update.remove-record-on-delete = true, or sequence groups (fields.<sequence field>.sequence-group)"
            )

    @classmethod
    def of(cls, candidates: Candidates, order: Int64s, starts: Int64s, computed: Int64s, rules: MergeRules) -> _Records:
        """The records of these groups, in this order."""
        if len(computed) == len(starts):
            return cls(candidates, order, starts, computed, rules)
        lengths = np.diff(starts, append=len(order))
        chosen = np.zeros(len(starts), np.bool_)
        chosen[computed] = True
        before = np.cumsum(lengths[computed]) - lengths[computed]
        return cls(candidates, order[np.repeat(chosen, lengths)], before, computed, rules)

    @property
    def result_sequences(self) -> Int64s:
        """The number of the last record that is not ignored, 0 if all are."""
        counted = ~self.retracts if self.rules.ignore_delete else np.ones(len(self.rows), np.bool_)
        last = self._last(counted)
        return np.where(last < 0, 0, _numbers(self.candidates, self.rows[last]))

    @property
    def result_kinds(self) -> Int8s:
        added = np.logical_or.reduceat(~self.retracts, self.starts)
        removed = self.removes[self.starts + self.lengths - 1]
        return np.where(removed | ~added, DELETE, INSERT).astype(np.int8)

    def plain(self) -> dict[str, Folded]:
        """The sources of all columns without sequence groups."""
        adds = ~self.retracts
        self._check_not_null(adds | self.replaces)
        return self._plain(self.candidates.rows.column_names, adds)

    def by_groups(self, group_of: Mapping[str, SequenceGroup]) -> dict[str, Folded]:
        """The sources of all columns with sequence groups."""
        names = self.candidates.rows.column_names
        groups = [group for group in self.rules.groups if set(group.fields) <= set(names)]
        wins, absent = self._followed(groups)
        self._check_not_null(self.replaces)
        columns = self._plain([name for name in names if name not in group_of], ~self.retracts)
        effective = ~self.removes if not self.rules.ignore_delete else ~self.retracts
        for group, win, missing in zip(groups, wins, absent, strict=True):
            wanted = [name for name in group.columns if name in names]
            touches = effective & ~missing
            won = touches & win
            deciding = self._last(won | self.replaces)
            copied = self._sources(deciding)
            nulled = (deciding >= 0) & (won & self.retracts)[deciding]
            protected = np.where(nulled, -1, copied)
            for name in wanted:
                function = self.rules.functions.get(name)
                if name in group.fields:
                    columns[name] = Folded(copied)
                elif function is None:
                    columns[name] = Folded(protected)
                else:
                    verdicts = self._verdicts(~missing, win, self.rules.schema.names.index(name))
                    columns[name] = folded(function, self.candidates.rows.column(name), verdicts)
        return columns

    def _plain(self, names: Sequence[str], adds: Bools) -> dict[str, Folded]:
        full = None
        columns = {}
        for name in names:
            if name in (KIND_FIELD.name, SEQUENCE_FIELD.name):
                continue
            column = self.candidates.rows.column(name)
            if not column.null_count:
                if full is None:
                    full = Folded(self._sources(self._last(adds | self.replaces)))
                columns[name] = full
            else:
                valid = column.is_valid().to_numpy()[self.rows]
                columns[name] = Folded(self._sources(self._last((adds & valid) | self.replaces)))
        return columns

    def _followed(self, groups: Sequence[SequenceGroup]) -> tuple[list[Bools], list[Bools]]:
        """For each sequence group, which records are not older than the row is then, and which have no sequence. Finds removals, too."""
        ranks, absent = [], []
        for group in groups:
            rank, missing = self._ranks(group)
            ranks.append(rank)
            absent.append(missing)
        names = self.rules.schema.names
        removing = [
            min(map(names.index, group.fields)) if self.rules.remove_record_on_sequence_group & set(group.fields) else -1 for group in groups
        ]
        wins = [np.zeros(len(self.rows), np.bool_) for _ in groups]
        longest_first = np.argsort(-self.lengths, kind="stable")
        lengths, starts = self.lengths[longest_first], self.starts[longest_first]
        current = [np.full(len(starts), -1, np.int64) for _ in groups]
        for step in range(int(lengths[0])):
            size = int(np.searchsorted(-lengths, -step, "left"))
            at = starts[:size] + step
            live = ~self.retracts[at] | (not self.rules.ignore_delete)
            removed = np.zeros(size, np.bool_)
            if step == 0:
                for rank, now in zip(ranks, current, strict=True):
                    now[:size] = np.where(self.based[at], rank[at], now[:size])
            for rank, missing, now, win, removes in zip(ranks, absent, current, wins, removing, strict=True):
                won = live & ~missing[at] & (rank[at] >= now[:size])
                win[at] = won
                now[:size] = np.where(won, rank[at], now[:size])
                if removes >= 0:
                    removing_now = won & (self.kinds[at] == DELETE)
                    self.removed_at[at] = np.where(removing_now & ~(removed & (self.removed_at[at] < removes)), removes, self.removed_at[at])
                    removed |= removing_now
            if removed.any():
                self.removes[at] = removed
                for rank, now in zip(ranks, current, strict=True):
                    now[:size] = np.where(removed, rank[at], now[:size])
        self.replaces = self.based | self.removes
        return wins, absent

    def _ranks(self, group: SequenceGroup) -> tuple[Int64s, Bools]:
        """Ranks of the records by the sequence fields of a group, and which of them have none but NULL."""
        words: list[Int64s] = []
        missing = np.ones(len(self.rows), np.bool_)
        for name in group.fields:
            first, *others = sequence_words(self.candidates.rows.column(name), self.rules.schema.field(name).type, self.rows)
            missing &= first == 0
            words += [first, *others]
        order, starts = Keys(words, len(self.rows)).sort()
        new = np.zeros(len(order), np.int64)
        new[starts] = 1
        ranks = np.empty(len(order), np.int64)
        ranks[order] = np.cumsum(new) - 1
        return np.where(missing, -1, ranks), missing

    def _verdicts(self, given: Bools, win: Bools, place: int) -> Records:
        """What each record does to a protected column with a function, which is at this place in the schema; `given`: it has a sequence.

        Some do more than one thing: one that comes first and retracts is the row, and then retracts; one that removes the row at a sequence
        field behind the column retracts before, which may be an error (spec 05 §4.4).
        """
        verdicts = np.where(self.retracts, Verdict.RETRACT, np.where(win, Verdict.APPLY, Verdict.REVERSED))
        if self.rules.ignore_delete:
            given = given & ~self.retracts
        verdicts = np.where(given, verdicts, Verdict.SKIP).astype(np.int8)
        retracts_before = given & (self.removed_at > place)
        verdicts[self.removes] = Verdict.REPLACE
        if not (self.based.any() or retracts_before.any()):
            return Records(self.rows, self.starts, verdicts, self._key)
        does = np.stack((self.based, retracts_before, np.ones(len(self.rows), np.bool_)), axis=1)
        all_verdicts = np.stack((np.full(len(verdicts), Verdict.REPLACE), np.full(len(verdicts), Verdict.RETRACT), verdicts), axis=1)
        counts = does.sum(axis=1)
        starts = (np.cumsum(counts) - counts)[self.starts]
        return Records(np.repeat(self.rows, counts), starts, all_verdicts[does].astype(np.int8), self._key)

    def _check_not_null(self, mask: Bools) -> None:
        schema = self.rules.schema
        for name in self.candidates.rows.column_names:
            column = self.candidates.rows.column(name)
            if not column.null_count or not schema.has_field(name) or schema.field(name).type.nullable:
                continue
            missing = mask & column.is_null().to_numpy()[self.rows]
            if missing.any():
                raise MergeError(f"key {self._key_of(missing)}, field {name}: NULL, but the column is NOT NULL; make it nullable")

    def _last(self, mask: npt.NDArray[np.bool_]) -> Int64s:
        """The last record of each group that is in the mask, or −1."""
        found: Int64s = np.maximum.reduceat(np.where(mask, self.at, -1), self.starts)
        return found

    def _sources(self, records: Int64s) -> Int64s:
        return np.where(records < 0, -1, self.rows[records])

    def _key_of(self, mask: Bools) -> str:
        """The key of the first record in the mask."""
        group = int(np.searchsorted(self.starts, np.flatnonzero(mask)[0], "right")) - 1
        return self._key(group)

    def _key(self, group: int) -> str:
        return key_text(self.candidates.rows, self.rules.schema.trimmed_primary_keys, int(self.rows[self.starts[group]]))


def _numbers(candidates: Candidates, rows: Int64s) -> Int64s:
    """The sequence numbers of some rows."""
    return cast(Int64s, candidates.rows.column(SEQUENCE_FIELD.name).to_numpy()[rows])
