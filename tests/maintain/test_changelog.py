"""What is told of a key, by what there was and what there is."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from maintainer.maintain.changelog import NOTHING, ChangelogRules, equal_values, records


def rows(kinds: list[int], values: list[int]) -> pa.Table:
    return pa.table({"v": values, "_VALUE_KIND": pa.array(kinds, pa.int8())})


def told(before: list[int], after: list[int], compared: tuple[str, ...] | None = None) -> list[tuple[int, int]]:
    """Keys 0, 1, …: what was has value 10 · key, what is has value 10 · key + 1, or the same where that is 20."""
    olds = [(kind, 10 * key) for key, kind in enumerate(before) if kind != NOTHING]
    news = [(kind, 10 * key + (key != 2)) for key, kind in enumerate(after) if kind != NOTHING]
    found = records(
        rows([kind for kind, _ in olds], [value for _, value in olds]),
        np.array(before, np.int8),
        rows([kind for kind, _ in news], [value for _, value in news]),
        np.array(after, np.int8),
        ChangelogRules(compared),
    )
    return list(zip(found["_VALUE_KIND"].to_pylist(), found["v"].to_pylist(), strict=True))


def test_each_case_of_the_specification() -> None:
    before = [NOTHING, 3, 0, 0, 2, NOTHING, NOTHING]
    after = [2, 0, 0, 3, 0, 3, NOTHING]
    assert told(before, after) == [(0, 1), (0, 11), (1, 20), (2, 20), (3, 30), (1, 40), (2, 41)]


def test_an_update_to_the_same_row_is_not_told_where_nobody_wants_it() -> None:
    assert told([0, 0, 0], [0, 0, 0], ("v",)) == [(1, 0), (2, 1), (1, 10), (2, 11)]


def test_values_are_compared_with_their_members_and_without_order_of_map_entries() -> None:
    lists = pa.array([[1, None], [1], None, [2]]), pa.array([[1, None], [1, 1], None, [3]])
    assert equal_values(*lists).tolist() == [True, False, True, False]
    kind = pa.map_(pa.string(), pa.int64())
    maps = pa.array([[("a", 1), ("b", 2)], [("a", 1)]], kind), pa.array([[("b", 2), ("a", 1)], [("a", 2)]], kind)
    assert equal_values(*maps).tolist() == [True, False]
    structs = pa.array([{"x": 1, "y": None}, {"x": 1, "y": 2}]), pa.array([{"x": 1, "y": None}, {"x": 1, "y": 3}])
    assert equal_values(*structs).tolist() == [True, False]
    assert equal_values(pa.array([float("nan"), 0.0]), pa.array([float("nan"), -0.0])).tolist() == [False, True]
