"""Values as the texts that Java makes of them (spec 02 §13.2; Java `NumericToStringCastRule` and the other rules to a string).

| type           | text                                                                                              |
| -------------- | ------------------------------------------------------------------------------------------------- |
| integers       | decimal                                                                                           |
| FLOAT, DOUBLE  | `Float.toString`: from 10⁻³ up to 10⁷ plain with at least one digit after the point, else `1.0E10`; the shortest digits |
| DECIMAL        | plain, with all digits of the scale                                                               |
| DATE           | `yyyy-MM-dd`                                                                                      |
| TIME(p)        | `HH:mm:ss`, for p > 0 `.` and digits up to the last one that is not 0, at least one, at most p     |
| TIMESTAMP(p)   | `yyyy-MM-dd HH:mm:ss`, `.` and p digits, or more if they are not 0; LTZ in the zone of the session   |
| BINARY …       | the bytes as UTF-8; what is none becomes U+FFFD                                                    |
| ARRAY, MAP, ROW | `[1, null]`, `{k -> v}`, `{1, x}`                                                                 |
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from maintainer.data import zones
from maintainer.data.arrow_types import timestamp_unit
from maintainer.model.types import BINARIES, CHARACTERS, FLOATS, TIMESTAMPS, DataType, TypeRoot

_PER_SECOND = {"ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_FRACTION = {"ms": 3, "us": 6, "ns": 9}
_DAY = 86_400
_FLOAT_TEXT = r"^(?P<sign>-?)(?P<whole>\d+)(?:\.(?P<fraction>\d+))?(?:e(?P<exponent>[+-]?\d+))?$"
_TINY = {pa.float32(): 1e-43, pa.float64(): 1e-321}
_PLAIN_EXPONENTS = range(-3, 7)
"""Decimal exponents of the first digit with which Java does not use the scientific form."""


def texts(array: pa.Array, data_type: DataType, zone: str) -> pa.Array:
    """The text of each value, not cut to any length."""
    root = data_type.root
    if root in CHARACTERS:
        return array
    if root in BINARIES:
        return _decoded(array)
    if root in FLOATS:
        return _float_texts(array)
    if root in TIMESTAMPS:
        return _timestamp_texts(array, data_type, zone)
    match root:
        case TypeRoot.DECIMAL:
            return _decimal_texts(array, data_type.scale)
        case TypeRoot.DATE:
            return _texts(_day_bytes(_numbers(array.cast(pa.int32()))), array)
        case TypeRoot.TIME:
            return _time_texts(array, data_type.precision)
        case TypeRoot.ARRAY:
            assert data_type.element is not None
            return _bracketed("[", _joined(array, _element_texts(array.values, data_type.element, zone)), "]")
        case TypeRoot.MAP:
            assert data_type.key is not None
            assert data_type.element is not None
            keys, items = _element_texts(array.keys, data_type.key, zone), _element_texts(array.items, data_type.element, zone)
            return _bracketed("{", _joined(array, pc.binary_join_element_wise(keys, items, " -> ")), "}")
        case TypeRoot.ROW:
            members = [_element_texts(child, field.type, zone) for child, field in zip(array.flatten(), data_type.fields, strict=True)]
            found = _bracketed("{", pc.binary_join_element_wise(*members, ", "), "}")
            return pc.if_else(array.is_valid(), found, pa.scalar(None, pa.string())) if array.null_count else found
        case _:
            return array.cast(pa.string())


def _element_texts(array: pa.Array, data_type: DataType, zone: str) -> pa.Array:
    return texts(array, data_type, zone).fill_null("null")


def _joined(array: pa.Array, parts: pa.Array) -> pa.Array:
    lists = pa.Array.from_buffers(pa.list_(pa.string()), len(array), array.buffers()[:2], array.null_count, array.offset, [parts])
    return pc.binary_join(lists, ", ")


def _bracketed(left: str, inside: pa.Array, right: str) -> pa.Array:
    return pc.binary_join_element_wise(left, inside, right, "")


def _decoded(array: pa.Array) -> pa.Array:
    try:
        return array.cast(pa.string())
    except pa.ArrowInvalid:  # some are no UTF-8, which nobody expects: one by one
        return pa.array([None if value is None else value.decode("utf-8", "replace") for value in array.to_pylist()], pa.string())


def _float_texts(array: pa.Array) -> pa.Array:
    """Arrow's shortest digits, in Java's notation."""
    short = array.cast(pa.string())
    parts = pc.extract_regex(short, _FLOAT_TEXT)
    sign, whole = pc.struct_field(parts, "sign"), pc.struct_field(parts, "whole")
    fraction = pc.struct_field(parts, "fraction").fill_null("")
    exponent = pc.struct_field(parts, "exponent").fill_null("")
    power = pc.replace_substring_regex(pc.if_else(pc.equal(exponent, ""), "0", exponent), r"^\+", "").cast(pa.int64())
    digits = pc.binary_join_element_wise(whole, fraction, "")
    significant = pc.utf8_ltrim(digits, characters="0")
    leading = pc.subtract(pc.binary_length(digits), pc.binary_length(significant))
    power = pc.subtract(pc.add(power, pc.binary_length(whole)), pc.add(leading, 1))
    significant = pc.utf8_rtrim(significant, characters="0")
    is_zero = pc.equal(significant, "")
    tiny = pc.and_(pc.less(pc.abs(array), pa.scalar(_TINY[array.type], array.type)), pc.invert(is_zero))
    if pc.any(tiny).as_py():  # of so few bits that one digit would do: Java shows the two nearest ones
        near = [f"{value:.1e}"[::2][:2].rstrip("0") for value in pc.abs(array.filter(tiny)).to_pylist()]
        significant = pc.replace_with_mask(significant, tiny, pa.array(near, pa.string()))
    rest = _at_least_one(pc.utf8_slice_codeunits(significant, 1))
    scientific = pc.binary_join_element_wise(pc.utf8_slice_codeunits(significant, 0, 1), ".", rest, "E", power.cast(pa.string()), "")
    found = pc.if_else(is_zero, "0.0", scientific)
    for place in _PLAIN_EXPONENTS:
        here = pc.and_(pc.equal(power, place), pc.invert(is_zero))
        if pc.any(here).as_py():
            if place < 0:
                plain = pc.binary_join_element_wise("0." + "0" * (-place - 1), significant, "")
            else:
                padded = pc.utf8_rpad(significant, width=place + 2, padding="0")
                plain = pc.binary_join_element_wise(
                    pc.utf8_slice_codeunits(padded, 0, place + 1), pc.utf8_slice_codeunits(padded, place + 1), "."
                )
            found = pc.if_else(here, plain, found)
    found = pc.binary_join_element_wise(sign, found, "")
    for odd, name in ((pc.is_nan(array), "NaN"), (pc.equal(short, "inf"), "Infinity"), (pc.equal(short, "-inf"), "-Infinity")):
        if pc.any(odd).as_py():
            found = pc.if_else(odd, name, found)
    return found


def _at_least_one(digits: pa.Array) -> pa.Array:
    return pc.if_else(pc.equal(digits, ""), "0", digits)


def _decimal_texts(array: pa.Array, scale: int) -> pa.Array:
    """Arrow writes small ones as 1E-7; integers it writes plainly."""
    unscaled = pa.Array.from_buffers(pa.decimal128(38, 0), len(array), array.buffers(), array.null_count, array.offset).cast(pa.string())
    if not scale:
        return unscaled
    digits = pc.utf8_lpad(pc.utf8_ltrim(unscaled, characters="-"), width=scale + 1, padding="0")
    sign = pc.if_else(pc.starts_with(unscaled, "-"), "-", "")
    plain = pc.binary_join_element_wise(pc.utf8_slice_codeunits(digits, 0, -scale), pc.utf8_slice_codeunits(digits, -scale), ".")
    return pc.binary_join_element_wise(sign, plain, "")


Bytes = npt.NDArray[np.uint8]


def _day_bytes(days: npt.NDArray[np.int64]) -> Bytes:
    """`yyyy-MM-dd` of day numbers, the year by its last four digits."""
    year, month, day = civil(days)
    return _digits([(year % 10_000, 4), "-", (month, 2), "-", (day, 2)], len(days))


def _clock_bytes(seconds: npt.NDArray[np.int64]) -> Bytes:
    return _digits([(seconds // 3600, 2), ":", (seconds // 60 % 60, 2), ":", (seconds % 60, 2)], len(seconds))


def civil(days: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Year, month and day of day numbers, proleptic Gregorian."""
    era, of_era = np.divmod(days + 719_468, 146_097)
    year = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    month = (5 * of_year + 2) // 153
    day = of_year - (153 * month + 2) // 5 + 1
    month = np.where(month < 10, month + 3, month - 9)
    return year + era * 400 + (month <= 2), month, day


