"""What maintenance and writing refuse: by the name of the option or kind, with exit code 7, before anything is written; reading goes on."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support.builders import type_
from tests.support.command import run
from tests.support.evolve import retype_column, set_options
from tests.support.java_cases import java_case
from tests.support.tables import make_busy_table

OPTIONS = [
    ("sequence.snapshot-ordering", "true"),
    ("file-index.bloom-filter.columns", "v"),
    ("file-index.bitmap.columns", "v"),
    ("file.format", "csv"),
    ("file.compression", "lzo"),
    ("data-file.external-paths", "s3://bucket/x"),
    ("primary-key.nullable", "true"),
    ("bucket", "-1"),
    ("bucket", "-2"),
    ("pk-vector.index.columns", "n"),
    ("pk-full-text.index.columns", "v"),
    ("pk-clustering-override", "true"),
    ("row-tracking.enabled", "true"),
    ("data-evolution.enabled", "true"),
    ("metadata.iceberg.storage", "table-location"),
    ("lock.enabled", "true"),
    ("type", "format-table"),
    ("an.option.of.tomorrow", "1"),
]
ROWS_COULD_BE_WRONG = {
    "pk-clustering-override",
    "data-evolution.enabled",
    "type",
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("whole")
    (directory / "rows.csv").write_text("id,v,n\n1,a,2\n")
    return Path(make_busy_table(directory).store.uri)


@pytest.fixture
def table(whole: Path, tmp_path: Path) -> Path:
    shutil.copytree(whole, tmp_path / "t")
    return tmp_path / "t"


def everything(directory: Path) -> Mapping[Path, int]:
    return {path: path.stat().st_mtime_ns for path in directory.rglob("*")}


def check_refused(table: Path, rows: Path, name: str) -> None:
    before = everything(table)
    commands = [
        ["write", table, rows],
        ["write", table, rows, "--delete"],
        ["once", table],
        ["compact", table],
        ["compact", table, "--full"],
        ["index", table, "rebuild"],
        ["index", table, "rebuild", "--column", "n", "--force"],
        ["plan", table],
    ]
    for words in commands:
        result = run(*words)
        assert result.exit_code == 7, (words, result.stderr)
        assert name in result.stderr, words
        assert str(table) in result.stderr, words
    assert everything(table) == before


@pytest.mark.parametrize(("key", "value"), OPTIONS)
def test_options_out_of_scope(key: str, value: str, table: Path, whole: Path) -> None:
    visible = run("query", table, "--json").stdout
    set_options(str(table), **{key: value})
    check_refused(table, whole.parent / "rows.csv", f"{key} = {value}: ")
    found = run("query", table, "--json")
    assert found.exit_code == (7 if key in ROWS_COULD_BE_WRONG else 0), found.stderr
    if found.exit_code == 0:
        assert found.stdout == visible
    doctor = json.loads(run("doctor", table, "--json").stdout)
    assert not doctor["fit"]
    assert f"{key} = {value}" in {finding["what"] for finding in doctor["findings"] if finding["severity"] == "error"}


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"merge-engine": "first-row"}, "deletion-vectors.enabled"),
        ({"changelog-producer": "full-compaction"}, "changelog-producer"),
        ({"record-level.expire-time": "1 d"}, "record-level.time-field"),
        ({"sequence.field": "nothing"}, "sequence.field"),
        ({"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"}, "fields.v.aggregate-function"),
    ],
)
def test_options_of_merging_that_contradict_one_another(options: Mapping[str, str], named: str, table: Path, whole: Path) -> None:
    set_options(str(table), **options)
    check_refused(table, whole.parent / "rows.csv", named)
    doctor = json.loads(run("doctor", table, "--json").stdout)
    assert any(named in finding["why"] for finding in doctor["findings"] if finding["severity"] == "error")


def test_a_column_that_no_cast_can_read(table: Path, whole: Path) -> None:
    retype_column(str(table), "n", type_("BYTES"))
    check_refused(table, whole.parent / "rows.csv", "column n: its type was changed since schema ")
    assert run("query", table, "--json").exit_code == 7
    assert run("query", table, "--json", "--where", "n = X'03'").exit_code == 7
    assert run("query", table, "--json", "--select", "id,v").exit_code == 0


@pytest.mark.parametrize(
    ("case", "name"),
    [
        ("append_only", "no primary key"),
        ("postpone", "bucket = -2"),
        ("index_in_data_dir", "index-file-in-data-file-dir = true"),
        ("de_global_index", "no primary key"),
    ],
)
def test_kinds_of_tables_that_java_wrote(case: str, name: str, whole: Path, tmp_path: Path) -> None:
    shutil.copytree(java_case(case).directory, tmp_path / "t")
    check_refused(tmp_path / "t", whole.parent / "rows.csv", name)
