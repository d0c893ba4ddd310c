"""Texts as the values that Java reads in them (spec 02 §13.2; Java `BinaryStringUtils`, `DateTimeUtils`); `CastError` names one that is none.

| type          | text                                                                                                             |
| ------------- | ---------------------------------------------------------------------------------------------------------------- |
| BOOLEAN       | `true t yes y 1`, `false f no n 0`, in any case                                                                     |
| integers      | sign, digits, and a fraction that is cut; no blanks; an error if too large                                          |
| FLOAT, DOUBLE | as `Double.parseDouble`: blanks around it, `NaN`, `Infinity`, a final `d` or `f`, hexadecimal                         |
| DATE          | `yyyy[-M[-d]]`, up to the first blank; digits alone are a day number                                                |
| TIME          | `H[:m[:s[.f]]]` and an offset `+H[:m]`, rounded to milliseconds; digits alone are milliseconds                         |
| TIMESTAMP     | `yyyy-M-d`, then perhaps a blank and `H:m:s[.f]` or `T` and `H:m[:s[.f]]`, cut to the digits of the type          |
| TIMESTAMP(0, 3, 6, 9) | the same; digits alone are a number of seconds, milli-, micro-, nanoseconds; not for LTZ                    |
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from maintainer.data.arrow_types import timestamp_unit, to_arrow
from maintainer.errors import CastError
from maintainer.model.types import FLOATS, INTEGERS, DataType, TypeRoot

_TRUE, _FALSE = ("t", "true", "y", "yes", "1"), ("f", "false", "n", "no", "0")
_W = r"[\x00-\x20]*"
_INTEGER = r"^(?P<sign>[+-]?)0*(?P<digits>\d*)(?P<fraction>\.\d*)?$"
_FLOAT = (
    r"^(?P<sign>[+-]?)(?:(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)[fFdD]?"
    r"|(?P<name>NaN|Infinity)|(?P<hex>0[xX][\da-fA-F.]+[pP][+-]?\d+)[fFdD]?)$"
)
_DATE = rf"^{_W}0*(?P<year>\d{{1,9}}){_W}(?:-{_W}0*(?P<month>\d{{1,9}}){_W}(?:-{_W}0*(?P<day>\d{{1,9}}){_W})?)?$"
_TIME = (
    rf"^{_W}(?P<hour>\d{{1,5}}){_W}(?::{_W}(?P<minute>\d{{1,5}}){_W}(?::{_W}(?P<second>\d{{1,5}}){_W}(?:\.{_W}(?P<fraction>[^-+]*))?)?)?"
    rf"(?:(?P<sign>[-+]){_W}(?P<zone_hour>\d{{1,5}}){_W}(?::{_W}(?P<zone_minute>\d{{1,5}}){_W})?)?$"
)
_TIMESTAMP = (
    r"^(?P<year>\d{4}|\+\d{5,9})-(?P<month>\d{0,2})-(?P<day>\d{0,2})"
    r"(?:(?: (?P<hour>\d{0,2}):(?P<minute>\d{0,2}):(?P<second>\d{0,2})(?:\.(?P<fraction>\d{0,9}))?)?"
    r"|T(?P<t_hour>\d{0,2}):(?P<t_minute>\d{0,2})(?::(?P<t_second>\d{0,2})(?:\.(?P<t_fraction>\d{0,9}))?)?)$"
)
_COUNTED = r"^-?\d+$"
_PER_SECOND = {"ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_DAY = 86_400
_DIGITS_OF_64_BITS = 19
_LAST_YEAR = 9999
_LONGEST_MONTH = 31

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


def parsed(array: pa.Array, target: DataType) -> pa.Array:
    """The values of a type that is no TIMESTAMP and no DECIMAL."""
    root = target.root
    if root is TypeRoot.BOOLEAN:
        words = pc.utf8_lower(array)
        true, false = (pc.is_in(words, value_set=pa.array(of)) for of in (_TRUE, _FALSE))
        _refuse(array, pc.or_(true, false), target)
        return pc.if_else(array.is_valid(), true, pa.scalar(None, pa.bool_()))
    if root in INTEGERS:
        return _arrow(_integers(array, target, to_arrow(target)), array).cast(to_arrow(target))
    if root in FLOATS:
        return _floats(array, target)
    return (_dates if root is TypeRoot.DATE else _times)(array, target)


def timestamps(array: pa.Array, target: DataType) -> pa.Array:
    """The local times, as numbers of the unit that the type has."""
    per_second = _PER_SECOND[timestamp_unit(target.precision)]
    numeric = pc.match_substring_regex(array, _COUNTED).fill_null(False)
    dated = pc.if_else(numeric, pa.scalar(None, pa.string()), array) if target.root is TypeRoot.TIMESTAMP else array
    parts = _parts(dated, _TIMESTAMP, target)
    year, month, day = (_whole(parts, name, missing) for name, missing in (("year", 1970), ("month", 1), ("day", 1)))
    hour, minute, second = (_whole(parts, name, 0) + _whole(parts, f"t_{name}", 0) for name in ("hour", "minute", "second"))
    end_of_day = (hour == 24) & (minute == 0) & (second == 0)
    good = (year >= 1) & (month >= 1) & (month <= 12) & (day >= 1) & (day <= _LONGEST_MONTH) & ((hour < 24) | end_of_day)
    good &= (minute < 60) & (second < 60)
    _refuse(dated, pa.array(good), target)
    day = np.minimum(day, _month_lengths(year, month))  # as Java's formatter does
    fraction = pc.binary_join_element_wise(_text(parts, "fraction"), _text(parts, "t_fraction"), "")
    fraction = pc.utf8_slice_codeunits(pc.utf8_rpad(fraction, width=9, padding="0"), 0, 9)
    kept = pc.utf8_slice_codeunits(fraction, 0, target.precision)
    nanos = pc.utf8_rpad(kept, width=9, padding="0").cast(pa.int64()).to_numpy(zero_copy_only=False)
    seconds = days_of(year, month, day) * _DAY + hour * 3600 + minute * 60 + second
    numbers = pa.array(seconds)
    try:
        numbers = pc.add_checked(pc.multiply_checked(numbers, per_second), pa.array(nanos // (1_000_000_000 // per_second)))
    except pa.ArrowInvalid:
        raise CastError(f"a time that {target.sql()} cannot hold in 64 bits") from None
    found = pc.if_else(dated.is_valid(), numbers, pa.scalar(None, pa.int64()))
    if target.root is TypeRoot.TIMESTAMP and pc.any(numeric).as_py():
        if target.precision % 3:
            raise CastError(f"{array.filter(numeric)[0].as_py()!r} is no {target.sql()}")
        counted = pc.if_else(numeric, array, pa.scalar(None, pa.string()))
        found = pc.coalesce(
            found, _arrow(_integers(counted, DataType(TypeRoot.BIGINT), pa.int64()) * (1000 if not target.precision else 1), counted)
        )
    return found


def _integers(array: pa.Array, target: DataType, arrow: pa.DataType) -> Int64s:
    """Zeros for nulls."""
    parts = pc.extract_regex(array, _INTEGER)
    digits, fraction, sign = (_text(parts, name) for name in ("digits", "fraction", "sign"))
    empty = pc.and_(pc.equal(digits, ""), pc.and_(pc.equal(fraction, ""), pc.invert(pc.match_substring(array, "0").fill_null(False))))
    good = pc.and_(parts.is_valid(), pc.and_(pc.invert(empty), pc.less_equal(pc.binary_length(digits), _DIGITS_OF_64_BITS)))
    _refuse(array, good, target)
    values = pc.if_else(pc.equal(digits, ""), "0", digits).cast(pa.uint64()).to_numpy(zero_copy_only=False)
    negative = np.asarray(pc.equal(sign, "-"))
    limits = np.iinfo(f"i{arrow.bit_width // 8}")
    _refuse(array, pa.array(values <= np.where(negative, np.uint64(-int(limits.min)), np.uint64(limits.max))), target)
    signed = values.astype(np.int64)
    found: Int64s = np.where(negative, -signed, signed)
    return found


def _floats(array: pa.Array, target: DataType) -> pa.Array:
    arrow = to_arrow(target)
    trimmed = pc.replace_substring_regex(array, rf"^{_W}|{_W}$", "")
    parts = _parts(trimmed, _FLOAT, target, array)
    number, name = _text(parts, "number"), _text(parts, "name")
    values = pc.if_else(pc.equal(number, ""), "0", number).cast(arrow)
    values = pc.if_else(pc.equal(name, "NaN"), pa.scalar(float("nan"), arrow), values)
    values = pc.if_else(pc.equal(name, "Infinity"), pa.scalar(float("inf"), arrow), values)
    hexadecimal = _text(parts, "hex")
    if pc.any(pc.not_equal(hexadecimal, "")).as_py():  # rare, and no kernel knows them
        numbers = [float.fromhex(text) if text else 0.0 for text in hexadecimal.to_pylist()]
        values = pc.if_else(pc.equal(hexadecimal, ""), values, pa.array(numbers).cast(arrow))
    values = pc.if_else(pc.equal(_text(parts, "sign"), "-"), pc.negate(values), values)
    return pc.if_else(array.is_valid(), values, pa.scalar(None, arrow)) if array.null_count else values


def _dates(array: pa.Array, target: DataType) -> pa.Array:
    numeric = pc.match_substring_regex(array, _COUNTED).fill_null(False)
    dated = pc.if_else(numeric, pa.scalar(None, pa.string()), pc.replace_substring_regex(array, r"^([^ ]+) .*$", r"\1"))
    parts = _parts(dated, _DATE, target, array)
    year, month, day = (_whole(parts, name, missing) for name, missing in (("year", 1970), ("month", 1), ("day", 1)))
    good = (year <= _LAST_YEAR) & (month >= 1) & (month <= 12) & (day >= 1)
    good &= day <= _month_lengths(year, np.clip(month, 1, 12))
    _refuse(array, pc.or_(pa.array(good), numeric), target)
    days = days_of(year, np.clip(month, 1, 12), day)
    counted = _integers(pc.if_else(numeric, array, pa.scalar(None, pa.string())), target, pa.int32())
    return _arrow(np.where(np.asarray(numeric), counted, days).astype(np.int32), array).cast(pa.date32())


def _times(array: pa.Array, target: DataType) -> pa.Array:
    numeric = pc.match_substring_regex(array, _COUNTED).fill_null(False)
    clock = pc.if_else(numeric, pa.scalar(None, pa.string()), array)
    parts = _parts(clock, _TIME, target)
    hour, minute, second = (_whole(parts, name, 0) for name in ("hour", "minute", "second"))
    ahead = np.where(np.asarray(pc.equal(_text(parts, "sign"), "-")), -1, 1)
    hour += ahead * _whole(parts, "zone_hour", 0)
    minute += ahead * _whole(parts, "zone_minute", 0)
    fraction = pc.replace_substring_regex(_text(parts, "fraction"), rf"^{_W}|{_W}$", "")
    fraction = pc.utf8_rpad(pc.replace_substring_regex(fraction, r"[^0-9]", "0"), width=4, padding="0")
    millis = pc.utf8_slice_codeunits(fraction, 0, 3).cast(pa.int64()).to_numpy(zero_copy_only=False)
    fourth = pc.utf8_slice_codeunits(fraction, 3, 4).cast(pa.int64()).to_numpy(zero_copy_only=False)
    found = hour * 3_600_000 + minute * 60_000 + second * 1_000 + millis + (fourth >= 5)
    counted = _integers(pc.if_else(numeric, array, pa.scalar(None, pa.string())), target, pa.int32())
    millis = np.where(np.asarray(numeric), counted, found)
    _refuse(array, pa.array((millis >= 0) & (millis < _DAY * 1000)), target)  # Java keeps these, as values that are no time of a day
    return _arrow(millis.astype(np.int32), array).cast(pa.time32("ms"))


def days_of(year: Int64s, month: Int64s, day: Int64s) -> Int64s:
    """Day numbers, proleptic Gregorian."""
    year = year - (month <= 2)
    era, of_era = np.divmod(year, 400)
    of_year = (153 * np.where(month > 2, month - 3, month + 9) + 2) // 5 + day - 1
    days: Int64s = era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468
    return days


def _month_lengths(year: Int64s, month: Int64s) -> Int64s:
    leap = (year % 400 == 0) | ((year % 4 == 0) & (year % 100 != 0))
    lengths: Int64s = np.array([31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])[np.clip(month, 1, 12) - 1] + (leap & (month == 2))
    return lengths


def _parts(array: pa.Array, pattern: str, target: DataType, shown: pa.Array | None = None) -> pa.Array:
    parts = pc.extract_regex(array, pattern)
    good = pc.or_(parts.is_valid(), array.is_null())
    _refuse(array if shown is None else shown, good, target)
    return parts


def _text(parts: pa.Array, name: str) -> pa.Array:
    """A group of the pattern, empty where it or the whole text is missing."""
    return pc.struct_field(parts, name).fill_null("")


def _whole(parts: pa.Array, name: str, missing: int) -> Int64s:
    text = pc.replace_substring_regex(_text(parts, name), r"^\+", "")
    values = pc.if_else(pc.equal(text, ""), str(missing), text).cast(pa.int64())
    return np.array(values.to_numpy(zero_copy_only=False))


def _refuse(array: pa.Array, good: pa.Array, target: DataType) -> None:
    bad = pc.and_(array.is_valid(), pc.invert(good))
    if pc.any(bad).as_py():
        raise CastError(f"{array.filter(bad)[0].as_py()!r} is no {target.sql()}")


def _arrow(values: npt.NDArray[np.generic], like: pa.Array) -> pa.Array:
    return pa.array(values, mask=np.asarray(like.is_null()) if like.null_count else None)
