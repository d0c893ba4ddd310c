"""The Multivalue family: the elements of ARRAY columns, each with a bitmap of the rows that have it (spec 08 §2.2, §7.5, §8.4).

The payload is that of the Bitmap family (bytes in `maintainer.format.bitmap_index`) with elements for keys, in logical order and always as Java
lays it out: nothing looks them up by their bytes. A row has any number of keys: one per distinct element that is not null, so none where the
array is null or empty. Which rows these are the payload does not tell: both of its row bitmaps are empty, and it answers only

| predicate                        | answer                                                        |
| -------------------------------- | ------------------------------------------------------------- |
| ARRAY_CONTAINS(c, x)             | the rows of x; none for null                                  |
| ARRAYS_OVERLAP(c, array(…))      | the rows of any of the elements; nulls match nothing          |
| ARRAY_CONTAINS_ALL(c, array(…))  | the rows of all of them; none with a null; unknown when empty |

Elements are equal when their keys are: −0.0 is not 0.0, and every NaN is NaN, as in Java.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap64

from maintainer.data.elements import explode
from maintainer.errors import Unsupported, UsageError
from maintainer.format import index_meta, key_bytes
from maintainer.format.bitmap_entries import read_entries
from maintainer.format.bitmap_file import BitmapFile
from maintainer.format.bitmap_index import DEFAULT_BLOCK_SIZE, BitmapWriter
from maintainer.format.index_meta import IndexMeta
from maintainer.format.made_once import made_once
from maintainer.format.row_set import RowSet
from maintainer.format.stored_block import PayloadBytes, ReadRange, Sink
from maintainer.index.definition import FamilyName, IndexDefinition
from maintainer.index.family.carried import Carried, Older, carried
from maintainer.index.family.column_sort import Pairs
from maintainer.index.family.key_runs import KeyBatch
from maintainer.index.family.ordering import DEFAULT_RESOURCES, LargeKey, all_rows, in_key_order
from maintainer.index.family.postings import posted
from maintainer.index.family.sorted import KeyedReader
from maintainer.index.options import block_compressor, check_keys, memory_size
from maintainer.index.payload import BuiltPayload, Move, PayloadOutput, Resources, Rows
from maintainer.model.predicate import Leaf, Op
from maintainer.model.types import DataType, TypeRoot

if TYPE_CHECKING:
    from maintainer.index.family import FamilyReader

PREFIX = "multivalue-index."
TAKES = "an ARRAY column"

Int64s = npt.NDArray[np.int64]


def validate(column: str, data_type: DataType, options: Mapping[str, str]) -> None:
    """See `Family.validate`."""
    if data_type.root is not TypeRoot.ARRAY or data_type.element is None:
        raise UsageError(
            f"Multivalue index requires an ARRAY column, but column '{column}' is {data_type}. "
            f"Take it out of {FamilyName.MULTIVALUE.columns_key}."
        )
    check_keys(PREFIX, "dictionary-block-size", column, data_type.element, options)


def build(
    rows: Iterable[Rows],
    definition: IndexDefinition,
    total_rows: int,
    sink: Sink,
    resources: Resources = DEFAULT_RESOURCES,
    carried: Any = None,
) -> BuiltPayload:
    """See `Family.build`."""
    pairs = (Pairs(*explode(arrays, first)) for first, arrays in all_rows(rows, total_rows, carried))
    with in_key_order(pairs, _element(definition), resources, None if carried is None else carried.run) as keys:
        return build_keys(keys, RowSet(), definition, total_rows, sink, resources)


def build_keys(
    keys: Iterable[KeyBatch | LargeKey], null_rows: RowSet, definition: IndexDefinition, total_rows: int, sink: Sink, resources: Resources
) -> BuiltPayload:
    """See `SortedFamily.build_keys`; which rows have no key does not matter."""
    block_size = memory_size(definition.options, f"{PREFIX}dictionary-block-size", DEFAULT_BLOCK_SIZE)
    output = PayloadOutput(sink)
    writer = BitmapWriter(output.write, block_size, block_compressor(definition.options, PREFIX))
    first = last = None
    for batch in keys:
        elements, postings = posted(batch if isinstance(batch, LargeKey) else _each_row_once(batch))
        writer.add(elements, postings)
        first = elements[0] if first is None else first
        last = elements[-1]
    nothing = RowSet().encode()
    writer.finish(nothing, nothing)
    return output.built(total_rows, index_meta.encode(IndexMeta(first, last, has_nulls=False)))


def carry(reader: FamilyReader, moves: Sequence[Move]) -> Carried | None:
    """See `Family.carry`."""
    assert isinstance(reader, MultivalueReader)
    older = reader.older()
    return None if older is None else carried(older, moves)


def open(read: ReadRange, size: int, definition: IndexDefinition, index_meta: bytes | None, total_rows: int) -> MultivalueReader:  # noqa: A001
    """See `Family.open`."""
    return MultivalueReader(read, size, definition, index_meta, total_rows)


def _each_row_once(batch: KeyBatch) -> KeyBatch:
    """Without the repetitions of an element within a row: a key's ordinals do not descend, so they are neighbours."""
    ids, starts = batch.ids, batch.starts
    new = np.ones(len(ids), bool)
    np.not_equal(ids[1:], ids[:-1], out=new[1:])
    new[starts] = True
    if new.all():
        return batch
    return KeyBatch(batch.keys, ids[new], np.cumsum(new)[starts] - 1)


