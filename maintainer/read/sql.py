"""Predicates as SQL text (DESIGN §5): what `--where` and `table.scan(where="…")` take.

Parsing is sqlglot's, in Spark's dialect with two differences: a backslash in a text literal is a backslash (so `LIKE '5\\%'` and `ESCAPE '\\'`
read as they look), and a quote inside is doubled. Names are quoted by backticks. Only the listed forms are translated, node by node, to an
`Expression`; nothing is evaluated, and everything else is refused by name.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from decimal import Decimal, InvalidOperation
from difflib import get_close_matches
from functools import cache
from typing import TYPE_CHECKING, Any

from maintainer.errors import UsageError
from maintainer.model.like import with_backslash
from maintainer.model.predicate import And, Op, Or, Predicate
from maintainer.model.schema import TableSchema
from maintainer.read.expression import Constant, Expression, Junction, Negation, Test, bind
from maintainer.read.literals import parse_date, parse_time, parse_timestamp

if TYPE_CHECKING:
    from sqlglot import exp

SUPPORTED = (
    "a condition may use =, <>, <, <=, >, >=, [NOT] IN (…), [NOT] BETWEEN, IS [NOT] NULL, [NOT] LIKE … [ESCAPE], AND, OR, NOT, isnan(c), "
    "startswith(c, s), endswith(c, s), contains(c, s), array_contains(c, v), arrays_overlap(c, array(…)), array_contains_all(c, array(…)); "
    "literals are numbers, 'text', TRUE, FALSE, NULL, DATE '…', TIME '…', TIMESTAMP '…', X'0aff', CAST('NaN' AS DOUBLE); "
    "other names than words of letters, digits and _ stand in backticks"
)
NESTING = 30
"""How deeply parentheses and prefix operators may be nested: the parser is recursive."""

_COMPARISONS = {"EQ": Op.EQ, "NEQ": Op.NE, "LT": Op.LT, "LTE": Op.LE, "GT": Op.GT, "GTE": Op.GE}
_SWAPPED = {Op.LT: Op.GT, Op.GT: Op.LT, Op.LE: Op.GE, Op.GE: Op.LE}
_FUNCTIONS = {
    "isnan": Op.IS_NAN,
    "is_nan": Op.IS_NAN,
    "isnull": Op.IS_NULL,
    "isnotnull": Op.IS_NOT_NULL,
    "startswith": Op.STARTS_WITH,
    "starts_with": Op.STARTS_WITH,
    "endswith": Op.ENDS_WITH,
    "ends_with": Op.ENDS_WITH,
    "contains": Op.CONTAINS,
    "array_contains": Op.ARRAY_CONTAINS,
    "arrays_overlap": Op.ARRAYS_OVERLAP,
    "array_contains_all": Op.ARRAY_CONTAINS_ALL,
}
_COMPUTED = "nothing is computed from columns, and literals are only written down"
_PARTS_OF_TIMES = {"Cast", "TryCast", "Year", "Month", "Day", "Hour", "Date", "TsOrDsToDate", "Extract", "DateTrunc", "TimestampTrunc"}
_INSTEAD = {
    "ILike": "LIKE heeds the case",
    "RegexpLike": "LIKE and contains(c, s) may do",
    "SimilarTo": "LIKE and contains(c, s) may do",
    "NullSafeEQ": "write c = v, or c IS NULL",
    **dict.fromkeys(("Subquery", "Select", "Exists"), "a condition is about the columns of one table"),
}
_CLAUSES = {"SELECT", "FROM", "WHERE", "GROUP", "HAVING", "ORDER", "SORT", "LIMIT", "OFFSET"}
_FLOAT_TEXTS = {"nan", "infinity", "+infinity", "-infinity", "inf", "+inf", "-inf"}


def parse_predicate(sql: str, schema: TableSchema, time_zone: str = "UTC") -> Predicate:
    """The condition in `sql`, bound to the columns of `schema`."""
    return bind(parse(sql), schema, time_zone)


def parse(sql: str) -> Expression:
    """The condition in `sql`, not bound to a table yet."""
    if not isinstance(sql, str) or not sql.strip():
        raise UsageError(f'a condition is needed, like "price > 10", not {sql!r}')
    from sqlglot import exp
    from sqlglot.errors import SqlglotError

    try:
        tokens = _dialect().tokenize(sql)
        _check_nesting(tokens)
        nodes = _dialect().parser().parse_into(exp.Condition, tokens, sql)
        if len(nodes) != 1 or nodes[0] is None:
            raise UsageError(f"{_shown(sql)} is not one condition; {SUPPORTED}")
        return _condition(nodes[0])
    except RecursionError:
        raise _too_deep() from None
    except SqlglotError as error:
        raise UsageError(f"the condition {_shown(sql)} cannot be parsed: {_parser_reason(error)}") from None


def _parser_reason(error: Exception) -> str:
    """What sqlglot did not understand, without the names of its classes."""
    if not getattr(error, "errors", None):
        cause = str(error.__cause__)
        if unclosed := re.match(r"Missing (\S+) from", cause):
            return f"a quote is not closed: {unclosed[1]}"
        if "invalid characters" in cause:
            return "X'…' holds hexadecimal digits, two for each byte"
        if isinstance(error.__cause__, IndexError):
            return "it ends in the middle of a literal or comment"
        return str(error).split("\n", 1)[0][:300]
    first = error.errors[0]  # type: ignore[attr-defined]
    reason, token = str(first.get("description")), first.get("highlight")
    line, last = first.get("line"), first.get("col")
    column = max(1, last - len(token) + 1) if isinstance(last, int) and isinstance(token, str) else last
    where = f"{token!r} in line {line}, column {column}"
    if reason.startswith("Invalid expression"):
        clause = isinstance(token, str) and token.split(maxsplit=1)[:1] and token.split(maxsplit=1)[0].upper() in _CLAUSES
        return f"unexpected {where}" + ("; a condition is only what stands after WHERE" if clause else "")
    if reason.startswith("Required keyword"):
        return f"something is missing beside {where}"
    return f"{reason[:1].lower()}{reason[1:]} beside {where}"


@cache
def _dialect() -> Any:
    from sqlglot.dialects.spark import Spark

    logging.getLogger("sqlglot").setLevel(logging.CRITICAL)

    class Predicates(Spark):
        class Tokenizer(Spark.Tokenizer):
            STRING_ESCAPES = ["'", '"']  # noqa: RUF012 - how the parent declares it

    return Predicates()


def _check_nesting(tokens: list[Any]) -> None:
    """Bounds the parser's recursion before it starts: parentheses, and NOT, −, + and ~ in a row."""
    from sqlglot.tokens import TokenType  # type: ignore[attr-defined]

    opening = {TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE, TokenType.CASE}
    closing = {TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE}
    prefixes = {TokenType.NOT, TokenType.DASH, TokenType.PLUS}  # and ~, whose token has had two names
    depth = run = 0
    for token in tokens:
        kind = token.token_type
        if kind in opening:
            depth += 1
        elif kind in closing:
            depth -= 1
        run = run + 1 if kind in prefixes or token.text == "~" else 0
        if depth + run > NESTING:
            raise _too_deep()


