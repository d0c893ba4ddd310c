"""`maintain.index-mode = async`: data is committed first, its groups in a commit of their own, by the same pass; and whatever ends the pass in
between, the next one builds what is missing. Builds that somebody overtakes are thrown away; two payloads for one level become one."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from maintainer.api.maintenance import Known, run_pass
from maintainer.commit import changes as change_of
from maintainer.commit.attempt import Attempts
from maintainer.commit.committer import Committer
from maintainer.inspect.coverage import coverage
from maintainer.maintain import execute as execution
from maintainer.model.commit import CommitMessage
from maintainer.model.files import EMPTY_ROW, IndexFileMeta
from maintainer.model.snapshot import CommitKind
from maintainer.model.work import Result, WorkKind
from maintainer.table.state import load_state
from tests.support.command import run
from tests.support.small_table import SmallTable

ASYNC = {"maintain.index-mode": "async"}
APPEND, COMPACT = CommitKind.APPEND, CommitKind.COMPACT


@pytest.fixture
def table(tmp_path: Path) -> SmallTable:
    return SmallTable(tmp_path, indexes=True, **ASYNC)


def kinds_of(table: SmallTable, **request: Any) -> list[CommitKind]:
    """The snapshots that a pass makes."""
    before = table.state().snapshot.id
    report = table.maintain(**request)
    assert report.failures == ()
    return table.kinds(before)


class TestAsync:
    def test_data_first_then_groups(self, table: SmallTable) -> None:
        table.write({key: key for key in range(50)})
        assert kinds_of(table) == [COMPACT, APPEND]
        between = coverage(table.store, load_state(table.store, table.store.snapshot(2)))
        assert (between.visible_ratio, [one.ratio for one in between.definitions]) == (1.0, [0.0, 0.0])
        table.check()
        assert kinds_of(table) == []

    def test_a_pass_of_one_round_builds_them_too(self, table: SmallTable) -> None:
        table.write({1: 1})
        assert kinds_of(table, repeat=False) == [COMPACT, APPEND]
        table.write({2: 2})
        assert run("compact", table.path, "--full").exit_code == 0
        table.check()

    def test_groups_of_levels_that_vanish_go_with_the_data(self, table: SmallTable) -> None:
        table.write({key: key * 1_000_003 for key in range(2000)})
        table.maintain()
        table.write({1: 1})
        table.maintain()
        assert table.groups() == {"v": [4, 5], "s": [4, 5]}
        before = table.state().snapshot.id
        table.maintain(full=True)
        between = load_state(table.store, table.store.snapshot(before + 1))
        assert all(not bucket.payloads for bucket in between.buckets.values())  # all of its files are new
        table.check()

    def test_the_superseded_payload_stays_until_then_and_spares_its_files(self, tmp_path: Path) -> None:
        table = SmallTable(tmp_path, indexes=True, target_file_size="6 kb", **ASYNC)
        table.write({key: key * 1_000_003 % 2**40 for key in range(3000)})
        table.maintain(full=True)
        assert len(table.files()) == 3
        old = {payload.file_name for payload in table.bucket().payloads}
        table.write(delete=range(10))
        before = table.state().snapshot.id
        table.maintain(full=True)
        between = load_state(table.store, table.store.snapshot(before + 1))
        assert {payload.file_name for bucket in between.buckets.values() for payload in bucket.payloads} == old
        assert table.kinds(before) == [COMPACT, APPEND]
        assert not old & {payload.file_name for payload in table.bucket().payloads}
        table.check()

    def test_a_writer_that_never_rests_does_not_starve_the_groups(self, table: SmallTable, monkeypatch: pytest.MonkeyPatch) -> None:
        """Whenever data was committed, there is more: the groups of what was compacted are built in between all the same."""
        real, turn = Committer.commit_results, iter(range(1000))
        kinds: list[WorkKind] = []

        def and_write(self: Committer, results: Any) -> Any:
            kinds.extend(result.kind for result in results)
            outcome = real(self, results)
            table.write({1000 + next(turn): 1})
            return outcome

        monkeypatch.setattr(Committer, "commit_results", and_write)
        monkeypatch.setattr("maintainer.api.maintenance.MOST_ROUNDS", 5)
        table.write({key: key for key in range(50)})
        assert not table.maintain().complete
        assert kinds[:4] == [WorkKind.COMPACT, WorkKind.INDEX, WorkKind.COMPACT, WorkKind.INDEX]
        monkeypatch.undo()
        table.maintain()
        table.check()

    @pytest.mark.parametrize("commits", [0, 1])
    def test_a_process_that_dies_between_the_commits_leaves_groups_to_the_next(self, table: SmallTable, commits: int) -> None:
        """Before the data is committed, or before the groups are."""
        table.write({key: key for key in range(50)})
        program = (
            "import os, maintainer\n"
            "from maintainer.commit.committer import Committer\n"
            f"real, left = Committer.commit_results, [{commits}]\n"
            "def commit(self, results):\n"
            "    if not left[0]:\n"
            "        os._exit(9)\n"
            "    left[0] -= 1\n"
            "    return real(self, results)\n"
            "Committer.commit_results = commit\n"
            f"maintainer.open_table({table.path!r}).maintain()\n"
        )
        before = table.state().snapshot.id
        died = subprocess.run([sys.executable, "-c", program], cwd=os.getcwd(), capture_output=True, text=True)
        assert died.returncode == 9, died.stderr
        assert table.kinds(before) == [COMPACT] * commits
        assert table.unreferenced()
        assert kinds_of(table) == [COMPACT, APPEND][commits:]
        table.check()

    def test_stopped_in_between_the_report_says_so(self, table: SmallTable, monkeypatch: pytest.MonkeyPatch) -> None:
        stop = threading.Event()
        table.write({1: 1})

        def on_event(name: str, fields: Any) -> None:
            if name == "pass.committed":
                stop.set()

        report = table.maintain(stop=stop, on_event=on_event)
        assert (report.outcome, report.complete) == ("committed", False)
        assert table.groups() == {"v": [], "s": []}
        assert kinds_of(table) == [APPEND]

    def test_the_value_is_one_of_two(self, tmp_path: Path) -> None:
        table = SmallTable(tmp_path, indexes=True)
        with pytest.raises(Exception, match=r"option maintain.index-mode = 'later': must be wait or async"):
            run_pass(table.with_options(**{"maintain.index-mode": "later"}))
        table.write({1: 1})
        assert kinds_of(table) == [COMPACT]


class TestStaleBuilds:
    @pytest.mark.parametrize("mode", ["wait", "async"])
    def test_groups_of_a_level_that_somebody_else_compacted_are_thrown_away(
        self, mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Somebody who knows no index compacts all, whenever groups alone are about to be committed for the first time."""
        table, real = with_two_levels(tmp_path, mode), Committer.commit_results
        overtaken: list[int] = []

        def commit(self: Committer, results: Any) -> Any:
            if not overtaken and any(result.kind is WorkKind.INDEX for result in results):
                overtaken.append(1)
                table.write({3: 3})
                run_pass(table.seen_with(**UNDEFINED), full=True)
            return real(self, results)

        monkeypatch.setattr(Committer, "commit_results", commit)
        with capture_logs() as events:
            report = table.maintain()
        assert (report.outcome, report.groups_built) == ("committed", 2)
        assert "indexes other files than level" in next(event["reason"] for event in events if event["event"] == "pass.conflict")
        assert not table.unreferenced()
        assert table.maintain().outcome == "nothing"
        table.check()

    @pytest.mark.parametrize("mode", ["wait", "async"])
    def test_if_one_level_changed_the_groups_of_the_other_are_committed(
        self, mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        table, real = with_two_levels(tmp_path, mode), Committer.commit_results
        outcomes: list[Any] = []

        def commit(self: Committer, results: Any) -> Any:
            if not outcomes:
                table.write({2: 2})
                monkeypatch.setattr(Committer, "commit_results", real)
                run_pass(table.seen_with(**UNDEFINED))
                monkeypatch.setattr(Committer, "commit_results", commit)
            outcomes.append(real(self, results))
            return outcomes[-1]

        monkeypatch.setattr(Committer, "commit_results", commit)
        report = table.maintain()
        assert [len(outcome.snapshots) for outcome in outcomes] == [1, 1]
        assert len(next(iter(outcomes[0].discarded.values()))) == 2
        assert report.groups_built == 4
        assert not table.unreferenced()
        table.check()

    def test_files_that_expire_while_they_are_indexed_are_no_failure(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Somebody else compacts them, and they go with their snapshots; the groups of what is there now are built instead."""
        table, real = with_two_levels(tmp_path, "wait"), execution.execute
        gone: list[Path] = []

        def executed(*arguments: Any) -> Any:
            if not gone:
                gone.extend(Path(table.path, "bucket-0", file.file_name) for file in table.bucket().files)
                table.write({3: 3})
                run_pass(table.seen_with(**UNDEFINED), full=True)
                for path in gone:
                    path.unlink()
            return real(*arguments)

        monkeypatch.setattr("maintainer.api.round.execute", executed)
        report = table.maintain(index_only=True)
        assert (report.failures, report.groups_built) == ((), 2)
        assert not table.unreferenced()
        table.check()


UNDEFINED = {"pk-btree.index.columns": "", "pk-bitmap.index.columns": ""}


def with_two_levels(tmp_path: Path, mode: str) -> SmallTable:
    """The groups of both are missing."""
    table = SmallTable(tmp_path, indexes=True, **{"maintain.index-mode": mode})
    table.write({key: key * 1_000_003 for key in range(2000)})
    table.maintain(full=True)
    table.write({1: 1})
    table.maintain()
    assert [level for level, *_ in table.files()] == [4, 5]
    run_pass(table.seen_with(**UNDEFINED), index_only=True)
    assert not table.bucket().payloads
    return table


def add_payloads(table: SmallTable, *payloads: IndexFileMeta) -> None:
    """As a writer does who does not look for others."""
    message = CommitMessage(EMPTY_ROW, 0, 1, new_index_files=payloads)
    snapshot = table.state().snapshot
    result = Result(table.path, snapshot.id, snapshot.uuid, table.table.schema.id, WorkKind.INDEX, "", None, message)
    change = change_of.of_result(result, 1)
    attempts = Attempts(table.store, table.table.schema, CommitKind.APPEND, "java", None)
    Committer(table.store)._commit(attempts, table.table.schema, [change], lambda state, schema, wanted: wanted)


def copy_of(table: SmallTable, payload: IndexFileMeta, name: str = "index-theirs") -> IndexFileMeta:
    Path(table.path, "index", name).write_bytes(Path(table.path, "index", payload.file_name).read_bytes())
    return replace(payload, file_name=name)


class TestTwoPayloads:
    def test_they_become_one(self, table: SmallTable) -> None:
        table.write({1: 1})
        table.maintain()
        (payload,) = [one for one in table.bucket().payloads if one.index_type == "btree"]
        add_payloads(table, copy_of(table, payload))
        assert table.groups() == {"v": [], "s": [5]}
        assert {one.reason for one in table.table.coverage().uncovered} == {"two payloads for level 5"}
        report = table.maintain(known=Known())
        assert (report.groups_built, report.groups_dropped) == (1, 2)
        table.check()

    def test_one_that_somebody_adds_while_ours_is_built_stays_and_ours_goes(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        table = SmallTable(tmp_path, indexes=True)
        table.write({1: 1})
        table.maintain()
        (payload,) = [one for one in table.bucket().payloads if one.index_type == "btree"]
        theirs = copy_of(table, payload)
        run_pass(table.seen_with(**UNDEFINED), index_only=True)
        real = execution.execute

        def executed(*arguments: Any) -> Any:
            result = real(*arguments)
            add_payloads(table, theirs)
            return result

        monkeypatch.setattr("maintainer.api.round.execute", executed)
        report = table.maintain()
        assert report.groups_built == 1
        assert {one.file_name for one in table.bucket().payloads if one.index_type == "btree"} == {"index-theirs"}
        monkeypatch.undo()
        assert not table.unreferenced()
        table.check()
