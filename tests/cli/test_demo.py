"""The demo: right answers at the end, and a wrong one is noticed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import maintainer
from maintainer.cli.demo import story
from tests.support.command import run


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"FIRST_ROWS": 2000, "BATCHES": 3, "NEW": 100, "CHANGED": 200, "DELETED": 50, "PAUSE": 0.05}.items():
        monkeypatch.setattr(story, name, value)


def test_it_ends_well_and_leaves_a_table_to_look_at(tmp_path: Path) -> None:
    result = run("demo", "--directory", tmp_path, "--json")
    assert result.exit_code == 0, result.output
    summary = json.loads(result.stdout)
    assert summary["ok"] is True
    assert summary["right"] == summary["queries"] >= 2 * len(story.QUERIES)
    assert (summary["visible_ratio"], summary["covered_ratio"], summary["problems"]) == (1.0, 1.0, 0)
    table = maintainer.open_table("shop.orders", warehouse=str(tmp_path))
    assert table.scan().to_arrow().num_rows == summary["rows"] > 2000
    assert table.verify(deep=True).ok


def test_people_see_what_happens() -> None:
    result = run("demo")
    assert result.exit_code == 0, result.output
    assert "of the rows visible" in result.stdout
    assert "All answers were right" in result.stdout


def test_a_wrong_answer_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = ("status = 'new'", lambda order: order[3] == "paid")
    monkeypatch.setattr(story, "QUERIES", (*story.QUERIES, wrong))
    result = run("demo")
    assert result.exit_code == 1
    assert "Something was wrong" in result.stdout


def test_a_writer_that_fails_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise maintainer.StorageError("the disk is full")

    monkeypatch.setattr(story.Story, "_write_batch", fail)
    result = run("demo")
    assert result.exit_code == 5
    assert "the disk is full" in result.stderr
