"""Merge engines: what the records of a key become (spec 05 §1.2, §2–§5; Java `MergeFunction`, `ReducerMergeFunctionWrapper`,
`LookupMergeFunction`).

    candidates ──▶ merge ──▶ merged      one result, or none, for each key

Two ways to call it. In plain compactions, reads and flushes a key with one record *is* that record, whatever the engine would say of it. A
lookup compaction calls the function for single records, too.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from maintainer.merge.candidates import Candidates
from maintainer.merge.order import Int64s
from maintainer.model.schema import TableSchema
from maintainer.table.merging import MergeRules
from maintainer.table.options import MergeEngine


class Merged(Protocol):
    """The results: `groups` are the numbers of the keys that have one, ascending, `kinds` says of each what it is."""

    @property
    def groups(self) -> Int64s: ...

    @property
    def kinds(self) -> npt.NDArray[np.int8]: ...

    def take(self, results: Int64s | None = None) -> pa.Table:
        """The records of some results (indices into `groups`), None: of all."""
        ...

    def rows(self, drop_deletes: bool) -> pa.Table:
        """The records of all results, without retracts if they are to be dropped."""
        ...


class MergeFunction(Protocol):
    """The merge engine of one table."""

    def columns(self, wanted: Iterable[str]) -> tuple[str, ...]:
        """What has to be read to merge these columns (spec 05 §4.6)."""
        ...

    def merge(self, candidates: Candidates, lookup: bool) -> Merged:
        """`lookup`: the function is called for single records, too. `MergeError` names key, field and remedy."""
        ...


def merge_function(rules: MergeRules, schema: TableSchema) -> MergeFunction:
    """The engine of a table."""
    match rules.engine:
        case MergeEngine.DEDUPLICATE:
            from maintainer.merge.deduplicate import Deduplicate

            return Deduplicate(rules)
        case MergeEngine.FIRST_ROW:
            from maintainer.merge.first_row import FirstRow

            return FirstRow(rules, schema.trimmed_primary_keys)
        case MergeEngine.AGGREGATION:
            from maintainer.merge.aggregation import Aggregation

            return Aggregation.of(schema, rules)
        case MergeEngine.PARTIAL_UPDATE:
            from maintainer.merge.partial_update import PartialUpdate

            return PartialUpdate(rules)
