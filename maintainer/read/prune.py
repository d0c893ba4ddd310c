"""Skipping files, row groups, partitions and buckets that cannot hold a matching row (spec 01 §14, 07 §10.3, 02 §13.3).

A file is skipped when its bounds say that the predicate is false or NULL for all of its rows. Here that is said
of one file, row group or bucket; for all files of a table at once it is in `maintainer.read.ranked`, with the same answers.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

from maintainer.format import binary_row, murmur
from maintainer.model.like import ANY, ESCAPE, ONE, reduced
from maintainer.model.predicate import And, Leaf, Op, Predicate
from maintainer.model.schema import TableSchema
from maintainer.model.types import DataType, TypeRoot
from maintainer.model.values import order_key
from maintainer.read.project import conjuncts

MOST_KEYS = 1000
"""Combinations of bucket-key values that are hashed to find the buckets of a predicate."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What is known of a column in a set of rows: all values that are not NULL are in [low, high] (None: unknown)."""

    low: Any = None
    high: Any = None
    null_count: int | None = None
    rows: int | None = None

    @property
    def only_nulls(self) -> bool:
        return self.null_count is not None and self.null_count == self.rows


NOTHING_KNOWN = Bounds()
Test = Callable[[Mapping[str, Bounds]], bool]


def compiled(predicate: Predicate) -> Test:
    """A function that tells from the bounds of columns whether a row may match; columns that are not in the mapping are unknown."""
    if isinstance(predicate, Leaf):
        leaf = reduced(predicate)
        test = _leaf(leaf)
        name = leaf.field
        return lambda bounds: test(bounds.get(name, NOTHING_KNOWN))
    children = [compiled(child) for child in predicate.children]
    if isinstance(predicate, And):
        return lambda bounds: all(child(bounds) for child in children)
    return lambda bounds: any(child(bounds) for child in children)


def _leaf(leaf: Leaf) -> Callable[[Bounds], bool]:
    op = leaf.op
    if op == Op.IS_NULL:
        return lambda bounds: bounds.null_count != 0
    if op == Op.IS_NOT_NULL or op in (Op.ARRAY_CONTAINS, Op.ARRAYS_OVERLAP, Op.ARRAY_CONTAINS_ALL, Op.IS_NAN):
        return lambda bounds: not bounds.only_nulls
    literals = [literal for literal in leaf.literals if literal is not None]
    keys = [order_key(literal) for literal in literals]
    if (op != Op.IN and len(literals) < len(leaf.literals)) or (op == Op.IN and not literals):
        return lambda bounds: False
    if leaf.negated or op in (Op.ENDS_WITH, Op.CONTAINS):
        return lambda bounds: not bounds.only_nulls
    if op == Op.STARTS_WITH:
        inside = _prefix(leaf.literal)
    elif op == Op.LIKE:
        inside = _prefix(before_wildcard(leaf.literal))
    else:
        inside = _COMPARISONS[op](sorted(keys) if op in (Op.IN, Op.NOT_IN) else keys)

    def test(bounds: Bounds) -> bool:
        if bounds.only_nulls:
            return False
        low = None if bounds.low is None else order_key(bounds.low)
        high = None if bounds.high is None else order_key(bounds.high)
        return inside(low, high)

    return test


_Inside = Callable[[Any, Any], bool]


def _equal(keys: list[Any]) -> _Inside:
    return lambda low, high: (low is None or low <= keys[0]) and (high is None or keys[0] <= high)


def _not_equal(keys: list[Any]) -> _Inside:
    return lambda low, high: low is None or high is None or not low == high == keys[0]


def _below(keys: list[Any]) -> _Inside:
    return lambda low, high: low is None or low < keys[0]


def _at_most(keys: list[Any]) -> _Inside:
    return lambda low, high: low is None or low <= keys[0]


def _above(keys: list[Any]) -> _Inside:
    return lambda low, high: high is None or high > keys[0]


