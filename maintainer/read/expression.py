"""Predicates as a Python programmer writes them, and what binds them to a schema (DESIGN §5; spec 07 §3).

    (col("price") > 10) & ~col("name").like("x%")

An expression knows nothing of a table. `bind` looks every column up, turns literals into values of the column's type and pushes negations
down to the leaves, since a predicate tree has no NOT: `~(a & b)` is `~a | ~b`, `~(x < v)` is `x >= v`, and what has no opposite (LIKE,
startswith, …) becomes a leaf that is marked `negated`. All in three-valued logic: neither a test of NULL nor its negation is true.

A literal between two values of the column's type is bound to what asks the same: on DECIMAL(10, 2) `price < 1.005` is `price <= 1.00`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NoReturn

from maintainer.errors import UsageError
from maintainer.model.like import check_pattern, with_backslash
from maintainer.model.predicate import And, Leaf, Op, Or, Predicate
from maintainer.model.schema import TableSchema
from maintainer.model.types import BINARIES, CHARACTERS, FLOATS, DataType, TypeRoot
from maintainer.read.literals import Place, is_null, place

DEEPEST = 100
"""How often AND and OR may alternate from the root to a leaf; predicates are walked recursively."""

_OPPOSITE = {
    Op.EQ: Op.NE,
    Op.LT: Op.GE,
    Op.GT: Op.LE,
    Op.IN: Op.NOT_IN,
    Op.BETWEEN: Op.NOT_BETWEEN,
    Op.IS_NULL: Op.IS_NOT_NULL,
}
_OPPOSITE |= {opposite: op for op, opposite in _OPPOSITE.items()}
_TEXT_OPS = frozenset({Op.STARTS_WITH, Op.ENDS_WITH, Op.CONTAINS})
_ARRAY_OPS = frozenset({Op.ARRAY_CONTAINS, Op.ARRAYS_OVERLAP, Op.ARRAY_CONTAINS_ALL})


class Expression:
    """A condition that is not bound to a table yet; join with `&`, `|` and `~`."""

    def __and__(self, other: Expression | Column) -> Expression:
        return Junction(And, (self, _condition(other)))

    def __or__(self, other: Expression | Column) -> Expression:
        return Junction(Or, (self, _condition(other)))

    def __invert__(self) -> Expression:
        return Negation(self)

    def __rand__(self, other: object) -> NoReturn:  # 1 & (col("b") > 2), as in col("a") == 1 & (col("b") > 2)
        raise UsageError(f"{other!r} is not a condition; each comparison beside & and | stands in parentheses, as in (a == 1) & (b > 2)")

    __ror__ = __rand__

    def __bool__(self) -> NoReturn:
        raise UsageError(
            "a condition has no truth value of its own: join conditions with & and |, negate with ~, and use .between(a, b) for a < c < b"
        )


@dataclass(frozen=True, eq=False)
class Test(Expression):
    """One test of one column, its literals as they were given."""

    op: Op
    column: str
    literals: tuple[Any, ...] = ()


@dataclass(frozen=True, eq=False)
class Junction(Expression):
    """Conditions joined by AND or OR."""

    kind: type[And] | type[Or]
    children: tuple[Expression, ...]


@dataclass(frozen=True, eq=False)
class Negation(Expression):
    child: Expression


@dataclass(frozen=True, eq=False)
class Constant(Expression):
    """TRUE, FALSE or NULL."""

    value: bool | None


class Column:
    """A column by name; comparing it gives an `Expression`."""

    def __init__(self, name: str) -> None:
        self.name = name

    # of BOOLEAN the column alone is a condition

    def __and__(self, other: Expression | Column) -> Expression:
        return _condition(self) & _condition(other)

    def __or__(self, other: Expression | Column) -> Expression:
        return _condition(self) | _condition(other)

    def __invert__(self) -> Expression:
        return ~_condition(self)

    __rand__ = __ror__ = Expression.__rand__
    __bool__ = Expression.__bool__

    def _compare(self, op: Op, value: Any) -> Test:
        if isinstance(value, Column | Expression):
            raise UsageError(f"column {self.name!r} can only be compared with a literal, not with another column or condition")
        return Test(op, self.name, (value,))

    def __eq__(self, value: object) -> Test:  # type: ignore[override]
        return self._compare(Op.EQ, value)

    def __ne__(self, value: object) -> Test:  # type: ignore[override]
        return self._compare(Op.NE, value)

    def __lt__(self, value: Any) -> Test:
        return self._compare(Op.LT, value)

    def __le__(self, value: Any) -> Test:
        return self._compare(Op.LE, value)

    def __gt__(self, value: Any) -> Test:
        return self._compare(Op.GT, value)

    def __ge__(self, value: Any) -> Test:
        return self._compare(Op.GE, value)

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"col({self.name!r})"

    def isin(self, values: Iterable[Any]) -> Test:
        return Test(Op.IN, self.name, _many(values))

    def notin(self, values: Iterable[Any]) -> Test:
        return Test(Op.NOT_IN, self.name, _many(values))

    def between(self, low: Any, high: Any) -> Test:
        """`low <= column <= high`."""
        return Test(Op.BETWEEN, self.name, (low, high))

    def is_null(self) -> Test:
        return Test(Op.IS_NULL, self.name)

    def is_not_null(self) -> Test:
        return Test(Op.IS_NOT_NULL, self.name)

    def is_nan(self) -> Test:
        return Test(Op.IS_NAN, self.name)

    def like(self, pattern: str, escape: str = "\\") -> Test:
        """`%` stands for any text, `_` for one character that does not end a line; `escape` before them takes their meaning away."""
        if pattern is not None and not isinstance(pattern, str):
            raise UsageError(f"the pattern of like must be text, not {pattern!r}")
        return Test(Op.LIKE, self.name, (pattern if pattern is None else with_backslash(pattern, escape),))

    def startswith(self, prefix: str | bytes) -> Test:
        return self._compare(Op.STARTS_WITH, prefix)

    def endswith(self, suffix: str | bytes) -> Test:
        return self._compare(Op.ENDS_WITH, suffix)

    def contains(self, part: str | bytes) -> Test:
        return self._compare(Op.CONTAINS, part)

    def array_contains(self, element: Any) -> Test:
        return self._compare(Op.ARRAY_CONTAINS, element)

    def arrays_overlap(self, elements: Iterable[Any]) -> Test:
        return Test(Op.ARRAYS_OVERLAP, self.name, _many(elements))

    def array_contains_all(self, elements: Iterable[Any]) -> Test:
        return Test(Op.ARRAY_CONTAINS_ALL, self.name, _many(elements))


def col(name: str) -> Column:
    """The column `name`, for conditions: `table.scan(where=col("price") > 10)`."""
    if not isinstance(name, str):
        raise UsageError(f"a column is given by its name, not by {name!r}")
    return Column(name)


def bind(condition: Expression | Column, schema: TableSchema, time_zone: str = "UTC") -> Predicate:
    """The condition as a predicate tree over the columns of `schema`; `UsageError` where it does not fit."""
    return _bind(_condition(condition), False, schema, time_zone, DEEPEST)


def _bind(condition: Expression, negate: bool, schema: TableSchema, time_zone: str, depth: int) -> Predicate:
    while isinstance(condition, Negation):
        condition, negate = condition.child, not negate
    if isinstance(condition, Constant):
        return And(()) if condition.value is (not negate) else Or(())
    if isinstance(condition, Test):
        return _leaf(condition, negate, schema, time_zone)
    assert isinstance(condition, Junction)
    if depth == 0:
        raise UsageError(f"the condition is nested too deeply (AND and OR may alternate {DEEPEST} times)")
    kind = _dual(condition.kind) if negate else condition.kind
    children: list[Predicate] = []
    pending: list[tuple[Expression, bool]] = [(condition, negate)]
    while pending:  # a chain of one connective is a tree as deep as it is long: flatten it without recursion
        child, negated = pending.pop()
        while isinstance(child, Negation):
            child, negated = child.child, not negated
        if isinstance(child, Junction) and (_dual(child.kind) if negated else child.kind) is kind:
            pending.extend((grandchild, negated) for grandchild in reversed(child.children))
        else:
            children.append(_bind(child, negated, schema, time_zone, depth - 1))
    return children[0] if len(children) == 1 else kind(tuple(children))


def _leaf(test: Test, negate: bool, schema: TableSchema, time_zone: str) -> Predicate:
    name, op = test.column, test.op
    data_type = schema.field(name).type
    if op in (Op.IS_NULL, Op.IS_NOT_NULL):
        return Leaf(_OPPOSITE[op] if negate else op, name)
    if op == Op.IS_NAN:
        if data_type.root not in FLOATS:
            raise UsageError(f"column {name!r} is of type {data_type.sql()}; only FLOAT and DOUBLE can be NaN")
        return Leaf(op, name, negated=negate)
    if op in _TEXT_OPS or op == Op.LIKE:
        return Leaf(op, name, (_text_literal(op, test.literals[0], data_type, name),), negated=negate)
    if op in _ARRAY_OPS:
        return _array_leaf(test, negate, data_type, time_zone)
    if op == Op.EQ and test.literals[0] is True and data_type.root != TypeRoot.BOOLEAN:
        raise UsageError(f"column {name!r} is of type {data_type.sql()}; only a BOOLEAN column is true, or a condition by itself")
    if negate:
        op = _OPPOSITE[op]
    places = [None if is_null(literal) else place(literal, data_type, name, time_zone) for literal in test.literals]
    if op in (Op.IN, Op.NOT_IN):
        values = tuple(None if found is None else found.value for found in places if found is None or found.side == 0)
        return Leaf(op, name, values)
    if op == Op.BETWEEN:
        if all(found is not None and found.side == 0 for found in places):
            return Leaf(op, name, tuple(found.value for found in places if found is not None))
        return And((_comparison(Op.GE, name, places[0]), _comparison(Op.LE, name, places[1])))
    if op == Op.NOT_BETWEEN:
        if all(found is not None and found.side == 0 for found in places):
            return Leaf(op, name, tuple(found.value for found in places if found is not None))
        return Or((_comparison(Op.LT, name, places[0]), _comparison(Op.GT, name, places[1])))
    return _comparison(op, name, places[0])


def _comparison(op: Op, name: str, found: Place | None) -> Leaf:
    """The comparison with a literal that lies at `found`, as a comparison with a value of the type."""
    if found is None:
        return Leaf(op, name, (None,))
    if found.side == 0:
        return Leaf(op, name, (found.value,))
    never, whenever_not_null = Leaf(Op.IN, name), Leaf(Op.NOT_IN, name)
    match op:
        case Op.EQ:
            return never
        case Op.NE:
            return whenever_not_null
        case Op.LT | Op.LE:
            return never if found.side < 0 else whenever_not_null if found.value is None else Leaf(Op.LE, name, (found.value,))
        case _:
            return whenever_not_null if found.side < 0 else never if found.value is None else Leaf(Op.GT, name, (found.value,))


def _text_literal(op: Op, literal: Any, data_type: DataType, name: str) -> Any:
    binary = data_type.root in BINARIES and op != Op.LIKE
    if not binary and data_type.root not in CHARACTERS:
        raise UsageError(f"column {name!r} is of type {data_type.sql()}; {op} needs {'text' if op == Op.LIKE else 'text or bytes'}")
    if is_null(literal):
        return None
    if not binary and op != Op.LIKE and isinstance(literal, bytes | bytearray | memoryview):
        try:
            return bytes(literal).decode()
        except UnicodeDecodeError:
            return bytes(literal)  # a part of what UTF-8 makes of some text
    value = place(literal, data_type, name).value
    if op == Op.LIKE:
        check_pattern(value)
    return value


def _array_leaf(test: Test, negate: bool, data_type: DataType, time_zone: str) -> Leaf:
    name, op = test.column, test.op
    if data_type.root != TypeRoot.ARRAY or data_type.element is None:
        raise UsageError(f"column {name!r} is of type {data_type.sql()}; {op} needs an ARRAY")
    places = [None if is_null(literal) else place(literal, data_type.element, f"{name} (element)", time_zone) for literal in test.literals]
    values = tuple(None if found is None else found.value for found in places if found is None or found.side == 0)
    if len(values) < len(places) and op != Op.ARRAYS_OVERLAP:
        # an element that the type cannot hold is in no array
        return Leaf(Op.ARRAYS_OVERLAP, name, (), negated=negate)
    return Leaf(op, name, values, negated=negate)


def _dual(kind: type[And] | type[Or]) -> type[And] | type[Or]:
    return Or if kind is And else And


def _condition(value: Any) -> Expression:
    if isinstance(value, Expression):
        return value
    if isinstance(value, Column):
        return Test(Op.EQ, value.name, (True,))
    if isinstance(value, bool):
        return Constant(value)
    raise UsageError(f"{value!r} is not a condition; write col('a') > 1, or SQL text")


def _many(values: Iterable[Any]) -> tuple[Any, ...]:
    if isinstance(values, str | bytes | bytearray | memoryview) or not isinstance(values, Iterable):
        raise UsageError(f"give a list of values, not {values!r}")
    return tuple(values)
