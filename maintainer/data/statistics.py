"""Column statistics of a data file, as its metadata carries them (spec 02 §3.6, §8, 01 §14; Java `SimpleStatsExtractor`).

The Parquet footer has them already, per row group: they are merged from there, never recomputed (`from_footer`). What a footer can't tell is
handed in:

* `no_bounds`: FLOAT and DOUBLE columns with a NaN. Parquet leaves NaN out of its bounds, Paimon counts it as the largest value, readers of
  either kind get it wrong: such a column has no bounds (spec 02 §8.4).
* `known`: statistics of row groups of INT96 timestamps, which have none, of FLOAT and DOUBLE columns (Arrow's bounds are wrong where all
  values are infinite), and where values are too long for a footer (4096 bytes).

| mode        | min, max                                                   | null count |
| ----------- | ---------------------------------------------------------- | ---------- |
| none        | unknown                                                    | unknown    |
| counts      | unknown                                                    | known      |
| truncate(n) | cut to n code points or bytes, the max rounded up          | known      |
| full        | exact                                                      | known      |

Where a format has none of its own they are collected while rows are written (`Collector`).

Nested columns have no bounds, and in Parquet no null count either, as in Java. Key statistics are always truncate(128).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from maintainer.data import footer
from maintainer.data.values import from_arrow
from maintainer.errors import UsageError
from maintainer.format import binary_row
from maintainer.format.simple_stats import ColumnStats, truncate
from maintainer.model.files import FileRole, SimpleStats
from maintainer.model.types import BINARIES, CHARACTERS, FLOATS, DataField, DataType, TypeRoot
from maintainer.model.values import order_key
from maintainer.table.options import TableOptions

KEY_LENGTH = 128
_TRUNCATE = re.compile(r"truncate\s*\(\s*(\d+)\s*\)")


UNKNOWN = ColumnStats(None, None, None)
_NOTHING = ColumnStats(None, None, 0)


@dataclass(frozen=True, slots=True)
class Mode:
    """What is kept of a column's statistics. `length` is the n of truncate(n), None without a limit."""

    counts: bool = True
    bounds: bool = True
    length: int | None = None

    @classmethod
    def parse(cls, text: str) -> Mode:
        match text.strip().lower():
            case "none":
                return cls(counts=False, bounds=False)
            case "counts":
                return cls(bounds=False)
            case "full":
                return cls()
            case other:
                found = _TRUNCATE.fullmatch(other)
                if found is None or int(found[1]) == 0:
                    raise UsageError(f"{text!r} is not a statistics mode: none, counts, truncate(n) or full")
                return cls(length=int(found[1]))

    def apply(self, stats: ColumnStats, field: DataField) -> ColumnStats:
        if not self.counts:
            return UNKNOWN
        if not self.bounds:
            return ColumnStats(None, None, stats.null_count)
        if field.type.root is TypeRoot.DECIMAL and not all(_fits(bound, field.type) for bound in (stats.min, stats.max)):
            return ColumnStats(None, None, stats.null_count)
        if self.length is None or field.type.root not in CHARACTERS | BINARIES:
            return stats
        low, high = truncate(stats.min, stats.max, self.length)
        return ColumnStats(low, high, stats.null_count)


def _fits(value: Any, data_type: DataType) -> bool:
    """Sums of an aggregation may have more digits than their type, and no row of statistics holds those."""
    return not value or value.adjusted() < data_type.precision - data_type.scale


KEY_MODE = Mode(length=KEY_LENGTH)


def column_modes(
    fields: Sequence[DataField], options: TableOptions, level: int, role: FileRole = FileRole.DATA, keys: Sequence[str] = ()
) -> list[Mode]:
    """The mode of each column of the table in a file of this level and role (spec 02 §8.1).

    `keys`: the columns that are the key of a thin file.
    """
    default = options.parse("metadata.stats-mode", Mode.parse, Mode(length=16))
    default = options.parse("metadata.stats-mode.per.level", lambda text: _of_level(text, level, default), default)
    if role is FileRole.CHANGELOG:
        default = options.parse("changelog-file.stats-mode", Mode.parse, default)
    first = options.integer("metadata.stats-keep-first-n-columns", -1)
    none = Mode.parse("none")
    found = []
    for position, field in enumerate(fields):
        mode = KEY_MODE if field.name in keys else default if first < 0 or position < first else none
        found.append(options.parse(f"fields.{field.name}.stats-mode", Mode.parse, mode))
    return found


def _of_level(text: str, level: int, default: Mode) -> Mode:
    for pair in text.split(","):
        key, separator, mode = pair.partition(":")
        if not separator or not key.strip().isdigit():
            raise UsageError("must be like '0:none,5:full'")
        if int(key) == level:
            return Mode.parse(mode)
    return default


def from_footer(
    metadata: pq.FileMetaData,
    schema: pa.Schema,
    fields: Iterable[DataField],
    no_bounds: frozenset[str] = frozenset(),
    known: Mapping[tuple[str, int], ColumnStats] | None = None,
) -> list[ColumnStats]:
    """Exact statistics of columns of a file; `known` by column name and row group, as internal values."""
    return [_merge(metadata, schema, field, field.name not in no_bounds, known or {}) for field in fields]


