"""Watching one table: has anything changed since the last look, and is what we knew still there (DESIGN §3 "Watch"; spec 03 §9.3, §10).

While nothing changes, a look is one request: the snapshot after the known one. Every twelfth look, and each one that finds something, resolves
by listings instead, for much can happen that the next snapshot does not tell: a rollback, a gap in the ids, a table dropped and made again, a
new schema, or a snapshot that was replaced by a writer that checks first and then renames or copies its own over what is there by now.

Invariant: what is returned as the latest snapshot was read after everything known before was compared with the store.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from maintainer.errors import CorruptTable, NotATable
from maintainer.model.snapshot import Snapshot
from maintainer.storage.layout import Layout
from maintainer.storage.storage import Entry
from maintainer.table.store import TableStore

RESOLVE_EVERY = 12
"""Looks of which one resolves by listings."""
MOST_REMEMBERED = 100
"""Snapshots of ours that may still turn out to have been replaced."""


class Change(StrEnum):
    FIRST = "first look"
    COMMITTED = "new snapshot"
    REPLACED = "snapshot replaced"
    ROLLED_BACK = "rolled back"
    RECREATED = "dropped and made again"
    SCHEMA = "new schema"


@dataclass(frozen=True)
class Lost:
    """A snapshot that was there, and is another one now."""

    snapshot_id: int
    uuid: str | None
    instead: Snapshot
    ours: bool


@dataclass(frozen=True)
class Sighting:
    """What a look found out."""

    change: Change
    before: Snapshot | None
    """The snapshot that was known."""
    latest: Snapshot | None
    """The latest snapshot now, None when there is none."""
    lost: tuple[Lost, ...] = ()


class Watch:
    """What is known of one table. For one thread at a time."""

    def __init__(self, store: TableStore, resolve_every: int = RESOLVE_EVERY) -> None:
        self._store = store
        self._every = resolve_every
        self._schema_directory = Layout(branch=store.branch).schema_directory
        self._looks = 0
        self._started = False
        self._known: Snapshot | None = None
        self._ours: dict[int, str | None] = {}
        self._in_doubt = False
        """Whether something is known to be wrong already."""
        self._first_schema: Entry | None = None
        self._schemas: frozenset[str] = frozenset()

    def look(self) -> Sighting | None:
        """What has changed since the last look, None when nothing has. `NotATable` when the table is gone."""
        self._looks += 1
        found = self._store.next_snapshot(0 if self._known is None else self._known.id) if self._started else None
        if self._started and found is None and not self._in_doubt and self._looks % self._every:
            return None
        self._in_doubt = False
        return self._resolve(found)

    def passed(self, latest: int | None, ours: Mapping[int, str | None]) -> None:
        """A pass has seen everything up to snapshot `latest`, and published `ours`, each with its uuid."""
        self._ours = dict(sorted({**self._ours, **ours}.items())[-MOST_REMEMBERED:])
        if latest is None or (self._known is not None and latest <= self._known.id):
            return
        snapshot = self._store.find_snapshot(latest)
        if snapshot is None or (latest in ours and snapshot.uuid != ours[latest]):
            self._in_doubt = True  # it was replaced already
        else:
            self._known = snapshot

    def _resolve(self, found: Snapshot | None) -> Sighting | None:
        schemas = {entry.name: entry for entry in self._store.storage.list(self._schema_directory) if not entry.is_directory}
        if not schemas:
            raise NotATable(f"{self._store.name}: there is no table any more" if self._started else f"{self._store.name}: not a Paimon table")
        ids = self._store.snapshot_ids()
        latest = self._latest(ids, found)
        before, known_schemas = self._known, self._schemas
        first_schema = schemas[min(schemas, key=lambda name: (len(name), name))]
        recreated = self._first_schema is not None and self._first_schema != first_schema
        lost: tuple[Lost, ...] = ()
        if recreated:
            change: Change | None = Change.RECREATED
            self._ours = {}
        elif not self._started:
            change = Change.FIRST
        else:
            lost = tuple(self._lost(ids))
            if before is not None and (latest is None or latest.id < before.id):
                change = Change.ROLLED_BACK
            elif lost:
                change = Change.REPLACED
            elif latest is not None and (before is None or latest.id > before.id):
                change = Change.COMMITTED
            else:
                change = Change.SCHEMA if known_schemas != frozenset(schemas) else None
        if change is Change.ROLLED_BACK:
            lost = ()
        self._started, self._known, self._first_schema, self._schemas = True, latest, first_schema, frozenset(schemas)
        self._forget([one.snapshot_id for one in lost], latest)
        return None if change is None else Sighting(change, before, latest, lost)

    def _latest(self, ids: tuple[int, ...], found: Snapshot | None) -> Snapshot | None:
        """The latest snapshot; a listing may be older than what was read."""
        candidates = {*ids, *(() if found is None else (found.id,)), *(() if self._known is None else (self._known.id,))}
        for snapshot_id in sorted(candidates, reverse=True)[:3]:
            snapshot = found if found is not None and found.id == snapshot_id else self._store.find_snapshot(snapshot_id)
            if snapshot is not None:
                return snapshot
        if not ids:
            return None
        raise CorruptTable(f"{self._store.name}: snapshot {ids[-1]} is listed but cannot be read")

    def _lost(self, ids: tuple[int, ...]) -> Iterable[Lost]:
        """Snapshots that were known and have other content now; those that have expired or were rolled back are not there at all."""
        known = {**({} if self._known is None else {self._known.id: self._known.uuid}), **self._ours}
        for snapshot_id, uuid in sorted(known.items()):
            if ids and snapshot_id < ids[0]:
                continue
            now = self._store.find_snapshot(snapshot_id)
            is_same = now is None or (now == self._known if uuid is None and snapshot_id not in self._ours else now.uuid == uuid)
            if now is not None and not is_same:
                yield Lost(snapshot_id, uuid, now, snapshot_id in self._ours)

    def _forget(self, lost: Iterable[int], latest: Snapshot | None) -> None:
        """What is no longer there, or was built on by two others, need not be looked at again."""
        gone = set(lost)
        settled = 0 if latest is None else latest.id - 2
        above = -1 if latest is None else latest.id
        self._ours = {each: kept for each, kept in self._ours.items() if each not in gone and settled <= each <= above}
