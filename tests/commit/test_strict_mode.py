from __future__ import annotations

from pathlib import Path

import pytest

from maintainer.commit.committer import Committer
from maintainer.errors import CommitConflict
from maintainer.model.commit import CommitMessage
from maintainer.table.store import TableStore
from tests.support.builders import deletion_file, file_meta, row
from tests.support.metadata_tables import append, commit, empty_table, latest, result

A, B = row("a", "STRING"), row("b", "STRING")
FILE = file_meta("f.parquet")


@pytest.fixture
def store(tmp_path: Path) -> TableStore:
    store = empty_table(tmp_path, partition_keys=["p"])
    append(store, FILE, partition=A)
    append(store, FILE, partition=B)
    return store


def strict(store: TableStore, last_safe: int, user: str = "strict") -> Committer:
    return Committer(TableStore(store.storage, options={"commit.strict-mode.last-safe-snapshot": str(last_safe)}), user)


def add(committer: Committer, partition: bytes, name: str) -> int:
    snapshot = committer.commit_append([CommitMessage(partition, 0, new_files=(file_meta(name),))])
    assert snapshot is not None
    return snapshot.id


def test_appends_of_others_are_safe(store: TableStore) -> None:
    assert add(strict(store, 0), A, "n") == 3


def test_a_compaction_of_our_partition_by_somebody_else(store: TableStore) -> None:
    commit(store, result(store, [FILE], [file_meta("out", 5)], partition=A))
    with pytest.raises(CommitConflict, match=r"snapshot 3 of compactor .*last-safe-snapshot"):
        add(strict(store, 2), A, "n")
    assert latest(store).id == 3
    assert add(strict(store, 2), B, "n") == 4
    assert add(strict(store, 3), A, "m") == 5
    assert add(strict(store, 2, user="compactor"), A, "o") == 6


def test_an_index_manifest_that_holds_entries_of_our_partition(store: TableStore) -> None:
    commit(store, result(store, [FILE], [file_meta("out", 5)], partition=A, new_index=[deletion_file("dv-a")]))
    commit(store, result(store, [FILE], [file_meta("out", 5)], partition=B, new_index=[deletion_file("dv-b")]))
    with pytest.raises(CommitConflict, match="snapshot 4"):
        add(strict(store, 3), A, "n")


def test_what_is_safe_moves_with_every_commit(store: TableStore) -> None:
    committer = strict(store, 2)
    assert add(committer, A, "n") == 3
    commit(store, result(store, [FILE], [file_meta("out", 5)], partition=B))
    assert add(committer, A, "m") == 5
    commit(store, result(store, [FILE], [file_meta("out", 5)], partition=A))
    with pytest.raises(CommitConflict, match="snapshot 6"):
        add(committer, A, "o")


def test_minus_one_skips_the_check_of_the_first_commit(store: TableStore) -> None:
    commit(store, result(store, [FILE], [file_meta("out", 5)], partition=A))
    committer = strict(store, -1)
    assert add(committer, A, "n") == 4
    commit(store, result(store, [FILE], [file_meta("out", 5)], partition=B))
    with pytest.raises(CommitConflict, match="snapshot 5"):
        add(committer, B, "m")


def test_a_snapshot_that_cannot_be_checked(store: TableStore) -> None:
    store.storage.delete("snapshot/snapshot-1")
    with pytest.raises(CommitConflict, match="snapshot 1 is gone"):
        add(strict(store, 0), A, "n")
