"""Casting a column to the type of a table's column, without loss.

Arrow's safe cast does most of it. What it leaves out is added here: members of structs are matched by name, collections keep the names and
nullability that files need, integers and texts become decimals and times, and a number that would silently change (1.257 as DECIMAL(5, 2),
10³⁰⁰ as FLOAT, 2 as BOOLEAN) is an error.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from maintainer.errors import UsageError

_CANNOT = (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError)


def cast(array: pa.Array, target: pa.DataType, where: str) -> pa.Array:
    """The array as the target type; `where` is the column, and the path of the member inside it."""
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    source = array.type
    if source == target:
        return array
    if pa.types.is_null(source):
        return pa.nulls(len(array), target)
    try:
        if pa.types.is_nested(target):
            return _cast_nested(array, target, where)
        return _cast_scalar(array, target)
    except _CANNOT as error:
        what = source if pa.types.is_nested(target) else _first_that_cannot(array, target) or source
        raise UsageError(f"column {where!r}: cannot convert {what} to {target}: {error}") from None


def _first_that_cannot(array: pa.Array, target: pa.DataType) -> str | None:
    """The first value that cannot be cast; None when it is the type that cannot."""
    try:
        _cast_scalar(array.slice(0, 0), target)
    except _CANNOT:
        return None
    start, length = 0, len(array)
    while length > 1:
        half = length // 2
        try:
            _cast_scalar(array.slice(start, half), target)
        except _CANNOT:
            length = half
        else:
            start, length = start + half, length - half
    if _is_text(array.type):
        return repr(array[start].as_py())[:100]
    try:
        return str(array.slice(start, 1).cast(pa.string())[0].as_py())
    except _CANNOT:
        return None


def holds_forbidden_null(array: pa.Array, field: pa.Field) -> bool:
    """Whether a null stands where the field, or a member of it, is not nullable; what hides below a null does not count."""
    if array.null_count:
        if not field.nullable:
            return True
        if pa.types.is_nested(field.type):
            array = array.drop_null()
    data_type = field.type
    if pa.types.is_struct(data_type):
        return any(holds_forbidden_null(child, member) for child, member in zip(array.flatten(), data_type, strict=True))
    if pa.types.is_map(data_type):
        _, members = _parts(array)
        return any(
            holds_forbidden_null(child, member)
            for child, member in zip(members.flatten(), (data_type.key_field, data_type.item_field), strict=True)
        )
    if pa.types.is_list(data_type):
        return holds_forbidden_null(pc.list_flatten(array), data_type.value_field)
    return False


def _cast_scalar(array: pa.Array, target: pa.DataType) -> pa.Array:
    source = array.type
    if pa.types.is_boolean(target) and not _is_text(source):
        raise pa.ArrowTypeError("only booleans and texts can become a boolean")
    if pa.types.is_decimal(target) and pa.types.is_integer(source):
        return array.cast(pa.decimal128(20, 0)).cast(target)
    if pa.types.is_decimal(target) and _is_text(source):
        return array.cast(pa.decimal256(76, 38)).cast(target)
    if pa.types.is_time32(target) and _is_text(source):
        moments = pc.binary_join_element_wise("1970-01-01", array.cast(pa.string()), " ")
        return moments.cast(pa.timestamp("ns")).cast(pa.time64("ns")).cast(target)
    result = array.cast(target)
    if pa.types.is_floating(source):
        _refuse_changed_numbers(array, result, target)
    return result


def _refuse_changed_numbers(array: pa.Array, result: pa.Array, target: pa.DataType) -> None:
    """A decimal stands for a float when it is the float's own value in that notation: when reading it gives the float again."""
    if pa.types.is_decimal(target):
        # Arrow's way back to a float is off by a bit for one in seven amounts of money; its parser is exact.
        suspect = pc.not_equal(result.cast(pa.float64()), array.cast(pa.float64()))
        array, result = array.filter(suspect), result.filter(suspect)
        parsed = pa.float64() if pa.types.is_float16(array.type) else array.type
        changed = pc.not_equal(result.cast(pa.string()).cast(parsed), array.cast(parsed))
    elif pa.types.is_floating(target):
        changed = pc.and_(pc.is_inf(result), pc.invert(pc.is_inf(array)))
    else:
        return
    changed_numbers = array.filter(changed)
    if len(changed_numbers):
        raise pa.ArrowInvalid("the number would change its value")


def _cast_nested(array: pa.Array, target: pa.DataType, where: str) -> pa.Array:
    if pa.types.is_struct(target):
        if not pa.types.is_struct(array.type):
            raise pa.ArrowTypeError("not a struct")
        given = {field.name: child for field, child in zip(array.type, array.flatten(), strict=True)}
        unknown = given.keys() - {field.name for field in target}
        if unknown:
            raise pa.ArrowTypeError(f"the row type has no member {', '.join(map(repr, sorted(unknown)))}")
        children = [
            cast(given[field.name], field.type, f"{where}.{field.name}") if field.name in given else pa.nulls(len(array), field.type)
            for field in target
        ]
        return pa.StructArray.from_arrays(children, fields=list(target), mask=array.is_null())
    offsets, values = _parts(array)
    if pa.types.is_map(target):
        if not (pa.types.is_struct(values.type) and values.type.num_fields == 2):
            raise pa.ArrowTypeError("neither a map nor a list of key-value structs")
        keys, items = values.flatten()
        return pa.MapArray.from_arrays(
            offsets, cast(keys, target.key_type, f"{where}.key"), cast(items, target.item_type, f"{where}.value"), type=target
        )
    return pa.ListArray.from_arrays(offsets, cast(values, target.value_type, f"{where}.element"), type=target)


def _parts(array: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Any kind of list, or a map, as offsets (null where the collection is null) and the values that they count, back to back."""
    if pa.types.is_map(array.type):
        pair = pa.struct([array.type.key_field, array.type.item_field])
        array = array.cast(pa.list_(pair))
    lengths: Any = pc.list_value_length(array)  # an error for what is not a list
    missing = np.zeros(len(array) + 1, dtype=bool)
    missing[:-1] = array.is_null().to_numpy(zero_copy_only=False)
    offsets = np.zeros(len(array) + 1, dtype=np.int32)
    np.cumsum(lengths.fill_null(0).to_numpy(zero_copy_only=False), out=offsets[1:])
    return pa.array(offsets, mask=missing), pc.list_flatten(array)


def _is_text(data_type: pa.DataType) -> bool:
    return pa.types.is_string(data_type) or pa.types.is_large_string(data_type) or str(data_type) == "string_view"
