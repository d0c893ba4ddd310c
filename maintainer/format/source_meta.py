"""Which rows an index payload speaks of: the bytes of `_SOURCE_META` (spec 06 §7; Java `PrimaryKeyIndexSourceMeta`).

All numbers are big-endian:

| bytes      | field                                                            |
| ---------- | ---------------------------------------------------------------- |
| 4          | version, always 1                                                |
| 4          | level of the source files, > 0                                   |
| 4          | number n of source files, > 0                                    |
| n ×        | 2: length of the name; the name in modified UTF-8; 8: row count  |

Nothing follows the last entry. The entries are ascending by file name (UTF-16 order) and define the ordinals of the payload: a row's ordinal
is the sum of the row counts of all entries before its file, plus its 0-based physical position in its file.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

from maintainer.errors import CorruptFile, MaintainerError
from maintainer.format import modified_utf8

VERSION = 1
_HEADER = struct.Struct(">iii")
_LENGTH = struct.Struct(">H")
_ROWS = struct.Struct(">q")
_MIN_ENTRY = _LENGTH.size + _ROWS.size


@dataclass(frozen=True)
class SourceMeta:
    """The level that a payload covers, and its source files as (name, row count) in ordinal order."""

    level: int
    files: tuple[tuple[str, int], ...]

    @cached_property
    def total_rows(self) -> int:
        return sum(rows for _, rows in self.files)

    @cached_property
    def first_ordinals(self) -> tuple[int, ...]:
        """The ordinal of the first row of each source file."""
        return tuple(accumulate((rows for _, rows in self.files[:-1]), initial=0))


def ordered(files: Iterable[tuple[str, int]]) -> tuple[tuple[str, int], ...]:
    """Source files in ordinal order: Java's `String.compareTo`, which compares UTF-16 code units."""
    return tuple(sorted(files, key=lambda file: modified_utf8.utf16_key(file[0])))


def encode(meta: SourceMeta) -> bytes:
    """The bytes of source metadata; a name of more than 65535 encoded bytes is an error, as nothing may be cut off."""
    parts = [_HEADER.pack(VERSION, meta.level, len(meta.files))]
    for name, rows in meta.files:
        encoded = modified_utf8.encode(name)
        if len(encoded) > modified_utf8.MAX_ENCODED_LENGTH:
            raise MaintainerError(f"the name of source file {name[:40]!r}… is too long for index source metadata: {len(encoded)} bytes")
        parts += (_LENGTH.pack(len(encoded)), encoded, _ROWS.pack(rows))
    return b"".join(parts)


def is_source_meta(data: bytes | None) -> bool:
    """Whether the field holds metadata of a primary-key index at all (row-id indexes put bytes of their own there), valid or not."""
    return data is not None and data[:4] == VERSION.to_bytes(4, "big")


def decode(data: bytes) -> SourceMeta:
    """The source metadata in `data`, every count checked before it is believed."""
    if len(data) < _HEADER.size:
        raise CorruptFile("index source metadata is truncated", offset=len(data))
    version, level, count = _HEADER.unpack_from(data)
    if version != VERSION:
        raise CorruptFile(f"unsupported index source version {version}", offset=0)
    if level <= 0:
        raise CorruptFile(f"index source level {level} is not positive", offset=4)
    if not 0 < count <= (len(data) - _HEADER.size) // _MIN_ENTRY:
        raise CorruptFile(f"{count} index sources cannot be in {len(data)} bytes", offset=8)
    files = []
    offset = _HEADER.size
    for _ in range(count):
        if offset + _LENGTH.size > len(data):
            raise CorruptFile("index source metadata is truncated", offset=offset)
        end = offset + _LENGTH.size + _LENGTH.unpack_from(data, offset)[0]
        if end + _ROWS.size > len(data):
            raise CorruptFile("index source metadata is truncated", offset=offset)
        name = modified_utf8.decode(data[offset + _LENGTH.size : end])
        rows: int = _ROWS.unpack_from(data, end)[0]
        if rows < 0:
            raise CorruptFile(f"index source {name!r} has a negative row count", offset=end)
        files.append((name, rows))
        offset = end + _ROWS.size
    if offset != len(data):
        raise CorruptFile("bytes after the last index source", offset=offset)
    return SourceMeta(level, tuple(files))
