"""The state of a table in one snapshot, bucket by bucket (spec 01 §5.2, §10; DESIGN §3 "Watch").

Loading costs the manifests that are not known yet. Given the state of an earlier snapshot, only the deltas in between are applied, to the
buckets that they touch; the result is the same.

That is so only if the snapshot was built on these deltas. A writer that checks whether a snapshot exists and then renames its own over it (Java
and pypaimon on local disks) may replace one that others have built on already; and what is committed on top of a wrong state cannot be read
any more. So the deltas must stand in the snapshot's base list; they do not when manifests were merged, once in some 30 snapshots.

An opened table keeps the states that its scans read (`state_of`): that of the latest snapshot, from which the following one is reached, and
that of the last other snapshot, so that time travel does not cost what is known of the latest one. A bucket in which nothing changed is the
same object in both, and what readers make of a state is kept with it.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

from maintainer.errors import CorruptTable, MaintainerError, MissingFile
from maintainer.format import source_meta
from maintainer.model.bucket import BucketState
from maintainer.model.files import DELETION_VECTORS, BucketKey, DataFileMeta, FileIdentity, FileKind, IndexFileMeta, ManifestEntry
from maintainer.model.schema import TableSchema
from maintainer.model.snapshot import Snapshot
from maintainer.storage.ahead import ahead, in_turn
from maintainer.table.manifests import merge_into
from maintainer.table.store import TableStore

MAX_STEPS = 100
"""Deltas that are applied one after the other before reading the whole state is taken to be cheaper."""
TRIES = 10
"""Snapshots in a row that may expire while they are read, before the latest one is given up."""
LEAVING_SECONDS = 5.0
"""How long an expiring snapshot may still be there when its first file is gone."""


class SnapshotExpired(MaintainerError):
    """A snapshot went away while it was read."""


@dataclass(frozen=True)
class TableState:
    """All buckets of a snapshot that hold data files or index files."""

    snapshot: Snapshot
    schema: TableSchema
    buckets: Mapping[BucketKey, BucketState]
    kept: dict[Hashable, Any] = field(default_factory=dict, init=False, repr=False, compare=False)
    """What readers made of the state and may need again, under keys of their own; it lives as long as the state does. For all threads."""

    def bucket(self, key: BucketKey) -> BucketState:
        """The bucket's state; a bucket that holds nothing is empty."""
        return self.buckets.get(key) or BucketState(key.partition, key.bucket, 0, ())

    @cached_property
    def schema_ids(self) -> frozenset[int]:
        """Ids of the schemas that live data files were written with."""
        return frozenset(file.schema_id for bucket in self.buckets.values() for file in bucket.files)

    def files(self) -> Iterable[DataFileMeta]:
        return (file for bucket in self.buckets.values() for file in bucket.files)

    def schemas_since(self, store: TableStore) -> tuple[TableSchema, ...]:
        """All schemas that the table had since its oldest live data file was written, oldest first; also those after this snapshot, as a writer
        may go on with an old schema."""
        live = self.schema_ids
        if not live:
            return ()
        first = min(live)
        ids = sorted(live.union(number for number in store.known_schema_ids() if number > first))
        return tuple(in_turn(store.storage, (partial(store.schema, number) for number in ids)))


def load_state(store: TableStore, snapshot: Snapshot, previous: TableState | None = None, schema: TableSchema | None = None) -> TableState:
    """The state of a snapshot. `schema` is the table's latest schema unless given (for time travel: `store.schema_of(snapshot)`)."""
    schema = schema or store.latest_schema()
    if previous is not None and previous.snapshot == snapshot and previous.schema == schema:
        return previous
    indexes_of: Callable[[], dict[BucketKey, _Indexes]]
    if previous is not None and previous.snapshot.index_manifest == snapshot.index_manifest:
        indexes_of = partial(_known_indexes, previous)
    else:
        indexes_of = ahead(store.storage, partial(_index_files, store, snapshot, bool(schema.primary_keys)))
    try:
        files = _changed_files(store, snapshot, previous) if previous is not None else None
        if files is None or previous is None:
            files = _all_files(store, snapshot)
        indexes = indexes_of()
    except MissingFile as error:
        if store.find_snapshot(snapshot.id) is None and not _is_tagged(store, snapshot):
            raise SnapshotExpired(f"{store.name}: snapshot {snapshot.id} expired while it was read; try again") from error
        raise
    default_buckets = max(store.options(schema).bucket, 0)
    buckets = dict(files)
    for key, (deletion_file, payloads, others) in indexes.items():
        bucket = buckets.get(key) or BucketState(key.partition, key.bucket, default_buckets, ())
        buckets[key] = replace(bucket, deletion_file=deletion_file, payloads=payloads, other_index_files=others)
    if previous is not None:
        for key, before in previous.buckets.items():
            if buckets.get(key) == before:
                buckets[key] = before
    return TableState(snapshot, schema, buckets)


