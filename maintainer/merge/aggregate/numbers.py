"""sum and product (spec 05 §6.1; Java `FieldSumAgg`, `FieldProductAgg`, `DecimalUtils`).

| type                 | accumulator                                | a step                                                                 |
| -------------------- | ------------------------------------------ | ---------------------------------------------------------------------- |
| TINYINT … BIGINT     | int64                                      | exact, an error when the result does not fit; quotients are cut off    |
| FLOAT, DOUBLE        | that type                                  | one IEEE operation                                                     |
| DECIMAL(p ≤ 18), sum | int64, unscaled                            | wraps nowhere: what int64 cannot hold is NULL, p digits do not matter  |
| DECIMAL(p > 18), sum | two words, unscaled                        | exact; more than p digits are NULL                                     |
| DECIMAL, product     | Python integers in a numpy array, unscaled | exact, rounded half up to the scale; more than p digits are NULL       |

NULL on one side gives the other one. Adding and multiplying do not care which side came first.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from maintainer.merge.aggregate.positions import valid_of
from maintainer.merge.aggregate.records import Bools, Folded, Int8s, Records, Slots, StepError, Verdict, fold_by_rank
from maintainer.merge.order import Int64s, decimal_halves, fixed_width
from maintainer.model.types import FLOATS, TypeRoot
from maintainer.table.aggregates import Aggregate

Values = npt.NDArray[Any]
_LOW = (1 << 64) - 1
_EXACT_DOUBLES = float(1 << 62)
"""Products that seem smaller than this as doubles fit into an int64."""


class _Number(ABC):
    """Accumulators of one type. What a step gives for a NULL on either side is decided here, the arithmetic of two numbers below."""

    def __init__(self, groups: int, values: Values, valid: Bools) -> None:
        self.values = values
        self.valid = valid
        self.totals = np.zeros((groups, *values.shape[1:]), values.dtype)
        self.known = np.zeros(groups, np.bool_)

    def apply(self, slots: Slots, rows: Int64s) -> None:
        first = ~self.known[slots] & self.valid[rows]
        self._step(slots, rows, self.combine)
        if first.any():
            self._put(slots, first, self.values[rows[first]])

    def reversed(self, slots: Slots, rows: Int64s) -> None:
        self.apply(slots, rows)

    def retract(self, slots: Slots, rows: Int64s) -> None:
        first = ~self.known[slots] & self.valid[rows]
        self._step(slots, rows, self.take_back)
        if first.any():
            self.retract_first(slots, first, self.values[rows[first]])

    def replace(self, slots: Slots, rows: Int64s) -> None:
        self.totals[slots] = self.values[rows]
        self.known[slots] = self.valid[rows]

    def run(self, slot: int, rows: Int64s, verdicts: Int8s) -> bool:
        """All totals of a group by one accumulation, from left to right."""
        if not np.isin(verdicts, (Verdict.APPLY, Verdict.RETRACT)).all():
            return False
        there = self.valid[rows]
        totals = self.accumulated(self.values[rows[there]], verdicts[there] == Verdict.RETRACT)
        if totals is None:
            return False
        if len(totals):
            self.known[slot], self.totals[slot] = True, totals[-1]
        return True

    def accumulated(self, values: Values, retracts: Bools) -> Values | None:
        """The totals after each value; None if these cannot be had at once, or one of them has no result."""
        return None

    def _step(self, slots: Slots, rows: Int64s, step: Any) -> None:
        """Where both sides are there; the results of a step are numbers, and which of them are there at all (None: all)."""
        both = self.known[slots] & self.valid[rows]
        if both.all():
            totals = self.totals[slots]
            self.totals[slots], there = self._exact(step, totals, self.values[rows], None)
            if there is not None:
                self.known[slots] = there
        elif both.any():
            at = np.flatnonzero(both)
            chosen = _chosen(slots, at)
            self.totals[chosen], there = self._exact(step, self.totals[chosen], self.values[rows[at]], at)
            if there is not None:
                self.known[chosen] = there

    def _exact(self, step: Any, totals: Values, values: Values, at: Int64s | None) -> tuple[Values, Bools | None]:
        try:
            return cast("tuple[Values, Bools | None]", step(totals, values))
        except StepError as error:
            raise StepError(error.index if at is None else int(at[error.index]), error.reason) from None

    def _put(self, slots: Slots, mask: Bools, values: Values) -> None:
        chosen = _chosen(slots, np.flatnonzero(mask))
        self.totals[chosen] = values
        self.known[chosen] = True

    @abstractmethod
    def combine(self, totals: Values, values: Values) -> tuple[Values, Bools | None]:
        """agg of two numbers."""

    @abstractmethod
    def take_back(self, totals: Values, values: Values) -> tuple[Values, Bools | None]:
        """retract of two numbers."""

    def retract_first(self, slots: Slots, mask: Bools, values: Values) -> None:
        """retract where there is no accumulator yet; a product stays NULL."""
        return

    @abstractmethod
    def array(self, values: Values, known: Bools) -> pa.Array:
        """Accumulators as a column."""


class _Plain(_Number):
    """Values that numpy has a type for, in a column of `arrow_type`."""

    def __init__(self, groups: int, column: pa.Array, aggregate: Aggregate) -> None:
        self.arrow_type = column.type
        self.type = aggregate.type
        self.dtype = column[:0].to_numpy(zero_copy_only=False).dtype  # to_pandas_dtype may need pandas
        super().__init__(groups, self.widened(fixed_width(column, self.dtype)), valid_of(column))

    def widened(self, values: Values) -> Values:
        return values

    def array(self, values: Values, known: Bools) -> pa.Array:
        return pa.array(values.astype(self.dtype, copy=False), self.arrow_type, mask=None if known.all() else ~known)


class _Integer(_Plain):
    def widened(self, values: Values) -> Values:
        return values.astype(np.int64, copy=False)

    def _fitting(self, results: Int64s, wrapped: Bools | None = None) -> Int64s:
        wrong = wrapped
        if self.dtype.itemsize < 8:
            limits = np.iinfo(self.dtype)
            wrong = (results < limits.min) | (results > limits.max)
        if wrong is not None and wrong.any():
            raise StepError(int(np.flatnonzero(wrong)[0]), f"goes beyond {self.type.root}; give the column a wider type")
        return results


class _IntegerSum(_Integer):
    def combine(self, totals: Values, values: Values) -> tuple[Values, Bools | None]:
        results = totals + values
        return self._fitting(results, ((totals ^ results) & (values ^ results)) < 0), None

    def take_back(self, totals: Values, values: Values) -> tuple[Values, Bools | None]:
        results = totals - values
        return self._fitting(results, ((totals ^ values) & (totals ^ results)) < 0), None

    def accumulated(self, values: Values, retracts: Bools) -> Values | None:
        limits = np.iinfo(self.dtype)
        totals = _running_sums(values, retracts)
        return None if totals is None or (totals < limits.min).any() or (totals > limits.max).any() else totals

    def retract_first(self, slots: Slots, mask: Bools, values: Values) -> None:
        zeros = np.zeros(len(values), np.int64)
        self._put(slots, mask, self._exact(self.take_back, zeros, values, np.flatnonzero(mask))[0])


class _IntegerProduct(_Integer):
    def combine(self, totals: Values, values: Values) -> tuple[Values, Bools | None]:
        results = totals * values
        if self.dtype.itemsize < 8:
            return self._fitting(results), None
        wrapped = np.abs(totals.astype(np.float64) * values.astype(np.float64)) >= _EXACT_DOUBLES
        close = np.flatnonzero(wrapped)
        wrapped[close] = (totals[close].astype(object) * values[close].astype(object) != results[close]).astype(np.bool_)
        return self._fitting(results, wrapped), None

    def take_back(self, totals: Values, values: Values) -> tuple[Values, Bools | None]:
        _check_divisors(values)
        wrapped = (values == -1) & (totals == np.iinfo(np.int64).min)
        divisors = np.where(wrapped, 1, values)
        results = totals // divisors
        results += (results * divisors != totals) & ((totals < 0) != (divisors < 0))
        return self._fitting(results, wrapped), None


class _FloatSum(_Plain):
    def combine(self, totals: Values, values: Values) -> tuple[Values, Bools | None]:
        with np.errstate(all="ignore"):
            return totals + values, None

    def take_back(self, totals: Values, values: Values) -> tuple[Values, Bools | None]:
        with np.errstate(all="ignore"):
            return totals - values, None

    def accumulated(self, values: Values, retracts: Bools) -> Values | None:
        with np.errstate(all="ignore"):
            return np.add.accumulate(np.where(retracts, -values, values))

    def retract_first(self, slots: Slots, mask: Bools, values: Values) -> None:
        self._put(slots, mask, -values)


class _FloatProduct(_Plain):
    def accumulated(self, values: Values, retracts: Bools) -> Values | None:
        with np.errstate(all="ignore"):
            return None if retracts.any() else np.multiply.accumulate(values)

    def combine(self, totals: Values, values: Values) -> tuple[Values, Bools | None]:
        with np.errstate(all="ignore"):
            return totals * values, None

    def take_back(self, totals: Values, values: Values) -> tuple[Values, Bools | None]:
        with np.errstate(all="ignore"):
            return totals / values, None


class _Decimal(_Number):
    """Unscaled values; `words` are (low half, high half) of each, as Arrow has them."""

    def __init__(self, groups: int, column: pa.Array, aggregate: Aggregate) -> None:
        self.arrow_type = column.type
        self.precision, self.scale = aggregate.type.precision, aggregate.type.scale
        super().__init__(groups, self.unscaled(decimal_halves(column)), valid_of(column))

    @abstractmethod
    def unscaled(self, words: Int64s) -> Values:
        """The accumulators' form of values."""

    @abstractmethod
    def words(self, values: Values) -> Int64s:
        """Back from it."""

    def array(self, values: Values, known: Bools) -> pa.Array:
        validity = None if known.all() else pa.py_buffer(np.packbits(known, bitorder="little"))
        return pa.Array.from_buffers(self.arrow_type, len(values), [validity, pa.py_buffer(np.ascontiguousarray(self.words(values)))])


