"""The BTree payload: sorted keys with the row ids of each (spec 08 §4, §5; Java `BTreeIndexWriter`, `BTreeIndexReader`, `SstFileWriter`).

    data block 0 | data block 1 | … | [null rows ++ CRC-32] | [Bloom filter] | index block | footer

Blocks are stored blocks; null rows are a roaring bitmap; the Bloom filter is neither written nor used. Integers are little-endian.

| block     | bytes                                                                                                  |
| --------- | ------------------------------------------------------------------------------------------------------ |
| entry     | varint key length, key, varint value length, value                                                     |
| tail      | aligned: int32 entry size, 00 — when all entries have the same size                                    |
|           | else: int32 position of each entry, int32 number of entries, 01                                        |

The value of a data entry is, in file version 1, varint count and count × varint row id; in version 2 a type byte first: 0 one id, 1 count,
first id and differences, 2 a roaring bitmap. We write version 1 only (older readers take version 2 for version 1) and read both. An index
entry is the last key of a data block with the block's handle: varint offset, varint size.

| footer | field                                                                          |
| ------ | ------------------------------------------------------------------------------ |
| 0      | int64 offset, int32 size, int64 entries of the Bloom filter                    |
| 20     | int64 offset, int32 size of the index block                                    |
| 32     | int64 offset, int32 size of the null rows (all zero: there are none)           |
| 44     | int32 version, int32 magic 50425449                                            |

A block is closed after the entry that makes `entries + 5 + 4 × (number of entries, unless aligned)` larger than the block size.
"""

from __future__ import annotations

import struct
import zlib
from bisect import bisect_left
from collections.abc import Iterator
from functools import cached_property
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap64

from maintainer.errors import CorruptFile, MaintainerError
from maintainer.format import byte_column, posting, roaring, varint
from maintainer.format.byte_column import ByteColumn
from maintainer.format.index_meta import IndexMeta
from maintainer.format.key_bytes import Comparable, comparable
from maintainer.format.stored_block import TRAILER_SIZE, Compressor, PayloadBytes, Sink, open_block, store
from maintainer.model.types import DataType

MAGIC = 0x50425449
WRITE_VERSION = 1
DELTA_VERSION = 2
FOOTER = struct.Struct("<qiqqiqiii")
DEFAULT_BLOCK_SIZE = 64 << 10
_INT = struct.Struct("<i")
_CRC = struct.Struct("<I")
_TAIL = 5  # what every block has after its entries: a number and the aligned byte
_ALIGNED, _UNALIGNED = b"\x00", b"\x01"
_MAX_BLOCK = 2**31 - 1
_ONE_ID, _DELTAS, _BITMAP = range(3)

Ids = npt.NDArray[np.int64]


class BTreeWriter:
    """Writes a payload from batches of keys in ascending order; a batch costs no Python work per key, only per block."""

    def __init__(self, sink: Sink, block_size: int = DEFAULT_BLOCK_SIZE, compress: Compressor | None = None) -> None:
        self._sink = sink
        self._block_size = block_size
        self._compress = compress
        self._position = 0
        self._open: ByteColumn | None = None  # entries of the block that is not full yet
        self._index: list[tuple[bytes, int, int]] = []
        self._first_key: bytes | None = None
        self._last_key: bytes | None = None

    def add(self, keys: ByteColumn, ids: Ids, starts: npt.NDArray[np.int64]) -> None:
        """Keys that follow those of earlier batches; key i has the ascending ids `ids[starts[i]:starts[i + 1]]`."""
        if not len(keys):
            return
        if self._first_key is None:
            self._first_key = keys[0]
        self._last_key = keys[-1]
        entries = _entries(keys, ids, starts)
        carried = 0 if self._open is None else len(self._open)
        if self._open is not None:
            entries = byte_column.concat(self._open, entries)
        cut = 0
        for start, end in _cuts(entries, self._block_size):
            self._write_block(entries.slice(start, end), keys[end - 1 - carried])
            cut = end
        rest = entries.slice(cut, len(entries))
        # A copy, so that the little that stays does not keep the whole batch in memory.
        self._open = ByteColumn(rest.data.copy(), rest.offsets.copy()) if len(rest) else None

    def finish(self, null_ids: Ids) -> IndexMeta:
        """Write what is left and return the payload's metadata."""
        if self._open is not None and self._last_key is not None:
            self._write_block(self._open, self._last_key)
            self._open = None
        null_offset = null_size = 0
        if len(null_ids):
            encoded = posting.encode(null_ids)
            null_offset, null_size = self._position, len(encoded)
            self._write(encoded)
            self._write(_CRC.pack(zlib.crc32(encoded)))
        rows = [
            b"".join((varint.encode(len(key)), key, varint.encode(len(handle)), handle))
            for key, offset, size in self._index
            for handle in (varint.encode(offset) + varint.encode(size),)
        ]
        index_offset = self._position
        index_size = store(_block(ByteColumn.of_rows(rows)), self._write, self._compress)
        self._write(FOOTER.pack(0, 0, 0, index_offset, index_size, null_offset, null_size, WRITE_VERSION, MAGIC))
        return IndexMeta(self._first_key, self._last_key, len(null_ids) > 0)

    def _write(self, data: bytes | bytearray | memoryview) -> None:
        self._sink(data)
        self._position += len(data)

    def _write_block(self, entries: ByteColumn, last_key: bytes) -> None:
        offset = self._position
        self._index.append((last_key, offset, store(_block(entries), self._write, self._compress)))


