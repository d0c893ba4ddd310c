"""The commands: the JSON shapes and exit codes of DESIGN §5, and a readable form of everything."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import maintainer
from maintainer.api import maintenance
from tests.support.command import run
from tests.support.evolve import set_options
from tests.support.java_cases import java_case
from tests.support.tables import append, make_busy_table, make_table

PASS_MEMBERS = {
    "table", "snapshot_before", "snapshot_after", "outcome", "reason", "input_files", "output_files", "groups_built", "groups_dropped",
    "bytes_read", "bytes_written", "seconds",
}  # fmt: skip


def ok(*words: str | Path, stdin: str | None = None) -> Any:
    """The JSON document of a command that must succeed."""
    result = run(*words, "--json", stdin=stdin)
    assert result.exit_code == 0, result.stderr
    assert result.stderr == ""
    document = json.loads(result.stdout)
    assert document["version"] == 1
    return document


def refused(code: int, *words: str | Path, stdin: str | None = None) -> str:
    """The one line on stderr of a command that must fail."""
    result = run(*words, stdin=stdin)
    assert result.exit_code == code, (result.exit_code, result.stderr, result.stdout)
    assert result.stderr.startswith("maintainer: ")
    assert result.stderr.count("\n") == 1
    assert "Traceback" not in result.stderr
    return result.stderr


def rows(*words: str | Path) -> list[dict[str, Any]]:
    result = run("query", *words, "--json")
    assert result.exit_code == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.fixture
def busy(tmp_path: Path) -> Path:
    return Path(make_busy_table(tmp_path).store.uri)


SQL = """
CREATE TABLE t (id BIGINT, v STRING, d DECIMAL(10, 2), at TIMESTAMP(3), day DATE, t TIME(3), b BYTES, f DOUBLE, y BOOLEAN,
    l ARRAY<INT>, m MAP<STRING, INT>, r ROW<x INT, y ARRAY<STRING>>, PRIMARY KEY (id) NOT ENFORCED)
