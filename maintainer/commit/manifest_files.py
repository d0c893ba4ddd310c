"""Writing manifests, and merging those of older snapshots (spec 01 §9.4, §9.5, 03 §8.3; Java `ManifestFile`, `ManifestFileMerger`).

Without merging, the base list of a table grows by a manifest with every snapshot. Two ways, tried in this order:

* *Full*, when the manifests that must change (they delete, or are smaller than the target) are large together: those are rewritten with what is
  still alive, so that DELETE entries disappear; large ones that lose nothing stay.
* *Minor*: neighbours are joined up to the target size; what is left over at the end only when there are many.

Invariant: the entries merge to the same files before and after.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from maintainer.format import binary_row, index_manifest, manifest, manifest_list
from maintainer.model.files import EMPTY_ROW, FileIdentity, FileKind, IndexManifestEntry, ManifestEntry, ManifestFileMeta, SimpleStats
from maintainer.model.types import DataType
from maintainer.model.values import order_key
from maintainer.storage.layout import FileNames, Layout
from maintainer.storage.storage import Storage
from maintainer.table.manifests import merge_into
from maintainer.table.options import TableOptions

ROLL = 1000
"""Java looks at a manifest's size once in so many entries."""

ReadEntries = Callable[[ManifestFileMeta], Sequence[ManifestEntry]]


@dataclass(frozen=True)
class Merged:
    """The manifests of the next base list, and which of them are new."""

    before: tuple[ManifestFileMeta, ...]
    after: tuple[ManifestFileMeta, ...]
    created: tuple[str, ...] = ()


