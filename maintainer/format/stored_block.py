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
from collections.abc import Callable, Sequence
from typing import Protocol

from maintainer.errors import CorruptFile, Unsupported
from maintainer.format import varint

TRAILER_SIZE = 5
NONE, ZSTD, LZ4, LZO = range(4)
COMPRESSION_IDS = {"none": NONE, "zstd": ZSTD, "lz4": LZ4, "lzo": LZO}
_NAMES = {number: name for name, number in COMPRESSION_IDS.items()}
_SIZES = struct.Struct("<ii")
_CRC = struct.Struct("<I")
_MAX_LZ4_RATIO = 255
_LEAST_ZSTD_LEVEL = -(1 << 17)
_READ_STEP = 1 << 20
TAIL_SIZE = 32 << 10
"""How much of a payload's end is read at first: the footer, and with luck the index block with it."""
READ_AHEAD = 512 << 10
"""How much a scan reads at once."""

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


def store(pieces: Sequence[Buffer], sink: Sink, compress: Compressor | None = None) -> int:
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


class PayloadBytes:
    """Random access to a payload; every range is checked against its size, and a short read is an error.

    The end of the payload is read once, as the footer and what it points at mostly lie there. A scan reads ahead.
    """

    def __init__(self, read: ReadRange, size: int) -> None:
        self._read = read
        self.size = size
        self._tail_start = max(0, size - TAIL_SIZE)
        self._tail: bytes | None = None
        self._window_start = 0
        self._window = b""

    def range(self, offset: int, length: int, *, ahead: bool = False) -> bytes:
        """These bytes; `ahead` says that those behind them will be asked for next."""
        if offset < 0 or length < 0 or offset + length > self.size:
            raise CorruptFile(f"{length} bytes at {offset} are outside of a payload of {self.size} bytes", offset=max(offset, 0))
        if not length:
            return b""
        if offset >= self._tail_start:
            if self._tail is None:
                self._tail = self._fetch(self._tail_start, self.size - self._tail_start)
            return self._tail[offset - self._tail_start : offset - self._tail_start + length]
        start = offset - self._window_start
        if start < 0 or start + length > len(self._window):
            if not ahead:
                return self._fetch(offset, length)
            self._window = self._fetch(offset, min(max(length, READ_AHEAD), self.size - offset))
            self._window_start, start = offset, 0
        return self._window[start : start + length]

    def block(self, offset: int, size: int, *, ahead: bool = False) -> bytes:
        """The raw content of the block with this handle."""
        if size < 0:
            raise CorruptFile(f"a block of {size} bytes", offset=max(offset, 0))
        return open_block(self.range(offset, size + TRAILER_SIZE, ahead=ahead), offset)

    def is_at_hand(self, offset: int) -> bool:
        """Whether what lies there comes without another read."""
        return offset >= self._tail_start

    def _fetch(self, offset: int, length: int) -> bytes:
        data = self._read(offset, length)
        if len(data) != length:
            raise CorruptFile(f"{length} bytes expected, {len(data)} found: the payload is shorter than its metadata says", offset=offset)
        return data


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
    """The content of a zstd frame, in steps, so that memory grows with what is really there, not with what the size claims."""
    import zstandard

    parts = []
    left = raw_size
    try:
        with zstandard.ZstdDecompressor().stream_reader(frame, read_across_frames=False) as reader:
            while left and (part := reader.read(min(left, _READ_STEP))):
                parts.append(part)
                left -= len(part)
            if left or reader.read(1):
                raise CorruptFile(f"a block is not {raw_size} bytes long after decompression", offset=offset)
    except zstandard.ZstdError as error:
        raise CorruptFile(f"a zstd block cannot be decompressed: {error}", offset=offset) from error
    return b"".join(parts)


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
