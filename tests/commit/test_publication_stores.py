"""Publication on an object store: lost answers, denials, writers that check and then replace, and stores that cannot create exclusively."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

import maintainer
from maintainer.commit.committer import Committer
from maintainer.commit.publish import VERIFY_DELAY, verify_delay
from maintainer.errors import CommitStateUnknown, StorageError, Unsupported, UsageError
from maintainer.format import snapshot_json
from maintainer.model.snapshot import Snapshot
from maintainer.storage import remote
from maintainer.table.opening import create_store
from maintainer.table.options import TableOptions
from maintainer.table.store import TableStore
from tests.support import builders
from tests.support.builders import file_meta
from tests.support.metadata_tables import OPTIONS, append, bucket, commit, empty_table, latest, names, result
from tests.support.s3 import Bucket, hooked

FIRST = file_meta("first.parquet")
QUICK = {**OPTIONS, "publish.verify-delay": "0 ms", "commit.max-retries": "3", "commit.max-retry-wait": "2 ms"}
SCHEMA = {"id": "INT", "v": "STRING"}
SECOND = "t/snapshot/snapshot-2"


class Shelf:
    """A table with one snapshot on S3, and a second way to it on which requests can be hooked."""

    def __init__(self, place: Bucket, **options: str) -> None:
        schema = builders.schema(SCHEMA, ["id"], (), {**QUICK, **options})
        self.store = create_store(place.place("t"), schema, storage_options=place.storage_options)
        append(self.store, FIRST)
        self.filesystem = hooked(place)
        self.hooked = TableStore(place.storage("t", self.filesystem))

    def files(self) -> list[str]:
        return [f"{directory}/{entry.name}" for directory in ("manifest", "snapshot") for entry in self.store.storage.list(directory)]

    def puts(self) -> int:
        return self.filesystem.requests.count(("put_object", SECOND))


@pytest.fixture
def shelf(s3_bucket: Bucket) -> Shelf:
    return Shelf(s3_bucket)


def client_error(code: str, status: int) -> Exception:
    from botocore.exceptions import ClientError

    return ClientError({"Error": {"Code": code, "Message": "No."}, "ResponseMetadata": {"HTTPStatusCode": status}}, "PutObject")


def on_publish(do: Callable[[], None], times: int = 1) -> Callable[[str, dict[str, Any]], None]:
    left = [times]

    def hook(method: str, parameters: dict[str, Any]) -> None:
        if method == "put_object" and parameters["Key"] == SECOND and left[0]:
            left[0] -= 1
            do()

    return hook


def raising(error: Exception) -> Callable[[], None]:
    def fail() -> None:
        raise error

    return fail


def test_an_answer_that_s3fs_lost_is_our_own_success(shelf: Shelf) -> None:
    """The time-out is repeated inside of s3fs, and the store says of our own snapshot that it exists."""
    shelf.filesystem.after = on_publish(raising(TimeoutError()))
    snapshot = append(shelf.hooked, file_meta("mine.parquet"))
    assert snapshot.id == 2 and shelf.puts() == 2
    assert latest(shelf.store).uuid == snapshot.uuid and names(bucket(shelf.store).files)["mine.parquet", 0] == 1


@pytest.mark.parametrize(
    ("code", "status"), [("InternalError", 500), ("ServiceUnavailable", 503), ("RequestTimeout", 400), ("AccessDenied", 403)]
)
def test_a_success_that_looks_like_a_failure_is_found_by_reading_back(shelf: Shelf, code: str, status: int) -> None:
    """Also a denial: a library repeats requests by itself, and its credentials may expire in between."""
    shelf.filesystem.after = on_publish(raising(client_error(code, status)))
    snapshot = append(shelf.hooked, file_meta("mine.parquet"))
    assert snapshot.id == 2 and shelf.puts() == 1 and latest(shelf.store).uuid == snapshot.uuid


@pytest.mark.parametrize(("code", "status"), [("ConditionalRequestConflict", 409), ("InternalError", 500), ("SlowDown", 503)])
def test_what_did_not_happen_is_sent_again_with_the_same_bytes(shelf: Shelf, code: str, status: int) -> None:
    sent = []

    def conflict(method: str, parameters: dict[str, Any]) -> None:
        if method == "put_object" and parameters["Key"] == SECOND:
            sent.append(parameters["Body"])
            assert parameters["IfNoneMatch"] == "*"
            if len(sent) < 3:
                raise client_error(code, status)

    shelf.filesystem.before = conflict
    snapshot = append(shelf.hooked, file_meta("mine.parquet"))
    assert len(sent) >= 3 and set(sent) == {snapshot_json.encode(snapshot)} and latest(shelf.store).uuid == snapshot.uuid


def test_an_outcome_that_cannot_be_learned_deletes_nothing(shelf: Shelf) -> None:
    before = shelf.files()
    shelf.filesystem.before = on_publish(raising(client_error("InternalError", 500)), times=99)
    with pytest.raises(CommitStateUnknown, match="does not say whether it was published"):
        append(shelf.hooked, file_meta("mine.parquet"))
    assert len(shelf.files()) == len(before) + 3 and latest(shelf.store).id == 1


@pytest.mark.parametrize(("code", "words"), [("AccessDenied", "may not do this"), ("NoSuchBucket", "no such bucket")])
def test_a_refusal_is_the_error_and_leaves_nothing(shelf: Shelf, code: str, words: str) -> None:
    before = shelf.files()
    shelf.filesystem.before = on_publish(raising(client_error(code, 403)))
    with pytest.raises(StorageError, match=f"snapshot-2: cannot publish: .*{words}"):
        append(shelf.hooked, file_meta("mine.parquet"))
    assert shelf.files() == before and shelf.puts() == 1


def test_a_lost_race_is_repeated_on_top_of_the_winner(shelf: Shelf) -> None:
    winner: list[Snapshot] = []

    def meanwhile(method: str, parameters: dict[str, Any]) -> None:
        if method == "put_object" and parameters["Key"] == SECOND and not winner:
            winner.append(append(shelf.store, file_meta("winner.parquet")))

    shelf.filesystem.before = meanwhile
    assert append(shelf.hooked, file_meta("mine.parquet")).id == 3 and winner[0].id == 2
    assert set(names(bucket(shelf.store).files)) == {("first.parquet", 0), ("winner.parquet", 0), ("mine.parquet", 0)}


def test_a_writer_that_checks_and_then_copies_over_ours_is_an_alarm_and_the_work_is_redone(s3_bucket: Bucket) -> None:
    """As Java and pypaimon publish on object stores: it looked before ours was there, and its copy comes after."""
    shelf = Shelf(s3_bucket, **{"publish.verify-delay": "300 ms"})
    theirs = append(shelf.store, file_meta("theirs.parquet"))
    data = shelf.store.storage.read("snapshot/snapshot-2")
    shelf.store.storage.delete("snapshot/snapshot-2")
    shelf.store.storage.replace("snapshot/LATEST", b"1")
    copied: list[float] = []

    def copy(method: str, parameters: dict[str, Any]) -> None:
        if method == "put_object" and parameters["Key"] == "t/snapshot/LATEST" and not copied:
            copied.append(time.monotonic())
            threading.Timer(0.1, lambda: shelf.store.storage.replace("snapshot/snapshot-2", data)).start()

    shelf.filesystem.after = copy
    with capture_logs() as events:
        outcome = commit(shelf.hooked, result(shelf.store, [FIRST], [file_meta("out.parquet", 5)]))
    alarms = [event for event in events if event["event"] == "publish.replaced"]
    assert len(alarms) == 1 and alarms[0]["log_level"] == "error" and alarms[0]["snapshot"] == 2
    assert "bucket policy that requires s3:if-none-match" in alarms[0]["do"] and alarms[0]["lost_uuid"] != theirs.uuid
    assert [snapshot.id for snapshot in outcome.snapshots] == [3]
    assert set(names(bucket(shelf.store).files)) == {("theirs.parquet", 0), ("out.parquet", 5)}
    assert shelf.store.snapshot(2).uuid == theirs.uuid


def test_snapshots_are_read_again_after_two_seconds_on_object_stores_and_at_once_on_disks(s3_bucket: Bucket, tmp_path: Path) -> None:
    far, near = s3_bucket.store(), empty_table(tmp_path)
    none, given = TableOptions({}), TableOptions({"publish.verify-delay": "5 s"})
    alone = TableOptions({"publish.single-writer": "true"})
    assert [verify_delay(far, options) for options in (none, given, alone)] == [VERIFY_DELAY, 5.0, 0.0]
    assert [verify_delay(near, options) for options in (none, given, alone)] == [0.0, 5.0, 0.0]
    assert VERIFY_DELAY == 2.0


class TestStoresThatCannotCreateExclusively:
    @pytest.fixture
    def uri(self) -> str:
        return f"memory://{uuid.uuid4()}/db.db/t"

    def table(self, uri: str) -> TableStore:
        """Made by somebody who may."""
        return create_store(uri, builders.schema(SCHEMA, ["id"], (), {**QUICK, "publish.single-writer": "true"}))

    def test_creating_a_table_is_refused_by_name_before_anything_is_written(self, uri: str) -> None:
        with pytest.raises(Unsupported, match=r"'memory' .* publish\.single-writer = true"):
            create_store(uri, builders.schema(SCHEMA, ["id"], (), QUICK))
        assert TableStore(remote.RemoteStorage(uri)).storage.list("") == []

    def test_committing_is_refused_before_anything_is_written(self, uri: str) -> None:
        self.table(uri)
        store = TableStore(remote.RemoteStorage(uri), options={"publish.single-writer": "false"})
        for refused in (lambda: Committer(store), lambda: maintainer.Table(store).writer(), lambda: maintainer.Table(store).maintain()):
            with pytest.raises(Unsupported, match="'memory'"):
                refused()
        assert [entry.name for entry in store.storage.list("")] == ["schema"]

    def test_a_single_writer_may_do_everything(self, uri: str) -> None:
        store = self.table(uri)
        append(store, FIRST)
        outcome = commit(store, result(store, [FIRST], [file_meta("out.parquet", 5)]))
        assert outcome.snapshots[0].id == 2 and set(names(bucket(store).files)) == {("out.parquet", 5)}
        with pytest.raises(UsageError, match="there is a table already"):
            self.table(uri)

    def test_two_writers_that_take_turns_see_each_other(self, uri: str) -> None:
        store = self.table(uri)
        slow, other = Committer(store), Committer(TableStore(remote.RemoteStorage(uri)))
        from maintainer.model.commit import CommitMessage
        from maintainer.model.files import EMPTY_ROW

        for number, committer in enumerate([slow, other, slow]):
            committer.commit_append([CommitMessage(EMPTY_ROW, 0, new_files=(file_meta(f"{number}.parquet"),))])
        assert store.snapshot_ids() == (1, 2, 3) and len(bucket(store).files) == 3


def test_a_store_that_ignores_the_condition_is_refused_before_anything_is_written(s3_bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "_proved", set())
    shelf = Shelf(s3_bucket)
    monkeypatch.setattr(remote, "_proved", set())
    before = shelf.files()
    shelf.filesystem.before = lambda method, parameters: parameters.pop("IfNoneMatch", None)
    with pytest.raises(Unsupported, match="ignores the condition"):
        append(shelf.hooked, file_meta("mine.parquet"))
    assert shelf.files() == before
    alone = TableStore(shelf.hooked.storage, options={"publish.single-writer": "true"})
    assert append(alone, file_meta("mine.parquet")).id == 2


def test_a_directory_in_the_place_of_the_next_snapshot_is_a_clear_error(tmp_path: Path) -> None:
    store = empty_table(tmp_path)
    append(store, FIRST)
    (Path(store.uri) / "snapshot" / "snapshot-2").mkdir()
    before = sorted(path.name for path in Path(store.uri).rglob("*"))
    with pytest.raises(StorageError, match=r"snapshot-2: a directory stands where this file must be; move it away") as caught:
        append(store, file_meta("mine.parquet"))
    assert caught.value.exit_code == 5
    assert sorted(path.name for path in Path(store.uri).rglob("*")) == before


def test_a_local_file_system_without_hard_links_will_do_for_a_single_writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    def link(source: str, target: str) -> None:
        raise PermissionError(1, "Operation not permitted")

    store = empty_table(tmp_path)
    append(store, FIRST)
    monkeypatch.setattr(os, "link", link)
    with pytest.raises(Unsupported, match=r"hard links.*publish\.single-writer"):
        append(store, file_meta("mine.parquet"))
    alone = TableStore(store.storage, options={"publish.single-writer": "true"})
    assert append(alone, file_meta("mine.parquet")).id == 2
    assert not alone.storage.create_if_absent("snapshot/snapshot-2", b"", exclusive=False)