def _entries(keys: ByteColumn, ids: Ids, starts: npt.NDArray[np.int64]) -> ByteColumn:
    """The data entries of some keys."""
    counts = np.diff(starts, append=len(ids))
    sizes = varint.lengths(ids)
    if len(ids) == len(keys) and keys.width is not None and keys.width < 0x80:
        # Unique keys of one width: a matrix `key length | key | value length | 01 | id`, whose rows are then cut.
        width = keys.width
        matrix = np.empty((len(keys), width + 3 + int(sizes.max())), np.uint8)
        matrix[:, 0] = width
        matrix[:, 1 : width + 1] = keys.data.reshape(-1, width)
        matrix[:, width + 1] = sizes + 1
        matrix[:, width + 2] = 1
        varint.fill(matrix[:, width + 3 :], ids, sizes)
        return ByteColumn.of_matrix(matrix, sizes + np.uint8(width + 3))
    matrix = np.empty((len(ids), int(sizes.max(initial=1))), np.uint8)
    varint.fill(matrix, ids, sizes)
    id_bytes = ByteColumn.of_matrix(matrix, sizes)
    id_offsets = np.append(id_bytes.offsets[starts], len(id_bytes.data))
    value_sizes = varint.lengths(counts) + np.diff(id_offsets)
    if int(value_sizes.max()) > _MAX_BLOCK:
        raise MaintainerError("one key has too many rows for a BTree payload: its row ids do not fit into 2 GiB")
    return byte_column.join(
        ByteColumn.varints(keys.lengths),
        keys,
        ByteColumn.varints(value_sizes),
        ByteColumn.varints(counts),
        ByteColumn(id_bytes.data, id_offsets),
    )


def _cuts(entries: ByteColumn, block_size: int) -> Iterator[tuple[int, int]]:
    """The ranges of entries that fill a block; entries after the last one do not fill theirs."""
    sizes = entries.lengths
    count = len(sizes)
    ends = entries.offsets
    ends_with_positions = ends + 4 * np.arange(count + 1)
    changes = np.append(np.flatnonzero(sizes[1:] != sizes[:-1]) + 1, count)
    room = block_size - _TAIL
    start = 0
    while start < count:
        change = int(changes[np.searchsorted(changes, start, "right")])  # there is one, as `count` is the last
        end = max(start + 1, int(np.searchsorted(ends, ends[start] + room, "right")))
        if end > change:
            end = max(start + 1, change + 1, int(np.searchsorted(ends_with_positions, ends_with_positions[start] + room, "right")))
        if end > count:
            return
        yield start, end
        start = end


