"""The buffered rows of one bucket, in order and merged (spec 04 §9.5, 05 §1.1; Java `SortBufferWriteBuffer`).

order     key, then the table's sequence fields, then arrival
changes   every row in this order: the changelog of changelog-producer = input
merged    of each key one record, as the merge engine makes it; a single record stays what it is, whatever the engine would say of it
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from maintainer.merge.candidates import BUFFERED, Candidates, SequenceOrder
from maintainer.merge.engine import merge_function
from maintainer.merge.order import Keys
from maintainer.model.schema import TableSchema
from maintainer.table.merging import MergeRules


@dataclass(frozen=True)
class Flush:
    """Rows of a writer as candidates of a merge."""

    candidates: Candidates
    rules: MergeRules

    @classmethod
    def of(cls, rows: pa.Table, rules: MergeRules) -> Flush:
        """`rows` in arrival order: the table's columns, sequence number and kind."""
        schema: TableSchema = rules.schema
        keys = Keys.of([rows.column(name) for name in schema.trimmed_primary_keys], schema.key_types)
        levels = np.full(rows.num_rows, BUFFERED, np.int8)
        return cls(Candidates.sorted(rows, keys, levels, SequenceOrder.of(rules, schema)), rules)

    def changes(self) -> pa.Table:
        return self.candidates.rows.take(pa.array(self.candidates.order))

    def merged(self) -> pa.Table:
        return merge_function(self.rules, self.rules.schema).merge(self.candidates, lookup=False).rows(drop_deletes=False)
