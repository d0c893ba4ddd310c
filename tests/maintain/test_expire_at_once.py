"""Two expirations of one table at once: what the other one has deleted already is neither damage nor left behind."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

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
