"""Literals of a predicate as internal values of a column's type (DESIGN §5; `maintainer.model.values`).

A literal need not be a value that the column can hold: `tiny > 1000`, `price = 1.005` on DECIMAL(10, 2), `seconds < TIMESTAMP '… .5'` on
TIMESTAMP(0) are good questions. `place` therefore gives the largest value of the type that is not above the literal, and whether the literal
is that value or lies above it; `maintainer.read.expression` turns the comparison into one with a value of the column.

| column                 | Python literals                                                               |
| ---------------------- | ----------------------------------------------------------------------------- |
| BOOLEAN                | bool                                                                          |
| integers, DECIMAL      | int, Decimal, float (its shortest decimal form); not bool                     |
| FLOAT, DOUBLE          | float, int, Decimal (rounded to the column's width); not bool                 |
| CHAR, VARCHAR          | str, or bytes that are UTF-8                                                  |
| BINARY, VARBINARY      | bytes, bytearray, memoryview                                                  |
| DATE                   | date, datetime, text                                                          |
| TIME                   | time, timedelta of the day, text                                              |
| TIMESTAMP, …_LTZ       | datetime, date, numpy.datetime64, pandas.Timestamp, text                      |
| any                    | None, NaT and NA of numpy and pandas, a null of Arrow: NULL                   |

Text is what stands between the quotes of a SQL literal. A time without a zone is a wall clock: for …_LTZ columns that of the session time
zone (`read.time-zone`, default UTC). An instant is compared with a TIMESTAMP column by its wall clock in that zone, as Spark SQL does.
"""

from __future__ import annotations

import datetime as dt
import math
import re
import struct
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Context, Decimal, InvalidOperation
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from maintainer.data.values import date_text, time_text, timestamp_text
from maintainer.errors import UsageError
from maintainer.model.types import BINARIES, CHARACTERS, FLOATS, INTEGERS, TIMESTAMPS, DataType, TypeRoot

_BITS = {TypeRoot.TINYINT: 8, TypeRoot.SMALLINT: 16, TypeRoot.INT: 32, TypeRoot.BIGINT: 64}
_EPOCH = dt.datetime(1970, 1, 1)
_DAY_NANOS = 86_400_000_000_000
_UNITS = {
    "W": 7 * _DAY_NANOS, "D": _DAY_NANOS, "h": _DAY_NANOS // 24, "m": _DAY_NANOS // 1440, "s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1
}  # fmt: skip
_FINER = {"ps": 10**3, "fs": 10**6, "as": 10**9}
_LARGEST_FLOAT = struct.unpack(">f", b"\x7f\x7f\xff\xff")[0]
_EXACT = Context(prec=2_000)
_DATE = re.compile(r"([+-]?\d{1,7})-(\d{1,2})-(\d{1,2})", re.ASCII)
_CLOCK = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2})(?:\.(\d{1,9}))?)?", re.ASCII)
_ZONE = re.compile(r"\s*(?:(Z|UTC|GMT)|(?:UTC|GMT)?([+-])(\d{1,2})(?::?(\d{2}))?|\[?([A-Za-z]+(?:/[A-Za-z0-9_+-]+)+)\]?)$", re.ASCII)


class Place(NamedTuple):
    """Where a literal lies among the values of a type: at `value` (side 0), between it and the next one (side 1), or, with `value` None, above
    all values (side 1) or below all (side −1)."""

    value: Any
    side: int = 0


@dataclass(frozen=True, slots=True)
class Instant:
    """A point in time, or a wall clock (`zoned` False), in nanoseconds since 1970-01-01T00:00."""

    nanos: int
    zoned: bool


@dataclass(frozen=True, slots=True)
class TimeOfDay:
    nanos: int


@dataclass(frozen=True, slots=True)
class Days:
    """A date as days since 1970-01-01; unlike `datetime.date` of any year."""

    days: int


