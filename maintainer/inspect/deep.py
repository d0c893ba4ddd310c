"""Deep verification of the data files of a bucket: what can only be seen by reading their rows.

| rule            | holds when                                                                                                  |
| --------------- | ----------------------------------------------------------------------------------------------------------- |
| file-schema     | a file has the columns of the schema that it was written with                                               |
| rows            | all of its rows can be read, each column as its type, with the checksums of its pages                       |
| key-order       | the rows of a file are in key order and no key repeats                                                      |
| key-bounds      | the keys of the first and the last row are those of the metadata                                            |
| key-stats       | the statistics of the key columns hold for all rows                                                         |
| value-stats     | so do those of the value columns: values are between the bounds, and as many are NULL as is said            |
| sequence-bounds | the smallest and the largest sequence number are those of the metadata                                      |
| delete-count    | so is the number of deletes                                                                                 |
| key-bucket      | every row belongs to the partition and bucket that its file is in                                           |
| visible-delete  | no live row above level 0 is a delete (tables with deletion vectors)                                        |
| unique-key      | among the live rows above level 0, no key occurs twice (tables with deletion vectors; first-row tables)     |

Bounds of texts may be shorter than their values, and those of FLOAT and DOUBLE leave out NaN and the sign of zero, as Parquet footers do. The
indexes are the matter of `maintainer.inspect.index_content`.

Memory: files are read once, batch by batch. For `unique-key` only files whose key ranges overlap are read again, their keys alone, merged by
batches of each run.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from maintainer.data.deletions import read_deletions
from maintainer.data.evolution import retyped
from maintainer.data.values import from_arrow, to_arrow_array
from maintainer.errors import CorruptFile, CorruptTable, MaintainerError, Unsupported
from maintainer.format import binary_row, simple_stats
from maintainer.format.simple_stats import ColumnStats
from maintainer.inspect.findings import Findings
from maintainer.inspect.index_content import verify_indexes
from maintainer.inspect.rows import BATCH_ROWS, alive, batch_rows, open_file
from maintainer.merge.order import Keys
from maintainer.merge.sections import key_range, sections
from maintainer.model.bucket import BucketState
from maintainer.model.files import EMPTY_ROW, DataFileMeta, SimpleStats
from maintainer.model.schema import KIND_FIELD, SEQUENCE_FIELD, TableSchema
from maintainer.model.types import BINARIES, CHARACTERS, FLOATS, DataField, TypeRoot
from maintainer.model.values import order_keys
from maintainer.read.residual import comparable
from maintainer.table.state import TableState
from maintainer.table.store import TableStore
from maintainer.table.support import check_live_files, naming
from maintainer.write.bucketing import group

_DELETES = (1, 3)
_ORDERED = frozenset(TypeRoot) - {
    TypeRoot.ARRAY, TypeRoot.VECTOR, TypeRoot.MAP, TypeRoot.MULTISET, TypeRoot.ROW, TypeRoot.VARIANT, TypeRoot.BLOB, TypeRoot.GEOMETRY,
    TypeRoot.GEOGRAPHY,
}  # fmt: skip
"""Types that have bounds."""


def verify_contents(
    store: TableStore, state: TableState, bucket: BucketState, files: Sequence[DataFileMeta], where: str, findings: Findings
) -> None:
    """All rules on the files that can be opened."""
    try:
        vectors = read_deletions(store.storage, store.layout, bucket.deletion_file, bucket.partition, bucket.bucket)
    except MaintainerError:
        return  # reported already; without the vectors nothing below can be judged
    options = store.options(state.schema)
    single = options.deletion_vectors_enabled or options.hides_level_0
    with naming(store.name):
        check_live_files(files)
    checks = [_FileCheck(store, state, bucket, file, vectors.get(file.file_name), options.deletion_vectors_enabled) for file in files]
    ordered = [file for file, check in zip(files, checks, strict=True) if check.run(findings)]
    if single:
        visible = [file for file in ordered if file.level > 0]
        with findings.rule("unique-key", where):
            again = _repeated_keys(store, state, bucket, visible, vectors)
            if again:
                raise CorruptTable(f"{again} live rows have a key that another live row has, too")
    verify_indexes(store, state, bucket, files, findings)


@dataclass
class _Seen:
    """Of one column: the smallest and largest value in comparable form (None: no value yet), and how many are NULL."""

    low: Any = None
    high: Any = None
    nulls: int = 0

    def add(self, array: pa.Array, field: DataField) -> None:
        self.nulls += array.null_count
        if field.type.root not in _ORDERED:
            return
        if field.type.root in FLOATS:
            array = array.filter(pc.invert(pc.is_nan(array)))
        found = pc.min_max(comparable(array, field.type)).as_py()
        if found["min"] is not None:
            self.low = found["min"] if self.low is None else min(self.low, found["min"])
            self.high = found["max"] if self.high is None else max(self.high, found["max"])


class _FileCheck:
    """The rules of one file, in one pass over its rows."""

    def __init__(
        self, store: TableStore, state: TableState, bucket: BucketState, file: DataFileMeta, deleted: BitMap64 | None, hides: bool
    ) -> None:
        self._store = store
        self._state = state
        self._bucket = bucket
        self._file = file
        self._schema = state.schema
        self._written = store.schema(file.schema_id)
        self._deleted = deleted or BitMap64()
        self._visible = hides and file.level > 0
        options = store.options(state.schema)
        self._buckets = bucket.total_buckets if options.bucket > 0 and bucket.bucket >= 0 else 0
        self._function = options.bucket_function
        self._stamped = options.boolean("sequence.snapshot-ordering", False)
        self._fields = [field for field in state.schema.fields if self._is_readable(field)]
        for name in state.schema.trimmed_primary_keys:
            if not self._is_readable(state.schema.field(name)):
                raise Unsupported(f"{store.name}: the type of key column {name} was changed: only its metadata can be verified")
        self._seen = {field.name: _Seen() for field in self._fields}
        self._first: tuple[Any, ...] | None = None
        self._last: tuple[Any, ...] | None = None
        self._last_at: Any = None
        self._ascending = True
        self._sequences: list[int] = []
        self._deletes = self._visible_deletes = self._strangers = 0
        self._strange_bucket = ""
        self._missing: frozenset[str] = frozenset()

    def _is_readable(self, field: DataField) -> bool:
        source = self._written.field_by_id(field.id)
        return source is None or retyped(source.type, field.type) is None

    def run(self, findings: Findings) -> bool:
        """Whether the file's rows are in order."""
        name, before = self._file.file_name, len(findings.problems)
        with findings.rule("rows", name), open_file(self._store, self._state, self._bucket, self._file) as data:
            self._missing = frozenset(self._written.names) - frozenset(data.names)
            columns = [*(field.name for field in self._fields), SEQUENCE_FIELD.name, KIND_FIELD.name]
            for first, batch in data.batches(columns, batch_rows(data)):
                self._look_at(first, batch)
        if len(findings.problems) > before:
            return False
        with findings.rule("file-schema", name):
            if self._missing and self._file.write_cols is None:
                raise CorruptTable(f"schema {self._written.id} has columns that the file lacks: {', '.join(sorted(self._missing))}")
        with findings.rule("key-order", name):
            if not self._ascending:
                raise CorruptTable("its rows are not in key order, or a key repeats")
        if self._first is not None:
            self._judge(findings, name)
        return self._ascending

    def _look_at(self, first: int, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        columns = [batch.column(name) for name in self._schema.trimmed_primary_keys]
        keys = Keys.of(columns, self._schema.key_types)
        self._ascending &= keys.ascending() and (self._last_at is None or self._last_at < keys.at(0))
        self._last_at = keys.at(len(keys) - 1)
        if self._first is None:
            self._first = self._key(columns, 0)
        self._last = self._key(columns, batch.num_rows - 1)
        for field in self._fields:
            self._seen[field.name].add(batch.column(field.name), field)
        numbers = pc.min_max(batch.column(SEQUENCE_FIELD.name)).as_py()
        self._sequences += (numbers["min"], numbers["max"])
        is_delete = np.isin(batch.column(KIND_FIELD.name).to_numpy(), _DELETES)
        self._deletes += int(is_delete.sum())
        if self._visible and is_delete.any():
            self._visible_deletes += int((is_delete & alive(self._deleted, first, batch.num_rows)).sum())
        if self._buckets:
            for part in group(pa.Table.from_batches([batch]), self._schema, self._buckets, self._function):
                if part.key != self._bucket.key:
                    self._strangers += len(part.rows)
                    self._strange_bucket = str(part.key.bucket)

    def _key(self, columns: Sequence[pa.Array], row: int) -> tuple[Any, ...]:
        return tuple(from_arrow(column.slice(row, 1), kind)[0] for column, kind in zip(columns, self._schema.key_types, strict=True))

    def _judge(self, findings: Findings, name: str) -> None:
        file, types = self._file, self._schema.key_types
        with findings.rule("key-bounds", name):
            for what, found, said in (("first", self._first, file.min_key), ("last", self._last, file.max_key)):
                if order_keys(found or ()) != order_keys(binary_row.deserialize(said, types)):
                    raise CorruptTable(f"the key of its {what} row is {found}, its metadata says {binary_row.deserialize(said, types)}")
        with findings.rule("key-stats", name):
            self._judge_stats(file.key_stats, self._written.trimmed_primary_keys)
        with findings.rule("value-stats", name):
            self._judge_stats(file.value_stats, self._written.names if file.value_stats_cols is None else file.value_stats_cols)
        with findings.rule("sequence-bounds", name):
            bounds = (min(self._sequences), max(self._sequences))
            if not self._stamped and bounds != (file.min_sequence_number, file.max_sequence_number):
                raise CorruptTable(
                    f"its sequence numbers go from {bounds[0]} to {bounds[1]}, "
                    f"its metadata says from {file.min_sequence_number} to {file.max_sequence_number}"
                )
        with findings.rule("delete-count", name):
            if file.delete_row_count not in (None, self._deletes):
                raise CorruptTable(f"it holds {self._deletes} deletes, its metadata says {file.delete_row_count}")
        if self._buckets:
            with findings.rule("key-bucket", name):
                if self._strangers:
                    raise CorruptTable(f"{self._strangers} rows belong to another partition or bucket, such as bucket {self._strange_bucket}")
        if self._visible:
            with findings.rule("visible-delete", name):
                if self._visible_deletes:
                    raise CorruptTable(f"{self._visible_deletes} deletes are visible as rows")

    def _judge_stats(self, stats: SimpleStats, names: tuple[str, ...]) -> None:
        if stats.min_values == EMPTY_ROW:
            return  # written without statistics
        try:
            columns = simple_stats.file_stats(self._file.file_name, stats, self._written.types_of(names))
        except CorruptFile as error:
            raise CorruptTable(f"its statistics cannot be decoded: {error.reason}") from None
        if len(columns) != len(names):
            raise CorruptTable(f"it has statistics of {len(columns)} columns, for {len(names)} names")
        by_id = {field.id: field for field in self._fields}
        for name, said in zip(names, columns, strict=True):
            field = by_id.get(self._written.field(name).id)
            if field is not None and name not in self._missing:
                why = _contradiction(said, self._seen[field.name], field)
                if why is not None:
                    raise CorruptTable(f"column {name}: {why}")


def _contradiction(said: ColumnStats, seen: _Seen, field: DataField) -> str | None:
    """What the statistics of a column say that its values do not."""
    root = field.type.root
    if said.null_count not in (None, seen.nulls):
        return f"{seen.nulls} values are NULL, its metadata says {said.null_count}"
    low, high = said.min, said.max
    if root not in _ORDERED or seen.low is None:
        return None
    if root in FLOATS:
        low = None if low is None or math.isnan(low) else -0.0 if low == 0 else low
        high = None if high is None or math.isnan(high) else 0.0 if high == 0 else high
    elif root in CHARACTERS and isinstance(high, str) and high.endswith("?"):
        high = None  # what Java makes of half a surrogate pair, and no bound
    for bound, value, breaks in ((low, seen.low, "below"), (high, seen.high, "above")):
        if bound is None:
            continue
        limit = comparable(to_arrow_array([bound], field.type), field.type)[0].as_py()
        if (value < limit) if breaks == "below" else (value > limit):
            shown = f" ({str(value)[:80]!r})" if root in CHARACTERS | BINARIES else ""
            return f"a value{shown} is {breaks} {bound!r}, the bound of its metadata"
    return None


def _repeated_keys(
    store: TableStore, state: TableState, bucket: BucketState, files: Iterable[DataFileMeta], vectors: Mapping[str, BitMap64]
) -> int:
    """How many visible rows repeat a key. Only files whose key ranges overlap can: each of them is in order."""
    total = 0
    for section in sections(files, key_range(state.schema.key_types)):
        if len(section) > 1:
            total += _repeated(
                [_visible_keys(store, state, bucket, run, vectors, BATCH_ROWS // min(len(section), 16)) for run in section],
            )
    return total


def _repeated(runs: Sequence[Iterator[Keys]]) -> int:
    """How many keys of some runs, each ascending, repeat another."""
    total = 0
    waiting = [(found, run) for run in runs if (found := next(run, None)) is not None]
    while len(waiting) > 1:
        cut = min(keys.at(len(keys) - 1) for keys, _ in waiting)
        parts = []
        following = []
        for keys, run in waiting:
            end = keys.search(cut, "right")
            if end:
                parts.append(keys.slice(0, end))
            left: Keys | None = keys.slice(end, len(keys)) if end < len(keys) else next(run, None)
            if left is not None:
                following.append((left, run))
        together = Keys.concat(parts)
        total += len(together) - len(together.sort()[1])
        waiting = following
    return total


def _visible_keys(
    store: TableStore, state: TableState, bucket: BucketState, run: Sequence[DataFileMeta], vectors: Mapping[str, BitMap64], most: int
) -> Iterator[Keys]:
    """The keys of a run's visible rows, ascending, in parts that are not empty."""
    schema: TableSchema = state.schema
    for file in run:
        deleted = vectors.get(file.file_name) or BitMap64()
        with open_file(store, state, bucket, file) as data:
            for first, batch in data.batches(schema.trimmed_primary_keys, batch_rows(data, most)):
                keys = Keys.of(batch.columns, schema.key_types).take(alive(deleted, first, batch.num_rows))
                if len(keys):
                    yield keys
