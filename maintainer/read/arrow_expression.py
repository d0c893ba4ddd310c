"""Conditions as pyarrow compute expressions (DESIGN §5): `(pc.field("price") > 10) & pc.starts_with(pc.field("name"), "x")`.

Such an expression is opaque: all that Python can do is to print it, to run it, and to pickle it. The pickled form (Arrow C++
`compute/expression.cc`, `Serialize`; the same in pyarrow 17 to 26) is an Arrow IPC file of one row. Literals and options are its columns, and
the metadata of its schema tell the tree, one pair of key and value after the other:

    call NAME … end NAME     a function: its arguments, and `options N` where it has some (a struct in column N)
    field_ref NAME           a column; after `nested_field_ref N`, N of them are a path into a ROW
    literal N                the value in column N

Keys occur more than once, and pyarrow shows metadata as a dict, so they are read through the C data interface.

The rows are those that pyarrow itself would keep: three-valued logic where Arrow has it, `isin` without it, numbers by IEEE (0.0 = −0.0, and
no comparison with NaN is true but `!=`). Only literals become values of the column's type first, as in every other condition, and `_` of a LIKE
pattern is no end of a line, as it is everywhere in Paimon. What has no such predicate is refused by name, with what to write instead.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from maintainer.errors import UsageError
from maintainer.model.predicate import And, Op, Or, Predicate
from maintainer.model.schema import TableSchema
from maintainer.model.types import FLOATS
from maintainer.read.expression import Constant, Expression, Junction, Negation, Test, bind

SUPPORTED = (
    "a pyarrow expression may use == != < <= > >= of a column and a literal, & | ~, isin, is_null, is_valid, is_nan, starts_with, ends_with, "
    "match_substring, match_like and and_not_kleene"
)
_COMPARISONS = {
    "equal": Op.EQ,
    "not_equal": Op.NE,
    "less": Op.LT,
    "less_equal": Op.LE,
    "greater": Op.GT,
    "greater_equal": Op.GE,
}
_SWAPPED = {Op.LT: Op.GT, Op.GT: Op.LT, Op.LE: Op.GE, Op.GE: Op.LE}
_TEXTS = {"starts_with": Op.STARTS_WITH, "ends_with": Op.ENDS_WITH, "match_substring": Op.CONTAINS, "match_like": Op.LIKE}
_INSTEAD = {
    "and": "`a & b`",
    "or": "`a | b`",
    "and_not": "`a & ~b`",
    "xor": "`(a & ~b) | (~a & b)`",
    "cast": "the column and a literal without the cast: literals become values of the column's type",
    "match_substring_regex": "`pc.match_like`, or filter what comes out",
    "index_in": "`isin`",
    "list_element": '`maintainer.col("c").array_contains(v)`',
    "list_value_length": '`maintainer.col("c").array_contains(v)`',
    "is_inf": "`isin([math.inf, -math.inf])`",
    "is_finite": "`(c > -math.inf) & (c < math.inf)`",
    "true_unless_null": "`is_valid()`",
}
_MATCH, _SKIP, _EMIT_NULL = 0, 1, 2
"""Of `null_matching_behavior`: NULL is a value like any other; is in no set; gives NULL. Beyond them: as in SQL."""


@dataclass(frozen=True)
class _Field:
    name: str


@dataclass(frozen=True)
class _Literal:
    scalar: pa.Scalar


@dataclass(frozen=True)
class _Call:
    function: str
    arguments: tuple[_Node, ...]
    options: pa.Scalar | None


_Node = _Field | _Literal | _Call


def bind_arrow(expression: pc.Expression, schema: TableSchema, time_zone: str = "UTC") -> Predicate:
    """The expression as a predicate over the columns of `schema`; `UsageError` where it has none."""
    try:
        return bind(_Translation(schema).condition(_tree(expression)), schema, time_zone)
    except RecursionError:
        raise UsageError("the pyarrow expression is nested too deeply; write the condition as SQL or with maintainer.col") from None


class _Translation:
    """Floating columns are compared as Arrow does it, so types have to be known here already."""

    def __init__(self, schema: TableSchema) -> None:
        self._schema = schema

    def condition(self, node: _Node) -> Expression:
        if isinstance(node, _Field):
            return Test(Op.EQ, node.name, (True,))
        if isinstance(node, _Literal):
            if not (pa.types.is_boolean(node.scalar.type) or pa.types.is_null(node.scalar.type)):
                raise UsageError(f"{_shown(node)} is not a condition; {SUPPORTED}")
            return Constant(node.scalar.as_py())
        name, arguments = node.function, node.arguments
        match name:
            case "and_kleene" | "or_kleene":
                return Junction(And if name == "and_kleene" else Or, tuple(map(self.condition, _chain(node))))
            case "and_not_kleene":
                kept, dropped = map(self.condition, arguments)
                return Junction(And, (kept, Negation(dropped)))
            case "invert":
                return Negation(self.condition(arguments[0]))
            case _ if name in _COMPARISONS:
                return self._comparison(_COMPARISONS[name], node)
            case _ if name in _TEXTS:
                if _option(node, "ignore_case").as_py():
                    raise UsageError(f"{name} with ignore_case does not translate: no column is compared without regard to case; {SUPPORTED}")
                return Test(_TEXTS[name], _column(node, arguments[0]), (_pattern(node),))
            case "is_in":
                return _is_in(node)
            case "is_null":
                column = _column(node, arguments[0])
                null = Test(Op.IS_NULL, column)
                nan_too = _option(node, "nan_is_null").as_py() and self._schema.field(column).type.root in FLOATS
                return Junction(Or, (null, Test(Op.IS_NAN, column))) if nan_too else null
            case "is_valid":
                return Test(Op.IS_NOT_NULL, _column(node, arguments[0]))
            case "is_nan":
                return Test(Op.IS_NAN, _column(node, arguments[0]))
            case _:
                raise _refused(node)

    def _comparison(self, op: Op, node: _Call) -> Expression:
        left, right = node.arguments
        if isinstance(left, _Literal) and not isinstance(right, _Literal):
            left, right, op = right, left, _SWAPPED.get(op, op)
        if not isinstance(right, _Literal):
            raise UsageError(f"{_shown(node)} does not compare a column with a literal{_advice(left, right)}; {SUPPORTED}")
        if isinstance(left, _Call) and op in (Op.EQ, Op.NE) and pa.types.is_boolean(right.scalar.type) and right.scalar.is_valid:
            condition = self.condition(left)
            return condition if right.scalar.as_py() is (op == Op.EQ) else Negation(condition)
        column = _column(node, left)
        if self._schema.field(column).type.root in FLOATS and right.scalar.is_valid and _is_number(right.scalar.type):
            return _floating(op, column, right.scalar.as_py())
        return Test(op, column, (right.scalar if right.scalar.is_valid else None,))


def _is_number(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_integer(data_type) or pa.types.is_floating(data_type) or pa.types.is_decimal(data_type))


def _floating(op: Op, column: str, value: Any) -> Expression:
    """A comparison as IEEE has it: NaN is neither equal to anything, nor below or above it, and both zeros are equal."""
    if value != value:
        return Test(Op.NOT_IN if op == Op.NE else Op.IN, column, ())
    zero = value == 0
    match op:
        case Op.EQ | Op.NE if zero:
            return Test(Op.IN if op == Op.EQ else Op.NOT_IN, column, (0.0, -0.0))
        case Op.LT:
            return Test(op, column, (-0.0 if zero else value,))
        case Op.LE:
            return Test(op, column, (0.0 if zero else value,))
        case Op.GT | Op.GE:
            bound = (0.0 if op == Op.GT else -0.0) if zero else value
            return Junction(And, (Test(op, column, (bound,)), Test(Op.LE, column, (math.inf,))))  # NaN is above infinity
        case _:
            return Test(op, column, (value,))


def _is_in(node: _Call) -> Expression:
    column = _column(node, node.arguments[0])
    values, nulls = _option(node, "value_set"), _option(node, "null_matching_behavior").as_py()
    listed = values.values
    items = list(listed) if pa.types.is_temporal(listed.type) else listed.to_pylist()  # Python has no nanoseconds
    present = tuple(item for item, valid in zip(items, listed.is_valid().to_pylist(), strict=True) if valid)
    inside = Test(Op.IN, column, present)
    if nulls == _MATCH and len(present) < len(items):
        return Junction(Or, (inside, Test(Op.IS_NULL, column)))
    if nulls in (_MATCH, _SKIP):  # never NULL, so that its negation holds for NULL
        return Junction(And, (inside, Test(Op.IS_NOT_NULL, column)))
    return inside if nulls == _EMIT_NULL or len(present) == len(items) else Test(Op.IN, column, (*present, None))


def _column(call: _Call, node: _Node) -> str:
    if isinstance(node, _Field):
        return node.name
    raise UsageError(f"{_shown(call)} does not test a column{_advice(node)}; {SUPPORTED}")


def _pattern(node: _Call) -> str | bytes:
    pattern: bytes = _option(node, "pattern").as_buffer().to_pybytes()
    if node.function != "match_like":
        return pattern
    try:
        return pattern.decode()
    except UnicodeDecodeError:
        raise UsageError(f"the pattern {pattern!r} of match_like is not text") from None


def _option(node: _Call, name: str) -> pa.Scalar:
    try:
        return node.options[name]  # type: ignore[index]
    except (KeyError, TypeError):
        raise _unknown_form(f"{node.function} without {name}") from None


def _chain(node: _Call) -> Iterator[_Node]:
    """The operands of a connective that is repeated, which is a tree as deep as it is long."""
    pending: list[_Node] = [node]
    while pending:
        current = pending.pop()
        if isinstance(current, _Call) and current.function == node.function:
            pending.extend(reversed(current.arguments))
        else:
            yield current


def _refused(node: _Call) -> UsageError:
    return UsageError(f"{node.function} does not translate to a condition{_advice(node)}; {SUPPORTED}")


def _advice(*nodes: _Node) -> str:
    for node in nodes:
        if isinstance(node, _Call) and (instead := _INSTEAD.get(node.function.rstrip("_"))):
            return f": instead of {node.function} write {instead}"
    return ""


def _shown(node: _Node) -> str:
    match node:
        case _Field(name):
            return name
        case _Literal(scalar):
            try:
                text = repr(scalar.as_py())
            except (OverflowError, ValueError):  # a time that Python does not have
                text = f"a {scalar.type}"
            return text if len(text) <= 80 else text[:77] + "…"
        case _:
            shown = f"{node.function}({', '.join(map(_shown, node.arguments))})"
            return shown if len(shown) <= 200 else shown[:197] + "…"


def _tree(expression: pc.Expression) -> _Node:
    try:
        _, (data, *_) = expression.__reduce__()
    except pa.ArrowNotImplementedError as error:  # a column by its number
        raise UsageError(f"the pyarrow expression does not translate: columns are given by their names ({error})") from None
    except (pa.ArrowInvalid, TypeError, ValueError) as error:
        raise _unknown_form(str(error)) from None
    try:
        batch = pa.ipc.open_file(data).get_batch(0)
        return _parsed(batch, _metadata(batch.schema))
    except (pa.ArrowInvalid, IndexError, ValueError) as error:
        raise _unknown_form(str(error)) from None


def _parsed(batch: pa.RecordBatch, pairs: Sequence[tuple[str, str]]) -> _Node:
    """The tree that the pairs tell, read from their end: there, arguments come before the call that takes them."""
    nodes: list[_Node] = []
    opened: list[tuple[int, pa.Scalar | None]] = []
    at = len(pairs)
    while at:
        at -= 1
        key, value = pairs[at]
        match key:
            case "end":
                opened.append((len(nodes), None))
            case "options":
                opened[-1] = (opened[-1][0], batch.column(int(value))[0])
            case "literal":
                nodes.append(_Literal(batch.column(int(value))[0]))
            case "field_ref":
                nodes.append(_Field(value))
            case "nested_field_ref":
                path = [node.name for node in reversed(nodes[-int(value) :]) if isinstance(node, _Field)]
                raise UsageError(f"{'.'.join(path)}: only top-level columns can be tested")
            case "call":
                start, options = opened.pop()
                arguments = tuple(reversed(nodes[start:]))
                nodes[start:] = [_Call(value, arguments, options)]
            case _:
                raise ValueError(key)
    (root,) = nodes
    return root


def _unknown_form(what: str) -> UsageError:
    return UsageError(
        f"pyarrow {pa.__version__} pickles expressions in an unknown form ({what}); write the condition as SQL or with maintainer.col"
    )


class _CSchema(ctypes.Structure):
    """The beginning of `struct ArrowSchema` of the C data interface."""

    _fields_ = (("format", ctypes.c_char_p), ("name", ctypes.c_char_p), ("metadata", ctypes.c_void_p))


def _metadata(schema: pa.Schema) -> list[tuple[str, str]]:
    """All pairs in their order: a count, then key and value of each, each with its length; integers of 32 bits as the machine has them."""
    capsule = schema.__arrow_c_schema__()
    pointer: Callable[..., int] = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)  # type: ignore[attr-defined]
    at = _CSchema.from_address(pointer(capsule, b"arrow_schema")).metadata

    def number() -> int:
        nonlocal at
        found = ctypes.c_int32.from_address(at).value
        at += 4
        return found

    def text() -> str:
        nonlocal at
        size = number()
        found = ctypes.string_at(at, size)
        at += size
        return found.decode()

    return [(text(), text()) for _ in range(number())] if at else []
