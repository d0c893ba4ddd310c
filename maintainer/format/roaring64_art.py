"""64-bit roaring bitmaps in an adaptive radix tree (spec 05 §6.7; Java `Roaring64Bitmap`): values of `rbm64` columns. Little-endian.

| bytes | field                                                                                                                          |
| 1     | 0: the bitmap is empty, and nothing follows; 1                                                                                 |
| 8     | number of keys; a key is the high 48 bits of a value                                                                           |
| …     | the root node                                                                                                                  |
| 4     | number of first levels of containers                                                                                           |
| per first level 1 + 4 | a mark (ff, or fe for the last one), number of slots                                                           |
| per slot 1 + …        | 0: unused; 1, type u8, cardinality u32, container                                                              |
| 8 + 4 + 4             | number of containers, the last first level, its last slot                                                      |

    node      type u8, children u16, prefix length u8, prefix, body, then its children in ascending order of their key bytes
    0         up to 4 children: their key bytes, zeros behind them, back to front
    1         up to 16: the same in 16 bytes, each half of them back to front
    2         up to 48: for each of the 256 key bytes the slot of its child or ff, each 8 bytes of them back to front
    3         up to 256: a bit for each key byte, 4 × u64
    4         leaf: the 6 bytes of the key, big-endian; the number of its container u64: first level << 32 | slot
    container 2: cardinality × u16;  1: 1024 × u64 of bits;  0: u16 n, n × (start u16, length − 1 u16)

A prefix is what all keys below have in common; a node takes it and one byte more from the keys. Keys ascend from leaf to leaf, and so do the
containers that are in use. The containers are those of the portable form (`maintainer.format.roaring`), so that neither way looks at values.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import groupby, pairwise

import numpy as np
from pyroaring import BitMap64

from maintainer.errors import CorruptFile

_KEY_BYTES = 6
_LEAF = 4
_CAPACITY = (4, 16, 48, 256)
_BODY_BYTES = (4, 16, 256, 32)
_RUN, _BITS, _ARRAY = 0, 1, 2
_ARRAY_LIMIT = 4096
_BITS_BYTES = 8192
_LAST_LEVEL, _FULL_LEVEL = 0xFE, 0xFF
_NO_RUNS, _WITH_RUNS = 12346, 12347
_OFFSETS_FROM = 4  # the portable form leaves the offsets out for fewer containers, if there are runs

_U16 = struct.Struct("<H")
_I32 = struct.Struct("<i")
_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")
_NODE = struct.Struct("<BHB")
_SLOT = struct.Struct("<BI")

Container = tuple[int, int, bytes]
"""Type, cardinality, payload."""


def decode(data: bytes) -> BitMap64:
    """The bitmap that fills these bytes exactly."""
    if data == b"\0":
        return BitMap64()
    reader = _Reader(data)
    if reader.take(1) != b"\1":
        raise CorruptFile("a 64-bit roaring bitmap starts with neither 0 nor 1", offset=0)
    count = reader.unpack(_U64)
    if not 0 < count <= len(data):
        raise CorruptFile(f"a 64-bit roaring bitmap of {count} keys in {len(data)} bytes", offset=1)
    keys = list(_keys(reader, b""))
    if len(keys) != count or any(key >= after for key, after in pairwise(keys)):
        raise CorruptFile(f"{len(keys)} keys of a 64-bit roaring bitmap where {count} ascending ones are announced", offset=9)
    containers = list(_containers(reader))
    if len(containers) != count or reader.unpack(_U64) != count:
        raise CorruptFile(f"a 64-bit roaring bitmap of {count} keys and {len(containers)} containers", offset=reader.at)
    reader.take(8)
    if reader.at != len(data):
        raise CorruptFile(f"{len(data) - reader.at} bytes follow a 64-bit roaring bitmap", offset=reader.at)
    try:
        return BitMap64.deserialize(_portable(list(zip(keys, containers, strict=True))))
    except (ValueError, IndexError) as error:
        raise CorruptFile(f"not a 64-bit roaring bitmap: {error}") from error


def encode(bitmap: BitMap64) -> bytes:
    """The bytes that Java reads; the bitmap's containers become the smallest ones (its values do not change)."""
    if not bitmap:
        return b"\0"
    bitmap.run_optimize()
    found = list(_portable_containers(bitmap.serialize()))
    keys = [key.to_bytes(_KEY_BYTES, "big") for key, _ in found]
    parts = [b"\1", _U64.pack(len(keys)), *_node(keys, 0, len(keys), 0), _I32.pack(1), bytes([_LAST_LEVEL]), _I32.pack(len(keys))]
    for _, (kind, cardinality, payload) in found:
        parts += [b"\1", _SLOT.pack(kind, cardinality), payload]
    parts += [_U64.pack(len(keys)), _I32.pack(0), _I32.pack(len(keys) - 1)]
    return b"".join(parts)


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def take(self, size: int) -> bytes:
        end = self.at + size
        if end > len(self.data):
            raise CorruptFile("a 64-bit roaring bitmap ends too early", offset=self.at)
        found = self.data[self.at : end]
        self.at = end
        return found

    def unpack(self, form: struct.Struct) -> int:
        value: int = form.unpack(self.take(form.size))[0]
        return value


