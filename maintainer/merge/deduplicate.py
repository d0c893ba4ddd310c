"""The deduplicate engine: of all records of a key, the newest survives (spec 05 §2; Java `DeduplicateMergeFunction`).

With `ignore-delete` retracts do not count where they meet other records, even ones that a newer level contains: the newest one that adds
survives, if there is any.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from maintainer.merge.candidates import Candidates
from maintainer.merge.chosen import Chosen
from maintainer.model.row_kind import RETRACT_BIT
from maintainer.table.merging import MergeRules, merged_columns


@dataclass(frozen=True)
class Deduplicate:
    rules: MergeRules

    def columns(self, wanted: Iterable[str]) -> tuple[str, ...]:
        return merged_columns(tuple(wanted), self.rules)

    def merge(self, candidates: Candidates, lookup: bool) -> Chosen:
        if candidates.by_file and not self.rules.ignore_delete:
            return Chosen(candidates, candidates.last)
        counted = candidates.counting() if self.rules.needs_lookup else candidates
        last = counted.last
        if not self.rules.ignore_delete:
            return Chosen(candidates, last)
        retracts = (candidates.kinds & RETRACT_BIT).astype(np.bool_)
        if not retracts.any():
            return Chosen(candidates, last)
        adds = np.where(retracts[counted.order], -1, np.arange(len(counted.order)))
        newest = np.maximum.reduceat(adds, counted.starts)
        sources = np.where(newest >= 0, counted.order[newest], -1)
        if not lookup:
            sources = np.where(candidates.lengths == 1, last, sources)
        there = np.flatnonzero(sources >= 0)
        return Chosen(candidates, sources[there], there)
