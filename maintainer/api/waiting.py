"""Waiting until a table is covered (DESIGN §5 "wait").

Snapshots come and go meanwhile. One that expires while it is looked at is looked at no more: the next look is at its successor. The rows of a
snapshot that somebody waits for are known by the names of its files, which are remembered: files that came later do not count while they wait
in level 0. A snapshot that was gone before it could be read leaves the oldest later one: what is still in level 0 of it is in that one, too.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from maintainer.errors import CorruptTable, MaintainerError, StorageError
from maintainer.inspect.coverage import AwaitedCoverage, Coverage, coverage
from maintainer.table.state import SnapshotExpired, TableState, load_latest, load_state
from maintainer.table.store import TableStore

POLL_SECONDS = 0.2
REMOTE_POLL_SECONDS = 1.0
_WHOLE_LOOK = 10
"""Every so many looks the latest snapshot is searched for; else only the next one is asked for, which a gap or a rollback hides."""
_TRIES = 20


@dataclass(frozen=True)
class _Look:
    """What a table's coverage is; `counts`: the snapshot that is waited for is there."""

    found: Coverage
    counts: bool


def wait_for_coverage(store: TableStore, ratio: float, snapshot: int | None, definition: str | None, timeout: float) -> AwaitedCoverage:
    """See `Table.wait_for_coverage`."""
    deadline = time.monotonic() + timeout
    pause = REMOTE_POLL_SECONDS if store.storage.remote else POLL_SECONDS
    watch = _Watch(store, snapshot)
    while True:
        look = watch.look()
        reached = look.counts and look.found.ratio(definition) >= ratio
        if reached or time.monotonic() >= deadline:
            return AwaitedCoverage.of(look.found, reached)
        time.sleep(min(pause, max(0.0, deadline - time.monotonic())))


class _Watch:
    def __init__(self, store: TableStore, snapshot: int | None) -> None:
        self._store = store
        self._awaited = snapshot
        self._files: frozenset[str] | None = None
        self._state: TableState | None = None
        self._last: _Look | None = None
        self._looks = 0

    def look(self) -> _Look:
        """The coverage now. It goes on where a snapshot went away, and raises what is wrong with one that stays."""
        self._looks += 1
        if self._last is not None and self._state is not None and self._looks % _WHOLE_LOOK and not self._has_successor(self._state):
            return self._last
        for _ in range(_TRIES):
            state = self._state
            try:
                state = load_latest(self._store, self._state)
                self._last, self._state = self._coverage(state), state
                return self._last
            except StorageError:
                raise
            except MaintainerError:
                # Some delete the files of a snapshot before the snapshot; but never those of the latest one.
                if state is None or self._store.latest_snapshot() in (None, state.snapshot):
                    raise
        raise SnapshotExpired(f"{self._store.name}: snapshots expire faster than their coverage can be read")

    def _has_successor(self, state: TableState) -> bool:
        return self._store.next_snapshot(state.snapshot.id) is not None

    def _coverage(self, state: TableState | None) -> _Look:
        if self._awaited is None:
            return _Look(coverage(self._store, state), True)
        if state is None or state.snapshot.id < self._awaited:
            return _Look(coverage(self._store, state), False)
        if self._files is None:
            self._files = self._awaited_files(state)
        later = (file.file_name for file in state.files() if file.level == 0 and file.file_name not in self._files)
        return _Look(coverage(self._store, state, later), True)

    def _awaited_files(self, state: TableState) -> frozenset[str]:
        """The files of the snapshot that is waited for, or of the oldest later one that is there."""
        assert self._awaited is not None
        for snapshot_id in (self._awaited, *(each for each in self._store.snapshot_ids() if each > self._awaited)):
            known = self._store.find_snapshot(snapshot_id)
            if known is None or snapshot_id > state.snapshot.id:
                continue
            try:
                return frozenset(file.file_name for file in load_state(self._store, known).files())
            except (CorruptTable, SnapshotExpired):  # it is being expired
                continue
        return frozenset(file.file_name for file in state.files())
