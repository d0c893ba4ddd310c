"""What callers hand over becomes the table's columns, or a clear error."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from maintainer.errors import UsageError
from maintainer.write.rows import BATCH_BYTES, BATCH_ROWS, batches, deletes, upserts
from tests.support import builders

SCHEMA = builders.schema({"id": "INT", "name": "STRING", "n": "BIGINT NOT NULL"}, ["id"])
ROWS: dict[str, list[Any]] = {"n": [5, 6], "id": [1, 2], "name": ["a", None]}


def generator() -> Iterator[pa.RecordBatch]:
    yield from pa.table(ROWS).to_batches()


SOURCES = {
    "table": pa.table(ROWS),
    "batch": pa.record_batch(ROWS),
    "reader": pa.table(ROWS).to_reader(),
    "batches": pa.table(ROWS).to_batches(),
    "generator": generator(),
    "tables": [pa.table(ROWS).slice(0, 1), pa.table(ROWS).slice(1)],
    "pandas": pd.DataFrame(ROWS, index=["x", "y"]),
    "polars": pl.DataFrame(ROWS),
}


@pytest.mark.parametrize("source", SOURCES)
def test_everything_that_speaks_arrow_is_taken(source: str) -> None:
    found = pa.Table.from_batches([upserts(batch, SCHEMA) for batch in batches(SOURCES[source])])
    assert found.to_pydict() == {"id": [1, 2], "name": ["a", None], "n": [5, 6]}
    assert found.schema.types == [pa.int32(), pa.string(), pa.int64()]


@pytest.mark.parametrize("data", [{"id": [1]}, "id", 5, [1, 2], None])
def test_other_things_are_refused(data: Any) -> None:
    with pytest.raises(UsageError, match="rows must be Arrow data"):
        list(batches(data))


def test_large_batches_are_cut() -> None:
    assert [batch.num_rows for batch in batches(pa.table({"a": range(BATCH_ROWS + 1)}))] == [BATCH_ROWS, 1]
    wide = pa.table({"a": ["x" * (BATCH_BYTES // 8)] * 20})
    assert all(batch.num_rows <= 8 for batch in batches(wide))
    assert sum(batch.num_rows for batch in batches(wide)) == 20


def only(schema: Any = SCHEMA, **columns: list[Any]) -> dict[str, list[Any]]:
    return upserts(pa.record_batch(columns), schema).to_pydict()


def test_a_missing_nullable_column_is_null() -> None:
    assert only(id=[1], n=[2]) == {"id": [1], "name": [None], "n": [2]}


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"name": ["a"], "n": [1]}, "no column 'id', which is part of the primary key"),
        ({"id": [1], "n": [1], "x": [1]}, "the table has no column 'x'; its columns are id, name, n"),
        ({"id": [None], "n": [1]}, "cannot write null to the non-null column 'id'"),
        ({"id": [1]}, "cannot write null to the non-null column 'n'"),
        ({"id": [1], "n": [None]}, "cannot write null to the non-null column 'n'"),
        ({"id": [2**40], "n": [1]}, "column 'id': cannot convert 1099511627776 to int32"),
    ],
)
def test_what_cannot_be_written_is_named(columns: dict[str, list[Any]], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        only(**columns)


def test_a_column_twice_is_refused() -> None:
    batch = pa.RecordBatch.from_arrays([pa.array([1]), pa.array([1])], names=["id", "id"])
    with pytest.raises(UsageError, match="two columns 'id'"):
        upserts(batch, SCHEMA)


def test_text_that_is_no_utf8_is_refused() -> None:
    text = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\1\0\0\0"), pa.py_buffer(b"\xff")])
    with pytest.raises(UsageError, match="not valid Arrow data"):
        upserts(pa.RecordBatch.from_arrays([pa.array([1]), text, pa.array([1])], names=["id", "name", "n"]), SCHEMA)


def test_members_that_must_not_be_null_are_checked() -> None:
    schema = builders.schema({"id": "INT", "r": "ROW<a INT NOT NULL>"}, ["id"])
    assert only(schema, id=[1, 2], r=[{"a": 1}, None])["r"] == [{"a": 1}, None]
    with pytest.raises(UsageError, match="column 'r'"):
        only(schema, id=[1], r=[{"a": None}])


class TestDefaults:
    """The order of the rules is Java's (`TableWriteImpl`): nulls are checked before they are replaced."""

    def schema(self, text: str, default: str) -> Any:
        from dataclasses import replace

        plain = builders.schema({"id": "INT", "d": text}, ["id"])
        return replace(plain, fields=(plain.fields[0], replace(plain.fields[1], default_value=default)))

    def test_a_null_becomes_the_default(self) -> None:
        assert only(self.schema("INT", "7"), id=[1, 2], d=[None, 3])["d"] == [7, 3]

    def test_a_missing_column_becomes_the_default_also_where_nulls_are_forbidden(self) -> None:
        assert only(self.schema("STRING NOT NULL", "'x'"), id=[1, 2])["d"] == ["x", "x"]

    def test_an_explicit_null_in_a_not_null_column_is_refused_in_spite_of_a_default(self) -> None:
        with pytest.raises(UsageError, match="non-null column 'd'"):
            only(self.schema("INT NOT NULL", "7"), id=[1], d=[None])

    def test_deletes_do_not_get_defaults(self) -> None:
        assert deletes(pa.record_batch({"id": [1]}), self.schema("INT", "7")).to_pydict() == {"id": [1], "d": [None]}


class TestDeletes:
    def test_keys_are_enough(self) -> None:
        assert deletes(pa.record_batch({"id": [1, 2]}), SCHEMA).to_pydict() == {"id": [1, 2], "name": [None, None], "n": [0, 0]}

    def test_other_columns_are_kept_where_they_can_be(self) -> None:
        found = deletes(pa.record_batch({"id": [1], "name": ["a"], "n": pa.array([None], pa.int64())}), SCHEMA)
        assert found.to_pydict() == {"id": [1], "name": ["a"], "n": [0]}

    def test_a_key_is_needed(self) -> None:
        with pytest.raises(UsageError, match="the keys have no column 'id'"):
            deletes(pa.record_batch({"n": [1]}), SCHEMA)
        with pytest.raises(UsageError, match="non-null column 'id'"):
            deletes(pa.record_batch({"id": pa.array([None], pa.int32())}), SCHEMA)

    @pytest.mark.parametrize(
        "text",
        [
            "BOOLEAN",
            "DOUBLE",
            "DECIMAL(30, 2)",
            "STRING",
            "BYTES",
            "DATE",
            "TIME(3)",
            "TIMESTAMP(6)",
            "TIMESTAMP_LTZ(9)",
            "ARRAY<INT>",
            "MAP<INT, INT>",
            "MULTISET<INT>",
            "ROW<a INT NOT NULL, b ROW<c DATE NOT NULL> NOT NULL>",
            "VECTOR<FLOAT, 3>",
        ],
    )
    def test_a_column_without_nulls_gets_some_value(self, text: str) -> None:
        schema = builders.schema({"id": "INT", "v": f"{text} NOT NULL"}, ["id"])
        found = deletes(pa.record_batch({"id": [1]}), schema)
        found.validate(full=True)
        assert found.column("v").null_count == 0
