"""The container of an ORC file (spec 02 §4): postscript, footer, stripes and their streams, decompressed with limits.

Arrow's reader ends the process when a zstd chunk is damaged. So nothing that is compressed is handed to it: what is wanted of a stripe becomes
a file of its own (`assemble`), not compressed, with the wanted columns alone.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

import pyarrow as pa

from maintainer.errors import CorruptFile, Unsupported
from maintainer.format import orc_lengths, varint, zstd_frame
from maintainer.format.protobuf import Message, encode

MAGIC = b"ORC"
LONG, TIMESTAMP, LIST, MAP, STRUCT, UNION, DECIMAL, TIMESTAMP_INSTANT = 4, 9, 10, 11, 12, 13, 14, 18
PRESENT, DATA, LENGTH, DICTIONARY_DATA, _DICTIONARY_COUNT, SECONDARY = range(6)
_COLUMN_STREAMS = (PRESENT, DATA, LENGTH, DICTIONARY_DATA, SECONDARY)
CODECS = ("none", "zlib", "snappy", "lzo", "lz4", "zstd")
_LARGEST_BLOCK = 4 << 20
_LARGEST_FOOTER = 64 << 20
_MOST_VALUES_PER_BYTE = 1040
"""A byte of run lengths stands for no more values than that."""
_DEEPEST = 64
_RIGHT_BOUNDS = 1
"""Of the writer's version: before HIVE-8732, bounds of texts are not those of their bytes."""
_LZ4_FRAME = bytes.fromhex("04224d18607073")
"""The begin of a frame of independent blocks of at most 4 MB."""
_UNCOMPRESSED_BLOCK = 1 << 31

Streams = Mapping[int, bytes]
"""Of a column, by kind, decompressed."""
Fetch = Callable[[int, int], bytes]
"""Offset and length -> bytes of the file."""


@dataclass(frozen=True, slots=True)
class OrcType:
    kind: int
    children: tuple[int, ...]
    names: tuple[str, ...]
    parameters: tuple[tuple[int, int], ...]
    """Length, precision and scale, as numbers of their fields."""


@dataclass(frozen=True, slots=True)
class Stripe:
    offset: int
    index_length: int
    data_length: int
    footer_length: int
    rows: int

    @property
    def footer_offset(self) -> int:
        return self.offset + self.index_length + self.data_length


@dataclass(frozen=True, slots=True)
class Stream:
    kind: int
    column: int
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class StripeFooter:
    streams: Mapping[int, tuple[Stream, ...]]
    encodings: tuple[tuple[int, int], ...]
    """By column, kind and size of the dictionary."""
    zone: str


@dataclass(frozen=True, slots=True)
class Tail:
    """What the end of a file says."""

    codec: str
    block_size: int
    rows: int
    types: tuple[OrcType, ...]
    stripes: tuple[Stripe, ...]
    writer: tuple[tuple[int, int], ...]
    writer_version: int = 0
    metadata: tuple[int, int] = (0, 0)
    """Where the statistics of stripes begin, and their bytes."""

    @property
    def names(self) -> tuple[str, ...]:
        return self.types[0].names


def read_tail(fetch: Fetch, size: int) -> Tail:
    """Reads and checks the end of a file of so many bytes."""
    if size < len(MAGIC) + 1:
        raise CorruptFile("it is too short for an ORC file")
    end = fetch(max(0, size - 16_384), min(size, 16_384))
    length = end[-1]
    if length + 1 > len(end):
        raise CorruptFile("the postscript is longer than the file")
    post = Message(end[-1 - length : -1])
    if post.text(8000) != "ORC":
        raise CorruptFile("the postscript does not say that it is an ORC file")
    codec, block_size, footer_length = post.number(2), post.number(3, 256 << 10), post.number(1)
    if codec >= len(CODECS) or CODECS[codec] == "lzo":
        raise Unsupported(f"ORC files compressed by codec {codec} are not read")
    if codec and not 0 < block_size <= _LARGEST_BLOCK:
        raise CorruptFile(f"compression blocks of {block_size} bytes")
    start = size - 1 - length - footer_length
    metadata_length = post.number(5)
    if start < len(MAGIC) or footer_length > _LARGEST_FOOTER:
        raise CorruptFile(f"a footer of {footer_length} bytes")
    if start - metadata_length < len(MAGIC) or metadata_length > _LARGEST_FOOTER:
        raise CorruptFile(f"statistics of {metadata_length} bytes")
    have = size - len(end)
    raw = end[start - have : start - have + footer_length] if start >= have else fetch(start, footer_length)
    footer = Message(decompress(raw, CODECS[codec], block_size, _LARGEST_FOOTER))
    if 10 in footer:
        raise Unsupported("encrypted ORC files are not read")
    stripes = tuple(_stripe(message, start) for message in footer.messages(3))
    tail = Tail(
        codec=CODECS[codec],
        block_size=block_size,
        rows=footer.number(6),
        types=tuple(_type(message) for message in footer.messages(4)),
        stripes=stripes,
        writer=tuple((number, footer.number(number)) for number in (9, 11) if number in footer),
        writer_version=post.number(6),
        metadata=(start - metadata_length, metadata_length),
    )
    _check_tree(tail.types)
    return tail


