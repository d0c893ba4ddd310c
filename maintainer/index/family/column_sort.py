"""Values and the rows they come from, gathered and put in key order in memory (spec 08 §2.2, §2.3, §9.1; Java `PkSortedIndexBuilder`).

Sorting is stable, so the rows of one key stay in their order. Texts that repeat are held once for each array that comes in (an entry), and each
value as the number of its text. Keys come out in batches: only the values, their order and where each key starts are held as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from maintainer.format import byte_column, key_bytes
from maintainer.format.byte_column import ByteColumn
from maintainer.index.family.key_runs import Int64s, KeyBatch, text_order
from maintainer.merge.order import sort_groups, stable_argsort
from maintainer.model.types import CHARACTERS, DataType

_SAMPLE = 2048
_REPEATS = 4
"""How often, on average, the first texts of an array must repeat to be held once."""
_ENTRY_BYTES = 32
"""What sorting holds of each entry besides the entry itself, which it may hold twice: a word, an order and what they are made from."""
_TEXT_BYTES = 64
"""The same of a text."""
_PAIR_BYTES = 48
"""And of each pair, where there are fewer entries than pairs."""


class Pairs(NamedTuple):
    """Values, none of which is null, and the row of each; rows do not descend, and one may have several values."""

    values: pa.Array
    ids: Int64s | range


class Column:
    """Pairs in the order in which they came."""

    def __init__(self, data_type: DataType) -> None:
        self.data_type = data_type
        self.clear()

    def clear(self) -> None:
        """Hold nothing any more."""
        self.entries: list[pa.Array] = []
        self.numbers: list[Int64s | range] = []
        """Of each pair its entry."""
        self.ids: list[Int64s | range] = []
        self.repeats = False
        self._held = self._pairs = self._bytes = 0

    def __len__(self) -> int:
        return self._pairs

    @property
    def memory(self) -> int:
        """Bytes that sorting takes at its peak, with what is held now."""
        pairs = _PAIR_BYTES * self._pairs if self.repeats else 0
        return 2 * self._bytes + (_TEXT_BYTES if self.data_type.root in CHARACTERS else _ENTRY_BYTES) * self._held + pairs

    def add(self, pairs: Pairs) -> None:
        """Pairs that follow."""
        values, ids = plain(pairs.values, self.data_type), pairs.ids
        self._pairs += len(values)
        number: Int64s | range = range(self._held, self._held + len(values))
        if self.data_type.root in CHARACTERS and _repeats(values):
            encoded = values.dictionary_encode()
            values, number = encoded.dictionary, encoded.indices.to_numpy().astype(np.int64) + self._held
            self.repeats = True
        self.entries.append(values)
        self.numbers.append(number)
        self.ids.append(ids)
        self._held += len(values)
        self._bytes += values.nbytes + (0 if isinstance(ids, range) else ids.nbytes)


class SortedColumn:
    """The pairs of a column grouped by key, in key order."""

    def __init__(self, column: Column) -> None:
        """The column is empty then."""
        self._type = column.data_type
        self._entries = pa.concat_arrays(column.entries) if column.entries else pa.array([], pa.null())
        self._order: Int64s = np.empty(0, np.int64)
        self._starts: Int64s = np.empty(0, np.int64)
        self._firsts: Int64s | None = None
        self._texts: ByteColumn | None = None
        self._offset, self._ids = _joined(column.ids)
        numbers, repeats = column.numbers, column.repeats
        column.clear()
        if not len(self._entries):
            return
        if self._type.root in CHARACTERS:
            self._texts = byte_column.of_arrow(self._entries).uniform()
            bounds = pc.min_max(self._texts.to_arrow())
            self._order, new = text_order(self._texts, bounds["min"].as_py(), bounds["max"].as_py())
            self._starts = np.flatnonzero(new)
        else:
            # Precision that the key does not hold is cut off before values are grouped.
            words, sort_type = key_bytes.sortable(self._entries, self._type)
            self._order, self._starts = sort_groups([words], [sort_type])
        if repeats:
            self._firsts = self._order[self._starts]
            group = np.empty(len(self._entries), np.int64)
            group[self._order] = np.repeat(np.arange(len(self._starts)), np.diff(self._starts, append=len(group)))
            groups = np.concatenate([group[n.start : n.stop] if isinstance(n, range) else group[n] for n in numbers])
            self._order = stable_argsort(groups)
            counts = np.bincount(groups)
            self._starts = np.cumsum(counts) - counts

    @property
    def distinct(self) -> int:
        """How many keys there are."""
        return len(self._starts)

    def batches(self, most_rows: int, most_bytes: int) -> Iterator[KeyBatch]:
        """All keys with their rows; a key of more rows than a batch may have comes in several."""
        starts, order = self._starts, self._order
        count = len(starts)
        keys_per_batch = max(1, most_bytes * max(1, count) // max(1, self._entries.nbytes))
        first = 0
        while first < count:
            row = int(starts[first])
            last = int(np.searchsorted(starts, row + most_rows, "right")) - 1
            last = min(max(last, first + 1), first + keys_per_batch)
            if row + most_rows >= len(order):
                last = min(count, first + keys_per_batch)
            end = int(starts[last]) if last < count else len(order)
            keys = self._keys(first, last)
            if last == first + 1 and end - row > most_rows:
                for start in range(row, end, most_rows):
                    yield KeyBatch(keys, self._rows(start, min(start + most_rows, end)), np.zeros(1, np.int64))
            else:
                yield KeyBatch(keys, self._rows(row, end), starts[first:last] - row)
            first = last

    def _rows(self, start: int, end: int) -> Int64s:
        pairs = self._order[start:end]
        return pairs + self._offset if self._ids is None else self._ids[pairs]

    def _keys(self, first: int, last: int) -> ByteColumn:
        entries = self._order[self._starts[first:last]] if self._firsts is None else self._firsts[first:last]
        if self._texts is not None:
            return self._texts.take(entries)
        return key_bytes.encode_column(self._entries.take(pa.array(entries)), self._type)


def plain(values: pa.Array, data_type: DataType) -> pa.Array:
    """The values as all arrays of the column hold them."""
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if data_type.root in CHARACTERS and values.type != pa.large_string():
        if values.offset:
            values = pa.concat_arrays([values])  # else the cast makes offsets of all that lies before, too
        values = values.cast(pa.large_string())  # a group may hold more than 2 GiB of text
    return values


def _repeats(values: pa.Array) -> bool:
    few = values.slice(0, _SAMPLE)
    return len(few) > 0 and pc.count_distinct(few).as_py() * _REPEATS <= len(few)


def _joined(pieces: list[Int64s | range]) -> tuple[int, Int64s | None]:
    """Row ids one behind the other: the first of them when there is no gap, else all."""
    if not pieces:
        return 0, None
    first = pieces[0][0] if len(pieces[0]) else 0
    at = first
    for piece in pieces:
        if not isinstance(piece, range) or (len(piece) and piece.start != at):
            break
        at += len(piece)
    else:
        return int(first), None
    joined: npt.NDArray[Any] = np.concatenate([np.arange(p.start, p.stop) if isinstance(p, range) else p for p in pieces])
    return 0, joined
