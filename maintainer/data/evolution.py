"""Columns of one schema in files of another (spec 02 §13; Java `SchemaEvolutionUtil`).

A column of the read schema is the column of the file's schema with the same **id**, and is found in the file under the name that it has in
the file's schema. No such id: NULL for every row, whatever the names are and whatever the default value is. Members of ROWs are matched in
the same way, inside of arrays and maps too. Nullability does not matter.

A changed type needs a cast (`maintainer.data.casts`), unless it leaves every value as it is: a longer VARCHAR or VARBINARY, also from CHAR or
BINARY, and a finer timestamp that Arrow holds in the same unit. What has no cast is refused.
"""

from __future__ import annotations

from functools import lru_cache

from maintainer.data.arrow_types import timestamp_unit
from maintainer.errors import Unsupported
from maintainer.model.casting import changed, members, without_cast
from maintainer.model.schema import KIND_FIELD, SEQUENCE_FIELD, TableSchema
from maintainer.model.types import BINARIES, CHARACTERS, TIMESTAMPS, DataField, DataType, TypeRoot

__all__ = ["keeps_nulls", "keeps_order", "keeps_values", "match", "members", "retyped", "same_shape"]

_SYSTEM_FIELDS = {field.name: field for field in (SEQUENCE_FIELD, KIND_FIELD)}


def match(name: str, file_schema: TableSchema, read_schema: TableSchema) -> tuple[DataField, DataField | None]:
    """The column of the read schema, and what it is in files of the file schema (None: it is not there)."""
    system = _SYSTEM_FIELDS.get(name)
    if system is not None:
        return system, system
    target = read_schema.field(name)
    source = target if file_schema is read_schema else file_schema.field_by_id(target.id)
    if source is not None:
        change = without_cast(source.type, target.type)
        if change is not None:
            raise Unsupported(f"column {name}: its type was changed ({change}), and there is no cast")
    return target, source


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
    return changed(source, target, keeps_values)


def keeps_order(source: DataType, target: DataType) -> bool:
    """Whether bounds of values of one type, as they are, are bounds of the values of the other that they become."""
    order = _WIDER.get(source.root, ())
    return source.same_values(target) or keeps_values(source, target) or target.root in order


def keeps_nulls(target: DataType) -> bool:
    """Whether a cast to this type gives NULL for nothing but NULL."""
    return target.root is not TypeRoot.DECIMAL


_WIDER = {
    TypeRoot.TINYINT: (TypeRoot.SMALLINT, TypeRoot.INT, TypeRoot.BIGINT),
    TypeRoot.SMALLINT: (TypeRoot.INT, TypeRoot.BIGINT),
    TypeRoot.INT: (TypeRoot.BIGINT,),
    TypeRoot.FLOAT: (TypeRoot.DOUBLE,),
}


@lru_cache(maxsize=4096)
def keeps_values(source: DataType, target: DataType) -> bool:
    """Whether values of one type, which is no collection on the way to another, are those of the other as they are."""
    if source.with_nullable(True) == target.with_nullable(True):
        return True
    for family, open_ended in ((CHARACTERS, TypeRoot.VARCHAR), (BINARIES, TypeRoot.VARBINARY)):
        if source.root in family and target.root is open_ended:
            return source.length <= target.length
    if source.root is target.root and source.root in TIMESTAMPS:
        return source.precision <= target.precision and timestamp_unit(source.precision) == timestamp_unit(target.precision)
    return False
