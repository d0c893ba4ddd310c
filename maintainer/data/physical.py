"""What a data file may hold for a type, brought to the type's own Arrow form (spec 02 §3.4; most of it occurs in Parquet files only).

Java, pypaimon, pypaimon-rust and older versions of each write the same values in different physical forms, and Arrow adds its own when a
file carries an Arrow schema. What is accepted, besides the form that we write:

| type              | forms                                                                            |
| ----------------- | -------------------------------------------------------------------------------- |
| integers          | wider or narrower integers whose values fit                                      |
| FLOAT, DOUBLE     | the other one                                                                    |
| DECIMAL           | another precision or scale if the values fit; integers without annotation: unscaled |
| CHAR …, BINARY …  | each other, large, view, fixed size; text must be UTF-8                          |
| DATE, TIME        | bare INT32; TIME also in micro- or nanoseconds                                   |
| TIMESTAMP, LTZ    | INT96; any unit, with or without UTC flag; bare INT64: in the unit of the type   |
| ARRAY, VECTOR     | list, large list, fixed-size list                                                |
| any               | dictionaries of these                                                            |

A column whose type was changed is brought to its old type first, and then cast (`maintainer.data.casts`).

Excess digits of a timestamp are cut, towards the past. A value that the Arrow form cannot hold is an error, never another value.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from maintainer.data import int96
from maintainer.data.arrow_types import to_arrow
from maintainer.data.casts import cast
from maintainer.data.evolution import keeps_values, members, same_shape
from maintainer.errors import CorruptFile, Unsupported
from maintainer.model.types import BINARIES, CHARACTERS, FLOATS, INTEGERS, TIMESTAMPS, DataType, TypeRoot

_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


def conform(array: pa.Array, source: DataType, target: DataType, zone: str = "UTC") -> pa.Array:
    """The values of a file's column of type `source` as those of the read schema's type `target`; the zone is that of the session."""
    if not _goes_together(source, target) and not keeps_values(source, target):
        return cast(conform(array, source, source), source, target, zone)
    arrow = to_arrow(target)
    if array.type != arrow or not same_shape(source, target):
        try:
            array = _convert(array, source, target, arrow, zone)
        except pa.ArrowInvalid as error:
            raise CorruptFile(f"a value is no {target.sql()}: {error}") from error
    if target.root is TypeRoot.VECTOR:
        _check_vectors(array, target.length)
    return array


def kept_form(source: DataType, target: DataType) -> pa.DataType | None:
    """The Arrow form in which `conform` leaves the values of a column as they are, if there is one."""
    keeps = _goes_together(source, target) or keeps_values(source, target)
    return to_arrow(target) if keeps and same_shape(source, target) and target.root is not TypeRoot.VECTOR else None


def _goes_together(source: DataType, target: DataType) -> bool:
    """Collections of one kind: what is inside is converted."""
    return source.root is target.root and (source.element is not None or source.root in (TypeRoot.ROW, TypeRoot.VARIANT))


def _convert(array: pa.Array, source: DataType, target: DataType, arrow: pa.DataType, zone: str) -> pa.Array:
    match target.root:
        case TypeRoot.ROW | TypeRoot.VARIANT:
            return _row(array, source, target, arrow, zone)
        case TypeRoot.ARRAY | TypeRoot.VECTOR:
            return _list(array, source, target, arrow, zone)
        case TypeRoot.MAP | TypeRoot.MULTISET:
            return _map(array, source, target, arrow, zone)
        case _:
            return _scalar(array, target, arrow)


def _row(array: pa.Array, source: DataType, target: DataType, arrow: pa.StructType, zone: str) -> pa.Array:
    if not pa.types.is_struct(array.type):
        raise _mismatch(array, target)
    given = array.flatten()  # what lies under a NULL is NULL: it may be no value of its type
    children = []
    if target.root is TypeRoot.VARIANT:
        if array.type.get_field_index("typed_value") >= 0:
            raise Unsupported("the variants of this file are shredded, which is not read yet")
        for name in ("value", "metadata"):
            index = array.type.get_field_index(name)
            if index < 0:
                raise _mismatch(array, target)
            children.append(given[index].cast(pa.binary()))
    for field, old in members(source, target):
        index = -1 if old is None else array.type.get_field_index(old.name)
        if old is None or index < 0:
            children.append(pa.nulls(len(array), to_arrow(field.type)))
        else:
            children.append(conform(given[index], old.type, field.type, zone))
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays(children, fields=list(arrow), mask=mask)


def _list(array: pa.Array, source: DataType, target: DataType, arrow: pa.ListType, zone: str) -> pa.Array:
    if pa.types.is_fixed_size_list(array.type):
        if target.root is TypeRoot.VECTOR and array.type.list_size != target.length:
            raise CorruptFile(f"a vector of {array.type.list_size} elements, the type says {target.length}")
        array = array.cast(pa.list_(array.type.value_field))
    elif pa.types.is_large_list(array.type):
        array = array.cast(pa.list_(array.type.value_field))
    elif not pa.types.is_list(array.type):
        raise _mismatch(array, target)
    assert source.element is not None
    assert target.element is not None
    values = conform(array.values, source.element, target.element, zone)
    return pa.Array.from_buffers(arrow, len(array), array.buffers()[:2], array.null_count, array.offset, [values])


def _map(array: pa.Array, source: DataType, target: DataType, arrow: pa.MapType, zone: str) -> pa.Array:
    if not pa.types.is_map(array.type):
        raise _mismatch(array, target)
    assert source.element is not None
    assert target.element is not None
    if target.root is TypeRoot.MAP:
        assert source.key is not None
        assert target.key is not None
        keys = conform(array.keys, source.key, target.key)
        items = conform(array.items, source.element, target.element, zone)
    else:
        count = DataType(TypeRoot.INT)
        keys = conform(array.keys, source.element, target.element)
        items = conform(array.items, count, count)
    entries = pa.StructArray.from_arrays([keys, items], fields=[arrow.key_field, arrow.item_field])
    return pa.Array.from_buffers(arrow, len(array), array.buffers()[:2], array.null_count, array.offset, [entries])


def _scalar(array: pa.Array, target: DataType, arrow: pa.DataType) -> pa.Array:
    found = array.type
    if pa.types.is_dictionary(found):
        array = array.dictionary_decode()
        found = array.type
    if found == arrow:
        return array
    root, types = target.root, pa.types
    if root in TIMESTAMPS:
        if types.is_timestamp(found) or types.is_int64(found):
            return _timestamp(array, arrow)
        if found == int96.RAW:
            return int96.timestamps(array, arrow)
    elif root is TypeRoot.DECIMAL:
        if types.is_decimal(found):
            return array.cast(arrow)
        if types.is_integer(found):
            return _unscaled(array, arrow)
    elif (
        (root in INTEGERS and types.is_integer(found))
        or (root in FLOATS and types.is_floating(found))
        or (_is_bytes(target) and _holds_bytes(found))
        or (root is TypeRoot.DATE and types.is_int32(found))
        or (root is TypeRoot.TIME and (types.is_time(found) or types.is_int32(found)))
    ):
        return array.cast(arrow, safe=root is not TypeRoot.TIME)
    raise _mismatch(array, target)


def _is_bytes(data_type: DataType) -> bool:
    return data_type.root in CHARACTERS or data_type.root in BINARIES or data_type.root in (TypeRoot.GEOMETRY, TypeRoot.GEOGRAPHY)


def _holds_bytes(found: pa.DataType) -> bool:
    types = pa.types
    tests = (types.is_string, types.is_large_string, types.is_string_view, types.is_binary, types.is_large_binary, types.is_binary_view)
    return types.is_fixed_size_binary(found) or any(test(found) for test in tests)


def _timestamp(array: pa.Array, arrow: pa.TimestampType) -> pa.Array:
    """Another unit or zone flag: the stored number counts, never a zone."""
    unit = array.type.unit if pa.types.is_timestamp(array.type) else arrow.unit
    numbers = array.view(pa.int64())
    old, new = _PER_SECOND[unit], _PER_SECOND[arrow.unit]
    if new > old:
        try:
            numbers = pc.multiply_checked(numbers, new // old)
        except pa.ArrowInvalid as error:
            raise Unsupported(int96.OUT_OF_RANGE) from error
    elif new < old:
        cut = np.floor_divide(numbers.fill_null(0).to_numpy(zero_copy_only=False), old // new)
        numbers = pa.array(cut, pa.int64(), mask=np.asarray(array.is_null()) if array.null_count else None)
    return numbers.view(arrow)


def _unscaled(array: pa.Array, arrow: pa.Decimal128Type) -> pa.Array:
    """Integers that are the digits of decimals: widened to 128 bits."""
    low = array.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    words = np.column_stack([low, low >> 63])
    decimals = pa.Array.from_buffers(pa.decimal128(38, arrow.scale), len(array), [None, pa.py_buffer(np.ascontiguousarray(words))])
    if array.null_count:
        decimals = pc.if_else(array.is_valid(), decimals, pa.scalar(None, decimals.type))
    return decimals.cast(arrow)


def _check_vectors(array: pa.Array, length: int) -> None:
    lengths = pc.min_max(pc.list_value_length(array)).as_py()
    for found in (lengths["min"], lengths["max"]):
        if found is not None and found != length:
            raise CorruptFile(f"a vector of {found} elements, the type says {length}")
    if array.flatten().null_count:
        raise CorruptFile("a vector with a NULL element")


def _mismatch(array: Any, target: DataType) -> CorruptFile:
    return CorruptFile(f"the file holds {array.type}, the schema says {target.sql()}")
