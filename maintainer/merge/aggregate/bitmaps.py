"""rbm32, rbm64: unions of roaring bitmaps (spec 05 §6.7; Java `FieldRoaringBitmap32Agg`, `FieldRoaringBitmap64Agg`).

Bytes that meet nothing stay as they are; where two of them meet, in a loop over those groups, they are decoded and their union is written.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap, BitMap64

from maintainer.errors import CorruptFile
from maintainer.merge.aggregate.positions import valid_of
from maintainer.merge.aggregate.records import Folded, Records, StepError, fold_one_by_one, meetings, refuse_retracts
from maintainer.table.aggregates import Aggregate

Union = Callable[[bytes, bytes], bytes]


def fold(aggregate: Aggregate, values: pa.Array, records: Records) -> Folded:
    return fold_unions(values, records, _union32 if aggregate.name == "rbm32" else _union64)


def fold_unions(values: pa.Array, records: Records, union: Union) -> Folded:
    """For functions of bytes, where only two of them that meet have to be understood."""
    refuse_retracts(records)
    sources, groups = meetings(records, valid_of(values))
    if not len(groups):
        return Folded(sources)

    def agg(acc: bytes | None, value: bytes | None) -> bytes | None:
        if acc is None or value is None:
            return value if acc is None else acc
        try:
            return union(acc, value)
        except CorruptFile as error:
            raise StepError(0, f"met a value that it cannot read: {error.reason}") from None

    records = records.part(groups)
    given = pc.take(values, pa.array(records.rows))
    results = fold_one_by_one(records, groups, lambda n: given[n].as_py(), agg)
    sources[groups] = len(values) + np.arange(len(groups))
    return Folded(sources, pa.array(results, values.type))


def _union32(a: bytes, b: bytes) -> bytes:
    from maintainer.format.roaring import decode32, encode32

    union: BitMap = decode32(a) | decode32(b)
    return encode32(union)


def _union64(a: bytes, b: bytes) -> bytes:
    from maintainer.format.roaring64_art import decode, encode

    union: BitMap64 = decode(a) | decode(b)
    return encode(union)
