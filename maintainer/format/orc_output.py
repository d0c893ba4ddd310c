"""The container of an ORC file, as it is written (spec 02 §4): stripes of other files, put together, and their timestamps.

Arrow writes negative nanoseconds where a time is before 1970 and not at a full second, which nobody else reads. So the nanoseconds are
encoded here. The format has seconds and nanoseconds in two streams, and readers take a second from negative ones with more than 999,999
nanoseconds; of the last second before 1970 it therefore holds the first millisecond alone.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from maintainer.format import orc
from maintainer.format.protobuf import encode

_BLOCK = 256 << 10
_RUN = 512
_VALUE_BYTES = 5
_RUN_HEAD = 0x40 | 28 << 1
"""Of values as they are, of 40 bits each; the last bit is the highest one of the length."""
_CODEC_NAMES = {"zstd": "zstd", "snappy": "snappy", "lz4": "lz4_raw"}
_MOST_ZEROS = 8


class Container:
    """Makes the parts of a file, which are to be written one after the other."""

    def __init__(self, codec: str, level: int) -> None:
        self._codec, self._level = codec, level
        self._pool = None
        if codec in _CODEC_NAMES:
            self._pool = pa.Codec(_CODEC_NAMES[codec], **({"compression_level": level} if codec == "zstd" else {}))
        self._stripes: list[bytes] = []
        self._rows = 0
        self._size = len(orc.MAGIC)
        self._first: orc.Tail | None = None

    def stripe(self, data: bytes, replaced: Mapping[int, bytes]) -> bytes:
        """Of a file that is not compressed, the rows. `replaced`: nanoseconds of timestamps, by column."""

        def fetch(offset: int, length: int) -> bytes:
            return data[offset : offset + length]

        tail = orc.read_tail(fetch, len(data))
        (found,) = tail.stripes
        footer = orc.read_stripe_footer(fetch, tail, found)
        streams = sorted((stream for some in footer.streams.values() for stream in some), key=lambda stream: stream.offset)
        parts, names = [], []
        for stream in streams:
            new = replaced.get(stream.column) if stream.kind == orc.SECONDARY else None
            parts.append(self._compressed(fetch(stream.offset, stream.length) if new is None else new))
            names.append((1, encode((1, stream.kind), (2, stream.column), (3, len(parts[-1])))))
        length = sum(map(len, parts))
        encodings = ((2, encode((1, kind), *(((2, size),) if kind & 1 else ()))) for kind, size in footer.encodings)
        end = self._compressed(encode(*names, *encodings, (3, footer.zone or "GMT")))
        self._stripes.append(encode((1, self._size), (2, 0), (3, length), (4, len(end)), (5, found.rows)))
        self._size += length + len(end)
        self._rows += found.rows
        self._first = self._first or tail
        return b"".join([*parts, end])

    def end(self) -> bytes:
        tail = self._first
        assert tail is not None
        footer = self._compressed(
            encode(
                (1, len(orc.MAGIC)),
                (2, self._size),
                *((3, stripe) for stripe in self._stripes),
                *((4, orc.encode_type(found)) for found in tail.types),
                (6, self._rows),
                (8, 0),
                *tail.writer,
            )
        )
        post = encode(
            (1, len(footer)), (2, orc.CODECS.index(self._codec)), (3, _BLOCK), (4, b"\0\x0c"), (5, 0), (6, tail.writer_version), (8000, "ORC")
        )
        return b"".join([footer, post, bytes([len(post)])])

    def _compressed(self, data: bytes) -> bytes:
        if self._codec == "none":
            return data
        parts = []
        for start in range(0, len(data), _BLOCK):
            block = data[start : start + _BLOCK]
            chunk = self._chunk(block)
            is_original = len(chunk) >= len(block)
            chunk = block if is_original else chunk
            parts += [(len(chunk) << 1 | is_original).to_bytes(3, "little"), chunk]
        return b"".join(parts)

    def _chunk(self, block: bytes) -> bytes:
        if self._pool is not None:
            return bytes(self._pool.compress(block, asbytes=True))
        packer = zlib.compressobj(wbits=-15)
        return packer.compress(block) + packer.flush()


def nanoseconds(values: npt.NDArray[np.int64]) -> bytes:
    """The stream of these: trailing zeros are counted where there are two or more of them, up to eight."""
    zeros = np.zeros(len(values), np.int64)
    rest = values.copy()
    for _ in range(_MOST_ZEROS):
        even = (rest % 10 == 0) & (rest != 0)
        if not even.any():
            break
        rest = np.where(even, rest // 10, rest)
        zeros += even
    codes = np.where(zeros >= 2, rest << 3 | (zeros - 1), values << 3)
    return _runs(codes)


def _runs(codes: npt.NDArray[np.int64]) -> bytes:
    octets = codes.astype(">i8").view(np.uint8).reshape(-1, 8)[:, 8 - _VALUE_BYTES :]
    full = len(codes) // _RUN
    runs = np.empty((full, 2 + _RUN * _VALUE_BYTES), np.uint8)
    runs[:, 0], runs[:, 1] = _RUN_HEAD | 1, 255
    runs[:, 2:] = octets[: full * _RUN].reshape(full, _RUN * _VALUE_BYTES)
    left = len(codes) - full * _RUN
    last = b"" if not left else bytes([_RUN_HEAD | (left - 1) >> 8, (left - 1) & 255]) + octets[full * _RUN :].tobytes()
    return runs.tobytes() + last


def timestamp_columns(types: Sequence[orc.OrcType]) -> list[int]:
    return [number for number, found in enumerate(types) if found.kind in (orc.TIMESTAMP, orc.TIMESTAMP_INSTANT)]
