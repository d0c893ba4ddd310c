"""The Bitmap payload: a bitmap of row ids per key, and a dictionary that finds it (spec 08 §7; Java `BitmapGlobalIndexFormat`).
Here they are written; `maintainer.format.bitmap_file` reads them.

    posting of key 1 | … | dictionary block 0 | posting … | dictionary block 1 | … | null rows | non-null rows | index block | footer

A posting is a bare roaring bitmap. Dictionary and index blocks are stored blocks:

| block      | bytes                                                                                                        |
| ---------- | ------------------------------------------------------------------------------------------------------------ |
| dictionary | varint entries, then per key: varint key length, key, varint offset and varint length of its posting         |
| index      | varint blocks, then per dictionary block: varint key length, its first key, varint offset and size           |

| footer | big-endian                                                                      |
| ------ | ------------------------------------------------------------------------------- |
| 0      | int64 offset, int32 length of the null rows                                     |
| 12     | int64 offset, int32 length of the non-null rows                                 |
| 24     | int64 offset, int32 size of the index block                                     |
| 36     | int32 number of keys, int32 version 1, int32 magic "BGIX"                       |

A dictionary block is written when the next entry would make it larger than the block size, and after the posting of that next entry. Keys
stand in logical order. Peers that look keys up by the order of their bytes find them, too, when each block holds one entry (spec 08 §7.6).
Nothing protects the bitmaps but what they must fulfil together: no posting shares a row with another, all of them make the non-null rows,
and those and the null rows make all rows.
"""

from __future__ import annotations

import struct

import numpy as np
import numpy.typing as npt

from maintainer.errors import MaintainerError
from maintainer.format import byte_column, varint
from maintainer.format.byte_column import ByteColumn
from maintainer.format.stored_block import Compressor, Sink, store

MAGIC = 0x42474958
VERSION = 1
FOOTER = struct.Struct(">qiqiqiiii")
DEFAULT_BLOCK_SIZE = 16 << 10
ONE_ENTRY = 1
"""The block size that puts every entry into a dictionary block of its own."""
_SMALLEST_ENTRY = 3
_SMALLEST_PAIR = 1 + 2 * _SMALLEST_ENTRY
"""Block sizes below this give every entry a block of its own."""
_MAX_INT = 2**31 - 1

Ids = npt.NDArray[np.int64]


