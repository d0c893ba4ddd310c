"""Sorting rows for ORDER BY: Paimon's order of values (NaN last, −0.0 before 0.0, text by bytes), and NULLs as Spark does by default: first
when ascending, last when descending."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from maintainer.errors import UsageError
from maintainer.model.schema import TableSchema
from maintainer.model.types import NESTED, TypeRoot
from maintainer.read.residual import comparable

_UNORDERED = NESTED | {TypeRoot.BLOB, TypeRoot.GEOMETRY, TypeRoot.GEOGRAPHY}
_DIRECTIONS = ("asc", "desc")


@dataclass(frozen=True)
class SortKey:
    column: str
    descending: bool = False


OrderBy = str | SortKey | tuple[str, str] | Sequence[str | SortKey | tuple[str, str]]


def sort_keys(order_by: OrderBy | None, schema: TableSchema) -> tuple[SortKey, ...]:
    """`"a"`, `"a DESC"`, `"a, b DESC"`, `("a", "desc")`, or a list of these."""
    if order_by is None:
        return ()
    if isinstance(order_by, str):
        items: Sequence[Any] = [order_by] if schema.has_field(order_by) else split_names(order_by)
    elif isinstance(order_by, SortKey) or _is_pair(order_by):
        items = [order_by]
    elif isinstance(order_by, list | tuple):
        items = order_by
    else:
        raise _unordered(order_by)
    return tuple(_sort_key(item, schema) for item in items)


def sorted_rows(table: pa.Table, keys: Sequence[SortKey], schema: TableSchema, limit: int | None = None) -> pa.Table:
    """The rows in order, ties in the order they had; the first `limit` of them."""
    columns: list[pa.Array] = []
    orders: list[tuple[str, str]] = []
    for key in keys:
        array = table.column(key.column).combine_chunks()
        array = comparable(array, schema.field(key.column).type)
        direction = "descending" if key.descending else "ascending"
        if array.null_count:  # false sorts before true: nulls come first ascending, last descending
            orders.append((str(len(columns)), direction))
            columns.append(array.is_valid().cast(pa.uint8()))
        orders.append((str(len(columns)), direction))
        columns.append(array)
    names = [str(i) for i in range(len(columns))]
    order = pc.sort_indices(pa.table(columns, names=names), sort_keys=orders)
    return table.take(order if limit is None or limit >= len(order) else order.slice(0, limit))


def before(table: pa.Table, row: pa.Table, keys: Sequence[SortKey], schema: TableSchema, ties: bool = False) -> npt.NDArray[np.bool_]:
    """Which rows of `table` come before the one of `row` in the order of the keys; with `ties` also those with the same keys."""
    found = np.zeros(table.num_rows, np.bool_)
    tied = np.ones(table.num_rows, np.bool_)
    for key in keys:
        data_type = schema.field(key.column).type
        values = comparable(table.column(key.column).combine_chunks(), data_type)
        bound = comparable(row.column(key.column).combine_chunks(), data_type)[0]
        if not bound.is_valid:  # nothing is before NULL when ascending
            before_it, same = pc.and_(values.is_valid(), pa.scalar(key.descending)), values.is_null()
        else:
            before_it = pc.fill_null((pc.greater if key.descending else pc.less)(values, bound), not key.descending)
            same = pc.fill_null(pc.equal(values, bound), False)
        found |= tied & np.asarray(before_it)
        tied &= np.asarray(same)
    return found | tied if ties else found


def split_names(text: str) -> list[str]:
    """The parts of a list that commas separate; what backticks quote is one piece, commas and all."""
    parts, quoted = [""], False
    for piece in re.split("([`,])", text):
        quoted ^= piece == "`"
        if piece == "," and not quoted:
            parts.append("")
        else:
            parts[-1] += piece
    if quoted:
        raise UsageError(f"{text!r}: a backtick is not closed; one in a name is doubled")
    return [part.strip() for part in parts]


def unquoted(name: str) -> str:
    """A column's name without the backticks around it, doubled ones inside being one."""
    return name[1:-1].replace("``", "`") if len(name) > 1 and name[0] == name[-1] == "`" else name


def _is_pair(value: object) -> bool:
    return isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], str) and value[1].lower() in _DIRECTIONS


def _sort_key(item: str | SortKey | tuple[str, str], schema: TableSchema) -> SortKey:
    if isinstance(item, SortKey):
        key = item
    elif isinstance(item, str):
        key = SortKey(item) if schema.has_field(item) else _parsed(item.strip())
        if not key.column or (key.column.lower() in _DIRECTIONS and not schema.has_field(key.column)):
            raise _unordered(item)
        first, *more = key.column.split() or [""]
        if more and schema.has_field(first) and not schema.has_field(key.column):
            raise UsageError(f"cannot order by {item.strip()!r}: only ASC or DESC may follow column {first!r}")
    elif _is_pair(item) and isinstance(item[0], str):
        key = SortKey(item[0], item[1].lower() == "desc")
    else:
        raise _unordered(item)
    data_type = schema.field(key.column).type
    if data_type.root in _UNORDERED:
        raise UsageError(f"column {key.column!r} of type {data_type.sql()} has no order")
    return key


def _unordered(asked: object) -> UsageError:
    return UsageError(f"order by a column's name, 'name DESC', or (name, 'desc'), or a list of these, not by {asked!r}")


def _parsed(text: str) -> SortKey:
    """A column's name, perhaps in backticks, and ASC or DESC."""
    name, _, direction = text.rpartition(" ")
    if direction.lower() not in _DIRECTIONS or not name.strip():
        name, direction = text, "asc"
    return SortKey(unquoted(name.strip()), direction.lower() == "desc")
