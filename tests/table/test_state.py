"""States that are not right: every error names the table's file; nothing is read in part."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import maintainer.table.state as state_module
from maintainer.errors import CorruptFile, CorruptTable, MaintainerError, MissingFile, Unsupported
from maintainer.format import index_manifest, manifest, snapshot_json
from maintainer.model.files import EMPTY_ROW, BucketKey, FileKind, GlobalIndexMeta, IndexFileMeta
from maintainer.model.snapshot import Snapshot
from maintainer.table import manifests
from maintainer.table.manifests import merge_into
from maintainer.table.state import TRIES, SnapshotExpired, TableState, is_leaving, load_latest, load_state, state_of
from maintainer.table.store import TableStore
from tests.support.builders import deletion_file, entry, file_meta, index_entry, payload, row
from tests.support.metadata_tables import append, bucket, commit, empty_table, group, latest, names, result, state

FIRST, SECOND = file_meta("first.parquet"), file_meta("second.parquet")


@pytest.fixture
def store(tmp_path: Path) -> TableStore:
    store = empty_table(tmp_path)
    append(store, FIRST)
    append(store, SECOND, number=1)
    commit(store, result(store, [FIRST], [replace(FIRST, level=5)], new_index=[deletion_file("dv")]))
    return store


def path_of(store: TableStore, what: str) -> Path:
    """A metadata file of the latest snapshot."""
    snapshot = latest(store)
    base, delta = store.manifests.lists_of(snapshot)
    name = {
        "base list": snapshot.base_manifest_list,
        "delta list": snapshot.delta_manifest_list,
        "index manifest": snapshot.index_manifest,
        "base manifest": base[0].file_name,
        "delta manifest": delta[0].file_name,
    }[what]
    return Path(store.uri) / "manifest" / str(name)


WHAT = ["base list", "delta list", "base manifest", "delta manifest", "index manifest"]


@pytest.mark.parametrize("what", WHAT)
def test_a_missing_file_is_named_with_who_names_it(store: TableStore, what: str) -> None:
    path = path_of(store, what)
    path.unlink()
    with pytest.raises(MissingFile, match=rf"{path}: there is no such file \(.+ names it\)") as caught:
        state(store)
    assert caught.value.exit_code == 3


@pytest.mark.parametrize("what", WHAT)
@pytest.mark.parametrize(
    "damage", [lambda data: data[: len(data) // 2], lambda data: b"", lambda data: data[:-1] + b"x", lambda data: b"x" * 99]
)
def test_a_damaged_file_is_named(store: TableStore, what: str, damage: Callable[[bytes], bytes]) -> None:
    path = path_of(store, what)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(CorruptFile, match=f"{path}: corrupt"):
        state(store)


def rewrite(store: TableStore, what: str, change: Callable[[list[Any]], list[Any]]) -> Path:
    path = path_of(store, what)
    codec: Any = index_manifest if what == "index manifest" else manifest
    path.write_bytes(codec.encode(change(codec.decode(path.read_bytes()))))
    return path


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "a/b", "", "a\0b"])
def test_hostile_names_are_refused_before_they_become_paths(store: TableStore, name: str) -> None:
    path = rewrite(store, "delta manifest", lambda entries: [replace(e, file=replace(e.file, file_name=name)) for e in entries])
    with pytest.raises(CorruptFile, match=f"{path}: corrupt.*not a file name"):
        state(store)


def test_hostile_names_of_extra_files_and_index_files(store: TableStore) -> None:
    path = rewrite(store, "index manifest", lambda entries: [replace(e, file=replace(e.file, file_name="../dv")) for e in entries])
    with pytest.raises(CorruptFile, match=f"{path}: corrupt"):
        state(store)
    path = rewrite(store, "base manifest", lambda entries: [replace(e, file=replace(e.file, extra_files=("../x",))) for e in entries])
    with pytest.raises(CorruptFile, match=f"{path}: corrupt"):
        state(store)


@pytest.mark.parametrize("key", ["base_manifest_list", "delta_manifest_list", "index_manifest"])
def test_hostile_names_in_a_snapshot(store: TableStore, key: str) -> None:
    hostile = replace(latest(store), **{key: "../../etc/passwd"})
    with pytest.raises(CorruptFile, match=r"snapshot 3: corrupt.*not a file name"):
        load_state(store, hostile)


def test_a_file_that_is_added_twice(store: TableStore) -> None:
    path = rewrite(store, "delta manifest", lambda entries: [*entries[1:], entries[-1]])
    with pytest.raises(CorruptTable, match=f"{path}: adds first.parquet to level 5, which is there already"):
        state(store)


def test_a_delete_of_what_was_never_added(store: TableStore) -> None:
    other = entry(file_meta("never.parquet"), FileKind.DELETE, total_buckets=2)
    path = rewrite(store, "delta manifest", lambda entries: [*entries[1:], other])
    with pytest.raises(CorruptTable, match=f"{path}: deletes never.parquet of level 0, which was never added"):
        state(store)


def test_the_same_errors_when_only_the_delta_is_applied(store: TableStore) -> None:
    previous = load_state(store, store.snapshot(2))
    other = entry(file_meta("never.parquet"), FileKind.DELETE, total_buckets=2)
    rewrite(store, "delta manifest", lambda entries: [*entries[1:], other])
    with pytest.raises(CorruptTable, match=r"deletes never\.parquet of level 0, which was never added"):
        load_state(TableStore(store.storage), latest(store), previous)
    rewrite(store, "delta manifest", lambda entries: [entries[0], entries[0]])
    with pytest.raises(CorruptTable, match=r"adds first\.parquet"):
        load_state(TableStore(store.storage), latest(store), previous)


def test_an_index_manifest_that_deletes(store: TableStore) -> None:
    path = rewrite(store, "index manifest", lambda entries: [replace(e, kind=FileKind.DELETE) for e in entries])
    with pytest.raises(CorruptTable, match=f"{path}: .*may only add"):
        state(store)


def test_two_deletion_vector_files_of_one_bucket(store: TableStore) -> None:
    path = rewrite(store, "index manifest", lambda entries: [*entries, index_entry(deletion_file("dv-2"))])
    with pytest.raises(CorruptTable, match=f"{path}: bucket 0 has two deletion-vector files, dv and dv-2"):
        state(store)


def test_an_index_file_that_is_listed_twice(store: TableStore) -> None:
    path = rewrite(store, "index manifest", lambda entries: [*entries, index_entry(payload("dv"))])
    with pytest.raises(CorruptTable, match=f"{path}: holds dv twice"):
        state(store)


def test_a_partition_that_is_not_a_row_of_the_partition_columns(store: TableStore) -> None:
    path = rewrite(store, "delta manifest", lambda entries: [replace(e, partition=row("x", "STRING")) for e in entries])
    with pytest.raises(CorruptFile, match=f"{path}: corrupt.*partition columns"):
        state(store)
    path = rewrite(store, "index manifest", lambda entries: [replace(e, partition=row("x", "STRING")) for e in entries])
    with pytest.raises(CorruptFile, match=r"partition columns"):
        state(store)


def test_index_files_are_sorted_out(store: TableStore) -> None:
    sorted_out = [
        index_entry(deletion_file("dv")),
        index_entry(group("good", replace(FIRST, level=5))),
        index_entry(payload("row-ids", source_meta=None), bucket=1),
        index_entry(payload("stale-bucket", source_meta=b"\0\0\0\1rest"), bucket=7),
        index_entry(IndexFileMeta("HASH", "hash", 1, 1), bucket=1),
        index_entry(IndexFileMeta("btree", "evolution", 1, 1, global_index=GlobalIndexMeta(0, 0, 1, source_meta=b"DEIX")), bucket=1),
    ]
    rewrite(store, "index manifest", lambda entries: sorted_out)
    zero, one, seven = bucket(store, 0), bucket(store, 1), bucket(store, 7)
    assert zero.deletion_file == deletion_file("dv") and [p.file_name for p in zero.payloads] == ["good"]
    assert one.payloads == () and [f.file_name for f in one.other_index_files] == ["row-ids", "hash", "evolution"]
    assert seven.files == () and [p.file_name for p in seven.payloads] == ["stale-bucket"] and seven.total_buckets == 2


def test_an_unknown_bucket_is_empty(store: TableStore) -> None:
    empty = state(store).bucket(BucketKey(EMPTY_ROW, 99))
    assert (empty.files, empty.payloads, empty.deletion_file) == ((), (), None)


def test_a_snapshot_that_expires_while_it_is_read(store: TableStore) -> None:
    snapshot = latest(store)
    path_of(store, "base list").unlink()
    store.storage.delete("snapshot/snapshot-3")
    with pytest.raises(MaintainerError, match="snapshot 3 expired while it was read") as caught:
        load_state(TableStore(store.storage), snapshot)
    assert not isinstance(caught.value, CorruptTable)


def test_a_tagged_snapshot_with_a_missing_file_is_damaged(store: TableStore) -> None:
    snapshot = latest(store)
    store.storage.write("tag/tag-t", store.storage.read("snapshot/snapshot-3"))
    path_of(store, "base list").unlink()
    store.storage.delete("snapshot/snapshot-3")
    with pytest.raises(MissingFile):
        load_state(TableStore(store.storage), snapshot)


class Counting:
    """Counts the manifests that are read."""

    def __init__(self, store: TableStore, monkeypatch: pytest.MonkeyPatch) -> None:
        self.paths: list[str] = []
        read = store.storage.read

        def counted(path: str) -> bytes:
            if path.startswith("manifest/"):
                self.paths.append(path)
            return read(path)

        monkeypatch.setattr(store.storage, "read", counted)

    def take(self) -> list[str]:
        taken, self.paths = self.paths, []
        return taken


def test_a_following_snapshot_costs_only_its_new_manifests(store: TableStore, monkeypatch: pytest.MonkeyPatch) -> None:
    counting = Counting(store, monkeypatch)
    opened = TableStore(store.storage)
    known = load_state(opened, latest(store))
    counting.take()
    append(store, file_meta("third.parquet"))
    counting.take()
    following = load_state(opened, latest(store), known)
    delta = latest(store).delta_manifest_list
    assert len(counting.take()) == 3 and following.snapshot.delta_manifest_list == delta  # both lists, and the manifest
    assert names(following.files()) == names(state(store).files())
    counting.take()
    assert load_state(opened, latest(store), following) == following
    assert counting.take() == []


def test_without_a_state_to_start_from_known_manifests_are_not_read_again(store: TableStore, monkeypatch: pytest.MonkeyPatch) -> None:
    counting = Counting(store, monkeypatch)
    opened = TableStore(store.storage)
    load_state(opened, latest(store))
    counting.take()
    append(store, file_meta("third.parquet"))
    counting.take()
    load_state(opened, latest(store))
    assert len(counting.take()) == 3  # base list, delta list, delta manifest


def test_decoded_manifests_are_kept_within_a_bound(store: TableStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifests, "KEPT_ENTRIES", 1)
    counting = Counting(store, monkeypatch)
    opened = TableStore(store.storage)
    first = load_state(opened, latest(store))
    counting.take()
    assert load_state(opened, latest(store)) == first
    assert counting.take()


def test_a_state_does_not_lead_over_a_rollback(store: TableStore) -> None:
    known = load_state(store, latest(store))
    store.storage.delete("snapshot/snapshot-3")
    store.storage.replace("snapshot/LATEST", b"2")
    append(store, file_meta("other.parquet"))
    append(store, file_meta("another.parquet"))
    following = load_state(TableStore(store.storage), latest(store), known)
    assert names(following.files()) == names(state(store).files())


@pytest.mark.parametrize("options", [{}, {"manifest.merge-min-count": "2"}], ids=["plain", "merged"])
@pytest.mark.parametrize("known_id", [2, 3])
def test_a_state_does_not_lead_over_a_snapshot_that_was_replaced(tmp_path: Path, known_id: int, options: dict[str, str]) -> None:
    """A writer that checks and then renames puts its own snapshot 3 over one that snapshot 4 is built on; both added as many files."""
    store = empty_table(tmp_path, options)
    append(store, FIRST)
    append(store, SECOND)
    ours = append(store, file_meta("ours.parquet"))
    append(store, file_meta("next.parquet"))
    built = (store.storage.read("snapshot/snapshot-3"), store.storage.read("snapshot/snapshot-4"))
    for snapshot_id in (3, 4):
        store.storage.delete(f"snapshot/snapshot-{snapshot_id}")
    theirs = append(store, file_meta("theirs.parquet", rows=ours.delta_record_count + 1))
    known = load_state(store, store.snapshot(known_id))
    assert theirs.id == 3 and store.storage.create_if_absent("snapshot/snapshot-4", built[1])
    for start in (known, load_state(store, store.snapshot(1))):
        files = load_state(TableStore(store.storage), latest(store), start).files()
        assert {file.file_name for file in files} == {"first.parquet", "second.parquet", "ours.parquet", "next.parquet"}


def test_a_step_that_expires_meanwhile_is_no_damage(store: TableStore) -> None:
    """Its manifests go before its snapshot file does."""
    known = load_state(store, store.snapshot(1))
    expired = store.snapshot(2)
    store.storage.delete(f"manifest/{expired.delta_manifest_list}")
    opened = TableStore(store.storage)
    assert names(load_state(opened, latest(store), known).files()) == names(state(store).files())


def test_a_state_does_not_lead_backwards_or_over_a_gap(store: TableStore) -> None:
    known = {snapshot_id: load_state(store, store.snapshot(snapshot_id)) for snapshot_id in (1, 2, 3)}
    assert names(load_state(store, store.snapshot(1), known[3]).files()) == names(known[1].files())
    store.storage.delete("snapshot/snapshot-2")
    assert names(load_state(store, store.snapshot(3), known[1]).files()) == names(known[3].files())


def test_an_unknown_manifest_version_is_refused(store: TableStore) -> None:
    from maintainer.format import avro

    path = path_of(store, "delta manifest")
    (records,) = avro.read_records(path.read_bytes(), manifest.SCHEMA, "manifest")
    path.write_bytes(avro.write_records(manifest.SCHEMA, [{**record, "_VERSION": 3} for record in records], "zstd", 1))
    with pytest.raises(Unsupported, match=f"{path}: .*version 3"):
        state(store)


def test_merging_keeps_what_it_cannot_match() -> None:
    live: dict[Any, Any] = {}
    unmatched = merge_into(live, [entry(FIRST, FileKind.DELETE), entry(SECOND)])
    assert [e.file for e in unmatched] == [FIRST] and len(live) == 2
    assert merge_into(live, [entry(SECOND, FileKind.DELETE)]) == [] and len(live) == 1
    with pytest.raises(CorruptTable, match=r"adds first\.parquet"):
        merge_into(live, [entry(FIRST)])


def test_an_unused_snapshot_field_survives(store: TableStore) -> None:
    snapshot: Snapshot = replace(latest(store), extra={"futureField": [1, 2]})
    assert snapshot_json.decode(snapshot_json.encode(snapshot)).extra == {"futureField": [1, 2]}


@pytest.mark.parametrize("times", [TRIES - 1, TRIES])
def test_the_latest_state_where_each_snapshot_expires_while_it_is_read(store: TableStore, monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    read: list[int] = []

    def expiring(store: TableStore, snapshot: Snapshot, *more: Any) -> TableState:
        read.append(snapshot.id)
        if len(read) <= times:
            following = replace(snapshot, id=snapshot.id + 1)
            store.storage.replace(store.snapshot_path(following.id), snapshot_json.encode(following))
            raise MissingFile("a manifest")
        return load_state(store, snapshot, *more)

    monkeypatch.setattr(state_module, "load_state", expiring)
    if times < TRIES:
        found = load_latest(store)
        assert found is not None and found.snapshot.id == 3 + times
    else:
        with pytest.raises(SnapshotExpired, match="faster than the latest one can be read"):
            load_latest(store)


class TestKept:
    """What an opened table keeps of the states that its scans read."""

    @staticmethod
    def read(opened: TableStore, snapshot_id: int | None = None) -> TableState:
        """As a scan does: the latest snapshot by the latest schema, others by their own."""
        newest = opened.latest_schema()
        snapshot = latest(opened) if snapshot_id is None else opened.snapshot(snapshot_id)
        return state_of(opened, snapshot, newest if snapshot_id is None else opened.schema_of(snapshot))

    def test_an_unchanged_snapshot_has_the_state_it_had(self, store: TableStore, monkeypatch: pytest.MonkeyPatch) -> None:
        opened = TableStore(store.storage)
        known = self.read(opened)
        known.kept["columns"] = "made of it"
        counting = Counting(store, monkeypatch)
        assert self.read(opened) is known and counting.take() == [] and known.kept == {"columns": "made of it"}
        assert known == state(store), "what is kept with a state is no part of it"

    def test_time_travel_does_not_cost_what_is_known_of_the_latest_snapshot(self, store: TableStore) -> None:
        opened = TableStore(store.storage)
        known = self.read(opened)
        first, second = self.read(opened, 1), self.read(opened, 2)
        assert names(first.files()) == names([FIRST]) and names(second.files()) == names([FIRST, SECOND])
        assert self.read(opened, 2) is second and self.read(opened) is known
        assert self.read(opened, 1) is not first, "of other snapshots only the last one is kept"

    def test_a_following_snapshot_takes_its_place_and_shares_the_buckets_that_are_the_same(self, store: TableStore) -> None:
        opened = TableStore(store.storage)
        known, travelled = self.read(opened), self.read(opened, 1)
        append(store, file_meta("third.parquet"), number=1)
        following = self.read(opened)
        assert following == state(store) and following.kept == {}
        zero, one = BucketKey(EMPTY_ROW, 0), BucketKey(EMPTY_ROW, 1)
        assert known.bucket(zero).deletion_file is not None and following.bucket(zero) is known.bucket(zero)
        assert following.bucket(one) is not known.bucket(one)
        assert set(map(id, opened.states)) == {id(following), id(travelled)}

    def test_a_changed_schema_is_that_of_the_state(self, store: TableStore) -> None:
        opened = TableStore(store.storage)
        known = self.read(opened)
        schema = replace(store.latest_schema(), id=1, options={**store.latest_schema().options, "write-only": "true"})
        assert store.publish_schema(schema)
        following = self.read(opened)
        assert following.schema == schema and dict(following.buckets) == dict(known.buckets) and self.read(opened) is following

    def test_a_rollback_is_not_hidden(self, store: TableStore) -> None:
        opened = TableStore(store.storage)
        self.read(opened)
        store.storage.delete("snapshot/snapshot-3")
        store.storage.replace("snapshot/LATEST", b"2")
        assert names(self.read(opened).files()) == names([FIRST, SECOND])
        append(store, file_meta("other.parquet"))
        assert names(self.read(opened).files()) == names([FIRST, SECOND, file_meta("other.parquet")])

    def test_a_table_that_was_made_again_is_another_one(self, store: TableStore) -> None:
        opened = TableStore(store.storage)
        self.read(opened)
        again = empty_table(Path(store.uri).parent / "again")
        for number in range(3):
            append(again, file_meta(f"again-{number}.parquet"))
        for directory in ("snapshot", "manifest", "schema"):
            for name in [each.name for each in store.storage.list(directory)]:
                store.storage.delete(f"{directory}/{name}")
            for each in again.storage.list(directory):
                store.storage.replace(f"{directory}/{each.name}", again.storage.read(f"{directory}/{each.name}"))
        assert names(self.read(opened).files()) == names(state(again).files())


class TestLeaving:
    def test_the_latest_snapshot_stays_and_so_does_one_with_a_tag(self, store: TableStore, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("time.sleep", lambda seconds: pytest.fail("nothing has to be waited for"))
        assert not is_leaving(store, latest(store))
        store.storage.replace("tag/tag-kept", store.storage.read("snapshot/snapshot-1"))
        assert not is_leaving(store, store.snapshot(1))

    def test_a_tag_that_is_deleted_meanwhile_keeps_nothing(self, store: TableStore, monkeypatch: pytest.MonkeyPatch) -> None:
        first = store.snapshot(1)
        store.storage.delete("snapshot/snapshot-1")
        monkeypatch.setattr(TableStore, "tag_names", lambda self: ("listed",))
        assert is_leaving(store, first)

    def test_it_is_waited_for(self, store: TableStore) -> None:
        first = store.snapshot(1)
        timer = threading.Timer(0.2, lambda: store.storage.delete("snapshot/snapshot-1"))
        timer.start()
        assert is_leaving(store, first)
        timer.join()

    def test_but_not_for_ever(self, store: TableStore, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(state_module, "LEAVING_SECONDS", 0.1)
        assert not is_leaving(store, store.snapshot(1))