def _digits(parts: list[tuple[npt.NDArray[np.int64], int] | str], rows: int) -> Bytes:
    columns: list[Any] = []
    for part in parts:
        if isinstance(part, str):
            columns.append(np.full(rows, ord(part), dtype=np.uint8))
        else:
            values, width = part
            columns += [(values // 10**place % 10 + ord("0")).astype(np.uint8) for place in reversed(range(width))]
    return np.column_stack(columns)


def _texts(characters: Bytes, like: pa.Array) -> pa.Array:
    """Rows of characters as texts, with the nulls of another array."""
    rows, width = characters.shape
    offsets = np.arange(rows + 1, dtype=np.int32) * width
    found = pa.StringArray.from_buffers(rows, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(characters)))
    return pc.if_else(like.is_valid(), found, pa.scalar(None, pa.string())) if like.null_count else found


def _time_texts(array: pa.Array, precision: int) -> pa.Array:
    millis = _numbers(array.cast(pa.int32())) % (_DAY * 1000)
    clock = _texts(_clock_bytes(millis // 1000), array)
    if not precision:
        return clock
    fraction = pc.utf8_slice_codeunits(_texts(_digits([(millis % 1000, 3)], len(array)), array), 0, precision)
    return pc.binary_join_element_wise(clock, _at_least_one(pc.utf8_rtrim(fraction, characters="0")), ".")


def _timestamp_texts(array: pa.Array, data_type: DataType, zone: str) -> pa.Array:
    unit = timestamp_unit(data_type.precision)
    numbers = _numbers(array.view(pa.int64()))
    if data_type.root is TypeRoot.TIMESTAMP_LTZ:
        numbers = zones.locals_(numbers, unit, zone)
    seconds, rest = np.divmod(numbers, _PER_SECOND[unit])
    days, seconds = np.divmod(seconds, _DAY)
    gap = np.full((len(array), 1), ord(" "), dtype=np.uint8)
    moment = _texts(np.hstack([_day_bytes(days), gap, _clock_bytes(seconds)]), array)
    fraction = pc.utf8_rtrim(_texts(_digits([(rest, _FRACTION[unit])], len(array)), array), characters="0")
    if data_type.precision:
        fraction = pc.utf8_rpad(fraction, width=data_type.precision, padding="0")
    with_point = pc.binary_join_element_wise(moment, fraction, ".")
    return pc.if_else(pc.equal(fraction, ""), moment, with_point)


def _numbers(array: pa.Array) -> npt.NDArray[np.int64]:
    if array.null_count:
        array = array.fill_null(0)
    return np.asarray(array.to_numpy(zero_copy_only=False)).astype(np.int64)
