"""Paimon types as Arrow types (spec 01 §15), and the Arrow schema of a data file (spec 02 §2, §3.3, §3.5).

| Paimon                          | Arrow                          | remark                                        |
| ------------------------------- | ------------------------------ | --------------------------------------------- |
| CHAR, VARCHAR, STRING           | string                         | never large_string: batches stay below 2 GiB  |
| BINARY, VARBINARY, BYTES, GEO…  | binary                         |                                               |
| DECIMAL(p, s)                   | decimal128(p, s)               |                                               |
| TIME(p)                         | time32[ms]                     |                                               |
| TIMESTAMP(p)                    | timestamp[ms], [us], [ns]      | for p ≤ 3, ≤ 6, ≤ 9; LTZ with tz="UTC"        |
| ARRAY, VECTOR                   | list<element>                  | the length of vectors is checked, not typed   |
| MAP; MULTISET                   | map<key, value>; map<T, int32 not null> |                                      |
| ROW                             | struct                         |                                               |
| VARIANT                         | struct<value: binary not null, metadata: binary not null> |                    |

The other scalars are what they seem. Nullability of the schema is kept at every level; map keys are never null.

Columns and members of ROWs carry their field id, as Java writes it (`PARQUET:field_id`). The unnamed parts of collections have synthetic
ids: with f the id of the nearest enclosing column or member, and d the number of collections between it and the part,

    element, value = 536870911 + 1024·f + d        key = 536870911 − 1024·f − d
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache

import pyarrow as pa

from maintainer.errors import Unsupported
from maintainer.model.schema import KEY_PREFIX, KIND_FIELD, SEQUENCE_FIELD, SYSTEM_FIELD_ID, TableSchema
from maintainer.model.types import DataField, DataType, TypeRoot

FIELD_ID = b"PARQUET:field_id"
_COLLECTION_BASE = 536870911  # ⌊(2³¹−1)/4⌋
_DEPTHS = 1024

_PLAIN = {
    TypeRoot.BOOLEAN: pa.bool_(),
    TypeRoot.TINYINT: pa.int8(),
    TypeRoot.SMALLINT: pa.int16(),
    TypeRoot.INT: pa.int32(),
    TypeRoot.BIGINT: pa.int64(),
    TypeRoot.FLOAT: pa.float32(),
    TypeRoot.DOUBLE: pa.float64(),
    TypeRoot.CHAR: pa.string(),
    TypeRoot.VARCHAR: pa.string(),
    TypeRoot.BINARY: pa.binary(),
    TypeRoot.VARBINARY: pa.binary(),
    TypeRoot.GEOMETRY: pa.binary(),
    TypeRoot.GEOGRAPHY: pa.binary(),
    TypeRoot.DATE: pa.date32(),
    TypeRoot.TIME: pa.time32("ms"),
}
_COUNT_TYPE = DataType(TypeRoot.INT, nullable=False)
_BYTES_TYPE = DataType(TypeRoot.VARBINARY, nullable=False)


def timestamp_unit(precision: int) -> str:
    """The unit of an Arrow timestamp that holds this many digits of a second."""
    return "ms" if precision <= 3 else "us" if precision <= 6 else "ns"


def to_arrow(data_type: DataType) -> pa.DataType:
    """The Arrow type of a column in memory, without field ids."""
    return _arrow_type(data_type, None, 0)


def arrow_field(field: DataField, with_ids: bool = True) -> pa.Field:
    """A column as an Arrow field; with ids, as it is written."""
    return _field(field.name, field.type, field.id if with_ids else None, field.id if with_ids else None, 0)


def value_schema(fields: Iterable[DataField]) -> pa.Schema:
    """The columns of batches in memory: no field ids."""
    return pa.schema([arrow_field(field, with_ids=False) for field in fields])


def file_fields(schema: TableSchema, thin: bool = False) -> tuple[DataField, ...]:
    """The columns of a key-value file in order: `_KEY_…` of the trimmed primary key, sequence number, kind, all columns of the table.

    A thin file does not repeat the key.
    """
    keys = [
        replace(field, id=field.id + SYSTEM_FIELD_ID, name=KEY_PREFIX + field.name) for field in map(schema.field, schema.trimmed_primary_keys)
    ]
    return (*(() if thin else keys), SEQUENCE_FIELD, KIND_FIELD, *schema.fields)


def file_schema(schema: TableSchema, thin: bool = False) -> pa.Schema:
    """The Arrow schema that a key-value file is written with."""
    return pa.schema([arrow_field(field) for field in file_fields(schema, thin)])


def _field(name: str, data_type: DataType, field_id: int | None, owner: int | None, depth: int) -> pa.Field:
    """`owner` is the id of the nearest real field (None: no ids are wanted), `depth` the number of collections below it."""
    try:
        arrow_type = _arrow_type(data_type, owner, depth)
    except Unsupported as error:
        raise Unsupported(f"column {name}: {error}") from error
    metadata = None if field_id is None else {FIELD_ID: str(field_id)}
    return pa.field(name, arrow_type, nullable=data_type.nullable, metadata=metadata)


@lru_cache(maxsize=4096)
def _arrow_type(data_type: DataType, owner: int | None, depth: int) -> pa.DataType:
    plain = _PLAIN.get(data_type.root)
    if plain is not None:
        return plain
    match data_type.root:
        case TypeRoot.DECIMAL:
            return pa.decimal128(data_type.precision, data_type.scale)
        case TypeRoot.TIMESTAMP:
            return pa.timestamp(timestamp_unit(data_type.precision))
        case TypeRoot.TIMESTAMP_LTZ:
            return pa.timestamp(timestamp_unit(data_type.precision), tz="UTC")
        case TypeRoot.ARRAY | TypeRoot.VECTOR:
            element = _required(data_type.element)
            if data_type.root is TypeRoot.VECTOR:
                element = element.with_nullable(True)  # as in Java's files
            return pa.list_(_part("element", element, owner, depth + 1, 1))
        case TypeRoot.MAP | TypeRoot.MULTISET:
            is_map = data_type.root is TypeRoot.MAP
            key = _required(data_type.key if is_map else data_type.element).with_nullable(False)
            value = _required(data_type.element) if is_map else _COUNT_TYPE
            return pa.map_(_part("key", key, owner, depth + 1, -1), _part("value", value, owner, depth + 1, 1))
        case TypeRoot.ROW:
            with_ids = owner is not None
            return pa.struct([arrow_field(child, with_ids) for child in data_type.fields])
        case TypeRoot.VARIANT:
            return pa.struct([_field(name, _BYTES_TYPE, None, None, 0) for name in ("value", "metadata")])
        case _:
            raise Unsupported(f"type {data_type} is not supported in data files")


def _part(name: str, data_type: DataType, owner: int | None, depth: int, sign: int) -> pa.Field:
    """The element, key or value of a collection, with its synthetic id."""
    part_id = None if owner is None else _COLLECTION_BASE + sign * (_DEPTHS * owner + depth)
    return _field(name, data_type, part_id, owner, depth)


def _required(part: DataType | None) -> DataType:
    if part is None:
        raise ValueError("a collection type without its element type")
    return part
