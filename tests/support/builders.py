"""Small builders, so that a test case reads as data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

from maintainer.format import binary_row, data_type
from maintainer.model.files import (
    DELETION_VECTORS,
    EMPTY_ROW,
    DataFileMeta,
    DeletionRange,
    FileKind,
    FileSource,
    GlobalIndexMeta,
    IndexFileMeta,
    IndexManifestEntry,
    ManifestEntry,
    SimpleStats,
)
from maintainer.model.schema import TableSchema
from maintainer.model.types import DataField, DataType

Columns = Mapping[str, str | DataType]


def type_(text: str) -> DataType:
    """A type from its SQL text; members of ROWs get the ids 1, 2, …"""
    return data_type.assign_ids(data_type.parse(text), 0)[0]


def types(*texts: str) -> tuple[DataType, ...]:
    return tuple(type_(text) for text in texts)


def schema(
    columns: Columns | None = None,
    primary_keys: Sequence[str] | None = None,
    partition_keys: Sequence[str] = (),
    options: Mapping[str, str] | None = None,
    schema_id: int = 0,
) -> TableSchema:
    """A schema with ids as Java gives them. Default: `id INT` as key, `name STRING`; without options one bucket with deletion vectors."""
    columns = columns or {"id": "INT", "name": "STRING"}
    keys = tuple(next(iter(columns)) for _ in "1") if primary_keys is None else tuple(primary_keys)
    fields: list[DataField] = []
    highest = -1
    for name, text in columns.items():
        field_id = highest + 1
        column, highest = data_type.assign_ids(data_type.parse(text) if isinstance(text, str) else text, field_id)
        fields.append(DataField(field_id, name, column.with_nullable(column.nullable and name not in keys)))
    if options is None:
        options = {"bucket": "1", "deletion-vectors.enabled": "true"}
    return TableSchema(schema_id, tuple(fields), highest, tuple(partition_keys), keys, dict(options))


def row(values: Any, kinds: str | Sequence[str] = "INT") -> bytes:
    """A serialized row; one value need not be wrapped. `row(())` is the empty row."""
    values = values if isinstance(values, tuple) else (values,)
    kinds = [kinds] * len(values) if isinstance(kinds, str) else kinds
    return binary_row.serialize(values, types(*kinds))


def stats(low: Any, high: Any, nulls: Sequence[int | None] = (0,), kinds: str | Sequence[str] = "INT") -> SimpleStats:
    return SimpleStats(row(low, kinds), row(high, kinds), tuple(nulls))


def file_meta(
    name: str = "data-1.parquet",
    level: int = 0,
    rows: int = 10,
    *,
    keys: tuple[Any, Any] = (0, 9),
    key_types: str | Sequence[str] = "INT",
    sequences: tuple[int, int] | None = None,
    source: FileSource | None = None,
    size: int | None = None,
    deletes: int | None = 0,
    **others: Any,
) -> DataFileMeta:
    """A data file; keys are values, the source is COMPACT above level 0 unless it is given."""
    low, high = keys
    wrapped = low if isinstance(low, tuple) else (low,)
    file = DataFileMeta(
        file_name=name,
        file_size=100 * rows if size is None else size,
        row_count=rows,
        min_key=row(low, key_types),
        max_key=row(high, key_types),
        key_stats=stats(low, high, [0] * len(wrapped), key_types),
        value_stats=SimpleStats(),
        min_sequence_number=0 if sequences is None else sequences[0],
        max_sequence_number=max(rows - 1, 0) if sequences is None else sequences[1],
        schema_id=0,
        level=level,
        creation_time=1_784_213_019_480,
        delete_row_count=deletes,
        file_source=source if source is not None else FileSource.COMPACT if level else FileSource.APPEND,
        value_stats_cols=(),
    )
    return replace(file, **others)


def entry(
    file: DataFileMeta,
    kind: FileKind = FileKind.ADD,
    partition: bytes = EMPTY_ROW,
    bucket: int = 0,
    total_buckets: int = 1,
) -> ManifestEntry:
    return ManifestEntry(kind, partition, bucket, total_buckets, file)


def deletion_file(name: str = "index-1", ranges: Sequence[tuple[str, int, int, int | None]] = (), size: int = 100) -> IndexFileMeta:
    """A deletion-vector file; ranges are (data file, offset, length, cardinality)."""
    members = tuple(DeletionRange(*member) for member in ranges)
    return IndexFileMeta(DELETION_VECTORS, name, size, len(members), members)


def payload(
    name: str = "index-2",
    index_type: str = "btree",
    rows: int = 10,
    field_id: int = 1,
    source_meta: bytes | None = None,
    index_meta: bytes | None = None,
    size: int = 100,
) -> IndexFileMeta:
    """The payload of a column index over `rows` source rows."""
    index = GlobalIndexMeta(0, max(rows - 1, 0), field_id, None, index_meta, source_meta)
    return IndexFileMeta(index_type, name, size, rows, global_index=index)


def index_entry(file: IndexFileMeta, kind: FileKind = FileKind.ADD, partition: bytes = EMPTY_ROW, bucket: int = 0) -> IndexManifestEntry:
    return IndexManifestEntry(kind, partition, bucket, file)


def same(left: Any, right: Any) -> bool:
    """Equality of internal values in which NaN equals NaN, −0.0 differs from 0.0, and decimals have the same scale."""
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return type(left) is type(right) and len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, float | Decimal) and type(left) is type(right):
        return repr(left) == repr(right)
    return type(left) is type(right) and bool(left == right)
