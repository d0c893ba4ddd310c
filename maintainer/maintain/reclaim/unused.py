"""Which files nothing names any more once snapshots are gone (spec 03 §14; Java `SnapshotDeletion`, `FileDeletionBase`).

* **Data files**: those that the delta after a leaving snapshot deletes and does not add again (an upgraded file is deleted and added under
  one name). They stay while a tag names them. Java asks the newest tag before the deletion only; but a rollback that is committed as a new
  snapshot adds old files again, so older tags are asked, too, if a file is as old as they are, and later deltas that overwrite.
* **Metadata and index files**, deletion vectors included: those that neither the first snapshot that stays names, nor a tag, nor one that
  overwrote later. A file goes with the last of the leaving snapshots that name it.
* **Changelog files** go with their snapshot. Tags do not keep them.
* Branches share all files, and Java forgets that: what a snapshot or a tag of another branch names stays, too.

All of this is learned before anything is deleted. What leaves may be half gone after a crash, so what is missing of it is passed over. What
stays must be readable: older snapshots may be needed to go back to. (Unless another expiration gives it up at this moment: `Overtaken`.) Where
a tag or a branch cannot be read, the files that it may name stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import structlog

from maintainer.errors import CorruptFile, CorruptTable, MaintainerError, MissingFile
from maintainer.maintain.reclaim.workers import Workers
from maintainer.model.files import FileIdentity, FileKind, ManifestEntry
from maintainer.model.snapshot import CommitKind, Snapshot
from maintainer.storage.layout import Layout
from maintainer.table.state import is_leaving
from maintainer.table.store import TableStore

log = structlog.get_logger(__name__)

UNREADABLE = (CorruptFile, CorruptTable)
CLOCKS_MS = 15 * 3_600_000
"""A file's creation time is the writer's local wall clock: up to 14 hours ahead of UTC, and clocks differ."""


class Overtaken(CorruptTable):
    """A snapshot that was to stay loses its files to another expiration, which started later or keeps less."""


@dataclass
class Leaving:
    """A snapshot that goes, with the files that go with it (and their sizes, 0 where the metadata do not say), first `files`, then `manifests`,
    then `lists`, so that what is still there after a crash tells what is left to delete."""

    snapshot: Snapshot
    files: dict[str, int] = field(default_factory=dict)
    manifests: dict[str, int] = field(default_factory=dict)
    lists: dict[str, int] = field(default_factory=dict)
    directories: set[str] = field(default_factory=set)
    """Directories of buckets that lose files."""

    def take(self, entry: ManifestEntry, layout: Layout) -> None:
        """A data or changelog file goes with this snapshot, and what belongs to it."""
        partition, bucket, file = entry.partition, entry.bucket, entry.file
        self.files[layout.data_file_path(partition, bucket, file)] = file.file_size
        self.files.update({layout.data_file_path(partition, bucket, name): 0 for name in file.extra_files})
        self.directories.add(layout.bucket_directory(partition, bucket))


@dataclass
class Named:
    """Paths of the metadata and index files that a snapshot names, with their sizes; `problem`: some of it could not be read."""

    files: dict[str, int] = field(default_factory=dict)
    manifests: dict[str, int] = field(default_factory=dict)
    lists: dict[str, int] = field(default_factory=dict)
    problem: MaintainerError | None = None

    def paths(self) -> set[str]:
        return {*self.files, *self.manifests, *self.lists}


@dataclass(frozen=True)
class Branch:
    """Another branch of the table: its snapshots, ascending, and its tags."""

    store: TableStore
    snapshots: tuple[Snapshot, ...]
    tags: tuple[Snapshot, ...]


def unused(
    store: TableStore,
    leaving: Sequence[Snapshot],
    staying: Sequence[Snapshot],
    tags: Sequence[Snapshot],
    branches: Sequence[Branch],
    workers: Workers,
) -> tuple[list[Leaving], list[str]]:
    """What goes with each of the `leaving` snapshots, which are the oldest, ascending; and what could not be decided and therefore stays.

    `staying`: all later snapshots, ascending. `tags`: those of this branch, without those that cannot be read.
    """
    found = _Unused(store, leaving, staying, tags, branches, workers)
    steps = [Leaving(snapshot) for snapshot in leaving]
    found.metadata(steps)
    found.data_files(steps)
    found.changelog_files(steps)
    return steps, found.skipped


class _Unused:
    def __init__(
        self,
        store: TableStore,
        leaving: Sequence[Snapshot],
        staying: Sequence[Snapshot],
        tags: Sequence[Snapshot],
        branches: Sequence[Branch],
        workers: Workers,
    ) -> None:
        self.store, self.leaving, self.staying, self.branches, self.workers = store, leaving, staying, branches, workers
        self.kept = staying[0]
        self.there = {snapshot.id for snapshot in (*leaving, *staying)}
        self.tags = sorted(tags, key=lambda tag: tag.id, reverse=True)  # the newest first
        self.skipped: list[str] = []

    # metadata and index files

    def metadata(self, steps: Sequence[Leaving]) -> None:
        claimed = self._kept_metadata()
        if claimed is None:
            return
        names = self.workers.map(lambda step: named_by(self.store, step.snapshot, changelog=True), steps)
        for step, named in zip(reversed(steps), reversed(names), strict=True):
            if named.problem is not None:
                log.info("expire.unreadable", table=self.store.name, snapshot=step.snapshot.id, error=str(named.problem))
            step.files.update(_without(named.files, claimed))
            step.manifests.update(_without(named.manifests, claimed))
            step.lists.update(_without(named.lists, claimed))
            claimed |= named.paths()

    def _kept_metadata(self) -> set[str] | None:
        """Paths of what stays; None where that cannot be learned."""
        own = [self.kept, *(each for each in self.staying[1:] if self._may_bring_back(each) or each is self.staying[-1])]
        kept: set[str] = set()
        for snapshot, named in zip(own, self.workers.map(lambda each: named_by(self.store, each), own), strict=True):
            if named.problem is not None:
                raise _must_stay(self.store, snapshot, named.problem) from named.problem
            kept |= named.paths()
        others = [(self.store, tag, False) for tag in self.tags]
        others += [(branch.store, each, True) for branch in self.branches for each in (*branch.tags, *branch.snapshots)]
        complete = True
        for (store, snapshot, _), named in zip(others, self.workers.map(lambda each: named_by(*each), others), strict=True):
            kept |= named.paths()
            if named.problem is not None and self._matters(store, snapshot):
                complete = False
                self._skip(f"{store.name}, snapshot {snapshot.id} of a tag or branch", "manifests and index files", named.problem)
        return kept if complete else None

    def _matters(self, store: TableStore, snapshot: Snapshot) -> bool:
        """Whether a tag, or a snapshot of another branch, may name something of its own that is about to go."""
        if store is self.store:
            nearest = next((tag.id for tag in self.tags if tag.id <= self.leaving[0].id), 0)
            return nearest <= snapshot.id <= self.leaving[-1].id
        return not any(_is_leaving(branch, snapshot) for branch in self.branches)

    def _may_bring_back(self, snapshot: Snapshot) -> bool:
        """Whether this snapshot, one that stays, may name what its predecessor does not and an older one does."""
        return snapshot.commit_kind is CommitKind.OVERWRITE or self._follows_gap(snapshot)

    def _follows_gap(self, snapshot: Snapshot) -> bool:
        return snapshot.id - 1 not in self.there

    # data files

    def data_files(self, steps: Sequence[Leaving]) -> None:
        candidates = self._candidates(steps)
        self._drop_tagged(candidates, steps)
        for branch in self.branches:
            if candidates:
                self._drop_of_branch(candidates, branch)
        for number, entry in candidates.values():
            steps[number].take(entry, self.store.layout)

    def _candidates(self, steps: Sequence[Leaving]) -> dict[str, tuple[int, ManifestEntry]]:
        """Files of leaving snapshots that no later snapshot of this branch names: by name, with which step they go, and their entry."""
        after = [*(step.snapshot for step in steps[1:]), self.kept]
        pairs = [(step.snapshot, follower) for step, follower in zip(steps, after, strict=True)]
        candidates: dict[str, tuple[int, ManifestEntry]] = {}
        certain = True
        for number, changed in enumerate(self.workers.map(lambda pair: self._try_changes(*pair), pairs)):
            if changed is None:
                certain = False
                continue
            gone, added = changed
            for name in added:
                candidates.pop(name, None)
            candidates.update({name: (number, entry) for name, entry in gone.items()})
        if candidates and not certain:
            _drop(candidates, self._live_names(self.kept))
        for snapshot in self.staying[1:]:
            if not candidates:
                break
            if self._follows_gap(snapshot):
                _drop(candidates, self._live_names(snapshot))
            elif snapshot.commit_kind is CommitKind.OVERWRITE:
                try:
                    entries = list(self.store.manifests.delta_entries(snapshot))
                except UNREADABLE as error:
                    raise _must_stay(self.store, snapshot, error) from error
                _drop(candidates, {entry.file.file_name for entry in entries if entry.kind is FileKind.ADD})
        return candidates

    def _try_changes(self, before: Snapshot, after: Snapshot) -> tuple[dict[str, ManifestEntry], set[str]] | None:
        try:
            return changes(self.store, before, after)
        except UNREADABLE as error:
            if isinstance(error, MissingFile) and is_leaving(self.store, after):  # others expire, too, and are further than this one
                log.info("expire.unreadable", table=self.store.name, snapshot=after.id, error=str(error))
            else:
                self._skip(f"what snapshot {after.id} changed", f"data files of snapshot {before.id}", error)
            return None

    def _live_names(self, snapshot: Snapshot) -> set[str]:
        try:
            return live_names(self.store, snapshot)
        except UNREADABLE as error:
            raise _must_stay(self.store, snapshot, error) from error

    def _drop_tagged(self, candidates: dict[str, tuple[int, ManifestEntry]], steps: Sequence[Leaving]) -> None:
        """Tags are asked from the newest on, so that old ones are only read for files that newer ones could name, but do not."""
        asked: set[str] = set()
        for tag in self.tags:
            of_tag = set()
            for name, (number, entry) in candidates.items():
                older = tag.id <= steps[number].snapshot.id
                if (older or tag.id not in self.there) and ((older and name not in asked) or _may_hold(tag, entry)):
                    of_tag.add(name)
                    if older:
                        asked.add(name)
            if of_tag:
                try:
                    of_tag &= live_names(self.store, tag)
                except UNREADABLE as error:
                    self._skip(f"a tag of snapshot {tag.id}", "data files that it may name", error)
                _drop(candidates, of_tag)

    def _drop_of_branch(self, candidates: dict[str, tuple[int, ManifestEntry]], branch: Branch) -> None:
        for tag in branch.tags:
            if any(_may_hold(tag, entry) for _, entry in candidates.values()):
                try:
                    _drop(candidates, live_names(branch.store, tag))
                except UNREADABLE as error:
                    self._keep_all(candidates, branch, tag, error)
        before: Snapshot | None = None
        for snapshot in branch.snapshots:
            try:
                if before is not None and before.id + 1 == snapshot.id:
                    _drop(candidates, changes(branch.store, before, snapshot)[1])
                else:
                    _drop(candidates, live_names(branch.store, snapshot))
                before = snapshot
            except UNREADABLE as error:
                before = None
                if not _is_leaving(branch, snapshot):
                    self._keep_all(candidates, branch, snapshot, error)

    def _keep_all(self, candidates: dict[str, tuple[int, ManifestEntry]], branch: Branch, snapshot: Snapshot, error: MaintainerError) -> None:
        self._skip(f"{branch.store.name}, snapshot {snapshot.id}", "data files", error)
        candidates.clear()

    # changelog files

    def changelog_files(self, steps: Sequence[Leaving]) -> None:
        with_changelog = [step for step in steps if step.snapshot.changelog_manifest_list is not None]
        if not with_changelog:
            return
        kept: set[str] = set()
        for branch in self.branches:
            for snapshot in branch.snapshots:
                kept |= {entry.file.file_name for entry in changelog_entries(branch.store, snapshot)}
        found = self.workers.map(lambda step: changelog_entries(self.store, step.snapshot), with_changelog)
        for step, entries in zip(with_changelog, found, strict=True):
            for entry in entries:
                if entry.kind is FileKind.ADD and entry.file.file_name not in kept:
                    step.take(entry, self.store.layout)

    def _skip(self, unreadable: str, what: str, error: MaintainerError) -> None:
        message = f"{what} stay, since {unreadable} cannot be read: {error}"
        log.warning("expire.skipped", table=self.store.name, reason=message)
        self.skipped.append(message)


def named_by(store: TableStore, snapshot: Snapshot, changelog: bool = False) -> Named:
    """The metadata and index files of a snapshot or tag, as far as they can be read."""
    named = Named()
    lists = [
        (snapshot.base_manifest_list, snapshot.base_manifest_list_size),
        (snapshot.delta_manifest_list, snapshot.delta_manifest_list_size),
    ]
    if changelog and snapshot.changelog_manifest_list is not None:
        lists.append((snapshot.changelog_manifest_list, snapshot.changelog_manifest_list_size))
    named_in = f"snapshot {snapshot.id}"
    for name, size in lists:
        named.lists[store.layout.manifest_path(name, named_in)] = size or 0
        try:
            for meta in store.manifests.files_of(name, named_in, size):
                named.manifests[store.layout.manifest_path(meta.file_name, name)] = meta.file_size
        except UNREADABLE as error:
            named.problem = error
    if snapshot.index_manifest is not None:
        named.lists[store.layout.manifest_path(snapshot.index_manifest, named_in)] = 0
        try:
            for entry in store.manifests.index(snapshot.index_manifest, named_in):
                named.files[store.layout.index_file_path(entry.file, entry.partition, entry.bucket)] = entry.file.file_size
        except UNREADABLE as error:
            named.problem = error
    if snapshot.statistics is not None:
        named.lists[store.layout.statistics_path(snapshot.statistics, named_in)] = 0
    return named


def changes(store: TableStore, before: Snapshot, after: Snapshot) -> tuple[dict[str, ManifestEntry], set[str]]:
    """Data files of one snapshot that the next one does not have, by name, and the names of those that it adds."""
    if after.id != before.id + 1:
        old, new = store.manifests.live_entries(before), live_names(store, after)
        names = {identity.file_name for identity in old}
        return {identity.file_name: entry for identity, entry in old.items() if identity.file_name not in new}, new - names
    gone: dict[str, ManifestEntry] = {}
    added: dict[FileIdentity, str] = {}
    for entry in store.manifests.delta_entries(after):
        if entry.kind is FileKind.ADD:
            added[entry.identity] = entry.file.file_name
        else:
            added.pop(entry.identity, None)
            gone[entry.file.file_name] = entry
    names = set(added.values())
    return {name: entry for name, entry in gone.items() if name not in names}, names


def live_names(store: TableStore, snapshot: Snapshot) -> set[str]:
    """Names of the data files of a snapshot."""
    return {identity.file_name for identity in store.manifests.live_entries(snapshot)}


def changelog_entries(store: TableStore, snapshot: Snapshot) -> list[ManifestEntry]:
    """The changelog files of a snapshot, as far as they can be read."""
    name = snapshot.changelog_manifest_list
    if name is None:
        return []
    try:
        metas = store.manifests.files_of(name, f"snapshot {snapshot.id}", snapshot.changelog_manifest_list_size)
    except UNREADABLE:
        return []
    entries: list[ManifestEntry] = []
    for meta in metas:
        try:
            entries.extend(store.manifests.entries(meta.file_name, name))
        except UNREADABLE as error:
            log.info("expire.unreadable", table=store.name, snapshot=snapshot.id, error=str(error))
    return entries


def _may_hold(tag: Snapshot, entry: ManifestEntry) -> bool:
    """Whether a tag may name this file, by its age."""
    created = entry.file.creation_time
    return created is None or created <= tag.time_millis + CLOCKS_MS


def _is_leaving(branch: Branch, snapshot: Snapshot) -> bool:
    """Whether this may be a snapshot that a crashed expiration of the branch left half deleted."""
    return any(snapshot is each for each in branch.snapshots[:-1])


def _must_stay(store: TableStore, snapshot: Snapshot, error: MaintainerError) -> CorruptTable:
    if isinstance(error, MissingFile) and is_leaving(store, snapshot):
        return Overtaken(f"{store.name}: another expiration deletes snapshot {snapshot.id} meanwhile: {error}")
    return CorruptTable(
        f"{store.name}: snapshot {snapshot.id} has to stay, but cannot be read; nothing is expired, since older snapshots may be needed to go "
        f"back to: {error}"
    )


def _without(paths: dict[str, int], claimed: set[str]) -> dict[str, int]:
    return {path: size for path, size in paths.items() if path not in claimed}


def _drop(candidates: dict[str, tuple[int, ManifestEntry]], names: Iterable[str]) -> None:
    for name in names:
        candidates.pop(name, None)
