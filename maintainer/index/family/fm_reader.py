"""How an FM payload answers predicates (spec 09 §9–§11; Java `FMGlobalIndexReader`, `FMIndexReadContext`).

| predicate                      | answer                                                                    |
| ------------------------------ | ------------------------------------------------------------------------- |
| IS [NOT] NULL                  | exact                                                                     |
| =, IN                          | the rows that are the needle: it is searched between two ends of rows     |
| startsWith, endsWith, contains | the rows that have the needle, which may be any bytes, at such a place    |
| LIKE                           | the rows that have the texts between its wildcards, at their places       |
| with null                      | none                                                                      |
| everything else                | unknown                                                                   |

Rows are found from the interval of suffixes that start with a needle, and to locate each suffix costs steps. A partition *declines* a needle
that occurs too often: unless `occurrences × sample rate < fm-index.locate-cost-ratio × bytes of values`. All its rows may match then, and the
other partitions narrow; if all decline, the answer is unknown. A needle that does not occur at all is never declined; of several needles that
all must occur, those that are not declined narrow, the rarest first.

    fm-index.read-cache-size     64 mb    what is held of a payload; too little for one block: every needle is declined
    fm-index.demand-page-size    512 kb   how much of a vector is read at once
    fm-index.locate-cost-ratio   0.001    see above

A search takes a step for each byte. Of a needle of more than 1024 bytes only so many are looked for, at its end or for startsWith at its start;
rows that differ before or behind them are found, too.

Nothing is read but the footers and directories of the partitions that are asked, and the pages of blocks in which a search comes by.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap64

from maintainer.errors import CorruptFile
from maintainer.format import fm_block, posting
from maintainer.format.fm_layout import FOOTER_SIZE, ContainerFooter, Metadata, PartitionDirectory, PartitionFooter
from maintainer.format.fm_layout import Partition as Place
from maintainer.format.fm_vector import DIGITS
from maintainer.format.stored_block import TAIL_SIZE, PayloadBytes, ReadRange
from maintainer.index.definition import IndexDefinition
from maintainer.index.family.fm_partition import END_OF_ROW, END_OF_TEXT, Codes, Partition
from maintainer.index.family.fm_ranks import Pages
from maintainer.index.family.fm_text import recover
from maintainer.index.options import memory_size, number
from maintainer.model.like import literal_parts
from maintainer.model.predicate import Leaf, Op

READ_CACHE_SIZE = "fm-index.read-cache-size"
DEMAND_PAGE_SIZE = "fm-index.demand-page-size"
LOCATE_COST_RATIO = "fm-index.locate-cost-ratio"
LEAST_CACHE = DIGITS.size(DIGITS.block_values) - 8
"""Java's size of one decoded block."""
LONGEST = 1024
"""Codes of a needle that are looked for."""
_SEARCHED = 1 << 20
"""Codes of needles that are searched at once."""
_ROWS = 1 << 16

Needles = tuple[Codes, ...]
"""Of which one must occur."""


@dataclass(frozen=True)
class Question:
    """What is asked of each row: one of the needles of each of `terms`; and whether it is null (None: no matter)."""

    terms: tuple[Needles, ...] = ()
    null: bool | None = None
    never: bool = False

    def __and__(self, other: Question) -> Question:
        contradiction = None not in (self.null, other.null) and self.null is not other.null
        null = other.null if self.null is None else self.null
        return Question(self.terms + other.terms, null, self.never or other.never or contradiction)


