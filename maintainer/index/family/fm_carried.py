"""The first partitions of an older FM payload, copied into a new one instead of built (spec 09 §13).

    sources     | unchanged, from the first row on               | others
    partitions  | copied        | copied        | built from their rows …

A partition holds row ids and offsets, which count from the start of the payload, and it ends where the next value would not fit. So what is
before the first change is the same in a full build, byte for byte, and nothing behind it is: there, rows have other ids, and partitions start
at other rows. (Values behind it could be recovered from the payload; but that costs more than to read them from their files.)

Copied is what this build would make: partitions of the wanted sample rate and compression, that end where its limits have them end. By whom and
with which level a block was compressed cannot be seen. Every block is checked as it is copied.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np

from maintainer.errors import CorruptFile
from maintainer.format import fm_block
from maintainer.format.fm_decode import bits, decode_ranks
from maintainer.format.fm_encode import Coding, Limits
from maintainer.format.fm_layout import FOOTER_SIZE, Partition, PartitionDirectory, PartitionFooter
from maintainer.format.stored_block import NONE
from maintainer.index.family.fm_reader import FMReader
from maintainer.index.payload import Move

_READ = 1 << 20


@dataclass(frozen=True)
class CarriedPartitions:
    """Partitions from the first one on, and the moves of which they have all rows."""

    reader: FMReader
    partitions: tuple[Partition, ...]
    moves: tuple[Move, ...]

    def stored(self, partition: Partition) -> Iterator[bytes]:
        """The bytes of a partition."""
        source = self.reader.source
        waiting: list[fm_block.BlockInfo] = []
        for info in self.reader.directory(partition).blocks:
            if waiting and info.end - waiting[0].offset > _READ:
                yield _checked(source.range(waiting[0].offset, info.offset - waiting[0].offset), waiting)
                waiting = []
            waiting.append(info)
        end = waiting[-1].end
        yield _checked(source.range(waiting[0].offset, end - waiting[0].offset), waiting)
        rest = source.range(end, partition.end - end)
        directory = PartitionFooter.decode(rest[-FOOTER_SIZE:], partition).directory
        if directory.offset != end:
            raise CorruptFile("an FM partition has changed while it was copied", offset=end)
        yield _checked(rest, [directory])


def carried_partitions(reader: FMReader, moves: Sequence[Move], limits: Limits, coding: Coding) -> CarriedPartitions | None:
    """The partitions of a payload that its rows, when they have moved so, have in a build with these limits; None when there are none."""
    unchanged = 0
    for old, new, rows in sorted(moves):
        if not old == new == unchanged:
            break
        unchanged += rows
    kept: list[Partition] = []
    for place, following in zip_longest(reader.places, reader.places[1:]):
        end = place.first_row + place.rows
        if end > unchanged:
            break
        directory = reader.directory(place)
        if not _is_of(directory, limits, coding):
            break
        if place.rows < limits.rows:
            if following is None or end == unchanged:
                break  # it ended with the rows, or by a row that is another one now
            if directory.length + _first_length(reader, following) + 1 <= limits.symbols:
                break
        kept.append(place)
    if not kept:
        return None
    end = kept[-1].first_row + kept[-1].rows
    return CarriedPartitions(reader, tuple(kept), tuple(move for move in moves if move.old == move.new and move.new + move.rows <= end))


def _is_of(directory: PartitionDirectory, limits: Limits, coding: Coding) -> bool:
    codecs = {NONE} if coding.compress is None else {NONE, coding.compress.number}
    fits = directory.rows <= limits.rows and directory.length <= (limits.size if directory.rows == 1 else limits.symbols)
    return fits and directory.rate == coding.rate and all(info.codec in codecs for info in directory.blocks)


def _first_length(reader: FMReader, partition: Partition) -> int:
    """How many bytes the first row of a partition has."""
    vector = reader.directory(partition).boundaries
    block = int(np.flatnonzero(vector.inside[:, 0])[0])
    raw = reader.load(vector.blocks[block])
    values = vector.values(block)
    words = decode_ranks(vector.kind, raw, values, vector.inside[block], vector.blocks[block].offset).words
    return block * vector.kind.block_values + int(bits(words, values).argmax())


def _checked(data: bytes, blocks: Sequence[fm_block.BlockInfo]) -> bytes:
    for info in blocks:
        start = info.offset - blocks[0].offset
        if fm_block.checksum(data[start : start + info.stored_size], info.codec) != info.checksum:
            raise CorruptFile("the checksum of a block does not match", offset=info.offset)
    return data