def state_of(store: TableStore, snapshot: Snapshot, schema: TableSchema) -> TableState:
    """The state of a snapshot for reading: the one that the opened table keeps, or one that is made of it and kept in its place."""
    kept = store.states
    for state in kept:
        if state.snapshot == snapshot and state.schema == schema:
            return state
    before = [state for state in kept if state.snapshot.id <= snapshot.id]
    state = load_state(store, snapshot, max(before, key=lambda state: state.snapshot.id, default=None), schema)
    if store.storage.remote:
        with suppress(MaintainerError):  # whoever needs them asks again; here they are asked for at the same time
            state.schemas_since(store)
    store.keep(state)
    return state


def load_latest(store: TableStore, previous: TableState | None = None, schema: TableSchema | None = None) -> TableState | None:
    """The state of the latest snapshot, None when there is none. One that expires while it is read is not the latest any more."""
    for _ in range(TRIES):
        snapshot = store.latest_snapshot()
        if snapshot is None:
            return None
        try:
            return load_state(store, snapshot, previous, schema)
        except MaintainerError as error:
            if store.latest_snapshot() == snapshot:
                raise
            failure = error
    raise SnapshotExpired(f"{store.name}: snapshots expire faster than the latest one can be read, {TRIES} times in a row") from failure


_Indexes = tuple[IndexFileMeta | None, tuple[IndexFileMeta, ...], tuple[IndexFileMeta, ...]]


def _all_files(store: TableStore, snapshot: Snapshot) -> dict[BucketKey, BucketState]:
    grouped: defaultdict[BucketKey, list[ManifestEntry]] = defaultdict(list)
    for entry in store.manifests.live_entries(snapshot).values():
        grouped[entry.bucket_key].append(entry)
    return {key: _bucket(key, entries) for key, entries in grouped.items()}


def _changed_files(store: TableStore, snapshot: Snapshot, previous: TableState) -> dict[BucketKey, BucketState] | None:
    """The data files after `previous` and the deltas since; None when the one does not lead to the other, or only by many steps."""
    steps = snapshot.id - previous.snapshot.id
    if steps == 0 and previous.snapshot == snapshot:
        return {key: _without_indexes(bucket) for key, bucket in previous.buckets.items() if bucket.files}
    if not 0 < steps <= MAX_STEPS:
        return None
    ids = range(previous.snapshot.id, snapshot.id)
    chain = [*in_turn(store.storage, (partial(store.find_snapshot, number) for number in ids)), snapshot]
    if None in chain or chain[0] != previous.snapshot:
        return None
    try:
        return _after_deltas(store, previous, [step for step in chain if step is not None])
    except CorruptTable:  # a step expired meanwhile, or was replaced; or else reading everything finds the same
        return None


