"""Rows of many values at once: Arrow columns to `BinaryRow` bodies (spec 01 §11), for bucket hashes and for grouping by partition.

Equal, byte for byte, to `maintainer.format.binary_row.encode_row` of each row. Everything in a row is aligned to 8 bytes, so the output is
written as 64-bit words: a column fills its slot of every row, and its values in the variable parts, with a few vector operations. A word of a
text is read from where it begins, aligned or not, and what does not belong to the value is masked away.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from maintainer.format.binary_row import INLINE, fixed_size, null_bytes
from maintainer.model.types import BINARIES, CHARACTERS, DataType, TypeRoot

Words = npt.NDArray[np.uint64]
Numbers = npt.NDArray[np.int64]

_FIXED = {
    TypeRoot.TINYINT: np.uint8,
    TypeRoot.SMALLINT: np.uint16,
    TypeRoot.INT: np.uint32,
    TypeRoot.BIGINT: np.uint64,
    TypeRoot.FLOAT: np.uint32,
    TypeRoot.DOUBLE: np.uint64,
    TypeRoot.DATE: np.uint32,
    TypeRoot.TIME: np.uint32,
}
_KEEP_LOW: Words = np.array([(1 << 8 * count) - 1 for count in range(8)] + [2**64 - 1], np.uint64)
"""Keeps the first 0 … 8 bytes of a word."""
_UNITS_PER_MILLI = {"us": 1000, "ns": 1_000_000}


def encode_columns(arrays: Sequence[pa.Array | pa.ChunkedArray], types: Sequence[DataType]) -> tuple[npt.NDArray[np.uint8], Numbers]:
    """The bodies of all rows, back to back, and where each begins (with the end as last element). Scalar types only."""
    columns = [_column(array, data_type) for array, data_type in zip(arrays, types, strict=True)]
    rows = len(columns[0].nulls) if columns else 0
    nulls, fixed = null_bytes(len(columns)), fixed_size(len(columns))
    sizes = np.full(rows, fixed, np.int64)
    for column in columns:
        sizes += column.variable
    offsets = np.zeros(rows + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    words = np.zeros(int(offsets[-1]) >> 3, np.uint64)
    starts = offsets[:-1] >> 3
    cursor = np.full(rows, fixed, np.int64)
    for index, column in enumerate(columns):
        bit = index + 8
        if column.nulls.any():
            at = starts[column.nulls] + (bit >> 6)
            words[at] |= np.uint64(1 << (bit & 63))
        words[starts + (nulls >> 3) + index] = column.slots(cursor)
        column.write(words, starts + (cursor >> 3))
        cursor += column.variable
    return words.view(np.uint8), offsets


class _Column:
    """A column whose values lie in the slots. `variable` is how many bytes each row takes in the variable part."""

    def __init__(self, nulls: npt.NDArray[np.bool_], values: Words) -> None:
        self.nulls = nulls
        self.values = values
        self.variable: Numbers | int = 0
        if nulls.any():
            self.values = np.where(nulls, np.uint64(0), values)

    def slots(self, cursor: Numbers) -> Words:
        return self.values

    def write(self, words: Words, at: Numbers) -> None:
        """Puts the values into the variable parts, which begin at these words."""


class _Nanos(_Column):
    """TIMESTAMP(p > 3): `values` are the nanoseconds of the millisecond; a null keeps its place."""

    def __init__(self, nulls: npt.NDArray[np.bool_], values: Words, millis: Words) -> None:
        super().__init__(nulls, values)
        self.millis = np.where(nulls, np.uint64(0), millis) if nulls.any() else millis
        self.variable = 8

    def slots(self, cursor: Numbers) -> Words:
        return self.values | cursor.view(np.uint64) << np.uint64(32)

    def write(self, words: Words, at: Numbers) -> None:
        words[at] = self.millis


class _LargeDecimals(_Column):
    """DECIMAL(p > 18): the two words hold the shortest big-endian form; a null keeps its place."""

    def __init__(self, nulls: npt.NDArray[np.bool_], low: Words, high: Words) -> None:
        sign = (high.view(np.int64) >> 63).view(np.uint64)
        top, bottom = high ^ sign, low ^ sign
        size = np.ones(len(nulls), np.uint64)
        for bits in range(7, 127, 8):
            if bits < 64:
                size += (top > 0) | (bottom >= np.uint64(1 << bits))
            else:
                size += top >= np.uint64(1 << (bits - 64))
        super().__init__(nulls, size)
        shift = (np.uint64(16) - size) << np.uint64(3)
        short = shift < 64
        down = np.where(short, np.uint64(63) - np.minimum(shift, np.uint64(63)), np.uint64(0))
        first = np.where(short, high << np.minimum(shift, np.uint64(63)) | low >> np.uint64(1) >> down, low << (shift & np.uint64(63)))
        second = np.where(short, low << np.minimum(shift, np.uint64(63)), np.uint64(0))
        present = ~nulls
        self.first = np.where(present, first, np.uint64(0)).byteswap()
        self.second = np.where(present, second, np.uint64(0)).byteswap()
        self.variable = 16

    def slots(self, cursor: Numbers) -> Words:
        return self.values | cursor.view(np.uint64) << np.uint64(32)

    def write(self, words: Words, at: Numbers) -> None:
        words[at] = self.first
        words[at + 1] = self.second


class _Bytes(_Column):
    """Texts and binaries: up to 7 bytes in the slot, longer ones in as many words as they need."""

    def __init__(self, nulls: npt.NDArray[np.bool_], content: npt.NDArray[np.uint8], starts: Numbers, sizes: Numbers) -> None:
        self.starts = starts
        self.sizes = np.where(nulls, 0, sizes)
        self.long = np.flatnonzero(self.sizes > INLINE)
        # The word that begins at each byte; the content has 8 bytes more than the values need.
        self.content: Words = np.ndarray((len(content) - 7,), "<u8", content.data, strides=(1,))
        inline = self.content[starts] & _KEEP_LOW[np.minimum(self.sizes, INLINE)]
        inline |= (self.sizes.view(np.uint64) | np.uint64(0x80)) << np.uint64(56)
        super().__init__(nulls, inline)
        variable = np.zeros(len(nulls), np.int64)
        variable[self.long] = self.sizes[self.long] + 7 & ~7
        self.variable = variable

    def slots(self, cursor: Numbers) -> Words:
        slots = self.values.copy()
        slots[self.long] = (self.sizes[self.long] | cursor[self.long] << 32).view(np.uint64)
        return slots

    def write(self, words: Words, at: Numbers) -> None:
        sizes, at = self.sizes[self.long], at[self.long]
        counts = sizes + 7 >> 3
        ends = np.cumsum(counts)
        if not len(ends):
            return
        steps = np.arange(int(ends[-1]))
        before = ends - counts
        target = np.repeat(at - before, counts) + steps
        words[target] = self.content[np.repeat(self.starts[self.long] - 8 * before, counts) + 8 * steps]
        words[at + counts - 1] &= _KEEP_LOW[(sizes - 1 & 7) + 1]


def _column(array: pa.Array | pa.ChunkedArray, data_type: DataType) -> _Column:
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks() if array.num_chunks != 1 else array.chunk(0)
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    nulls = array.is_null().to_numpy(zero_copy_only=False)
    root = data_type.root
    if root in CHARACTERS or root in BINARIES:
        return _Bytes(nulls, *_content(array))
    if root == TypeRoot.BOOLEAN:
        return _Column(nulls, array.cast(pa.uint8()).fill_null(0).to_numpy().astype(np.uint64))
    if root == TypeRoot.DECIMAL:
        pairs = _raw(array.cast(pa.decimal128(38, data_type.scale)), np.uint64, 2)
        return _Column(nulls, pairs[0::2]) if data_type.precision <= 18 else _LargeDecimals(nulls, pairs[0::2], pairs[1::2])
    if root in (TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ):
        return _timestamps(array, nulls, data_type.precision)
    if root not in _FIXED:
        raise ValueError(f"{data_type} is not a scalar type")
    if root == TypeRoot.TIME:
        array = array.cast(pa.time32("ms"))
    width = np.dtype(_FIXED[root])
    if array.type.bit_width != 8 * width.itemsize:
        raise ValueError(f"a column of {array.type} for {data_type}")
    return _Column(nulls, _raw(array, width).astype(np.uint64))


def _timestamps(array: pa.Array, nulls: npt.NDArray[np.bool_], precision: int) -> _Column:
    if array.type.unit == "s":
        array = array.cast(pa.timestamp("ms", array.type.tz))
    values = _raw(array, np.int64)
    units = _UNITS_PER_MILLI.get(array.type.unit, 1)
    millis = values // units if units > 1 else values
    if precision <= 3:
        return _Column(nulls, millis.view(np.uint64))
    nanos = (values - millis * units) * (1_000_000 // units)
    return _Nanos(nulls, nanos.view(np.uint64), np.ascontiguousarray(millis).view(np.uint64))


def _content(array: pa.Array) -> tuple[npt.NDArray[np.uint8], Numbers, Numbers]:
    """The bytes of all values with room for one word behind them, where each value begins in them, and their sizes."""
    large = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
    if not (large or pa.types.is_string(array.type) or pa.types.is_binary(array.type)):
        array = array.cast(pa.binary())
    buffers = array.buffers()
    width = np.int64 if large else np.int32
    if len(array) == 0 or buffers[1] is None:
        return np.zeros(8, np.uint8), np.zeros(len(array), np.int64), np.zeros(len(array), np.int64)
    bounds = np.frombuffer(buffers[1], width)[array.offset : array.offset + len(array) + 1].astype(np.int64)
    first, last = int(bounds[0]), int(bounds[-1])
    content = np.zeros(last - first + 8, np.uint8)
    if last > first:
        content[: last - first] = np.frombuffer(buffers[2], np.uint8)[first:last]
    return content, bounds[:-1] - first, np.diff(bounds)


def _raw(array: pa.Array, dtype: Any, words: int = 1) -> npt.NDArray[Any]:
    """The values of a fixed-width array as they lie in memory, whatever is at null places included."""
    values = array.buffers()[1]
    if values is None:
        return np.zeros(len(array) * words, dtype)
    return np.frombuffer(values, dtype)[array.offset * words : (array.offset + len(array)) * words]
