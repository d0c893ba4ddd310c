"""Lost races, lost answers, and crashes: exactly one snapshot, and nothing deleted that it may refer to."""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from maintainer.commit.attempt import Attempts
from maintainer.commit.committer import Committer, retry_wait
from maintainer.errors import CommitConflict, CommitStateUnknown, MissingFile, StorageError
from maintainer.model.commit import CommitMessage
from maintainer.model.files import EMPTY_ROW, FileSource
from maintainer.model.snapshot import Snapshot
from maintainer.storage.storage import OutcomeUnknown
from maintainer.table.opening import open_store
from maintainer.table.options import TableOptions
from maintainer.table.store import TableStore
from tests.support.builders import file_meta
from tests.support.metadata_tables import append, bucket, commit, empty_table, faulty, group, latest, names, result, state

FIRST = file_meta("first.parquet")
OUTPUT = file_meta("out.parquet", 5)


@pytest.fixture
def store(tmp_path: Path) -> TableStore:
    store = empty_table(tmp_path, {"commit.max-retry-wait": "2 ms"})
    append(store, FIRST)
    return store


def files_below(store: TableStore) -> set[str]:
    return {str(path.relative_to(store.uri)) for path in Path(store.uri).rglob("*") if path.is_file()}


def referenced(store: TableStore) -> set[str]:
    """Every metadata file that some snapshot needs."""
    needed = {"snapshot/LATEST", *(f"schema/schema-{n}" for n in store.schema_ids())}
    for snapshot_id in store.snapshot_ids():
        snapshot = store.snapshot(snapshot_id)
        needed.add(f"snapshot/snapshot-{snapshot_id}")
        lists = [snapshot.base_manifest_list, snapshot.delta_manifest_list]
        manifests = [meta.file_name for name in lists for meta in store.manifests.files_of(name, "test")]
        needed |= {f"manifest/{name}" for name in (*lists, *manifests, *filter(None, [snapshot.index_manifest]))}
    return needed


def test_a_lost_race_is_repeated_on_top_of_the_winner(store: TableStore) -> None:
    slow, storage = faulty(store)
    seen = []

    def meanwhile(request: str, path: str) -> None:
        if request == "create_if_absent" and len(seen) < 3:
            seen.append(path)
            append(store, file_meta(f"winner-{len(seen)}.parquet"))

    storage.before = meanwhile
    outcome = commit(slow, result(store, [FIRST], [OUTPUT]))
    assert seen == ["snapshot/snapshot-2", "snapshot/snapshot-3", "snapshot/snapshot-4"]
    assert [s.id for s in outcome.snapshots] == [5]
    assert names(bucket(store).files) == {("out.parquet", 5): 1, **{(f"winner-{n}.parquet", 0): 1 for n in (1, 2, 3)}}
    assert files_below(store) == referenced(store)


def test_a_conflict_that_only_a_later_attempt_sees(store: TableStore) -> None:
    slow, storage = faulty(store)

    def meanwhile(request: str, path: str) -> None:
        if path == "snapshot/snapshot-2":
            storage.before = lambda request, path: None
            commit(store, result(store, [FIRST], [file_meta("winner.parquet", 5)]))

    storage.before = meanwhile
    outcome = commit(slow, result(store, [FIRST], [OUTPUT]))
    assert outcome.snapshots == () and "first.parquet of level 0" in next(iter(outcome.conflicts.values()))
    assert latest(store).id == 2 and files_below(store) == referenced(store)


def test_giving_up_after_the_last_retry_leaves_nothing_behind(tmp_path: Path) -> None:
    store = empty_table(tmp_path, {"commit.max-retries": "2"})
    append(store, FIRST)
    slow, storage = faulty(store)
    count = 0

    def meanwhile(request: str, path: str) -> None:
        nonlocal count
        if request == "create_if_absent":
            count += 1
            append(store, file_meta(f"winner-{count}.parquet"))

    storage.before = meanwhile
    outcome = commit(slow, result(store, [FIRST], [OUTPUT]))
    assert count == 3 and "other commits came first 3 times" in next(iter(outcome.conflicts.values()))
    with pytest.raises(CommitConflict, match="gave up"):
        append(slow, file_meta("mine.parquet"))
    assert files_below(store) == referenced(store)


def test_no_retries_is_one_attempt(tmp_path: Path) -> None:
    store = empty_table(tmp_path, {"commit.max-retries": "0"})
    append(store, FIRST)
    slow, storage = faulty(store)
    storage.before = lambda request, path: append(store, file_meta("w")) and None if request == "create_if_absent" else None
    with pytest.raises(CommitConflict, match="1 times"):
        append(slow, file_meta("mine.parquet"))


