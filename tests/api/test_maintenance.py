"""The maintenance pass: one snapshot for all buckets, idempotence, conflicts, failures and refusals."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import maintainer
from maintainer.api import maintenance
from maintainer.api.maintenance import MOST_CONFLICTS, MOST_ROUNDS, plan_pass, run_pass
from maintainer.commit.committer import CommitOutcome, Committer
from maintainer.errors import CommitStateUnknown, StorageError, Unsupported
from maintainer.index.family import btree
from maintainer.maintain.execute import execute
from maintainer.maintain.plan import PlanRequest
from maintainer.model.snapshot import CommitKind
from maintainer.model.work import Result
from tests.support.small_table import SmallTable

PASS_FIELDS = {
    "table",
    "snapshot_before",
    "snapshot_after",
    "outcome",
    "reason",
    "input_files",
    "output_files",
    "groups_built",
    "groups_dropped",
    "bytes_read",
    "bytes_written",
    "seconds",
}


@pytest.fixture
def table(tmp_path: Path) -> SmallTable:
    return filled(SmallTable(tmp_path, indexes=True))


def filled(table: SmallTable) -> SmallTable:
    table.write({key: key * 1_000_003 % 2**40 for key in range(1000)})
    table.maintain()
    table.write({1: 1}, delete=[2])
    table.write({3: 3})
    return table


def interrupted(monkeypatch: pytest.MonkeyPatch, before: Callable[[int], None]) -> list[int]:
    """Calls `before` with 0, 1, … whenever a pass is about to commit; a commit that `before` itself makes is not counted."""
    original = Committer.commit_results
    calls: list[int] = []
    inside = threading.local()

    def commit_results(self: Committer, results: Any) -> CommitOutcome:
        if not getattr(inside, "here", False):
            inside.here = True
            try:
                calls.append(len(calls))
                before(calls[-1])
            finally:
                inside.here = False
        return original(self, results)

    monkeypatch.setattr(Committer, "commit_results", commit_results)
    return calls


class TestReport:
    def test_it_has_the_fields_of_a_pass(self, table: SmallTable) -> None:
        before = table.store.latest_snapshot_id()
        document = table.maintain().to_dict()
        assert document.keys() >= PASS_FIELDS
        assert json.loads(json.dumps(document)) == document
        assert before is not None
        assert (document["table"], document["snapshot_before"], document["snapshot_after"]) == (table.path, before, before + 1)
        assert (document["outcome"], document["reason"]) == ("committed", "2 level-0 files cannot be seen by batch readers")
        assert (document["input_files"], document["output_files"], document["groups_built"], document["groups_dropped"]) == (2, 1, 2, 0)
        assert document["bytes_read"] > 0
        assert document["bytes_written"] > 0
        table.check()

    def test_a_pass_on_the_result_of_a_pass_does_nothing(self, table: SmallTable) -> None:
        table.maintain()
        for request in ({}, {"full": True}, {"full": True}, {}):
            paths, snapshot = everything(table), table.store.latest_snapshot_id()
            report = table.maintain(**request)
            if everything(table) != paths:
                assert request and report.input_files == 2
                assert [level for level, _, _ in table.files()] == [5]
                continue
            assert (report.outcome, report.snapshot_before, report.snapshot_after) == ("nothing", snapshot, snapshot)
            assert report.reason == "no file is to be compacted, and every index group is current"
        assert table.maintain(full=True).outcome == "nothing"
        table.check()

    def test_a_table_without_a_snapshot(self, tmp_path: Path) -> None:
        table = SmallTable(tmp_path)
        before = everything(table)
        report = table.maintain()
        assert (report.outcome, report.snapshot_before, report.snapshot_after) == ("nothing", None, None)
        assert report.reason == "the table has no snapshot"
        assert everything(table) == before

    def test_events_tell_what_happens(self, table: SmallTable) -> None:
        events: list[tuple[str, Mapping[str, Any]]] = []
        progressed: list[int] = []
        table.maintain(on_event=lambda name, fields: events.append((name, fields)), progress=lambda work, size: progressed.append(size))
        assert [name for name, _ in events] == ["pass.planned", "work.started", "pass.committed", "pass.planned", "pass.finished"]
        assert all(fields["table"] == table.path for _, fields in events)
        assert sum(progressed) == events[-1][1]["bytes_read"]


def test_a_large_file_is_worked_through_in_steps(tmp_path: Path) -> None:
    table = SmallTable(tmp_path)
    table.write({key: key for key in range(50_000)})
    table.write({0: 1})
    progressed: list[int] = []
    report = table.maintain(memory=8 << 20, progress=lambda work, size: progressed.append(size))
    assert sum(progressed) == report.bytes_read
    assert max(progressed) < report.bytes_read / 2


def everything(table: SmallTable) -> set[str]:
    return {str(path) for path in Path(table.path).rglob("*")}


class TestOneSnapshot:
    def test_all_buckets_with_data_are_in_one_compact_snapshot(self, tmp_path: Path) -> None:
        table = SmallTable(tmp_path, indexes=True, bucket="4")
        table.write({key: key for key in range(200)})
        first = table.store.latest_snapshot_id() or 0
        table.maintain()
        assert table.kinds(first) == [CommitKind.COMPACT]
        assert all(len(table.bucket(number).payloads) == 2 for number in range(4))
        table.check()

    def test_buckets_that_only_lacked_groups_follow_in_one_append_snapshot(self, tmp_path: Path) -> None:
        table = SmallTable(tmp_path, bucket="4")
        table.write({key: key for key in range(200)})
        table.maintain(full=True)
        table.write(delete=[0])
        table.maintain(full=True)  # one bucket holds a file that a compaction wrote
        define(table)
        table.write({1: 5})
        first = table.store.latest_snapshot_id() or 0
        table.maintain()
        assert table.kinds(first) == [CommitKind.COMPACT, CommitKind.APPEND]
        table.check()

    def test_groups_only(self, tmp_path: Path) -> None:
        table = SmallTable(tmp_path)
        table.write({1: 1, 2: 2})
        table.write(delete=[2])
        table.maintain(full=True)
        define(table)
        first = table.store.latest_snapshot_id() or 0
        report = table.maintain()
        assert (report.input_files, report.output_files, report.groups_built) == (0, 0, 2)
        assert table.kinds(first) == [CommitKind.APPEND]
        table.check()

    def test_groups_of_a_removed_definition_are_dropped(self, tmp_path: Path) -> None:
        table = filled(SmallTable(tmp_path, indexes=True))
        table.maintain()
        define(table, **{"pk-btree.index.columns": None, "pk-bitmap.index.columns": "s"})
        report = table.maintain()
        assert (report.groups_built, report.groups_dropped) == (0, 2)
        assert {payload.index_type for payload in table.bucket().payloads} == {"bitmap"}
        table.check()


def define(table: SmallTable, **options: str | None) -> None:
    """A new schema with other options: an index on `v` unless they are given."""
    newest = max(table.store.schema_ids())
    document = json.loads(Path(table.path, "schema", f"schema-{newest}").read_text())
    document["id"] = newest + 1
    document["options"] |= options or {"pk-btree.index.columns": "v", "pk-bitmap.index.columns": "s"}
    document["options"] = {key: value for key, value in document["options"].items() if value is not None}
    Path(table.path, "schema", f"schema-{newest + 1}").write_text(json.dumps(document))


class TestRequests:
    def test_one_round(self, tmp_path: Path) -> None:
        table = SmallTable(tmp_path, indexes=True)
        table.write({1: 1})
        assert table.maintain(repeat=False).outcome == "committed"
        table.check()

    def test_partitions(self, tmp_path: Path) -> None:
        fields = [{"name": name, "type": kind} for name, kind in (("p", "STRING"), ("id", "INT"))]
        options = {"bucket": "1", "deletion-vectors.enabled": "true"}
        definition = {"fields": fields, "primaryKeys": ["p", "id"], "partitionKeys": ["p"], "options": options}
        table = maintainer.create_table(str(tmp_path / "t"), definition)
        with table.writer() as writer:
            writer.write(pa.table({"p": ["a", "b", "c"], "id": pa.array([1, 2, 3], pa.int32())}))
        table.maintain(partitions=[{"p": "a"}])
        assert table.scan().to_arrow().to_pylist() == [{"p": "a", "id": 1}]
        table.maintain()
        assert table.scan().to_arrow().num_rows == 3

    def test_index_only_with_force_builds_current_groups_again(self, table: SmallTable) -> None:
        table.maintain()
        before = {payload.file_name: payload for payload in table.bucket().payloads}
        report = table.maintain(index_only=True, force=True, columns=["v"])
        assert (report.groups_built, report.groups_dropped) == (2, 2)
        assert 0 < report.bytes_read < sum(file.file_size for file in table.bucket().files)  # of the one column
        after = {payload.file_name for payload in table.bucket().payloads}
        assert {before[name].index_type for name in before.keys() - after} == {"btree"}
        table.check()

    def test_a_table_option_keeps_append_files(self, tmp_path: Path) -> None:
        table = SmallTable(tmp_path, indexes=True, **{"maintain.rewrite-append": "false"})
        table.write({1: 1})
        table.maintain()
        assert table.files() == [(5, "APPEND", 1)]

    @pytest.mark.parametrize("memory", [1, 1 << 20, 8 << 20])
    def test_little_memory_is_enough(self, memory: int, tmp_path: Path) -> None:
        table = SmallTable(tmp_path, indexes=True)
        for number in range(6):
            table.write({key: key * number for key in range(number, 3000, 3)})
        table.maintain(memory=memory)
        table.check()


class TestRefusals:
    @pytest.mark.parametrize(
        ("option", "value", "reason"),
        [
            ("merge-engine", "first-row", "deletion-vectors.enabled"),
            ("sequence.snapshot-ordering", "true", "sequence.snapshot-ordering = true"),
            ("some.unknown-option", "x", "some.unknown-option = x"),
        ],
    )
    def test_an_unsupported_table_is_refused_before_anything_is_written(self, option: str, value: str, reason: str, table: SmallTable) -> None:
        define(table, **{option: value})
        before = everything(table)
        with pytest.raises(Unsupported, match=f"{table.path}: .*{reason}"):
            table.maintain()
        with pytest.raises(Unsupported):
            plan_pass(table.store, PlanRequest())
        assert everything(table) == before

    def test_a_file_of_another_type_is_refused(self, table: SmallTable) -> None:
        newest = Path(table.path, "schema", "schema-0")
        document = json.loads(newest.read_text())
        document["id"] = 1
        document["fields"][1]["type"] = "DATE"
        Path(table.path, "schema", "schema-1").write_text(json.dumps(document))
        with pytest.raises(Unsupported, match="its type was changed since schema 0"):
            table.maintain()


class TestConflicts:
    def test_rows_that_arrive_meanwhile_are_no_conflict(self, table: SmallTable, monkeypatch: pytest.MonkeyPatch) -> None:
        calls = interrupted(monkeypatch, lambda call: table.write({10_000: 1}) if call == 0 else None)
        report = table.maintain()
        assert report.outcome == "committed"
        assert len(calls) == 2  # what arrived meanwhile is compacted by the second round
        table.check()

    def test_a_writer_that_never_rests_does_not_keep_a_pass_for_ever(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        table = SmallTable(tmp_path)
        table.write({0: 0})
        calls = interrupted(monkeypatch, lambda call: table.write({call: call}))
        report = table.maintain()
        assert (report.outcome, report.complete) == ("committed", False)
        assert report.reason is not None and report.reason.endswith("what has come since is left for the next pass")
        assert len(calls) == MOST_ROUNDS

    def test_a_bucket_that_somebody_else_compacted_is_planned_again(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        table = filled(SmallTable(tmp_path, indexes=True, bucket="2"))
        seen: list[Any] = []

        def other_pass(call: int) -> None:
            if call == 0:
                hit = plan_pass(table.store, PlanRequest()).work[0]
                result = execute(plan_pass(table.store, PlanRequest()), hit, table.store, table.table.schema, 64 << 20)
                assert Committer(table.store).commit_results([result]).conflicts == {}

        interrupted(monkeypatch, other_pass)
        report = table.maintain(on_event=lambda name, fields: seen.append((name, fields)))
        assert report.outcome == "committed"
        assert sum(name == "pass.conflict" for name, _ in seen) == 1
        table.check()
        assert table.unreferenced() == set()

    def test_a_full_compaction_that_lost_is_still_full(self, table: SmallTable, monkeypatch: pytest.MonkeyPatch) -> None:
        interrupted(monkeypatch, lambda call: run_pass(table.store) and None if call == 0 else None)
        table.maintain(full=True)
        assert [level for level, _, _ in table.files()] == [5]
        table.check()
        assert table.unreferenced() == set()

    def test_a_pass_that_loses_every_time_gives_up_and_leaves_nothing(self, table: SmallTable, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(maintenance.time, "sleep", lambda seconds: None)

        def lose(self: Committer, results: list[Result]) -> CommitOutcome:
            return CommitOutcome((), {result.message.bucket_key: "somebody was faster" for result in results})

        before = everything(table)
        with monkeypatch.context() as patch:
            patch.setattr(Committer, "commit_results", lose)
            report = table.maintain()
        assert (report.outcome, report.reason, report.complete) == ("conflict", "somebody was faster", False)
        assert everything(table) == before
        assert MOST_CONFLICTS > 1
        table.maintain()
        table.check()

    def test_rollback_of_the_table_meanwhile(self, table: SmallTable, monkeypatch: pytest.MonkeyPatch) -> None:
        """The snapshot that a pass is based on is taken away; its work does not fit any more."""

        def roll_back(call: int) -> None:
            if call == 0:
                newest = table.store.latest_snapshot_id()
                Path(table.path, "snapshot", f"snapshot-{newest}").unlink()
                Path(table.path, "snapshot", "LATEST").unlink()

        interrupted(monkeypatch, roll_back)
        assert table.maintain().outcome == "committed"
        table.rows[3] = (3 * 1_000_003 % 2**40, f"s{3 * 1_000_003 % 2**40 % 7}")
        table.check()


class TestFailures:
    def test_a_commit_that_certainly_failed_leaves_nothing(self, table: SmallTable, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(self: Committer, results: Any) -> CommitOutcome:
            raise StorageError("the disk is full")

        before = everything(table)
        monkeypatch.setattr(Committer, "commit_results", fail)
        with pytest.raises(StorageError):
            table.maintain()
        assert everything(table) == before

    def test_after_an_unknown_outcome_every_file_stays(self, table: SmallTable, monkeypatch: pytest.MonkeyPatch) -> None:
        original = Committer.commit_results

        def lose_the_answer(self: Committer, results: Any) -> CommitOutcome:
            original(self, results)
            raise CommitStateUnknown("no answer")

        with monkeypatch.context() as patch:
            patch.setattr(Committer, "commit_results", lose_the_answer)
            with pytest.raises(CommitStateUnknown):
                table.maintain()
        table.check()

    def test_a_process_that_dies_before_it_commits_leaves_a_readable_table(self, table: SmallTable) -> None:
        program = (
            "import os, maintainer\n"
            "from maintainer.commit.committer import Committer\n"
            "Committer.commit_results = lambda self, results: os._exit(9)\n"
            f"maintainer.open_table({table.path!r}).maintain()\n"
        )
        before = table.paths()
        died = subprocess.run([sys.executable, "-c", program], cwd=os.getcwd(), capture_output=True, text=True)
        assert died.returncode == 9, died.stderr
        left = table.paths() - before
        assert left
        assert table.unreferenced() == left
        assert table.maintain().outcome == "committed"
        table.check()

    def test_a_group_that_cannot_be_built_is_tried_again_when_it_is_asked_for(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        table = SmallTable(tmp_path)
        table.write({1: 1})
        table.write(delete=[9])
        table.maintain(full=True)
        define(table)
        tried: list[str] = []

        def build(rows: Any, definition: Any, total_rows: int, *rest: Any) -> Any:
            tried.append(definition.column)
            raise ValueError("no")

        with monkeypatch.context() as patch:
            patch.setattr(btree, "build", build)
            report = table.maintain()
            assert (report.outcome, [failure.column for failure in report.failures]) == ("committed", ["v"])
            report = table.maintain()
            assert (report.outcome, [failure.column for failure in report.failures]) == ("nothing", ["v"])
            assert report.reason == "no file is to be compacted, 1 group could not be built"
            assert tried == ["v"]
            report = table.maintain(index_only=True)
            assert (report.outcome, [failure.column for failure in report.failures]) == ("nothing", ["v"])
            assert tried == ["v", "v"]
        assert table.maintain(index_only=True).failures == ()
        table.check()
