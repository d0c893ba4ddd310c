"""Data files and index files as rows of commit messages (spec 03 §3, §4; Java `DataFileMetaSerializer`, `IndexFileMetaSerializer`).

Bodies without arity; which columns there are depends on the message version:

| version | data file  | index file                                                     |
| ------- | ---------- | -------------------------------------------------------------- |
| 10      | 20 columns | 6 columns: no global index                                     |
| 11      | 20         | 7 columns, global index of 5: no source meta                   |
| 12      | 20         | 7 columns, global index of 6                                   |
| 13, 14  | 21         | as 12                                                          |

What a version has no column for is left out, except for source metadata: without it a primary-key index would look like one over row ids.
`_BUILD_SCHEMA_ID` has a place in index manifests only.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from maintainer.errors import CorruptFile, UsageError
from maintainer.format.binary_row import row_codec
from maintainer.format.data_type import parse
from maintainer.model.files import DataFileMeta, DeletionRange, FileSource, GlobalIndexMeta, IndexFileMeta, SimpleStats
from maintainer.model.types import DataType

MOST_LEVELS = 127
"""What a byte holds; trees have ten levels or so."""

_STATS = "ROW<min BYTES, max BYTES, nulls ARRAY<BIGINT>>"
_FILE_COLUMNS = (
    ("_FILE_NAME", "STRING NOT NULL"),
    ("_FILE_SIZE", "BIGINT NOT NULL"),
    ("_ROW_COUNT", "BIGINT NOT NULL"),
    ("_MIN_KEY", "BYTES NOT NULL"),
    ("_MAX_KEY", "BYTES NOT NULL"),
    ("_KEY_STATS", f"{_STATS} NOT NULL"),
    ("_VALUE_STATS", f"{_STATS} NOT NULL"),
    ("_MIN_SEQUENCE_NUMBER", "BIGINT NOT NULL"),
    ("_MAX_SEQUENCE_NUMBER", "BIGINT NOT NULL"),
    ("_SCHEMA_ID", "BIGINT NOT NULL"),
    ("_LEVEL", "INT NOT NULL"),
    ("_EXTRA_FILES", "ARRAY<STRING> NOT NULL"),
    ("_CREATION_TIME", "BIGINT"),  # TIMESTAMP(3), the same bytes
    ("_DELETE_ROW_COUNT", "BIGINT"),
    ("_EMBEDDED_FILE_INDEX", "BYTES"),
    ("_FILE_SOURCE", "TINYINT"),
    ("_VALUE_STATS_COLS", "ARRAY<STRING>"),
    ("_EXTERNAL_PATH", "STRING"),
    ("_FIRST_ROW_ID", "BIGINT"),
    ("_WRITE_COLS", "ARRAY<STRING>"),
    ("_WRITE_COLS_SEQUENCES", "ARRAY<BIGINT>"),
)
_INDEX_COLUMNS = (
    ("_INDEX_TYPE", "STRING NOT NULL"),
    ("_FILE_NAME", "STRING NOT NULL"),
    ("_FILE_SIZE", "BIGINT NOT NULL"),
    ("_ROW_COUNT", "BIGINT NOT NULL"),
    ("_DELETIONS_VECTORS_RANGES", "ARRAY<ROW<f0 STRING, f1 INT, f2 INT, _CARDINALITY BIGINT>>"),
    ("_EXTERNAL_PATH", "STRING"),
)
_GLOBAL_INDEX = "start BIGINT, end BIGINT, field INT, extra ARRAY<INT>, meta BYTES"
_GLOBAL_INDEX_COLUMNS = {
    11: ("_GLOBAL_INDEX", f"ROW<{_GLOBAL_INDEX}>"),
    12: ("_GLOBAL_INDEX", f"ROW<{_GLOBAL_INDEX}, source BYTES>"),
}
_SOURCES = {None: None, 0: FileSource.APPEND, 1: FileSource.COMPACT}


def encode_data_file(meta: DataFileMeta, version: int) -> bytes:
    values = [
        meta.file_name,
        meta.file_size,
        meta.row_count,
        meta.min_key,
        meta.max_key,
        _stats_row(meta.key_stats),
        _stats_row(meta.value_stats),
        meta.min_sequence_number,
        meta.max_sequence_number,
        meta.schema_id,
        meta.level,
        meta.extra_files,
        meta.creation_time,
        meta.delete_row_count,
        meta.embedded_file_index,
        None if meta.file_source is None else int(meta.file_source),
        meta.value_stats_cols,
        meta.external_path,
        meta.first_row_id,
        meta.write_cols,
        meta.write_cols_sequences,
    ]
    types = _types(_file_columns(version))
    return row_codec(types).encode(values[: len(types)])


def decode_data_file(body: bytes, version: int) -> DataFileMeta:
    values = _decode(body, _file_columns(version), "data file")
    extra_files, stats_cols, write_cols = (_elements(values[index], "data file") for index in (11, 16, 19))
    sequences = _elements(values[20], "data file") if len(values) > 20 else None
    name, size, rows, level = values[0], values[1], values[2], values[10]
    return DataFileMeta(
        name,
        size,
        rows,
        values[3],
        values[4],
        _stats(values[5]),
        _stats(values[6]),
        values[7],
        values[8],
        values[9],
        check_file(name, size, rows, level),
        extra_files or (),
        values[12],
        values[13],
        values[14],
        file_source(values[15], name),
        stats_cols,
        values[17],
        values[18],
        write_cols,
        sequences,
    )


def encode_index_file(meta: IndexFileMeta, version: int) -> bytes:
    ranges, index = meta.deletion_ranges, meta.global_index
    values: list[Any] = [
        meta.index_type,
        meta.file_name,
        meta.file_size,
        meta.row_count,
        None if ranges is None else [(r.data_file, r.offset, r.length, r.cardinality) for r in ranges],
        meta.external_path,
    ]
    if version < 12 and index is not None and (version < 11 or index.source_meta is not None):
        raise UsageError(f"a message of version {version} cannot hold the index file {meta.file_name!r} with its source files")
    columns = _index_columns(version)
    if len(columns) > len(values):
        values.append(None if index is None else _global_index_row(index, version))
    return row_codec(_types(columns)).encode(values)


def decode_index_file(body: bytes, version: int) -> IndexFileMeta:
    values = _decode(body, _index_columns(version), "index file")
    kind, name, size, rows, ranges, path = values[:6]
    if size < 0 or rows < 0:
        raise CorruptFile(f"the index file {name!r} has {rows} rows in {size} bytes")
    index = values[6] if len(values) > 6 else None
    deletion_ranges = None if ranges is None else tuple(_range(member, name) for member in ranges)
    return IndexFileMeta(kind, name, size, rows, deletion_ranges, path, None if index is None else _global_index(index, name))


def check_file(name: str, size: int, rows: int, level: int) -> int:
    """Refuses numbers that no data file can have; returns the level."""
    if size < 0 or rows < 0 or not 0 <= level <= MOST_LEVELS:
        raise CorruptFile(f"the metadata of {name!r} says {rows} rows in {size} bytes on level {level}")
    return level


def file_source(code: int | None, name: str) -> FileSource | None:
    if code not in _SOURCES:
        raise CorruptFile(f"the metadata of {name!r} says file source {code}")
    return _SOURCES[code]


def _file_columns(version: int) -> tuple[tuple[str, str], ...]:
    return _FILE_COLUMNS if version >= 13 else _FILE_COLUMNS[:20]


def _index_columns(version: int) -> tuple[tuple[str, str], ...]:
    return _INDEX_COLUMNS if version < 11 else (*_INDEX_COLUMNS, _GLOBAL_INDEX_COLUMNS[min(version, 12)])


@lru_cache
def _types(columns: tuple[tuple[str, str], ...]) -> tuple[DataType, ...]:
    return tuple(parse(text) for _, text in columns)


def _decode(body: bytes, columns: tuple[tuple[str, str], ...], what: str) -> tuple[Any, ...]:
    types = _types(columns)
    values = row_codec(types).decode(body)
    for (name, _), data_type, value in zip(columns, types, values, strict=True):
        if value is None and not data_type.nullable:
            raise CorruptFile(f"the row of a {what} has no {name}")
    return values


def _elements(values: list[Any] | None, what: str) -> tuple[Any, ...] | None:
    if values is None:
        return None
    if None in values:
        raise CorruptFile(f"the row of a {what} has a list with a null")
    return tuple(values)


def _stats_row(stats: SimpleStats) -> tuple[Any, ...]:
    return stats.min_values, stats.max_values, stats.null_counts


def _stats(row: tuple[Any, ...]) -> SimpleStats:
    low, high, nulls = row
    if low is None or high is None:
        raise CorruptFile("the statistics of a data file have no values")
    return SimpleStats(low, high, None if nulls is None else tuple(nulls))


def _global_index_row(index: GlobalIndexMeta, version: int) -> tuple[Any, ...]:
    row = (index.row_range_start, index.row_range_end, index.index_field_id, index.extra_field_ids, index.index_meta)
    return (*row, index.source_meta) if version >= 12 else row


def _global_index(row: tuple[Any, ...], name: str) -> GlobalIndexMeta:
    start, end, field_id, extra, meta, *source = row
    if start is None or end is None or field_id is None:
        raise CorruptFile(f"the index file {name!r} has no row range or no field")
    return GlobalIndexMeta(start, end, field_id, _elements(extra, "index file"), meta, *source)


def _range(row: tuple[Any, ...] | None, name: str) -> DeletionRange:
    if row is None or None in row[:3] or row[1] < 0 or row[2] < 0:
        raise CorruptFile(f"the index file {name!r} has the deletion vector range {row}")
    return DeletionRange(*row)
