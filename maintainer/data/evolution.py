"""Columns of one schema in files of another (spec 02 §13; Java `SchemaEvolutionUtil`).

A column of the read schema is the column of the file's schema with the same **id**, and is found in the file under the name that it has in
the file's schema. No such id: NULL for every row, whatever the names are and whatever the default value is. Members of ROWs are matched in
the same way, inside of arrays and maps too. Nullability does not matter.

A changed type needs a cast, and casts are refused, except those that leave every value as it is: a longer VARCHAR or VARBINARY, also from
CHAR or BINARY, and a finer timestamp that Arrow holds in the same unit.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from maintainer.data.arrow_types import timestamp_unit
from maintainer.errors import Unsupported
from maintainer.model.schema import KIND_FIELD, SEQUENCE_FIELD, TableSchema
from maintainer.model.types import BINARIES, CHARACTERS, TIMESTAMPS, DataField, DataType, TypeRoot

_SYSTEM_FIELDS = {field.name: field for field in (SEQUENCE_FIELD, KIND_FIELD)}


def match(name: str, file_schema: TableSchema, read_schema: TableSchema) -> tuple[DataField, DataField | None]:
    """The column of the read schema, and what it is in files of the file schema (None: it is not there)."""
    system = _SYSTEM_FIELDS.get(name)
    if system is not None:
        return system, system
    target = read_schema.field(name)
    source = target if file_schema is read_schema else file_schema.field_by_id(target.id)
    if source is not None:
        change = retyped(source.type, target.type)
        if change is not None:
            raise Unsupported(f"column {name}: its type was changed ({change}), and reading it needs a cast, which is not supported yet")
    return target, source


def members(source: DataType, target: DataType) -> Iterator[tuple[DataField, DataField | None]]:
    """The members of a ROW in the read schema, each with what it is in the file."""
    by_id = {field.id: field for field in source.fields}
    for field in target.fields:
        yield field, by_id.get(field.id)


@lru_cache(maxsize=4096)
def same_shape(source: DataType, target: DataType) -> bool:
    """Whether values of one type are values of the other as they are: ROWs have the same members, by id and name, in the same order."""
    if source.root is TypeRoot.ROW:
        return len(source.fields) == len(target.fields) and all(
            old.id == new.id and old.name == new.name and same_shape(old.type, new.type)
            for old, new in zip(source.fields, target.fields, strict=True)
        )
    return all(old is None or new is None or same_shape(old, new) for old, new in ((source.element, target.element), (source.key, target.key)))


def retyped(source: DataType, target: DataType) -> str | None:
    """What was changed, in words, if values of one type are not values of the other."""
    if source.root is TypeRoot.ROW and target.root is TypeRoot.ROW:
        changes = (
            f"{field.name}: {change}"
            for field, old in members(source, target)
            if old is not None and (change := retyped(old.type, field.type)) is not None
        )
        return next(changes, None)
    if source.root is target.root and source.element is not None and target.element is not None and source.length == target.length:
        key = None if source.key is None or target.key is None else retyped(source.key, target.key)
        return key or retyped(source.element, target.element)
    return None if _keeps_values(source, target) else f"{source.sql()} to {target.sql()}"


def _keeps_values(source: DataType, target: DataType) -> bool:
    if source.with_nullable(True) == target.with_nullable(True):
        return True
    for family, open_ended in ((CHARACTERS, TypeRoot.VARCHAR), (BINARIES, TypeRoot.VARBINARY)):
        if source.root in family and target.root is open_ended:
            return source.length <= target.length
    if source.root is target.root and source.root in TIMESTAMPS:
        return source.precision <= target.precision and timestamp_unit(source.precision) == timestamp_unit(target.precision)
    return False
