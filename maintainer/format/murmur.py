"""The hash that chooses buckets: murmur3-32 with seed 42 over the words of a row (spec 01 §12; Java `MurmurHashUtils.hashBytesByWords`).

Rows are multiples of 8 bytes, so there is no tail. All rows of a batch advance together, one word a step, those with more words first.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

SEED = 42
_C1 = 0xCC9E2D51
_C2 = 0x1B873593
_N = 0xE6546B64
_MASK = 0xFFFFFFFF
FEW_ROWS = 8
"""So few rows are finished one by one: a step of numpy costs as much as that many of Python."""

Words = npt.NDArray[np.uint32]


def hash_rows(data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
    """The hash of each row body `data[offsets[i]:offsets[i + 1]]`; offsets are multiples of 4."""
    sizes = np.diff(offsets)
    if not len(sizes):
        return np.empty(0, np.int32)
    if (offsets & 3).any() or offsets[-1] > len(data):
        raise ValueError("rows must lie inside the data, at multiples of 4 bytes")
    words = np.ascontiguousarray(data[: len(data) & ~3]).view("<u4")
    counts = sizes >> 2
    if counts[0] == counts[-1] and (counts == counts[0]).all():
        first = int(offsets[0]) >> 2
        table = words[first : first + len(counts) * int(counts[0])].reshape(len(counts), int(counts[0]))
        state = np.full(len(counts), SEED, np.uint32)
        for column in table.T:
            state = _mix(state, column)
        return _finish(state, sizes)
    order = np.argsort(-counts, kind="stable")
    starts, remaining = offsets[:-1][order] >> 2, counts[order]
    state = np.full(len(counts), SEED, np.uint32)
    step, active = 0, int(np.searchsorted(-remaining, 0))
    while active > FEW_ROWS:
        state[:active] = _mix(state[:active], words[starts[:active] + step])
        step += 1
        active = int(np.searchsorted(-remaining, -step))
    for row in range(active):
        start = int(starts[row])
        state[row] = _mix_all(int(state[row]), words[start + step : start + int(remaining[row])].tolist())
    hashes = np.empty_like(state)
    hashes[order] = state
    return _finish(hashes, sizes)


def _mix(state: Words, word: Words) -> Words:
    mixed = word * np.uint32(_C1)
    mixed = (mixed << np.uint32(15) | mixed >> np.uint32(17)) * np.uint32(_C2)
    mixed ^= state
    return (mixed << np.uint32(13) | mixed >> np.uint32(19)) * np.uint32(5) + np.uint32(_N)


def _mix_all(state: int, words: list[int]) -> int:
    """`_mix` for the words of one row."""
    for word in words:
        mixed = word * _C1 & _MASK
        mixed = (mixed << 15 | mixed >> 17) * _C2 & _MASK ^ state
        state = ((mixed << 13 | mixed >> 19) & _MASK) * 5 + _N & _MASK
    return state


def _finish(state: Words, sizes: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
    state = state ^ sizes.astype(np.uint32)
    state ^= state >> np.uint32(16)
    state *= np.uint32(0x85EBCA6B)
    state ^= state >> np.uint32(13)
    state *= np.uint32(0xC2B2AE35)
    state ^= state >> np.uint32(16)
    return state.view(np.int32)
