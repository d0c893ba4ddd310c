"""Internal values: how one value of each type is held outside of Arrow, and how values compare (spec 04 §2, 08 §2.1).

| type                    | held as                                     | order                                              |
| ----------------------- | ------------------------------------------- | -------------------------------------------------- |
| BOOLEAN                 | bool                                        | false < true                                       |
| TINYINT … BIGINT        | int                                         | signed                                             |
| FLOAT, DOUBLE           | float                                       | −Inf < … < −0.0 < 0.0 < … < +Inf < NaN, NaN = NaN  |
| DECIMAL                 | decimal.Decimal                             | by value                                           |
| CHAR, VARCHAR, STRING   | str                                         | unsigned UTF-8 bytes, shorter first                |
| BINARY, VARBINARY, BLOB | bytes                                       | unsigned bytes, shorter first                      |
| DATE                    | int, days since 1970-01-01                  | signed                                             |
| TIME                    | int, milliseconds of the day                | signed                                             |
| TIMESTAMP, TIMESTAMP_LTZ| int, nanoseconds since 1970-01-01T00:00 UTC | signed                                             |
| ARRAY, VECTOR           | list                                        | not ordered                                        |
| MAP, MULTISET           | list of (key, value) pairs                  | not ordered                                        |
| ROW                     | tuple                                       | not ordered                                        |
| VARIANT                 | (value bytes, metadata bytes)               | not ordered                                        |

NULL is None and comes first.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any


def order_key(value: Any) -> Any:
    """A Python object that sorts as `value` does in Paimon; only values of one type may be compared with one another.

    Float32 values widen to double without a change of order, so both float types share a rule.
    """
    if value is None:
        return (0,)
    match value:
        case float():
            return (1, float_order(value))
        case str():
            return (1, value.encode("utf-8", "surrogatepass"))
        case _:
            return (1, value)


def order_keys(values: Iterable[Any]) -> tuple[Any, ...]:
    """`order_key` of a row of key columns: compares column by column, left to right."""
    return tuple(order_key(value) for value in values)


def float_order(value: float) -> int:
    """A signed integer that sorts as Java's `Double.compare`."""
    if value != value:
        return 0x7FF8000000000000
    bits: int = struct.unpack(">q", struct.pack(">d", value))[0]
    return bits if bits >= 0 else bits ^ 0x7FFFFFFFFFFFFFFF