def _element(definition: IndexDefinition) -> DataType:
    element = definition.data_type.element
    if definition.data_type.root is not TypeRoot.ARRAY or element is None:
        raise Unsupported(f"a Multivalue index on a column of type {definition.data_type}")
    key_bytes.check_type(element)
    return element


class MultivalueReader(KeyedReader):
    """Answers from the dictionary and the postings of the elements that are asked for."""

    answered: ClassVar = frozenset({Op.ARRAY_CONTAINS, Op.ARRAYS_OVERLAP, Op.ARRAY_CONTAINS_ALL})

    def __init__(self, read: ReadRange, size: int, definition: IndexDefinition, meta: bytes | None, total_rows: int) -> None:
        super().__init__(_element(definition), meta, total_rows)
        self._source = PayloadBytes(read, size)

    @made_once
    def _file(self) -> BitmapFile:
        return BitmapFile(self._source, self._type)

    def evaluate(self, leaf: Leaf) -> BitMap64 | None:
        """See `FamilyReader.evaluate`."""
        if leaf.negated:
            return None
        match leaf.op:
            case Op.ARRAY_CONTAINS | Op.ARRAYS_OVERLAP:
                keys = self._keys(value for value in leaf.literals if value is not None)
                return None if keys is None else reduce(BitMap64.__or__, self._postings(keys), BitMap64())
            case Op.ARRAY_CONTAINS_ALL if leaf.literals:
                if None in leaf.literals:
                    return BitMap64()
                keys = self._keys(leaf.literals)
                return None if keys is None else self._all_of(keys)
            case _:
                return None

    def _keys(self, values: Iterable[Any]) -> set[bytes] | None:
        """The distinct keys of values; None when one is no value of the type."""
        try:
            return {key_bytes.encode(value, self._type) for value in values}
        except ValueError:
            return None

    def _all_of(self, keys: set[bytes]) -> BitMap64:
        found = list(self._postings(keys))
        return reduce(BitMap64.__and__, found) if len(found) == len(keys) else BitMap64()

    def _postings(self, keys: set[bytes]) -> Iterator[BitMap64]:
        """The ordinals of the rows of each element that is there."""
        meta = self._meta
        if meta is not None:
            if meta.first_key is None or meta.last_key is None:
                return
            low, high = self._comparable(meta.first_key), self._comparable(meta.last_key)
            keys = {key for key in keys if low <= self._comparable(key) <= high}
        if keys:
            yield from map(self._checked, self._file.bitmaps(keys))

    def older(self) -> Older | None:
        """The payload as a new one may be built from it; None when nothing says which elements it has, or it is not as we write it."""
        file = self._file
        if self._meta is None or file.null_rows or file.rows:
            return None
        return Older(read_entries(file, self._total), file.null_rows, self._meta, self._total, self._type, one_key=False)

    def entries(self) -> Iterator[tuple[bytes, BitMap64]]:
        """Every element with the ordinals of its rows."""
        return ((entry.key, self._checked(self._file.posting(entry))) for entry in self._file.entries())

    def batches(self) -> Iterator[tuple[list[bytes], Int64s, Int64s]]:
        """See `FamilyReader.batches`; an element with many ordinals comes in several."""
        return self._file.scan(self._total)

    def verify(self) -> list[str]:
        """See `FamilyReader.verify`. Rows may have any number of elements, so that postings say nothing about one another."""
        problems = set()
        if self._file.null_rows or self._file.rows:
            problems.add("a payload of elements says which rows are null")
        first = last = None
        for keys, _, _ in self.batches():
            for key in keys:
                if last is None:
                    first = key
                elif key != last and self._comparable(key) <= self._comparable(last):
                    problems.add("elements are not in order")
                last = key
        meta = self._meta
        if meta is not None and (first, last, False) != (meta.first_key, meta.last_key, meta.has_nulls):
            problems.add("the payload does not hold what its metadata says")
        return sorted(problems)
