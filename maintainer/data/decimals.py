"""DECIMAL values, a column at a time (Java `DecimalUtils`, `Decimal.fromBigDecimal`): half up to the scale of the type, NULL if too wide."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Context, Decimal
from typing import cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from maintainer.data.arrow_types import to_arrow
from maintainer.errors import CastError, MaintainerError
from maintainer.model.types import DataType

_NUMBER = r"^[+-]?(?P<whole>\d*)(?:\.(?P<fraction>\d*))?(?:[eE](?P<exponent>[+-]?\d+))?$"
_WIDE_SCALE = 37
_WIDE = pa.decimal256(76, _WIDE_SCALE)
_MOST_WHOLE = 37
_MOST_DIGITS = 76
_NEAR = 3
_EXACT = Context(prec=200)


def check_range(array: pa.Array, least: int, most: int, name: str) -> None:
    """Raises `MaintainerError` for a value of which the digits, as one number, are not in this range.

    An Arrow array may hold more digits than its type says, as sums of an aggregation do, which Java does not shorten either.
    """
    bounds = pc.min_max(array)
    for bound in (bounds["min"].as_py(), bounds["max"].as_py()):
        unscaled = 0 if bound is None else int(bound.scaleb(array.type.scale, _EXACT))
        if not least <= unscaled <= most:
            precision, scale = array.type.precision, array.type.scale
            raise MaintainerError(f"column {name}: {bound} has more digits than a file keeps for DECIMAL({precision}, {scale})")


def fitted(array: pa.Array, target: DataType) -> pa.Array:
    """Decimals of any precision and scale as those of the type."""
    scale = array.type.scale
    array = array.cast(pa.decimal256(_MOST_DIGITS, scale))
    if scale > target.scale:
        array = pc.round(array, ndigits=target.scale, round_mode="half_towards_infinity")
    largest = _EXACT.subtract(Decimal(10) ** (target.precision - target.scale), Decimal(1).scaleb(-scale))
    fits = pc.less_equal(pc.abs(array), pa.scalar(largest, array.type))
    array = pc.if_else(fits, array, pa.scalar(None, array.type))
    return array.cast(pa.decimal256(_MOST_DIGITS, target.scale)).cast(to_arrow(target))


def from_text(array: pa.Array, target: DataType) -> pa.Array:
    """Texts as Java's `BigDecimal` reads them; `CastError` names one that is no number.

    Arrow parses texts of up to 37 digits on either side of the point; a longer one is parsed by itself.
    """
    parts = pc.extract_regex(array, _NUMBER)
    whole, fraction = (_or_empty(pc.struct_field(parts, name)) for name in ("whole", "fraction"))
    exponent = _or_empty(pc.struct_field(parts, "exponent"))
    digits = pc.add(pc.binary_length(whole), pc.binary_length(fraction))
    good = pc.and_(parts.is_valid(), pc.greater(digits, 0))
    bad = pc.and_(pc.invert(good), array.is_valid())
    if pc.any(bad).as_py():
        raise CastError(f"{array.filter(bad)[0].as_py()!r} is no {target.sql()}")
    power = pc.if_else(pc.equal(exponent, ""), "0", exponent)
    power = pc.replace_substring_regex(power, r"^\+", "")
    near = pc.less_equal(pc.binary_length(power), _NEAR)
    power = pc.if_else(near, power, "0").cast(pa.int64())
    simple = pc.and_(
        near,
        pc.and_(
            pc.less_equal(pc.add(pc.binary_length(whole), power), _MOST_WHOLE),
            pc.less_equal(pc.subtract(pc.binary_length(fraction), power), _WIDE_SCALE),
        ),
    )
    simple = pc.and_(simple, pc.less_equal(digits, _MOST_WHOLE + _WIDE_SCALE))
    plain = pc.replace_substring_regex(pc.if_else(simple, array, pa.scalar(None, array.type)), r"^\+", "")
    found = fitted(plain.cast(_WIDE), target)
    long = np.flatnonzero(np.asarray(pc.and_(array.is_valid(), pc.invert(simple)).fill_null(False)))
    if len(long):
        values = [_parsed(text, target) for text in array.take(pa.array(long)).to_pylist()]
        found = pc.replace_with_mask(found, _mask(len(array), long), pa.array(values, found.type))
    return found


def _or_empty(texts: pa.Array) -> pa.Array:
    return texts.fill_null("")


def _parsed(text: str, target: DataType) -> Decimal | None:
    sign, digits, exponent = Decimal(text).as_tuple()
    assert isinstance(exponent, int)
    if not any(digits):
        return Decimal(0)
    highest = len(digits) + exponent  # digits before the point
    if highest > target.precision:
        leading = next(index for index, digit in enumerate(digits) if digit)
        if highest - leading > target.precision - target.scale:
            return None
    if highest < -target.scale:
        return Decimal(0)
    rounded = Decimal((sign, digits, exponent)).quantize(Decimal(1).scaleb(-target.scale), ROUND_HALF_UP, Context(prec=len(digits) + 200))
    return rounded if rounded.copy_abs() < Decimal(10) ** (target.precision - target.scale) else None


def _mask(rows: int, set_rows: npt.NDArray[np.int64]) -> pa.Array:
    mask = np.zeros(rows, dtype=bool)
    mask[set_rows] = True
    return pa.array(mask)


def unscaled_low_bits(array: pa.Array) -> npt.NDArray[np.int64]:
    """The low 64 bits of the unscaled values; zeros for nulls."""
    words = np.frombuffer(array.buffers()[1], dtype="<i8").reshape(-1, 2)[array.offset : array.offset + len(array), 0]
    if array.null_count:
        words = np.where(np.asarray(array.is_null()), 0, words)
    return cast(npt.NDArray[np.int64], words)
