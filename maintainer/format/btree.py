"""The BTree payload: sorted keys with the row ids of each (spec 08 §4, §5; Java `BTreeIndexWriter`, `BTreeIndexReader`, `SstFileWriter`).
Here they are written; `maintainer.format.btree_file` reads them.

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
from array import array
from collections.abc import Iterable, Iterator
from itertools import chain

import numpy as np
import numpy.typing as npt

from maintainer.errors import MaintainerError
from maintainer.format import byte_column, varint
from maintainer.format.byte_column import ByteColumn
from maintainer.format.index_meta import IndexMeta
from maintainer.format.row_set import RowSet
from maintainer.format.stored_block import Buffer, Compressor, Sink, store

MAGIC = 0x50425449
WRITE_VERSION = 1
DELTA_VERSION = 2
FOOTER = struct.Struct("<qiqqiqiii")
DEFAULT_BLOCK_SIZE = 64 << 10
INT = struct.Struct("<i")
CRC = struct.Struct("<I")
TAIL = 5
"""What every block has after its entries: a number and the aligned byte."""
ALIGNED, UNALIGNED = b"\x00", b"\x01"
_MAX_BLOCK = 2**31 - 1
_PART = 1 << 18
"""Row ids of a large key that are encoded at once."""

Ids = npt.NDArray[np.int64]


class BTreeWriter:
    """Writes a payload from batches of keys in ascending order; a batch costs no Python work per key, only per block."""

    def __init__(self, sink: Sink, block_size: int = DEFAULT_BLOCK_SIZE, compress: Compressor | None = None) -> None:
        self._sink = sink
        self._block_size = block_size
        self._compress = compress
        self._position = 0
        self._open: ByteColumn | None = None  # entries of the block that is not full yet
        self._index = bytearray()  # entries of the index block, as there may be very many
        self._index_ends = array("q", [0])
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

    def add_large(self, key: bytes, rows: RowSet) -> None:
        """A key that follows, with so many rows that its entry is not held as a whole where it fills its block."""
        count = len(rows)
        value_size = len(varint.encode(count)) + varint.total_length(count, rows.below)
        head = b"".join((varint.encode(len(key)), key, varint.encode(value_size), varint.encode(count)))
        size = len(varint.encode(len(key))) + len(key) + len(varint.encode(value_size)) + value_size
        before = ByteColumn.of_rows(()) if self._open is None else self._open
        aligned = bool((before.lengths == size).all())
        if len(before.data) + size + TAIL + (0 if aligned else 4 * (len(before) + 1)) <= self._block_size:
            ids = np.concatenate(list(rows.parts(_PART)))
            self.add(ByteColumn.of_rows((key,)), ids, np.zeros(1, np.int64))
            return
        self._first_key = key if self._first_key is None else self._first_key
        self._last_key = key
        self._open = None
        tail = _tail(np.append(before.lengths, size))
        ids_as_bytes = (ByteColumn.varints(part).data.data for part in rows.parts(_PART))
        self._store_block(chain((before.data.data, head), ids_as_bytes, (tail,)), key)

    def finish(self, null_rows: bytes) -> IndexMeta:
        """Write what is left and return the payload's metadata; `null_rows` is a bitmap, or nothing when there are none."""
        if self._open is not None and self._last_key is not None:
            self._write_block(self._open, self._last_key)
            self._open = None
        null_offset = null_size = 0
        if null_rows:
            null_offset, null_size = self._position, len(null_rows)
            self._write(null_rows)
            self._write(CRC.pack(zlib.crc32(null_rows)))
        index = ByteColumn(np.frombuffer(self._index, np.uint8), np.frombuffer(self._index_ends, np.int64))
        index_offset = self._position
        index_size = store(_block(index), self._write, self._compress)
        self._write(FOOTER.pack(0, 0, 0, index_offset, index_size, null_offset, null_size, WRITE_VERSION, MAGIC))
        return IndexMeta(self._first_key, self._last_key, len(null_rows) > 0)

    def _write(self, data: bytes | bytearray | memoryview) -> None:
        self._sink(data)
        self._position += len(data)

    def _write_block(self, entries: ByteColumn, last_key: bytes) -> None:
        self._store_block(_block(entries), last_key)

    def _store_block(self, pieces: Iterable[Buffer], last_key: bytes) -> None:
        offset = self._position
        handle = varint.encode(offset) + varint.encode(store(pieces, self._write, self._compress))
        self._index += b"".join((varint.encode(len(last_key)), last_key, varint.encode(len(handle)), handle))
        self._index_ends.append(len(self._index))


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
    id_bytes = ByteColumn.varints(ids)
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
    room = block_size - TAIL
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
    return entries.data.data, _tail(entries.lengths)


def _tail(sizes: npt.NDArray[np.int64]) -> bytes:
    """What follows entries of these sizes in a raw block."""
    count = len(sizes)
    ends = np.cumsum(sizes)
    if count and int(ends[-1]) + 4 * count + TAIL > _MAX_BLOCK:
        raise MaintainerError("a block of a BTree payload would be larger than 2 GiB: too many rows have the same key")
    if count and bool((sizes == sizes[0]).all()):
        return INT.pack(int(sizes[0])) + ALIGNED
    return (ends - sizes).astype("<i4").tobytes() + INT.pack(count) + UNALIGNED
