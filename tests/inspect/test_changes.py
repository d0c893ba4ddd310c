"""Verification of what a snapshot added: the counts of its delta and of its changelog, and the changelog's files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import maintainer
from maintainer.inspect.verify import Verification
from tests.support import golden


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Java's, with changelog-producer = input; the snapshot before the compaction has a changelog."""
    found = golden.case("cl_input")
    assert found is not None
    return golden.unpack("cl_input", tmp_path, found["archives"]["input"])


def changed(table: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Let the latest snapshot say something else."""
    path = max((table / "snapshot").glob("snapshot-*"), key=lambda path: int(path.name.rpartition("-")[2]))
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


def verified(table: Path) -> Verification:
    return maintainer.open_table(str(table)).verify()


def changelog_file(table: Path) -> Path:
    found = golden.case("cl_input")
    assert found is not None
    names = {file["name"] for file in found["snapshots"][-2]["changelogFiles"]}
    return next(path for path in table.rglob("changelog-*") if path.name in names)


def test_the_changelog_is_counted_and_opened(table: Path) -> None:
    found = verified(table)
    assert found.ok, found.problems
    assert found.checked["record-change"] == 2
    assert found.checked["changelog-file"] >= 1


@pytest.mark.parametrize("member", ["deltaRecordCount", "changelogRecordCount"])
def test_a_count_that_the_files_do_not_make_up(table: Path, member: str) -> None:
    changed(table, lambda document: document.update({member: document[member] + 1}))
    found = verified(table)
    assert [problem.rule for problem in found.problems] == ["record-change"]
    assert member in found.problems[0].message


def test_a_changelog_file_that_is_missing(table: Path) -> None:
    path = changelog_file(table)
    path.unlink()
    (problem,) = verified(table).problems
    assert (problem.rule, problem.where) == ("changelog-file", path.name)


def test_a_changelog_file_that_is_cut(table: Path) -> None:
    path = changelog_file(table)
    path.write_bytes(path.read_bytes()[:-1])
    (problem,) = verified(table).problems
    assert (problem.rule, problem.where) == ("changelog-file", path.name)
