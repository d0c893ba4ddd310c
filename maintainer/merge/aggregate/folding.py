"""From records and a function to values: dispatch by function, and gathering the results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from maintainer.merge.aggregate.records import Folded, Records, StepError, Verdict
from maintainer.merge.order import Int64s
from maintainer.table.aggregates import Aggregate

Column = Any
"""`pa.Array` or `pa.ChunkedArray` (pyarrow has no types for mypy)."""


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
        reason = error.reason.replace("<column>", aggregate.column)
        raise error.kind(f"key {records.key(error.index)}, field {aggregate.column}: {aggregate.name} {reason}") from None


def gather(values: Column, computed: pa.Array | None, sources: Int64s) -> pa.Array:
    """The values that `Folded` speaks of, for these sources."""
    if computed is not None and len(computed):
        column = pa.concat_arrays([*(values.chunks if isinstance(values, pa.ChunkedArray) else [values]), computed])
    else:
        column = _whole(values)
    missing = sources < 0
    indices = pa.array(sources, mask=missing) if missing.any() else pa.array(sources)
    return pc.take(column, indices, boundscheck=False)


def _whole(values: Column) -> pa.Array:
    if isinstance(values, pa.ChunkedArray):
        return values.chunk(0) if values.num_chunks == 1 else values.combine_chunks()
    return values


def _family(name: str) -> Callable[[Aggregate, pa.Array, Records], Folded]:
    """What folds this function; few tables need more than one or two of these modules."""
    match name:
        case "sum" | "product":
            from maintainer.merge.aggregate.numbers import fold
        case "max" | "min" | "bool_and" | "bool_or":
            from maintainer.merge.aggregate.extremes import fold
        case "listagg":
            from maintainer.merge.aggregate.text import fold
        case "collect" | "merge_map" | "merge_map_with_keytime":
            from maintainer.merge.aggregate.collections import fold
        case "nested_update" | "nested_partial_update":
            from maintainer.merge.aggregate.nested import fold
        case "rbm32" | "rbm64":
            from maintainer.merge.aggregate.bitmaps import fold
        case "theta_sketch" | "hll_sketch":
            from maintainer.merge.aggregate.sketches import fold
        case _:
            from maintainer.merge.aggregate.positions import fold
    return fold
