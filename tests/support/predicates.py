"""Predicates for tests: what a predicate means for one row, in plain Python from the rules of spec 07 §3, §4 — and random ones.

`holds` is the model that the vectorized residual, the indexes and the pruning are compared with. It uses nothing of the package but the tree.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any

from hypothesis import strategies as st

from maintainer.model.predicate import And, Leaf, Op, Or, Predicate
from maintainer.model.schema import TableSchema
from maintainer.model.types import MAX_LENGTH, DataField, DataType, TypeRoot

STRING = DataType(TypeRoot.VARCHAR, length=MAX_LENGTH)
LINE_ENDS = "\n\r\x85\u2028\u2029"
WORDS = ["", "a", "ab", "b", "a\nb", "a_b", "%", "a%b", "\\", "é", "￿", "😀", "a😀b", "\u2028", "aab"]
PATTERNS = ["", "%", "%%", "a", "a%", "%b", "%a%", "a_b", "_", "a%b", "\\%", "a\\_b", "\\\\", "_%", "%😀%", "a%a%b"]

VALUES: dict[str, tuple[DataType, list[Any]]] = {
    "bo": (DataType(TypeRoot.BOOLEAN), [False, True]),
    "ti": (DataType(TypeRoot.TINYINT), [-128, -1, 0, 1, 127]),
    "i": (DataType(TypeRoot.INT), [-(2**31), -1, 0, 1, 2, 2**31 - 1]),
    "l": (DataType(TypeRoot.BIGINT), [-(2**63), -1, 0, 1, 2**63 - 1]),
    "f": (DataType(TypeRoot.FLOAT), [-math.inf, -1.5, -0.0, 0.0, 1.5, math.inf, math.nan]),
    "d": (DataType(TypeRoot.DOUBLE), [-math.inf, -1.5, -0.0, 0.0, 0.1, 5e-324, math.inf, math.nan]),
    "dec": (DataType(TypeRoot.DECIMAL, precision=10, scale=2), [Decimal("-1.50"), Decimal("0.00"), Decimal("0.01"), Decimal("99999999.99")]),
    "big": (DataType(TypeRoot.DECIMAL, precision=38, scale=0), [Decimal(-(10**37)), Decimal(0), Decimal(10**38 - 1)]),
    "s": (STRING, WORDS),
    "c": (DataType(TypeRoot.CHAR, length=3), ["a", "a  ", "ab", "b"]),
    "by": (DataType(TypeRoot.VARBINARY, length=MAX_LENGTH), [b"", b"\x00", b"\x7f", b"\x80", b"\xff", b"\xff\x00"]),
    "dt": (DataType(TypeRoot.DATE), [-719162, -1, 0, 19000, 2932896]),
    "t": (DataType(TypeRoot.TIME, precision=3), [0, 1, 86_399_999]),
    "t3": (DataType(TypeRoot.TIMESTAMP, precision=3), [-62135596800 * 10**9, -1_000_000, 0, 1_700_000_000_123 * 10**6]),
    "t6": (DataType(TypeRoot.TIMESTAMP, precision=6), [-1_000, 0, 1_000, 1_700_000_000_123_456 * 10**3]),
    "t9": (DataType(TypeRoot.TIMESTAMP_LTZ, precision=9), [-1, 0, 1, 1_700_000_000_123_456_789]),
}
"""Column name -> type and a small pool of values, so that literals are really found."""

ELEMENTS = {"ai": DataType(TypeRoot.INT), "as_": STRING, "ad": DataType(TypeRoot.DOUBLE)}
"""Array columns and their element types; elements come from the pool of the scalar column of that type."""
_POOLS = {"ai": VALUES["i"][1], "as_": WORDS, "ad": VALUES["d"][1]}

SCHEMA = TableSchema(
    id=0,
    fields=tuple(
        DataField(i, name, data_type)
        for i, (name, data_type) in enumerate(
            [(name, data_type) for name, (data_type, _) in VALUES.items()]
            + [(name, DataType(TypeRoot.ARRAY, element=element)) for name, element in ELEMENTS.items()]
        )
    ),
    highest_field_id=100,
)


def holds(predicate: Predicate, row: Mapping[str, Any]) -> bool:
    """Whether the predicate is true for the row (column name -> internal value)."""
    return truth(predicate, row) is True


def order_key(value: Any) -> Any:
    """What sorts as the value does for Java's readers: −0.0 below 0.0, NaN above all, texts by their bytes."""
    if isinstance(value, float):
        return (1, 0.0, 0.0) if math.isnan(value) else (0, value, math.copysign(1, value))
    return _octets(value)


def truth(predicate: Predicate, row: Mapping[str, Any]) -> bool | None:
    """True, False, or None for unknown."""
    if isinstance(predicate, Leaf):
        found = _leaf(predicate, row[predicate.field])
        return not found if predicate.negated and found is not None else found
    found = {truth(child, row) for child in predicate.children}
    decides = isinstance(predicate, Or)
    return decides if decides in found else None if None in found else not decides


