"""Reading key-value Parquet files (spec 02 §2, §3.4, §13; Java `KeyValueFileReaderFactory`, `ParquetReaderFactory`).

A file is opened with the size and row count that its metadata gives, and anything else is an error: positions, deletion vectors and indexes
depend on them. Columns are found by the names of the *file's* schema and come back as those of the read schema. Keys are read from the value
columns, never from `_KEY_…`. Positions are physical: they count all rows of the file, from row-group offsets, whatever is left out.

Memory: batches stream, some pages of each wanted column at a time. Threads are not used; the callers' work is what runs in parallel.

On a remote store some pages at a time would be a request each, so there the wanted columns of a few row groups are fetched at once (files that
this package writes have row groups of a few megabytes); only of larger row groups are they read piece by piece, and the pieces are larger.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from types import TracebackType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import structlog

from maintainer.data import evolution, footer, int96, physical
from maintainer.data.arrow_types import arrow_field
from maintainer.errors import CastError, CorruptFile, MaintainerError, StorageError, Unsupported
from maintainer.model.files import DataFileMeta
from maintainer.model.schema import KIND_FIELD, SEQUENCE_FIELD, TableSchema
from maintainer.model.types import CHARACTERS, DataField, DataType
from maintainer.storage.storage import Storage

_LARGEST_KIND = 3
_LARGEST_BUFFER = 256 << 10
_SMALLEST_BUFFER = 16 << 10
_ALL_BUFFERS = 4 << 20
_AT_ONCE = 8 << 20
"""Bytes of row groups that are fetched together from a remote store."""
_MOST_AT_ONCE = 16 << 20
"""A row group of which more is wanted is not fetched, but read piece by piece."""
_REMOTE_BUFFERS = 16 << 20
_LARGEST_REMOTE_BUFFER = 4 << 20

Prefetch = Callable[[Sequence[tuple[int, int]]], None]
"""Fetches ranges of a file at once, and holds them until the next call."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class RowGroup:
    """Rows first … first + rows − 1 of the file."""

    first: int
    rows: int


@dataclass(frozen=True, slots=True)
class _Column:
    """How a column of the read schema comes out of this file; `name` is None when the file does not have it."""

    target: DataField
    source: DataField
    name: str | None
    holds_text: bool

    @property
    def is_system(self) -> bool:
        return self.target is SEQUENCE_FIELD or self.target is KIND_FIELD


def open_data_file(storage: Storage, path: str, meta: DataFileMeta, file_schema: TableSchema, read_schema: TableSchema) -> DataFile:
    """The file at `path`, whose metadata is `meta` and whose schema (`meta.schema_id`) is `file_schema`."""
    if not meta.file_name.endswith(".parquet"):
        raise Unsupported(f"unsupported data file format {meta.file_name.rpartition('.')[2]!r} in file {storage.display(path)}")
    return DataFile(storage, path, meta, file_schema, read_schema)


