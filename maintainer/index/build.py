"""Building one payload for an ordered source group: the public call (DESIGN §4 rule 3; spec 06 §8).

    build_payload   values in the order of their rows, as a column is read; for every family
    build_sorted    values in ascending order, each with its row, as `ORDER BY value, row` gives them; for families of sorted keys

Both hand the bytes of the payload to a sink as they come, and return what the index manifest is told of it (`payload_entry`). Of a call that
raises, what the sink got is worth nothing. What is held is bounded by `resources`; `build_sorted` holds a batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from maintainer.data.arrow_types import to_arrow
from maintainer.errors import UsageError
from maintainer.format import key_bytes
from maintainer.format.byte_column import ByteColumn
from maintainer.format.row_set import RowSet
from maintainer.format.stored_block import Sink
from maintainer.index.definition import IndexDefinition
from maintainer.index.family import family
from maintainer.index.family.key_runs import KeyBatch, ascending_ids, keys_ascend
from maintainer.index.family.ordering import SortedFamily, whole_keys
from maintainer.index.payload import BuiltPayload, Resources, Rows
from maintainer.model.types import CHARACTERS, DataType

_PIECE = 1 << 17
"""Values that are taken in at once."""


def build_payload(
    definition: IndexDefinition, values: Iterable[pa.Array], total_rows: int, sink: Sink, resources: Resources | None = None
) -> BuiltPayload:
    """A payload of the values of `total_rows` rows, in their order: arrays, or a `pa.ChunkedArray`."""
    module = family(definition.family)
    module.validate(definition.column, definition.data_type, definition.options)
    return module.build(_rows(values, definition), definition, total_rows, sink, resources or Resources())


def build_sorted(
    definition: IndexDefinition,
    batches: Iterable[tuple[pa.Array, Any]],
    total_rows: int,
    sink: Sink,
    resources: Resources | None = None,
) -> BuiltPayload:
    """A payload of values in ascending order, NULLs first, and the row of each, below `total_rows`.

    Every row comes once. Of an ARRAY column the values are the elements, NULL elements left out; a row comes with each of them.
    `UsageError` for what is not so.
    """
    module: Any = family(definition.family)
    if not hasattr(module, "build_keys"):
        raise UsageError(f"the family {definition.family} does not sort values: use build_payload, with the values in the order of their rows")
    module.validate(definition.column, definition.data_type, definition.options)
    if total_rows < 1:
        raise UsageError("an index payload needs at least one row")
    keys = _SortedInput(batches, definition, total_rows)
    sorted_family: SortedFamily = module
    return sorted_family.build_keys(whole_keys(keys), keys.null_rows, definition, total_rows, sink, resources or Resources())


def _rows(values: Iterable[pa.Array], definition: IndexDefinition) -> Iterator[Rows]:
    first = 0
    for array in values.chunks if isinstance(values, pa.ChunkedArray) else values:
        yield Rows(first, _of_type(array, definition, definition.data_type))
        first += len(array)


def _of_type(values: pa.Array, definition: IndexDefinition, data_type: DataType) -> pa.Array:
    """Values as a reader of data files hands them over."""
    wanted = to_arrow(data_type)
    is_text = data_type.root in CHARACTERS and (pa.types.is_string(values.type) or pa.types.is_large_string(values.type))
    if is_text or values.type == wanted:
        return values
    try:
        return values.cast(wanted)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise UsageError(f"values of {values.type} are no values of column {definition.column!r}, which is {data_type}: {error}") from error


class _SortedInput:
    """Keys of batches that must be in order; after them `null_rows` is complete."""

    def __init__(self, batches: Iterable[tuple[pa.Array, Any]], definition: IndexDefinition, total_rows: int) -> None:
        self.null_rows = RowSet()
        self._batches = batches
        self._definition = definition
        self._type = definition.data_type.element or definition.data_type
        self._total = total_rows
        self._one_key = definition.data_type.element is None

    def __iter__(self) -> Iterator[KeyBatch]:
        seen = RowSet()
        count = 0
        last: bytes | None = None
        for values, ids in self._pieces():
            count += len(ids)
            if self._one_key:
                seen.add(ids)
            nulls = values.null_count
            if nulls and (last is not None or values[:nulls].null_count != nulls):
                raise self._error("NULLs come first")
            self.null_rows.add(ids[:nulls])
            if nulls == len(values):
                continue
            batch = self._grouped(key_bytes.encode_column(values[nulls:], self._type), ids[nulls:])
            if last is not None and key_bytes.comparable(last, self._type) > key_bytes.comparable(batch.keys[0], self._type):
                raise self._error("a value is smaller than the one before it")
            last = batch.keys[-1]
            yield batch
        if self._one_key and (count != self._total or len(seen) != count):
            raise self._error(f"{count} values of {len(seen)} different rows were given for {self._total} rows")

    def _pieces(self) -> Iterator[tuple[pa.Array, npt.NDArray[np.int64]]]:
        for values, rows in self._batches:
            ids = np.asarray(rows)
            if len(ids) != len(values) or not (np.issubdtype(ids.dtype, np.integer) or not len(ids)):
                raise self._error(f"{len(values)} values came with {len(ids)} rows, which must be integers")
            for start in range(0, len(values), _PIECE):
                piece = ids[start : start + _PIECE].astype(np.int64)  # a copy: it is held beyond the batch, the caller may use its array again
                if not 0 <= int(piece.min()) <= int(piece.max()) < self._total:
                    raise self._error(f"a row is not between 0 and {self._total - 1}")
                yield _of_type(values.slice(start, _PIECE), self._definition, self._type), piece

    def _grouped(self, keys: ByteColumn, ids: npt.NDArray[np.int64]) -> KeyBatch:
        columns = (keys.to_arrow(),) if self._type.root in CHARACTERS else key_bytes.words(keys, self._type)
        new = np.zeros(len(keys), bool)
        new[0] = True
        for column in columns:
            new[1:] |= np.asarray(pc.not_equal(column[1:], column[:-1]))
        starts = np.flatnonzero(new)
        if len(starts) < len(keys):
            keys = keys.take(starts)
        if not keys_ascend(keys, self._type):
            raise self._error("a value is smaller than the one before it")
        return KeyBatch(keys, ascending_ids(ids, starts), starts)

    def _error(self, reason: str) -> UsageError:
        return UsageError(f"sorted values of column {self._definition.column!r}: {reason}; give them as `ORDER BY value NULLS FIRST` does")
