"""A scan: a question to one snapshot of a table, and its answers as Arrow (DESIGN §5; spec 07 §1).

A `Scan` is only a description. Each of its methods resolves the snapshot, makes the plan and, if rows are wanted, reads them; data files,
deletion vectors, index files and schema all come from that snapshot. Without time travel the columns are those of the table's latest schema;
with it, those of the snapshot's. The snapshot is the latest one, unless the call or an option of the table (`maintainer.read.travel`) says
otherwise.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from numbers import Integral
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from maintainer.data.arrow_types import value_schema
from maintainer.errors import MissingFile, UsageError
from maintainer.model.predicate import And, Leaf, Or, Predicate, fields_of
from maintainer.model.schema import TableSchema
from maintainer.model.snapshot import Snapshot
from maintainer.model.split import DataSplit, IndexedSplit, Split
from maintainer.model.types import DataField
from maintainer.read import travel
from maintainer.read.decisions import ScanPlan
from maintainer.read.explanation import Explanation, explained
from maintainer.read.expression import Column, Expression, bind
from maintainer.read.order import OrderBy, SortKey, sort_keys
from maintainer.read.parallel import in_order, threads_for
from maintainer.read.plan import plan_scan
from maintainer.read.scan_split import ScanSplit
from maintainer.read.split_reader import MEMORY, SCORE, SplitReader
from maintainer.read.splits import adopted, splits_of
from maintainer.read.sql import parse_predicate
from maintainer.table.state import SnapshotExpired, is_leaving, state_of
from maintainer.table.store import TableStore
from maintainer.table.support import check_live_files, check_readable, naming

if TYPE_CHECKING:
    from maintainer.merge.spilling import Spill

Condition: TypeAlias = str | Expression | Column | pc.Expression | Predicate


@dataclass(frozen=True)
class Answer:
    """Rows of one snapshot, once, the columns that they have, and the plan that they come from."""

    plan: ScanPlan
    fields: tuple[DataField, ...]
    batches: Iterator[pa.RecordBatch]

    @property
    def schema(self) -> pa.Schema:
        return value_schema(self.fields)


@dataclass(frozen=True, eq=False)
class Scan:
    """The rows of a snapshot that satisfy `where`.

    `where` is SQL, `col("a") > 1`, a pyarrow expression, or a bound predicate; `columns` are in the asked order (None: all); `order_by` is a
    column, `"c DESC"`, or a list (NULLs first ascending, last descending); at most one of `snapshot_id`, `tag` and `as_of` (epoch
    milliseconds, a time, or text) chooses the snapshot; `use_index=False` reads without indexes, with the same rows. Where files are merged
    or rows are sorted, `memory` is a budget in bytes, and what does not fit goes to `spill`.
    """

    store: TableStore
    where: Condition | None = None
    columns: Sequence[str] | None = None
    order_by: OrderBy | None = None
    limit: int | None = None
    snapshot_id: int | None = None
    tag: str | None = None
    as_of: int | str | dt.datetime | None = None
    use_index: bool = True
    memory: int | None = None
    spill: Spill | None = None

    @property
    def fields(self) -> tuple[DataField, ...]:
        """The columns that come out."""
        _, schema = self._resolve()
        return tuple(schema.field(name) for name in self._checked(schema)[0])

    @property
    def schema(self) -> pa.Schema:
        """Of the rows that come out; data files are not looked at for it."""
        return value_schema(self.fields)

    def plan(self) -> ScanPlan:
        """What is done with each file of the snapshot."""
        snapshot, schema = self._resolve()
        with naming(self.store.name):
            check_readable(schema)
        predicate = self._bound(schema)
        self._checked(schema)
        if snapshot is None:
            return ScanPlan(None, schema, predicate, ())
        with self._expiring(snapshot):
            state = state_of(self.store, snapshot, schema)
            return plan_scan(self.store, state, predicate, self.use_index)

    def explain(self) -> Explanation:
        """Per file, whether it is pruned, narrowed by an index, read raw, or merged with others, and why; what each step leaves; and what
        cannot be seen yet."""
        return explained(self.store, self.plan())

    def answer(self) -> Answer:
        """The rows of the snapshot that there is now, which are read as they are taken, and their columns."""
        plan = self.plan()
        columns, keys = self._checked(plan.schema)
        return Answer(plan, tuple(plan.schema.field(name) for name in columns), self._rows(plan, columns, keys))

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """The rows as a stream. With `order_by` all are sorted before the first comes out, in the memory that the scan has."""
        return self.answer().batches

    def to_arrow(self) -> pa.Table:
        answer = self.answer()
        return pa.Table.from_batches(answer.batches, schema=answer.schema).select(answer.schema.names)

    def to_pandas(self, **options: Any) -> Any:
        """A pandas DataFrame; needs pandas. `options` are those of pyarrow's `Table.to_pandas`, like `types_mapper=pandas.ArrowDtype`."""
        try:
            import pandas  # noqa: F401
        except ImportError:
            raise UsageError("to_pandas needs pandas: pip install 'paimon-maintainer[pandas]'") from None
        return self.to_arrow().to_pandas(**{"split_blocks": True, "self_destruct": True, **options})

    def to_polars(self) -> Any:
        """A polars DataFrame; needs polars."""
        try:
            import polars
        except ImportError:
            raise UsageError("to_polars needs polars: pip install 'paimon-maintainer[polars]'") from None
        return polars.from_arrow(self.to_arrow())

    def splits(self) -> list[ScanSplit]:
        """Parts of the scan that any process can read by itself, in the order of the rows that they give together."""
        if self.order_by is not None or self.limit is not None:
            raise UsageError("each split is read by itself, so the scan has no order_by and no limit; sort and cut what all of them give")
        plan = self.plan()
        with naming(self.store.name):
            check_live_files(file.file for file in plan.to_read)
        reader = SplitReader(self.store, plan.schema, self._checked(plan.schema)[0], plan.predicate, self.memory, self.spill)
        return [ScanSplit(reader, split) for split in splits_of(self.store, plan)]

    def of_split(self, split: bytes | Split | ScanSplit) -> ScanSplit:
        """What the scan asks, of a split that was planned by whom ever; which snapshot it is of is up to the split."""
        if self.order_by is not None or self.limit is not None or (self.snapshot_id, self.tag, self.as_of) != (None, None, None):
            raise UsageError("a split is of some snapshot already, and is read without order_by and limit")
        if isinstance(split, ScanSplit):
            split = split.split
        elif isinstance(split, bytearray | memoryview):
            split = bytes(split)
        elif not isinstance(split, bytes | DataSplit | IndexedSplit):
            raise UsageError(f"a split is the bytes that a planner serialized, not {type(split).__name__}")
        schema = travel.chosen_schema(self.store)
        with naming(self.store.name):
            check_readable(schema)
        reader = SplitReader(self.store, schema, self._checked(schema, SCORE.name)[0], self._bound(schema), self.memory, self.spill)
        return ScanSplit(reader, adopted(self.store, schema, split))

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        answer = self.answer()
        return pa.RecordBatchReader.from_batches(answer.schema, answer.batches).__arrow_c_stream__(requested_schema)

    def _resolve(self) -> tuple[Snapshot | None, TableSchema]:
        """The snapshot that is read, and the schema that it is read with."""
        if sum(chosen is not None for chosen in (self.snapshot_id, self.tag, self.as_of)) > 1:
            raise UsageError("only one of snapshot_id, tag and as_of can choose the snapshot")
        if self.snapshot_id is not None:
            if isinstance(self.snapshot_id, bool) or not isinstance(self.snapshot_id, Integral):
                raise UsageError(f"snapshot_id is the number of a snapshot, not {self.snapshot_id!r}")
            snapshot: Snapshot | None = self.store.snapshot(self.snapshot_id)
        elif self.tag is not None:
            if not isinstance(self.tag, str):
                raise UsageError(f"tag is the name of a tag, not {self.tag!r}")
            snapshot = self.store.tag(self.tag)
        elif self.as_of is not None:
            snapshot = travel.at_time(self.store, self.as_of)
        else:
            return travel.chosen(self.store)
        assert snapshot is not None
        return snapshot, self.store.schema_of(snapshot)

    def _bound(self, schema: TableSchema) -> Predicate | None:
        if self.where is None:
            return None
        if isinstance(self.where, str):
            return parse_predicate(self.where, schema, self._time_zone)
        if isinstance(self.where, Expression | Column):
            return bind(self.where, schema, self._time_zone)
        if isinstance(self.where, pc.Expression):
            from maintainer.read.arrow_expression import bind_arrow

            return bind_arrow(self.where, schema, self._time_zone)
        if not isinstance(self.where, Leaf | And | Or):
            raise UsageError(f"where is SQL, a condition of maintainer.col, or a pyarrow expression, not {type(self.where).__name__}")
        for name in fields_of(self.where):
            schema.field(name)
        return self.where

    @property
    def _time_zone(self) -> str:
        """Of literals: as the latest schema says, which was looked at unless the call itself chooses a snapshot."""
        travels = (self.snapshot_id, self.tag, self.as_of) != (None, None, None)
        return self.store.options(None if travels else self.store.last_known_schema()).time_zone

    def _checked(self, schema: TableSchema, also: str | None = None) -> tuple[tuple[str, ...], tuple[SortKey, ...]]:
        """The columns that come out, and the sort keys; `also` is a column that is not the table's."""
        if self.limit is not None and (isinstance(self.limit, bool) or not isinstance(self.limit, int) or self.limit < 0):
            raise UsageError(f"limit must be a number of rows, not {self.limit!r}")
        if self.memory is not None and (isinstance(self.memory, bool) or not isinstance(self.memory, Integral) or self.memory < 0):
            raise UsageError(f"memory is a number of bytes, not {self.memory!r}")
        if self.spill is not None and not hasattr(self.spill, "limit"):
            raise UsageError(f"spill is a maintainer.Spill, not {self.spill!r}")
        if not isinstance(self.columns, Iterable | None):
            raise UsageError(f"columns are given by their names, not by {self.columns!r}")
        columns = schema.names if self.columns is None else (self.columns,) if isinstance(self.columns, str) else tuple(self.columns)
        for name in columns:
            if not isinstance(name, str):
                raise UsageError(f"columns are given by their names, not by {name!r}")
            if name != also:
                schema.field(name)
        if len(set(columns)) < len(columns):
            raise UsageError(f"a column is asked for twice: {', '.join(columns)}")
        return columns, sort_keys(self.order_by, schema)

    def _rows(self, plan: ScanPlan, columns: tuple[str, ...], keys: tuple[SortKey, ...]) -> Iterator[pa.RecordBatch]:
        if self.limit == 0 or not plan.to_read:
            return
        with naming(self.store.name):
            check_live_files(file.file for file in plan.to_read)
        if not keys:
            with closing(self._unordered(plan, columns, self.memory)) as batches:
                yield from batches if self.limit is None else _first_rows(batches, self.limit)
            return
        from maintainer.data.spill import Spill
        from maintainer.read.sorting import Sorter

        wanted = tuple(dict.fromkeys((*columns, *(key.column for key in keys))))
        memory = (self.memory or MEMORY) // 2  # one half to merge with, where files have to be, one to sort with
        sorter = Sorter(plan.schema, keys, self.limit, memory, self.spill or Spill())
        with closing(self._unordered(plan, wanted, memory)) as batches, closing(sorter.sorted(batches)) as ordered:
            for batch in ordered:
                yield batch.select(list(columns))

    def _unordered(self, plan: ScanPlan, columns: tuple[str, ...], memory: int | None) -> Generator[pa.RecordBatch]:
        assert plan.snapshot is not None
        reader = SplitReader(self.store, plan.schema, columns, plan.predicate, memory, self.spill)
        with self._expiring(plan.snapshot):
            tasks = map(reader.task, splits_of(self.store, plan))
            yield from in_order(tasks, threads_for(self.store.storage), may_end_early=self.limit is not None and not self.order_by)

    @contextmanager
    def _expiring(self, snapshot: Snapshot) -> Iterator[None]:
        """A file that is missing is no damage when the snapshot goes away."""
        try:
            yield
        except MissingFile as error:
            if self.tag is None and is_leaving(self.store, snapshot):
                raise SnapshotExpired(f"{self.store.name}: snapshot {snapshot.id} expired while it was read; try again") from error
            raise


def _first_rows(batches: Iterable[pa.RecordBatch], limit: int) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch if batch.num_rows <= limit else batch.slice(0, limit)
        limit -= batch.num_rows
        if limit <= 0:
            return
