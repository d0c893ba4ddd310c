"""Columns of every type that can be indexed, and what predicates mean for them, from nothing but the rules of spec 07 §4 and 08 §2.1.

Shares no code with the package but the names of predicates: values are plain (below), their Arrow arrays come from pyarrow and numpy, and
comparisons from Python.

| type                    | plain value                                        | compared as                                           |
| ----------------------- | -------------------------------------------------- | ----------------------------------------------------- |
| FLOAT, DOUBLE           | the bits, so that there are many NaNs              | the number, −0.0 below 0.0, all NaNs one above all     |
| DECIMAL(p, s)           | unscaled int                                       | int                                                   |
| TIMESTAMP[_LTZ](p)      | int of 10^−p seconds since 1970                    | int                                                   |
| DATE, TIME              | days since 1970, milliseconds                      | int                                                   |
| BOOLEAN, integers       | bool, int                                          | itself                                                |
| CHAR, VARCHAR, STRING   | str                                                | UTF-8 bytes                                           |
"""

from __future__ import annotations

import random
import re
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from maintainer.model.predicate import Leaf, Op

Plain = Any


@dataclass(frozen=True)
class Kind:
    """A type: how plain values are drawn, compared, given as literals, and put into an array."""

    text: str
    edges: tuple[Plain, ...]
    fresh: Callable[[random.Random], Plain]
    order: Callable[[Plain], Any]
    literal: Callable[[Plain], Any]
    arrow: Callable[[Sequence[Plain | None]], pa.Array]

    @property
    def is_text(self) -> bool:
        return self.text.startswith(("CHAR", "VARCHAR", "STRING"))

    @property
    def is_float(self) -> bool:
        return self.text in ("FLOAT", "DOUBLE")

    def draw(self, chance: random.Random) -> Plain:
        return chance.choice(self.edges) if chance.random() < 0.5 else self.fresh(chance)


def _same(value: Any) -> Any:
    return value


def _numbers(text: str, bits: int, arrow_type: pa.DataType) -> Kind:
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    edges = {low, low + 1, -1, 0, 1, high - 1, high} | {sign * (1 << shift) for shift in range(0, bits - 1, 7) for sign in (1, -1)}
    return Kind(text, tuple(sorted(edges)), lambda c: c.randint(low, high), _same, _same, lambda v: pa.array(v, arrow_type))


def _float(text: str, size: int) -> Kind:
    letters = ("<f", "<I") if size == 4 else ("<d", "<Q")
    sign, exponent = (1 << 31, 0x7F800000) if size == 4 else (1 << 63, 0x7FF0000000000000)
    one = struct.unpack(letters[1], struct.pack(letters[0], 1.0))[0]
    edges = [0, 1, one, one + 1, exponent - 1, exponent]
    edges += [bits | sign for bits in edges]
    nans = [exponent | 1, exponent | exponent >> 9, exponent | (1 << 20), sign | exponent | 1, sign | (sign - 1), sign - 1]

    def value(bits: int) -> float:
        return float(struct.unpack(letters[0], struct.pack(letters[1], bits))[0])

    def order(bits: int) -> tuple[int, float, int]:
        number = value(bits)
        return (1, 0.0, 0) if number != number else (0, number, 0 if bits & sign else 1)

    def arrow(values: Sequence[int | None]) -> pa.Array:
        bits = np.array([0 if each is None else each for each in values], f"u{size}").view(f"f{size}")
        return pa.array(bits, mask=np.array([each is None for each in values], bool), from_pandas=False)

    return Kind(text, (*edges, *nans), lambda c: c.getrandbits(8 * size), order, value, arrow)


def _decimal(precision: int, scale: int) -> Kind:
    top = 10**precision - 1
    edges = {top, -top, 0, 1, -1, *(n for n in (127, -128, 128, 255, 256, 2**31, 2**63 - 1, -(2**63), 2**63, 2**64) if abs(n) <= top)}

    def literal(unscaled: int) -> Decimal:
        digits = tuple(int(digit) for digit in str(abs(unscaled)))
        return Decimal((int(unscaled < 0), digits, -scale))

    def fresh(chance: random.Random) -> int:
        return chance.randint(0, 10 ** chance.randint(1, precision) - 1) * chance.choice([1, -1])

    def arrow(values: Sequence[int | None]) -> pa.Array:
        return pa.array([None if each is None else literal(each) for each in values], pa.decimal128(precision, scale))

    return Kind(f"DECIMAL({precision}, {scale})", tuple(sorted(edges)), fresh, _same, literal, arrow)


