"""Writers that work on a bucket at the same time number their rows alike (Java's, too). Which row of a key wins is settled by the first
compaction; from then on every reader sees the same (spec 04 §14.4)."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

from maintainer.api.maintenance import run_pass
from maintainer.api.table import Table
from maintainer.table.opening import open_store
from tests.peers import readers
from tests.support.small_table import SmallTable, arrow_of

KEYS = range(40)
EXPECTED = readers.bag([key, 1000 + key, "one"] if key in KEYS else [key, 1, "s1"] for key in range(100))


def table_with_ties(directory: Path, turned: bool, indexes: bool = True) -> SmallTable:
    """Rows of level 5, and two files of level 0 with other rows of the same keys, each under one sequence number in both."""
    table = SmallTable(directory, indexes=indexes)
    table.write(dict.fromkeys(range(100), 1))
    table.maintain()
    one, other = table.table.writer(), table.table.writer()
    one.write(arrow_of({key: (1000 + key, "one") for key in KEYS}))
    other.write(arrow_of({key: (2000 + key, "other") for key in KEYS}))
    one._flush()
    time.sleep(0.01)
    other._flush()  # before either commits
    for writer in (other, one) if turned else (one, other):
        writer.commit()
    ranges = {(file.min_sequence_number, file.max_sequence_number) for file in table.bucket().files if file.level == 0}
    assert ranges == {(100, 139)}
    return table


@pytest.mark.parametrize("turned", [False, True])
def test_one_row_wins_and_everybody_sees_it(tmp_path: Path, turned: bool) -> None:
    """That of the file that was made first, in whichever order they are committed, and however they are compacted."""
    table = table_with_ties(tmp_path / "db.db", turned)
    found = []
    for number, request in enumerate(({}, {}, {"full": True})):
        copy = tmp_path / str(number) / "db.db" / "t"
        shutil.copytree(table.path, copy)
        store = open_store(str(copy))
        run_pass(store, **request)
        opened = Table(store)
        rows = readers.bag(list(row.values()) for row in opened.scan().to_arrow().to_pylist())
        indexed = opened.scan(where="v >= 0").to_arrow().num_rows
        assert (indexed, opened.verify(deep=True).ok) == (100, True)
        if not readers.PYPAIMON_ABSENT:
            assert readers.pypaimon_rows(copy, opened.schema) == rows
        if not readers.RUST_ABSENT:
            assert readers.rust_rows(copy, opened.schema) == rows
        if not readers.JAVA_ABSENT:
            assert readers.java_rows(copy) == rows
        found.append(rows)
    assert found[0] == found[1] == found[2]
    assert found[0] == EXPECTED


@pytest.mark.skipif(bool(readers.JAVA_ABSENT), reason=readers.JAVA_ABSENT or "")
@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("turned", [False, True])
def test_it_is_the_row_that_java_chooses(tmp_path: Path, turned: bool, full: bool) -> None:
    table = table_with_ties(tmp_path / "db.db", turned, indexes=False)
    readers.java().run("compact", table.path, *(["--full"] if full else []))
    assert readers.java_rows(Path(table.path)) == EXPECTED
