"""Each check of spec 03 §7.4, §7.5 and 06 §13.3, by hand-built changes between planning and committing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from maintainer.model.files import EMPTY_ROW, BucketKey, DataFileMeta, FileSource, IndexFileMeta
from maintainer.model.snapshot import CommitKind
from maintainer.table.store import TableStore
from tests.support.builders import deletion_file, file_meta, payload, row
from tests.support.metadata_tables import append, bucket, commit, empty_table, group, latest, names, result, state

BUCKET = BucketKey(EMPTY_ROW, 0)
FIRST = file_meta("first.parquet", keys=(0, 9))
SECOND = file_meta("second.parquet", keys=(5, 14))
BASE = file_meta("base.parquet", 5, keys=(0, 100))


@pytest.fixture
def store(tmp_path: Path) -> TableStore:
    store = empty_table(tmp_path)
    append(store, FIRST)
    append(store, SECOND)
    return store


def conflict(store: TableStore, *results: object) -> str:
    """The reason of the one conflict; nothing may have been published."""
    before = latest(store).id
    outcome = commit(store, *results)  # type: ignore[arg-type]
    assert outcome.snapshots == () and latest(store).id == before
    (reason,) = outcome.conflicts.values()
    return reason


def compacted(store: TableStore, name: str = "out.parquet", level: int = 5, keys: tuple[int, int] = (0, 14)) -> DataFileMeta:
    """Both level-0 files compacted into one."""
    output = file_meta(name, level, keys=keys)
    assert commit(store, result(store, [FIRST, SECOND], [output])).snapshots
    return output


def test_level_zero_files_that_came_meanwhile_are_no_conflict(store: TableStore) -> None:
    work = result(store, [FIRST, SECOND], [file_meta("out.parquet", 5)])
    append(store, file_meta("third.parquet"))
    assert commit(store, work).snapshots
    assert names(bucket(store).files) == {("out.parquet", 5): 1, ("third.parquet", 0): 1}


def test_an_input_that_somebody_else_compacted(store: TableStore) -> None:
    work = result(store, [FIRST, SECOND], [file_meta("late.parquet", 5)])
    compacted(store)
    assert "deletes first.parquet of level 0, second.parquet of level 0, which is no longer there" in conflict(store, work)


def test_an_input_that_somebody_else_upgraded(store: TableStore) -> None:
    work = result(store, [FIRST], [file_meta("late.parquet", 4, keys=(50, 60))])
    commit(store, result(store, [FIRST], [replace(FIRST, level=5)]))
    assert "first.parquet of level 0" in conflict(store, work)


@pytest.mark.parametrize(
    "wrong", [{"level": 1}, {"extra_files": ("x.index",)}, {"embedded_file_index": b"1"}, {"external_path": "s3://b/first.parquet"}]
)
def test_a_delete_must_name_the_file_exactly(store: TableStore, wrong: dict[str, object]) -> None:
    work = result(store, [replace(FIRST, **wrong)], [file_meta("out.parquet", 5)])  # type: ignore[arg-type]
    assert "no longer there" in conflict(store, work)


def test_statistics_are_not_part_of_a_files_identity(store: TableStore) -> None:
    assert commit(store, result(store, [replace(FIRST, value_stats_cols=None, row_count=3)], [file_meta("out.parquet", 5)])).snapshots


def test_a_file_cannot_be_added_twice(store: TableStore) -> None:
    assert "adds first.parquet to level 0, which is there already" in conflict(store, result(store, [], [FIRST]))
    twice = file_meta("twice.parquet", 5)
    assert "adds twice.parquet" in conflict(store, result(store, [FIRST], [twice, twice]))


def test_a_file_cannot_be_deleted_and_added_as_it_was(store: TableStore) -> None:
    """An identity is deleted at most once: merging the delta alone would find the file there already, in Java, too."""
    assert "adds first.parquet to level 0, which is there already" in conflict(store, result(store, [FIRST], [FIRST]))


def test_key_ranges_of_a_level_cannot_overlap(store: TableStore) -> None:
    compacted(store, keys=(0, 14))
    append(store, FIRST)
    overlapping = file_meta("late.parquet", 5, keys=(14, 30))
    assert "out.parquet and late.parquet of level 5 would overlap" in conflict(store, result(store, [FIRST], [overlapping]))
    beside = file_meta("beside.parquet", 5, keys=(15, 30))
    assert commit(store, result(store, [FIRST], [beside])).snapshots


def test_key_ranges_are_compared_in_key_order_and_not_by_bytes(store: TableStore) -> None:
    assert commit(store, result(store, [FIRST], [file_meta("a.parquet", 5, keys=(-5, -1)), file_meta("b.parquet", 5, keys=(0, 300))])).snapshots
    assert "would overlap" in conflict(store, result(store, [SECOND], [file_meta("c.parquet", 5, keys=(256, 256))]))


def test_levels_and_buckets_may_overlap(store: TableStore) -> None:
    append(store, FIRST, number=1)
    work = [result(store, [FIRST], [file_meta("a", 5), file_meta("b", 4)]), result(store, [FIRST], [file_meta("c", 5)], number=1)]
    assert commit(store, *work).snapshots


def test_the_number_of_buckets_changed(store: TableStore) -> None:
    work = result(store, [FIRST], [file_meta("out.parquet", 5)], total_buckets=4)
    assert "number of buckets of the partition changed from 4 to 2" in conflict(store, work)


def test_deletion_vectors_that_somebody_else_replaced(store: TableStore) -> None:
    """Java's defect: the last writer wins, and the deletes of the other one are lost (spec 04 §14.2)."""
    commit(store, result(store, [], [BASE]))
    rewrite = result(store, [BASE], [file_meta("rewritten.parquet", 5, keys=(0, 100))])
    vectors = deletion_file("index-dv-1", [("base.parquet", 1, 22, 1)])
    commit(store, result(store, [FIRST], [replace(FIRST, level=4)], new_index=[vectors]))
    assert "deletion vectors changed from none to index-dv-1" in conflict(store, rewrite)
    stale = result(store, [SECOND], [file_meta("o", 3)], deletion_file="index-dv-0")
    assert "from index-dv-0 to index-dv-1" in conflict(store, stale)
    assert commit(store, replace(rewrite, deletion_file="index-dv-1")).snapshots


