from __future__ import annotations

import pyarrow as pa
import pytest

from maintainer.data.arrow_types import FIELD_ID, arrow_field, file_schema, to_arrow, value_schema
from maintainer.errors import Unsupported
from maintainer.model.types import DataField
from tests.support import builders

TYPES = {
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "DECIMAL(9, 2)": pa.decimal128(9, 2),
    "DECIMAL(38, 0)": pa.decimal128(38, 0),
    "CHAR(3)": pa.string(),
    "VARCHAR(3)": pa.string(),
    "STRING": pa.string(),
    "BINARY(3)": pa.binary(),
    "BYTES": pa.binary(),
    "DATE": pa.date32(),
    "TIME(0)": pa.time32("ms"),
    "TIME(3)": pa.time32("ms"),
    "TIMESTAMP(0)": pa.timestamp("ms"),
    "TIMESTAMP(3)": pa.timestamp("ms"),
    "TIMESTAMP(4)": pa.timestamp("us"),
    "TIMESTAMP(6)": pa.timestamp("us"),
    "TIMESTAMP(7)": pa.timestamp("ns"),
    "TIMESTAMP(9)": pa.timestamp("ns"),
    "TIMESTAMP(3) WITH LOCAL TIME ZONE": pa.timestamp("ms", tz="UTC"),
    "TIMESTAMP(9) WITH LOCAL TIME ZONE": pa.timestamp("ns", tz="UTC"),
    "ARRAY<INT NOT NULL>": pa.list_(pa.field("element", pa.int32(), nullable=False)),
    "VECTOR<FLOAT, 3>": pa.list_(pa.field("element", pa.float32())),
    "MAP<STRING, INT>": pa.map_(pa.string(), pa.field("value", pa.int32())),
    "MULTISET<STRING>": pa.map_(pa.string(), pa.field("value", pa.int32(), nullable=False)),
    "ROW<x INT, y STRING NOT NULL>": pa.struct([pa.field("x", pa.int32()), pa.field("y", pa.string(), nullable=False)]),
    "VARIANT": pa.struct([pa.field("value", pa.binary(), nullable=False), pa.field("metadata", pa.binary(), nullable=False)]),
}


def ids_of(field: pa.Field, path: str = "") -> dict[str, int]:
    """Path of every node with a field id."""
    here = f"{path}.{field.name}" if path else field.name
    found = {here: int(field.metadata[FIELD_ID])} if field.metadata else {}
    if pa.types.is_map(field.type):
        return found | ids_of(field.type.key_field, here) | ids_of(field.type.item_field, here)
    for index in range(field.type.num_fields):
        found |= ids_of(field.type.field(index), here)
    return found


@pytest.mark.parametrize("text", TYPES)
def test_type_in_memory(text: str) -> None:
    assert to_arrow(builders.type_(text)).equals(TYPES[text], check_metadata=True)


def test_nullability_is_that_of_the_schema() -> None:
    schema = value_schema([DataField(1, "a", builders.type_("INT NOT NULL")), DataField(2, "b", builders.type_("INT"))])
    assert [field.nullable for field in schema] == [False, True]


@pytest.mark.parametrize(
    ("field_id", "text", "ids"),
    [  # spec 02 §3.3
        (25, "ARRAY<INT>", {"c.element": 536896512}),
        (
            26,
            "ARRAY<MAP<INT, ARRAY<STRING>>>",
            {"c.element": 536897536, "c.element.key": 536844285, "c.element.value": 536897537, "c.element.value.element": 536897538},
        ),
        (27, "MAP<STRING, INT>", {"c.key": 536843262, "c.value": 536898560}),
        (31, "VECTOR<FLOAT, 3>", {"c.element": 536902656}),
        (31, "MULTISET<STRING>", {"c.key": 536870911 - 1024 * 31 - 1, "c.value": 536902656}),
    ],
)
def test_parts_of_collections_have_the_synthetic_ids_of_java(field_id: int, text: str, ids: dict[str, int]) -> None:
    assert ids_of(arrow_field(DataField(field_id, "c", builders.type_(text)))) == {"c": field_id} | ids


def test_members_of_rows_start_the_synthetic_ids_anew() -> None:
    row = builders.schema({"a": "INT", "r": "ROW<x INT, y ARRAY<STRING>>"}).field("r")
    x, y = (member.id for member in row.type.fields)
    assert ids_of(arrow_field(row)) == {"r": row.id, "r.x": x, "r.y": y, "r.y.element": 536870911 + 1024 * y + 1}
    assert ids_of(arrow_field(row, with_ids=False)) == {}


def test_schema_of_a_file() -> None:
    table = builders.schema({"v": "STRING", "k2": "DATE", "p": "INT", "k1": "BIGINT"}, ("p", "k1", "k2"), ("p",))
    found = file_schema(table)
    assert [(field.name, int(field.metadata[FIELD_ID]), str(field.type), field.nullable) for field in found] == [
        ("_KEY_k1", 1073741826, "int64", False),
        ("_KEY_k2", 1073741824, "date32[day]", False),
        ("_SEQUENCE_NUMBER", 2147483646, "int64", False),
        ("_VALUE_KIND", 2147483645, "int8", False),
        ("v", 0, "string", True),
        ("k2", 1, "date32[day]", False),
        ("p", 2, "int32", False),
        ("k1", 3, "int64", False),
    ]


def test_blob_columns_are_refused_by_name() -> None:
    with pytest.raises(Unsupported, match=r"column c: type BLOB"):
        value_schema([DataField(1, "c", builders.type_("BLOB"))])
    with pytest.raises(Unsupported, match=r"column c: .*type BLOB"):
        value_schema([DataField(1, "c", builders.type_("ARRAY<BLOB>"))])
