"""Rows as bytes: `BinaryRow`, `BinaryArray` and what nests in them (spec 01 §11, 03 §1.1; Java `org.apache.paimon.data.BinaryRow`).

All numbers are little-endian, except for the arity prefix of a serialized row.

| bytes                     | row of `arity` columns                                                                           |
| ------------------------- | ------------------------------------------------------------------------------------------------ |
| 1                         | row kind: 0 in all metadata                                                                      |
| ((arity+71)/64)·8 in all  | null bits: column i is bit i+8 of this part, LSB first                                           |
| 8 · arity                 | slots: a fixed-width value at the start, or offset<<32 ∣ length of a value in the variable part  |
| rest                      | variable part: each value 8-aligned, zero padded to a multiple of 8; offsets count from byte 0   |

| bytes                     | array of n elements                                                                              |
| ------------------------- | ------------------------------------------------------------------------------------------------ |
| 4                         | n                                                                                                |
| ((n+31)/32)·4             | null bits                                                                                        |
| n · width, padded to 8    | elements of 1, 2, 4 or 8 bytes; wider ones as in slots, offsets from the start of the array      |
| rest                      | variable part                                                                                    |

Texts and binaries of up to 7 bytes lie in the slot, byte 7 being 0x80 ∣ length. A null DECIMAL(p > 18) or TIMESTAMP(p > 3) of a row, but not of
an array, keeps its place in the variable part. Values are internal values (`maintainer.model.values`).

Decoding is safe for any bytes: whatever lies in a variable part must lie inside its row, and the variable values of one row or array may not
be longer than it in sum, so that overlapping references cannot make a small row expand into a huge one.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from decimal import Context, Decimal
from functools import lru_cache
from typing import Any

from maintainer.errors import CorruptFile
from maintainer.model.types import BINARIES, CHARACTERS, DataType, TypeRoot

INLINE = 7
"""The longest text or binary that lies in its slot."""

_EXACT = Context(prec=80)
_SLOT = struct.Struct("<II")
_INT32 = struct.Struct("<i")
_INT64 = struct.Struct("<q")
_ARITY = struct.Struct(">i")
_JAVA_NAN = {4: bytes.fromhex("0000c07f"), 8: bytes.fromhex("000000000000f87f")}
_FIXED = {
    TypeRoot.BOOLEAN: "?",
    TypeRoot.TINYINT: "b",
    TypeRoot.SMALLINT: "h",
    TypeRoot.INT: "i",
    TypeRoot.BIGINT: "q",
    TypeRoot.FLOAT: "f",
    TypeRoot.DOUBLE: "d",
    TypeRoot.DATE: "i",
    TypeRoot.TIME: "i",
}
_OPAQUE = BINARIES | {TypeRoot.BLOB, TypeRoot.GEOMETRY, TypeRoot.GEOGRAPHY}


def encode_row(values: Sequence[Any], types: Sequence[DataType]) -> bytes:
    """The body of a row with row kind 0."""
    return row_codec(tuple(types)).encode(values)


def decode_row(body: bytes, types: Sequence[DataType]) -> tuple[Any, ...]:
    """The values of a body; as many types as columns."""
    return row_codec(tuple(types)).decode(body)


def serialize(values: Sequence[Any], types: Sequence[DataType]) -> bytes:
    """The body behind its arity, as rows lie in manifests, statistics and messages."""
    return _ARITY.pack(len(types)) + row_codec(tuple(types)).encode(values)


def deserialize(data: bytes, types: Sequence[DataType]) -> tuple[Any, ...]:
    """The values of a serialized row, whose arity must be that of the types."""
    return row_codec(tuple(types)).deserialize(data)


def arity(data: bytes) -> int:
    """The number of columns of a serialized row."""
    if len(data) < 12:
        raise CorruptFile(f"a serialized row of {len(data)} bytes")
    count: int = _ARITY.unpack_from(data)[0]
    if count < 0 or 4 + fixed_size(count) > len(data):
        raise CorruptFile(f"a serialized row of {len(data)} bytes claims {count} columns")
    return count


def null_bytes(columns: int) -> int:
    """The size of the row kind and the null bits."""
    return (columns + 71) // 64 * 8


def fixed_size(columns: int) -> int:
    """The size of a row without its variable part."""
    return null_bytes(columns) + 8 * columns


class RowCodec:
    """Encodes and decodes rows of given types; worth keeping where many rows of one kind are handled."""

    __slots__ = ("_cells", "_fixed", "_nulls", "types")

    def __init__(self, types: tuple[DataType, ...]) -> None:
        self.types = types
        self._cells = tuple(_cell(data_type) for data_type in types)
        self._nulls = null_bytes(len(types))
        self._fixed = fixed_size(len(types))

    def encode(self, values: Sequence[Any]) -> bytes:
        if len(values) != len(self._cells):
            raise ValueError(f"{len(values)} values for {len(self._cells)} columns")
        row = bytearray(self._fixed)
        slot = self._nulls
        for index, (cell, value) in enumerate(zip(self._cells, values, strict=True)):
            if value is None:
                row[(index + 8) >> 3] |= 1 << (index & 7)
                if cell.reserved:
                    _SLOT.pack_into(row, slot, 0, len(row))
                    row += bytes(cell.reserved)
            else:
                cell.write(row, slot, value)
            slot += 8
        return bytes(row)

    def decode(self, body: bytes) -> tuple[Any, ...]:
        if len(body) < self._fixed:
            raise CorruptFile(f"a row of {len(self._cells)} columns needs {self._fixed} bytes and has {len(body)}")
        values: list[Any] = []
        slot = self._nulls
        budget = len(body)
        for index, cell in enumerate(self._cells):
            if body[(index + 8) >> 3] >> (index & 7) & 1:
                values.append(None)
            else:
                value, used = cell.read(body, slot)
                budget -= used
                if budget < 0:
                    raise CorruptFile("the variable values of a row are longer than the row", offset=slot)
                values.append(value)
            slot += 8
        return tuple(values)

    def serialize(self, values: Sequence[Any]) -> bytes:
        return _ARITY.pack(len(self._cells)) + self.encode(values)

    def deserialize(self, data: bytes) -> tuple[Any, ...]:
        count = arity(data)
        if count != len(self._cells):
            raise CorruptFile(f"a row of {count} columns where {len(self._cells)} are expected")
        return self.decode(data[4:])


@lru_cache(maxsize=1024)
def row_codec(types: tuple[DataType, ...]) -> RowCodec:
    return RowCodec(types)


class _Cell:
    """How a value of one type lies in a slot of a row or an element of an array.

    `width` is that of an array element, `reserved` what a null keeps in the variable part of a row. `read` returns the value and how many bytes
    of the variable part it took.
    """

    width = 8
    reserved = 0

    def write(self, row: bytearray, slot: int, value: Any) -> None:
        raise NotImplementedError

    def read(self, row: bytes, slot: int) -> tuple[Any, int]:
        raise NotImplementedError


class _Fixed(_Cell):
    def __init__(self, code: str) -> None:
        self._struct = struct.Struct("<" + code)
        self.width = self._struct.size

    def write(self, row: bytearray, slot: int, value: Any) -> None:
        self._struct.pack_into(row, slot, value)

    def read(self, row: bytes, slot: int) -> tuple[Any, int]:
        return self._struct.unpack_from(row, slot)[0], 0


class _SmallDecimal(_Cell):
    """DECIMAL(p ≤ 18): the unscaled value."""

    def __init__(self, precision: int, scale: int) -> None:
        self._limit = 10**precision
        self._scale = scale

    def write(self, row: bytearray, slot: int, value: Any) -> None:
        _INT64.pack_into(row, slot, unscaled(value, self._scale, self._limit))

    def read(self, row: bytes, slot: int) -> tuple[Any, int]:
        return scaled(_INT64.unpack_from(row, slot)[0], self._scale, self._limit, slot), 0


class _LargeDecimal(_Cell):
    """DECIMAL(p > 18): big-endian two's complement of the unscaled value, as short as possible, in 16 bytes of the variable part."""

    reserved = 16

    def __init__(self, precision: int, scale: int) -> None:
        self._limit = 10**precision
        self._scale = scale

    def write(self, row: bytearray, slot: int, value: Any) -> None:
        number = unscaled(value, self._scale, self._limit)
        digits = (number if number >= 0 else ~number).bit_length() // 8 + 1
        _SLOT.pack_into(row, slot, digits, len(row))
        row += number.to_bytes(digits, "big", signed=True).ljust(16, b"\0")

    def read(self, row: bytes, slot: int) -> tuple[Any, int]:
        digits, offset = _SLOT.unpack_from(row, slot)
        if not 1 <= digits <= 16 or offset + digits > len(row):
            raise CorruptFile(f"a decimal of {digits} bytes at {offset} in a row of {len(row)}", offset=slot)
        number = int.from_bytes(row[offset : offset + digits], "big", signed=True)
        return scaled(number, self._scale, self._limit, slot), digits


