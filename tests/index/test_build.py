"""The public calls that build one payload: from values in the order of their rows, and from values that are sorted already."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from maintainer.data.values import to_arrow_array
from maintainer.errors import UsageError
from maintainer.index import build, family
from maintainer.index.definition import IndexDefinition
from maintainer.index.payload import Resources, Rows
from maintainer.model.types import DataType
from maintainer.model.values import order_key
from tests.support.builders import type_
from tests.support.random_rows import random_value
from tests.support.sorted_index import Built, build_arrays, definition

TYPES = ("BOOLEAN", "INT", "BIGINT", "DOUBLE", "DECIMAL(9, 2)", "DECIMAL(25, 2)", "STRING", "DATE", "TIMESTAMP(3)", "TIMESTAMP(9)")


def in_order(values: Sequence[Any], data_type: DataType) -> tuple[pa.Array, np.ndarray[Any, Any]]:
    """Values and rows as they are given to `build_sorted`."""
    rows = sorted(range(len(values)), key=lambda row: (values[row] is not None, 0 if values[row] is None else order_key(values[row])))
    return to_arrow_array([values[row] for row in rows], data_type), np.array(rows, np.int64)


def sorted_payload(index: IndexDefinition, batches: Sequence[tuple[Any, Any]], total: int) -> Built:
    data = bytearray()
    made = build.build_sorted(index, batches, total, data.extend)
    return Built(bytes(data), made.size, made.row_count, made.index_meta)


def payload(index: IndexDefinition, arrays: Sequence[pa.Array], total: int) -> Built:
    data = bytearray()
    made = build.build_payload(index, arrays, total, data.extend)
    return Built(bytes(data), made.size, made.row_count, made.index_meta)


@pytest.mark.parametrize("name", ["btree", "bitmap"])
@pytest.mark.parametrize("text", TYPES)
def test_sorted_values_make_the_payload_of_values_in_row_order(name: str, text: str) -> None:
    for seed in range(6):
        chance = random.Random(f"{text} {seed}")
        pool = [random_value(chance, type_(text), nulls=0.1) for _ in range(chance.choice([1, 5, 200]))]
        values = [chance.choice(pool) for _ in range(chance.choice([1, 50, 300]))]
        index = definition(name, text)
        column, rows = in_order(values, index.data_type)
        step = chance.choice([1, 7, 1000])
        batches = [(column[at : at + step], rows[at : at + step]) for at in range(0, len(rows), step)]
        expected = build_arrays([to_arrow_array(values, index.data_type)], index, len(values))
        assert sorted_payload(index, batches, len(values)) == expected
        assert payload(index, [to_arrow_array(values, index.data_type)], len(values)) == expected


def test_sorted_elements_make_the_payload_of_arrays() -> None:
    arrays = [["b", "a", "b"], None, [], ["c", None], ["a"]]
    index = definition("multivalue", "ARRAY<STRING>")
    expected = payload(index, [pa.array(arrays)], 5)
    elements = (pa.array(["a", "a", "b", "c"]), [0, 4, 0, 3])
    assert sorted_payload(index, [elements], 5) == expected
    twice = (pa.array(["a", "a", "b", "b", "c"]), [0, 4, 0, 0, 3])
    assert sorted_payload(index, [twice], 5) == expected


@pytest.mark.parametrize("name", ["btree", "bitmap", "multivalue", "fm"])
def test_values_in_row_order_for_every_family(name: str) -> None:
    text, values = ("ARRAY<INT>", [[1, 2], None, [3]]) if name == "multivalue" else ("STRING", ["b", None, "a"])
    index = definition(name, text)
    data = bytearray()
    array = to_arrow_array(values, index.data_type)
    family.family(name).build([Rows(0, array)], index, 3, data.extend, Resources())
    assert payload(index, [array[:1], array[1:]], 3).data == bytes(data)
    data.clear()
    build.build_payload(index, pa.chunked_array([array[:2], array[2:]]), 3, data.extend)
    assert payload(index, [array], 3).data == bytes(data)


def test_ordered_families_take_no_sorted_values() -> None:
    with pytest.raises(UsageError, match="fm does not sort values: use build_payload"):
        sorted_payload(definition("fm", "STRING"), [], 1)


@pytest.mark.parametrize(
    ("values", "rows", "what"),
    [
        (["b", "a"], [0, 1], "smaller"),
        (["a", None], [0, 1], "NULLs come first"),
        (["a", "b"], [0, 0], "2 values of 1 different rows were given for 2"),
        (["a"], [0], "1 values of 1 different rows were given for 2"),
        (["a", "b"], [0, 2], "between 0 and 1"),
        (["a", "b"], [-1, 0], "between 0 and 1"),
        (["a", "b"], [0], "2 values came with 1 rows"),
        (["a", "b"], [0.0, 1.0], "must be integers"),
        ([1, 2], [0, 1], None),
        ([b"a", b"\xff"], [0, 1], "no values of column"),
    ],
)
@pytest.mark.parametrize("step", [1, 2])
@pytest.mark.parametrize("name", ["btree", "bitmap"])
def test_what_is_not_sorted_is_refused(name: str, step: int, values: list[Any], rows: list[Any], what: str | None) -> None:
    index = definition(name, "STRING")
    batches: list[tuple[Any, Any]] = [(pa.array(values), rows)]
    if step == 1 and len(rows) == len(values):
        batches = [(pa.array([value], pa.array(values).type), [row]) for value, row in zip(values, rows, strict=True)]
    if what is None:  # numbers are no texts, but Arrow writes them as such
        sorted_payload(index, batches, 2)
        return
    with pytest.raises(UsageError, match=what):
        sorted_payload(index, batches, 2)


@pytest.mark.parametrize("call", [payload, sorted_payload])
def test_what_the_family_does_not_take_is_refused(call: Any) -> None:
    with pytest.raises(UsageError):
        call(definition("bitmap", "STRING", {"bitmap-index.dictionary-block-size": "0 b"}), [], 1)
    with pytest.raises(UsageError):
        call(definition("multivalue", "STRING"), [], 1)


@pytest.mark.parametrize("name", ["btree", "bitmap", "multivalue"])
def test_sorted_values_of_no_row_are_refused(name: str) -> None:
    with pytest.raises(UsageError, match="at least one row"):
        sorted_payload(definition(name, "ARRAY<INT>" if name == "multivalue" else "INT"), [], 0)


def test_a_value_of_very_many_rows_may_come_in_any_batches() -> None:
    index = definition("btree", "INT")
    rows = np.random.default_rng(0).permutation(5000)
    batches = [(pa.array([7] * 500, pa.int32()), rows[at : at + 500]) for at in range(0, 5000, 500)]
    assert sorted_payload(index, batches, 5000) == payload(index, [pa.array([7] * 5000, pa.int32())], 5000)
