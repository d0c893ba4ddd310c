"""The turns of one table: when a pass is made, with what, and what follows when something goes wrong."""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from maintainer.api.account import PassReport
from maintainer.data.spill import Spill
from maintainer.errors import CommitConflict, CommitStateUnknown, MissingFile, StorageError, Unsupported
from maintainer.index.family import bitmap, btree
from maintainer.maintain import quarantine
from maintainer.maintain.reclaim.expire import expire
from maintainer.service.discovery import ConfiguredTable
from maintainer.service.follow import (
    DAMAGED_WAIT,
    EXPIRE_AFTER_COMMITS,
    EXPIRE_EVERY,
    MOST_WAIT,
    Backoff,
    Follower,
    Gone,
    KeptMetadata,
    Workshop,
)
from maintainer.service.lease import MemoryBudget
from maintainer.service.watch import RESOLVE_EVERY
from maintainer.table import state
from maintainer.table.store import TableStore
from tests.support.daemons import eventually
from tests.support.evolve import set_options
from tests.support.small_table import SmallTable
from tests.support.warehouses import some_rows, table_in


@pytest.fixture
def table(tmp_path: Path) -> SmallTable:
    return table_in(tmp_path)


@pytest.fixture
def events() -> Iterator[list[Any]]:
    with capture_logs() as found:
        yield found


def workshop(**values: Any) -> Workshop:
    given = {
        "poll_interval": 5.0,
        "budget": MemoryBudget(256 << 20),
        "spill": Spill(),
        "cache": None,
        "stop": threading.Event(),
        "tables": lambda: 1,
    }
    return Workshop(**{**given, **values})


def follower(table: SmallTable, named: bool = True, workshop: Workshop | None = None, **options: str) -> Follower:
    return Follower(ConfiguredTable(table.path, {}, options, named, table.path), workshop or globals()["workshop"]())


def answering(monkeypatch: pytest.MonkeyPatch, *answers: Callable[[dict[str, Any]], PassReport] | Exception) -> list[dict[str, Any]]:
    """Passes that answer like this, one after the other; what they are asked for."""
    asked: list[dict[str, Any]] = []
    waiting = list(answers)

    def maintain(store: TableStore, **request: Any) -> PassReport:
        asked.append(request)
        answer = waiting.pop(0) if waiting else (lambda request: report())
        if isinstance(answer, Exception):
            raise answer
        return answer(request)

    monkeypatch.setattr("maintainer.api.maintenance.run_pass", maintain)
    return asked


def report(outcome: str = "nothing", after: int | None = None, **more: Any) -> PassReport:
    return PassReport("t", None, after, outcome, **more)


def names(events: list[Any]) -> list[str]:
    return [event["event"] for event in events]


def test_a_pass_only_when_something_changed(table: SmallTable, monkeypatch: pytest.MonkeyPatch):
    asked = answering(monkeypatch)
    follows = follower(table)
    for expected in (1, 1, 1):
        assert follows.turn() is None
        assert len(asked) == expected
    table.write(some_rows(0))
    for expected in (2, 2):
        assert follows.turn() is None
        assert len(asked) == expected


def test_a_pass_gets_what_the_daemon_has(table: SmallTable, monkeypatch: pytest.MonkeyPatch):
    asked = answering(monkeypatch)
    shop = workshop(tables=lambda: 4, budget=MemoryBudget(1 << 30))
    follower(table, workshop=shop, **{"maintain.rewrite-append-budget": "1 mb"}).turn()
    (request,) = asked
    assert (request["memory"], request["rewrite_append_bytes"]) == (256 << 20, 1 << 20)
    assert request["stop"] is shop.stop
    assert request["spill"] is shop.spill


def test_a_conflict_is_no_failure_and_tried_again_at_the_next_turn(table: SmallTable, monkeypatch: pytest.MonkeyPatch, events: list[Any]):
    errors = [CommitConflict("too late"), CommitStateUnknown("no answer")]
    asked = answering(monkeypatch, lambda request: report("conflict", reason="faster", complete=False), *errors)
    follows = follower(table)
    for expected in (1, 2, 3, 4, 4):
        assert follows.turn() is None
        assert len(asked) == expected
    assert "table.failed" not in names(events)
    assert "pass.unknown" in names(events)


def test_a_pass_that_was_stopped_is_not_the_last_one(table: SmallTable, monkeypatch: pytest.MonkeyPatch):
    asked = answering(monkeypatch, lambda request: report(reason="stopped", complete=False))
    follows = follower(table)
    follows.turn()
    follows.turn()
    follows.turn()
    assert len(asked) == 2