def place(literal: Any, data_type: DataType, column: str, time_zone: str = "UTC") -> Place:
    """The literal among the values of `data_type`; `UsageError` names column, type and literal when it is of another kind."""
    value = _plain(literal)
    found: Place | None = None
    root = data_type.root
    if root == TypeRoot.BOOLEAN:
        found = Place(value) if isinstance(value, bool) else None
    elif root in INTEGERS:
        limit = 1 << (_BITS[root] - 1)
        found = _on_grid(value, 0, -limit, limit - 1, int)
    elif root == TypeRoot.DECIMAL:
        scale, largest = data_type.scale, 10**data_type.precision - 1
        found = _on_grid(value, scale, -largest, largest, lambda unscaled: Decimal(unscaled).scaleb(-scale, _EXACT))
    elif root in FLOATS:
        found = _floating(value, root == TypeRoot.FLOAT)
    elif root in CHARACTERS:
        found = Place(_text(value, column)) if isinstance(value, str | bytes | bytearray | memoryview) else None
    elif root in BINARIES:
        found = Place(bytes(value)) if isinstance(value, bytes | bytearray | memoryview) else None
    elif root == TypeRoot.DATE:
        found = _date(value)
    elif root == TypeRoot.TIME:
        found = _time(value)
    elif root in TIMESTAMPS:
        found = _timestamp(value, data_type, time_zone)
    else:
        elements = "its elements are tested by array_contains, arrays_overlap and array_contains_all"
        instead = elements if root == TypeRoot.ARRAY else "it can only be tested with IS [NOT] NULL"
        raise UsageError(f"column {column!r} is of type {data_type.sql()}, whose values cannot be compared; {instead}")
    if found is None:
        raise UsageError(f"{_shown(literal)} is not a value for column {column!r} of type {data_type.sql()}; give {_wanted(data_type)}")
    return found


def is_null(literal: Any) -> bool:
    """Whether a literal is NULL: None, a null of Arrow, NaT of numpy or pandas, NA of pandas."""
    if literal is None or type(literal).__module__ == "builtins":
        return literal is None
    if hasattr(literal, "as_py"):
        return not literal.is_valid
    return type(literal).__name__ in ("NaTType", "NAType", "datetime64", "timedelta64") and str(literal) in ("NaT", "<NA>")


def parse_date(text: str) -> Days:
    match = _DATE.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"{text!r} is not a date; write it as '2024-01-31'")
    return Days(_days(int(match[1]), int(match[2]), int(match[3]), text))


def parse_time(text: str) -> TimeOfDay:
    match = _CLOCK.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"{text!r} is not a time of day; write it as '23:59:59.999'")
    return TimeOfDay(_clock(match))


def parse_timestamp(text: str) -> Instant:
    """`2024-01-31`, `2024-01-31 23:59`, `…:59.999999999`, with `T` or a blank, and with `Z`, `+02:00` or a zone's name at the end."""
    stripped = text.strip()
    date = _DATE.match(stripped)
    if date is None:
        raise UsageError(f"{text!r} is not a timestamp; write it as '2024-01-31 23:59:59.999'")
    nanos = _days(int(date[1]), int(date[2]), int(date[3]), text) * _DAY_NANOS
    rest = stripped[date.end() :]
    clock = _CLOCK.match(rest, 1) if rest[:1] in (" ", "T") and rest else None
    if clock is not None:
        nanos += _clock(clock)
        rest = rest[clock.end() :]
    if not rest:
        return Instant(nanos, zoned=False)
    zone = _ZONE.fullmatch(rest)
    if zone is None:
        raise UsageError(f"{text!r} is not a timestamp; write it as '2024-01-31 23:59:59.999'")
    utc, sign, hours, minutes, name = zone.groups()
    if utc:
        return Instant(nanos, zoned=True)
    if name:
        return Instant(_to_utc(nanos, name), zoned=True)
    offset = (int(hours) * 60 + int(minutes or 0)) * 60_000_000_000
    return Instant(nanos - offset if sign == "+" else nanos + offset, zoned=True)


def _plain(literal: Any) -> Any:
    """Scalars of numpy, pandas and Arrow as Python values; nanoseconds are kept."""
    if hasattr(literal, "as_py"):
        kind = str(literal.type)
        if kind.startswith("timestamp"):
            return Instant(literal.value * _UNITS[literal.type.unit], zoned=literal.type.tz is not None)
        try:
            return literal.as_py()
        except (OverflowError, ValueError):
            raise UsageError(f"a value of type {kind} is too large for Python") from None
    if type(literal).__module__.split(".")[0] == "numpy":
        if type(literal).__name__ == "datetime64":
            return _numpy_time(literal)
        return literal.item() if hasattr(literal, "item") else literal
    return literal


