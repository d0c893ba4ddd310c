"""Keys of sorted index payloads as bytes, and their order (spec 08 §2.1; Java `KeySerializer`).

| type                              | bytes                                                                                     |
| --------------------------------- | ----------------------------------------------------------------------------------------- |
| BOOLEAN                           | 01 or 00                                                                                  |
| TINYINT, SMALLINT, INT, BIGINT    | two's complement, little-endian                                                           |
| DATE, TIME                        | as INT: days since 1970-01-01, milliseconds of the day                                    |
| FLOAT, DOUBLE                     | IEEE bits, little-endian; every NaN is 7fc00000 or 7ff8000000000000                       |
| DECIMAL(p ≤ 18)                   | unscaled value as BIGINT                                                                  |
| DECIMAL(p > 18)                   | unscaled value, shortest two's complement, big-endian                                     |
| TIMESTAMP[_LTZ](p ≤ 3)            | milliseconds since 1970-01-01 (floor) as BIGINT                                           |
| TIMESTAMP[_LTZ](p > 3)            | the same, then the nanoseconds within the millisecond as a variable-length number         |
| CHAR, VARCHAR, STRING             | UTF-8, as it is                                                                           |

The order of the bytes is not the order of the values, except for characters and BOOLEAN: two keys are compared by `comparable`, never bytewise.
"""

from __future__ import annotations

import struct
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from maintainer.errors import CorruptFile, Unsupported
from maintainer.format import byte_column, varint
from maintainer.format.byte_column import ByteColumn
from maintainer.model.types import CHARACTERS, FLOATS, TIMESTAMPS, DataType, TypeRoot
from maintainer.model.values import float_order

NANOS_PER_MILLI = 1_000_000
MAX_COMPACT_DECIMAL = 18
_TICKS_PER_MILLI = {"ms": 1, "us": 1_000, "ns": NANOS_PER_MILLI}
MILLISECONDS = 3  # timestamps of up to so many digits have no nanoseconds in their key
_MAX_UNSCALED_BYTES = 16

_FORMATS = {
    TypeRoot.TINYINT: "<b",
    TypeRoot.SMALLINT: "<h",
    TypeRoot.INT: "<i",
    TypeRoot.BIGINT: "<q",
    TypeRoot.DATE: "<i",
    TypeRoot.TIME: "<i",
}
_DTYPES = {
    TypeRoot.TINYINT: "<i1",
    TypeRoot.SMALLINT: "<i2",
    TypeRoot.INT: "<i4",
    TypeRoot.BIGINT: "<i8",
    TypeRoot.DATE: "<i4",
    TypeRoot.TIME: "<i4",
    TypeRoot.FLOAT: "<u4",
    TypeRoot.DOUBLE: "<u8",
}
_NAN = {TypeRoot.FLOAT: 0x7FC00000, TypeRoot.DOUBLE: 0x7FF8000000000000}
_INFINITY = {TypeRoot.FLOAT: 0x7F800000, TypeRoot.DOUBLE: 0x7FF0000000000000}
_MAX_NANOS_BYTES = 3
_FLOAT_FORMATS = {TypeRoot.FLOAT: "<f", TypeRoot.DOUBLE: "<d"}
KEY_TYPES = frozenset({*_DTYPES, *CHARACTERS, *TIMESTAMPS, TypeRoot.BOOLEAN, TypeRoot.DECIMAL})
"""Types whose values can be keys."""

Comparable = Any
"""An integer or bytes; only what comes from keys of one type is compared with one another."""


def check_type(data_type: DataType) -> None:
    """Only scalars that have an order can be keys."""
    if data_type.root not in KEY_TYPES:
        raise Unsupported(f"DataType: {data_type} is not supported by global index now.")


def bytes_are_ordered(data_type: DataType) -> bool:
    """Whether the bytes of every two keys compare like their values."""
    return data_type.root in CHARACTERS or data_type.root is TypeRoot.BOOLEAN