def _merge(
    metadata: pq.FileMetaData, schema: pa.Schema, field: DataField, bounds: bool, known: Mapping[tuple[str, int], ColumnStats]
) -> ColumnStats:
    index = footer.leaf_index(schema, field.name)
    if index is None:
        return UNKNOWN
    arrow = schema.field(field.name).type
    lows, highs, nulls = [], [], 0
    for group in range(metadata.num_row_groups):
        chunk = metadata.row_group(group).column(index)
        found = known.get((field.name, group)) or _of_chunk(chunk, arrow, field)
        if found.null_count is None:
            return UNKNOWN
        nulls += found.null_count
        if found.null_count < chunk.num_values:
            bounds = bounds and found.min is not None and found.max is not None
            lows.append(found.min)
            highs.append(found.max)
    if not bounds or not lows:
        return ColumnStats(None, None, nulls)
    return ColumnStats(min(lows, key=order_key), max(highs, key=order_key), nulls)


def _of_chunk(chunk: pq.ColumnChunkMetaData, arrow: pa.DataType, field: DataField) -> ColumnStats:
    statistics = chunk.statistics
    if statistics is None or not statistics.has_null_count:
        return UNKNOWN
    if not statistics.has_min_max:
        return ColumnStats(None, None, statistics.null_count)
    low, high = (footer.value(raw, arrow, field.type) for raw in (statistics.min_raw, statistics.max_raw))
    return ColumnStats(low, high, statistics.null_count)


class Collector:
    """Exact statistics of some columns of the rows that it is shown."""

    def __init__(self, fields: Iterable[DataField], described: frozenset[str]) -> None:
        self._fields = tuple(fields)
        self._found: dict[str, ColumnStats] = {field.name: _NOTHING for field in self._fields if field.name in described}
        self._with_nan: set[str] = set()

    def add(self, rows: pa.Table) -> None:
        for field in self._fields:
            known = self._found.get(field.name)
            if known is None:
                continue
            column = rows.column(field.name)
            bounds = not pa.types.is_nested(column.type) and field.name not in self._with_nan
            if bounds and field.type.root in FLOATS and pc.any(pc.is_nan(column)).as_py():
                self._with_nan.add(field.name)
                bounds = False
            found = described(column, field.type) if bounds else ColumnStats(None, None, column.null_count)
            lows = [stats.min for stats in (known, found) if stats.min is not None]
            highs = [stats.max for stats in (known, found) if stats.max is not None]
            nulls = (known.null_count or 0) + column.null_count
            self._found[field.name] = ColumnStats(min(lows, key=order_key, default=None), max(highs, key=order_key, default=None), nulls)

    def stats(self) -> list[ColumnStats]:
        """Of all fields; unknown where they were not wanted."""
        found = [(field.name, self._found.get(field.name, UNKNOWN)) for field in self._fields]
        return [ColumnStats(None, None, stats.null_count) if name in self._with_nan else stats for name, stats in found]


def described(column: pa.ChunkedArray, data_type: DataType) -> ColumnStats:
    """Exact statistics of a column that is neither nested nor has NaN. A zero as the lower bound of floats is −0.0, as the upper one 0.0."""
    found = pc.min_max(column)
    low, high = from_arrow(pa.array([found["min"], found["max"]], column.type), data_type)
    if data_type.root in FLOATS and low is not None:
        low, high = (-0.0 if low == 0 else low), (0.0 if high == 0 else high)
    return ColumnStats(low, high, column.null_count)


def key_stats(columns: Sequence[ColumnStats], fields: Sequence[DataField]) -> SimpleStats:
    """Statistics of the trimmed primary key: all of its columns, whatever the table's modes are."""
    return _serialized([KEY_MODE.apply(stats, field) for stats, field in zip(columns, fields, strict=True)], fields)


def value_stats(
    columns: Sequence[ColumnStats], fields: Sequence[DataField], modes: Sequence[Mode], dense: bool
) -> tuple[SimpleStats, tuple[str, ...] | None]:
    """Statistics of the table's columns, and the names of the columns that they are about (None: all)."""
    kept = [mode.apply(stats, field) for stats, field, mode in zip(columns, fields, modes, strict=True)]
    known = [(stats, field) for stats, field in zip(kept, fields, strict=True) if stats != UNKNOWN]
    if not dense or len(known) == len(fields):
        return _serialized(kept, fields), None
    names = tuple(field.name for _, field in known)
    return _serialized([stats for stats, _ in known], [field for _, field in known]), names


def _serialized(columns: Sequence[ColumnStats], fields: Sequence[DataField]) -> SimpleStats:
    types = [field.type.with_nullable(True) for field in fields]
    return SimpleStats(
        binary_row.serialize([stats.min for stats in columns], types),
        binary_row.serialize([stats.max for stats in columns], types),
        tuple(stats.null_count for stats in columns),
    )