def _too_deep() -> UsageError:
    return UsageError(f"the condition is nested too deeply (at most {NESTING} parentheses inside one another)")


def _condition(node: exp.Expression) -> Expression:
    """One node that is true, false or unknown. Chains of AND and OR are walked without recursion: a tree is as deep as such a chain is long."""
    name = type(node).__name__
    match name:
        case "Paren":
            return _condition(_only(node, "this"))
        case "Not":
            return Negation(_condition(_only(node, "this")))
        case "And" | "Or":
            operands: list[exp.Expression] = []
            pending: list[exp.Expression] = [node]
            while pending:
                current = pending.pop()
                if type(current) is type(node):
                    _only(current, "this", "expression")
                    pending += (current.args["expression"], current.args["this"])
                else:
                    operands.append(current)
            return Junction(And if name == "And" else Or, tuple(_condition(operand) for operand in operands))
        case "EQ" | "NEQ" | "LT" | "LTE" | "GT" | "GTE":
            return _comparison(node)
        case "In":
            column = _column(_only(node, "this", "expressions"))
            return _signed(node, Test(Op.IN, column, tuple(_literal(item) for item in node.args.get("expressions") or ())))
        case "Between":
            _only(node, "this", "low", "high")
            return _signed(node, Test(Op.BETWEEN, _column(node.args["this"]), (_literal(node.args["low"]), _literal(node.args["high"]))))
        case "Is":
            return _is(node)
        case "Like":
            return _like(node, "\\")
        case "Escape":
            escape = _literal(_only(node, "this", "expression") and node.args["expression"])
            if type(node.args["this"]).__name__ != "Like" or not isinstance(escape, str):
                raise _refused(node)
            return _like(node.args["this"], escape)
        case "Column":
            return Test(Op.EQ, _column(node), (True,))
        case "Boolean":
            return Constant(bool(node.args["this"]))
        case "Null":
            return Constant(None)
        case _:
            return _function(node)


