"""Results that are records as they are: each is one of the candidates of its key."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from maintainer.merge.candidates import Candidates
from maintainer.merge.order import Int64s
from maintainer.model.row_kind import RETRACT_BIT


@dataclass(frozen=True)
class Chosen:
    """`sources` are the rows that were chosen, of these groups; None: of all, and all rows if `candidates.is_unique`."""

    candidates: Candidates
    sources: Int64s
    some: Int64s | None = None

    @cached_property
    def groups(self) -> Int64s:
        return np.arange(self.candidates.groups) if self.some is None else self.some

    @cached_property
    def kinds(self) -> npt.NDArray[np.int8]:
        kinds = self.candidates.kinds
        return kinds if self._is_everything else kinds[self.sources]

    @property
    def _is_everything(self) -> bool:
        return self.some is None and self.candidates.is_unique

    def take(self, results: Int64s | None = None) -> pa.Table:
        if results is None and self._is_everything:
            return self.candidates.rows
        sources = self.sources if results is None else self.sources[results]
        return pc.take(self.candidates.rows, pa.array(sources), boundscheck=False)

    def rows(self, drop_deletes: bool) -> pa.Table:
        if drop_deletes and (self.candidates.kinds & RETRACT_BIT).any():
            retracts = (self.kinds & RETRACT_BIT).astype(np.bool_)
            if retracts.any():
                return self.take(np.flatnonzero(~retracts))
        return self.take()
