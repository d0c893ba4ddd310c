"""Rows in files: Parquet, CSV with a header line, or JSON lines as `maintainer query --json` writes them; a batch at a time.

Columns are named as in the table, and `_VALUE_KIND` holds the kind of each row (+I, -U, +U, -D); one that is missing is left to the writer,
which takes its default value or NULL. Values of CSV and JSON take the form of DESIGN §5 (`maintainer.data.values`): dates as YYYY-MM-DD, bytes
as base64 in JSON and as plain text in CSV, maps as lists of [key, value]. An empty CSV field is NULL, unless it is quoted.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import PurePath
from typing import Any

import pyarrow as pa

from maintainer.data.arrow_types import to_arrow, value_schema
from maintainer.data.values import to_arrow_array
from maintainer.errors import StorageError, UsageError
from maintainer.model.schema import KIND_FIELD, TableSchema
from maintainer.model.types import BINARIES, CHARACTERS, FLOATS, INTEGERS, MAX_LENGTH, NESTED, DataField, DataType, TypeRoot
from maintainer.read.literals import place

BATCH_ROWS = 20_000
_KINDS = DataField(KIND_FIELD.id, KIND_FIELD.name, DataType(TypeRoot.VARCHAR, length=MAX_LENGTH))
_JSON = frozenset({".json", ".jsonl", ".ndjson"})


def read_rows(path: str, schema: TableSchema) -> Iterator[pa.RecordBatch]:
    """The rows of a file, whose format its extension tells."""
    extension = PurePath(path).suffix.lower()
    reader = _parquet if extension == ".parquet" else _csv if extension == ".csv" else _json_lines if extension in _JSON else None
    if reader is None:
        raise UsageError(f"{path}: the extension must say what it is: .parquet, .csv, .json, .jsonl or .ndjson")
    try:
        yield from reader(path, schema)
    except FileNotFoundError:
        raise UsageError(f"{path}: there is no such file") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not a text in UTF-8: {error.reason}") from None
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise UsageError(f"{path}: {error}") from None
    except OSError as error:
        raise StorageError(f"{path}: cannot read: {error}") from None


def _parquet(path: str, schema: TableSchema) -> Iterable[pa.RecordBatch]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        yield from file.iter_batches(batch_size=BATCH_ROWS)


def _csv(path: str, schema: TableSchema) -> Iterable[pa.RecordBatch]:
    from pyarrow import csv

    names = _csv_header(path)
    _check_names(path, names, schema, "; the first line of a CSV file names the columns, with commas between them")
    for name in names:
        if name != KIND_FIELD.name and schema.field(name).type.root in NESTED:
            raise UsageError(f"{path}: a CSV field cannot hold column {name!r} of type {schema.field(name).type}; use JSON lines or Parquet")
    texts = {field.name: pa.string() for field in schema.fields if field.type.root not in BINARIES} | {
        field.name: pa.binary() for field in schema.fields if field.type.root in BINARIES
    }
    direct = {field.name: to_arrow(field.type) for field in schema.fields if field.type.root in INTEGERS | FLOATS | {TypeRoot.BOOLEAN}}
    options = csv.ConvertOptions(
        column_types={**texts, **direct, KIND_FIELD.name: pa.string()},
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    try:
        with csv.open_csv(path, parse_options=csv.ParseOptions(newlines_in_values=True), convert_options=options) as reader:
            yield from reader
    except pa.ArrowInvalid as error:
        conversion = re.match(r"In CSV column #(\d+): (?:CSV conversion error to [^:]*: )?(.*)", str(error), re.DOTALL)
        if conversion is None or int(conversion[1]) >= len(names):
            raise
        name = names[int(conversion[1])]
        data_type = _KINDS.type if name == KIND_FIELD.name else schema.field(name).type
        raise UsageError(f"{path}, column {name!r} of type {data_type}: {conversion[2]}") from None


def _csv_header(path: str) -> list[str]:
    import csv

    with open(path, encoding="utf-8-sig", errors="replace", newline="") as file:
        try:
            names = next(csv.reader(file), [])
        except csv.Error as error:
            raise UsageError(f"{path}: {error}") from None
    if not names:
        raise UsageError(f"{path}: the first line of a CSV file names the columns, and it is empty")
    return names


def _json_lines(path: str, schema: TableSchema) -> Iterable[pa.RecordBatch]:
    """Python's parser has seen every value already, so it costs little to convert them here; Arrow's cannot read all forms."""
    with open(path, encoding="utf-8") as lines:
        numbered = ((number, line) for number, line in enumerate(lines, 1) if line.strip())
        while block := list(islice(numbered, BATCH_ROWS)):
            rows = [_object(path, number, line) for number, line in block]
            names = list(dict.fromkeys(name for row in rows for name in row))
            _check_names(path, names, schema)
            given = [_KINDS if name == KIND_FIELD.name else schema.field(name) for name in names]
            line_numbers = [number for number, _ in block]
            columns = [_column(path, [row.get(field.name) for row in rows], field, line_numbers) for field in given]
            yield pa.RecordBatch.from_arrays(columns, schema=pa.schema([value_schema([field]).field(0).with_nullable(True) for field in given]))


def _check_names(path: str, names: Iterable[str], schema: TableSchema, hint: str = "") -> None:
    for name in names:
        if name != KIND_FIELD.name and not schema.has_field(name):
            raise UsageError(f"{path}: the table has no column {name!r}; its columns are {', '.join(schema.names)}{hint}")


def _object(path: str, number: int, line: str) -> Mapping[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}, line {number}: no JSON: {getattr(error, 'msg', error)}; every line is an object of its own") from None
    if not isinstance(row, dict):
        raise UsageError(f"{path}, line {number}: a row must be a JSON object, one on every line")
    return row


def _column(path: str, values: list[Any], field: DataField, line_numbers: Sequence[int]) -> pa.Array:
    convert = _converter(field.type)

    def converted(values: Iterable[Any]) -> pa.Array:
        return to_arrow_array([None if value is None else convert(value) for value in values], field.type)

    problems = (ValueError, TypeError, OverflowError, KeyError, UsageError, pa.ArrowException)
    try:
        return converted(values)
    except problems as error:
        first = error
    for number, value in zip(line_numbers, values, strict=True):
        try:
            converted([value])
        except problems as error:
            raise UsageError(f"{path}, line {number}, column {field.name!r} of type {field.type}: {error}") from None
    raise UsageError(f"{path}, from line {line_numbers[0]} on, column {field.name!r} of type {field.type}: {first}")


def _converter(data_type: DataType) -> Callable[[Any], Any]:
    """From JSON to the internal value; anything that does not fit raises."""
    root = data_type.root
    if root in FLOATS:
        return float
    if root in INTEGERS or root is TypeRoot.BOOLEAN:
        return lambda value: _of(value, bool if root is TypeRoot.BOOLEAN else int)
    if root in CHARACTERS:
        return lambda value: _of(value, str)
    if root in BINARIES:
        return lambda value: base64.b64decode(_of(value, str), validate=True)
    if root in (TypeRoot.ARRAY, TypeRoot.VECTOR):
        element = _optional(data_type.element)
        return lambda value: [element(item) for item in _of(value, list)]
    if root in (TypeRoot.MAP, TypeRoot.MULTISET):
        key = _optional(data_type.key if root is TypeRoot.MAP else data_type.element)
        item = _optional(data_type.element if root is TypeRoot.MAP else DataType(TypeRoot.INT))
        return lambda value: [(key(k), item(v)) for k, v in _of(value, list)]
    if root is TypeRoot.ROW:
        members = {field.name: _optional(field.type) for field in data_type.fields}
        return lambda value: tuple(members[name](member) for name, member in _row(value, members).items())
    if root is TypeRoot.VARIANT:
        return lambda value: tuple(base64.b64decode(value[name], validate=True) for name in ("value", "metadata"))
    return lambda value: _exact(value, data_type)


def _optional(data_type: DataType | None) -> Callable[[Any], Any]:
    assert data_type is not None
    convert = _converter(data_type)
    return lambda value: None if value is None else convert(value)


_EXPECTED: Mapping[type, str] = {int: "a whole number", bool: "true or false", str: "a text", list: "a list", dict: "an object"}


def _of(value: Any, kind: type) -> Any:
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise TypeError(f"expected {_EXPECTED[kind]}, not {json.dumps(value, ensure_ascii=False)[:100]}")
    return value


def _row(value: Any, members: Mapping[str, Any]) -> dict[str, Any]:
    given = _of(value, dict)
    unknown = given.keys() - members.keys()
    if unknown:
        raise TypeError(f"there is no member {sorted(unknown)[0]!r}")
    return {name: given.get(name) for name in members}


def _exact(value: Any, data_type: DataType) -> Any:
    """Decimals, dates and times, whose texts the parser of literals knows; it also finds places between values, which are none here."""
    if data_type.root is TypeRoot.DECIMAL and isinstance(value, str):
        from decimal import Decimal

        value = Decimal(value)
    if isinstance(value, bool | list | dict):
        raise TypeError(f"unexpected {json.dumps(value, ensure_ascii=False)[:100]}")
    found = place(value, data_type, "")
    if found.side or found.value is None:
        raise ValueError(f"{value!r} is no value of this type")
    return found.value