def test_waits_double_up_to_the_limit() -> None:
    options = TableOptions({"commit.min-retry-wait": "10 ms", "commit.max-retry-wait": "1 s"})
    for retry in range(40):
        wait = min(10 * 2**retry, 1000) / 1000
        assert wait <= retry_wait(options, retry) <= 1.2 * wait


class TestUnknownOutcomes:
    def test_an_answer_that_was_lost_is_recognised_by_the_uuid(self, store: TableStore) -> None:
        slow, storage = faulty(store)

        def lose(request: str, path: str) -> None:
            storage.after = lambda request, path: None
            raise OutcomeUnknown("time-out")

        storage.after = lose
        outcome = commit(slow, result(store, [FIRST], [OUTPUT]))
        assert [s.id for s in outcome.snapshots] == [2] and latest(store) == outcome.snapshots[0]
        assert names(bucket(store).files) == {("out.parquet", 5): 1}
        assert store.storage.read("snapshot/LATEST") == b"2"

    def test_a_request_that_was_lost_is_repeated_with_the_same_bytes(self, store: TableStore) -> None:
        slow, storage = faulty(store)
        sent: list[str] = []

        def lose(request: str, path: str) -> None:
            if request == "create_if_absent":
                sent.append(path)
                if len(sent) < 4:
                    raise OutcomeUnknown("time-out")

        storage.before = lose
        assert [s.id for s in commit(slow, result(store, [FIRST], [OUTPUT])).snapshots] == [2]
        assert sent == ["snapshot/snapshot-2"] * 4
        assert files_below(store) == referenced(store)

    def test_somebody_else_published_while_the_outcome_was_unknown(self, store: TableStore) -> None:
        slow, storage = faulty(store)

        def lose(request: str, path: str) -> None:
            if request == "create_if_absent":
                storage.before = lambda request, path: None
                append(store, file_meta("winner.parquet"))
                raise OutcomeUnknown("time-out")

        storage.before = lose
        assert [s.id for s in commit(slow, result(store, [FIRST], [OUTPUT])).snapshots] == [3]
        assert files_below(store) == referenced(store)

    @pytest.mark.parametrize("published", [True, False])
    def test_an_outcome_that_stays_unknown_deletes_nothing(self, store: TableStore, published: bool) -> None:
        slow, storage = faulty(store)
        before = files_below(store)

        def lose(request: str, path: str) -> None:
            if path.startswith("snapshot/snapshot-2"):
                raise OutcomeUnknown("time-out")

        storage.after, storage.before = (lose, lambda r, p: lose(r, p) if r == "read" else None) if published else (storage.after, lose)
        with pytest.raises(CommitStateUnknown, match=r"snapshot 2 \(uuid .*was published") as caught:
            commit(slow, result(store, [FIRST], [OUTPUT]))
        assert caught.value.exit_code == 4
        assert len(files_below(store) - before) >= 3
        if published:
            assert names(bucket(store).files) == {("out.parquet", 5): 1}
        else:
            assert latest(store).id == 1

    def test_an_interrupt_while_publishing_deletes_nothing(self, store: TableStore) -> None:
        slow, storage = faulty(store)

        def interrupt(request: str, path: str) -> None:
            raise KeyboardInterrupt

        storage.after = interrupt
        with pytest.raises(KeyboardInterrupt):
            commit(slow, result(store, [FIRST], [OUTPUT]))
        assert names(bucket(store).files) == {("out.parquet", 5): 1}
        assert referenced(store) - {"snapshot/LATEST"} <= files_below(store)


@pytest.mark.parametrize("error", [StorageError("no space"), MissingFile("no directory")], ids=["full", "missing"])
def test_a_failed_hint_does_not_fail_the_commit(store: TableStore, error: Exception) -> None:
    slow, storage = faulty(store)

    def fail(request: str, path: str) -> None:
        if request == "replace":
            raise error

    storage.before = fail
    assert commit(slow, result(store, [FIRST], [OUTPUT])).snapshots
    assert store.storage.read("snapshot/LATEST") == b"1" and latest(store).id == 2


@pytest.mark.parametrize("nth", range(5))
def test_an_error_while_preparing_deletes_what_the_attempt_wrote(store: TableStore, nth: int) -> None:
    slow, storage = faulty(store)
    before = files_below(store)
    writes = 0

    def fail(request: str, path: str) -> None:
        nonlocal writes
        if request in ("write", "create_if_absent"):
            writes += 1
            if writes == nth + 1:
                raise StorageError(f"no space for {path}")

    storage.before = fail
    work = result(store, [FIRST], [OUTPUT], new_index=[])
    if nth < 4:
        with pytest.raises(StorageError, match="no space"):
            commit(slow, work)
        assert files_below(store) == before
    else:
        assert commit(slow, work).snapshots


