"""A data file of any format as an open thing that gives columns (spec 02 §2, §3.4, §13; Java `KeyValueFileReaderFactory`).

A file is opened with the size and row count that its metadata gives, and anything else is an error: positions, deletion vectors and indexes
depend on them. Columns are found by the names of the *file's* schema and come back as those of the read schema. Keys are read from the value
columns, never from `_KEY_…`. Positions are physical: they count all rows of the file, whatever is left out.

What a format does is in `parquet_file`, `orc_file` and `avro_file`: row groups, the raw columns of them, and what is known without reading.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import structlog
from pyroaring import BitMap64

from maintainer.data import evolution, physical
from maintainer.data.arrow_types import arrow_field
from maintainer.errors import CastError, CorruptFile, MaintainerError, StorageError, Unsupported
from maintainer.model.files import DataFileMeta
from maintainer.model.schema import KIND_FIELD, SEQUENCE_FIELD, TableSchema
from maintainer.model.types import CHARACTERS, DataField, DataType
from maintainer.storage.storage import Storage

_LARGEST_KIND = 3

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class RowGroup:
    """Rows first … first + rows − 1 of the file."""

    first: int
    rows: int


@dataclass(frozen=True, slots=True)
class Column:
    """How a column of the read schema comes out of this file; `name` is None when the file does not have it, `form` what is right as it is."""

    target: DataField
    source: DataField
    name: str | None
    holds_text: bool
    form: pa.DataType | None

    @property
    def is_system(self) -> bool:
        return self.target is SEQUENCE_FIELD or self.target is KIND_FIELD


class DataFile(ABC):
    """An open data file. Use it in a `with` block, or close it."""

    row_groups: tuple[RowGroup, ...] = ()
    is_columnar = True
    """Whether some columns can be read without the others."""

    def __init__(self, storage: Storage, path: str, meta: DataFileMeta, file_schema: TableSchema, read_schema: TableSchema) -> None:
        self.path = storage.display(path)
        self.row_count: int = meta.row_count
        self._file_schema = file_schema
        self._read_schema = read_schema
        self._zone = read_schema.options.get("read.time-zone", "UTC").strip()
        self._columns: dict[str, Column] = {}
        self._source = storage.open_input(path, meta.file_size)
        try:
            with self._errors():
                size = self._source.size()
                if size != meta.file_size:
                    raise CorruptFile(f"it has {size} bytes, its metadata says {meta.file_size}")
                self._open()
                counted = sum(group.rows for group in self.row_groups)
                if not counted == self.row_count == meta.row_count:
                    raise CorruptFile(f"it has {counted} rows, its footer says {self.row_count}, its metadata {meta.row_count}")
        except BaseException:
            self.close()
            raise

    # what a format does

    @abstractmethod
    def _open(self) -> None:
        """Sets `row_groups` and `row_count`."""

    @property
    @abstractmethod
    def names(self) -> Sequence[str]:
        """The columns of the file, as it says itself."""

    def _narrowed(self, positions: BitMap64) -> tuple[RowGroup, ...]:
        """Smaller row groups around these positions, where the format has them."""
        return self.row_groups

    @abstractmethod
    def group_bytes(self, group: int) -> int:
        """What the columns of a row group take when they are decoded, about."""

    @abstractmethod
    def _read(self, groups: list[int], plans: Sequence[Column]) -> pa.Table:
        """Columns that the file has, under their names in it."""

    @abstractmethod
    def _raw_batches(self, plans: Sequence[Column], batch_rows: int, piece: list[int], rows: int) -> Iterator[pa.RecordBatch]:
        """The same as batches of at most so many rows; the row groups of the piece follow one another."""

    def _bounds(self, plan: Column) -> list[tuple[Any, Any] | None]:
        """Bounds of a column that the file has, by row group."""
        return [None] * len(self.row_groups)

    @abstractmethod
    def _stored_bytes(self, name: str) -> int:
        """What a column that the file has takes in it, about."""

    def _split(self, piece: list[int], plans: Sequence[Column]) -> Iterator[list[int]]:
        """A piece in pieces that are read at once."""
        yield piece

    # what is the same for all

    def close(self) -> None:
        with suppress(OSError):
            self._source.close()

    def __enter__(self) -> DataFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def narrow(self, positions: BitMap64) -> None:
        """Nothing but rows of row groups that hold one of these positions will be read: row groups may become smaller around them."""
        with self._errors():
            self.row_groups = self._narrowed(positions)

    def group_bounds(self, column: str) -> list[tuple[Any, Any] | None]:
        """Per row group, internal values between which all values of a column are that are not NULL; None where nothing is known.

        Bounds of FLOAT and DOUBLE end at NaN: a footer does not tell whether there is one.
        """
        with self._errors(column):
            plan = self._plan(column)
            if plan.name is None or not evolution.keeps_order(plan.source.type, plan.target.type):
                return [None] * len(self.row_groups)
            return self._bounds(plan)

    def stored_bytes(self, column: str) -> int:
        """What a column takes in the file."""
        with self._errors(column):
            plan = self._plan(column)
            return 0 if plan.name is None else self._stored_bytes(plan.name)

    def read(self, columns: Sequence[str], row_groups: Sequence[int] | None = None) -> pa.Table:
        """These columns of the whole file, or of some row groups in the given order."""
        groups = range(len(self.row_groups)) if row_groups is None else row_groups
        plans = [self._plan_checked(name) for name in columns]
        rows = sum(self.row_groups[group].rows for group in groups)
        found = _found(plans)
        with self._errors():
            table = self._read(list(groups), found) if found else None
            if table is not None and table.num_rows != rows:
                raise CorruptFile(f"{table.num_rows} rows were found where {rows} should be")
        schema = _schema(plans)
        arrays = []
        for plan, field in zip(plans, schema, strict=True):
            if plan.name is None or table is None:
                arrays.append(pa.chunked_array([pa.nulls(rows, field.type)]))
            else:
                arrays.append(pa.chunked_array([self._conform(chunk, plan) for chunk in table.column(plan.name).chunks], field.type))
        return pa.Table.from_arrays(arrays, schema=schema) if plans else _rows_only(rows)

    def batches(self, columns: Sequence[str], batch_rows: int, row_groups: Sequence[int] | None = None) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Batches of at most `batch_rows` rows of these columns, each with the position of its first row."""
        plans = [self._plan_checked(name) for name in columns]
        schema = _schema(plans)
        groups = range(len(self.row_groups)) if row_groups is None else row_groups
        for piece in self._pieces(groups, _found(plans)):
            first = self.row_groups[piece[0]].first
            rows = sum(self.row_groups[group].rows for group in piece)
            done = 0
            for batch, count in self._counted(_found(plans), batch_rows, piece, rows):
                if done + count > rows:
                    done += count
                    break
                arrays = [
                    pa.nulls(count, field.type) if plan.name is None or batch is None else self._conform(batch.column(plan.name), plan)
                    for plan, field in zip(plans, schema, strict=True)
                ]
                yield first + done, pa.RecordBatch.from_arrays(arrays, schema=schema) if plans else _empty_batch(count)
                done += count
            if done != rows:
                raise CorruptFile(f"row groups {piece} do not have the {rows} rows that the footer says", path=self.path)

    def _pieces(self, groups: Sequence[int], plans: Sequence[Column]) -> Iterator[list[int]]:
        for piece in _pieces(groups):
            with self._errors():
                together = self._split(piece, plans) if plans else iter([piece])
            while True:
                with self._errors():
                    some = next(together, None)
                if some is None:
                    break
                yield some

    def _counted(self, plans: Sequence[Column], batch_rows: int, piece: list[int], rows: int) -> Iterator[tuple[pa.RecordBatch | None, int]]:
        if not plans:
            for start in range(0, rows, batch_rows):
                yield None, min(batch_rows, rows - start)
            return
        with self._errors():
            stream = self._raw_batches(plans, batch_rows, piece, rows)
        while True:
            with self._errors():
                batch = next(stream, None)
            if batch is None:
                return
            if batch.num_rows:
                yield batch, batch.num_rows

    def _plan_checked(self, name: str) -> Column:
        with self._errors(name):
            return self._plan(name)

    def _plan(self, name: str) -> Column:
        plan = self._columns.get(name)
        if plan is None:
            target, source = evolution.match(name, self._file_schema, self._read_schema)
            found = None if source is None else self._name_in_file(source, target)
            source = source or target
            form = physical.kept_form(source.type, target.type)
            plan = self._columns[name] = Column(target, source, found, _holds_text(target.type), form)
        return plan

    def _name_in_file(self, source: DataField, target: DataField) -> str | None:
        """None if the file does not have this column of its schema, which then is NULL (Java: the same, with a warning)."""
        count = self.names.count(source.name)
        if count == 1:
            return source.name
        if count > 1:
            raise CorruptFile(f"{count} columns have the name {source.name}")
        if not (source.type.nullable and target.type.nullable):
            raise CorruptFile("the file does not have this column, which is NOT NULL")
        log.warning("data-file.column-missing", file=self.path, column=source.name)
        return None

    def _conform(self, array: pa.Array, plan: Column) -> pa.Array:
        with self._errors(plan.target.name):
            array = self._natural(array, plan.source.type)
            if array.type != plan.form:
                array = physical.conform(array, plan.source.type, plan.target.type, self._zone)
            if plan.holds_text:
                array.validate(full=True)  # Arrow does not look whether text is UTF-8 when it reads it
            if array.null_count and not plan.target.type.nullable and (plan.is_system or plan.target.name in self._read_schema.primary_keys):
                raise CorruptFile("NULL where there must be a value")
            if plan.target is KIND_FIELD and len(array):
                kinds = pc.min_max(array).as_py()
                if kinds["min"] < 0 or kinds["max"] > _LARGEST_KIND:
                    raise CorruptFile(f"row kinds from {kinds['min']} to {kinds['max']}")
            return array

    def _natural(self, array: pa.Array, source: DataType) -> pa.Array:
        """The values of a column as Arrow has them naturally (`maintainer.data.physical` knows the forms)."""
        return array

    @contextmanager
    def _errors(self, column: str | None = None) -> Iterator[None]:
        """Errors of Arrow as ours, and all of them naming the file, and the column if it is about one."""
        about = "" if column is None else f"column {column}: "
        try:
            yield
        except CorruptFile as error:
            if error.path:
                raise
            raise CorruptFile(f"{about}{error.reason}", path=self.path, offset=error.offset) from error
        except Unsupported as error:
            text = str(error)
            if text.startswith(self.path):
                raise
            raise Unsupported(f"{self.path}: {'' if text.startswith(about) else about}{text}") from error
        except CastError as error:
            raise CastError(f"{self.path}: {about}{error}") from error
        except MaintainerError:
            raise
        except OSError as error:
            if error.errno is not None:
                raise StorageError(f"{self.path}: cannot read: {error}") from error
            raise CorruptFile(f"{about}{_one_line(error)}", path=self.path) from error
        except (pa.ArrowException, ValueError, KeyError, OverflowError) as error:
            raise CorruptFile(f"{about}{_one_line(error)}", path=self.path) from error


def _holds_text(data_type: DataType) -> bool:
    parts = (data_type.key, data_type.element, *(field.type for field in data_type.fields))
    return data_type.root in CHARACTERS or any(part is not None and _holds_text(part) for part in parts)


def _found(plans: Sequence[Column]) -> list[Column]:
    """The columns that the file has, each once."""
    return list({plan.name: plan for plan in plans if plan.name is not None}.values())


def _schema(plans: Sequence[Column]) -> pa.Schema:
    return pa.schema([arrow_field(plan.target, with_ids=False) for plan in plans])


def _pieces(groups: Sequence[int]) -> Iterator[list[int]]:
    """Row groups that follow one another in the file."""
    piece: list[int] = []
    for group in groups:
        if piece and group != piece[-1] + 1:
            yield piece
            piece = []
        piece.append(group)
    if piece:
        yield piece


def _rows_only(rows: int) -> pa.Table:
    return pa.table({"": pa.nulls(rows)}).select([])


def _empty_batch(rows: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.nulls(rows)], names=[""]).select([])


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())