def _stripe(message: Message, end: int) -> Stripe:
    stripe = Stripe(*(message.number(number) for number in range(1, 6)))
    if stripe.offset + stripe.index_length + stripe.data_length + stripe.footer_length > end or stripe.footer_length > _LARGEST_FOOTER:
        raise CorruptFile("a stripe goes beyond the footer")
    return stripe


def _type(message: Message) -> OrcType:
    parameters = tuple((number, message.number(number)) for number in (4, 5, 6) if number in message)
    return OrcType(message.number(1), tuple(message.numbers(2)), tuple(message.texts(3)), parameters)


def _check_tree(types: Sequence[OrcType]) -> None:
    """Types are numbered as they are met, parents before children: then there is no circle."""
    if not types or types[0].kind != STRUCT:
        raise CorruptFile("its root is no struct")
    expected = 0

    def visit(number: int, depth: int) -> None:
        nonlocal expected
        if number != expected or number >= len(types) or depth > _DEEPEST:
            raise CorruptFile("its types are no tree")
        expected += 1
        found = types[number]
        wanted = {LIST: 1, MAP: 2}.get(found.kind, 0)
        if found.kind == UNION:
            raise Unsupported("unions of ORC files are not read")
        if found.kind == STRUCT and len(found.names) == len(found.children):
            wanted = len(found.children)
        if len(found.children) != wanted or found.kind > TIMESTAMP_INSTANT:
            raise CorruptFile(f"type {number} of kind {found.kind} has {len(found.children)} parts")
        for child in found.children:
            visit(child, depth + 1)

    visit(0, 0)
    if expected != len(types):
        raise CorruptFile("its types are no tree")


def read_stripe_footer(fetch: Fetch, tail: Tail, stripe: Stripe) -> StripeFooter:
    position = stripe.footer_offset
    data = decompress(fetch(position, stripe.footer_length), tail.codec, tail.block_size, _LARGEST_FOOTER)
    message = Message(data)
    if 4 in message:
        raise Unsupported("encrypted ORC files are not read")
    streams: dict[int, list[Stream]] = {}
    offset = stripe.offset
    for found in message.messages(1):
        stream = Stream(found.number(1), found.number(2), offset, found.number(3))
        offset += stream.length
        if offset > position:
            raise CorruptFile("streams go beyond their stripe")
        if stream.kind in _COLUMN_STREAMS:
            streams.setdefault(stream.column, []).append(stream)
    if any(len({stream.kind for stream in some}) != len(some) for some in streams.values()):
        raise CorruptFile("a column has two streams of one kind")
    encodings = tuple((found.number(1), found.number(2)) for found in message.messages(2))
    if len(encodings) != len(tail.types):
        raise CorruptFile(f"{len(encodings)} encodings of {len(tail.types)} columns")
    return StripeFooter({column: tuple(some) for column, some in streams.items()}, encodings, message.text(3))


def read_statistics(fetch: Fetch, tail: Tail) -> tuple[tuple[Message, ...], ...]:
    """Of each stripe, the statistics of all columns; nothing if the file has none, or if a writer made them whose bounds of texts are wrong."""
    if not tail.metadata[1] or tail.writer_version < _RIGHT_BOUNDS:
        return ()
    data = decompress(fetch(*tail.metadata), tail.codec, tail.block_size, _LARGEST_FOOTER)
    stripes = tuple(tuple(found.messages(1)) for found in Message(data).messages(1))
    if len(stripes) != len(tail.stripes) or any(len(columns) != len(tail.types) for columns in stripes):
        raise CorruptFile(f"statistics of {len(stripes)} stripes, or of some of the columns")
    return stripes


def subtree(types: Sequence[OrcType], number: int) -> list[int]:
    """A type and everything below it, in order."""
    return [number, *(below for child in types[number].children for below in subtree(types, child))]


def has_timestamps(types: Sequence[OrcType], number: int) -> bool:
    return any(types[below].kind in (TIMESTAMP, TIMESTAMP_INSTANT) for below in subtree(types, number))


