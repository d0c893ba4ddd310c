"""The data types of Paimon, as values (spec 01 §4.2; Java `org.apache.paimon.types.*`).

A type is its root, its nullability and at most a few parameters. `str(type)` is the SQL text of the type, which is also its
JSON form for every root that is not constructed. Parsing lives in `maintainer.format.data_type`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

MAX_LENGTH = 2**31 - 1
"""Length of STRING (= VARCHAR of this length) and BYTES (= VARBINARY of this length)."""


class TypeRoot(StrEnum):
    """What kind of value a type describes; the text is the first word of the SQL form."""

    BOOLEAN = "BOOLEAN"
    TINYINT = "TINYINT"
    SMALLINT = "SMALLINT"
    INT = "INT"
    BIGINT = "BIGINT"
    FLOAT = "FLOAT"
    DOUBLE = "DOUBLE"
    DECIMAL = "DECIMAL"
    CHAR = "CHAR"
    VARCHAR = "VARCHAR"
    BINARY = "BINARY"
    VARBINARY = "VARBINARY"
    DATE = "DATE"
    TIME = "TIME"
    TIMESTAMP = "TIMESTAMP"
    TIMESTAMP_LTZ = "TIMESTAMP_LTZ"
    VARIANT = "VARIANT"
    BLOB = "BLOB"
    GEOMETRY = "GEOMETRY"
    GEOGRAPHY = "GEOGRAPHY"
    ARRAY = "ARRAY"
    VECTOR = "VECTOR"
    MULTISET = "MULTISET"
    MAP = "MAP"
    ROW = "ROW"


INTEGERS = frozenset({TypeRoot.TINYINT, TypeRoot.SMALLINT, TypeRoot.INT, TypeRoot.BIGINT})
FLOATS = frozenset({TypeRoot.FLOAT, TypeRoot.DOUBLE})
CHARACTERS = frozenset({TypeRoot.CHAR, TypeRoot.VARCHAR})
BINARIES = frozenset({TypeRoot.BINARY, TypeRoot.VARBINARY})
TIMESTAMPS = frozenset({TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ})
NESTED = frozenset({TypeRoot.ARRAY, TypeRoot.VECTOR, TypeRoot.MULTISET, TypeRoot.MAP, TypeRoot.ROW, TypeRoot.VARIANT})


@dataclass(frozen=True, slots=True)
class DataType:
    """One type. Which parameters are set depends on the root:

    CHAR, VARCHAR, BINARY, VARBINARY, VECTOR: `length`; DECIMAL: `precision`, `scale`; TIME, TIMESTAMP, TIMESTAMP_LTZ: `precision`;
    ARRAY, VECTOR, MULTISET: `element`; MAP: `key`, `element` (the value); ROW: `fields`; GEOMETRY, GEOGRAPHY: `parameters`, the text in
    parentheses.
    """

    root: TypeRoot
    nullable: bool = True
    length: int = 0
    precision: int = 0
    scale: int = 0
    element: DataType | None = None
    key: DataType | None = None
    fields: tuple[DataField, ...] = ()
    parameters: str = ""

    def with_nullable(self, nullable: bool) -> DataType:
        return self if nullable == self.nullable else replace(self, nullable=nullable)

    def same_values(self, other: DataType) -> bool:
        """Whether both describe the same values with the same physical form; nullability does not matter, at any depth."""
        return _without_nullability(self) == _without_nullability(other)

    def __str__(self) -> str:
        return self.sql() if self.nullable else f"{self.sql()} NOT NULL"

    def sql(self) -> str:
        """The SQL text without nullability of the outermost type."""
        match self.root:
            case TypeRoot.VARCHAR if self.length == MAX_LENGTH:
                return "STRING"
            case TypeRoot.VARBINARY if self.length == MAX_LENGTH:
                return "BYTES"
            case TypeRoot.CHAR | TypeRoot.VARCHAR | TypeRoot.BINARY | TypeRoot.VARBINARY:
                return f"{self.root}({self.length})"
            case TypeRoot.DECIMAL:
                return f"DECIMAL({self.precision}, {self.scale})"
            case TypeRoot.TIME | TypeRoot.TIMESTAMP:
                return f"{self.root}({self.precision})"
            case TypeRoot.TIMESTAMP_LTZ:
                return f"TIMESTAMP({self.precision}) WITH LOCAL TIME ZONE"
            case TypeRoot.GEOMETRY | TypeRoot.GEOGRAPHY:
                return f"{self.root}({self.parameters})"
            case TypeRoot.ARRAY | TypeRoot.MULTISET:
                return f"{self.root}<{self.element}>"
            case TypeRoot.VECTOR:
                return f"VECTOR<{self.element}, {self.length}>"
            case TypeRoot.MAP:
                return f"MAP<{self.key}, {self.element}>"
            case TypeRoot.ROW:
                return f"ROW<{', '.join(f'{f.name} {f.type}' for f in self.fields)}>"
            case _:
                return str(self.root)


@dataclass(frozen=True, slots=True)
class DataField:
    """A column, or a member of a ROW; `id` never changes once given. `extra` keeps JSON members that we do not know."""

    id: int
    name: str
    type: DataType
    description: str | None = None
    default_value: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)


def _without_nullability(data_type: DataType) -> DataType:
    return replace(
        data_type,
        nullable=True,
        element=None if data_type.element is None else _without_nullability(data_type.element),
        key=None if data_type.key is None else _without_nullability(data_type.key),
        fields=tuple(DataField(f.id, f.name, _without_nullability(f.type)) for f in data_type.fields),
    )