def _at_least(keys: list[Any]) -> _Inside:
    return lambda low, high: high is None or high >= keys[0]


def _in(keys: list[Any]) -> _Inside:
    def test(low: Any, high: Any) -> bool:
        first = 0 if low is None else bisect_left(keys, low)
        return first < len(keys) and (high is None or keys[first] <= high)

    return test


def _not_in(keys: list[Any]) -> _Inside:
    def test(low: Any, high: Any) -> bool:
        if low is None or high is None or low != high:
            return True
        at = bisect_left(keys, low)
        return at == len(keys) or keys[at] != low

    return test


def _between(keys: list[Any]) -> _Inside:
    return lambda low, high: keys[0] <= keys[1] and (low is None or low <= keys[1]) and (high is None or high >= keys[0])


def _not_between(keys: list[Any]) -> _Inside:
    return lambda low, high: low is None or high is None or keys[0] > keys[1] or low < keys[0] or high > keys[1]


_COMPARISONS: dict[Op, Callable[[list[Any]], _Inside]] = {
    Op.EQ: _equal,
    Op.NE: _not_equal,
    Op.LT: _below,
    Op.LE: _at_most,
    Op.GT: _above,
    Op.GE: _at_least,
    Op.IN: _in,
    Op.NOT_IN: _not_in,
    Op.BETWEEN: _between,
    Op.NOT_BETWEEN: _not_between,
}


def before_wildcard(pattern: str) -> str:
    return pattern[: min((at for at in map(pattern.find, (ANY, ONE, ESCAPE)) if at >= 0), default=len(pattern))]


def _prefix(prefix: str | bytes) -> _Inside:
    text = order_key(prefix)[1]

    def test(low: Any, high: Any) -> bool:
        # keys of order_key are (1, bytes)
        return (high is None or high[1] >= text) and (low is None or low[1][: len(text)] <= text)

    return test


class Buckets:
    """The buckets in which rows of a predicate can be, when it fixes all bucket keys by `=` or IN."""

    def __init__(self, predicate: Predicate, schema: TableSchema, function: str) -> None:
        self._hashes: list[int] | None = None
        self._function = function
        keys = schema.bucket_keys
        types = schema.types_of(keys)
        fixed: dict[str, tuple[Any, ...]] = {}
        for part in conjuncts(predicate):
            if isinstance(part, Leaf) and part.op in (Op.EQ, Op.IN) and part.field in keys:
                values = tuple(dict.fromkeys(literal for literal in part.literals if literal is not None))
                if part.field not in fixed or len(values) < len(fixed[part.field]):
                    fixed[part.field] = values
        if not keys or len(fixed) < len(keys) or math.prod(len(values) for values in fixed.values()) > MOST_KEYS:
            return
        if any(isinstance(value, float) and (math.isnan(value) or value == 0) for values in fixed.values() for value in values):
            return  # NaN has many bit patterns; −0.0 and 0.0 are one key of a dict
        combinations = list(product(*(fixed[name] for name in keys)))
        if function == "mod" and len(keys) == 1 and types[0].root in (TypeRoot.INT, TypeRoot.BIGINT):
            self._hashes = [value for (value,) in combinations]
        elif function == "default":
            self._hashes = [_hash(values, types) for values in combinations]

    def numbers(self, total_buckets: int) -> list[int] | None:
        """Of so many buckets those in which rows of the predicate can be; None: all of them."""
        if self._hashes is None or total_buckets <= 0:
            return None
        if self._function == "mod":
            return sorted({value % total_buckets for value in self._hashes})
        return sorted({abs(value) % total_buckets for value in self._hashes})


def _hash(values: tuple[Any, ...], types: tuple[DataType, ...]) -> int:
    import numpy as np

    row = binary_row.encode_row(values, types)
    return int(murmur.hash_rows(np.frombuffer(row, dtype=np.uint8), np.array([0, len(row)]))[0])
