"""Formats of data files: how each is compressed, and which types it has not (spec 02 §3–§5, §7; Java `FileFormat.validateDataFields`).

What cannot be written is refused before anything is, by the option or the column that asks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from maintainer.errors import Unsupported, UsageError
from maintainer.format.avro_record import check_type
from maintainer.model.types import DataField, DataType

CODECS: Mapping[str, Mapping[str, str]] = {
    "parquet": {
        "zstd": "ZSTD",
        "snappy": "SNAPPY",
        "gzip": "GZIP",
        "brotli": "BROTLI",
        "lz4": "LZ4",
        "lz4_raw": "LZ4",
        "none": "NONE",
        "uncompressed": "NONE",
    },
    "avro": {
        "zstd": "zstandard",
        "zstandard": "zstandard",
        "snappy": "snappy",
        "deflate": "deflate",
        "bzip2": "bzip2",
        "xz": "xz",
        "none": "null",
        "null": "null",
    },
}
"""What is written: format -> value of `file.compression` -> what the format calls it."""

_CHECKS: Mapping[str, Callable[[DataType], None]] = {"avro": check_type}


def check_format(file_format: str, option: str = "file.format") -> None:
    if file_format not in CODECS:
        raise UsageError(f"option {option} = {file_format!r}: files of this format are not written; it must be {_or(CODECS)}")


def codec(file_format: str, compression: str, option: str = "file.compression") -> str:
    """What the format calls a compression."""
    found = CODECS[file_format].get(compression.strip().lower())
    if found is None:
        raise UsageError(f"option {option} = {compression!r}: {file_format} files can be compressed by {', '.join(CODECS[file_format])}")
    return found


def unheld(file_format: str, fields: Iterable[DataField]) -> Iterator[tuple[str, str]]:
    """The columns that files of this format cannot hold, each with the reason."""
    check = _CHECKS.get(file_format)
    for field in fields if check else ():
        assert check is not None
        try:
            check(field.type)
        except Unsupported as error:
            yield field.name, str(error)


def check_fields(file_format: str, fields: Iterable[DataField]) -> None:
    for name, why in unheld(file_format, fields):
        raise Unsupported(f"column {name}: {why}")


def _or(words: Iterable[str]) -> str:
    *most, last = words
    return f"{', '.join(most)} or {last}" if most else last