def test_rows_deleted_of_a_file_that_somebody_else_rewrote_meanwhile(store: TableStore) -> None:
    """There were no vectors, and there are none now: the new file alone shows that the older versions live on in it."""
    commit(store, result(store, [], [BASE]))
    marks = result(store, [FIRST], [replace(FIRST, level=4)], new_index=[deletion_file("index-dv-1", [("base.parquet", 1, 22, 1)])])
    commit(store, result(store, [BASE], [file_meta("rewritten.parquet", 5, keys=(0, 100))]))
    assert "deletes rows of base.parquet, which is no longer there" in conflict(store, marks)


def test_new_deletion_vectors_replace_those_of_the_bucket_alone(store: TableStore) -> None:
    append(store, FIRST, number=1)
    commit(
        store,
        result(store, [FIRST], [replace(FIRST, level=4)], new_index=[deletion_file("dv-0")]),
        result(store, [FIRST], [replace(FIRST, level=4)], new_index=[deletion_file("dv-1")], number=1),
    )
    commit(store, result(store, [SECOND], [replace(SECOND, level=3)], new_index=[deletion_file("dv-2")], deletion_file="dv-0"))
    assert [b.deletion_file.file_name for b in (bucket(store, 0), bucket(store, 1)) if b.deletion_file] == ["dv-2", "dv-1"]


def test_an_upgrade_that_marks_no_file_keeps_the_vectors(store: TableStore) -> None:
    commit(store, result(store, [FIRST], [replace(FIRST, level=4)], new_index=[deletion_file("dv-0")]))
    commit(store, result(store, [SECOND], [replace(SECOND, level=3)], deletion_file="dv-0"))
    vectors = bucket(store).deletion_file
    assert vectors is not None and vectors.file_name == "dv-0"


