"""Lengths of an ORC file, and scales of its decimals, checked (spec 02 §4): Arrow believes them, and ends the process when they are wrong.

Such a stream holds runs of version 1 or 2 (ORC specification, "Integer run length encoding"). Of version 2:

| first bits | a run of n values, W bits each, n and W in the first two bytes                        |
| ---------- | ------------------------------------------------------------------------------------- |
| 00         | one value of 1 to 8 bytes, 3 to 10 times; n and W in the first byte                   |
| 01         | n values                                                                              |
| 10         | n values, of which some are larger: a base, and the missing bits in a list at the end |
| 11         | the first value and the first step, as varints; n − 2 more steps, of W bits           |

Where a run ends follows from how it begins, and is computed for every byte of the stream as if one began there. Then there is one loop from
run to run, and the values of many runs are unpacked at once.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from maintainer.errors import CorruptFile

_WIDTHS = (*range(1, 25), 26, 28, 30, 32, 40, 48, 56, 64)
_WIDTH = np.array(_WIDTHS, np.int64)
_ENTRY_WIDTH = np.array([next((known for known in _WIDTHS if known >= bits), 0) for bits in range(73)], np.int64)
"""Of the list of missing bits, by the bits of an entry."""
_MOST = 1 << 32
_LARGEST_SCALE = 38
_LONGEST_VARINT = 10
_AT_ONCE = 1 << 18
"""Values that are unpacked at once."""
_WINDOW = 1 << 20
"""Bytes that are looked at together."""
_SPARE = 32
"""Zeros behind the stream, so that no look ahead leaves it: no further than to the end of two varints."""

Numbers = npt.NDArray[np.int64]
_Bytes = npt.NDArray[np.uint8]


def total(data: bytes, version: int) -> int:
    """The sum of all lengths of a stream."""
    return _checked(data, version, False, _MOST - 1)


def check_scales(data: bytes, version: int) -> None:
    """Scales of decimals: Arrow would multiply by ten as often as they say."""
    _checked(data, version, True, _LARGEST_SCALE)


def _checked(data: bytes, version: int, signed: bool, most: int) -> int:
    if version == 2:
        return _checked_2(data, signed, most)
    found = 0
    try:
        for values in _runs_1(data, signed):
            found += _sum(values, most)
    except IndexError as error:
        raise CorruptFile("lengths or scales are cut off") from error
    return found


def _sum(values: Numbers, most: int) -> int:
    if len(values) and (values.min() < 0 or values.max() > most):
        raise CorruptFile("a length or scale is negative, or too large")
    return int(values.sum())


# ------------------------------------------------------------------------------------------------------------------- version 2


def _checked_2(data: bytes, signed: bool, most: int) -> int:
    octets = np.frombuffer(data + bytes(_SPARE), np.uint8)
    starts = _starts(octets, len(data))
    heads = octets[starts].astype(np.int64)
    kinds = heads >> 6
    found = _repeated(octets, starts[kinds == 0], signed, most)
    counts = ((heads & 1) << 8 | octets[starts + 1]) + 1
    widths = _WIDTH[heads >> 1 & 31]
    if np.any((kinds != 0) & (widths > 32) & ~((kinds == 3) & (counts <= 2))):
        raise CorruptFile("a length is too large")
    direct = kinds == 1
    for values, _ in _unpacked(octets, starts[direct] + 2, counts[direct], widths[direct]):
        found += _sum(_plain(values, signed), most)
    for start, count, width in zip(starts[kinds == 2].tolist(), counts[kinds == 2].tolist(), widths[kinds == 2].tolist(), strict=True):
        found += _sum(_patched(octets, start + 2, count, width), most)
    steps = kinds == 3
    return found + _stepped(octets, starts[steps], counts[steps], np.where(heads[steps] >> 1 & 31, widths[steps], 0), signed, most)


def _starts(octets: _Bytes, size: int) -> Numbers:
    """Where the runs of a stream of so many bytes begin."""
    starts, base = [], 0
    while base < size:
        window = min(_WINDOW, size - base)
        ends: memoryview[int] = _ends(octets[base : base + window + _SPARE], window).data
        position = 0
        while position < window:
            starts.append(base + position)
            position = ends[position]
        base += position
    if base > size:
        raise CorruptFile("lengths or scales are cut off")
    return np.array(starts, np.int64)


def _ends(octets: _Bytes, size: int) -> Numbers:
    """For each position where a run would end that began there; behind the stream when there can be none."""
    at = np.arange(size, dtype=np.int64)
    head, second, third, fourth = (octets[shift : size + shift].astype(np.int64) for shift in range(4))
    kind = head >> 6
    count, width = ((head & 1) << 8 | second) + 1, _WIDTH[head >> 1 & 31]
    ends = at + 2 + (head >> 3 & 7)
    packed = at + 2 + (count * width + 7) // 8
    ends = np.where(kind == 1, packed, ends)
    entry = _ENTRY_WIDTH[(fourth >> 5) + 1 + _WIDTH[third & 31]]
    patched = packed + 3 + (third >> 5) + (entry * (fourth & 31) + 7) // 8
    ends = np.where(kind == 2, np.where(entry > 0, patched, size + 1), ends)
    last = np.append(np.flatnonzero(octets < 128), size + _SPARE)  # of varints; those that are cut off are too long
    first_end = _next(last, at + 2)
    second_end = _next(last, np.minimum(first_end, size + _SPARE))
    steps = np.where((head >> 1 & 31 > 0) & (count > 2), ((count - 2) * width + 7) // 8, 0)
    return np.where(kind == 3, second_end + steps, ends)


def _next(last: Numbers, at: Numbers) -> Numbers:
    """Behind the varint at each position."""
    return last[np.searchsorted(last, at)] + 1


def _repeated(octets: _Bytes, starts: Numbers, signed: bool, most: int) -> int:
    heads = octets[starts].astype(np.int64)
    width = (heads >> 3 & 7) + 1
    values = np.zeros(len(starts), np.uint64)
    for place in range(8):
        more = (values << np.uint64(8)) | octets[np.minimum(starts + 1 + place, len(octets) - 1)]
        values = np.where(place < width, more, values)
    if np.any(values >= _MOST << 1):
        raise CorruptFile("a length or scale is negative, or too large")
    plain = _plain(values.astype(np.int64), signed)
    _sum(plain, most)
    return int((plain * ((heads & 7) + 3)).sum())


def _stepped(octets: _Bytes, starts: Numbers, counts: Numbers, widths: Numbers, signed: bool, most: int) -> int:
    """Of runs whose values only grow, or only shrink: the ends are the extremes."""
    base, at = _varints(octets, starts + 2)
    step, at = _varints(octets, at)
    base, step = _plain(base, signed), _plain(step, True)
    rest = np.where(widths > 0, np.maximum(counts - 2, 0), 0)
    direction = np.where(step < 0, -1, 1)
    grown, weighed = np.zeros(len(starts), np.int64), np.zeros(len(starts), np.int64)
    for values, (run, place) in _unpacked(octets, at, rest, widths):
        grown += _summed(values, run, len(starts))
        weighed += _summed(np.multiply(values, rest[run] - place), run, len(starts))
    several = counts > 1
    first, last = base, base + np.where(several, (np.where(widths > 0, 1, counts - 1)) * step + direction * grown, 0)
    _sum(np.concatenate([first, last]), most)
    even = np.where(widths > 0, counts - 1, counts * (counts - 1) // 2)
    return int((counts * base + np.where(several, even * step + direction * weighed, 0)).sum())


def _summed(values: Numbers, run: Numbers, runs: int) -> Numbers:
    """By run; runs are in order."""
    sums = np.r_[0, np.cumsum(values)]
    bounds = np.searchsorted(run, np.arange(runs + 1))
    return np.asarray(sums[bounds[1:]] - sums[bounds[:-1]])


def _varints(octets: _Bytes, starts: Numbers) -> tuple[Numbers, Numbers]:
    """The varint at each position, and where it ends."""
    values, at = np.zeros(len(starts), np.int64), starts.copy()
    going = np.ones(len(starts), bool)
    for place in range(_LONGEST_VARINT):
        octet = octets[np.minimum(at, len(octets) - 1)].astype(np.int64)
        if np.any(going & (place * 7 > 34) & (octet & 127 > 0)):
            raise CorruptFile("a length is too large")
        values |= np.where(going, (octet & 127) << min(place * 7, 56), 0)
        at += going
        going &= octet >= 128
    if np.any(going) or np.any(values >= _MOST << 1):
        raise CorruptFile("a length is too large")
    return values, at


def _unpacked(octets: _Bytes, at: Numbers, counts: Numbers, widths: Numbers) -> Iterator[tuple[Numbers, tuple[Numbers, Numbers]]]:
    """The values of runs of at most 32 bits a value, many at once, and of each its run and its place there."""
    ends = np.cumsum(counts)
    first = 0
    while first < len(counts):
        done = int(ends[first - 1]) if first else 0
        stop = max(first + 1, int(np.searchsorted(ends, done + _AT_ONCE, side="right")))
        run = np.repeat(np.arange(first, stop), counts[first:stop])
        place = np.arange(len(run)) + done - (ends - counts)[run]
        width, bit = widths[run], place * widths[run]
        byte = at[run] + (bit >> 3)
        values = np.zeros(len(run), np.int64)
        for shift in range(5):
            values = values << 8 | octets[np.minimum(byte + shift, len(octets) - 1)]
        yield values >> (40 - width - (bit & 7)) & (1 << width) - 1, (run, place)
        first = stop


def _patched(octets: _Bytes, position: int, count: int, width: int) -> Numbers:
    third, fourth = int(octets[position]), int(octets[position + 1])
    base_width, patch_width = (third >> 5) + 1, _WIDTHS[third & 31]
    gap_width, patches = (fourth >> 5) + 1, fourth & 31
    position += 2
    base = int.from_bytes(octets[position : position + base_width].tobytes(), "big")
    sign = 1 << 8 * base_width - 1
    if base & sign:
        base = -(base & ~sign)
    position += base_width
    entry_width = int(_ENTRY_WIDTH[gap_width + patch_width])
    if patch_width + width > 60 or abs(base) >= _MOST:
        raise CorruptFile("a length is too large")
    one = np.array([position]), np.array([count]), np.array([width])
    (values, _), *_ = _unpacked(octets, *one)
    position += (count * width + 7) // 8
    end = position + (entry_width * patches + 7) // 8
    bits = int.from_bytes(octets[position:end].tobytes(), "big") >> (end - position) * 8 - entry_width * patches
    index = 0
    for number in range(patches):
        entry = bits >> entry_width * (patches - 1 - number) & (1 << entry_width) - 1
        index += (entry >> patch_width) & (1 << gap_width) - 1
        if index >= count:
            raise CorruptFile("a patch is behind the end of its run")
        values[index] |= (entry & (1 << patch_width) - 1) << width
    return values + base


# ------------------------------------------------------------------------------------------------------------------- version 1


def _runs_1(data: bytes, signed: bool) -> Iterator[Numbers]:
    position = 0
    while position < len(data):
        control = data[position]
        position += 1
        if control < 128:
            delta = data[position] - 256 * (data[position] > 127)
            base, position = _varint(data, position + 1)
            yield _one(base, signed) + delta * np.arange(control + 3, dtype=np.int64)
        else:
            values = []
            for _ in range(256 - control):
                value, position = _varint(data, position)
                values.append(_one(value, signed))
            yield np.array(values, np.int64)


def _one(value: int, signed: bool) -> int:
    return max(min(value >> 1 ^ -(value & 1) if signed else value, _MOST), -_MOST)


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


def _plain(values: Numbers, signed: bool) -> Numbers:
    return values >> 1 ^ -(values & 1) if signed else values
