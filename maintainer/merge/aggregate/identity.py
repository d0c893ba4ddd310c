"""Numbers for values: two values of an array have the same number if, and only if, they are equal, nested ones member by member.

NaN equals itself, −0.0 and 0.0 differ (Java's `Double.equals`), NULL equals NULL, and the order of a map's entries does not matter. With these
numbers the functions over arrays and maps compare integers, and build their results by taking elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from maintainer.merge.aggregate.positions import valid_of
from maintainer.merge.order import Int64s, Keys, decimal_halves, fixed_width


def identities(array: pa.Array) -> Int64s:
    """The number of each value."""
    kind = array.type
    parts: list[Int64s]
    if pa.types.is_struct(kind):
        parts = [identities(child) for child in array.flatten()]
    elif pa.types.is_map(kind):
        parts = [_of_lists(array, combined([identities(array.keys), identities(array.items)]), is_ordered=False)]
    elif pa.types.is_list(kind):
        parts = [_of_lists(array, identities(array.values), is_ordered=True)]
    elif pa.types.is_decimal128(kind):
        parts = list(np.ascontiguousarray(decimal_halves(array).T))
    elif pa.types.is_floating(kind):
        floats = array.to_numpy(zero_copy_only=False)
        parts = [np.where(np.isnan(floats), np.nan, floats).astype(np.float64).view(np.int64)]
    elif pa.types.is_boolean(kind):
        parts = [pc.fill_null(array, False).to_numpy(zero_copy_only=False).astype(np.int64)]
    elif kind.num_buffers == 2:
        parts = [fixed_width(array, np.dtype(f"i{kind.bit_width // 8}")).astype(np.int64)]
    else:
        parts = [pc.fill_null(pc.dictionary_encode(array).indices, -1).to_numpy().astype(np.int64)]
    if array.null_count:
        valid = valid_of(array)
        parts = [np.where(valid, part, 0) for part in parts] + [valid.astype(np.int64)]
    return parts[0] if len(parts) == 1 else combined(parts, len(array))


def combined(parts: Sequence[Int64s], size: int | None = None) -> Int64s:
    """The numbers of tuples, one part of each in every array; they are in the order of the tuples."""
    size = len(parts[0]) if size is None else size
    numbers = np.zeros(size, np.int64)
    order, starts = Keys(parts, size).sort()
    if len(starts):
        numbers[order] = np.repeat(np.arange(len(starts)), np.diff(starts, append=size))
    return numbers


def _of_lists(array: Any, elements: Int64s, is_ordered: bool) -> Int64s:
    offsets = array.offsets.to_numpy().astype(np.int64)
    elements = elements[offsets[0] : offsets[-1]] if len(offsets) else elements[:0]
    offsets = offsets - offsets[0] if len(offsets) else np.zeros(1, np.int64)
    if not is_ordered:
        elements = elements[np.lexsort((elements, np.repeat(np.arange(len(array)), np.diff(offsets))))]
    buffers = [None, pa.py_buffer(8 * offsets), pa.py_buffer(np.ascontiguousarray(elements))]
    as_bytes = pa.Array.from_buffers(pa.large_binary(), len(array), buffers)
    numbers: Int64s = pc.dictionary_encode(as_bytes).indices.to_numpy().astype(np.int64)
    return numbers
