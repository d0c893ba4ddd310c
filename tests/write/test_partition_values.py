"""Partition values that make difficult directory names (spec 01 §3.2): written, compacted, indexed, looked up, expired and read.

Java's compaction fails on a `/`; it reads what is here, and so does pypaimon.
"""

from __future__ import annotations

import datetime
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import maintainer
from maintainer.data.arrow_types import value_schema
from maintainer.errors import StorageError

TEXTS = [
    *("a/b", "a/../../b", "/", "//", ".", "..", "~", "a b", " ", "tail ", "%", "%2F", "a=b", "a:b", "'", '"', "\\", "#", "?", "*", "[", "{"),
    *("\n", "\t", "\x01", "\x7f", "^", "é😀", "ü" * 60, "x" * 200, "null", "NULL", "__DEFAULT_PARTITION__x", "-", "1.0", "true"),
]
OTHERS: dict[str, list[Any]] = {
    "BIGINT": [-(2**63), 0, 2**63 - 1],
    "BOOLEAN": [True, False],
    "DOUBLE": [-0.0, 1e300, math.inf, 0.1],
    "DECIMAL(10, 2)": [Decimal("-1.50"), Decimal("0.00")],
    "DATE": [datetime.date(1, 1, 1), datetime.date(1969, 12, 31), datetime.date(9999, 12, 31)],
    "TIMESTAMP(3)": [datetime.datetime(1969, 12, 31, 23, 59, 59, 999000), datetime.datetime(2024, 1, 2)],
    "TIMESTAMP(6)": [datetime.datetime(2024, 1, 2, 3, 4, 5, 678901)],
}
OPTIONS = {
    "bucket": "1",
    "deletion-vectors.enabled": "true",
    "pk-btree.index.columns": "v",
    "num-sorted-run.compaction-trigger": "2",
    "snapshot.num-retained.min": "1",
    "snapshot.num-retained.max": "1",
    "snapshot.time-retained": "1 ms",
}


def made(directory: Path, data_type: str) -> Any:
    fields = [{"name": "p", "type": data_type}, {"name": "id", "type": "INT"}, {"name": "v", "type": "INT"}]
    document = {"fields": fields, "primaryKeys": ["p", "id"], "partitionKeys": ["p"], "options": OPTIONS}
    return maintainer.create_table(str(directory / "d.db" / "t"), document)


def write(table: Any, values: list[Any], round_: int) -> None:
    count = len(values)
    columns = [values * 2, [1] * count + [round_] * count, [round_] * count * 2]
    with table.writer() as writer:
        writer.write(pa.table(columns, schema=value_schema(table.schema.fields)))


@pytest.mark.parametrize(("data_type", "values"), [("STRING", TEXTS), *OTHERS.items()])
def test_every_value_of_a_partition(data_type: str, values: list[Any], tmp_path: Path) -> None:
    table = made(tmp_path, data_type)
    for round_ in (2, 3):
        write(table, values, round_)
        assert table.maintain().outcome == "committed"
    write(table, values, 4)
    table.maintain(full=True)
    expected = sorted((str(value), key, {1: 4}.get(key, key)) for value in values for key in (1, 2, 3, 4))

    def rows(found: Any) -> list[Any]:
        return sorted((str(row["p"]), row["id"], row["v"]) for row in found.to_pylist())

    assert rows(table.scan().to_arrow()) == expected
    assert rows(table.scan(where="v = 4").to_arrow()) == [row for row in expected if row[2] == 4]
    for value in values:
        assert table.scan(where=maintainer.col("p") == value).to_arrow().num_rows == 4, value
    assert [definition.ratio for definition in table.coverage().definitions] == [1.0]
    table.expire()
    assert len(table.snapshots().snapshots) == 1
    report = table.verify(deep=True)
    assert report.ok, report.problems
    assert rows(maintainer.open_table(table.name).scan().to_arrow()) == expected


def test_a_directory_name_that_is_too_long_for_the_store_is_an_error_of_the_store(tmp_path: Path) -> None:
    table = made(tmp_path, "STRING")
    with pytest.raises(StorageError):
        write(table, ["x" * 300], 2)
    assert table.snapshots().snapshots == ()
