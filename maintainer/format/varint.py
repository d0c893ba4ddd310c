"""Unsigned LEB128 numbers (spec 08 §1.1): seven bits per byte, the least significant first; a set high bit says that another byte follows.

0 → `00`, 127 → `7f`, 128 → `8001`, 16384 → `808001`. Values are below 2⁶³, so nine bytes suffice.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from maintainer.errors import CorruptFile

MAX_BYTES = 9
_THRESHOLDS = tuple(1 << 7 * n for n in range(1, MAX_BYTES))


def encode(value: int) -> bytes:
    """The bytes of one number."""
    if value < 0:
        raise ValueError(f"negative value: v={value}")
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def decode(data: bytes | memoryview, offset: int) -> tuple[int, int]:
    """The number at `offset` and where the next byte is."""
    if offset < len(data) and data[offset] < 0x80:
        return data[offset], offset + 1
    value = 0
    for index, byte in enumerate(data[offset : offset + MAX_BYTES]):
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return value, offset + index + 1
    raise CorruptFile("a variable-length number is malformed", offset=offset)


def lengths(values: npt.NDArray[np.integer]) -> npt.NDArray[np.uint8]:
    """How many bytes each number takes."""
    sizes = np.ones(len(values), np.uint8)
    highest = int(values.max(initial=0))
    for threshold in _THRESHOLDS:
        if highest < threshold:
            break
        sizes += values >= threshold
    return sizes


def total_length(count: int, below: Callable[[int], int]) -> int:
    """How many bytes `count` numbers take, so many of which are `below` a bound."""
    return count + sum(count - below(threshold) for threshold in _THRESHOLDS)


def fill(matrix: npt.NDArray[np.uint8], values: npt.NDArray[np.integer], sizes: npt.NDArray[np.uint8]) -> None:
    """Write one number into each row of `matrix`, left-aligned; what lies right of a number's last byte has no meaning."""
    for column in range(matrix.shape[1]):
        byte = ((values >> 7 * column) & 0x7F).astype(np.uint8)
        byte |= (sizes > column + 1).view(np.uint8) << 7
        matrix[:, column] = byte


def decode_all(data: npt.NDArray[np.uint8]) -> npt.NDArray[np.int64]:
    """The numbers that lie in `data` one behind the other; it must end with one."""
    ends = np.flatnonzero(data < 0x80)
    if len(data) and (not len(ends) or ends[-1] != len(data) - 1):
        raise CorruptFile("a variable-length number is cut off")
    starts = np.empty_like(ends)
    starts[:1] = 0
    starts[1:] = ends[:-1] + 1
    sizes = ends - starts + 1
    longest = int(sizes.max(initial=0))
    if longest > MAX_BYTES:
        raise CorruptFile("a variable-length number is malformed")
    values = (data[starts] & 0x7F).astype(np.int64)
    for column in range(1, longest):
        rows = np.flatnonzero(sizes > column)
        values[rows] |= (data[starts[rows] + column].astype(np.int64) & 0x7F) << 7 * column
    return values


def decode_at(data: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The number that begins at each of `starts`, and where the next byte is."""
    values = np.zeros(len(starts), np.int64)
    ends = np.array(starts, np.int64)
    rows = np.arange(len(starts))
    for column in range(MAX_BYTES):
        if not len(rows):
            return values, ends
        at = ends[rows]
        if at.max() >= len(data):
            break
        byte = data[at].astype(np.int64)
        values[rows] |= (byte & 0x7F) << 7 * column
        ends[rows] += 1
        rows = rows[byte >= 0x80]
    if len(rows):
        raise CorruptFile("a variable-length number is malformed")
    return values, ends
