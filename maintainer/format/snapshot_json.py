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
    version = document.take_if_present("version", int)
    version = 1 if version is None else version
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
        base_manifest_list_size=document.take_if_present("baseManifestListSize", int),
        delta_manifest_list_size=document.take_if_present("deltaManifestListSize", int),
        changelog_manifest_list=document.take_if_present("changelogManifestList", str),
        changelog_manifest_list_size=document.take_if_present("changelogManifestListSize", int),
        changelog_record_count=document.take_if_present("changelogRecordCount", int),
        index_manifest=document.take_if_present("indexManifest", str),
        watermark=document.take_if_present("watermark", int),
        statistics=document.take_if_present("statistics", str),
        properties=document.take_text_map("properties"),
        next_row_id=document.take_if_present("nextRowId", int),
        operation=document.take_if_present("operation", str),
        writer_version=document.take_if_present("writerVersion", str),
        uuid=document.take_if_present("uuid", str),
        version=version,
        extra=document.members,
    )