WITH ('bucket' = '1', 'deletion-vectors.enabled' = 'true', 'write-only' = 'true', 'pk-btree.index.columns' = 'v')
"""
ROWS: list[dict[str, Any]] = [
    {"id": 1, "v": "a, \"b\"", "d": "12.50", "at": "2024-02-29T03:04:05.678000000", "day": "2024-02-29", "t": "23:59:59.125", "b": "aGk=",
     "f": 1.5, "y": True, "l": [1, None], "m": [["k", 1], ["n", None]], "r": {"x": 1, "y": ["q", None]}},
    {"id": 2, "v": "", "d": None, "at": None, "day": None, "t": None, "b": None, "f": "NaN", "y": None, "l": None, "m": None, "r": None},
    {"id": 3, "v": None, "d": "-0.01", "at": None, "day": "1969-12-31", "t": None, "b": "", "f": "-Infinity", "y": False, "l": [], "m": [],
     "r": {"x": None, "y": None}},
]  # fmt: skip


@pytest.fixture
def typed(tmp_path: Path) -> Path:
    definition = tmp_path / "t.sql"
    definition.write_text(SQL)
    table = tmp_path / "wh" / "db.db" / "t"
    assert ok("create", "db.t", "--warehouse", tmp_path / "wh", "--schema", definition) == {"version": 1, "table": str(table), "schema_id": 0}
    return table


class TestRows:
    def test_json_lines_come_back_as_they_went_in(self, typed: Path, tmp_path: Path) -> None:
        lines = tmp_path / "rows.jsonl"
        lines.write_text("\n".join(json.dumps(row) for row in ROWS) + "\n\n")
        written = ok("write", typed, lines)
        assert (written["snapshot"], written["rows"]) == (1, 3)
        assert rows(typed) == []  # nothing is visible yet
        ok("once", typed)
        assert rows(typed) == ROWS
        lines.write_text(run("query", typed, "--json").stdout)
        ok("write", typed, lines)
        ok("once", typed)
        assert rows(typed) == ROWS

    def test_csv_and_parquet(self, typed: Path, tmp_path: Path) -> None:
        csv = tmp_path / "rows.csv"
        csv.write_text('id,v,d,at,day,t,f,y,b\n1,"a, ""b""",12.50,2024-02-29 03:04:05.678,2024-02-29,23:59:59.125,1.5,true,hi\n2,"",,,,,,,\n')
        parquet = tmp_path / "rows.parquet"
        pq.write_table(pa.table({"id": [3], "f": [0.5]}), parquet)
        assert ok("write", typed, csv, parquet)["snapshot"] == 1
        ok("once", typed)
        found = rows(typed)
        assert {**ROWS[0], "l": None, "m": None, "r": None} == found[0]
        assert (found[1]["v"], found[1]["d"]) == ("", None)
        assert (found[2]["v"], found[2]["f"]) == (None, 0.5)

    def test_deletes_take_keys(self, busy: Path, tmp_path: Path) -> None:
        keys = tmp_path / "keys.csv"
        keys.write_text("id\n0\n1\n")
        ok("once", busy)
        before = len(rows(busy))
        assert ok("write", busy, keys, "--delete")["deleted"] is True
        ok("once", busy)
        assert len(rows(busy)) == before - 2

    @pytest.mark.parametrize(
        ("name", "content", "message"),
        [
            ("x.txt", "", "the extension must say what it is"),
            ("x.jsonl", '{"id": 1}\n{"id"', "line 2: no JSON"),
            ("x.jsonl", "[1]", "must be a JSON object"),
            ("x.jsonl", '{"nothing": 1}', "no column 'nothing'"),
            ("x.jsonl", '{"id": "x"}', "column 'id' of type BIGINT"),
            ("x.jsonl", '{"id": true}', "column 'id' of type BIGINT"),
            ("x.jsonl", '{"id": 1, "d": "1.234"}', "column 'd' of type DECIMAL"),
            ("x.jsonl", '{"id": 1, "day": "2024-02-30"}', "column 'day' of type DATE"),
            ("x.jsonl", '{"id": 1, "b": "?"}', "column 'b' of type BYTES"),
            ("x.jsonl", '{"id": 1, "r": {"z": 1}}', "no member 'z'"),
            ("x.jsonl", '{"v": "no key"}', "no column 'id'"),
            ("x.csv", "id,l\n1,[]\n", "a CSV field cannot hold column 'l'"),
            ("x.csv", "id,v\n1\n", "Expected 2 columns"),
            ("x.csv", "id\nx\n", "x.csv"),
            ("x.parquet", "no parquet", "x.parquet"),
        ],
    )
    def test_files_that_cannot_be_written_are_named_and_leave_nothing(
        self, typed: Path, tmp_path: Path, name: str, content: str, message: str
    ) -> None:
        file = tmp_path / name
        file.write_text(content)
        assert message in refused(2, "write", typed, file)
        assert not (typed / "snapshot").exists()
        assert not list(typed.glob("bucket-*/*"))

    def test_a_missing_file_is_named(self, typed: Path) -> None:
        assert "nowhere.csv" in refused(2, "write", typed, "nowhere.csv")

    def test_queries(self, busy: Path) -> None:
        ok("once", busy)
        assert rows(busy, "--where", "id = 5") == [{"id": 5, "v": "x0", "n": 5}]
        ids = [i for i in range(990) if i % 5 == 0 and i % 7 == 5 and i % 10 and not 100 <= i < 150 and not 300 <= i < 320]
        found = rows(busy, "--where", "v = 'x0' AND n = 5", "--select", "n, id", "--order-by", "id DESC", "--limit", "2")
        assert found == [{"n": 5, "id": ids[-1]}, {"n": 5, "id": ids[-2]}]
        assert rows(busy, "--where", "v LIKE 'z%'", "--no-index") == rows(busy, "--where", "v LIKE 'z%'")
        assert len(rows(busy, "--where", "v LIKE 'z%'")) == 30
        assert rows(busy, "--limit", "0") == []
        assert "id" in run("query", busy, "--limit", "3").stdout

    def test_time_travel(self, busy: Path) -> None:
        assert len(rows(busy, "--snapshot", "2")) == 1000
        assert len(rows(busy, "--as-of", "2200-01-01 00:00:00")) == 980
        assert "no snapshot 99" in refused(2, "query", busy, "--snapshot", "99")
        assert "no tag 'x'" in refused(2, "query", busy, "--tag", "x")
        assert "only one of" in refused(2, "query", busy, "--tag", "x", "--snapshot", "1")

    def test_explain_says_how_each_file_is_read(self, busy: Path) -> None:
        found = ok("query", busy, "--where", "n = 3", "--explain")
        assert {file["decision"] for file in found["files"]} <= {"pruned", "indexed", "raw"}
        assert any(file["decision"] == "indexed" and file["column"] == "n" and file["group"] for file in found["files"])
        assert {"partition", "bucket", "file", "decision", "reason", "column", "group", "ranges", "rows"} <= set(found["files"][0])
        assert [step["step"] for step in found["steps"]] == ["files", "partition", "bucket", "level", "key range", "statistics", "index"]
        shown = run("query", busy, "--where", "n = 3", "--explain").stdout
        assert "indexed" in shown
        assert "bytes left" in shown

    def test_explaining_a_table_without_rows_shows_no_empty_tables(self, tmp_path: Path) -> None:
        table = maintainer.create_table(
            tmp_path / "t", {"fields": [{"name": "id", "type": "INT NOT NULL"}], "primaryKeys": ["id"], "options": {"bucket": "1"}}
        )
        assert run("query", tmp_path / "t", "--explain").stdout == f"{table.name}\nNothing was written to this table yet.\n"

    def test_a_condition_that_cannot_be_read_is_shown(self, busy: Path) -> None:
        assert "nothing" in refused(2, "query", busy, "--where", "nothing = 1")
        refused(2, "query", busy, "--where", "id = ")
        refused(2, "query", busy, "--select", "nothing")

    def test_many_rows_are_cut_for_people_but_not_for_programs(self, busy: Path) -> None:
        shown = run("query", busy).stdout
        assert "Only the first 100 rows are shown" in shown
        assert len(rows(busy)) == 980


