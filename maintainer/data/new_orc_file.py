"""Writing ORC data files (spec 02 §4; Java `OrcWriterFactory`).

A row group is a stripe. Arrow encodes it as a file of its own, of which the streams are put into our container (`format.orc_output`):
timestamps are exact then, and the file is as long as it seems. Arrow is asked for exact types only:

* TIME is a plain INT, as in Java's files;
* CHAR is STRING, since Arrow has no text of a length; Java's reader makes CHAR of it;
* times before 1970 that are not at a full second go as whole seconds, beside which their nanoseconds are put.

Statistics are collected while rows are written, those of Java's files without the blanks of CHAR.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from maintainer.data import encoding
from maintainer.data.arrow_types import to_arrow
from maintainer.data.new_file import NewFile, check_decimals
from maintainer.data.orc_file import rebuilt
from maintainer.data.statistics import Collector
from maintainer.errors import Unsupported
from maintainer.format import data_formats, orc, orc_output
from maintainer.format.simple_stats import ColumnStats
from maintainer.model.types import TIMESTAMPS, DataType, TypeRoot

_ONE_STRIPE = 1 << 40
_PER_SECOND = {"ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_NANOS = 1_000_000_000
_LAST_HELD = 999_999
"""Of negative seconds with more nanoseconds, readers take one away."""
_INT = DataType(TypeRoot.INT)


class NewOrcFile(NewFile):
    def _begin(self, rows: pa.Table) -> None:
        self._collector = Collector(self.shape.fields, self.shape.described)
        self._types = [to_arrow(_stored(field.type)) for field in self.shape.fields]
        self._container = orc_output.Container(data_formats.CODECS["orc"][self.settings.compression], self.settings.zstd_level)
        self.sink.write(orc.MAGIC)

    def _write(self, rows: pa.Table) -> None:
        from pyarrow import orc as arrow_orc

        self._collector.add(rows)
        check_decimals(rows, _digits)
        # not a slice, of which Arrow would take the wrong NULLs of a ROW
        columns = [pa.concat_arrays(column.chunks).cast(stored) for column, stored in zip(rows.columns, self._types, strict=True)]
        nanos: list[npt.NDArray[np.int64] | None] = []
        for index, field in enumerate(self.shape.fields):
            if any(part.root in TIMESTAMPS for part in data_formats.parts(field.type)):
                array = columns[index]
                found = [_nanoseconds(leaf, path) for path, leaf in encoding.leaves(array, field.name) if pa.types.is_timestamp(leaf.type)]
                nanos += found
                if any(some is not None for some in found):
                    columns[index] = _seconds(array, array, field.type)
        output = pa.BufferOutputStream()
        table = pa.Table.from_arrays(columns, names=rows.column_names)
        arrow_orc.write_table(table, output, compression="uncompressed", stripe_size=_ONE_STRIPE, batch_size=rows.num_rows)
        data = output.getvalue().to_pybytes()
        numbers = orc_output.timestamp_columns(orc.read_tail(lambda start, length: data[start : start + length], len(data)).types)
        streams = {number: orc_output.nanoseconds(some) for number, some in zip(numbers, nanos, strict=True) if some is not None}
        self.sink.write(self._container.stripe(data, streams))

    def _finish(self) -> None:
        self.sink.write(self._container.end())

    def stats(self) -> list[ColumnStats]:
        return self._collector.stats()


def _parts(array: pa.Array) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Seconds as they are stored, and nanoseconds."""
    per = _PER_SECOND[array.type.unit]
    numbers = array.view(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    seconds = np.floor_divide(numbers, per)
    nanos = (numbers - seconds * per) * (_NANOS // per)
    return seconds + ((seconds < 0) & (nanos > _LAST_HELD)), nanos


def _nanoseconds(array: pa.Array, name: str) -> npt.NDArray[np.int64] | None:
    """Of all values that are there, or None where Arrow writes them right."""
    present = array.drop_null()
    seconds, nanos = _parts(present)
    negative = present.view(pa.int64()).to_numpy(zero_copy_only=False) < 0
    lost = np.flatnonzero(negative & (seconds == 0))
    if len(lost):
        text = present[int(lost[0])].cast(pa.timestamp(array.type.unit)).cast(pa.string()).as_py()
        raise Unsupported(f"column {name}: {text}: ORC files do not hold times within the last 999 milliseconds before 1970")
    return nanos if np.any(negative & (nanos != 0)) else None


def _seconds(array: pa.Array, beside: pa.Array, source: DataType) -> pa.Array:
    """The array with whole seconds in the place of timestamps."""
    if source.root in TIMESTAMPS:
        seconds, _ = _parts(array)
        mask = np.asarray(array.is_null()) if array.null_count else None
        return pa.array(seconds * _PER_SECOND[array.type.unit], pa.int64(), mask=mask).view(array.type)
    return rebuilt(array, beside, source, _seconds) if pa.types.is_nested(array.type) else array


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
