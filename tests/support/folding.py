"""Folding groups of values with an aggregate function, and what the plain model makes of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from maintainer.data.arrow_types import to_arrow
from maintainer.errors import MergeError
from maintainer.merge.aggregate import Records, Verdict, fold
from maintainer.model.schema import TableSchema
from maintainer.model.types import DataField, DataType
from maintainer.table.aggregates import Aggregate, named_aggregate
from tests.support.merge_model import Refused, function_of

Group = Sequence[tuple[Verdict, Any]]


def aggregate(name: str, data_type: DataType, options: Mapping[str, str] | None = None) -> Aggregate:
    """The function on a column f of this type; options are those of the column, without `fields.f.`."""
    return named_aggregate(TableSchema(0, (DataField(0, "f", data_type),), 0, options=_full(options)), "f", name)


def folded(name: str, data_type: DataType, groups: Sequence[Group], options: Mapping[str, str] | None = None) -> list[Any]:
    """The values of the groups, as `to_pylist` gives them; the key of the n-th group is "#n"."""
    flat = [step for group in groups for step in group]
    # rows of other groups, and an offset, as a column of a window has them; records point backwards into it
    arrow_type = to_arrow(data_type)
    backwards = [value for _, value in reversed(flat)]
    values = pa.chunked_array([pa.array([None, *backwards], arrow_type).slice(1), pa.array([None], arrow_type)])
    starts = np.cumsum([0, *map(len, groups)])[:-1].astype(np.int64)
    records = Records(
        rows=np.arange(len(flat), dtype=np.int64)[::-1].copy(),
        starts=starts,
        verdicts=np.array([verdict for verdict, _ in flat], np.int8),
        key=lambda group: f"#{group}",
    )
    result = fold(aggregate(name, data_type, options), values, records)
    result.validate()
    assert result.type == arrow_type
    return list(result.to_pylist())


def modelled(name: str, data_type: DataType, group: Group, options: Mapping[str, str] | None = None) -> Any:
    """What the plain model makes of one group; `Refused` where it has no result."""
    function = function_of(_full(options), DataField(0, "f", data_type), name)
    acc = None
    for verdict, value in group:
        match verdict:
            case Verdict.APPLY:
                acc = function.agg(acc, value)
            case Verdict.REVERSED:
                acc = function.agg_reversed(acc, value)
            case Verdict.RETRACT:
                acc = function.retract(acc, value)
            case Verdict.REPLACE:
                acc = value
    return acc


def check(name: str, data_type: DataType, groups: Sequence[Group], options: Mapping[str, str] | None = None) -> None:
    """Both agree on all groups; where the model refuses some, the error names one of them, and the others agree without it."""
    expected, refused = {}, set()
    for number, group in enumerate(groups):
        try:
            expected[number] = modelled(name, data_type, group, options)
        except Refused:
            refused.add(f"#{number}")
    if refused:
        try:
            found = folded(name, data_type, groups, options)
        except MergeError as error:
            assert any(f"key {key}," in str(error) for key in refused), f"{error} where {refused} are refused"
            assert "field f" in str(error)
        else:
            raise AssertionError(f"{found} where {refused} are refused")
    found = folded(name, data_type, [groups[number] for number in expected], options)
    assert [alike(value) for value in found] == [alike(value) for value in expected.values()]


def alike(value: Any) -> Any:
    """Equal for values that are the same: NaN is, −0.0 and 0.0 are not."""
    match value:
        case float():
            return repr(value)
        case Decimal():
            return ("decimal", value)
        case list() | tuple():
            return [alike(part) for part in value]
        case dict():
            return {name: alike(part) for name, part in value.items()}
    return value


def _full(options: Mapping[str, str] | None) -> dict[str, str]:
    return {f"fields.f.{key}": value for key, value in (options or {}).items()}
