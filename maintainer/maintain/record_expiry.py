"""Records that expire by a time of their own (spec 04 §9.1; Java `RecordLevelExpire`).

A compaction leaves out rows whose time, in whole seconds, lies more than `record-level.expire-time` back; a row without a time stays forever.
The time of a row, by the type of `record-level.time-field`:

    INT                      seconds
    BIGINT                   seconds, or milliseconds from 1 000 000 000 000 on
    TIMESTAMP, TIMESTAMP_LTZ whatever their precision

An *expire file* is one of which the statistics say that it holds such a row; it is rewritten instead of moved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from maintainer.data.evolution import keeps_order
from maintainer.errors import CorruptFile
from maintainer.format import binary_row
from maintainer.model.files import DataFileMeta
from maintainer.model.schema import TableSchema
from maintainer.model.types import TIMESTAMPS, DataField, TypeRoot
from maintainer.table.record_time import record_time

MILLISECONDS_FROM = 1_000_000_000_000
_UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_NANOS = 10**9


@dataclass(frozen=True)
class RecordExpiry:
    """When records of a table expire. Times are in seconds."""

    field: DataField
    expire_after: int

    @classmethod
    def of(cls, schema: TableSchema) -> RecordExpiry | None:
        """None: records do not expire."""
        found = record_time(schema)
        return None if found is None else cls(*found)

    def alive(self, rows: pa.RecordBatch | pa.Table, now: int) -> pa.Array | pa.ChunkedArray:
        """For each row whether it is still to be seen; the rows have the column of the time."""
        column = rows.column(self.field.name)
        if pa.types.is_timestamp(column.type):
            ticks = column.cast(pa.int64())
            expired = pc.less(ticks, (now - self.expire_after) * _UNITS[column.type.unit])
        elif pa.types.is_int64(column.type):
            is_seconds = pc.less(column, MILLISECONDS_FROM)
            expired = pc.less(column, pc.if_else(is_seconds, now - self.expire_after, (now - self.expire_after) * 1000))
        else:
            expired = pc.less(column.cast(pa.int64()), now - self.expire_after)
        return pc.invert(pc.fill_null(expired, False))

    def is_expire_file(self, file: DataFileMeta, written: TableSchema, now: int) -> bool:
        """Whether the file holds an expired row for certain; `written` is its schema."""
        column = written.field_by_id(self.field.id)
        if column is None or not keeps_order(column.type, self.field.type):
            return False
        names = written.names if file.value_stats_cols is None else file.value_stats_cols
        if column.name not in names:
            return False
        types = [written.field(name).type.with_nullable(True) for name in names]
        try:
            smallest = binary_row.deserialize(file.value_stats.min_values, types)[names.index(column.name)]
        except CorruptFile as error:
            raise error.at(file.file_name) from None
        return smallest is not None and now - self.expire_after > self._seconds(smallest)

    def _seconds(self, value: Any) -> int:
        """Of an internal value."""
        if self.field.type.root in TIMESTAMPS:
            return int(value) // _NANOS
        if self.field.type.root is TypeRoot.BIGINT and value >= MILLISECONDS_FROM:
            return int(value) // 1000
        return int(value)


@dataclass(frozen=True)
class AliveRows:
    """The rows that have not expired at a time, in seconds."""

    expiry: RecordExpiry
    now: int

    @property
    def columns(self) -> tuple[str, ...]:
        """What has to be seen of a row."""
        return (self.expiry.field.name,)

    def keeps(self, rows: pa.RecordBatch | pa.Table) -> npt.NDArray[np.bool_]:
        """For each row whether it is alive."""
        alive = self.expiry.alive(rows, self.now)
        whole = alive.combine_chunks() if isinstance(alive, pa.ChunkedArray) else alive
        return np.asarray(whole.to_numpy(zero_copy_only=False), dtype=np.bool_)

    def expire_files(self, files: Iterable[DataFileMeta], schema_of: Callable[[int], TableSchema]) -> frozenset[str]:
        """The names of the files of which it is known that they hold an expired row."""
        return frozenset(file.file_name for file in files if self.expiry.is_expire_file(file, schema_of(file.schema_id), self.now))


def expire_files(schema: TableSchema, files: Iterable[DataFileMeta], schema_of: Callable[[int], TableSchema], now: int) -> frozenset[str]:
    """As of a table; none where records do not expire. `now` is in seconds."""
    expiry = RecordExpiry.of(schema)
    return frozenset() if expiry is None else AliveRows(expiry, now).expire_files(files, schema_of)
