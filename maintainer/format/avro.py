"""Avro object containers as Paimon writes and reads them (spec 01 §7; Avro 1.11 specification, Java `AvroBulkFormat`).

| bytes    | content                                                                       |
| -------- | ----------------------------------------------------------------------------- |
| 4        | `Obj` and 1                                                                   |
| map      | metadata: `avro.schema` (JSON), `avro.codec`                                  |
| 16       | sync marker                                                                   |
| block    | varint record count, varint size, that many compressed bytes, the sync marker |
| …        | more blocks                                                                   |

The container is ours, because a container of unknown origin needs limits and checks that fastavro does not make; records go through fastavro,
a whole block at once: the bytes of a block behind its count, with a closing zero, are the encoding of an Avro array.

Fields are found by name in the schema of the file (`maintainer.format.avro_schema`).
"""

from __future__ import annotations

import hashlib
import io
import json
import zlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, cast

from maintainer.errors import CorruptFile, Unsupported, UsageError
from maintainer.format import zstd_frame
from maintainer.format.avro_schema import Schema, reader_schema

MAGIC = b"Obj\x01"
SYNC_SIZE = 16
BLOCK_RECORDS = 1000
"""Records of a block that we write; also how often a writer may roll (spec 01 §9.4)."""
EXPANSION = 200, 64 << 20
"""A file of n bytes may decompress to 200 n + 64 MiB."""


class Container(NamedTuple):
    """A parsed header: what is needed to read blocks."""

    schema: str
    codec: str
    sync: bytes
    blocks: int
    """Where the first block begins."""


def read_records(data: bytes, expected: Schema, what: str) -> Iterator[list[dict[str, Any]]]:
    """The records of each block; `what` names the kind of file in errors."""
    from fastavro import schemaless_reader

    container = read_header(data, what)
    schema, complete = reader_schema(container.schema, json.dumps(expected), what)
    for offset, count, block in _blocks(data, container, what):
        source = io.BytesIO(varint(count) + block + b"\0")
        try:
            records = cast(list[dict[str, Any]], schemaless_reader(source, schema, None))
        except Exception as error:  # fastavro raises whatever the bytes lead it to
            raise CorruptFile(f"a block of the {what} cannot be decoded: {type(error).__name__}: {error}", offset=offset) from None
        if len(records) != count or source.tell() != len(source.getvalue()):
            raise CorruptFile(f"a block of the {what} does not end where its {count} records end", offset=offset)
        if complete is not None and not all(map(complete, records)):
            raise CorruptFile(f"a record of the {what} has a null where a value is required", offset=offset)
        yield records


def write_records(schema: Schema, records: Sequence[dict[str, Any]], compression: str, level: int) -> bytes:
    """A container with the schema as given; its bytes depend on nothing else (the sync marker is a hash of the records)."""
    from fastavro import parse_schema, schemaless_writer

    codec = codec_name(compression)
    parsed = parse_schema({"type": "array", "items": schema})
    blocks: list[tuple[int, bytes]] = []
    for start in range(0, len(records), BLOCK_RECORDS):
        chunk = records[start : start + BLOCK_RECORDS]
        out = io.BytesIO()
        schemaless_writer(out, parsed, chunk)
        count = varint(len(chunk))
        blocks.append((len(chunk), compress(codec, level, out.getvalue()[len(count) : -1])))
    digest = hashlib.md5(usedforsecurity=False)
    for _, block in blocks:
        digest.update(block)
    sync = digest.digest()
    parts = [header(json.dumps(schema, separators=(",", ":")), codec, sync)]
    for records_of_block, block in blocks:
        parts += [varint(records_of_block), varint(len(block)), block, sync]
    return b"".join(parts)


def header(schema: str, codec: str, sync: bytes) -> bytes:
    metadata = [(b"avro.codec", codec.encode()), (b"avro.schema", schema.encode())]
    parts = [MAGIC, varint(len(metadata))]
    for key, value in metadata:
        parts += [varint(len(key)), key, varint(len(value)), value]
    return b"".join([*parts, b"\0", sync])


def read_header(data: bytes, what: str) -> Container:
    if data[:4] != MAGIC:
        raise CorruptFile(f"the {what} is not an Avro file", offset=0)
    metadata: dict[bytes, bytes] = {}
    position = 4
    while True:
        count, position = read_varint(data, position)
        if count == 0:
            break
        if count < 0:
            count, (_, position) = -count, read_varint(data, position)
        for _ in range(count):
            key, position = _read_bytes(data, position)
            metadata[key], position = _read_bytes(data, position)
    sync = data[position : position + SYNC_SIZE]
    if len(sync) < SYNC_SIZE:
        raise CorruptFile(f"the header of the {what} is cut off", offset=position)
    try:
        schema, codec = metadata[b"avro.schema"].decode(), metadata.get(b"avro.codec", b"null").decode()
    except (KeyError, UnicodeDecodeError):
        raise CorruptFile(f"the header of the {what} has no schema", offset=4) from None
    return Container(schema, codec, sync, position + SYNC_SIZE)


