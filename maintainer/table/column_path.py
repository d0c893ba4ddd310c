"""Editing what a path of a schema leads to (Java `SchemaManager.NestedColumnModifier`).

Java takes any word for what an ARRAY or MAP holds, and then drops or renames the whole column; here it has its name, and no column of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from difflib import get_close_matches

from maintainer.errors import UsageError
from maintainer.model.schema_change import Path, Position
from maintainer.model.types import DataField, DataType, TypeRoot

_WITHIN = {TypeRoot.ARRAY: "element", TypeRoot.MAP: "value"}
Edit = Callable[[tuple[DataField, ...], str], tuple[DataField, ...]]


def at(
    fields: tuple[DataField, ...], path: Path, edit: Edit, within: Callable[[DataType], DataType] | None = None, depth: int = 0
) -> tuple[DataField, ...]:
    """The fields, edited where the path leads. `within` edits what an ARRAY or MAP holds, where that can be done."""
    if not path or not all(path):
        raise UsageError(f"{'.'.join(path)!r} is no path of a column")
    if depth == len(path) - 1:
        return edit(fields, path[depth])
    here = find(fields, path[: depth + 1])
    changed = _inside(fields[here].type, path, edit, within, depth + 1)
    return (*fields[:here], replace(fields[here], type=changed), *fields[here + 1 :])


def _inside(data_type: DataType, path: Path, edit: Edit, within: Callable[[DataType], DataType] | None, depth: int) -> DataType:
    if data_type.root is TypeRoot.ROW:
        return replace(data_type, fields=at(data_type.fields, path, edit, within, depth))
    word = _WITHIN.get(data_type.root)
    if word is None or data_type.element is None:
        raise UsageError(f"there is no column {'.'.join(path)}: {'.'.join(path[:depth])} is {data_type.sql()}, which has no members")
    if path[depth] != word:
        raise UsageError(f"there is no column {'.'.join(path)}: what {data_type.sql()} holds is called {'.'.join(path[:depth])}.{word}")
    if depth < len(path) - 1:
        return replace(data_type, element=_inside(data_type.element, path, edit, within, depth + 1))
    if within is None:
        raise UsageError(f"{'.'.join(path)} is no column of its own: only its type and whether it may be NULL can be changed")
    return replace(data_type, element=within(data_type.element))


def find(fields: tuple[DataField, ...], path: Path) -> int:
    """Where the field is that the path ends at."""
    names = [field.name for field in fields]
    if path[-1] in names:
        return names.index(path[-1])
    close = get_close_matches(path[-1], names, n=1)
    meant = f"did you mean {'.'.join((*path[:-1], close[0]))}?" if close else f"there are {', '.join(names)}"
    raise UsageError(f"Column {'.'.join(path)} does not exist: {meant}")


def check_absent(fields: tuple[DataField, ...], path: Path) -> None:
    """Raises where there is a field already."""
    if any(field.name == path[-1] for field in fields):
        raise UsageError(f"Column {'.'.join(path)} already exists.")


def index(fields: tuple[DataField, ...], position: Position) -> int:
    """Where a field goes that comes to these."""
    if position.where in ("first", "last"):
        return 0 if position.where == "first" else len(fields)
    if position.where not in ("after", "before") or position.reference is None:
        raise UsageError(f"position {position.where!r}: a column goes first, last, or after or before another one")
    return find(fields, (position.reference,)) + (position.where == "after")
