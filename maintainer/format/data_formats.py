"""Formats of data files: how each is compressed, and which types it has not (spec 02 §3–§5, §7; Java `FileFormat.validateDataFields`).

What cannot be written is refused before anything is (`maintainer.table.formats`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from maintainer.format import avro_record
from maintainer.model.types import DataField, DataType, TypeRoot

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
    "orc": {
        "zstd": "zstd",
        "snappy": "snappy",
        "lz4": "lz4",
        "zlib": "zlib",
        "none": "none",
    },
}
"""What is written: format -> value of `file.compression`, in small letters -> what the format calls it."""

_NOT_IN_ORC = frozenset({TypeRoot.VECTOR, TypeRoot.VARIANT, TypeRoot.GEOMETRY, TypeRoot.GEOGRAPHY})


def _not_in_orc(fields: Iterable[DataField]) -> Iterator[tuple[str, str]]:
    for field in fields:
        for data_type in parts(field.type):
            if data_type.root in _NOT_IN_ORC:
                yield field.name, f"ORC files have no type {data_type.sql()}"


def parts(data_type: DataType) -> Iterator[DataType]:
    """A type and all that it is made of."""
    yield data_type
    for part in (data_type.key, data_type.element, *(field.type for field in data_type.fields)):
        if part is not None:
            yield from parts(part)


_UNHELD: Mapping[str, Callable[[Iterable[DataField]], Iterator[tuple[str, str]]]] = {"avro": avro_record.unheld, "orc": _not_in_orc}


def unheld(file_format: str, fields: Iterable[DataField]) -> Iterator[tuple[str, str]]:
    """The columns that files of this format cannot hold, each with the reason."""
    find = _UNHELD.get(file_format)
    return iter(()) if find is None else find(fields)