def _numpy_time(literal: Any) -> Any:
    """A `numpy.datetime64`, whose unit may reach further than nanoseconds do; the literal itself if it is finer than they are."""
    import numpy as np

    unit, step = np.datetime_data(literal.dtype)
    count = int(literal.astype("int64")) * step
    if unit in ("Y", "M"):
        months = count * 12 if unit == "Y" else count
        return Instant(_days(1970 + months // 12, months % 12 + 1, 1, str(literal)) * _DAY_NANOS, zoned=False)
    if unit in _FINER:
        return literal if count % _FINER[unit] else Instant(count // _FINER[unit], zoned=False)
    return Instant(count * _UNITS[unit], zoned=False)


def _on_grid(value: Any, scale: int, lowest: int, highest: int, held_as: Any) -> Place | None:
    """A number among the multiples of 10^−scale from `lowest` to `highest` of them."""
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return None
    if isinstance(value, float):
        if not math.isfinite(value):
            return None if math.isnan(value) else Place(None, 1 if value > 0 else -1)
        value = Decimal(repr(value))
    if isinstance(value, Decimal):
        if not value.is_finite():
            return None if value.is_nan() else Place(None, 1 if value > 0 else -1)
        if value and value.adjusted() > 80:
            return Place(None, 1 if value > 0 else -1)
        if value and value.adjusted() < -80:
            unscaled, exact = (0 if value > 0 else -1), False
        else:
            try:
                floor = value.quantize(Decimal(1).scaleb(-scale), ROUND_FLOOR, _EXACT)
            except InvalidOperation:
                return None
            unscaled, exact = int(floor.scaleb(scale, _EXACT)), floor == value
    else:
        unscaled, exact = value * 10**scale, True
    if unscaled > highest:
        return Place(None, 1)
    if unscaled < lowest:
        return Place(None, -1)
    return Place(held_as(unscaled), 0 if exact else 1)


def _floating(value: Any, single: bool) -> Place | None:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return None
    try:
        finite = isinstance(value, int) or math.isfinite(value)
        number = float(value)
    except (OverflowError, ValueError):  # an integer beyond every double; a signalling NaN
        if not isinstance(value, int):
            return None
        number = math.inf if value > 0 else -math.inf
    if single and math.isfinite(number):
        try:
            number = struct.unpack(">f", struct.pack(">f", number))[0]
        except OverflowError:
            number = math.copysign(math.inf, number)
    if finite and math.isinf(number):  # between the largest finite number and infinity
        if number < 0:
            return Place(-math.inf, 1)
        return Place(_LARGEST_FLOAT if single else 1.7976931348623157e308, 1)
    return Place(number)


def _text(value: str | bytes | bytearray | memoryview, column: str) -> str:
    if not isinstance(value, str):
        try:
            return bytes(value).decode()
        except UnicodeDecodeError:
            raise UsageError(f"the bytes {bytes(value)[:80]!r} for column {column!r} are not UTF-8, and every text is") from None
    try:
        value.encode()
    except UnicodeEncodeError:
        raise UsageError(f"the text {value!r} for column {column!r} holds half of a surrogate pair, which no column can hold") from None
    return value


def _date(value: Any) -> Place | None:
    if isinstance(value, str):
        value = parse_date(value)
    match value:
        case Days():
            return Place(value.days) if abs(value.days) < 1 << 31 else Place(None, 1 if value.days > 0 else -1)
        case Instant(zoned=False):
            return Place(value.nanos // _DAY_NANOS, 1 if value.nanos % _DAY_NANOS else 0)
        case dt.datetime() if value.tzinfo is None:
            nanos = _nanos(value)
            return Place(nanos // _DAY_NANOS, 1 if nanos % _DAY_NANOS else 0)
        case dt.date() if not isinstance(value, dt.datetime):
            return Place((value - _EPOCH.date()).days)
        case _:
            return None


def _time(value: Any) -> Place | None:
    if isinstance(value, str):
        value = parse_time(value)
    match value:
        case TimeOfDay():
            nanos = value.nanos
        case dt.time() if value.tzinfo is None:
            nanos = ((value.hour * 60 + value.minute) * 60 + value.second) * 1_000_000_000 + value.microsecond * 1_000
        case dt.timedelta() if dt.timedelta(0) <= value < dt.timedelta(days=1):
            nanos = value.seconds * 1_000_000_000 + value.microseconds * 1_000
        case _:
            return None
    return Place(nanos // 1_000_000, 1 if nanos % 1_000_000 else 0)


def _timestamp(value: Any, data_type: DataType, time_zone: str) -> Place | None:
    if isinstance(value, str):
        value = parse_timestamp(value)
    match value:
        case Instant():
            instant = value
        case Days():
            instant = Instant(value.days * _DAY_NANOS, zoned=False)
        case dt.datetime():
            instant = Instant(_nanos(value), zoned=value.tzinfo is not None)
        case dt.date():
            instant = Instant((value - _EPOCH.date()).days * _DAY_NANOS, zoned=False)
        case _:
            return None
    nanos = instant.nanos
    if data_type.root == TypeRoot.TIMESTAMP_LTZ and not instant.zoned:
        nanos = _to_utc(nanos, time_zone)
    elif data_type.root == TypeRoot.TIMESTAMP and instant.zoned:
        nanos = _from_utc(nanos, time_zone)
    unit = 1_000_000 if data_type.precision <= 3 else 1_000 if data_type.precision <= 6 else 1
    if abs(nanos // unit) >= 1 << 63:
        return Place(None, 1 if nanos > 0 else -1)
    return Place(nanos // unit * unit, 1 if nanos % unit else 0)


def _nanos(value: dt.datetime) -> int:
    """Nanoseconds of a `datetime` or a pandas `Timestamp` since 1970, in UTC when it has a zone."""
    if value.tzinfo is not None:
        value = value.astimezone(dt.UTC).replace(tzinfo=None)
    delta = value - _EPOCH
    return ((delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds) * 1_000 + getattr(value, "nanosecond", 0)


def _zone(name: str) -> dt.tzinfo:
    if name.upper() in ("UTC", "Z", "GMT"):
        return dt.UTC
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise UsageError(f"there is no time zone {name!r}; give a name such as 'UTC' or 'Europe/Berlin'") from None


def _to_utc(wall: int, time_zone: str) -> int:
    zone = _zone(time_zone)
    if zone is dt.UTC:
        return wall
    micros, below = divmod(wall, 1_000)
    try:
        local = (_EPOCH + dt.timedelta(microseconds=micros)).replace(tzinfo=zone)
        return _nanos(local) + below
    except OverflowError:
        return wall


def _from_utc(instant: int, time_zone: str) -> int:
    zone = _zone(time_zone)
    if zone is dt.UTC:
        return instant
    micros, below = divmod(instant, 1_000)
    try:
        moment = (_EPOCH + dt.timedelta(microseconds=micros)).replace(tzinfo=dt.UTC)
        return _nanos(moment.astimezone(zone).replace(tzinfo=None)) + below
    except OverflowError:
        return instant


def _days(year: int, month: int, day: int, text: str) -> int:
    """Days since 1970-01-01 of a date of the proleptic Gregorian calendar, of any year."""
    # 400 years have 146,097 days: shift the year into the range that Python knows
    cycles = (year - 2_000) // 400
    try:
        inside = dt.date(year - cycles * 400, month, day)
    except ValueError:
        raise UsageError(f"{text!r} is not a date: there is no such day") from None
    return (inside - _EPOCH.date()).days + cycles * 146_097


def _clock(match: re.Match[str]) -> int:
    hours, minutes, seconds = (int(match[i] or 0) for i in (1, 2, 3))
    if hours > 23 or minutes > 59 or seconds > 59:
        raise UsageError(f"{match[0]!r} is not a time of day")
    return ((hours * 60 + minutes) * 60 + seconds) * 1_000_000_000 + int((match[4] or "").ljust(9, "0"))


def _shown(literal: Any) -> str:
    match literal:
        case Days():
            return f"DATE '{date_text(literal.days)}'"
        case TimeOfDay():
            return f"TIME '{time_text(literal.nanos // 1_000_000)}'"
        case Instant():
            return f"TIMESTAMP '{timestamp_text(literal.nanos)}{'Z' if literal.zoned else ''}'"
    if hasattr(literal, "as_py") and not str(literal.type).startswith("timestamp"):
        literal = literal.as_py()
    text = repr(literal)
    return f"{type(literal).__name__} {text if len(text) <= 80 else text[:77] + '…'}"


def _wanted(data_type: DataType) -> str:
    root = data_type.root
    if root in INTEGERS or root == TypeRoot.DECIMAL:
        return "a number"
    if root in FLOATS:
        return "a number (in SQL also CAST('NaN' AS DOUBLE))"
    if root in CHARACTERS:
        return "text"
    if root in BINARIES:
        return "bytes (in SQL X'0aff')"
    return {
        TypeRoot.BOOLEAN: "true or false",
        TypeRoot.DATE: "a date (in SQL DATE '2024-01-31')",
        TypeRoot.TIME: "a time of day (in SQL TIME '23:59:59')",
    }.get(root, "a timestamp (in SQL TIMESTAMP '2024-01-31 23:59:59')")