def _block(entries: ByteColumn) -> tuple[memoryview, bytes]:
    """Entries and tail of a raw block."""
    count = len(entries)
    sizes = entries.lengths
    if len(entries.data) + 4 * count + _TAIL > _MAX_BLOCK:
        raise MaintainerError("a block of a BTree payload would be larger than 2 GiB")
    if count and bool((sizes == sizes[0]).all()):
        tail = _INT.pack(int(sizes[0])) + _ALIGNED
    else:
        tail = entries.offsets[:-1].astype("<i4").tobytes() + _INT.pack(count) + _UNALIGNED
    return entries.data.data, tail


class Block:
    """The entries of one block; keys are decoded only where they are looked at."""

    def __init__(self, raw: bytes) -> None:
        if len(raw) < _TAIL or raw[-1] > 1:
            raise CorruptFile("a BTree block has an illegal aligned type")
        number = _INT.unpack_from(raw, len(raw) - _TAIL)[0]
        if raw[-1:] == _ALIGNED:
            size = len(raw) - _TAIL
            if number <= 0 or not size or size % number:
                raise CorruptFile(f"a BTree block of {size} bytes cannot have entries of {number} bytes")
            self.bounds = np.arange(0, size + 1, number, dtype=np.int64)
        else:
            size = len(raw) - _TAIL - 4 * number
            if number < 0 or size < 0:
                raise CorruptFile(f"a BTree block of {len(raw)} bytes cannot have {number} entries")
            positions = np.frombuffer(raw, "<i4", number, size).astype(np.int64)
            self.bounds = np.append(positions, size)
            if self.bounds[0] != 0 or bool((np.diff(self.bounds) <= 0).any()):
                raise CorruptFile("the positions of a BTree block are not ascending")
        self.raw = raw
        self.count = len(self.bounds) - 1

    def entry(self, index: int) -> tuple[bytes, bytes]:
        """Key and value of an entry."""
        start, end = int(self.bounds[index]), int(self.bounds[index + 1])
        key_size, key_start = varint.decode(self.raw, start)
        key_end = key_start + key_size
        if key_end >= end:
            raise CorruptFile("a key of a BTree block is longer than its entry", offset=start)
        value_size, value_start = varint.decode(self.raw, key_end)
        if value_start + value_size != end:
            raise CorruptFile("a value of a BTree block does not end where its entry does", offset=start)
        return self.raw[key_start:key_end], self.raw[value_start:end]

    def ids(self, start: int, stop: int, version: int) -> tuple[Ids, npt.NDArray[np.int64]]:
        """The row ids of entries [start, stop), and how many each entry has."""
        if version == DELTA_VERSION:
            lists = [_decode_typed(self.entry(index)[1]) for index in range(start, stop)]
            return np.concatenate(lists) if lists else np.empty(0, np.int64), np.fromiter(map(len, lists), np.int64, len(lists))
        base = int(self.bounds[start])
        data = np.frombuffer(self.raw, np.uint8, int(self.bounds[stop]) - base, base)
        begins, ends = self.bounds[start:stop] - base, self.bounds[start + 1 : stop + 1] - base
        if not len(begins):
            return np.empty(0, np.int64), np.empty(0, np.int64)
        _, _, ids, counts = id_lists(data, begins, ends)
        return ids, counts


def id_lists(
    data: npt.NDArray[np.uint8], begins: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], Ids, npt.NDArray[np.int64]]:
    """Where the keys of the entries between these ascending positions begin, their sizes, the row ids of all, and how many each has."""
    key_sizes, key_begins = varint.decode_at(data, begins)
    at = _inside(key_begins + key_sizes, key_begins, ends)
    value_sizes, at = varint.decode_at(data, at)
    if bool((at + value_sizes != ends).any()):
        raise CorruptFile("a value of a BTree block does not end where its entry does")
    at = _inside(at, at, ends)
    counts, at = varint.decode_at(data, at)
    at = _inside(at, at, ends)
    # The ids of all entries without what lies between them; each list must end where its entry does.
    marks = np.zeros(len(data) + 1, np.int8)
    marks[at] += 1
    marks[ends] -= 1
    id_bytes = data[np.cumsum(marks[:-1], dtype=np.int8).view(bool)]
    lengths = ends - at
    found = np.add.reduceat(id_bytes < 0x80, np.cumsum(lengths) - lengths, dtype=np.int64)
    if bool((found != counts).any()) or bool((data[ends - 1] >= 0x80).any()):
        raise CorruptFile("a list of row ids in a BTree block does not have the length it says")
    return key_begins, key_sizes, varint.decode_all(id_bytes), counts


