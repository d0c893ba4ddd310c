"""Expiring snapshots: deciding which go, learning which files nothing needs any more, and deleting (spec 03 §14, §17 rows 14–16; Java
`ExpireSnapshotsImpl`).

Snapshots go one by one, the oldest first: its data, changelog and index files, its manifests, its lists, the snapshot file. So a crash leaves
at most one snapshot half deleted, what is still there of it tells the next run what is left, and all later ones stay whole whatever the next
run decides. (Java deletes kind by kind for all of them at once.) Nothing that goes is named by what stays, and deleting twice is harmless, so
two expirations may run at once, and commits go on meanwhile; one that is overtaken by the other looks anew. The first delete that fails ends
the run, before the file that names it is gone.

A tag, branch or consumer that appears meanwhile ends the run: the next one takes it into account.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import structlog

from maintainer.errors import CorruptFile, StorageError, Unsupported
from maintainer.maintain.reclaim.retention import Retention, expiring
from maintainer.maintain.reclaim.unused import Branch, Leaving, Overtaken, unused
from maintainer.maintain.reclaim.workers import THREADS, Workers
from maintainer.model.report import Report
from maintainer.model.snapshot import Snapshot
from maintainer.storage.storage import Entry
from maintainer.table.options import TableOptions
from maintainer.table.store import TableStore

log = structlog.get_logger(__name__)

Progress = Callable[[int], None]

MOST_AHEAD = 64
"""Snapshots that are read at once. Often the first one is too young to go, so it is read alone, and then ever more."""
MOST_GAPS = 1000
"""Missing snapshots that are asked for before the listing is believed."""
SETTLED_MS = 120_000
"""A snapshot of this age is not replaced any more: other writers do that while they publish."""
MOST_OVERTAKEN = 3
"""Looks at a table that another expiration empties meanwhile; then it is left to the other one."""
LOOKS = 1.0
"""Seconds for which a look at the names of tags, branches and consumers is good enough."""
_CHANGELOG = re.compile(r"changelog-[0-9]+")


@dataclass(frozen=True)
class Expiry(Report):
    """What an expiration deleted, or would delete; `bytes` as far as the metadata say sizes. Paths are those below the table's directory."""

    snapshots: tuple[int, ...] = ()
    deleted: tuple[str, ...] | None = None
    found: tuple[str, ...] | None = None
    bytes: int = 0
    earliest: int | None = None
    """The snapshots that are there now, or would be."""
    latest: int | None = None
    consumers: tuple[str, ...] = ()
    """Consumers that expired."""
    skipped: tuple[str, ...] = ()
    """What stays because something could not be read."""


def expire(
    store: TableStore,
    *,
    retain_min: int | None = None,
    retain_max: int | None = None,
    seconds: float | None = None,
    limit: int | None = None,
    keep_from: int | None = None,
    dry_run: bool = False,
    now_ms: int | None = None,
    progress: Progress | None = None,
    threads: int = THREADS,
    kept: dict[int, Snapshot] | None = None,
) -> Expiry:
    """Expire the snapshots of a table that its options, or these values in their place, let go; from `keep_from` on they stay in any case.

    `kept` goes from one expiration to the next of the same table, so that each reads only snapshots that are new to it.
    """
    options = store.options()
    check_expirable(store, options)
    retention = Retention.of(options, retain_min, retain_max, seconds, limit)
    with Workers(threads) as workers:
        now_ms = int(time.time() * 1000) if now_ms is None else now_ms
        run = _Run(store, options, retention, keep_from, dry_run, now_ms, progress, workers, {} if kept is None else kept)
        return run.report(run.expire())


def check_expirable(store: TableStore, options: TableOptions) -> None:
    """Raises `Unsupported` for a table whose files are elsewhere, or have other owners."""
    elsewhere = [key for key in ("data-file.external-paths", "global-index.external-path") if options.text(key)]
    if elsewhere:
        raise Unsupported(f"{store.name}: {elsewhere[0]} = {options[elsewhere[0]]}: files outside of the table's directory are not expired")
    if options.text("type", "table").lower() not in ("table", "materialized-table"):
        raise Unsupported(f"{store.name}: type = {options['type']}: this is not a table of Paimon's own files")
    if any(_CHANGELOG.fullmatch(entry.name) for entry in store.storage.list(store.changelog_directory)):
        raise Unsupported(
            f"{store.name}: there are changelogs that outlived their snapshots ({store.changelog_directory}/), and they share files with the "
            "snapshots; let a Java engine expire this table"
        )


