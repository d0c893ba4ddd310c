"""Values of a column whose type was changed, as those of the new type (spec 02 §13.2; Java `CastExecutors`).

| from                  | to                             | rule                                                                        |
| --------------------- | ------------------------------ | --------------------------------------------------------------------------- |
| integers              | integers                       | the low bits                                                                |
| FLOAT, DOUBLE         | integers                       | towards zero, saturating, NaN is 0; TINYINT and SMALLINT: the low bits of INT |
| numbers               | FLOAT, DOUBLE                  | nearest                                                                     |
| numbers, text         | DECIMAL                        | half up; NULL if too wide; a float by its shortest text                      |
| DECIMAL               | integers                       | towards zero, the low bits                                                  |
| BOOLEAN; integers     | numbers; BOOLEAN               | 1 and 0; not 0                                                              |
| CHAR …, BINARY …      | each other                     | CHAR and BINARY pad, all cut (text by code points); bytes become text as they are |
| almost all            | CHAR …                         | `maintainer.data.cast_texts`                                                |
| CHAR …                | almost all                     | `maintainer.data.cast_parsing`                                              |
| TIMESTAMP, LTZ        | fewer digits                   | 4 to 8: towards the past; 3: milliseconds; fewer: of milliseconds, towards zero |
| TIMESTAMP, LTZ        | DATE, TIME; INT, BIGINT        | day and time of the day; seconds, towards zero                              |
| DATE, TIME; INT, BIGINT | TIMESTAMP, LTZ               | midnight, on 1970-01-01; seconds                                            |

Between TIMESTAMP and LTZ, and where a date or a text meets an LTZ, the zone of the session decides (Java: of the machine). A value that the
new type cannot take is NULL or an error as in Java; an error fails whoever reads the file.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from maintainer.data import cast_parsing, cast_texts, zones
from maintainer.data.arrow_types import timestamp_unit, to_arrow
from maintainer.data.decimals import fitted, from_text, unscaled_low_bits
from maintainer.errors import CastError
from maintainer.model.types import BINARIES, CHARACTERS, FLOATS, INTEGERS, TIMESTAMPS, DataType, TypeRoot

_PER_SECOND = {"ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_DAY = 86_400
_MILLIS_DIGITS = 3
_SECONDS = frozenset({TypeRoot.INT, TypeRoot.BIGINT})
_MOST_DIGITS = 76

Int64s = npt.NDArray[np.int64]


def cast(array: pa.Array, source: DataType, target: DataType, zone: str = "UTC") -> pa.Array:
    """The array, which holds values of `source`, with those of `target`; `model.casting` has a cast. `CastError`: a value that is none."""
    if source.root in CHARACTERS:
        return _from_text(array, target, zone)
    if target.root in CHARACTERS:
        text = cast_texts.texts(array, source, zone)
        whole = source.root in BINARIES or source.root in (TypeRoot.ARRAY, TypeRoot.MAP, TypeRoot.ROW)
        return text if whole else cut(text, target)
    if source.root in BINARIES:
        return cut(array, target)
    if target.root in TIMESTAMPS:
        return _to_timestamp(array, source, target, zone)
    if source.root in TIMESTAMPS:
        return _from_timestamp(array, source, target, zone)
    return _number(array, source, target)


def _from_text(array: pa.Array, target: DataType, zone: str) -> pa.Array:
    root = target.root
    if root in CHARACTERS:
        return cut(array, target)
    if root in BINARIES:
        return cut(array.cast(pa.binary()), target)
    if root in TIMESTAMPS:
        numbers = cast_parsing.timestamps(array, target)
        if root is TypeRoot.TIMESTAMP_LTZ:
            numbers = _moved(numbers, timestamp_unit(target.precision), zones.instants, zone)
        return numbers.view(to_arrow(target))
    return from_text(array, target) if root is TypeRoot.DECIMAL else cast_parsing.parsed(array, target)


def cut(array: pa.Array, target: DataType) -> pa.Array:
    """Text or bytes with at most the length of the type, and with exactly this length for CHAR and BINARY."""
    length = target.length
    if target.root in CHARACTERS:
        if target.root is TypeRoot.CHAR:
            array = pc.utf8_rpad(array, width=length, padding=" ")
        longest = pc.max(pc.utf8_length(array)).as_py() or 0
        return pc.utf8_slice_codeunits(array, 0, length) if longest > length else array
    if target.root is TypeRoot.BINARY and len(array):
        shortest = pc.min(pc.binary_length(array)).as_py()
        if shortest is not None and shortest < length:
            array = pc.binary_join_element_wise(array, pa.scalar(bytes(length - shortest), pa.binary()), pa.scalar(b"", pa.binary()))
    longest = pc.max(pc.binary_length(array)).as_py() or 0
    return pc.binary_slice(array, 0, length) if longest > length else array


def _number(array: pa.Array, source: DataType, target: DataType) -> pa.Array:
    """Between numbers and BOOLEAN."""
    root = target.root
    if source.root is TypeRoot.BOOLEAN:
        array, source = array.cast(pa.int8()), DataType(TypeRoot.TINYINT)
    if root is TypeRoot.BOOLEAN:
        return pc.not_equal(array, pa.scalar(0, array.type))
    if root is TypeRoot.DECIMAL:
        if source.root is TypeRoot.DECIMAL:
            return fitted(array, target)
        if source.root in INTEGERS:
            return fitted(array.cast(pa.int64()).cast(pa.decimal128(19, 0)), target)
        finite = pc.is_finite(array)
        if not pc.all(finite).as_py() and len(array.filter(pc.invert(finite))):
            raise CastError(f"{array.filter(pc.invert(finite))[0].as_py()} is no {target.sql()}")
        return from_text(array.cast(pa.float64()).cast(pa.string()), target)
    dtype = _numpy_type(target)
    if source.root is TypeRoot.DECIMAL:
        if root in INTEGERS:
            return _arrow(unscaled_low_bits(_whole(array)).astype(dtype), array)
        return _arrow(_doubles(array, source).astype(dtype), array)
    values = _values(array)
    with np.errstate(all="ignore"):
        if source.root in FLOATS and root in INTEGERS:
            wide = np.int64 if root is TypeRoot.BIGINT else np.int32
            values = _saturated(values.astype(np.float64), wide)
        return _arrow(values.astype(dtype), array)


def _whole(array: pa.Array) -> pa.Array:
    """Without the fraction, as decimals of scale 0."""
    wide = array.cast(pa.decimal256(_MOST_DIGITS, array.type.scale))
    return pc.trunc(wide).cast(pa.decimal256(_MOST_DIGITS, 0)).cast(pa.decimal128(38, 0))


def _saturated(values: npt.NDArray[np.float64], dtype: type[np.signedinteger[Any]]) -> npt.NDArray[Any]:
    limits = np.iinfo(dtype)
    inside = (values >= float(limits.min)) & (values < -float(limits.min))
    whole = np.where(inside, values, 0.0).astype(dtype)
    whole[values >= -float(limits.min)] = limits.max
    whole[values < float(limits.min)] = limits.min
    return whole


_MOST_COMPACT = 18


def _doubles(array: pa.Array, source: DataType) -> npt.NDArray[np.float64]:
    if source.precision <= _MOST_COMPACT:
        return unscaled_low_bits(array) / float(10**source.scale)
    return _values(cast_texts.texts(array, source, "UTC").cast(pa.float64()))


def _to_timestamp(array: pa.Array, source: DataType, target: DataType, zone: str) -> pa.Array:
    unit = timestamp_unit(target.precision)
    local = target.root is TypeRoot.TIMESTAMP_LTZ and source.root is not TypeRoot.TIMESTAMP_LTZ
    if source.root in TIMESTAMPS:
        old = timestamp_unit(source.precision)
        numbers = array.view(pa.int64())
        if local:
            numbers = _moved(numbers, old, zones.instants, zone)
        elif source.root is not target.root:
            numbers = _moved(numbers, old, zones.locals_, zone)
        if target.precision < source.precision:
            numbers = _arrow(_shortened(_values(numbers), _PER_SECOND[old], target.precision), array)
        return _scaled(numbers, _PER_SECOND[old], _PER_SECOND[unit], target).view(to_arrow(target))
    if source.root in _SECONDS:
        numbers = _scaled(array.cast(pa.int64()), 1, _PER_SECOND[unit], target)
        if local:  # Java moves the other way here
            numbers = _moved(numbers, unit, zones.locals_, zone)
        return numbers.view(to_arrow(target))
    numbers = array.cast(pa.int32()).cast(pa.int64())
    if source.root is TypeRoot.TIME:  # also of an LTZ, whatever the zone is
        return _scaled(numbers, _PER_SECOND["ms"], _PER_SECOND[unit], target).view(to_arrow(target))
    numbers = _scaled(pc.multiply(numbers, _DAY), 1, _PER_SECOND[unit], target)
    if local:
        numbers = _moved(numbers, unit, zones.instants, zone)
    return numbers.view(to_arrow(target))


def _from_timestamp(array: pa.Array, source: DataType, target: DataType, zone: str) -> pa.Array:
    unit = timestamp_unit(source.precision)
    numbers = array.view(pa.int64())
    if target.root in _SECONDS:
        millis = _values(numbers) // (_PER_SECOND[unit] // _PER_SECOND["ms"])
        seconds = np.where(millis < 0, -(-millis // 1000), millis // 1000)
        return _arrow(seconds.astype(_numpy_type(target)), array)
    if source.root is TypeRoot.TIMESTAMP_LTZ:
        numbers = _moved(numbers, unit, zones.locals_, zone)
    days, rest = np.divmod(_values(numbers), _DAY * _PER_SECOND[unit])
    if target.root is TypeRoot.DATE:
        return _arrow(days.astype(np.int32), array).cast(pa.date32())
    return _arrow((rest // (_PER_SECOND[unit] // _PER_SECOND["ms"])).astype(np.int32), array).cast(pa.time32("ms"))


def _shortened(values: Int64s, per_second: int, digits: int) -> Int64s:
    if digits > _MILLIS_DIGITS:
        step = per_second // 10**digits
        return values - values % step if step > 1 else values
    per_milli = per_second // _PER_SECOND["ms"]
    millis = values // per_milli
    step = 10 ** (_MILLIS_DIGITS - digits)
    shortened: Int64s = np.where(millis < 0, -(-millis // step), millis // step) * step * per_milli
    return shortened


def _scaled(numbers: pa.Array, old: int, new: int, target: DataType) -> pa.Array:
    """Numbers of one fraction of a second as those of another."""
    if new < old:
        return _arrow(_values(numbers) // (old // new), numbers)
    try:
        return pc.multiply_checked(numbers, new // old) if new > old else numbers
    except pa.ArrowInvalid:
        raise CastError(f"a time that {target.sql()} cannot hold with {timestamp_unit(target.precision)} in 64 bits") from None


def _moved(numbers: pa.Array, unit: str, move: zones.Move, zone: str) -> pa.Array:
    return _arrow(move(_values(numbers), unit, zone), numbers)


def _numpy_type(target: DataType) -> np.dtype[Any]:
    """As `to_pandas_dtype` says, which until pyarrow 20 is not to be had without pandas."""
    values: npt.NDArray[Any] = pa.array([], to_arrow(target)).to_numpy(zero_copy_only=False)
    return values.dtype


def _values(array: pa.Array) -> npt.NDArray[Any]:
    """The values as numpy has them, with zeros for nulls."""
    if array.null_count:
        array = array.fill_null(pa.scalar(0, array.type))
    return np.asarray(array.to_numpy(zero_copy_only=False))


def _arrow(values: npt.NDArray[Any], like: pa.Array) -> pa.Array:
    """The values with the nulls of another array."""
    return pa.array(values, mask=np.asarray(like.is_null()) if like.null_count else None)
