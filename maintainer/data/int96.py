"""INT96 timestamps (spec 02 §3.2), read as the bytes that they are.

| bytes | field                                                            |
| 8     | nanoseconds of the day, int64 little-endian; Java writes negative ones before 1970 |
| 4     | Julian day, uint32 little-endian; 2440588 is 1970-01-01          |

Arrow turns INT96 into 64-bit nanoseconds without a look at the range (year 2300 becomes 1715), and into coarser units without a thought of
negative nanoseconds. So the footer that Arrow works with says something else: `raw_footer` makes each INT96 column a column of 12-byte values,
whose encoding is the same, and `timestamps` does the arithmetic.

The footer is Thrift in the compact protocol. All that is touched are the schema elements, the second field of the footer:

    SchemaElement { 1: type (3 INT96, 7 FIXED_LEN_BYTE_ARRAY)  2: type_length  3: repetition  4: name … }

A field is one byte, (difference to the number of the field before) << 4 | kind, and the value; integers are zigzag varints.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from maintainer.errors import CorruptFile, Unsupported

WIDTH = 12
OUT_OF_RANGE = "a timestamp outside of 1677-09-21 … 2262-04-11, which 64-bit nanoseconds cannot hold"
_EPOCH_DAY = 2440588
_DAY_NANOS = 86_400_000_000_000
_PER_SECOND = {"ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_MAGIC = b"PAR1"
_TAIL = 8
_INT96_TYPE = bytes([3 << 1])
_FIXED_TYPE = bytes([7 << 1])
_TYPE_LENGTH = bytes([0x15, WIDTH << 1])  # field 2, one after field 1; i32
_LIST, _STRUCT = 9, 12
_DEEPEST = 16


def has_int96(metadata: pq.FileMetaData) -> bool:
    """Whether a file holds INT96 values at all."""
    schema = metadata.schema
    return any(schema.column(index).physical_type == "INT96" for index in range(len(schema)))


def raw_footer(source: Any) -> pq.FileMetaData:
    """The footer of an open Parquet file in which INT96 columns are columns of 12 bytes."""
    size = source.size()
    source.seek(size - _TAIL)
    length = int.from_bytes(source.read(4), "little")
    if length > size - _TAIL:
        raise CorruptFile(f"a footer of {length} bytes")
    source.seek(size - _TAIL - length)
    footer = _patch(source.read(length))
    return pq.read_metadata(pa.BufferReader(_MAGIC + footer + len(footer).to_bytes(4, "little") + _MAGIC))


def timestamps(array: pa.FixedSizeBinaryArray, arrow: pa.TimestampType) -> pa.Array:
    """12-byte values as timestamps of this type; excess digits are cut, towards the past."""
    rows = len(array)
    data = array.buffers()[1]
    if data is None or array.null_count == rows:
        return pa.nulls(rows, arrow)
    parts = np.frombuffer(data, np.dtype([("nanos", "<i8"), ("day", "<u4")]), count=rows, offset=array.offset * WIDTH)
    valid = None if not array.null_count else array.is_valid().to_numpy(zero_copy_only=False)
    nanos, days = parts["nanos"], parts["day"].astype(np.int64) - _EPOCH_DAY
    if valid is not None:  # what lies under a NULL means nothing
        nanos, days = np.where(valid, nanos, 0), np.where(valid, days, 0)
    carry = np.floor_divide(nanos, _DAY_NANOS)
    nanos, days = nanos - carry * _DAY_NANOS, days + carry
    per_day = 86_400 * _PER_SECOND[arrow.unit]
    last = np.iinfo(np.int64)
    if rows and not (last.min // per_day < days.min() and days.max() < last.max // per_day):
        _check_edges(days, nanos, per_day, last)
    numbers = days * per_day + nanos // (_DAY_NANOS // per_day)
    return pa.array(numbers, pa.int64(), mask=None if valid is None else ~valid).view(arrow)


def _check_edges(days: Any, nanos: Any, per_day: int, last: Any) -> None:
    """Exactly, for the few values of the first and last days that 64 bits reach."""
    edges = np.flatnonzero((days <= last.min // per_day) | (days >= last.max // per_day))
    for day, nano in zip(days[edges].tolist(), nanos[edges].tolist(), strict=True):
        if not last.min <= day * per_day + nano // (_DAY_NANOS // per_day) <= last.max:
            raise Unsupported(OUT_OF_RANGE)


def _patch(footer: bytes) -> bytes:
    try:
        return _Compact(footer).patched()
    except IndexError as error:
        raise CorruptFile("the footer ends too early") from error


class _Compact:
    """A walk through a footer."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def patched(self) -> bytes:
        pieces, copied = [], 0
        number, kind = self._field(0)
        while number < 2:
            self._skip(kind)
            number, kind = self._field(number)
        if (number, kind) != (2, _LIST):
            raise CorruptFile("a footer without a schema")
        for _ in range(self._list_header()):
            found = self._int96_element()
            if found is not None:
                type_at, rest_at, next_number, next_kind = found
                pieces += [self.data[copied:type_at], _FIXED_TYPE, _TYPE_LENGTH, bytes([(next_number - 2) << 4 | next_kind])]
                copied = rest_at
        return b"".join([*pieces, self.data[copied:]])

    def _int96_element(self) -> tuple[int, int, int, int] | None:
        """Walks over one schema element. Of one of type INT96: where its type and the next value are, and that one's number and kind."""
        found = None
        type_at, number = -1, 0
        while True:
            last, (number, kind) = number, self._field(number)
            if last == 1 and type_at >= 0 and self.data[type_at : type_at + 1] == _INT96_TYPE:
                if number <= 2:
                    raise CorruptFile("an INT96 column with a length, or without a name")
                found = type_at, self.at, number, kind
            if number < 0:
                return found
            if number == 1:
                type_at = self.at
            self._skip(kind)

    def _field(self, last: int) -> tuple[int, int]:
        """Number and kind of the next field; −1 at the end of a struct."""
        byte = self.data[self.at]
        self.at += 1
        if byte == 0:
            return -1, 0
        delta = byte >> 4
        return (last + delta if delta else self._zigzag()), byte & 15

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7
            if shift > 63:
                raise CorruptFile("a number of the footer does not end")

    def _zigzag(self) -> int:
        value = self._varint()
        return value >> 1 ^ -(value & 1)

    def _list_header(self) -> int:
        byte = self.data[self.at]
        self.at += 1
        if byte & 15 != _STRUCT:
            raise CorruptFile("the schema of the footer is no list of elements")
        return byte >> 4 if byte >> 4 < 15 else self._varint()

    def _skip(self, kind: int, depth: int = 0) -> None:
        if depth > _DEEPEST:
            raise CorruptFile("the footer nests too deep")
        match kind:
            case 1 | 2:  # a boolean lies in its field's kind
                pass
            case 3:
                self.at += 1
            case 4 | 5 | 6:
                self._varint()
            case 7:
                self.at += 8
            case 8:
                length = self._varint()
                self.at += length
            case 12:
                number, inner = self._field(0)
                while number >= 0:
                    self._skip(inner, depth + 1)
                    number, inner = self._field(number)
            case _:
                raise CorruptFile(f"kind {kind} in a schema of the footer")
