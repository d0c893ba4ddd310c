"""The layout of an FM payload: footers, metadata and directories (spec 09 §4, §6, §7; Java `FMIndexFile`).

    partition 0 | partition 1 | … | container directory | container footer

    partition = wavelet levels | sampled rows | samples | null rows | row boundaries | partition directory | partition footer

Blocks follow one another in exactly this order from offset 0 on, without gaps. A payload is read from its end. All numbers are big-endian.

| container footer | partition footer                          | field                                                       |
| ---------------- | ----------------------------------------- | ----------------------------------------------------------- |
| 24 block info    | 24 block info                             | directory, which ends where the footer starts               |
| 8                | 8                                         | first row id                                                |
| 8, 4             | 4, 4, 4                                   | rows, partitions / rows, length of the text, sample rate    |
| 4, 4, 4, 4, 4    | 4, 4, 4, 4, 4                             | flags 7, reserved 0, version 1, magic, checksum of all before |

The container directory is the metadata that the index manifest holds, too: magic, version 1, int64 first row id, int64 rows, int32 partitions,
for each int64 start, int64 end, int64 first row id, int32 rows; then the checksum of all before.

| partition directory | field                                                                                                          |
| ------------------- | -------------------------------------------------------------------------------------------------------------- |
| 6 × 4               | rows, length of the text, sample rate (as in the footer), levels, symbols, 4096                                |
| 256 × 4             | symbol of each byte, −1 where it does not occur; ascending from 2 (0 ends the text, 1 ends a row)              |
| (symbols + 1) × 4   | how many symbols of the text are smaller; the last is the length of the text                                   |
| per level           | 4 × int32 where each digit starts, then its vector (`maintainer.format.fm_vector`)                             |
| 4 vectors           | sampled rows (a bit per symbol), samples, null rows (a bit per row), row boundaries (a bit per symbol)         |
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import numpy as np
import numpy.typing as npt

from maintainer.errors import CorruptFile, Unsupported
from maintainer.format.fm_block import INFO, MAX_DIRECTORY, BlockInfo, checksum
from maintainer.format.fm_vector import BITS, BLOCK_WORDS, DIGITS, SAMPLES, Counts, Vector, VectorKind
from maintainer.format.stored_block import Buffer

CONTAINER_MAGIC, PARTITION_MAGIC, METADATA_MAGIC = 0x464D4958, 0x464D4950, 0x464D4D45
VERSION = 1
FLAGS = 7  # value-sampled suffix array, dense quaternary wavelet, row ids from separators
FOOTER_SIZE = 64
MAX_METADATA = 16 << 20
MAX_RATE = 1024
TERMINATOR, SEPARATOR, FIRST_BYTE = range(3)
"""The symbol that ends a text, the one that ends a row, and that of the smallest byte value that occurs."""
MAX_LENGTH = 2**31 - 1

_CONTAINER = struct.Struct(f">{INFO.size}sqqiiiii")
_PARTITION = struct.Struct(f">{INFO.size}sqiiiiiii")
_METADATA = struct.Struct(">iiqqi")
_RANGE = struct.Struct(">qqqi")
_CRC = struct.Struct(">I")
_HEADER = struct.Struct(">6i")


# Footers and metadata


def _seal(body: bytes) -> bytes:
    return body + _CRC.pack(checksum(body))


def _check_seal(what: str, data: Buffer, magic: int, expected_magic: int, version: int) -> None:
    """In Java's order, so that a later version is told apart from a damaged one."""
    if magic != expected_magic:
        raise CorruptFile(f"not {what} of an FM payload: magic {magic & 0xFFFFFFFF:08x}")
    if version != VERSION:
        raise Unsupported(f"{what} of an FM payload has version {version}; version {VERSION} is supported")
    if checksum(data[: -_CRC.size]) != _CRC.unpack_from(data, len(data) - _CRC.size)[0]:
        raise CorruptFile(f"the checksum of {what} of an FM payload does not match")


def _check_flags(what: str, flags: int, reserved: int) -> None:
    if flags != FLAGS:
        raise Unsupported(f"{what} of an FM payload has the feature flags {flags}; only {FLAGS} is supported")
    if reserved:
        raise CorruptFile(f"{what} of an FM payload has a reserved field that is not zero")


@dataclass(frozen=True)
class ContainerFooter:
    """The last 64 bytes of a payload."""

    directory: BlockInfo
    first_row: int
    rows: int
    partitions: int

    def encode(self) -> bytes:
        return _seal(
            _CONTAINER.pack(
                self.directory.encode(), self.first_row, self.rows, self.partitions, FLAGS, 0, VERSION, CONTAINER_MAGIC
            )
        )  # fmt: skip

    @classmethod
    def decode(cls, data: bytes, size: int) -> ContainerFooter:
        """From the last bytes of a payload of `size` bytes."""
        if len(data) != FOOTER_SIZE or size < FOOTER_SIZE:
            raise CorruptFile(f"an FM payload cannot have {size} bytes")
        info, first_row, rows, partitions, flags, reserved, version, magic = _CONTAINER.unpack_from(data)
        _check_seal("the footer", data, magic, CONTAINER_MAGIC, version)
        _check_flags("the footer", flags, reserved)
        _check_rows(first_row, rows, partitions)
        directory = BlockInfo.decode(info, 0, limit=MAX_DIRECTORY, end=size - FOOTER_SIZE)
        if directory.end != size - FOOTER_SIZE:
            raise CorruptFile("the directory of an FM payload does not end at its footer", offset=directory.offset)
        return cls(directory, first_row, rows, partitions)