class DataFile:
    """An open data file. Use it in a `with` block, or close it."""

    def __init__(self, storage: Storage, path: str, meta: DataFileMeta, file_schema: TableSchema, read_schema: TableSchema) -> None:
        self.path = storage.display(path)
        self._file_schema = file_schema
        self._read_schema = read_schema
        self._zone = read_schema.options.get("read.time-zone", "UTC").strip()
        self._columns: dict[str, _Column] = {}
        self._source = storage.open_input(path, meta.file_size)
        self._prefetch: Prefetch | None = getattr(self._source, "prefetch", None)
        try:
            with self._errors():
                size = self._source.size()
                if size != meta.file_size:
                    raise CorruptFile(f"it has {size} bytes, its metadata says {meta.file_size}")
                self.metadata = pq.read_metadata(self._source)
                if int96.has_int96(self.metadata):
                    self.metadata = int96.raw_footer(self._source)
                self._file = pq.ParquetFile(self._source, metadata=self.metadata, **_reading(self.metadata, self._prefetch is not None))
                footer.check_names(self.metadata)
                self._arrow_schema = self._file.schema_arrow
                self.row_groups = _row_groups(self.metadata)
                self.row_count: int = self.metadata.num_rows
                counted = sum(group.rows for group in self.row_groups)
                if not counted == self.row_count == meta.row_count:
                    raise CorruptFile(f"it has {counted} rows, its footer says {self.row_count}, its metadata {meta.row_count}")
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        with suppress(OSError):
            self._source.close()

    def __enter__(self) -> DataFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def group_bounds(self, column: str) -> list[tuple[Any, Any] | None]:
        """Per row group, internal values between which all values of a column are that are not NULL; None where nothing is known.

        Bounds of FLOAT and DOUBLE end at NaN: the footer does not tell whether there is one.
        """
        with self._errors(column):
            plan = self._plan(column)
            index = None if plan.name is None else footer.leaf_index(self._arrow_schema, plan.name)
            if plan.name is None or index is None or not evolution.keeps_order(plan.source.type, plan.target.type):
                return [None] * len(self.row_groups)
            arrow = self._arrow_schema.field(plan.name).type
            return [footer.bounds(self.metadata, group, index, arrow, plan.target.type) for group in range(len(self.row_groups))]

    def stored_bytes(self, column: str) -> int:
        """What a column that is not nested takes in the file."""
        with self._errors(column):
            plan = self._plan(column)
            index = None if plan.name is None else footer.leaf_index(self._arrow_schema, plan.name)
            groups = map(self.metadata.row_group, range(len(self.row_groups)))
            return 0 if index is None else sum(group.column(index).total_compressed_size for group in groups)

    def read(self, columns: Sequence[str], row_groups: Sequence[int] | None = None) -> pa.Table:
        """These columns of the whole file, or of some row groups in the given order."""
        groups = range(len(self.row_groups)) if row_groups is None else row_groups
        plans = [self._plan_checked(name) for name in columns]
        rows = sum(self.row_groups[group].rows for group in groups)
        names = _names(plans)
        with self._errors():
            table = self._read(list(groups), names) if names else None
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

    def _read(self, groups: list[int], names: list[str]) -> pa.Table:
        pieces = self._together(groups, names) if groups else [[]]
        tables = [self._file.read_row_groups(piece, columns=names, use_threads=False) for piece in pieces]
        return tables[0] if len(tables) == 1 else pa.concat_tables(tables)

    def _together(self, groups: Sequence[int], names: Sequence[str]) -> Iterator[list[int]]:
        """The groups in order, as many at a time as are fetched at once. What was fetched is let go when the next ones are asked for."""
        if self._prefetch is None:
            yield list(groups)
            return
        wanted = [index for name in names for index in self._leaves.get(name, ())]
        together: list[int] = []
        spans: list[tuple[int, int]] = []
        size = 0
        for group in groups:
            found = footer.column_spans(self.metadata, group, wanted)
            bytes_found = sum(end - start for start, end in found)
            if together and size + bytes_found > _AT_ONCE:
                self._prefetch(spans if size <= _MOST_AT_ONCE else ())
                yield together
                together, spans, size = [], [], 0
            together.append(group)
            spans += found
            size += bytes_found
        if together:
            self._prefetch(spans if size <= _MOST_AT_ONCE else ())
            yield together
        self._prefetch(())

    @cached_property
    def _leaves(self) -> Mapping[str, range]:
        """By name, the column chunks of a column."""
        leaves, first = {}, 0
        for field in self._arrow_schema:
            count = footer.leaf_count(field.type)
            leaves[field.name] = range(first, first + count)
            first += count
        return leaves

    def batches(self, columns: Sequence[str], batch_rows: int, row_groups: Sequence[int] | None = None) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Batches of at most `batch_rows` rows of these columns, each with the position of its first row."""
        plans = [self._plan_checked(name) for name in columns]
        schema = _schema(plans)
        groups = range(len(self.row_groups)) if row_groups is None else row_groups
        for piece in self._pieces(groups, _names(plans)):
            first = self.row_groups[piece[0]].first
            rows = sum(self.row_groups[group].rows for group in piece)
            done = 0
            for batch, count in self._raw_batches(_names(plans), batch_rows, piece, rows):
                if done + count > rows:
                    break
                arrays = [
                    pa.nulls(count, field.type) if plan.name is None or batch is None else self._conform(batch.column(plan.name), plan)
                    for plan, field in zip(plans, schema, strict=True)
                ]
                yield first + done, pa.RecordBatch.from_arrays(arrays, schema=schema) if plans else _empty_batch(count)
                done += count
            if done != rows:
                raise CorruptFile(f"row groups {piece} do not have the {rows} rows that the footer says", path=self.path)

    def _pieces(self, groups: Sequence[int], names: Sequence[str]) -> Iterator[list[int]]:
        for piece in _pieces(groups):
            with self._errors():
                together = self._together(piece, names) if names else iter([piece])
            while True:
                with self._errors():
                    some = next(together, None)
                if some is None:
                    break
                yield some

    def _raw_batches(self, names: list[str], batch_rows: int, piece: list[int], rows: int) -> Iterator[tuple[pa.RecordBatch | None, int]]:
        if not names:
            for start in range(0, rows, batch_rows):
                yield None, min(batch_rows, rows - start)
            return
        with self._errors():
            stream = self._file.iter_batches(batch_rows, row_groups=piece, columns=names, use_threads=False)
        while True:
            with self._errors():
                batch = next(stream, None)
            if batch is None:
                return
            if batch.num_rows:
                yield batch, batch.num_rows

    def _plan_checked(self, name: str) -> _Column:
        with self._errors(name):
            return self._plan(name)

    def _plan(self, name: str) -> _Column:
        plan = self._columns.get(name)
        if plan is None:
            target, source = evolution.match(name, self._file_schema, self._read_schema)
            found = None if source is None else self._name_in_file(source, target)
            plan = self._columns[name] = _Column(target, source or target, found, _holds_text(target.type))
        return plan

    def _name_in_file(self, source: DataField, target: DataField) -> str | None:
        """None if the file does not have this column of its schema, which then is NULL (Java: the same, with a warning)."""
        count = len(self._arrow_schema.get_all_field_indices(source.name))
        if count == 1:
            return source.name
        if count > 1:
            raise CorruptFile(f"{count} columns have the name {source.name}")
        if not (source.type.nullable and target.type.nullable):
            raise CorruptFile("the file does not have this column, which is NOT NULL")
        log.warning("data-file.column-missing", file=self.path, column=source.name)
        return None

    def _conform(self, array: pa.Array, plan: _Column) -> pa.Array:
        with self._errors(plan.target.name):
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

    @contextmanager
    def _errors(self, column: str | None = None) -> Iterator[None]:
        """Errors of Arrow as ours, and all of them naming the file, and the column if it is about one."""
        about = "" if column is None else f"column {column}: "
        try:
            yield
        except CorruptFile as error:
            raise (error if error.path else CorruptFile(f"{about}{error.reason}", path=self.path)) from error
        except Unsupported as error:
            text = str(error)
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


def _reading(metadata: pq.FileMetaData, remote: bool) -> Mapping[str, Any]:
    """With a buffer, a column chunk is read piece by piece; without one, all of it (40 MB or more) would be held for every open file."""
    columns = max(metadata.num_columns, 1)
    buffer_size = min(max(_ALL_BUFFERS // columns, _SMALLEST_BUFFER), _LARGEST_BUFFER)
    if remote and any(metadata.row_group(group).total_byte_size > _MOST_AT_ONCE for group in range(metadata.num_row_groups)):
        buffer_size = min(max(_REMOTE_BUFFERS // columns, _SMALLEST_BUFFER), _LARGEST_REMOTE_BUFFER)
    return {"pre_buffer": False, "buffer_size": buffer_size, "page_checksum_verification": True}


def _row_groups(metadata: pq.FileMetaData) -> tuple[RowGroup, ...]:
    groups = []
    first = 0
    for index in range(metadata.num_row_groups):
        rows = metadata.row_group(index).num_rows
        if rows < 0:
            raise CorruptFile(f"row group {index} has {rows} rows")
        groups.append(RowGroup(first, rows))
        first += rows
    return tuple(groups)


def _holds_text(data_type: DataType) -> bool:
    parts = (data_type.key, data_type.element, *(field.type for field in data_type.fields))
    return data_type.root in CHARACTERS or any(part is not None and _holds_text(part) for part in parts)


def _names(plans: Sequence[_Column]) -> list[str]:
    return list(dict.fromkeys(plan.name for plan in plans if plan.name is not None))


def _schema(plans: Sequence[_Column]) -> pa.Schema:
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
