"""Opening a data file of any format (spec 01 §3.3, 02 §7.1): its name says which, never the options of the table."""

from __future__ import annotations

from maintainer.data.data_file import DataFile, RowGroup
from maintainer.errors import Unsupported
from maintainer.model.files import DataFileMeta
from maintainer.model.schema import TableSchema
from maintainer.storage.storage import Storage
from maintainer.table.support import file_format

__all__ = ["DataFile", "RowGroup", "open_data_file"]


def open_data_file(storage: Storage, path: str, meta: DataFileMeta, file_schema: TableSchema, read_schema: TableSchema) -> DataFile:
    """The file at `path`, whose metadata is `meta` and whose schema (`meta.schema_id`) is `file_schema`."""
    match file_format(meta.file_name):
        case "parquet":
            from maintainer.data.parquet_file import ParquetDataFile

            return ParquetDataFile(storage, path, meta, file_schema, read_schema)
        case "avro":
            from maintainer.data.avro_file import AvroDataFile

            return AvroDataFile(storage, path, meta, file_schema, read_schema)
        case "orc":
            from maintainer.data.orc_file import OrcDataFile

            return OrcDataFile(storage, path, meta, file_schema, read_schema)
        case other:
            raise Unsupported(f"unsupported data file format {other!r} in file {storage.display(path)}")
