"""Deep verification of a bucket: what can only be seen by reading its data.

| rule            | holds when                                                                                                  |
| --------------- | ----------------------------------------------------------------------------------------------------------- |
| key-order       | the rows of a file are in key order and no key repeats                                                      |
| key-bounds      | the keys of the first and the last row are those of the metadata                                            |
| sequence-bounds | so are the smallest and the largest sequence number                                                         |
| delete-count    | so is the number of deletes                                                                                 |
| unique-key      | among the rows that a batch reader sees, no key occurs twice and none is a delete (tables with deletion vectors) |
| index-content   | for sampled values, for NULL and for NOT NULL the index of a group gives the positions that the data gives    |
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap64

from maintainer.data.deletions import read_deletions
from maintainer.data.reader import open_data_file
from maintainer.data.values import from_arrow
from maintainer.errors import CorruptTable, MaintainerError
from maintainer.format import binary_row
from maintainer.index.definition import MAINTAINED, IndexDefinition, definitions
from maintainer.index.groups import evaluate
from maintainer.inspect.payload import open_group
from maintainer.merge.order import Keys, sort_groups
from maintainer.model.bucket import BucketState
from maintainer.model.files import DataFileMeta
from maintainer.model.predicate import Leaf, Op
from maintainer.model.schema import KIND_FIELD, SEQUENCE_FIELD
from maintainer.model.types import FLOATS
from maintainer.model.values import order_keys
from maintainer.table.state import TableState
from maintainer.table.store import TableStore

if TYPE_CHECKING:
    from maintainer.inspect.verify import Findings

SAMPLED_VALUES = 200
"""Distinct values asked of each payload, evenly spread over all there are."""
_DELETES = (1, 3)


def verify_contents(
    store: TableStore, state: TableState, bucket: BucketState, files: Sequence[DataFileMeta], where: str, findings: Findings
) -> None:
    """All rules on the files that can be read."""
    try:
        vectors = read_deletions(store.storage, store.layout, bucket.deletion_file, bucket.partition, bucket.bucket)
    except MaintainerError:
        return  # reported already; without the vectors nothing below can be judged
    has_vectors = store.options(state.schema).deletion_vectors_enabled
    visible: list[Keys] = []
    for file in files:
        columns = _read(store, state, bucket, file, [*state.schema.trimmed_primary_keys, SEQUENCE_FIELD.name, KIND_FIELD.name])
        keys = Keys.of(columns.columns[:-2], state.schema.key_types)
        kinds = columns.column(KIND_FIELD.name).to_numpy()
        _verify_file(store, state, file, columns, keys, kinds, findings)
        if has_vectors and file.level > 0:
            alive = _alive(file, vectors)
            visible.append(keys.take(alive))
            with findings.rule("unique-key", file.file_name):
                if np.isin(kinds[alive], _DELETES).any():
                    raise CorruptTable("a delete is visible as a row")
    if visible:
        with findings.rule("unique-key", where):
            together = Keys.concat(visible)
            _, starts = together.sort()
            if len(starts) != len(together):
                raise CorruptTable(f"{len(together) - len(starts)} visible rows have a key that another visible row has, too")
    for definition in definitions(state.schema):
        if definition.family not in MAINTAINED:
            continue
        groups = evaluate(bucket, definition)
        for level, payload in groups.active.items():
            by_name = {file.file_name: file for file in files}
            names = [name for name, _ in groups.sources[level].files]
            if all(name in by_name for name in names):
                with findings.rule("index-content", payload.file_name):
                    reader = open_group(store, bucket, groups, definition, level)
                    _verify_index(store, state, bucket, [by_name[name] for name in names], definition, reader)


def _read(store: TableStore, state: TableState, bucket: BucketState, file: DataFileMeta, columns: list[str]) -> pa.Table:
    path = store.layout.data_file_path(bucket.partition, bucket.bucket, file)
    with open_data_file(store.storage, path, file, store.schema(file.schema_id), state.schema) as opened:
        return opened.read(columns)


def _alive(file: DataFileMeta, vectors: dict[str, BitMap64]) -> npt.NDArray[np.int64]:
    vector = vectors.get(file.file_name)
    if not vector:
        return np.arange(file.row_count)
    dead = np.fromiter(vector, dtype=np.int64, count=len(vector))
    return np.delete(np.arange(file.row_count), dead[dead < file.row_count])


def _verify_file(
    store: TableStore,
    state: TableState,
    file: DataFileMeta,
    columns: pa.Table,
    keys: Keys,
    kinds: npt.NDArray[np.int8],
    findings: Findings,
) -> None:
    types = state.schema.key_types
    with findings.rule("key-order", file.file_name):
        if not keys.ascending():
            raise CorruptTable("its rows are not in key order, or a key repeats")
    if not columns.num_rows:
        return
    with findings.rule("key-bounds", file.file_name):
        ends = columns.take([0, columns.num_rows - 1])
        first, last = zip(*(from_arrow(column, data_type) for column, data_type in zip(ends.columns[:-2], types, strict=True)), strict=True)
        for what, found, said in (("first", first, file.min_key), ("last", last, file.max_key)):
            if order_keys(found) != order_keys(binary_row.deserialize(said, types)):
                raise CorruptTable(f"the key of its {what} row is {found}, its metadata says {binary_row.deserialize(said, types)}")
    with findings.rule("sequence-bounds", file.file_name):
        numbers = columns.column(SEQUENCE_FIELD.name).to_numpy()
        bounds = (int(numbers.min()), int(numbers.max()))
        stamped = store.options(state.schema).boolean("sequence.snapshot-ordering", False)
        if not stamped and bounds != (file.min_sequence_number, file.max_sequence_number):
            raise CorruptTable(
                f"its sequence numbers go from {bounds[0]} to {bounds[1]}, "
                f"its metadata says from {file.min_sequence_number} to {file.max_sequence_number}"
            )
    with findings.rule("delete-count", file.file_name):
        deletes = int(np.isin(kinds, _DELETES).sum())
        if file.delete_row_count not in (None, deletes):
            raise CorruptTable(f"it holds {deletes} deletes, its metadata says {file.delete_row_count}")


def _verify_index(
    store: TableStore,
    state: TableState,
    bucket: BucketState,
    files: Sequence[DataFileMeta],
    definition: IndexDefinition,
    reader: Any,
) -> None:
    """Ordinals are the positions in the concatenated source files."""
    column = _column(store, state, bucket, files, definition.column)
    exact = definition.data_type.root not in FLOATS  # some payloads hold −0.0 and 0.0 as one key, and leave the rest to the reader
    nulls = np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))
    present = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
    for leaf, expected in (
        (Leaf(Op.IS_NULL, definition.column), nulls),
        (Leaf(Op.IS_NOT_NULL, definition.column), present),
        *_sampled(column.take(pa.array(present)), present, definition),
    ):
        found, wanted = reader.evaluate(leaf), BitMap64(expected)
        if found is not None and (found != wanted if exact else not wanted <= found):
            raise CorruptTable(
                f"column {definition.column}, {leaf.op} {', '.join(map(repr, leaf.literals))}: "
                f"the index gives {len(found)} rows, the data {len(expected)}"
            )


def _column(store: TableStore, state: TableState, bucket: BucketState, files: Sequence[DataFileMeta], name: str) -> pa.Array:
    tables = [_read(store, state, bucket, file, [name]) for file in files]
    return pa.concat_tables(tables).column(0).combine_chunks()


def _sampled(values: pa.Array, positions: npt.NDArray[np.int64], definition: IndexDefinition) -> Iterator[tuple[Leaf, npt.NDArray[np.int64]]]:
    """Conditions on values that occur, each with the positions where the value is."""
    if not len(values):
        return
    order, starts = sort_groups([values], [definition.data_type])
    ends = np.append(starts[1:], len(order))
    chosen = np.unique(np.linspace(0, len(starts) - 1, SAMPLED_VALUES).astype(np.int64))
    literals = from_arrow(values.take(pa.array(order[starts[chosen]])), definition.data_type)
    for literal, group in zip(literals, chosen, strict=True):
        yield Leaf(Op.EQ, definition.column, (literal,)), positions[order[starts[group] : ends[group]]]
