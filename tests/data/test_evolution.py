from __future__ import annotations

from dataclasses import replace

import pytest

from maintainer.data import evolution
from maintainer.errors import Unsupported, UsageError
from maintainer.model.schema import TableSchema
from maintainer.model.types import DataField, DataType
from tests.support import builders


def columns(*fields: tuple[int, str, str]) -> TableSchema:
    schema = builders.schema({"id": "INT"})
    return replace(schema, fields=tuple(DataField(number, name, builders.type_(text)) for number, name, text in fields))


OLD = columns((0, "id", "INT NOT NULL"), (1, "a", "STRING"), (2, "b", "INT"))
NEW = columns((0, "id", "INT NOT NULL"), (1, "renamed", "STRING"), (3, "b", "INT"), (4, "added", "DATE"))


def test_columns_are_matched_by_id_and_never_by_name() -> None:
    found = {name: evolution.match(name, OLD, NEW)[1] for name in NEW.names}
    assert {name: None if source is None else source.name for name, source in found.items()} == {
        "id": "id",
        "renamed": "a",
        "b": None,  # dropped, and added again under the same name
        "added": None,
    }


def test_system_columns_are_in_every_schema() -> None:
    target, source = evolution.match("_SEQUENCE_NUMBER", OLD, NEW)
    assert target is source
    assert target.name == "_SEQUENCE_NUMBER"


def test_unknown_column_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="nothing"):
        evolution.match("nothing", OLD, NEW)


KEPT = [
    ("INT NOT NULL", "INT"),
    ("VARCHAR(3)", "VARCHAR(5)"),
    ("VARCHAR(3)", "STRING"),
    ("CHAR(3)", "STRING"),
    ("BINARY(3)", "BYTES"),
    ("TIMESTAMP(4)", "TIMESTAMP(6)"),
    ("ARRAY<INT NOT NULL>", "ARRAY<INT>"),
    ("MAP<STRING, VARCHAR(3)>", "MAP<STRING, STRING>"),
]
CHANGED = [
    ("INT", "BIGINT"),
    ("BIGINT", "INT"),
    ("FLOAT", "DOUBLE"),
    ("STRING", "VARCHAR(3)"),
    ("STRING", "CHAR(3)"),
    ("STRING", "BYTES"),
    ("DECIMAL(5, 2)", "DECIMAL(6, 2)"),
    ("TIMESTAMP(3)", "TIMESTAMP(6)"),
    ("TIMESTAMP(6)", "TIMESTAMP(5)"),
    ("TIMESTAMP(3)", "TIMESTAMP(3) WITH LOCAL TIME ZONE"),
    ("ARRAY<INT>", "ARRAY<BIGINT>"),
    ("MAP<INT, INT>", "MAP<INT, BIGINT>"),
    ("ROW<x INT>", "ROW<x BIGINT>"),
]
WITHOUT_CAST = [
    ("VECTOR<FLOAT, 3>", "VECTOR<FLOAT, 4>"),
    ("VECTOR<FLOAT, 3>", "ARRAY<FLOAT>"),
    ("MAP<INT, INT>", "MAP<BIGINT, INT>"),
    ("INT", "ARRAY<INT>"),
    ("ROW<x INT>", "INT"),
]


@pytest.mark.parametrize(("old", "new"), KEPT)
def test_types_that_keep_every_value_need_no_cast(old: str, new: str) -> None:
    assert evolution.retyped(builders.type_(old), builders.type_(new)) is None


@pytest.mark.parametrize(("old", "new"), [*CHANGED, *WITHOUT_CAST])
def test_changed_types_are_named(old: str, new: str) -> None:
    assert evolution.retyped(builders.type_(old), builders.type_(new)) is not None


@pytest.mark.parametrize(("old", "new"), WITHOUT_CAST)
def test_changes_without_a_cast_are_refused_by_column(old: str, new: str) -> None:
    with pytest.raises(Unsupported, match="column c: its type was changed"):
        evolution.match("c", columns((1, "c", old)), columns((1, "c", new)))


@pytest.mark.parametrize(
    ("old", "new", "kept"),
    [
        ("INT", "BIGINT", True),
        ("TINYINT", "INT", True),
        ("FLOAT", "DOUBLE", True),
        ("VARCHAR(3)", "STRING", True),
        ("BIGINT", "INT", False),  # the low bits
        ("INT", "STRING", False),
        ("INT", "DOUBLE", False),  # bounds are whole numbers
        ("STRING", "VARCHAR(3)", False),
        ("TIMESTAMP(6)", "TIMESTAMP(3)", False),
    ],
)
def test_bounds_hold_where_order_is_kept(old: str, new: str, kept: bool) -> None:
    assert evolution.keeps_order(builders.type_(old), builders.type_(new)) == kept


def row(*members: tuple[int, str, str]) -> DataType:
    base = builders.type_("ROW<x INT>")
    return replace(base, fields=tuple(DataField(number, name, builders.type_(text)) for number, name, text in members))


def test_members_of_rows_are_matched_by_id_too() -> None:
    old, new = row((5, "x", "INT"), (6, "y", "INT"), (7, "z", "INT")), row((7, "x", "INT"), (5, "w", "INT"), (8, "y", "STRING"))
    assert [(field.name, source and source.name) for field, source in evolution.members(old, new)] == [("x", "z"), ("w", "x"), ("y", None)]
    assert evolution.retyped(old, new) is None
    assert evolution.retyped(old, row((5, "w", "BIGINT"))) == "w: INT to BIGINT"


@pytest.mark.parametrize(
    ("new", "same"),
    [
        (row((5, "x", "INT"), (6, "y", "INT")), True),
        (row((5, "x", "INT NOT NULL"), (6, "y", "INT")), True),
        (row((6, "y", "INT"), (5, "x", "INT")), False),
        (row((5, "x", "INT"), (7, "y", "INT")), False),
        (row((5, "w", "INT"), (6, "y", "INT")), False),
        (row((5, "x", "INT")), False),
    ],
)
def test_shape_of_rows(new: DataType, same: bool) -> None:
    old = row((5, "x", "INT"), (6, "y", "INT"))
    assert evolution.same_shape(old, new) == same
    nested = builders.type_("MAP<STRING, ARRAY<INT>>")
    assert nested.element is not None
    wrap = [replace(nested, element=replace(nested.element, element=inner)) for inner in (old, new)]
    assert evolution.same_shape(wrap[0], wrap[1]) == same