def test_compactions_stand_when_the_snapshot_of_index_files_fails(store: TableStore) -> None:
    """The caller deletes the files of what was not committed: those of the published compaction must not be among them."""
    append(store, file_meta("other.parquet"), number=1)
    other = file_meta("other-out.parquet", 5)
    commit(store, result(store, [file_meta("other.parquet")], [other], number=1))
    slow, storage = faulty(store)

    def fail(request: str, path: str) -> None:
        if path == "snapshot/snapshot-5":
            raise StorageError("no space left")

    storage.before = fail
    index_only = result(store, new_index=[group("index-1", other)], number=1)
    outcome = commit(slow, result(store, [FIRST], [OUTPUT]), index_only)
    assert [s.id for s in outcome.snapshots] == [4]
    assert {key.bucket: reason for key, reason in outcome.conflicts.items()} == {1: "not committed: no space left"}
    assert files_below(store) == referenced(store)


@pytest.mark.parametrize("delay", [{}, {"publish.verify-delay": "1 ms"}], ids=["default", "delay"])
def test_a_replaced_snapshot_is_noticed(tmp_path: Path, delay: dict[str, str]) -> None:
    """A peer that checks and then renames or copies replaces ours: our changes are committed again on top of it."""
    store = empty_table(tmp_path, delay)
    append(store, FIRST)
    slow, storage = faulty(store)

    def replace_ours(request: str, path: str) -> None:
        storage.after = lambda request, path: None
        text = json.loads(store.storage.read(path))
        os.unlink(f"{store.uri}/{path}")
        append(store, file_meta("theirs.parquet"))
        assert json.loads(store.storage.read(path))["uuid"] != text["uuid"]

    storage.after = replace_ours
    assert [s.id for s in commit(slow, result(store, [FIRST], [OUTPUT])).snapshots] == [3]
    assert names(bucket(store).files) == {("out.parquet", 5): 1, ("theirs.parquet", 0): 1}


@pytest.mark.parametrize("appends", [True, False])
def test_what_others_built_on_a_replaced_snapshot_keeps_its_files(store: TableStore, appends: bool) -> None:
    """Ours was built on before it was replaced: its manifests are needed, and its changes must not be committed twice."""
    slow, storage = faulty(store)
    mine = file_meta("mine.parquet")

    def replace_ours(request: str, path: str) -> None:
        storage.after = lambda request, path: None
        append(store, file_meta("next.parquet"))
        snapshots = Path(store.uri, "snapshot")
        (snapshots / "snapshot-2").unlink()
        (snapshots / "snapshot-3").rename(snapshots / "aside")
        append(store, file_meta("theirs.parquet"))
        (snapshots / "aside").rename(snapshots / "snapshot-3")

    storage.after = replace_ours
    if appends:
        assert Committer(slow).commit_append([CommitMessage(EMPTY_ROW, 0, new_files=(mine,))]) is None
    else:
        outcome = commit(slow, result(store, [FIRST], [OUTPUT]))
        assert "out.parquet to level 5, which is there already" in next(iter(outcome.conflicts.values()))
        assert outcome.replaced == set(outcome.conflicts) and not outcome.abandoned
    expected = {("mine.parquet", 0): 1, ("first.parquet", 0): 1} if appends else {("out.parquet", 5): 1}
    assert names(bucket(store).files) == {**expected, ("next.parquet", 0): 1}
    assert referenced(store) <= files_below(store)


def test_giving_up_after_a_replaced_snapshot_is_an_unknown_outcome(tmp_path: Path) -> None:
    """Whoever wrote the files must not delete them."""
    store = empty_table(tmp_path, {"commit.max-retries": "0"})
    append(store, FIRST)
    slow, storage = faulty(store)

    def replace_ours(request: str, path: str) -> None:
        os.unlink(f"{store.uri}/{path}")
        storage.after = lambda request, path: None
        append(store, file_meta("theirs.parquet"))

    storage.after = replace_ours
    with pytest.raises(CommitStateUnknown, match=r"another writer replaced it, and now: .* gave up"):
        append(slow, file_meta("mine.parquet"))


