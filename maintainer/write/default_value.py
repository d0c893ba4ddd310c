"""Default values of columns (spec 01 §4.3; Java `DefaultValueUtils`): a text in the schema, cast to the column's type by whoever writes.

Quotes around the text are taken off, as Java does for every type.
"""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from typing import Any

import pyarrow as pa

from maintainer.data.arrow_types import to_arrow
from maintainer.errors import Unsupported, UsageError
from maintainer.model.types import INTEGERS, NESTED, TIMESTAMPS, DataField, DataType, TypeRoot
from maintainer.write.casting import cast

_TRUE = frozenset({"t", "true", "y", "yes", "1"})
_EXACT = Context(prec=76)
_FALSE = frozenset({"f", "false", "n", "no", "0"})


def default_value(field: DataField) -> pa.Scalar | None:
    """The value that a missing or null value of this column becomes; None when the column has no default."""
    text = field.default_value
    if text is None:
        return None
    if field.type.root in NESTED:
        raise Unsupported(f"column {field.name!r}: default values of type {field.type} are not supported")
    if len(text) > 1 and text.startswith("'") and text.endswith("'"):
        text = text[1:-1]
    try:
        return _convert(text, field.type)
    except (UsageError, InvalidOperation, pa.ArrowInvalid):
        raise UsageError(f"column {field.name!r}: the default value {field.default_value!r} is no {field.type}") from None


def _convert(text: str, data_type: DataType) -> pa.Scalar:
    arrow_type = to_arrow(data_type)
    if data_type.root is TypeRoot.BOOLEAN:
        word = text.strip().lower()
        if word not in _TRUE | _FALSE:
            raise UsageError(text)
        return pa.scalar(word in _TRUE)
    if data_type.root is TypeRoot.DECIMAL:
        rounded = Decimal(text.strip()).quantize(Decimal(1).scaleb(-data_type.scale), ROUND_HALF_UP, _EXACT)
        return pa.scalar(rounded, arrow_type)
    return cast(pa.array([text]), arrow_type, "default")[0]


def zero_value(data_type: DataType) -> Any:
    """Any value of the type that is not null, as a Python object for Arrow."""
    match data_type.root:
        case TypeRoot.CHAR | TypeRoot.VARCHAR:
            return ""
        case TypeRoot.BOOLEAN:
            return False
        case TypeRoot.FLOAT | TypeRoot.DOUBLE:
            return 0.0
        case TypeRoot.DECIMAL:
            return Decimal(0)
        case TypeRoot.ARRAY | TypeRoot.MAP | TypeRoot.MULTISET:
            return []
        case TypeRoot.VECTOR:
            return [0] * data_type.length
        case TypeRoot.ROW:
            return {field.name: None if field.type.nullable else zero_value(field.type) for field in data_type.fields}
        case TypeRoot.VARIANT:
            return {"value": b"\x00", "metadata": b"\x01\x00\x00"}
        case root if root in INTEGERS | TIMESTAMPS | {TypeRoot.DATE, TypeRoot.TIME}:
            return 0
        case _:
            return b""