def _comparison(node: exp.Expression) -> Expression:
    _only(node, "this", "expression")
    op = _COMPARISONS[type(node).__name__]
    left, right = _bare(node.args["this"]), _bare(node.args["expression"])
    if _is_column(left):
        return Test(op, _column(left), (_literal(right),))
    if _is_column(right):
        return Test(_SWAPPED.get(op, op), _column(right), (_literal(left),))
    if type(right).__name__ == "Boolean" and op in (Op.EQ, Op.NE):  # contains(c, 'x') = TRUE
        condition = _condition(left)
        return condition if bool(right.args["this"]) is (op == Op.EQ) else Negation(condition)
    both = all(type(side).__name__ == "Literal" for side in (left, right))
    hint = "a name stands in backticks, not in quotes" if both else _computed(left, right)
    raise UsageError(f"{_sql(node)} does not compare a column with a literal ({hint})")


def _computed(*sides: Any) -> str:
    """Why a side is not computed, and what may do instead where it is a part of a date or time."""
    if any(type(side).__name__ in _PARTS_OF_TIMES for side in sides):
        return f"{_COMPUTED}; a range does: c >= '2026-01-01' AND c < '2027-01-01'"
    return _COMPUTED


def _is(node: exp.Expression) -> Expression:
    _only(node, "this", "expression")
    column, tested = _column(node.args["this"]), node.args["expression"]
    match type(tested).__name__:
        case "Null":
            return _signed(node, Test(Op.IS_NULL, column))
        case "Not" if type(tested.args["this"]).__name__ == "Null":
            return Test(Op.IS_NOT_NULL, column)
        case _:
            alone = " (a BOOLEAN column alone is a condition: c, or NOT c)" if type(tested).__name__ in ("Boolean", "Not") else ""
            raise UsageError(f"{_sql(node)}: only IS [NOT] NULL is supported{alone}")


def _like(node: exp.Expression, escape: str) -> Expression:
    _only(node, "this", "expression")
    pattern = _literal(node.args["expression"])
    if pattern is not None and not isinstance(pattern, str):
        raise UsageError(f"{_sql(node)}: the pattern of LIKE must be text")
    literal = None if pattern is None else with_backslash(pattern, escape)
    return _signed(node, Test(Op.LIKE, _column(node.args["this"]), (literal,)))


def _function(node: exp.Expression) -> Expression:
    name, arguments = _call(node)
    op = _FUNCTIONS.get(name)
    if op is None:
        raise _refused(node, close=get_close_matches(name, _FUNCTIONS, n=1, cutoff=0.7))
    wanted = 1 if op in (Op.IS_NAN, Op.IS_NULL, Op.IS_NOT_NULL) else 2
    if len(arguments) != wanted:
        raise UsageError(f"{name} takes {wanted} argument{'s' * (wanted > 1)}, not {len(arguments)}: {_sql(node)}")
    if op == Op.ARRAYS_OVERLAP and not _is_column(arguments[0]):  # it is symmetric
        arguments.reverse()
    column = _column(arguments[0])
    if wanted == 1:
        return Test(op, column)
    if op in (Op.ARRAYS_OVERLAP, Op.ARRAY_CONTAINS_ALL):
        called, items = _call(arguments[1])
        if called != "array":
            raise UsageError(f"{name} takes a column and array(…), not {_sql(arguments[1])}")
        return Test(op, column, tuple(_literal(item) for item in items))
    return Test(op, column, (_literal(arguments[1]),))


def _call(node: Any) -> tuple[str, list[Any]]:
    """Name and arguments of a function call, known to sqlglot or not."""
    from sqlglot import exp

    if isinstance(node, exp.Anonymous):
        return str(node.args["this"]).lower(), list(node.args.get("expressions") or ())
    if not isinstance(node, exp.Func):
        return "", []
    arguments: list[Any] = []
    for key in node.arg_types:
        value = node.args.get(key)
        if isinstance(value, list):
            arguments += value
        elif isinstance(value, exp.Expression):
            arguments.append(value)
        elif value is not None and value is not False and key not in ("bracket_notation", "safe", "coalesce"):
            return "", []
    return node.sql_name().lower(), arguments


def _signed(node: exp.Expression, test: Test) -> Expression:
    """NOT LIKE and friends: a flag of the node in newer versions of sqlglot, a Not around it in older ones."""
    return Negation(test) if node.args.get("negate") else test


def _only(node: Any, *keys: str) -> Any:
    """The first of `keys`; an argument beyond them (a subquery, ANY, an option of a newer sqlglot) must not be ignored silently."""
    for key, value in node.args.items():
        if key not in keys and key != "negate" and value not in (None, False, []):
            raise _refused(node, value)
    return node.args.get(keys[0])


def _bare(node: Any) -> Any:
    """The node without parentheses around it."""
    while type(node).__name__ == "Paren":
        node = node.args["this"]
    return node