def _check_rows(first_row: int, rows: int, partitions: int) -> None:
    if first_row < 0 or rows <= 0 or first_row + rows > 2**63 - 1 or not 0 < partitions <= rows:
        raise CorruptFile(f"an FM payload cannot have {rows} rows from {first_row} on in {partitions} partitions")


@dataclass(frozen=True)
class PartitionFooter:
    """The last 64 bytes of a partition."""

    directory: BlockInfo
    first_row: int
    rows: int
    length: int
    rate: int

    def encode(self) -> bytes:
        return _seal(
            _PARTITION.pack(
                self.directory.encode(), self.first_row, self.rows, self.length, self.rate, FLAGS, 0, VERSION, PARTITION_MAGIC
            )
        )  # fmt: skip

    @classmethod
    def decode(cls, data: bytes, partition: Partition) -> PartitionFooter:
        """From the last bytes of this partition."""
        if len(data) != FOOTER_SIZE:
            raise CorruptFile("the footer of an FM partition is cut off", offset=partition.end)
        info, first_row, rows, length, rate, flags, reserved, version, magic = _PARTITION.unpack_from(data)
        _check_seal("the footer of a partition", data, magic, PARTITION_MAGIC, version)
        _check_flags("the footer of a partition", flags, reserved)
        at = partition.end - FOOTER_SIZE
        if (first_row, rows) != (partition.first_row, partition.rows):
            raise CorruptFile("the footer of an FM partition has other rows than the metadata", offset=at)
        if not rows < length or not 1 <= rate <= MAX_RATE or rate & (rate - 1):
            raise CorruptFile(f"an FM partition of {rows} rows cannot have {length} symbols and the sample rate {rate}", offset=at)
        directory = BlockInfo.decode(info, 0, limit=MAX_DIRECTORY, end=at)
        if directory.end != at or directory.offset < partition.start:
            raise CorruptFile("the directory of an FM partition is not where it belongs", offset=directory.offset)
        return cls(directory, first_row, rows, length, rate)


@dataclass(frozen=True)
class Partition:
    """Where a partition lies, footer included, and which rows it has."""

    start: int
    end: int
    first_row: int
    rows: int


@dataclass(frozen=True)
class Metadata:
    """All partitions of a payload: its directory, and the metadata of the index manifest."""

    first_row: int
    rows: int
    partitions: tuple[Partition, ...]

    def encode(self) -> bytes:
        head = _METADATA.pack(METADATA_MAGIC, VERSION, self.first_row, self.rows, len(self.partitions))
        return _seal(head + b"".join(_RANGE.pack(part.start, part.end, part.first_row, part.rows) for part in self.partitions))

    @classmethod
    def decode(cls, data: bytes) -> Metadata:
        if not _METADATA.size + _CRC.size <= len(data) <= MAX_METADATA:
            raise CorruptFile(f"metadata of an FM payload cannot have {len(data)} bytes")
        magic, version, first_row, rows, count = _METADATA.unpack_from(data)
        _check_seal("the metadata", data, magic, METADATA_MAGIC, version)
        _check_rows(first_row, rows, count)
        if len(data) != _METADATA.size + count * _RANGE.size + _CRC.size:
            raise CorruptFile(f"metadata of {count} FM partitions cannot have {len(data)} bytes")
        partitions = tuple(Partition(*fields) for fields in _RANGE.iter_unpack(data[_METADATA.size : -_CRC.size]))
        end, row = 0, first_row
        for part in partitions:
            if part.start != end or part.end - part.start < FOOTER_SIZE or part.first_row != row or part.rows <= 0:
                raise CorruptFile("the partitions of an FM payload do not follow one another", offset=part.start)
            end, row = part.end, row + part.rows
        if row != first_row + rows:
            raise CorruptFile(f"the partitions of an FM payload have {row - first_row} rows, not {rows}")
        return cls(first_row, rows, partitions)


# Partition directory