class TestMaintenance:
    def test_once_brings_everything_into_shape_and_then_has_nothing_to_do(self, busy: Path) -> None:
        (first,) = ok("once", busy)["passes"]
        assert set(first) >= PASS_MEMBERS
        assert first["outcome"] == "committed"
        assert first["snapshot_after"] > first["snapshot_before"]
        (second,) = ok("once", busy)["passes"]
        assert (second["outcome"], second["snapshot_before"], second["snapshot_after"]) == (
            "nothing",
            first["snapshot_after"],
            first["snapshot_after"],
        )
        assert second["reason"]
        assert ok("coverage", busy)["visible_ratio"] == 1.0

    def test_several_tables_do_not_keep_one_another_from_their_passes(self, busy: Path, tmp_path: Path) -> None:
        other = make_table(tmp_path / "other")
        append(other, 0, 10)
        unsupported = make_table(tmp_path / "unsupported")
        set_options(unsupported.store.uri, **{"sequence.snapshot-ordering": "true"})
        result = run("once", busy, unsupported.store.uri, tmp_path / "nowhere", other.store.uri, "--json")
        passes = json.loads(result.stdout)["passes"]
        assert [each["outcome"] for each in passes] == ["committed", "failed", "failed", "committed"]
        assert "sequence.snapshot-ordering" in passes[1]["reason"]
        assert result.exit_code == 7
        assert result.stderr.count("\n") == 2
        assert all(set(each) >= PASS_MEMBERS for each in passes)

    def test_the_worst_of_several_failures_decides(self, busy: Path, tmp_path: Path) -> None:
        unsupported = make_table(tmp_path / "unsupported")
        set_options(unsupported.store.uri, **{"merge-engine": "aggregation"})
        for path in (busy / "manifest").iterdir():
            path.write_bytes(b"x")
        assert run("once", unsupported.store.uri, busy).exit_code == 3
        assert run("once", tmp_path / "nowhere").exit_code == 2

    @pytest.mark.parametrize(
        ("names", "code"),
        [
            (["ConnectionError", "CommitConflict", "Unsupported", "StorageError", "CorruptFile"], 3),
            (["ConnectionError", "CommitConflict", "Unsupported", "StorageError"], 5),
            (["ConnectionError", "CommitConflict", "Unsupported"], 7),
            (["ConnectionError", "CommitConflict"], 4),
            (["ConnectionError", "UsageError"], 1),
            (["UsageError"], 2),
        ],
    )
    def test_exit_codes_of_several_tables_have_an_order(self, names: list[str], code: int, monkeypatch: pytest.MonkeyPatch) -> None:
        def open_table(name: str, **given: Any) -> Any:
            raise getattr(maintainer, name, ConnectionError)("no")

        monkeypatch.setattr("maintainer.api.table.open_table", open_table)
        assert run("once", *names).exit_code == run("once", *reversed(names)).exit_code == code

    def test_a_defect_is_the_failure_of_its_table_alone(self, busy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        other = make_table(tmp_path / "other")
        original = maintenance.load_latest

        def load(store: Any, *given: Any) -> Any:
            if store.uri == str(busy):
                raise ZeroDivisionError("division by zero")
            return original(store, *given)

        append(other, 0, 10)
        monkeypatch.setattr(maintenance, "load_latest", load)
        result = run("once", busy, other.store.uri, "--json")
        passes = json.loads(result.stdout)["passes"]
        assert [each["outcome"] for each in passes] == ["failed", "committed"]
        assert result.exit_code == 1
        assert f"{busy}: this should not have happened: ZeroDivisionError" in passes[0]["reason"]

    def test_a_failure_names_its_table(self, busy: Path) -> None:
        set_options(str(busy), **{"num-levels": "many"})
        assert f"{busy}: option num-levels = 'many'" in refused(2, "once", busy)

    def test_compact_and_index(self, busy: Path) -> None:
        assert ok("compact", busy)["passes"][0]["outcome"] == "committed"
        assert ok("compact", busy, "--full")["passes"][0]["outcome"] == "committed"
        assert len({file["level"] for file in ok("files", busy)["files"]} - {0}) == 1
        assert ok("index", busy, "rebuild")["passes"][0]["outcome"] == "nothing"
        (forced,) = ok("index", busy, "rebuild", "--column", "n", "--force")["passes"]
        assert (forced["outcome"], forced["input_files"]) == ("committed", 0)
        assert forced["groups_built"] == forced["groups_dropped"] > 0
        assert run("index", busy, "drop").exit_code == 2
        refused(2, "index", busy, "rebuild", "--column", "nothing")

    def test_a_partition_alone(self, tmp_path: Path) -> None:
        table = make_table(tmp_path, partitioned=True)
        for name in ("a", "b"):
            append(table, 0, 10, p=name)
        ok("compact", table.store.uri, "--partition", "p=a")
        levels = {(file["partition"]["p"], file["level"] > 0) for file in ok("files", table.store.uri)["files"]}
        assert levels == {("a", True), ("b", False)}
        assert "--partition" in refused(2, "compact", table.store.uri, "--partition", "a")

    def test_plan_execute_commit_is_a_pass_in_three_processes(self, busy: Path) -> None:
        plan = ok("plan", busy)
        assert {"table", "snapshot", "work", "idle_reason"} <= set(plan)
        assert all({"partition", "bucket", "kind", "reason", "input_files", "output_level", "rebuilds"} <= set(work) for work in plan["work"])
        executed = run("execute", stdin=json.dumps(plan))
        assert executed.exit_code == 0, executed.stderr
        lines = executed.stdout.splitlines()
        assert len(lines) == len(plan["work"]) > 1
        assert {"table", "snapshot", "uuid", "schema_id", "work", "created", "counts", "failures", "message"} <= set(json.loads(lines[0]))
        assert ok("coverage", busy)["snapshot"] == plan["snapshot"]
        committed = ok("commit", stdin=executed.stdout)
        assert committed["snapshot"] == plan["snapshot"] + 1
        assert ok("coverage", busy)["visible_ratio"] == 1.0
        assert ok("plan", busy)["work"] == []
        # The same results again change nothing and delete nothing.
        assert run("commit", stdin=executed.stdout).exit_code == 4
        ok("compact", busy, "--full")
        ok("index", busy, "rebuild", "--force")
        assert run("commit", stdin=executed.stdout).exit_code == 4
        assert ok("verify", busy, "--deep")["ok"]
        assert rows(busy, "--snapshot", str(committed["snapshot"]), "--where", "n = 3")

    def test_a_stale_plan_is_not_executed(self, busy: Path) -> None:
        plan = run("plan", busy, "--json").stdout
        set_options(str(busy), **{"snapshot.time-retained": "2 h"})
        assert "plan again" in refused(4, "execute", stdin=plan)

    def test_results_that_no_longer_fit_are_dropped_with_their_files(self, busy: Path) -> None:
        results = run("execute", stdin=run("plan", busy, "--json").stdout).stdout
        created = [busy / path for line in results.splitlines() for path in json.loads(line)["created"]]
        assert all(path.exists() for path in created)
        ok("once", busy)
        lost = run("commit", "--json", stdin=results)
        assert lost.exit_code == 4
        assert json.loads(lost.stdout)["snapshot"] is None
        assert not any(path.exists() for path in created)
        assert ok("verify", busy, "--deep")["ok"]

    @pytest.mark.parametrize("command", ["execute", "commit"])
    @pytest.mark.parametrize("stdin", ["{", "{}", "[]", '{"version": 2}', "1\n2"])
    def test_other_input_is_refused(self, command: str, stdin: str) -> None:
        refused(2, command, stdin=stdin)

    def test_the_plan_of_an_idle_table_ends_in_no_commit_and_no_error(self, busy: Path) -> None:
        ok("once", busy)
        before = ok("snapshots", busy)
        results = run("execute", stdin=run("plan", busy, "--json").stdout)
        assert (results.exit_code, results.stdout) == (0, "")
        assert run("commit", "--json", stdin="").stdout == ""
        assert "nothing is committed" in run("commit", stdin="").stdout
        assert ok("snapshots", busy) == before
        assert "execute reads one plan from stdin, not 0" in refused(2, "execute", stdin="")


class TestInspection:
    def test_every_report_has_its_members(self, busy: Path) -> None:
        coverage = ok("coverage", busy)
        assert set(coverage) >= {"table", "snapshot", "rows", "visible_rows", "visible_ratio", "definitions", "uncovered"}
        assert set(coverage["definitions"][0]) >= {"column", "family", "covered_rows", "ratio"}
        assert set(coverage["uncovered"][0]) >= {"partition", "bucket", "file", "level", "rows", "column", "reason"}
        verified = ok("verify", busy)
        assert set(verified) >= {"table", "snapshot", "ok", "checked", "problems"}
        (file, *_) = ok("files", busy)["files"]
        assert set(file) >= {
            "partition", "bucket", "level", "name", "rows", "size", "source", "min_sequence", "max_sequence", "deleted_rows", "schema_id",
            "covered_by",
        }  # fmt: skip
        (snapshot, *_) = ok("snapshots", busy)["snapshots"]
        assert set(snapshot) >= {"id", "kind", "time", "schema_id", "total_records", "delta_records", "user", "identifier"}
        doctor = ok("doctor", busy)
        assert doctor["fit"] is True
        assert set(doctor["findings"][0]) >= {"severity", "what", "why", "do"}

    @pytest.mark.parametrize("command", ["coverage", "verify", "files", "snapshots", "doctor", "plan"])
    def test_people_get_tables(self, busy: Path, command: str) -> None:
        result = run(command, busy)
        assert result.exit_code == 0, result.stderr
        assert str(busy) in result.stdout

    def test_a_doctor_speaks_of_a_table_that_cannot_be_opened(self, busy: Path) -> None:
        (busy / "schema" / "schema-1").write_bytes(b"{")
        found = ok("doctor", busy)
        assert found["fit"] is False
        assert "schema-1" in found["findings"][0]["why"]

    def test_a_doctor_names_the_library_that_is_missing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("maintainer.inspect.diagnosis.find_spec", lambda _: None)
        monkeypatch.setattr("maintainer.storage.remote._open", _no_library)
        (found,) = ok("doctor", "gs://bucket/t")["findings"]
        assert (found["severity"], found["what"]) == ("error", "gcsfs is not installed")
        assert found["do"] == "pip install 'paimon-maintainer[gcs]'"

    def test_wait(self, busy: Path) -> None:
        late = run("wait", busy, "--timeout", "0", "--json")
        assert late.exit_code == 1
        assert json.loads(late.stdout)["reached"] is False
        ok("once", busy)
        assert ok("wait", busy, "--coverage", "1.0", "--definition", "n", "--timeout", "10 s")["reached"] is True
        assert run("wait", busy, "--coverage", "1.5").exit_code == 2

    def test_problems_have_an_exit_code_of_their_own(self, busy: Path) -> None:
        file = ok("files", busy)["files"][0]
        (busy / f"bucket-{file['bucket']}" / file["name"]).write_bytes(b"x")
        result = run("verify", busy, "--json")
        assert result.exit_code == 6
        assert json.loads(result.stdout)["problems"]
        assert "data-file" in run("verify", busy).stdout


def _no_library(*_: Any) -> Any:
    raise maintainer.UsageError("the library is not installed")


class TestErrors:
    @pytest.mark.parametrize("command", ["coverage", "verify", "files", "snapshots", "doctor", "plan", "once", "compact", "query"])
    def test_what_is_no_table_is_named(self, command: str, tmp_path: Path) -> None:
        assert f"{tmp_path}: not a Paimon table" in run(command, tmp_path).stderr
        assert run(command, tmp_path).exit_code == 2

    def test_a_name_needs_a_warehouse(self) -> None:
        assert "needs a warehouse" in refused(2, "files", "db.t")

    def test_options_must_be_pairs_and_may_not_change_what_the_files_mean(self, busy: Path) -> None:
        assert "--option 'x'" in refused(2, "files", busy, "--option", "x")
        assert "bucket" in refused(2, "files", busy, "--option", "bucket=9")

    def test_dynamic_options_hold_for_the_command(self, busy: Path) -> None:
        ok("once", busy, "--option", "file.compression=none")

    def test_debug_shows_where(self, tmp_path: Path) -> None:
        result = run("files", tmp_path, "--debug")
        assert isinstance(result.exception, maintainer.NotATable)

    def test_an_unknown_command_is_a_usage_error(self) -> None:
        assert run("nothing").exit_code == 2
        assert run("files").exit_code == 2


def test_a_branch_is_a_table_of_its_own(tmp_path: Path) -> None:
    directory = java_case("tags_branches").directory
    main = ok("snapshots", directory)["snapshots"]
    (branch,) = {path.name.removeprefix("branch-") for path in (directory / "branch").iterdir()}
    other = ok("snapshots", directory, "--branch", branch)
    assert other["table"] == f"{directory} (branch {branch})"
    assert other["snapshots"] != main
    refused(2, "snapshots", directory, "--branch", "nothing")


def command_line(*words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "maintainer", *words], capture_output=True, text=True, check=False, **options)


