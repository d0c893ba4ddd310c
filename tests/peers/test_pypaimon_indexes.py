"""pypaimon's index scan over tables that we maintain: the same rows as its own scan without indexes, and as ours.

In 2.1 that scan never works, as its readers are made without an executor; with one (spec 07 §14.1) it does.
"""

from __future__ import annotations

import datetime
import functools
import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import maintainer
from maintainer import col
from tests.peers import readers
from tests.support import peers

pytestmark = pytest.mark.skipif(readers.PYPAIMON_ABSENT is not None, reason=str(readers.PYPAIMON_ABSENT))

DEFINITION = """
CREATE TABLE t (p STRING, id BIGINT, name STRING, n INT, x DECIMAL(10, 2), t TIMESTAMP(3), d DATE, y BOOLEAN, PRIMARY KEY (p, id) NOT ENFORCED)
PARTITIONED BY (p) WITH (
    'bucket' = '2', 'deletion-vectors.enabled' = 'true', 'write-only' = 'true', 'num-sorted-run.compaction-trigger' = '3',
    'target-file-size' = '8 kb', 'btree-index.block-size' = '200 b', 'pk-btree.index.columns' = 'name,x,d', 'pk-bitmap.index.columns' = 'n,t,y'
)
"""
SCHEMA = pa.schema(
    [("p", pa.string()), ("id", pa.int64()), ("name", pa.string()), ("n", pa.int32()), ("x", pa.decimal128(10, 2)), ("t", pa.timestamp("ms")),
     ("d", pa.date32()), ("y", pa.bool_())]
)  # fmt: skip
START = datetime.datetime(2024, 1, 1)
VALUES: dict[str, tuple[Any, Any]] = {
    "name": ("name-17", "name-3"),
    "n": (-2, 3),
    "x": (Decimal("-1.25"), Decimal("7.50")),
    "t": (START + datetime.timedelta(seconds=4), START + datetime.timedelta(seconds=11)),
    "d": (datetime.date(2023, 12, 30), datetime.date(2024, 1, 5)),
    "y": (False, True),
}
"""Two values of each indexed column, the smaller one first."""


def rows(first: int, count: int, salt: int) -> pa.Table:
    ids = range(first, first + count)
    columns: dict[str, list[Any]] = {
        "p": [f"p{i % 2}" for i in ids],
        "id": list(ids),
        "name": [None if i % 13 == salt else f"name-{i * salt % 40}" for i in ids],
        "n": [None if i % 17 == salt else i * salt % 9 - 4 for i in ids],
        "x": [None if i % 19 == salt else Decimal(i * salt % 101 - 30).scaleb(-2) * 25 for i in ids],
        "t": [None if i % 11 == salt else START + datetime.timedelta(seconds=i * salt % 15) for i in ids],
        "d": [None if i % 7 == salt else datetime.date(2023, 12, 28) + datetime.timedelta(days=i * salt % 12) for i in ids],
        "y": [[None, True, False][i * salt % 3] for i in ids],
    }
    return pa.table(columns, schema=SCHEMA)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Several levels with groups, deletion vectors below, and level 0 on top."""
    directory = tmp_path_factory.mktemp("warehouse") / "db.db" / "t"
    table = maintainer.create_table(str(directory), DEFINITION)
    for number, (first, count) in enumerate([(0, 600), (100, 80), (400, 30), (590, 50)]):
        with table.writer() as writer:
            writer.write(rows(first, count, number + 2))
            writer.delete(pa.table({"p": [f"p{i % 2}" for i in range(number, 60, 9)], "id": list(range(number, 60, 9))}))
        if number < 3:
            table.maintain(full=number == 0)
    levels = {file.level for file in table.files().files}
    assert len(levels) >= 3
    assert 0 in levels
    return directory


def questions() -> Iterator[tuple[str, list[Any], Any]]:
    """pypaimon's name of a test, its arguments, and the same as ours."""
    for name, (low, high) in VALUES.items():
        column = col(name)
        for value in (low, high):
            yield "equal", [name, value], column == value
            yield "not_equal", [name, value], column != value
            yield "less_than", [name, value], column < value
            yield "less_or_equal", [name, value], column <= value
            yield "greater_than", [name, value], column > value
            yield "greater_or_equal", [name, value], column >= value
        yield "between", [name, low, high], column.between(low, high)
        yield "not_between", [name, low, high], ~column.between(low, high)
        yield "is_in", [name, [low, high]], column.isin([low, high])
        yield "is_not_in", [name, [low, high]], column.notin([low, high])
        yield "is_null", [name], column.is_null()
        yield "is_not_null", [name], column.is_not_null()
    yield "startswith", ["name", "name-1"], col("name").startswith("name-1")


def scan(directory: Path, method: str, arguments: list[Any]) -> tuple[list[tuple[str, int]], int]:
    """The keys that pypaimon finds, and how many of its splits were narrowed by an index."""
    peers.asked["pypaimon"] += 1
    builder = readers.pypaimon_table(directory).new_read_builder()
    builder = builder.with_filter(getattr(builder.new_predicate_builder(), method)(*arguments))
    splits = builder.new_scan().plan().splits()
    found = builder.new_read().to_arrow(splits)
    return keys(found), sum(hasattr(split, "row_ranges") for split in splits)


def keys(found: pa.Table) -> list[tuple[str, int]]:
    return sorted(zip(found.column("p").to_pylist(), found.column("id").to_pylist(), strict=True))


def test_pypaimon_finds_through_our_indexes_what_it_finds_without(
    directory: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from pypaimon.table.source import primary_key_sorted_index_scan as index_scan

    asked = list(questions())
    table = maintainer.open_table(str(directory))
    with caplog.at_level(logging.CRITICAL):
        stock = [scan(directory, method, arguments) for method, arguments, _ in asked]
    assert {narrowed for _, narrowed in stock} == {0}
    with ThreadPoolExecutor(2) as pool:
        monkeypatch.setattr(index_scan, "_create_inner_readers", functools.partial(index_scan._create_inner_readers, executor=pool))
        caplog.clear()
        for (method, arguments, ours), (expected, _) in zip(asked, stock, strict=True):
            found, narrowed = scan(directory, method, arguments)
            assert found == expected == keys(table.scan(where=ours).to_arrow()), (method, arguments)
            if method in ("equal", "is_in", "is_null"):
                assert narrowed, (method, arguments)
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []
