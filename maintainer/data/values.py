"""Arrow arrays to internal values and back, and rows as JSON (`maintainer.model.values`; DESIGN §5 "JSON shapes").

For keys, bounds, predicates' literals and people: not for a data path.

| type                      | JSON                                                                                     |
| ------------------------- | ---------------------------------------------------------------------------------------- |
| integers, BOOLEAN         | number, true or false                                                                    |
| FLOAT, DOUBLE             | number (a float by its exact double value); "NaN", "Infinity", "-Infinity", "-0.0"       |
| DECIMAL                   | plain text with the scale of the type                                                    |
| CHAR, VARCHAR             | text                                                                                     |
| BINARY, VARBINARY         | base64 text                                                                              |
| DATE                      | YYYY-MM-DD                                                                               |
| TIME                      | HH:MM:SS.mmm                                                                             |
| TIMESTAMP, TIMESTAMP_LTZ  | YYYY-MM-DDTHH:MM:SS.nnnnnnnnn; LTZ in UTC with a final Z                                 |
| ARRAY, VECTOR             | list                                                                                     |
| MAP, MULTISET             | list of [key, value], by the JSON text of the key                                        |
| ROW                       | object                                                                                   |
| VARIANT                   | object of the base64 members "value" and "metadata"                                      |
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

from maintainer.data.arrow_types import timestamp_unit, to_arrow
from maintainer.format import binary_row
from maintainer.model.schema import TableSchema
from maintainer.model.types import BINARIES, FLOATS, TIMESTAMPS, DataField, DataType, TypeRoot

_NANOS = {"ms": 1_000_000, "us": 1_000, "ns": 1}
_DAYS_TO_EPOCH = 719468  # from 0000-03-01
_DAYS_PER_ERA = 146097

_Convert = Callable[[Any], Any]


def from_arrow(array: pa.Array | pa.ChunkedArray, data_type: DataType) -> list[Any]:
    """The internal values of an array whose Arrow type is that of `data_type`."""
    match data_type.root:
        case TypeRoot.DATE | TypeRoot.TIME:
            return array.cast(pa.int32()).to_pylist()  # type: ignore[no-any-return]
        case TypeRoot.TIMESTAMP | TypeRoot.TIMESTAMP_LTZ:
            factor = _NANOS[array.type.unit]
            return [None if value is None else value * factor for value in array.cast(pa.int64()).to_pylist()]
        case TypeRoot.ARRAY | TypeRoot.VECTOR | TypeRoot.MAP | TypeRoot.MULTISET | TypeRoot.ROW | TypeRoot.VARIANT:
            chunks = array.chunks if isinstance(array, pa.ChunkedArray) else [array]
            return [value for chunk in chunks for value in _nested(chunk, data_type)]
        case _:
            return array.to_pylist()  # type: ignore[no-any-return]


def _nested(array: pa.Array, data_type: DataType) -> Iterator[Any]:
    valid = array.is_valid().to_pylist()
    if data_type.root in (TypeRoot.ROW, TypeRoot.VARIANT):
        types = [field.type for field in data_type.fields] or [DataType(TypeRoot.VARBINARY)] * 2
        children = [from_arrow(array.field(index), child) for index, child in enumerate(types)]
        for index, present in enumerate(valid):
            yield tuple(child[index] for child in children) if present else None
        return
    offsets = array.offsets.to_pylist()
    if data_type.root in (TypeRoot.MAP, TypeRoot.MULTISET):
        key, value = (data_type.key, data_type.element) if data_type.root is TypeRoot.MAP else (data_type.element, DataType(TypeRoot.INT))
        assert key is not None and value is not None
        items: list[Any] = list(zip(from_arrow(array.keys, key), from_arrow(array.items, value), strict=True))
    else:
        assert data_type.element is not None
        items = from_arrow(array.values, data_type.element)
    for index, present in enumerate(valid):
        yield items[offsets[index] : offsets[index + 1]] if present else None


def to_arrow_array(values: Sequence[Any], data_type: DataType) -> pa.Array:
    """An array of `data_type` from internal values."""
    return pa.array([_external(value, data_type) for value in values], to_arrow(data_type), from_pandas=False)


def _external(value: Any, data_type: DataType) -> Any:
    """The value as `pyarrow.array` takes it for this type."""
    if value is None:
        return None
    match data_type.root:
        case TypeRoot.TIMESTAMP | TypeRoot.TIMESTAMP_LTZ:
            return value // _NANOS[timestamp_unit(data_type.precision)]
        case TypeRoot.ARRAY | TypeRoot.VECTOR:
            assert data_type.element is not None
            return [_external(item, data_type.element) for item in value]
        case TypeRoot.MAP:
            assert data_type.key is not None and data_type.element is not None
            return [(_external(key, data_type.key), _external(item, data_type.element)) for key, item in value]
        case TypeRoot.MULTISET:
            assert data_type.element is not None
            return [(_external(key, data_type.element), count) for key, count in value]
        case TypeRoot.ROW:
            return {field.name: _external(item, field.type) for field, item in zip(data_type.fields, value, strict=True)}
        case TypeRoot.VARIANT:
            return {"value": value[0], "metadata": value[1]}
        case _:
            return value


def json_rows(table: pa.Table | pa.RecordBatch, fields: Sequence[DataField]) -> Iterator[dict[str, Any]]:
    """The rows of the columns named by `fields`, ready for `json.dumps`."""
    columns = []
    for field in fields:
        render = renderer(field.type)
        values = from_arrow(table.column(field.name), field.type)
        columns.append(values if render is None else [None if value is None else render(value) for value in values])
    names = [field.name for field in fields]
    for row in zip(*columns, strict=True):
        yield dict(zip(names, row, strict=True))


def partition_json(schema: TableSchema, partition: bytes) -> dict[str, Any]:
    """The values of a serialized partition by column; empty for a table without partitions."""
    types = schema.partition_types
    values = binary_row.deserialize(partition, types) if types else ()
    return {name: json_value(value, data_type) for name, value, data_type in zip(schema.partition_keys, values, types, strict=True)}


def json_value(value: Any, data_type: DataType) -> Any:
    """One internal value, ready for `json.dumps`."""
    render = renderer(data_type)
    return value if value is None or render is None else render(value)


def renderer(data_type: DataType) -> _Convert | None:
    """What makes JSON of a value that is not NULL; None when the value is JSON already."""
    root = data_type.root
    if root in FLOATS:
        return _float_json
    if root in BINARIES or root in (TypeRoot.GEOMETRY, TypeRoot.GEOGRAPHY):
        return _base64
    if root in TIMESTAMPS:
        zone = "Z" if root is TypeRoot.TIMESTAMP_LTZ else ""
        return lambda value: timestamp_text(value) + zone
    match root:
        case TypeRoot.DECIMAL:
            scale = data_type.scale
            return lambda value: f"{Decimal(value):.{scale}f}"
        case TypeRoot.DATE:
            return date_text
        case TypeRoot.TIME:
            return time_text
        case TypeRoot.ARRAY | TypeRoot.VECTOR:
            return _list_renderer(_or_same(data_type.element))
        case TypeRoot.MAP:
            return _map_renderer(_or_same(data_type.key), _or_same(data_type.element))
        case TypeRoot.MULTISET:
            return _map_renderer(_or_same(data_type.element), lambda count: count)
        case TypeRoot.ROW:
            names = [field.name for field in data_type.fields]
            members = [_or_same(field.type) for field in data_type.fields]
            return lambda row: {name: member(item) for name, member, item in zip(names, members, row, strict=True)}
        case TypeRoot.VARIANT:
            return lambda pair: {"value": _base64(pair[0]), "metadata": _base64(pair[1])}
        case _:
            return None


def _or_same(data_type: DataType | None) -> _Convert:
    render = None if data_type is None else renderer(data_type)
    if render is None:
        return lambda value: value
    return lambda value: None if value is None else render(value)


def _list_renderer(element: _Convert) -> _Convert:
    return lambda items: [element(item) for item in items]


def _map_renderer(key: _Convert, value: _Convert) -> _Convert:
    def render(pairs: Iterable[tuple[Any, Any]]) -> list[list[Any]]:
        return sorted(([key(k), value(v)] for k, v in pairs), key=lambda pair: json.dumps(pair[0]))

    return render


def _float_json(value: float) -> Any:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return "-0.0" if value == 0 and math.copysign(1, value) < 0 else value


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode("ascii")


def date_text(days: int) -> str:
    """ISO date of a day number, for every year (Python's own dates end at 9999)."""
    era, day_of_era = divmod(days + _DAYS_TO_EPOCH, _DAYS_PER_ERA)
    year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36524 - day_of_era // 146096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    month = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * month + 2) // 5 + 1
    month = month + 3 if month < 10 else month - 9
    year = year_of_era + era * 400 + (month <= 2)
    sign = "-" if year < 0 else "+" if year > 9999 else ""
    return f"{sign}{abs(year):04d}-{month:02d}-{day:02d}"


def time_text(millis: int) -> str:
    """Time of the day with three digits of the second."""
    seconds, millis = divmod(millis, 1000)
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.{millis:03d}"


def timestamp_text(nanoseconds: int) -> str:
    """Date and time with nine digits of the second."""
    days, rest = divmod(nanoseconds, 86_400_000_000_000)
    seconds, nanos = divmod(rest, 1_000_000_000)
    return f"{date_text(days)}T{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.{nanos:09d}"
