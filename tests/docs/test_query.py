"""The page about queries: its examples run one after the other as they stand, and the three forms of a condition ask the same."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from maintainer import col, open_table
from maintainer.api.table import Table

SIZE = re.compile(r"[\d.]+ [KM]?B$")  # a matter of libraries
PAGE = (Path(__file__).parents[2] / "docs" / "query.md").read_text("utf-8")


def blocks(language: str) -> str:
    return "\n".join(re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL))


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the table of the page is."""
    found = tmp_path_factory.mktemp("query")
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}", "COLUMNS": "200"}
    script = "set -euo pipefail\n" + blocks("sh")
    shown = subprocess.run(["bash", "-c", script], cwd=found, env=env, capture_output=True, text=True, encoding="utf-8", check=False)
    assert shown.returncode == 0, shown.stderr
    assert "1 row that may match cannot be seen" not in shown.stdout
    out = [SIZE.sub("", " ".join(line.split())) for line in shown.stdout.splitlines()]
    for line in blocks("text").splitlines():
        assert SIZE.sub("", " ".join(line.split())) in out, line
    assert re.search(r"^1 +12\.50 *$", shown.stdout, re.MULTILINE)
    return found


@pytest.fixture
def orders(directory: Path) -> Iterator[Table]:
    return open_table(str(directory / "wh/shop.db/orders"))


def test_the_examples_run(directory: Path) -> None:
    env = {**os.environ, "PYTHONWARNINGS": "error::FutureWarning"}
    done = subprocess.run([sys.executable, "-c", blocks("python")], cwd=directory, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def run(recipe: str, directory: Path) -> None:
    (block,) = re.findall(rf"```python {recipe}\n(.*?)```", PAGE, re.DOTALL)
    env = {**os.environ, "RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}
    done = subprocess.run([sys.executable, "-c", block], cwd=directory, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_dask_reads_the_splits_of_a_scan(directory: Path) -> None:
    run("dask", directory)


@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed")
def test_ray_reads_the_splits_of_a_scan(directory: Path) -> None:
    run("ray", directory)


def test_a_condition_means_the_same_in_all_its_forms(orders: Table) -> None:
    found = re.findall(r"^\| `([^`]+)`[^|]* \| `((?:[^`|]|\\\|)*)`[^|]* \| (?:`((?:[^`|]|\\\|)*)`[^|]*)?\|$", PAGE, re.MULTILINE)
    conditions = [row for row in found if "col(" in row[1]]
    assert len(conditions) == 13
    everything = orders.scan().to_arrow()
    answers = set()
    for sql, expression, arrow in conditions:
        scan = orders.scan(where=sql).plan()
        assert orders.scan(where=eval(expression.replace("\\|", "|"), {"col": col})).plan().predicate == scan.predicate, sql
        ids = sorted(orders.scan(where=sql).to_arrow()["id"].to_pylist())
        answers.add(tuple(ids))
        if arrow:
            condition = eval(arrow.replace("\\|", "|"), {"pc": pc})
            assert sorted(orders.scan(where=condition).to_arrow()["id"].to_pylist()) == ids, sql
            assert sorted(everything.filter(condition)["id"].to_pylist()) == ids, sql
    assert len(answers) > 5


def test_every_result_is_on_the_page(orders: Table) -> None:
    scan = orders.scan()
    for name in dir(scan):
        if name.startswith("to_") or name in ("plan", "explain", "splits", "__arrow_c_stream__"):
            assert f"`{name}(" in PAGE, name
    assert pa.table(scan).num_rows == 4
