"""What the statistics of an ORC file say about the values of a column in a stripe (spec 02 §4; ORC specification, "Column statistics").

| field | statistics of          | smallest and largest value                                                        |
| ----- | ---------------------- | --------------------------------------------------------------------------------- |
| 2     | BYTE, SHORT, INT, LONG | 1, 2: zigzag numbers                                                              |
| 3     | FLOAT, DOUBLE          | 1, 2: doubles                                                                     |
| 4     | STRING, VARCHAR        | 1, 2: texts; 4, 5 where they were cut: a text that is smaller, one that is larger |
| 6     | DECIMAL                | 1, 2: decimals as text                                                            |
| 7     | DATE                   | 1, 2: zigzag days                                                                 |
| 9     | TIMESTAMP              | 3, 4: zigzag milliseconds of the wall clock                                       |

CHAR is padded in the file, and BOOLEAN and BINARY have no bounds. Bounds are values of the type that the file's schema has.
"""

from __future__ import annotations

import math
import struct
from decimal import Decimal, InvalidOperation
from typing import Any

from maintainer.errors import CorruptFile
from maintainer.format.protobuf import Message
from maintainer.model.types import FLOATS, TIMESTAMPS, DataType, TypeRoot

_INTEGERS = {
    TypeRoot.TINYINT: 2,
    TypeRoot.SMALLINT: 2,
    TypeRoot.INT: 2,
    TypeRoot.BIGINT: 2,
    TypeRoot.TIME: 2,
    TypeRoot.DATE: 7,
}
_DOUBLES, _TEXTS, _DECIMALS, _TIMESTAMPS = 3, 4, 6, 9
_DAY = 86_400_000
"""Milliseconds by which bounds of timestamps may be off, as the writer's zone may have changed its offset, or be another one than it says."""
_NANOS = 1_000_000

Bound = tuple[Any, Any]


def bounds(statistics: Message, data_type: DataType) -> Bound | None:
    """Internal values between which all values are that are not NULL; None where nothing is known."""
    root = data_type.root
    if root in _INTEGERS:
        return _numbers(_of(statistics, _INTEGERS[root]), 1, 2)
    if root in FLOATS:
        return _floats(_of(statistics, _DOUBLES))
    if root is TypeRoot.VARCHAR:
        return _texts(_of(statistics, _TEXTS))
    if root is TypeRoot.DECIMAL:
        return _decimals(_of(statistics, _DECIMALS))
    if root in TIMESTAMPS:
        found = _numbers(_of(statistics, _TIMESTAMPS), 3, 4)
        return None if found is None else ((found[0] - _DAY) * _NANOS, (found[1] + _DAY) * _NANOS)
    return None


def _of(statistics: Message, field: int) -> Message | None:
    found = statistics.messages(field)
    return found[-1] if found else None


def _numbers(found: Message | None, low: int, high: int) -> Bound | None:
    if found is None or low not in found or high not in found:
        return None
    return _zigzag(found.number(low)), _zigzag(found.number(high))


def _zigzag(value: int) -> int:
    return value >> 1 ^ -(value & 1)


def _floats(found: Message | None) -> Bound | None:
    if found is None or 1 not in found or 2 not in found:
        return None
    low, high = (_double(found.messages_bytes(field)[-1]) for field in (1, 2))
    if math.isnan(low) or math.isnan(high):
        return None
    return (-0.0 if low == 0 else low), math.nan  # nobody counts NaN


def _double(data: bytes) -> float:
    if len(data) != 8:
        raise CorruptFile(f"a bound of {len(data)} bytes")
    value: float = struct.unpack("<d", data)[0]
    return value


def _texts(found: Message | None) -> Bound | None:
    if found is None:
        return None
    low, high = 1 if 1 in found else 4, 2 if 2 in found else 5
    return (found.text(low), found.text(high)) if low in found and high in found else None


def _decimals(found: Message | None) -> Bound | None:
    if found is None or 1 not in found or 2 not in found:
        return None
    try:
        low, high = (Decimal(found.text(field)) for field in (1, 2))
    except InvalidOperation:
        raise CorruptFile("a bound is no decimal") from None
    return (low, high) if low.is_finite() and high.is_finite() else None
