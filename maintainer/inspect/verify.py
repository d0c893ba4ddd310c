"""Verification: does everything that the latest snapshot says hold (DESIGN §5 "verify")?

Each rule is counted for every object that it was tried on; what breaks a rule is a problem that names the file or bucket, and never stops
the rest. Only a store that cannot be reached does.

| rule             | holds when                                                                                                   |
| ---------------- | ------------------------------------------------------------------------------------------------------------ |
| snapshot         | the latest snapshot can be read, and so can the schemas that it and its data files name                      |
| manifest         | manifest lists, manifests and index manifest are there with the size that is said of them, and can be decoded |
| manifest-count   | a manifest adds and deletes as many files as its list says                                                   |
| live-files       | the entries add up: nothing is added twice, nothing is deleted that was not there                            |
| record-total     | the row counts of the live data files add up to the snapshot's total                                         |
| record-change    | those of its delta add up to its change, and those of its changelog to its changelog's count                 |
| changelog-file   | a file of its changelog is there with its size, its footer can be read, and it holds as many rows as said    |
| data-file        | a data file is there with its size, its footer can be read, and it holds as many rows as said                |
| extra-file       | the extra files of a data file are there                                                                     |
| bucket           | bucket numbers are below the bucket count, and a partition has one count                                     |
| key-range        | the smallest key of a file is not above its largest                                                          |
| level            | files of one level above 0 do not overlap                                                                    |
| index-file       | an index file is there with its size                                                                         |
| deletion-vector  | vectors can be decoded, with their checksums and cardinalities, and lie inside of their files                |
| index-group      | the metadata of a payload is sound and no level has two; one that is merely out of date breaks no rule       |
| index-payload    | the payload of an active group can be read as a whole, with its checksums                                    |

`deep` adds what needs the data: see `maintainer.inspect.deep` and `maintainer.inspect.index_content`.

All of it is about one snapshot, whatever is committed meanwhile. When that one expires, verification ends with an error.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

from maintainer.data.arrow_types import value_schema
from maintainer.data.deletions import read_deletions
from maintainer.data.reader import open_data_file
from maintainer.data.values import partition_json
from maintainer.errors import CorruptFile, CorruptTable, MissingFile, Unsupported
from maintainer.format import binary_row, source_meta
from maintainer.index.definition import MAINTAINED, SORTED, definitions
from maintainer.index.groups import evaluate
from maintainer.inspect.deep import verify_contents
from maintainer.inspect.findings import Findings, Problem
from maintainer.inspect.payload import open_group
from maintainer.model.bucket import BucketState
from maintainer.model.files import DataFileMeta, FileKind, IndexFileMeta, ManifestEntry, ManifestFileMeta
from maintainer.model.report import Report
from maintainer.model.schema import TableSchema
from maintainer.model.snapshot import Snapshot
from maintainer.model.values import order_keys
from maintainer.table.state import SnapshotExpired, TableState, is_gone, load_latest, load_state
from maintainer.table.store import TableStore
from maintainer.table.support import FORMATS, file_format, naming


@dataclass(frozen=True)
class Verification(Report):
    """Of the latest snapshot; `checked` counts the objects that each rule was tried on."""

    snapshot: int | None
    ok: bool
    checked: Mapping[str, int]
    problems: tuple[Problem, ...]


def verify(store: TableStore, deep: bool = False) -> Verification:
    """All rules on the latest snapshot. `Unsupported` when the data of such a table cannot be read, and `deep` asks for it."""
    if deep:
        _check_rows_can_be_read(store)
    findings = Findings()
    snapshot = None
    with findings.rule("snapshot", store.name):
        snapshot = store.latest_snapshot()
    if snapshot is not None:
        findings.still_there = partial(_check_still_there, store, snapshot)
        _verify_snapshot(store, snapshot, findings, deep)
        if findings.problems:
            findings.still_there(None)
    problems = tuple(findings.problems)
    return Verification(store.name, None if snapshot is None else snapshot.id, not problems, dict(findings.checked), problems)


def _check_still_there(store: TableStore, snapshot: Snapshot, error: MissingFile | None) -> None:
    """A snapshot that goes away takes its files with it, in Java before itself: what is missing then is no problem of the table."""
    gone = is_gone(store, snapshot)
    if not gone and error is not None and store.latest_snapshot() != snapshot:
        latest = load_latest(store)
        gone = latest is not None and latest.snapshot != snapshot and not any(name in str(error) for name in _names(store, latest))
    if gone:
        raise SnapshotExpired(f"{store.name}: snapshot {snapshot.id} expired or was replaced while it was verified; try again")


def _names(store: TableStore, state: TableState) -> Iterator[str]:
    """The files that a snapshot needs."""
    snapshot = state.snapshot
    yield from (name for name in (snapshot.base_manifest_list, snapshot.delta_manifest_list, snapshot.index_manifest) if name is not None)
    yield from (meta.file_name for metas in store.manifests.lists_of(snapshot) for meta in metas)
    for file in state.files():
        yield from (file.file_name, *file.extra_files)
    yield from (file.file_name for bucket in state.buckets.values() for file in _index_files(bucket))


def _check_rows_can_be_read(store: TableStore) -> None:
    schema = store.latest_schema()
    if not schema.primary_keys:
        raise Unsupported(f"{store.name}: no primary key: only primary-key tables can be verified deeply")
    if any(data_type.nullable for data_type in schema.key_types):
        raise Unsupported(f"{store.name}: primary-key.nullable: null keys are not read yet")
    with naming(store.name):
        value_schema(schema.fields)


def _verify_snapshot(store: TableStore, snapshot: Snapshot, findings: Findings, deep: bool) -> None:
    with findings.rule("snapshot", f"schema {snapshot.schema_id}"):
        store.schema(snapshot.schema_id)
    _verify_manifests(store, snapshot, findings)
    _verify_changes(store, snapshot, findings)
    state = None
    with findings.rule("live-files", f"snapshot {snapshot.id}"):
        state = load_state(store, snapshot)
    if state is None:
        return
    with findings.rule("record-total", f"snapshot {snapshot.id}"):
        total = sum(file.row_count for file in state.files())
        if total != snapshot.total_record_count:
            raise CorruptTable(f"totalRecordCount is {snapshot.total_record_count}, the live data files hold {total} rows")
    schemas: dict[int, TableSchema] = {}
    for schema_id in sorted(state.schema_ids):
        with findings.rule("snapshot", f"schema {schema_id}"):
            schemas[schema_id] = store.schema(schema_id)
    totals: defaultdict[bytes, set[int]] = defaultdict(set)
    for bucket in sorted(state.buckets.values(), key=lambda bucket: bucket.key):
        if bucket.files:
            totals[bucket.partition].add(bucket.total_buckets)
        _verify_bucket(store, state, bucket, schemas, findings, deep)
    for partition, counts in totals.items():
        with findings.rule("bucket", f"partition {partition_json(state.schema, partition)}"):
            if len(counts) > 1:
                raise CorruptTable(f"its buckets were written with different bucket counts: {', '.join(map(str, sorted(counts)))}")


def _verify_manifests(store: TableStore, snapshot: Snapshot, findings: Findings) -> None:
    named_by = f"snapshot {snapshot.id}"
    lists = [
        (snapshot.base_manifest_list, snapshot.base_manifest_list_size),
        (snapshot.delta_manifest_list, snapshot.delta_manifest_list_size),
        (snapshot.changelog_manifest_list, snapshot.changelog_manifest_list_size),
    ]
    for name, size in lists:
        if name is None:
            continue
        metas: tuple[ManifestFileMeta, ...] = ()
        with findings.rule("manifest", name):
            _check_size(store, store.layout.manifest_path(name, named_by), size)
            metas = store.manifests.files_of(name, named_by)
        for meta in metas:
            _verify_manifest(store, meta, name, findings)
    if snapshot.index_manifest is not None:
        with findings.rule("manifest", snapshot.index_manifest):
            store.manifests.index(snapshot.index_manifest, named_by)


def _verify_manifest(store: TableStore, meta: ManifestFileMeta, named_by: str, findings: Findings) -> None:
    entries = None
    with findings.rule("manifest", meta.file_name):
        _check_size(store, store.layout.manifest_path(meta.file_name, named_by), meta.file_size)
        entries = store.manifests.entries(meta.file_name, named_by)
    if entries is None:
        return
    with findings.rule("manifest-count", meta.file_name):
        deleted = sum(int(entry.kind) for entry in entries)
        counts = (len(entries) - deleted, deleted)
        if counts != (meta.num_added_files, meta.num_deleted_files):
            raise CorruptTable(
                f"it adds {counts[0]} and deletes {counts[1]} files, {named_by} says {meta.num_added_files} and {meta.num_deleted_files}"
            )


def _verify_changes(store: TableStore, snapshot: Snapshot, findings: Findings) -> None:
    """What the snapshot added to the table, and to its changelog."""
    named_by = f"snapshot {snapshot.id}"
    with findings.rule("record-change", f"{named_by}: delta"), suppress(MissingFile, CorruptFile):  # which are reported already
        entries = _entries(store, snapshot.delta_manifest_list, named_by)
        change = sum(-entry.file.row_count if entry.kind is FileKind.DELETE else entry.file.row_count for entry in entries)
        if change != snapshot.delta_record_count:
            raise CorruptTable(f"deltaRecordCount is {snapshot.delta_record_count}, the files of the delta make it {change}")
    if snapshot.changelog_manifest_list is None:
        return
    changelog: tuple[ManifestEntry, ...] = ()
    with findings.rule("record-change", f"{named_by}: changelog"), suppress(MissingFile, CorruptFile):
        changelog = _entries(store, snapshot.changelog_manifest_list, named_by)
        rows = sum(entry.file.row_count for entry in changelog)
        if rows != (snapshot.changelog_record_count or 0):
            raise CorruptTable(f"changelogRecordCount is {snapshot.changelog_record_count}, the files of the changelog hold {rows} rows")
    for entry in changelog:
        with findings.rule("changelog-file", entry.file.file_name):
            path = store.layout.data_file_path(entry.partition, entry.bucket, entry.file)
            _open(store, path, entry.file, store.schema(entry.file.schema_id), store.schema(snapshot.schema_id))


def _entries(store: TableStore, list_name: str, named_by: str) -> tuple[ManifestEntry, ...]:
    metas = store.manifests.files_of(list_name, named_by)
    return tuple(entry for meta in metas for entry in store.manifests.entries(meta.file_name, list_name))


def _open(store: TableStore, path: str, file: DataFileMeta, written: TableSchema, read: TableSchema) -> None:
    """As far as opening a file tells, it is sound."""
    if file_format(file.file_name) in FORMATS:
        with open_data_file(store.storage, path, file, written, read):
            pass
    else:
        _check_size(store, path, file.file_size)


def _verify_bucket(
    store: TableStore, state: TableState, bucket: BucketState, schemas: Mapping[int, TableSchema], findings: Findings, deep: bool
) -> None:
    where = f"bucket {bucket.bucket}"
    if state.schema.partition_keys:
        where = f"partition {partition_json(state.schema, bucket.partition)} {where}"
    with findings.rule("bucket", where):
        if bucket.files and 0 < bucket.total_buckets <= bucket.bucket:
            raise CorruptTable(f"there are only {bucket.total_buckets} buckets")
    sound = [file for file in bucket.files if _verify_data_file(store, state, bucket, file, schemas, findings)]
    _verify_levels(state.schema, bucket, where, findings)
    for file in _index_files(bucket):
        with findings.rule("index-file", file.file_name):
            _check_size(store, store.layout.index_file_path(file, bucket.partition, bucket.bucket), file.file_size)
    _verify_deletions(store, bucket, findings)
    _verify_groups(store, state, bucket, where, findings)
    if deep:
        verify_contents(store, state, bucket, sound, where, findings)


def _verify_data_file(
    store: TableStore,
    state: TableState,
    bucket: BucketState,
    file: DataFileMeta,
    schemas: Mapping[int, TableSchema],
    findings: Findings,
) -> bool:
    """Whether the file can be read."""
    before = len(findings.problems)
    with findings.rule("data-file", file.file_name):
        path = store.layout.data_file_path(bucket.partition, bucket.bucket, file)
        if file.schema_id in schemas:
            _open(store, path, file, schemas[file.schema_id], state.schema)
        else:
            _check_size(store, path, file.file_size)
    for name in file.extra_files:
        with findings.rule("extra-file", name):
            path = store.layout.data_file_path(bucket.partition, bucket.bucket, name)
            if not store.storage.exists(path):
                raise MissingFile(f"{store.storage.display(path)}: there is no such file")
    return len(findings.problems) == before


def _verify_levels(schema: TableSchema, bucket: BucketState, where: str, findings: Findings) -> None:
    ranges: defaultdict[int, list[tuple[Any, Any, str]]] = defaultdict(list)
    for file in bucket.files:
        with findings.rule("key-range", file.file_name):
            smallest, largest = (order_keys(binary_row.deserialize(key, schema.key_types)) for key in (file.min_key, file.max_key))
            if smallest > largest:
                raise CorruptTable("its smallest key is above its largest")
            ranges[file.level].append((smallest, largest, file.file_name))
    for level, found in sorted(ranges.items()):
        if level == 0:
            continue
        with findings.rule("level", f"{where} level {level}"):
            found.sort(key=lambda each: (each[0], each[1]))
            for (_, largest, name), (smallest, _, following) in pairwise(found):
                if smallest <= largest:
                    raise CorruptTable(f"{name} and {following} overlap")


def _index_files(bucket: BucketState) -> Iterator[IndexFileMeta]:
    if bucket.deletion_file is not None:
        yield bucket.deletion_file
    yield from bucket.payloads
    yield from bucket.other_index_files


def _verify_deletions(store: TableStore, bucket: BucketState, findings: Findings) -> None:
    if bucket.deletion_file is None:
        return
    vectors = {}
    with findings.rule("deletion-vector", bucket.deletion_file.file_name):
        vectors = read_deletions(store.storage, store.layout, bucket.deletion_file, bucket.partition, bucket.bucket)
    for file in bucket.files:
        vector = vectors.get(file.file_name)
        if vector:
            with findings.rule("deletion-vector", f"{bucket.deletion_file.file_name}: {file.file_name}"):
                if vector.max() >= file.row_count:
                    raise CorruptTable(f"position {vector.max()} is deleted in a file of {file.row_count} rows")


def _verify_groups(store: TableStore, state: TableState, bucket: BucketState, where: str, findings: Findings) -> None:
    for payload in bucket.payloads:
        meta = payload.global_index
        if meta is None or meta.source_meta is None or payload.index_type not in SORTED:
            continue
        with findings.rule("index-group", payload.file_name):
            total = source_meta.decode(meta.source_meta).total_rows
            if (meta.row_range_start, meta.row_range_end, payload.row_count) != (0, total - 1, total):
                raise CorruptTable(
                    f"it has {payload.row_count} rows and row range [{meta.row_range_start}, {meta.row_range_end}], its sources hold {total}"
                )
    for definition in definitions(state.schema):
        if definition.family not in MAINTAINED:
            continue  # that its payloads are there is all that can be told
        groups = evaluate(bucket, definition)
        for payload, why in groups.stale:
            if not why.startswith("stale"):
                findings.add("index-group", payload.file_name, f"{where}, column {definition.column}: {why}")
        for level, payload in groups.active.items():
            with findings.rule("index-payload", payload.file_name):
                broken = open_group(store, bucket, groups, definition, level).verify()
                if broken:
                    raise CorruptTable("; ".join(broken))


def _check_size(store: TableStore, path: str, expected: int | None) -> None:
    size = store.storage.size(path)
    if expected is not None and size != expected:
        raise CorruptFile(f"it has {size} bytes, its metadata says {expected}", path=store.storage.display(path))
