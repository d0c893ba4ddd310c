"""Row ids of many keys as roaring bitmaps at once (spec 08 §6, §9.2; Java `RoaringNavigableMap64` after `runOptimize`).

Most postings of a bitmap index are a few scattered ids. Such a bitmap consists of 16-bit numbers only, and all of a batch are laid out by
array arithmetic:

| u16 × | field                                                                     |
| ----- | ------------------------------------------------------------------------- |
| 6     | 64-bit form: number of entries = 1, high 32 bits = 0                      |
| 2     | cookie 12346: no run containers                                           |
| 2     | number n of containers                                                    |
| n × 2 | upper 16 bits of the ids of a container, their number − 1                 |
| n × 2 | offset of the container                                                   |
| c     | the lower 16 bits of the ids                                              |

Postings that need a run or bit container, or ids of more than 32 bits, go through the roaring library one by one.
"""

from __future__ import annotations

import array
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap, BitMap64

from maintainer.errors import CorruptFile
from maintainer.format import roaring
from maintainer.format.byte_column import ByteColumn

_COOKIE = 12346
_FIXED_WORDS = 10
_ARRAY_LIMIT = 4096
_LARGE = 8192
"""Bytes of a posting from which on the library reads it."""
_SINGLE_ENTRY = (1).to_bytes(8, "little") + bytes(4)
_HEAD = np.array([1, 0, 0, 0, 0, 0, _COOKIE, 0], np.uint16)

Ids = npt.NDArray[np.int64]


def to_bitmap(ids: Ids) -> BitMap64:
    """The set of these ids, which need not be in order."""
    return BitMap64(array.array("Q", np.sort(ids).astype(np.uint64, copy=False).tobytes()))


def parts(bitmap: BitMap64, most: int) -> Iterator[Ids]:
    """The members of a bitmap, ascending, at most so many at a time."""
    if not bitmap:
        return
    if len(bitmap) <= most:
        yield np.asarray(bitmap.to_array()).astype(np.int64)
        return
    for start in range(bitmap.min(), bitmap.max() + 1, most):
        window = BitMap64()
        window.add_range(start, start + most)
        yield from parts(bitmap & window, most)


def encode(ids: Ids) -> bytes:
    """The bitmap of ascending ids, made from the ids as Java does: set operations can leave a run where an array is as small."""
    if len(ids) and ids[-1] < 1 << 32:
        bitmap = BitMap(array.array("I", ids.astype(np.uint32).tobytes()))
        bitmap.run_optimize()
        return _SINGLE_ENTRY + bitmap.serialize()
    return roaring.encode64(to_bitmap(ids))