class BitmapWriter:
    """Writes a payload from batches of keys in logical order with their postings."""

    def __init__(self, sink: Sink, block_size: int = DEFAULT_BLOCK_SIZE, compress: Compressor | None = None) -> None:
        if block_size <= 0:
            raise ValueError("Bitmap dictionary block size must be greater than 0.")
        self._sink = sink
        self._block_size = block_size
        self._compress = compress
        self._position = 0
        self._count = 0
        self._open: tuple[ByteColumn, npt.NDArray[np.int64], npt.NDArray[np.int64]] | None = None  # keys, posting offsets and lengths
        self._single: tuple[bytes, bytes] | None = None  # key and raw block, where every block holds one entry
        self._index = bytearray()  # entries of the index block, as there may be very many
        self._blocks = 0

    def add(self, keys: ByteColumn, postings: ByteColumn) -> None:
        """Keys that follow those of earlier batches, and their bitmaps."""
        if not len(keys):
            return
        self._count += len(keys)
        if self._block_size < _SMALLEST_PAIR:
            self._add_singly(keys, postings)
            return
        lengths = postings.lengths
        offsets = postings.offsets[:-1] + self._position  # true as long as no dictionary block is written in between
        carried = 0
        if self._open is not None:
            open_keys, open_offsets, open_lengths = self._open
            carried = len(open_keys)
            keys = byte_column.concat(open_keys, keys)
            offsets, lengths = np.concatenate((open_offsets, offsets)), np.concatenate((open_lengths, lengths))
        start = written = 0
        while (end := self._cut(keys, offsets, lengths, start)) is not None:
            # The posting of the first entry that does not fit comes before the block.
            self._write_column(postings, written, end + 1 - carried)
            written = end + 1 - carried
            before = self._position
            self._write_dictionary(keys.slice(start, end), offsets[start:end], lengths[start:end])
            offsets[end + 1 :] += self._position - before
            start = end
        self._write_column(postings, written, len(postings))
        rest = keys.slice(start, len(keys))
        self._open = ByteColumn(rest.data.copy(), rest.offsets.copy()), offsets[start:].copy(), lengths[start:].copy()

    def _add_singly(self, keys: ByteColumn, postings: ByteColumn) -> None:
        """As `add`, for blocks of one entry: one by one, as the place of each depends on those before."""
        heads = byte_column.join(ByteColumn.varints(keys.lengths), keys)
        lengths = ByteColumn.varints(postings.lengths)
        data = postings.data.data
        ends = postings.offsets.tolist()
        out = bytearray()
        for index in range(len(keys)):
            offset = self._position + len(out)
            out += data[ends[index] : ends[index + 1]]
            self._write_single(out)
            self._single = keys[index], b"\x01" + heads[index] + varint.encode(offset) + lengths[index]
        self._write(out)

    def _write_single(self, out: bytearray) -> None:
        """Append the waiting block of one entry to what will be written next."""
        if self._single is not None:
            key, raw = self._single
            position = self._position + len(out)
            self._add_block(key, position, store((raw,), out.extend, self._compress))
            self._single = None

    def finish(self, null_rows: bytes, rows: bytes) -> None:
        """Write what is left; `rows` is the bitmap of the non-null rows."""
        if self._open is not None:
            self._write_dictionary(*self._open)
            self._open = None
        out = bytearray()
        self._write_single(out)
        self._write(out)
        handles: list[int] = []
        for encoded in (null_rows, rows):
            handles += (self._position, len(encoded))
            self._write(encoded)
        index_offset = self._position
        index_size = store((varint.encode(self._blocks), self._index), self._write, self._compress)
        self._write(FOOTER.pack(*handles, index_offset, index_size, self._count, VERSION, MAGIC))

    def _cut(self, keys: ByteColumn, offsets: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64], start: int) -> int | None:
        """The end of the block that begins at `start`; None when it is not full."""
        count = len(lengths)
        stop = min(count, start + self._block_size // _SMALLEST_ENTRY + 2)
        key_sizes = np.diff(keys.offsets[start : stop + 1])
        sizes = (
            key_sizes
            + varint.lengths(key_sizes)
            + varint.lengths(offsets[start:stop])
            + varint.lengths(lengths[start:stop])
        )  # fmt: skip
        totals = np.cumsum(sizes) + varint.lengths(np.arange(1, stop - start + 1))
        # The first entry always has a place.
        end = start + max(1, int(np.searchsorted(totals, self._block_size, "right")))
        return end if end < count else None

    def _write(self, data: bytes | bytearray | memoryview) -> None:
        self._sink(data)
        self._position += len(data)

    def _write_column(self, postings: ByteColumn, start: int, stop: int) -> None:
        if stop > start:
            self._write(postings.slice(start, stop).data.data)

    def _write_dictionary(self, keys: ByteColumn, offsets: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]) -> None:
        if int(lengths.max()) > _MAX_INT:
            raise MaintainerError("the posting of a key of a bitmap payload is larger than 2 GiB")
        column = byte_column.join(ByteColumn.varints(keys.lengths), keys, ByteColumn.varints(offsets), ByteColumn.varints(lengths))
        position = self._position
        size = store((varint.encode(len(keys)), column.data.data), self._write, self._compress)
        self._add_block(keys[0], position, size)

    def _add_block(self, first_key: bytes, offset: int, size: int) -> None:
        self._blocks += 1
        self._index += b"".join((varint.encode(len(first_key)), first_key, varint.encode(offset), varint.encode(size)))
