"""Writing Parquet files (spec 02 §3.5; Java `ParquetWriterFactory`): how they are encoded is in `maintainer.data.encoding`.

Statistics are those of the footer, and of each row group what the footer does not tell (`maintainer.data.statistics`).
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from maintainer.data import encoding, int96, statistics
from maintainer.data.new_file import NewFile, check_decimals
from maintainer.format.simple_stats import ColumnStats
from maintainer.model.types import BINARIES, CHARACTERS, FLOATS

_FOOTER_BOUND = 4096
"""Bounds longer than this are left out of a footer."""


class NewParquetFile(NewFile):
    _parquet: Any = None

    def _begin(self, rows: pa.Table) -> None:
        self._with_nan: set[str] = set()
        self._known: dict[tuple[str, int], ColumnStats] = {}
        self._described = [field for field in self.shape.fields if field.name in self.shape.described]
        self._schema = int96.raw_schema(self.shape.schema)
        self._has_int96 = self._schema != self.shape.schema
        self._collected: list[pq.FileMetaData] = []
        options = encoding.writer_options(self._raw(rows), self.settings.compression, self.settings.zstd_level)
        sink = pa.PythonFile(self.sink, mode="w")
        self._parquet = pq.ParquetWriter(sink, self._schema, metadata_collector=self._collected, **options)

    def _write(self, rows: pa.Table) -> None:
        self._look_at(rows)
        check_decimals(rows, _digits)
        self._parquet.write_table(self._raw(rows), row_group_size=rows.num_rows)

    def _raw(self, rows: pa.Table) -> pa.Table:
        """The rows with INT96 values as bytes."""
        if not self._has_int96:
            return rows
        columns = [
            pa.chunked_array([int96.raw_array(chunk, field.type) for chunk in column.chunks], field.type)
            for column, field in zip(rows.columns, self._schema, strict=True)
        ]
        return pa.Table.from_arrays(columns, schema=self._schema)

    def _look_at(self, rows: pa.Table) -> None:
        """Notes what the footer will not tell."""
        for field in self._described:
            name, root, column = field.name, field.type.root, rows.column(field.name)
            if root in FLOATS:
                if name in self._with_nan or pc.any(pc.is_nan(column)).as_py():
                    self._with_nan.add(name)
                else:
                    self._known[name, self.groups] = statistics.described(column, field.type)
            elif root in CHARACTERS or root in BINARIES:
                longest = pc.max(pc.binary_length(column)).as_py()
                if longest is not None and longest > _FOOTER_BOUND:
                    self._known[name, self.groups] = statistics.described(column, field.type)
            elif pa.types.is_timestamp(column.type) and column.type.unit == "ns":
                self._known[name, self.groups] = statistics.described(column, field.type)

    def _finish(self) -> None:
        if self._has_int96:
            self.sink.hold()
        self._parquet.close()
        if self._has_int96:
            self.sink.release(int96.finished)

    def _forget(self) -> None:
        if self._parquet is not None:
            self._parquet.is_open = False  # or it writes a footer when it is collected

    def stats(self) -> list[ColumnStats]:
        (metadata,) = self._collected
        return statistics.from_footer(metadata, self.shape.schema, self.shape.fields, frozenset(self._with_nan), self._known)


def _digits(precision: int) -> tuple[int, int]:
    """What columns hold: they are INT32, INT64, or as few bytes as are enough for the precision."""
    width = 4 if precision <= 9 else 8 if precision <= 18 else (10**precision - 1).bit_length() // 8 + 1
    bound = 1 << 8 * width - 1
    return -bound, bound - 1
