"""How a file is written: format, compression, name and statistics (spec 02 §7, §8, 01 §3.3; Java `KeyValueFileWriterFactory`).

Flushes write with the settings of level 0, compactions with those of the level they write to. A changelog file has options of its own, and
where those are not set the settings of its level. Readers go by the name of a file alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from maintainer.data.statistics import Mode, column_modes
from maintainer.format import data_formats
from maintainer.model.files import FileRole
from maintainer.model.schema import TableSchema
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
        formats, compressions = options.file_format_per_level, options.file_compression_per_level
        file_format, format_option = formats.get(level, options.file_format), f"file.format{'.per.level' if level in formats else ''}"
        compression = compressions.get(level, options.file_compression)
        compression_option = f"file.compression{'.per.level' if level in compressions else ''}"
        prefix = options.data_file_prefix
        if role is FileRole.CHANGELOG:
            prefix = options.changelog_file_prefix
            if options.changelog_file_format:
                file_format, format_option = options.changelog_file_format, "changelog-file.format"
            if options.changelog_file_compression:
                compression, compression_option = options.changelog_file_compression, "changelog-file.compression"
        if file_format == "avro" and options.avro_codec:
            compression, compression_option = options.avro_codec, "avro.codec"
        data_formats.check_format(file_format, format_option)
        data_formats.codec(file_format, compression, compression_option)
        data_formats.check_fields(file_format, schema.fields)
        return cls(
            format=file_format,
            compression=compression,
            zstd_level=options.zstd_level,
            prefix=prefix,
            extension=file_extension(options, file_format),
            modes=column_modes(schema.fields, options, level, role, schema.trimmed_primary_keys if options.thin_mode else ()),
            dense=options.boolean("metadata.stats-dense-store", True),
            thin=options.thin_mode,
        )


def file_extension(options: TableOptions, file_format: str) -> str:
    """The end of a data file's name. If it tells a compression, it is the table's, whatever the file's is (spec 01 §3.3)."""
    if not options.suffix_includes_compression:
        return f".{file_format}"
    return f".{_COMPRESSION_EXTENSIONS.get(options.file_compression, options.file_compression)}.{file_format}"
