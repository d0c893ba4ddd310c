"""The bounds of the columns of one data file, in plain Python: the model of `maintainer.read.file_columns`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from maintainer.data.evolution import keeps_nulls, keeps_order
from maintainer.errors import CorruptFile
from maintainer.format import binary_row, simple_stats
from maintainer.model.files import DataFileMeta, SimpleStats
from maintainer.model.schema import TableSchema
from maintainer.model.types import FLOATS, DataType
from maintainer.read.prune import Bounds

NOTHING = (None, None, None)


class FileBounds:
    def __init__(self, schema: TableSchema, schema_of: Callable[[int], TableSchema], columns: frozenset[str]) -> None:
        self._fields = [schema.field(name) for name in schema.names if name in columns and name not in schema.partition_keys]
        self._schema_of = schema_of

    def of(self, file: DataFileMeta) -> dict[str, Bounds]:
        """What is known of the columns in this file, deleted rows included."""
        written = self._schema_of(file.schema_id)
        values = _by_name(file, file.value_stats, written.names if file.value_stats_cols is None else file.value_stats_cols, written)
        keys = _by_name(file, file.key_stats, written.trimmed_primary_keys, written)
        found: dict[str, Bounds] = {}
        for field in self._fields:
            source = written.field_by_id(field.id)
            if source is None:
                found[field.name] = Bounds(null_count=file.row_count, rows=file.row_count)
            elif not keeps_order(source.type, field.type):
                nulls = values.get(source.name, (None, None, None))[2]
                if keeps_nulls(field.type) or nulls == file.row_count:
                    found[field.name] = Bounds(null_count=nulls, rows=file.row_count)
            else:
                known = [values.get(source.name, NOTHING), keys.get(source.name, NOTHING)]
                if source.name in written.trimmed_primary_keys[:1]:
                    known.append((*_first_of_key(file, written), None))
                low, high, nulls = (next((each[i] for each in known if each[i] is not None), None) for i in range(3))
                found[field.name] = _widened(low, high, nulls, file.row_count, field.type)
        return found


def _by_name(file: DataFileMeta, stats: SimpleStats, names: tuple[str, ...], schema: TableSchema) -> dict[str, tuple[Any, Any, int | None]]:
    try:
        return dict(zip(names, simple_stats.file_stats(file.file_name, stats, schema.types_of(names)), strict=True))
    except (CorruptFile, ValueError):
        return {}


def _first_of_key(file: DataFileMeta, schema: TableSchema) -> tuple[Any, Any]:
    """Files are in key order, so the first column of the key is between those of the first and the last row."""
    try:
        return binary_row.deserialize(file.min_key, schema.key_types)[0], binary_row.deserialize(file.max_key, schema.key_types)[0]
    except (CorruptFile, IndexError):
        return None, None


def _widened(low: Any, high: Any, nulls: int | None, rows: int, data_type: DataType) -> Bounds:
    if data_type.root in FLOATS:
        low = None if low is None or math.isnan(low) else -0.0 if low == 0 else low
        high = None
    elif isinstance(high, str) and high.endswith("?"):
        high = None  # Java cuts a text after U+D7FF to one with half a surrogate pair, which becomes a "?" that is below the text
    return Bounds(low, high, nulls, rows)
