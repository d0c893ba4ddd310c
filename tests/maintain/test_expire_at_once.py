"""Two expirations of one table at once: what the other one has deleted already is neither damage nor left behind."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from maintainer.errors import CorruptTable
from maintainer.maintain.reclaim import expire as expiration
from maintainer.maintain.reclaim.expire import expire
from maintainer.table import state
from maintainer.table.store import TableStore
from tests.support.small_table import SmallTable


@pytest.mark.parametrize("finishes", [True, False])
def test_manifests_that_another_expiration_has_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, finishes: bool) -> None:
    """Data files of the snapshot before are gone by then; so they are only said to be kept if the other one does not come to its end."""
    monkeypatch.setattr(state, "LEAVING_SECONDS", 5.0 if finishes else 0.1)
    table = SmallTable(tmp_path)
    for number in range(3):
        table.write({number: number})
        table.maintain(full=True)
    Path(table.path, "manifest", table.store.snapshot(4).delta_manifest_list).unlink()
    timer = threading.Timer(0.2, Path(table.path, "snapshot", "snapshot-4").unlink)
    if finishes:
        timer.start()
    found = expire(TableStore(table.store.storage), retain_min=1, seconds=0, keep_from=6)
    if finishes:
        timer.join()
    assert found.snapshots == (1, 2, 3, 4, 5)
    assert len(found.skipped) == (0 if finishes else 1)
    table.check()


@pytest.mark.parametrize("times", [1, 10])
def test_what_should_stay_goes_with_a_faster_expiration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    """Between looking which snapshots there are and reading what they name, others commit and expire them all: it looks anew, a few times."""
    table, left = SmallTable(tmp_path), times
    unused = expiration.unused

    def after_another_one(*arguments: Any) -> Any:
        nonlocal left
        if left and threading.current_thread() is threading.main_thread():
            left -= 1
            table.write({left: left})
            table.maintain(full=True)
            other = threading.Thread(target=expire, args=(table.store,), kwargs={"retain_min": 2, "retain_max": 2, "seconds": 0})
            other.start()
            other.join()
        return unused(*arguments)

    for number in range(3):
        table.write({number: number})
        table.maintain(full=True)
    monkeypatch.setattr(expiration, "unused", after_another_one)
    found = expire(TableStore(table.store.storage), retain_min=1, retain_max=1, seconds=0)
    assert left == max(0, times - expiration.MOST_OVERTAKEN)
    assert len(found.skipped) == (times > expiration.MOST_OVERTAKEN)
    assert (found.earliest, found.latest) == (table.store.snapshot_ids()[0], table.store.latest_snapshot_id())
    assert len(table.store.snapshot_ids()) == (1 if times == 1 else 2)
    assert table.unreferenced() == set()
    table.check()


def test_what_should_stay_and_is_damaged_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file is missing of a snapshot that nobody gives up."""
    monkeypatch.setattr(state, "LEAVING_SECONDS", 0.1)
    table = SmallTable(tmp_path)
    for number in range(3):
        table.write({number: number})
        table.maintain(full=True)
    Path(table.path, "manifest", table.store.snapshot(5).delta_manifest_list).unlink()
    with pytest.raises(CorruptTable, match="snapshot 5 has to stay, but cannot be read"):
        expire(TableStore(table.store.storage), retain_min=2, retain_max=2, seconds=0)
    assert table.store.snapshot_ids() == (1, 2, 3, 4, 5, 6)
