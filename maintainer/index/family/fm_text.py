"""All values of a partition of an FM payload, and whether it is what its text makes it (spec 09 §3, §8).

The transform gives the text back: from each sampled suffix one steps to the left until the next sampled one, all of them at once, and writes
down a symbol at each step. In doing so every promise of the partition is checked: that the walk from each sample ends at that of the position
`rate` symbols before, so that samples and their bits are right and the transform is that of one text; that separators are where the row
boundaries say; that null rows are empty. Nothing else is in a partition. It takes some 10 bytes of memory for each symbol of one partition.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from maintainer.errors import CorruptFile
from maintainer.format.fm_decode import bits, decode_ranks, decode_samples, digits
from maintainer.format.fm_layout import FIRST_BYTE, SEPARATOR, TERMINATOR, PartitionDirectory
from maintainer.format.fm_vector import DIGITS, Vector
from maintainer.index.family.fm_ranks import RawBlocks

_COUNTED = 1 << 20
_WALKS = 1 << 20

Symbols = npt.NDArray[Any]


def recover(directory: PartitionDirectory, raw_blocks: RawBlocks) -> pa.LargeBinaryArray:
    """The values of all rows; `CorruptFile` when the partition does not hold together."""
    text = _text(directory, raw_blocks)
    ends = text == SEPARATOR
    if bool((_bits(directory.boundaries, raw_blocks) != ends).any()):
        raise CorruptFile("rows of an FM partition do not end where it says")
    ends = np.flatnonzero(ends)
    nulls = _bits(directory.nulls, raw_blocks)
    lengths = np.diff(ends, prepend=-1) - 1
    if bool((lengths[nulls] != 0).any()):
        raise CorruptFile("a row of an FM partition is null and has a value")
    byte_of = np.zeros(len(directory.smaller) - 1, np.uint8)
    present = np.flatnonzero(directory.symbols >= 0)
    byte_of[directory.symbols[present]] = present
    data = byte_of[text[text >= FIRST_BYTE]]
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    valid = pa.py_buffer(np.packbits(~nulls, bitorder="little"))
    return pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(lengths), [valid, pa.py_buffer(offsets), pa.py_buffer(data)], int(nulls.sum())
    )


def _text(directory: PartitionDirectory, raw_blocks: RawBlocks) -> Symbols:
    length, rate = directory.length, directory.rate
    transform = _transform(directory, raw_blocks)
    before = _before(transform, directory)
    rows = np.flatnonzero(_bits(directory.sampled, raw_blocks))
    samples = np.concatenate(
        [
            decode_samples(raw, directory.samples.values(block), rate, length, directory.samples.blocks[block].offset)
            for block, raw in raw_blocks(directory.samples, range(len(directory.samples.blocks)))
        ]
    )
    sampled = np.full(len(samples), -1, np.int32)  # the row of each sampled position, ascending
    sampled[samples // rate] = rows
    if sampled.min() < 0:
        raise CorruptFile("a sample of an FM partition occurs twice")
    text = np.empty(length, transform.dtype)
    text[length - 1] = transform[sampled[0]]
    for start in range(0, len(sampled), _WALKS):
        stop = min(start + _WALKS, len(sampled))
        # From each next sample, at last from the first row, which is that of the last position.
        at = np.append(sampled[start + 1 : stop + 1], np.zeros(int(stop == len(sampled)), np.int32))
        positions = np.minimum(np.arange(start + 1, stop + 1) * rate, length - 1)
        steps = positions - np.arange(start, stop) * rate
        for done in range(int(steps.max())):
            moving = slice(None) if done < steps[-1] else slice(0, -1)  # the last walk may be shorter
            text[positions[moving] - 1 - done] = transform[at[moving]]
            at[moving] = before[at[moving]]
        if bool((at != sampled[start:stop]).any()):
            raise CorruptFile("the samples of an FM partition are not those of its text")
    if text[length - 1] != TERMINATOR:
        raise CorruptFile("the samples of an FM partition are not those of its text")
    return text


def _transform(directory: PartitionDirectory, raw_blocks: RawBlocks) -> Symbols:
    """The symbol before each suffix, from the last level of the wavelet matrix to the first."""
    size = len(directory.smaller) - 1
    lower: Symbols = np.zeros(directory.length, np.uint8 if size <= 256 else np.uint16)
    for number in range(len(directory.levels) - 1, -1, -1):
        level = _digits(directory.levels[number], raw_blocks)
        shift = 2 * (len(directory.levels) - 1 - number)
        found = np.empty_like(lower)
        start = 0
        for digit in range(4):
            here = level == digit
            count = int(here.sum())
            found[here] = lower[start : start + count] | lower.dtype.type(digit << shift)
            start += count
        lower = found
    if lower.max() >= size:
        raise CorruptFile("an FM partition has a symbol that is none")
    return lower


def _before(transform: Symbols, directory: PartitionDirectory) -> npt.NDArray[np.int32]:
    """For each suffix the one that is longer by one symbol: equal symbols of the transform keep their order."""
    before = np.empty(len(transform), np.int32)
    size = len(directory.smaller) - 1
    next_of = directory.smaller[:-1].copy()
    for start in range(0, len(transform), _COUNTED):
        part = transform[start : start + _COUNTED]
        counts = np.bincount(part, minlength=size)
        firsts = np.cumsum(counts) - counts
        order = np.argsort(part, kind="stable")
        before[start + order] = np.arange(len(part)) + np.repeat(next_of - firsts, counts)
        next_of += counts
    if bool((next_of != directory.smaller[1:]).any()):
        raise CorruptFile("the symbols of an FM partition are not as many as it says")
    return before


def _digits(vector: Vector, raw_blocks: RawBlocks) -> npt.NDArray[np.uint8]:
    found = np.empty(vector.length, np.uint8)
    _fill(found, vector, raw_blocks)
    return found


def _bits(vector: Vector, raw_blocks: RawBlocks) -> npt.NDArray[np.bool_]:
    found = np.empty(vector.length, np.bool_)
    _fill(found, vector, raw_blocks)
    return found


def _fill(found: npt.NDArray[Any], vector: Vector, raw_blocks: RawBlocks) -> None:
    unpack = digits if vector.kind is DIGITS else bits
    for block, raw in raw_blocks(vector, range(len(vector.blocks))):
        values = vector.values(block)
        start = block * vector.kind.block_values
        words = decode_ranks(vector.kind, raw, values, vector.inside[block], vector.blocks[block].offset).words
        found[start : start + values] = unpack(words, values)
