"""`scripts/bench` measures what it says, in a small way."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import structlog

PATH = Path(__file__).parents[2] / "scripts" / "bench.d" / "measure.py"


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    spec = importlib.util.spec_from_file_location("measure", PATH)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name, value in {"ROWS": 500, "KEYS": 2000, "ROUNDS": 1}.items():
        monkeypatch.setattr(module, name, value)
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    logging = structlog.get_config()
    yield module
    structlog.configure(**logging)


def test_each_line_has_a_name_a_value_a_unit_and_what_it_is_held_against(
    bench: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["measure.py"])
    bench.main()
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["name"] for line in lines] == [
        "compaction.full.cpu",
        "compaction.full.cpu_ratio",
        "compaction.full.process_cpu",
        "compaction.full.rows_per_cpu_second",
        "pass.small.wall",
        "help.wall",
    ]
    assert all(list(line) == ["name", "value", "unit", "versus"] and line["value"] > 0 for line in lines)


def test_an_exceeded_limit_is_an_exit_code(bench: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["measure.py", "help"])
    for limit, code in ((1e9, 0), (0.0, 1)):
        monkeypatch.setattr(bench, "start_up", lambda directory, limit=limit: iter([("help.wall", 1.0, "s", limit, True)]))
        assert bench.main() == code
    assert len(capsys.readouterr().out.splitlines()) == 2
