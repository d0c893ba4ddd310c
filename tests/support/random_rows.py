"""Random internal values and rows of a schema, from a seeded generator: small pools, so that updates, nulls and extremes really occur."""

from __future__ import annotations

import math
import string
from decimal import Decimal
from random import Random
from typing import Any

from maintainer.model.types import DataField, DataType, TypeRoot

_WORDS = [
    "",
    "a",
    "b",
    "aa",
    "ab",
    "a\x00",
    "a%b",
    "x_y",
    "zz",
    "ä",
    "é中",
    "😀",
    "\uffff",
    "name-1",
    "name-10",
    "name-2",
    "Z" * 40,
    "common-prefix-0001",
    "common-prefix-0002",
]
_INTEGER_BITS = {TypeRoot.TINYINT: 7, TypeRoot.SMALLINT: 15, TypeRoot.INT: 31, TypeRoot.BIGINT: 63}
_DAY = 86_400
_TICK = {p: 10 ** (9 - p) for p in range(10)}


def random_value(random: Random, data_type: DataType, *, nulls: float = 0.1) -> Any:
    """One internal value; NULL with probability `nulls` where the type allows it."""
    if data_type.nullable and random.random() < nulls:
        return None
    match data_type.root:
        case TypeRoot.BOOLEAN:
            return random.random() < 0.5
        case TypeRoot.TINYINT | TypeRoot.SMALLINT | TypeRoot.INT | TypeRoot.BIGINT:
            limit = 2 ** _INTEGER_BITS[data_type.root]
            return random.choice(
                [0, 1, -1, 2, 3, 255, 256, limit - 1, -limit, random.randrange(-20, 20), random.randrange(-limit, limit)]
            ) % limit - (limit if random.random() < 0.2 else 0)
        case TypeRoot.FLOAT | TypeRoot.DOUBLE:
            return random.choice([0.0, -0.0, 1.5, -1.5, 0.25, math.inf, -math.inf, math.nan, float(random.randrange(-50, 50))])
        case TypeRoot.DECIMAL:
            limit = 10**data_type.precision
            unscaled = random.choice([0, 1, -1, limit - 1, 1 - limit, random.randrange(-100, 100), random.randrange(-limit + 1, limit)])
            unscaled = max(1 - limit, min(limit - 1, unscaled))
            return Decimal(unscaled).scaleb(-data_type.scale)
        case TypeRoot.CHAR | TypeRoot.VARCHAR:
            word = random.choice([*_WORDS, "".join(random.choices(string.ascii_lowercase, k=random.randrange(1, 24)))])
            return word[: data_type.length]
        case TypeRoot.BINARY | TypeRoot.VARBINARY:
            return random.randbytes(random.choice([0, 1, 3, 7, 8, 20]))[: data_type.length]
        case TypeRoot.DATE:
            return random.choice([0, -1, 19_000, -719_162, 2_932_896, random.randrange(-1000, 30_000)])
        case TypeRoot.TIME:
            return random.choice([0, 86_399_999, 3_661_001, random.randrange(_DAY * 1000)])
        case TypeRoot.TIMESTAMP | TypeRoot.TIMESTAMP_LTZ:
            tick = _TICK[data_type.precision]
            return (
                random.choice([0, -1, 1, random.randrange(-(10**9), 2 * 10**9) * 10**9, random.randrange(-(10**18), 2 * 10**18)]) // tick * tick
            )
        case TypeRoot.ARRAY:
            return [random_value(random, _element(data_type), nulls=nulls) for _ in range(random.randrange(4))]
        case TypeRoot.VECTOR:
            return [float(random.randrange(10)) for _ in range(data_type.length)]
        case TypeRoot.MAP | TypeRoot.MULTISET:
            return _pairs(random, data_type, nulls)
        case TypeRoot.ROW:
            return tuple(random_value(random, field.type, nulls=nulls) for field in data_type.fields)
    raise AssertionError(f"no random values of {data_type}")


def _element(data_type: DataType) -> DataType:
    assert data_type.element is not None
    return data_type.element


def _pairs(random: Random, data_type: DataType, nulls: float) -> list[tuple[Any, Any]]:
    key_type = data_type.key if data_type.root == TypeRoot.MAP else data_type.element
    assert key_type is not None
    pairs: dict[Any, Any] = {}
    for _ in range(random.randrange(4)):
        key = random_value(random, key_type.with_nullable(False))
        pairs[key] = random_value(random, _element(data_type), nulls=nulls) if data_type.root == TypeRoot.MAP else random.randrange(1, 5)
    return list(pairs.items())


def random_row(random: Random, fields: tuple[DataField, ...], *, nulls: float = 0.1) -> tuple[Any, ...]:
    return tuple(random_value(random, field.type, nulls=nulls) for field in fields)
