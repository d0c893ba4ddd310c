"""Reading Avro data files (spec 02 §5; Java `AvroBulkFormat`).

An Avro container has no directory of its blocks, so a file is one row group. It is read from its begin, some megabytes at a time, and the
blocks of some megabytes become columns at once, by polars where it is installed (millions of rows a second), else by fastavro (a tenth).

Where only some positions are wanted, the heads of all blocks are looked at first, which say how many records a block has and where the next one
begins. Blocks that hold a wanted position are read, decompressed and decoded, some together as a row group; others are not, nor fetched from a
remote store if they are so large that a request is worth it. The walk goes to the end: that the counts of all blocks add up to the rows of the
file is what makes a position right. What it found is kept.

The container is parsed here, and blocks are decompressed here, with limits; decoders see plain blocks under a raw schema (`avro_schema`).
"""

from __future__ import annotations

import io
import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap64

from maintainer.data import avro_schema
from maintainer.data.avro_schema import Node
from maintainer.data.data_file import Column, DataFile, RowGroup
from maintainer.errors import CorruptFile
from maintainer.format import avro

_WHAT = "data file"
_HEADER = 64 << 10
_LARGEST_HEADER = 16 << 20
_CHUNK = 4 << 20
_AT_ONCE = 4 << 20
_SYNC = b"\0" * avro.SYNC_SIZE
_HEAD = 32
"""A head of a block is no longer: two numbers."""
_LARGE, _LARGE_REMOTE = 8 << 10, 128 << 10
"""A block of which more bytes need not be read is jumped over: the next head is a read, or a request, of its own."""
_USUAL_BLOCK, _BLOCK_BYTES = 16_000, 24
"""A block in the file, and in a directory."""
_MOST_HELD = 16 << 20
"""Stored bytes of wanted blocks that are kept when the walk, or one fetch, brings them."""

Block = tuple[int, bytes]
"""Record count and decompressed records."""


class _Found(NamedTuple):
    """A block in the file; its stored bytes where they were read on the way."""

    records: int
    begin: int
    size: int
    stored: bytes | None


@dataclass(frozen=True)
class _Directory:
    """All blocks with records, in order."""

    firsts: npt.NDArray[np.int64]
    """The position of each block's first record, and at the end their number."""
    begins: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int64]


@dataclass
class Header:
    """What is known of a file: its header, and all blocks once somebody looked for them."""

    container: avro.Container
    nodes: Mapping[str, Node]
    size: int
    directory: _Directory | None = None

    @property
    def held(self) -> int:
        """Bytes in memory with the directory, which comes later."""
        return 4096 + 40 * len(self.container.schema) + _BLOCK_BYTES * self.size // _USUAL_BLOCK


