"""Formats of data files: how each is compressed, and which types it has not (spec 02 §3–§5, §7; Java `FileFormat.validateDataFields`).

What cannot be written is refused before anything is (`maintainer.table.formats`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from maintainer.format import avro_record
from maintainer.model.types import DataField

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
"""What is written: format -> value of `file.compression`, in small letters -> what the format calls it."""

_UNHELD: Mapping[str, Callable[[Iterable[DataField]], Iterator[tuple[str, str]]]] = {"avro": avro_record.unheld}


def unheld(file_format: str, fields: Iterable[DataField]) -> Iterator[tuple[str, str]]:
    """The columns that files of this format cannot hold, each with the reason."""
    find = _UNHELD.get(file_format)
    return iter(()) if find is None else find(fields)
