"""Types from and to JSON values and SQL texts."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maintainer.errors import UsageError
from maintainer.format.data_type import MAX_DEPTH, NO_ID, assign_ids, parse, render
from maintainer.model.types import DataField, DataType, TypeRoot
from tests.support import strategies
from tests.support.builders import type_


@pytest.mark.parametrize(
    "text",
    [
        "BOOLEAN",
        "TINYINT",
        "SMALLINT",
        "INT",
        "BIGINT",
        "FLOAT",
        "DOUBLE",
        "DATE",
        "TIME(0)",
        "TIME(3)",
        "TIMESTAMP(0)",
        "TIMESTAMP(6)",
        "TIMESTAMP(9)",
        "TIMESTAMP(3) WITH LOCAL TIME ZONE",
        "DECIMAL(10, 2)",
        "DECIMAL(38, 38)",
        "CHAR(5)",
        "VARCHAR(2147483646)",
        "STRING",
        "BINARY(4)",
        "VARBINARY(10)",
        "BYTES",
        "VARIANT",
        "BLOB",
        "GEOMETRY(OGC:CRS84)",
        "GEOGRAPHY(OGC:CRS84, SPHERICAL)",
    ],
)
@pytest.mark.parametrize("suffix", ["", " NOT NULL"])
def test_every_writer_text_renders_as_itself(text: str, suffix: str) -> None:
    data_type = parse(text + suffix)
    assert data_type.nullable == (suffix == "")
    assert render(data_type) == text + suffix


@pytest.mark.parametrize(
    ("odd", "plain"),
    [
        ("integer", "INT"),
        ("Dec(5)", "DECIMAL(5, 0)"),
        ("NUMERIC", "DECIMAL(10, 0)"),
        (" decimal ( 5,2 ) ", "DECIMAL(5, 2)"),
        ("double   precision", "DOUBLE"),
        ("timestamp", "TIMESTAMP(6)"),
        ("timestamp_ltz", "TIMESTAMP(6) WITH LOCAL TIME ZONE"),
        ("TIMESTAMP_LTZ(3) not\tnull", "TIMESTAMP(3) WITH LOCAL TIME ZONE NOT NULL"),
        ("timestamp with local time zone", "TIMESTAMP(6) WITH LOCAL TIME ZONE"),
        ("TIMESTAMP(3)WITHOUT TIME ZONE", "TIMESTAMP(3)"),
        ("time", "TIME(0)"),
        ("TIME(3) WITHOUT TIME ZONE", "TIME(3)"),
        ("char", "CHAR(1)"),
        ("varchar", "VARCHAR(1)"),
        ("binary", "BINARY(1)"),
        ("varbinary", "VARBINARY(1)"),
        ("VARCHAR(2147483647)", "STRING"),
        ("VARBINARY(2147483647)", "BYTES"),
        ("INT NULL", "INT"),
        ("INT\nNOT\nNULL", "INT NOT NULL"),
    ],
)
def test_other_spellings(odd: str, plain: str) -> None:
    assert str(parse(odd)) == plain


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("ARRAY<INT>", "ARRAY<INT>"),
        ("array < int not null > not null", "ARRAY<INT NOT NULL> NOT NULL"),
        ("INT ARRAY", "ARRAY<INT>"),
        ("INT NOT NULL ARRAY NOT NULL MULTISET", "MULTISET<ARRAY<INT NOT NULL> NOT NULL>"),
        ("MAP<INT, STRING>", "MAP<INT, STRING>"),
        ("MAP<INT, ARRAY<MAP<STRING,DECIMAL(5,2)>>>", "MAP<INT, ARRAY<MAP<STRING, DECIMAL(5, 2)>>>"),
        ("VECTOR<FLOAT, 3>", "VECTOR<FLOAT, 3>"),
        ("ARRAY<ROW<a INT, b STRING>>", "ARRAY<ROW<a INT, b STRING>>"),
        ("ROW(a INT, b: STRING NOT NULL)", "ROW<a INT, b STRING NOT NULL>"),
        ("ROW<>", "ROW<>"),
    ],
)
def test_nested_sql_texts(text: str, plain: str) -> None:
    assert str(parse(text)) == plain


def test_row_text_with_quoted_names_and_comments() -> None:
    assert parse("ROW<`a ``b` INT 'it''s', `int` DATE COMMENT 'd'>").fields == (
        DataField(NO_ID, "a `b", DataType(TypeRoot.INT), "it's"),
        DataField(NO_ID, "int", DataType(TypeRoot.DATE), "d"),
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "  ",
        "FOO",
        "INT INT",
        "INT NOT",
        "INT NOT NULL NULL",
        "DECIMAL(39, 2)",
        "DECIMAL(5, 6)",
        "DECIMAL(0)",
        "DECIMAL(5, 2, 1)",
        "VARCHAR(0)",
        "VARCHAR(2147483648)",
        "VARCHAR(99999999999999999999)",
        "CHAR(-1)",
        "TIMESTAMP(10)",
        "TIMESTAMP WITH TIME ZONE",
        "TIME(3",
        "ARRAY",
        "ARRAY<",
        "ARRAY<INT",
        "ARRAY<INT>>",
        "MAP<INT>",
        "VECTOR<FLOAT>",
        "VECTOR<FLOAT, 0>",
        "VECTOR<STRING, 3>",
        "ROW<a>",
        "ROW<a INT b INT>",
        "INT;",
        "'INT'",
    ],
)
def test_what_is_not_a_type_is_named(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(text)
    assert repr(text) in str(caught.value) or "VECTOR" in text


def test_constructed_json() -> None:
    document = {
        "type": "ROW NOT NULL",
        "fields": [
            {"id": 3, "name": "v", "type": {"type": "VECTOR", "element": "FLOAT", "length": 4}, "description": "d"},
            {"id": 4, "name": "m", "type": {"type": "MAP NOT NULL", "key": "INT NOT NULL", "value": {"type": "ARRAY", "element": "DATE"}}},
            {"id": 5, "name": "s", "type": {"type": "MULTISET", "element": "STRING"}, "defaultValue": "x"},
        ],
    }
    data_type = parse(document)
    assert [field.id for field in data_type.fields] == [3, 4, 5]
    assert str(data_type) == "ROW<v VECTOR<FLOAT, 4>, m MAP<INT NOT NULL, ARRAY<DATE>> NOT NULL, s MULTISET<STRING>> NOT NULL"
    assert render(data_type) == document


@pytest.mark.parametrize(
    "document",
    [
        None,
        1,
        [],
        {},
        {"type": "ARRAY"},
        {"type": "ARRAY", "element": None},
        {"type": "LIST", "element": "INT"},
        {"type": "ARRAY NOT", "element": "INT"},
        {"type": ["ARRAY"], "element": "INT"},
        {"type": "MAP", "key": "INT"},
        {"type": "ROW"},
        {"type": "ROW", "fields": {"a": "INT"}},
        {"type": "ROW", "fields": ["INT"]},
        {"type": "ROW", "fields": [{"id": 1, "type": "INT"}]},
        {"type": "ROW", "fields": [{"id": "1", "name": "a", "type": "INT"}]},
        {"type": "ROW", "fields": [{"id": True, "name": "a", "type": "INT"}]},
        {"type": "ROW", "fields": [{"id": 1, "name": "a"}]},
        {"type": "ROW", "fields": [{"id": 1, "name": "a", "type": "INT", "description": 5}]},
        {"type": "VECTOR", "element": "FLOAT"},
        {"type": "VECTOR", "element": "FLOAT", "length": "4"},
        {"type": "VECTOR", "element": "STRING", "length": 4},
    ],
)
def test_malformed_json_types_are_refused(document: Any) -> None:
    with pytest.raises(UsageError):
        parse(document)


def test_error_names_the_member_and_the_text() -> None:
    with pytest.raises(UsageError, match=r"'price'.*'MONEY'"):
        parse({"type": "ROW", "fields": [{"id": 1, "name": "price", "type": "MONEY"}]})


@pytest.mark.parametrize("deep", ["ARRAY<" * 5000 + "INT" + ">" * 5000, "INT" + " ARRAY" * 5000, "INT" + " ARRAY" * 65])
def test_endless_nesting_is_refused(deep: str) -> None:
    with pytest.raises(UsageError):
        parse(deep)


def test_endless_nesting_of_objects_is_refused() -> None:
    document: Any = "INT"
    for _ in range(MAX_DEPTH + 1):
        document = {"type": "ARRAY", "element": document}
    with pytest.raises(UsageError):
        parse(document)


def test_ids_of_inner_members_come_first() -> None:
    """As in Java: a member's own members get their ids before it does."""
    data_type, highest = assign_ids(parse("ROW<a ROW<b ARRAY<ROW<x INT>>>, c MAP<INT, ROW<y INT>>>"), 11)
    a, c = data_type.fields
    b = a.type.fields[0]
    assert b.type.element is not None
    assert c.type.element is not None
    ids = (b.type.element.fields[0].id, b.id, a.id, c.type.element.fields[0].id, c.id)
    assert ids == (12, 13, 14, 15, 16)
    assert highest == 16


@given(strategies.data_types(nullable=st.booleans(), variants=True))
def test_json_round_trip(data_type: DataType) -> None:
    assert parse(render(data_type)) == data_type


@given(strategies.data_types(nullable=st.booleans(), variants=True))
def test_sql_text_round_trip(data_type: DataType) -> None:
    assert type_(str(data_type)) == data_type


@given(st.text(st.sampled_from("INT ARRAYMPROW<>(),`'12 NOT NULL")) | st.text())
def test_any_text_is_a_type_or_a_usage_error(text: str) -> None:
    try:
        data_type = parse(text)
    except UsageError:
        return
    assert parse(render(data_type)) == data_type