def encode(value: Any, data_type: DataType) -> bytes:
    """The key of one internal value; `ValueError` for what is not a value of the type (it cannot be in the column either)."""
    root = data_type.root
    try:
        if root in CHARACTERS:
            return str.encode(value, "utf-8")
        if root is TypeRoot.BOOLEAN:
            return b"\x01" if value else b"\x00"
        if root in FLOATS:
            if value != value:
                return int(_NAN[root]).to_bytes(4 if root is TypeRoot.FLOAT else 8, "little")
            return _encode_float(value, _FLOAT_FORMATS[root])
        if root is TypeRoot.DECIMAL:
            unscaled = _unscaled(value, data_type.scale)
            if data_type.precision <= MAX_COMPACT_DECIMAL:
                return struct.pack("<q", unscaled)
            return unscaled.to_bytes(_shortest(unscaled), "big", signed=True)
        if root in TIMESTAMPS:
            millis, nanos = divmod(value, NANOS_PER_MILLI)
            if data_type.precision > MILLISECONDS:
                return struct.pack("<q", millis) + varint.encode(nanos)
            if nanos:
                raise ValueError(f"{value} ns is not a whole number of milliseconds")
            return struct.pack("<q", millis)
        return struct.pack(_FORMATS[root], value)
    except (struct.error, OverflowError, TypeError, InvalidOperation) as error:
        raise ValueError(f"{value!r} is not a value of {data_type}") from error


def decode(key: bytes, data_type: DataType) -> Any:
    """The internal value of a key."""
    root = data_type.root
    if root in CHARACTERS:
        try:
            return key.decode("utf-8")
        except UnicodeDecodeError as error:
            raise CorruptFile(f"a key of {data_type} is not UTF-8") from error
    value = comparable(key, data_type)
    if root is TypeRoot.BOOLEAN:
        return bool(value)
    if root in FLOATS:
        return struct.unpack(_FLOAT_FORMATS[root], key)[0]
    if root is TypeRoot.DECIMAL:
        digits = tuple(map(int, str(abs(int(value)))))
        return Decimal((int(value) < 0, digits, -data_type.scale))
    return value


def comparable(key: bytes, data_type: DataType) -> Comparable:
    """What sorts as the key's value does: an integer, or for characters the bytes themselves."""
    root = data_type.root
    if root in CHARACTERS:
        return key
    try:
        if root is TypeRoot.BOOLEAN:
            (byte,) = key
            return int(byte == 1)
        if root in FLOATS:
            return float_order(struct.unpack(_FLOAT_FORMATS[root], key)[0])
        if root is TypeRoot.DECIMAL:
            if data_type.precision <= MAX_COMPACT_DECIMAL:
                return int(struct.unpack("<q", key)[0])
            if not 0 < len(key) <= _MAX_UNSCALED_BYTES:
                raise CorruptFile(f"a key of {data_type} has {len(key)} bytes")
            return int.from_bytes(key, "big", signed=True)
        if root in TIMESTAMPS:
            millis = int(struct.unpack("<q", key[:8])[0])
            nanos, end = varint.decode(key, 8) if data_type.precision > MILLISECONDS else (0, 8)
            if end != len(key) or nanos >= NANOS_PER_MILLI:
                raise CorruptFile(f"a key of {data_type} is malformed")
            return millis * NANOS_PER_MILLI + nanos
        return int(struct.unpack(_FORMATS[root], key)[0])
    except (struct.error, ValueError) as error:
        raise CorruptFile(f"a key of {data_type} has {len(key)} bytes") from error


def words(keys: ByteColumn, data_type: DataType) -> tuple[npt.NDArray[np.int64], ...]:
    """What sorts as the values of many keys do, most significant first: one int64 each, two for wide decimals and for timestamps with
    nanoseconds. `CorruptFile` when a key is not what `encode_column` makes of a value. Characters are their own order."""
    root = data_type.root
    if root in TIMESTAMPS and data_type.precision > MILLISECONDS:
        return _timestamp_words(keys)
    if root is TypeRoot.DECIMAL and data_type.precision > MAX_COMPACT_DECIMAL:
        return _decimal_words(keys)
    dtype = np.dtype("<i8" if root is TypeRoot.DECIMAL or root in TIMESTAMPS else "u1" if root is TypeRoot.BOOLEAN else _DTYPES[root])
    if not len(keys):
        return (np.empty(0, np.int64),)
    if keys.width != dtype.itemsize and not (keys.width is None and bool((keys.lengths == dtype.itemsize).all())):
        raise CorruptFile(f"keys of {data_type} do not have {dtype.itemsize} bytes each")
    numbers = np.ascontiguousarray(keys.data).view(dtype)
    if root in FLOATS:
        # Negative numbers have their other bits turned round; of those that are no numbers there is one.
        bits = numbers.view(f"<i{dtype.itemsize}")
        infinity = np.array(_INFINITY[root], bits.dtype)
        wild = (bits & np.iinfo(bits.dtype).max) > infinity
        if bool((numbers[wild] != np.array(_NAN[root], dtype)).any()):
            raise CorruptFile(f"a key of {data_type} is a NaN that is not the canonical one")
        numbers = np.where(bits < 0, bits ^ np.iinfo(bits.dtype).max, bits)
    elif root is TypeRoot.BOOLEAN and int(numbers.max()) > 1:
        raise CorruptFile("a key of BOOLEAN is neither 00 nor 01")
    return (numbers.astype(np.int64, copy=False),)