def test_after_the_stop_there_are_no_turns(table: SmallTable, monkeypatch: pytest.MonkeyPatch):
    asked = answering(monkeypatch)
    shop = workshop()
    shop.stop.set()
    follower(table, workshop=shop).turn()
    assert asked == []


def test_rewriting_goes_on_when_the_account_has_filled(table: SmallTable, monkeypatch: pytest.MonkeyPatch):
    def spends(request: dict[str, Any]) -> PassReport:
        request["on_event"]("pass.finished", {"rewritten_append_bytes": 1 << 20})
        return report("nothing", rewritten_append_bytes=1 << 20)

    asked = answering(monkeypatch, spends)
    follows = follower(table, **{"maintain.rewrite-append-budget": "1 mb"})
    follows.turn()
    table.write(some_rows(0))
    follows.turn()
    follows.turn()
    assert [request["rewrite_append_bytes"] for request in asked] == [1 << 20, 0]
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 1000)
    follows._rewrites._clock = lambda: now + 1000
    follows.turn()
    assert len(asked) == 3
    assert 200_000 < asked[-1]["rewrite_append_bytes"] < 400_000
    monkeypatch.setattr(time, "monotonic", lambda: now + 9000)
    follows._rewrites._clock = lambda: now + 9000
    follows.turn()
    assert len(asked) == 3  # there was nothing to rewrite


def test_failures_wait_twice_as_long_each_and_a_success_ends_them(table: SmallTable, monkeypatch: pytest.MonkeyPatch, events: list[Any]):
    asked = answering(monkeypatch, *[StorageError("no answer")] * 3, RuntimeError("a defect"))
    follows = follower(table)
    waits = [follows.turn() for _ in range(4)]
    assert all(wait is not None and 0.75 * 5 * 2**n <= wait <= 5 * 2**n for n, wait in enumerate(waits))
    assert follows.turn() is None
    assert len(asked) == 5
    told = [event for event in events if event["event"] == "table.failed"]
    assert [(event["exit_code"], event["failures"]) for event in told] == [(5, 1), (5, 2), (5, 3), (1, 4)]
    assert "this should not have happened: RuntimeError: a defect" in told[-1]["error"]
    assert [event["failures"] for event in events if event["event"] == "table.recovered"] == [4]


def test_back_off_is_bounded():
    backoff = Backoff(5.0)
    waits = [backoff.failed() for _ in range(2000)]
    assert max(waits) <= MOST_WAIT
    assert min(waits[10:]) >= 0.75 * MOST_WAIT
    assert len(set(waits)) > 100
    assert backoff.succeeded() == 2000
    assert backoff.failed() <= 5.0


@pytest.mark.parametrize(("named", "event", "level"), [(True, "table.failed", "error"), (False, "table.skipped", "warning")])
def test_a_state_that_lasts_is_told_of_once(
    table: SmallTable, monkeypatch: pytest.MonkeyPatch, events: list[Any], named: bool, event: str, level: str
):
    answering(monkeypatch, *[Unsupported("kind")] * 3, Unsupported("another"))
    follows = follower(table, named=named)
    for _ in range(4):
        assert follows.turn() is not None
    told = [each for each in events if each["event"] == event]
    assert [(each["error"], each["log_level"]) for each in told] == [("kind", level), ("another", level)]


def test_a_table_dropped_during_a_pass_is_gone_and_not_damaged(table: SmallTable, monkeypatch: pytest.MonkeyPatch, events: list[Any]):
    def drops(request: dict[str, Any]) -> PassReport:
        shutil.rmtree(table.path)
        raise MissingFile("manifest")

    answering(monkeypatch, drops, drops)
    with pytest.raises(Gone):
        follower(table, named=False).turn()
    named = follower(SmallTable(Path(table.path).parent), named=True)
    assert named.turn() is not None
    (failed,) = [event for event in events if event["event"] == "table.failed"]
    assert (failed["exit_code"], "no table any more" in failed["error"]) == (2, True)


