"""Roaring bitmaps as bytes (spec 02 §12.4, 08 §6; Java `RoaringBitmap`, `Roaring64NavigableMap.serializePortable`, `RoaringNavigableMap64`).

The portable 64-bit form, little-endian. A missing high key is an empty bitmap; an empty bitmap is eight zero bytes.

| bytes       | field                                             |
| 8           | number of entries                                 |
| per entry 4 | the high 32 bits, ascending                       |
|     …       | the low 32 bits as a portable 32-bit bitmap       |

The portable 32-bit form has one container for each used value of the upper 16 bits:

| bytes       | field                                                                                          |
| 4 + 4       | 12346, number of containers c                      without run containers                      |
| 2 + 2 + ⌈c/8⌉ | 12347, c − 1, one bit per container: is it a run   with run containers                       |
| c × (2 + 2) | upper 16 bits of the container, cardinality − 1                                                |
| c × 4       | offset of the container in the bitmap; left out when there are run containers and c < 4        |
| per container | run: u16 count, count × (u16 start, u16 length − 1); cardinality ≤ 4096: sorted u16; else 8192 bytes |

CRoaring checks the structure of what it is given, but ignores what follows it and does not say where it stopped: the walk here finds the
end of each bitmap, and trailing bytes are an error.
"""

from __future__ import annotations

import struct

from pyroaring import BitMap, BitMap64

from maintainer.errors import CorruptFile

_NO_RUNS = 12346
_WITH_RUNS = 12347
_OFFSETS_FROM = 4  # with run containers, offsets are stored from this many containers on
_ARRAY_LIMIT = 4096  # containers of more values are stored as 8192 bytes of bits
_BITS_SIZE = 8192
_MAX_CONTAINERS = 1 << 16
_SMALLEST_ENTRY = 12  # high key and an empty 32-bit bitmap
_MAX_HIGH_KEY = (1 << 31) - 1

_U16 = struct.Struct("<H")
_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")


def held(size: int) -> int:
    """About how many bytes a bitmap holds in memory that has `size` bytes when it is written: the same, and some for each container."""
    return 2 * size + 256


def check_portable(data: bytes | memoryview, offset: int = 0) -> int:
    """Walks the 32-bit bitmap that starts at `offset` and returns where it ends."""
    try:
        return _walk(data, offset)
    except struct.error as error:
        raise CorruptFile("a roaring bitmap ends too early", offset=offset) from error


def _walk(data: bytes | memoryview, start: int) -> int:
    cookie: int = _U32.unpack_from(data, start)[0]
    at: int = start + 4
    runs: bytes | memoryview = b""
    if cookie & 0xFFFF == _WITH_RUNS:
        count = (cookie >> 16) + 1
        size = (count + 7) // 8
        runs = data[at : at + size]
        at += size
    elif cookie == _NO_RUNS:
        count = _U32.unpack_from(data, at)[0]
        at += 4
        if count > _MAX_CONTAINERS:
            raise CorruptFile(f"a roaring bitmap of {count} containers", offset=start)
    else:
        raise CorruptFile(f"{cookie & 0xFFFF} is not the cookie of a roaring bitmap", offset=start)
    if at + 4 * count > len(data):
        raise CorruptFile("a roaring bitmap ends too early", offset=start)
    cardinalities = struct.unpack_from(f"<{2 * count}H", data, at)[1::2]
    at += 4 * count
    if not runs or count >= _OFFSETS_FROM:
        at += 4 * count
    for index, cardinality in enumerate(cardinalities):  # cardinality - 1
        if runs and runs[index >> 3] >> (index & 7) & 1:
            at += 2 + 4 * _U16.unpack_from(data, at)[0]
        else:
            at += 2 * (cardinality + 1) if cardinality < _ARRAY_LIMIT else _BITS_SIZE
    if at > len(data):
        raise CorruptFile("a roaring bitmap ends too early", offset=start)
    return at


def decode32(data: bytes) -> BitMap:
    """The 32-bit bitmap that fills these bytes exactly."""
    end = check_portable(data)
    if end != len(data):
        raise CorruptFile(f"{len(data) - end} bytes follow a roaring bitmap", offset=end)
    try:
        return BitMap.deserialize(data)
    except (ValueError, IndexError) as error:
        raise CorruptFile(f"not a roaring bitmap: {error}") from error


def encode32(bitmap: BitMap) -> bytes:
    """The bytes that Java writes for these values; the bitmap's containers become the smallest ones (its values do not change)."""
    bitmap.run_optimize()
    data: bytes = bitmap.serialize()
    return data


def entries64(data: bytes | memoryview, offset: int = 0) -> tuple[list[tuple[int, int, int]], int]:
    """The (high key, start, end) of every 32-bit bitmap of the 64-bit bitmap at `offset`, and where that ends."""
    if offset + 8 > len(data):
        raise CorruptFile("a 64-bit roaring bitmap ends too early", offset=offset)
    count = _U64.unpack_from(data, offset)[0]
    at = offset + 8
    if count > (len(data) - at) // _SMALLEST_ENTRY:
        raise CorruptFile(f"a 64-bit roaring bitmap of {count} entries in {len(data) - at} bytes", offset=offset)
    entries = []
    previous = -1
    for _ in range(count):
        if at + 4 > len(data):
            raise CorruptFile("a 64-bit roaring bitmap ends too early", offset=at)
        key = _U32.unpack_from(data, at)[0]
        if key <= previous or key > _MAX_HIGH_KEY:
            raise CorruptFile(f"high key {key} of a 64-bit roaring bitmap is negative or out of order", offset=at)
        end = check_portable(data, at + 4)
        entries.append((key, at + 4, end))
        previous, at = key, end
    return entries, at


def decode64(data: bytes | memoryview) -> BitMap64:
    """The bitmap that fills these bytes exactly."""
    _, end = entries64(data)
    if end != len(data):
        raise CorruptFile(f"{len(data) - end} bytes follow a 64-bit roaring bitmap", offset=end)
    try:
        return BitMap64.deserialize(bytes(data))
    except (ValueError, IndexError) as error:
        raise CorruptFile(f"not a 64-bit roaring bitmap: {error}") from error


def encode64(bitmap: BitMap64) -> bytes:
    """The bytes that Java writes for these values; the bitmap's containers become the smallest ones (its values do not change)."""
    bitmap.run_optimize()
    data: bytes = bitmap.serialize()
    return data
