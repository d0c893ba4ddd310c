"""Every snapshot of every table that Java wrote: live files, deletion vectors and index files of each bucket as Java lists them."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import pytest

from maintainer.data.values import json_value
from maintainer.errors import UsageError
from maintainer.format import binary_row, index_manifest, source_meta
from maintainer.model.files import DELETION_VECTORS, BucketKey, DataFileMeta, IndexFileMeta
from maintainer.model.schema import TableSchema
from maintainer.table.opening import open_store
from maintainer.table.state import TableState, load_state
from maintainer.table.store import TableStore
from tests.support.java_cases import CASES, java_case

TABLES = [(path.name.removesuffix(".tar.gz").removesuffix(".after"), ".after." in path.name) for path in sorted(CASES.glob("*.tar.gz"))]
NAMES = sorted({name for name, _ in TABLES})
Bucket = tuple[str, int]
"""A bucket as Java's lists name it: its partition as JSON text, and its number."""


@lru_cache
def opened(name: str, after: bool = False, branch: str | None = None) -> TableStore:
    return open_store(str(java_case(name, after).directory), branch=branch)


@lru_cache
def states(name: str, after: bool) -> list[tuple[dict[str, Any], TableState]]:
    """Java's lists and our state, of each snapshot that is still there."""
    store = opened(name, after)
    there = set(store.snapshot_ids())
    members = (expected for expected in java_case(name).json["snapshots"] if expected["id"] in there)
    return [(expected, load_state(store, store.snapshot(expected["id"]))) for expected in members]


def values(row: bytes, schema: TableSchema, names: Sequence[str]) -> list[Any]:
    types = schema.types_of(tuple(names))
    return [json_value(value, data_type) for value, data_type in zip(binary_row.deserialize(row, types), types, strict=True)]


def bucket_name(key: BucketKey, schema: TableSchema) -> Bucket:
    partition = dict(zip(schema.partition_keys, values(key.partition, schema, schema.partition_keys), strict=True))
    return json.dumps(partition, sort_keys=True), key.bucket


def java_name(member: dict[str, Any]) -> Bucket:
    return json.dumps(member["partition"], sort_keys=True), member["bucket"]


def described(file: DataFileMeta, schema: TableSchema) -> dict[str, Any]:
    keys = schema.trimmed_primary_keys
    described = {
        "name": file.file_name,
        "level": file.level,
        "rowCount": file.row_count,
        "fileSize": file.file_size,
        "fileSource": None if file.file_source is None else file.file_source.name,
        "minSequenceNumber": file.min_sequence_number,
        "maxSequenceNumber": file.max_sequence_number,
        "deleteRowCount": file.delete_row_count,
        "schemaId": file.schema_id,
        "extraFiles": list(file.extra_files),
    }
    if keys:
        described |= {"minKey": values(file.min_key, schema, keys), "maxKey": values(file.max_key, schema, keys)}
    return described


