"""Commits of changes of metadata: what snapshots say, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from maintainer.commit.committer import Committer
from maintainer.errors import CommitConflict, UsageError
from maintainer.format import manifest_list, schema_json, snapshot_json
from maintainer.model.commit import CommitMessage
from maintainer.model.files import EMPTY_ROW, BucketKey, FileKind, FileSource
from maintainer.model.snapshot import BATCH_IDENTIFIER, CommitKind
from maintainer.table.store import TableStore
from tests.support.builders import deletion_file, file_meta, row
from tests.support.metadata_tables import append, bucket, commit, empty_table, group, latest, names, result, state

L0 = file_meta("l0.parquet", 0, keys=(0, 9))
MERGED = file_meta("merged.parquet", 5, 12, keys=(0, 20))


@pytest.fixture
def store(tmp_path: Path) -> TableStore:
    return empty_table(tmp_path)


def test_the_first_commit_of_a_table(store: TableStore) -> None:
    snapshot = append(store, L0)
    assert snapshot == latest(store)
    assert (snapshot.id, snapshot.commit_kind, snapshot.schema_id, snapshot.version) == (1, CommitKind.APPEND, 0, 3)
    assert (snapshot.total_record_count, snapshot.delta_record_count, snapshot.next_row_id) == (10, 10, 0)
    assert snapshot.commit_identifier == BATCH_IDENTIFIER and snapshot.commit_user == "writer"
    assert snapshot.uuid and snapshot.writer_version == "maintainer-0.1.0"
    assert snapshot.index_manifest is None and snapshot.changelog_manifest_list is None and snapshot.properties is None
    assert manifest_list.decode(store.storage.read(f"manifest/{snapshot.base_manifest_list}")) == []
    assert store.storage.size(f"manifest/{snapshot.base_manifest_list}") == snapshot.base_manifest_list_size
    assert store.storage.size(f"manifest/{snapshot.delta_manifest_list}") == snapshot.delta_manifest_list_size
    assert store.storage.read("snapshot/LATEST") == b"1"
    text = json.loads(store.storage.read("snapshot/snapshot-1"))
    assert not {"watermark", "statistics", "operation", "changelogRecordCount", "indexManifest", "properties"} & text.keys()


def test_a_commit_of_nothing_makes_no_snapshot(store: TableStore) -> None:
    committer = Committer(store)
    assert committer.commit_append([]) is None
    assert committer.commit_append([CommitMessage(EMPTY_ROW, 0)]) is None
    append(store, L0)
    assert committer.commit_results([]).snapshots == ()
    assert committer.commit_results([result(store)]).snapshots == ()
    assert latest(store).id == 1


def test_a_compaction_makes_one_compact_snapshot_with_its_index_files(store: TableStore) -> None:
    append(store, L0)
    append(store, file_meta("other.parquet"), number=1)
    payload, vectors = group("index-btree", MERGED), deletion_file("index-dv")
    outcome = commit(store, result(store, [L0], [MERGED], new_index=[vectors, payload]))
    assert [s.commit_kind for s in outcome.snapshots] == [CommitKind.COMPACT] and not outcome.conflicts
    snapshot = latest(store)
    assert (snapshot.id, snapshot.delta_record_count, snapshot.total_record_count) == (3, 2, 22)
    assert bucket(store).files == (MERGED,)
    assert bucket(store).payloads == (payload,) and bucket(store).deletion_file == vectors
    assert names(bucket(store, 1).files) == {("other.parquet", 0): 1}


def test_a_changelog_is_in_the_snapshot_of_its_rows_and_in_no_later_one(store: TableStore) -> None:
    rows, changes = file_meta("c.parquet", 0, rows=7), file_meta("d.parquet", 5, rows=3)
    Committer(store).commit_append([CommitMessage(EMPTY_ROW, 0, new_files=(L0,), changelog_files=(rows,))])
    first = latest(store)
    assert first.commit_kind is CommitKind.APPEND
    assert (first.total_record_count, first.changelog_record_count) == (L0.row_count, 7)
    compaction = result(store, [L0], [MERGED])
    commit(store, replace(compaction, message=replace(compaction.message, compact_changelog_files=(changes,))))
    second = latest(store)
    assert (second.commit_kind, second.changelog_record_count) == (CommitKind.COMPACT, 3)
    append(store, file_meta("more.parquet"))
    assert latest(store).changelog_manifest_list is None
    for snapshot, file in ((first, rows), (second, changes)):
        assert snapshot.changelog_manifest_list is not None
        (manifest,) = store.manifests.files_of(snapshot.changelog_manifest_list, "a snapshot")
        assert [(entry.kind, entry.file) for entry in store.manifests.entries(manifest.file_name, "a snapshot")] == [(FileKind.ADD, file)]
        assert store.storage.size(f"manifest/{snapshot.changelog_manifest_list}") == snapshot.changelog_manifest_list_size
    assert names(bucket(store).files).keys() == {(MERGED.file_name, MERGED.level), ("more.parquet", 0)}


def test_a_delta_deletes_before_it_adds(store: TableStore) -> None:
    """Expiry walks a delta in order with a map keyed by path: an ADD before the DELETE of an upgrade would lose a live file."""
    append(store, L0)
    upgraded = replace(L0, level=5)
    commit(store, result(store, [L0], [upgraded]))
    delta = list(store.manifests.delta_entries(latest(store)))
    assert [(entry.kind, entry.file.level) for entry in delta] == [(FileKind.DELETE, 0), (FileKind.ADD, 5)]
    assert bucket(store).files == (upgraded,)
    assert latest(store).delta_record_count == 0


def test_all_buckets_of_a_pass_become_visible_at_once(store: TableStore) -> None:
    append(store, L0)
    append(store, L0, number=1)
    second = file_meta("second.parquet", 5)
    outcome = commit(store, result(store, [L0], [MERGED]), result(store, [L0], [second], number=1))
    assert [s.id for s in outcome.snapshots] == [3]
    assert bucket(store).files == (MERGED,) and bucket(store, 1).files == (second,)


def test_buckets_that_only_get_index_files_follow_in_an_append_snapshot(store: TableStore) -> None:
    append(store, L0)
    append(store, L0, number=1)
    compacted = file_meta("second.parquet", 5)
    commit(store, result(store, [L0], [compacted], number=1))
    outcome = commit(
        store,
        result(store, new_index=[group("index-1", compacted)], number=1),
        result(store, [L0], [MERGED], new_index=[group("index-0", MERGED)]),
    )
    assert [s.commit_kind for s in outcome.snapshots] == [CommitKind.COMPACT, CommitKind.APPEND]
    after = latest(store)
    assert after.delta_record_count == 0 and manifest_list.decode(store.storage.read(f"manifest/{after.delta_manifest_list}")) == []
    assert after.total_record_count == outcome.snapshots[0].total_record_count
    assert [p.file_name for p in bucket(store, 1).payloads] == ["index-1"]
    assert [p.file_name for p in bucket(store).payloads] == ["index-0"]


def test_the_index_manifest_is_reused_when_no_index_file_changes(store: TableStore) -> None:
    append(store, L0)
    commit(store, result(store, [L0], [MERGED], new_index=[group("index-0", MERGED)]))
    before = latest(store).index_manifest
    append(store, file_meta("later.parquet"))
    assert before is not None and latest(store).index_manifest == before


def test_removing_the_last_index_file_leaves_an_empty_index_manifest(store: TableStore) -> None:
    append(store, L0)
    payload = group("index-0", MERGED)
    commit(store, result(store, [L0], [MERGED], new_index=[payload]))
    commit(store, result(store, deleted_index=[payload]))
    snapshot = latest(store)
    assert snapshot.commit_kind is CommitKind.APPEND and snapshot.index_manifest is not None
    assert store.manifests.index(snapshot.index_manifest, "test") == ()
    append(store, file_meta("later.parquet"))
    assert latest(store).index_manifest == snapshot.index_manifest


def test_the_newest_schema_is_named_and_time_never_goes_back(store: TableStore) -> None:
    append(store, L0)
    first = latest(store)
    future = replace(first, time_millis=first.time_millis + 10**9)
    Path(f"{store.uri}/snapshot/snapshot-1").write_bytes(snapshot_json.encode(future))
    schema = replace(store.latest_schema(), id=1)
    store.storage.write("schema/schema-1", schema_json.encode(schema))
    append(store, file_meta("b.parquet"))
    assert latest(store).schema_id == 1
    assert latest(store).time_millis == future.time_millis


def test_watermark_row_ids_and_statistics_are_carried_along(store: TableStore) -> None:
    append(store, L0)
    first = replace(latest(store), watermark=77, next_row_id=5, statistics="stat-1", properties={"k": "v"}, operation="WRITE")
    Path(f"{store.uri}/snapshot/snapshot-1").write_bytes(snapshot_json.encode(first))
    store.storage.write("statistics/stat-1", b'{"snapshotId": 1, "schemaId": 0}')
    commit(store, result(store, [L0], [MERGED], base=first))
    snapshot = latest(store)
    assert (snapshot.watermark, snapshot.next_row_id, snapshot.statistics) == (77, 5, "stat-1")
    assert snapshot.properties is None and snapshot.operation is None
    store.storage.write("schema/schema-1", schema_json.encode(replace(store.latest_schema(), id=1)))
    append(store, file_meta("b.parquet"))
    assert latest(store).statistics is None


def test_the_largest_sequence_number_is_carried_where_writers_continue_from_it(tmp_path: Path) -> None:
    store = empty_table(tmp_path, {"write.sequence-number-init-mode": "snapshot"})
    key = "sequence.generation.max-sequence-number"
    append(store, file_meta("a.parquet", sequences=(0, 41)))
    assert latest(store).properties == {key: "41"}
    append(store, file_meta("b.parquet", sequences=(3, 7)))
    assert latest(store).properties == {key: "41"}
    assert Committer(store).commit_append([CommitMessage(EMPTY_ROW, 1, new_files=(file_meta("c.parquet", sequences=(0, 50)),))], {"x": "y"})
    assert latest(store).properties == {key: "50", "x": "y"}
    kept = bucket(store).files
    commit(store, result(store, kept, [file_meta("d.parquet", 5, sequences=(0, 7))]))
    assert latest(store).properties == {key: "50"}
    without = replace(latest(store), properties=None)
    Path(f"{store.uri}/snapshot/snapshot-4").write_bytes(snapshot_json.encode(without))
    append(store, file_meta("e.parquet", sequences=(0, 1)))
    assert latest(store).properties == {key: "50"}


def test_a_commit_names_a_user_of_this_process(tmp_path: Path) -> None:
    store = empty_table(tmp_path, {"commit.user-prefix": "etl"})
    assert Committer(store).user.startswith("etl_") and Committer(store).user == Committer(store).user


def test_the_number_of_buckets_of_a_partition_cannot_change_by_an_append(store: TableStore) -> None:
    append(store, L0)
    with pytest.raises(CommitConflict, match="changed from 4 to 2"):
        append(store, file_meta("b.parquet"), number=3, total_buckets=4)
    assert latest(store).id == 1


def test_another_partition_may_have_another_number_of_buckets(tmp_path: Path) -> None:
    store = empty_table(tmp_path, partition_keys=["p"])
    append(store, L0, partition=row("a", "STRING"))
    append(store, L0, partition=row("b", "STRING"), total_buckets=4, number=3)
    assert state(store).bucket(BucketKey(row("b", "STRING"), 3)).total_buckets == 4
    with pytest.raises(CommitConflict, match="changed from 2 to 4"):
        append(store, file_meta("x"), partition=row("b", "STRING"))


@pytest.mark.parametrize(
    "message",
    [
        CommitMessage(EMPTY_ROW, 0, deleted_files=(L0,)),
        CommitMessage(EMPTY_ROW, 0, compact_after=(MERGED,)),
        CommitMessage(EMPTY_ROW, 0, new_index_files=(deletion_file(),)),
    ],
)
def test_an_append_may_only_add_files_of_rows(store: TableStore, message: CommitMessage) -> None:
    with pytest.raises(UsageError, match="only add data and changelog files"):
        Committer(store).commit_append([message])


def test_new_rows_and_compactions_are_not_mixed(store: TableStore) -> None:
    append(store, L0)
    mixed = result(store, [L0], [MERGED])
    with pytest.raises(UsageError, match="mixes"):
        commit(store, replace(mixed, message=replace(mixed.message, new_files=(file_meta("n"),))))
    with pytest.raises(UsageError, match="two results"):
        commit(store, mixed, mixed)
    assert latest(store).id == 1


def test_an_upgraded_append_file_keeps_its_source(store: TableStore) -> None:
    append(store, L0)
    commit(store, result(store, [L0], [replace(L0, level=5)]))
    assert bucket(store).files[0].file_source is FileSource.APPEND


def test_a_branch_is_committed_to_beside_main(store: TableStore) -> None:
    append(store, L0)
    for path in ("schema/schema-0", "snapshot/snapshot-1"):
        store.storage.write(f"branch/branch-b/{path}", store.storage.read(path))
    branch = TableStore(store.storage, "b")
    append(branch, file_meta("on-branch.parquet"))
    assert latest(branch).id == 2 and latest(store).id == 1
    assert len(bucket(branch).files) == 2
    assert store.storage.exists("branch/branch-b/snapshot/snapshot-2")
    assert store.storage.exists(f"manifest/{latest(branch).base_manifest_list}")
