"""FM payloads that are put down a symbol at a time (spec 09 §3–§8), for short texts: one block to each vector.

It follows the specification literally, with nothing in common with `maintainer.format` but the checksum's polynomial.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence

Value = bytes | None


def integers(*numbers: int) -> bytes:
    return struct.pack(f">{len(numbers)}i", *numbers)


def checksum(data: bytes) -> int:
    return zlib.crc32(data + b"\0")


def split(values: Sequence[Value], size: int, row_count: int) -> list[list[Value]]:
    """Rows of each partition."""
    partitions: list[list[Value]] = []
    rows: list[Value] = []
    symbols = 0
    for value in values:
        more = len(value or b"") + 1
        assert more < size
        if rows and (len(rows) >= row_count or symbols > size - more - 1):
            partitions.append(rows)
            rows, symbols = [], 0
        rows.append(value)
        symbols += more
    return [*partitions, rows]


class Payload:
    """What `write` puts together."""

    def __init__(self) -> None:
        self.data = b""

    def block(self, raw: bytes) -> bytes:
        """Append a block, not compressed; its info."""
        info = struct.pack(">qiiiI", len(self.data), len(raw), len(raw), 0, checksum(raw))
        self.data += raw
        return info

    def ranked(self, digits: Sequence[int], width: int) -> bytes:
        """Append a vector of one block of 2-bit digits or bits; its directory entry."""
        per_word, counted = 64 // width, range(4) if width == 2 else range(1, 2)
        words = [digits[at : at + per_word] for at in range(0, len(digits), per_word)]
        prefixes = []
        for group in range(-(-len(words) // 64) + 1):
            before = digits[: group * 64 * per_word]
            prefixes += [list(before).count(digit) for digit in counted]
        packed = [sum(digit << (width * i) for i, digit in enumerate(word)) for word in words]
        raw = integers(len(words), len(prefixes) // len(counted), *prefixes) + struct.pack(f">{len(words)}Q", *packed)
        totals = [list(digits).count(digit) for digit in counted]
        return integers(len(digits), *totals, 1, 0, len(digits), *[0] * len(counted), *totals) + self.block(raw)


def partition(payload: Payload, values: Sequence[Value], first_row: int, rate: int) -> bytes:
    """Append a partition; its entry in the metadata."""
    start = len(payload.data)
    alphabet = sorted({byte for value in values for byte in value or b""})
    symbol = {byte: number + 2 for number, byte in enumerate(alphabet)}
    text = [number for value in values for number in (*(symbol[byte] for byte in value or b""), 1)] + [0]
    suffixes = sorted(range(len(text)), key=lambda at: text[at:])
    order = [text[at - 1] for at in suffixes]
    size = len(alphabet) + 2
    levels = next(levels for levels in range(1, 6) if 4**levels >= size)
    directory = integers(len(values), len(text), rate, levels, size, 4096, *(symbol.get(byte, -1) for byte in range(256)))
    directory += integers(*(sum(1 for other in text if other < number) for number in range(size + 1)))
    for level in range(levels):
        digits = [number // 4 ** (levels - 1 - level) % 4 for number in order]
        directory += integers(*(sum(1 for other in digits if other < digit) for digit in range(4)))
        directory += payload.ranked(digits, 2)
        order = [number for digit in range(4) for number, own in zip(order, digits, strict=True) if own == digit]
    sampled = [at for at in suffixes if at % rate == 0]
    directory += payload.ranked([int(at % rate == 0) for at in suffixes], 1)
    directory += integers(len(sampled), 1, 0, len(sampled)) + payload.block(integers(*sampled))
    directory += payload.ranked([int(value is None) for value in values], 1)
    directory += payload.ranked([int(number == 1) for number in text], 1)
    footer = payload.block(directory) + struct.pack(">q", first_row) + integers(len(values), len(text), rate, 7, 0, 1, 0x464D4950)
    payload.data += footer + struct.pack(">I", checksum(footer))
    return struct.pack(">qqqi", start, len(payload.data), first_row, len(values))


def write(values: Sequence[Value], rate: int = 32, size: int = 16 << 20, row_count: int = 100_000) -> tuple[bytes, bytes]:
    """A payload, and its metadata."""
    payload = Payload()
    entries: list[bytes] = []
    row = 0
    for rows in split(values, size, row_count):
        entries.append(partition(payload, rows, row, rate))
        row += len(rows)
    metadata = integers(0x464D4D45, 1) + struct.pack(">qqi", 0, row, len(entries)) + b"".join(entries)
    metadata += struct.pack(">I", checksum(metadata))
    footer = payload.block(metadata) + struct.pack(">qq", 0, row) + integers(len(entries), 7, 0, 1, 0x464D4958)
    payload.data += footer + struct.pack(">I", checksum(footer))
    return payload.data, metadata
