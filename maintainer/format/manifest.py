"""Manifests: the data files that snapshots added and deleted (spec 01 §9; Java `ManifestEntrySerializer`, `DataFileMetaSerializer`).

One Avro record for each entry: `_VERSION` 2, `_KIND`, `_PARTITION`, `_BUCKET`, `_TOTAL_BUCKETS` and the record `_FILE`. Java 2.1 demands
exactly these six fields in this order at the top, and finds those of `_FILE` by name. We write the 20 fields of `_FILE` that every reader
knows, and the 21st (`_WRITE_COLS_SEQUENCES`) only where an entry has it.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable
from typing import Any

from maintainer.errors import CorruptFile, Unsupported
from maintainer.format import binary_row
from maintainer.format.avro import read_records, write_records
from maintainer.format.avro_schema import Schema
from maintainer.format.file_rows import check_file, file_source
from maintainer.model.files import DataFileMeta, FileKind, ManifestEntry, SimpleStats

VERSION = 2
NAMESPACE = "org.apache.paimon.avro.generated"


def nullable(schema: Schema) -> Schema:
    return ["null", schema]


def field(name: str, schema: Schema) -> Schema:
    """A field of a record; a nullable one has the default null, as Java writes it."""
    return {"name": name, "type": schema, "default": None} if isinstance(schema, list) else {"name": name, "type": schema}


def stats_record(name: str) -> Schema:
    fields = [
        field("_MIN_VALUES", "bytes"),
        field("_MAX_VALUES", "bytes"),
        field("_NULL_COUNTS", nullable({"type": "array", "items": ["null", "long"]})),
    ]
    return {"type": "record", "name": name, "fields": fields}


_FILE_FIELDS = [
    field("_FILE_NAME", "string"),
    field("_FILE_SIZE", "long"),
    field("_ROW_COUNT", "long"),
    field("_MIN_KEY", "bytes"),
    field("_MAX_KEY", "bytes"),
    field("_KEY_STATS", stats_record("record__FILE__KEY_STATS")),
    field("_VALUE_STATS", stats_record("record__FILE__VALUE_STATS")),
    field("_MIN_SEQUENCE_NUMBER", "long"),
    field("_MAX_SEQUENCE_NUMBER", "long"),
    field("_SCHEMA_ID", "long"),
    field("_LEVEL", "int"),
    field("_EXTRA_FILES", {"type": "array", "items": "string"}),
    field("_CREATION_TIME", nullable({"type": "long", "logicalType": "timestamp-millis"})),
    field("_DELETE_ROW_COUNT", nullable("long")),
    field("_EMBEDDED_FILE_INDEX", nullable("bytes")),
    field("_FILE_SOURCE", nullable("int")),
    field("_VALUE_STATS_COLS", nullable({"type": "array", "items": "string"})),
    field("_EXTERNAL_PATH", nullable("string")),
    field("_FIRST_ROW_ID", nullable("long")),
    field("_WRITE_COLS", nullable({"type": "array", "items": "string"})),
]


def _schema(file_fields: list[Schema]) -> Schema:
    fields = [
        field("_VERSION", "int"),
        field("_KIND", "int"),
        field("_PARTITION", "bytes"),
        field("_BUCKET", "int"),
        field("_TOTAL_BUCKETS", "int"),
        field("_FILE", {"type": "record", "name": "record__FILE", "fields": file_fields}),
    ]
    return {"type": "record", "name": "record", "namespace": NAMESPACE, "fields": fields}


SCHEMA = _schema(_FILE_FIELDS)
SCHEMA_WITH_SEQUENCES = _schema([*_FILE_FIELDS, field("_WRITE_COLS_SEQUENCES", nullable({"type": "array", "items": "long"}))])

_KINDS = {0: FileKind.ADD, 1: FileKind.DELETE}


def decode(data: bytes) -> list[ManifestEntry]:
    """The entries in file order."""
    partitions: dict[bytes, bytes] = {}
    collecting = gc.isenabled()
    gc.disable()  # many small objects and no cycles: without the collector's passes over them decoding takes half the time
    try:
        return [_entry(record, partitions) for records in read_records(data, SCHEMA_WITH_SEQUENCES, "manifest") for record in records]
    finally:
        if collecting:
            gc.enable()


def encode(entries: Iterable[ManifestEntry], compression: str = "zstd", level: int = 1) -> bytes:
    records = [_record(entry) for entry in entries]
    wide = any(record["_FILE"]["_WRITE_COLS_SEQUENCES"] is not None for record in records)
    return write_records(SCHEMA_WITH_SEQUENCES if wide else SCHEMA, records, compression, level)


def check_version(version: int, supported: int, what: str) -> None:
    """Java `VersionedObjectSerializer`: version 1 is of a release before 0.4, which nobody can read any more."""
    if version == supported:
        return
    if version == 1:
        raise Unsupported(f"the {what} has format version 1: the table was written by a release before 0.4, recreate it")
    raise Unsupported(f"the {what} has format version {version}; version {supported} is supported")


def stats_of(record: dict[str, Any]) -> SimpleStats:
    counts = record.get("_NULL_COUNTS")
    return SimpleStats(record["_MIN_VALUES"], record["_MAX_VALUES"], None if counts is None else tuple(counts))


def stats_fields(stats: SimpleStats) -> dict[str, Any]:
    return {
        "_MIN_VALUES": stats.min_values,
        "_MAX_VALUES": stats.max_values,
        "_NULL_COUNTS": None if stats.null_counts is None else list(stats.null_counts),
    }


def _entry(record: dict[str, Any], partitions: dict[bytes, bytes]) -> ManifestEntry:
    """`partitions` are those seen so far: entries of a partition share its bytes, which are checked once."""
    if record["_VERSION"] != VERSION:
        check_version(record["_VERSION"], VERSION, "manifest")
    kind = _KINDS.get(record["_KIND"])
    if kind is None:
        raise CorruptFile(f"a manifest entry has the kind {record['_KIND']}")
    bucket, total_buckets = record["_BUCKET"], record["_TOTAL_BUCKETS"]
    partition = partitions.get(record["_PARTITION"])
    if partition is None:
        partition = partitions[record["_PARTITION"]] = record["_PARTITION"]
        binary_row.arity(partition)
    if not (-2 <= bucket < 2**31 and -2 <= total_buckets < 2**31):
        raise CorruptFile(f"a manifest entry has the bucket {bucket} of {total_buckets}")
    return ManifestEntry(kind, partition, bucket, total_buckets, _file(record["_FILE"]))


def _file(record: dict[str, Any]) -> DataFileMeta:
    get = record.get
    name, size, rows, level = record["_FILE_NAME"], record["_FILE_SIZE"], record["_ROW_COUNT"], record["_LEVEL"]
    stats_cols, write_cols, sequences = get("_VALUE_STATS_COLS"), get("_WRITE_COLS"), get("_WRITE_COLS_SEQUENCES")
    return DataFileMeta(
        name,
        size,
        rows,
        record["_MIN_KEY"],
        record["_MAX_KEY"],
        stats_of(record["_KEY_STATS"]),
        stats_of(record["_VALUE_STATS"]),
        record["_MIN_SEQUENCE_NUMBER"],
        record["_MAX_SEQUENCE_NUMBER"],
        record["_SCHEMA_ID"],
        check_file(name, size, rows, level),
        tuple(record["_EXTRA_FILES"]),
        get("_CREATION_TIME"),
        get("_DELETE_ROW_COUNT"),
        get("_EMBEDDED_FILE_INDEX"),
        file_source(get("_FILE_SOURCE"), name),
        None if stats_cols is None else tuple(stats_cols),
        get("_EXTERNAL_PATH"),
        get("_FIRST_ROW_ID"),
        None if write_cols is None else tuple(write_cols),
        None if sequences is None else tuple(sequences),
    )


def _record(entry: ManifestEntry) -> dict[str, Any]:
    file = entry.file
    return {
        "_VERSION": VERSION,
        "_KIND": int(entry.kind),
        "_PARTITION": entry.partition,
        "_BUCKET": entry.bucket,
        "_TOTAL_BUCKETS": entry.total_buckets,
        "_FILE": {
            "_FILE_NAME": file.file_name,
            "_FILE_SIZE": file.file_size,
            "_ROW_COUNT": file.row_count,
            "_MIN_KEY": file.min_key,
            "_MAX_KEY": file.max_key,
            "_KEY_STATS": stats_fields(file.key_stats),
            "_VALUE_STATS": stats_fields(file.value_stats),
            "_MIN_SEQUENCE_NUMBER": file.min_sequence_number,
            "_MAX_SEQUENCE_NUMBER": file.max_sequence_number,
            "_SCHEMA_ID": file.schema_id,
            "_LEVEL": file.level,
            "_EXTRA_FILES": list(file.extra_files),
            "_CREATION_TIME": file.creation_time,
            "_DELETE_ROW_COUNT": file.delete_row_count,
            "_EMBEDDED_FILE_INDEX": file.embedded_file_index,
            "_FILE_SOURCE": None if file.file_source is None else int(file.file_source),
            "_VALUE_STATS_COLS": None if file.value_stats_cols is None else list(file.value_stats_cols),
            "_EXTERNAL_PATH": file.external_path,
            "_FIRST_ROW_ID": file.first_row_id,
            "_WRITE_COLS": None if file.write_cols is None else list(file.write_cols),
            "_WRITE_COLS_SEQUENCES": None if file.write_cols_sequences is None else list(file.write_cols_sequences),
        },
    }
