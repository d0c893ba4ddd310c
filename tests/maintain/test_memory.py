"""A compaction stays within its budget, whatever rows and files are like (DESIGN §4, rule 5). Measured is what Arrow holds."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import maintainer
from maintainer.api.maintenance import plan_pass
from maintainer.data.spill import Spill
from maintainer.errors import StorageError
from maintainer.maintain.execute import execute
from maintainer.maintain.plan import PlanRequest
from maintainer.merge.order import Keys
from maintainer.merge.stream import LEAST_FOR_OPEN_FILES

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


TEXT = 100


def random_texts(rows: int, seed: int) -> pa.Array:
    """Texts of 100 random hexadecimal digits, made quickly."""
    data = random.Random(seed).randbytes(rows * TEXT // 2).hex().encode()
    return pa.StringArray.from_buffers(rows, pa.py_buffer(np.arange(0, rows * TEXT + 1, TEXT, np.int32)), pa.py_buffer(data))


def make_table(directory: Path, columns: int) -> maintainer.Table:
    options = {"bucket": "1", "deletion-vectors.enabled": "true"}
    fields = [{"name": "id", "type": "INT"}, *({"name": f"s{number}", "type": "STRING"} for number in range(columns))]
    return maintainer.create_table(str(directory / "t"), {"fields": fields, "primaryKeys": ["id"], "options": options})


def append(table: maintainer.Table, rows: int, step: int, seed: int = 0) -> None:
    """Ids in no order at all."""
    ids = np.random.default_rng(seed).permutation(rows).astype(np.int32) * step
    columns = {name: random_texts(rows, seed) for name in table.schema.names if name != "id"}
    with table.writer() as writer:
        writer.write(pa.table({"id": ids, **columns}))


def unsorted(keys: Keys) -> tuple[np.ndarray, np.ndarray]:
    """What a writer that does not sort its rows does."""
    rows = np.arange(len(keys))
    return rows, rows


DISORDERED = 300_000


@pytest.fixture(scope="module")
def disordered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table with one level-0 file whose rows are in no order and take four times the budget in memory."""
    directory = tmp_path_factory.mktemp("disordered")
    table = make_table(directory, columns=4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Keys, "sort", unsorted)
        append(table, DISORDERED, 3)
    (file,) = table.files().files
    assert file.rows * (4 * TEXT) > 3.5 * BUDGET
    return directory / "t"


def copy_of(path: Path, directory: Path) -> maintainer.Table:
    return maintainer.open_table(str(shutil.copytree(path, directory / "t")))


def test_a_file_out_of_order_is_sorted_within_the_budget(disordered: Path, tmp_path: Path) -> None:
    table = copy_of(disordered, tmp_path)
    with peak_of_arrow() as peak:
        table.maintain(memory=BUDGET)
    assert peak[0] <= 1.5 * BUDGET
    ids = table.scan(columns=["id"]).to_arrow()["id"].to_numpy()
    assert (np.sort(ids) == np.arange(DISORDERED) * 3).all()
    assert table.verify().ok


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc: getrusage counts what the parent took, too")
def test_the_process_takes_no_more_than_300_mb_above_the_budget(disordered: Path, tmp_path: Path) -> None:
    table = copy_of(disordered, tmp_path)
    program = f"""
import re, maintainer
maintainer.open_table({table.store.uri!r}).maintain(memory={BUDGET})
print(1024 * int(re.search(r"VmHWM:\\s*(\\d+) kB", open("/proc/self/status").read())[1]))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert int(done.stdout) <= (300 << 20) + BUDGET
    assert [file.level for file in table.files().files] == [5]


def test_many_runs_are_merged_within_the_budget_whatever_is_held_by_open_files(tmp_path: Path) -> None:
    runs = 40
    table = make_table(tmp_path, columns=20)
    for run in range(runs):
        append(table, 2000, run + 1, seed=run)
    with peak_of_arrow() as peak:
        table.maintain(memory=BUDGET)
    assert peak[0] <= LEAST_FOR_OPEN_FILES + 1.5 * BUDGET
    assert sum(file.rows for file in table.files().files) == len({row * step for step in range(1, runs + 1) for row in range(2000)})


def test_a_limit_of_spilling_that_is_reached_loses_nothing(disordered: Path, tmp_path: Path) -> None:
    table = copy_of(disordered, tmp_path)
    before = sorted(Path(table.store.uri).rglob("*"))
    spill = Spill(str(tmp_path / "spill"), limit=20 << 20)
    plan = plan_pass(table.store, PlanRequest())
    (work,) = plan.work
    with pytest.raises(StorageError, match=r"limit of 20971520; raise `spill\.limit`"):
        execute(plan, work, table.store, table.schema, BUDGET, spill=spill)
    assert spill.used == 0
    assert sorted(Path(table.store.uri).rglob("*")) == before


def peak_of_a_pass(uri: str, **request: object) -> int:
    """The most bytes that a process takes which does a pass with the budget."""
    program = f"""
