"""`scripts/bench` measures what it says, in a small way."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
import structlog

DIRECTORY = Path(__file__).parents[2] / "scripts" / "bench.d"


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(DIRECTORY))
    module = importlib.import_module("measure")
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    logging = structlog.get_config()
    yield module
    structlog.configure(**logging)


def test_each_line_has_a_name_a_value_a_unit_and_what_it_is_held_against(
    bench: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    compactions = sys.modules["compactions"]
    cases = {name: (replace(shape, rows=500, keys=2000), limit) for name, (shape, limit) in compactions.CASES.items()}
    monkeypatch.setattr(compactions, "CASES", {name: cases[name] for name in ("full", "aggregation")})
    monkeypatch.setattr(compactions, "ROUNDS", 1)
    monkeypatch.setattr(sys, "argv", ["measure.py", "compaction", "help"])
    bench.main()
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    figures = ("cpu", "cpu_ratio", "mb_per_cpu_second", "rows_per_cpu_second")
    assert [line["name"] for line in lines] == [
        *(f"compaction.full.{figure}" for figure in (*figures, "process_cpu")),
        *(f"compaction.aggregation.{figure}" for figure in figures),
        "help.wall",
    ]
    assert all(list(line) == ["name", "value", "unit", "versus"] and line["value"] > 0 for line in lines)


def test_indexes_are_measured_and_their_work_is_checked(
    bench: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    indexes = sys.modules["indexes"]
    for name, value in {"ROWS": 4000, "MANY_ROWS": 8000, "TEXT_BYTES": 40_000, "ROUNDS": 1, "FILE_ROWS": 2000}.items():
        monkeypatch.setattr(indexes, name, value)
    monkeypatch.setattr(indexes, "CASES", {name: indexes.CASES[name] for name in ("multivalue_text", "fm_lines")})
    monkeypatch.setattr(indexes, "LONG", ("multivalue_text",))
    monkeypatch.setattr(sys, "argv", ["measure.py", "index", "memory.index"])
    bench.main()
    lines = {line["name"]: line["value"] for line in map(json.loads, capsys.readouterr().out.splitlines())}
    assert lines.keys() - {f"index.build.{name}.ratio" for name in indexes.CASES} == {
        "index.build.multivalue_text.cpu",
        *(f"index.build.fm_lines.{figure}" for figure in ("mb_per_cpu_second", "cpu", "extra_memory")),
        *(f"index.rebuild.{family}.{figure}" for family in indexes.INDEXED for figure in ("cpu_ratio", "bytes_ratio")),
        "index.lookup.cold_reads",
        "index.lookup.warm_wall",
        "memory.index.multivalue_text",
    }
    assert all(value > 0 for name, value in lines.items() if not name.endswith("extra_memory"))


def test_an_exceeded_limit_is_an_exit_code(bench: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["measure.py", "help"])
    for limit, code in ((1e9, 0), (0.0, 1)):
        start_up = ("help", lambda directory, limit=limit: iter([("help.wall", 1.0, "s", limit, True)]))
        monkeypatch.setattr(bench, "MEASUREMENTS", (start_up,))
        assert bench.main() == code
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_names_that_mean_nothing_are_said_to_and_help_says_which_there_are(
    bench: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["measure.py", "help", "index.biuld"])
    assert bench.main() == 2
    assert "no measurement begins with index.biuld; there are compaction, pass.small," in capsys.readouterr().err
    monkeypatch.setattr(sys, "argv", ["measure.py", "--help"])
    assert bench.main() == 0
    said = capsys.readouterr().out
    for prefix, _ in bench.MEASUREMENTS:
        assert prefix.split(".")[0] in said


def test_queries_are_measured_and_their_answers_are_counted(
    bench: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    queries, tables = sys.modules["queries"], sys.modules["query_tables"]
    for name, value in {"MILLION": 2000, "PARTITIONS": 2, "BUCKETS": 2, "FILES": 3}.items():
        monkeypatch.setattr(tables, name, value)
    for name, value in {"ROWS": 20_000, "FAR_ROWS": 2000, "ROUNDS": 1, "ASKED": 3, "PYPAIMON": "/absent"}.items():
        monkeypatch.setattr(queries, name, value)
    children = len(queries.CHILD)  # what they do is done here: starting them takes longer
    monkeypatch.setattr(queries, "run", lambda command: (str(bench.CHILDREN[command[children]](*command[children + 1 :])), 0.0))
    monkeypatch.setenv("MAINTAINER_BENCH_TABLES", str(tmp_path))
    tables.warehouse.cache_clear()
    monkeypatch.setattr(sys, "argv", ["measure.py", "query", "memory.query"])
    bench.main()
    lines = {line["name"]: line["value"] for line in map(json.loads, capsys.readouterr().out.splitlines())}
    compared = {"query.scan.ratio", "query.scan.updated_ratio"}
    asked = {name for name in lines if name.startswith("query.requests.")}
    assert lines.keys() - compared - asked == {
        *(f"query.equality.{figure}" for figure in ("cpu", "text", "repeated", "first", "wall", "updated", "growth")),
        *(f"query.range.{which}{figure}" for which in ("correlated", "uncorrelated") for figure in ("", "_ratio")),
        *(f"query.scan.{figure}" for figure in ("wall", "cpu", "first_batch", "updated")),
        *(f"query.plan.{figure}" for figure in ("unconditional", "key", "indexed", "statistics", "first", "memory")),
        *(f"memory.query.{figure}" for figure in ("scan", "equality", "range")),
    }
    assert len(asked) in (0, 9)
    assert all(value >= 0 for value in lines.values())
