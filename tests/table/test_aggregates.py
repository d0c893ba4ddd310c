"""Which function a column has, and what is refused before anything is written (spec 05 §5, §6)."""

from __future__ import annotations

import re

import pytest

from maintainer.errors import UsageError
from maintainer.format.data_type import parse
from maintainer.model.schema import TableSchema
from maintainer.model.types import DataField, DataType, TypeRoot
from maintainer.table.aggregates import NullStrategy, aggregate_of, aggregation_functions

TYPES = {"k": "INT", "m": "MAP<INT, INT>", "ts": "STRING"}
MEMBERS = tuple(DataField(index, name, parse(text)) for index, (name, text) in enumerate(TYPES.items()))
ROW = DataType(TypeRoot.ROW, fields=MEMBERS)
COLUMNS = {
    "k": parse("INT NOT NULL"),
    "n": parse("BIGINT"),
    "t": parse("STRING"),
    "v": parse("VARCHAR(10)"),
    "b": parse("BINARY(4)"),
    "rows": DataType(TypeRoot.ARRAY, element=ROW),
    "map": DataType(TypeRoot.MAP, key=parse("STRING"), element=ROW),
    "short": DataType(TypeRoot.MAP, key=parse("STRING"), element=DataType(TypeRoot.ROW, fields=MEMBERS[:1])),
    "numbers": parse("ARRAY<INT>"),
}


def schema(**options: str) -> TableSchema:
    fields = tuple(DataField(index, name, data_type) for index, (name, data_type) in enumerate(COLUMNS.items()))
    return TableSchema(0, fields, 99, primary_keys=("k",), options=options)


def of(column: str, function: str, **options: str) -> TableSchema:
    given = {f"fields.{column}.{name.replace('_', '-')}": value for name, value in options.items()}
    return schema(**{f"fields.{column}.aggregate-function": function}, **given)


def test_sequence_fields_and_keys_go_before_what_is_configured() -> None:
    table = schema(
        **{"fields.default-aggregate-function": "last_value", "fields.n.aggregate-function": "sum", "fields.k.aggregate-function": "sum"}
    )
    functions = aggregation_functions(table, ["t"])
    assert {name: functions[name].name for name in ("k", "n", "t", "v")} == {
        "k": "primary-key",
        "n": "sum",
        "t": "last_value",
        "v": "last_value",
    }
    assert aggregate_of(schema(), "n").name == "last_non_null_value"


def test_every_option_of_a_function_is_read() -> None:
    found = aggregate_of(
        of(
            "rows",
            "nested_update",
            nested_key="k, ts",
            count_limit="7",
            nested_sequence_field="ts,k",
            nested_key_null_strategy="Ignore",
            ignore_retract="true",
        ),
        "rows",
    )
    assert (found.nested_key, found.count_limit, found.nested_sequence_field) == (("k", "ts"), 7, ("ts", "k"))
    assert (found.null_strategy, found.ignore_retract) == (NullStrategy.IGNORE, True)
    listagg = aggregate_of(of("t", "listagg", list_agg_delimiter=" ; ", distinct="true"), "t")
    assert (listagg.delimiter, listagg.distinct) == (" ; ", True)
    assert aggregate_of(of("map", "merge_map_with_keytime"), "map").ts_field == "ts"
    assert aggregate_of(of("n", "first_not_null_value"), "n").name == "first_non_null_value"


REFUSED = [
    (of("n", "summ"), "n", "option fields.n.aggregate-function = 'summ': this function is not known; did you mean sum?"),
    (of("n", "primary_key_"), "n", "this function is not known"),
    (of("t", "sum"), "t", "column t is STRING: the aggregate function sum takes numbers"),
    (of("n", "bool_and"), "n", "takes BOOLEAN"),
    (of("v", "listagg"), "v", "column v is VARCHAR(10): the aggregate function listagg takes STRING"),
    (of("b", "rbm32"), "b", "takes BYTES or VARBINARY"),
    (of("rows", "max"), "rows", "takes types with an order"),
    (of("numbers", "nested_update"), "numbers", "takes ARRAY of ROWs"),
    (of("short", "merge_map_with_keytime"), "short", "takes MAP of ROWs with at least two members"),
    (of("map", "merge_map_with_keytime", ts_field="when"), "map", "'when' is no member"),
    (of("map", "merge_map_with_keytime", ts_field="k"), "map", "this member is INT, and times are compared as texts"),
    (of("rows", "nested_update", nested_key="id"), "rows", "option fields.rows.nested-key: 'id' is no member"),
    (of("rows", "nested_update", nested_key="k", nested_sequence_field="m"), "rows", "whose values have no order"),
    (of("rows", "nested_update", nested_sequence_field="k"), "rows", "option fields.rows.nested-sequence-field needs fields.rows.nested-key"),
    (of("rows", "nested_update", nested_key_null_strategy="merge"), "rows", "needs fields.rows.nested-key"),
    (of("rows", "nested_partial_update"), "rows", "the aggregate function nested_partial_update of rows needs fields.rows.nested-key"),
    (of("rows", "nested_update", nested_key="k", nested_key_null_strategy="drop"), "rows", "must be merge, ignore or error"),
    (of("rows", "nested_update", count_limit="many"), "rows", "option fields.rows.count-limit = 'many'"),
    (of("n", "sum", ignore_retract="yes"), "n", "option fields.n.ignore-retract = 'yes'"),
]


@pytest.mark.parametrize(("table", "column", "message"), REFUSED, ids=[message for _, _, message in REFUSED])
def test_what_cannot_be_folded_is_refused_by_name(table: TableSchema, column: str, message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        aggregate_of(table, column)


def test_retracts_cannot_be_ignored_where_deletes_remove() -> None:
    table = schema(**{"aggregation.remove-record-on-delete": "true", "fields.n.ignore-retract": "true"})
    with pytest.raises(
        UsageError, match=re.escape("option fields.n.ignore-retract: cannot be combined with aggregation.remove-record-on-delete")
    ):
        aggregation_functions(table, ())