def test_what_was_compacted_on_top_of_a_replaced_snapshot_is_not_appended_again(store: TableStore) -> None:
    """Rows that somebody deleted in between would come back."""
    slow, storage = faulty(store)
    mine = file_meta("mine.parquet")

    def replace_ours(request: str, path: str) -> None:
        storage.after = lambda request, path: None
        commit(store, result(store, [FIRST, mine], [OUTPUT]))
        snapshots = Path(store.uri, "snapshot")
        (snapshots / "snapshot-2").unlink()
        (snapshots / "snapshot-3").rename(snapshots / "aside")
        append(store, file_meta("theirs.parquet"))
        (snapshots / "aside").rename(snapshots / "snapshot-3")

    storage.after = replace_ours
    assert Committer(slow).commit_append([CommitMessage(EMPTY_ROW, 0, new_files=(mine,))]) is None
    assert names(bucket(store).files) == {("out.parquet", 5): 1}


def test_a_conflict_after_a_replaced_snapshot_deletes_nothing(store: TableStore) -> None:
    """Whoever saw ours may be about to publish what builds on it."""
    slow, storage = faulty(store)

    def replace_ours(request: str, path: str) -> None:
        storage.after = lambda request, path: None
        os.unlink(f"{store.uri}/{path}")
        commit(store, result(store, [FIRST], [file_meta("theirs.parquet", 5)]))

    storage.after = replace_ours
    outcome = commit(slow, result(store, [FIRST], [OUTPUT]))
    assert "first.parquet of level 0" in next(iter(outcome.conflicts.values()))
    assert outcome.replaced == set(outcome.conflicts) and not outcome.abandoned


def test_groups_that_cannot_be_committed_after_a_replaced_snapshot_delete_none_of_its_files(store: TableStore) -> None:
    append(store, file_meta("source.parquet", 5, file_source=FileSource.COMPACT), number=1)
    slow, storage = faulty(store)

    def no_room(request: str, path: str) -> None:
        if request == "write":
            raise StorageError("no room")

    def replace_ours(request: str, path: str) -> None:
        storage.after, storage.before = (lambda request, path: None), no_room
        os.unlink(f"{store.uri}/{path}")
        commit(store, result(store, [FIRST], [file_meta("theirs.parquet", 5)]))

    storage.after = replace_ours
    source = bucket(store, 1).files[0]
    outcome = commit(slow, result(store, [FIRST], [OUTPUT]), result(store, new_index=[group("index-btree", source)], number=1))
    assert {key.bucket for key in outcome.conflicts} == {0, 1}
    assert {key.bucket for key in outcome.abandoned} == {1}


def test_nothing_is_built_on_a_snapshot_that_is_replaced_while_the_next_one_is_prepared(store: TableStore) -> None:
    append(store, file_meta("lost.parquet"))
    lost = latest(store)
    slow, storage = faulty(store)

    def replace_theirs(request: str, path: str) -> None:
        if request == "write":
            storage.before = lambda request, path: None
            os.unlink(f"{store.uri}/{store.snapshot_path(2)}")
            append(store, file_meta("theirs.parquet"))

    storage.before = replace_theirs
    with capture_logs() as events:
        assert append(slow, file_meta("mine.parquet")).id == 3
    assert set(names(bucket(store).files)) == {("first.parquet", 0), ("theirs.parquet", 0), ("mine.parquet", 0)}
    (alarm,) = [event for event in events if event["event"] == "commit.base-replaced"]
    assert (alarm["log_level"], alarm["snapshot"], alarm["lost_uuid"]) == ("error", 2, lost.uuid)
    assert referenced(store) <= files_below(store)


