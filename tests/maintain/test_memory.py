"""A compaction stays within its budget, whatever rows and files are like (DESIGN §4, rule 5). Measured is what Arrow holds."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

import maintainer

BUDGET = 32 << 20
RUNS = 4


@contextmanager
def peak_of_arrow() -> Iterator[list[int]]:
    """The most bytes that Arrow held at any time inside of the block, above what it held before."""
    before = pa.total_allocated_bytes()
    peak = [0]
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.0005):
            peak[0] = max(peak[0], pa.total_allocated_bytes() - before)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield peak
    finally:
        done.set()
        watcher.join()


def long_texts(rows: int) -> pa.Array:
    return pa.array([random.Random(row).randbytes(10_000).hex() for row in range(rows)])


def repeated_texts(rows: int) -> pa.Array:
    return pa.array([f"{'x' * 1000}{row % 5}" for row in range(rows)])


@pytest.mark.parametrize(("texts", "rows"), [(long_texts, 1_500), (repeated_texts, 60_000)])
def test_rows_are_merged_within_the_budget(texts: object, rows: int, tmp_path: Path) -> None:
    assert callable(texts)
    options = {"bucket": "1", "deletion-vectors.enabled": "true"}
    fields = [{"name": "id", "type": "INT"}, {"name": "s", "type": "STRING"}]
    table = maintainer.create_table(str(tmp_path / "t"), {"fields": fields, "primaryKeys": ["id"], "options": options})
    column = texts(rows)
    for run in range(RUNS):
        with table.writer() as writer:
            writer.write(pa.table({"id": pa.array(range(run, rows + run), pa.int32()), "s": column}))
    del column
    with peak_of_arrow() as peak:
        table.maintain(memory=BUDGET)
    assert sum(file.rows for file in table.files().files) == rows + RUNS - 1
    assert peak[0] <= 1.5 * BUDGET
