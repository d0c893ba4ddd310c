"""What can be changed of a table's schema, as values (Java `SchemaChange`); what it comes to is `maintainer.table.schema_change`'s.

A path names a column, or what is in it: `("r", "x")` a member of a ROW, `("l", "element")` what an ARRAY holds, `("m", "value")` a MAP.
"""

from __future__ import annotations

from dataclasses import dataclass

from maintainer.model.types import DataType

Path = tuple[str, ...]


@dataclass(frozen=True)
class Position:
    """Where a column goes: `first`, `last`, or `after` or `before` another one beside it."""

    where: str
    reference: str | None = None


@dataclass(frozen=True)
class SetOption:
    key: str
    value: str


@dataclass(frozen=True)
class RemoveOption:
    key: str


@dataclass(frozen=True)
class SetComment:
    """The table's comment; None removes it."""

    comment: str | None


@dataclass(frozen=True)
class AddColumn:
    path: Path
    type: DataType
    comment: str | None = None
    position: Position | None = None


@dataclass(frozen=True)
class RenameColumn:
    path: Path
    name: str


@dataclass(frozen=True)
class DropColumn:
    path: Path


@dataclass(frozen=True)
class AlterType:
    """A new type; whether values may be NULL stays as it is."""

    path: Path
    type: DataType


@dataclass(frozen=True)
class SetNullable:
    path: Path
    nullable: bool


@dataclass(frozen=True)
class SetColumnComment:
    """None removes the comment."""

    path: Path
    comment: str | None


@dataclass(frozen=True)
class SetDefault:
    """The value that writers give a column which a row leaves out, as text; None removes it."""

    name: str
    default: str | None


@dataclass(frozen=True)
class MoveColumn:
    name: str
    position: Position


SchemaChange = (
    SetOption
    | RemoveOption
    | SetComment
    | AddColumn
    | RenameColumn
    | DropColumn
    | AlterType
    | SetNullable
    | SetColumnComment
    | SetDefault
    | MoveColumn
)
