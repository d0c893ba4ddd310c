"""Snapshot and tag files."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maintainer.errors import CorruptFile, Unsupported
from maintainer.format import snapshot_json
from maintainer.model.snapshot import BATCH_IDENTIFIER, CommitKind
from tests.support import strategies

REQUIRED: dict[str, Any] = {
    "version": 3,
    "id": 4,
    "schemaId": 1,
    "baseManifestList": "manifest-list-a-0",
    "deltaManifestList": "manifest-list-a-1",
    "commitUser": "user",
    "commitIdentifier": BATCH_IDENTIFIER,
    "commitKind": "COMPACT",
    "timeMillis": 1795986726734,
    "totalRecordCount": 19,
    "deltaRecordCount": -3,
}
OPTIONAL: dict[str, Any] = {
    "uuid": "78ac0e0d-7c59-4be4-aea3-1cea3afca990",
    "baseManifestListSize": 1006,
    "deltaManifestListSize": 1109,
    "changelogManifestList": "manifest-list-a-2",
    "changelogManifestListSize": 5,
    "changelogRecordCount": 6,
    "indexManifest": "index-manifest-a-0",
    "writerVersion": "python-2.1.0",
    "watermark": -(2**63),
    "statistics": "stat-a-0",
    "properties": {"k": "v"},
    "nextRowId": 0,
    "operation": "WRITE",
}


def encoded(**changes: Any) -> bytes:
    return json.dumps({key: value for key, value in {**REQUIRED, **changes}.items() if value is not ...}).encode()


def test_only_required_members() -> None:
    snapshot = snapshot_json.decode(encoded())
    assert snapshot.id == 4
    assert snapshot.commit_kind is CommitKind.COMPACT
    assert snapshot.uuid is None
    assert snapshot.next_row_id is None
    assert json.loads(snapshot_json.encode(snapshot)) == REQUIRED


def test_all_members_and_unknown_ones_survive() -> None:
    document = {**REQUIRED, **OPTIONAL, "later": {"a": [1, {"b": 2}]}}
    snapshot = snapshot_json.decode(json.dumps(document).encode())
    assert snapshot.extra == {"later": {"a": [1, {"b": 2}]}}
    assert json.loads(snapshot_json.encode(snapshot)) == document


def test_explicit_nulls_are_absent_and_never_written() -> None:
    snapshot = snapshot_json.decode(encoded(**dict.fromkeys(OPTIONAL)))
    assert json.loads(snapshot_json.encode(snapshot)) == REQUIRED


def test_empty_properties_are_not_written() -> None:
    assert b"properties" not in snapshot_json.encode(snapshot_json.decode(encoded(properties={})))


def test_missing_version_is_the_first() -> None:
    assert snapshot_json.decode(encoded(version=...)).version == 1


def test_newer_version_is_unsupported() -> None:
    with pytest.raises(Unsupported, match="version 4"):
        snapshot_json.decode(encoded(version=4))


@pytest.mark.parametrize("kind", ["MERGE", "compact", ""])
def test_unknown_commit_kind_is_unsupported(kind: str) -> None:
    with pytest.raises(Unsupported, match=f"'{kind}'"):
        snapshot_json.decode(encoded(commitKind=kind))


@pytest.mark.parametrize("name", [name for name in REQUIRED if name != "version"])
@pytest.mark.parametrize("value", [..., None, [], {}, 1.5])
def test_missing_or_wrong_required_member_is_corrupt(name: str, value: Any) -> None:
    with pytest.raises(CorruptFile, match=name):
        snapshot_json.decode(encoded(**{name: value}))


@pytest.mark.parametrize("name", OPTIONAL)
@pytest.mark.parametrize("value", [[], 1.5, True])
def test_wrong_optional_member_is_corrupt(name: str, value: Any) -> None:
    with pytest.raises(CorruptFile, match=name):
        snapshot_json.decode(encoded(**{name: value}))


def test_property_that_is_not_a_text_is_corrupt() -> None:
    with pytest.raises(CorruptFile, match="sequence"):
        snapshot_json.decode(encoded(properties={"sequence": 5}))


def test_tag_keeps_its_own_members() -> None:
    tag = {**REQUIRED, "tagCreateTime": [2026, 1, 2, 3, 4, 5, 6], "tagTimeRetained": 86400.0}
    snapshot = snapshot_json.decode_tag(json.dumps(tag).encode())
    assert snapshot.id == 4
    assert snapshot.extra == {"tagCreateTime": [2026, 1, 2, 3, 4, 5, 6], "tagTimeRetained": 86400.0}
    with pytest.raises(CorruptFile, match="tag"):
        snapshot_json.decode_tag(b"{}")


@given(st.data())
def test_mutated_bytes_decode_or_are_refused(data: st.DataObject) -> None:
    mutated = data.draw(strategies.mutated(encoded(**OPTIONAL)))
    try:
        snapshot = snapshot_json.decode(mutated)
    except (CorruptFile, Unsupported):
        return
    assert snapshot_json.decode(snapshot_json.encode(snapshot)) == snapshot


def test_truncated_bytes_are_corrupt() -> None:
    data = encoded(**OPTIONAL)
    for size in range(len(data)):
        with pytest.raises(CorruptFile):
            snapshot_json.decode(data[:size])