class AvroDataFile(DataFile):
    known: Header | None
    names: Sequence[str] = ()
    is_columnar = False

    def _open(self) -> None:
        self._size: int = self._source.size()
        self._prefetch: Callable[[Sequence[tuple[int, int]]], None] | None = getattr(self._source, "prefetch", None)
        if self.known is None:
            container = self._header()
            self.known = Header(container, avro_schema.parse(container.schema), self._size)
        self._container, self._nodes = self.known.container, self.known.nodes
        self.names = list(self._nodes)
        self.row_groups = (RowGroup(0, self.row_count),)
        self._directory: _Directory | None = None
        self._groups: list[slice] = []
        self._held: dict[int, bytes] = {}

    def _header(self) -> avro.Container:
        length = _HEADER
        while True:
            head = self._bytes(0, length)
            try:
                return avro.read_header(head, _WHAT)
            except CorruptFile:
                if len(head) < length or length >= _LARGEST_HEADER:
                    raise
                length *= 4

    def group_bytes(self, group: int, columns: Sequence[str] | None = None) -> int:
        whole = self._size if self._directory is None else int(self._directory.sizes[self._groups[group]].sum())
        return whole * 3 if columns is None else whole * 3 * len(columns) // max(1, len(self.names))

    def _stored_bytes(self, name: str) -> int:
        return self._size // len(self.names)

    def _narrowed(self, positions: BitMap64) -> tuple[RowGroup, ...]:
        assert self.known is not None
        if self.known.directory is None:
            self.known.directory = self._find(positions)
        self._directory = directory = self.known.directory
        firsts = directory.firsts.tolist()
        wanted = [positions.range_cardinality(first, end) > 0 for first, end in itertools.pairwise(firsts)]
        self._groups = list(_runs(wanted, directory.sizes.tolist()))
        if self._prefetch is not None:
            self._fetch([block for block, is_wanted in enumerate(wanted) if is_wanted])
        return tuple(RowGroup(firsts[run.start], firsts[run.stop] - firsts[run.start]) for run in self._groups)

    def _find(self, positions: BitMap64) -> _Directory:
        """Walks the file; bytes of wanted blocks that this brings are held."""
        found: list[_Found] = []
        first = held = 0
        for block in self._walk(whole=False):
            if block.stored is not None:
                keep = held + block.size <= _MOST_HELD and positions.range_cardinality(first, first + block.records) > 0
                if keep:
                    self._held[block.begin] = block.stored
                    held += block.size
                block = block._replace(stored=None)
            found.append(block)
            first += block.records
        if first != self.row_count:
            raise CorruptFile(f"its blocks have {first} records, its metadata says {self.row_count}")
        records, begins, sizes = (np.array([block[part] for block in found], np.int64) for part in range(3))
        return _Directory(np.r_[0, np.cumsum(records)].astype(np.int64), begins, sizes)

    def _fetch(self, blocks: Sequence[int]) -> None:
        """Asks a remote store for blocks that are not here yet."""
        directory = self._directory
        assert directory is not None and self._prefetch is not None
        missing = [block for block in blocks if int(directory.begins[block]) not in self._held]
        spans = [(int(directory.begins[block]), int(directory.begins[block] + directory.sizes[block]) + avro.SYNC_SIZE) for block in missing]
        if sum(end - begin for begin, end in spans) <= _MOST_HELD:
            self._prefetch(spans)

    def _read(self, groups: list[int], plans: Sequence[Column]) -> pa.Table:
        names = [plan.name for plan in plans if plan.name is not None]
        return pa.concat_tables(list(self._tables(groups, names)) or [decode(self._nodes, [], names)])

    def _raw_batches(self, plans: Sequence[Column], batch_rows: int, piece: list[int], rows: int) -> Iterator[pa.RecordBatch]:
        for table in self._tables(piece, [plan.name for plan in plans if plan.name is not None]):
            yield from table.combine_chunks().to_batches(batch_rows)

    def _tables(self, groups: Sequence[int], names: Sequence[str]) -> Iterator[pa.Table]:
        blocks: list[Block] = []
        size = 0
        for found in self._blocks(groups):
            blocks.append(self._decompressed(found))
            size += len(blocks[-1][1])
            if size >= _AT_ONCE:
                yield decode(self._nodes, blocks, names)
                blocks, size = [], 0
        if blocks:
            yield decode(self._nodes, blocks, names)

    def _blocks(self, groups: Sequence[int]) -> Iterator[_Found]:
        """The blocks of some row groups with their bytes."""
        directory = self._directory
        if directory is None:
            for _ in groups:
                yield from self._walk(whole=True)
            return
        for block in (block for group in groups for block in range(len(directory.sizes))[self._groups[group]]):
            begin, size = int(directory.begins[block]), int(directory.sizes[block])
            stored = self._held.get(begin)
            if stored is None:
                stored = self._checked(self._bytes(begin, size + avro.SYNC_SIZE), begin)
            yield _Found(int(directory.firsts[block + 1] - directory.firsts[block]), begin, size, stored)

    def _walk(self, whole: bool) -> Iterator[_Found]:
        """All blocks with records, with their bytes if `whole`; else large ones are jumped over."""
        position, total = self._container.blocks, 0
        window, start = b"", position
        large = _LARGE if self._prefetch is None else _LARGE_REMOTE
        while position < self._size:
            if start + len(window) - position < _HEAD:
                window, start = self._bytes(position, _CHUNK if whole else _HEAD), position
            count, at = avro.read_varint(window, position - start)
            size, at = avro.read_varint(window, at)
            begin, end = start + at, start + at + size + avro.SYNC_SIZE
            total += count
            if count < 0 or size < 0 or end > self._size or total > self.row_count:
                raise CorruptFile(f"a block claims {count} records in {size} bytes", offset=position)
            stored = None
            if end > start + len(window) and not whole and size > large:
                window, start = self._bytes(end - avro.SYNC_SIZE, avro.SYNC_SIZE + _HEAD), end - avro.SYNC_SIZE
                self._checked(window[: avro.SYNC_SIZE], position)
            else:
                if end > start + len(window):
                    window, start = self._bytes(begin, max(_CHUNK, end - begin)), begin
                stored = self._checked(window[begin - start : end - start], position)
            if count:
                yield _Found(count, begin, size, stored)
            position = end

    def _checked(self, stored: bytes, position: int) -> bytes:
        """The bytes of a block without the marker at their end."""
        if stored[-avro.SYNC_SIZE :] != self._container.sync:
            raise CorruptFile("a block does not end with the sync marker", offset=position)
        return stored[: -avro.SYNC_SIZE]

    def _decompressed(self, found: _Found) -> Block:
        assert found.stored is not None
        factor, base = avro.EXPANSION
        block = avro.decompress(self._container.codec, found.stored, factor * found.size + base, _WHAT, found.begin)
        if found.records > len(block):
            raise CorruptFile(f"a block claims {found.records} records in {len(block)} bytes", offset=found.begin)
        return found.records, block

    def _bytes(self, position: int, length: int) -> bytes:
        self._source.seek(position)
        data: bytes = self._source.read(min(length, self._size - position))
        return bytes(data)


