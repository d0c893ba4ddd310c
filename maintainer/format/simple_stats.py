"""Column statistics of data files (spec 01 §14; Java `SimpleStats`, `SimpleColStats`, `BinaryStringUtils`/`StatsCollector` truncation).

Two serialized rows with the smallest and the largest value of each column, null meaning unknown, and a list of null counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from maintainer.format.binary_row import row_codec
from maintainer.model.files import SimpleStats
from maintainer.model.types import DataType, TypeRoot


class ColumnStats(NamedTuple):
    """What is known of one column; None is unknown."""

    min: Any
    max: Any
    null_count: int | None


def decode_stats(stats: SimpleStats, types: Sequence[DataType]) -> list[ColumnStats]:
    """The statistics of the columns with these types, which are all that the stats have."""
    codec = row_codec(tuple(types))
    low, high = codec.deserialize(stats.min_values), codec.deserialize(stats.max_values)
    known = tuple(stats.null_counts or ())
    counts = known + (None,) * (len(low) - len(known))
    return [ColumnStats(*column) for column in zip(low, high, counts, strict=False)]


def file_stats(file_name: str, stats: SimpleStats, types: Sequence[DataType]) -> list[ColumnStats]:
    """The same of a data file. Those of CHAR in ORC files are padded with blanks, and the values are not: they are no bounds."""
    found = decode_stats(stats, types)
    if not file_name.endswith(".orc"):
        return found
    return [
        ColumnStats(None, None, column.null_count) if data_type.root is TypeRoot.CHAR else column
        for column, data_type in zip(found, types, strict=False)
    ]


def truncate(value_min: Any, value_max: Any, length: int) -> tuple[Any, Any]:
    """Bounds of at most `length` characters or bytes; other values than texts and binaries stay as they are.

    The upper bound must not become smaller, so its last element that can grow grows by one. Where none can, nothing is known of either bound.
    """
    if isinstance(value_max, str | bytes) and len(value_max) > length:
        shortened = _successor(value_max[:length])
        if shortened is None:
            return None, None
        value_max = shortened
    return (value_min[:length] if isinstance(value_min, str | bytes) else value_min), value_max


def _successor(prefix: str | bytes) -> str | bytes | None:
    """The smallest value, not longer, that is larger than everything with this prefix."""
    if isinstance(prefix, bytes):
        kept = prefix.rstrip(b"\xff")
        return kept[:-1] + bytes([kept[-1] + 1]) if kept else None
    characters = prefix.rstrip("\U0010ffff")
    if not characters:
        return None
    # Java goes from U+D7FF to a surrogate, which it then stores as "?"; the next character is U+E000.
    following = ord(characters[-1]) + 1
    return characters[:-1] + chr(0xE000 if following == 0xD800 else following)
