"""The Bitmap payload: a bitmap of row ids per key, and a dictionary that finds it (spec 08 §7; Java `BitmapGlobalIndexFormat`).

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
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap64

from maintainer.errors import CorruptFile, MaintainerError
from maintainer.format import byte_column, roaring, varint
from maintainer.format.byte_column import ByteColumn
from maintainer.format.key_bytes import Comparable, bytes_are_ordered, comparable
from maintainer.format.stored_block import Compressor, PayloadBytes, Sink, store
from maintainer.model.types import DataType

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
        self._index: list[tuple[bytes, int, int]] = []

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
            self._index.append((key, position, store((raw,), out.extend, self._compress)))
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
        parts = [varint.encode(len(self._index))]
        for key, offset, size in self._index:
            parts += (varint.encode(len(key)), key, varint.encode(offset), varint.encode(size))
        index_offset = self._position
        index_size = store((b"".join(parts),), self._write, self._compress)
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
        self._index.append((keys[0], position, size))


class DictionaryEntry(NamedTuple):
    """A key and where its posting is."""

    key: bytes
    offset: int
    length: int


class BitmapFile:
    """A payload that is read block by block, as far as a question needs it.

    Payloads of old Java snapshots and of pypaimon hold their keys in the order of their bytes; a lookup tries both places.
    """

    def __init__(self, source: PayloadBytes, key_type: DataType) -> None:
        self._source = source
        self._key_type = key_type
        if source.size < FOOTER.size:
            raise CorruptFile("Invalid bitmap global index file size.")
        fields = FOOTER.unpack(source.range(source.size - FOOTER.size, FOOTER.size))
        self._null_handle, self._rows_handle, self._index_handle = fields[0:2], fields[2:4], fields[4:6]
        self.value_count, version, magic = fields[6:9]
        if magic != MAGIC:
            raise CorruptFile("File is not a bitmap global index file (bad footer magic).", offset=source.size - 4)
        if version != VERSION:
            raise CorruptFile(f"Unsupported bitmap global index file version: {version}", offset=source.size - 8)
        if min(fields[:7]) < 0:
            raise CorruptFile("the footer of a bitmap payload has a negative number", offset=source.size - FOOTER.size)

    @cached_property
    def null_rows(self) -> BitMap64:
        """Row ids whose value is null."""
        return self._bitmap(*self._null_handle)

    @cached_property
    def rows(self) -> BitMap64:
        """Row ids that have a value."""
        return self._bitmap(*self._rows_handle)

    @property
    def rows_are_at_hand(self) -> bool:
        """Whether the non-null rows cost no further read."""
        return "rows" in self.__dict__ or self._source.is_at_hand(self._rows_handle[0])

    def posting(self, entry: DictionaryEntry) -> BitMap64:
        """The row ids of a key."""
        bitmap = self._bitmap(entry.offset, entry.length)
        if not bitmap:
            raise CorruptFile("an empty posting in a bitmap payload", offset=entry.offset)
        return bitmap

    def lookup(self, key: bytes) -> DictionaryEntry | None:
        """The entry of one key."""
        number = bisect_right(self._first_keys, comparable(key, self._key_type)) - 1
        found = self._block(number).get(key) if number >= 0 else None
        if found is None and not self._is_logical:
            by_bytes = bisect_right(self._byte_order, (key, len(self._blocks))) - 1
            if by_bytes >= 0 and self._byte_order[by_bytes][1] != number:
                found = self._block(self._byte_order[by_bytes][1]).get(key)
        return found

    def entries(self, low: Comparable | None = None, high: Comparable | None = None) -> Iterator[DictionaryEntry]:
        """The dictionary in file order; not all of it when the entries between two bounds (inclusive) are known to lie together."""
        first, last = 0, len(self._blocks)
        if self._is_logical:
            if low is not None:
                first = max(0, bisect_right(self._first_keys, low) - 1)
            if high is not None:
                last = bisect_right(self._first_keys, high)
        total = 0
        for number in range(first, last):
            block = self._block(number)
            total += len(block)
            yield from block.values()
        if last - first == len(self._blocks) and total != self.value_count:
            raise CorruptFile(f"a bitmap payload has {total} keys instead of {self.value_count}")

    @property
    def blocks(self) -> Sequence[DictionaryEntry]:
        """First key, offset and size of every dictionary block, in file order."""
        return self._blocks

    @property
    def source(self) -> PayloadBytes:
        return self._source

    @cached_property
    def _blocks(self) -> list[DictionaryEntry]:
        """First key, offset and size of every dictionary block, in file order."""
        raw = self._source.block(*self._index_handle)
        count, at = varint.decode(raw, 0)
        if count > len(raw) or count > self.value_count:
            raise CorruptFile(f"{count} dictionary blocks in an index block of {len(raw)} bytes for {self.value_count} keys")
        blocks = []
        for _ in range(count):
            entry, at = _entry(raw, at)
            blocks.append(entry)
        if at != len(raw):
            raise CorruptFile("bytes after the last entry of an index block")
        return blocks

    @cached_property
    def _first_keys(self) -> list[Comparable]:
        """What is searched for a key; in a payload in byte order it leads to wrong places, which hold nothing."""
        return [comparable(key, self._key_type) for key, _, _ in self._blocks]

    @cached_property
    def _is_logical(self) -> bool:
        """Whether the keys are surely in logical order: their bytes cannot be in another one, or are not in order, or all keys are known."""
        logical = _ascending(self._first_keys)
        by_bytes = _ascending([key for key, _, _ in self._blocks])
        if not logical and not by_bytes:
            raise CorruptFile("the dictionary blocks of a bitmap payload are in no known order")
        return logical and (not by_bytes or bytes_are_ordered(self._key_type) or len(self._blocks) == self.value_count)

    @cached_property
    def _byte_order(self) -> list[tuple[bytes, int]]:
        return sorted((key, number) for number, (key, _, _) in enumerate(self._blocks))

    def _block(self, number: int) -> dict[bytes, DictionaryEntry]:
        cached = self._loaded.get(number)
        if cached is not None:
            return cached
        first_key, offset, size = self._blocks[number]
        raw = self._source.block(offset, size)
        count, at = varint.decode(raw, 0)
        if not 0 < count <= len(raw) // _SMALLEST_ENTRY:
            raise CorruptFile(f"{count} entries in a dictionary block of {len(raw)} bytes", offset=offset)
        found: dict[bytes, DictionaryEntry] = {}
        for _ in range(count):
            entry, at = _entry(raw, at)
            found[entry.key] = entry
        if at != len(raw) or len(found) != count or next(iter(found)) != first_key:
            raise CorruptFile("a dictionary block of a bitmap payload does not hold what the index says", offset=offset)
        self._loaded[number] = found
        return found

    @cached_property
    def _loaded(self) -> dict[int, dict[bytes, DictionaryEntry]]:
        return {}

    def _bitmap(self, offset: int, length: int) -> BitMap64:
        try:
            return roaring.decode64(self._source.range(offset, length))
        except CorruptFile as error:
            raise CorruptFile(error.reason, offset=offset + (error.offset or 0)) from error


def _entry(raw: bytes, at: int) -> tuple[DictionaryEntry, int]:
    size, start = varint.decode(raw, at)
    end = start + size
    if end > len(raw):
        raise CorruptFile("a key is longer than its block", offset=at)
    offset, at = varint.decode(raw, end)
    length, at = varint.decode(raw, at)
    return DictionaryEntry(raw[start:end], offset, length), at


def _ascending(keys: Sequence[Comparable]) -> bool:
    return all(before < after for before, after in pairwise(keys))