class _Run:
    """One expiration."""

    def __init__(
        self,
        store: TableStore,
        options: TableOptions,
        retention: Retention,
        keep_from: int | None,
        dry_run: bool,
        now_ms: int,
        progress: Progress | None,
        workers: Workers,
        kept: dict[int, Snapshot],
    ) -> None:
        self.kept = kept
        self.store, self.options, self.retention, self.keep_from = store, options, retention, keep_from
        self.dry_run, self.now_ms, self.progress, self.workers = dry_run, now_ms, progress, workers
        self.interrupted = False
        self.paths: dict[str, int] = {}
        self.snapshots: set[int] = set()
        self.consumers: list[str] = []
        self.skipped: list[str] = []

    def expire(self) -> Sequence[int]:
        """The ids of the snapshots that stay."""
        for _ in range(MOST_OVERTAKEN):
            try:
                return self._expire()
            except Overtaken as error:  # nothing was deleted yet
                log.info("expire.unreadable", table=self.store.name, error=str(error))
                reason = str(error)
        self.skipped.append(f"everything is left to the next run: {reason}")
        return self.store.snapshot_ids()

    def _expire(self) -> Sequence[int]:
        store = self.store
        consumers = store.consumers()
        protected = [*self._next_snapshots(consumers), *([] if self.keep_from is None else [self.keep_from])]
        known = _Known(store, self.workers, self.kept)
        _, end = expiring(known.ids, known.time_of, self.retention, protected, self.now_ms)
        leaving = known.snapshots([each for each in known.ids if each < end])
        staying = known.snapshots([each for each in known.ids if each >= end]) if leaving else []
        if staying:
            self.protections, self.looked = {**self._look(), "consumers": names_of(consumers)}, time.monotonic()
            steps, self.skipped = unused(store, leaving, staying, self._tags(store), self._branches(), self.workers)
            done = [step for step in steps if self._leave(step)]
            self._clean_directories({directory for step in done for directory in step.directories})
        known.keep(self.kept, self.now_ms)
        left = [each for each in known.there if each not in self.snapshots]
        if left and not self.dry_run:
            self._write_hint(left[0])
        return left

    def report(self, staying: Sequence[int]) -> Expiry:
        paths, total = tuple(self.paths), sum(self.paths.values())
        return Expiry(
            table=self.store.name,
            snapshots=tuple(sorted(self.snapshots)),
            deleted=None if self.dry_run else paths,
            found=paths if self.dry_run else None,
            bytes=total,
            earliest=staying[0] if staying else None,
            latest=staying[-1] if staying else None,
            consumers=tuple(self.consumers),
            skipped=tuple(self.skipped),
        )

    # what protects snapshots

    def _look(self) -> Mapping[str, tuple[str, ...]]:
        """Names of what protects snapshots and files."""
        store = self.store
        branches = store.on_every_branch()[1:]
        named = {f"tags of {each.name}": each.tag_names() for each in (store, *branches)}
        return {**named, "branches": tuple(each.name for each in branches), "consumers": names_of(store.consumers())}

    def _next_snapshots(self, consumers: Sequence[Entry]) -> list[int]:
        """The next snapshots of consumers; those that made no progress for too long are dropped before."""
        lifetime = self.options.consumer_expiration_time
        found = []
        for entry in consumers:
            if lifetime is not None and 0 < entry.modified_ms < self.now_ms - lifetime * 1000:
                self.consumers.append(entry.name.removeprefix("consumer-"))
                self._delete_all({f"{self.store.consumer_directory}/{entry.name}": entry.size})
                continue
            following = self._next_snapshot_of(entry)
            if following is not None:
                found.append(following)
            elif entry.name in names_of(self.store.consumers()):
                raise self._hidden(f"consumer {entry.name}")
        return found

    def _next_snapshot_of(self, consumer: Entry) -> int | None:
        """Java writes these files in place, so one may be seen half written."""
        for _ in range(3):
            with suppress(CorruptFile):
                return self.store.find_next_snapshot_of(consumer)
            time.sleep(0.2)
        return self.store.find_next_snapshot_of(consumer)

    def _tags(self, store: TableStore) -> tuple[Snapshot, ...]:
        tags = []
        for name in store.tag_names():
            tag = store.find_tag(name)
            if tag is not None:
                tags.append(tag)
            elif name in store.tag_names():
                raise self._hidden(f"tag {name}")
        return tuple(tags)

    def _branches(self) -> list[Branch]:
        found = []
        for other in self.store.on_every_branch()[1:]:
            snapshots = filter(None, self.workers.map(other.find_snapshot, other.snapshot_ids()))
            found.append(Branch(other, tuple(snapshots), self._tags(other)))
        return found

    def _hidden(self, what: str) -> StorageError:
        return StorageError(f"{self.store.name}: {what} is listed, but the store says that there is no such file; try again")

    # deleting

    def _leave(self, step: Leaving) -> bool:
        """Delete one snapshot with its files; False when something appeared meanwhile that may need them."""
        if self.interrupted or not self._still_unprotected():
            self.interrupted = True
            return False
        for stage in (step.files, step.manifests, step.lists, {self.store.snapshot_path(step.snapshot.id): 0}):
            self._delete_all(stage)
        self.snapshots.add(step.snapshot.id)
        return True

    def _still_unprotected(self) -> bool:
        if self.dry_run or time.monotonic() - self.looked < LOOKS:
            return True
        found, self.looked = self._look(), time.monotonic()
        appeared = {f"{kind}: {name}" for kind, names in found.items() for name in names if name not in self.protections.get(kind, ())}
        if appeared:
            reason = f"{', '.join(sorted(appeared))} appeared meanwhile; the rest is left to the next run"
            log.info("expire.interrupted", table=self.store.name, reason=reason)
            self.skipped.append(reason)
        return not appeared

    def _delete_all(self, paths: Mapping[str, int]) -> None:
        if not self.dry_run:
            self.workers.map(self._delete, paths.items())
        self.paths.update(paths)

    def _delete(self, item: tuple[str, int]) -> None:
        path, size = item
        self.store.storage.delete(path)
        if self.progress is not None:
            self.progress(size)

    def _clean_directories(self, directories: Iterable[str]) -> None:
        """Buckets that lost their last file, and partitions that lost their last bucket."""
        if self.dry_run or not self.options.clean_empty_directories:
            return
        for directory in sorted(directories):
            for _ in range(1 + len(self.store.layout.partition_keys)):
                if not self.store.storage.delete_directory(directory):
                    break
                directory = directory.rpartition("/")[0]

    def _write_hint(self, earliest: int) -> None:
        if self.store.hint("EARLIEST") == earliest:
            return
        try:
            self.store.storage.replace(self.store.hint_path("EARLIEST"), str(earliest).encode())
        except StorageError as error:  # readers list the snapshots then
            log.warning("expire.hint", table=self.store.name, error=str(error))


