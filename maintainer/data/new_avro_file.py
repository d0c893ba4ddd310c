"""Writing Avro data files (spec 02 §5; Java `AvroWriterFactory`).

Blocks have about 64 KB before they are compressed, as those of Avro's own writer, and end with each row group. Statistics are collected while
rows are written, those of keys and texts as in Parquet files, not cut to the table's mode first.
"""

from __future__ import annotations

import hashlib
import json

import numpy as np
import pyarrow as pa

from maintainer.data.avro_encoding import encode
from maintainer.data.new_file import NewFile
from maintainer.data.statistics import Collector
from maintainer.format import avro, avro_record, data_formats
from maintainer.format.simple_stats import ColumnStats

_BLOCK = 64_000
_AT_ONCE = 2 << 20
"""Arrow bytes that are encoded at once: little memory, and columns that stay in the processor's cache."""


class NewAvroFile(NewFile):
    def _begin(self, rows: pa.Table) -> None:
        self._codec = data_formats.CODECS["avro"][self.settings.compression]
        self._collector = Collector(self.shape.fields, self.shape.described)
        self._sync = hashlib.md5(self.name.encode(), usedforsecurity=False).digest()
        schema = json.dumps(avro_record.record_schema(self.shape.fields), separators=(",", ":"))
        self.sink.write(avro.header(schema, self._codec, self._sync))

    def _write(self, rows: pa.Table) -> None:
        self._collector.add(rows)
        step = max(1, rows.num_rows * _AT_ONCE // max(1, rows.nbytes))
        for start in range(0, rows.num_rows, step):
            some = rows.slice(start, step).combine_chunks()
            self._write_records(encode([_one(column) for column in some.columns], self.shape.fields))

    def _write_records(self, records: pa.Array) -> None:
        ends = np.frombuffer(records.buffers()[1], np.int64, len(records) + 1, 8 * records.offset)
        data = memoryview(records.buffers()[2] or b"")
        first = 0
        while first < len(records):
            stop = min(len(records), max(first + 1, int(np.searchsorted(ends, ends[first] + _BLOCK))))
            block = avro.compress(self._codec, self.settings.zstd_level, data[ends[first] : ends[stop]])
            self.sink.write(avro.varint(stop - first) + avro.varint(len(block)))
            self.sink.write(block)
            self.sink.write(self._sync)
            first = stop

    def _finish(self) -> None:
        """The last block ends the file."""

    def stats(self) -> list[ColumnStats]:
        return self._collector.stats()


def _one(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)