def _after_deltas(store: TableStore, previous: TableState, chain: Sequence[Snapshot]) -> dict[BucketKey, BucketState] | None:
    """`chain` are the snapshots from that of `previous` on."""
    changes: defaultdict[BucketKey, list[ManifestEntry]] = defaultdict(list)
    base = ahead(store.storage, partial(store.manifests.base_of, chain[-1]))
    deltas_of = in_turn(store.storage, (partial(store.manifests.delta_of, step) for step in chain))
    deltas = {meta.file_name for metas in list(deltas_of)[:-1] for meta in metas}
    for step in chain[1:]:
        for entry in store.manifests.delta_entries(step):
            changes[entry.bucket_key].append(entry)
    buckets = {key: _without_indexes(bucket) for key, bucket in previous.buckets.items() if bucket.files}
    for key, entries in changes.items():
        before = buckets.pop(key, None)
        live: dict[FileIdentity, ManifestEntry] = {}
        if before is not None:
            merge_into(live, (ManifestEntry(FileKind.ADD, *key, before.total_buckets, file) for file in before.files))
        if merge_into(live, entries):
            return None
        if live:
            buckets[key] = _bucket(key, list(live.values()))
    return buckets if deltas <= {meta.file_name for meta in base()} else None


def _bucket(key: BucketKey, entries: list[ManifestEntry]) -> BucketState:
    return BucketState(key.partition, key.bucket, max(entry.total_buckets for entry in entries), tuple(entry.file for entry in entries))


def _without_indexes(bucket: BucketState) -> BucketState:
    return replace(bucket, deletion_file=None, payloads=(), other_index_files=()) if _has_indexes(bucket) else bucket


def _has_indexes(bucket: BucketState) -> bool:
    return bucket.deletion_file is not None or bool(bucket.payloads or bucket.other_index_files)


def _known_indexes(previous: TableState) -> dict[BucketKey, _Indexes]:
    buckets = previous.buckets.items()
    return {key: (each.deletion_file, each.payloads, each.other_index_files) for key, each in buckets if _has_indexes(each)}


def _index_files(store: TableStore, snapshot: Snapshot, primary_key_table: bool) -> dict[BucketKey, _Indexes]:
    if snapshot.index_manifest is None:
        return {}
    vectors: dict[BucketKey, IndexFileMeta] = {}
    payloads: defaultdict[BucketKey, list[IndexFileMeta]] = defaultdict(list)
    others: defaultdict[BucketKey, list[IndexFileMeta]] = defaultdict(list)
    names: set[str] = set()
    entries = store.manifests.index(snapshot.index_manifest, f"snapshot {snapshot.id}")
    for entry in entries:
        key, file = entry.bucket_key, entry.file
        if file.file_name in names:
            raise CorruptTable(f"{store.manifests.display(snapshot.index_manifest)}: holds {file.file_name} twice")
        names.add(file.file_name)
        if file.index_type == DELETION_VECTORS and key not in vectors:
            vectors[key] = file
        elif file.index_type == DELETION_VECTORS and primary_key_table:
            raise CorruptTable(
                f"{store.manifests.display(snapshot.index_manifest)}: bucket {key.bucket} has two deletion-vector files, "
                f"{vectors[key].file_name} and {file.file_name}"
            )
        elif file.global_index is not None and source_meta.is_source_meta(file.global_index.source_meta):
            payloads[key].append(file)
        else:
            others[key].append(file)
    keys = dict.fromkeys(entry.bucket_key for entry in entries)
    return {key: (vectors.get(key), tuple(payloads[key]), tuple(others[key])) for key in keys}


def is_gone(store: TableStore, snapshot: Snapshot) -> bool:
    """Whether a snapshot expired or was replaced, so that its files may be gone, too; a tag keeps them."""
    return store.find_snapshot(snapshot.id) != snapshot and not _is_tagged(store, snapshot)


def is_leaving(store: TableStore, snapshot: Snapshot) -> bool:
    """Whether a file of a snapshot may be missing because the snapshot expires or was replaced.

    Files go before the snapshot that names them does, in Java those of many snapshots before the first of these; so it is given some time to
    go. But never do those of the latest snapshot go, or of one that has a tag.
    """
    deadline = time.monotonic() + LEAVING_SECONDS
    if _is_tagged(store, snapshot):
        return False
    while store.find_snapshot(snapshot.id) == snapshot:
        if time.monotonic() >= deadline or store.latest_snapshot() == snapshot:
            return False
        time.sleep(0.05)
    return True


def _is_tagged(store: TableStore, snapshot: Snapshot) -> bool:
    tags = map(store.find_tag, store.tag_names())  # one that is deleted meanwhile keeps nothing
    return any(tag is not None and tag.id == snapshot.id for tag in tags)
