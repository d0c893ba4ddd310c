"""The values of a source group in key order: what every sorted family is built from (spec 08 §2.2, §2.3, §9.1; Java `PkSortedIndexBuilder`).

Sorting is stable, so the ordinals of one key ascend. Keys and ordinals come out in batches that end between two keys: a payload is encoded
batch by batch, and only the column, its order and the payload itself are held as a whole. Texts that repeat are held once for each chunk that
comes in (an entry), and each row as the number of its text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from maintainer.errors import MaintainerError
from maintainer.format import key_bytes
from maintainer.format.byte_column import ByteColumn
from maintainer.index.family.key_runs import KeyBatch
from maintainer.index.payload import Resources, Rows
from maintainer.merge.order import sort_groups, stable_argsort
from maintainer.model.types import CHARACTERS, DataType

BATCH_ROWS = 1 << 18
BATCH_KEY_BYTES = 32 << 20
_SAMPLE = 2048
_REPEATS = 4
"""How often, on average, the first texts of a chunk must repeat to be held once."""


DEFAULT_RESOURCES = Resources()


def consecutive(rows: Iterable[Rows]) -> Iterator[pa.Array]:
    """The values of rows without a gap."""
    after = 0
    for first, values in rows:
        if first != after:
            raise MaintainerError(f"rows from {after} on are missing: the next is {first}")
        after += len(values)
        yield values


class OrderedColumn:
    """The non-null values of a column grouped by key, in key order; and the ordinals of its nulls, ascending."""

    def __init__(self, column: pa.ChunkedArray | Iterable[pa.Array], data_type: DataType, total_rows: int) -> None:
        key_bytes.check_type(data_type)
        self._type = data_type
        entries: list[pa.Array] = []
        numbers: list[npt.NDArray[np.int64] | range] = []
        nulls: list[npt.NDArray[Any]] = []
        rows = held = 0
        repeats = False
        for chunk in column.chunks if isinstance(column, pa.ChunkedArray) else column:
            chunk = _plain(chunk, data_type)
            if chunk.null_count:
                nulls.append(np.flatnonzero(chunk.is_null().to_numpy(zero_copy_only=False)) + rows)
            rows += len(chunk)
            chunk = chunk.drop_null()
            number: npt.NDArray[np.int64] | range = range(held, held + len(chunk))
            if data_type.root in CHARACTERS and _repeats(chunk):
                encoded = chunk.dictionary_encode()
                chunk, number = encoded.dictionary, encoded.indices.to_numpy().astype(np.int64) + held
                repeats = True
            numbers.append(number)
            entries.append(chunk)
            held += len(chunk)
        if rows != total_rows:
            raise MaintainerError(f"the source files hold {rows} rows instead of the {total_rows} that their metadata says")
        if not rows:
            raise MaintainerError("an index payload needs at least one row")
        missing = np.concatenate(nulls) if nulls else np.empty(0, np.int64)
        self.total_rows = rows
        self.null_ids: npt.NDArray[np.int64] = missing
        self._entries = pa.concat_arrays(entries)
        entries.clear()
        # Precision that the key does not hold is cut off before values are grouped.
        words, sort_type = key_bytes.sortable(self._entries, data_type)
        self._order, self._starts = sort_groups([words], [sort_type])
        self._firsts = None
        if repeats:
            self._firsts = self._order[self._starts]
            group = np.empty(held, np.int64)
            group[self._order] = np.repeat(np.arange(len(self._starts)), np.diff(self._starts, append=held))
            groups = np.concatenate([group[n.start : n.stop] if isinstance(n, range) else group[n] for n in numbers])
            self._order = stable_argsort(groups)
            counts = np.bincount(groups)
            self._starts = np.cumsum(counts) - counts
        self._ordinals = None
        if len(missing):
            present = np.ones(rows, bool)
            present[missing] = False
            self._ordinals = np.flatnonzero(present)

    @property
    def row_ids(self) -> npt.NDArray[np.int64]:
        """The ordinals of all values that are not null."""
        return np.arange(self.total_rows) if self._ordinals is None else self._ordinals

    @property
    def distinct(self) -> int:
        """How many keys there are."""
        return len(self._starts)

    def keys(self, first: int = 0, last: int | None = None) -> ByteColumn:
        """The keys of some groups."""
        entries = self._order[self._starts[first:last]] if self._firsts is None else self._firsts[first:last]
        return key_bytes.encode_column(self._entries.take(pa.array(entries)), self._type)

    def batches(self) -> Iterator[KeyBatch]:
        """All keys with their ordinals."""
        count = len(self._starts)
        keys_per_batch = max(1, BATCH_KEY_BYTES * max(1, count) // max(1, self._entries.nbytes))
        first = 0
        while first < count:
            row = int(self._starts[first])
            last = int(np.searchsorted(self._starts, row + BATCH_ROWS, "right")) - 1
            last = min(max(last, first + 1), first + keys_per_batch)
            if row + BATCH_ROWS >= len(self._order):
                last = min(count, first + keys_per_batch)
            end = int(self._starts[last]) if last < count else len(self._order)
            ids = self._order[row:end]
            if self._ordinals is not None:
                ids = self._ordinals[ids]
            yield KeyBatch(self.keys(first, last), ids, self._starts[first:last] - row)
            first = last


def _plain(chunk: pa.Array, data_type: DataType) -> pa.Array:
    if pa.types.is_dictionary(chunk.type):
        chunk = chunk.dictionary_decode()
    if data_type.root in CHARACTERS and chunk.type != pa.large_string():
        chunk = chunk.cast(pa.large_string())  # a group may hold more than 2 GiB of text
    return chunk


def _repeats(chunk: pa.Array) -> bool:
    few = chunk.slice(0, _SAMPLE)
    return len(few) > 0 and pc.count_distinct(few).as_py() * _REPEATS <= len(few)
