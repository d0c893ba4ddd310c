"""From records and a function to values: dispatch by function, and gathering the results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from maintainer.errors import MergeError
from maintainer.merge.aggregate.records import Records, StepError, Verdict
from maintainer.merge.order import Int64s
from maintainer.table.aggregates import Aggregate

Column = Any
"""`pa.Array` or `pa.ChunkedArray` (pyarrow has no types for mypy)."""


@dataclass(frozen=True)
class Folded:
    """The value of each group: a row of the column, `len(column) + n` for the n-th computed value, −1 for NULL."""

    sources: Int64s
    computed: pa.Array | None = None


def fold(aggregate: Aggregate, values: Column, records: Records) -> pa.Array:
    """One value for each group; a group without records is NULL. `MergeError` names the key, the column, the function and what to do."""
    result = folded(aggregate, values, records)
    return gather(values, result.computed, result.sources)


def folded(aggregate: Aggregate, values: Column, records: Records) -> Folded:
    """Where the value of each group comes from; for callers who gather more than these groups at once."""
    skipped = (Verdict.SKIP, Verdict.RETRACT) if aggregate.ignore_retract else (Verdict.SKIP,)
    try:
        return _family(aggregate.name)(aggregate, _whole(values), records.without(*skipped))
    except StepError as error:
        raise MergeError(
            f"key {records.key(error.index)}, field {aggregate.column}: the aggregate function {aggregate.name} {error.reason}"
        ) from None


def gather(values: Column, computed: pa.Array | None, sources: Int64s) -> pa.Array:
    """The values that `Folded` speaks of, for these sources."""
    column = _whole(values)
    if computed is not None and len(computed):
        column = pa.concat_arrays([column, computed])
    missing = sources < 0
    indices = pa.array(sources, mask=missing) if missing.any() else pa.array(sources)
    return pc.take(column, indices, boundscheck=False)


def _whole(values: Column) -> pa.Array:
    if isinstance(values, pa.ChunkedArray):
        return values.chunk(0) if values.num_chunks == 1 else values.combine_chunks()
    return values


def _family(name: str) -> Callable[[Aggregate, pa.Array, Records], Folded]:
    raise NotImplementedError(name)