def _leaf(leaf: Leaf, value: Any) -> bool | None:
    if leaf.op == Op.IS_NULL:
        return value is None
    if leaf.op == Op.IS_NOT_NULL:
        return value is not None
    if value is None:
        return None
    match leaf.op:
        case Op.ARRAY_CONTAINS:
            return _contained(leaf.literal, value)
        case Op.ARRAY_CONTAINS_ALL:
            found = {_contained(literal, value) for literal in leaf.literals}
            return False if False in found else None if None in found else True
        case Op.ARRAYS_OVERLAP:
            if any(_contained(literal, value) is True for literal in leaf.literals):
                return True
            return None if leaf.literals and value and (None in leaf.literals or None in value) else False
        case Op.IS_NAN:
            return math.isnan(value)
        case Op.IN | Op.NOT_IN:
            inside = any(literal is not None and order_key(literal) == order_key(value) for literal in leaf.literals)
            unknown = None in leaf.literals
            return (True if inside else None if unknown else False) if leaf.op == Op.IN else (None if unknown else not inside)
    if None in leaf.literals:
        return None
    match leaf.op:
        case Op.STARTS_WITH:
            return _octets(value).startswith(_octets(leaf.literal))
        case Op.ENDS_WITH:
            return _octets(value).endswith(_octets(leaf.literal))
        case Op.CONTAINS:
            return _octets(leaf.literal) in _octets(value)
        case Op.LIKE:
            return like(value, leaf.literal)
    key, literals = order_key(value), [order_key(literal) for literal in leaf.literals]
    return {
        Op.EQ: lambda: key == literals[0],
        Op.NE: lambda: key != literals[0],
        Op.LT: lambda: key < literals[0],
        Op.LE: lambda: key <= literals[0],
        Op.GT: lambda: key > literals[0],
        Op.GE: lambda: key >= literals[0],
        Op.BETWEEN: lambda: literals[0] <= key <= literals[1],
        Op.NOT_BETWEEN: lambda: key < literals[0] or key > literals[1],
    }[leaf.op]()


def _contained(literal: Any, elements: Sequence[Any]) -> bool | None:
    if literal is None:
        return None
    if any(element is not None and order_key(element) == order_key(literal) for element in elements):
        return True
    return None if None in elements else False


def _octets(value: Any) -> Any:
    return value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value


@lru_cache(maxsize=4096)
def like(text: str, pattern: str) -> bool:
    """LIKE by trying everything."""
    if not pattern:
        return not text
    head, rest = pattern[0], pattern[1:]
    if head == "%":
        return any(like(text[start:], rest) for start in range(len(text) + 1))
    if head == "_":
        return bool(text) and text[0] not in LINE_ENDS and like(text[1:], rest)
    if head == "\\":
        head, rest = rest[0], rest[1:]
    return text[:1] == head and like(text[1:], rest)


def rows(names: Sequence[str] = tuple(VALUES) + tuple(ELEMENTS), max_size: int = 12) -> st.SearchStrategy[list[dict[str, Any]]]:
    """Rows as mappings of column name to internal value."""
    return st.lists(st.fixed_dictionaries({name: _value(name) for name in names}), max_size=max_size)


def _value(name: str) -> st.SearchStrategy[Any]:
    if name in ELEMENTS:
        return st.none() | st.lists(st.none() | st.sampled_from(_POOLS[name]), max_size=4)
    return st.none() | st.sampled_from(VALUES[name][1])


def predicates(names: Sequence[str] = tuple(VALUES) + tuple(ELEMENTS), nulls: bool = True) -> st.SearchStrategy[Predicate]:
    """Trees over these columns, with literals from the pools and, if wanted, NULL."""
    leaf = st.sampled_from(list(names)).flatmap(lambda name: leaves_of(name, nulls))
    return st.recursive(
        leaf,
        lambda children: st.builds(
            lambda kind, parts: kind(tuple(parts)), st.sampled_from([And, Or]), st.lists(children, min_size=2, max_size=3)
        ),
        max_leaves=6,
    )


def leaves_of(name: str, nulls: bool = True) -> st.SearchStrategy[Leaf]:
    null_tests = st.sampled_from([Leaf(Op.IS_NULL, name), Leaf(Op.IS_NOT_NULL, name)])
    if name in ELEMENTS:
        element = st.sampled_from(_POOLS[name])
        literal = st.none() | element if nulls else element
        many = st.lists(literal, max_size=3).map(tuple)
        return null_tests | st.one_of(
            st.builds(Leaf, st.just(Op.ARRAY_CONTAINS), st.just(name), literal.map(lambda v: (v,)), st.booleans()),
            st.builds(Leaf, st.sampled_from([Op.ARRAYS_OVERLAP, Op.ARRAY_CONTAINS_ALL]), st.just(name), many, st.booleans()),
        )
    data_type, pool = VALUES[name]
    literal = st.none() | st.sampled_from(pool) if nulls else st.sampled_from(pool)
    options = [
        null_tests,
        st.builds(Leaf, st.sampled_from([Op.EQ, Op.NE, Op.LT, Op.LE, Op.GT, Op.GE]), st.just(name), literal.map(lambda v: (v,))),
        st.builds(Leaf, st.sampled_from([Op.IN, Op.NOT_IN]), st.just(name), st.lists(literal, max_size=3).map(tuple)),
        st.builds(Leaf, st.sampled_from([Op.BETWEEN, Op.NOT_BETWEEN]), st.just(name), st.tuples(literal, literal)),
    ]
    if data_type.root in (TypeRoot.FLOAT, TypeRoot.DOUBLE):
        options.append(st.builds(Leaf, st.just(Op.IS_NAN), st.just(name), st.just(()), st.booleans()))
    if data_type.root in (TypeRoot.VARCHAR, TypeRoot.CHAR, TypeRoot.VARBINARY):
        text_ops = st.sampled_from([Op.STARTS_WITH, Op.ENDS_WITH, Op.CONTAINS])
        options.append(st.builds(Leaf, text_ops, st.just(name), literal.map(lambda v: (v,)), st.booleans()))
    if data_type.root in (TypeRoot.VARCHAR, TypeRoot.CHAR):
        pattern = st.none() | st.sampled_from(PATTERNS) if nulls else st.sampled_from(PATTERNS)
        options.append(st.builds(Leaf, st.just(Op.LIKE), st.just(name), pattern.map(lambda v: (v,)), st.booleans()))
    return st.one_of(options)