class Timestamps(Enum):
    """What is wanted of the timestamps of a column."""

    WHOLE = "whole"
    SECONDS = "seconds"
    """As BIGINT, as they are in the file."""
    FRACTIONS = "fractions"
    """Timestamps of the second from which ORC counts, each with its own nanoseconds."""


def assemble(fetch: Fetch, tail: Tail, stripe: Stripe, footer: StripeFooter, columns: Sequence[tuple[int, Timestamps]]) -> bytes:
    """A file of one stripe, not compressed, of these columns, named by their place in `columns`; a column is a number of its type."""
    types: list[OrcType] = [OrcType(STRUCT, (), tuple(str(index) for index in range(len(columns))), ())]
    encodings: list[tuple[int, int]] = [(0, 0)]
    streams: list[tuple[int, int, bytes]] = []
    contents: dict[int, dict[int, bytes]] = {}
    fetched: dict[Stream, bytes] = {}
    starts = []
    for column, wanted in columns:
        starts.append(len(types))
        shift = len(types) - column
        for number in subtree(tail.types, column):
            old = tail.types[number]
            is_timestamp = old.kind in (TIMESTAMP, TIMESTAMP_INSTANT)
            is_seconds = is_timestamp and wanted is Timestamps.SECONDS
            new = OrcType(LONG, (), (), ()) if is_seconds else replace(old, children=tuple(child + shift for child in old.children))
            own: dict[int, bytes] = {}
            for stream in footer.streams.get(number, ()):
                if is_seconds and stream.kind == SECONDARY:
                    continue
                if stream not in fetched:
                    most = stream.length if tail.codec == "none" else _most(stream.length, tail.block_size)
                    fetched[stream] = decompress(fetch(stream.offset, stream.length), tail.codec, tail.block_size, most)
                own[stream.kind] = fetched[stream]
                is_zero = is_timestamp and wanted is Timestamps.FRACTIONS and stream.kind == DATA
                content = _zeros(len(fetched[stream]), footer.encodings[number][0]) if is_zero else fetched[stream]
                streams.append((stream.kind, number + shift, content))
            kind, size = footer.encodings[number]
            if kind > 3 or size > _MOST_VALUES_PER_BYTE * len(own.get(LENGTH, b"")):
                raise CorruptFile(f"column {number} has encoding {kind} with {size} entries")
            contents[number] = own
            types.append(new)
            encodings.append((kind, size))
        for number in subtree(tail.types, column):
            _check_lengths(tail.types, tail.types[number], footer.encodings[number][0], contents[number], contents)
    types[0] = replace(types[0], children=tuple(starts))
    data = sum(len(data) for _, _, data in streams)
    if stripe.rows > _MOST_VALUES_PER_BYTE * data:
        raise CorruptFile(f"a stripe claims {stripe.rows} rows in {data} bytes")
    stripe_footer = encode(
        *((1, encode((1, kind), (2, column), (3, len(content)))) for kind, column, content in streams),
        *((2, encode((1, kind), *(((2, size),) if kind & 1 else ()))) for kind, size in encodings),
        (3, footer.zone or "GMT"),
    )
    end = encode(
        (1, len(MAGIC)),
        (2, len(MAGIC) + data + len(stripe_footer)),
        (3, encode((1, len(MAGIC)), (2, 0), (3, data), (4, len(stripe_footer)), (5, stripe.rows))),
        *((4, encode_type(found)) for found in types),
        (6, stripe.rows),
        (8, 0),
        *tail.writer,
    )
    post = encode((1, len(end)), (2, 0), (3, 256 << 10), (4, b"\0\x0c"), (5, 0), (6, tail.writer_version), (8000, "ORC"))
    return b"".join([MAGIC, *(content for _, _, content in streams), stripe_footer, end, post, bytes([len(post)])])


