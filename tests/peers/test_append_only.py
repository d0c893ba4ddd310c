"""Append-only tables with deletion vectors, in more than one file of vectors: the rows are those that every peer reads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyroaring import BitMap64

import maintainer
from maintainer.data.deletions import write_deletions
from maintainer.model.files import EMPTY_ROW, BucketKey, FileSource
from maintainer.model.schema import TableSchema
from maintainer.storage.layout import FileNames
from tests.peers import readers
from tests.peers.readers import Rows, bag
from tests.support import builders
from tests.support.built_tables import BuiltTable

WHERE = BucketKey(EMPTY_ROW, 0)
DELETED = ({3, 4}, {0, 9}, set())


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> BuiltTable:
    directory = tmp_path_factory.mktemp("append") / "wh" / "db.db" / "t"
    options = {"bucket": "-1", "deletion-vectors.enabled": "true"}
    built = BuiltTable(directory, builders.schema({"id": "INT", "a": "INT"}, primary_keys=(), options=options))
    names = FileNames("index-")
    for part, deleted in enumerate(DELETED):
        rows = [{"id": 10 * part + i, "a": i % 5} for i in range(10)]
        (file,) = built.put(rows, level=0, source=FileSource.APPEND, key=WHERE)
        if deleted:
            vectors = {file.file_name: BitMap64(deleted)}
            built.put_index_file(write_deletions(built.store.storage, built.store.layout, names, vectors, bitmap64=False), key=WHERE)
    built.publish()
    return built


def alive() -> list[tuple[int, int]]:
    return [(10 * part + i, i % 5) for part, deleted in enumerate(DELETED) for i in range(10) if i not in deleted]


READERS = {
    "java": (lambda path, _: readers.java_rows(path), readers.JAVA_ABSENT),
    "pypaimon": (readers.pypaimon_rows, readers.PYPAIMON_ABSENT),
    "rust": (readers.rust_rows, readers.RUST_ABSENT),
}


@pytest.mark.parametrize(
    "read",
    [pytest.param(read, marks=pytest.mark.skipif(absent is not None, reason=str(absent)), id=peer) for peer, (read, absent) in READERS.items()],
)
def test_peers_read_the_rows_that_are_not_deleted(table: BuiltTable, read: Callable[[Path, TableSchema], Rows]) -> None:
    assert read(Path(table.store.uri), table.schema) == bag(alive())


@pytest.mark.parametrize(("where", "test"), [(None, lambda a: True), ("a = 4", lambda a: a == 4), ("a <> 0", lambda a: a != 0)])
def test_so_do_we(table: BuiltTable, where: str | None, test: Callable[[int], bool]) -> None:
    opened = maintainer.open_table(table.store.uri)
    scan = opened.scan(where=where)
    expected = sorted(row for row in alive() if test(row[1]))
    assert sorted(zip(*scan.to_arrow().to_pydict().values(), strict=True)) == expected
    apart = [row for split in scan.splits() for row in split.to_arrow().to_pylist()]
    assert sorted((row["id"], row["a"]) for row in apart) == expected