class _ShortDecimalSum(_Decimal):
    def unscaled(self, words: Int64s) -> Values:
        return np.ascontiguousarray(words[:, 0])

    def words(self, values: Values) -> Int64s:
        return np.stack([values, values >> 63], axis=1)

    def accumulated(self, values: Values, retracts: Bools) -> Values | None:
        return _running_sums(values, retracts)

    def combine(self, totals: Values, values: Values) -> tuple[Values, Bools | None]:
        results = totals + values
        return results, _unless(((totals ^ results) & (values ^ results)) < 0)

    def take_back(self, totals: Values, values: Values) -> tuple[Values, Bools | None]:
        results = totals - values
        return results, _unless(((totals ^ values) & (totals ^ results)) < 0)

    def retract_first(self, slots: Slots, mask: Bools, values: Values) -> None:
        self._put(slots, mask, -values)


class _LongDecimalSum(_Decimal):
    """The two words of each value stay as they are; additions carry."""

    def unscaled(self, words: Int64s) -> Values:
        return words

    def words(self, values: Values) -> Int64s:
        return values

    def accumulated(self, values: Values, retracts: Bools) -> Values | None:
        numbers = _integers(values)
        totals = np.add.accumulate(np.where(retracts, -numbers, numbers))
        return None if (np.abs(totals) >= 10**self.precision).any() else _words_of(totals[-1:])

    def combine(self, totals: Values, values: Values) -> tuple[Values, Bools | None]:
        results = _added(totals, values)
        wrapped = ((totals[:, 1] ^ results[:, 1]) & (values[:, 1] ^ results[:, 1])) < 0
        return results, _unless(wrapped | self._is_too_wide(results))

    def take_back(self, totals: Values, values: Values) -> tuple[Values, Bools | None]:
        return self.combine(totals, _negated(values))

    def retract_first(self, slots: Slots, mask: Bools, values: Values) -> None:
        self._put(slots, mask, _negated(values))

    def _is_too_wide(self, values: Int64s) -> Bools:
        negative = values[:, 1] < 0
        sizes = np.where(negative[:, None], _negated(values), values)
        limit = 10**self.precision
        high, low = np.int64(limit >> 64), np.uint64(limit & _LOW)
        wide: Bools = (sizes[:, 1] > high) | ((sizes[:, 1] == high) & (sizes[:, 0].view(np.uint64) >= low))
        return wide


