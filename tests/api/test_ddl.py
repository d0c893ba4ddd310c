"""CREATE TABLE statements as Flink and Spark write them."""

from __future__ import annotations

import pytest

from maintainer.api.ddl import parse_create_table
from maintainer.errors import UsageError

FLINK = """
-- orders of the shop; a comment, with a ;
CREATE TABLE IF NOT EXISTS my_catalog.`sales db`.orders (
    `order id` BIGINT,
    customer STRING NOT NULL COMMENT 'who''s it',
    price DECIMAL(10, 2),
    tags ARRAY<STRING NOT NULL>,
    detail ROW<a INT, b MAP<STRING, DOUBLE>> NOT NULL, /* nested,
    over lines */
    at TIMESTAMP(3) WITH LOCAL TIME ZONE,
    dt STRING,
    PRIMARY KEY (dt, `order id`) NOT ENFORCED
) COMMENT 'the orders'
PARTITIONED BY (dt)
WITH (
    'bucket' = '4',
    'pk-btree.index.columns' = 'price,customer'
);
"""


def test_a_flink_statement() -> None:
    assert parse_create_table(FLINK) == {
        "fields": [
            {"name": "order id", "type": "BIGINT"},
            {"name": "customer", "type": "STRING NOT NULL", "description": "who's it"},
            {"name": "price", "type": "DECIMAL(10, 2)"},
            {"name": "tags", "type": "ARRAY<STRING NOT NULL>"},
            {"name": "detail", "type": "ROW<a INT, b MAP<STRING, DOUBLE>> NOT NULL"},
            {"name": "at", "type": "TIMESTAMP(3) WITH LOCAL TIME ZONE"},
            {"name": "dt", "type": "STRING"},
        ],
        "primaryKeys": ["dt", "order id"],
        "partitionKeys": ["dt"],
        "options": {"bucket": "4", "pk-btree.index.columns": "price,customer"},
        "comment": "the orders",
    }


def test_a_spark_statement() -> None:
    found = parse_create_table(
        "create table t (id int, v string default 'x' comment 'y') using paimon "
        "partitioned by (v) tblproperties ('primary-key' = 'id', 'bucket' = 1)"
    )
    assert found["fields"] == [{"name": "id", "type": "int"}, {"name": "v", "type": "string", "description": "y", "defaultValue": "x"}]
    assert found["options"] == {"primary-key": "id", "bucket": "1"}


@pytest.mark.parametrize(
    "columns",
    [
        "id INT PRIMARY KEY NOT ENFORCED, v INT",
        "id INT, v INT, PRIMARY KEY (id) NOT ENFORCED",
        "id INT, v INT, CONSTRAINT pk PRIMARY KEY (id) NOT ENFORCED",
        "PRIMARY KEY (`id`), id INT, v INT",
    ],
)
def test_the_primary_key_may_stand_where_sql_allows_it(columns: str) -> None:
    found = parse_create_table(f"CREATE TABLE t ({columns})")
    assert found["primaryKeys"] == ["id"]
    assert [field["name"] for field in found["fields"]] == ["id", "v"]


@pytest.mark.parametrize(
    "type_text", ["INT NOT NULL", "ROW(a INT, b STRING)", "DOUBLE PRECISION", "TIME(0) WITHOUT TIME ZONE", "VECTOR<FLOAT, 3>"]
)
def test_types_are_handed_on_as_they_stand(type_text: str) -> None:
    found = parse_create_table(f"CREATE TABLE t (a {type_text}, b INT)")
    assert found["fields"] == [{"name": "a", "type": type_text}, {"name": "b", "type": "INT"}]


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("", "expected CREATE TABLE"),
        ("DROP TABLE t", "line 1, at 'DROP': expected CREATE TABLE"),
        ("CREATE TABLE t", r"ends too early: expected '\('"),
        ("CREATE TABLE t (a", "ends too early: expected a type"),
        ("CREATE TABLE t (a INT", "ends too early"),
        ("CREATE TABLE t (a INT,\n)", r"line 2, at '\)': expected a name"),
        ("CREATE TABLE t (a INT) WITH ('x')", "expected '='"),
        ("CREATE TABLE t (a INT) WITH (x = 'y')", "expected a text in single quotes"),
        ("CREATE TABLE t (a INT) WITH ('x' = 'y'", "ends too early"),
        ("CREATE TABLE t (a INT); CREATE TABLE u (a INT)", "one statement only"),
        ("CREATE TABLE t (a INT) AS SELECT 1", "expected COMMENT, PARTITIONED BY, WITH"),
        ("CREATE TABLE t (a INT, b AS a + 1)", r"cannot read '\+ 1\)'"),
        ("CREATE TABLE t (a INT, b AS a)", "computed and metadata columns are not supported|expected a type"),
        ("CREATE TABLE t (a INT METADATA FROM 'x')", "computed and metadata columns are not supported"),
        ("CREATE TABLE t (a INT, WATERMARK FOR a AS a)", "watermarks"),
        ("CREATE TABLE t (a INT PRIMARY KEY, PRIMARY KEY (a))", "two primary keys"),
        ("CREATE TABLE t (a INT COMMENT 'unclosed)", "cannot read"),
    ],
)
def test_what_cannot_be_read_is_shown(sql: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_create_table(sql)
