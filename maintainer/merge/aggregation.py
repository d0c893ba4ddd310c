"""The aggregation engine: every column of a key's record is folded by a function of its own (spec 05 §5; Java `AggregateMergeFunction`).

one record of a key     is the result as it is (the reducer rule), unless a lookup asks: then the functions are called for it, too
several                 per column: +I and +U apply, -U and -D retract; the result is +I with the sequence number of the last record
a removal               -D where aggregation.remove-record-on-delete is set: its values take the place of all columns, the functions go on
                        with them, and the result is -D if nothing follows
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from maintainer.errors import MergeError
from maintainer.merge.aggregate import Folded, Records, Verdict, folded
from maintainer.merge.candidates import Candidates
from maintainer.merge.computed import Computed
from maintainer.merge.naming import key_text
from maintainer.model.row_kind import DELETE, INSERT, RETRACT_BIT
from maintainer.model.schema import TableSchema
from maintainer.table.aggregates import Aggregate
from maintainer.table.merging import MergeRules


@dataclass(frozen=True)
class Aggregation:
    """The engine of one table; `filters`: whether of the records above level 0 only the one of the smallest level counts (spec 05 §1.3)."""

    functions: Mapping[str, Aggregate]
    keys: tuple[str, ...]
    removes: bool
    filters: bool
    sequence_fields: tuple[str, ...] = ()

    @classmethod
    def of(cls, schema: TableSchema, rules: MergeRules) -> Aggregation:
        return cls(rules.functions, schema.trimmed_primary_keys, rules.remove_record_on_delete, rules.needs_lookup, rules.sequence_fields)

    def columns(self, wanted: Iterable[str]) -> tuple[str, ...]:
        """What has to be read for these columns: each is computed from nothing but itself, in the order that the sequence fields give."""
        return tuple(dict.fromkeys((*wanted, *self.sequence_fields)))

    def merge(self, candidates: Candidates, lookup: bool) -> Computed:
        """One record for each key; `lookup`: the functions are called for single records, too."""
        counting = candidates.counting() if self.filters else candidates
        order, starts = counting.order, counting.starts
        rows, by_row, last = candidates.rows, candidates.kinds, counting.last
        kinds = by_row[last]
        computed = np.flatnonzero(candidates.lengths > (0 if lookup else 1))
        if not len(computed):
            return Computed(rows, last, kinds, computed, {})
        verdicts = np.where(by_row[order] & RETRACT_BIT, np.int8(Verdict.RETRACT), np.int8(Verdict.APPLY))
        if self.removes:
            verdicts[by_row[order] == DELETE] = Verdict.REPLACE
        records = Records(order, starts, verdicts, lambda group: key_text(rows, self.keys, int(order[starts[group]]))).part(computed)
        kinds = kinds.copy()
        kinds[computed] = np.where(self.removes & (kinds[computed] == DELETE), DELETE, INSERT)
        folds = {
            name: self._fold(function, rows.column(name), records)
            for name, function in self.functions.items()
            if name in rows.column_names and name not in self.keys  # all records have the same key
        }
        return Computed(rows, last, kinds, computed, folds)

    def _fold(self, function: Aggregate, column: pa.ChunkedArray, records: Records) -> Folded:
        if self.removes and not function.type.nullable and column.null_count:
            removals = np.flatnonzero(records.verdicts == Verdict.REPLACE)
            missing = removals[column.is_null().to_numpy()[records.rows[removals]]]
            if len(missing):
                key = records.key(int(records.group_of_rows()[missing[0]]))
                raise MergeError(f"key {key}, field {function.column}: a -D record holds NULL, but the column is NOT NULL; make it nullable")
        return folded(function, column, records)
