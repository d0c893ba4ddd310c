"""Reading a BTree payload, block by block, as far as a question needs it (layout in `maintainer.format.btree`).

    end of the payload ─▶ footer ─▶ index block ─▶ the data blocks that can hold the keys, neighbours in one read

The footer, the index and blocks that few questions need are kept decoded between questions; scans leave no trace. A lookup decodes the keys on
its way through a block and no others.
"""

from __future__ import annotations

import zlib
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from operator import itemgetter
from sys import getsizeof

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap64

from maintainer.errors import CorruptFile
from maintainer.format import roaring, varint
from maintainer.format.btree import ALIGNED, CRC, DELTA_VERSION, FOOTER, INT, MAGIC, TAIL, WRITE_VERSION, Ids
from maintainer.format.key_bytes import Comparable, comparable
from maintainer.format.made_once import made_once
from maintainer.format.stored_block import PayloadBytes
from maintainer.model.types import DataType

Handle = tuple[int, int]
"""Offset and size."""

_ONE_ID, _DELTAS, _BITMAP = range(3)
_TOGETHER = 1024
"""Blocks that are looked for at once."""
_NONE = np.empty(0, np.int64)


class Block:
    """The entries of one block; keys are decoded only where they are looked at."""

    def __init__(self, raw: bytes) -> None:
        if len(raw) < TAIL or raw[-1] > 1:
            raise CorruptFile("a BTree block has an illegal aligned type")
        number = INT.unpack_from(raw, len(raw) - TAIL)[0]
        if raw[-1:] == ALIGNED:
            size = len(raw) - TAIL
            if number <= 0 or not size or size % number:
                raise CorruptFile(f"a BTree block of {size} bytes cannot have entries of {number} bytes")
            self.bounds = np.arange(0, size + 1, number, dtype=np.int64)
        else:
            size = len(raw) - TAIL - 4 * number
            if number < 0 or size < 0:
                raise CorruptFile(f"a BTree block of {len(raw)} bytes cannot have {number} entries")
            positions = np.frombuffer(raw, "<i4", number, size).astype(np.int64)
            self.bounds = np.append(positions, size)
            if self.bounds[0] != 0 or bool((np.diff(self.bounds) <= 0).any()):
                raise CorruptFile("the positions of a BTree block are not ascending")
        self.raw = raw
        self.count = len(self.bounds) - 1

    @property
    def nbytes(self) -> int:
        """Bytes that it holds."""
        return len(self.raw) + int(self.bounds.nbytes)

    def key(self, index: int) -> bytes:
        """The key of an entry."""
        begin, end = self.bounds[index : index + 2].tolist()
        size, begin = varint.decode(self.raw, begin)
        if begin + size >= end:
            raise CorruptFile("a key of a BTree block is longer than its entry", offset=begin)
        return self.raw[begin : begin + size]

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


@dataclass(frozen=True)
class BlockIndex:
    """Where the data blocks are, in ascending order of their keys."""

    last_keys: list[Comparable]
    last_key: bytes | None
    """The largest key; None when there is none."""
    offsets: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int64]

    @classmethod
    def decode(cls, raw: bytes, key_type: DataType) -> BlockIndex:
        """From the index block."""
        block = Block(raw)
        keys, handles = [], np.empty((block.count, 2), np.int64)
        for number in range(block.count):
            key, handle = block.entry(number)
            keys.append(key)
            handles[number, 0], at = varint.decode(handle, 0)
            handles[number, 1], end = varint.decode(handle, at)
            if end != len(handle):
                raise CorruptFile("a block handle of a BTree payload is malformed")
        last_keys = [comparable(key, key_type) for key in keys]
        if any(after <= before for before, after in pairwise(last_keys)):
            raise CorruptFile("the blocks of a BTree payload are not in key order")
        return cls(last_keys, keys[-1] if keys else None, handles[:, 0].copy(), handles[:, 1].copy())

    @property
    def nbytes(self) -> int:
        """Bytes that it holds."""
        return sum(map(getsizeof, self.last_keys)) + 8 * len(self.last_keys) + int(self.offsets.nbytes + self.sizes.nbytes)

    @property
    def largest(self) -> int:
        """Stored bytes of the largest block."""
        return int(self.sizes.max(initial=0))

    def __len__(self) -> int:
        return len(self.last_keys)


