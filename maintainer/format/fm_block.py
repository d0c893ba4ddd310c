"""Blocks of an FM payload: compressed one by one, found and checked by a block info (spec 09 §5; Java `FMIndexFile`).

| bytes | block info, big-endian                                                     |
| ----- | -------------------------------------------------------------------------- |
| 8     | offset of the block in the payload                                         |
| 4     | stored size                                                                |
| 4     | raw size                                                                   |
| 4     | codec: 0 none, 1 zstd, 2 lz4, 3 lzo                                        |
| 4     | checksum: CRC-32 (zip) of the stored bytes and one byte that is the codec  |

A compressed block is one zstd frame (Java's has no content size), or for lz4 and lzo `int32 stored size, int32 raw size` (little-endian) and
one block without a frame. It is kept only where it saves more than an eighth, so that a payload has blocks of several codecs. Nothing here
runs lzo.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass

from maintainer.errors import CorruptFile, Unsupported
from maintainer.format.stored_block import COMPRESSION_IDS, LZ4, LZO, NONE, ZSTD, Buffer, Compressor, expand_lz4, expand_zstd

MAX_BLOCK = 64 << 10
"""Raw size of a block of a vector, at most."""
MAX_DIRECTORY = 16 << 20
"""Raw size of a directory, at most."""

INFO = struct.Struct(">qiiiI")


@dataclass(frozen=True)
class BlockInfo:
    """Where a block lies and how it is stored."""

    offset: int
    stored_size: int
    size: int
    codec: int
    checksum: int

    def encode(self) -> bytes:
        return INFO.pack(self.offset, self.stored_size, self.size, self.codec, self.checksum)

    @classmethod
    def decode(cls, data: Buffer, at: int, *, limit: int, end: int) -> BlockInfo:
        """The info at this position of `data`, of a block of at most `limit` raw bytes that ends at or before `end`."""
        info = cls(*INFO.unpack_from(data, at))
        if info.offset < 0 or not 0 < info.stored_size <= info.size <= limit or info.offset + info.stored_size > end:
            raise CorruptFile(f"impossible block: {info.stored_size} bytes for {info.size} at {info.offset}, before {end}")
        if info.codec not in COMPRESSION_IDS.values() or (info.codec == NONE and info.stored_size != info.size):
            raise CorruptFile(f"impossible block: codec {info.codec}, {info.stored_size} bytes for {info.size}", offset=info.offset)
        return info

    @property
    def end(self) -> int:
        """The offset behind the block."""
        return self.offset + self.stored_size


def checksum(data: Buffer, codec: int = NONE) -> int:
    """The checksum of stored bytes; footers and metadata count as stored without a codec."""
    return zlib.crc32(bytes((codec,)), zlib.crc32(data))


def store(raw: Buffer, offset: int, compress: Compressor | None = None) -> tuple[BlockInfo, Buffer]:
    """The block at this offset of the payload, and its stored bytes: `raw` itself where compression does not save enough."""
    stored, codec = raw, NONE
    if compress is not None:
        compressed = compress.compress(raw)
        if len(compressed) < len(raw) - len(raw) // 8:
            stored, codec = compressed, compress.number
    return BlockInfo(offset, len(stored), len(raw), codec, checksum(stored, codec)), stored


def load(info: BlockInfo, stored: bytes) -> bytes:
    """The raw bytes of a block."""
    if len(stored) != info.stored_size or checksum(stored, info.codec) != info.checksum:
        raise CorruptFile("the checksum of a block does not match", offset=info.offset)
    if info.codec == ZSTD:
        return expand_zstd(stored, info.size, info.offset)
    if info.codec == LZ4:
        return expand_lz4(stored, info.size, info.offset)
    if info.codec == LZO:
        raise Unsupported("blocks that are compressed by lzo cannot be read")
    return stored
