"""Option `commit.strict-mode.last-safe-snapshot`: giving up when somebody else rewrote what we are about to change (spec 03 §7.6; Java
`StrictModeChecker`).

Of every snapshot after the last safe one, by another user, that rewrote data (COMPACT or OVERWRITE): if its delta touches one of our
partitions, or its index manifest is new and holds any entry of one, the commit fails. −1 means that the first commit is not checked.
"""

from __future__ import annotations

from collections.abc import Collection

from maintainer.errors import CommitConflict
from maintainer.model.snapshot import CommitKind, Snapshot
from maintainer.table.options import TableOptions
from maintainer.table.store import TableStore


class StrictMode:
    """The last snapshot that is known to be safe; without the option, nothing is checked."""

    def __init__(self, store: TableStore, user: str, options: TableOptions) -> None:
        self._store = store
        self._user = user
        self._last_safe = options.last_safe_snapshot

    def check(self, latest: Snapshot | None, partitions: Collection[bytes]) -> None:
        """Before an attempt on top of `latest` that changes these partitions."""
        if self._last_safe is None:
            return
        newest = 0 if latest is None else latest.id
        if self._last_safe >= 0:
            for snapshot_id in range(self._last_safe + 1, newest + 1):
                snapshot = self._store.find_snapshot(snapshot_id)
                if snapshot is None:
                    raise CommitConflict(f"{self._store.name}: snapshot {snapshot_id} is gone, so strict mode cannot check it")
                if snapshot.commit_user != self._user and self._rewrote(snapshot, partitions):
                    raise CommitConflict(
                        f"{self._store.name}: snapshot {snapshot_id} of {snapshot.commit_user} rewrote partitions that this commit changes; "
                        "giving up, as commit.strict-mode.last-safe-snapshot is set"
                    )
        self._last_safe = newest

    def published(self, snapshot: Snapshot) -> None:
        if self._last_safe is not None:
            self._last_safe = snapshot.id

    def _rewrote(self, snapshot: Snapshot, partitions: Collection[bytes]) -> bool:
        if snapshot.commit_kind not in (CommitKind.COMPACT, CommitKind.OVERWRITE):
            return False
        if any(entry.partition in partitions for entry in self._store.manifests.delta_entries(snapshot)):
            return True
        if snapshot.index_manifest is None:
            return False
        before = self._store.find_snapshot(snapshot.id - 1)
        if before is not None and before.index_manifest == snapshot.index_manifest:
            return False
        entries = self._store.manifests.index(snapshot.index_manifest, f"snapshot {snapshot.id}")
        return any(entry.partition in partitions for entry in entries)