def _timestamp_words(keys: ByteColumn) -> tuple[npt.NDArray[np.int64], ...]:
    sizes = keys.lengths - 8
    if len(sizes) and not 1 <= int(sizes.min()) <= int(sizes.max()) <= _MAX_NANOS_BYTES:
        raise CorruptFile("a key of a timestamp has too few or too many bytes")
    octets = _padded(keys.data)
    at = keys.offsets[:-1]
    nanos = np.zeros(len(at), np.int64)
    more = np.zeros(len(at), bool)
    for column in range(_MAX_NANOS_BYTES):
        byte = np.where(sizes > column, octets[at + 16 + column], 0).astype(np.int64)
        nanos |= (byte & 0x7F) << 7 * column
        more |= (byte >= 0x80) != (sizes > column + 1)
    if bool(more.any()) or bool((nanos >= NANOS_PER_MILLI).any()) or bool((varint.lengths(nanos) != sizes).any()):
        raise CorruptFile("a key of a timestamp is malformed")
    return _unaligned(octets, "<i8", at + 8), nanos


def _decimal_words(keys: ByteColumn) -> tuple[npt.NDArray[np.int64], ...]:
    sizes = keys.lengths
    if len(sizes) and not 1 <= int(sizes.min()) <= int(sizes.max()) <= _MAX_UNSCALED_BYTES:
        raise CorruptFile("a key of a decimal has too few or too many bytes")
    octets = _padded(keys.data)
    begins, ends = keys.offsets[:-1] + 8, keys.offsets[1:] + 8
    first, second = octets[begins], octets[np.minimum(begins + 1, ends - 1)]
    if bool(((sizes > 1) & (((first == 0) & (second < 0x80)) | ((first == 0xFF) & (second >= 0x80)))).any()):
        raise CorruptFile("a key of a decimal is longer than it need be")
    # Each half without what lies before it, its sign spread.
    spare = 8 * (8 - np.clip(sizes, 1, 8))
    low = (_unaligned(octets, ">i8", ends - 8) << spare) >> spare
    spare = 8 * (8 - np.clip(sizes - 8, 1, 8))
    high = np.where(sizes > 8, (_unaligned(octets, ">i8", np.maximum(ends - 16, 0)) << spare) >> spare, low >> 63)
    return high, low ^ np.int64(-(2**63))