def _runs(wanted: Sequence[bool], sizes: Sequence[int]) -> Iterator[slice]:
    """Blocks that follow one another and are wanted, some megabytes of them, or not wanted."""
    start = total = 0
    for block, size in enumerate(sizes):
        if block > start and (wanted[block] != wanted[start] or (wanted[block] and total + size > _AT_ONCE)):
            yield slice(start, block)
            start, total = block, 0
        total += size
    if start < len(sizes):
        yield slice(start, len(sizes))


def decode(nodes: Mapping[str, Node], blocks: Sequence[Block], names: Sequence[str]) -> pa.Table:
    """These columns of the records of some blocks."""
    count = sum(records for records, _ in blocks)
    order = {name: index for index, name in enumerate(nodes)}
    if not blocks:
        arrays = [pa.nulls(0, nodes[name].arrow) for name in names]
    else:
        schema = {
            "type": "record",
            "name": "r0",
            "fields": [{"name": f"c{index}", "type": node.raw} for index, node in enumerate(nodes.values())],
        }
        columns = {f"c{order[name]}": nodes[name].arrow for name in names}
        try:
            import polars  # noqa: F401
        except ImportError:
            arrays = _by_fastavro(schema, blocks, columns)
        else:
            arrays = _by_polars(schema, blocks, list(columns))
    if any(len(array) != count for array in arrays):
        raise CorruptFile(f"blocks of {count} records hold {len(arrays[0])}")
    return pa.table([nodes[name].natural(array) for name, array in zip(names, arrays, strict=True)], names=list(names))


def _by_polars(schema: Any, blocks: Sequence[Block], columns: list[str]) -> list[pa.Array]:
    import polars

    text = json.dumps(schema).encode()
    parts = [avro.MAGIC, avro.varint(1), avro.varint(11), b"avro.schema", avro.varint(len(text)), text, b"\0", _SYNC]
    for count, block in blocks:
        parts += [avro.varint(count), avro.varint(len(block)), block, _SYNC]
    try:
        table = polars.read_avro(io.BytesIO(b"".join(parts)), columns=columns).to_arrow()
    except BaseException as error:
        if isinstance(error, Exception) or type(error).__name__ == "PanicException":
            raise CorruptFile(f"records cannot be decoded: {' '.join(str(error).split())[:200]}") from None
        raise
    return [_one(table.column(name)) for name in columns]


def _one(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)


def _by_fastavro(schema: Any, blocks: Sequence[Block], columns: Mapping[str, pa.DataType]) -> list[pa.Array]:
    from fastavro import parse_schema, schemaless_reader

    parsed = parse_schema({"type": "array", "items": schema})
    records: list[Any] = []
    for count, block in blocks:
        source = io.BytesIO(avro.varint(count) + block + b"\0")
        try:
            found: Any = schemaless_reader(source, parsed, None)
        except Exception as error:  # fastavro raises whatever the bytes lead it to
            raise CorruptFile(f"records cannot be decoded: {type(error).__name__}: {error}") from None
        if source.tell() != len(source.getvalue()):
            raise CorruptFile("a block does not end where its records end")
        records += found
    return [pa.array([record[name] for record in records], arrow) for name, arrow in columns.items()]
