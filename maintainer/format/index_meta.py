"""Smallest and largest key of a sorted payload: the bytes of `_INDEX_META` (spec 08 §3; Java `SortedIndexFileMeta`, formerly `BTreeIndexMeta`).

| bytes | field                                                                                  |
| ----- | -------------------------------------------------------------------------------------- |
| 4     | length of the first key, int32 little-endian; 0 for a null                             |
| …     | first key                                                                              |
| 4     | length of the last key                                                                 |
| …     | last key                                                                               |
| 1     | 1: there are null rows                                                                 |
| 1     | format version, 1 (missing in the legacy form)                                         |
| 1     | flags: bit 0 the first key is null, bit 1 the last key is null (missing in the legacy form) |

Both keys are null when there is no key at all. In the legacy form two empty keys beside nulls mean the same.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from maintainer.errors import CorruptFile

VERSION = 1
_LENGTH = struct.Struct("<i")


@dataclass(frozen=True)
class IndexMeta:
    """`first_key` and `last_key` are the extremes in logical order, None when the payload has no key."""

    first_key: bytes | None
    last_key: bytes | None
    has_nulls: bool

    @property
    def only_nulls(self) -> bool:
        return self.first_key is None and self.last_key is None


def encode(meta: IndexMeta) -> bytes:
    flags = (meta.first_key is None) | (meta.last_key is None) << 1
    first, last = meta.first_key or b"", meta.last_key or b""
    return b"".join((_LENGTH.pack(len(first)), first, _LENGTH.pack(len(last)), last, bytes((meta.has_nulls, VERSION, flags))))


def decode(data: bytes) -> IndexMeta:
    first, offset = _key(data, 0)
    last, offset = _key(data, offset)
    if offset >= len(data):
        raise CorruptFile("index metadata is truncated", offset=offset)
    has_nulls = data[offset] == 1
    if len(data) - offset > 2:
        flags = data[offset + 2] & 3 if data[offset + 1] == VERSION else 0
        if flags in (1, 2):
            raise CorruptFile("only one of the first and the last key is null", offset=offset + 2)
        return IndexMeta(None, None, has_nulls) if flags else IndexMeta(first, last, has_nulls)
    if has_nulls and not first and not last:
        return IndexMeta(None, None, has_nulls)
    return IndexMeta(first, last, has_nulls)


def _key(data: bytes, offset: int) -> tuple[bytes, int]:
    start = offset + _LENGTH.size
    if start > len(data):
        raise CorruptFile("index metadata is truncated", offset=offset)
    length = _LENGTH.unpack_from(data, offset)[0]
    if not 0 <= length <= len(data) - start:
        raise CorruptFile(f"an index key of {length} bytes in {len(data) - start} bytes", offset=offset)
    return data[start : start + length], start + length