def _padded(data: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """The bytes with eight zeros before and behind them."""
    padded = np.zeros(len(data) + 16, np.uint8)
    padded[8:-8] = data
    return padded


def _unaligned(octets: npt.NDArray[np.uint8], dtype: str, at: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return np.ndarray((len(octets) - 7,), dtype, octets, strides=(1,))[at].astype(np.int64)


def sortable(array: pa.Array, data_type: DataType) -> tuple[pa.Array, DataType]:
    """A column without nulls as it is sorted and grouped: times as integers, cut to what their keys hold; others as they are."""
    match data_type.root:
        case TypeRoot.DATE | TypeRoot.TIME:
            if data_type.root is TypeRoot.TIME and array.type != pa.time32("ms"):
                array = array.cast(pa.time32("ms"), safe=False)
            return array.view(pa.int32()), DataType(TypeRoot.INT)
        case TypeRoot.TIMESTAMP | TypeRoot.TIMESTAMP_LTZ:
            ticks = array.view(pa.int64())
            per_milli = _ticks_per_milli(array.type)
            if data_type.precision <= MILLISECONDS and per_milli > 1:
                ticks = pa.array(ticks.to_numpy() // per_milli)
            return ticks, DataType(TypeRoot.BIGINT)
        case _:
            return array, data_type


def encode_column(array: pa.Array, data_type: DataType) -> ByteColumn:
    """The keys of an Arrow array without nulls."""
    root = data_type.root
    if root in CHARACTERS:
        return byte_column.of_arrow(array)
    if root is TypeRoot.BOOLEAN:
        return ByteColumn(pc.cast(array, pa.uint8()).to_numpy(), None, width=1)
    if root in FLOATS:
        return _encode_floats(array, root)
    if root is TypeRoot.DECIMAL:
        return _encode_decimals(array, data_type)
    if root in TIMESTAMPS:
        return _encode_timestamps(array, data_type)
    array, _ = sortable(array, data_type)
    return _fixed(array.to_numpy().astype(_DTYPES[root], copy=False))


def _fixed(numbers: npt.NDArray[Any]) -> ByteColumn:
    return ByteColumn(np.ascontiguousarray(numbers).view(np.uint8), None, width=numbers.dtype.itemsize)


def _encode_floats(array: pa.Array, root: TypeRoot) -> ByteColumn:
    values = array.to_numpy()
    bits = values.view(_DTYPES[root])
    nans = np.isnan(values)
    if nans.any():
        bits = np.where(nans, np.array(_NAN[root], bits.dtype), bits)
    return _fixed(bits)


def _encode_decimals(array: pa.Array, data_type: DataType) -> ByteColumn:
    if not pa.types.is_decimal128(array.type):
        array = array.cast(pa.decimal128(data_type.precision, data_type.scale))
    words = np.frombuffer(array.buffers()[1], "<i8", 2 * len(array), 16 * array.offset).reshape(-1, 2)  # low, high
    if data_type.precision <= MAX_COMPACT_DECIMAL:
        return _fixed(words[:, 0].copy())
    octets = words.view(np.uint8).reshape(-1, _MAX_UNSCALED_BYTES)[:, ::-1]
    sign = (octets[:, :1] >> 7) * np.uint8(0xFF)
    # The first byte that is not mere sign, and one byte more where its top bit says the opposite of the sign.
    differs = octets != sign
    lead = np.where(differs.any(axis=1), differs.argmax(axis=1), _MAX_UNSCALED_BYTES)
    first = octets[np.arange(len(octets)), np.minimum(lead, _MAX_UNSCALED_BYTES - 1)]
    extra = (lead == _MAX_UNSCALED_BYTES) | ((first ^ sign[:, 0]) >= 0x80)
    lead -= extra
    sizes = _MAX_UNSCALED_BYTES - lead
    column = np.arange(_MAX_UNSCALED_BYTES)
    offsets = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    return ByteColumn(octets[column >= lead[:, None]], offsets)


def _encode_timestamps(array: pa.Array, data_type: DataType) -> ByteColumn:
    per_milli = _ticks_per_milli(array.type)
    millis, rest = np.divmod(array.view(pa.int64()).to_numpy(), per_milli)
    if data_type.precision <= MILLISECONDS:
        return _fixed(millis.astype("<i8", copy=False))
    nanos = rest * (NANOS_PER_MILLI // per_milli)
    sizes = varint.lengths(nanos)
    matrix = np.empty((len(millis), 8 + int(sizes.max(initial=1))), np.uint8)
    matrix[:, :8] = millis.astype("<i8", copy=False).view(np.uint8).reshape(-1, 8)
    varint.fill(matrix[:, 8:], nanos, sizes)
    return ByteColumn.of_matrix(matrix, sizes + np.uint8(8))


def _ticks_per_milli(arrow_type: pa.DataType) -> int:
    return _TICKS_PER_MILLI[arrow_type.unit]


def _encode_float(value: float, form: str) -> bytes:
    packed = struct.pack(form, value)
    if struct.unpack(form, packed)[0] != value:
        raise ValueError(f"{value!r} is not a value of a 32-bit float")
    return packed


def _unscaled(value: Decimal, scale: int) -> int:
    sign, digits, exponent = Decimal(value).as_tuple()
    if not isinstance(exponent, int):
        raise ValueError(f"{value} is not a number")
    number = int("".join(map(str, digits)))
    shift = exponent + scale
    factor: int = 10 ** min(abs(shift), 100)
    if shift >= 0:
        number *= factor
    else:
        number, lost = divmod(number, factor)
        if lost:
            raise ValueError(f"{value} has more than {scale} digits after the point")
    return -number if sign else number


def _shortest(number: int) -> int:
    size = (number if number >= 0 else ~number).bit_length() // 8 + 1
    if size > _MAX_UNSCALED_BYTES:
        raise ValueError("a decimal of more than 38 digits")
    return size
