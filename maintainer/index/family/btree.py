"""The BTree family: one entry per distinct value, found through blocks (spec 08 §4, §5; payload bytes in `maintainer.format.btree`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap64

from maintainer.errors import CorruptFile
from maintainer.format import index_meta, posting
from maintainer.format.btree import DEFAULT_BLOCK_SIZE, WRITE_VERSION, BTreeWriter, Ids
from maintainer.format.btree_entries import read_entries
from maintainer.format.btree_file import BTreeFile
from maintainer.format.key_bytes import Comparable
from maintainer.format.made_once import made_once
from maintainer.format.row_set import RowSet
from maintainer.format.stored_block import PayloadBytes, ReadRange, Sink
from maintainer.index.definition import IndexDefinition
from maintainer.index.family.carried import Carried, Older, carried
from maintainer.index.family.key_runs import KeyBatch
from maintainer.index.family.ordering import DEFAULT_RESOURCES, LargeKey, Values, each_row_once, in_key_order
from maintainer.index.family.sorted import SortedReader, after_prefix
from maintainer.index.options import block_compressor, check_keys, memory_size
from maintainer.index.payload import BuiltPayload, Move, PayloadOutput, Resources, Rows
from maintainer.model.predicate import Leaf
from maintainer.model.types import DataType

if TYPE_CHECKING:
    from maintainer.index.family import FamilyReader

PREFIX = "btree-index."
TAKES = "a column of a scalar type"
MOST_CARRIED_BLOCK = 4 << 20
"""Bytes: larger ones hold a key with more than a million rows, in a family that is not made for that."""
_UNION_IDS = 1 << 20


def validate(column: str, data_type: DataType, options: Mapping[str, str]) -> None:
    """See `Family.validate`."""
    check_keys(PREFIX, "block-size", column, data_type, options)


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
    block_size = memory_size(definition.options, f"{PREFIX}block-size", DEFAULT_BLOCK_SIZE)
    writer = BTreeWriter(output.write, block_size, block_compressor(definition.options, PREFIX))
    for batch in each_row_once(keys, null_rows, total_rows):
        if isinstance(batch, LargeKey):
            writer.add_large(batch.key, batch.rows)
        else:
            writer.add(batch.keys, batch.ids, batch.starts)
    return output.built(total_rows, index_meta.encode(writer.finish(null_rows.encode() if null_rows else b"")))


def carry(reader: FamilyReader, moves: Sequence[Move]) -> Carried | None:
    """See `Family.carry`."""
    assert isinstance(reader, BTreeReader)
    older = reader.older()
    return None if older is None else carried(older, moves)


def open(read: ReadRange, size: int, definition: IndexDefinition, index_meta: bytes | None, total_rows: int) -> BTreeReader:  # noqa: A001
    """See `Family.open`."""
    return BTreeReader(read, size, definition, index_meta, total_rows)


class BTreeReader(SortedReader):
    """Answers from single blocks; text is only searched by prefix."""

    def __init__(self, read: ReadRange, size: int, definition: IndexDefinition, meta: bytes | None, total_rows: int) -> None:
        super().__init__(size, definition, meta, total_rows)
        self._read = read

    @made_once
    def _file(self) -> BTreeFile:
        file = BTreeFile(PayloadBytes(self._read, self._size), self._type)
        meta = self._meta
        if meta is not None and (file.index.last_key != meta.last_key or file.has_null_rows != meta.has_nulls):
            raise CorruptFile("a BTree payload does not hold what its metadata says")
        return file

    def older(self) -> Older | None:
        """The payload as a new one may be built from it; None when it is not as we write it, or a key has more rows than should be held."""
        file = self._file
        if self._meta is None or file.version != WRITE_VERSION or file.index.largest > MOST_CARRIED_BLOCK:
            return None
        return Older(read_entries(file), file.null_rows, self._meta, self._total, self._type)

    def _null_rows(self) -> BitMap64:
        return self._file.null_rows

    def _lookup(self, keys: Iterable[bytes]) -> BitMap64:
        return _union(self._file.lookups(keys))

    def _between(self, low: Comparable | None, low_inclusive: bool, high: Comparable | None, high_inclusive: bool) -> BitMap64:
        return _union(self._file.between(low, low_inclusive, high, high_inclusive))

    def _starting_with(self, prefix: bytes) -> BitMap64:
        return _union(self._file.between(prefix, True, after_prefix(prefix), False))

    def _matching(self, leaf: Leaf) -> BitMap64 | None:
        return None

    def entries(self) -> Iterator[tuple[bytes, Ids]]:
        """Every key with its ordinals."""
        return self._file.entries()

    def batches(self) -> Iterator[tuple[list[bytes], Ids, npt.NDArray[np.int64]]]:
        """See `FamilyReader.batches`."""
        return self._file.scan()

    def verify(self) -> list[str]:
        """See `FamilyReader.verify`."""
        problems = set()
        null_rows = self._checked(self._null_rows())
        seen = BitMap64()
        count = 0
        last: Comparable | None = None
        for keys, ids, _ in self._file.scan():
            if last is None and self._meta is not None and keys[0] != self._meta.first_key:
                problems.add("the first key is not that of the metadata")
            for key in keys:
                value = self._comparable(key)
                if last is not None and value <= last:
                    problems.add("keys are not in order")
                last = value
            # Java 2.0 leaves the ordinals of one key in any order, so only their set matters.
            seen |= self._checked(posting.to_bitmap(ids))
            count += len(ids)
        if count != len(seen):
            problems.add(f"{count - len(seen)} ordinals belong to more than one key")
        if seen & null_rows:
            problems.add(f"{len(seen & null_rows)} ordinals have a key and are null")
        if missing := self._total - len(seen | null_rows):
            problems.add(f"{missing} of {self._total} rows have neither a key nor are null")
        return sorted(problems)


def _union(lists: Iterable[Ids]) -> BitMap64:
    """All ids as a set; many short lists are put together first."""
    result = BitMap64()
    waiting: list[Ids] = []
    size = 0
    for ids in lists:
        waiting.append(ids)
        size += len(ids)
        if size >= _UNION_IDS:
            result |= posting.to_bitmap(np.concatenate(waiting))
            waiting, size = [], 0
    if waiting:
        result |= posting.to_bitmap(np.concatenate(waiting))
    return result
