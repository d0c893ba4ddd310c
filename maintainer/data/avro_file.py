"""Reading Avro data files (spec 02 §5; Java `AvroBulkFormat`).

A file is one row group: an Avro container has no directory of its blocks. It is read from its begin, some megabytes at a time, and the blocks
of some megabytes become columns at once, by polars where it is installed (millions of rows a second), else by fastavro (a tenth of that).

The container is parsed here, and blocks are decompressed here, with limits; decoders see plain blocks under a raw schema (`avro_schema`).
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

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

Block = tuple[int, bytes]
"""Record count and decompressed records."""


class AvroDataFile(DataFile):
    names: Sequence[str] = ()
    is_columnar = False

    def _open(self) -> None:
        self._size: int = self._source.size()
        length = _HEADER
        while True:
            head = self._bytes(0, length)
            try:
                self._container = avro.read_header(head, _WHAT)
                break
            except CorruptFile:
                if len(head) < length or length >= _LARGEST_HEADER:
                    raise
                length *= 4
        self._nodes = avro_schema.parse(self._container.schema)
        self.names = list(self._nodes)
        self.row_groups = (RowGroup(0, self.row_count),)

    def group_bytes(self, group: int) -> int:
        return self._size * 3

    def _stored_bytes(self, name: str) -> int:
        return self._size // len(self.names)

    def _read(self, groups: list[int], plans: Sequence[Column]) -> pa.Table:
        names = [plan.name for plan in plans if plan.name is not None]
        tables = [table for _ in groups for table in self._tables(names)]
        return pa.concat_tables(tables or [decode(self._nodes, [], names)])

    def _raw_batches(self, plans: Sequence[Column], batch_rows: int, piece: list[int], rows: int) -> Iterator[pa.RecordBatch]:
        for table in self._tables([plan.name for plan in plans if plan.name is not None]):
            yield from table.combine_chunks().to_batches(batch_rows)

    def _tables(self, names: Sequence[str]) -> Iterator[pa.Table]:
        blocks: list[Block] = []
        size = 0
        for block in self._blocks():
            blocks.append(block)
            size += len(block[1])
            if size >= _AT_ONCE:
                yield decode(self._nodes, blocks, names)
                blocks, size = [], 0
        if blocks:
            yield decode(self._nodes, blocks, names)

    def _blocks(self) -> Iterator[Block]:
        position = self._container.blocks
        window, start, total = b"", position, 0
        while position < self._size:
            if start + len(window) - position < 32:
                window, start = self._bytes(position, _CHUNK), position
            count, at = avro.read_varint(window, position - start)
            size, at = avro.read_varint(window, at)
            begin, end = start + at, start + at + size + avro.SYNC_SIZE
            total += count
            if count < 0 or size < 0 or end > self._size or total > self.row_count:
                raise CorruptFile(f"a block claims {count} records in {size} bytes", offset=position)
            if end > start + len(window):
                window, start = self._bytes(begin, max(_CHUNK, end - begin)), begin
            stored = window[begin - start : end - start]
            if stored[size:] != self._container.sync:
                raise CorruptFile("a block does not end with the sync marker", offset=position)
            factor, base = avro.EXPANSION
            block = avro.decompress(self._container.codec, stored[:size], factor * size + base, _WHAT, position)
            if count > len(block):
                raise CorruptFile(f"a block claims {count} records in {len(block)} bytes", offset=position)
            if count:
                yield count, block
            position = end

    def _bytes(self, position: int, length: int) -> bytes:
        self._source.seek(position)
        data: bytes = self._source.read(min(length, self._size - position))
        return bytes(data)


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