class Partitions:
    """The partitions of a payload that are held between questions. All are asked in turn, so those that came first stay."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.size = 0
        """Bytes that are held."""
        self._held: dict[int, tuple[Partition, int]] = {}

    def get(self, index: int) -> Partition | None:
        """The partition, if it is held."""
        found = self._held.get(index)
        return None if found is None else found[0]

    def keep(self, index: int, partition: Partition, limit: int) -> None:
        """Hold a partition, which was asked and may have grown, unless there would be more than `limit` bytes."""
        _, before = self._held.pop(index, (None, 0))
        self.size -= before
        size = partition.size
        if self.size + size <= limit:
            self._held[index] = partition, size
            self.size += size


class FMReader:
    """Answers from the blocks that a search comes by."""

    answered: ClassVar = frozenset({Op.IS_NULL, Op.IS_NOT_NULL})

    def __init__(self, read: ReadRange, size: int, definition: IndexDefinition, index_meta: bytes | None, total_rows: int) -> None:
        self._meta = index_meta
        self._total = total_rows
        options = definition.options
        self._memory = memory_size(options, READ_CACHE_SIZE, 64 << 20)
        self._page_size = min(memory_size(options, DEMAND_PAGE_SIZE, 512 << 10), self._memory)
        self._ratio = number(options, LOCATE_COST_RATIO, 0.001)
        self.definition = definition
        self.source = PayloadBytes(read, size)
        self._kept = self.source.kept.limited(self._memory)
        self._most_held = min(self._memory, self._kept.cache.limit // 2)

    def evaluate(self, leaf: Leaf) -> BitMap64 | None:
        """See `FamilyReader.evaluate`."""
        return self.evaluate_all((leaf,))

    def why_not(self, leaf: Leaf) -> str:
        """See `FamilyReader.why_not`."""
        return f"does not answer {leaf.op}" if _question(leaf) is None else f"has it too often to be better than reading ({LOCATE_COST_RATIO})"

    def evaluate_all(self, leaves: Iterable[Leaf]) -> BitMap64 | None:
        """The ordinals of all rows that satisfy all leaves, and perhaps some more; None when this payload cannot answer any of them."""
        questions = [question for leaf in leaves if (question := _question(leaf)) is not None]
        if not questions:
            return None
        asked = questions[0]
        for question in questions[1:]:
            asked &= question
        if asked.never:
            return BitMap64()
        if asked.terms and self._memory < LEAST_CACHE:
            if asked.null is None:
                return None
            asked = Question(null=asked.null)
        result = BitMap64()
        answered = False
        held = self._kept.made("partitions", lambda: (Partitions(), 0))
        with held.lock:
            for index, place in enumerate(self.places):
                partition = held.get(index) or self._partition(place)
                rows = self._rows(partition, asked)
                held.keep(index, partition, self._most_held)
                answered |= rows is not None
                if rows is None:
                    result.add_range(place.first_row, place.first_row + place.rows)
                elif rows:
                    result |= rows.shift(place.first_row)
            self._kept.put("partitions", held, held.size)
        return result if answered else None

    def _rows(self, partition: Partition, asked: Question) -> BitMap64 | None:
        """Which rows of a partition may satisfy the question; None when it declines."""
        nulls = BitMap64() if asked.null is None else partition.null_rows()
        if asked.null:
            return nulls
        if not asked.terms:
            rows = BitMap64()
            rows.add_range(0, partition.directory.rows)
            return rows - nulls
        found = self._search(partition, asked.terms)
        return None if found is None else posting.to_bitmap(np.flatnonzero(found)) - nulls

    def _search(self, partition: Partition, terms: Sequence[Needles]) -> npt.NDArray[np.bool_] | None:
        directory = partition.directory
        intervals = [_intervals(partition, needles) for needles in terms]
        intervals.sort(key=lambda found: sum(high - low for _, low, high in found))
        rows = np.ones(directory.rows, np.bool_)
        answered = False
        for found in intervals:
            if not found:
                return np.zeros(directory.rows, np.bool_)
        for found in intervals:
            occurrences = sum(high - low for first, low, high in found if first != END_OF_TEXT)
            if occurrences and not occurrences * directory.rate < self._ratio * (directory.length - directory.rows - 1):
                break  # those that follow occur more often
            answered = True
            here = np.zeros(directory.rows, np.bool_)
            for first, low, high in found:
                if first == END_OF_TEXT:  # it is the start of the first row
                    here[0] = True
                else:
                    partition.mark(here, low, high, after=first == END_OF_ROW)
            rows &= here
            if not rows.any():
                break
        return rows if answered else None

    def values(self) -> Iterator[pa.LargeBinaryArray]:
        """The values of each partition, read as a whole and checked."""
        for place in self.places:
            directory = self.directory(place)
            yield recover(directory, Pages(self.source.range, self._page_size, 0))

    def batches(self) -> Iterator[tuple[Sequence[bytes], npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
        """See `FamilyReader.batches`."""
        for place, values in zip(self.places, self.values(), strict=True):
            for start in range(0, len(values), _ROWS):
                part = values.slice(start, _ROWS)
                ids = np.flatnonzero(part.is_valid()) + (place.first_row + start)
                if len(ids):
                    yield part.drop_null().to_pylist(), ids, np.ones(len(ids), np.int64)

    def verify(self) -> list[str]:
        """See `FamilyReader.verify`. Whatever is wrong is `CorruptFile`."""
        for _ in self.values():
            pass
        return []

    @cached_property
    def places(self) -> tuple[Place, ...]:
        """Where the partitions are: as the container says, and the same as the index manifest."""
        return self._kept.made("metadata", self._metadata).partitions

    def _metadata(self) -> tuple[Metadata, int]:
        source = self.source
        if not self._meta:
            raise CorruptFile("an FM payload has no metadata in the index manifest")
        promised = Metadata.decode(self._meta)
        if (promised.first_row, promised.rows) != (0, self._total):
            raise CorruptFile(f"an FM payload has {promised.rows} rows from {promised.first_row} on, its sources have {self._total}")
        if source.size < FOOTER_SIZE:
            raise CorruptFile(f"an FM payload cannot have {source.size} bytes")
        footer = ContainerFooter.decode(source.range(source.size - FOOTER_SIZE, FOOTER_SIZE), source.size)
        found = Metadata.decode(self.load(footer.directory))
        if found != promised:
            raise CorruptFile("the metadata of an FM payload in the index manifest is not that of the file")
        if (found.first_row, found.rows, len(found.partitions)) != (footer.first_row, footer.rows, footer.partitions):
            raise CorruptFile("the footer of an FM payload contradicts its directory")
        if found.partitions[-1].end != footer.directory.offset:
            raise CorruptFile("the partitions of an FM payload do not end at its directory", offset=footer.directory.offset)
        return found, 200 * len(found.partitions)

    def _partition(self, place: Place) -> Partition:
        return Partition(self.directory(place), self.source.range, self._page_size, self._memory)

    def directory(self, place: Place) -> PartitionDirectory:
        """All of a partition but its blocks. Mostly by one read: it is at the end of the partition."""
        start = max(place.start, place.end - TAIL_SIZE)
        tail = self.source.range(start, place.end - start)
        footer = PartitionFooter.decode(tail[-FOOTER_SIZE:], place)
        info = footer.directory
        raw = fm_block.load(info, tail[info.offset - start : info.end - start]) if info.offset >= start else self.load(info)
        return PartitionDirectory.decode(raw, footer, place.start)

    def load(self, info: fm_block.BlockInfo) -> bytes:
        """The raw bytes of a block."""
        return fm_block.load(info, self.source.range(info.offset, info.stored_size))


def _intervals(partition: Partition, needles: Needles) -> list[tuple[int, int, int]]:
    """First code, start and end of the suffixes that start with each needle, of those that occur."""
    result: list[tuple[int, int, int]] = []
    start = 0
    while start < len(needles):
        stop, size = start, 0
        while stop < len(needles) and (stop == start or size + len(needles[stop]) <= _SEARCHED):
            size += len(needles[stop])
            stop += 1
        lows, highs = partition.intervals(needles[start:stop])
        found = np.flatnonzero(lows < highs)
        result += zip([int(needles[start + i][0]) for i in found.tolist()], lows[found].tolist(), highs[found].tolist(), strict=True)
        start = stop
    return result


def _question(leaf: Leaf) -> Question | None:
    """What a leaf asks; None when it cannot be asked."""
    if leaf.negated:
        return None
    match leaf.op:
        case Op.IS_NULL | Op.IS_NOT_NULL:
            return Question(null=leaf.op is Op.IS_NULL)
        case Op.EQ | Op.IN:
            return _equal(leaf.literals)
        case Op.STARTS_WITH | Op.ENDS_WITH | Op.CONTAINS | Op.LIKE if leaf.literal is None:
            return Question(never=True)
        case Op.STARTS_WITH:
            return _in_order([leaf.literal, ""])
        case Op.ENDS_WITH:
            return _in_order(["", leaf.literal])
        case Op.CONTAINS:
            return _in_order(["", leaf.literal, ""])
        case Op.LIKE:
            parts = literal_parts(leaf.literal)
            return _in_order(parts) if len(parts) > 1 else _equal(parts)
        case _:
            return None


def _equal(values: Sequence[Any]) -> Question | None:
    """Rows that are one of these values."""
    found = {_bytes(value) for value in values if value is not None}
    if None in found:
        return None
    if not found:
        return Question(never=True)
    needles: list[Codes] = []
    for value in sorted(text for text in found if text is not None):
        if len(value) + 2 <= LONGEST:
            needles += (_codes(before, value, END_OF_ROW) for before in (END_OF_ROW, END_OF_TEXT))
        else:
            needles.append(_codes(value[-LONGEST:], END_OF_ROW)[1:])
    return Question((tuple(needles),), null=False if b"" in found else None)


def _in_order(parts: Sequence[Any]) -> Question | None:
    """Rows that start with the first part, end with the last one, and have the others."""
    texts = [_bytes(part) for part in parts]
    if None in texts:
        return None
    start, *middle, end = (text or b"" for text in texts)
    terms: list[Needles] = []
    if start:
        terms.append(tuple(_codes(before, start[: LONGEST - 1]) for before in (END_OF_ROW, END_OF_TEXT)))
    if end:
        terms.append((_codes(end[1 - LONGEST :], END_OF_ROW),))
    terms += [(_codes(text[-LONGEST:]),) for text in dict.fromkeys(middle) if text]
    return Question(tuple(terms), null=None if terms else False)


def _bytes(value: Any) -> bytes | None:
    """The bytes that are stored for a text; None for what is no text."""
    if isinstance(value, bytes):
        return value
    try:
        return value.encode() if isinstance(value, str) else None
    except UnicodeEncodeError:
        return None


def _codes(*parts: bytes | int) -> Codes:
    return np.concatenate([[part] if isinstance(part, int) else np.frombuffer(part, np.uint8) for part in parts]).astype(np.uint16)
