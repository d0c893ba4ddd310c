"""Writing ORC data files (spec 02 §4; Java `OrcWriterFactory`).

A row group is a stripe: Arrow ends one with each batch, since stripes are to have one byte; only rows that fill no block of 64 KB wait for
the next ones. It is asked for exact types only:

* TIME is a plain INT, as in Java's files;
* CHAR is STRING, since Arrow has no text of a length; Java's reader makes CHAR of it;
* timestamps go from their unit to seconds and nanoseconds, so every year is exact. Of those before 1970 that are not at a full second Arrow
  writes negative nanoseconds, which nobody else reads: they are refused.

Statistics are collected while rows are written, those of Java's files without the blanks of CHAR.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from maintainer.data import encoding
from maintainer.data.arrow_types import to_arrow
from maintainer.data.new_file import NewFile, check_decimals
from maintainer.data.statistics import Collector
from maintainer.errors import Unsupported
from maintainer.format import data_formats
from maintainer.format.simple_stats import ColumnStats
from maintainer.model.types import TIMESTAMPS, DataType, TypeRoot

_BEST_LEVEL = 3
"""Of zstd; ORC's writer knows this one, for the strategy 'compression', and 1."""
_SHARE = 0.25
"""What rows are thought to become of their bytes, until some are written."""
_PER_SECOND = {"ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_INT = DataType(TypeRoot.INT)


class NewOrcFile(NewFile):
    _orc: Any = None
    _waiting = _written = 0
    """Bytes of rows in memory that are in no stripe yet, and of those that are."""

    @property
    def size(self) -> int:
        """Bytes so far, about, until the file is finished."""
        share = self.sink.size / self._written if self._written else _SHARE
        return self.sink.size + round(self._waiting * share)

    def _begin(self, rows: pa.Table) -> None:
        from pyarrow import orc

        self._collector = Collector(self.shape.fields, self.shape.described)
        self._types = [to_arrow(_stored(field.type)) for field in self.shape.fields]
        self._orc = orc.ORCWriter(
            pa.PythonFile(self.sink, mode="w"),
            compression=data_formats.CODECS["orc"][self.settings.compression],
            compression_strategy="compression" if self.settings.zstd_level >= _BEST_LEVEL else "speed",
            stripe_size=1,
            batch_size=rows.num_rows,
        )

    def _write(self, rows: pa.Table) -> None:
        self._collector.add(rows)
        check_decimals(rows, _digits)
        for column, field in zip(rows.columns, self.shape.fields, strict=True):
            if any(part.root in TIMESTAMPS for part in data_formats.parts(field.type)):
                for path, leaf in encoding.leaves(column, field.name):
                    if pa.types.is_timestamp(leaf.type):
                        _check_timestamps(leaf, path)
        columns = [column.cast(stored) for column, stored in zip(rows.columns, self._types, strict=True)]
        before = self.sink.size
        self._orc.write(pa.Table.from_arrays(columns, names=rows.column_names))
        self._waiting += rows.nbytes
        if self.sink.size > before:
            self._written += self._waiting
            self._waiting = 0

    def _finish(self) -> None:
        self._orc.close()
        self._waiting = 0

    def _forget(self) -> None:
        if self._orc is not None:
            self._orc.is_open = False  # or it writes a footer when it is collected

    def stats(self) -> list[ColumnStats]:
        return self._collector.stats()


def _check_timestamps(array: pa.Array, name: str) -> None:
    numbers = array.view(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    broken = np.flatnonzero((numbers < 0) & (numbers % _PER_SECOND[array.type.unit] != 0))
    if len(broken):
        text = array[int(broken[0])].cast(pa.timestamp(array.type.unit)).cast(pa.string()).as_py()
        raise Unsupported(f"column {name}: {text}: times before 1970 with fractions of a second are not written to ORC files")


@lru_cache(maxsize=4096)
def _stored(data_type: DataType) -> DataType:
    """The type with INT in the place of TIME, at every depth."""
    if data_type.root is TypeRoot.TIME:
        return _INT.with_nullable(data_type.nullable)
    return replace(
        data_type,
        element=None if data_type.element is None else _stored(data_type.element),
        key=None if data_type.key is None else _stored(data_type.key),
        fields=tuple(replace(field, type=_stored(field.type)) for field in data_type.fields),
    )


def _digits(precision: int) -> tuple[int, int]:
    """What Java's reader does not take for NULL."""
    most = 10**precision - 1
    return -most, most
