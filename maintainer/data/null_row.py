"""NOT NULL members under a ROW that is NULL (spec 02 §3.3).

A ROW or VARIANT that is NULL has no members. Parquet stores none, but Arrow keeps a place for each, usually a null, and refuses to write a
null where the schema says NOT NULL, whether anything hides it or not. So such places get some value of their type, which nobody ever sees.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa


def filled(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column without nulls in NOT NULL members that do not exist; nulls that are visible stay."""
    if not _has_required_members(column.type):
        return column
    return pa.chunked_array([_filled(chunk) for chunk in column.chunks], column.type)


@lru_cache(maxsize=4096)
def _has_required_members(data_type: pa.DataType) -> bool:
    fields = [data_type.field(index) for index in range(data_type.num_fields)]
    return any((pa.types.is_struct(data_type) and not field.nullable) or _has_required_members(field.type) for field in fields)


def _filled(array: pa.Array) -> pa.Array:
    data_type = array.type
    if not _has_required_members(data_type):
        return array
    if pa.types.is_struct(data_type):
        missing = np.asarray(array.is_null()) if array.null_count else None
        members = []
        for index, field in enumerate(data_type):
            member = array.field(index)
            if missing is not None and member.null_count and not field.nullable:
                member = _with_stand_ins(member, pa.array([None], data_type).field(index), missing)
            members.append(_filled(member))
        return pa.StructArray.from_arrays(members, fields=list(data_type), mask=None if missing is None else pa.array(missing))
    parts: Any
    if pa.types.is_map(data_type):
        entries = [_filled(array.keys), _filled(array.items)]
        parts = pa.StructArray.from_arrays(entries, fields=[data_type.key_field, data_type.item_field])
    else:
        parts = _filled(array.values)
    return pa.Array.from_buffers(data_type, len(array), array.buffers()[:2], array.null_count, array.offset, [parts])


def _with_stand_ins(member: pa.Array, stand_in: pa.Array, missing: Any) -> pa.Array:
    """The one value of `stand_in` in every place that is missing."""
    places = np.where(missing, len(member), np.arange(len(member)))
    return pa.concat_arrays([member, stand_in]).take(pa.array(places))