def names_of(entries: Iterable[Entry]) -> tuple[str, ...]:
    return tuple(entry.name for entry in entries)


class _Known:
    """The snapshots of a table, each file read once; those after it are read with it. An id that is missing in the listing is asked for all the
    same, as far as there are few: what was just committed must not be taken for a gap."""

    def __init__(self, store: TableStore, workers: Workers, kept: Mapping[int, Snapshot]) -> None:
        self._store, self._workers = store, workers
        self._listed = store.snapshot_ids()
        between = range(self._listed[0], self._listed[-1] + 1) if self._listed else ()
        self.ids: Sequence[int] = between if len(between) - len(self._listed) <= MOST_GAPS else self._listed
        self._asked = frozenset(self.ids)
        self._found: dict[int, Snapshot | None] = self._still_there(kept)
        self._ahead = 1

    def _still_there(self, kept: Mapping[int, Snapshot]) -> dict[int, Snapshot | None]:
        """What is known from an earlier expiration, if the table has not been rolled back or made again since: that takes the newest of them
        away, and others may stand in their places by now."""
        known: dict[int, Snapshot | None] = {each: kept[each] for each in self._listed if each in kept}
        if not known:
            return known
        newest = max(known)
        found = self._store.find_snapshot(newest)
        return known if found == known[newest] else {newest: found}

    @property
    def there(self) -> list[int]:
        """Ids of which there is a snapshot, as far as it is known."""
        return [each for each in self._listed if self._found.get(each, each) is not None]

    def time_of(self, snapshot_id: int) -> int | None:
        if snapshot_id not in self._found:
            self._load(sorted(self._asked.intersection(range(snapshot_id, snapshot_id + self._ahead))))
            self._ahead = min(4 * self._ahead, MOST_AHEAD)
        snapshot = self._found.get(snapshot_id)
        return None if snapshot is None else snapshot.time_millis

    def snapshots(self, ids: Sequence[int]) -> list[Snapshot]:
        """Those that are there."""
        self._load(ids)
        return [snapshot for snapshot in map(self._found.__getitem__, ids) if snapshot is not None]

    def keep(self, kept: dict[int, Snapshot], now_ms: int) -> None:
        """What the next expiration need not read again."""
        kept.clear()
        found = filter(None, self._found.values())
        kept.update((snapshot.id, snapshot) for snapshot in found if snapshot.time_millis < now_ms - SETTLED_MS)

    def _load(self, ids: Iterable[int]) -> None:
        wanted = [each for each in ids if each not in self._found]
        self._found.update(zip(wanted, self._workers.map(self._store.find_snapshot, wanted), strict=True))
        missing = {each for each in wanted if self._found[each] is None}.intersection(self._listed)
        if missing and missing.intersection(self._store.snapshot_ids()):  # else it expired in between
            raise StorageError(f"{self._store.name}: snapshot {min(missing)} is listed, but the store says that there is none; try again")