class TestPayloads:
    def wrong(self, store: TableStore, added: IndexFileMeta) -> str:
        return conflict(store, result(store, new_index=[added]))

    def test_sources_that_changed_before_the_commit(self, store: TableStore) -> None:
        output = compacted(store)
        work = result(store, new_index=[group("index-1", output)])
        append(store, FIRST)
        beside = file_meta("beside.parquet", 5, keys=(20, 30))
        commit(store, result(store, [FIRST], [beside]))
        assert "index-1 indexes other files than level 5 holds" in conflict(store, work)
        assert commit(store, result(store, new_index=[group("index-2", output, beside)])).snapshots

    def test_sources_must_be_compact_files_above_level_0_with_those_rows(self, store: TableStore) -> None:
        output = compacted(store)
        assert "other files" in self.wrong(store, group("index-1", replace(output, row_count=9)))
        assert "other files" in self.wrong(store, group("index-1", replace(output, level=4)))
        append(store, FIRST)
        upgraded = replace(FIRST, level=3)
        commit(store, result(store, [FIRST], [upgraded]))
        assert upgraded.file_source is FileSource.APPEND
        assert "other files" in self.wrong(store, group("index-1", upgraded))

    def test_sources_must_be_in_order(self, store: TableStore) -> None:
        left, right = file_meta("b.parquet", 5, keys=(0, 9)), file_meta("a.parquet", 5, keys=(10, 19))
        commit(store, result(store, [FIRST, SECOND], [left, right]))
        good = group("index-1", left, right)
        assert good.global_index is not None and good.global_index.source_meta is not None
        swapped = good.global_index.source_meta.replace(b"b.parquet", b"c.parquet").replace(b"a.parquet", b"b.parquet")
        swapped = swapped.replace(b"c.parquet", b"a.parquet")
        assert "other files" in self.wrong(store, replace(good, global_index=replace(good.global_index, source_meta=swapped)))
        assert commit(store, result(store, new_index=[good])).snapshots

    @pytest.mark.parametrize("meta", [None, b"", b"\x00\x00\x00\x01\x00", b"DEIX"])
    def test_a_payload_without_readable_sources(self, store: TableStore, meta: bytes | None) -> None:
        compacted(store)
        assert "says nothing that can be checked" in self.wrong(store, payload("index-1", source_meta=meta))

    def test_the_sources_of_a_compaction_are_those_after_it(self, store: TableStore) -> None:
        output = file_meta("out.parquet", 5)
        assert commit(store, result(store, [FIRST], [output], new_index=[group("index-1", output)])).snapshots
        outcome = commit(store, result(store, [SECOND], [file_meta("o2", 4)], new_index=[group("index-2", replace(SECOND, level=5))]))
        ((names, *_),) = [outcome.discarded.values()]
        assert "index-2 indexes other files than level 5 holds" in names["index-2"]

    def test_data_goes_on_without_payloads_that_do_not_fit(self, store: TableStore) -> None:
        """One level was changed by somebody else, the group of another was built by somebody else; the third is as it should be."""
        outputs = [file_meta(f"o{level}", level, keys=(10 * level, 10 * level + 5)) for level in (2, 3, 5)]
        commit(store, result(store, [FIRST], outputs))
        old = group("old", file_meta("gone", 2), outputs[0])
        commit(store, result(store, [], [], new_index=[group("theirs", outputs[1])]))
        append(store, file_meta("late.parquet"))
        beside = file_meta("beside.parquet", 2, keys=(200, 300))
        commit(store, result(store, [file_meta("late.parquet")], [beside]))
        new = [group("stale", outputs[0]), group("twice", outputs[1]), group("good", outputs[2])]
        outcome = commit(store, result(store, [SECOND], [file_meta("o4", 4, keys=(400, 500))], new_index=new, deleted_index=[old]))
        assert len(outcome.snapshots) == 1 and not outcome.conflicts
        assert {name: why for found in outcome.discarded.values() for name, why in found.items()} == {
            "stale": "stale indexes other files than level 2 holds",
            "twice": "theirs indexes the same files of level 3 already",
        }
        assert {payload.file_name for payload in bucket(store).payloads} == {"theirs", "good"}

    def test_a_superseded_payload_stays_when_what_should_replace_it_does_not_fit(self, store: TableStore) -> None:
        output = compacted(store)
        old = group("old", output)
        commit(store, result(store, new_index=[old]))
        append(store, FIRST)
        commit(store, result(store, [FIRST], [file_meta("beside.parquet", 5, keys=(20, 30))]))
        work = result(store, new_index=[group("new", output)], deleted_index=[old])
        assert "new indexes other files than level 5 holds" in conflict(store, work)
        assert [payload.file_name for payload in bucket(store).payloads] == ["old"]

    def test_one_of_theirs_that_is_no_good_gives_way(self, store: TableStore) -> None:
        output = compacted(store)
        theirs = replace(group("theirs", output), row_count=7)
        commit(store, result(store, new_index=[theirs]))
        outcome = commit(store, result(store, new_index=[group("ours", output)]))
        assert len(outcome.snapshots) == 1 and not outcome.discarded
        assert [payload.file_name for payload in bucket(store).payloads] == ["ours"]

    def test_two_payloads_of_one_level_in_one_result(self, store: TableStore) -> None:
        output = compacted(store)
        work = result(store, new_index=[group("index-1", output), group("index-2", output)])
        assert "index-1 and index-2 index the same files" in conflict(store, work)

    def test_another_column_or_family_is_another_group(self, store: TableStore) -> None:
        output = compacted(store)
        groups = [group("i-1", output), group("i-2", output, field_id=2), group("i-3", output, index_type="bitmap")]
        assert commit(store, result(store, new_index=groups)).snapshots
        assert len(bucket(store).payloads) == 3

    def test_a_valid_group_that_somebody_else_built_stays(self, store: TableStore) -> None:
        output = compacted(store)
        work = result(store, new_index=[group("index-ours", output)])
        commit(store, result(store, new_index=[group("index-theirs", output)]))
        assert "index-theirs indexes the same files of level 5 already" in conflict(store, work)
        assert [p.file_name for p in bucket(store).payloads] == ["index-theirs"]

    def test_a_stale_group_that_somebody_else_left_is_dropped(self, store: TableStore) -> None:
        output = compacted(store)
        commit(store, result(store, new_index=[group("index-old", output)]))
        append(store, FIRST)
        beside = file_meta("beside.parquet", 5, keys=(20, 30))
        commit(store, result(store, [FIRST], [beside]))
        commit(store, result(store, new_index=[group("index-new", output, beside)]))
        assert [p.file_name for p in bucket(store).payloads] == ["index-new"]

    def test_a_delete_of_a_payload_that_is_gone_already_is_left_out(self, store: TableStore) -> None:
        output = compacted(store)
        old = group("index-old", output)
        commit(store, result(store, new_index=[old]))
        drop = result(store, deleted_index=[old])
        commit(store, drop)
        outcome = commit(store, drop)
        assert outcome.snapshots == () and outcome.conflicts == {}
        replaced = result(store, new_index=[group("index-new", output)], deleted_index=[old])
        assert [s.commit_kind for s in commit(store, replaced).snapshots] == [CommitKind.APPEND]
        assert [p.file_name for p in bucket(store).payloads] == ["index-new"]

    def test_unknown_index_files_are_carried_along(self, store: TableStore) -> None:
        """They belong to somebody else's index family; only those of the level's definition are dropped."""
        from maintainer.commit.index_files import combine
        from tests.support.builders import index_entry

        foreign = payload("index-foreign", index_type="something-new", source_meta=None)
        kept = combine([index_entry(foreign, bucket=7)], [index_entry(payload("index-1"))])
        assert [entry.file for entry in kept] == [foreign, payload("index-1")]