class _Millis(_Cell):
    """TIMESTAMP(p ≤ 3): milliseconds."""

    def write(self, row: bytearray, slot: int, value: Any) -> None:
        _INT64.pack_into(row, slot, value // 1_000_000)

    def read(self, row: bytes, slot: int) -> tuple[Any, int]:
        return _INT64.unpack_from(row, slot)[0] * 1_000_000, 0


class _Nanos(_Cell):
    """TIMESTAMP(p > 3): nanoseconds of the millisecond in the slot, milliseconds in 8 bytes of the variable part."""

    reserved = 8

    def write(self, row: bytearray, slot: int, value: Any) -> None:
        millis, nanos = divmod(value, 1_000_000)
        _SLOT.pack_into(row, slot, nanos, len(row))
        row += _INT64.pack(millis)

    def read(self, row: bytes, slot: int) -> tuple[Any, int]:
        nanos, offset = _SLOT.unpack_from(row, slot)
        if nanos >= 1_000_000 or offset + 8 > len(row):
            raise CorruptFile(f"a timestamp with {nanos} ns at {offset} in a row of {len(row)}", offset=slot)
        return _INT64.unpack_from(row, offset)[0] * 1_000_000 + nanos, 8


class _Bytes(_Cell):
    def write(self, row: bytearray, slot: int, value: Any) -> None:
        size = len(value)
        if size <= INLINE:
            row[slot : slot + size] = value
            row[slot + 7] = 0x80 | size
        else:
            _append(row, slot, value)

    def read(self, row: bytes, slot: int) -> tuple[Any, int]:
        mark = row[slot + 7]
        if mark & 0x80:
            size = mark & 0x7F
            if size > INLINE:
                raise CorruptFile(f"an inline value of {size} bytes", offset=slot)
            return row[slot : slot + size], 0
        start, end = _bounds(row, slot)
        return row[start:end], end - start


class _Text(_Bytes):
    def write(self, row: bytearray, slot: int, value: Any) -> None:
        super().write(row, slot, value.encode("utf-8", "surrogatepass"))

    def read(self, row: bytes, slot: int) -> tuple[Any, int]:
        data, used = super().read(row, slot)
        try:
            return data.decode("utf-8", "surrogatepass"), used
        except UnicodeDecodeError as error:
            raise CorruptFile(f"a text that is not UTF-8: {error.reason}", offset=slot) from None


class _Nested(_Cell):
    """A value that is itself bytes with structure, always in the variable part."""

    def __init__(self, encode: Callable[[Any], bytes], decode: Callable[[bytes], Any]) -> None:
        self._encode = encode
        self._decode = decode

    def write(self, row: bytearray, slot: int, value: Any) -> None:
        _append(row, slot, self._encode(value))

    def read(self, row: bytes, slot: int) -> tuple[Any, int]:
        start, end = _bounds(row, slot)
        return self._decode(row[start:end]), end - start


class _Array:
    """The elements of an ARRAY, or one side of a MAP."""

    def __init__(self, element: DataType) -> None:
        self._cell = _cell(element)
        self._nan = _JAVA_NAN[self._cell.width] if element.root in (TypeRoot.FLOAT, TypeRoot.DOUBLE) else None

    def encode(self, values: Sequence[Any]) -> bytes:
        cell, width = self._cell, self._cell.width
        header = 4 + (len(values) + 31) // 32 * 4
        array = bytearray(_padded(header + len(values) * width))
        _INT32.pack_into(array, 0, len(values))
        position = header
        for index, value in enumerate(values):
            if value is None:
                array[4 + (index >> 3)] |= 1 << (index & 7)
            elif self._nan is not None and value != value:
                array[position : position + width] = self._nan
            else:
                cell.write(array, position, value)
            position += width
        return bytes(array)

    def decode(self, data: bytes) -> list[Any]:
        count = _count(data)
        cell, width = self._cell, self._cell.width
        header = 4 + (count + 31) // 32 * 4
        if header + count * width > len(data):
            raise CorruptFile(f"an array of {len(data)} bytes claims {count} elements")
        values: list[Any] = []
        position, budget = header, len(data)
        for index in range(count):
            if data[4 + (index >> 3)] >> (index & 7) & 1:
                values.append(None)
            else:
                value, used = cell.read(data, position)
                budget -= used
                if budget < 0:
                    raise CorruptFile("the variable values of an array are longer than the array", offset=position)
                values.append(value)
            position += width
        return values


class _Map:
    """int32 size of the key array, key array, value array; held as pairs."""

    def __init__(self, key: DataType, element: DataType) -> None:
        self._keys = _Array(key)
        self._values = _Array(element)

    def encode(self, pairs: Sequence[tuple[Any, Any]]) -> bytes:
        keys = self._keys.encode([key for key, _ in pairs])
        return _INT32.pack(len(keys)) + keys + self._values.encode([value for _, value in pairs])

    def decode(self, data: bytes) -> list[tuple[Any, Any]]:
        size = _count(data)
        if 4 + size > len(data):
            raise CorruptFile(f"a map of {len(data)} bytes claims {size} bytes of keys")
        keys, values = self._keys.decode(data[4 : 4 + size]), self._values.decode(data[4 + size :])
        if len(keys) != len(values):
            raise CorruptFile(f"a map of {len(keys)} keys and {len(values)} values")
        return list(zip(keys, values, strict=True))


class _Vector:
    """int32 element count and the elements, padded to 8; no nulls."""

    def __init__(self, element: DataType) -> None:
        self._code = _FIXED[element.root]
        self._width = struct.calcsize(self._code)

    def encode(self, values: Sequence[Any]) -> bytes:
        elements = struct.pack(f"<{len(values)}{self._code}", *values)
        return _INT32.pack(len(values)) + elements.ljust(_padded(len(elements)), b"\0")

    def decode(self, data: bytes) -> list[Any]:
        count = _count(data)
        if 4 + count * self._width > len(data):
            raise CorruptFile(f"a vector of {len(data)} bytes claims {count} elements")
        return list(struct.unpack_from(f"<{count}{self._code}", data, 4))


def _encode_variant(variant: tuple[bytes, bytes]) -> bytes:
    """int32 size of the value, value, metadata."""
    value, metadata = variant
    return _INT32.pack(len(value)) + value + metadata


def _decode_variant(data: bytes) -> tuple[bytes, bytes]:
    size = _count(data)
    if 4 + size > len(data):
        raise CorruptFile(f"a variant of {len(data)} bytes claims a value of {size}")
    return data[4 : 4 + size], data[4 + size :]


def _cell(data_type: DataType) -> _Cell:
    element = data_type.element
    match data_type.root:
        case root if root in _FIXED:
            return _Fixed(_FIXED[root])
        case root if root in CHARACTERS:
            return _Text()
        case root if root in _OPAQUE:
            return _Bytes()
        case TypeRoot.DECIMAL:
            kind = _SmallDecimal if data_type.precision <= 18 else _LargeDecimal
            return kind(data_type.precision, data_type.scale)
        case TypeRoot.TIMESTAMP | TypeRoot.TIMESTAMP_LTZ:
            return _Millis() if data_type.precision <= 3 else _Nanos()
        case TypeRoot.ROW:
            row = RowCodec(tuple(field.type for field in data_type.fields))
            return _Nested(row.encode, row.decode)
        case TypeRoot.VARIANT:
            return _Nested(_encode_variant, _decode_variant)
    if element is None:
        raise ValueError(f"{data_type.root} without an element type")
    codec: _Array | _Map | _Vector
    match data_type.root:
        case TypeRoot.MAP if data_type.key is not None:
            codec = _Map(data_type.key, element)
        case TypeRoot.MULTISET:
            codec = _Map(element, DataType(TypeRoot.INT))
        case TypeRoot.VECTOR:
            codec = _Vector(element)
        case _:
            codec = _Array(element)
    return _Nested(codec.encode, codec.decode)


def unscaled(value: Decimal, scale: int, limit: int) -> int:
    """value · 10^scale as an integer below `limit`; a value that does not fit the type is the caller's mistake."""
    shifted = value.scaleb(scale, _EXACT)
    number = int(shifted)
    if number != shifted or abs(number) >= limit:
        raise ValueError(f"{value} does not fit a decimal with scale {scale} below {limit}")
    return number


def scaled(number: int, scale: int, limit: int, slot: int) -> Decimal:
    """The decimal of an unscaled value, with the type's scale."""
    if abs(number) >= limit:
        raise CorruptFile(f"the unscaled decimal {number} is beyond its precision", offset=slot)
    return Decimal(number).scaleb(-scale, _EXACT)


def _append(row: bytearray, slot: int, data: bytes) -> None:
    _SLOT.pack_into(row, slot, len(data), len(row))
    row += data
    row += bytes(-len(data) % 8)


def _bounds(row: bytes, slot: int) -> tuple[int, int]:
    size, offset = _SLOT.unpack_from(row, slot)
    if offset + size > len(row):
        raise CorruptFile(f"a value of {size} bytes at {offset} in a row of {len(row)}", offset=slot)
    return offset, offset + size


def _count(data: bytes) -> int:
    if len(data) < 4:
        raise CorruptFile(f"a nested value of {len(data)} bytes")
    count: int = _INT32.unpack_from(data)[0]
    if count < 0:
        raise CorruptFile(f"a nested value with the count {count}")
    return count


def _padded(size: int) -> int:
    return -(-size // 8) * 8