def _keys(reader: _Reader, before: bytes) -> Iterator[int]:
    """The keys of all leaves below the node at the reader, whose parents took `before`; a tree is no deeper than keys are long."""
    start = reader.at
    kind, children, prefix_size = _NODE.unpack(reader.take(_NODE.size))
    before += reader.take(prefix_size)
    if kind == _LEAF:
        key = reader.take(_KEY_BYTES)
        reader.take(8)
        if prefix_size or not key.startswith(before):
            raise CorruptFile(f"key {key.hex()} of a 64-bit roaring bitmap is below {before.hex()}", offset=start)
        yield int.from_bytes(key, "big")
        return
    if kind > _LEAF or len(before) >= _KEY_BYTES:
        raise CorruptFile(f"a node of type {kind} at depth {len(before)} of a 64-bit roaring bitmap", offset=start)
    key_bytes = _key_bytes(kind, children, reader.take(_BODY_BYTES[kind]))
    if len(key_bytes) != children or not children:
        raise CorruptFile(f"a node of a 64-bit roaring bitmap with {len(key_bytes)} of {children} children", offset=start)
    for byte in key_bytes:
        yield from _keys(reader, before + bytes([byte]))


def _key_bytes(kind: int, children: int, body: bytes) -> list[int]:
    """The first key byte of each child of an inner node."""
    if kind == 3:
        return np.flatnonzero(np.unpackbits(np.frombuffer(body, np.uint8), bitorder="little")).tolist()
    ordered = b"".join(body[at : at + 8][::-1] for at in range(0, len(body), 8))
    if kind == 2:
        return [byte for byte in range(256) if ordered[byte] != 0xFF]
    return list(ordered[:children])


def _containers(reader: _Reader) -> Iterator[Container]:
    levels = reader.unpack(_I32)
    if levels < 0:
        raise CorruptFile(f"{levels} first levels of a 64-bit roaring bitmap", offset=reader.at)
    for _ in range(levels):
        mark = reader.take(1)[0]
        if mark not in (_LAST_LEVEL, _FULL_LEVEL):
            raise CorruptFile(f"mark {mark} of the containers of a 64-bit roaring bitmap", offset=reader.at)
        for _ in range(reader.unpack(_I32)):
            used = reader.take(1)[0]
            if used == 1:
                yield _container(reader)
            elif used:
                raise CorruptFile(f"slot {used} of the containers of a 64-bit roaring bitmap", offset=reader.at)


def _container(reader: _Reader) -> Container:
    """One container, checked as whoever computes with it relies on its order and its cardinality."""
    start = reader.at
    kind, cardinality = _SLOT.unpack(reader.take(_SLOT.size))
    if not 0 < cardinality <= 1 << 16:
        raise CorruptFile(f"a container of {cardinality} values in a roaring bitmap", offset=start)
    if kind == _ARRAY:
        payload = reader.take(2 * cardinality)
        values = np.frombuffer(payload, "<u2")
        if cardinality > _ARRAY_LIMIT:  # the portable form knows such ones as bits only
            bits = np.zeros(1 << 16, np.uint8)
            bits[values] = 1
            kind, payload = _BITS, np.packbits(bits, bitorder="little").tobytes()
        sound = bool((values[1:] > values[:-1]).all())
    elif kind == _BITS:
        payload = reader.take(_BITS_BYTES)
        bits = np.unpackbits(np.frombuffer(payload, np.uint8), bitorder="little")
        sound = int(bits.sum()) == cardinality
        if cardinality <= _ARRAY_LIMIT:
            kind, payload = _ARRAY, np.flatnonzero(bits).astype("<u2").tobytes()
    elif kind == _RUN:
        size = reader.take(2)
        payload = size + reader.take(4 * _U16.unpack(size)[0])
        runs = np.frombuffer(payload, "<u2", offset=2).astype(np.int64).reshape(-1, 2)
        ends = runs[:, 0] + runs[:, 1]
        sound = bool((runs[1:, 0] > ends[:-1] + 1).all() and (ends < 1 << 16).all() and (runs[:, 1] + 1).sum() == cardinality)
    else:
        raise CorruptFile(f"a container of type {kind} in a roaring bitmap", offset=start)
    if not sound:
        raise CorruptFile("a container of a roaring bitmap is not in order, or does not have the values it announces", offset=start)
    return kind, cardinality, payload