class ManifestWriter:
    """Writes manifests and lists of one commit, and remembers the path of every file that it began: `created`."""

    def __init__(self, storage: Storage, layout: Layout, partition_types: Sequence[DataType], options: TableOptions) -> None:
        self._storage = storage
        self._layout = layout
        self._partition_types = tuple(partition_types)
        self._target = options.manifest_target_file_size
        self._compression = options.manifest_compression
        self._level = options.zstd_level
        self._manifests = FileNames("manifest-")
        self._lists = FileNames("manifest-list-")
        self._indexes = FileNames("index-manifest-")
        self.created: list[str] = []

    def write_entries(self, entries: Sequence[ManifestEntry]) -> list[ManifestFileMeta]:
        """As few manifests as the target size allows; none for no entries."""
        if not entries:
            return []
        data = manifest.encode(entries, self._compression, self._level)
        parts = -(-len(data) // max(self._target, 1))
        size = -(-len(entries) // parts)
        size = -(-size // ROLL) * ROLL
        if size >= len(entries):
            return [self._put_manifest(entries, data)]
        chunks = [entries[start : start + size] for start in range(0, len(entries), size)]
        return [self._put_manifest(chunk, manifest.encode(chunk, self._compression, self._level)) for chunk in chunks]

    def write_list(self, manifests: Iterable[ManifestFileMeta]) -> tuple[str, int]:
        """Name and size of a new manifest list."""
        data = manifest_list.encode(manifests, self._compression, self._level)
        return self._put(self._lists.next(), data), len(data)

    def write_index_manifest(self, entries: Iterable[IndexManifestEntry]) -> str:
        return self._put(self._indexes.next(), index_manifest.encode(entries, self._compression, self._level))

    def _put_manifest(self, entries: Sequence[ManifestEntry], data: bytes) -> ManifestFileMeta:
        return describe(self._put(self._manifests.next(), data), len(data), entries, self._partition_types)

    def _put(self, name: str, data: bytes) -> str:
        path = self._layout.manifest_path(name)
        self.created.append(path)
        self._storage.write(path, data)
        return name


def describe(name: str, size: int, entries: Sequence[ManifestEntry], partition_types: Sequence[DataType]) -> ManifestFileMeta:
    """What a manifest list says about a manifest with these entries."""
    files = [entry.file for entry in entries]
    ids = [(f.first_row_id, f.first_row_id + f.row_count - 1) for f in files if f.first_row_id is not None]
    all_have_ids = len(ids) == len(files)
    return ManifestFileMeta(
        file_name=name,
        file_size=size,
        num_added_files=sum(entry.kind is FileKind.ADD for entry in entries),
        num_deleted_files=sum(entry.kind is FileKind.DELETE for entry in entries),
        partition_stats=_partition_stats(Counter(entry.partition for entry in entries), partition_types),
        schema_id=max(file.schema_id for file in files),
        min_bucket=min(entry.bucket for entry in entries),
        max_bucket=max(entry.bucket for entry in entries),
        min_level=min(file.level for file in files),
        max_level=max(file.level for file in files),
        min_row_id=min(first for first, _ in ids) if all_have_ids else None,
        max_row_id=max(last for _, last in ids) if all_have_ids else None,
    )


def _partition_stats(partitions: Counter[bytes], types: Sequence[DataType]) -> SimpleStats:
    if not types:
        return SimpleStats(EMPTY_ROW, EMPTY_ROW, ())
    rows = {partition: binary_row.deserialize(partition, types) for partition in partitions}
    smallest, largest, nulls = [], [], []
    for column in range(len(types)):
        values = sorted((row[column] for row in rows.values() if row[column] is not None), key=order_key)
        smallest.append(values[0] if values else None)
        largest.append(values[-1] if values else None)
        nulls.append(sum(count for partition, count in partitions.items() if rows[partition][column] is None))
    return SimpleStats(binary_row.serialize(smallest, types), binary_row.serialize(largest, types), tuple(nulls))


def merge_manifests(
    before: Sequence[ManifestFileMeta],
    read: ReadEntries,
    writer: ManifestWriter,
    options: TableOptions,
    partition_types: Sequence[DataType],
) -> Merged:
    """The base list of the next snapshot, from the manifests of the latest one (its base list and then its delta list)."""
    done = len(writer.created)
    after = _merge_fully(before, read, writer, options, partition_types)
    if after is None:
        after = _merge_neighbours(before, read, writer, options)
    return Merged(tuple(before), tuple(after), tuple(writer.created[done:]))


def splice(previous: Merged | None, before: Sequence[ManifestFileMeta]) -> list[ManifestFileMeta]:
    """The base list for a repeated attempt: what an earlier attempt merged is used again where it still stands in the list, nothing else is
    merged."""
    manifests = list(before)
    if previous is not None and previous.before:
        size = len(previous.before)
        for start in range(len(manifests) - size + 1):
            if tuple(manifests[start : start + size]) == previous.before:
                return [*manifests[:start], *previous.after, *manifests[start + size :]]
    return manifests


def _merge_fully(
    before: Sequence[ManifestFileMeta],
    read: ReadEntries,
    writer: ManifestWriter,
    options: TableOptions,
    partition_types: Sequence[DataType],
) -> list[ManifestFileMeta] | None:
    """All DELETE entries resolved; None when that is not worth it yet."""

    def must_change(meta: ManifestFileMeta) -> bool:
        return meta.num_deleted_files > 0 or meta.file_size < options.manifest_target_file_size

    if sum(meta.file_size for meta in before if must_change(meta)) < options.manifest_full_compaction_threshold_size:
        return None
    deleted: set[FileIdentity] = set()
    for meta in before:
        if meta.num_deleted_files > 0:
            deleted.update(entry.identity for entry in read(meta) if entry.kind is FileKind.DELETE)
    partitions = {identity.partition for identity in deleted}
    rows = [binary_row.deserialize(partition, partition_types) for partition in partitions] if partition_types else []

    def untouched(meta: ManifestFileMeta) -> bool:
        if must_change(meta):
            return False
        return not deleted or (bool(partition_types) and not any(_may_contain(meta.partition_stats, row, partition_types) for row in rows))

    kept = [meta for meta in before if untouched(meta)]
    if len(before) - len(kept) <= 1:
        return None
    alive: list[ManifestEntry] = []
    for meta in before:
        if untouched(meta):
            continue
        entries = [entry for entry in read(meta) if entry.kind is FileKind.ADD and entry.identity not in deleted]
        if not must_change(meta) and len(entries) == meta.num_added_files:
            kept.append(meta)
        else:
            alive += entries
    return [*kept, *writer.write_entries(alive)]


def _may_contain(stats: SimpleStats, row: Sequence[object], types: Sequence[DataType]) -> bool:
    """Whether a manifest with these partition statistics may hold entries of a partition."""
    smallest = binary_row.deserialize(stats.min_values, types)
    largest = binary_row.deserialize(stats.max_values, types)
    for column, value in enumerate(row):
        if value is None:
            if stats.null_counts and stats.null_counts[column] == 0:
                return False
        elif smallest[column] is not None and not order_key(smallest[column]) <= order_key(value) <= order_key(largest[column]):
            return False
    return True


def _merge_neighbours(
    before: Sequence[ManifestFileMeta], read: ReadEntries, writer: ManifestWriter, options: TableOptions
) -> list[ManifestFileMeta]:
    after: list[ManifestFileMeta] = []
    group: list[ManifestFileMeta] = []
    size = 0
    for meta in before:
        group.append(meta)
        size += meta.file_size
        if size >= options.manifest_target_file_size:
            after += _join(group, read, writer)
            group, size = [], 0
    if len(group) >= options.manifest_merge_min_count:
        return after + _join(group, read, writer)
    return after + group


def _join(group: list[ManifestFileMeta], read: ReadEntries, writer: ManifestWriter) -> list[ManifestFileMeta]:
    if len(group) == 1:
        return group
    live: dict[FileIdentity, ManifestEntry] = {}
    for meta in group:
        merge_into(live, read(meta))
    return writer.write_entries(list(live.values()))
