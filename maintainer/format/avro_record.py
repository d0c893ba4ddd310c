"""The Avro schema of data files (spec 02 §5; Java `AvroSchemaConverter`)."""

from __future__ import annotations

from typing import Any

from maintainer.errors import Unsupported
from maintainer.model.types import BINARIES, CHARACTERS, DataField, DataType, TypeRoot

_PLAIN = {
    TypeRoot.BOOLEAN: "boolean",
    TypeRoot.TINYINT: "int",
    TypeRoot.SMALLINT: "int",
    TypeRoot.INT: "int",
    TypeRoot.BIGINT: "long",
    TypeRoot.FLOAT: "float",
    TypeRoot.DOUBLE: "double",
}


def record_schema(fields: tuple[DataField, ...]) -> dict[str, Any]:
    """The schema of files with these columns."""
    members = [_member(field, "record") for field in fields]
    return {"type": "record", "name": "record", "namespace": "org.apache.paimon.avro.generated", "fields": members}


def check_type(data_type: DataType) -> None:
    """Raises `Unsupported` for a type that Avro files do not have."""
    _type(data_type, "record")


def _member(field: DataField, record: str) -> dict[str, Any]:
    try:
        found = _type(field.type, f"{record}_{field.name}")
    except Unsupported as error:
        raise Unsupported(f"column {field.name}: {error}") from error
    return {"name": field.name, "type": found, "default": None} if field.type.nullable else {"name": field.name, "type": found}


def _type(data_type: DataType, record: str) -> Any:
    found = _required(data_type, record)
    return ["null", found] if data_type.nullable else found


def _required(data_type: DataType, record: str) -> Any:
    root = data_type.root
    if root in _PLAIN:
        return _PLAIN[root]
    if root in CHARACTERS:
        return "string"
    if root in BINARIES:
        return "bytes"
    match root:
        case TypeRoot.DECIMAL:
            return {"type": "bytes", "logicalType": "decimal", "precision": data_type.precision, "scale": data_type.scale}
        case TypeRoot.DATE:
            return {"type": "int", "logicalType": "date"}
        case TypeRoot.TIME if data_type.precision <= 3:
            return {"type": "int", "logicalType": "time-millis"}
        case TypeRoot.TIMESTAMP | TypeRoot.TIMESTAMP_LTZ if data_type.precision <= 6:
            unit = "millis" if data_type.precision <= 3 else "micros"
            return {"type": "long", "logicalType": f"{'local-' if root is TypeRoot.TIMESTAMP_LTZ else ''}timestamp-{unit}"}
        case TypeRoot.ARRAY | TypeRoot.VECTOR if data_type.element is not None:
            return {"type": "array", "items": _type(data_type.element, record)}
        case TypeRoot.MAP | TypeRoot.MULTISET:
            return _map(data_type, record)
        case TypeRoot.ROW:
            return {"type": "record", "name": record, "fields": [_member(field, record) for field in data_type.fields]}
        case _:
            raise Unsupported(f"Avro files have no type {data_type.sql()}")


def _map(data_type: DataType, record: str) -> Any:
    key, value = map_parts(data_type)
    if key.root in CHARACTERS:
        return {"type": "map", "values": _type(value, record)}
    if data_type.root is TypeRoot.MULTISET:
        raise Unsupported("Avro files have no multisets of anything but text")
    members = [{"name": "key", "type": ["null", _required(key, record)]}, {"name": "value", "type": _type(value, record)}]
    if value.nullable:
        members[1]["default"] = None
    return {"type": "array", "items": {"type": "record", "name": record, "fields": members}, "logicalType": "map"}


def map_parts(data_type: DataType) -> tuple[DataType, DataType]:
    """Key and value of a MAP; element and count of a MULTISET."""
    assert data_type.element is not None
    if data_type.root is TypeRoot.MULTISET:
        return data_type.element, DataType(TypeRoot.INT, nullable=False)
    assert data_type.key is not None
    return data_type.key, data_type.element
