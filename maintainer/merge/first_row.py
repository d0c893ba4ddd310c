"""The first-row engine: of all records of a key, the oldest one that adds survives (spec 05 §3; Java `FirstRowMergeFunction`).

Retracts are not taken, or ignored with `ignore-delete`; a single record is not looked at unless a lookup asks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from maintainer.errors import MergeError
from maintainer.merge.candidates import Candidates
from maintainer.merge.chosen import Chosen
from maintainer.merge.naming import key_text
from maintainer.model.row_kind import RETRACT_BIT
from maintainer.table.merging import MergeRules, merged_columns


@dataclass(frozen=True)
class FirstRow:
    rules: MergeRules
    keys: Sequence[str]

    def columns(self, wanted: Iterable[str]) -> tuple[str, ...]:
        return merged_columns(tuple(wanted), self.rules)

    def merge(self, candidates: Candidates, lookup: bool) -> Chosen:
        order, starts = candidates.order, candidates.starts
        if not len(order):
            return Chosen(candidates, order)
        looked_at = np.ones(candidates.groups, np.bool_) if lookup else candidates.lengths > 1
        retracts = (candidates.kinds[order] & RETRACT_BIT).astype(np.bool_)
        if not retracts.any():
            return Chosen(candidates, order[starts])
        refused = np.flatnonzero(retracts & looked_at[candidates.group_of_records])
        if len(refused) and not self.rules.ignore_delete:
            key = key_text(candidates.rows, self.keys, int(order[refused[0]]))
            raise MergeError(f"key {key}: the first-row engine does not take -U and -D records; ignore-delete = true leaves them out")
        nothing = len(order)
        first = np.minimum.reduceat(np.where(retracts, nothing, np.arange(nothing)), starts)
        first = np.where(looked_at, first, starts)
        there = np.flatnonzero(first < nothing)
        return Chosen(candidates, order[first[there]], there)
