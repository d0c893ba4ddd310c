"""The plain model, and the engines, by the vectors of spec 05 §9, which Java gave: a model that is wrong would prove nothing."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from maintainer.errors import MergeError
from maintainer.format.data_type import parse
from maintainer.model.types import DataField, DataType, TypeRoot
from tests.merge.test_engines import merged
from tests.support.merge_model import Record, Refused, merge

MEMBERS = tuple(DataField(index, name, parse("INT")) for index, name in enumerate("kvs"))
ROWS = DataType(TypeRoot.ARRAY, element=DataType(TypeRoot.ROW, fields=MEMBERS))


def outcome(options: dict[str, str], columns: str, *records: tuple[str, int, list[Any]]) -> tuple[str, int, list[Any]] | str:
    fields = []
    for index, text in enumerate(columns.split(";")):
        name, _, data_type = text.strip().partition(" ")
        fields.append(DataField(index, name, ROWS if data_type == "ROWS" else parse(data_type)))
    group = [Record(kind, sequence, tuple(values), age=age) for age, (kind, sequence, values) in enumerate(records)]
    try:
        found = merge(options, fields, ["k"], group)
    except Refused:
        with pytest.raises(MergeError):
            merged(options, [[replace(record, values=(0, *record.values[1:])) for record in group]], lookup=False, fields=fields)
        return "refused"
    (by_engine,) = merged(options, [[replace(record, values=(0, *record.values[1:])) for record in group]], lookup=False, fields=fields)
    assert found is not None and by_engine is not None
    assert (by_engine.kind, by_engine.sequence, by_engine.values[1:]) == (found.kind, found.sequence, found.values[1:])
    return found.kind, found.sequence, list(found.values)


ABC = "k INT; a STRING; b STRING; c INT"
REMOVE = {"partial-update.remove-record-on-delete": "true"}
PARTIAL = [
    ({}, [("+I", 1, [1, "a", None, 1]), ("+U", 2, [1, None, "b", None])], ("+I", 2, [1, "a", "b", 1])),
    ({}, [("+I", 1, [1, "a", None, 1]), ("-D", 2, [1, None, None, None])], "refused"),
    ({"ignore-delete": "true"}, [("+I", 1, [1, "a", None, 1]), ("-D", 2, [1, "z", "z", 9])], ("+I", 1, [1, "a", None, 1])),
    ({"ignore-delete": "true"}, [("-D", 7, [1, "a", None, 1]), ("-D", 8, [1, "z", "z", 9])], ("-D", 0, [1, "a", None, 1])),
    (REMOVE, [("+I", 1, [1, "a", "q", 1]), ("-D", 2, [1, "z", None, 9])], ("-D", 2, [1, "z", None, 9])),
    (REMOVE, [("+I", 1, [1, "a", "q", 1]), ("-D", 2, [1, "z", None, 9]), ("+I", 3, [1, None, "n", None])], ("+I", 3, [1, "z", "n", 9])),
    (REMOVE, [("+I", 1, [1, "a", "q", 1]), ("-U", 2, [1, "z", None, 9])], ("+I", 2, [1, "a", "q", 1])),
    (REMOVE, [("-U", 1, [1, "a", "q", 1]), ("-U", 2, [1, "z", None, 9])], ("-D", 2, [1, "a", "q", 1])),
]


@pytest.mark.parametrize(("options", "records", "expected"), PARTIAL)
def test_partial_update(options: dict[str, str], records: list[Any], expected: Any) -> None:
    assert outcome({"merge-engine": "partial-update", **options}, ABC, *records) == expected


FIRST = [1, "a", 5, "x", 5, "f"]
GROUPS = [
    ("+I", {}, ("+I", 2, [1, "b", 4, "y", 6, None]), ("+I", 2, [1, "a", 5, "y", 6, "f"])),
    ("+I", {}, ("+I", 2, [1, "b", None, "y", 5, "g"]), ("+I", 2, [1, "a", 5, "y", 5, "g"])),
    ("+I", {}, ("-D", 2, [1, "b", 6, "y", None, "g"]), ("+I", 2, [1, None, 6, "x", 5, "f"])),
    ("+I", {}, ("-D", 2, [1, "b", 4, "y", None, "g"]), ("+I", 2, [1, "a", 5, "x", 5, "f"])),
    ("-D", {}, ("+I", 2, [1, "b", 6, None, None, None]), ("+I", 2, [1, "b", 6, None, 5, "f"])),
    ("-D", {}, ("-D", 2, [1, "b", 6, None, None, None]), ("-D", 2, [1, None, 6, None, 5, "f"])),
    ("+I", {"s1"}, ("-D", 2, [1, "b", 6, None, None, None]), ("-D", 2, [1, "b", 6, None, None, None])),
    ("+I", {"s1"}, ("-D", 2, [1, "b", 4, None, None, None]), ("+I", 2, [1, "a", 5, "x", 5, "f"])),
]


@pytest.mark.parametrize(("first_kind", "removing", "second", "expected"), GROUPS)
def test_sequence_groups(first_kind: str, removing: set[str], second: Any, expected: Any) -> None:
    options = {"merge-engine": "partial-update", "fields.s1.sequence-group": "a", "fields.s2.sequence-group": "b"}
    if removing:
        options["partial-update.remove-record-on-sequence-group"] = ",".join(removing)
    columns = "k INT; a STRING; s1 INT; b STRING; s2 INT; f STRING"
    assert outcome(options, columns, (first_kind, 1, FIRST), second) == expected


AGGREGATES = [
    ("sum", {}, "INT", [("+I", 5), ("-U", 5), ("+U", 7)], ("+I", 7)),
    ("sum", {}, "INT", [("-D", 5), ("+I", 7)], ("+I", 2)),
    ("sum", {"aggregation.remove-record-on-delete": "true"}, "INT", [("+I", 5), ("-D", 5), ("+I", 7)], ("+I", 12)),
    ("sum", {"aggregation.remove-record-on-delete": "true"}, "INT", [("+I", 5), ("-D", 9)], ("-D", 9)),
    ("max", {}, "INT", [("+I", 5), ("-D", 5)], "refused"),
    ("sum", {}, "INT", [("+I", 2147483647), ("+I", 1), ("+I", -5)], "refused"),
    ("sum", {}, "DECIMAL(5, 2)", [("+I", Decimal("999.99")), ("+I", Decimal("5.00"))], ("+I", Decimal("1004.99"))),
    ("sum", {}, "DECIMAL(20, 2)", [("+I", Decimal("999999999999999999.99")), ("+I", Decimal("0.01"))], ("+I", None)),
    ("product", {}, "DECIMAL(18, 2)", [("+I", Decimal("1.05")), ("+I", Decimal("1.05"))], ("+I", Decimal("1.10"))),
    ("product", {}, "INT", [("+I", -7), ("-U", 2)], ("+I", -3)),
    ("listagg", {}, "STRING", [("+I", "a"), ("+I", " "), ("+I", "b")], ("+I", "a,b")),
    ("listagg", {"fields.v.distinct": "true"}, "STRING", [("+I", "a"), ("+I", "b,a,c")], ("+I", "a,b,c")),
    ("listagg", {"fields.v.distinct": "true"}, "STRING", [("+I", "a,a"), ("+I", "a")], ("+I", "a,a")),
    ("listagg", {"fields.v.distinct": "true"}, "STRING", [("+I", "x,"), ("+I", "y,,x")], ("+I", "x,,y")),
]


@pytest.mark.parametrize(("function", "options", "data_type", "values", "expected"), AGGREGATES)
def test_aggregation(function: str, options: dict[str, str], data_type: str, values: list[Any], expected: Any) -> None:
    records = [(kind, sequence, [1, value]) for sequence, (kind, value) in enumerate(values)]
    found = outcome({"merge-engine": "aggregation", "fields.v.aggregate-function": function, **options}, f"k INT; v {data_type}", *records)
    assert found == expected if found == "refused" else (found[0], found[2][1]) == expected


def row(k: int, v: int | None, s: int | None = None) -> dict[str, int | None]:
    return {"k": k, "v": v, "s": s}


KEYED = {"fields.v.nested-key": "k"}
SEQUENCED = {**KEYED, "fields.v.nested-sequence-field": "s"}
NESTED = [
    ("nested_update", SEQUENCED, [row(1, 1, 5)], ("+I", [row(1, 2, 4)]), [row(1, 1, 5)]),
    ("nested_update", SEQUENCED, [row(1, 1, 5)], ("+I", [row(1, 2, 5)]), [row(1, 2, 5)]),
    ("nested_update", SEQUENCED, [row(1, 1, 5)], ("+I", [row(1, 2, None)]), [row(1, 1, 5)]),
    ("nested_update", {}, [row(1, 1, 1), row(1, 1, 1), row(2, 2, 2)], ("-U", [row(1, 1, 1)]), [row(2, 2, 2)]),
    ("nested_update", {**KEYED, "fields.v.count-limit": "2"}, [row(1, 1), row(2, 2)], ("+I", [row(3, 3), row(2, 9)]), [row(1, 1), row(2, 9)]),
    ("nested_partial_update", KEYED, [row(1, 1)], ("+I", [row(1, None, 7), row(2, 2, 2)]), [row(1, 1, 7), row(2, 2, 2)]),
]


@pytest.mark.parametrize(("function", "options", "first", "second", "expected"), NESTED)
def test_nested_rows(function: str, options: dict[str, str], first: Any, second: Any, expected: Any) -> None:
    options = {"merge-engine": "aggregation", "fields.v.aggregate-function": function, **options}
    found = outcome(options, "k INT; v ROWS", ("+I", 1, [1, first]), (second[0], 2, [1, second[1]]))
    assert found[2] == [1, expected]
