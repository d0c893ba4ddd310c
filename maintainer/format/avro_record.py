"""The Avro schema of data files (spec 02 §5; Java `AvroSchemaConverter`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
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


def record_schema(fields: Iterable[DataField]) -> dict[str, Any]:
    """The schema of files with these columns."""
    names: set[str] = set()
    members = [_member(field, "record", names) for field in fields]
    return {"type": "record", "name": "record", "namespace": "org.apache.paimon.avro.generated", "fields": members}


def unheld(fields: Iterable[DataField]) -> Iterator[tuple[str, str]]:
    """The columns that Avro files do not hold, each with the reason."""
    names: set[str] = set()
    for field in fields:
        try:
            _member(field, "record", names)
        except Unsupported as error:
            yield field.name, str(error)


def _member(field: DataField, record: str, names: set[str]) -> dict[str, Any]:
    """`names` of records are taken: each can be there once."""
    if not _is_name(field.name):
        raise Unsupported(f"Avro files have no names like {field.name!r}, but letters, digits and _, and no digit first")
    found = _type(field.type, f"{record}_{field.name}", names)
    return {"name": field.name, "type": found, "default": None} if field.type.nullable else {"name": field.name, "type": found}


def _is_name(text: str) -> bool:
    """As Avro's Java library has it: letters and digits of any alphabet."""
    return all(character == "_" or character.isalpha() or (index and character.isdecimal()) for index, character in enumerate(text))


def _record(name: str, members: list[dict[str, Any]]) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": members}


def _taken(name: str, names: set[str]) -> str:
    if name in names:
        raise Unsupported(f"Avro files cannot tell apart two ROWs or MAPs, which would both be called {name}")
    names.add(name)
    return name


def _type(data_type: DataType, record: str, names: set[str]) -> Any:
    found = _required(data_type, record, names)
    return ["null", found] if data_type.nullable else found


def _required(data_type: DataType, record: str, names: set[str]) -> Any:
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
            return {"type": "array", "items": _type(data_type.element, record, names)}
        case TypeRoot.MAP | TypeRoot.MULTISET:
            return _map(data_type, record, names)
        case TypeRoot.ROW:
            name = _taken(record, names)
            return _record(name, [_member(field, record, names) for field in data_type.fields])
        case _:
            raise Unsupported(f"Avro files have no type {data_type.sql()}")


def _map(data_type: DataType, record: str, names: set[str]) -> Any:
    key, value = map_parts(data_type)
    if key.root in CHARACTERS:
        return {"type": "map", "values": _type(value, record, names)}
    if data_type.root is TypeRoot.MULTISET:
        raise Unsupported("Avro files have no multisets of anything but text")
    name = _taken(record, names)
    members = [
        {"name": "key", "type": ["null", _required(key, f"{record}_key", names)]},
        {"name": "value", "type": _type(value, f"{record}_value", names)},
    ]
    if value.nullable:
        members[1]["default"] = None
    return {"type": "array", "items": _record(name, members), "logicalType": "map"}


def map_parts(data_type: DataType) -> tuple[DataType, DataType]:
    """Key and value of a MAP; element and count of a MULTISET."""
    assert data_type.element is not None
    if data_type.root is TypeRoot.MULTISET:
        return data_type.element, DataType(TypeRoot.INT, nullable=False)
    assert data_type.key is not None
    return data_type.key, data_type.element
