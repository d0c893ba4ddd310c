"""Deletion-vector files (spec 02 §12; Java `DeletionVectorsIndexFile`, `BitmapDeletionVector`, `Bitmap64DeletionVector`).

| bytes      | field                                                                      |
| 1          | version, always 1                                                          |
| per vector 4 | L, the length of the data, int32 big-endian                              |
|     L      | the data: a magic number that tells the form, then the bitmap              |
|     4      | CRC-32 of the data, big-endian                                             |

| form   | magic                          | bitmap                                       | `length` of the range in the manifest |
| 32-bit | 1581511376, int32 big-endian   | a portable 32-bit roaring bitmap             | L                                     |
| 64-bit | 1681511377, int32 little-endian | a portable 64-bit roaring bitmap             | L + 8                                 |

In the 64-bit form Java writes an empty entry for every unused high key below the largest one.

Which form a vector has is a matter of its bytes, never of the table's options: one file may hold both. Positions are physical row numbers.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Mapping

from pyroaring import BitMap64

from maintainer.errors import CorruptFile, UsageError
from maintainer.format import roaring
from maintainer.model.files import DeletionRange

VERSION = 1
_MAGIC_32 = (1581511376).to_bytes(4, "big")
_MAGIC_64 = (1681511377).to_bytes(4, "little")
_FRAMING_64 = 8  # the length and CRC fields, which the 64-bit form counts in
_MAX_POSITION_32 = 2**31 - 1
_MAX_POSITION_64 = (2**31 - 2) * 2**32 + 2**31
_MAX_FILE_SIZE = 2**31 - 1  # offsets in the manifest are int32
_ONE_ENTRY = (1).to_bytes(8, "little") + bytes(4)
"""What turns a 32-bit bitmap into a 64-bit one: one entry, high key 0."""
_EMPTY_32 = bytes.fromhex("3a30000000000000")
_MOST_GAPS = 1 << 16
"""Unused high keys that are written out as Java does; with more of them (no file has 2⁴⁸ rows) the sparse form, which every reader takes."""


def encode_file(vectors: Mapping[str, BitMap64], bitmap64: bool) -> tuple[bytes, tuple[DeletionRange, ...]]:
    """A file of the deleted positions by data file name, in order of the names; all vectors have one form."""
    parts = [bytes([VERSION])]
    ranges = []
    offset = 1
    for name in sorted(vectors):
        bitmap = vectors[name]
        try:
            data = _encode_64(bitmap) if bitmap64 else _encode_32(bitmap)
        except UsageError as error:
            raise UsageError(f"deletion vector of {name}: {error}") from error
        parts += [len(data).to_bytes(4, "big"), data, zlib.crc32(data).to_bytes(4, "big")]
        ranges.append(DeletionRange(name, offset, len(data) + (_FRAMING_64 if bitmap64 else 0), len(bitmap)))
        offset += len(data) + 8
    if offset > _MAX_FILE_SIZE:
        raise UsageError(f"the deletion vectors of one bucket take {offset} bytes, more than a deletion-vector file can hold")
    return b"".join(parts), tuple(ranges)


def _encode_32(bitmap: BitMap64) -> bytes:
    if not bitmap:
        return _MAGIC_32 + _EMPTY_32
    if bitmap.max() > _MAX_POSITION_32:
        raise UsageError(f"position {bitmap.max()} needs the option deletion-vectors.bitmap64 = true")
    return _MAGIC_32 + roaring.encode64(bitmap)[len(_ONE_ENTRY) :]


def _encode_64(bitmap: BitMap64) -> bytes:
    if bitmap and bitmap.max() > _MAX_POSITION_64:
        raise UsageError(f"position {bitmap.max()} is larger than the largest one, {_MAX_POSITION_64}")
    body = roaring.encode64(bitmap)
    entries, _ = roaring.entries64(body)
    if not entries or entries[-1][0] + 1 == len(entries) or entries[-1][0] - len(entries) > _MOST_GAPS:
        return _MAGIC_64 + body
    used = {key: body[start:end] for key, start, end in entries}
    count = entries[-1][0] + 1
    parts = [_MAGIC_64, struct.pack("<q", count)]
    for key in range(count):
        parts += [struct.pack("<i", key), used.get(key, _EMPTY_32)]
    return b"".join(parts)


def check_version(data: bytes) -> None:
    """Whether these are the bytes of a deletion-vector file at all."""
    if not data:
        raise CorruptFile("a deletion-vector file without a version byte", offset=0)
    if data[0] != VERSION:
        raise CorruptFile(f"deletion-vector file version {data[0]} is not supported (only {VERSION} is)", offset=0)


def decode_vector(file_bytes: bytes, vector: DeletionRange) -> BitMap64:
    """The vector that the manifest describes by `vector`; the bytes are those of the whole file."""
    return decode_at(file_bytes, vector)


def decode_at(part: bytes, vector: DeletionRange, first: int = 0) -> BitMap64:
    """The same from a part of the file that begins at offset `first`; only with its first byte is the version checked."""
    if not first:
        check_version(part)
    start = vector.offset - first + 4
    size = first + len(part)
    if vector.offset < max(1, first) or start + 4 > len(part):
        raise CorruptFile(f"the vector of {vector.data_file} lies outside of the file's {size} bytes", offset=vector.offset)
    length = int.from_bytes(part[start - 4 : start], "big", signed=True)
    end = start + length
    if length < 4 or end + 4 > len(part):
        raise CorruptFile(f"the vector of {vector.data_file} has {length} bytes, the file {size}", offset=vector.offset)
    data = part[start:end]
    magic, body = data[:4], data[4:]
    if magic == _MAGIC_32:
        framing, body = 0, _ONE_ENTRY + body
    elif magic == _MAGIC_64:
        framing = _FRAMING_64
    else:
        raise CorruptFile(f"{magic.hex()} is no magic number of a deletion vector ({vector.data_file})", offset=vector.offset + 4)
    if length + framing != vector.length:
        raise CorruptFile(
            f"the vector of {vector.data_file} has length {length + framing}, the manifest says {vector.length}", offset=vector.offset
        )
    if zlib.crc32(data) != int.from_bytes(part[end : end + 4], "big"):
        raise CorruptFile(f"the vector of {vector.data_file} does not match its checksum", offset=vector.offset)
    try:
        bitmap = roaring.decode64(body)
    except CorruptFile as error:
        raise CorruptFile(f"the vector of {vector.data_file}: {error.reason}", offset=vector.offset) from error
    if bitmap and bitmap.max() > (_MAX_POSITION_64 if framing else _MAX_POSITION_32):
        raise CorruptFile(f"the vector of {vector.data_file} deletes position {bitmap.max()}", offset=vector.offset)
    if vector.cardinality is not None and vector.cardinality != len(bitmap):
        raise CorruptFile(
            f"the vector of {vector.data_file} deletes {len(bitmap)} positions, the manifest says {vector.cardinality}", offset=vector.offset
        )
    return bitmap


def decode_file(data: bytes, ranges: Iterable[DeletionRange]) -> dict[str, BitMap64]:
    """All vectors of a file, by data file name."""
    check_version(data)
    vectors: dict[str, BitMap64] = {}
    for vector in ranges:
        if vector.data_file in vectors:
            raise CorruptFile(f"two deletion vectors for {vector.data_file}", offset=vector.offset)
        vectors[vector.data_file] = decode_vector(data, vector)
    return vectors
