"""Sorted index payloads for tests: definitions, opening what was built, and writers that put down one row after the other.

The writers follow spec 08 §4 and §7 literally, an entry at a time, with nothing in common with `maintainer.format` but checksums and the
roaring library. They are what the vectorized builders must equal, byte for byte.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import zstandard
from pyroaring import BitMap64

from maintainer.data.values import to_arrow_array
from maintainer.format import key_bytes
from maintainer.index import family
from maintainer.index.definition import FamilyName, IndexDefinition
from maintainer.index.payload import Resources, Rows
from maintainer.model.predicate import Leaf
from maintainer.model.types import DataType
from maintainer.model.values import order_key
from tests.support.builders import type_

Key = bytes
Entries = Sequence[tuple[Key, Sequence[int]]]


def definition(name: str, data_type: str | DataType, options: Mapping[str, str] | None = None) -> IndexDefinition:
    """A definition of column `c`."""
    found = type_(data_type) if isinstance(data_type, str) else data_type
    return IndexDefinition("c", 1, name, FamilyName(name), dict(options or {}), found)


@dataclass(frozen=True)
class Built:
    """A payload in memory, and what its builder said of it."""

    data: bytes
    size: int
    row_count: int
    index_meta: bytes


def build(index: IndexDefinition, values: Sequence[Any]) -> Built:
    """A payload of internal values."""
    return build_arrays([to_arrow_array(values, index.data_type)], index, len(values))


def build_arrays(arrays: Iterable[pa.Array], index: IndexDefinition, total: int, resources: Resources | None = None) -> Built:
    """A payload of Arrow arrays, one behind the other."""
    data = bytearray()
    made = family.family(index.family).build(rows(arrays), index, total, data.extend, resources or Resources())
    assert len(data) == made.size
    return Built(bytes(data), made.size, made.row_count, made.index_meta)


def rows(arrays: Iterable[pa.Array]) -> Iterable[Rows]:
    """Arrays one behind the other."""
    first = 0
    for array in arrays:
        yield Rows(first, array)
        first += len(array)


def content(built: Built) -> bytes:
    """The bytes of a payload."""
    return built.data


def reading(data: bytes) -> Callable[[int, int], bytes]:
    """A range reader that, like a file, gives less where there is less."""
    return lambda offset, length: data[offset : offset + length]


def open_payload(data: bytes, index: IndexDefinition, index_meta: bytes | None, total: int) -> Any:
    """A reader of a payload in memory."""
    return family.family(index.family).open(reading(data), len(data), index, index_meta, total)


def ask(built: Built, index: IndexDefinition, leaf: Leaf) -> list[int] | None:
    """The ordinals that a fresh reader answers."""
    found = open_payload(content(built), index, built.index_meta, built.row_count).evaluate(leaf)
    return None if found is None else list(found)


def grouped(values: Sequence[Any], data_type: DataType) -> tuple[Entries, list[int]]:
    """Keys in logical order with their ordinals, and the ordinals of nulls."""
    order = sorted((i for i, value in enumerate(values) if value is not None), key=lambda i: order_key(values[i]))
    entries: dict[bytes, list[int]] = {}
    for ordinal in order:
        entries.setdefault(key_bytes.encode(values[ordinal], data_type), []).append(ordinal)
    return list(entries.items()), [i for i, value in enumerate(values) if value is None]


def exploded(arrays: Sequence[Sequence[Any] | None], element: DataType) -> Entries:
    """Elements in logical order with the ordinals of their rows, each once."""
    flat = [(ordinal, value) for ordinal, array in enumerate(arrays) for value in array or () if value is not None]
    entries, _ = grouped([value for _, value in flat], element)
    return [(key, sorted({flat[number][0] for number in numbers})) for key, numbers in entries]


def arrow(values: Sequence[Any], data_type: str) -> pa.Array:
    return to_arrow_array(values, type_(data_type))


def varint(number: int) -> bytes:
    encoded = b""
    while True:
        number, low = number >> 7, number & 127
        encoded += bytes((low | (128 if number else 0),))
        if not number:
            return encoded


def bitmap(ids: Iterable[int]) -> bytes:
    """A roaring bitmap as Java writes it."""
    found = BitMap64(ids)
    found.run_optimize()
    return found.serialize()


def stored(raw: bytes, compression: str, level: int = 1) -> tuple[bytes, int]:
    """A block with its trailer, and the size of its body."""
    body, number = raw, 0
    compressed = None
    if compression == "zstd":
        frame = zstandard.ZstdCompressor(level=level, write_content_size=False).compressobj()
        compressed = varint(len(raw)) + frame.compress(raw) + frame.flush(), 1
    elif compression == "lz4":
        block = pa.compress(raw, "lz4_raw", asbytes=True)
        compressed = varint(len(raw)) + struct.pack("<ii", len(block), len(raw)) + block, 2
    if compressed is not None and len(compressed[0]) < len(raw) - len(raw) // 8:
        body, number = compressed
    checked = body + bytes((number,))
    return checked + struct.pack("<I", zlib.crc32(checked)), len(body)


def reference_btree(entries: Entries, nulls: Sequence[int], block_size: int = 65536, compression: str = "none") -> bytes:
    """A BTree payload of version 1, entry by entry."""
    out = b""
    index: list[bytes] = []
    block: list[bytes] = []
    last_key = b""

    def tail(parts: list[bytes]) -> bytes:
        if parts and len({len(part) for part in parts}) == 1:
            return struct.pack("<ib", len(parts[0]), 0)
        positions = [sum(map(len, parts[:i])) for i in range(len(parts))]
        return struct.pack(f"<{len(parts)}iib", *positions, len(parts), 1)

    def close() -> None:
        nonlocal out
        data, size = stored(b"".join(block) + tail(block), compression)
        handle = varint(len(out)) + varint(size)
        index.append(varint(len(last_key)) + last_key + varint(len(handle)) + handle)
        out += data
        block.clear()

    for key, ids in entries:
        value = varint(len(ids)) + b"".join(map(varint, ids))
        block.append(varint(len(key)) + key + varint(len(value)) + value)
        last_key = key
        aligned = len({len(part) for part in block}) == 1
        if sum(map(len, block)) + 5 + (0 if aligned else 4 * len(block)) > block_size:
            close()
    if block:
        close()
    null_offset = null_size = 0
    if nulls:
        encoded = bitmap(nulls)
        null_offset, null_size = len(out), len(encoded)
        out += encoded + struct.pack("<I", zlib.crc32(encoded))
    index_offset = len(out)
    data, size = stored(b"".join(index) + tail(index), compression)
    return out + data + struct.pack("<qiqqiqiii", 0, 0, 0, index_offset, size, null_offset, null_size, 1, 0x50425449)


def reference_multivalue(entries: Entries, block_size: int = 16384, compression: str = "none") -> bytes:
    """A Multivalue payload, element by element: it does not say which rows are null."""
    return reference_bitmap(entries, [], block_size, compression, says_rows=False)


def reference_bitmap(
    entries: Entries, nulls: Sequence[int], block_size: int = 16384, compression: str = "none", says_rows: bool = True
) -> bytes:
    """A Bitmap payload, key by key."""
    out = b""
    index: list[bytes] = []
    block: list[bytes] = []
    first_key = b""

    def close() -> None:
        nonlocal out
        data, size = stored(varint(len(block)) + b"".join(block), compression)
        index.append(varint(len(first_key)) + first_key + varint(len(out)) + varint(size))
        out += data
        block.clear()

    for key, ids in entries:
        posting = bitmap(ids)
        entry = varint(len(key)) + key + varint(len(out)) + varint(len(posting))
        out += posting
        if block and len(varint(len(block) + 1)) + sum(map(len, block)) + len(entry) > block_size:
            close()
        if not block:
            first_key = key
        block.append(entry)
    if block:
        close()
    handles: list[int] = []
    rows = [ordinal for _, ids in entries for ordinal in ids] if says_rows else []
    for ordinals in (nulls, rows):
        encoded = bitmap(ordinals)
        handles += (len(out), len(encoded))
        out += encoded
    index_offset = len(out)
    data, size = stored(varint(len(index)) + b"".join(index), compression)
    return out + data + struct.pack(">qiqiqiiii", *handles, index_offset, size, len(entries), 1, 0x42474958)


LZ4_BTREE = bytes.fromhex(
    "ed026a0000006d0100002f1a610100045f30300201001e00074f310201011e00074f320201021e00074f330201031e00074f340201041e00074f350201051e0007"
    "4f360201061e00074f370201071e00074f380201081e00074f390201091e00065f313002010a1e0007903102010b1e0000000002dd2ef273231100000023000000"
    "2f1a61010004a031310200741e0000000002190ba07e000000000000000000000000000000000000000079000000000000001a0000000000000000000000000000"
    "000100000049544250"
)
"""Spec 08 §4.11 F: keys of 24 × "a" and two digits, 00 to 11; row id = number."""
