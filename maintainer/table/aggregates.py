"""Which function folds the values of a column, with its options (spec 05 §5, §6; Java `FieldAggregatorFactory`, `CoreOptions`).

| option of a column f                 | means                                                         | of                                    |
| ------------------------------------ | ------------------------------------------------------------- | ------------------------------------- |
| `fields.f.aggregate-function`        | the function; `fields.default-…` of all others                |                                       |
| `fields.f.ignore-retract`            | −U and −D leave the column as it is                           | every function                        |
| `fields.f.distinct`                  | what is there already is not added                            | listagg, collect                      |
| `fields.f.list-agg-delimiter`        | between two texts; ","                                        | listagg                               |
| `fields.f.ts-field`                  | the member that says how new an entry is; the last one        | merge_map_with_keytime                |
| `fields.f.nested-key`                | the members that identify a row                               | nested_update, nested_partial_update  |
| `fields.f.nested-key-null-strategy`  | rows with a NULL in their key: merge, ignore, error           | nested_update, nested_partial_update  |
| `fields.f.nested-sequence-field`     | the members that say how new a row is                         | nested_update with a key              |
| `fields.f.count-limit`               | most rows                                                     | nested_update                         |

What cannot be folded is refused here, before anything is written: an unknown function, a type that it does not take, a member that is not
there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from enum import StrEnum

from maintainer.errors import UsageError
from maintainer.model.schema import TableSchema
from maintainer.model.types import CHARACTERS, FLOATS, INTEGERS, MAX_LENGTH, NESTED, DataType, TypeRoot
from maintainer.table.options import TableOptions

PRIMARY_KEY = "primary-key"
LAST_VALUE = "last_value"
LAST_NON_NULL_VALUE = "last_non_null_value"
_LEGACY = {"first_not_null_value": "first_non_null_value"}
_UNLIMITED = 2**31 - 1

_NUMERIC = INTEGERS | FLOATS | {TypeRoot.DECIMAL}
_NOT_ORDERED = NESTED | {TypeRoot.BLOB, TypeRoot.GEOMETRY, TypeRoot.GEOGRAPHY}
_ANY = frozenset(TypeRoot)
_BYTES = frozenset({TypeRoot.VARBINARY})
_TAKES: Mapping[str, tuple[frozenset[TypeRoot], str]] = {
    PRIMARY_KEY: (_ANY, ""),
    LAST_VALUE: (_ANY, ""),
    LAST_NON_NULL_VALUE: (_ANY, ""),
    "first_value": (_ANY, ""),
    "first_non_null_value": (_ANY, ""),
    "sum": (_NUMERIC, "numbers"),
    "product": (_NUMERIC, "numbers"),
    "max": (_ANY - _NOT_ORDERED, "types with an order"),
    "min": (_ANY - _NOT_ORDERED, "types with an order"),
    "bool_and": (frozenset({TypeRoot.BOOLEAN}), "BOOLEAN"),
    "bool_or": (frozenset({TypeRoot.BOOLEAN}), "BOOLEAN"),
    "listagg": (frozenset({TypeRoot.VARCHAR}), "STRING"),
    "collect": (frozenset({TypeRoot.ARRAY}), "ARRAY"),
    "merge_map": (frozenset({TypeRoot.MAP}), "MAP"),
    "merge_map_with_keytime": (frozenset({TypeRoot.MAP}), "MAP of ROWs with at least two members"),
    "nested_update": (frozenset({TypeRoot.ARRAY}), "ARRAY of ROWs"),
    "nested_partial_update": (frozenset({TypeRoot.ARRAY}), "ARRAY of ROWs"),
    "rbm32": (_BYTES, "BYTES or VARBINARY"),
    "rbm64": (_BYTES, "BYTES or VARBINARY"),
    "theta_sketch": (_BYTES, "BYTES or VARBINARY"),
    "hll_sketch": (_BYTES, "BYTES or VARBINARY"),
}


class NullStrategy(StrEnum):
    """What becomes of a nested row with a NULL in its key."""

    MERGE = "merge"
    IGNORE = "ignore"
    ERROR = "error"


@dataclass(frozen=True)
class Aggregate:
    """The function of one column; what does not concern it has its default."""

    column: str
    type: DataType
    name: str
    ignore_retract: bool = False
    distinct: bool = False
    delimiter: str = ","
    nested_key: tuple[str, ...] = ()
    count_limit: int = _UNLIMITED
    nested_sequence_field: tuple[str, ...] = ()
    null_strategy: NullStrategy = NullStrategy.MERGE
    ts_field: str = ""


def aggregation_functions(schema: TableSchema, sequence_fields: Sequence[str]) -> dict[str, Aggregate]:
    """The function of every column of a table of the aggregation engine."""
    functions = {field.name: aggregate_of(schema, field.name, sequence_fields) for field in schema.fields}
    options = TableOptions.of(schema)
    if options.boolean("aggregation.remove-record-on-delete", False):
        for name, function in functions.items():
            if function.ignore_retract:
                raise UsageError(
                    f"option fields.{name}.ignore-retract: cannot be combined with aggregation.remove-record-on-delete; unset one of them"
                )
    return functions


def aggregate_of(schema: TableSchema, column: str, sequence_fields: Sequence[str] = ()) -> Aggregate:
    """The function of a column by the rules of the aggregation engine (spec 05 §5)."""
    if column in sequence_fields:
        name = LAST_VALUE
    elif column in schema.primary_keys:
        name = PRIMARY_KEY
    else:
        name = configured_function(schema, column) or LAST_NON_NULL_VALUE
    return named_aggregate(schema, column, name)


def configured_function(schema: TableSchema, column: str) -> str | None:
    """The name that the options give, for this column or as the default of all."""
    options = TableOptions.of(schema)
    return options.text(_option(column, "aggregate-function")) or options.text("fields.default-aggregate-function") or None


def named_aggregate(schema: TableSchema, column: str, name: str) -> Aggregate:
    """This function on this column, with its options; `UsageError` when it does not go."""
    name = _LEGACY.get(name, name)
    data_type = schema.field(column).type
    if name not in _TAKES:
        meant = get_close_matches(name, _TAKES, n=1)
        hint = f"did you mean {meant[0]}?" if meant else f"there are {', '.join(sorted(_TAKES.keys() - {PRIMARY_KEY}))}"
        raise UsageError(f"option {_option(column, 'aggregate-function')} = {name!r}: this function is not known; {hint}")
    options = TableOptions.of(schema)
    aggregate = Aggregate(
        column=column,
        type=data_type,
        name=name,
        ignore_retract=options.boolean(_option(column, "ignore-retract"), False),
        distinct=options.boolean(_option(column, "distinct"), False),
        delimiter=options.get(_option(column, "list-agg-delimiter"), ","),
        nested_key=_names(options, _option(column, "nested-key")),
        count_limit=options.integer(_option(column, "count-limit"), _UNLIMITED),
        nested_sequence_field=_names(options, _option(column, "nested-sequence-field")),
        null_strategy=options.parse(_option(column, "nested-key-null-strategy"), _null_strategy, NullStrategy.MERGE),
        ts_field=options.text(_option(column, "ts-field")),
    )
    _check_type(aggregate)
    if name == "merge_map_with_keytime":
        return _with_ts_field(aggregate)
    if name in ("nested_update", "nested_partial_update"):
        _check_nested(aggregate, options)
    return aggregate


def _check_type(aggregate: Aggregate) -> None:
    roots, takes = _TAKES[aggregate.name]
    data_type = aggregate.type
    fits = data_type.root in roots
    if aggregate.name == "listagg":
        fits = fits and data_type.length == MAX_LENGTH
    elif aggregate.name.startswith("nested_"):
        fits = fits and data_type.element is not None and data_type.element.root is TypeRoot.ROW
    elif aggregate.name == "merge_map_with_keytime":
        fits = fits and data_type.element is not None and len(data_type.element.fields) >= 2
    if not fits:
        raise UsageError(
            f"column {aggregate.column} is {data_type}: the aggregate function {aggregate.name} takes {takes}; "
            f"choose another one with {_option(aggregate.column, 'aggregate-function')}"
        )


def _with_ts_field(aggregate: Aggregate) -> Aggregate:
    types = _members(aggregate)
    name = aggregate.ts_field or list(types)[-1]
    _check_members(aggregate, "ts-field", [name])
    if types[name].root not in CHARACTERS:
        where = f"option {_option(aggregate.column, 'ts-field')} = {name!r}"
        raise UsageError(f"{where}: this member is {types[name]}, and times are compared as texts; name one that is a STRING")
    return replace(aggregate, ts_field=name)


def _check_nested(aggregate: Aggregate, options: TableOptions) -> None:
    _check_members(aggregate, "nested-key", aggregate.nested_key)
    _check_members(aggregate, "nested-sequence-field", aggregate.nested_sequence_field)
    for name in aggregate.nested_sequence_field:
        if _members(aggregate)[name].root in _NOT_ORDERED:
            where = f"option {_option(aggregate.column, 'nested-sequence-field')}"
            raise UsageError(f"{where}: {name!r} is {_members(aggregate)[name]}, whose values have no order; name a number, a time or a text")
    if aggregate.nested_key:
        return
    needed = [name for name in ("nested-sequence-field", "nested-key-null-strategy") if _option(aggregate.column, name) in options]
    if aggregate.name == "nested_partial_update" or needed:
        who = f"option {_option(aggregate.column, needed[0])}" if needed else f"the aggregate function {aggregate.name} of {aggregate.column}"
        raise UsageError(f"{who} needs {_option(aggregate.column, 'nested-key')}: the members of the ROW that identify it")


def _members(aggregate: Aggregate) -> dict[str, DataType]:
    """The members of the ROWs in the column."""
    return {} if aggregate.type.element is None else {field.name: field.type for field in aggregate.type.element.fields}


def _check_members(aggregate: Aggregate, option: str, names: Sequence[str]) -> None:
    members = _members(aggregate)
    for name in names:
        if name not in members:
            where = f"option {_option(aggregate.column, option)}"
            raise UsageError(f"{where}: {name!r} is no member of {aggregate.type}; there are {', '.join(members)}")


def _option(column: str, name: str) -> str:
    return f"fields.{column}.{name}"


def _names(options: TableOptions, key: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in options.text(key).split(",") if name.strip())


def _null_strategy(text: str) -> NullStrategy:
    try:
        return NullStrategy(text.strip().lower())
    except ValueError:
        raise UsageError("must be merge, ignore or error") from None
