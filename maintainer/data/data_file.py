"""A data file of any format as an open thing that gives columns (spec 02 §2, §3.4, §13; Java `KeyValueFileReaderFactory`).

A file is opened with the size and row count that its metadata gives, and anything else is an error: positions, deletion vectors and indexes
depend on them. Columns are found by the names of the *file's* schema and come back as those of the read schema. Keys are read from the value
columns, never from `_KEY_…`. Positions are physical: they count all rows of the file, whatever is left out.

What a format does is in `parquet_file`, `orc_file` and `avro_file`: row groups, the raw columns of them, and what is known without reading.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
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

Positions = npt.NDArray[np.int64]
"""Physical positions of rows, ascending."""

_FEW = 4
"""Selected rows of a row group up to which it is read by itself, so that little is decoded behind the last one."""

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

    is_plain: bool
    """Whether there is nothing to check in values of that form."""

    @property
    def is_system(self) -> bool:
        return self.target is SEQUENCE_FIELD or self.target is KIND_FIELD


class Kept(Protocol):
    """What a format has made of the directory of a file (footer, tail, header), good for any number of readers of the file at the same time."""

    @property
    def held(self) -> int:
        """Bytes that it takes in memory, about."""


class DataFile(ABC):
    """An open data file. Use it in a `with` block, or close it."""

    row_groups: tuple[RowGroup, ...] = ()
    is_columnar = True
    """Whether some columns can be read without the others."""
    uses_threads = False
    """Whether the columns of a large row group, which cannot be cut into pieces, may be decoded at the same time."""

    def __init__(
        self, storage: Storage, path: str, meta: DataFileMeta, file_schema: TableSchema, read_schema: TableSchema, known: Kept | None = None
    ) -> None:
        self._arguments = storage, path, meta, file_schema, read_schema
        self.path = storage.display(path)
        self.known: Kept | None = known
        self._wanted: BitMap64 | None = None
        self.row_count: int = meta.row_count
        self._file_schema = file_schema
        self._read_schema = read_schema
        self._zone = read_schema.options.get("read.time-zone", "UTC").strip()
        self.plans: dict[str, Column] = {}
        self._source = storage.open_input(path, meta.file_size, known is not None)
        try:
            with self._errors():
                size = self._source.size()
                if size != meta.file_size:
                    raise CorruptFile(f"it has {size} bytes, its metadata says {meta.file_size}")
                self._open()
                counted = self.row_count if known is not None else sum(group.rows for group in self.row_groups)
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
    def group_bytes(self, group: int, columns: Sequence[str] | None = None) -> int:
        """What these columns (None: all) of a row group take when they are decoded, about."""

    def pieces(self, groups: Sequence[int], columns: Sequence[str]) -> list[list[int]]:
        """Row groups, cut where several threads may share the work."""
        return [list(groups)]

    def together(self, groups: Sequence[int], columns: Sequence[str]) -> list[list[int]]:
        """Row groups, as many at a time as are fetched at once when these columns are read."""
        return [[group] for group in groups]

    @abstractmethod
    def _read(self, groups: list[int], plans: Sequence[Column]) -> pa.Table:
        """Columns that the file has, under their names in it."""

    @abstractmethod
    def _raw_batches(self, plans: Sequence[Column], batch_rows: int, piece: list[int], rows: int) -> Iterator[pa.RecordBatch]:
        """The same as batches of at most so many rows; the row groups of the piece follow one another."""

    def _bounds(self, plan: Column, groups: Sequence[int]) -> list[tuple[Any, Any] | None]:
        """Bounds of a column that the file has, by row group."""
        return [None] * len(groups)

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
        self._wanted = positions
        with self._errors():
            self.row_groups = self._narrowed(positions)

    def again(self) -> DataFile:
        """The same file, opened once more, for another thread; what is known of it is not read again."""
        data = type(self)(*self._arguments, self.known)
        data.plans = self.plans
        data.uses_threads = self.uses_threads
        if self._wanted is not None:
            data.narrow(self._wanted)
        return data

    def group_bounds(self, column: str, groups: Sequence[int] | None = None) -> list[tuple[Any, Any] | None]:
        """Per row group, internal values between which all values of a column are that are not NULL; None where nothing is known.

        Bounds of FLOAT and DOUBLE end at NaN: a footer does not tell whether there is one.
        """
        with self._errors(column):
            plan = self._plan(column)
            asked = range(len(self.row_groups)) if groups is None else groups
            if plan.name is None or not evolution.keeps_order(plan.source.type, plan.target.type):
                return [None] * len(asked)
            return self._bounds(plan, asked)

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
                yield first + done, self._conformed(batch, count, plans, schema)
                done += count
            if done != rows:
                raise CorruptFile(f"row groups {piece} do not have the {rows} rows that the footer says", path=self.path)

    def selected(
        self, columns: Sequence[str], positions: Positions, batch_rows: int, row_groups: Sequence[int] | None = None
    ) -> Iterator[tuple[Positions, pa.RecordBatch]]:
        """These columns of the rows at these positions, as far as the row groups have them, with the positions of each batch.

        Row groups without any of them are not read, and of the others nothing behind the last one is decoded.
        """
        plans = [self._plan_checked(name) for name in columns]
        schema, found = _schema(plans), _found(plans)
        wanted = {}
        for group in range(len(self.row_groups)) if row_groups is None else row_groups:
            where = self.row_groups[group]
            low, high = np.searchsorted(positions, (where.first, where.first + where.rows))
            if low < high:
                wanted[group] = positions[low:high]
        for together in self._fetched(list(wanted), found):
            for piece in _pieces(together):
                at = np.concatenate([wanted[group] for group in piece])
                if not found:
                    for start in range(0, len(at), batch_rows):
                        yield at[start : start + batch_rows], self._conformed(None, len(at[start : start + batch_rows]), plans, schema)
                    continue
                for groups in [piece] if len(at) > _FEW * len(piece) else [[group] for group in piece]:
                    for here, raw in self._taken(groups, at, found, batch_rows):
                        yield here, self._conformed(raw, len(here), plans, schema)

    def _taken(
        self, groups: list[int], positions: Positions, found: Sequence[Column], batch_rows: int
    ) -> Iterator[tuple[Positions, pa.RecordBatch]]:
        """Raw columns of the rows at these positions in row groups that follow one another."""
        first, rows = self.row_groups[groups[0]].first, sum(self.row_groups[group].rows for group in groups)
        low, high = np.searchsorted(positions, (first, first + rows))
        at, done = positions[low:high], 0
        batch_rows = min(batch_rows, int(at[-1]) - first + 1)
        for batch, count in self._counted(found, batch_rows, groups, rows):
            assert batch is not None
            end = done + int(np.searchsorted(at[done:], first + count))
            if end > done:
                here = at[done:end]
                yield here, batch if len(here) == count else batch.take(pa.array(here - first))
            first, done = first + count, end
            if done == len(at):
                return
        raise CorruptFile(f"row groups {groups} do not have the {rows} rows that the footer says", path=self.path)

    def _conformed(self, raw: pa.RecordBatch | None, rows: int, plans: Sequence[Column], schema: pa.Schema) -> pa.RecordBatch:
        if not plans:
            return _empty_batch(rows)
        arrays = [
            pa.nulls(rows, field.type) if plan.name is None or raw is None else self._conform(raw.column(plan.name), plan)
            for plan, field in zip(plans, schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _fetched(self, groups: Sequence[int], plans: Sequence[Column]) -> Iterator[list[int]]:
        """The row groups, as many at a time as are fetched at once."""
        if not groups:
            return
        with self._errors():
            together = self._split(list(groups), plans) if plans else iter([list(groups)])
        while True:
            with self._errors():
                some = next(together, None)
            if some is None:
                return
            yield some

    def _pieces(self, groups: Sequence[int], plans: Sequence[Column]) -> Iterator[list[int]]:
        for together in self._fetched(groups, plans):
            yield from _pieces(together)

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
        plan = self.plans.get(name)
        if plan is None:
            with self._errors(name):
                plan = self._plan(name)
        return plan

    def _plan(self, name: str) -> Column:
        plan = self.plans.get(name)
        if plan is None:
            target, source = evolution.match(name, self._file_schema, self._read_schema)
            found = None if source is None else self._name_in_file(source, target)
            source = source or target
            form = physical.kept_form(source.type, target.type)
            text = _holds_text(target.type)
            plain = not text and target.type.nullable and target not in (SEQUENCE_FIELD, KIND_FIELD)
            plan = self.plans[name] = Column(target, source, found, text, form, plain)
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
        if plan.is_plain and array.type == plan.form:
            return array
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


def cut(groups: Sequence[int], sizes: Mapping[int, int] | npt.NDArray[np.int64], most: int) -> list[list[int]]:
    """Row groups in their order, in pieces of at most so many bytes, or of one group that has more; `sizes` are by the number of a group."""
    pieces: list[list[int]] = []
    held = 0
    for group in groups:
        size = int(sizes[group])
        if pieces and held + size <= most:
            pieces[-1].append(group)
            held += size
        else:
            pieces.append([group])
            held = size
    return pieces


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