def _is_column(node: Any) -> bool:
    return type(node).__name__ == "Column"


def _column(node: Any) -> str:
    node = _bare(node)
    if not _is_column(node):
        raise UsageError(f"{_sql(node)} is not a column (nothing is computed from columns)")
    identifier = node.args["this"]
    if any(value for key, value in node.args.items() if key != "this") or type(identifier).__name__ != "Identifier":
        raise UsageError(
            f"{_sql(node)}: only top-level columns can be tested, without the name of a table (a name that holds a dot stands in backticks)"
        )
    return str(identifier.args["this"])


def _literal(node: Any) -> Any:
    """The value of a literal; numbers with a point or an exponent are decimals, so that nothing is lost before the column's type is known."""
    negative = False
    node = _bare(node)
    while type(node).__name__ == "Neg":
        negative, node = not negative, _bare(node.args["this"])
    value = _value(type(node).__name__, node)
    if negative:
        if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
            raise UsageError(f"− before {_sql(node)}, which is not a number")
        return value.copy_negate() if isinstance(value, Decimal) and value else -float(value) if not value else -value
    return value


def _value(name: str, node: Any) -> Any:
    match name:
        case "Literal":
            text = node.args["this"]
            return str(text) if node.args.get("is_string") else _number(str(text))
        case "Null":
            return None
        case "Boolean":
            return bool(node.args["this"])
        case "HexString":
            text = str(node.args["this"])
            try:
                return bytes.fromhex("0" * (len(text) % 2) + text)
            except ValueError:
                raise UsageError(f"X'{text}' is not hexadecimal") from None
        case "Cast" | "TryCast":
            return _cast(node)
        case "Concat" if all(type(part).__name__ == "Literal" and part.args.get("is_string") for part in node.args["expressions"]):
            return "".join(str(part.args["this"]) for part in node.args["expressions"])  # 'a' 'b'
        case "Column":
            raise UsageError(f"{_sql(node)} is a column; a column can only be compared with a literal (text stands in single quotes)")
        case _:
            raise UsageError(f"{_sql(node)} is not a literal (nothing is computed: write the value itself)")


def _number(text: str) -> int | Decimal:
    try:
        return int(text) if text.isdecimal() else Decimal(text)
    except (ValueError, InvalidOperation):
        raise UsageError(f"{_shown(text)} is not a number") from None


def _cast(node: Any) -> Any:
    """DATE '…', TIME '…', TIMESTAMP '…' come as casts; CAST of a literal to a number type gives the values that have no literal (NaN)."""
    value, target = _literal(node.args["this"]), _type_name(node.args["to"])
    parsers: dict[str, Callable[[str], Any]] = {"DATE": parse_date, "TIME": parse_time}
    if isinstance(value, str):
        if target in parsers:
            return parsers[target](value)
        if target.startswith("TIMESTAMP") or target == "DATETIME":
            return parse_timestamp(value)
        stripped = value.strip()
        if target in ("DOUBLE", "FLOAT") and stripped.lower() in _FLOAT_TEXTS:
            return float(stripped)
        if target in ("DOUBLE", "FLOAT", "DECIMAL", "TINYINT", "SMALLINT", "INT", "BIGINT"):
            sign = -1 if stripped.startswith("-") else 1
            number = _number(stripped.lstrip("+-") if stripped[:1] in "+-" else stripped)
            if target in ("DOUBLE", "FLOAT"):
                return sign * float(number)
            return number if sign > 0 else -number
        if target in ("TEXT", "VARCHAR", "CHAR"):
            return value
    elif isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        if target in ("DOUBLE", "FLOAT"):
            return float(value)
        if target == "DECIMAL" or (target in ("TINYINT", "SMALLINT", "INT", "BIGINT") and isinstance(value, int)):
            return value
    elif value is None:
        return None
    raise UsageError(f"{_sql(node)} is not supported; {SUPPORTED}")


def _type_name(node: Any) -> str:
    """The name of the type in a CAST: sqlglot's enumeration, upper case."""
    kind = node.args.get("this")
    return str(getattr(kind, "value", kind)).upper()


def _refused(node: Any, part: Any = None, close: Sequence[str] = ()) -> UsageError:
    """What is not supported, perhaps for a part of it, with what to do instead."""
    instead = _INSTEAD.get(type(part or node).__name__) or (f"did you mean {close[0]}?" if close else "")
    return UsageError(f"{_sql(node)} is not supported; {instead or SUPPORTED}")


def _sql(node: Any) -> str:
    try:
        return _shown(_dialect().generate(node, copy=True) if node is not None else "nothing")
    except RecursionError:
        return type(node).__name__


def _shown(text: str) -> str:
    return repr(text if len(text) <= 200 else text[:197] + "…")
