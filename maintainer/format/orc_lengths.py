"""Lengths of an ORC file, and scales of its decimals, checked (spec 02 §4): Arrow believes them, and ends the process when they are wrong.

Such a stream holds run lengths, version 1 or 2; the loop is over runs of up to 512 values.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from maintainer.errors import CorruptFile

_WIDTHS = (*range(1, 25), 26, 28, 30, 32, 40, 48, 56, 64)
_MOST = 1 << 32
_LARGEST_SCALE = 38


def total(data: bytes, version: int) -> int:
    """The sum of all lengths of a stream."""
    return _checked(data, version, False, _MOST - 1)


def check_scales(data: bytes, version: int) -> None:
    """Scales of decimals: Arrow would multiply by ten as often as they say."""
    _checked(data, version, True, _LARGEST_SCALE)


def _checked(data: bytes, version: int, signed: bool, most: int) -> int:
    found = 0
    runs = _runs_2(data, signed) if version == 2 else _runs_1(data, signed)
    try:
        for values in runs:
            if values.min() < 0 or values.max() > most:
                raise CorruptFile("a length or scale is negative, or too large")
            found += int(values.sum())
    except (IndexError, ValueError) as error:
        raise CorruptFile("lengths or scales are cut off") from error
    return found


def _runs_2(data: bytes, signed: bool) -> Iterator[npt.NDArray[np.int64]]:
    position = 0
    while position < len(data):
        head = data[position]
        if head >> 6 == 0:
            width = (head >> 3 & 7) + 1
            value = int.from_bytes(data[position + 1 : position + 1 + width], "big")
            position += 1 + width
            if position > len(data):
                raise IndexError
            yield np.full((head & 7) + 3, min(_plain(value, signed), _MOST), np.int64)
            continue
        code = head >> 1 & 31
        width = _WIDTHS[code]
        count = ((head & 1) << 8 | data[position + 1]) + 1
        position += 2
        match head >> 6:
            case 1:
                values, position = _unpack(data, position, count, width)
                values = values >> 1 ^ -(values & 1) if signed else values
            case 2:
                values, position = _patched(data, position, count, width)
            case _:
                values, position = _deltas(data, position, count, width if code else 0, signed)
        yield values


def _patched(data: bytes, position: int, count: int, width: int) -> tuple[npt.NDArray[np.int64], int]:
    third, fourth = data[position], data[position + 1]
    base_width, patch_width = (third >> 5) + 1, _WIDTHS[third & 31]
    gap_width, patches = (fourth >> 5) + 1, fourth & 31
    position += 2
    base = int.from_bytes(data[position : position + base_width], "big")
    sign = 1 << 8 * base_width - 1
    if base & sign:
        base = -(base & ~sign)
    position += base_width
    entry_width = next((known for known in _WIDTHS if known >= gap_width + patch_width), 0)
    if not entry_width or width > 32 or patch_width + width > 60 or abs(base) >= _MOST:
        raise CorruptFile("a length is too large")
    values, position = _unpack(data, position, count, width)
    end = position + (entry_width * patches + 7) // 8
    if end > len(data):
        raise IndexError
    bits = int.from_bytes(data[position:end], "big") >> (end - position) * 8 - entry_width * patches
    index = 0
    for number in range(patches):
        entry = bits >> entry_width * (patches - 1 - number) & (1 << entry_width) - 1
        index += entry >> patch_width
        values[index] |= (entry & (1 << patch_width) - 1) << width
    return values + base, end


def _deltas(data: bytes, position: int, count: int, width: int, signed: bool) -> tuple[npt.NDArray[np.int64], int]:
    base, position = _varint(data, position)
    raw, position = _varint(data, position)
    base, delta = _plain(base, signed), _plain(raw, True)
    if abs(base) >= _MOST or abs(delta) >= _MOST:
        raise CorruptFile("a length is too large")
    values = np.full(count, delta, np.int64)
    values[0] = base
    if width and count > 2:
        steps, position = _unpack(data, position, count - 2, width)
        values[2:] = -steps if delta < 0 else steps
    return np.cumsum(values), position


def _unpack(data: bytes, position: int, count: int, width: int) -> tuple[npt.NDArray[np.int64], int]:
    if width > 32:
        raise CorruptFile("a length is too large")
    end = position + (count * width + 7) // 8
    if end > len(data):
        raise IndexError
    some = np.frombuffer(data, np.uint8, end - position, position)
    if width % 8 == 0:
        octets = some.reshape(count, width // 8).astype(np.int64)
        return octets @ (1 << np.arange(width - 8, -1, -8, dtype=np.int64)), end
    bits = np.unpackbits(some, count=count * width).reshape(count, width).astype(np.int64)
    return bits @ (1 << np.arange(width - 1, -1, -1, dtype=np.int64)), end


def _runs_1(data: bytes, signed: bool) -> Iterator[npt.NDArray[np.int64]]:
    position = 0
    while position < len(data):
        control = data[position]
        position += 1
        if control < 128:
            delta = data[position] - 256 * (data[position] > 127)
            base, position = _varint(data, position + 1)
            yield min(_plain(base, signed), _MOST) + delta * np.arange(control + 3, dtype=np.int64)
        else:
            values = []
            for _ in range(256 - control):
                value, position = _varint(data, position)
                values.append(min(_plain(value, signed), _MOST))
            yield np.array(values, np.int64)


def _plain(value: int, signed: bool) -> int:
    return max(value >> 1 ^ -(value & 1), -_MOST) if signed else value


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 70:
        byte = data[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, position
        shift += 7
    raise CorruptFile("a number is too long")
