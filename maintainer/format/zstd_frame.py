"""Frames of zstd that come from outside (RFC 8878), decompressed within a limit.

A decompressor takes longer to make than a block of 64 KB takes to be decompressed, so each thread keeps one. What a frame claims is believed
only as far as its bytes make it likely; else it is read in steps, so that memory grows with what is really there.
"""

from __future__ import annotations

import threading
from typing import Any

_LIKELY, _SMALL = 64, 64 << 10
"""A frame that claims at most so many times its size, or so many bytes, is decompressed at once."""
_LARGEST_STEP = 1 << 20

_threads = threading.local()


def content(frame: bytes, most: int) -> bytes:
    """The first `most` bytes of a frame's content. `zstandard.ZstdError` where the frame is damaged, and fewer bytes where it is cut off."""
    import zstandard

    size = zstandard.frame_content_size(frame)
    if size == 0:
        return b""
    if 0 < size <= min(most, max(_LIKELY * len(frame), _SMALL)):
        return bytes(_decompressor().decompress(frame, max_output_size=size))
    parts, left = [], most
    step = min(max(4 * len(frame), _SMALL), _LARGEST_STEP)
    with _decompressor().stream_reader(frame, read_across_frames=False) as reader:
        while left and (part := reader.read(min(left, step))):
            parts.append(part)
            left -= len(part)
    return b"".join(parts)


def _decompressor() -> Any:
    found = getattr(_threads, "decompressor", None)
    if found is None:
        import zstandard

        found = _threads.decompressor = zstandard.ZstdDecompressor()
    return found
