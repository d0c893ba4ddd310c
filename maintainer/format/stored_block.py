"""Blocks of sorted payloads: compressed, closed by a checksum, read by handle (spec 08 §1.3; Java `BlockHandle`, `BlockTrailer`).

| bytes | field                                                                                             |
| ----- | ------------------------------------------------------------------------------------------------- |
| size  | body: the raw block, or the compressed framing below                                              |
| 1     | compression: 0 none, 1 zstd, 2 lz4, 3 lzo                                                         |
| 4     | CRC-32 (zip) of body and compression byte, little-endian                                          |

A handle is (offset of the body, size of the body). A compressed body is the raw size as a variable-length number, then for zstd one frame
without content size, for lz4 and lzo `int32 compressed size, int32 raw size` (little-endian) and one block without a frame. The compressed
form is kept only where it saves more than an eighth. We write and read none, zstd and lz4; lzo is neither written nor read.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import tee
from typing import Protocol

from maintainer.errors import CorruptFile, Unsupported
from maintainer.format import varint, zstd_frame
from maintainer.format.kept import Cache, Kept

TRAILER_SIZE = 5
NONE, ZSTD, LZ4, LZO = range(4)
COMPRESSION_IDS = {"none": NONE, "zstd": ZSTD, "lz4": LZ4, "lzo": LZO}
_NAMES = {number: name for name, number in COMPRESSION_IDS.items()}
_SIZES = struct.Struct("<ii")
_CRC = struct.Struct("<I")
_MAX_LZ4_RATIO = 255
_LEAST_ZSTD_LEVEL = -(1 << 17)
TAIL_SIZE, MOST_TAIL = 32 << 10, 512 << 10
"""How much of a payload's end is read at least and at most when the footer is: with luck, the index block with it."""
_TAIL_SHARE = 1500
"""Index blocks have about this part of their payload."""
GAP = 128 << 10
"""Bytes that are read in vain to save a read."""
READ_AHEAD = 4 << 20
"""The most that is read at once for several ranges."""
_OWN_CACHE = 16 << 20
"""What a payload may keep that shares no cache with others."""

Buffer = bytes | bytearray | memoryview
Sink = Callable[[Buffer], None]
ReadRange = Callable[[int, int], bytes]


class Compressor(Protocol):
    """A way of compressing blocks; the same for every format of blocks."""

    number: int

    def compress(self, raw: Buffer) -> bytes: ...


class _Zstd:
    number = ZSTD

    def __init__(self, level: int) -> None:
        import zstandard

        # Beyond the levels that there are, zstd itself takes the nearest one, as in Java.
        self._zstd = zstandard.ZstdCompressor(
            level=max(_LEAST_ZSTD_LEVEL, min(level, zstandard.MAX_COMPRESSION_LEVEL)), write_content_size=False
        )

    def compress(self, raw: Buffer) -> bytes:
        frame = self._zstd.compressobj()  # a streaming encoder, as Java's: without a size in the frame
        return frame.compress(raw) + frame.flush()


class _Lz4:
    number = LZ4

    def __init__(self) -> None:
        import pyarrow as pa

        self._lz4 = pa.Codec("lz4_raw")

    def compress(self, raw: Buffer) -> bytes:
        block = self._lz4.compress(raw, asbytes=True)
        return _SIZES.pack(len(block), len(raw)) + bytes(block)


def compressor(name: str, level: int = 1) -> Compressor | None:
    """The compressor of an option value; None for `none`. Only zstd has levels."""
    if name == "none":
        return None
    if name == "zstd":
        return _Zstd(level)
    if name == "lz4":
        return _Lz4()
    raise Unsupported(f"index blocks cannot be written with compression {name}; use none, zstd or lz4")


def store(pieces: Iterable[Buffer], sink: Sink, compress: Compressor | None = None) -> int:
    """Write the block that the pieces form, with its trailer, and return the size of its body."""
    number = NONE
    if compress is not None:
        raw = b"".join(pieces)
        body = varint.encode(len(raw)) + compress.compress(raw)
        number, pieces = (compress.number, (body,)) if len(body) < len(raw) - len(raw) // 8 else (NONE, (raw,))
    crc = size = 0
    for piece in pieces:
        sink(piece)
        crc = zlib.crc32(piece, crc)
        size += len(piece)
    sink(bytes((number,)) + _CRC.pack(zlib.crc32(bytes((number,)), crc)))
    return size


@dataclass(frozen=True)
class KeepingRanges:
    """A range reader that knows where things are kept that are made of the bytes."""

    read: ReadRange
    kept: Kept

    def __call__(self, offset: int, length: int) -> bytes:
        return self.read(offset, length)