class _DecimalProduct(_Decimal):
    """Python's integers, as intermediate results may have 76 digits and quotients any number; numpy loops over them."""

    def unscaled(self, words: Int64s) -> Values:
        return _integers(words)

    def words(self, values: Values) -> Int64s:
        return _words_of(values)

    def combine(self, totals: Values, values: Values) -> tuple[Values, Bools | None]:
        return self._rounded(totals * values, np.full(len(totals), 10**self.scale, object))

    def take_back(self, totals: Values, values: Values) -> tuple[Values, Bools | None]:
        _check_divisors(values)
        for index, (total, value) in enumerate(zip(totals, values, strict=True)):
            rest = abs(value) // math.gcd(total, value)
            if pow(10, rest.bit_length(), rest):
                raise StepError(
                    index, "cannot take back a factor: the decimal expansion of the quotient does not end; make the column a DOUBLE"
                )
        return self._rounded(totals * 10**self.scale, values)

    def _rounded(self, dividends: Values, divisors: Values) -> tuple[Values, Bools | None]:
        """Quotients, half up (away from zero), without those of more digits than the column has."""
        sizes, parts = np.abs(dividends), np.abs(divisors)
        results = (2 * sizes + parts) // (2 * parts)
        fits = (results < 10**self.precision).astype(np.bool_)
        negative = ((dividends < 0) != (divisors < 0)).astype(np.bool_)
        results[negative] = -results[negative]
        return np.where(fits, results, 0), _unless(~fits)


