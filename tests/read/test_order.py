from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maintainer.data.values import from_arrow
from maintainer.errors import UsageError
from maintainer.model.values import order_key
from maintainer.read.expression import col
from maintainer.read.order import SortKey, sort_keys, sorted_rows
from tests.support.builders import same, schema
from tests.support.built_tables import table_of
from tests.support.campaign import share
from tests.support.predicates import SCHEMA, VALUES, rows

ROUNDS = share("order by against the model", short=150, long=5_000)


@settings(max_examples=ROUNDS, deadline=None)
@given(st.data(), st.lists(st.tuples(st.sampled_from(sorted(VALUES)), st.booleans()), min_size=1, max_size=3, unique_by=lambda key: key[0]))
def test_rows_are_ordered_as_in_the_model(data: st.DataObject, keys: list[tuple[str, bool]]) -> None:
    names = [name for name, _ in keys]
    values: list[dict[str, Any]] = data.draw(rows(names))
    expected = list(values)
    for name, descending in reversed(keys):  # stable sorts, the least significant key first
        expected.sort(key=lambda row: order_key(row[name]), reverse=descending)
    limit = data.draw(st.none() | st.integers(0, 5))
    ordered = sorted_rows(table_of(values, SCHEMA).select(names), [SortKey(*key) for key in keys], SCHEMA, limit)
    for name in names:
        assert same(from_arrow(ordered.column(name), SCHEMA.field(name).type), [row[name] for row in expected[:limit]])


def test_sort_keys_can_be_written_in_many_ways() -> None:
    one = schema({"a": "INT", "b": "INT", "odd, name DESC": "INT", "x y": "INT", "tick`": "INT"})
    for text, keys in (
        ("a", [("a", False)]),
        ("a DESC", [("a", True)]),
        ("a asc, b desc", [("a", False), ("b", True)]),
        ("odd, name DESC", [("odd, name DESC", False)]),
        ("x y", [("x y", False)]),
        ("`x y` desc", [("x y", True)]),
        ("`odd, name DESC` DESC,`tick```", [("odd, name DESC", True), ("tick`", False)]),
        (["a", ("b", "DESC")], [("a", False), ("b", True)]),
        (("a", "desc"), [("a", True)]),
        (("a", "b"), [("a", False), ("b", False)]),
        (SortKey("b", True), [("b", True)]),
        (None, []),
    ):
        assert [(key.column, key.descending) for key in sort_keys(text, one)] == keys  # type: ignore[arg-type]


def test_what_has_no_order_is_refused() -> None:
    with pytest.raises(UsageError, match="has no order"):
        sort_keys("ai", SCHEMA)
    with pytest.raises(UsageError, match="no column 'nope'"):
        sort_keys("nope", SCHEMA)
    with pytest.raises(UsageError, match="only ASC or DESC may follow column 'i'"):
        sort_keys("i sideways", SCHEMA)
    with pytest.raises(UsageError, match="a backtick is not closed"):
        sort_keys("`i", SCHEMA)
    wrong: list[Any] = ["", "i,", ",i", "desc", ["i", "desc"], [("i", False)], [5], 5, (5, "desc"), {"i": "desc"}, col("i")]
    for asked in wrong:
        with pytest.raises(UsageError, match=r"^order by a column's name, 'name DESC', or \(name, 'desc'\), or a list of these, not by "):
            sort_keys(asked, SCHEMA)


def test_a_column_may_be_called_desc() -> None:
    named = schema({"id": "INT", "desc": "INT"})
    for text in ("desc", "`desc`", "desc asc"):
        assert sort_keys(text, named) == (SortKey("desc"),)
    assert sort_keys(["id", "desc desc"], named) == (SortKey("id"), SortKey("desc", True))
