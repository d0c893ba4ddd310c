"""Compacting files of several schemas whose ROW columns have changed inside (spec 02 §13)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import maintainer
from maintainer.data.arrow_types import value_schema
from maintainer.model.schema import TableSchema
from maintainer.model.types import DataField, DataType
from tests.support.builders import type_
from tests.support.evolve import evolve


def with_member_change(path: Path, table_type: DataType) -> TableSchema:
    """`a` is gone and another `a` is there, `b` is called `c`, and all are in another order."""
    (_, b) = rows_of(table_type).fields

    def change(schema: TableSchema) -> TableSchema:
        first = schema.highest_field_id + 1
        members = (replace(b, name="c"), DataField(first, "t", type_("TIMESTAMP(9)")), DataField(first + 1, "a", type_("STRING")))
        fields = (schema.fields[0], replace(schema.fields[1], type=with_rows(table_type, members)))
        return replace(schema, fields=fields, highest_field_id=first + 1)

    return evolve(str(path), change)


def rows_of(data_type: DataType) -> DataType:
    return data_type if data_type.element is None else rows_of(data_type.element)


def with_rows(data_type: DataType, members: tuple[DataField, ...]) -> DataType:
    if data_type.element is None:
        return replace(data_type, fields=members)
    return replace(data_type, element=with_rows(data_type.element, members))


@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize(
    ("text", "wrap"),
    [
        ("ROW<a INT, b DOUBLE>", lambda row: row),
        ("ARRAY<ROW<a INT, b DOUBLE>>", lambda row: [row, None]),
        ("MAP<STRING, ARRAY<ROW<a INT, b DOUBLE>>>", lambda row: [("k", [row]), ("l", None)]),
    ],
)
def test_members_come_and_go_like_columns(text: str, wrap: Any, full: bool, tmp_path: Path) -> None:
    path = tmp_path / "t"
    options = {"bucket": "1", "deletion-vectors.enabled": "true"}
    fields = [{"name": "id", "type": "INT"}, {"name": "r", "type": text}]
    table = maintainer.create_table(str(path), {"fields": fields, "primaryKeys": ["id"], "options": options})
    write(table, {1: wrap({"a": 1, "b": 1.5}), 2: wrap(None), 3: None})
    if not full:  # then a file of the old schema stays, with a deletion vector
        table.maintain()
    with_member_change(path, table.schema.fields[1].type)
    write(table, {2: wrap({"c": 2.5, "t": None, "a": "new"})})
    table.maintain(full=full)
    found = table.scan().to_arrow().sort_by("id").to_pylist()
    assert found == [
        {"id": 1, "r": wrap({"c": 1.5, "t": None, "a": None})},
        {"id": 2, "r": wrap({"c": 2.5, "t": None, "a": "new"})},
        {"id": 3, "r": None},
    ]


def write(table: Any, rows: dict[int, Any]) -> None:
    with table.writer() as writer:
        writer.write(pa.table([list(rows), list(rows.values())], schema=value_schema(table.schema.fields)))
