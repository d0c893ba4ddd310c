"""Random predicates over the columns of any table, from a seeded generator, and the same predicates in the forms that people write.

| form       | made by         | the rest of it                                                                              |
| ---------- | --------------- | ------------------------------------------------------------------------------------------- |
| tree       | `Questions`     | literals are internal values, most of them such that occur in the table                     |
| SQL        | `as_sql`        | every tree                                                                                  |
| `col()`    | `as_expression` | every tree; literals as Python has them, or as Arrow scalars where it has none              |
| pyarrow    | `as_arrow`      | no array functions, no bytes in texts; what it means is for Arrow to say                    |
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_, or_
from random import Random
from typing import Any

import pyarrow.compute as pc

from maintainer import col
from maintainer.data.values import json_value, to_arrow_array
from maintainer.model.predicate import And, Leaf, Op, Or, Predicate
from maintainer.model.schema import TableSchema
from maintainer.model.types import BINARIES, CHARACTERS, FLOATS, INTEGERS, NESTED, TIMESTAMPS, DataField, DataType, TypeRoot
from maintainer.read.expression import Expression
from tests.support.plain_values import pattern
from tests.support.random_rows import random_value

COMPARISONS = (Op.EQ, Op.NE, Op.LT, Op.LE, Op.GT, Op.GE)
TEXT_TESTS = (Op.STARTS_WITH, Op.ENDS_WITH, Op.CONTAINS)
ARRAY_TESTS = (Op.ARRAY_CONTAINS, Op.ARRAYS_OVERLAP, Op.ARRAY_CONTAINS_ALL)
NULL_TESTS = (Op.IS_NULL, Op.IS_NOT_NULL)
INSIDE = (Op.IN, Op.NOT_IN)
RANGES = (Op.BETWEEN, Op.NOT_BETWEEN)


def is_scalar(data_type: DataType) -> bool:
    return data_type.root not in NESTED


def is_array_of_scalars(data_type: DataType) -> bool:
    return data_type.root is TypeRoot.ARRAY and data_type.element is not None and is_scalar(data_type.element)


def tests_of(data_type: DataType) -> tuple[Op, ...]:
    """Everything that can be asked of a column."""
    if is_array_of_scalars(data_type):
        return (*ARRAY_TESTS, *NULL_TESTS)
    if not is_scalar(data_type):
        return NULL_TESTS
    asked = (*COMPARISONS, *INSIDE, *RANGES, *NULL_TESTS)
    if data_type.root in FLOATS:
        asked += (Op.IS_NAN,)
    if data_type.root in CHARACTERS or data_type.root in BINARIES:
        asked += TEXT_TESTS
    if data_type.root in CHARACTERS:
        asked += (*TEXT_TESTS, Op.LIKE, Op.LIKE)
    return asked


@dataclass
class Questions:
    """Predicates about columns; `rows` are what the table holds, so that most literals occur in it."""

    random: Random
    fields: Sequence[DataField]
    rows: Sequence[Mapping[str, Any]]
    nulls: float = 0.05
    """How often a literal is NULL."""

    def tree(self, most: int = 5) -> Predicate:
        """A tree of up to `most` leaves."""
        count = self.random.randrange(1, most + 1)
        if count == 1 or self.random.random() < 0.3:
            return self.leaf(self.random.choice(self.fields))
        parts = []
        while count > 0:
            size = self.random.randrange(1, count + 1)
            parts.append(self.tree(size))
            count -= size
        return self.random.choice([And, Or])(tuple(parts)) if len(parts) > 1 else parts[0]

    def leaf(self, field: DataField, op: Op | None = None) -> Leaf:
        random, data_type = self.random, field.type
        op = op or random.choice(tests_of(data_type))
        may_be_negated = op in (*TEXT_TESTS, *ARRAY_TESTS, Op.LIKE, Op.IS_NAN) and random.random() < 0.2
        return Leaf(op, field.name, self._literals(op, field.name, data_type), negated=may_be_negated)

    def _literals(self, op: Op, name: str, data_type: DataType) -> tuple[Any, ...]:
        random = self.random
        if op in (*NULL_TESTS, Op.IS_NAN):
            return ()
        if op in ARRAY_TESTS:
            assert data_type.element is not None
            known = [element for row in self.rows for element in row[name] or () if element is not None]
            count = 1 if op is Op.ARRAY_CONTAINS else random.randrange(4)
            return tuple(self._literal(known, data_type.element) for _ in range(count))
        known = [row[name] for row in self.rows if row[name] is not None]
        if op in TEXT_TESTS or op is Op.LIKE:
            text = self._literal(known, data_type)
            return (text if text is None else pattern(random, text) if op is Op.LIKE else self._part(text, data_type.root in BINARIES),)
        return tuple(self._literal(known, data_type) for _ in range(random.randrange(5) if op in INSIDE else 2 if op in RANGES else 1))

    def _literal(self, known: Sequence[Any], data_type: DataType) -> Any:
        if self.random.random() < self.nulls:
            return None
        if known and self.random.random() < 0.75:
            return self.random.choice(known)
        return random_value(self.random, data_type.with_nullable(False))

    def _part(self, text: Any, is_binary: bool) -> Any:
        """A piece of a text; now and then some of its bytes, which may be no text."""
        first, last = sorted(self.random.choices(range(len(text) + 1), k=2))
        cut = self.random.choice([text, text[:last], text[first:], text[first:last]])
        if is_binary or self.random.random() < 0.8:
            return cut
        octets = text.encode()
        first, last = sorted(self.random.choices(range(len(octets) + 1), k=2))
        return self.random.choice([octets[:last], octets[first:], octets[first:last]])


def as_people_mean_it(predicate: Predicate) -> Predicate:
    """The tree whose rows the forms below give. In SQL `c NOT BETWEEN NULL AND 5` is true for 6; the leaf function knows no such thing."""
    if isinstance(predicate, Leaf):
        if predicate.op is Op.NOT_BETWEEN and None in predicate.literals:
            low, high = predicate.literals
            return Or((Leaf(Op.LT, predicate.field, (low,)), Leaf(Op.GT, predicate.field, (high,))))
        return predicate
    return type(predicate)(tuple(as_people_mean_it(child) for child in predicate.children))


# ------------------------------------------------------------------------------------------------------------------------- SQL


def as_sql(predicate: Predicate, schema: TableSchema) -> str:
    """The predicate as a condition in SQL."""
    if isinstance(predicate, Leaf):
        text = _leaf_sql(predicate, schema.field(predicate.field).type)
        return f"NOT ({text})" if predicate.negated else text
    joined = " AND " if isinstance(predicate, And) else " OR "
    return joined.join(f"({as_sql(child, schema)})" for child in predicate.children)


def _leaf_sql(leaf: Leaf, data_type: DataType) -> str:
    name = f"`{leaf.field}`"
    of = data_type if is_scalar(data_type) else data_type.element or data_type
    literals = [literal_sql(literal, of) for literal in leaf.literals]
    match leaf.op:
        case Op.IS_NULL:
            return f"{name} IS NULL"
        case Op.IS_NOT_NULL:
            return f"{name} IS NOT NULL"
        case Op.IS_NAN:
            return f"isnan({name})"
        case Op.IN | Op.NOT_IN:
            return f"{name} {'NOT ' if leaf.op is Op.NOT_IN else ''}IN ({', '.join(literals)})"
        case Op.BETWEEN | Op.NOT_BETWEEN:
            return f"{name} {'NOT ' if leaf.op is Op.NOT_BETWEEN else ''}BETWEEN {literals[0]} AND {literals[1]}"
        case Op.LIKE:
            return f"{name} LIKE {literals[0]}"
        case Op.STARTS_WITH | Op.ENDS_WITH | Op.CONTAINS | Op.ARRAY_CONTAINS:
            return f"{leaf.op}({name}, {literals[0]})"
        case Op.ARRAYS_OVERLAP | Op.ARRAY_CONTAINS_ALL:
            return f"{leaf.op}({name}, array({', '.join(literals)}))"
    return f"{name} {leaf.op} {literals[0]}"


def literal_sql(value: Any, data_type: DataType) -> str:
    """An internal value as a SQL literal."""
    if value is None:
        return "NULL"
    if isinstance(value, bytes):
        return f"X'{value.hex()}'"
    root = data_type.root
    if root in FLOATS:
        return f"CAST('{value!r}' AS DOUBLE)" if not math.isfinite(value) else repr(value)
    if root is TypeRoot.BOOLEAN:
        return str(value).upper()
    if root in CHARACTERS:
        return "'" + value.replace("'", "''") + "'"
    text = json_value(value, data_type)
    if root in (TypeRoot.DATE, TypeRoot.TIME):
        return f"{root.value} '{text}'"
    return f"TIMESTAMP '{text}'" if root in TIMESTAMPS else str(text)


# ----------------------------------------------------------------------------------------------------------------------- col()


def as_expression(predicate: Predicate, schema: TableSchema) -> Expression:
    """The predicate as a Python programmer writes it."""
    if not isinstance(predicate, Leaf):
        return reduce(_joined(predicate), (as_expression(child, schema) for child in predicate.children))
    data_type = schema.field(predicate.field).type
    of = data_type if is_scalar(data_type) else data_type.element or data_type
    literals = [_python(literal, of) for literal in predicate.literals]
    test = _test(predicate, literals)
    return ~test if predicate.negated else test


def _python(value: Any, data_type: DataType) -> Any:
    as_it_is = INTEGERS | FLOATS | CHARACTERS | BINARIES | {TypeRoot.BOOLEAN, TypeRoot.DECIMAL}
    if value is None or isinstance(value, bytes) or data_type.root in as_it_is:
        return value
    return to_arrow_array([value], data_type)[0]


def _test(leaf: Leaf, literals: list[Any]) -> Expression:
    column = col(leaf.field)
    match leaf.op:
        case Op.IS_NULL:
            return column.is_null()
        case Op.IS_NOT_NULL:
            return column.is_not_null()
        case Op.IS_NAN:
            return column.is_nan()
        case Op.IN:
            return column.isin(literals)
        case Op.NOT_IN:
            return column.notin(literals)
        case Op.BETWEEN:
            return column.between(*literals)
        case Op.NOT_BETWEEN:
            return ~column.between(*literals)
        case Op.ARRAYS_OVERLAP:
            return column.arrays_overlap(literals)
        case Op.ARRAY_CONTAINS_ALL:
            return column.array_contains_all(literals)
    (value,) = literals
    return {
        Op.EQ: column.__eq__, Op.NE: column.__ne__, Op.LT: column.__lt__, Op.LE: column.__le__, Op.GT: column.__gt__, Op.GE: column.__ge__,
        Op.STARTS_WITH: column.startswith, Op.ENDS_WITH: column.endswith, Op.CONTAINS: column.contains, Op.LIKE: column.like,
        Op.ARRAY_CONTAINS: column.array_contains,
    }[leaf.op](value)  # fmt: skip


# --------------------------------------------------------------------------------------------------------------------- pyarrow


def as_arrow(predicate: Predicate, schema: TableSchema) -> pc.Expression | None:
    """The predicate as a pyarrow expression; None where it has no functions for it."""
    if not isinstance(predicate, Leaf):
        children = [as_arrow(child, schema) for child in predicate.children]
        return None if any(child is None for child in children) else reduce(_joined(predicate), children)
    data_type = schema.field(predicate.field).type
    if predicate.op in ARRAY_TESTS or (predicate.op in (*TEXT_TESTS, Op.LIKE) and not isinstance(predicate.literal, str)):
        return None
    found = _arrow_test(predicate, data_type)
    return ~found if predicate.negated else found


def _joined(predicate: Predicate) -> Any:
    return and_ if isinstance(predicate, And) else or_


def _arrow_test(leaf: Leaf, data_type: DataType) -> pc.Expression:
    column = pc.field(leaf.field)
    match leaf.op:
        case Op.IS_NULL:
            return column.is_null()
        case Op.IS_NOT_NULL:
            return column.is_valid()
        case Op.IS_NAN:
            return pc.is_nan(column)
        case Op.STARTS_WITH:
            return pc.starts_with(column, leaf.literal)
        case Op.ENDS_WITH:
            return pc.ends_with(column, leaf.literal)
        case Op.CONTAINS:
            return pc.match_substring(column, leaf.literal)
        case Op.LIKE:
            return pc.match_like(column, leaf.literal)
    values = to_arrow_array(leaf.literals, data_type)
    match leaf.op:
        case Op.IN | Op.NOT_IN:
            inside = column.isin(values)
            return inside if leaf.op is Op.IN else ~inside
        case Op.BETWEEN:
            return (column >= values[0]) & (column <= values[1])
        case Op.NOT_BETWEEN:
            return (column < values[0]) | (column > values[1])
    return {
        Op.EQ: column.__eq__, Op.NE: column.__ne__, Op.LT: column.__lt__, Op.LE: column.__le__, Op.GT: column.__gt__, Op.GE: column.__ge__,
    }[leaf.op](values[0])  # fmt: skip