def _zeros(size: int, encoding: int) -> bytes:
    """Run lengths of nothing but 0, no fewer than any stream of this size has: its longest runs are of 512, or 130, and no shorter in bytes."""
    run = b"\xc1\xff\0\0" if encoding >= 2 else b"\x7f\0\0"
    return run * (size // len(run) + 1)


def _check_lengths(types: Sequence[OrcType], found: OrcType, encoding: int, own: Mapping[int, bytes], contents: Mapping[int, Streams]) -> None:
    """Lengths add up to no more than there is, and scales are those of decimals."""
    version = 2 if encoding >= 2 else 1
    if found.kind == DECIMAL:
        orc_lengths.check_scales(own.get(SECONDARY, b""), version)
    if LENGTH not in own:
        return
    total = orc_lengths.total(own[LENGTH], version)
    if found.children:
        have = min(_most_values(types, child, contents) for child in found.children)
        if total > have:
            raise CorruptFile(f"lengths say that there are {total} elements, there can be {have}")
    else:
        have = len(own.get(DICTIONARY_DATA if encoding & 1 else DATA, b""))
        if total > have:
            raise CorruptFile(f"lengths say that there are {total} bytes, there are {have}")


def _most_values(types: Sequence[OrcType], number: int, contents: Mapping[int, Streams]) -> int:
    """How many values a column can have, by the bytes that it has."""
    own = contents[number]
    if PRESENT in own:
        return _MOST_VALUES_PER_BYTE * len(own[PRESENT])
    if types[number].kind == STRUCT:
        return max((_most_values(types, child, contents) for child in types[number].children), default=0)
    return _MOST_VALUES_PER_BYTE * max((len(own.get(kind, b"")) for kind in (DATA, LENGTH)), default=0)


def encode_type(found: OrcType) -> bytes:
    children = b"".join(map(varint.encode, found.children))
    return encode((1, found.kind), *(((2, children),) if children else ()), *((3, name) for name in found.names), *found.parameters)


def _most(length: int, block_size: int) -> int:
    """What so many compressed bytes can become: each chunk has at least its header and a byte."""
    return (length // 4 + 1) * block_size


def decompress(data: bytes, codec: str, block_size: int, most: int) -> bytes:
    """A stream. Its chunks have three bytes that say their length, and whether they are compressed."""
    if codec == "none":
        return data
    if codec == "lz4":
        return _lz4(_chunks(data), block_size, most)
    parts, total = [], 0
    unpack = _UNPACK[codec]
    for chunk, original in _chunks(data):
        part = chunk if original else unpack(chunk, block_size)
        total += len(part)
        if len(part) > block_size or total > most:
            raise CorruptFile(f"a chunk of {len(part)} bytes, where {block_size} are the most")
        parts.append(part)
    return b"".join(parts)


def _chunks(data: bytes) -> Iterator[tuple[bytes, bool]]:
    position = 0
    while position < len(data):
        if position + 3 > len(data):
            raise CorruptFile("a stream ends within the head of a chunk")
        head = int.from_bytes(data[position : position + 3], "little")
        position += 3
        length = head >> 1
        if length > len(data) - position:
            raise CorruptFile("a chunk goes beyond its stream")
        yield data[position : position + length], bool(head & 1)
        position += length


def _zstd(chunk: bytes, most: int) -> bytes:
    import zstandard

    try:
        size = zstandard.frame_content_size(chunk)
        if size > most:
            raise CorruptFile(f"a chunk of {size} bytes, where {most} are the most")
        return zstd_frame.content(chunk, most + 1)
    except zstandard.ZstdError as error:
        raise CorruptFile(f"a chunk cannot be decompressed: {error}") from error


def _zlib(chunk: bytes, most: int) -> bytes:
    unpacker = zlib.decompressobj(-15)
    try:
        data = unpacker.decompress(chunk, most + 1)
    except zlib.error as error:
        raise CorruptFile(f"a chunk cannot be decompressed: {error}") from error
    if len(data) > most:
        raise CorruptFile(f"a chunk has more than {most} bytes")
    if not unpacker.eof:
        raise CorruptFile("a chunk cannot be decompressed: it is cut off")
    return data


def _snappy(chunk: bytes, most: int) -> bytes:
    size = shift = 0
    for byte in chunk[:5]:
        size |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            break
    if size > most:
        raise CorruptFile(f"a chunk of {size} bytes, where {most} are the most")
    try:
        return bytes(pa.Codec("snappy").decompress(chunk, decompressed_size=size, asbytes=True)) if size else b""
    except (pa.ArrowException, OSError) as error:
        raise CorruptFile(f"a chunk cannot be decompressed: {error}") from error


def _lz4(chunks: Iterator[tuple[bytes, bool]], block_size: int, most: int) -> bytes:
    """Chunks do not say how many bytes they become; as blocks of a frame they need not."""
    parts, count = [_LZ4_FRAME], 0
    for chunk, original in chunks:
        if chunk:
            parts += [(len(chunk) | (_UNCOMPRESSED_BLOCK if original else 0)).to_bytes(4, "little"), chunk]
            count += 1
    parts.append(bytes(4))
    limit = min(most, count * block_size)
    try:
        stream = pa.CompressedInputStream(pa.BufferReader(b"".join(parts)), "lz4")
        data = bytes(stream.read(limit + 1))
    except (pa.ArrowException, OSError) as error:
        raise CorruptFile(f"a stream cannot be decompressed: {error}") from error
    if len(data) > limit:
        raise CorruptFile(f"a stream has more than {limit} bytes")
    return data


_UNPACK: Mapping[str, Callable[[bytes, int], bytes]] = {"zlib": _zlib, "snappy": _snappy, "zstd": _zstd}
