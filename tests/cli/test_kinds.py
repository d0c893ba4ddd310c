"""Rows of every kind from files: `write --kind`, `--delete` and a column `_VALUE_KIND`; and what a command says of when they are seen."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import maintainer
from tests.support.command import run
from tests.support.small_table import SmallTable

PLAIN = {"deletion-vectors.enabled": "false"}


def written(table: SmallTable, file: Path, *words: str) -> Any:
    result = run("write", table.path, file, *words, "--json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def seen(table: SmallTable) -> list[tuple[Any, ...]]:
    return sorted(tuple(json.loads(line).values()) for line in run("query", table.path, "--json").stdout.splitlines())


@pytest.mark.parametrize("name", ["kinds.csv", "kinds.jsonl"])
def test_a_column_of_kinds_in_a_file(name: str, tmp_path: Path) -> None:
    table, file = SmallTable(tmp_path, **PLAIN), tmp_path / name
    table.write({1: 10, 2: 20, 3: 30})
    rows = [("-D", 1, None), ("-U", 2, 20), ("+U", 2, 21), ("+I", 4, 40)]
    if name.endswith(".csv"):
        file.write_text("_VALUE_KIND,id,v\n" + "".join(f"{kind},{key},{'' if v is None else v}\n" for kind, key, v in rows))
    else:
        file.write_text("".join(json.dumps({"id": key, "_VALUE_KIND": kind, "v": v}) + "\n" for kind, key, v in rows))
    assert written(table, file)["rows"] == 4
    assert [row[:2] for row in seen(table)] == [(2, 21), (3, 30), (4, 40)]


@pytest.mark.parametrize(("content", "message"), [("+X,1\n", "'+X' is no kind"), (",1\n", "None is no kind"), ("-d,1\n", "'-d' is no kind")])
def test_what_is_no_kind_is_refused_with_the_file(content: str, message: str, tmp_path: Path) -> None:
    table, file = SmallTable(tmp_path), tmp_path / "kinds.csv"
    file.write_text("_VALUE_KIND,id\n" + content)
    result = run("write", table.path, file)
    assert result.exit_code == 2 and "kinds.csv" in result.stderr
    assert message in result.stderr
    assert maintainer.open_table(table.path).store.latest_snapshot_id() is None


def test_a_kind_for_all_rows(tmp_path: Path) -> None:
    table, file = SmallTable(tmp_path, **PLAIN), tmp_path / "rows.csv"
    file.write_text("id,v\n1,10\n2,20\n")
    written(table, file, "--kind", "+U")
    file.write_text("id\n1\n")
    assert written(table, file, "--kind", "-U")["deleted"] is False
    assert [row[0] for row in seen(table)] == [2]
    file.write_text("id\n2\n")
    assert written(table, file, "--kind", "-D")["deleted"] is True
    assert seen(table) == []
    for words in (["--kind", "-X"], ["--kind", "+I", "--delete"]):
        assert run("write", table.path, file, *words).exit_code == 2
    file.write_text("id,_VALUE_KIND\n2,+I\n")
    assert "already" in run("write", table.path, file, "--kind", "-D").stderr


@pytest.mark.parametrize(
    ("options", "visible"),
    [
        ({}, False),
        (PLAIN, True),
        ({"deletion-vectors.merge-on-read": "true"}, True),
        ({**PLAIN, "merge-engine": "first-row"}, False),
        ({**PLAIN, "merge-engine": "aggregation"}, True),
    ],
)
def test_whether_readers_see_what_was_written(options: dict[str, str], visible: bool, tmp_path: Path) -> None:
    table, file = SmallTable(tmp_path, **options), tmp_path / "rows.csv"
    file.write_text("id,v\n1,10\n")
    assert written(table, file)["visible"] is visible
    assert (seen(table) != []) is visible
    assert ("becomes visible" in run("write", table.path, file).stdout) is not visible


def test_a_budget_for_a_query(tmp_path: Path) -> None:
    table = SmallTable(tmp_path, **PLAIN)
    table.write({key: key for key in range(100)})
    table.write({key: -key for key in range(50, 150)})
    query = ("query", table.path, "--json")
    assert run(*query, "--memory", "64mb").stdout == run(*query).stdout
    assert (refused := run(*query, "--memory", "1mb")).exit_code == 2 and "at least 64 mb" in refused.stderr