@pytest.mark.parametrize("ours", [True, False])
def test_a_snapshot_that_was_replaced_is_an_alarm_and_nothing_is_built_on_it(table: SmallTable, events: list[Any], ours: bool):
    table.write(some_rows(0))
    follows = follower(table)
    if ours:
        follows.turn()
    else:
        table.maintain()
        follows.turn()
    latest = table.store.latest_snapshot_id()
    # A writer that saw only the snapshot before ours renames its own over it: rows of level 0, no compaction.
    root = Path(table.path)
    kept = json.loads((root / "snapshot" / f"snapshot-{latest}").read_text())
    (root / "snapshot" / f"snapshot-{latest}").unlink()
    (root / "snapshot" / "LATEST").write_text(str(latest - 1))
    table.write(some_rows(100))
    table.write(some_rows(200))
    follows.turn()
    (alarm,) = [event for event in events if event["event"] == "snapshot.replaced"]
    assert (alarm["log_level"], alarm["snapshot"], alarm["ours"], alarm["lost_uuid"]) == ("error", latest, ours, kept["uuid"])
    assert "publish.verify-delay" in alarm["do"]
    table.check()


def test_expiry_after_own_commits_and_now_and_then(table: SmallTable, monkeypatch: pytest.MonkeyPatch):
    expired: list[int] = []
    plain = expire
    monkeypatch.setattr("maintainer.service.follow.expire", lambda store, **request: expired.append(1) or plain(store, **request))
    follows = follower(table)
    follows.turn()
    assert len(expired) == 1  # the first turn
    table.write(some_rows(0))
    follows.turn()
    assert len(expired) == 1  # not after every commit
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + EXPIRE_AFTER_COMMITS)
    follows.turn()
    assert len(expired) == 2
    monkeypatch.setattr(time, "monotonic", lambda: now + 2 * EXPIRE_AFTER_COMMITS)
    follows.turn()
    assert len(expired) == 2  # nothing was committed since
    monkeypatch.setattr(time, "monotonic", lambda: now + EXPIRE_AFTER_COMMITS + EXPIRE_EVERY + 1)
    follows.turn()
    assert len(expired) == 3


def test_expiry_goes_on_at_the_next_turn_while_there_may_be_more(table: SmallTable):
    options = {"snapshot.num-retained.min": "1", "snapshot.time-retained": "1 ms", "snapshot.expire.limit": "2"}
    set_options(table.path, **options)
    for first in range(4):
        table.write(some_rows(first))
        table.maintain()
    latest = table.store.latest_snapshot_id()
    follows = follower(table)
    counts = []
    for _ in range(5):
        follows.turn()
        counts.append(len(table.store.snapshot_ids()))
    assert latest == 8 and counts == [6, 4, 2, 1, 1]


def test_an_expiry_that_fails_does_not_keep_a_table_from_its_passes(table: SmallTable, monkeypatch: pytest.MonkeyPatch, events: list[Any]):
    def fails(store: TableStore, **request: Any) -> None:
        raise Unsupported("cannot expire")

    monkeypatch.setattr("maintainer.service.follow.expire", fails)
    follows = follower(table)
    for first in (0, 5):
        table.write(some_rows(first))
        assert follows.turn() is None
        table.check()
    assert names(events).count("expire.failed") == 1


