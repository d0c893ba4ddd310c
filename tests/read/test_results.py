"""What a scan gives: streams that are fresh, that are read as they go on, and that may be left; frames; rows in order."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from maintainer.data.spill import Spill
from maintainer.errors import CorruptFile, UsageError
from maintainer.model.predicate import Leaf, Op
from maintainer.model.values import order_key
from maintainer.read.scan import Scan
from tests.support.builders import schema
from tests.support.built_tables import BuiltTable
from tests.support.small_table import SmallTable

OPTIONS = {"bucket": "1", "deletion-vectors.enabled": "true", "pk-btree.index.columns": "a"}
SCHEMA = schema({"id": "INT", "a": "INT", "s": "STRING", "x": "DOUBLE", "a, b": "INT"}, options=OPTIONS)
ROWS = [{"id": i, "a": None if i % 7 == 3 else i % 11, "s": f"s{i % 5}", "x": i / 2 - 50, "a, b": -i} for i in range(300)]


@pytest.fixture
def table(tmp_path: Path) -> BuiltTable:
    """Ten files of thirty rows, without the last row of each."""
    built = BuiltTable(tmp_path / "t", SCHEMA)
    for start in range(0, 300, 30):
        built.put(ROWS[start : start + 30], deleted=[29])
    built.index()
    built.publish()
    return built


LIVE = [row for row in ROWS if row["id"] % 30 != 29]


def expected(keys: list[tuple[str, bool]], limit: int | None = None, rows: list[dict[str, Any]] = LIVE) -> list[int]:
    found = list(rows)
    for name, descending in reversed(keys):
        found.sort(key=lambda row: order_key(row[name]), reverse=descending)
    return [row["id"] for row in found[:limit]]


def open_files() -> int:
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


def test_every_stream_is_fresh(table: BuiltTable) -> None:
    scan = Scan(table.store, "a = 5", ["id"])
    first, second = pa.RecordBatchReader.from_stream(scan), pa.RecordBatchReader.from_stream(scan)
    one = first.read_next_batch()
    assert second.read_all().num_rows == len([row for row in LIVE if row["a"] == 5])
    assert one.num_rows + first.read_all().num_rows == pa.table(scan).num_rows
    table.put([{"id": 1000, "a": 5}])
    table.index()
    table.publish()
    assert 1000 in pa.table(scan)["id"].to_pylist()


def test_a_limit_may_be_larger_than_any_table(table: BuiltTable) -> None:
    for limit in (2**31, 2**63, 10**30):
        for order in (None, "id DESC"):
            assert Scan(table.store, limit=limit, order_by=order).to_arrow().num_rows == Scan(table.store).to_arrow().num_rows > 0


def test_duckdb_polars_and_pandas_see_the_same_rows(table: BuiltTable) -> None:
    found = Scan(table.store, "a IN (1, 2)", ["id", "x"])
    rows = sorted((row["id"], row["x"]) for row in LIVE if row["a"] in (1, 2))
    assert sorted(duckdb.sql("SELECT * FROM found").fetchall()) == rows
    assert duckdb.sql("SELECT count(*) FROM found l JOIN found r USING (id)").fetchall() == [(len(rows),)]
    assert sorted(pl.DataFrame(found).rows()) == sorted(found.to_polars().rows()) == rows
    assert sorted(found.to_pandas().itertuples(index=False, name=None)) == rows
    assert found.to_pandas(types_mapper=pd.ArrowDtype)["id"].dtype == pd.ArrowDtype(pa.int32())


@pytest.mark.parametrize("question", [{}, {"order_by": "x"}, {"order_by": "x", "limit": 3}, {"limit": 200}], ids=str)
def test_a_stream_that_is_left_closes_its_files_and_temporary_files(table: BuiltTable, question: dict[str, Any], tmp_path: Path) -> None:
    spill = Spill(str(tmp_path / "spill"))
    scan = Scan(table.store, memory=1, spill=spill, **question)
    list(scan.to_batches())
    before = open_files()
    batches = scan.to_batches()
    next(batches)
    batches.close()  # type: ignore[attr-defined]
    assert (open_files(), spill.used) == (before, 0)
    for _ in scan.to_batches():
        break
    stream = pa.RecordBatchReader.from_stream(scan)
    stream.read_next_batch()
    del stream
    assert (open_files(), spill.used) == (before, 0)


def test_rows_come_before_everything_was_read(table: BuiltTable) -> None:
    """A file that is damaged is no matter for who leaves before it."""
    plan = Scan(table.store).plan()
    for file in plan.to_read[5:]:
        (Path(table.store.uri) / "bucket-0" / file.file.file_name).write_bytes(b"PAR1 no more")
    assert next(iter(Scan(table.store).to_batches())).num_rows > 0
    with pytest.raises(CorruptFile, match=plan.to_read[5].file.file_name):
        Scan(table.store).to_arrow()


@pytest.mark.parametrize("memory", [1, 20_000, None])
@pytest.mark.parametrize("limit", [None, 1, 40])
def test_rows_in_order_in_any_memory(table: BuiltTable, memory: int | None, limit: int | None, tmp_path: Path) -> None:
    scan = Scan(table.store, columns=["id"], order_by="a DESC, x", limit=limit, memory=memory, spill=Spill(str(tmp_path)))
    assert scan.to_arrow()["id"].to_pylist() == expected([("a", True), ("x", False)], limit)
    assert scan.to_arrow().schema.names == ["id"]


def test_rows_in_order_are_found_by_an_index(table: BuiltTable) -> None:
    scan = Scan(table.store, "a = 4 AND x > 0", ["id"], order_by="x DESC", limit=5)
    assert scan.to_arrow()["id"].to_pylist() == expected([("x", True)], 5, [row for row in LIVE if row["a"] == 4 and row["x"] > 0])
    assert all(file.decision == "indexed" for file in scan.explain().files if file.rows)


def test_rows_of_merged_files_in_order(tmp_path: Path) -> None:
    small = SmallTable(tmp_path, **{"deletion-vectors.enabled": "false"})
    small.write({i: i % 10 for i in range(100)})
    small.write({i: 100 - i for i in range(0, 100, 3)}, delete=[1, 50])
    scan = small.table.scan(columns=["id"], order_by=["v", ("id", "desc")], memory=32 << 20)
    assert [row["id"] for row in scan.to_arrow().to_pylist()] == [
        key for key, _ in sorted(small.rows.items(), key=lambda row: (row[1][0], -row[0]))
    ]


def test_names_in_an_order_may_hold_commas(table: BuiltTable) -> None:
    for order in ("a, b", "`a, b` ASC", ["a, b"], "`a, b`, id DESC"):
        assert Scan(table.store, columns=["id"], order_by=order, limit=2).to_arrow()["id"].to_pylist() == [298, 297]
    with pytest.raises(UsageError, match="no column 'b'"):
        Scan(table.store, order_by="a, b DESC").to_arrow()


def test_conditions_of_all_kinds(table: BuiltTable) -> None:
    ids = sorted(row["id"] for row in LIVE if row["a"] == 5)
    for where in ("a = 5", pc.field("a") == 5, Leaf(Op.EQ, "a", (5,))):
        scan = Scan(table.store, where, ["id"])
        assert sorted(scan.to_arrow()["id"].to_pylist()) == ids
        assert {file.decision for file in scan.explain().files} == {"indexed"}
    for wrong in (5, True, ["a = 5"], lambda row: True):
        with pytest.raises(UsageError, match=r"where is SQL, a condition of maintainer\.col, or a pyarrow expression, not "):
            Scan(table.store, wrong).plan()  # type: ignore[arg-type]


def test_batches_are_of_the_columns_asked_for(table: BuiltTable) -> None:
    answer = Scan(table.store, "a = 5", ["x", "id"]).answer()
    assert [field.name for field in answer.fields] == answer.schema.names == ["x", "id"]
    batches: Iterator[pa.RecordBatch] = answer.batches
    assert all(batch.schema.equals(answer.schema) for batch in batches)


def test_the_schema_of_a_scan_is_that_of_its_rows_and_takes_no_data_files(table: BuiltTable) -> None:
    for columns in (None, ["x", "id"], []):
        scan = Scan(table.store, "a > 1000", columns)
        assert scan.schema == scan.to_arrow().schema
        assert scan.splits() == []
