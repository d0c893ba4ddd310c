"""Reading a Bitmap payload as far as a question needs it (layout in `maintainer.format.bitmap_index`).

    end of the payload ─▶ footer ─▶ index block ─▶ dictionary blocks that can hold the keys ─▶ their postings

The footer, the index, dictionary blocks and postings that few questions need are kept decoded between questions. Neighbours come in one read.

Keys stand in logical order; payloads of old Java snapshots and of pypaimon hold them in the order of their bytes. Which of the two a payload
has cannot always be known, and then a lookup tries both places. Where an entry of a dictionary ends is only known where it begins. So where
one *would* end is computed for every byte of the dictionary at once, and followed from entry to entry.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc
from pyroaring import BitMap64

from maintainer.errors import CorruptFile
from maintainer.format import posting, roaring, varint
from maintainer.format.bitmap_index import FOOTER, MAGIC, VERSION, Ids
from maintainer.format.byte_column import ByteColumn
from maintainer.format.key_bytes import Comparable, bytes_are_ordered, comparable
from maintainer.format.made_once import made_once
from maintainer.format.stored_block import GAP, READ_AHEAD, PayloadBytes
from maintainer.model.types import DataType

SMALLEST_ENTRY = 3
_LONGEST_SIZE = 4
"""Bytes of the length of a key: more would be a key of 256 MiB."""
_TOGETHER = 1024
"""Blocks, or postings, that are looked for at once."""
CHUNK_IDS = 1 << 18
"""How many row ids are taken out of postings at once."""
_ENTRY_BYTES = 250
_DICTIONARY_BYTES = 800
_FEW = 8
_MOST_FALSE = 64

Octets = npt.NDArray[np.uint8]
Handle = tuple[int, int]
"""Offset and size."""


class DictionaryEntry(NamedTuple):
    """A key and where its posting is."""

    key: bytes
    offset: int
    length: int


class Dictionary:
    """The entries of a dictionary block, in file order. `offsets` and `sizes` are those of their postings."""

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        count, at = varint.decode(raw, 0)
        if not 0 < count <= len(raw) // SMALLEST_ENTRY:
            raise CorruptFile(f"{count} entries in a dictionary block of {len(raw)} bytes")
        self._begins, self._key_begins, self._key_ends, self.offsets, self.sizes = (_few if count <= _FEW else _many)(raw, count, at)
        if count > 1:
            keys = self.keys.to_arrow()
            if pc.any(pc.equal(keys[1:], keys[:-1])).as_py():
                raise CorruptFile("a key is twice in a dictionary block")

    @property
    def keys(self) -> ByteColumn:
        return ByteColumn.of_pieces(np.frombuffer(self.raw, np.uint8), self._key_begins, self._key_ends - self._key_begins)

    @property
    def nbytes(self) -> int:
        """Bytes that it holds."""
        return len(self.raw) + 5 * int(self._begins.nbytes) + _DICTIONARY_BYTES

    def __len__(self) -> int:
        return len(self._begins)

    def __iter__(self) -> Iterator[DictionaryEntry]:
        return map(self.__getitem__, range(len(self)))

    def __getitem__(self, number: int) -> DictionaryEntry:
        key = self.raw[self._key_begins[number] : self._key_ends[number]]
        return DictionaryEntry(key, int(self.offsets[number]), int(self.sizes[number]))

    def find(self, key: bytes) -> DictionaryEntry | None:
        """The entry of a key, whatever the order."""
        wanted = varint.encode(len(key)) + key
        at = -1
        for _ in range(_MOST_FALSE):
            at = self.raw.find(wanted, at + 1)
            if at < 0:
                return None
            number = int(np.searchsorted(self._begins, at))
            if number < len(self) and self._begins[number] == at:
                return self[number]
        return next((entry for entry in self if entry.key == key), None)  # bytes of postings' places that look like the key


def _few(raw: bytes, count: int, at: int) -> tuple[Ids, Ids, Ids, Ids, Ids]:
    """Where each entry and its key begin, where the key ends, and offset and size of its posting: entry by entry."""
    rows = []
    for _ in range(count):
        size, begin = varint.decode(raw, at)
        if begin + size > len(raw):
            raise CorruptFile("a key is longer than its dictionary block")
        offset, end = varint.decode(raw, begin + size)
        length, end = varint.decode(raw, end)
        rows.append((at, begin, begin + size, offset, length))
        at = end
    if at != len(raw):
        raise CorruptFile("the entries of a dictionary block do not end where it does")
    columns = np.array(rows).T
    return columns[0], columns[1], columns[2], columns[3], columns[4]


def _many(raw: bytes, count: int, at: int) -> tuple[Ids, Ids, Ids, Ids, Ids]:
    """The same for all entries at once."""
    data = np.frombuffer(raw, np.uint8)
    size_ends, key_ends, entry_ends = places(data)
    follow = entry_ends.data
    begins = []
    for _ in range(count):
        begins.append(at)
        at = follow[at]
    if at != len(raw):
        raise CorruptFile("the entries of a dictionary block do not end where it does")
    found = np.array(begins)
    offsets, sizes_at = varint.decode_at(data, key_ends[found])
    sizes, _ = varint.decode_at(data, sizes_at)
    return found, size_ends[found], key_ends[found], offsets, sizes


def places(data: Octets) -> tuple[Ids, Ids, Ids]:
    """Where the key of an entry that begins at each byte begins and ends, and where the entry ends; behind the last byte is behind the end,
    and what does not fit ends there."""
    size = len(data)
    nowhere = size + 1
    at = np.arange(size)
    number_ends = np.full(size + 2, nowhere)
    last_bytes = np.where(data < 0x80, at, size)
    number_ends[:size] = np.minimum.accumulate(last_bytes[::-1])[::-1] + 1
    lengths = (data & 0x7F).astype(np.int64)
    digits = number_ends[:size] - at
    for column in range(1, _LONGEST_SIZE):
        more = np.flatnonzero(digits > column)
        if not len(more):
            break
        more = more[more + column < size]
        lengths[more] |= (data[more + column].astype(np.int64) & 0x7F) << 7 * column
    key_ends = np.full(size + 2, nowhere)
    key_ends[:size] = np.where(digits > _LONGEST_SIZE, nowhere, np.minimum(number_ends[:size] + lengths, nowhere))
    return number_ends, key_ends, number_ends[number_ends[key_ends]]


@dataclass(frozen=True)
class _Index:
    """The dictionary blocks."""

    blocks: list[DictionaryEntry]
    first_keys: list[Comparable]
    logical: bool
    """Whether the keys are surely in logical order: their bytes cannot be in another one, or are not in order, or all keys are known."""
    by_bytes: list[tuple[bytes, int]]
    """Unless they are, the blocks in the order of their bytes."""


class BitmapFile:
    """A payload that is open; asking costs the reads of what is not kept."""

    def __init__(self, source: PayloadBytes, key_type: DataType) -> None:
        self.source = source
        self._key_type = key_type
        self._kept = source.kept
        self._null_handle, self._rows_handle, self._index_handle, self.value_count = self._kept.made("footer", self._footer)

    def _footer(self) -> tuple[tuple[Handle, Handle, Handle, int], int]:
        size = self.source.size
        if size < FOOTER.size:
            raise CorruptFile("Invalid bitmap global index file size.")
        fields = FOOTER.unpack(self.source.range(size - FOOTER.size, FOOTER.size))
        version, magic = fields[7:9]
        if magic != MAGIC:
            raise CorruptFile("File is not a bitmap global index file (bad footer magic).", offset=size - 4)
        if version != VERSION:
            raise CorruptFile(f"Unsupported bitmap global index file version: {version}", offset=size - 8)
        if min(fields[:7]) < 0:
            raise CorruptFile("the footer of a bitmap payload has a negative number", offset=size - FOOTER.size)
        return ((fields[0], fields[1]), (fields[2], fields[3]), (fields[4], fields[5]), fields[6]), 8 * FOOTER.size

    @made_once
    def null_rows(self) -> BitMap64:
        """Row ids whose value is null."""
        return self._row_sets[0]

    @made_once
    def rows(self) -> BitMap64:
        """Row ids that have a value."""
        return self._row_sets[1]

    @made_once
    def _row_sets(self) -> tuple[BitMap64, BitMap64]:
        def decoded() -> tuple[tuple[BitMap64, BitMap64], int]:
            spans = (self._null_handle, self._rows_handle)
            null_rows, rows = (_bitmap(data, offset) for data, (offset, _) in zip(self.source.ranges(spans), spans, strict=True))
            return (null_rows, rows), sum(roaring.held(size) for _, size in spans)

        return self._kept.made("rows", decoded)

    @property
    def rows_are_at_hand(self) -> bool:
        """Whether the non-null rows cost no further read."""
        return (
            "_row_sets" in self.__dict__
            or self.source.is_at_hand(min(self._null_handle[0], self._rows_handle[0]))
            or self._kept.get("rows") is not None
        )

    @property
    def blocks(self) -> Sequence[DictionaryEntry]:
        """First key, offset and size of every dictionary block, in file order."""
        return self._index.blocks

    @made_once
    def _index(self) -> _Index:
        def decoded() -> tuple[_Index, int]:
            blocks = self._block_list()
            first_keys = [comparable(key, self._key_type) for key, _, _ in blocks]
            logical, by_bytes = _ascending(first_keys), _ascending([key for key, _, _ in blocks])
            if not logical and not by_bytes:
                raise CorruptFile("the dictionary blocks of a bitmap payload are in no known order")
            logical &= not by_bytes or bytes_are_ordered(self._key_type) or len(blocks) == self.value_count
            other = [] if logical else sorted((key, number) for number, (key, _, _) in enumerate(blocks))
            held = len(blocks) * _ENTRY_BYTES + 2 * sum(len(key) for key, _, _ in blocks)
            return _Index(blocks, first_keys, logical, other), held

        return self._kept.made("index", decoded)

    def _block_list(self) -> list[DictionaryEntry]:
        raw = self.source.block(*self._index_handle)
        count, at = varint.decode(raw, 0)
        if count > len(raw) or count > self.value_count:
            raise CorruptFile(f"{count} dictionary blocks in an index block of {len(raw)} bytes for {self.value_count} keys")
        blocks = []
        for _ in range(count):
            size, begin = varint.decode(raw, at)
            end = begin + size
            if end > len(raw):
                raise CorruptFile("a key is longer than its block", offset=at)
            offset, at = varint.decode(raw, end)
            length, at = varint.decode(raw, at)
            blocks.append(DictionaryEntry(raw[begin:end], offset, length))
        if at != len(raw):
            raise CorruptFile("bytes after the last entry of an index block")
        return blocks

    def lookup(self, key: bytes) -> DictionaryEntry | None:
        """The entry of one key."""
        return next(iter(self.lookups((key,))), None)

    def lookups(self, keys: Iterable[bytes]) -> list[DictionaryEntry]:
        """The entries of those of some keys that are there, in the order of their postings."""
        missing = list(keys)
        found: list[DictionaryEntry] = []
        for place in (self._logical_place,) if self._index.logical else (self._logical_place, self._place_by_bytes):
            wanted: dict[int, list[bytes]] = {}
            for key in missing:
                wanted.setdefault(place(key), []).append(key)
            missing = wanted.pop(-1, [])
            for number, dictionary in self.dictionaries(sorted(wanted)):
                for key in wanted[number]:
                    entry = dictionary.find(key)
                    if entry is None:
                        missing.append(key)
                    else:
                        found.append(entry)
        return sorted(found, key=lambda entry: entry.offset)

    def _logical_place(self, key: bytes) -> int:
        """The block that has the key if the keys are in logical order; −1: none has."""
        return bisect_right(self._index.first_keys, comparable(key, self._key_type)) - 1

    def _place_by_bytes(self, key: bytes) -> int:
        at = bisect_right(self._index.by_bytes, (key, len(self.blocks))) - 1
        return self._index.by_bytes[at][1] if at >= 0 else -1

    def bitmaps(self, keys: Iterable[bytes]) -> Iterator[BitMap64]:
        """The row ids of each of some keys that is there."""
        return self.postings(self.lookups(keys))

    def posting(self, entry: DictionaryEntry) -> BitMap64:
        """The row ids of a key."""
        return next(self.postings((entry,)))

    def postings(self, entries: Sequence[DictionaryEntry]) -> Iterator[BitMap64]:
        """The row ids of some keys, which come in the order of their postings."""
        for start in range(0, len(entries), _TOGETHER):
            some = entries[start : start + _TOGETHER]
            found = {entry.offset: self._kept.get((entry.offset, entry.length)) for entry in some}
            read = self.source.ranges([(entry.offset, entry.length) for entry in some if found[entry.offset] is None])
            for entry in some:
                bitmap = found[entry.offset]
                if bitmap is None:
                    bitmap = _bitmap(next(read), entry.offset)
                    if not bitmap:
                        raise CorruptFile("an empty posting in a bitmap payload", offset=entry.offset)
                    if roaring.held(entry.length) <= self._kept.share:
                        self._kept.put((entry.offset, entry.length), bitmap, roaring.held(entry.length))
                yield bitmap

    def select(
        self,
        total_rows: int,
        choose: Callable[[Dictionary], npt.NDArray[np.bool_]],
        low: Comparable | None = None,
        high: Comparable | None = None,
    ) -> BitMap64:
        """The row ids, all below `total_rows`, of the keys that are chosen of each dictionary; between two bounds (inclusive) those of
        dictionaries that lie there as a whole are not even asked for."""
        first, stop = self._span(low, high)
        bounded = self._index.logical and (low is not None or high is not None)

        def places() -> Iterator[tuple[Ids, Ids]]:
            for number, dictionary in self.dictionaries(range(first, stop)):
                inside = bounded and (low is None or number > first) and (high is None or number < stop - 1)
                chosen = slice(None) if inside else choose(dictionary)
                yield dictionary.offsets[chosen], dictionary.sizes[chosen]

        result = BitMap64()
        for offsets, sizes in _gathered(places()):
            for ids, _ in self._decoded(offsets, sizes, total_rows):
                result |= ids if isinstance(ids, BitMap64) else posting.to_bitmap(ids)
        return result

    def scan(self, total_rows: int) -> Iterator[tuple[list[bytes], Ids, Ids]]:
        """Everything, from the file: some keys, the row ids of all of them, all below `total_rows`, and how many each has. A key with many
        comes several times."""
        for _, dictionary in self.dictionaries(range(len(self.blocks)), keep=False):
            entries = sorted(dictionary, key=lambda entry: entry.offset)
            offsets = np.array([entry.offset for entry in entries])
            sizes = np.array([entry.length for entry in entries])
            at = 0
            for ids, counts in self._decoded(offsets, sizes, total_rows):
                keys = [entry.key for entry in entries[at : at + len(counts)]]
                at += len(counts)
                if isinstance(ids, BitMap64):
                    yield from ((keys, part, np.array([len(part)])) for part in posting.parts(ids, CHUNK_IDS))
                else:
                    yield keys, ids, counts

    def entries(self, low: Comparable | None = None, high: Comparable | None = None) -> Iterator[DictionaryEntry]:
        """The dictionary in file order; not all of it when the entries between two bounds (inclusive) are known to lie together."""
        for _, dictionary in self.dictionaries(range(*self._span(low, high)), keep=False):
            yield from dictionary

    def _span(self, low: Comparable | None, high: Comparable | None) -> tuple[int, int]:
        first, stop = 0, len(self.blocks)
        if self._index.logical:
            if low is not None:
                first = max(0, bisect_right(self._index.first_keys, low) - 1)
            if high is not None:
                stop = bisect_right(self._index.first_keys, high)
        return first, stop

    def dictionaries(self, numbers: Sequence[int], *, keep: bool = True) -> Iterator[tuple[int, Dictionary]]:
        """Some dictionary blocks, ascending. Without `keep` all of them come from the file."""
        keep &= sum(self.blocks[number].length + _DICTIONARY_BYTES for number in numbers) <= self._kept.share
        total = 0
        for start in range(0, len(numbers), _TOGETHER):
            some = numbers[start : start + _TOGETHER]
            found = {number: self._kept.get(number) for number in some} if keep else {}
            read = self.source.blocks([self.blocks[number][1:] for number in some if found.get(number) is None])
            for number in some:
                dictionary = found.pop(number, None)
                if dictionary is None:
                    dictionary = self._opened(number, next(read))
                    if keep:
                        self._kept.put(number, dictionary, dictionary.nbytes)
                total += len(dictionary)
                yield number, dictionary
        if len(numbers) == len(self.blocks) and total != self.value_count:
            raise CorruptFile(f"a bitmap payload has {total} keys instead of {self.value_count}")

    def _opened(self, number: int, raw: bytes) -> Dictionary:
        try:
            dictionary = Dictionary(raw)
        except CorruptFile as error:
            raise CorruptFile(error.reason, offset=self.blocks[number].offset) from error
        if dictionary[0].key != self.blocks[number].key:
            raise CorruptFile("a dictionary block does not begin with the key that the index says", offset=self.blocks[number].offset)
        return dictionary

    def _decoded(self, offsets: Ids, sizes: Ids, total_rows: int) -> Iterator[tuple[Ids | BitMap64, Ids]]:
        """The row ids of postings with ascending offsets, and how many each has; one with very many comes alone, as a bitmap."""
        ends = np.maximum.accumulate(offsets + sizes)
        cuts = np.flatnonzero(offsets[1:] > ends[:-1] + GAP) + 1
        start = 0
        while start < len(offsets):
            begin = int(offsets[start])
            gap = int(np.searchsorted(cuts, start, "right"))
            stop = int(cuts[gap]) if gap < len(cuts) else len(offsets)
            stop = min(stop, max(start + 1, bisect_right(ends, begin + READ_AHEAD)))
            data = np.frombuffer(self.source.range(begin, int(ends[stop - 1]) - begin), np.uint8)
            while start < stop:
                ids, counts = posting.decode_groups(data, offsets[start:stop] - begin, sizes[start:stop], CHUNK_IDS, total_rows)
                yield ids, counts
                start += len(counts)


def _gathered(places: Iterable[tuple[Ids, Ids]]) -> Iterator[tuple[Ids, Ids]]:
    """Offsets and sizes of postings in ascending order, as many at a time as are worth a read."""
    offsets: list[Ids] = []
    sizes: list[Ids] = []
    held = 0
    for some_offsets, some_sizes in places:
        offsets.append(some_offsets)
        sizes.append(some_sizes)
        held += int(some_sizes.sum())
        if held >= READ_AHEAD:
            yield _in_order(np.concatenate(offsets), np.concatenate(sizes))
            offsets, sizes, held = [], [], 0
    if offsets:
        yield _in_order(np.concatenate(offsets), np.concatenate(sizes))


def _in_order(offsets: Ids, sizes: Ids) -> tuple[Ids, Ids]:
    order = np.argsort(offsets, kind="stable")
    return offsets[order], sizes[order]


def _bitmap(data: bytes, offset: int) -> BitMap64:
    try:
        return roaring.decode64(data)
    except CorruptFile as error:
        raise CorruptFile(error.reason, offset=offset + (error.offset or 0)) from error


def _ascending(keys: Sequence[Comparable]) -> bool:
    return all(before < after for before, after in pairwise(keys))
