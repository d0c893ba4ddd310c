"""Evaluating a predicate on rows, the way Paimon's Java reader does (spec 07 §4.4, §9; Java `org.apache.paimon.predicate.*`).

Every scan ends here: indexes and statistics only remove rows that this would remove, too. Arrow's kernels differ from Java's `compareTo` in
one point, floating numbers (Java: −0.0 < 0.0, NaN = NaN and above all), so these are compared as integers that sort like Java; text and
bytes compare by unsigned bytes in both.

A leaf is true, false or NULL per row (NULL: the value, or the literal, is NULL); a row is selected when the whole predicate is true. A
negated leaf swaps true and false and keeps NULL; for arrays this follows SQL: an element that is not found among elements of which one is NULL
is neither contained nor not contained.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from maintainer.data.values import to_arrow_array
from maintainer.model.like import reduced, regular_expression
from maintainer.model.predicate import And, Leaf, Op, Predicate
from maintainer.model.schema import TableSchema
from maintainer.model.types import FLOATS, TIMESTAMPS, DataType, TypeRoot
from maintainer.model.values import float_order

Mask = npt.NDArray[np.bool_]

_NAN_ORDER = 0x7FF8000000000000
_MAGNITUDE = 0x7FFFFFFFFFFFFFFF
_COMPARISONS = {Op.EQ: pc.equal, Op.NE: pc.not_equal, Op.LT: pc.less, Op.LE: pc.less_equal, Op.GT: pc.greater, Op.GE: pc.greater_equal}


def evaluate(predicate: Predicate, table: pa.Table | pa.RecordBatch, schema: TableSchema) -> pa.BooleanArray:
    """Which rows of `table` the predicate selects; no nulls. The table's columns are those of `schema`, at least the ones that are tested."""
    return pa.array(mask(predicate, table, schema))


def mask(predicate: Predicate, table: pa.Table | pa.RecordBatch, schema: TableSchema) -> Mask:
    """As `evaluate`, as a numpy array."""
    if isinstance(table, pa.RecordBatch):
        return _mask(predicate, table, schema)
    parts = [_mask(predicate, batch, schema) for batch in table.to_batches()]
    return np.concatenate(parts) if parts else np.zeros(0, dtype=bool)


def _mask(predicate: Predicate, batch: pa.RecordBatch, schema: TableSchema) -> Mask:
    if isinstance(predicate, Leaf):
        found = _leaf(predicate, batch.column(predicate.field), schema.field(predicate.field).type)
        return np.asarray(pc.fill_null(found, False).to_numpy(zero_copy_only=False))
    conjunction = isinstance(predicate, And)
    result = np.full(batch.num_rows, conjunction)
    for child in predicate.children:
        if result.any() if conjunction else not result.all():  # else nothing can change any more
            part = _mask(child, batch, schema)
            result = result & part if conjunction else result | part
    return result


def _leaf(leaf: Leaf, array: pa.Array, data_type: DataType) -> pa.BooleanArray:
    """True, false or null per row."""
    leaf = reduced(leaf)
    if leaf.op == Op.IS_NULL:
        return array.is_null()
    if leaf.op == Op.IS_NOT_NULL:
        return array.is_valid()
    if leaf.op in (Op.ARRAY_CONTAINS, Op.ARRAYS_OVERLAP, Op.ARRAY_CONTAINS_ALL):
        found = _array_function(leaf, array, data_type)
    elif leaf.op == Op.IS_NAN:
        found = pc.is_nan(array)
    else:
        found = _scalar_function(leaf, comparable(array, data_type), data_type)
    return pc.invert(found) if leaf.negated else found