def _timestamp(precision: int, zone: bool) -> Kind:
    unit, digits = ("ms", 3) if precision <= 3 else ("us", 6) if precision <= 6 else ("ns", 9)
    second = 10**precision
    seconds = (-62135596800, -1, 0, 1, 253402300799) if precision <= 6 else (-9223372036, -1, 0, 1, 9223372035)
    edges = sorted(
        {*(s * second for s in seconds), *(s * second + d for s in seconds[1:-1] for d in (-1, 1, second // 2)), 127, 128, 16384, 10**6}
    )

    def arrow(values: Sequence[int | None]) -> pa.Array:
        ticks = [None if each is None else each * 10 ** (digits - precision) for each in values]
        return pa.array(ticks, pa.int64()).view(pa.timestamp(unit, "UTC" if zone else None))

    text = f"TIMESTAMP({precision})" + (" WITH LOCAL TIME ZONE" if zone else "")
    return Kind(text, tuple(edges), lambda c: c.randint(edges[0], edges[-1]), _same, lambda ticks: ticks * 10 ** (9 - precision), arrow)


LETTERS = [
    *("a", "b", "ab", "\0", "\1", "\2", "\x7f", "\x80", "é", "ü", "￿", "\ud7ff", "\ue000", "😀", "😁", "\U0010ffff"),
    *(" ", "%", "_", "\\", "\n", "\r", "\u2028"),
]
TEXTS = [
    *("", *LETTERS, "a\0", "a\0b", "aa", "aab", "abab", "a😀b", "é%", "x" * 7, "x" * 8, "x" * 9, "x" * 70, "x" * 69 + "y"),
    *("é" * 300, "y" * 5000),
]


def _text(text: str, length: int | None) -> Kind:
    def fresh(chance: random.Random) -> str:
        size = length if text.startswith("CHAR") else chance.choice([1, 2, 5, 8, 20])
        assert size is not None
        return "".join(chance.choices([letter for letter in LETTERS if len(letter) == 1], k=min(size, length or size)))

    if text.startswith("CHAR"):
        assert length is not None
        edges = tuple(sorted({each[:length].ljust(length) for each in TEXTS}))
    else:
        edges = tuple(each for each in TEXTS if length is None or len(each) <= length)
    return Kind(text, edges, fresh, str.encode, _same, lambda v: pa.array(v, pa.string()))


KINDS: dict[str, Kind] = {
    kind.text: kind
    for kind in [
        Kind("BOOLEAN", (False, True), lambda c: c.random() < 0.5, _same, _same, lambda v: pa.array(v, pa.bool_())),
        _numbers("TINYINT", 8, pa.int8()),
        _numbers("SMALLINT", 16, pa.int16()),
        _numbers("INT", 32, pa.int32()),
        _numbers("BIGINT", 64, pa.int64()),
        _float("FLOAT", 4),
        _float("DOUBLE", 8),
        *(_decimal(precision, scale) for precision in range(1, 39) for scale in {0, precision // 2, precision}),
        *(_timestamp(precision, zone) for precision in range(10) for zone in (False, True)),
        Kind("DATE", (-719162, -1, 0, 1, 2932896), lambda c: c.randint(-719162, 2932896), _same, _same,
             lambda v: pa.array(v, pa.int32()).view(pa.date32())),
        Kind("TIME(3)", (0, 1, 999, 1000, 86_399_999), lambda c: c.randrange(86_400_000), _same, _same,
             lambda v: pa.array(v, pa.int32()).view(pa.time32("ms"))),
        _text("STRING", None),
        _text("VARCHAR(70)", 70),
        _text("CHAR(4)", 4),
    ]
}  # fmt: skip


def array_of(kind: Kind, rows: Sequence[Sequence[Plain | None] | None]) -> pa.Array:
    """A column of arrays."""
    offsets = np.cumsum([0, *(len(row or ()) for row in rows)])
    elements = kind.arrow([each for row in rows for each in row or ()])
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), elements, mask=pa.array([row is None for row in rows]))


def column(chance: random.Random, kind: Kind, size: int) -> list[Plain | None]:
    """Values that repeat or not, with few or many nulls, now and then in order."""
    pools: list[Callable[[], list[Any]]] = [
        lambda: list(kind.edges),
        lambda: [kind.draw(chance)],
        lambda: [kind.draw(chance) for _ in range(4)],
        lambda: [kind.fresh(chance) for _ in range(size)] + list(kind.edges),
        lambda: [None],
    ]
    pool = chance.choices(pools, [4, 2, 3, 4, 1])[0]()
    nulls = chance.choice([0, 0, 0.1, 0.9])
    found = [None if chance.random() < nulls else chance.choice(pool) for _ in range(size)]
    if chance.random() < 0.2:
        found.sort(key=lambda each: (each is not None, None if each is None else kind.order(each)))
    return found


def arrays(chance: random.Random, kind: Kind, size: int) -> list[list[Plain | None] | None]:
    """Rows of arrays: null, empty, with null elements and repetitions."""
    elements = column(chance, kind, 30)
    return [None if chance.random() < 0.1 else chance.choices(elements, k=chance.choice([0, 1, 1, 2, 5])) for _ in range(size)]


@dataclass(frozen=True)
class Question:
    """A leaf, and its plain literals (None: NULL; texts may be bytes)."""

    op: Op
    plain: tuple[Any, ...]
    leaf: Leaf


def questions(chance: random.Random, kind: Kind, values: Sequence[Plain | None]) -> list[Question]:
    """Every predicate of a scalar column, once or more."""
    known = [value for value in values if value is not None]

    def value() -> Plain:
        return chance.choice(known) if known and chance.random() < 0.6 else kind.draw(chance)

    def some(count: int, nulls: float = 0.1) -> tuple[Any, ...]:
        return tuple(None if chance.random() < nulls else value() for _ in range(count))

    asked: list[tuple[Op, tuple[Any, ...]]] = [(Op.IS_NULL, ()), (Op.IS_NOT_NULL, ())]
    asked += [(op, some(1)) for op in (Op.EQ, Op.EQ, Op.NE, Op.LT, Op.LE, Op.GT, Op.GE)]
    for op in (Op.BETWEEN, Op.NOT_BETWEEN):
        pair = (value(), value())
        asked += [(op, pair), (op, pair[::-1]), (op, some(2))]
    asked += [(op, some(chance.randint(0, 5), nulls)) for op in (Op.IN, Op.NOT_IN) for nulls in (0, 0.4)]
    if kind.is_text:
        asked += [(op, (needle,)) for op in (Op.STARTS_WITH, Op.ENDS_WITH, Op.CONTAINS) for needle in needles(chance, value)]
        asked += [(Op.LIKE, (pattern(chance, value()),)) for _ in range(4)]
        asked += [(op, (None,)) for op in (Op.STARTS_WITH, Op.ENDS_WITH, Op.CONTAINS, Op.LIKE)]
    return [Question(op, plain, Leaf(op, "c", tuple(_given(kind, op, each) for each in plain))) for op, plain in asked]


def array_questions(chance: random.Random, kind: Kind, rows: Sequence[Sequence[Plain | None] | None]) -> list[Question]:
    """Every predicate of an array column."""
    known = [each for row in rows for each in row or () if each is not None]

    def some(count: int, nulls: float) -> tuple[Any, ...]:
        def value() -> Plain:
            return chance.choice(known) if known and chance.random() < 0.8 else kind.draw(chance)

        return tuple(None if chance.random() < nulls else value() for _ in range(count))

    asked = [(Op.ARRAY_CONTAINS, some(1, nulls)) for nulls in (0, 0, 0.2)]
    asked += [(op, some(chance.randint(0, 4), nulls)) for op in (Op.ARRAYS_OVERLAP, Op.ARRAY_CONTAINS_ALL) for nulls in (0, 0, 0.3)]
    rich = [row for row in rows if row]
    if rich:
        asked.append((Op.ARRAY_CONTAINS_ALL, tuple(each for each in chance.choice(rich) if each is not None)))
    return [Question(op, plain, Leaf(op, "c", tuple(None if each is None else kind.literal(each) for each in plain))) for op, plain in asked]


def _given(kind: Kind, op: Op, plain: Any) -> Any:
    return None if plain is None else plain if op in TEXT_OPS else kind.literal(plain)


TEXT_OPS = (Op.STARTS_WITH, Op.ENDS_WITH, Op.CONTAINS, Op.LIKE)


def needles(chance: random.Random, value: Callable[[], str]) -> list[str | bytes]:
    """Texts and bytes of all lengths, the latter cut without regard to characters."""
    text, octets = value(), value().encode()
    at, begin = sorted(chance.choices(range(len(text) + 1), k=2)), sorted(chance.choices(range(len(octets) + 1), k=2))
    texts = ["", text, text[: at[1]], text[at[0] : at[1]], text[at[0] :]]
    cut = [octets[: begin[1]], octets[begin[0] : begin[1]], octets[begin[0] :], octets[begin[0] : begin[0] + 1]]
    return [*texts, b"", *cut, bytes((chance.randrange(256),))]


def pattern(chance: random.Random, text: str) -> str:
    """A LIKE pattern for a text: some of its characters are wildcards, others are left out, others escaped."""
    found = ""
    for letter in text[:40]:
        found += chance.choices([letter if letter not in "%_\\" else "\\" + letter, "_", "%", ""], [6, 1, 1, 1])[0]
    return chance.choice([found, found + "%", "%" + found, f"%{found}%"])


def matches(kind: Kind, question: Question, value: Plain | None) -> bool:
    """Whether a row is selected."""
    op, literals = question.op, question.plain
    if op is Op.IS_NULL:
        return value is None
    if value is None:
        return False
    if op is Op.IS_NOT_NULL:
        return True
    if op in (Op.IN, Op.NOT_IN):
        inside = any(each is not None and kind.order(each) == kind.order(value) for each in literals)
        return inside if op is Op.IN else not inside and None not in literals
    if None in literals:
        return False
    if op is Op.LIKE:
        return regular(literals[0]).fullmatch(value) is not None
    if op in TEXT_OPS:
        octets, needle = value.encode(), literals[0] if isinstance(literals[0], bytes) else literals[0].encode()
        return {Op.STARTS_WITH: octets.startswith, Op.ENDS_WITH: octets.endswith, Op.CONTAINS: octets.__contains__}[op](needle)
    own, given = kind.order(value), [kind.order(each) for each in literals]
    return {
        Op.EQ: own == given[0], Op.NE: own != given[0], Op.LT: own < given[0], Op.LE: own <= given[0], Op.GT: own > given[0],
        Op.GE: own >= given[0], Op.BETWEEN: given[0] <= own <= given[-1], Op.NOT_BETWEEN: own < given[0] or own > given[-1],
    }[op]  # fmt: skip


def array_matches(kind: Kind, question: Question, row: Sequence[Plain | None] | None) -> bool:
    """Whether a row with an array is selected."""
    if row is None:
        return False
    elements = {kind.order(each) for each in row if each is not None}
    wanted = [None if each is None else kind.order(each) for each in question.plain]
    if question.op is Op.ARRAY_CONTAINS_ALL:
        return all(each is not None and each in elements for each in wanted)
    return any(each is not None and each in elements for each in wanted)


def regular(like: str) -> re.Pattern[str]:
    """Java's translation: `_` is a `.` without the DOTALL flag (no line terminators), `%` anything."""
    found, at = "", 0
    while at < len(like):
        letter = like[at]
        if letter == "\\":
            at += 1
            found += re.escape(like[at])
        else:
            found += {"%": "(?s:.*)", "_": "[^\n\r\x85\u2028\u2029]"}.get(letter, re.escape(letter))
        at += 1
    return re.compile(found)
