"""Visibility and coverage as DESIGN §5 counts them."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

import maintainer
from maintainer.api import waiting
from maintainer.errors import MissingFile, UsageError
from maintainer.index.groups import NOT_VISIBLE
from maintainer.model.types import DataType, TypeRoot
from maintainer.table.state import TableState
from maintainer.table.store import TableStore
from tests.support.builders import schema
from tests.support.built_tables import BuiltTable
from tests.support.evolve import retype_column, set_options
from tests.support.java_cases import has_after, java_case
from tests.support.tables import append, make_busy_table, make_table


def ratios(table: maintainer.Table) -> tuple[float, dict[str, float]]:
    found = table.coverage()
    return found.visible_ratio, {each.column: each.ratio for each in found.definitions}


def test_an_empty_table_is_covered(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    found = table.coverage()
    assert (found.snapshot, found.rows, found.visible_ratio, found.ratio()) == (None, 0, 1.0, 1.0)
    assert [each.ratio for each in found.definitions] == [1.0, 1.0]


def test_level_0_is_neither_visible_nor_covered(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    append(table, 0, 100)
    found = table.coverage()
    assert (found.rows, found.visible_rows, found.ratio()) == (100, 0, 0.0)
    assert {(each.column, each.reason, each.level) for each in found.uncovered} == {(None, NOT_VISIBLE, 0)}
    assert sum(each.rows for each in found.uncovered) == 100


def test_a_pass_makes_everything_visible_and_covered(tmp_path: Path) -> None:
    table = make_table(tmp_path, partitioned=True)
    append(table, 0, 100, p="a")
    append(table, 0, 10, p="b")
    table.maintain()
    assert ratios(table) == (1.0, {"v": 1.0, "n": 1.0})
    assert table.coverage().uncovered == ()


def test_deleted_rows_do_not_count(tmp_path: Path) -> None:
    table = make_busy_table(tmp_path)
    table.maintain()
    rows = table.scan().to_arrow().num_rows
    found = table.coverage()
    assert found.rows == found.visible_rows == rows
    assert sum(file.rows for file in table.files().files) > rows


def test_a_definition_without_groups_is_reported_file_by_file(tmp_path: Path) -> None:
    table = make_table(tmp_path, {"pk-bitmap.index.columns": None})
    append(table, 0, 100)
    table.maintain()
    set_options(table.store.uri, **{"pk-bitmap.index.columns": "v"})
    assert ratios(table) == (1.0, {"v": 0.0, "n": 1.0})
    assert {(each.column, each.rows) for each in table.coverage().uncovered} == {("v", file.rows) for file in table.files().files}


def test_an_index_that_no_query_uses_covers_nothing(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    append(table, 0, 100)
    table.maintain()
    assert ratios(table) == (1.0, {"v": 1.0, "n": 1.0})
    retype_column(table.store.uri, "n", DataType(TypeRoot.BIGINT))
    opened = maintainer.open_table(table.store.uri)
    assert ratios(opened) == (1.0, {"v": 1.0, "n": 0.0})
    (reason,) = {each.reason for each in opened.coverage().uncovered if each.column == "n"}
    assert {file.reason for file in opened.scan("n = 1").explain().files} == {f"n: {reason}"}
    assert {file.covered_by for file in opened.files()} == {("v",)}


def test_partitions_are_values(tmp_path: Path) -> None:
    table = make_table(tmp_path, partitioned=True)
    append(table, 0, 1, p="ü/x")
    assert table.coverage().to_dict()["uncovered"][0]["partition"] == {"p": "ü/x"}


@pytest.mark.parametrize("name", ["idx_levels", "idx_partial", "idx_stale", "dv_bitmap64", "idx_partitioned", "idx_btree_types"])
def test_the_groups_of_java_are_judged_as_java_judges_them(name: str) -> None:
    """`current` of the case says which groups Java would use; `rows` are what its batch reader returns."""
    case = java_case(name, after=has_after(name))
    found = maintainer.open_table(str(case.directory)).coverage()
    snapshot = case.json["snapshots"][-1]
    assert found.snapshot == snapshot["id"]
    rows = (
        snapshot["rows"]
        if "data" in snapshot["rows"]
        else next(s for s in case.json["snapshots"] if s["id"] == snapshot["rows"]["sameAs"])["rows"]
    )
    assert found.visible_rows == len(rows["data"])
    current = {group["field"] for group in snapshot.get("indexGroups", []) if group["current"] and group["definedInSchema"]}
    assert {each.column for each in found.definitions if each.covered_rows} == current


class TestWaiting:
    def test_it_returns_at_once_when_there_is_nothing_to_wait_for(self, tmp_path: Path) -> None:
        found = make_table(tmp_path).wait_for_coverage(timeout=0)
        assert found.reached
        assert found.to_dict()["reached"] is True

    def test_it_ends_when_a_pass_was_made(self, tmp_path: Path) -> None:
        table = make_table(tmp_path)
        append(table, 0, 10)
        timer = threading.Timer(0.3, lambda: maintainer.open_table(table.store.uri).maintain())
        timer.start()
        assert table.wait_for_coverage(timeout=30).reached
        timer.join()

    def test_it_gives_up_in_time(self, tmp_path: Path) -> None:
        table = make_table(tmp_path)
        append(table, 0, 10)
        started = time.monotonic()
        found = table.wait_for_coverage(timeout=0.3)
        assert not found.reached
        assert found.visible_rows == 0
        assert time.monotonic() - started < 5

    def test_rows_after_the_snapshot_do_not_count(self, tmp_path: Path) -> None:
        table = make_table(tmp_path)
        append(table, 0, 10)
        table.maintain()
        append(table, 10, 10)
        assert table.wait_for_coverage(snapshot=2, timeout=0).reached
        assert not table.wait_for_coverage(snapshot=3, timeout=0).reached
        assert not table.wait_for_coverage(snapshot=4, timeout=0).reached  # there is no such snapshot yet

    def expire(self, table: maintainer.Table, snapshot_id: int) -> None:
        (Path(table.store.uri) / table.store.snapshot_path(snapshot_id)).unlink()

    def test_an_expired_snapshot_is_known_by_the_oldest_later_one(self, tmp_path: Path) -> None:
        table = make_table(tmp_path)
        append(table, 0, 10)
        append(table, 10, 10)
        table.maintain()
        append(table, 20, 10)
        append(table, 30, 10)
        assert not table.wait_for_coverage(snapshot=4, timeout=0).reached
        for gone in (1, 2):
            self.expire(table, gone)
        assert table.wait_for_coverage(snapshot=1, timeout=0).reached  # snapshot 3 compacted what it had
        self.expire(table, 3)
        assert not table.wait_for_coverage(snapshot=1, timeout=0).reached  # as far as anybody can tell

    def test_the_files_of_a_snapshot_are_remembered_when_it_expires(self, tmp_path: Path) -> None:
        """New rows come all the time, the snapshot goes: what it held is what is waited for."""
        table = make_table(tmp_path)
        append(table, 0, 10)

        def others() -> None:
            other = maintainer.open_table(table.store.uri)
            append(other, 10, 1)
            self.expire(table, 1)
            other.maintain()
            append(other, 20, 1)

        timer = threading.Timer(0.4, others)
        timer.start()
        found = table.wait_for_coverage(snapshot=1, timeout=30)
        timer.join()
        assert found.reached
        assert table.wait_for_coverage(snapshot=3, timeout=0).reached
        assert table.coverage().visible_ratio < 1.0

    def test_it_goes_on_when_a_snapshot_expires_while_it_is_read(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        table = make_busy_table(tmp_path)
        original, seen = waiting.coverage, []

        def expiring(store: TableStore, state: TableState, *others: Any) -> Any:
            seen.append(state.snapshot.id)
            if len(seen) <= 2:  # somebody commits and expires: a file of the snapshot is gone, maybe before the snapshot is
                append(maintainer.open_table(table.store.uri), 2000 + len(seen), 1)
                if len(seen) == 2:
                    self.expire(table, state.snapshot.id)
                raise MissingFile("index-1: there is no such file")
            return original(store, state, *others)

        monkeypatch.setattr(waiting, "coverage", expiring)
        assert not table.wait_for_coverage(timeout=0).reached
        assert len(seen) == 3

    def test_what_is_missing_of_the_latest_snapshot_is_an_error(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        table = make_busy_table(tmp_path)

        def failing(*_: Any) -> Any:
            raise MissingFile("index-1: there is no such file")

        monkeypatch.setattr(waiting, "coverage", failing)
        with pytest.raises(MissingFile):
            table.wait_for_coverage(timeout=30)

    def test_it_costs_one_request_while_nothing_changes(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        table = make_table(tmp_path)
        append(table, 0, 10)
        counted = []
        original = waiting.load_latest
        monkeypatch.setattr(waiting, "POLL_SECONDS", 0.01)
        monkeypatch.setattr(waiting, "load_latest", lambda *given: counted.append(1) or original(*given))
        watch = waiting._Watch(table.store, None)
        for _ in range(10):
            watch.look()
        assert len(counted) == 2

    def test_one_definition_can_be_waited_for(self, tmp_path: Path) -> None:
        table = make_table(tmp_path, {"pk-bitmap.index.columns": None})
        append(table, 0, 10)
        table.maintain()
        set_options(table.store.uri, **{"pk-bitmap.index.columns": "v"})
        assert table.wait_for_coverage(definition="n", timeout=0).reached
        assert not table.wait_for_coverage(definition="v", timeout=0).reached
        with pytest.raises(UsageError, match="'id' has no index definition"):
            table.wait_for_coverage(definition="id", timeout=0)

    def test_a_part_can_be_enough(self, tmp_path: Path) -> None:
        table = make_table(tmp_path)
        append(table, 0, 90)
        table.maintain()
        append(table, 90, 10)
        assert table.wait_for_coverage(0.9, timeout=0).reached
        assert not table.wait_for_coverage(0.91, timeout=0).reached


def test_the_ratio_of_an_index_that_is_not_there_is_a_usage_error(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    assert table.coverage().ratio("n") == 1.0
    with pytest.raises(maintainer.UsageError, match="there is no index on 'nothing'; indexed columns: v, n"):
        table.coverage().ratio("nothing")


@pytest.mark.parametrize(
    ("options", "visible"),
    [
        ({}, 10),
        ({"deletion-vectors.enabled": "true"}, 4),
        ({"deletion-vectors.enabled": "true", "deletion-vectors.merge-on-read": "true"}, 10),
        ({"merge-engine": "first-row"}, 4),
        ({"merge-engine": "aggregation"}, 10),
    ],
)
def test_level_0_is_visible_where_readers_merge_it(options: dict[str, str], visible: int, tmp_path: Path) -> None:
    built = BuiltTable(tmp_path / "t", schema({"id": "INT", "v": "INT"}, options={"bucket": "1", **options}))
    built.put([{"id": number} for number in range(4)])
    built.put([{"id": number} for number in range(4, 10)], level=0)
    built.publish()
    found = maintainer.open_table(built.store.uri).coverage()
    assert (found.rows, found.visible_rows, len(found.uncovered)) == (10, visible, int(visible < 10))