def encode_groups(ids: Ids, starts: npt.NDArray[np.int64]) -> ByteColumn:
    """One bitmap per group of ids: group i is `ids[starts[i]:starts[i + 1]]`, never empty, ascending."""
    if not len(starts):
        return ByteColumn.of_rows(())
    groups = len(starts)
    first_of_group = np.zeros(len(ids), bool)
    first_of_group[starts] = True
    # A container is a group's ids with the same upper bits; a run is a container's ids without a gap.
    opens = first_of_group.copy()
    opens[1:] |= (ids[1:] >> 16) != (ids[:-1] >> 16)
    gaps = opens.copy()
    gaps[1:] |= ids[1:] != ids[:-1] + 1
    container_starts = np.flatnonzero(opens)
    cardinality = np.diff(container_starts, append=len(ids))
    runs = np.add.reduceat(gaps, container_starts, dtype=np.int64)
    special = (cardinality > _ARRAY_LIMIT) | (2 + 4 * runs < 2 * cardinality) | (ids[container_starts] >= 1 << 32)
    first_container = np.searchsorted(container_starts, starts)
    plain = ~np.logical_or.reduceat(special, first_container)
    if plain.all():
        return _encode_plain(ids, starts, container_starts, cardinality, first_container)
    ends = np.append(starts[1:], len(ids))
    sizes = np.empty(groups, np.int64)
    pieces: list[npt.NDArray[np.uint8]] = []
    for begin, end, is_plain in _stretches(plain):
        if is_plain:
            some = encode_groups(ids[starts[begin] : ends[end - 1]], starts[begin:end] - starts[begin])
            sizes[begin:end] = some.lengths
            pieces.append(some.data)
            continue
        for group in range(begin, end):
            encoded = encode(ids[starts[group] : ends[group]])
            sizes[group] = len(encoded)
            pieces.append(np.frombuffer(encoded, np.uint8))
    offsets = np.zeros(groups + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    return ByteColumn(np.concatenate(pieces), offsets)


def decode_groups(data: npt.NDArray[np.uint8], begins: Ids, sizes: Ids, most: int, below: int) -> tuple[Ids | BitMap64, Ids]:
    """The ids of the bitmaps that lie there, and how many each has: the inverse of `encode_groups`, for bytes from outside.

    There may be fewer bitmaps than asked for, but at least one: reading stops at about `most` ids, as a few bytes may stand for very many. A
    bitmap of more ids comes alone, and as it is. All ids are below `below`.
    """
    if not len(begins):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    if bool((begins < 0).any()) or bool((sizes < 0).any()) or bool((begins > len(data) - sizes).any()):
        raise CorruptFile("a posting lies outside of its payload")
    few = max(1, int(np.searchsorted(np.cumsum(sizes), 2 * most, "right")))
    begins, sizes = begins[:few], sizes[:few]
    found: list[Ids] = []
    counts: list[Ids] = []
    held = 0
    for begin, end, is_plain in _stretches(_plain(data, begins, sizes)):
        if held >= most:
            break
        if is_plain:
            ids, some_counts = _decode_plain(data, begins[begin:end], sizes[begin:end])
            found.append(ids)
            counts.append(some_counts)
            held += len(ids)
            continue
        for at, size in zip(begins[begin:end].tolist(), sizes[begin:end].tolist(), strict=True):
            bitmap = roaring.decode64(data[at : at + size].data)
            if bitmap and bitmap.max() >= below:
                raise CorruptFile(f"the ids of a posting are not below {below}")
            if len(bitmap) > most:
                if found:
                    held = most
                    break
                return bitmap, np.array([len(bitmap)])
            found.append(np.frombuffer(bitmap.to_array(), np.uint64).astype(np.int64))
            counts.append(np.array([len(bitmap)]))
            held += len(bitmap)
            if held >= most:
                break
    all_ids, all_counts = np.concatenate(found), np.concatenate(counts)
    if not all_counts.all():
        raise CorruptFile("an empty posting")
    rises = all_ids[1:] > all_ids[:-1]
    rises[np.cumsum(all_counts)[:-1] - 1] = True
    if not rises.all() or not 0 <= int(all_ids.min()) <= int(all_ids.max()) < below:
        raise CorruptFile(f"the ids of a posting are not in order, or not below {below}")
    return all_ids, all_counts


def _plain(data: npt.NDArray[np.uint8], begins: Ids, sizes: Ids) -> npt.NDArray[np.bool_]:
    """Which bitmaps consist of 16-bit numbers only, and are small: the roaring library is faster with large ones."""
    plain = (sizes >= 2 * (_FIXED_WORDS + 4)) & (sizes <= _LARGE)
    head = np.frombuffer(_HEAD.astype("<u2").tobytes(), np.uint8)
    some = np.flatnonzero(plain)
    for place, byte in enumerate(head):
        some = some[data[begins[some] + place] == byte]
    plain[:] = False
    plain[some] = True
    return plain


def _decode_plain(data: npt.NDArray[np.uint8], begins: Ids, sizes: Ids) -> tuple[Ids, Ids]:
    words = np.ndarray((len(data) - 1,), "<u2", data, strides=(1,))
    containers = words[begins + 16].astype(np.int64) + (words[begins + 18].astype(np.int64) << 16)
    if bool(((containers < 1) | (2 * _FIXED_WORDS + 8 * containers > sizes)).any()):
        raise CorruptFile("a posting has more containers than there is room for")
    first_container = np.cumsum(containers) - containers
    rank = np.arange(int(containers.sum())) - np.repeat(first_container, containers)
    descriptor = np.repeat(begins + 2 * _FIXED_WORDS, containers) + 4 * rank
    upper = words[descriptor].astype(np.int64) << 16
    cardinality = words[descriptor + 2].astype(np.int64) + 1
    counts = np.add.reduceat(cardinality, first_container)
    before = np.cumsum(cardinality) - cardinality
    place = descriptor + 4 * np.repeat(containers, containers)
    offset = 8 + 8 * np.repeat(containers, containers) + 2 * (before - np.repeat(before[first_container], containers))
    stored = words[place].astype(np.int64) + (words[place + 2].astype(np.int64) << 16)
    fits = (2 * _FIXED_WORDS + 8 * containers + 2 * counts == sizes) & (np.maximum.reduceat(cardinality, first_container) <= _ARRAY_LIMIT)
    if not fits.all() or bool((stored != offset).any()):
        raise CorruptFile("the containers of a posting do not lie where it says")
    ends = np.cumsum(counts)
    at = np.repeat(begins + 2 * _FIXED_WORDS + 8 * containers - 2 * (ends - counts), counts) + 2 * np.arange(int(ends[-1]))
    return np.repeat(upper, cardinality) | words[at], counts


def _encode_plain(
    ids: Ids,
    starts: npt.NDArray[np.int64],
    container_starts: npt.NDArray[np.int64],
    cardinality: npt.NDArray[np.int64],
    first_container: npt.NDArray[np.int64],
) -> ByteColumn:
    counts = np.diff(starts, append=len(ids))
    containers = np.diff(first_container, append=len(container_starts))
    words = np.zeros(len(starts) + 1, np.int64)
    np.cumsum(_FIXED_WORDS + 4 * containers + counts, out=words[1:])
    begin = words[:-1]
    out = np.empty(int(words[-1]), "<u2")
    for word, value in enumerate(_HEAD):
        out[begin + word] = value
    out[begin + 8] = containers & 0xFFFF
    out[begin + 9] = containers >> 16
    # Where each container's descriptor and offset stand: its group's begin, and its rank in the group.
    rank = np.arange(len(container_starts)) - np.repeat(first_container, containers)
    at = np.repeat(begin, containers)
    descriptor = at + _FIXED_WORDS + 2 * rank
    out[descriptor] = ids[container_starts] >> 16
    out[descriptor + 1] = cardinality - 1
    per_group = np.repeat(containers, containers)
    # Offsets count bytes from the cookie, which stands 12 bytes after the begin.
    offset = 8 + 8 * per_group + 2 * (container_starts - np.repeat(starts, containers))
    out[descriptor + 2 * per_group] = offset & 0xFFFF
    out[descriptor + 2 * per_group + 1] = offset >> 16
    values = begin + _FIXED_WORDS + 4 * containers - starts
    out[np.repeat(values, counts) + np.arange(len(ids))] = ids & 0xFFFF
    if int(containers.max()) == int(containers.min()) and int(counts.max()) == int(counts.min()):
        return ByteColumn(out.view(np.uint8), None, width=2 * int(words[1]))
    return ByteColumn(out.view(np.uint8), 2 * words)


def _stretches(flags: npt.NDArray[np.bool_]) -> Iterator[tuple[int, int, bool]]:
    """Maximal ranges of equal flags."""
    bounds = np.concatenate(([0], np.flatnonzero(flags[1:] != flags[:-1]) + 1, [len(flags)]))
    for begin, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        yield begin, end, bool(flags[begin])
