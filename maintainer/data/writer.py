"""Writing key-value files (spec 02 §2, §7, §9, §10; Java `KeyValueDataFileWriter`, `RollingFileWriter`).

    sorted batches ──▶ row groups ──▶ file ──▶ next file at the target size ──▶ one `DataFileMeta` for each

How many rows a row group has:

* 16,384, which makes a lookup of a few rows cheap (and compresses better than more), but so many that a full file has no more than 5,000
  column chunks,
* no more than 64 MiB in memory, less when the budget is small (an eighth of it, but 64 KiB for each column and 4 MiB in all),
* no more than the file still takes until its target size, by the size of the rows so far; Java looks at the size after every 1,000 rows,
  and so do we.

What a row group is in a format that has none, its writer decides: of Avro, some blocks.
"""

from __future__ import annotations

from collections import deque
from datetime import datetime, timedelta

import pyarrow as pa

from maintainer.data import footer, null_row, statistics
from maintainer.data.arrow_types import file_fields, file_schema
from maintainer.data.file_settings import FileSettings
from maintainer.data.new_file import FileShape, NewFile
from maintainer.data.values import from_arrow
from maintainer.errors import MaintainerError
from maintainer.format import binary_row
from maintainer.model.files import BucketKey, DataFileMeta, FileRole, FileSource
from maintainer.model.schema import KIND_FIELD, SEQUENCE_FIELD, TableSchema
from maintainer.storage.layout import FileNames, Layout
from maintainer.storage.storage import Storage
from maintainer.table.options import TableOptions

GROUP_ROWS = 16_384
MAX_CHUNKS = 5_000
_GROUP_BYTES = 64 << 20
_LEAST_GROUP_BYTES = 4 << 20
_LEAST_CHUNK_BYTES = 64 << 10
_SHARE_OF_BUDGET = 8
_CHECK_ROWS = 1_000
_CHECK_BYTES = 4 << 20


