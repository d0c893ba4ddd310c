"""Which format and compression files of a level have (spec 02 §7; Java `KeyValueFileWriterFactory`), and what of it is not written.

Flushes write with the settings of level 0, compactions with those of the level they write to. A changelog file has options of its own, and
where those are not set the settings of its level.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from maintainer.errors import Unsupported, UsageError
from maintainer.format import data_formats
from maintainer.model.files import FileRole
from maintainer.model.schema import TableSchema
from maintainer.model.types import TypeRoot
from maintainer.table.options import TableOptions

_LEGACY_LTZ = "orc.timestamp-ltz.legacy.type"
_UTC = frozenset({"UTC", "Z", "GMT", "ETC/UTC"})
_ANY_LEVEL = -1
"""One that has no settings of its own."""


@dataclass(frozen=True, slots=True)
class WrittenFormat:
    """Format and compression as the options have them, and the names of those options."""

    format: str
    format_option: str
    compression: str
    compression_option: str
    shifts_ltz: bool = False
    """Whether Java's readers move TIMESTAMP_LTZ values of ORC files by the zone of their machine, which is not UTC (spec 02 §4)."""

    @classmethod
    def of(cls, options: TableOptions, level: int, role: FileRole) -> WrittenFormat:
        formats, compressions = options.file_format_per_level, options.file_compression_per_level
        file_format, format_option = options.file_format, "file.format"
        if level in formats:
            file_format, format_option = formats[level], "file.format.per.level"
        compression, compression_option = options.file_compression, "file.compression"
        if level in compressions:
            compression, compression_option = compressions[level], "file.compression.per.level"
        if role is FileRole.CHANGELOG:
            if options.changelog_file_format:
                file_format, format_option = options.changelog_file_format, "changelog-file.format"
            if options.changelog_file_compression:
                compression, compression_option = options.changelog_file_compression, "changelog-file.compression"
        if file_format == "avro" and options.avro_codec:
            compression, compression_option = options.avro_codec, "avro.codec"
        shifts_ltz = file_format == "orc" and options.boolean(_LEGACY_LTZ, True) and options.time_zone.upper() not in _UTC
        return cls(file_format, format_option, compression, compression_option, shifts_ltz)

    def mistakes(self, schema: TableSchema) -> Iterator[tuple[str, str]]:
        """What is to blame, and why, if such files cannot hold rows of the table."""
        codecs = data_formats.CODECS.get(self.format)
        if codecs is None:
            yield f"{self.format_option} = {self.format}", f"files of this format are not written, only {', '.join(data_formats.CODECS)}"
            return
        if self.compression not in codecs:
            yield f"{self.compression_option} = {self.compression}", f"{self.format} files can be compressed by {', '.join(codecs)}"
        for name, why in data_formats.unheld(self.format, schema.fields):
            yield f"column {name}", f"{why} ({self.format_option} = {self.format})"
        for field in schema.fields if self.shifts_ltz else ():
            if any(part.root is TypeRoot.TIMESTAMP_LTZ for part in data_formats.parts(field.type)):
                why = f"in ORC files its values depend on the time zone of each writer, unless {_LEGACY_LTZ} = false or read.time-zone = UTC"
                yield f"column {field.name}", f"{why} ({self.format_option} = {self.format})"

    def check(self, schema: TableSchema) -> None:
        """Raises `Unsupported` unless such files hold rows of the table."""
        for what, why in self.mistakes(schema):
            raise Unsupported(f"{what}: {why}")


def mistakes(schema: TableSchema) -> Iterator[tuple[str, str]]:
    """What keeps files of some level from being written, and why."""
    options = TableOptions.of(schema)
    try:
        levels = {_ANY_LEVEL, *options.file_format_per_level, *options.file_compression_per_level}
        settings = [WrittenFormat.of(options, level, role) for role in FileRole for level in sorted(levels)]
    except UsageError as error:
        yield "data files", str(error)
        return
    yield from dict.fromkeys(mistake for setting in dict.fromkeys(settings) for mistake in setting.mistakes(schema))
