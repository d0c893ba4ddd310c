"""Snapshots that expire take along what only they need, and nothing else."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

import maintainer
from maintainer.errors import CorruptTable, StorageError, Unsupported, UsageError
from maintainer.maintain.reclaim import expire as module
from maintainer.maintain.reclaim.expire import Expiry, expire
from maintainer.model.files import FileKind
from maintainer.model.snapshot import Snapshot
from maintainer.table.store import TableStore
from tests.support import kept
from tests.support.evolve import set_options
from tests.support.small_table import SmallTable
from tests.support.striking_storage import StrikingStorage, files_below


@pytest.fixture
def table(tmp_path: Path) -> SmallTable:
    """Snapshots 1 to 12: six times a write and a pass."""
    table = SmallTable(tmp_path, indexes=True)
    for number in range(6):
        table.write({key: key + number for key in range(number, 20)}, delete=[number])
        table.maintain()
    assert table.store.snapshot_ids() == tuple(range(1, 13))
    return table


def expire_to(table: SmallTable, first_kept: int, **request: int | bool) -> Expiry:
    return expire(table.store, retain_min=1, seconds=0, keep_from=first_kept, **request)  # type: ignore[arg-type]


def check(table: SmallTable, rows: Mapping[int, kept.Rows]) -> None:
    """All snapshots have their rows, and nothing is there that no snapshot, tag or branch needs."""
    for snapshot in table.store.snapshot_ids():
        assert kept.rows_at(table.path, snapshot) == rows[snapshot]
    assert files_below(table.path) == kept.kept_files(table.path)
    table.check()


def all_rows(table: SmallTable) -> dict[int, kept.Rows]:
    return {snapshot: kept.rows_at(table.path, snapshot) for snapshot in table.store.snapshot_ids()}


def test_nothing_is_left_of_what_expired_and_all_of_what_stays(table: SmallTable) -> None:
    rows, before = all_rows(table), files_below(table.path)
    found = expire_to(table, 9)
    assert found.snapshots == tuple(range(1, 9))
    assert (found.earliest, found.latest) == (9, 12)
    assert found.deleted is not None
    assert before - files_below(table.path) == set(found.deleted)
    assert len(found.deleted) == len(set(found.deleted))
    assert 0 < found.bytes < 1 << 20
    assert Path(table.path, "snapshot", "EARLIEST").read_text() == "9"
    check(table, rows)
    again = expire_to(table, 9)
    assert (again.snapshots, again.deleted, again.bytes) == ((), (), 0)


def test_a_dry_run_finds_what_the_next_run_deletes(table: SmallTable) -> None:
    before = {path: path.stat().st_mtime_ns for path in Path(table.path).rglob("*")}
    dry = expire_to(table, 6, dry_run=True)
    assert {path: path.stat().st_mtime_ns for path in Path(table.path).rglob("*")} == before
    real = expire_to(table, 6)
    assert dry.deleted is None and real.found is None
    assert dry.found == real.deleted
    assert (dry.snapshots, dry.bytes, dry.earliest, dry.latest) == (real.snapshots, real.bytes, 6, 12)


def test_snapshots_that_were_read_before_a_rollback_decide_nothing(table: SmallTable) -> None:
    later = int(time.time() * 1000) + 600_000
    known: dict[int, Snapshot] = {}
    expire(table.store, retain_min=10, seconds=0, now_ms=later, kept=known)
    assert sorted(known)[-1] == 12
    for snapshot in range(5, 13):
        Path(table.path, "snapshot", f"snapshot-{snapshot}").unlink()
    Path(table.path, "snapshot", "LATEST").write_text("4")
    for number in range(6):
        table.write({100 + number: number})
    rows = all_rows(table)
    assert expire(table.store, retain_min=2, seconds=0, now_ms=later, kept=known).snapshots == tuple(range(3, 9))
    assert all_rows(table) == {snapshot: rows[snapshot] for snapshot in (9, 10)}


def test_settled_snapshots_are_read_once_over_several_expirations(table: SmallTable) -> None:
    storage = StrikingStorage(table.path)
    known: dict[int, Snapshot] = {}
    rows, read = all_rows(table), []
    for first_kept, later_ms in ((3, 0), (5, 2 * module.SETTLED_MS), (7, 2 * module.SETTLED_MS)):
        storage.requests.clear()
        now = int(time.time() * 1000) + later_ms
        expire(TableStore(storage), retain_min=1, seconds=0, keep_from=first_kept, now_ms=now, kept=known)
        read.append(sum("snapshot/snapshot-" in request and not request.startswith("delete") for request in storage.requests))
    assert read == [12, 10, 1]  # young ones may still be replaced, and one tells whether the others are still there
    check(table, rows)


def test_the_tables_own_options_say_what_is_kept(table: SmallTable) -> None:
    assert table.table.expire().snapshots == ()  # all are younger than an hour
    assert Path(table.path, "snapshot", "EARLIEST").read_text() == "1"
    set_options(table.path, **{"snapshot.num-retained.min": "3", "snapshot.time-retained": "1 ms", "snapshot.expire.limit": "4"})
    time.sleep(0.01)
    assert maintainer.open_table(table.path).expire().snapshots == (1, 2, 3, 4)
    assert maintainer.open_table(table.path).expire(max_expires=1).snapshots == (5,)
    assert maintainer.open_table(table.path, options={"snapshot.expire.limit": "50"}).expire().snapshots == (6, 7, 8, 9)
    assert maintainer.open_table(table.path).expire(time_retained="1 h", retain_max=3).snapshots == ()
    assert maintainer.open_table(table.path).expire(time_retained="3600", retain_min=1).snapshots == ()  # seconds
    assert maintainer.open_table(table.path).expire(time_retained="1 h", retain_max=2, retain_min=1).snapshots == (10,)
    with pytest.raises(UsageError, match=r"snapshot\.num-retained\.min"):
        maintainer.open_table(table.path).expire(retain_max=2)
    with pytest.raises(UsageError):
        maintainer.open_table(table.path).expire(retain_min=0)


def test_tags_keep_all_that_their_snapshots_name(table: SmallTable) -> None:
    rows = all_rows(table)
    for snapshot in (3, 6):
        kept.make_tag(table.path, f"t{snapshot}", snapshot)
    expire_to(table, 12)
    check(table, rows)
    for snapshot in (3, 6):
        assert kept.rows_at(table.path, tag=f"t{snapshot}") == rows[snapshot]


def test_branches_keep_all_that_their_snapshots_name(table: SmallTable) -> None:
    """Java forgets that branches share their files."""
    rows = all_rows(table)
    kept.make_tag(table.path, "base", 5)
    kept.make_branch(table.path, "b", "base")
    with maintainer.open_table(table.path, branch="b").writer() as writer:
        writer.delete(kept.key_table([7]))
    maintainer.open_table(table.path, branch="b").maintain()
    on_branch = {each: kept.rows_at(table.path, each, branch="b") for each in (5, 6, 7)}
    os.unlink(Path(table.path, "tag", "tag-base"))
    expire_to(table, 12)
    check(table, rows)
    assert {each: kept.rows_at(table.path, each, branch="b") for each in (5, 6, 7)} == on_branch
    # and the other way round: what main has is kept when the branch expires
    found = maintainer.open_table(table.path, branch="b").expire(retain_min=1, time_retained=0)
    assert found.snapshots == (5, 6)
    os.unlink(Path(table.path, "branch", "branch-b", "tag", "tag-base"))
    assert kept.rows_at(table.path, 7, branch="b") == on_branch[7]
    assert kept.rows_at(table.path, 12) == rows[12]


def test_consumers_keep_what_they_have_to_read_until_they_expire(table: SmallTable) -> None:
    old = kept.make_consumer(table.path, "old", 3)
    kept.make_consumer(table.path, "young", 8)
    assert expire(table.store, retain_min=1, seconds=0).snapshots == (1, 2)
    os.utime(old, (time.time() - 100, time.time() - 100))
    store = table.with_options(**{"consumer.expiration-time": "1 min"})
    dry = expire(store, retain_min=1, seconds=0, dry_run=True)
    assert old.exists()
    found = expire(store, retain_min=1, seconds=0)
    assert found.consumers == dry.consumers == ("old",)
    assert found.snapshots == dry.snapshots == (3, 4, 5, 6, 7)
    assert not old.exists()
    assert found.deleted is not None and "consumer/consumer-old" in found.deleted


def test_a_consumer_that_cannot_be_read_keeps_everything(table: SmallTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    kept.make_consumer(table.path, "c", 1).write_text("{")
    with pytest.raises(maintainer.errors.CorruptFile, match="consumer-c"):
        expire_to(table, 12)
    assert table.store.snapshot_ids() == tuple(range(1, 13))


def test_a_file_that_was_only_moved_to_another_level_stays(tmp_path: Path) -> None:
    """The delta deletes and adds it under one name."""
    table = SmallTable(tmp_path, **{"target-file-size": "1 kb"})
    table.write({key: key for key in range(300)})
    table.maintain(rewrite_append=False)
    (moved,) = table.bucket().files
    assert moved.level > 0 and moved.file_source is not None and moved.file_source.name == "APPEND"
    rows = all_rows(table)
    table.write({1000: 1})
    rows[3] = kept.rows_at(table.path, 3)
    assert expire_to(table, 3).snapshots == (1, 2)
    assert kept.rows_at(table.path) == rows[3]
    assert files_below(table.path) == kept.kept_files(table.path)


def test_statistics_go_with_the_last_snapshot_that_names_them(table: SmallTable) -> None:
    directory = Path(table.path, "statistics")
    directory.mkdir()
    for snapshot, name in {1: "stats-a", 2: "stats-a", 3: "stats-b", 9: "stats-c"}.items():
        file = Path(table.path, "snapshot", f"snapshot-{snapshot}")
        file.write_text(json.dumps({**json.loads(file.read_text()), "statistics": name}))
        (directory / name).write_text("{}")
    kept.make_tag(table.path, "t", 3)
    expire_to(table, 2)
    assert sorted(os.listdir(directory)) == ["stats-a", "stats-b", "stats-c"]
    expire_to(table, 12)
    assert os.listdir(directory) == ["stats-b"]


@pytest.mark.parametrize("expire_while", ["it stays", "it goes"])
def test_files_that_a_rollback_brought_back_stay(table: SmallTable, expire_while: str) -> None:
    """Java deletes them with the snapshot that deleted them first."""
    rows = all_rows(table)
    kept.restore(table.path, 4)
    rows[13] = kept.rows_at(table.path, 13)
    assert rows[13] == rows[4]
    with table.table.writer() as writer:
        writer.delete(kept.key_table([15]))
    table.maintain(full=True)
    rows |= {each: kept.rows_at(table.path, each) for each in (14, 15)}
    expire_to(table, 10 if expire_while == "it stays" else 14)
    for snapshot in table.store.snapshot_ids():
        assert kept.rows_at(table.path, snapshot) == rows[snapshot]
    assert files_below(table.path) == kept.kept_files(table.path)


def test_an_old_tag_keeps_what_a_rollback_brought_back_and_a_newer_tag_lacks(table: SmallTable) -> None:
    """Java asks the newest tag before the deletion only."""
    rows = all_rows(table)
    kept.make_tag(table.path, "old", 4)
    kept.make_tag(table.path, "new", 10)
    kept.restore(table.path, 4)
    with table.table.writer() as writer:
        writer.delete(kept.key_table(list(range(20))))
    table.maintain(full=True)
    latest = table.store.latest_snapshot_id()
    assert latest is not None
    for first_kept in (12, 14, latest):
        expire_to(table, first_kept)
        assert kept.rows_at(table.path, tag="old") == rows[4]
        assert kept.rows_at(table.path, tag="new") == rows[10]
    assert files_below(table.path) == kept.kept_files(table.path)


def test_missing_snapshots_in_between_leave_nothing_behind_that_is_known(table: SmallTable) -> None:
    rows = all_rows(table)
    for snapshot in (4, 5, 8):
        os.unlink(Path(table.path, "snapshot", f"snapshot-{snapshot}"))
    expire_to(table, 8)  # the first one that is kept is missing, too
    assert table.store.snapshot_ids() == (9, 10, 11, 12)
    for snapshot in (9, 10, 11, 12):
        assert kept.rows_at(table.path, snapshot) == rows[snapshot]
    expire_to(table, 12)
    assert kept.rows_at(table.path, 12) == rows[12]


def test_a_delta_that_cannot_be_read_keeps_its_data_files(tmp_path: Path) -> None:
    table = SmallTable(tmp_path)
    for number in range(3):
        table.write({number: number})
        table.maintain(full=True)
    delta = table.store.snapshot(4).delta_manifest_list
    gone = [entry.file.file_name for entry in table.store.manifests.delta_entries(table.store.snapshot(4)) if entry.kind is FileKind.DELETE]
    assert gone
    Path(table.path, "manifest", delta).write_bytes(b"no list")
    found = expire(TableStore(table.store.storage), retain_min=1, seconds=0, keep_from=6)
    assert found.snapshots == (1, 2, 3, 4, 5)
    assert len(found.skipped) == 1 and "snapshot 4 changed" in found.skipped[0]
    assert {f"bucket-0/{name}" for name in gone} <= table.paths()
    table.check()


def test_what_must_stay_and_cannot_be_read_keeps_everything(table: SmallTable) -> None:
    """What is older may be needed to go back to."""
    snapshot = table.store.snapshot(9)
    Path(table.path, "manifest", snapshot.base_manifest_list).unlink()
    before = files_below(table.path)
    with pytest.raises(CorruptTable, match="snapshot 9 has to stay"):
        expire(TableStore(table.store.storage), retain_min=1, seconds=0, keep_from=9)
    assert files_below(table.path) == before


def test_a_tag_that_cannot_be_read_keeps_files_but_no_snapshots(table: SmallTable) -> None:
    kept.make_tag(table.path, "t", 5)
    Path(table.path, "manifest", table.store.snapshot(5).base_manifest_list).unlink()
    before = files_below(table.path)
    found = expire(TableStore(table.store.storage), retain_min=1, seconds=0, keep_from=9)
    assert found.snapshots == tuple(range(1, 9))
    assert found.skipped
    gone = before - files_below(table.path)
    assert not {path for path in gone if path.startswith(("manifest/", "index/"))}
    table.check()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"changelog.time-retained": "1 d"}, "changelog"),
        ({"changelog.num-retained.max": "20", "snapshot.num-retained.max": "12"}, "changelog"),
        ({"data-file.external-paths": "s3://elsewhere"}, "external"),
        ({"global-index.external-path": "s3://elsewhere"}, "external"),
        ({"type": "format-table"}, "type"),
    ],
)
def test_tables_whose_files_have_other_rules_are_refused(table: SmallTable, options: dict[str, str], reason: str) -> None:
    set_options(table.path, **options)
    before = files_below(table.path)
    with pytest.raises(Unsupported, match=reason):
        maintainer.open_table(table.path).expire(time_retained=0)
    assert files_below(table.path) == before


def test_changelogs_that_outlived_their_snapshots_are_refused(table: SmallTable) -> None:
    Path(table.path, "changelog").mkdir()
    Path(table.path, "changelog", "changelog-1").write_text("{}")
    with pytest.raises(Unsupported, match="changelog"):
        expire_to(table, 9)


def test_empty_directories_go_when_they_are_asked_to(tmp_path: Path) -> None:
    definition = {
        "fields": [{"name": "p", "type": "INT NOT NULL"}, {"name": "id", "type": "INT NOT NULL"}],
        "primaryKeys": ["p", "id"],
        "partitionKeys": ["p"],
        "options": {"bucket": "1", "deletion-vectors.enabled": "true"},
    }
    import pyarrow as pa

    table = maintainer.create_table(str(tmp_path / "t"), definition)
    with table.writer() as writer:
        writer.write(pa.table({"p": pa.array([1, 2], pa.int32()), "id": pa.array([1, 1], pa.int32())}))
    table.maintain(full=True)
    with table.writer() as writer:
        writer.delete(pa.table({"p": pa.array([1], pa.int32()), "id": pa.array([1], pa.int32())}))
    table.maintain(full=True)
    table.expire(retain_min=1, time_retained=0)
    assert os.listdir(tmp_path / "t" / "p=1" / "bucket-0") == []
    with table.writer() as writer:
        writer.write(pa.table({"p": pa.array([1], pa.int32()), "id": pa.array([2], pa.int32())}))
    table.maintain(full=True)
    with table.writer() as writer:
        writer.delete(pa.table({"p": pa.array([1], pa.int32()), "id": pa.array([2], pa.int32())}))
    table.maintain(full=True)
    set_options(str(tmp_path / "t"), **{"snapshot.clean-empty-directories": "true"})
    maintainer.open_table(str(tmp_path / "t")).expire(retain_min=1, time_retained=0)
    assert not (tmp_path / "t" / "p=1").exists()
    assert (tmp_path / "t" / "p=2" / "bucket-0").exists()


def test_a_tag_that_appears_meanwhile_ends_the_run(table: SmallTable, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = all_rows(table)
    monkeypatch.setattr(module, "LOOKS", 0.0)
    delete = table.store.storage.delete

    def delete_and_tag(path: str) -> None:
        delete(path)
        if path == "snapshot/snapshot-3":
            kept.make_tag(table.path, "late", 6)

    monkeypatch.setattr(table.store.storage, "delete", delete_and_tag)
    found = expire_to(table, 12)
    assert found.snapshots == (1, 2, 3)
    assert "late" in found.skipped[0]
    assert Path(table.path, "snapshot", "EARLIEST").read_text() == "4"
    check(table, rows)
    expire_to(table, 12)
    check(table, rows)
    assert kept.rows_at(table.path, tag="late") == rows[6]


def test_a_delete_that_fails_ends_the_run_and_the_next_one_goes_on(table: SmallTable, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = all_rows(table)
    delete = table.store.storage.delete
    refused = f"manifest/{table.store.snapshot(3).delta_manifest_list}"

    def refuse(path: str) -> None:
        if path == refused:
            raise StorageError("denied")
        delete(path)

    monkeypatch.setattr(table.store.storage, "delete", refuse)
    with pytest.raises(StorageError):
        expire_to(table, 12)
    assert table.store.snapshot_ids() == tuple(range(3, 13))
    monkeypatch.undo()
    assert expire_to(table, 12).snapshots == tuple(range(3, 12))
    check(table, rows)


def test_progress_adds_up_to_the_bytes_of_the_report(table: SmallTable) -> None:
    seen: list[int] = []
    found = table.table.expire(retain_min=1, time_retained=0, progress=seen.append)
    assert found.deleted is not None
    assert (len(seen), sum(seen)) == (len(found.deleted), found.bytes)
