"""A table with Multivalue indexes from its creation to its verification, in every file format and for every type of element."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import maintainer
from maintainer.data.arrow_types import value_schema
from maintainer.data.values import to_arrow_array
from maintainer.model.types import TIMESTAMPS, DataType
from maintainer.model.values import order_key
from tests.support.random_rows import random_value

ELEMENTS = [
    "BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL(10, 2)", "DECIMAL(20, 3)", "CHAR(3)", "VARCHAR(9)",
    "STRING", "DATE", "TIME(3)", "TIMESTAMP(0)", "TIMESTAMP(3)", "TIMESTAMP(6)", "TIMESTAMP(6) WITH LOCAL TIME ZONE", "INT NOT NULL",
]  # fmt: skip


def random_array(random: Random, data_type: DataType) -> Any:
    """An array without times of the last second before 1970, which ORC does not hold."""
    found = random_value(random, data_type)
    element = data_type.element
    if found is None or element is None or element.root not in TIMESTAMPS:
        return found
    return [value if value is None or not -(10**9) < value < 0 else 0 for value in found]


@pytest.mark.parametrize("file_format", ["parquet", "avro", "orc"])
def test_elements_of_every_type_are_indexed_and_found(file_format: str, tmp_path: Path) -> None:
    random = Random(file_format)
    columns = {f"c{number}": text for number, text in enumerate(ELEMENTS)}
    definition = ", ".join(f"{name} ARRAY<{text}>" for name, text in columns.items())
    maintainer.create_table(
        str(tmp_path / "t"),
        f"CREATE TABLE t (id INT, {definition}, PRIMARY KEY (id) NOT ENFORCED) WITH ('bucket' = '1', 'deletion-vectors.enabled' = 'true', "
        f"'file.format' = '{file_format}', 'pk-multivalue.index.columns' = '{','.join(columns)}', 'multivalue-index.compression' = 'lz4')",
    )
    table = maintainer.open_table(str(tmp_path / "t"))
    fields = table.schema.fields
    rows: dict[int, tuple[Any, ...]] = {}
    for _ in range(2):
        written = {key: (key, *(random_array(random, field.type) for field in fields[1:])) for key in random.sample(range(60), 40)}
        with table.writer() as writer:
            columns_of = zip(*written.values(), strict=True)
            arrays = [to_arrow_array(column, field.type) for column, field in zip(columns_of, fields, strict=True)]
            writer.write(pa.table(arrays, schema=value_schema(fields)))
        rows |= written
        assert table.maintain().outcome == "committed"
    assert all(found.ratio == 1.0 for found in table.coverage().definitions)
    for at, field in enumerate(fields[1:], 1):
        element = field.type.element
        assert element is not None
        found = {order_key(value): value for row in rows.values() for value in row[at] or () if value is not None}
        for key, value in random.sample(sorted(found.items()), 2):
            where = maintainer.col(field.name).array_contains(to_arrow_array([value], element)[0])
            plan = table.scan(where=where).explain()
            assert {file.column for file in plan.files if file.decision != "pruned"} == {field.name}
            expected = {row[0] for row in rows.values() if any(order_key(each) == key for each in row[at] or () if each is not None)}
            assert set(table.scan(where=where, columns=["id"]).to_arrow()["id"].to_pylist()) == expected
    assert table.verify(deep=True).problems == ()


def test_sql_reaches_the_index(tmp_path: Path) -> None:
    maintainer.create_table(
        str(tmp_path / "t"),
        "CREATE TABLE t (id INT, tags ARRAY<STRING>, PRIMARY KEY (id) NOT ENFORCED) WITH ('bucket' = '1', "
        "'deletion-vectors.enabled' = 'true', 'fields.tags.pk-multivalue.index.options' = '{\"dictionary-block-size\": \"1 kb\"}', "
        "'pk-multivalue.index.columns' = 'tags')",
    )
    table = maintainer.open_table(str(tmp_path / "t"))
    with table.writer() as writer:
        writer.write(pa.table({"id": pa.array(range(5), pa.int32()), "tags": [["a", "b"], None, ["b", "b"], [None], ["a", "c"]]}))
    table.maintain()
    for where, ids in {
        "array_contains(tags, 'b')": [0, 2],
        "arrays_overlap(tags, array('c', 'b'))": [0, 2, 4],
        "array_contains_all(tags, array('a', 'b'))": [0],
        "array_contains(tags, 'a') AND NOT array_contains(tags, 'c')": [0],
        "array_contains(tags, 'zzz') OR array_contains(tags, 'c')": [4],
    }.items():
        scan = table.scan(where=where)
        assert sorted(scan.to_arrow()["id"].to_pylist()) == ids
        assert [(file.decision, file.column) for file in scan.explain().files] == [("indexed", "tags")]
