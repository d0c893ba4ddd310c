"""Frames of zstd that come from outside (RFC 8878), decompressed within a limit.

A decompressor takes longer to make than a block of 64 KB takes to be decompressed, so each thread keeps one. What a frame claims is believed
only as far as its bytes make it likely; else it is read in steps, so that memory grows with what is really there. Reading in steps does not
say whether the end of a frame was reached, so its blocks are counted before (RFC 8878 §3.1.1.2):

| 3 bytes, little-endian | bit 0: the last block; bits 1–2: its kind, of which 1 is a byte to be repeated; the others: its size |
| the block              | one byte if it is to be repeated, else as many as its size says                                       |
"""

from __future__ import annotations

import threading
from typing import Any

_LIKELY, _SMALL = 64, 64 << 10
"""A frame that claims at most so many times its size, or so many bytes, is decompressed at once."""
_LARGEST_STEP = 1 << 20
_HEAD, _REPEATED, _CHECKSUM = 3, 1, 4
"""Bytes before a block, the kind of a block with one byte, and bytes behind the last one."""

_threads = threading.local()


def content(frame: bytes, most: int) -> bytes:
    """The first `most` bytes of a frame's content; `zstandard.ZstdError` where the frame is damaged or cut off."""
    import zstandard

    size = zstandard.frame_content_size(frame)
    if size == 0:
        return b""
    if 0 < size <= min(most, max(_LIKELY * len(frame), _SMALL)):
        return bytes(_decompressor().decompress(frame, max_output_size=size))
    if not _is_whole(frame):
        raise zstandard.ZstdError("the frame is cut off")
    parts, left = [], most
    step = min(max(4 * len(frame), _SMALL), _LARGEST_STEP)
    with _decompressor().stream_reader(frame, read_across_frames=False) as reader:
        while left and (part := reader.read(min(left, step))):
            parts.append(part)
            left -= len(part)
    return b"".join(parts)


def _is_whole(frame: bytes) -> bool:
    import zstandard

    position = zstandard.frame_header_size(frame)
    is_last = False
    while not is_last and position + _HEAD <= len(frame):
        head = int.from_bytes(frame[position : position + _HEAD], "little")
        is_last = bool(head & 1)
        position += _HEAD + (1 if head >> 1 & 3 == _REPEATED else head >> 3)
    checksum = _CHECKSUM if zstandard.get_frame_parameters(frame).has_checksum else 0
    return is_last and position + checksum <= len(frame)


def _decompressor() -> Any:
    found = getattr(_threads, "decompressor", None)
    if found is None:
        import zstandard

        found = _threads.decompressor = zstandard.ZstdDecompressor()
    return found
