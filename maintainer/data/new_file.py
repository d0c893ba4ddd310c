"""A data file in the making, of any format (spec 02 §2, §9; Java `KeyValueDataFileWriter`).

Rows go in; what the file's metadata needs to know comes out: its size, its first and last key, how many rows are retracts, and statistics of
its columns. What a format does is in `new_parquet_file`, `new_orc_file` and `new_avro_file`: it writes to the sink, and knows the statistics.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa

from maintainer.data import decimals, encoding
from maintainer.data.file_settings import FileSettings
from maintainer.errors import MaintainerError, StorageError
from maintainer.format.simple_stats import ColumnStats
from maintainer.model.row_kind import RETRACT_BIT
from maintainer.model.schema import KIND_FIELD
from maintainer.model.types import DataField
from maintainer.storage.storage import Storage


@dataclass(frozen=True, slots=True)
class FileShape:
    """The columns of a file: as Arrow and as Paimon has them, which of them are the key, and of which statistics are wanted."""

    schema: pa.Schema
    fields: tuple[DataField, ...]
    keys: tuple[str, ...]
    described: frozenset[str]


class NewFile(ABC):
    """A file that is being written. After an error it is gone."""

    def __init__(self, storage: Storage, path: str, shape: FileShape, settings: FileSettings, rows: pa.Table) -> None:
        """`rows`: the first ones, which are still to be written."""
        self.name = path.rpartition("/")[2]
        self.path = storage.display(path)
        self.rows = self.groups = self.deletes = 0
        self.first_key: pa.Table | None = None
        self.last_key: pa.Table | None = None
        self.shape = shape
        self.settings = settings
        self._output: BinaryIO = storage.create(path)
        self.sink = Sink(self._output)
        with self._undone_on_error():
            self._begin(rows)

    # what a format does

    @abstractmethod
    def _begin(self, rows: pa.Table) -> None:
        """Prepares for rows like these."""

    @abstractmethod
    def _write(self, rows: pa.Table) -> None: ...

    @abstractmethod
    def _finish(self) -> None:
        """Writes what is left of the file."""

    def _forget(self) -> None:  # noqa: B027 - most formats have nothing to forget
        """Sees to it that nothing is written any more."""

    @abstractmethod
    def stats(self) -> list[ColumnStats]:
        """Of a finished file, exact statistics of all columns; unknown are those of columns that are not described."""

    # what is the same for all

    @property
    def size(self) -> int:
        """Bytes so far."""
        return self.sink.size

    def write(self, rows: pa.Table) -> None:
        """Rows that are one row group, where a format has such."""
        with self._undone_on_error():
            self._write(rows)
        kinds = rows.column(KIND_FIELD.name)
        self.deletes += sum(int(np.count_nonzero(chunk.to_numpy() & RETRACT_BIT)) for chunk in kinds.chunks)
        keys = rows.select(list(self.shape.keys))
        if self.first_key is None:
            self.first_key = keys.take([0])  # a slice would keep the whole row group in memory
        self.last_key = keys.slice(rows.num_rows - 1)
        self.rows += rows.num_rows
        self.groups += 1

    def finish(self) -> None:
        with self._undone_on_error():
            self._finish()
        self._output.close()

    def abandon(self) -> None:
        """Makes the file disappear; twice is fine."""
        self._forget()
        error = StorageError("given up")
        self._output.__exit__(type(error), error, None)

    @contextmanager
    def _undone_on_error(self) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            self.abandon()
            if isinstance(error, pa.ArrowException):
                raise MaintainerError(f"{self.path}: cannot write: {error}") from error
            raise


def check_decimals(rows: pa.Table, digits: Callable[[int], tuple[int, int]]) -> None:
    """Raises `MaintainerError` for values that columns of their precision cannot have: Arrow would cut them.

    `digits`: of a precision, the least and the largest number that a file keeps.
    """
    for name, column in zip(rows.column_names, rows.columns, strict=True):
        if _has_decimals(column.type):
            for path, leaf in (leaf for chunk in column.chunks for leaf in encoding.leaves(chunk, name)):
                if pa.types.is_decimal(leaf.type):
                    decimals.check_range(leaf, *digits(leaf.type.precision), path)


@lru_cache(maxsize=4096)
def _has_decimals(data_type: pa.DataType) -> bool:
    return pa.types.is_decimal(data_type) or any(_has_decimals(data_type.field(index).type) for index in range(data_type.num_fields))


class Sink:
    """What formats write to: counts the bytes, and can hold back those of a footer."""

    closed = False

    def __init__(self, output: BinaryIO) -> None:
        self.size = 0
        self._output = output
        self._held: list[bytes] | None = None

    def write(self, data: Any) -> int:
        if self._held is None:
            self._output.write(data)
        else:
            self._held.append(bytes(data))
        self.size += len(data)
        return len(data)

    def hold(self) -> None:
        self._held = []

    def release(self, change: Callable[[bytes], bytes]) -> None:
        held = b"".join(self._held or ())
        self._held = None
        self.size -= len(held)
        self.write(change(held))

    def tell(self) -> int:
        return self.size

    def flush(self) -> None:
        """The output is flushed when it is closed."""