def test_help_is_cheap_and_lists_every_command() -> None:
    shown = command_line("--help", env={**os.environ, "PYTHONPROFILEIMPORTTIME": "1", "COLUMNS": "200"})
    assert shown.returncode == 0
    names = ["create", "write", "once", "compact", "index", "plan", "execute", "commit", "coverage", "wait", "verify", "query"]
    for name in [*names, "snapshots", "files", "doctor", "demo"]:
        assert name in shown.stdout
    imported = {line.split("|")[-1].strip() for line in shown.stderr.splitlines()}
    assert "typer" in imported
    assert not imported & {"pyarrow", "numpy", "pandas", "sqlglot", "fastavro", "structlog", "fsspec", "pydantic"}


def test_passes_do_not_import_what_they_do_not_need(busy: Path) -> None:
    shown = command_line("once", str(busy), "--json", env={**os.environ, "PYTHONPROFILEIMPORTTIME": "1"})
    assert shown.returncode == 0
    imported = {line.split("|")[-1].strip() for line in shown.stderr.splitlines()}
    assert "pyarrow.parquet" in imported
    assert not imported & {"pandas.core.frame", "sqlglot", "polars", "duckdb", "pypaimon"}


def test_polars_does_without_pandas_as_arrow_does() -> None:
    """It looks for pandas when it is imported, and Avro files are read with it, in every command."""
    pytest.importorskip("polars")
    code = "import sys; from maintainer.cli.main import _WithoutPandas; sys.meta_path.insert(0, _WithoutPandas()); import polars"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_numbers_are_cast_and_added_up_without_pandas(tmp_path: Path) -> None:
    """Whether it is installed or not: some versions of Arrow ask it which numpy type a number has."""
    table = tmp_path / "sums"
    schema = tmp_path / "sums.sql"
    schema.write_text(
        "CREATE TABLE sums (k INT, a INT, f FLOAT, t TIMESTAMP(3), PRIMARY KEY (k) NOT ENFORCED) "
        "WITH ('bucket' = '1', 'merge-engine' = 'aggregation', 'fields.default-aggregate-function' = 'last_value', "
        "'fields.a.aggregate-function' = 'sum')"
    )
    ok("create", table, "--schema", schema)
    for _ in range(2):
        file = tmp_path / "rows.jsonl"
        file.write_text('{"k": 1, "a": 2, "f": 0.5, "t": "2026-01-02T03:04:05.678000000"}\n')
        ok("write", table, file)
    done = command_line("compact", str(table), "--full")
    assert done.returncode == 0, done.stderr
    ok("alter", table, "alter-type", "a", "BIGINT", "and", "alter-type", "f", "DOUBLE", "and", "alter-type", "t", "BIGINT")
    done = command_line("query", str(table), "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"k": 1, "a": 4, "f": 0.5, "t": 1767323045}


def test_a_reader_that_has_had_enough_is_no_error(busy: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "maintainer", "query", str(busy), "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == b""


def test_the_version_is_that_of_the_package() -> None:
    from importlib.metadata import version

    assert command_line("--version").stdout == f"maintainer {maintainer.__version__}\n"
    assert maintainer.__version__ == version("paimon-maintainer")


def test_json_is_unicode_and_not_escaped(typed: Path, tmp_path: Path) -> None:
    lines = tmp_path / "rows.jsonl"
    lines.write_text('{"id": 1, "v": "größe 😀"}', encoding="utf-8")
    ok("write", typed, lines)
    ok("once", typed)
    out = command_line("query", str(typed), "--json", "--select", "v", encoding="utf-8", env={**os.environ, "PYTHONIOENCODING": "utf-8"})
    assert out.stdout == '{"v": "größe 😀"}\n'