def by_name(files: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(files, key=lambda file: file["name"])


@pytest.mark.parametrize(("name", "after"), TABLES)
def test_the_state_of_every_snapshot_is_as_java_lists_it(name: str, after: bool) -> None:
    assert states(name, after) or name == "empty_table"
    check_live_files(name, after)
    check_totals(name, after)
    check_delta(name, after)
    check_deletion_vectors(name, after)
    check_index_groups(name, after)
    check_following_states(name, after)


def check_live_files(name: str, after: bool) -> None:
    for expected, state in states(name, after):
        schema = state.schema
        ours = {
            bucket_name(key, schema): (bucket.total_buckets, by_name(described(file, schema) for file in bucket.files))
            for key, bucket in state.buckets.items()
            if bucket.files
        }
        java = {java_name(bucket): (bucket["totalBuckets"], bucket["files"]) for bucket in expected["buckets"]}
        for where, (total, files) in java.items():
            assert ours[where][0] == total
            wanted = by_name({key: file.get(key) for key in ours[where][1][0]} for file in files)
            assert ours[where][1] == wanted
        assert ours.keys() == java.keys()


def check_totals(name: str, after: bool) -> None:
    for expected, state in states(name, after):
        snapshot = state.snapshot
        assert snapshot.commit_kind == expected["commitKind"]
        assert snapshot.schema_id == expected["schemaId"]
        assert snapshot.total_record_count == expected["totalRecordCount"] == sum(file.row_count for file in state.files())
        assert snapshot.delta_record_count == expected["deltaRecordCount"]
        assert snapshot.changelog_record_count == expected.get("changelogRecordCount")
        assert snapshot.next_row_id == expected.get("nextRowId")


def check_delta(name: str, after: bool) -> None:
    for expected, state in states(name, after):
        delta = [
            (str(entry.kind.name), entry.file.file_name, entry.file.level, bucket_name(entry.bucket_key, state.schema))
            for entry in opened(name, after).manifests.delta_entries(state.snapshot)
        ]
        java = [(entry["kind"], entry["file"], entry["level"], java_name(entry)) for entry in expected.get("delta", [])]
        assert sorted(delta) == sorted(java)


def check_deletion_vectors(name: str, after: bool) -> None:
    for expected, state in states(name, after):
        if not state.schema.primary_keys:
            continue
        ours = {
            bucket_name(key, state.schema): (file.file_name, file.file_size, file.row_count, len(file.deletion_ranges or ()))
            for key, bucket in state.buckets.items()
            if (file := bucket.deletion_file) is not None
        }
        java = {
            java_name(file): (file["file"], file["size"], file["rowCount"], file["ranges"]) for file in expected.get("deletionVectorFiles", [])
        }
        assert ours == java
        vectors = {
            (vector.data_file, vector.cardinality)
            for bucket in state.buckets.values()
            if bucket.deletion_file is not None
            for vector in bucket.deletion_file.deletion_ranges or ()
        }
        assert vectors == {(vector["dataFile"], len(vector["positions"])) for vector in expected.get("deletionVectors", [])}


def check_index_groups(name: str, after: bool) -> None:
    for expected, state in states(name, after):
        files = [
            (bucket_name(key, state.schema), file)
            for key, bucket in state.buckets.items()
            for file in (*bucket.payloads, *bucket.other_index_files)
            if file.index_type != DELETION_VECTORS
        ]
        ours = sorted((payload(where, file) for where, file in files), key=str)
        assert ours == sorted((java_payload(group) for group in expected.get("indexGroups", [])), key=str)


def payload(where: Bucket, file: IndexFileMeta) -> tuple[Any, ...]:
    index = file.global_index
    assert index is not None
    rows = [index.row_range_start, index.row_range_end]
    sources = None
    if source_meta.is_source_meta(index.source_meta):
        assert index.source_meta is not None
        meta = source_meta.decode(index.source_meta)
        sources = (meta.level, [name for name, _ in meta.files])
    return where, file.index_type, file.file_name, file.file_size, file.row_count, index.index_field_id, rows, index.index_meta, sources


def java_payload(group: dict[str, Any]) -> tuple[Any, ...]:
    meta = None if group.get("indexMeta") is None else base64.b64decode(group["indexMeta"])
    sources = None
    if "level" in group:
        sources = (group["level"], [source["file"] for source in group["sourceFiles"]])
    size, rows = group["fileSize"], group["rowCount"]
    return java_name(group), group["type"], group["file"], size, rows, group["fieldId"], group["rowRange"], meta, sources


def check_following_states(name: str, after: bool) -> None:
    """A state that follows another is the same as one read alone."""
    store = opened(name, after)
    previous: list[TableState] = []
    for _, state in states(name, after):
        for earlier in previous[-3:]:
            following = load_state(store, state.snapshot, earlier)
            assert comparable(following) == comparable(state)
        previous.append(state)


def comparable(state: TableState) -> dict[BucketKey, Any]:
    """The state without the order of files."""
    return {
        key: (
            bucket.total_buckets if bucket.files else None,
            sorted(bucket.files, key=lambda file: file.file_name),
            bucket.deletion_file,
            bucket.payloads,
            bucket.other_index_files,
        )
        for key, bucket in state.buckets.items()
    }


@pytest.mark.parametrize("name", NAMES)
def test_latest_and_earliest(name: str) -> None:
    case = java_case(name, after=(name, True) in TABLES)
    store = open_store(str(case.directory))
    assert store.latest_snapshot_id() == (case.json.get("latestSnapshot") or None)
    assert store.snapshot_ids()[:1] == ((case.json["earliestSnapshot"],) if case.json.get("earliestSnapshot") else ())


def test_a_tag_of_an_expired_snapshot_can_be_read() -> None:
    store = opened("expired")
    tag = store.tag("keep")
    assert tag.id == 4 and store.find_snapshot(4) is None
    state = load_state(store, tag, schema=store.schema_of(tag))
    assert sum(file.row_count for file in state.files()) == tag.total_record_count
    with pytest.raises(UsageError, match="there is no snapshot 4; there are 6 to 8"):
        store.snapshot(4)


def test_tags_and_branches() -> None:
    expected = java_case("tags_branches").json
    store = opened("tags_branches")
    assert {name: store.tag(name).id for name in store.tag_names()} == {name: tag["snapshot"] for name, tag in expected["tags"].items()}
    with pytest.raises(UsageError, match="there is no tag 'x'; the tags are: t1, t2"):
        store.tag("x")
    for name, branch in expected["branches"].items():
        store = opened("tags_branches", branch=name)
        latest = store.latest_snapshot()
        assert latest is not None and latest.id == branch["latestSnapshot"]
        assert store.snapshot_ids()[0] == branch["earliestSnapshot"]
        state = load_state(store, latest)
        assert sum(file.row_count for file in state.files()) == latest.total_record_count


def test_time_travel_by_commit_time() -> None:
    store = opened("manifest_merging")
    snapshots = [store.snapshot(snapshot_id) for snapshot_id in store.snapshot_ids()]
    for snapshot in snapshots:
        found = store.snapshot_as_of(snapshot.time_millis)
        assert found is not None
        assert found.id == max(other.id for other in snapshots if other.time_millis <= snapshot.time_millis)
    assert store.snapshot_as_of(snapshots[0].time_millis - 1) is None
    assert store.snapshot_as_of(2**62) == snapshots[-1]


def test_index_manifests_only_add() -> None:
    for name, after in TABLES:
        for path in java_case(name, after).directory.glob("manifest/index-manifest-*"):
            assert all(entry.kind.name == "ADD" for entry in index_manifest.decode(path.read_bytes()))
