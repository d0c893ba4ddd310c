"""Writing FM payloads: rows become texts, texts partitions, partitions a payload (spec 09 §3, §6–§8; Java `FMGlobalIndexWriter`).

    rows ─▶ text ─▶ suffix array ─▶ Burrows–Wheeler transform ─▶ wavelet matrix, level by level ─▶ blocks
                         └─▶ samples

A text is the rows of a partition, each closed by a separator, and a terminator. The terminator is below the separator and both are below all
bytes; so no suffix starts another one, there is one suffix array, and whatever finds it, the bytes are the same.

Each level is the digits, two bits each, of the transform in an order of its own: the next order is the present one, stably sorted by digit.
Blocks are made, stored and forgotten one after the other. What is held of a partition is its text and its suffix array, then its transform and
the order of the next level. How blocks and directories look is said in `maintainer.format.fm_vector` and `fm_layout`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from maintainer.errors import MaintainerError
from maintainer.format.byte_column import ByteColumn
from maintainer.format.fm_block import BlockInfo, store
from maintainer.format.fm_layout import (
    FIRST_BYTE,
    MAX_METADATA,
    SEPARATOR,
    TERMINATOR,
    ContainerFooter,
    Metadata,
    Partition,
    PartitionDirectory,
    PartitionFooter,
    digit_counts,
    digit_starts,
)
from maintainer.format.fm_vector import BITS, DIGITS, GROUP_WORDS, SAMPLES, Counts, Vector, VectorKind
from maintainer.format.stored_block import Buffer, Compressor

BYTES_PER_SYMBOL = 8
"""Memory that a partition takes while it is written, its values included."""

Bytes = npt.NDArray[np.uint8]
Symbols = npt.NDArray[Any]
Bits = npt.NDArray[np.bool_]

_WORD = 8
_COUNTS = struct.Struct(">ii")
_STEP = DIGITS.block_values
"""How much is looked up at once: numpy makes numbers of 8 bytes of all indices."""


@dataclass(frozen=True)
class Coding:
    """How partitions are written: every `rate`-th position is a sample."""

    rate: int
    compress: Compressor | None = None


@dataclass(frozen=True)
class Limits:
    """Where partitions end: a value is shorter than `size` by two at least; a partition of several rows has at most `symbols` and `rows`."""

    size: int
    symbols: int
    rows: int


@dataclass(frozen=True, eq=False)
class Text:
    """The rows of a partition as symbols: those of the bytes that occur follow the two that are always there."""

    symbols: Symbols
    occurrences: Counts
    alphabet: Bytes
    nulls: Bits


class PayloadWriter:
    """Hands the bytes of a payload to `write`, partition after partition."""

    def __init__(self, write: Callable[[Buffer], None], coding: Coding) -> None:
        self._out = _Blocks(write, coding)
        self._partitions: list[Partition] = []
        self.rows = 0
        """How many rows the payload has so far."""

    def add(self, text: Text) -> None:
        """Append a partition."""
        start = self._out.offset
        footer = _write_partition(text, self.rows, self._out)
        self._out.plain(footer.encode())
        self._append(Partition(start, self._out.offset, self.rows, footer.rows))

    def copy(self, partition: Partition, stored: Iterable[Buffer]) -> None:
        """Append a partition that another payload has at the same place, from its bytes."""
        for piece in stored:
            self._out.plain(piece)
        assert (partition.end, partition.first_row) == (self._out.offset, self.rows)
        self._append(partition)

    def finish(self) -> bytes:
        """Append directory and footer; returns the metadata of the payload."""
        metadata = Metadata(0, self.rows, tuple(self._partitions)).encode()
        if len(metadata) > MAX_METADATA:
            raise MaintainerError(f"{len(self._partitions)} partitions are more than an FM payload can have; let them be larger")
        footer = ContainerFooter(self._out.block(metadata), 0, self.rows, len(self._partitions))
        self._out.plain(footer.encode())
        return metadata

    def _append(self, partition: Partition) -> None:
        self._partitions.append(partition)
        self.rows += partition.rows


def text_of(values: Sequence[ByteColumn], nulls: Bits) -> Text:
    """The text of the rows of some columns; the value of a null is empty."""
    occurring = np.zeros(256, np.int64)
    for part in _parts(values):
        occurring += np.bincount(part, minlength=256)
    alphabet = np.flatnonzero(occurring).astype(np.uint8)
    symbol = np.zeros(256, np.uint8 if FIRST_BYTE + len(alphabet) <= 256 else np.uint16)
    symbol[alphabet] = np.arange(FIRST_BYTE, FIRST_BYTE + len(alphabet))
    ends = np.cumsum(np.concatenate([column.lengths for column in values]) + 1)
    symbols = np.empty(ends[-1] + 1, symbol.dtype)
    of_values = np.ones(len(symbols), np.bool_)
    of_values[ends - 1] = of_values[-1] = False
    symbols[of_values] = np.concatenate([symbol[:0], *(symbol[part] for part in _parts(values))])
    symbols[ends - 1] = SEPARATOR
    symbols[-1] = TERMINATOR
    return Text(symbols, np.array([1, len(ends), *occurring[alphabet]], np.int64), alphabet, nulls)


def _write_partition(text: Text, first_row: int, out: _Blocks) -> PartitionFooter:
    rate = out.coding.rate
    rows, length = len(text.nulls), len(text.symbols)
    suffixes = suffix_array(text.symbols)
    multiples = [suffixes[at] & (rate - 1) == 0 for at in _slices(length, BITS.block_values)]
    sampled = np.concatenate([np.packbits(part, bitorder="little") for part in multiples])
    samples = np.concatenate([suffixes[at][part] for at, part in zip(_slices(length, BITS.block_values), multiples, strict=True)])
    order = _transform(text.symbols, suffixes)
    del suffixes, multiples
    smaller = np.concatenate([[0], np.cumsum(text.occurrences)])
    levels = []
    counts = digit_counts(smaller)
    for level, starts in enumerate(digit_starts(counts)):
        shift = 2 * (len(counts) - 1 - level)
        vector, order = _write_level(order, shift, starts if shift else None, out)
        levels.append(vector)
    symbols = np.full(256, -1, np.int32)
    symbols[text.alphabet] = np.arange(FIRST_BYTE, FIRST_BYTE + len(text.alphabet))
    directory = PartitionDirectory(
        rows,
        length,
        rate,
        symbols,
        smaller,
        tuple(levels),
        sampled=_write_bits(sampled, length, out),
        samples=_write_samples(samples.astype(">i4"), out),
        nulls=_write_bits(np.packbits(text.nulls, bitorder="little"), rows, out),
        boundaries=_write_bits(np.packbits(text.symbols == SEPARATOR, bitorder="little"), length, out),
    )
    return PartitionFooter(out.block(directory.encode()), first_row, rows, length, rate)


def suffix_array(symbols: Symbols) -> npt.NDArray[np.integer]:
    """Where the suffixes of a text start, in their order."""
    try:
        from pydivsufsort import divsufsort
    except ImportError as error:
        raise MaintainerError("building an FM index takes the package pydivsufsort, which is missing: pip install pydivsufsort") from error
    if symbols.dtype == np.uint8:
        suffixes: npt.NDArray[np.integer] = divsufsort(symbols)
        return suffixes
    halves: npt.NDArray[np.integer] = divsufsort(symbols.astype(">u2").view(np.uint8))  # of two bytes each
    found = 0
    for at in _slices(len(halves), _STEP):
        part = halves[at]
        part = part[part & 1 == 0] >> 1
        halves[found : found + len(part)] = part
        found += len(part)
    return halves[:found]


def _transform(symbols: Symbols, suffixes: npt.NDArray[Any]) -> Symbols:
    """For each suffix the symbol before it; the text goes round."""
    before = np.empty_like(symbols)
    for at in _slices(len(symbols), _STEP):
        np.take(symbols, suffixes[at] - 1, out=before[at], mode="wrap")
    return before


def _write_level(order: Symbols, shift: int, starts: Counts | None, out: _Blocks) -> tuple[Vector, Symbols]:
    """A level of the wavelet matrix, and the order of the next one, where digits start at `starts`; None when there is none."""
    following = order if starts is None else np.empty_like(order)
    ends = np.zeros(4, np.int64) if starts is None else starts.copy()
    inside, blocks = [], []
    for at in _slices(len(order), DIGITS.block_values):
        part = order[at]
        digits = ((part >> shift) & 3).astype(np.uint8)
        info, counts = out.ranked(DIGITS, _packed_digits(digits), len(part))
        if starts is not None:
            ordered = part[np.argsort(digits, kind="stable")]
            for digit, piece in enumerate(np.split(ordered, np.cumsum(counts[:-1]))):
                following[ends[digit] : ends[digit] + len(piece)] = piece
            ends += counts
        inside.append(counts)
        blocks.append(info)
    return Vector(DIGITS, len(order), np.stack(inside), tuple(blocks)), following


def _write_bits(packed: Bytes, length: int, out: _Blocks) -> Vector:
    size = BITS.block_values // 8
    stored = [out.ranked(BITS, packed[at], min(BITS.block_values, length - 8 * at.start)) for at in _slices(len(packed), size)]
    return Vector(BITS, length, np.stack([counts for _, counts in stored]), tuple(info for info, _ in stored))


def _write_samples(samples: npt.NDArray[Any], out: _Blocks) -> Vector:
    blocks = tuple(out.block(samples[at].tobytes()) for at in _slices(len(samples), SAMPLES.block_values))
    return Vector(SAMPLES, len(samples), np.zeros((len(blocks), 0), np.int64), blocks)


def _packed_digits(digits: Bytes) -> Bytes:
    """Four digits to a byte, the first one lowest."""
    four = np.zeros(-(-len(digits) // 4), "<u4")
    four.view(np.uint8)[: len(digits)] = digits
    packed: Bytes = (four | four >> 6 | four >> 12 | four >> 18).astype(np.uint8)
    return packed


def _tallies(values: int) -> npt.NDArray[np.uint64]:
    """For each byte how often it holds each of these values of equal width: counts of 16 bits side by side, so that one sum adds all."""
    width = values.bit_length() - 1
    found = (np.arange(256)[:, None] >> np.arange(0, 8, width)) & (values - 1)
    return np.stack([(found == value).sum(axis=1) for value in range(4)], axis=1).astype(np.uint16).view(np.uint64)[:, 0]


_DIGIT_TALLIES, _BIT_TALLIES = _tallies(4), _tallies(2)


class _Blocks:
    """Stores blocks one behind the other."""

    def __init__(self, write: Callable[[Buffer], None], coding: Coding) -> None:
        self._write = write
        self.coding = coding
        self.offset = 0

    def plain(self, data: Buffer) -> None:
        """Bytes that are no block."""
        self._write(data)
        self.offset += len(data)

    def block(self, raw: Buffer) -> BlockInfo:
        """A block; returns where it lies."""
        info, stored = store(raw, self.offset, self.coding.compress)
        self.plain(stored)
        return info

    def ranked(self, kind: VectorKind, packed: Bytes, values: int) -> tuple[BlockInfo, Counts]:
        """A block of so many digits or bits; returns also how often it has each of those that are counted."""
        words = kind.words(values)
        data = np.zeros(words * _WORD, np.uint8)
        data[: len(packed)] = packed
        tallies = (_DIGIT_TALLIES if kind is DIGITS else _BIT_TALLIES)[data]
        grouped = np.add.reduceat(tallies, np.arange(0, len(data), GROUP_WORDS * _WORD)).view(np.uint16).reshape(-1, 4)
        prefixes = np.zeros((len(grouped) + 1, 4), np.int64)
        np.cumsum(grouped, axis=0, out=prefixes[1:])
        prefixes[-1, 0] -= words * kind.word_values - values  # what only fills the last word is no digit
        counted = prefixes if kind is DIGITS else prefixes[:, 1:2]
        head = _COUNTS.pack(words, len(prefixes))
        return self.block(b"".join((head, counted.astype(">i4").tobytes(), data.view("<u8").astype(">u8").tobytes()))), counted[-1]


def _slices(length: int, step: int) -> Iterator[slice]:
    return (slice(at, min(at + step, length)) for at in range(0, length, step))


def _parts(values: Iterable[ByteColumn]) -> Iterator[Bytes]:
    return (column.data[at] for column in values for at in _slices(len(column.data), _STEP))