def _inside(at: npt.NDArray[np.int64], after: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    if bool((at >= ends).any()) or bool((at < after).any()):
        raise CorruptFile("an entry of a BTree block is cut off")
    return at


def _decode_typed(value: bytes) -> Ids:
    """The ids of a value of file version 2."""
    kind = value[0] if value else -1
    if kind == _BITMAP:
        ids = np.array(roaring.decode64(value[1:]).to_array(), np.int64)
        if not len(ids):
            raise CorruptFile("an empty bitmap of row ids")
        return ids
    numbers = varint.decode_all(np.frombuffer(value, np.uint8, offset=1)) if kind in (_ONE_ID, _DELTAS) else np.empty(0, np.int64)
    if kind == _ONE_ID and len(numbers) == 1:
        return numbers
    if kind == _DELTAS and len(numbers) > 2 and numbers[0] == len(numbers) - 1 and bool((numbers[2:] > 0).all()):
        ids = np.cumsum(numbers[1:])
        if bool((ids >= 0).all()):
            return ids
    raise CorruptFile(f"malformed row ids of type {kind} in a BTree payload of version 2")


class BTreeFile:
    """A payload that is read block by block, as far as a question needs it."""

    def __init__(self, source: PayloadBytes, key_type: DataType) -> None:
        self._source = source
        self._key_type = key_type
        self._cached: tuple[int, Block] | None = None
        if source.size < FOOTER.size:
            raise CorruptFile(f"a BTree payload cannot have {source.size} bytes")
        fields = FOOTER.unpack(source.range(source.size - FOOTER.size, FOOTER.size))
        self._index_handle, self._null_handle, self.version, magic = fields[3:5], fields[5:7], fields[7], fields[8]
        if magic != MAGIC:
            raise CorruptFile("File is not a btree index file (bad magic number)", offset=source.size - 4)
        if self.version not in (WRITE_VERSION, DELTA_VERSION):
            raise CorruptFile(f"Unsupported BTree index version: {self.version}", offset=source.size - 8)

    @cached_property
    def _blocks(self) -> list[tuple[bytes, int, int]]:
        """Last key, offset and size of every data block, in ascending order of the keys."""
        block = Block(self._source.block(*self._index_handle))
        blocks = []
        for index in range(block.count):
            key, handle = block.entry(index)
            offset, at = varint.decode(handle, 0)
            size, end = varint.decode(handle, at)
            if end != len(handle):
                raise CorruptFile("a block handle of a BTree payload is malformed")
            blocks.append((key, offset, size))
        if any(after <= before for before, after in pairwise(self._comparable(key) for key, _, _ in blocks)):
            raise CorruptFile("the blocks of a BTree payload are not in key order")
        return blocks

    @cached_property
    def _last_keys(self) -> list[Comparable]:
        return [self._comparable(key) for key, _, _ in self._blocks]

    @property
    def last_key(self) -> bytes | None:
        """The largest key; None when there is none."""
        return self._blocks[-1][0] if self._blocks else None

    @property
    def largest_block(self) -> int:
        """Stored bytes of the largest data block."""
        return max((size for _, _, size in self._blocks), default=0)

    @property
    def has_null_rows(self) -> bool:
        return bool(self._null_handle != (0, 0))

    @cached_property
    def null_rows(self) -> BitMap64:
        """Row ids whose value is null."""
        offset, size = self._null_handle
        if not self.has_null_rows:
            return BitMap64()
        if size < 0:
            raise CorruptFile(f"null rows of {size} bytes")
        data = self._source.range(offset, size + _CRC.size)
        if zlib.crc32(data[:size]) != _CRC.unpack_from(data, size)[0]:
            raise CorruptFile("Crc check failure during decoding null bitmap.", offset=offset)
        return roaring.decode64(data[:size])

    def lookup(self, key: bytes) -> Ids:
        """The row ids of one key."""
        wanted = self._comparable(key)
        number = bisect_left(self._last_keys, wanted)
        if number == len(self._last_keys):
            return np.empty(0, np.int64)
        block = self._block(number)
        index = self._first_not_below(block, wanted)
        if index == block.count or self._comparable(block.entry(index)[0]) != wanted:
            return np.empty(0, np.int64)
        return block.ids(index, index + 1, self.version)[0]

    def between(self, low: Comparable | None, low_inclusive: bool, high: Comparable | None, high_inclusive: bool) -> Iterator[Ids]:
        """The row ids of all keys between two bounds (None: open), block by block."""
        number = 0 if low is None else bisect_left(self._last_keys, low)
        while number < len(self._last_keys):
            block = self._block(number)
            start, stop = 0, block.count
            if low is not None:
                start = self._first_not_below(block, low)
                if not low_inclusive and start < block.count and self._comparable(block.entry(start)[0]) == low:
                    start += 1
                low = None
                if start == block.count:  # an excluded bound can be the last key of its block
                    number += 1
                    continue
            last = self._last_keys[number]
            ends_here = high is not None and (last > high or (last == high and not high_inclusive))
            if ends_here:
                assert high is not None
                stop = self._first_not_below(block, high)
                if high_inclusive and stop < block.count and self._comparable(block.entry(stop)[0]) == high:
                    stop += 1
            if start < stop:
                yield block.ids(start, stop, self.version)[0]
            if ends_here:
                return
            number += 1

    def scan(self) -> Iterator[tuple[list[bytes], Ids, npt.NDArray[np.int64]]]:
        """Block by block: its keys, the row ids of all of them, and how many each key has."""
        for number in range(len(self._blocks)):
            block = self._block(number)
            yield [block.entry(index)[0] for index in range(block.count)], *block.ids(0, block.count, self.version)

    def chunks(self, read: int, most: int) -> Iterator[list[Block]]:
        """All data blocks: `read` bytes are read at a time, blocks of `most` bytes come together, but at least one."""
        stop = 0
        while stop < len(self._blocks):
            first, start = stop, self._blocks[stop][1]
            end = start
            for _, offset, size in self._blocks[first:]:
                if offset != end or (stop > first and end + size - start > read):
                    break
                end += size + TRAILER_SIZE
                stop += 1
            stored = self._source.range(start, end - start)
            chunk: list[Block] = []
            held = 0
            for last_key, offset, size in self._blocks[first:stop]:
                block = Block(open_block(stored[offset - start : offset - start + size + TRAILER_SIZE], offset))
                if not block.count or block.entry(block.count - 1)[0] != last_key:
                    raise CorruptFile("a block of a BTree payload does not end with the key that the index says", offset=offset)
                chunk.append(block)
                held += len(block.raw)
                if held >= most:
                    yield chunk
                    chunk, held = [], 0
            if chunk:
                yield chunk

    def entries(self) -> Iterator[tuple[bytes, Ids]]:
        """Every key with its row ids, in file order."""
        for keys, ids, counts in self.scan():
            yield from zip(keys, np.split(ids, np.cumsum(counts)[:-1]), strict=True)

    def _block(self, number: int) -> Block:
        if self._cached is not None and self._cached[0] == number:
            return self._cached[1]
        last_key, offset, size = self._blocks[number]
        block = Block(self._source.block(offset, size))
        if not block.count or block.entry(block.count - 1)[0] != last_key:
            raise CorruptFile("a block of a BTree payload does not end with the key that the index says", offset=offset)
        if number and self._comparable(block.entry(0)[0]) <= self._last_keys[number - 1]:
            raise CorruptFile("the blocks of a BTree payload overlap", offset=offset)
        self._cached = (number, block)
        return block

    def _first_not_below(self, block: Block, wanted: Comparable) -> int:
        return bisect_left(range(block.count), wanted, key=lambda index: self._comparable(block.entry(index)[0]))

    def _comparable(self, key: bytes) -> Comparable:
        return comparable(key, self._key_type)