def test_a_turn_that_hangs_gives_its_memory_to_others(table: SmallTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    hangs, released = threading.Event(), threading.Event()

    def wait(request: dict[str, Any]) -> PassReport:
        hangs.set()
        released.wait(30)
        return report()

    answering(monkeypatch, wait)
    shop = workshop()
    stuck, other = follower(table, workshop=shop), follower(table_in(tmp_path, "other"), workshop=shop)
    thread = threading.Thread(target=stuck.turn)
    thread.start()
    assert hangs.wait(30)
    assert stuck.is_running
    assert stuck.is_writing
    assert stuck.silent_for() > 0
    waits = threading.Thread(target=other.turn)
    waits.start()
    eventually(lambda: len(shop.budget._waiting) == 1)
    assert other.is_running
    assert other.silent_for() == 0  # it hangs in nothing
    stuck.surrender()
    waits.join(30)
    assert not other.is_running
    released.set()
    thread.join(30)
    assert not stuck.is_running
    assert shop.budget._free == shop.budget.total


def test_what_is_kept_of_manifests_is_bounded_over_all_tables(tmp_path: Path):
    tables = [table_in(tmp_path, f"db{number}") for number in range(3)]
    shop = workshop(kept=KeptMetadata(most=30))
    follows = [follower(table, workshop=shop) for table in tables]
    for first in range(4):
        for table, one in zip(tables, follows, strict=True):
            table.write(some_rows(first))
            one.turn()
            assert sum(each.kept for each in follows) <= 30 or [each.kept > 0 for each in follows].count(True) == 1
            assert one.kept > 0
    for table in tables:
        table.check()


def test_a_pass_reads_only_what_has_come_since_the_one_before(table: SmallTable, monkeypatch: pytest.MonkeyPatch):
    follows = follower(table)
    table.write(some_rows(0))
    follows.turn()
    table.write(some_rows(5))
    whole: list[object] = []
    plain = state._all_files
    monkeypatch.setattr(state, "_all_files", lambda store, snapshot: whole.append(snapshot.id) or plain(store, snapshot))
    follows.turn()
    assert whole == []
    monkeypatch.undo()
    table.check()


def test_groups_that_cannot_be_built_are_tried_again_when_their_sources_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    tried: list[int] = []

    def build(rows: Any, definition: Any, total_rows: int, *rest: Any) -> Any:
        tried.append(total_rows)
        raise ValueError("no")

    table = table_in(tmp_path, bucket="8")
    follows = follower(table)
    with monkeypatch.context() as patch:
        patch.setattr(btree, "build", build)
        table.write(some_rows(0, 800))
        follows.turn()
        assert len(tried) == 8
        tried.clear()
        table.write({7: 7})
        follows.turn()
        assert tried == [1]  # the level that is new, not the other one of the same bucket
        tried.clear()
        set_options(table.path, **{"snapshot.num-retained.min": "5"})  # a schema that could be the remedy
        for _ in range(RESOLVE_EVERY):
            follows.turn()
        assert len(tried) >= 8
    table.write({7: 8})
    follows.turn()
    assert len(table.maintain(index_only=True).failures) == 0
    table.check()


def test_groups_for_which_there_was_no_memory_are_tried_again_after_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    table = table_in(tmp_path)
    follows = follower(table)
    with monkeypatch.context() as patch:
        patch.setattr(btree, "build", raising(MemoryError()))
        table.write(some_rows(0))
        follows.turn()
    assert follows._due is not None
    assert 3500 < follows._due - time.monotonic() < 3601
    monkeypatch.setattr(quarantine, "RETRY_AFTER", 0)
    follows._due = time.monotonic()
    follows.turn()
    table.check()
    assert follows._due is None


def test_a_daemon_that_starts_again_builds_nothing_that_is_current_and_tries_nothing_that_cannot_be_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    table = table_in(tmp_path, bucket="2")
    tried: list[str] = []

    def build(rows: Any, definition: Any, total_rows: int, *rest: Any) -> Any:
        tried.append(definition.column)
        raise ValueError("no")

    monkeypatch.setattr(btree, "build", build)
    table.write(some_rows(0))
    follower(table).turn()
    assert tried == ["v", "v"]
    monkeypatch.setattr(bitmap, "build", build)
    snapshot = table.state().snapshot.id
    follower(table).turn()
    assert tried == ["v", "v"]
    assert table.state().snapshot.id == snapshot


def test_groups_with_a_commit_of_their_own_are_built_in_the_same_turn(tmp_path: Path):
    table = table_in(tmp_path, **{"maintain.index-mode": "async"})
    follows = follower(table)
    for first in (0, 100):
        table.write(some_rows(first))
        before = table.state().snapshot.id
        follows.turn()
        assert [str(kind) for kind in table.kinds(before)] == ["COMPACT", "APPEND"]
        table.check()


def raising(error: Exception) -> Any:
    def build(*arguments: Any) -> Any:
        raise error

    return build


def test_a_damaged_bucket_does_not_keep_the_others_waiting(tmp_path: Path):
    table = table_in(tmp_path, bucket="2", indexes=False)
    table.write(some_rows(0))
    key = next(iter(table.state().buckets))
    damaged = table.state().buckets[key].files[0]
    (file,) = Path(table.path).rglob(damaged.file_name)
    file.write_bytes(b"x" * damaged.file_size)
    follows = follower(table, workshop=workshop(poll_interval=20.0))
    for value in range(4):
        wait = follows.turn()
        assert wait is not None and wait <= DAMAGED_WAIT
        (other,) = (bucket for bucket in table.state().buckets if bucket != key)
        assert [each.level for each in table.state().buckets[other].files if each.level == 0] == []
        table.write(some_rows(0, value=value))
    follows.turn()
    waits = [follows.turn() for _ in range(3)]  # nothing is left that could be committed
    assert max(wait or 0.0 for wait in waits) > DAMAGED_WAIT
