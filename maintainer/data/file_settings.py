"""How a file is written: format, compression, name and statistics (spec 02 §7, §8, 01 §3.3; Java `KeyValueFileWriterFactory`).

Flushes write with the settings of level 0, compactions with those of the level they write to. A changelog file has options of its own, and
where those are not set the settings of its level. Readers go by the name of a file alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from maintainer.data.statistics import Mode, column_modes
from maintainer.errors import UsageError
from maintainer.model.files import FileRole
from maintainer.model.schema import TableSchema
from maintainer.table.options import TableOptions

_COMPRESSION_EXTENSIONS = {"zstd": "zst", "gzip": "gz", "bzip2": "bz2"}
FORMATS = ("parquet",)


@dataclass(frozen=True, slots=True)
class FileSettings:
    """`modes`: what is kept of the statistics of each column of the table."""

    format: str
    compression: str
    zstd_level: int
    prefix: str
    extension: str
    modes: Sequence[Mode]
    dense: bool

    @classmethod
    def of(cls, schema: TableSchema, options: TableOptions, level: int, role: FileRole) -> FileSettings:
        file_format = options.file_format_per_level.get(level, options.file_format)
        compression = options.file_compression_per_level.get(level, options.file_compression)
        prefix = options.data_file_prefix
        if role is FileRole.CHANGELOG:
            file_format = options.changelog_file_format or file_format
            compression = options.changelog_file_compression or compression
            prefix = options.changelog_file_prefix
        if file_format not in FORMATS:
            raise UsageError(f"files of format {file_format!r} are not written: file.format must be {' or '.join(FORMATS)}")
        return cls(
            format=file_format,
            compression=compression,
            zstd_level=options.zstd_level,
            prefix=prefix,
            extension=file_extension(options, file_format),
            modes=column_modes(schema.fields, options, level, role),
            dense=options.boolean("metadata.stats-dense-store", True),
        )


def file_extension(options: TableOptions, file_format: str) -> str:
    """The end of a data file's name. If it tells a compression, it is the table's, whatever the file's is (spec 01 §3.3)."""
    if not options.suffix_includes_compression:
        return f".{file_format}"
    return f".{_COMPRESSION_EXTENSIONS.get(options.file_compression, options.file_compression)}.{file_format}"
