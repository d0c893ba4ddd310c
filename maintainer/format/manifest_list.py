"""Manifest lists: the manifests that make up a state, or a change, of a table (spec 01 §8; Java `ManifestFileMetaSerializer`).

One Avro record for each manifest, `_VERSION` 2. Newer nullable fields (`_TOTAL_BUCKETS`, `_EXTRA_FILES`) are skipped when reading and left
out when writing, which every reader accepts.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from maintainer.errors import CorruptFile
from maintainer.format.avro import read_records, write_records
from maintainer.format.avro_schema import Schema
from maintainer.format.manifest import NAMESPACE, VERSION, check_version, field, nullable, stats_fields, stats_of, stats_record
from maintainer.model.files import ManifestFileMeta

SCHEMA: Schema = {
    "type": "record",
    "name": "record",
    "namespace": NAMESPACE,
    "fields": [
        field("_VERSION", "int"),
        field("_FILE_NAME", "string"),
        field("_FILE_SIZE", "long"),
        field("_NUM_ADDED_FILES", "long"),
        field("_NUM_DELETED_FILES", "long"),
        field("_PARTITION_STATS", stats_record("record__PARTITION_STATS")),
        field("_SCHEMA_ID", "long"),
        field("_MIN_BUCKET", nullable("int")),
        field("_MAX_BUCKET", nullable("int")),
        field("_MIN_LEVEL", nullable("int")),
        field("_MAX_LEVEL", nullable("int")),
        field("_MIN_ROW_ID", nullable("long")),
        field("_MAX_ROW_ID", nullable("long")),
    ],
}


def decode(data: bytes) -> list[ManifestFileMeta]:
    """The manifests in file order, which is the order in which their entries apply."""
    return [_meta(record) for records in read_records(data, SCHEMA, "manifest list") for record in records]


def encode(manifests: Iterable[ManifestFileMeta], compression: str = "zstd", level: int = 1) -> bytes:
    return write_records(SCHEMA, [_record(meta) for meta in manifests], compression, level)


def _meta(record: dict[str, Any]) -> ManifestFileMeta:
    check_version(record["_VERSION"], VERSION, "manifest list")
    size, added, deleted = record["_FILE_SIZE"], record["_NUM_ADDED_FILES"], record["_NUM_DELETED_FILES"]
    if size < 0 or added < 0 or deleted < 0:
        raise CorruptFile(f"the manifest {record['_FILE_NAME']!r} has {added} + {deleted} entries in {size} bytes")
    return ManifestFileMeta(
        record["_FILE_NAME"],
        size,
        added,
        deleted,
        stats_of(record["_PARTITION_STATS"]),
        record["_SCHEMA_ID"],
        record.get("_MIN_BUCKET"),
        record.get("_MAX_BUCKET"),
        record.get("_MIN_LEVEL"),
        record.get("_MAX_LEVEL"),
        record.get("_MIN_ROW_ID"),
        record.get("_MAX_ROW_ID"),
    )


def _record(meta: ManifestFileMeta) -> dict[str, Any]:
    return {
        "_VERSION": VERSION,
        "_FILE_NAME": meta.file_name,
        "_FILE_SIZE": meta.file_size,
        "_NUM_ADDED_FILES": meta.num_added_files,
        "_NUM_DELETED_FILES": meta.num_deleted_files,
        "_PARTITION_STATS": stats_fields(meta.partition_stats),
        "_SCHEMA_ID": meta.schema_id,
        "_MIN_BUCKET": meta.min_bucket,
        "_MAX_BUCKET": meta.max_bucket,
        "_MIN_LEVEL": meta.min_level,
        "_MAX_LEVEL": meta.max_level,
        "_MIN_ROW_ID": meta.min_row_id,
        "_MAX_ROW_ID": meta.max_row_id,
    }