class BTreeFile:
    """A payload that is open; asking costs the reads of what is not kept."""

    def __init__(self, source: PayloadBytes, key_type: DataType) -> None:
        self._source = source
        self._key_type = key_type
        self._kept = source.kept
        self._index_handle, self._null_handle, self.version = self._kept.made("footer", self._footer)

    def _footer(self) -> tuple[tuple[Handle, Handle, int], int]:
        source = self._source
        if source.size < FOOTER.size:
            raise CorruptFile(f"a BTree payload cannot have {source.size} bytes")
        fields = FOOTER.unpack(source.range(source.size - FOOTER.size, FOOTER.size))
        version, magic = fields[7:]
        if magic != MAGIC:
            raise CorruptFile("File is not a btree index file (bad magic number)", offset=source.size - 4)
        if version not in (WRITE_VERSION, DELTA_VERSION):
            raise CorruptFile(f"Unsupported BTree index version: {version}", offset=source.size - 8)
        return ((fields[3], fields[4]), (fields[5], fields[6]), version), 8 * FOOTER.size

    @made_once
    def index(self) -> BlockIndex:
        """Where the data blocks are."""

        def decoded() -> tuple[BlockIndex, int]:
            found = BlockIndex.decode(self._source.block(*self._index_handle), self._key_type)
            return found, found.nbytes

        return self._kept.made("index", decoded)

    @property
    def has_null_rows(self) -> bool:
        return self._null_handle != (0, 0)

    @made_once
    def null_rows(self) -> BitMap64:
        """Row ids whose value is null."""
        return self._kept.made("null rows", self._nulls) if self.has_null_rows else BitMap64()

    def _nulls(self) -> tuple[BitMap64, int]:
        offset, size = self._null_handle
        if size < 0:
            raise CorruptFile(f"null rows of {size} bytes")
        data = self._source.range(offset, size + CRC.size)
        if zlib.crc32(data[:size]) != CRC.unpack_from(data, size)[0]:
            raise CorruptFile("Crc check failure during decoding null bitmap.", offset=offset)
        return roaring.decode64(data[:size]), roaring.held(size)

    def lookup(self, key: bytes) -> Ids:
        """The row ids of one key."""
        return next(self.lookups((key,)), _NONE)

    def lookups(self, keys: Iterable[bytes]) -> Iterator[Ids]:
        """The row ids of each of some ascending keys that is there."""
        numbered = ((bisect_left(self.index.last_keys, wanted), wanted) for wanted in map(self._comparable, keys))
        wanted_of = {
            number: [wanted for _, wanted in group] for number, group in groupby(numbered, key=itemgetter(0)) if number < len(self.index)
        }
        for number, block in self._blocks(list(wanted_of), keep=True):
            for wanted in wanted_of[number]:
                at = self._first_not_below(block, wanted)
                if at < block.count and self._comparable(block.key(at)) == wanted:
                    yield block.ids(at, at + 1, self.version)[0]

    def between(self, low: Comparable | None, low_inclusive: bool, high: Comparable | None, high_inclusive: bool) -> Iterator[Ids]:
        """The row ids of all keys between two bounds (None: open), block by block."""
        index = self.index
        first = 0 if low is None else bisect_left(index.last_keys, low)
        last = len(index) - 1 if high is None else min(bisect_left(index.last_keys, high), len(index) - 1)
        few = int(index.sizes[first : last + 1].sum()) <= self._kept.share
        for number, block in self._blocks(range(first, last + 1), keep=few):
            start, stop = 0, block.count
            if number == first and low is not None:
                start = self._first_not_below(block, low)
                if not low_inclusive and start < block.count and self._comparable(block.key(start)) == low:
                    start += 1
            if number == last and high is not None:
                stop = self._first_not_below(block, high)
                if high_inclusive and stop < block.count and self._comparable(block.key(stop)) == high:
                    stop += 1
            if start < stop:
                yield block.ids(start, stop, self.version)[0]

    def scan(self) -> Iterator[tuple[list[bytes], Ids, npt.NDArray[np.int64]]]:
        """Block by block: its keys, the row ids of all of them, and how many each key has."""
        for _, block in self._blocks(range(len(self.index)), keep=False):
            yield [block.entry(at)[0] for at in range(block.count)], *block.ids(0, block.count, self.version)

    def chunks(self, most: int) -> Iterator[list[Block]]:
        """All data blocks; those of `most` bytes come together, but at least one."""
        chunk: list[Block] = []
        held = 0
        for _, block in self._blocks(range(len(self.index)), keep=False):
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

    def _blocks(self, numbers: Sequence[int], *, keep: bool) -> Iterator[tuple[int, Block]]:
        """Some data blocks, ascending. Without `keep` all of them come from the file."""
        for start in range(0, len(numbers), _TOGETHER):
            some = numbers[start : start + _TOGETHER]
            found = {number: self._kept.get(number) for number in some} if keep else {}
            missing = [number for number in some if found.get(number) is None]
            read = self._source.blocks((int(self.index.offsets[number]), int(self.index.sizes[number])) for number in missing)
            for number in some:
                block = found.pop(number, None)
                if block is None:
                    block = self._opened(number, next(read))
                    if keep:
                        self._kept.put(number, block, block.nbytes)
                yield number, block

    def _opened(self, number: int, raw: bytes) -> Block:
        block = Block(raw)
        last_keys, offset = self.index.last_keys, int(self.index.offsets[number])
        if not block.count or self._comparable(block.key(block.count - 1)) != last_keys[number]:
            raise CorruptFile("a block of a BTree payload does not end with the key that the index says", offset=offset)
        if number and self._comparable(block.key(0)) <= last_keys[number - 1]:
            raise CorruptFile("the blocks of a BTree payload overlap", offset=offset)
        return block

    def _first_not_below(self, block: Block, wanted: Comparable) -> int:
        return bisect_left(range(block.count), wanted, key=lambda at: self._comparable(block.key(at)))

    def _comparable(self, key: bytes) -> Comparable:
        return comparable(key, self._key_type)