def test_manifests_that_expire_while_an_attempt_is_prepared_are_a_lost_race(store: TableStore, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare, expired = Attempts.prepare, []

    def prepare_too_late(self: Attempts, *arguments: Any) -> Snapshot:
        if not expired:
            expired.append(1)
            append(store, file_meta("winner.parquet"))
            raise MissingFile("a manifest of snapshot 1")
        return prepare(self, *arguments)

    slow = TableStore(store.storage)
    monkeypatch.setattr(Attempts, "prepare", lambda self, *arguments: (prepare_too_late if self._store is slow else prepare)(self, *arguments))
    assert append(slow, file_meta("mine.parquet")).id == 3
    assert files_below(store) == referenced(store)
    monkeypatch.setattr(Attempts, "prepare", lambda *arguments: (_ for _ in ()).throw(MissingFile("a manifest of the latest one")))
    with pytest.raises(MissingFile, match="of the latest one"):
        append(slow, file_meta("more.parquet"))


MERGING = {"manifest.merge-min-count": "3", "manifest.target-file-size": "6 kb", "manifest.full-compaction-threshold-size": "8 kb"}


@pytest.mark.parametrize("options", [{}, MERGING], ids=["plain", "manifests are merged all the time"])
def test_threads_that_append_lose_nothing(tmp_path: Path, options: dict[str, str]) -> None:
    store = empty_table(tmp_path, {"commit.max-retries": "100", "commit.max-retry-wait": "20 ms", **options})
    workers, rounds = 6, 6

    def work(worker: int) -> None:
        committer = Committer(TableStore(store.storage))
        for round_ in range(rounds):
            file = file_meta(f"f-{worker}-{round_}.parquet")
            assert committer.commit_append([CommitMessage(EMPTY_ROW, worker % 2, new_files=(file,))])

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.snapshot_ids() == tuple(range(1, workers * rounds + 1))
    assert len(list(state(store).files())) == workers * rounds
    assert latest(store).total_record_count == 10 * workers * rounds
    assert files_below(store) == referenced(store)
    uuids = [store.snapshot(snapshot_id).uuid for snapshot_id in store.snapshot_ids()]
    assert len(set(uuids)) == len(uuids)


_PROCESS = """
import sys
from maintainer.commit.committer import Committer
from maintainer.model.commit import CommitMessage
from maintainer.model.files import EMPTY_ROW, FileSource
from maintainer.model.snapshot import Snapshot
from maintainer.table.opening import open_store
from tests.support.builders import file_meta
committer = Committer(open_store(sys.argv[1]))
for round_ in range(int(sys.argv[3])):
    message = CommitMessage(EMPTY_ROW, 0, new_files=(file_meta(f"f-{sys.argv[2]}-{round_}.parquet"),))
    assert committer.commit_append([message])
"""


def test_processes_that_append_lose_nothing(tmp_path: Path) -> None:
    store = empty_table(tmp_path, {"commit.max-retries": "100", "commit.max-retry-wait": "20 ms"})
    root = Path(__file__).parents[2]
    workers = [subprocess.Popen([sys.executable, "-c", _PROCESS, store.uri, str(number), "5"], cwd=root) for number in range(3)]
    assert [worker.wait(timeout=120) for worker in workers] == [0, 0, 0]
    assert store.snapshot_ids() == tuple(range(1, 16))
    assert len(list(state(open_store(store.uri)).files())) == 15
    assert files_below(store) == referenced(store)


def test_of_two_compactions_of_one_bucket_exactly_one_wins(tmp_path: Path) -> None:
    store = empty_table(tmp_path)
    for round_ in range(10):
        level_0 = file_meta(f"l0-{round_}.parquet", keys=(round_ * 10, round_ * 10 + 9))
        append(store, level_0)
        work = [result(store, [level_0], [replace(level_0, file_name=f"out-{round_}-{n}.parquet", level=5)]) for n in range(4)]
        barrier = threading.Barrier(len(work))
        outcomes = []

        def race(number: int, work: list[object] = work, barrier: threading.Barrier = barrier, outcomes: list[object] = outcomes) -> None:
            committer = Committer(TableStore(store.storage), f"compactor-{number}")
            barrier.wait()
            outcomes.append(committer.commit_results([work[number]]))  # type: ignore[list-item]

        threads = [threading.Thread(target=race, args=(number,)) for number in range(len(work))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(len(outcome.snapshots) for outcome in outcomes) == [0, 0, 0, 1]  # type: ignore[attr-defined]
        assert len(bucket(store).files) == round_ + 1
    assert files_below(store) == referenced(store)


def test_a_killed_committer_leaves_a_readable_table(store: TableStore) -> None:
    """Killed at each request in turn: the old state or the new one, and the next commit works."""
    for nth in range(1, 8):
        process = multiprocessing.get_context("fork").Process(target=_die_at, args=(store.uri, nth))
        process.start()
        process.join(60)
        before = state(store)
        assert before.snapshot.total_record_count == sum(file.row_count for file in before.files())
        append(store, file_meta(f"after-{nth}.parquet"))
        assert len(list(state(store).files())) == len(list(before.files())) + 1


def _die_at(uri: str, nth: int) -> None:
    slow, storage = faulty(TableStore(open_store(uri).storage))
    count = 0

    def die(request: str, path: str) -> None:
        nonlocal count
        count += request in ("write", "create_if_absent", "replace")
        if count == nth:
            os._exit(1)

    storage.before = die
    storage.after = lambda request, path: die("replace", path)
    append(slow, file_meta(f"killed-{nth}.parquet"))
    os._exit(0)
