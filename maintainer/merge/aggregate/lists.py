"""Arrays and maps as lists of element numbers: what the functions over them work with, and columns made of the results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from maintainer.merge.order import Int64s

Elements = list[int] | None
"""Numbers of elements; None: the list itself is NULL."""


@dataclass(frozen=True)
class Lists:
    """Some values of a list or map column."""

    type: pa.DataType
    ranges: list[range | None]
    elements: pa.Array
    """Of all lists, one after the other; of maps, their entries as structs."""

    @classmethod
    def of(cls, values: pa.Array, rows: Int64s) -> Lists:
        taken = pc.take(values, pa.array(rows))
        offsets = taken.offsets.to_pylist()
        there = taken.is_valid().to_pylist()
        ranges = [range(start, stop) if valid else None for start, stop, valid in zip(offsets[:-1], offsets[1:], there, strict=True)]
        return cls(values.type, ranges, entries_of(taken) if pa.types.is_map(values.type) else taken.values)

    def at(self, n: int) -> Elements:
        """The elements of the n-th value."""
        found = self.ranges[n]
        return None if found is None else list(found)


def entries_of(maps: Any) -> pa.Array:
    """Keys and values of all maps as structs."""
    return _struct(_entries_type(maps.type), [maps.keys, maps.items], len(maps.keys), None)


def column_of(lists: Lists, results: Sequence[Elements]) -> pa.Array:
    """Lists or maps of the elements with these numbers."""
    flat = np.array([number for result in results if result is not None for number in result], np.int64)
    return list_column(lists.type, results, pc.take(lists.elements, pa.array(flat)))


def list_column(kind: pa.DataType, results: Sequence[Sequence[Any] | None], elements: pa.Array) -> pa.Array:
    """Lists or maps of the lengths that `results` have, with all their elements."""
    lengths = [0 if result is None else len(result) for result in results]
    offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
    there = [result is not None for result in results]
    if pa.types.is_map(kind):
        starts = pa.array(offsets, mask=~np.array([*there, True], np.bool_))
        return pa.MapArray.from_arrays(starts, *elements.flatten(), type=kind)
    return pa.Array.from_buffers(kind, len(results), [validity(there), pa.py_buffer(offsets)], children=[elements])


def struct_column(kind: pa.DataType, members: Sequence[pa.Array], there: Sequence[bool]) -> pa.Array:
    """ROWs of these members."""
    return _struct(kind, members, len(there), validity(there))


def validity(there: Sequence[bool]) -> Any:
    """The bits that say which values are not NULL; None when all are there."""
    return None if all(there) else pa.py_buffer(np.packbits(np.array(there, np.bool_), bitorder="little"))


def _struct(kind: pa.DataType, members: Sequence[pa.Array], size: int, bits: Any) -> pa.Array:
    return pa.Array.from_buffers(kind, size, [bits], children=list(members))


def _entries_type(kind: Any) -> pa.DataType:
    return pa.struct([kind.key_field, kind.item_field])
