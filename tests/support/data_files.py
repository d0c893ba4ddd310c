"""Data files for tests: written by our writer, or by plain pyarrow in forms that we never write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from maintainer.data.reader import DataFile, open_data_file
from maintainer.data.values import to_arrow_array
from maintainer.data.writer import DataFileWriter
from maintainer.model.files import EMPTY_ROW, BucketKey, DataFileMeta, FileRole, FileSource
from maintainer.model.schema import TableSchema
from maintainer.storage.layout import Layout
from maintainer.storage.storage import Storage
from maintainer.table.options import TableOptions
from tests.support import builders

KINDS = {"+I": 0, "-U": 1, "+U": 2, "-D": 3}


def kv_table(
    schema: TableSchema, columns: Mapping[str, Sequence[Any]], kinds: Sequence[str] | None = None, first_sequence: int = 0
) -> pa.Table:
    """Rows as merging hands them to the writer; columns as internal values."""
    rows = len(next(iter(columns.values())))
    arrays = [to_arrow_array(columns[field.name], field.type) for field in schema.fields]
    sequences = pa.array(range(first_sequence, first_sequence + rows), pa.int64())
    kind = pa.array([KINDS[name] for name in kinds or ["+I"] * rows], pa.int8())
    return pa.Table.from_arrays([*arrays, sequences, kind], names=[*schema.names, "_SEQUENCE_NUMBER", "_VALUE_KIND"])


def write_rows(
    storage: Storage,
    schema: TableSchema,
    *tables: pa.Table,
    options: Mapping[str, str] | None = None,
    level: int = 0,
    source: FileSource = FileSource.APPEND,
    role: FileRole = FileRole.DATA,
) -> list[DataFileMeta]:
    """Files of bucket 0 with these rows, by our writer."""
    merged = TableOptions({**schema.options, **(options or {})})
    writer = DataFileWriter(storage, Layout(), schema, merged, BucketKey(EMPTY_ROW, 0), level=level, source=source, role=role)
    for table in tables:
        writer.write(table)
    return writer.close()


def open_file(storage: Storage, meta: DataFileMeta, schema: TableSchema, read_schema: TableSchema | None = None) -> DataFile:
    return open_data_file(storage, f"bucket-0/{meta.file_name}", meta, schema, read_schema or schema)


def put(storage: Storage, table: pa.Table, name: str = "data-x.parquet", **parquet: Any) -> DataFileMeta:
    """A file of bucket 0 as plain pyarrow writes it; keys and statistics of the metadata mean nothing."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, **parquet)
    data = sink.getvalue().to_pybytes()
    storage.write(f"bucket-0/{name}", data)
    return builders.file_meta(name, rows=table.num_rows, size=len(data))
