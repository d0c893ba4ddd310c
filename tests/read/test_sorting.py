"""Rows are sorted within a budget, and ties stay in the order they had."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maintainer.data.spill import Spill
from maintainer.data.values import from_arrow
from maintainer.errors import SpillError
from maintainer.model.values import order_key
from maintainer.read.order import SortKey, before
from maintainer.read.sorting import Sorter
from tests.support.builders import same, schema
from tests.support.built_tables import table_of
from tests.support.campaign import share
from tests.support.predicates import SCHEMA, VALUES, rows

ROUNDS = share("sorting in any memory against the model", short=100, long=5_000)
WIDE = schema({"id": "BIGINT", "k": "INT", "text": "STRING"})


def numbered(rows: int, seed: int = 0, width: int = 100) -> pa.Table:
    random = np.random.default_rng(seed)
    keys = random.integers(0, rows // 4 + 1, rows)
    return pa.table(
        {
            "id": pa.array(np.arange(rows)),
            "k": pa.array(keys.astype(np.int32), mask=keys % 17 == 0),
            "text": pa.array([f"{key % 10:x}" * width for key in keys.tolist()]),
        }
    )


def sorter(memory: int, limit: int | None = None, keys: str = "k", spill: Spill | None = None) -> Sorter:
    return Sorter(WIDE, tuple(SortKey(key.strip("-"), key.startswith("-")) for key in keys.split(",")), limit, memory, spill or Spill())


def expected(table: pa.Table, keys: str, limit: int | None = None) -> list[int]:
    found = table.to_pylist()
    for key in reversed(keys.split(",")):
        found.sort(key=lambda row: order_key(row[key.strip("-")]), reverse=key.startswith("-"))
    return [row["id"] for row in found[:limit]]


@settings(max_examples=ROUNDS, deadline=None)
@given(st.data(), st.lists(st.tuples(st.sampled_from(sorted(VALUES)), st.booleans()), min_size=1, max_size=3, unique_by=lambda key: key[0]))
def test_rows_are_ordered_as_in_the_model(data: st.DataObject, keys: list[tuple[str, bool]]) -> None:
    names = [name for name, _ in keys]
    values: list[dict[str, Any]] = data.draw(rows(names, max_size=30))
    in_order = list(values)
    for name, descending in reversed(keys):
        in_order.sort(key=lambda row: order_key(row[name]), reverse=descending)
    limit = data.draw(st.none() | st.integers(1, 8))
    memory = data.draw(st.sampled_from([1, 300, 2_000, 1 << 20]))
    table = table_of(values, SCHEMA).select(names)
    batches = table.to_batches(max_chunksize=data.draw(st.integers(1, 7)))
    found = list(Sorter(SCHEMA, tuple(SortKey(*key) for key in keys), limit, memory, Spill()).sorted(batches))
    ordered = pa.Table.from_batches(found, schema=table.schema)
    for name in names:
        assert same(from_arrow(ordered.column(name), SCHEMA.field(name).type), [row[name] for row in in_order[:limit]])


@settings(max_examples=ROUNDS, deadline=None)
@given(st.data(), st.lists(st.tuples(st.sampled_from(sorted(VALUES)), st.booleans()), min_size=1, max_size=3, unique_by=lambda key: key[0]))
def test_what_comes_before_a_row(data: st.DataObject, keys: list[tuple[str, bool]]) -> None:
    names = [name for name, _ in keys]
    values: list[dict[str, Any]] = data.draw(rows(names).filter(bool))
    table = table_of(values, SCHEMA).select(names)
    at = data.draw(st.integers(0, len(values) - 1))
    places = list(range(len(values)))
    for name, descending in reversed(keys):
        places.sort(key=lambda place: order_key(values[place][name]), reverse=descending)
    tied = [all(order_key(row[name]) == order_key(values[at][name]) for name in names) for row in values]
    first = min(places.index(place) for place, is_tied in enumerate(tied) if is_tied)
    for ties in (False, True):
        found = before(table, table.slice(at, 1), [SortKey(*key) for key in keys], SCHEMA, ties)
        assert found.tolist() == [places.index(place) < first or (ties and tied[place]) for place in range(len(values))]


@pytest.mark.parametrize(("keys", "memory"), [("k", 60_000), ("-k", 200_000), ("-text,k", 200_000), ("k,-text", 64 << 20)])
def test_ties_stay_in_the_order_they_had_in_any_memory(keys: str, memory: int) -> None:
    table = numbered(6_000)
    for limit in (None, 3, 2_500):
        found = [row for batch in sorter(memory, limit, keys).sorted(table.to_batches(max_chunksize=300)) for row in batch["id"].to_pylist()]
        assert found == expected(table, keys, limit)


def test_what_does_not_fit_is_spilled_and_given_back(tmp_path: Path) -> None:
    spill, used = Spill(str(tmp_path)), []

    def batches() -> Iterator[pa.RecordBatch]:
        for seed in range(40):
            used.append(spill.used)
            yield from numbered(5_000, seed).to_batches()

    ordered = sorter(4 << 20, spill=spill).sorted(batches())
    first = next(ordered)
    assert first["k"].null_count
    assert used[-1] > 0 and spill.used > 0
    ordered.close()
    assert spill.used == 0


def test_the_memory_that_sorting_takes_is_bounded(tmp_path: Path) -> None:
    budget = 4 << 20
    pa.default_memory_pool().release_unused()
    start, peak, rows, last = pa.total_allocated_bytes(), 0, 0, None
    for batch in sorter(budget, spill=Spill(str(tmp_path))).sorted(batch for seed in range(30) for batch in numbered(5_000, seed).to_batches()):
        peak, rows = max(peak, pa.total_allocated_bytes() - start), rows + batch.num_rows
        keys = batch["k"].drop_null()
        assert last is None or not len(keys) or keys[0].as_py() >= last
        last = keys[-1].as_py() if len(keys) else last
    assert rows == 150_000
    assert peak < budget


def test_a_limit_needs_no_spill() -> None:
    nowhere = Spill(limit=0)
    batches = [batch for seed in range(20) for batch in numbered(5_000, seed).to_batches()]
    (found,) = sorter(4 << 20, limit=5, keys="-k", spill=nowhere).sorted(batches)
    assert found["k"].to_pylist() == sorted((key for batch in batches for key in batch["k"].to_pylist() if key is not None), reverse=True)[:5]
    with pytest.raises(SpillError, match="above the limit of 0"):
        list(sorter(4 << 20, spill=nowhere).sorted(batches))


def test_a_limit_that_does_not_fit_is_spilled(tmp_path: Path) -> None:
    spill = Spill(str(tmp_path))
    table = numbered(40_000)
    found = [
        row
        for batch in sorter(2 << 20, limit=30_000, spill=spill).sorted(table.to_batches(max_chunksize=1_000))
        for row in batch["id"].to_pylist()
    ]
    assert found == expected(table, "k", 30_000)


def test_nothing_comes_of_nothing() -> None:
    assert list(sorter(1).sorted([])) == []
    assert list(sorter(1).sorted(numbered(3).slice(0, 0).to_batches())) == []
