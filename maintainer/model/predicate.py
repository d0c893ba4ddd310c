"""Predicate trees (spec 07 §3): leaves of one column and a function, joined by AND and OR.

There is no general NOT: negations are leaf functions, and what has no negated leaf (`NOT LIKE` …) is a leaf with `negated` set, which no index
answers and which the residual evaluates. Literals are internal values (`maintainer.model.values`) of the column's type (for array functions: of
its element type; startsWith, endsWith and contains of a text also take bytes that are none); None is SQL NULL. A comparison with NULL is never
true, and neither is its negation.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Op(StrEnum):
    EQ = "="
    NE = "<>"
    LT = "<"
    LE = "<="
    GT = ">"
    GE = ">="
    IN = "in"
    NOT_IN = "notin"
    BETWEEN = "between"
    NOT_BETWEEN = "notbetween"
    IS_NULL = "isnull"
    IS_NOT_NULL = "notnull"
    IS_NAN = "isnan"
    STARTS_WITH = "startswith"
    ENDS_WITH = "endswith"
    CONTAINS = "contains"
    LIKE = "like"
    ARRAY_CONTAINS = "array_contains"
    ARRAYS_OVERLAP = "arrays_overlap"
    ARRAY_CONTAINS_ALL = "array_contains_all"


@dataclass(frozen=True)
class Leaf:
    """One test of one column. `literals` holds one value for the comparisons and text functions, two for BETWEEN, any number for IN and the
    many-valued array functions, none for IS NULL, IS NOT NULL and IS NAN."""

    op: Op
    field: str
    literals: tuple[Any, ...] = ()
    negated: bool = False

    @property
    def literal(self) -> Any:
        return self.literals[0]


@dataclass(frozen=True)
class And:
    children: tuple[Predicate, ...]


@dataclass(frozen=True)
class Or:
    children: tuple[Predicate, ...]


Predicate = Leaf | And | Or


def leaves(predicate: Predicate) -> Iterator[Leaf]:
    """All leaves, left to right."""
    if isinstance(predicate, Leaf):
        yield predicate
    else:
        for child in predicate.children:
            yield from leaves(child)


def fields_of(predicate: Predicate) -> frozenset[str]:
    """The names of all columns that the predicate reads."""
    return frozenset(leaf.field for leaf in leaves(predicate))
