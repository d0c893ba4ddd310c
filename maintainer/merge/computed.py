"""Results that are worked out column by column: one record for each key.

Only some keys are computed, and a computed column holds nothing but their values: everything else, and each value that comes from one of the
records, is fetched by one gather for each column, when it is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from maintainer.merge.aggregate import Folded, gather
from maintainer.merge.order import Int64s
from maintainer.model.row_kind import RETRACT_BIT
from maintainer.model.schema import KIND_FIELD, SEQUENCE_FIELD


@dataclass(frozen=True)
class Computed:
    """`last` is the newest record of each key, `computed` are the keys that were worked out, `columns` the sources of theirs; `sequences` are
    their numbers, None: those of their newest records."""

    candidates: pa.Table
    last: Int64s
    kinds: npt.NDArray[np.int8]
    computed: Int64s
    columns: Mapping[str, Folded]
    sequences: Int64s | None = None

    @property
    def groups(self) -> Int64s:
        return np.arange(len(self.last))

    def take(self, results: Int64s | None = None) -> pa.Table:
        """The records of some keys, None: of all."""
        columns = [self._column(name, results) for name in self.candidates.column_names]
        return pa.table(columns, schema=self.candidates.schema)

    def rows(self, drop_deletes: bool) -> pa.Table:
        """The records of all keys, without retracts if they are to be dropped."""
        adds = (self.kinds & RETRACT_BIT) == 0
        return self.take(np.flatnonzero(adds) if drop_deletes and not adds.all() else None)

    def _column(self, name: str, results: Int64s | None) -> pa.Array:
        if name == KIND_FIELD.name:
            return pa.array(self.kinds if results is None else self.kinds[results])
        if name == SEQUENCE_FIELD.name and self.sequences is not None:
            numbers = self.candidates.column(name).to_numpy()[self.last]
            numbers[self.computed] = self.sequences
            return pa.array(numbers if results is None else numbers[results])
        sources, computed = self.last, None
        found = self.columns.get(name)
        if found is not None:
            sources, computed = sources.copy(), found.computed
            sources[self.computed] = found.sources
        return gather(self.candidates.column(name), computed, sources if results is None else sources[results])
