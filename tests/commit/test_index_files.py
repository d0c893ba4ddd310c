from __future__ import annotations

import pytest

from maintainer.commit.index_files import combine
from maintainer.errors import CommitConflict
from maintainer.model.files import HASH, FileKind, GlobalIndexMeta, IndexFileMeta
from tests.support.builders import deletion_file, index_entry, payload, row

PART = row("p", "STRING")


def names(entries: list) -> set[str]:  # type: ignore[type-arg]
    return {entry.file.file_name for entry in entries}


def test_deletion_vectors_replace_those_of_their_bucket() -> None:
    previous = [index_entry(deletion_file(f"dv-{number}"), bucket=number) for number in range(3)]
    previous.append(index_entry(deletion_file("dv-p"), partition=PART, bucket=1))
    assert names(combine(previous, [index_entry(deletion_file("dv-new"), bucket=1)])) == {"dv-0", "dv-new", "dv-2", "dv-p"}
    assert names(combine(previous, [index_entry(deletion_file("other name"), FileKind.DELETE, bucket=1)])) == {"dv-0", "dv-2", "dv-p"}
    assert names(combine([], [index_entry(deletion_file("unknown"), FileKind.DELETE)])) == set()


def test_hash_indexes_and_deletion_vectors_of_one_bucket_live_together() -> None:
    hashes = IndexFileMeta(HASH, "hash-1", 10, 1)
    kept = combine([index_entry(deletion_file("dv-0"))], [index_entry(hashes)])
    assert names(combine(kept, [index_entry(deletion_file("dv-1"))])) == {"hash-1", "dv-1"}


def test_payloads_are_known_by_name_in_the_whole_table() -> None:
    previous = [index_entry(payload("a"), bucket=0), index_entry(payload("b"), bucket=1), index_entry(payload("c", "bitmap"), partition=PART)]
    changes = [index_entry(payload("d"), bucket=0), index_entry(payload("a"), FileKind.DELETE, bucket=0)]
    meta = GlobalIndexMeta(0, 9, 1, source_meta=b"\0\0\0\1")
    changes[0] = index_entry(IndexFileMeta("btree", "d", 100, 10, global_index=meta))
    assert names(combine(previous, changes)) == {"b", "c", "d"}


def test_a_delete_of_a_payload_that_is_not_there_is_a_conflict() -> None:
    with pytest.raises(CommitConflict, match="index-2 is no longer there"):
        combine([], [index_entry(payload(), FileKind.DELETE)])


def test_a_name_that_is_replaced() -> None:
    (entry,) = combine([index_entry(payload("a", size=1))], [index_entry(payload("a", size=2))])
    assert entry.file.file_size == 2


def test_an_empty_list_of_ranges_stays_one() -> None:
    (entry,) = combine([index_entry(deletion_file("dv", ()))], [])
    assert entry.file.deletion_ranges == ()


@pytest.mark.parametrize(
    ("old", "new", "fits"),
    [
        (GlobalIndexMeta(0, 9, 1), GlobalIndexMeta(10, 19, 1), True),
        (GlobalIndexMeta(0, 9, 1), GlobalIndexMeta(9, 19, 1), False),
        (GlobalIndexMeta(0, 9, 1), GlobalIndexMeta(9, 19, 2), True),
        (GlobalIndexMeta(0, 9, 1), GlobalIndexMeta(10, 19, 1, (3,)), False),
        (GlobalIndexMeta(0, 9, 1, source_meta=b"\0\0\0\1"), GlobalIndexMeta(0, 9, 1, source_meta=b"\0\0\0\1"), True),
        (GlobalIndexMeta(0, 9, 1, source_meta=b"DEIX"), GlobalIndexMeta(5, 9, 1, source_meta=b"DEIX"), False),
    ],
)
def test_row_id_indexes_of_one_column_may_not_overlap(old: GlobalIndexMeta, new: GlobalIndexMeta, fits: bool) -> None:
    previous = [index_entry(IndexFileMeta("btree", "old", 1, 10, global_index=old))]
    added = [index_entry(IndexFileMeta("btree", "new", 1, 10, global_index=new))]
    if fits:
        assert names(combine(previous, added)) == {"old", "new"}
    else:
        with pytest.raises(CommitConflict, match="old covers rows"):
            combine(previous, added)
