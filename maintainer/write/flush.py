"""The buffered rows of one bucket, in order and merged (spec 04 §9.5, 05 §1.1; Java `SortBufferWriteBuffer`).

order     key, then the table's sequence fields (NULL is the oldest in either sort order), then arrival
changes   every row in this order: the changelog of changelog-producer = input
merged    of each key the last row, as the deduplicate engine wants it
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from maintainer.merge.order import Int64s, Keys, comparable_columns
from maintainer.model.schema import TableSchema
from maintainer.model.types import DataType


@dataclass(frozen=True)
class Flush:
    """`rows` in arrival order: the table's columns, sequence number and kind; `order` lists them key by key, each key from `starts` on."""

    rows: pa.Table
    order: Int64s
    starts: Int64s

    @classmethod
    def of(cls, rows: pa.Table, schema: TableSchema, sequence_fields: tuple[str, ...] = (), descending: bool = False) -> Flush:
        keys = Keys.of([rows.column(name) for name in schema.trimmed_primary_keys], schema.key_types)
        order, starts = keys.sort()
        if sequence_fields and len(starts) < rows.num_rows:
            group = np.empty(rows.num_rows, np.int64)
            group[order] = np.repeat(np.arange(len(starts)), np.diff(starts, append=rows.num_rows))
            ranks = [ranked(rows.column(name), schema.field(name).type, descending) for name in sequence_fields]
            order, _ = Keys([group, *ranks], rows.num_rows).sort()
        return cls(rows, order, starts)

    @cached_property
    def newest(self) -> Int64s:
        """By key, the row that came last."""
        newest: Int64s = self.order[np.append(self.starts[1:], len(self.order)) - 1]
        return newest

    def changes(self) -> pa.Table:
        return self.rows.take(pa.array(self.order))

    def merged(self) -> pa.Table:
        return self.rows.take(pa.array(self.newest))


def ranked(column: pa.ChunkedArray, data_type: DataType, descending: bool) -> Int64s:
    """A number for each value that compares like it, 0 for NULL; in descending order larger values have smaller numbers."""
    ranks = np.zeros(len(column), np.int64)
    valid = np.flatnonzero(column.is_valid().to_numpy())
    if not len(valid):
        return ranks
    words = Keys(list(comparable_columns(column.drop_null(), data_type)), len(valid))
    order, starts = words.sort()
    numbers = np.repeat(np.arange(1, len(starts) + 1), np.diff(starts, append=len(valid)))
    ranks[valid[order]] = len(starts) + 1 - numbers if descending else numbers
    return ranks