class DataFileWriter:
    """Writes rows of one bucket, in key order, into as many files as they take.

    `created` holds the path, relative to the table, of every file that was begun; they are the caller's to delete when its attempt fails. After
    an error the writer can only be given up (`abort`).
    """

    def __init__(
        self,
        storage: Storage,
        layout: Layout,
        schema: TableSchema,
        options: TableOptions,
        key: BucketKey,
        *,
        level: int,
        source: FileSource,
        role: FileRole = FileRole.DATA,
        names: FileNames | None = None,
        memory: int = 1 << 30,
    ) -> None:
        """`memory` is the budget of everything that the caller does, in bytes."""
        self.created: list[str] = []
        self._storage = storage
        self._directory = layout.bucket_directory(key.partition, key.bucket)
        self._settings = settings = FileSettings.of(schema, options, level, role)
        self._names = names or FileNames(settings.prefix, settings.extension)
        self._schema = schema
        self._level = level
        self._source = source
        keys = schema.trimmed_primary_keys
        self._shape = _shape(schema, settings)
        self._arrow_schema = self._shape.schema
        self._columns = [*(() if settings.thin else keys), SEQUENCE_FIELD.name, KIND_FIELD.name, *schema.names]
        self._leaves = sum(footer.leaf_count(field.type) for field in self._arrow_schema)
        least = max(_LEAST_GROUP_BYTES, _LEAST_CHUNK_BYTES * self._leaves)
        self._group_bytes = min(_GROUP_BYTES, max(least, memory // _SHARE_OF_BUDGET))
        self._target_size = max(1, options.target_file_size)
        row_limit = options.target_file_row_num or 0
        is_limited = role is FileRole.DATA and source is FileSource.APPEND and row_limit > 0
        self._target_rows = row_limit if is_limited else None
        self._pending: deque[pa.Table] = deque()
        self._pending_rows = 0
        self._memory_per_row = 1.0
        self._written_rows = 0
        self._written_bytes = 0
        self._file: NewFile | None = None
        self._metas: list[DataFileMeta] = []

    def write(self, table: pa.Table) -> None:
        """Rows in key order, behind those of the calls before: the table's columns, `_SEQUENCE_NUMBER` and `_VALUE_KIND`."""
        if not table.num_rows:
            return
        columns = [table.column(name) for name in self._columns]
        for column, field in zip(columns, self._arrow_schema, strict=True):
            if column.type != field.type:  # Arrow would cast, numbers to text for example
                raise TypeError(f"column {field.name} has type {column.type}, the schema says {field.type}")
            if column.null_count and not field.nullable:
                raise MaintainerError(
                    f"{self._storage.display(self._directory)}: column {field.name} is NOT NULL, and a row has no value for it"
                )
        table = pa.Table.from_arrays([null_row.filled(column) for column in columns], schema=self._arrow_schema)
        self._memory_per_row = max(1.0, table.nbytes / table.num_rows)
        self._pending.append(table)
        self._pending_rows += table.num_rows
        while self._pending_rows >= (rows := self._group_rows()):
            self._write_group(self._take(rows))

    def close(self) -> list[DataFileMeta]:
        """Finishes the last file; the metadata of all files, in key order. No rows, no file."""
        while self._pending_rows:
            self._write_group(self._take(min(self._pending_rows, self._group_rows())))
        self._finish_file()
        return self._metas

    def abort(self) -> None:
        """Gives up: the file in the making disappears, finished ones stay for the caller."""
        self._pending.clear()
        self._pending_rows = 0
        file, self._file = self._file, None
        if file is not None:
            file.abandon()

    def _group_rows(self) -> int:
        """Rows of the next row group; see the module's description."""
        written, chunks, rows = (0, 0, 0) if self._file is None else (self._file.size, self._file.groups * self._leaves, self._file.rows)
        per_row = self._written_bytes / self._written_rows if self._written_rows else self._memory_per_row
        left = max(1, round((self._target_size - written) / per_row))
        most_groups = max(1, (MAX_CHUNKS - chunks) // self._leaves)
        check = min(_CHECK_ROWS, max(1, int(_CHECK_BYTES / per_row)))
        wanted = min(max(GROUP_ROWS, -(-left // most_groups)), -(-left // check) * check, int(self._group_bytes / self._memory_per_row))
        if self._target_rows is not None:
            wanted = min(wanted, self._target_rows - rows)
        return max(1, wanted)

    def _take(self, rows: int) -> pa.Table:
        """The first pending rows."""
        parts = []
        self._pending_rows -= rows
        while rows:
            table = self._pending.popleft()
            if table.num_rows > rows:
                self._pending.appendleft(table.slice(rows))
                table = table.slice(0, rows)
            parts.append(table)
            rows -= table.num_rows
        return pa.concat_tables(parts)

    def _write_group(self, rows: pa.Table) -> None:
        if self._file is None:
            self._file = self._begin_file(rows)
        before = self._file.size
        self._file.write(rows)
        self._written_rows += rows.num_rows
        self._written_bytes += self._file.size - before
        if self._file.size >= self._target_size or self._file.rows == self._target_rows:
            self._finish_file()

    def _begin_file(self, rows: pa.Table) -> NewFile:
        name = self._names.next()
        path = f"{self._directory}/{name}"
        self.created.append(path)
        return _new_file(self._settings.format)(self._storage, path, self._shape, self._settings, rows)

    def _finish_file(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.finish()
            self._metas.append(self._meta(file))

    def _meta(self, file: NewFile) -> DataFileMeta:
        schema = self._schema
        stats = dict(zip(self._arrow_schema.names, file.stats(), strict=True))
        keys = [schema.field(name) for name in schema.trimmed_primary_keys]
        sequence = stats[SEQUENCE_FIELD.name]
        columns = [stats[name] for name in schema.names]
        value_stats, value_stats_cols = statistics.value_stats(columns, schema.fields, self._settings.modes, self._settings.dense)
        return DataFileMeta(
            file_name=file.name,
            file_size=file.size,
            row_count=file.rows,
            min_key=self._key(file.first_key),
            max_key=self._key(file.last_key),
            key_stats=statistics.key_stats([stats[name] for name in self._shape.keys], keys),
            value_stats=value_stats,
            min_sequence_number=sequence.min,
            max_sequence_number=sequence.max,
            schema_id=schema.id,
            level=self._level,
            creation_time=local_millis(),
            delete_row_count=file.deletes,
            file_source=self._source,
            value_stats_cols=value_stats_cols,
        )

    def _key(self, row: pa.Table) -> bytes:
        types = self._schema.key_types
        return binary_row.serialize([from_arrow(row.column(index), data_type)[0] for index, data_type in enumerate(types)], types)


def _shape(schema: TableSchema, settings: FileSettings) -> FileShape:
    key = schema.trimmed_primary_keys
    fields = file_fields(schema, settings.thin)
    keys = key if settings.thin else tuple(field.name for field in fields[: len(key)])
    wanted = [field.name for field, mode in zip(schema.fields, settings.modes, strict=True) if mode.counts]
    return FileShape(file_schema(schema, settings.thin), fields, keys, frozenset([*keys, SEQUENCE_FIELD.name, *wanted]))


def _new_file(file_format: str) -> type[NewFile]:
    match file_format:
        case "avro":
            from maintainer.data.new_avro_file import NewAvroFile

            return NewAvroFile
        case "orc":
            from maintainer.data.new_orc_file import NewOrcFile

            return NewOrcFile
        case _:
            from maintainer.data.new_parquet_file import NewParquetFile

            return NewParquetFile


def local_millis() -> int:
    """Now, as the wall clock shows it here, in milliseconds as if it showed UTC (`_CREATION_TIME`)."""
    return (datetime.now() - datetime(1970, 1, 1)) // timedelta(milliseconds=1)
