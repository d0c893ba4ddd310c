"""How a file is written: format, compression, name and statistics (spec 02 §7, §8, 01 §3.3; Java `KeyValueFileWriterFactory`).

Format and compression are those of `maintainer.table.formats`. Readers go by the name of a file alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from maintainer.data.statistics import Mode, column_modes
from maintainer.model.files import FileRole
from maintainer.model.schema import TableSchema
from maintainer.table.formats import WrittenFormat
from maintainer.table.options import TableOptions

_COMPRESSION_EXTENSIONS = {"zstd": "zst", "gzip": "gz", "bzip2": "bz2"}


@dataclass(frozen=True, slots=True)
class FileSettings:
    """`modes`: what is kept of the statistics of each column of the table; `thin`: the key is not repeated."""

    format: str
    compression: str
    zstd_level: int
    prefix: str
    extension: str
    modes: Sequence[Mode]
    dense: bool
    thin: bool

    @classmethod
    def of(cls, schema: TableSchema, options: TableOptions, level: int, role: FileRole) -> FileSettings:
        written = WrittenFormat.of(options, level, role)
        written.check(schema)
        return cls(
            format=written.format,
            compression=written.compression,
            zstd_level=options.zstd_level,
            prefix=options.changelog_file_prefix if role is FileRole.CHANGELOG else options.data_file_prefix,
            extension=file_extension(options, written.format),
            modes=column_modes(schema.fields, options, level, role, schema.trimmed_primary_keys if options.thin_mode else ()),
            dense=options.boolean("metadata.stats-dense-store", True),
            thin=options.thin_mode,
        )


def file_extension(options: TableOptions, file_format: str) -> str:
    """The end of a data file's name. If it tells a compression, it is the table's, whatever the file's is (spec 01 §3.3)."""
    if not options.suffix_includes_compression:
        return f".{file_format}"
    return f".{_COMPRESSION_EXTENSIONS.get(options.file_compression, options.file_compression)}.{file_format}"