def _blocks(data: bytes, container: Container, what: str) -> Iterator[tuple[int, int, bytes]]:
    """(offset, record count, decompressed bytes) of each block that has records."""
    position = container.blocks
    factor, base = EXPANSION
    allowed = factor * len(data) + base
    while position < len(data):
        start = position
        count, position = read_varint(data, position)
        size, position = read_varint(data, position)
        if count < 0 or size < 0 or position + size + SYNC_SIZE > len(data):
            raise CorruptFile(f"a block of the {what} claims {count} records in {size} bytes", offset=start)
        block = decompress(container.codec, data[position : position + size], allowed, what, start)
        position += size + SYNC_SIZE
        if data[position - SYNC_SIZE : position] != container.sync:
            raise CorruptFile(f"a block of the {what} does not end with the sync marker", offset=start)
        allowed -= len(block)
        if count > len(block):
            raise CorruptFile(f"a block of the {what} claims {count} records in {len(block)} bytes", offset=start)
        if count:
            yield start, count, block


# ---------------------------------------------------------------------------------------------------------------- compression


def codec_name(compression: str) -> str:
    """The Avro name of a value of the option `manifest.compression` (Java `AvroFileFormat.createCodecFactory`)."""
    name = {"zstd": "zstandard", "none": "null"}.get(compression.lower(), compression.lower())
    if name not in ("null", "deflate", "snappy", "bzip2", "xz", "zstandard"):
        raise UsageError(f"manifests cannot be compressed with {compression!r}")
    return name


def compress(codec: str, level: int, block: Any) -> bytes:
    match codec:
        case "null":
            return bytes(block)
        case "zstandard":
            import zstandard

            return zstandard.ZstdCompressor(level=level).compress(block)
        case "deflate":
            deflater = zlib.compressobj(6, zlib.DEFLATED, -15)
            return deflater.compress(block) + deflater.flush()
        case "bzip2":
            import bz2

            return bz2.compress(block)
        case "xz":
            import lzma

            return lzma.compress(block)
        case _:
            import pyarrow

            compressed: bytes = pyarrow.Codec("snappy").compress(block, asbytes=True)
            return compressed + zlib.crc32(block).to_bytes(4, "big")


def decompress(codec: str, block: bytes, allowed: int, what: str, offset: int) -> bytes:
    """The content of a block, at most `allowed` bytes; zstd frames of Java do not tell their size."""
    if codec == "null":
        return block
    try:
        decompress = _DECOMPRESS[codec]
    except KeyError:
        raise Unsupported(f"the {what} is compressed with {codec!r}") from None
    try:
        content = decompress(block, allowed + 1)
    except Exception as error:  # each library has its own errors
        raise CorruptFile(f"a block of the {what} cannot be decompressed: {error}", offset=offset) from None
    if len(content) > allowed:
        raise CorruptFile(f"the {what} decompresses to too many bytes", offset=offset)
    return content


def _deflate(block: bytes, most: int) -> bytes:
    inflater = zlib.decompressobj(-15)
    content = inflater.decompress(block, most)
    if len(content) < most and not inflater.eof:
        raise ValueError("the data is cut off")
    return content


def _bzip2(block: bytes, most: int) -> bytes:
    import bz2

    inflater = bz2.BZ2Decompressor()
    content = inflater.decompress(block, most)
    if len(content) < most and not inflater.eof:
        raise ValueError("the data is cut off")
    return content


def _xz(block: bytes, most: int) -> bytes:
    import lzma

    inflater = lzma.LZMADecompressor(memlimit=128 << 20)
    content = inflater.decompress(block, most)
    if len(content) < most and not inflater.eof:
        raise ValueError("the data is cut off")
    return content


def _snappy(block: bytes, most: int) -> bytes:
    import pyarrow

    size = shift = 0
    for byte in block[:5]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    if size > min(most, 64 * len(block)):
        raise ValueError(f"{size} bytes claimed")
    content: bytes = pyarrow.Codec("snappy").decompress(block[:-4], size, asbytes=True)
    if zlib.crc32(content) != int.from_bytes(block[-4:], "big"):
        raise ValueError("wrong checksum")
    return content


_DECOMPRESS = {"zstandard": zstd_frame.content, "deflate": _deflate, "bzip2": _bzip2, "xz": _xz, "snappy": _snappy}


# -------------------------------------------------------------------------------------------------------------------- numbers


def varint(value: int) -> bytes:
    """A zigzag varint; only non-negative numbers occur here."""
    rest = value << 1
    out = bytearray()
    while rest >= 0x80:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if position >= len(data) or shift > 63:
            raise CorruptFile("a number of an Avro file is cut off", offset=position)
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position
        shift += 7


def _read_bytes(data: bytes, position: int) -> tuple[bytes, int]:
    size, position = read_varint(data, position)
    if size < 0 or position + size > len(data):
        raise CorruptFile("a value of an Avro header is cut off", offset=position)
    return data[position : position + size], position + size
