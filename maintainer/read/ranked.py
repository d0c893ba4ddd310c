"""Which of many files can hold a matching row, for all files at once (spec 07 §10.3); `maintainer.read.prune` says the same of one.

The bounds of a column are kept as ranks among the distinct bounds that there are, whatever its type. A literal is looked up once; the rest is
comparing small integers:

    distinct bounds          v0     v1     v2
    ranks            0    1   2   3   4   5    6        a bound has an odd rank, a literal between two of them an even one

An unknown lower bound has the rank −1, and an unknown upper one is above all.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Context
from typing import Any, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from maintainer.model.like import reduced
from maintainer.model.predicate import And, Leaf, Op, Predicate
from maintainer.model.types import DataType, TypeRoot
from maintainer.model.values import order_key
from maintainer.read.prune import before_wildcard

Flags = npt.NDArray[np.bool_]
Ranks = npt.NDArray[np.int32]

BELOW = np.int32(-1)
ABOVE = np.int32(2**31 - 1)
_EXACT = Context(prec=80)


@dataclass(frozen=True, eq=False)
class RankedBounds:
    """What is known of a column in each file: its values that are not null are in [low, high]. `values` are the distinct bounds, ascending, in
    the form of `maintainer.format.serialized_rows`."""

    values: Sequence[Any]
    low: Ranks
    high: Ranks
    may_be_null: Flags
    only_nulls: Flags
    type: DataType | None = None

    @classmethod
    def unknown(cls, files: int) -> RankedBounds:
        nothing = np.zeros(files, bool)
        return cls((), np.full(files, BELOW), np.full(files, ABOVE), ~nothing, nothing)

    @property
    def nbytes(self) -> int:
        held = self.values.nbytes if isinstance(self.values, _Ascending) else 0
        return int(held + self.low.nbytes + self.high.nbytes + self.may_be_null.nbytes + self.only_nulls.nbytes)

    def rank(self, literal: Any) -> int:
        key = self._key(literal)
        at = bisect_left(self.values, key)
        return 2 * at + (at < len(self.values) and self.values[at] == key)

    def after_prefix(self, text: Any) -> int:
        """A rank above all bounds that begin with the text or are smaller than it, and below all others."""
        key = self._key(text)
        return 2 * bisect_right(self.values, key, key=lambda value: value[: len(key)])

    def _key(self, literal: Any) -> Any:
        key = order_key(literal)[1]
        if self.type is not None and self.type.root is TypeRoot.DECIMAL and self.type.precision <= 18:
            return key.scaleb(self.type.scale, _EXACT)
        return key


def ranked(arrays: Sequence[pa.Array]) -> tuple[Sequence[Any], Ranks]:
    """The distinct values of some arrays, ascending, and the rank of each value among them (null: −1)."""
    every = pa.concat_arrays(_alike(arrays))
    if not len(every) - every.null_count:
        return (), np.full(len(every), BELOW)
    known = every.is_valid().to_numpy(zero_copy_only=False)
    dense = np.asarray(pc.rank(every, sort_keys="ascending", tiebreaker="dense")).astype(np.int64) - 1
    one_of_each = np.empty(int(dense[known].max()) + 1, np.int64)
    one_of_each[dense[known]] = np.flatnonzero(known)
    return _Ascending(every.take(pa.array(one_of_each))), np.where(known, 2 * dense + 1, BELOW).astype(np.int32)


def first_known(one: pa.Array, other: pa.Array) -> pa.Array:
    """The values of one array, and where it has none those of the other."""
    return pc.coalesce(*_alike([one, other]))


def _alike(arrays: Sequence[pa.Array]) -> list[pa.Array]:
    """Arrays of one column, of which some may be without any value, or hold timestamps that are far away."""
    kinds = {array.type for array in arrays} - {pa.null()}
    kind = kinds.pop() if len(kinds) == 1 else pa.decimal128(38, 0) if kinds else pa.null()
    return [array if array.type == kind else array.cast(kind) for array in arrays]


class _Ascending(Sequence[Any]):
    """Values of an array as Python's `bisect` looks at them."""

    def __init__(self, array: pa.Array) -> None:
        self._array = array

    @property
    def nbytes(self) -> int:
        return int(self._array.nbytes)

    def __len__(self) -> int:
        return len(self._array)

    @overload
    def __getitem__(self, at: int) -> Any: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Any]: ...
    def __getitem__(self, at: int | slice) -> Any:
        return self._array[at].as_py() if isinstance(at, int) else self._array[at].to_pylist()


def may_match(predicate: Predicate, bounds: Callable[[str], RankedBounds], files: int) -> Flags:
    """Which files may hold a row that satisfies the predicate."""
    if isinstance(predicate, Leaf):
        return _leaf(reduced(predicate), bounds(predicate.field))
    every = isinstance(predicate, And)
    found = np.full(files, every)
    for child in predicate.children:
        one = may_match(child, bounds, files)
        found = found & one if every else found | one
    return found


def _leaf(leaf: Leaf, bounds: RankedBounds) -> Flags:
    op = leaf.op
    if op == Op.IS_NULL:
        return bounds.may_be_null
    some = ~bounds.only_nulls
    if op == Op.IS_NOT_NULL or op in (Op.ARRAY_CONTAINS, Op.ARRAYS_OVERLAP, Op.ARRAY_CONTAINS_ALL, Op.IS_NAN):
        return some
    literals = [literal for literal in leaf.literals if literal is not None]
    if (op != Op.IN and len(literals) < len(leaf.literals)) or (op == Op.IN and not literals):
        return np.zeros(len(some), bool)
    if leaf.negated or op in (Op.ENDS_WITH, Op.CONTAINS):
        return some
    return some & _inside(op, literals, bounds)


def _inside(op: Op, literals: Sequence[Any], bounds: RankedBounds) -> Flags:
    low, high = bounds.low, bounds.high
    found: Flags
    if op in (Op.STARTS_WITH, Op.LIKE):
        prefix = literals[0] if op == Op.STARTS_WITH else before_wildcard(literals[0])
        found = (low < bounds.after_prefix(prefix)) & (high >= bounds.rank(prefix))
        return found
    ranks = np.array([bounds.rank(literal) for literal in literals], np.int32)
    first, last = (ranks[0], ranks[-1]) if len(ranks) else (BELOW, BELOW)
    match op:
        case Op.EQ:
            found = (low <= first) & (first <= high)
        case Op.NE:
            found = ~((low == high) & (low == first))
        case Op.LT:
            found = low < first
        case Op.LE:
            found = low <= first
        case Op.GT:
            found = high > first
        case Op.GE:
            found = high >= first
        case Op.IN:
            ranks = np.unique(ranks)
            following = np.append(ranks, ABOVE)[np.searchsorted(ranks, low)]  # the smallest that is not below the file
            found = (following <= high) & (following < ABOVE)
        case Op.NOT_IN:
            found = ~((low == high) & np.isin(low, ranks))
        case Op.BETWEEN:
            in_order = order_key(literals[0]) <= order_key(literals[1])
            found = (low <= last) & (high >= first) & in_order
        case Op.NOT_BETWEEN:
            in_order = order_key(literals[0]) <= order_key(literals[1])
            found = (low < first) | (high > last) | (not in_order)
        case _:
            raise AssertionError(op)
    return found
