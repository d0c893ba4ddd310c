"""What the doctor says."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import maintainer
from maintainer.errors import StorageError, Unsupported
from maintainer.format import snapshot_json
from maintainer.inspect import condition, doctor, surroundings
from maintainer.inspect.diagnosis import Finding
from maintainer.model.files import FileSource
from maintainer.model.snapshot import CommitKind
from maintainer.storage.local import LocalStorage
from maintainer.table import support
from maintainer.table.options import TableOptions
from maintainer.table.state import load_latest
from tests.support.builders import schema, type_
from tests.support.built_tables import BuiltTable
from tests.support.command import run
from tests.support.evolve import retype_column, set_options
from tests.support.java_cases import java_case
from tests.support.tables import append, make_table


def said(table: maintainer.Table) -> dict[str, str]:
    return {finding.what: finding.severity for finding in table.doctor().findings}


def test_a_table_in_good_shape_needs_nothing(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    append(table, 0, 10)
    table.maintain()
    found = table.doctor()
    assert found.fit
    assert found.findings == ()


@pytest.mark.parametrize(
    ("options", "what", "severity"),
    [
        ({"write-only": None}, "write-only = false", "warning"),
        ({"write-only": "false"}, "write-only = false", "warning"),
        ({"write-only": None}, "writers of Java Paimon 1.x", "warning"),
        ({"deletion-vectors.bitmap64": "true"}, "deletion-vectors.bitmap64 = true", "warning"),
        ({"snapshot.time-retained": "10 s"}, "snapshot.time-retained = 10 s", "warning"),
        ({"changelog.time-retained": "1 d"}, "snapshots are not expired", "warning"),
        ({"lookup-compact": "gentle"}, "lookup-compact = gentle", "info"),
        ({"pk-btree.index.columns": None, "pk-bitmap.index.columns": None}, "no index", "info"),
    ],
)
def test_options_that_deserve_a_word(options: Mapping[str, str | None], what: str, severity: str, tmp_path: Path) -> None:
    table = make_table(tmp_path, options)
    assert said(table)[what] == severity
    assert table.doctor().fit


def test_rows_that_nobody_sees_are_mentioned(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    assert said(table) == {"no snapshot": "info"}
    append(table, 0, 10)
    assert said(table) == {"level 0": "info"}
    table.maintain()
    set_options(table.store.uri, **{"pk-btree.index.columns": "id"})
    assert said(table) == {"coverage": "info", "index on id (btree), added": "info", "index on n (btree), removed": "info"}


@pytest.mark.parametrize(("name", "what"), [("append_only", "no primary key"), ("postpone", "bucket = -2")])
def test_a_table_outside_of_the_scope_is_not_fit(name: str, what: str) -> None:
    found = maintainer.open_table(str(java_case(name).directory)).doctor()
    assert not found.fit
    assert what in {finding.what for finding in found.findings if finding.severity == "error"}
    assert all(finding.why and finding.do for finding in found.findings)


def test_files_that_no_pass_could_read_are_an_error(tmp_path: Path) -> None:
    """The option may have been corrected since they were written."""
    directory = tmp_path / "t"
    shutil.copytree(java_case("nested_orc").directory, directory)
    set_options(str(directory), **{"file.format": "parquet"})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(support, "FORMATS", frozenset({"parquet"}))
        found = maintainer.open_table(str(directory)).doctor()
    assert not found.fit
    assert any("'orc'" in finding.why for finding in found.findings if finding.what == "data files")


def test_writers_that_leave_compaction_to_us_need_no_word(tmp_path: Path) -> None:
    table = make_table(tmp_path, {"write-only": "true"})
    assert said(table) == {"no snapshot": "info"}


def test_a_broken_definition_is_an_error_of_its_own(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    set_options(table.store.uri, **{"pk-btree.index.columns": "nothing"})
    found = table.doctor()
    assert not found.fit
    assert any("must reference an existing column" in finding.why for finding in found.findings)


def finding(table: maintainer.Table, what: str) -> Finding:
    (found,) = [finding for finding in table.doctor().findings if finding.what == what]
    assert found.why and found.do
    return found


def test_files_from_before_a_column_was_retyped_are_written_anew_by_what_is_said(tmp_path: Path) -> None:
    """A pass would find nothing to do."""
    table = make_table(tmp_path)
    append(table, 0, 10)
    table.maintain()
    retype_column(table.store.uri, "n", type_("BIGINT"))
    do = finding(maintainer.open_table(table.store.uri), "coverage").do
    assert do == f"maintainer compact {table.store.uri} --full --option compaction.force-rewrite-all-files=true"
    assert run(*do.split()[1:]).exit_code == 0
    assert maintainer.open_table(table.store.uri).coverage().ratio() == 1.0


def change_snapshots(table: maintainer.Table, change: Callable[[Any], Any], last: int = 1) -> None:
    """Let the last snapshots say something else."""
    for snapshot_id in table.store.snapshot_ids()[-last:]:
        path = Path(table.store.uri) / table.store.snapshot_path(snapshot_id)
        path.write_bytes(snapshot_json.encode(change(snapshot_json.decode(path.read_bytes()))))


class TestOthers:
    """Evidence of other writers."""

    def table(
        self, directory: Path, options: Mapping[str, str | None] | None = None, kind: CommitKind = CommitKind.COMPACT
    ) -> maintainer.Table:
        table = make_table(directory, options)
        append(table, 0, 10)
        table.maintain()
        change_snapshots(table, lambda each: replace(each, commit_user="flink-job-7", writer_version="java-2.0.0-1", commit_kind=kind))
        return table

    def test_a_user_that_compacts_is_named(self, tmp_path: Path) -> None:
        found = finding(self.table(tmp_path), "commit user flink-job-7 compacts")
        assert found.severity == "warning"
        assert "the latest is 2" in found.why
        assert "stop it" in found.do

    def test_without_write_only_it_is_the_job_that_should_have_it(self, tmp_path: Path) -> None:
        table = self.table(tmp_path, {"write-only": None})
        assert finding(table, "commit user flink-job-7 compacts").do == "set write-only = true for this job"

    def test_users_that_only_append_are_fine(self, tmp_path: Path) -> None:
        assert said(self.table(tmp_path, kind=CommitKind.APPEND)) == {}

    def test_others_although_we_are_said_to_be_alone(self, tmp_path: Path) -> None:
        table = self.table(tmp_path, {"publish.single-writer": "true"}, CommitKind.APPEND)
        assert "flink-job-7" in finding(table, "publish.single-writer = true").why

    def test_others_on_an_object_store(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        table = self.table(tmp_path, kind=CommitKind.APPEND)
        monkeypatch.setattr(LocalStorage, "remote", True)
        assert "2 s or more" in finding(table, "other writers on an object store").do
        set_options(table.store.uri, **{"publish.verify-delay": "0 s"})
        assert "too short" in finding(maintainer.open_table(table.store.uri), "other writers on an object store").do


class TestStore:
    def refusing(self, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
        def refuse(*_: Any, **__: Any) -> bool:
            raise error

        monkeypatch.setattr(LocalStorage, "create_if_absent", refuse)

    def test_a_store_that_cannot_create_exclusively(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        table = make_table(tmp_path)
        self.refusing(monkeypatch, Unsupported("the file system has no hard links"))
        found = finding(table, "store")
        assert (found.severity, found.why) == ("error", "the file system has no hard links")
        assert "publish.single-writer = true" in found.do
        set_options(table.store.uri, **{"publish.single-writer": "true"})
        assert "store" not in said(maintainer.open_table(table.store.uri))

    def test_a_store_that_cannot_be_written(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        table = make_table(tmp_path)
        self.refusing(monkeypatch, StorageError("access denied"))
        assert finding(table, "store").severity == "warning"
        assert table.doctor().fit

    def test_an_object_store_is_tried_out(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def ignoring(_: LocalStorage) -> None:
            raise Unsupported("this store ignores the condition")

        table = make_table(tmp_path)
        monkeypatch.setattr(LocalStorage, "remote", True)
        assert "store" not in said(table)
        monkeypatch.setattr(LocalStorage, "prove_exclusive_create", ignoring)
        assert finding(table, "store").severity == "error"

    def test_nothing_stays_behind(self, tmp_path: Path) -> None:
        table = make_table(tmp_path)
        before = sorted(Path(table.store.uri).rglob("*"))
        table.doctor()
        assert sorted(Path(table.store.uri).rglob("*")) == before

    def test_unfinished_files(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(surroundings, "MANY_LEFTOVERS", 2)
        table = make_table(tmp_path)
        append(table, 0, 1)
        for number, age in ((1, 0), (2, 100_000), (3, 100_000)):
            path = Path(table.store.uri) / "snapshot" / f".snapshot-{number}.tmp"
            path.write_bytes(b"")
            os.utime(path, (time.time() - age,) * 2)
        assert "2 unfinished files" in finding(table, "leftovers").why


class TestRetention:
    def test_a_pass_that_takes_longer_than_snapshots_are_kept(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        table = make_table(tmp_path)
        append(table, 0, 1000)
        table.maintain()
        assert "retention is shorter than a pass" not in said(table)
        monkeypatch.setattr(surroundings, "BYTES_PER_SECOND", 1)
        found = finding(table, "retention is shorter than a pass")
        assert "are kept for 60 min only" in found.why
        assert "raise snapshot.time-retained so that snapshots are kept for" in found.do

    def test_the_number_of_snapshots_counts_too(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        table = make_table(tmp_path, {"snapshot.num-retained.max": "20", "snapshot.num-retained.min": "1"})
        for number in range(3):
            append(table, number, 1)
        for number in table.store.snapshot_ids():  # one each second
            path = Path(table.store.uri) / table.store.snapshot_path(number)
            snapshot = snapshot_json.decode(path.read_bytes())
            path.write_bytes(snapshot_json.encode(replace(snapshot, time_millis=1_000 * number)))
        monkeypatch.setattr(surroundings, "BYTES_PER_SECOND", 1)
        found = finding(table, "retention is shorter than a pass")
        assert "kept for 20 s only" in found.why
        assert "raise snapshot.num-retained.max" in found.do

    def test_numbers_that_contradict_each_other(self, tmp_path: Path) -> None:
        table = make_table(tmp_path)
        set_options(table.store.uri, **{"snapshot.num-retained.max": "2"})
        table = maintainer.open_table(table.store.uri)
        assert "10 (snapshot.num-retained.min, --retain-min), is above" in finding(table, "snapshots are not expired").why

    def test_snapshots_that_nobody_expires(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(surroundings, "PILED_UP", 2)
        table = make_table(tmp_path, {"snapshot.num-retained.min": "1"})
        for number in range(4):
            append(table, number, 1)
        assert "snapshots pile up" not in said(table)  # they are young
        change_snapshots(table, lambda each: replace(each, time_millis=each.time_millis - 8_000_000), last=4)
        assert "there are 4 snapshots" in finding(table, "snapshots pile up").why


class TestHolders:
    def test_tags_without_an_end(self, tmp_path: Path) -> None:
        table = make_table(tmp_path)
        append(table, 0, 1)
        directory = Path(table.store.uri)
        (directory / "tag").mkdir()
        shutil.copy(directory / "snapshot" / "snapshot-1", directory / "tag" / "tag-kept")
        limited = json.loads((directory / "snapshot" / "snapshot-1").read_text())
        limited |= {"tagCreateTime": [2026, 1, 1, 0, 0], "tagTimeRetained": 86400.0}
        (directory / "tag" / "tag-limited").write_text(json.dumps(limited))
        found = finding(table, "tags without an end")
        assert found.severity == "info" and found.why.endswith("for ever: kept")
        (directory / "tag" / "tag-broken").write_text("{")
        assert finding(table, "tag broken").severity == "warning"

    def test_a_consumer_that_makes_no_progress(self, tmp_path: Path) -> None:
        table = make_table(tmp_path)
        append(table, 0, 1)
        path = Path(table.store.uri) / "consumer" / "consumer-job"
        path.parent.mkdir()
        path.write_text('{"nextSnapshot": 1}')
        assert "consumer job" not in said(table)
        os.utime(path, (time.time() - 100_000,) * 2)
        assert "keeps all snapshots from 1 on" in finding(table, "consumer job").why
        set_options(table.store.uri, **{"consumer.expiration-time": "1 d"})
        assert "consumer job" not in said(maintainer.open_table(table.store.uri))


class TestFiles:
    def built(self, directory: Path, **options: str) -> BuiltTable:
        given = {"bucket": "1", "deletion-vectors.enabled": "true", "pk-btree.index.columns": "name", "write-only": "true"}
        return BuiltTable(directory / "t", schema(options={**given, **{key.replace("_", "-"): value for key, value in options.items()}}))

    def test_append_files_above_level_0(self, tmp_path: Path) -> None:
        built = self.built(tmp_path)
        built.put([{"id": 1, "name": "a"}], level=1, source=FileSource.APPEND)
        built.publish()
        table = maintainer.open_table(built.store.uri)
        found = finding(table, "APPEND files above level 0")
        assert found.do == f"maintainer once {table.store.uri}"
        assert "coverage" not in said(table)
        set_options(table.store.uri, **{"maintain.rewrite-append": "false"})
        assert "rewrite-append=true" in finding(maintainer.open_table(table.store.uri), "APPEND files above level 0").do

    def test_many_files_in_level_0(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(condition, "MANY_LEVEL_0_FILES", 3)
        table = make_table(tmp_path, {"bucket": "1"})
        for number in range(3):
            append(table, number, 1)
        assert "has 3 files" in finding(table, "level 0 piles up").why

    def test_many_small_files(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(condition, "MANY_FILES", 5)
        built = self.built(tmp_path)
        for number in range(5):
            built.put([{"id": number, "name": "a"}])
        built.publish()
        assert "5 files in 1 buckets" in finding(maintainer.open_table(built.store.uri), "small files").why

    def test_indexes_that_are_switched_off(self, tmp_path: Path) -> None:
        assert said(make_table(tmp_path, {"global-index.enabled": "false"}))["global-index.enabled = false"] == "warning"

    def test_options_that_stop_readers_alone(self, tmp_path: Path) -> None:
        table = make_table(tmp_path, {"incremental-between": "1,2"})
        assert "--option incremental-between=" in finding(table, "incremental-between = 1,2").do
        assert table.doctor().fit


class TestBroken:
    """A diagnosis is wanted most where something is broken."""

    @pytest.fixture
    def table(self, tmp_path: Path) -> maintainer.Table:
        table = make_table(tmp_path)
        append(table, 0, 10)
        table.maintain()
        append(table, 0, 5)
        return table

    @pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(b""), lambda path: path.write_bytes(b"{" * 9)])
    @pytest.mark.parametrize(
        "pattern", ["manifest/manifest-list-*", "manifest/manifest-[!l]*", "manifest/index-manifest-*", "snapshot/snapshot-3"]
    )
    def test_metadata_that_cannot_be_read_is_a_finding(self, table: maintainer.Table, pattern: str, damage: Callable[[Path], None]) -> None:
        for path in Path(table.store.uri).glob(pattern):
            damage(path)
        found = maintainer.open_table(table.store.uri).doctor()
        if not (pattern.startswith("snapshot") and damage is Path.unlink):  # then snapshot 2 is the latest
            assert not found.fit
            assert any(each.severity == "error" and "maintainer verify" in each.do for each in found.findings)

    def test_values_that_cannot_be_understood_are_all_named(self, table: maintainer.Table) -> None:
        set_options(table.store.uri, **{"num-levels": "many", "snapshot.time-retained": "soon", "write-only": "perhaps"})
        found = maintainer.open_table(table.store.uri).doctor()
        errors = [each.what for each in found.findings if each.severity == "error"]
        assert {"option num-levels", "option snapshot.time-retained"} <= set(errors)
        assert any("write-only" in each.why for each in found.findings)
        assert len({each.why for each in found.findings}) == len(found.findings)

    def test_deletion_vectors_that_cannot_be_read_do_not_hide_the_rest(self, table: maintainer.Table) -> None:
        shutil.rmtree(Path(table.store.uri) / "index")
        assert maintainer.open_table(table.store.uri).doctor().findings

    def test_a_schema_of_data_files_that_is_gone(self, table: maintainer.Table) -> None:
        set_options(table.store.uri, **{"write-only": "true", "snapshot.time-retained": "5 s"})
        (Path(table.store.uri) / "schema" / "schema-0").unlink()
        found = maintainer.open_table(table.store.uri).doctor()
        assert not found.fit
        assert "snapshot.time-retained = 5 s" in {each.what for each in found.findings}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, {}),
        ({"changelog-producer": "input"}, {"changelog retention": "consumer-id"}),
        ({"changelog-producer": "input", "consumer.expiration-time": "1 d"}, {}),
        ({"changelog-producer": "lookup"}, {"changelog-producer = lookup": "run the daemon", "changelog retention": "consumer-id"}),
        (
            {"changelog-producer": "full-compaction", "consumer.expiration-time": "1 d"},
            {"changelog-producer = full-compaction": "set full-compaction.delta-commits"},
        ),
        (
            {"changelog-producer": "full-compaction", "full-compaction.delta-commits": "4", "consumer.expiration-time": "1 d"},
            {"changelog-producer = full-compaction": "maintainer once"},
        ),
    ],
)
def test_who_writes_the_changelog_and_how_long_it_is_there(options: dict[str, str], expected: dict[str, str], tmp_path: Path) -> None:
    store = make_table(tmp_path).store
    found = {finding.what: finding.do for finding in doctor._of_changelogs(store, TableOptions(options))}
    assert found.keys() == expected.keys()
    assert all(text in found[what] for what, text in expected.items())


def test_buckets_that_were_compacted_before_deletion_vectors_were_switched_on(tmp_path: Path) -> None:
    table = make_table(tmp_path, {"bucket": "1"})
    append(table, 0, 1000)
    table.maintain(full=True)
    append(table, 10, 5)
    table.maintain()
    state = load_latest(table.store)
    assert state is not None
    assert list(condition.of_levels(table.store, table.schema, [table.schema], state)) == []
    before = replace(table.schema, options={**table.schema.options, "deletion-vectors.enabled": "false"})
    (finding,) = condition.of_levels(table.store, table.schema, [before], state)
    assert (finding.severity, finding.what) == ("warning", "deletion-vectors.enabled was set later")
    assert "in 1 bucket overlapping" in finding.why and finding.do.endswith("--full")
