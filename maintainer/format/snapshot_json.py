"""Snapshot, changelog and tag files (spec 01 §5.1, §6; Java `org.apache.paimon.Snapshot`, `org.apache.paimon.tag.Tag`): JSON.

Optional members are absent, never null. Java fails on a `commitKind` that it does not know, but ignores unknown members; they are kept.
"""

from __future__ import annotations

from maintainer.errors import Unsupported
from maintainer.format.json_document import Document, dump
from maintainer.model.snapshot import CommitKind, Snapshot

VERSION = 3


def decode(data: bytes) -> Snapshot:
    return _decode(data, "snapshot")


def decode_tag(data: bytes) -> Snapshot:
    """The snapshot that a tag keeps; `tagCreateTime` and `tagTimeRetained`, if the tag has them, are in its `extra`."""
    return _decode(data, "tag")


def encode(snapshot: Snapshot) -> bytes:
    return dump(
        {
            "version": snapshot.version,
            "uuid": snapshot.uuid,
            "id": snapshot.id,
            "schemaId": snapshot.schema_id,
            "baseManifestList": snapshot.base_manifest_list,
            "baseManifestListSize": snapshot.base_manifest_list_size,
            "deltaManifestList": snapshot.delta_manifest_list,
            "deltaManifestListSize": snapshot.delta_manifest_list_size,
            "changelogManifestList": snapshot.changelog_manifest_list,
            "changelogManifestListSize": snapshot.changelog_manifest_list_size,
            "indexManifest": snapshot.index_manifest,
            "commitUser": snapshot.commit_user,
            "writerVersion": snapshot.writer_version,
            "commitIdentifier": snapshot.commit_identifier,
            "commitKind": str(snapshot.commit_kind),
            "timeMillis": snapshot.time_millis,
            "totalRecordCount": snapshot.total_record_count,
            "deltaRecordCount": snapshot.delta_record_count,
            "changelogRecordCount": snapshot.changelog_record_count,
            "watermark": snapshot.watermark,
            "statistics": snapshot.statistics,
            "properties": dict(snapshot.properties) if snapshot.properties else None,
            "nextRowId": snapshot.next_row_id,
            "operation": snapshot.operation,
            **snapshot.extra,
        }
    )


def _decode(data: bytes, what: str) -> Snapshot:
    document = Document(data, what)
    version = document.take("version", int, 1)
    if version > VERSION:
        raise Unsupported(f"the {what} has format version {version}; versions up to {VERSION} are supported")
    kind = document.take("commitKind", str)
    if kind not in CommitKind.__members__:
        raise Unsupported(f"the {what} has the unknown commit kind {kind!r}")
    return Snapshot(
        id=document.take("id", int),
        schema_id=document.take("schemaId", int),
        base_manifest_list=document.take("baseManifestList", str),
        delta_manifest_list=document.take("deltaManifestList", str),
        commit_user=document.take("commitUser", str),
        commit_identifier=document.take("commitIdentifier", int),
        commit_kind=CommitKind(kind),
        time_millis=document.take("timeMillis", int),
        total_record_count=document.take("totalRecordCount", int),
        delta_record_count=document.take("deltaRecordCount", int),
        base_manifest_list_size=document.take("baseManifestListSize", int, None),
        delta_manifest_list_size=document.take("deltaManifestListSize", int, None),
        changelog_manifest_list=document.take("changelogManifestList", str, None),
        changelog_manifest_list_size=document.take("changelogManifestListSize", int, None),
        changelog_record_count=document.take("changelogRecordCount", int, None),
        index_manifest=document.take("indexManifest", str, None),
        watermark=document.take("watermark", int, None),
        statistics=document.take("statistics", str, None),
        properties=document.take_text_map("properties", None),
        next_row_id=document.take("nextRowId", int, None),
        operation=document.take("operation", str, None),
        writer_version=document.take("writerVersion", str, None),
        uuid=document.take("uuid", str, None),
        version=version,
        extra=document.members,
    )
