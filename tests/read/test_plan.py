"""Planning all files at once: what each step leaves, what cannot be seen, and what is not done for files that are not read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap64
from structlog.testing import capture_logs

import maintainer.read.covering as covering_module
import maintainer.read.decisions as decisions_module
import maintainer.read.file_columns as file_columns
import maintainer.read.ordinals as ordinals_module
from maintainer.errors import CorruptFile
from maintainer.format import binary_row
from maintainer.index.family.btree import BTreeReader
from maintainer.model.files import BucketKey, FileSource
from maintainer.model.predicate import Leaf, Op
from maintainer.read.decisions import INDEXED, MERGED, PRUNED, RAW, ScanPlan
from maintainer.read.explanation import Explanation
from maintainer.read.ordinals import ranges_of
from maintainer.read.scan import Scan
from maintainer.table.opening import open_store
from tests.support.builders import row as key_of
from tests.support.builders import schema, type_
from tests.support.built_tables import BuiltTable
from tests.support.campaign import share

COLUMNS = {"p": "STRING", "id": "INT", "a": "INT", "s": "STRING", "x": "INT"}
OPTIONS = {
    "bucket": "2",
    "deletion-vectors.enabled": "true",
    "pk-btree.index.columns": "a",
    "pk-bitmap.index.columns": "s",
}
SCHEMA = schema(COLUMNS, ["p", "id"], ["p"], OPTIONS)


def row(i: int, p: str = "x") -> dict[str, Any]:
    return {"p": p, "id": i, "a": i % 10, "s": "even" if i % 2 == 0 else "odd", "x": i // 10}


def steps(found: ScanPlan) -> list[tuple[str, int, int]]:
    return [(step.name, step.files, step.rows) for step in found.steps]


@pytest.fixture
def table(tmp_path: Path) -> BuiltTable:
    """In two partitions and two buckets: ids 0-39 and 40-79 at level 5, 80-99 in level 0."""
    built = BuiltTable(tmp_path / "t", SCHEMA)
    for p in ("x", "y"):
        built.put([row(i, p) for i in range(40)])
        built.put([row(i, p) for i in range(40, 80)])
        built.put([row(i, p) for i in range(80, 100)], level=0, source=FileSource.APPEND)
    built.index()
    built.publish()
    return built


def home(i: int) -> int:
    """The bucket of a key, found by asking for its rows."""
    from maintainer.read.prune import Buckets

    (number,) = Buckets(Leaf(Op.EQ, "id", (i,)), SCHEMA, "default").numbers(2) or ()
    return number


def rows_at(ids: Sequence[int], bucket: int) -> int:
    return sum(home(i) == bucket for i in ids)


def test_each_step_says_what_it_leaves(table: BuiltTable) -> None:
    found = Scan(table.store, "p = 'x' AND id = 7 AND a = 7").plan()
    first, second = rows_at(range(40), home(7)), rows_at(range(40, 80), home(7))
    hidden = rows_at(range(80, 100), home(7))
    assert steps(found) == [
        ("files", 12, 200),
        ("partition", 6, 100),
        ("bucket", 3, first + second + hidden),
        ("level", 2, first + second),
        ("key range", 1, first),
        ("statistics", 1, first),
        ("index", 1, rows_at(range(7, 40, 10), home(7))),
    ]
    assert [step.bytes for step in found.steps] == sorted((step.bytes for step in found.steps), reverse=True)
    assert [file.decision for file in found.to_read] == [INDEXED]
    assert found.steps[-1].bytes == found.to_read[0].file.file_size
    assert [len(list(found.files)), len(found.files), len(found.files[2:5])] == [12, 12, 3]


def test_statistics_of_columns_that_are_no_keys_are_a_step_of_their_own(table: BuiltTable) -> None:
    found = {name: files for name, files, _ in steps(Scan(table.store, "x = 1").plan())}
    assert (found["level"], found["key range"], found["statistics"]) == (8, 8, 4)
    assert [files for _, files, _ in steps(Scan(table.store).plan())] == [12, 12, 12, 8, 8, 8, 8]


def hidden(found: Explanation) -> list[tuple[dict[str, Any], int, int]]:
    return [(dict(each.partition), each.bucket, each.rows) for each in found.hidden]


def test_rows_of_level_0_that_may_match_are_counted_where_they_are(table: BuiltTable) -> None:
    everywhere = hidden(Scan(table.store).explain())
    assert len(everywhere) == 4
    assert sum(rows for _, _, rows in everywhere) == 40
    found = Scan(table.store, "p = 'y' AND id = 85").explain()
    assert hidden(found) == [({"p": "y"}, home(85), rows_at(range(80, 100), home(85)))]
    assert found.hidden[0].do == f"maintainer once {table.store.uri}"
    assert "level 0" in found.hidden[0].reason
    assert hidden(Scan(table.store, "id = 7").explain()) == []  # no file of level 0 has this key
    assert hidden(Scan(table.store, "x = 3").explain()) == []
    assert hidden(Scan(table.store, "p = 'z'").explain()) == []
    table.put([row(1000)], level=0, source=FileSource.APPEND)
    table.publish()
    assert "later snapshot than 1" in Scan(table.store, "id = 85", snapshot_id=1).explain().hidden[0].do


def test_statistics_say_nothing_of_hidden_rows_that_are_merged_with_others(tmp_path: Path) -> None:
    built = BuiltTable(tmp_path / "t", schema(COLUMNS, ["p", "id"], ["p"], {**OPTIONS, "merge-engine": "partial-update"}))
    built.put([row(85)], level=0, source=FileSource.APPEND)
    built.publish()
    assert len(Scan(built.store, "x = 3").explain().hidden) == 1  # another file may bring this x
    assert Scan(built.store, "id = 7 AND x = 3").explain().hidden == ()


def test_postponed_rows_are_hidden(tmp_path: Path) -> None:
    built = BuiltTable(tmp_path / "t", schema(COLUMNS, ["p", "id"], ["p"], {**OPTIONS, "bucket": "-2"}))
    built.put([row(1)], level=0, source=FileSource.APPEND, key=BucketKey(key_of("x", "STRING"), -2))
    built.publish()
    (found,) = Scan(built.store, "id = 1").explain().hidden
    assert (found.bucket, found.rows) == (-2, 1)
    assert "postponed" in found.reason
    assert found.do.startswith("CALL sys.compact in Flink or Spark") and "bucket = -2" in found.do, "maintainer once is refused"
    assert Scan(built.store, "p = 'y'").explain().hidden == ()


def test_nothing_is_made_for_files_that_are_not_read(table: BuiltTable, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    original = decisions_module.FilePlan
    monkeypatch.setattr(decisions_module, "FilePlan", lambda *values: made.append(values[1].file_name) or original(*values))
    scan = Scan(table.store, "p = 'x' AND id = 7")
    assert scan.plan().steps[-1].files == 1
    assert made == []
    assert scan.to_arrow()["id"].to_pylist() == [7]
    assert len(set(made)) == 1


def test_statistics_are_decoded_once_for_all_questions_to_a_state(table: BuiltTable, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    original = file_columns.SerializedRows
    monkeypatch.setattr(file_columns, "SerializedRows", lambda rows, columns: asked.append(columns) or original(rows, columns))
    for where in ("x = 1", "x > 3", "x IS NULL OR x IN (1, 2)", "p = 'x' AND x = 2"):
        assert Scan(table.store, where).plan().steps
    assert len(asked) == 2  # smallest and largest


def test_files_that_are_merged_with_one_another_have_a_section(tmp_path: Path) -> None:
    built = BuiltTable(tmp_path / "t", schema(COLUMNS, ["p", "id"], ["p"], {"bucket": "1"}))
    for ids in (range(10), range(5, 15), range(20, 30), range(25, 35), range(40, 50)):
        built.put([row(i) for i in ids], level=0, source=FileSource.APPEND)
    built.put([row(60), row(61)], level=5, kinds=[0, 3])
    built.publish()
    files = list(Scan(built.store).plan().files)
    assert [file.decision for file in files] == [MERGED] * 4 + [RAW, MERGED]
    sections = [file.section for file in files]
    assert sections[0] == sections[1] != sections[2] == sections[3] != sections[5]
    assert sections[4] is None
    assert None not in (sections[0], sections[2], sections[5])
    assert [file.decision for file in Scan(built.store, "id = 27").plan().files] == [PRUNED] * 2 + [MERGED] * 2 + [PRUNED] * 2


def test_keys_that_cannot_be_decoded_are_refused_by_the_name_of_their_file(tmp_path: Path) -> None:
    built = BuiltTable(tmp_path / "t", schema(COLUMNS, ["p", "id"], ["p"], {"bucket": "1"}))
    (first,) = built.put([row(i) for i in range(10)], level=0, source=FileSource.APPEND)
    built.change(first, max_key=binary_row.serialize([None], [type_("INT")]))
    built.publish()
    with pytest.raises(CorruptFile, match=first.file_name):
        Scan(built.store).plan()


ONE_BUCKET = schema(COLUMNS, ["p", "id"], ["p"], {**OPTIONS, "bucket": "1"})


def test_relaxed_groups_over_different_files_are_intersected_file_by_file(tmp_path: Path) -> None:
    built = BuiltTable(tmp_path / "t", ONE_BUCKET)
    x = BucketKey(key_of("x", "STRING"), 0)
    for start in (0, 20, 40):
        built.put([row(i) for i in range(start, start + 20)], key=x)
    built.index(["a"])
    files = built._buckets[x].files
    gone = min(files, key=lambda file: file.file_name)  # the first of the group that is there already
    files.remove(gone)
    built.index(["s"])
    built.put([row(i) for i in range(60, 80)], key=x)
    built.publish()
    relaxed = BuiltTable.opened(built, {"read.group-acceptance": "relaxed"})
    where = "a IN (3, 4, 5) AND s = 'odd'"
    plans = list(Scan(relaxed, where).plan().files)
    assert [file.decision for file in plans] == [INDEXED, INDEXED, RAW]
    assert {file.column for file in plans} == {"a, s", None}
    expected = [i for i in range(80) if i % 10 in (3, 5) and not gone.min_key <= key_of(i) <= gone.max_key]
    for store in (relaxed, built.store):
        assert sorted(Scan(store, where).to_arrow()["id"].to_pylist()) == expected
    assert [file.ranges for file in plans[:2]] == [((3, 3), (5, 5), (13, 13), (15, 15))] * 2


def test_what_a_payload_said_before_it_was_found_wrong_means_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built = BuiltTable(tmp_path / "t", ONE_BUCKET)
    built.put([row(i) for i in range(100)])
    built.index()
    built.publish()
    original = BTreeReader.evaluate

    def lying(self: Any, leaf: Leaf) -> Any:
        if leaf.op == Op.GT:
            raise CorruptFile("it is")
        found = original(self, leaf)
        return found & BitMap64(range(10))  # it loses rows

    monkeypatch.setattr(BTreeReader, "evaluate", lying)
    with capture_logs() as logs:
        scan = Scan(built.store, "(a < 4 OR a = 9) AND a > 2 AND s = 'odd'")
        assert [file.decision for file in scan.plan().files] == [INDEXED]
        assert sorted(scan.to_arrow()["id"].to_pylist()) == [i for i in range(100) if i % 10 in (3, 9)]
    assert len(logs) == 2  # one for each plan


def test_groups_of_buckets_that_did_not_change_are_not_judged_anew(table: BuiltTable, monkeypatch: pytest.MonkeyPatch) -> None:
    judged: list[int] = []
    original = covering_module.evaluate
    monkeypatch.setattr(covering_module, "evaluate", lambda bucket, *others: judged.append(bucket.bucket) or original(bucket, *others))
    store = open_store(table.store.uri)
    for _ in range(2):
        assert [file.decision for file in Scan(store, "a = 3 AND x = 1").plan().to_read] == [INDEXED] * 4
        assert len(judged) == 4
    table.put([row(1000)], level=0, source=FileSource.APPEND)
    table.publish()
    assert [file.decision for file in Scan(store, "a = 3 AND x = 1").plan().to_read] == [INDEXED] * 4
    assert len(judged) == 5


ROUNDS = share("ordinals of groups cut into ranges of files", short=60, long=5_000)


@settings(max_examples=ROUNDS, deadline=None)
@given(st.data(), st.lists(st.integers(0, 5), min_size=1, max_size=6))
def test_ordinals_are_cut_into_the_ranges_of_each_file(data: st.DataObject, sizes: list[int]) -> None:
    rows = np.array(sizes)
    first = np.cumsum(rows) - rows
    asked = np.array(data.draw(st.permutations(range(len(sizes))))[: data.draw(st.integers(1, len(sizes)))])
    hits = data.draw(st.sets(st.integers(0, max(sum(sizes) - 1, 0)))) if sum(sizes) else set()
    expected = {}
    for at, file in enumerate(asked.tolist()):
        runs: list[list[int]] = []
        for position in sorted(hit - int(first[file]) for hit in hits if first[file] <= hit < first[file] + rows[file]):
            if runs and runs[-1][1] == position - 1:
                runs[-1][1] = position
            else:
                runs.append([position, position])
        if runs:
            expected[at] = runs
    for many in (0, ordinals_module.MANY_ORDINALS):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ordinals_module, "MANY_ORDINALS", many)
            found = {at: (*counts, ranges.tolist()) for at, *counts, ranges in ranges_of(BitMap64(hits), first[asked], rows[asked])}
        assert found == {at: (sum(last - one + 1 for one, last in runs), len(runs), runs) for at, runs in expected.items()}