class PayloadBytes:
    """Random access to a payload; every range is checked against its size, and a short read is an error. For several threads.

    Whoever asks for the last bytes gets the end of the payload read, so that what the footer points at is mostly there. What a reader makes of
    bytes and will want again it keeps in `kept`, by keys of its own: the bytes themselves are not kept.

        ranges(spans)        neighbouring ranges in one read; `blocks` is the same for blocks
        kept.get(key)        None when it is not there (any more)
        kept.put(key, value, bytes)
        kept.limited(most)   the same for a family that has a budget of its own
    """

    def __init__(self, read: ReadRange, size: int) -> None:
        self._read = read
        self.size = size
        self.kept = read.kept if isinstance(read, KeepingRanges) else Cache(_OWN_CACHE).of(None)
        self._tail_start = size - min(size, max(TAIL_SIZE, min(size // _TAIL_SHARE, MOST_TAIL)))
        self._tail: bytes | None = None

    def range(self, offset: int, length: int) -> bytes:
        """These bytes."""
        self._check(offset, length)
        tail = self._tail
        if tail is None and length and offset + length == self.size:
            tail = self._tail = self._fetch(self._tail_start, self.size - self._tail_start)
        if tail is None or offset + length <= self._tail_start:
            return self._fetch(offset, length) if length else b""
        if offset < self._tail_start:
            return self._fetch(offset, self._tail_start - offset) + tail[: offset + length - self._tail_start]
        return tail[offset - self._tail_start : offset - self._tail_start + length]

    def ranges(self, spans: Iterable[tuple[int, int]]) -> Iterator[bytes]:
        """The bytes of each (offset, length), ascending; those that are close to one another are read together."""
        waiting: list[tuple[int, int]] = []
        end = 0
        for offset, length in spans:
            self._check(offset, length)
            if waiting and not (end <= offset <= end + GAP and offset + length - waiting[0][0] <= READ_AHEAD):
                yield from self._together(waiting, end)
                waiting = []
            waiting.append((offset, length))
            end = offset + length
        if waiting:
            yield from self._together(waiting, end)

    def block(self, offset: int, size: int) -> bytes:
        """The raw content of the block with this handle."""
        return open_block(self.range(*_with_trailer(offset, size)), offset)

    def blocks(self, handles: Iterable[tuple[int, int]]) -> Iterator[bytes]:
        """The raw content of the blocks with these handles, ascending; those that are close to one another are read together."""
        offsets, handles = tee(handles)
        for (offset, _), stored in zip(offsets, self.ranges(_with_trailer(*handle) for handle in handles), strict=True):
            yield open_block(stored, offset)

    def is_at_hand(self, offset: int) -> bool:
        """Whether what lies there and behind comes without another read."""
        return self._tail is not None and offset >= self._tail_start

    def _together(self, spans: Sequence[tuple[int, int]], end: int) -> Iterator[bytes]:
        start = spans[0][0]
        data = self.range(start, end - start)
        for offset, length in spans:
            yield data[offset - start : offset - start + length]

    def _check(self, offset: int, length: int) -> None:
        if offset < 0 or length < 0 or offset + length > self.size:
            raise CorruptFile(f"{length} bytes at {offset} are outside of a payload of {self.size} bytes", offset=max(offset, 0))

    def _fetch(self, offset: int, length: int) -> bytes:
        data = self._read(offset, length)
        if len(data) != length:
            raise CorruptFile(f"{length} bytes expected, {len(data)} found: the payload is shorter than its metadata says", offset=offset)
        return data


def _with_trailer(offset: int, size: int) -> tuple[int, int]:
    if size < 0:
        raise CorruptFile(f"a block of {size} bytes", offset=max(offset, 0))
    return offset, size + TRAILER_SIZE


def open_block(stored: bytes, offset: int = 0) -> bytes:
    """The raw content of a stored block; `offset` is where it lies, for the error."""
    body_size = len(stored) - TRAILER_SIZE
    if body_size < 0:
        raise CorruptFile("a block without a trailer", offset=offset)
    if zlib.crc32(stored[: body_size + 1]) != _CRC.unpack_from(stored, body_size + 1)[0]:
        raise CorruptFile("the checksum of a block does not match", offset=offset)
    number = stored[body_size]
    if number == NONE:
        return stored[:body_size]
    if number not in _NAMES:
        raise CorruptFile(f"unknown block compression {number}", offset=offset + body_size)
    raw_size, start = varint.decode(stored[:body_size], 0)
    if number == ZSTD:
        return expand_zstd(stored[start:body_size], raw_size, offset)
    if number == LZ4:
        return expand_lz4(stored[start:body_size], raw_size, offset)
    raise Unsupported(f"unsupported block compression {_NAMES[number]}")


def expand_zstd(frame: bytes, raw_size: int, offset: int) -> bytes:
    """The content of a zstd frame; memory grows with what is really there, not with what the size claims."""
    import zstandard

    try:
        raw = zstd_frame.content(frame, raw_size + 1)
    except zstandard.ZstdError as error:
        raise CorruptFile(f"a zstd block cannot be decompressed: {error}", offset=offset) from error
    if len(raw) != raw_size:
        raise CorruptFile(f"a block is not {raw_size} bytes long after decompression", offset=offset)
    return raw


def expand_lz4(body: bytes, raw_size: int, offset: int) -> bytes:
    """The content of Java's lz4 framing."""
    if len(body) < _SIZES.size:
        raise CorruptFile("an lz4 block is truncated", offset=offset)
    compressed_size, size = _SIZES.unpack_from(body)
    if size != raw_size or compressed_size != len(body) - _SIZES.size or size > _MAX_LZ4_RATIO * compressed_size:
        raise CorruptFile("the sizes of an lz4 block contradict one another", offset=offset)
    import pyarrow as pa

    try:
        raw = pa.Codec("lz4_raw").decompress(body[_SIZES.size :], decompressed_size=size, asbytes=True)
    except (pa.ArrowInvalid, OSError) as error:
        raise CorruptFile(f"an lz4 block cannot be decompressed: {error}", offset=offset) from error
    if len(raw) != size:
        raise CorruptFile(f"an lz4 block is not {size} bytes long after decompression", offset=offset)
    return bytes(raw)
