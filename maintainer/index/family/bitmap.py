"""The Bitmap family: a roaring bitmap per distinct value, found through a dictionary (spec 08 §7; bytes in `maintainer.format.bitmap_index`).

Dictionaries are in logical order, as Java 2 writes and expects them. pypaimon 2.1 looks keys up by the order of their bytes and loses rows
where the two orders differ. So, unless the table option `maintain.bitmap-peer-blocks` is `off` (default `auto`), a payload whose keys are in
different orders gets one entry per dictionary block, which both find, as long as there are at most 100 000 keys (spec 08 §7.6). With `off` the
bytes are Java's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from maintainer.errors import CorruptFile
from maintainer.format import index_meta, key_bytes, posting
from maintainer.format.bitmap_entries import read_entries
from maintainer.format.bitmap_file import BitmapFile, Dictionary
from maintainer.format.bitmap_index import DEFAULT_BLOCK_SIZE, ONE_ENTRY, BitmapWriter
from maintainer.format.index_meta import IndexMeta
from maintainer.format.key_bytes import Comparable
from maintainer.format.made_once import made_once
from maintainer.format.row_set import RowSet
from maintainer.format.stored_block import PayloadBytes, ReadRange, Sink
from maintainer.index.definition import IndexDefinition
from maintainer.index.family.carried import Carried, Older, carried
from maintainer.index.family.key_runs import KeyBatch
from maintainer.index.family.ordering import DEFAULT_RESOURCES, LargeKey, Values, each_row_once, in_key_order
from maintainer.index.family.postings import Entries, FirstEntries, posted
from maintainer.index.family.sorted import SortedReader, after_prefix
from maintainer.index.options import block_compressor, check_keys, memory_size, peer_blocks
from maintainer.index.payload import BuiltPayload, Move, PayloadOutput, Resources, Rows
from maintainer.model.like import check_pattern, regular_expression
from maintainer.model.predicate import Leaf, Op
from maintainer.model.types import DataType

if TYPE_CHECKING:
    from maintainer.index.family import FamilyReader

PREFIX = "bitmap-index."
TAKES = "a column of a scalar type"
MAX_PEER_KEYS = 100_000


def validate(column: str, data_type: DataType, options: Mapping[str, str]) -> None:
    """See `Family.validate`."""
    check_keys(PREFIX, "dictionary-block-size", column, data_type, options)
    peer_blocks(options)


def build(
    rows: Iterable[Rows],
    definition: IndexDefinition,
    total_rows: int,
    sink: Sink,
    resources: Resources = DEFAULT_RESOURCES,
    carried: Any = None,
) -> BuiltPayload:
    """See `Family.build`."""
    values = Values(rows, definition.data_type, total_rows, carried)
    with in_key_order(values, definition.data_type, resources, values.carried) as keys:
        return build_keys(keys, values.null_rows, definition, total_rows, sink, resources)


def build_keys(
    keys: Iterable[KeyBatch | LargeKey], null_rows: RowSet, definition: IndexDefinition, total_rows: int, sink: Sink, resources: Resources
) -> BuiltPayload:
    """See `SortedFamily.build_keys`."""
    output = PayloadOutput(sink)
    block_size = memory_size(definition.options, f"{PREFIX}dictionary-block-size", DEFAULT_BLOCK_SIZE)
    first = last = None
    with ExitStack() as stack:
        entries: Iterator[Entries] = map(posted, each_row_once(keys, null_rows, total_rows))
        if peer_blocks(definition.options) and not key_bytes.bytes_are_ordered(definition.data_type):
            ahead = stack.enter_context(FirstEntries(entries, MAX_PEER_KEYS, resources))
            entries = iter(ahead)
            if ahead.are_all and not ahead.in_byte_order:
                block_size = ONE_ENTRY
        writer = BitmapWriter(output.write, block_size, block_compressor(definition.options, PREFIX))
        for batch, postings in entries:
            writer.add(batch, postings)
            first = batch[0] if first is None else first
            last = batch[-1]
    writer.finish(null_rows.encode(), null_rows.complement(total_rows).encode())
    return output.built(total_rows, index_meta.encode(IndexMeta(first, last, bool(null_rows))))


def carry(reader: FamilyReader, moves: Sequence[Move]) -> Carried | None:
    """See `Family.carry`."""
    assert isinstance(reader, BitmapReader)
    older = reader.older()
    return None if older is None else carried(older, moves)


def open(read: ReadRange, size: int, definition: IndexDefinition, index_meta: bytes | None, total_rows: int) -> BitmapReader:  # noqa: A001
    """See `Family.open`."""
    return BitmapReader(read, size, definition, index_meta, total_rows)


class BitmapReader(SortedReader):
    """Answers from the dictionary and the postings of the keys that match."""

    def __init__(self, read: ReadRange, size: int, definition: IndexDefinition, meta: bytes | None, total_rows: int) -> None:
        super().__init__(size, definition, meta, total_rows)
        self._source = PayloadBytes(read, size)

    @made_once
    def _file(self) -> BitmapFile:
        return BitmapFile(self._source, self._type)

    def older(self) -> Older | None:
        """The payload as a new one may be built from it; None when nothing says which keys it has."""
        if self._meta is None:
            return None
        file = self._file
        return Older(read_entries(file, self._total), file.null_rows, self._meta, self._total, self._type)

    def _null_rows(self) -> BitMap64:
        file = self._file
        # The two bitmaps have no checksum, but must be each other's complement.
        if len(file.null_rows) + len(file.rows) != self._total or file.null_rows & file.rows:
            raise CorruptFile("null and non-null rows of a bitmap payload do not make up all rows")
        return file.null_rows

    def _lookup(self, keys: Iterable[bytes]) -> BitMap64:
        result = BitMap64()
        for rows in self._file.bitmaps(keys):
            result |= rows
        return self._with_value_only(result)

    def _between(self, low: Comparable | None, low_inclusive: bool, high: Comparable | None, high_inclusive: bool) -> BitMap64:
        def inside(key: bytes) -> bool:
            value = self._comparable(key)
            if low is not None and (value < low or (value == low and not low_inclusive)):
                return False
            return high is None or value < high or (value == high and high_inclusive)

        return self._select(lambda found: np.fromiter((inside(entry.key) for entry in found), bool, len(found)), low, high)

    def _starting_with(self, prefix: bytes) -> BitMap64:
        return self._select(lambda found: _flags(pc.starts_with(found.keys.to_arrow(), prefix)), prefix, after_prefix(prefix))

    def _matching(self, leaf: Leaf) -> BitMap64 | None:
        test = _text_test(leaf)
        return None if test is None else self._select(lambda found: _flags(test(found.keys.to_arrow())))

    def _select(
        self, choose: Callable[[Dictionary], npt.NDArray[np.bool_]], low: Comparable | None = None, high: Comparable | None = None
    ) -> BitMap64:
        return self._with_value_only(self._file.select(self._total, choose, low, high))

    def _with_value_only(self, found: BitMap64) -> BitMap64:
        if found and self._file.rows_are_at_hand and not found <= self._file.rows:
            raise CorruptFile("a posting of a bitmap payload holds rows without a value")
        return found

    def entries(self) -> Iterator[tuple[bytes, BitMap64]]:
        """Every key with its ordinals."""
        return ((entry.key, self._file.posting(entry)) for entry in self._file.entries())

    def batches(self) -> Iterator[tuple[list[bytes], npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
        """See `FamilyReader.batches`; a key with many ordinals comes in several."""
        return self._file.scan(self._total)

    def verify(self) -> list[str]:
        """See `FamilyReader.verify`."""
        problems = set()
        null_rows, rows = self._checked(self._file.null_rows), self._checked(self._file.rows)
        seen = BitMap64()
        count = 0
        bounds: list[tuple[Comparable, bytes]] = []
        for keys, ids, _ in self.batches():
            bounds += [(self._comparable(key), key) for key in keys]
            bounds = [min(bounds), max(bounds)]
            seen |= posting.to_bitmap(ids)
            count += len(ids)
        if count != len(seen):
            problems.add(f"{count - len(seen)} ordinals belong to more than one key")
        if seen != rows:
            problems.add("the non-null rows are not those that have a key")
        if null_rows & rows:
            problems.add(f"{len(null_rows & rows)} ordinals are null and not null")
        if missing := self._total - len(null_rows | rows):
            problems.add(f"{missing} of {self._total} rows are neither null nor not null")
        if self._meta is not None:
            first, last = (bounds[0][1], bounds[-1][1]) if bounds else (None, None)
            if (first, last, bool(null_rows)) != (self._meta.first_key, self._meta.last_key, self._meta.has_nulls):
                problems.add("the payload does not hold what its metadata says")
        return sorted(problems)


def _text_test(leaf: Leaf) -> Callable[[pa.Array], pa.Array] | None:
    """A test of keys, by bytes; None where keys are no help."""
    needle = leaf.literal if isinstance(leaf.literal, bytes) else leaf.literal.encode()
    match leaf.op:
        case Op.ENDS_WITH:
            return lambda keys: pc.ends_with(keys, needle)
        case Op.CONTAINS:
            return lambda keys: pc.match_substring(keys, needle)
        case Op.LIKE:
            check_pattern(leaf.literal)
            pattern = regular_expression(leaf.literal)
            return lambda keys: pc.match_substring_regex(_as_text(keys), pattern)
        case _:
            return None


def _as_text(keys: pa.Array) -> pa.Array:
    """RE2 takes bytes for Latin-1."""
    try:
        return keys.cast(pa.large_string())
    except pa.ArrowInvalid as error:
        raise CorruptFile("a key of a text column is not UTF-8") from error


def _flags(found: pa.Array) -> npt.NDArray[np.bool_]:
    return np.asarray(found.to_numpy(zero_copy_only=False), bool)
