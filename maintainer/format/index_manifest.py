"""Index manifests: all live index files of a snapshot (spec 01 §10; Java `IndexManifestEntrySerializer`, `IndexFileMetaSerializer`).

One Avro record for each file, `_VERSION` 1. `_DELETIONS_VECTORS_RANGES` of a deletion-vector file without vectors is an empty array and
not null; Java's writers fail on null there. `_GLOBAL_INDEX` is missing in files of Java 1.x, and has a seventh field `_BUILD_SCHEMA_ID` in
files of newer writers, which is kept: the wider schema is written where an entry has it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from maintainer.errors import CorruptFile, Unsupported
from maintainer.format import binary_row
from maintainer.format.avro import read_records, write_records
from maintainer.format.avro_schema import Schema
from maintainer.format.manifest import NAMESPACE, field, nullable
from maintainer.model.files import DeletionRange, FileKind, GlobalIndexMeta, IndexFileMeta, IndexManifestEntry

VERSION = 1

_RANGE: Schema = {
    "type": "record",
    "name": "record__DELETIONS_VECTORS_RANGES",
    "fields": [field("f0", "string"), field("f1", "int"), field("f2", "int"), field("_CARDINALITY", nullable("long"))],
}
_GLOBAL_INDEX_FIELDS = [
    field("_ROW_RANGE_START", "long"),
    field("_ROW_RANGE_END", "long"),
    field("_INDEX_FIELD_ID", "int"),
    field("_EXTRA_FIELD_IDS", nullable({"type": "array", "items": "int"})),
    field("_INDEX_META", nullable("bytes")),
    field("_SOURCE_META", nullable("bytes")),
]


def _schema(global_index_fields: list[Schema]) -> Schema:
    fields = [
        field("_VERSION", "int"),
        field("_KIND", "int"),
        field("_PARTITION", "bytes"),
        field("_BUCKET", "int"),
        field("_INDEX_TYPE", "string"),
        field("_FILE_NAME", "string"),
        field("_FILE_SIZE", "long"),
        field("_ROW_COUNT", "long"),
        field("_DELETIONS_VECTORS_RANGES", nullable({"type": "array", "items": ["null", _RANGE]})),
        field("_EXTERNAL_PATH", nullable("string")),
        field("_GLOBAL_INDEX", nullable({"type": "record", "name": "record__GLOBAL_INDEX", "fields": global_index_fields})),
    ]
    return {"type": "record", "name": "record", "namespace": NAMESPACE, "fields": fields}


SCHEMA = _schema(_GLOBAL_INDEX_FIELDS)
SCHEMA_WITH_BUILD_SCHEMA = _schema([*_GLOBAL_INDEX_FIELDS, field("_BUILD_SCHEMA_ID", nullable("long"))])

_KINDS = {0: FileKind.ADD, 1: FileKind.DELETE}


def decode(data: bytes) -> list[IndexManifestEntry]:
    return [_entry(record) for records in read_records(data, SCHEMA_WITH_BUILD_SCHEMA, "index manifest") for record in records]


def encode(entries: Iterable[IndexManifestEntry], compression: str = "zstd", level: int = 1) -> bytes:
    records = [_record(entry) for entry in entries]
    wide = any(record["_GLOBAL_INDEX"] and record["_GLOBAL_INDEX"]["_BUILD_SCHEMA_ID"] is not None for record in records)
    return write_records(SCHEMA_WITH_BUILD_SCHEMA if wide else SCHEMA, records, compression, level)


def _entry(record: dict[str, Any]) -> IndexManifestEntry:
    if record["_VERSION"] != VERSION:
        raise Unsupported(f"the index manifest has format version {record['_VERSION']}; version {VERSION} is supported")
    kind = _KINDS.get(record["_KIND"])
    if kind is None:
        raise CorruptFile(f"an index manifest entry has the kind {record['_KIND']}")
    binary_row.arity(record["_PARTITION"])
    ranges, global_index = record.get("_DELETIONS_VECTORS_RANGES"), record.get("_GLOBAL_INDEX")
    name, size, rows, bucket = record["_FILE_NAME"], record["_FILE_SIZE"], record["_ROW_COUNT"], record["_BUCKET"]
    if size < 0 or rows < 0 or not -2 <= bucket < 2**31:
        raise CorruptFile(f"the index manifest entry of {name!r} has {rows} rows in {size} bytes for bucket {bucket}")
    file = IndexFileMeta(
        record["_INDEX_TYPE"],
        name,
        size,
        rows,
        None if ranges is None else tuple(_range(member, name) for member in ranges),
        record.get("_EXTERNAL_PATH"),
        None if global_index is None else _global_index(global_index),
    )
    return IndexManifestEntry(kind, record["_PARTITION"], bucket, file)


def _range(record: dict[str, Any] | None, name: str) -> DeletionRange:
    if record is None or record["f1"] < 0 or record["f2"] < 0:
        raise CorruptFile(f"the index manifest entry of {name!r} has the deletion vector range {record}")
    return DeletionRange(record["f0"], record["f1"], record["f2"], record.get("_CARDINALITY"))


def _global_index(record: dict[str, Any]) -> GlobalIndexMeta:
    extra = record.get("_EXTRA_FIELD_IDS")
    return GlobalIndexMeta(
        record["_ROW_RANGE_START"],
        record["_ROW_RANGE_END"],
        record["_INDEX_FIELD_ID"],
        None if extra is None else tuple(extra),
        record.get("_INDEX_META"),
        record.get("_SOURCE_META"),
        record.get("_BUILD_SCHEMA_ID"),
    )


def _record(entry: IndexManifestEntry) -> dict[str, Any]:
    file, index = entry.file, entry.file.global_index
    ranges = file.deletion_ranges
    return {
        "_VERSION": VERSION,
        "_KIND": int(entry.kind),
        "_PARTITION": entry.partition,
        "_BUCKET": entry.bucket,
        "_INDEX_TYPE": file.index_type,
        "_FILE_NAME": file.file_name,
        "_FILE_SIZE": file.file_size,
        "_ROW_COUNT": file.row_count,
        "_DELETIONS_VECTORS_RANGES": None
        if ranges is None
        else [{"f0": r.data_file, "f1": r.offset, "f2": r.length, "_CARDINALITY": r.cardinality} for r in ranges],
        "_EXTERNAL_PATH": file.external_path,
        "_GLOBAL_INDEX": None
        if index is None
        else {
            "_ROW_RANGE_START": index.row_range_start,
            "_ROW_RANGE_END": index.row_range_end,
            "_INDEX_FIELD_ID": index.index_field_id,
            "_EXTRA_FIELD_IDS": None if index.extra_field_ids is None else list(index.extra_field_ids),
            "_INDEX_META": index.index_meta,
            "_SOURCE_META": index.source_meta,
            "_BUILD_SCHEMA_ID": index.build_schema_id,
        },
    }
