"""All keys of a Bitmap payload with their row ids, many at a time (layout in `maintainer.format.bitmap_index`).

Writers put a dictionary block behind the postings of its keys, and each posting behind the one before. So a payload is read from its start,
some dictionary blocks and their postings at a time; postings that lie in another order are an error here, as no writer puts them so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap64

from maintainer.errors import CorruptFile
from maintainer.format import posting, varint
from maintainer.format.bitmap_file import CHUNK_IDS, SMALLEST_ENTRY, BitmapFile, DictionaryEntry, places
from maintainer.format.bitmap_index import Ids
from maintainer.format.byte_column import ByteColumn
from maintainer.format.stored_block import TRAILER_SIZE, PayloadBytes, open_block

READ_BYTES = 8 << 20
_DICTIONARY_BYTES = 256 << 10

Positions = npt.NDArray[np.int64]
Columns = tuple[ByteColumn, Positions, Positions]
"""Keys, and offset and size of the posting of each."""


def read_entries(file: BitmapFile, total_rows: int) -> Iterator[tuple[ByteColumn, Ids, Positions]]:
    """Keys in file order, the row ids of all of them, and where those of each key start; every id is below `total_rows`. A key with very many
    comes several times."""
    at = count = stop = 0
    while stop < len(file.blocks):
        first, stop = stop, stop + 1
        while stop < len(file.blocks) and _end(file.blocks[stop]) - at <= READ_BYTES:
            stop += 1
        blocks = file.blocks[first:stop]
        window = _Window(file.source, at, _end(blocks[-1]))
        for keys, offsets, sizes in _dictionaries(window, blocks):
            begins = np.append(at, offsets[:-1] + sizes[:-1])
            if bool((offsets < begins).any()) or int(offsets.max()) + int(sizes.max()) > 2 * file.source.size:
                raise CorruptFile("the postings of a bitmap payload do not follow one another")
            at = int(offsets[-1] + sizes[-1])
            count += len(keys)
            yield from _with_ids(keys, offsets, sizes, window, total_rows)
    if count != file.value_count:
        raise CorruptFile(f"a bitmap payload has {count} keys instead of {file.value_count}")


def _with_ids(
    keys: ByteColumn, offsets: Positions, sizes: Positions, window: _Window, total_rows: int
) -> Iterator[tuple[ByteColumn, Ids, Positions]]:
    start = 0
    while start < len(keys):
        begin = int(offsets[start])
        stop = max(start + 1, int(np.searchsorted(offsets + sizes, begin + READ_BYTES, "right")))
        data = np.frombuffer(window.range(begin, int(offsets[stop - 1] + sizes[stop - 1])), np.uint8)
        while start < stop:
            ids, counts = posting.decode_groups(data, offsets[start:stop] - begin, sizes[start:stop], CHUNK_IDS, total_rows)
            some = keys.slice(start, start + len(counts))
            if isinstance(ids, BitMap64):
                yield from ((some, part, np.zeros(1, np.int64)) for part in posting.parts(ids, CHUNK_IDS))
            else:
                yield some, ids, np.cumsum(counts) - counts
            start += len(counts)


class _Window:
    """Some bytes of a payload, read once when they are few enough, else as they are asked for."""

    def __init__(self, source: PayloadBytes, start: int, end: int) -> None:
        self._source = source
        self._start = start
        self._data = memoryview(source.range(start, end - start)) if end - start <= READ_BYTES else None

    def range(self, start: int, end: int) -> memoryview:
        if self._data is None:
            return memoryview(self._source.range(start, end - start))
        if not self._start <= start <= end <= self._start + len(self._data):
            raise CorruptFile("a posting does not lie before its dictionary", offset=start)
        return self._data[start - self._start : end - self._start]


def _end(block: DictionaryEntry) -> int:
    return block.offset + block.length + TRAILER_SIZE


def _dictionaries(window: _Window, blocks: Sequence[DictionaryEntry]) -> Iterator[Columns]:
    """The entries of these blocks, those of small blocks together."""
    raws: list[bytes] = []
    first = held = 0
    for number, block in enumerate(blocks):
        raws.append(open_block(bytes(window.range(block.offset, _end(block))), block.offset))
        held += len(raws[-1])
        if held >= _DICTIONARY_BYTES or number == len(blocks) - 1:
            yield dictionary(raws, [each.key for each in blocks[first : number + 1]])
            raws, first, held = [], number + 1, 0


def dictionary(raws: Sequence[bytes], first_keys: Sequence[bytes]) -> Columns:
    """The entries of some raw dictionary blocks that begin with these keys."""
    data = np.frombuffer(b"".join(raws), np.uint8)
    size_at, key_at, next_at = places(data)
    follow = next_at.data
    begins: list[int] = []
    firsts: list[int] = []
    base = 0
    for raw in raws:
        count, at = varint.decode(raw, 0)
        if not 0 < count <= len(raw) // SMALLEST_ENTRY:
            raise CorruptFile(f"{count} entries in a dictionary block of {len(raw)} bytes")
        at += base
        firsts.append(len(begins))
        for _ in range(count):
            begins.append(at)
            at = follow[at]
        base += len(raw)
        if at != base:
            raise CorruptFile("the entries of a dictionary block do not end where it does")
    found = np.array(begins)
    key_begins, key_ends = size_at[found], key_at[found]
    offsets, sizes_at = varint.decode_at(data, key_ends)
    sizes, _ = varint.decode_at(data, sizes_at)
    keys = ByteColumn.of_pieces(data, key_begins, key_ends - key_begins)
    if any(keys[row] != key for row, key in zip(firsts, first_keys, strict=True)):
        raise CorruptFile("a dictionary block of a bitmap payload does not begin with the key that the index says")
    return keys, offsets, sizes
