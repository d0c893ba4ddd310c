"""Which types a column may be changed to (spec 02 §13.2; Java `CastExecutors.resolve`): what can be read again from files of the old type.

Members of ROWs are matched by id and may come and go; elements of ARRAYs and values of MAPs may be changed like columns, keys of MAPs not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache

from maintainer.model.types import BINARIES, CHARACTERS, FLOATS, INTEGERS, TIMESTAMPS, DataField, DataType, TypeRoot

_NUMBERS = INTEGERS | FLOATS | {TypeRoot.DECIMAL}
_TIMES = TIMESTAMPS | {TypeRoot.DATE, TypeRoot.TIME}
_SECONDS = frozenset({TypeRoot.INT, TypeRoot.BIGINT})
_TARGETS = {
    **dict.fromkeys((TypeRoot.TINYINT, TypeRoot.SMALLINT), _NUMBERS | CHARACTERS | {TypeRoot.BOOLEAN}),
    **dict.fromkeys(_SECONDS, _NUMBERS | CHARACTERS | TIMESTAMPS | {TypeRoot.BOOLEAN}),
    **dict.fromkeys((*FLOATS, TypeRoot.DECIMAL), _NUMBERS | CHARACTERS),
    TypeRoot.BOOLEAN: _NUMBERS | CHARACTERS,
    **dict.fromkeys(CHARACTERS, CHARACTERS | BINARIES | _NUMBERS | _TIMES | {TypeRoot.BOOLEAN}),
    **dict.fromkeys(BINARIES, BINARIES | CHARACTERS),
    TypeRoot.DATE: TIMESTAMPS | CHARACTERS,
    TypeRoot.TIME: TIMESTAMPS | CHARACTERS,
    **dict.fromkeys(TIMESTAMPS, TIMESTAMPS | CHARACTERS | _SECONDS | {TypeRoot.DATE, TypeRoot.TIME}),
}
_COLLECTIONS = frozenset({TypeRoot.ARRAY, TypeRoot.MAP, TypeRoot.ROW})
_TEXT = DataType(TypeRoot.VARCHAR, length=1)

_INTEGERS = (TypeRoot.TINYINT, TypeRoot.SMALLINT, TypeRoot.INT, TypeRoot.BIGINT)
_WIDER: dict[TypeRoot, frozenset[TypeRoot]] = {
    TypeRoot.VARCHAR: CHARACTERS,
    TypeRoot.VARBINARY: BINARIES,
    TypeRoot.DECIMAL: _NUMBERS,
    TypeRoot.DOUBLE: _NUMBERS,
    TypeRoot.FLOAT: INTEGERS | {TypeRoot.DECIMAL},
    **{wider: frozenset(_INTEGERS[:number]) for number, wider in enumerate(_INTEGERS)},
    TypeRoot.DATE: frozenset({TypeRoot.TIMESTAMP}),
    TypeRoot.TIME: frozenset({TypeRoot.TIMESTAMP}),
    **dict.fromkeys(TIMESTAMPS, TIMESTAMPS),
}
"""Types to which values go without being asked (Java `DataTypeCasts`, implicit rules)."""

Accepts = Callable[[DataType, DataType], bool]


@lru_cache(maxsize=4096)
def castable(source: DataType, target: DataType) -> bool:
    """Whether values of one type, which is no collection on the way to another, may become those of the other."""
    if source.with_nullable(True) == target.with_nullable(True):
        return True
    if source.root in _COLLECTIONS:
        parts = (source.element, source.key, *(field.type for field in source.fields))
        return target.root in CHARACTERS and all(part is None or castable(part, _TEXT) for part in parts)
    return target.root in _TARGETS.get(source.root, frozenset())


def widens(source: DataType, target: DataType) -> bool:
    """Whether a change of type needs no explicit cast, by roots alone: `disable-explicit-type-casting` leaves only these."""
    return source.root is target.root or source.root in _WIDER.get(target.root, frozenset())


def without_cast(source: DataType, target: DataType) -> str | None:
    """What was changed, in words, if values of one type cannot be made values of the other."""
    return changed(source, target, castable)


def changed(source: DataType, target: DataType, accepts: Accepts) -> str | None:
    """What was changed, in words, outside of what is accepted."""
    if source.root is TypeRoot.ROW and target.root is TypeRoot.ROW:
        changes = (
            f"{field.name}: {change}"
            for field, old in members(source, target)
            if old is not None and (change := changed(old.type, field.type, accepts)) is not None
        )
        return next(changes, None)
    if source.root is target.root and source.element is not None and target.element is not None and source.length == target.length:
        if source.root in (TypeRoot.VECTOR, TypeRoot.MULTISET):
            accepts = _same
        key = None if source.key is None or target.key is None else changed(source.key, target.key, _same)
        return key or changed(source.element, target.element, accepts)
    return None if accepts(source, target) else f"{source.sql()} to {target.sql()}"


def _same(source: DataType, target: DataType) -> bool:
    return source.same_values(target)


def members(source: DataType, target: DataType) -> Iterator[tuple[DataField, DataField | None]]:
    """The members of a ROW in the new type, each with what it is in the old one."""
    by_id = {field.id: field for field in source.fields}
    for field in target.fields:
        yield field, by_id.get(field.id)