def _portable(found: list[tuple[int, Container]]) -> bytes:
    """The portable 64-bit form: a 32-bit bitmap for each used value of the high 32 bits."""
    parts = []
    for high, members in groupby(found, key=lambda member: member[0] >> 16):
        parts.append(_U32.pack(high) + _portable32([(key & 0xFFFF, container) for key, container in members]))
    return _U64.pack(len(parts)) + b"".join(parts)


def _portable32(found: list[tuple[int, Container]]) -> bytes:
    flags = np.array([container[0] == _RUN for _, container in found], np.bool_)
    if flags.any():
        head = _U32.pack(_WITH_RUNS | (len(found) - 1) << 16) + np.packbits(flags, bitorder="little").tobytes()
    else:
        head = _U32.pack(_NO_RUNS) + _U32.pack(len(found))
    head += b"".join(_U16.pack(key) + _U16.pack(container[1] - 1) for key, container in found)
    payloads = [container[2] for _, container in found]
    if not flags.any() or len(found) >= _OFFSETS_FROM:
        at = len(head) + 4 * len(found)
        for payload in payloads:
            head += _U32.pack(at)
            at += len(payload)
    return head + b"".join(payloads)


def _portable_containers(data: bytes) -> Iterator[tuple[int, Container]]:
    """Key and container of all containers of the portable form that CRoaring has just written."""
    at = 8
    for _ in range(_U64.unpack_from(data)[0]):
        high, cookie = struct.unpack_from("<II", data, at)
        at += 8
        flags = b""
        if cookie & 0xFFFF == _WITH_RUNS:
            count = (cookie >> 16) + 1
            flags = data[at : at + (count + 7) // 8]
            at += len(flags)
        else:
            count = _U32.unpack_from(data, at)[0]
            at += 4
        heads = list(struct.iter_unpack("<HH", data[at : at + 4 * count]))
        at += 4 * count
        if not flags or count >= _OFFSETS_FROM:
            at += 4 * count
        for index, (key, last) in enumerate(heads):
            if flags and flags[index >> 3] >> (index & 7) & 1:
                kind, size = _RUN, 2 + 4 * _U16.unpack_from(data, at)[0]
            else:
                kind, size = (_ARRAY, 2 * (last + 1)) if last < _ARRAY_LIMIT else (_BITS, _BITS_BYTES)
            yield high << 16 | key, (kind, last + 1, data[at : at + size])
            at += size


def _node(keys: list[bytes], start: int, stop: int, depth: int) -> Iterator[bytes]:
    """The tree over keys[start:stop], which agree in their first `depth` bytes."""
    if stop - start == 1:
        yield _NODE.pack(_LEAF, 0, 0) + keys[start] + _U64.pack(start)
        return
    first, last = keys[start], keys[stop - 1]
    split = next(at for at in range(depth, _KEY_BYTES) if first[at] != last[at])
    bounds = [start, *(at for at in range(start + 1, stop) if keys[at][split] != keys[at - 1][split]), stop]
    children = bytes(keys[at][split] for at in bounds[:-1])
    kind = next(kind for kind, capacity in enumerate(_CAPACITY) if len(children) <= capacity)
    yield _NODE.pack(kind, len(children), split - depth) + first[depth:split] + _body(kind, children)
    for begin, end in pairwise(bounds):
        yield from _node(keys, begin, end, split + 1)


def _body(kind: int, children: bytes) -> bytes:
    if kind == 3:
        bits = np.zeros(256, np.uint8)
        bits[list(children)] = 1
        return np.packbits(bits, bitorder="little").tobytes()
    if kind == 2:
        slots = np.full(256, 0xFF, np.uint8)
        slots[list(children)] = np.arange(len(children))
        ordered = slots.tobytes()
    else:
        ordered = children.ljust(_BODY_BYTES[kind], b"\0")
    return b"".join(ordered[at : at + 8][::-1] for at in range(0, len(ordered), 8))