def _scalar_function(leaf: Leaf, array: pa.Array, data_type: DataType) -> pa.BooleanArray:
    match leaf.op:
        case Op.IN | Op.NOT_IN:
            values = [literal for literal in leaf.literals if literal is not None]
            if leaf.op == Op.NOT_IN and len(values) < len(leaf.literals):
                return pa.nulls(len(array), pa.bool_())
            inside = pc.is_in(array, value_set=_comparable_literals(values, array.type, data_type))
            return pc.and_(inside if leaf.op == Op.IN else pc.invert(inside), array.is_valid())
        case _ if None in leaf.literals:
            return pa.nulls(len(array), pa.bool_())
        case Op.BETWEEN | Op.NOT_BETWEEN:
            low, high = _comparable_literals(leaf.literals, array.type, data_type)
            if leaf.op == Op.BETWEEN:
                return pc.and_(pc.greater_equal(array, low), pc.less_equal(array, high))
            return pc.or_(pc.less(array, low), pc.greater(array, high))
        case Op.STARTS_WITH:
            return pc.starts_with(array, leaf.literal)
        case Op.ENDS_WITH:
            return pc.ends_with(array, leaf.literal)
        case Op.CONTAINS:
            return pc.match_substring(array, leaf.literal)
        case Op.LIKE:
            return pc.match_substring_regex(array, regular_expression(leaf.literal))
        case _:
            return _COMPARISONS[leaf.op](array, _comparable_literals(leaf.literals, array.type, data_type)[0])


def _array_function(leaf: Leaf, array: pa.Array, data_type: DataType) -> pa.BooleanArray:
    """Membership of elements. An array that is NULL gives NULL."""
    assert data_type.element is not None
    elements = comparable(array.flatten(), data_type.element)
    parents = np.asarray(pc.list_parent_indices(array))
    literals = [literal for literal in leaf.literals if literal is not None]
    wanted = _comparable_literals(literals, elements.type, data_type.element).unique()
    null_literal = len(literals) < len(leaf.literals)
    # (array, literal) pairs that were found, each once
    indices = pc.index_in(elements, value_set=wanted)
    hits = np.asarray(indices.is_valid())
    pairs = np.unique(parents[hits].astype(np.int64) * max(len(wanted), 1) + np.asarray(indices.drop_null()))
    found = np.bincount(pairs // max(len(wanted), 1), minlength=len(array))
    null_element = np.zeros(len(array), dtype=bool)
    null_element[parents[np.asarray(elements.is_null())]] = True
    if leaf.op == Op.ARRAY_CONTAINS_ALL:
        true = (found == len(wanted)) & (not null_literal)
        false = (found < len(wanted)) & ~null_element
    else:
        true = found > 0
        empty = np.bincount(parents, minlength=len(array)) == 0
        uncertain = null_element | null_literal
        if leaf.op == Op.ARRAYS_OVERLAP:
            uncertain &= ~empty & bool(leaf.literals)
        false = ~true & ~uncertain
    return pa.array(true, mask=~(true | false) | np.asarray(array.is_null()))


def comparable(array: pa.Array, data_type: DataType) -> pa.Array:
    """The array in a form whose Arrow order is Paimon's: floats as ordered integers, times as integers of their unit, booleans as 0 and 1."""
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    root = data_type.root
    if root in FLOATS:
        bits = array.cast(pa.float64()).to_numpy(zero_copy_only=False).view(np.int64)
        order = np.where(bits < 0, bits ^ _MAGNITUDE, bits)
        order[np.asarray(pc.fill_null(pc.is_nan(array), False))] = _NAN_ORDER
        return pa.array(order, mask=np.asarray(array.is_null()))
    if root == TypeRoot.BOOLEAN:
        return array.cast(pa.uint8())
    if root == TypeRoot.DATE:
        return array.cast(pa.int32())
    if root == TypeRoot.TIME:
        return array.cast(pa.time32("ms")).cast(pa.int32())
    if root in TIMESTAMPS:
        return array.cast(to_arrow_array([], data_type).type).cast(pa.int64())
    if pa.types.is_fixed_size_binary(array.type):
        return array.cast(pa.binary())
    return array


def _comparable_literals(values: Sequence[Any], arrow_type: pa.DataType, data_type: DataType) -> pa.Array:
    """Internal values as an array of the type that `comparable` gives."""
    if data_type.root in FLOATS:
        return pa.array([float_order(value) for value in values], pa.int64())
    if data_type.root in TIMESTAMPS or data_type.root == TypeRoot.BOOLEAN:
        return comparable(to_arrow_array(values, data_type), data_type)
    return pa.array(values, arrow_type)
