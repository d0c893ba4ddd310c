"""Opening a data file of any format (spec 01 §3.3, 02 §7.1): its name says which, never the options of the table."""

from __future__ import annotations

from maintainer.data.data_file import DataFile, RowGroup
from maintainer.errors import Unsupported
from maintainer.format.kept import Cache, Kept
from maintainer.model.files import DataFileMeta
from maintainer.model.schema import TableSchema
from maintainer.storage.storage import Storage
from maintainer.table.support import file_format

_PLAN_BYTES = 300

__all__ = ["DataFile", "RowGroup", "open_data_file"]


def open_data_file(
    storage: Storage, path: str, meta: DataFileMeta, file_schema: TableSchema, read_schema: TableSchema, cache: Cache | None = None
) -> DataFile:
    """The file at `path`, whose metadata is `meta` and whose schema (`meta.schema_id`) is `file_schema`.

    With a `cache` its directory is read once only, as long as the cache has a place for it: data files never change.
    """
    kept = None if cache is None else cache.of(path)
    known = None if kept is None else kept.get(meta.file_size)
    data = _format(meta, storage.display(path))(storage, path, meta, file_schema, read_schema, known)
    if kept is not None and data.known is not None:
        if known is None:
            kept.put(meta.file_size, data.known, data.known.held)
        _share_plans(data, kept, file_schema, read_schema)
    return data


def _share_plans(data: DataFile, kept: Kept, file_schema: TableSchema, read_schema: TableSchema) -> None:
    """How columns come out of a file is found once for each pair of schemas, which are the same objects as long as they do not change."""
    found = kept.get("plans")
    if found is not None and found[0] is file_schema and found[1] is read_schema:
        data.plans = found[2]
    else:
        kept.put("plans", (file_schema, read_schema, data.plans), _PLAN_BYTES * len(read_schema.fields))


def _format(meta: DataFileMeta, path: str) -> type[DataFile]:
    match file_format(meta.file_name):
        case "parquet":
            from maintainer.data.parquet_file import ParquetDataFile

            return ParquetDataFile
        case "avro":
            from maintainer.data.avro_file import AvroDataFile

            return AvroDataFile
        case "orc":
            from maintainer.data.orc_file import OrcDataFile

            return OrcDataFile
        case other:
            raise Unsupported(f"unsupported data file format {other!r} in file {path}")
