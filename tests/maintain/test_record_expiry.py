"""Which records have expired, by every type of time, and of which files that is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import maintainer
from maintainer.data.arrow_types import to_arrow
from maintainer.errors import Unsupported
from maintainer.maintain.lookup import DeletionVectors, Lookup
from maintainer.maintain.record_expiry import AliveRows, RecordExpiry
from maintainer.merge.order import Keys
from maintainer.model.bucket import BucketState
from maintainer.model.files import DataFileMeta
from maintainer.model.schema import TableSchema
from maintainer.table.state import load_latest

NOW = 1_700_000_000
AFTER = 3600
LIMIT = NOW - AFTER
"""Younger records are alive, this one is the oldest."""
TICKS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
OPTIONS = {"bucket": "1", "record-level.expire-time": "1 h", "record-level.time-field": "t"}


def expiring(path: Path, sql: str, options: Mapping[str, str] = {}) -> maintainer.Table:
    fields = [{"name": "k", "type": "INT NOT NULL"}, {"name": "t", "type": sql}]
    return maintainer.create_table(str(path / "t"), {"fields": fields, "primaryKeys": ["k"], "options": OPTIONS | dict(options)})


def alive(schema: TableSchema, values: Sequence[Any]) -> list[bool]:
    expiry = RecordExpiry.of(schema)
    assert expiry is not None
    column = pa.array(values, pa.int64()).cast(to_arrow(schema.field("t").type))
    kept = AliveRows(expiry, NOW).keeps(pa.table({"t": column}))
    assert kept.dtype == np.bool_
    return list(kept.tolist())


@pytest.mark.parametrize("sql", ["INT", "BIGINT"])
def test_seconds(sql: str, tmp_path: Path) -> None:
    assert alive(expiring(tmp_path, sql).schema, [LIMIT - 1, LIMIT, LIMIT + 1, None, -5, 0]) == [False, True, True, True, False, False]


def test_a_bigint_from_a_million_million_on_is_milliseconds(tmp_path: Path) -> None:
    milliseconds = [LIMIT * 1000 - 1, LIMIT * 1000, LIMIT * 1000 + 1]
    borders = [999_999_999_999, 1_000_000_000_000]  # the last second, and a millisecond of 2001
    assert alive(expiring(tmp_path, "BIGINT").schema, [*milliseconds, *borders]) == [False, True, True, True, False]


@pytest.mark.parametrize("precision", [0, 3, 6, 9])
@pytest.mark.parametrize("sql", ["TIMESTAMP({})", "TIMESTAMP({}) WITH LOCAL TIME ZONE"])
def test_timestamps_count_in_whole_seconds(sql: str, precision: int, tmp_path: Path) -> None:
    schema = expiring(tmp_path, sql.format(precision)).schema
    tick = TICKS[to_arrow(schema.field("t").type).unit]
    values = [LIMIT * tick - 1, LIMIT * tick, (LIMIT + 1) * tick - 1, None]
    assert alive(schema, values) == [False, True, True, True]


@pytest.mark.parametrize(("sql", "unit"), [("INT", 1), ("BIGINT", 1), ("BIGINT", 1000), ("TIMESTAMP(6)", 10**6)])
def test_a_file_whose_oldest_record_has_expired_is_known(sql: str, unit: int, tmp_path: Path) -> None:
    table = expiring(tmp_path, sql)
    assert expire_files(table, [(1, LIMIT * unit), (2, None)]) == 0
    assert expire_files(table, [(1, (LIMIT - 1) * unit), (2, LIMIT * unit)]) == 1
    assert expire_files(table, [(3, None)]) == 1  # without a time: nothing is known of the file


def test_without_statistics_no_file_is_known(tmp_path: Path) -> None:
    table = expiring(tmp_path, "INT", {"metadata.stats-mode": "none"})
    assert expire_files(table, [(1, LIMIT - 1)]) == 0


def test_a_lookup_does_not_find_what_has_expired(tmp_path: Path) -> None:
    table = expiring(tmp_path, "INT")
    write(table, [(1, LIMIT - 1), (2, LIMIT), (3, None)])
    expiry = RecordExpiry.of(table.schema)
    assert expiry is not None
    with Lookup(
        [list(bucket(table).files)],
        lambda meta: opened(table, meta),
        DeletionVectors(),
        ("k",),
        table.schema.key_types,
        columns=("t",),
        keep=AliveRows(expiry, NOW),
    ) as lookup:
        hits = lookup.find(Keys.of([pa.array([1, 2, 3, 4], pa.int32())], table.schema.key_types))
    assert hits.indices.tolist() == [1, 2]
    assert hits.rows is not None and hits.rows.to_pydict() == {"t": [LIMIT, None]}


@pytest.mark.parametrize(
    ("options", "problem"), [({"record-level.time-field": "x"}, "no such column"), ({"record-level.time-field": "s"}, "STRING")]
)
def test_a_time_that_is_none_is_refused(options: dict[str, str], problem: str, tmp_path: Path) -> None:
    fields = [{"name": "k", "type": "INT NOT NULL"}, {"name": "s", "type": "STRING"}]
    with pytest.raises(Unsupported) as refusal:
        maintainer.create_table(str(tmp_path / "t"), {"fields": fields, "primaryKeys": ["k"], "options": OPTIONS | options})
    assert "record-level.time-field" in str(refusal.value) and problem in str(refusal.value)


def write(table: maintainer.Table, rows: Sequence[tuple[int, int | None]]) -> None:
    times = pa.array([time for _, time in rows], pa.int64()).cast(to_arrow(table.schema.field("t").type))
    with table.writer() as writer:
        writer.write(pa.table([pa.array([key for key, _ in rows], pa.int32()), times], names=["k", "t"]))


def bucket(table: maintainer.Table) -> BucketState:
    state = load_latest(table.store)
    assert state is not None
    (only,) = state.buckets.values()
    return only


def opened(table: maintainer.Table, meta: DataFileMeta) -> Any:
    from maintainer.data.reader import open_data_file

    state = bucket(table)
    path = table.store.layout.data_file_path(state.partition, state.bucket, meta)
    return open_data_file(table.store.storage, path, meta, table.schema, table.schema)


def expire_files(table: maintainer.Table, rows: Sequence[tuple[int, int | None]]) -> int:
    """How many of the files are known to hold an expired record, with one more file of these rows."""
    write(table, rows)
    expiry = RecordExpiry.of(table.schema)
    assert expiry is not None
    return len(AliveRows(expiry, NOW).expire_files(bucket(table).files, table.store.schema))
