"""Watching a table: what is noticed, when, and how many requests it costs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import maintainer
from maintainer.errors import NotATable
from maintainer.service.watch import RESOLVE_EVERY, Change, Sighting, Watch
from maintainer.table.store import TableStore
from tests.support.evolve import set_options
from tests.support.s3 import Bucket, hooked, s3_bucket  # noqa: F401
from tests.support.small_table import SmallTable
from tests.support.striking_storage import StrikingStorage
from tests.support.warehouses import some_rows


@pytest.fixture
def table(tmp_path: Path) -> SmallTable:
    return SmallTable(tmp_path)


def watch(table: SmallTable, resolve_every: int = 1000) -> Watch:
    """What has looked once."""
    watch = Watch(table.store, resolve_every)
    sighting = watch.look()
    assert sighting is not None
    assert sighting.change is Change.FIRST
    return watch


def sight(watch: Watch) -> Sighting:
    sighting = watch.look()
    assert sighting is not None
    return sighting


def pass_seen(table: SmallTable, seen: Watch) -> int:
    """A pass, and the watch told of it; its snapshot."""
    ours: dict[int, str | None] = {}

    def note(name: str, fields: Mapping[str, Any]) -> None:
        if name == "pass.committed":
            ours[fields["snapshot"]] = fields["uuid"]

    report = table.maintain(on_event=note)
    seen.passed(report.snapshot_after, ours)
    return max(ours)


def overwrite(table: SmallTable, snapshot_id: int, uuid: str = "another") -> None:
    """What a writer does that looks whether the snapshot is there, and renames its own over it later."""
    path = Path(table.path, "snapshot", f"snapshot-{snapshot_id}")
    path.write_text(json.dumps({**json.loads(path.read_text()), "uuid": uuid, "commitUser": "somebody"}))


def test_new_snapshots(table: SmallTable):
    seen = watch(table)
    assert seen.look() is None
    table.write(some_rows(0))
    table.write(some_rows(5))
    sighting = sight(seen)
    assert (sighting.change, sighting.before, sighting.latest.id) == (Change.COMMITTED, None, 2)
    assert seen.look() is None
    table.write(some_rows(7))
    sighting = sight(seen)
    assert (sighting.change, sighting.before.id, sighting.latest.id, sighting.lost) == (Change.COMMITTED, 2, 3, ())


def test_an_idle_look_is_one_request(table: SmallTable):
    table.write(some_rows(0))
    storage = StrikingStorage(table.path)
    seen = Watch(TableStore(storage), resolve_every=RESOLVE_EVERY)
    seen.look()
    storage.requests.clear()
    for _ in range(RESOLVE_EVERY - 2):
        assert seen.look() is None
        assert len(storage.requests) == 1
        assert "snapshot-2" in storage.requests.pop()
    assert seen.look() is None  # the one that resolves
    assert len(storage.requests) <= 5


def test_an_idle_look_on_s3_is_one_ranged_get(s3_bucket: Bucket):  # noqa: F811
    schema = {"fields": [{"name": "id", "type": "INT"}], "primaryKeys": ["id"], "options": {"bucket": "1", "deletion-vectors.enabled": "true"}}
    maintainer.create_table(s3_bucket.place("t"), schema, storage_options=s3_bucket.storage_options)
    filesystem = hooked(s3_bucket)
    seen = Watch(s3_bucket.store(filesystem=filesystem))
    seen.look()
    filesystem.requests.clear()
    for _ in range(3):
        assert seen.look() is None
    assert [method for method, _ in filesystem.requests] == ["get_object"] * 3


def test_what_a_pass_has_seen_is_not_new(table: SmallTable):
    seen = watch(table)
    table.write(some_rows(0))
    assert sight(seen).change is Change.COMMITTED
    ours = pass_seen(table, seen)
    assert seen.look() is None
    table.write(some_rows(3))
    assert sight(seen).before.id == ours


def test_a_snapshot_of_a_writer_that_was_replaced(table: SmallTable):
    seen = watch(table)
    table.write(some_rows(0))
    sight(seen)
    overwrite(table, 1)
    table.write(some_rows(5))
    sighting = sight(seen)
    assert sighting.change is Change.REPLACED
    (lost,) = sighting.lost
    assert (lost.snapshot_id, lost.instead.uuid, lost.ours) == (1, "another", False)
    assert sighting.latest.id == 2
    assert seen.look() is None


def test_our_snapshot_that_was_replaced(table: SmallTable):
    table.write(some_rows(0))
    seen = watch(table)
    ours = pass_seen(table, seen)
    overwrite(table, ours)
    table.write(some_rows(5))
    (lost,) = sight(seen).lost
    assert (lost.snapshot_id, lost.ours) == (ours, True)


def test_our_snapshot_that_was_replaced_below_another_one(table: SmallTable):
    table.write(some_rows(0))
    seen = watch(table)
    ours = pass_seen(table, seen)
    table.write(some_rows(5))
    sight(seen)
    overwrite(table, ours)
    table.write(some_rows(6))
    (lost,) = sight(seen).lost
    assert lost.ours


def test_our_snapshot_that_was_replaced_at_once(table: SmallTable):
    table.write(some_rows(0))
    seen = watch(table)
    ours: dict[int, str | None] = {2: "ours"}
    table.maintain()  # stands for what another writer put over it
    seen.passed(2, ours)
    sighting = sight(seen)
    assert (sighting.change, [(lost.uuid, lost.ours) for lost in sighting.lost]) == (Change.REPLACED, [("ours", True)])
    assert seen.look() is None


@pytest.mark.parametrize("every", [2, 5])
def test_without_a_new_snapshot_it_is_noticed_when_resolving(table: SmallTable, every: int):
    table.write(some_rows(0))
    seen = watch(table, resolve_every=every)
    overwrite(table, 1)
    found = [seen.look() for _ in range(every)]
    assert [sighting.change for sighting in found if sighting is not None] == [Change.REPLACED]
    assert found[every - 2] is not None


def test_a_rollback(table: SmallTable):
    for first in (0, 5, 7):
        table.write(some_rows(first))
    seen = watch(table, resolve_every=2)
    for snapshot in (3, 2):
        Path(table.path, "snapshot", f"snapshot-{snapshot}").unlink()
    Path(table.path, "snapshot", "LATEST").write_text("1")
    sighting = sight(seen)
    assert (sighting.change, sighting.before.id, sighting.latest.id, sighting.lost) == (Change.ROLLED_BACK, 3, 1, ())
    table.write(some_rows(9))
    assert sight(seen).change is Change.COMMITTED


def test_a_gap_in_the_ids_with_a_hint_that_lags(table: SmallTable):
    for first in (0, 5, 7):
        table.write(some_rows(first))
    Path(table.path, "snapshot", "snapshot-3").rename(Path(table.path, "kept"))
    seen = watch(table, resolve_every=3)
    kept = json.loads(Path(table.path, "kept").read_text())
    Path(table.path, "snapshot", "snapshot-4").write_text(json.dumps({**kept, "id": 4}))
    Path(table.path, "snapshot", "LATEST").write_text("2")
    assert seen.look() is None
    sighting = sight(seen)
    assert (sighting.change, sighting.latest.id) == (Change.COMMITTED, 4)


def test_expired_snapshots_are_not_lost(table: SmallTable):
    table.write(some_rows(0))
    seen = watch(table)
    seen.passed(1, {1: table.store.snapshot(1).uuid})
    table.write(some_rows(5))
    table.write(some_rows(6))
    Path(table.path, "snapshot", "snapshot-1").unlink()
    assert (sight(seen).change, seen.look()) == (Change.COMMITTED, None)


def test_a_table_dropped_and_made_again(table: SmallTable, tmp_path: Path):
    table.write(some_rows(0))
    table.write(some_rows(5))
    seen = watch(table, resolve_every=2)
    shutil.rmtree(table.path)
    again = SmallTable(tmp_path)
    again.write(some_rows(0))
    again.write(some_rows(5))
    again.write(some_rows(6))
    assert sight(seen).change is Change.RECREATED
    assert seen.look() is None


def test_a_table_that_is_gone(table: SmallTable):
    table.write(some_rows(0))
    seen = watch(table, resolve_every=2)
    shutil.rmtree(table.path)
    with pytest.raises(NotATable, match="no table any more"):
        seen.look()
    with pytest.raises(NotATable, match="not a Paimon table"):
        Watch(TableStore(StrikingStorage(str(Path(table.path).parent / "none")))).look()


def test_a_new_schema_is_a_change(table: SmallTable):
    table.write(some_rows(0))
    seen = watch(table, resolve_every=2)
    set_options(table.path, **{"pk-btree.index.columns": "v"})
    sighting = sight(seen)
    assert (sighting.change, sighting.latest.id) == (Change.SCHEMA, 1)
    assert [seen.look() for _ in range(4)] == [None] * 4


def test_a_listing_that_lags_takes_nothing_back(table: SmallTable, monkeypatch: pytest.MonkeyPatch):
    table.write(some_rows(0))
    seen = watch(table, resolve_every=2)
    table.write(some_rows(5))
    monkeypatch.setattr(type(table.store), "snapshot_ids", lambda self: (1,))
    assert sight(seen).latest.id == 2
    assert [seen.look() for _ in range(4)] == [None] * 4
