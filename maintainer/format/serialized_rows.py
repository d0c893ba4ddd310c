"""One column of many serialized rows (`maintainer.format.binary_row`) at once, in a form that sorts as its values do (spec 01 §11).

Statistics and keys of data files are such rows, two or four for each file of a table. What a column becomes:

| type                                | becomes                                                                                           |
| ----------------------------------- | ------------------------------------------------------------------------------------------------- |
| BOOLEAN, integers, DATE, TIME       | int64                                                                                             |
| FLOAT, DOUBLE                       | int64 that sorts as `maintainer.model.values.float_order` has it                                  |
| DECIMAL(p ≤ 18)                     | int64, the unscaled value                                                                         |
| DECIMAL(p ≥ 19)                     | decimal128(38, scale)                                                                             |
| CHAR, VARCHAR, BINARY, VARBINARY    | large_binary                                                                                      |
| TIMESTAMP(_LTZ)                     | int64 nanoseconds, or decimal128(38, 0) of them where a value lies outside of 1677 … 2262         |
| anything else                       | null                                                                                              |

A value that is null, or whose bytes are not those of a value, becomes null: nothing is known of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from maintainer.format.binary_row import INLINE, fixed_size, null_bytes
from maintainer.model.types import BINARIES, CHARACTERS, FLOATS, TIMESTAMPS, DataType, TypeRoot

Words = npt.NDArray[np.uint64]
Numbers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

ARITY = 4
"""Bytes before the body of a serialized row."""
_BEHIND = 24
"""Bytes behind the last row, so that the words of any value can be read without looking."""
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_MAGNITUDE = np.int64(0x7FFFFFFFFFFFFFFF)
NAN_ORDER = 0x7FF8000000000000
_NANOS = Decimal(1_000_000)
_MOST_MILLIS = 9_200_000_000_000
"""Of either sign, their nanoseconds fit into an int64."""

_INTEGERS = {
    TypeRoot.TINYINT: np.int8,
    TypeRoot.SMALLINT: np.int16,
    TypeRoot.INT: np.int32,
    TypeRoot.BIGINT: np.int64,
    TypeRoot.DATE: np.int32,
    TypeRoot.TIME: np.int32,
}


class SerializedRows:
    """Rows of `columns` columns. Those that are not are all null."""

    def __init__(self, rows: Sequence[bytes], columns: int) -> None:
        self.columns = columns
        data = np.frombuffer(b"".join(rows) + bytes(_BEHIND), np.uint8)
        sizes = np.fromiter(map(len, rows), np.int64, len(rows))
        self._data = data
        self._bodies: Numbers = np.cumsum(sizes) - sizes + ARITY
        self._sizes: Numbers = sizes - ARITY
        self._words: Words = np.ndarray((len(data) - 7,), "<u8", data.data, strides=(1,))  # the word that begins at each byte
        long_enough = self._sizes >= fixed_size(columns)
        arity = self._words[np.where(long_enough, self._bodies - ARITY, 0)].astype(np.uint32).byteswap()
        self.whole: Flags = long_enough & (arity == columns)

    def column(self, index: int, data_type: DataType) -> pa.Array:
        """The values of a column of this type."""
        root = data_type.root
        known, slots = self._slots(index)
        if root in _INTEGERS:
            kind = np.dtype(_INTEGERS[root])
            return _array(slots.astype(f"<u{kind.itemsize}").view(kind).astype(np.int64), known)
        if root is TypeRoot.BOOLEAN:
            return _array((slots & np.uint64(0xFF) != 0).astype(np.int64), known)
        if root in FLOATS:
            return _array(_floats(slots, root), known)
        if root is TypeRoot.DECIMAL and data_type.precision <= 18:
            values = slots.view(np.int64)
            limit = 10**data_type.precision
            return _array(values, known & (values < limit) & (values > -limit))
        if root is TypeRoot.DECIMAL:
            return self._large_decimals(slots, known, data_type.scale)
        if root in TIMESTAMPS:
            return self._timestamps(slots, known, data_type.precision)
        if root in CHARACTERS or root in BINARIES:
            return self._octets(slots, known, self._bodies + null_bytes(self.columns) + 8 * index)
        return pa.nulls(len(known))

    def _slots(self, index: int) -> tuple[Flags, Words]:
        """Which rows hold a value in the column, and the words of its slots."""
        bit = index + 8
        nulls = self._data[np.where(self.whole, self._bodies + (bit >> 3), 0)] >> (bit & 7) & 1
        known = self.whole & (nulls == 0)
        return known, self._words[np.where(known, self._bodies + null_bytes(self.columns) + 8 * index, 0)]

    def _variable(self, slots: Words, known: Flags, sizes: Numbers) -> tuple[Flags, Numbers]:
        """Which values of these sizes lie inside of their rows, and where they begin in the data (0 for the others)."""
        offsets = (slots >> _HALF).astype(np.int64)
        inside = known & (offsets + sizes <= self._sizes)
        return inside, np.where(inside, self._bodies + offsets, 0)

    def _timestamps(self, slots: Words, known: Flags, precision: int) -> pa.Array:
        millis, nanos = slots.view(np.int64), np.zeros(len(slots), np.int64)
        if precision > 3:
            nanos = (slots & _LOW).astype(np.int64)
            known, at = self._variable(slots, known & (nanos < 1_000_000), np.full(len(slots), 8))
            millis = self._words[at].view(np.int64)
        if (np.abs(millis[known] // 2) < _MOST_MILLIS // 2).all():
            return _array(np.where(known, millis, 0) * 1_000_000 + nanos, known)
        scaled = pc.multiply(_array(millis, known).cast(pa.decimal128(19, 0)), pa.scalar(_NANOS))
        return pc.add(scaled, _array(nanos, known).cast(pa.decimal128(19, 0))).cast(pa.decimal128(38, 0))

    def _large_decimals(self, slots: Words, known: Flags, scale: int) -> pa.Array:
        """Big-endian two's complement of 1 to 16 bytes: moved to the right end of 128 bits, the sign coming after."""
        digits = (slots & _LOW).astype(np.int64)
        known, at = self._variable(slots, known & (digits >= 1) & (digits <= 16), digits)
        high, low = self._words[at].byteswap().view(np.int64), self._words[at + 8].byteswap()
        shift = np.where(known, 8 * (16 - digits), 0)
        short = np.minimum(shift, 63)
        carried = np.where(shift > 0, high.view(np.uint64) << (64 - np.maximum(short, 1)).astype(np.uint64), np.uint64(0))
        lower = np.where(shift < 64, low >> short.astype(np.uint64) | carried, (high >> np.clip(shift - 64, 0, 63)).view(np.uint64))
        upper = high >> short
        words = np.stack([lower.view(np.int64), upper], axis=1)
        return pa.Array.from_buffers(pa.decimal128(38, scale), len(known), [_bitmap(known), pa.py_buffer(words)])

    def _octets(self, slots: Words, known: Flags, at_slot: Numbers) -> pa.Array:
        mark = (slots >> np.uint64(56)).astype(np.int64)
        inline = mark >= 0x80
        sizes = np.where(inline, mark & 0x7F, (slots & _LOW).astype(np.int64))
        outside, at = self._variable(slots, known & ~inline, sizes)
        known = np.where(inline, known & (sizes <= INLINE), outside)
        sizes = np.where(known, sizes, 0)
        starts = np.where(inline, at_slot, at)
        offsets = np.zeros(len(sizes) + 1, np.int64)
        np.cumsum(sizes, out=offsets[1:])
        content = self._data[np.repeat(starts - offsets[:-1], sizes) + np.arange(offsets[-1])]
        return pa.Array.from_buffers(pa.large_binary(), len(sizes), [_bitmap(known), pa.py_buffer(offsets), pa.py_buffer(content)])


def _floats(slots: Words, root: TypeRoot) -> Numbers:
    values: Any = slots.astype("<u4").view("<f4").astype(np.float64) if root is TypeRoot.FLOAT else slots.view("<f8")
    bits = values.view(np.int64)
    order: Numbers = np.where(bits < 0, bits ^ _MAGNITUDE, bits)
    order[np.isnan(values)] = NAN_ORDER
    return order


def _array(values: Numbers, known: Flags) -> pa.Array:
    return pa.array(values, mask=~known)


def _bitmap(known: Flags) -> pa.Buffer:
    return pa.py_buffer(np.packbits(known, bitorder="little"))
