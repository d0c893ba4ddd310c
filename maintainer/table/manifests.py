"""Reading manifests, and what their entries say together (spec 01 §5.2, §9.3; Java `ManifestFile`, `FileEntry.mergeEntries`).

Manifests never change, so decoded ones are kept by name within a bound: the state after a following snapshot costs only the new manifests.
Both lists of a snapshot are read at the same time, and so are the manifests that they name (`maintainer.storage.ahead`).
Names are checked here, once, before anybody makes a path of them.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Any, TypeVar

from maintainer.errors import CorruptFile, CorruptTable, MissingFile, Unsupported
from maintainer.format import index_manifest, manifest, manifest_list
from maintainer.model.files import FileIdentity, FileKind, IndexManifestEntry, ManifestEntry, ManifestFileMeta
from maintainer.model.snapshot import Snapshot
from maintainer.storage.ahead import MOST, ahead, in_turn
from maintainer.storage.layout import Layout, check_file_name
from maintainer.storage.storage import Storage

T = TypeVar("T")

KEPT_ENTRIES = 100_000
"""Decoded entries kept in memory, about 1 KB each."""
AHEAD = 16 << 20
"""Bytes of manifests that are read at the same time, and wait with what is decoded of them."""


class Manifests:
    """The manifests of one table. Safe to use from several threads."""

    def __init__(self, storage: Storage, layout: Layout, check_partition: Callable[[bytes], object]) -> None:
        """`check_partition` raises `CorruptFile` for bytes that are not a row of the partition columns."""
        self._storage = storage
        self._layout = layout
        self._check_partition = check_partition
        self._kept: OrderedDict[str, tuple[Any, ...]] = OrderedDict()
        self._entries = 0
        self._lock = threading.Lock()

    @property
    def kept(self) -> int:
        """Entries kept in memory."""
        return self._entries

    def forget(self) -> None:
        """Gives the memory back; what is needed again is read again."""
        with self._lock:
            self._kept.clear()
            self._entries = 0

    def files_of(self, name: str, named_by: str, size: int | None = None) -> tuple[ManifestFileMeta, ...]:
        """The manifests of a manifest list; `named_by` is the file that names it, for errors, and `size` how many bytes that file says.

        The size is checked, since an Avro file that was cut between two of its blocks is a valid shorter one.
        """
        return self._load(name, named_by, manifest_list.decode, self._check_list, size)

    def entries(self, name: str, named_by: str) -> tuple[ManifestEntry, ...]:
        """The entries of a manifest, in their order."""
        return self._load(name, named_by, manifest.decode, self._check_entries)

    def index(self, name: str, named_by: str) -> tuple[IndexManifestEntry, ...]:
        """All entries of an index manifest; a committed one only adds."""
        entries = self._load(name, named_by, index_manifest.decode, self._check_entries)
        for entry in entries:
            if entry.kind is not FileKind.ADD:
                raise CorruptTable(f"{self.display(name)}: the index manifest of a snapshot deletes {entry.file.file_name}; it may only add")
        return entries

    def lists_of(self, snapshot: Snapshot) -> tuple[tuple[ManifestFileMeta, ...], tuple[ManifestFileMeta, ...]]:
        """The manifests of a snapshot's base list and of its delta list."""
        delta = ahead(self._storage, partial(self.delta_of, snapshot))
        return self.base_of(snapshot), delta()

    def base_of(self, snapshot: Snapshot) -> tuple[ManifestFileMeta, ...]:
        """The manifests of a snapshot's base list."""
        return self.files_of(snapshot.base_manifest_list, f"snapshot {snapshot.id}", snapshot.base_manifest_list_size)

    def delta_of(self, snapshot: Snapshot) -> tuple[ManifestFileMeta, ...]:
        """The manifests of a snapshot's delta list."""
        return self.files_of(snapshot.delta_manifest_list, f"snapshot {snapshot.id}", snapshot.delta_manifest_list_size)

    def delta_entries(self, snapshot: Snapshot) -> Iterator[ManifestEntry]:
        """What a snapshot changed, in order."""
        return chain.from_iterable(self._entries_of([(snapshot.delta_manifest_list, meta) for meta in self.delta_of(snapshot)]))

    def _entries_of(self, named: Sequence[tuple[str, ManifestFileMeta]]) -> Iterator[tuple[ManifestEntry, ...]]:
        """The entries of manifests, each with the list that names it."""
        largest = max((meta.file_size for _, meta in named), default=1)
        calls = (partial(self.entries, meta.file_name, list_name) for list_name, meta in named)
        return in_turn(self._storage, calls, max(2, min(MOST, AHEAD // max(largest, 1))))

    def live_entries(self, snapshot: Snapshot) -> dict[FileIdentity, ManifestEntry]:
        """The data files of a snapshot."""
        lists = zip((snapshot.base_manifest_list, snapshot.delta_manifest_list), self.lists_of(snapshot), strict=True)
        named = [(list_name, meta) for list_name, metas in lists for meta in metas]
        live: dict[FileIdentity, ManifestEntry] = {}
        deleted_by: dict[FileIdentity, str] = {}
        for (list_name, meta), entries in zip(named, self._entries_of(named), strict=True):
            promised = meta.num_added_files + meta.num_deleted_files
            if len(entries) != promised:
                raise CorruptTable(f"{self.display(meta.file_name)}: holds {len(entries)} entries, {list_name} says {promised}")
            try:
                for entry in merge_into(live, entries):
                    deleted_by[entry.identity] = meta.file_name
            except CorruptTable as error:
                raise CorruptTable(f"{self.display(meta.file_name)}: {error}") from None
        for identity, entry in live.items():
            if entry.kind is FileKind.DELETE:
                raise CorruptTable(
                    f"{self.display(deleted_by[identity])}: deletes {identity.file_name} of level {identity.level}, which was never added"
                )
        return live

    def display(self, name: str) -> str:
        return self._storage.display(self._layout.manifest_path(name))

    def _check_list(self, metas: Iterable[ManifestFileMeta]) -> None:
        for meta in metas:
            check_file_name(meta.file_name)

    def _check_entries(self, entries: Iterable[ManifestEntry] | Iterable[IndexManifestEntry]) -> None:
        partitions = set()
        for entry in entries:
            check_file_name(entry.file.file_name)
            if isinstance(entry, ManifestEntry):
                for name in entry.file.extra_files:
                    check_file_name(name)
            partitions.add(entry.partition)
        for partition in partitions:
            try:
                self._check_partition(partition)
            except CorruptFile as error:
                raise CorruptFile(f"a partition is not a row of the partition columns: {error.reason}") from None

    def _load(
        self, name: str, named_by: str, decode: Callable[[bytes], list[T]], check: Callable[[list[T]], None], size: int | None = None
    ) -> tuple[T, ...]:
        with self._lock:
            known = self._kept.get(name)
            if known is not None:
                self._kept.move_to_end(name)
                return known
        path = self._layout.manifest_path(name, named_by)
        try:
            data = self._storage.read(path)
            if size is not None and len(data) != size:
                raise CorruptFile(f"it has {len(data)} bytes, {named_by} says {size}")
            decoded = decode(data)
            check(decoded)
        except CorruptFile as error:
            raise error.at(self._storage.display(path)) from None
        except Unsupported as error:
            raise Unsupported(f"{self._storage.display(path)}: {error}") from None
        except MissingFile as error:
            raise MissingFile(f"{error} ({named_by} names it)") from None
        entries = tuple(decoded)
        with self._lock:
            if name not in self._kept:
                self._kept[name] = entries
                self._entries += len(entries)
                while self._entries > KEPT_ENTRIES and len(self._kept) > 1:
                    self._entries -= len(self._kept.popitem(last=False)[1])
        return entries


def merge_into(live: dict[FileIdentity, ManifestEntry], entries: Iterable[ManifestEntry]) -> list[ManifestEntry]:
    """Applies entries in their order; DELETEs of files that are not there stay in the map and are returned, for their ADD may be in an older
    manifest. Adding a file that is there raises `CorruptTable`."""
    unmatched = []
    for entry in entries:
        identity = entry.identity
        if entry.kind is FileKind.ADD:
            if identity in live:
                raise CorruptTable(f"adds {identity.file_name} to level {identity.level}, which is there already")
            live[identity] = entry
        elif identity in live:
            del live[identity]
        else:
            live[identity] = entry
            unmatched.append(entry)
    return unmatched
