"""theta_sketch, hll_sketch: unions of Apache DataSketches (spec 05 §6.8; Java `FieldThetaSketchAgg`, `FieldHllSketchAgg`).

| function     | union                                                            | written as               |
| ------------ | ---------------------------------------------------------------- | ------------------------ |
| theta_sketch | 4096 nominal entries, the default seed                           | compact, ordered         |
| hll_sketch   | into a union made of the second operand                          | HLL_4, compact           |

The library is an optional extra. Without it sketches that meet nothing still pass through; only two of them that meet are refused.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from maintainer.errors import CorruptFile, Unsupported
from maintainer.merge.aggregate.bitmaps import fold_unions
from maintainer.merge.aggregate.records import Folded, Records, StepError
from maintainer.table.aggregates import Aggregate

_NOMINAL_ENTRIES_LOG2 = 12


def fold(aggregate: Aggregate, values: pa.Array, records: Records) -> Folded:
    return fold_unions(values, records, _theta if aggregate.name == "theta_sketch" else _hll)


def _theta(a: bytes, b: bytes) -> bytes:
    library = _library()
    try:
        union = library.theta_union(_NOMINAL_ENTRIES_LOG2)
        for data in (a, b):
            union.update(library.compact_theta_sketch.deserialize(data))
        return bytes(union.get_result(ordered=True).serialize())
    except (RuntimeError, ValueError, IndexError, MemoryError) as error:
        raise CorruptFile(f"no theta sketch: {error}") from error


def _hll(a: bytes, b: bytes) -> bytes:
    library = _library()
    try:
        first, second = library.hll_sketch.deserialize(a), library.hll_sketch.deserialize(b)
        union = library.hll_union(second.lg_config_k)
        union.update(second)
        union.update(first)
        return bytes(union.get_result(library.tgt_hll_type.HLL_4).serialize_compact())
    except (RuntimeError, ValueError, IndexError, MemoryError) as error:
        raise CorruptFile(f"no HLL sketch: {error}") from error


def _library() -> Any:
    try:
        import datasketches
    except ImportError:
        reason = "met two sketches, and merging them needs the package datasketches: pip install 'paimon-maintainer[sketches]'"
        raise StepError(0, reason, Unsupported) from None
    return datasketches
