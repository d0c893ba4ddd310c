"""Options of a table that choose the snapshot of a batch read."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import maintainer
from maintainer.errors import Unsupported, UsageError
from maintainer.format import snapshot_json
from maintainer.model.snapshot import CommitKind
from maintainer.model.types import DataType, TypeRoot
from tests.support.evolve import add_column, set_options
from tests.support.tables import append, make_table


@pytest.fixture
def table(tmp_path: Path) -> maintainer.Table:
    """Snapshots 1 to 4: 10 rows, visible, 5 rows more, visible. Snapshot 5 adds rows that nobody sees; the tag `t` keeps snapshot 2."""
    table = make_table(tmp_path)
    for first, count in ((0, 10), (10, 5)):
        append(table, first, count)
        table.maintain(full=True)
    append(table, 15, 1)
    kinds = [(each.id, each.kind) for each in table.snapshots()]
    assert kinds == [(1, "APPEND"), (2, "COMPACT"), (3, "APPEND"), (4, "COMPACT"), (5, "APPEND")]
    directory = Path(table.store.uri)
    (directory / "tag").mkdir()
    shutil.copy(directory / "snapshot" / "snapshot-2", directory / "tag" / "tag-t")
    return table


def read(table: maintainer.Table, **options: str | None) -> tuple[int | None, int]:
    """The snapshot that is read and how many rows it gives, with these options in the table."""
    set_options(table.store.uri, **options)
    scan = maintainer.open_table(table.store.uri).scan()
    return scan.explain().snapshot, scan.to_arrow().num_rows


@pytest.mark.parametrize("mode", ["default", "full", "latest-full", "LATEST"])
def test_modes_of_the_latest_snapshot(table: maintainer.Table, mode: str) -> None:
    assert read(table, **{"scan.mode": mode}) == (5, 15)


def test_compacted_full_reads_the_newest_compaction(table: maintainer.Table) -> None:
    assert read(table, **{"scan.mode": "compacted-full"}) == (4, 15)


def test_compacted_full_of_a_table_without_compactions_reads_the_latest(tmp_path: Path) -> None:
    table = make_table(tmp_path, {"scan.mode": "compacted-full"})
    assert table.scan().explain().snapshot is None
    append(table, 0, 1)
    assert table.scan().explain().snapshot == 1


def test_compacted_full_looks_for_full_compactions_where_they_come_every_so_many_commits(table: maintainer.Table) -> None:
    for snapshot_id, identifier in ((2, 6), (4, 7)):
        path = Path(table.store.uri) / "snapshot" / f"snapshot-{snapshot_id}"
        snapshot = snapshot_json.decode(path.read_bytes())
        assert snapshot.commit_kind is CommitKind.COMPACT
        path.write_bytes(snapshot_json.encode(replace(snapshot, commit_identifier=identifier)))
    assert read(table, **{"scan.mode": "compacted-full"}) == (4, 15)
    assert read(table, **{"full-compaction.delta-commits": "3"}) == (2, 10)
    assert read(table, **{"full-compaction.delta-commits": "0"}) == (4, 15)


@pytest.mark.parametrize(
    ("key", "value", "snapshot", "rows"),
    [
        ("scan.snapshot-id", "2", 2, 10),
        ("scan.tag-name", "t", 2, 10),
        ("scan.version", "t", 2, 10),
        ("scan.version", "4", 4, 15),
        ("scan.timestamp", "2200-01-01 00:00:00", 5, 15),
        ("scan.timestamp-millis", str(2**45), 5, 15),
    ],
)
def test_options_that_name_a_snapshot(table: maintainer.Table, key: str, value: str, snapshot: int, rows: int) -> None:
    assert read(table, **{key: value}) == (snapshot, rows)
    if "timestamp" not in key:
        assert read(table, **{"scan.mode": "from-snapshot"}) == (snapshot, rows)


def test_the_time_of_a_snapshot_chooses_it(table: maintainer.Table) -> None:
    for snapshot_id in range(1, 6):
        path = Path(table.store.uri) / "snapshot" / f"snapshot-{snapshot_id}"
        path.write_bytes(snapshot_json.encode(replace(snapshot_json.decode(path.read_bytes()), time_millis=1000 * snapshot_id)))
    assert read(table, **{"scan.timestamp-millis": "2999", "scan.mode": "from-timestamp"}) == (2, 10)
    assert read(table, **{"scan.timestamp-millis": None, "scan.timestamp": "1970-01-01 00:00:04"}) == (4, 15)
    with pytest.raises(UsageError, match="no snapshot as old"):
        read(table, **{"scan.timestamp": "1970-01-01 00:00:00.999"})


def test_a_snapshot_that_an_option_names_is_read_with_its_schema(table: maintainer.Table) -> None:
    add_column(table.store.uri, "later", DataType(TypeRoot.INT))
    latest = maintainer.open_table(table.store.uri)
    assert "later" in [field.name for field in latest.scan().fields]
    old = maintainer.open_table(table.store.uri, options={"scan.snapshot-id": "2"})
    assert "later" not in old.scan().to_arrow().column_names


def test_the_call_goes_before_the_options(table: maintainer.Table) -> None:
    set_options(table.store.uri, **{"scan.snapshot-id": "2"})
    opened = maintainer.open_table(table.store.uri)
    assert opened.scan(snapshot_id=4).to_arrow().num_rows == 15
    assert maintainer.open_table(table.store.uri, options={"scan.snapshot-id": ""}).scan().explain().snapshot == 5


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"scan.snapshot-id": "2", "scan.tag-name": "t"}, UsageError, r"only one .*: scan\.snapshot-id, scan\.tag-name"),
        ({"scan.snapshot-id": "2", "scan.mode": "latest-full"}, UsageError, r"only one .*: scan\.mode, scan\.snapshot-id"),
        ({"scan.snapshot-id": "9"}, UsageError, "there is no snapshot 9"),
        ({"scan.version": "nothing"}, UsageError, "there is no such tag"),
        ({"scan.mode": "from-snapshot"}, UsageError, r"needs one of scan\.snapshot-id"),
        ({"scan.mode": "incremental"}, Unsupported, "batch reads of this mode"),
        ({"scan.mode": "latest-delta"}, Unsupported, "batch reads of this mode"),
        ({"incremental-between": "1,2"}, Unsupported, "unset it for the call"),
    ],
)
def test_choices_that_cannot_be_followed(table: maintainer.Table, options: dict[str, str], error: type[Exception], message: str) -> None:
    set_options(table.store.uri, **options)
    with pytest.raises(error, match=message):
        maintainer.open_table(table.store.uri).scan().to_arrow()
    table.maintain()  # none of these concerns maintenance