class TestHistory:
    def test_a_conflict_drops_only_its_bucket(self, store: TableStore) -> None:
        append(store, FIRST, number=1)
        hit = result(store, [FIRST, SECOND], [file_meta("late.parquet", 5)])
        fine = result(store, [FIRST], [file_meta("fine.parquet", 5)], number=1)
        compacted(store)
        outcome = commit(store, hit, fine)
        assert len(outcome.snapshots) == 1 and list(outcome.conflicts) == [BUCKET]
        assert names(bucket(store, 1).files) == {("fine.parquet", 5): 1}
        assert names(bucket(store).files) == {("out.parquet", 5): 1}

    def test_a_dropped_partition(self, tmp_path: Path) -> None:
        store = empty_table(tmp_path / "p", partition_keys=["p"])
        partition = row("a", "STRING")
        append(store, FIRST, partition=partition)
        work = result(store, [FIRST], [file_meta("out.parquet", 5)], partition=partition)
        commit(store, result(store, [FIRST], [], partition=partition))
        assert "no longer there" in conflict(store, work)
        assert not list(state(store).files())

    def test_a_rollback_below_the_base(self, store: TableStore) -> None:
        work = result(store, [FIRST], [file_meta("out.parquet", 5)])
        store.storage.delete("snapshot/snapshot-2")
        store.storage.replace("snapshot/LATEST", b"1")
        assert "rolled back: the work is based on snapshot 2, the latest is now 1" in conflict(store, work)

    def test_a_rollback_and_another_commit_of_the_same_id(self, store: TableStore) -> None:
        work = result(store, [FIRST], [file_meta("out.parquet", 5)])
        store.storage.delete("snapshot/snapshot-2")
        store.storage.replace("snapshot/LATEST", b"1")
        append(store, file_meta("other.parquet"))
        assert "snapshot 2 is not the one" in conflict(store, work)

    def test_a_base_that_expired_is_no_conflict(self, store: TableStore) -> None:
        work = result(store, [FIRST], [file_meta("out.parquet", 5)], base=store.snapshot(1))
        store.storage.delete("snapshot/snapshot-1")
        assert commit(store, work).snapshots

    def test_a_table_that_lost_all_its_snapshots(self, store: TableStore) -> None:
        work = result(store, [FIRST], [file_meta("out.parquet", 5)])
        for name in ("snapshot-1", "snapshot-2", "LATEST"):
            store.storage.delete(f"snapshot/{name}")
        outcome = commit(store, work)
        assert outcome.snapshots == () and "no snapshot any more" in outcome.conflicts[BUCKET]
        assert store.latest_snapshot() is None