def level_count(symbols: int) -> int:
    """How many digits of two bits a symbol has."""
    return max(1, ((symbols - 1).bit_length() + 1) // 2)


def sample_count(length: int, rate: int) -> int:
    """How many suffixes are sampled."""
    return (length - 1) // rate + 1


def digit_counts(smaller: Counts) -> Counts:
    """How often each digit occurs in each level: an array (levels, 4)."""
    symbols = len(smaller) - 1
    levels = level_count(symbols)
    shifts = 2 * np.arange(levels - 1, -1, -1)
    digits = (np.arange(symbols) >> shifts[:, None]) & 3
    occurrences = np.diff(smaller)
    return np.stack([np.bincount(row, occurrences, 4).astype(np.int64) for row in digits])


def digit_starts(counts: Counts) -> Counts:
    """Where each digit of a level starts in the next one."""
    return np.cumsum(counts, axis=-1) - counts


@dataclass(frozen=True, eq=False)
class PartitionDirectory:
    """All of a partition but its blocks. `symbols` has the symbol of each byte, `smaller` the cumulative counts of symbols."""

    rows: int
    length: int
    rate: int
    symbols: npt.NDArray[np.int32]
    smaller: Counts
    levels: tuple[Vector, ...]
    sampled: Vector
    samples: Vector
    nulls: Vector
    boundaries: Vector

    @cached_property
    def starts(self) -> Counts:
        """Where each digit of a level starts in the next one: an array (levels, 4)."""
        return digit_starts(digit_counts(self.smaller))

    @property
    def vectors(self) -> tuple[Vector, ...]:
        """All vectors in the order of their blocks."""
        return (*self.levels, self.sampled, self.samples, self.nulls, self.boundaries)

    @property
    def blocks(self) -> Iterator[BlockInfo]:
        """All blocks, in order."""
        return chain.from_iterable(vector.blocks for vector in self.vectors)

    def encode(self) -> bytes:
        symbols = len(self.smaller) - 1
        parts = [
            _HEADER.pack(self.rows, self.length, self.rate, len(self.levels), symbols, BLOCK_WORDS),
            self.symbols.astype(">i4").tobytes(),
            self.smaller.astype(">i4").tobytes(),
        ]
        for starts, level in zip(self.starts, self.levels, strict=True):
            parts += (starts.astype(">i4").tobytes(), level.encode())
        parts += (vector.encode() for vector in (self.sampled, self.samples, self.nulls, self.boundaries))
        return b"".join(parts)

    @classmethod
    def decode(cls, data: bytes, footer: PartitionFooter, start: int) -> PartitionDirectory:
        """The directory of the partition that starts at this offset and has this footer."""
        rows, length, rate, end = footer.rows, footer.length, footer.rate, footer.directory.offset
        at = _HEADER.size
        if len(data) < at + 4 * 256:
            raise CorruptFile("the directory of an FM partition is cut off", offset=end)
        *repeated, levels, count, words = _HEADER.unpack_from(data)
        if repeated != [rows, length, rate]:
            raise CorruptFile("the directory of an FM partition contradicts its footer", offset=end)
        if not FIRST_BYTE <= count <= FIRST_BYTE + 256 or levels != level_count(count) or words != BLOCK_WORDS:
            raise CorruptFile(f"an FM partition of {count} symbols, {levels} levels and blocks of {words} words", offset=end)
        symbols = np.frombuffer(data, ">i4", 256, at).astype(np.int32)
        present = symbols[symbols != -1]
        if len(present) != count - FIRST_BYTE or bool((present != np.arange(FIRST_BYTE, count)).any()):
            raise CorruptFile("the symbols of an FM partition are not those of its bytes", offset=end)
        at += 4 * 256
        if len(data) < at + 4 * (count + 1):
            raise CorruptFile("the directory of an FM partition is cut off", offset=end)
        smaller = np.frombuffer(data, ">i4", count + 1, at).astype(np.int64)
        at += 4 * (count + 1)
        if list(smaller[:3]) != [0, 1, rows + 1] or smaller[-1] != length or bool((np.diff(smaller) <= 0).any()):
            raise CorruptFile("the counts of symbols of an FM partition are impossible", offset=end)
        counts = digit_counts(smaller)
        starts = digit_starts(counts)
        vectors: list[Vector] = []

        def take(kind: VectorKind, values: int) -> Vector:
            nonlocal at
            offset = next((vector.blocks[-1].end for vector in reversed(vectors)), start)
            vector, at = Vector.decode(kind, values, data, at, offset, end)
            vectors.append(vector)
            return vector

        for level in range(levels):
            if len(data) < at + 16 or bool((np.frombuffer(data, ">i4", 4, at) != starts[level]).any()):
                raise CorruptFile(f"the digits of wavelet level {level} start elsewhere", offset=end)
            at += 16
            if bool((take(DIGITS, length).totals != counts[level]).any()):
                raise CorruptFile(f"wavelet level {level} has other digits than its symbols", offset=end)
        sampled = take(BITS, length)
        samples = take(SAMPLES, sample_count(length, rate))
        nulls = take(BITS, rows)
        boundaries = take(BITS, length)
        if sampled.totals[0] != samples.length or boundaries.totals[0] != rows:
            raise CorruptFile("the bits of an FM partition are not as many as its samples or rows", offset=end)
        if at != len(data) or boundaries.blocks[-1].end != end:
            raise CorruptFile("the directory of an FM partition has more than its vectors", offset=end)
        return cls(rows, length, rate, symbols, smaller, tuple(vectors[:levels]), sampled, samples, nulls, boundaries)
