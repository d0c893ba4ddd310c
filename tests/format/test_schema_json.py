"""Schema files."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maintainer.errors import CorruptFile, Unsupported
from maintainer.format import schema_json
from tests.support import builders, strategies

DOCUMENT: dict[str, Any] = {
    "version": 3,
    "id": 7,
    "fields": [
        {"id": 0, "name": "id", "type": "INT NOT NULL"},
        {"id": 2, "name": "price", "type": "DECIMAL(10, 2)", "description": "in €", "defaultValue": "1.00"},
        {"id": 3, "name": "tags", "type": {"type": "ARRAY", "element": "STRING"}},
    ],
    "highestFieldId": 5,
    "partitionKeys": [],
    "primaryKeys": ["id"],
    "options": {"bucket": "1"},
    "comment": "a table",
    "timeMillis": 1795986724086,
}


def encoded(**changes: Any) -> bytes:
    return json.dumps({key: value for key, value in {**DOCUMENT, **changes}.items() if value is not ...}).encode()


def test_all_members() -> None:
    schema = schema_json.decode(encoded())
    assert schema.id == 7
    assert schema.names == ("id", "price", "tags")
    assert schema.field("price").description == "in €"
    assert schema.field("price").default_value == "1.00"
    assert schema.highest_field_id == 5
    assert schema.primary_keys == ("id",)
    assert schema.options == {"bucket": "1"}
    assert schema.comment == "a table"
    assert schema.time_millis == 1795986724086
    assert json.loads(schema_json.encode(schema)) == DOCUMENT


def test_unknown_members_survive_in_the_schema_and_in_its_fields() -> None:
    fields = [{**DOCUMENT["fields"][0], "hidden": {"a": [1, None]}}, *DOCUMENT["fields"][1:]]
    document = {**DOCUMENT, "fields": fields, "owner": {"name": "x"}, "flags": [1.5, True]}
    assert json.loads(schema_json.encode(schema_json.decode(json.dumps(document).encode()))) == document


def test_explicit_nulls_are_absent_and_never_written() -> None:
    fields = [{**DOCUMENT["fields"][0], "description": None, "defaultValue": None, "later": None}]
    schema = schema_json.decode(encoded(fields=fields, comment=None, timeMillis=None, owner=None))
    assert schema.comment is None
    assert schema.time_millis == 0
    assert schema.field("id").description is None
    assert b"null" not in schema_json.encode(schema)


@pytest.mark.parametrize(
    ("version", "options", "expected"),
    [
        (..., {}, {"bucket": "1", "file.format": "orc"}),
        (1, {"bucket": "4", "file.format": "avro"}, {"bucket": "4", "file.format": "avro"}),
        (1, {"a": "b"}, {"a": "b", "bucket": "1", "file.format": "orc"}),
        (2, {}, {"file.format": "orc"}),
        (3, {}, {}),
    ],
)
def test_defaults_of_old_versions(version: Any, options: dict[str, str], expected: dict[str, str]) -> None:
    assert schema_json.decode(encoded(version=version, options=options)).options == expected


def test_newer_version_is_unsupported() -> None:
    with pytest.raises(Unsupported, match="4"):
        schema_json.decode(encoded(version=4))


@pytest.mark.parametrize(
    "changes",
    [
        {"id": "7"},
        {"id": ...},
        {"id": 7.0},
        {"id": True},
        {"id": 2**63},
        {"version": "3"},
        {"fields": ...},
        {"fields": {}},
        {"fields": ["id"]},
        {"fields": [{"id": 0, "name": "id", "type": "MONEY"}]},
        {"fields": [{"id": 0, "name": "id", "type": "INT"}, {"id": 1, "name": "id", "type": "INT"}]},
        {"highestFieldId": None},
        {"partitionKeys": "id"},
        {"partitionKeys": ["nowhere"]},
        {"primaryKeys": [1]},
        {"options": {"bucket": 1}},
        {"options": ["bucket"]},
        {"comment": 5},
        {"timeMillis": "now"},
    ],
)
def test_wrong_members_are_corrupt(changes: dict[str, Any]) -> None:
    with pytest.raises(CorruptFile):
        schema_json.decode(encoded(**changes))


def test_error_names_column_and_type() -> None:
    with pytest.raises(CorruptFile, match=r"'id'.*'MONEY'"):
        schema_json.decode(encoded(fields=[{"id": 0, "name": "id", "type": "MONEY"}]))


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"null", b"\xff\xfe{}", b"\xef\xbb\xbf{}", b"[" * 100_000, b'{"id": ' + b"9" * 5000 + b"}"])
def test_what_is_not_a_json_object_is_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptFile):
        schema_json.decode(data)


@given(st.lists(strategies.data_types(nullable=st.booleans(), variants=True), min_size=1, max_size=4), st.text())
def test_round_trip(types: list[Any], comment: str) -> None:
    schema = builders.schema({f"c {i} é": data_type for i, data_type in enumerate(types)}, options={"k": "v", "é\ud800": "\x00"})
    again = schema_json.decode(schema_json.encode(schema))
    assert again == schema


@given(st.data())
def test_mutated_bytes_decode_or_are_refused(data: st.DataObject) -> None:
    mutated = data.draw(strategies.mutated(encoded()))
    try:
        schema = schema_json.decode(mutated)
    except (CorruptFile, Unsupported):
        return
    assert schema_json.decode(schema_json.encode(schema)) == schema


def test_truncated_bytes_are_corrupt() -> None:
    data = encoded()
    for size in range(len(data)):
        with pytest.raises(CorruptFile):
            schema_json.decode(data[:size])
