"""Finished buckets are committed in groups while work goes on: by time, around conflicts and failures, when told to stop, and when killed."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from maintainer.api import maintenance
from maintainer.api import round as round_of_a_pass
from maintainer.api.account import PassReport
from maintainer.api.maintenance import plan_pass, run_pass
from maintainer.commit.committer import Committer
from maintainer.errors import CorruptTable, MissingFile, StorageError
from maintainer.maintain.execute import execute
from maintainer.maintain.plan import PlanRequest
from maintainer.model.files import BucketKey
from maintainer.model.snapshot import CommitKind
from maintainer.model.work import Result, Work
from maintainer.table.opening import open_store
from tests.support.evolve import set_options
from tests.support.small_table import SmallTable
from tests.support.tables import append, make_table

BUCKETS = 8


@pytest.fixture
def table(tmp_path: Path) -> SmallTable:
    """Rows in each of its buckets, in level 0."""
    table = SmallTable(tmp_path, indexes=True, bucket=str(BUCKETS))
    table.write({key: key for key in range(200)})
    assert len(plan_pass(table.store, PlanRequest()).work) == BUCKETS
    return table


@dataclass
class Watched:
    """The events of a pass. `before` is called before each bucket that is worked on, with how many there were."""

    before: Callable[[int], object] = lambda count: None
    events: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, name: str, fields: Mapping[str, Any]) -> None:
        with self.lock:
            self.events.append((name, fields))
            count = self.count("work.started") - 1
        if name == "work.started":
            self.before(count)

    def count(self, name: str) -> int:
        return sum(event == name for event, _ in self.events)

    def of(self, name: str) -> list[Mapping[str, Any]]:
        return [fields for event, fields in self.events if event == name]

    def await_commits(self, count: int) -> None:
        """Waits until a pass has committed so often."""
        deadline = time.monotonic() + 20
        while self.count("pass.committed") < count:
            assert time.monotonic() < deadline
            time.sleep(0.001)


def one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 1)


def each_committed_before_the_next(watched: Watched) -> None:
    """Makes a pass with a commit interval of 0 commit each bucket on its own."""
    before = watched.before

    def wait_first(count: int) -> None:
        watched.await_commits(count - watched.count("pass.conflict"))
        before(count)

    watched.before = wait_first


def latest(table: SmallTable) -> int:
    return table.store.latest_snapshot_id() or 0


def waiting(table: SmallTable) -> set[int]:
    """Buckets with files in level 0."""
    return {key.bucket for key, bucket in table.state().buckets.items() if any(file.level == 0 for file in bucket.files)}


def sound(table: SmallTable) -> None:
    """Nothing is left over, and what can be read is true."""
    assert table.unreferenced() == set()
    assert table.table.verify(deep=True).ok
    seen = table.table.scan().to_arrow().to_pydict()
    assert dict(zip(seen["id"], zip(seen["v"], seen["s"], strict=True), strict=True)).items() <= table.rows.items()


class TestGroups:
    def test_a_short_pass_is_one_commit(self, table: SmallTable) -> None:
        before = latest(table)
        table.maintain()
        assert table.kinds(before) == [CommitKind.COMPACT]

    def test_work_goes_on_while_what_is_finished_is_committed(self, table: SmallTable, monkeypatch: pytest.MonkeyPatch) -> None:
        one_after_the_other(monkeypatch)
        watched, before = Watched(), latest(table)
        each_committed_before_the_next(watched)
        report = table.maintain(commit_interval=0, on_event=watched)
        assert table.kinds(before) == [CommitKind.COMPACT] * BUCKETS
        assert (report.snapshot_before, report.snapshot_after, report.input_files) == (before, before + BUCKETS, BUCKETS)
        assert watched.count("pass.planned") == 2
        table.check()
        sound(table)

    def test_groups_without_data_are_commits_of_their_own(self, table: SmallTable, monkeypatch: pytest.MonkeyPatch) -> None:
        one_after_the_other(monkeypatch)
        table.maintain(full=True)
        set_options(table.path, **{"pk-bitmap.index.columns": "s,id"})
        watched, before = Watched(), latest(table)
        each_committed_before_the_next(watched)
        table.maintain(commit_interval=0, on_event=watched)
        assert table.kinds(before) == [CommitKind.APPEND] * BUCKETS
        table.check()

    def test_what_is_finished_waits_for_others_as_long_as_the_option_says(self, table: SmallTable, monkeypatch: pytest.MonkeyPatch) -> None:
        """Each bucket takes 25 seconds, and the first one that waits does so for a minute."""
        one_after_the_other(monkeypatch)
        taken = [0]
        take, commit = round_of_a_pass.Round._take, Committer.commit_results
        groups: list[int] = []

        def slow_take(self: round_of_a_pass.Round, work: Work, ended: Any) -> None:
            take(self, work, ended)
            taken[0] += 1

        def commit_results(self: Committer, results: Any) -> Any:
            groups.append(len(results))
            return commit(self, results)

        def wait_until_taken(count: int) -> None:
            while taken[0] < count:
                time.sleep(0.001)

        monkeypatch.setattr(round_of_a_pass, "monotonic", lambda: 25.0 * taken[0])
        monkeypatch.setattr(round_of_a_pass.Round, "_take", slow_take)
        monkeypatch.setattr(Committer, "commit_results", commit_results)
        table.maintain(on_event=Watched(wait_until_taken))
        assert groups == [3, 3, 2]
        table.check()

    def test_rows_become_visible_before_anything_else_is_done(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        one_after_the_other(monkeypatch)
        table = SmallTable(tmp_path, indexes=True, bucket="4", **{"target-file-size": "1 kb"})
        table.write({key: key for key in range(100)})
        table.maintain(rewrite_append=False)
        for key in range(100, 110):
            table.write({key: key})
            if len(waiting(table)) == 1:
                break
        watched = Watched()
        table.maintain(on_event=watched)
        assert [fields["kind"] for fields in watched.of("work.started")][:2] == ["compact", "rewrite-append"]
        table.check()

    def test_results_that_wait_are_metadata_only(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        one_after_the_other(monkeypatch)
        table = SmallTable(tmp_path, indexes=True, bucket="12")
        table.write({key: key for key in range(30_000)})
        held: list[int] = []

        def measure(count: int) -> None:
            gc.collect()
            held.append(pa.total_allocated_bytes())

        table.maintain(on_event=Watched(measure))
        assert len(held) == 12
        assert max(held[1:]) - held[1] < 100_000  # the rows of one bucket alone are more


def compact_elsewhere(table: SmallTable, bucket: int) -> None:
    """What another process does to one bucket meanwhile."""
    plan = plan_pass(table.store, PlanRequest())
    (work,) = [work for work in plan.work if work.bucket.bucket == bucket]
    outcome = Committer(table.store).commit_results([execute(plan, work, table.store, table.table.schema, 64 << 20)])
    assert outcome.conflicts == {}


class TestConflicts:
    def test_a_conflict_drops_its_bucket_alone(self, table: SmallTable) -> None:
        watched, before = Watched(lambda count: compact_elsewhere(table, 0) if count == BUCKETS - 1 else None), latest(table)
        report = table.maintain(on_event=watched)
        assert report.outcome == "committed"
        assert [fields["bucket"] for fields in watched.of("pass.conflict")] == [0]
        assert watched.count("work.started") == BUCKETS
        assert table.kinds(before) == [CommitKind.COMPACT] * 2  # the other's, and ours of all other buckets
        table.check()
        sound(table)

    def test_a_bucket_that_was_compacted_meanwhile_is_not_worked_on(self, table: SmallTable, monkeypatch: pytest.MonkeyPatch) -> None:
        one_after_the_other(monkeypatch)
        watched = Watched(lambda count: compact_elsewhere(table, BUCKETS - 1) if count == 0 else None)
        each_committed_before_the_next(watched)
        table.maintain(commit_interval=0, on_event=watched)
        (conflict,) = watched.of("pass.conflict")
        assert (conflict["bucket"], conflict["reason"]) == (BUCKETS - 1, "somebody else has compacted the bucket meanwhile")
        assert sorted(fields["bucket"] for fields in watched.of("work.started")) == [*range(BUCKETS - 1)]
        table.check()
        sound(table)

    def test_inputs_of_one_bucket_that_were_compacted_and_deleted_meanwhile(self, table: SmallTable) -> None:
        (lost,) = table.bucket(3).files

        def meanwhile(count: int) -> None:
            if count == 0:
                compact_elsewhere(table, 3)
                Path(table.path, "bucket-3", lost.file_name).unlink()
                first = min(table.store.snapshot_ids())
                Path(table.path, "snapshot", f"snapshot-{first}").unlink()

        watched = Watched(meanwhile)
        assert table.maintain(on_event=watched).outcome == "committed"
        assert [fields["bucket"] for fields in watched.of("pass.conflict")] == [3]
        table.check()
        sound(table)

    def test_a_pass_that_goes_on_does_not_give_up(self, table: SmallTable, monkeypatch: pytest.MonkeyPatch) -> None:
        """Conflicts in every round, but something is committed in each: only rounds that lose everything count."""
        one_after_the_other(monkeypatch)
        monkeypatch.setattr(maintenance, "MOST_CONFLICTS", 1)

        def meanwhile(count: int) -> None:
            if count % BUCKETS == 1 and count < 4 * BUCKETS:
                compact_elsewhere(table, max(waiting(table)))
                table.write({key: -key - count for key in range(0, 200, 2)})

        watched = Watched(meanwhile)
        report = table.maintain(on_event=watched)
        assert report.outcome == "committed"
        assert watched.count("pass.conflict") > 2
        run_pass(table.store)
        table.check()


def break_bucket(table: SmallTable, number: int) -> tuple[Path, bytes]:
    """Removes an input of a bucket; its path and bytes."""
    (file,) = [file for file in table.bucket(number).files if file.level == 0]
    path = Path(table.path, f"bucket-{number}", file.file_name)
    data = path.read_bytes()
    path.unlink()
    return path, data


class TestFailures:
    def test_the_other_buckets_are_committed_and_the_error_is_raised(self, table: SmallTable) -> None:
        path, data = break_bucket(table, 2)
        watched, before = Watched(), latest(table)
        with pytest.raises(MissingFile, match=path.name):
            table.maintain(on_event=watched)
        assert waiting(table) == {2}
        assert table.kinds(before) == [CommitKind.COMPACT]
        assert table.unreferenced() == set()
        (failed,) = watched.of("work.failed")
        assert (failed["bucket"], failed["kind"]) == (2, "compact")
        path.write_bytes(data)
        again = Watched()
        table.maintain(on_event=again)
        assert [fields["bucket"] for fields in again.of("work.started")] == [2]
        table.check()

    def test_the_last_event_says_what_was_committed_before_the_failure(self, table: SmallTable) -> None:
        break_bucket(table, 2)
        watched, before = Watched(), latest(table)
        with pytest.raises(MissingFile) as raised:
            table.maintain(on_event=watched)
        name, fields = watched.events[-1]
        assert name == "pass.finished"
        assert (fields["outcome"], fields["reason"]) == ("failed", str(raised.value))
        assert (fields["snapshot_before"], fields["snapshot_after"]) == (before, before + 1)
        assert (fields["input_files"], fields["output_files"]) == (BUCKETS - 1, BUCKETS - 1)
        assert fields["bytes_written"] > 0

    def test_what_an_earlier_round_committed_is_in_the_report(self, table: SmallTable) -> None:
        def meanwhile(count: int) -> None:
            if count == BUCKETS - 1:
                table.write({key: -key for key in range(200)})
                break_bucket_above(table, latest(table), 5)

        watched, before = Watched(meanwhile), latest(table)
        with pytest.raises(MissingFile):
            table.maintain(on_event=watched)
        fields = watched.events[-1][1]
        assert fields["outcome"] == "failed"
        assert (fields["snapshot_before"], fields["snapshot_after"]) == (before, before + 3)
        assert fields["input_files"] > BUCKETS

    def test_several_failures_are_one_error_and_the_others_are_warnings(self, table: SmallTable, capfd: pytest.CaptureFixture[str]) -> None:
        for number in (1, 4, 6):
            break_bucket(table, number)
        watched = Watched()
        with pytest.raises(MissingFile):
            table.maintain(on_event=watched)
        assert sorted(fields["bucket"] for fields in watched.of("work.failed")) == [1, 4, 6]
        assert waiting(table) == {1, 4, 6}
        assert table.unreferenced() == set()

    def test_a_defect_in_one_bucket_is_no_end_for_the_others(self, table: SmallTable, monkeypatch: pytest.MonkeyPatch) -> None:
        failing(monkeypatch, lambda number: ZeroDivisionError("a defect") if number == 2 else None)
        with pytest.raises(ZeroDivisionError):
            table.maintain()
        assert waiting(table) == {2}
        sound(table)

    def test_a_failing_store_ends_the_pass_early(self, table: SmallTable, monkeypatch: pytest.MonkeyPatch) -> None:
        one_after_the_other(monkeypatch)
        failing(monkeypatch, lambda number: StorageError("the disk is full") if number == 2 else None)
        watched = Watched(lambda count: time.sleep(0.05))
        with pytest.raises(StorageError, match="full"):
            table.maintain(on_event=watched)
        assert waiting(table) == {*range(2, BUCKETS)}
        assert watched.count("work.started") < BUCKETS
        sound(table)
        assert watched.events[-1][1]["snapshot_after"] == latest(table)

    def test_a_failing_commit_ends_the_pass_and_leaves_nothing(self, table: SmallTable, monkeypatch: pytest.MonkeyPatch) -> None:
        one_after_the_other(monkeypatch)
        commit = Committer.commit_results

        def commit_results(self: Committer, results: list[Result]) -> Any:
            if len(waiting(table)) < BUCKETS:
                raise StorageError("denied")
            return commit(self, results)

        monkeypatch.setattr(Committer, "commit_results", commit_results)
        watched = Watched()
        with pytest.raises(StorageError, match="denied"):
            table.maintain(commit_interval=0, on_event=watched)
        assert 0 < len(waiting(table)) < BUCKETS
        sound(table)

    def test_an_interrupt_ends_the_pass_and_leaves_nothing(self, table: SmallTable, monkeypatch: pytest.MonkeyPatch) -> None:
        failing(monkeypatch, lambda number: KeyboardInterrupt() if number == 5 else None)
        watched = Watched()
        with pytest.raises(KeyboardInterrupt):
            table.maintain(on_event=watched)
        assert watched.events[-1][1]["reason"] == "KeyboardInterrupt"
        sound(table)

    def test_a_table_that_cannot_be_read_ends_with_an_event_too(self, table: SmallTable) -> None:
        for path in Path(table.path, "manifest").iterdir():
            path.unlink()
        watched = Watched()
        with pytest.raises(CorruptTable) as raised:
            run_pass(open_store(table.path), on_event=watched)
        ((name, fields),) = watched.events
        assert (name, fields["outcome"], fields["reason"]) == ("pass.finished", "failed", str(raised.value))

    def test_an_error_that_waits_does_not_hold_rows(self, table: SmallTable, monkeypatch: pytest.MonkeyPatch) -> None:
        one_after_the_other(monkeypatch)
        held: list[int] = []
        original = execute

        def execute_and_fail(plan: Any, work: Work, *arguments: Any) -> Result:
            if work.bucket.bucket == 0:
                rows = pa.array(range(1_000_000))
                raise ValueError(len(rows))
            gc.collect()
            held.append(pa.total_allocated_bytes())
            return original(plan, work, *arguments)

        monkeypatch.setattr(round_of_a_pass, "execute", execute_and_fail)
        before = pa.total_allocated_bytes()
        with pytest.raises(ValueError, match="1000000"):
            table.maintain()
        assert max(held) - before < 1_000_000


def break_bucket_above(table: SmallTable, snapshot: int, number: int) -> None:
    """Removes the file that this snapshot added to a bucket."""
    entries = table.store.manifests.delta_entries(table.store.snapshot(snapshot))
    (name,) = [entry.file.file_name for entry in entries if entry.bucket == number]
    Path(table.path, f"bucket-{number}", name).unlink()


def failing(monkeypatch: pytest.MonkeyPatch, how: Callable[[int], BaseException | None]) -> None:
    """Executing a bucket raises what `how` says, after it has written its files."""
    original = execute

    def execute_and_fail(plan: Any, work: Work, store: Any, schema: Any, memory: int, progress: Any, spill: Any, cache: Any) -> Result:
        error = how(work.bucket.bucket)
        if error is None:
            return original(plan, work, store, schema, memory, progress, spill, cache)

        def strike(item: Work, size: int) -> None:
            raise error

        return original(plan, work, store, schema, memory, strike, spill, cache)

    monkeypatch.setattr(round_of_a_pass, "execute", execute_and_fail)


class TestStop:
    def test_what_is_finished_is_committed_and_the_rest_is_dropped(self, table: SmallTable, monkeypatch: pytest.MonkeyPatch) -> None:
        one_after_the_other(monkeypatch)
        stop = threading.Event()
        watched, before = Watched(lambda count: stop.set() if count == 3 else None), latest(table)
        report = table.maintain(stop=stop, on_event=watched)
        assert (report.outcome, report.reason, report.complete) == ("committed", "stopped", False)
        assert (report.snapshot_after, report.input_files) == (before + 1, 3)
        assert len(waiting(table)) == BUCKETS - 3
        assert watched.count("work.started") == 4
        sound(table)
        table.maintain()
        table.check()

    def test_before_it_began(self, table: SmallTable) -> None:
        stop, before = threading.Event(), latest(table)
        stop.set()
        report = table.maintain(stop=stop)
        assert (report.outcome, report.reason, report.snapshot_after) == ("nothing", "stopped", before)
        assert waiting(table) == {*range(BUCKETS)}

    def test_no_other_round_begins(self, table: SmallTable) -> None:
        stop = threading.Event()
        watched = Watched()

        def at_commit(name: str, fields: Mapping[str, Any]) -> None:
            watched(name, fields)
            if name == "pass.committed":
                stop.set()

        report = table.maintain(stop=stop, on_event=at_commit)
        assert (report.outcome, report.reason) == ("committed", "stopped")
        assert watched.count("pass.planned") == 1
        table.check()


class TestKilled:
    def test_the_next_pass_does_only_the_rest(self, tmp_path: Path) -> None:
        """A back-fill of many buckets, killed after some groups were committed."""
        buckets = 48
        table = SmallTable(tmp_path, indexes=True, bucket=str(buckets))
        table.write({key: key for key in range(3000)})
        first = latest(table)
        words = ["once", table.path, "--option", "maintain.commit-interval=0", "--json"]
        process = subprocess.Popen([sys.executable, "-m", "maintainer", *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        deadline = time.monotonic() + 30
        while not Path(table.path, "snapshot", f"snapshot-{first + 2}").exists() and time.monotonic() < deadline:
            time.sleep(0.001)
        process.kill()
        _, errors = process.communicate()
        assert process.returncode == -signal.SIGKILL, errors
        left = waiting(table)
        assert 0 < len(left) < buckets
        assert table.table.verify(deep=True).ok
        done = {key: bucket.files for key, bucket in table.state().buckets.items() if key.bucket not in left}
        watched = Watched()
        report = table.maintain(on_event=watched)
        assert sorted(fields["bucket"] for fields in watched.of("work.started")) == sorted(left)
        assert report.input_files == len(left)
        assert {key: bucket.files for key, bucket in table.state().buckets.items() if key in done} == done
        table.check()


class TestProgress:
    def test_it_is_told_in_numbers(self, table: SmallTable, monkeypatch: pytest.MonkeyPatch) -> None:
        one_after_the_other(monkeypatch)
        monkeypatch.setattr(maintenance, "TICK", 0.0)
        watched = Watched(lambda count: time.sleep(0.01))
        table.maintain(on_event=watched)
        (planned, idle) = watched.of("pass.planned")
        assert (planned["work"], idle["work"], idle["bytes"]) == (BUCKETS, 0, 0)
        assert planned["memory"] > 0
        told = watched.of("pass.progress")
        assert {fields["bytes"] for fields in told} == {planned["bytes"]}
        assert [fields["bytes_done"] for fields in told] == sorted(fields["bytes_done"] for fields in told)
        assert (told[-1]["buckets_done"], told[-1]["buckets"], told[-1]["bytes_done"]) == (BUCKETS, BUCKETS, planned["bytes"])
        assert told[-1]["seconds_left"] == 0
        middle = next(fields for fields in told if 0 < fields["bytes_done"] < planned["bytes"])
        assert middle["seconds_left"] > 0

    def test_the_log_has_a_line_each_ten_seconds_at_most(self, table: SmallTable, monkeypatch: pytest.MonkeyPatch) -> None:
        from structlog.testing import capture_logs

        one_after_the_other(monkeypatch)
        monkeypatch.setattr(maintenance, "TICK", 0.0)
        watched = Watched(lambda count: time.sleep(0.01))
        with capture_logs() as lines:
            table.maintain(on_event=watched)
        assert watched.count("pass.progress") >= BUCKETS
        assert [line for line in lines if line["event"] == "pass.progress"] == []
        monkeypatch.setattr(maintenance, "LOG_PROGRESS", 0.0)
        table.write({key: -key for key in range(200)})
        with capture_logs() as lines:
            table.maintain()
        assert [line for line in lines if line["event"] == "pass.progress"] != []


def test_the_log_says_of_which_partition_a_bucket_is(tmp_path: Path) -> None:
    from structlog.testing import capture_logs

    table = make_table(tmp_path, partitioned=True)
    for partition in ("1", "2"):
        append(table, 0, 10, p=partition)
    with capture_logs() as lines:
        table.maintain()
    for event in ("work.started", "work.executed"):
        assert {line["partition"] for line in lines if line["event"] == event} == {"p=1", "p=2"}


def test_append_files_are_rewritten_within_a_budget_for_the_whole_pass(tmp_path: Path) -> None:
    table = SmallTable(tmp_path, indexes=True, bucket="4", **{"target-file-size": "1 kb"})
    table.write({key: key for key in range(400)})
    table.maintain(rewrite_append=False)
    sizes = {key.bucket: sum(file.file_size for file in bucket.files) for key, bucket in table.state().buckets.items()}
    watched = Watched()
    report: PassReport = table.maintain(rewrite_append_bytes=sizes[0] + sizes[1], on_event=watched)
    assert Counter(fields["kind"] for fields in watched.of("work.started")) == {"rewrite-append": 2}
    assert report.rewritten_append_bytes == sizes[0] + sizes[1]
    idle = table.maintain(rewrite_append_bytes=0)
    assert (idle.outcome, idle.rewritten_append_bytes) == ("nothing", 0)
    assert idle.reason is not None and "wait for the budget" in idle.reason
    assert table.maintain().rewritten_append_bytes == sizes[2] + sizes[3]
    table.check()


def test_a_state_that_the_pass_has_loaded_is_not_loaded_again_to_commit(table: SmallTable, monkeypatch: pytest.MonkeyPatch) -> None:
    known: list[BucketKey] = []
    commit = Committer.commit_results

    def commit_results(self: Committer, results: Any) -> Any:
        assert self.known_state is not None
        known.extend(self.known_state.buckets)
        return commit(self, results)

    monkeypatch.setattr(Committer, "commit_results", commit_results)
    table.maintain()
    assert len(known) == BUCKETS