import re, maintainer
maintainer.open_table({uri!r}).maintain(memory={BUDGET}, **{request!r})
print(1024 * int(re.search(r"VmHWM:\\s*(\\d+) kB", open("/proc/self/status").read())[1]))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return int(done.stdout)


WIDE = 200_000


def wide_rows(directory: Path, rows: int, updates: int, options: dict[str, str], same_key: bool = False) -> maintainer.Table:
    """A table with rows of 200 kB each, and so many level-0 files on top with one key updated in each, another one or the same."""
    given = {"bucket": "1", "write-only": "true", **options}
    fields = [{"name": "id", "type": "INT"}, {"name": "s", "type": "STRING"}, {"name": "n", "type": "INT"}]
    table = maintainer.create_table(str(directory / "t"), {"fields": fields, "primaryKeys": ["id"], "options": given})
    for start in range(0, rows, 100):
        ids = list(range(start, min(start + 100, rows)))
        texts = [random.Random(number).randbytes(WIDE // 2).hex() for number in ids]
        with table.writer() as writer:
            writer.write(pa.table({"id": pa.array(ids, pa.int32()), "s": texts, "n": pa.array(ids, pa.int32())}))
    table.maintain(full=True, memory=BUDGET)
    for number in range(updates):
        text = random.Random(-number).randbytes(WIDE // 2).hex()
        with table.writer() as writer:
            writer.write(pa.table({"id": pa.array([0 if same_key else number], pa.int32()), "s": [text], "n": pa.array([-number], pa.int32())}))
    return table


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc: getrusage counts what the parent took, too")
@pytest.mark.parametrize("file_format", ["parquet", "orc"])
def test_forty_files_with_one_wide_row_each_stay_within_the_budget(file_format: str, tmp_path: Path) -> None:
    table = wide_rows(tmp_path, 50, 40, {"deletion-vectors.enabled": "true", "file.format": file_format})
    assert peak_of_a_pass(table.store.uri) <= (300 << 20) + BUDGET
    assert sorted(table.scan(columns=["n"]).to_arrow()["n"].to_pylist()) == [*range(-39, 1), *range(40, 50)]


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc: getrusage counts what the parent took, too")
def test_forty_wide_records_of_one_key_stay_within_the_budget(tmp_path: Path) -> None:
    """Nothing can be left out of what is merged here, unlike with deduplicate."""
    table = wide_rows(tmp_path, 10, 40, {"merge-engine": "partial-update"}, same_key=True)
    assert peak_of_a_pass(table.store.uri, full=True) <= (300 << 20) + BUDGET
    assert sorted(table.scan(columns=["n"]).to_arrow()["n"].to_pylist()) == [-39, *range(1, 10)]


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc: getrusage counts what the parent took, too")
def test_older_rows_that_are_looked_up_stay_within_the_budget(tmp_path: Path) -> None:
    """The new rows are narrow, so that many of them are merged at a time, and the old ones, which join them, are wide."""
    options = {"deletion-vectors.enabled": "true", "merge-engine": "partial-update"}
    table = wide_rows(tmp_path, 1000, 0, options)
    with table.writer() as writer:
        ids = pa.array(range(1000), pa.int32())
        writer.write(pa.table({"id": ids, "s": pa.nulls(1000, pa.string()), "n": pa.array(range(1000, 2000), pa.int32())}))
    assert peak_of_a_pass(table.store.uri) <= (300 << 20) + BUDGET
    assert sorted(table.scan(columns=["n"]).to_arrow()["n"].to_pylist()) == list(range(1000, 2000))


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc: getrusage counts what the parent took, too")
@pytest.mark.parametrize("options", [{"merge-engine": "partial-update"}, {"changelog-producer": "lookup"}], ids=["merged", "told"])
def test_older_rows_that_take_next_to_nothing_in_their_file_stay_within_the_budget(options: dict[str, str], tmp_path: Path) -> None:
    given = {"bucket": "1", "write-only": "true", "deletion-vectors.enabled": "true", **options}
    fields = [{"name": "id", "type": "INT"}, {"name": "s", "type": "STRING"}, {"name": "n", "type": "INT"}]
    table = maintainer.create_table(str(tmp_path / "t"), {"fields": fields, "primaryKeys": ["id"], "options": given})
    numbers, text = np.random.default_rng(1).permutation(8_000), "x" * 25_000
    for start in range(0, 8_000, 2_000):
        ids = pa.array(range(start, start + 2_000), pa.int32())
        with table.writer() as writer:
            writer.write(pa.table({"id": ids, "s": [text] * 2_000, "n": pa.array(numbers[start : start + 2_000], pa.int32())}))
    table.maintain(full=True, memory=BUDGET)
    with table.writer() as writer:
        ids = pa.array(range(8_000), pa.int32())
        writer.write(pa.table({"id": ids, "s": pa.nulls(8_000, pa.string()), "n": pa.array([7] * 8_000, pa.int32())}))
    assert peak_of_a_pass(table.store.uri) <= (300 << 20) + BUDGET
    assert {file.level for file in table.files()} == {4, 5}
    assert table.scan(columns=["n"]).to_arrow()["n"].to_pylist() == [7] * 8_000