def fold(aggregate: Aggregate, values: pa.Array, records: Records) -> Folded:
    """The total of each group."""
    sources = len(values) + np.arange(len(records))
    form = _form(aggregate)
    if form is _DecimalProduct:  # only what is needed becomes Python's integers
        values, records = pc.take(values, pa.array(records.rows)), replace(records, rows=np.arange(len(records.rows)))
    number = form(len(records), values, aggregate)
    slot_of = fold_by_rank(records, number)
    return Folded(sources, number.array(number.totals[slot_of], number.known[slot_of]))


def _form(aggregate: Aggregate) -> type[_Plain] | type[_Decimal]:
    is_sum = aggregate.name == "sum"
    if aggregate.type.root is TypeRoot.DECIMAL:
        if not is_sum:
            return _DecimalProduct
        return _ShortDecimalSum if aggregate.type.precision <= 18 else _LongDecimalSum
    if aggregate.type.root in FLOATS:
        return _FloatSum if is_sum else _FloatProduct
    return _IntegerSum if is_sum else _IntegerProduct


def _chosen(slots: Slots, at: Int64s) -> Int64s:
    """Some of the slots."""
    return at + slots.start if isinstance(slots, slice) else slots[at]


def _unless(wrong: Bools) -> Bools | None:
    return ~wrong if wrong.any() else None


def _running_sums(values: Int64s, retracts: Bools) -> Int64s | None:
    """The sums after each value, those that retract taken away; None where an int64 cannot hold one of them."""
    if (retracts & (values == np.iinfo(np.int64).min)).any():
        return None
    terms = np.where(retracts, -values, values)
    sums = np.cumsum(terms)
    before = sums - terms
    return None if (((before ^ sums) & (terms ^ sums)) < 0).any() else sums


def _check_divisors(values: Values) -> None:
    zero = np.flatnonzero(values == 0)
    if len(zero):
        raise StepError(int(zero[0]), "cannot take back a factor of 0; fields.<column>.ignore-retract = true leaves the value as it is")


def _integers(words: Int64s) -> Values:
    """Both words of each value as one of Python's integers."""
    return cast(Values, words[:, 1].astype(object) * (1 << 64) + words[:, 0].view(np.uint64).astype(object))


def _words_of(integers: Values) -> Int64s:
    low = np.array([int(value) & _LOW for value in integers], np.uint64).view(np.int64)
    return np.stack([low, np.array([int(value) >> 64 for value in integers], np.int64)], axis=1)


def _added(a: Int64s, b: Int64s) -> Int64s:
    low = a[:, 0].view(np.uint64) + b[:, 0].view(np.uint64)
    carry = low < a[:, 0].view(np.uint64)
    return np.stack([low.view(np.int64), a[:, 1] + b[:, 1] + carry], axis=1)


def _negated(values: Int64s) -> Int64s:
    low = -values[:, 0]
    return np.stack([low, ~values[:, 1] + (low == 0)], axis=1)
