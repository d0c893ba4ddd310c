"""What people do wrong, forget, or do not know yet: each is answered with what to do."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.command import run
from tests.support.tables import append, make_busy_table, make_table


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return Path(make_table(tmp_path).store.uri)


def test_a_query_without_rows_says_why(table: Path) -> None:
    assert "Nothing was written to this table yet" in run("query", table).stdout
    append_rows(table, 3)
    shown = run("query", table).stdout
    assert "No rows." in shown
    assert "3 rows that may match cannot be seen (level 0: not visible until compacted); `maintainer once` changes that, and" in shown
    assert run("query", table, "--json").stdout == ""
    run("once", table)
    assert run("query", table, "--where", "id = 77").stdout == "No rows.\n"
    assert "No rows" not in run("query", table).stdout


def append_rows(table: Path, rows: int) -> None:
    file = table.parent / "rows.csv"
    file.write_text("id,v,n\n" + "".join(f"{number},x,{number}\n" for number in range(rows)))
    result = run("write", table, file)
    assert result.exit_code == 0, result.stderr
    assert f"Wrote {rows} rows; snapshot " in result.stdout
    assert "becomes visible when it is compacted" in result.stdout


def test_a_value_that_does_not_fit_is_said_with_its_file(table: Path, tmp_path: Path) -> None:
    file = tmp_path / "bad.csv"
    file.write_text("id,v,n\n1,x,99999999999\n")
    result = run("write", table, file)
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert "bad.csv, column 'n' of type INT: invalid value '99999999999'" in result.stderr
    file.write_text("id,v,n\n,x,1\n")
    assert f"{file}: cannot write null to the non-null column 'id'" in run("write", table, file).stderr


def test_deletes_are_called_deletes(table: Path, tmp_path: Path) -> None:
    file = tmp_path / "keys.csv"
    file.write_text("id\n99\n")
    assert "Appended deletes of 1 key; snapshot 1" in run("write", table, file, "--delete").stdout


def test_a_failure_is_told_once(tmp_path: Path) -> None:
    result = run("once", tmp_path)
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert json.loads(run("once", tmp_path, "--json").stdout)["passes"][0]["outcome"] == "failed"


def test_what_a_pass_did_is_said_in_words(table: Path) -> None:
    append_rows(table, 3)
    shown = run("once", table).stdout
    assert f"{table}  snapshot 1 → 2\ncommitted: 1 level-0 file cannot be seen by batch readers (in each of 2 buckets)\nfiles " in shown
    assert f"{table}  snapshot 2\nnothing to do: no file is to be compacted" in run("once", table).stdout


@pytest.mark.parametrize("words", [("rebuild", "t"), ("t", "build"), ("t", "drop")])
def test_index_has_one_way_to_be_called(words: tuple[str, str]) -> None:
    result = run("index", *words)
    assert result.exit_code == 2
    assert "index TABLE rebuild is all that index does, with the table first" in result.stderr
    assert run("index", "t").exit_code == 2


@pytest.mark.parametrize(("command", "option"), [("create", "--branch"), ("create", "--option"), ("demo", "--warehouse"), ("demo", "--option")])
def test_commands_have_only_options_that_say_something_to_them(command: str, option: str) -> None:
    assert option not in run(command, "--help").stdout
    assert run(command, option, "a=b").exit_code == 2


def test_waiting_for_a_snapshot_that_is_not_there_says_so(table: Path) -> None:
    result = run("wait", table, "--snapshot", "9", "--timeout", "0")
    assert result.exit_code == 1
    assert result.stderr == f"maintainer: {table}: there is no snapshot 9 yet\n"


@pytest.mark.parametrize("command", ["execute", "commit"])
def test_what_reads_stdin_does_not_wait_for_a_person(command: str) -> None:
    ours, theirs = pty.openpty()
    try:
        done = subprocess.run(
            [sys.executable, "-m", "maintainer", command], stdin=theirs, capture_output=True, text=True, check=False, timeout=60
        )
    finally:
        os.close(ours)
        os.close(theirs)
    assert done.returncode == 2
    assert f"maintainer: {command} reads JSON from stdin" in done.stderr and "maintainer plan TABLE --json | maintainer execute" in done.stderr


def test_the_table_for_people_is_no_plan(table: Path) -> None:
    append_rows(table, 3)
    result = run("execute", stdin=run("plan", table).stdout)
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert "stdin, line 1: no JSON" in result.stderr and "maintainer plan TABLE --json | maintainer execute" in result.stderr


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full here")
@pytest.mark.parametrize("options", [[], ["--json"]])
def test_output_that_cannot_be_written_is_no_defect(tmp_path: Path, options: list[str]) -> None:
    table = make_busy_table(tmp_path).store.uri
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "maintainer", "files", table, *options], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 1
    assert done.stderr == "maintainer: cannot write the output: No space left on device\n"


@pytest.mark.parametrize("words", ["--json >&-", ">&-", ">&- 2>&-"])
def test_a_closed_output_is_no_error(table: Path, words: str) -> None:
    command = f"{sys.executable} -m maintainer snapshots {table} {words}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("columns", ["80", "120", None])
def test_tables_fit_the_width_that_is_asked_for(tmp_path: Path, columns: str | None) -> None:
    table = make_busy_table(tmp_path)
    environment = {**os.environ, "PYTHONIOENCODING": "utf-8"} | ({} if columns is None else {"COLUMNS": columns})
    if columns is None:
        environment.pop("COLUMNS", None)
    for command in ("files", "coverage", "plan", "doctor"):
        done = subprocess.run(
            [sys.executable, "-m", "maintainer", command, table.store.uri],
            env=environment, capture_output=True, text=True, check=True, encoding="utf-8",
        )  # fmt: skip
        lines = [line for line in done.stdout.splitlines() if table.store.uri not in line]
        if columns is not None:
            assert max(map(len, lines)) <= int(columns), command
        elif command == "files":
            assert all(file.name in done.stdout for file in table.files().files)


def test_names_of_places_are_shown_as_they_are(tmp_path: Path) -> None:
    table = make_table(tmp_path / "[red]x :smile:")
    append(table, 0, 3)
    for command in ("files", "coverage", "once", "plan", "verify", "doctor", "snapshots"):
        assert table.store.uri in run(command, table.store.uri).stdout


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_an_old_terminal_is_no_failure(tmp_path: Path, encoding: str) -> None:
    table = make_table(tmp_path)
    append(table, 0, 3, value="größe 😀")
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    for command in (["files"], ["once"], ["doctor"], ["query"], ["query", "--json"]):
        words = [sys.executable, "-m", "maintainer", command[0], table.store.uri, *command[1:]]
        done = subprocess.run(words, env=environment, capture_output=True, check=False)
        assert (done.returncode, done.stderr) == (0, b""), command
    assert json.loads(done.stdout.splitlines()[0])["v"].startswith("größe 😀")


def test_a_budget_that_no_pass_can_keep(table: Path) -> None:
    result = run("once", table, "--memory", "1")
    assert (result.exit_code, "a pass needs at least 64 mb" in result.stderr) == (2, True)


def test_names_with_commas_are_selected_in_backticks(tmp_path: Path) -> None:
    schema = tmp_path / "t.sql"
    schema.write_text("CREATE TABLE t (id INT, `a, b` INT, `c``d` INT, PRIMARY KEY (id) NOT ENFORCED) WITH ('bucket' = '1')")
    rows = tmp_path / "rows.json"
    rows.write_text('{"id": 1, "a, b": 2, "c`d": 3}')
    table = tmp_path / "t"
    run("create", table, "--schema", schema)
    run("write", table, rows)
    assert run("query", table, "--select", "`c``d`, `a, b`", "--order-by", "`a, b` DESC", "--json").stdout == '{"c`d": 3, "a, b": 2}\n'
    assert "a backtick is not closed" in run("query", table, "--select", "`a, b").stderr
    assert "there is no column ''" in run("query", table, "--select", "").stderr
