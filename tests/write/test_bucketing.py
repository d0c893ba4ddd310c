"""Buckets as Java gives them (spec 01 §12), and grouping against a plain model."""

from __future__ import annotations

import math
from collections import defaultdict
from datetime import date
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maintainer.data.values import to_arrow_array
from maintainer.errors import Unsupported, UsageError
from maintainer.format import binary_row
from maintainer.write.bucketing import bucket_numbers, group
from tests.support import builders
from tests.support.java_cases import java_case

JAVA_BUCKETS = [
    # bucket key, values, bucket of 16 by default, by mod
    (["INT"], [-7], 11, 9),
    (["BIGINT"], [123456789012], 11, 4),
    (["STRING"], ["abc"], 3, None),
    (["STRING"], ["hello world, paimon"], 0, None),
    (["INT", "STRING"], [5, "x"], 9, None),
    (["DECIMAL(10, 2)"], [Decimal("-12.30")], 14, None),
    (["DECIMAL(30, 5)"], [Decimal("12345678901234567890.12000")], 10, None),
    (["TIMESTAMP(3)"], [1700000000123 * 10**6], 13, None),
    (["TIMESTAMP(6)"], [1700000000123456 * 10**3], 5, None),
    (["DATE"], [19000], 15, None),
    (["DOUBLE"], [-0.0], 7, None),
    (["BOOLEAN"], [True], 14, None),
    (["BYTES"], [bytes.fromhex("010203")], 1, None),
]


def keyed_table(types: list[str], values: list[Any]) -> tuple[pa.Table, Any]:
    schema = builders.schema({f"k{i}": text for i, text in enumerate(types)}, [f"k{i}" for i in range(len(types))])
    columns = {f.name: to_arrow_array([value], f.type) for f, value in zip(schema.fields, values, strict=True)}
    return pa.table(columns), schema


@pytest.mark.parametrize(("types", "values", "default", "mod"), JAVA_BUCKETS)
def test_a_row_goes_to_the_bucket_that_java_gives_it(types: list[str], values: list[Any], default: int, mod: int | None) -> None:
    table, schema = keyed_table(types, values)
    assert bucket_numbers(table, schema, 16).tolist() == [default]
    if mod is not None:
        assert bucket_numbers(table, schema, 16, "mod").tolist() == [mod]


def test_a_bucket_key_that_is_no_column_is_named() -> None:
    schema = builders.schema(options={"bucket-key": "nothing"})
    with pytest.raises(UsageError, match="no column 'nothing'"):
        bucket_numbers(pa.table({"id": pa.array([1], pa.int32()), "name": ["x"]}), schema, 4)


@pytest.mark.parametrize("text", ["DOUBLE", "FLOAT"])
def test_every_nan_is_one_key_and_one_partition(text: str) -> None:
    """Java's NaN has one pattern of bits; a processor makes others."""
    schema = builders.schema({"p": text, "k": text}, ["p", "k"], ["p"])
    words = (
        np.array([0x7FF8 << 48, 0xFFF8 << 48, 0x7FF0 << 48 | 1], np.uint64)
        if text == "DOUBLE"
        else np.array([0x7FC00000, 0xFFC00000], np.uint32)
    )
    column = pa.array(words.view(f"f{words.itemsize}"))
    (only,) = group(pa.table({"p": column, "k": column}), schema, 1000)
    java = keyed_table([text], [math.nan])
    assert only.key.partition == binary_row.serialize((math.nan,), schema.partition_types)
    assert only.key.bucket == bucket_numbers(*java, 1000)[0]
    assert only.rows.tolist() == list(range(len(words)))


def test_mod_needs_one_integer_key() -> None:
    for types, values in ((["INT", "INT"], [1, 2]), (["STRING"], ["a"])):
        table, schema = keyed_table(types, values)
        with pytest.raises(UsageError, match="one bucket key of type INT or BIGINT"):
            bucket_numbers(table, schema, 4, "mod")


def test_an_unknown_bucket_function_is_refused() -> None:
    table, schema = keyed_table(["INT"], [1])
    with pytest.raises(Unsupported, match="hive"):
        bucket_numbers(table, schema, 4, "hive")


def test_the_bucket_key_may_be_a_part_of_the_primary_key() -> None:
    schema = builders.schema({"a": "INT", "b": "INT"}, ["a", "b"], options={"bucket": "8", "bucket-key": "b"})
    table = pa.table({"a": pa.array(range(50), pa.int32()), "b": pa.array([3] * 50, pa.int32())})
    assert len(set(bucket_numbers(table, schema, 8).tolist())) == 1


@pytest.mark.parametrize("name", ["keys_composite", "partitioned", "bucket_function_mod", "idx_partitioned"])
def test_every_row_of_a_java_table_is_in_its_bucket(name: str) -> None:
    """Java's own data files say where Java puts which row."""
    table = java_case(name)
    checked = 0
    for entry in table.data_files.values():
        schema = table.schemas[entry.file.schema_id]
        rows = pq.ParquetFile(table.directory / table.path(entry)).read(columns=list(schema.names))
        function = schema.options.get("bucket-function.type", "default")
        found = bucket_numbers(rows, schema, entry.total_buckets, function)
        assert found.tolist() == [entry.bucket] * rows.num_rows
        checked += rows.num_rows
    assert checked > 20


@given(
    rows=st.lists(
        st.tuples(st.sampled_from(["", "x", "ü"]), st.sampled_from([None, 1, 2]), st.integers(-(2**31), 2**31 - 1)), min_size=1, max_size=60
    ),
    buckets=st.integers(1, 5),
)
def test_groups_hold_every_row_once_in_arrival_order(rows: list[tuple[str, int | None, int]], buckets: int) -> None:
    schema = builders.schema({"p": "STRING", "q": "INT", "k": "INT"}, ["p", "k"], ["p", "q"])
    table = pa.table(
        {
            "p": [row[0] for row in rows],
            "q": pa.array([row[1] for row in rows], pa.int32()),
            "k": pa.array([row[2] for row in rows], pa.int32()),
        }
    )
    numbers = bucket_numbers(table, schema, buckets)
    expected: defaultdict[tuple[bytes, int], list[int]] = defaultdict(list)
    for i, (p, q, _) in enumerate(rows):
        expected[binary_row.serialize((p, q), schema.partition_types), int(numbers[i])].append(i)
    found = {(each.key.partition, each.key.bucket): each.rows.tolist() for each in group(table, schema, buckets)}
    assert found == expected


def test_no_rows_make_no_groups() -> None:
    schema = builders.schema()
    assert group(pa.table({"id": pa.array([], pa.int32()), "name": pa.array([], pa.string())}), schema, 3) == []


def test_dates_in_partitions_are_days() -> None:
    schema = builders.schema({"d": "DATE", "k": "INT"}, ["d", "k"], ["d"])
    table = pa.table({"d": [date(1970, 1, 3)], "k": pa.array(np.array([1], dtype=np.int32))})
    (only,) = group(table, schema, 1)
    assert binary_row.deserialize(only.key.partition, schema.partition_types) == (2,)
