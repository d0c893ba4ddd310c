from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maintainer.format import binary_row, simple_stats
from maintainer.model.files import DataFileMeta, SimpleStats
from maintainer.model.predicate import And, Leaf, Op, Or, Predicate
from maintainer.model.schema import TableSchema
from maintainer.model.values import order_key
from maintainer.read.prune import Bounds, Buckets, compiled
from maintainer.read.residual import mask
from maintainer.write.bucketing import bucket_numbers
from tests.support.builders import file_meta, schema
from tests.support.built_tables import table_of
from tests.support.campaign import share
from tests.support.file_bounds import FileBounds
from tests.support.predicates import ELEMENTS, VALUES, holds, predicates, rows

ROUNDS = share("pruning against the model", short=250, long=20_000)
NAMES = tuple(VALUES) + tuple(ELEMENTS)


def bounds_of(name: str, values: Sequence[Any], known: bool) -> Bounds:
    """As a file that holds these values has them; elsewhere nothing is known of the smallest and largest."""
    there = sorted((value for value in values if value is not None), key=order_key) if name in VALUES else []
    nulls = sum(value is None for value in values)
    if not known or not there:
        return Bounds(None, None, nulls, len(values))
    high = None if name in ("f", "d") else there[-1]
    low = -0.0 if there[0] == 0 and name in ("f", "d") else there[0]
    return Bounds(None if isinstance(low, float) and math.isnan(low) else low, high, nulls, len(values))


@settings(max_examples=ROUNDS, deadline=None)
@given(st.data(), st.lists(st.sampled_from(NAMES), min_size=1, max_size=2, unique=True))
def test_a_pruned_file_has_no_matching_row(data: st.DataObject, names: list[str]) -> None:
    values, predicate = data.draw(rows(names, max_size=5)), data.draw(predicates(names))
    bounds = {name: bounds_of(name, [row[name] for row in values], data.draw(st.booleans())) for name in names if data.draw(st.booleans())}
    if not compiled(predicate)(bounds):
        assert not any(holds(predicate, row) for row in values)


BETWEEN_3_AND_7 = {"i": Bounds(3, 7, 0, 10), "s": Bounds("bb", "cc", 1, 10)}


@pytest.mark.parametrize(
    ("leaf", "may_match"),
    [
        (Leaf(Op.EQ, "i", (2,)), False),
        (Leaf(Op.EQ, "i", (3,)), True),
        (Leaf(Op.EQ, "i", (8,)), False),
        (Leaf(Op.NE, "i", (3,)), True),
        (Leaf(Op.LT, "i", (3,)), False),
        (Leaf(Op.LE, "i", (3,)), True),
        (Leaf(Op.GT, "i", (7,)), False),
        (Leaf(Op.GE, "i", (7,)), True),
        (Leaf(Op.IN, "i", (1, 2, 8, None)), False),
        (Leaf(Op.IN, "i", (1, 5)), True),
        (Leaf(Op.IN, "i", ()), False),
        (Leaf(Op.NOT_IN, "i", (5, None)), False),
        (Leaf(Op.BETWEEN, "i", (8, 9)), False),
        (Leaf(Op.BETWEEN, "i", (0, 3)), True),
        (Leaf(Op.BETWEEN, "i", (5, 4)), False),
        (Leaf(Op.NOT_BETWEEN, "i", (3, 7)), False),
        (Leaf(Op.NOT_BETWEEN, "i", (4, 7)), True),
        (Leaf(Op.IS_NULL, "i"), False),
        (Leaf(Op.IS_NULL, "s"), True),
        (Leaf(Op.STARTS_WITH, "s", ("b",)), True),
        (Leaf(Op.STARTS_WITH, "s", ("bbb",)), True),
        (Leaf(Op.STARTS_WITH, "s", ("ba",)), False),
        (Leaf(Op.STARTS_WITH, "s", ("d",)), False),
        (Leaf(Op.STARTS_WITH, "s", ("",)), True),
        (Leaf(Op.LIKE, "s", ("a%c",)), False),
        (Leaf(Op.LIKE, "s", ("%c",)), True),
        (Leaf(Op.LIKE, "s", ("d\\%",)), False),
        (Leaf(Op.CONTAINS, "s", ("zz",)), True),
        (Leaf(Op.LIKE, "s", ("a",), negated=True), True),
        (Leaf(Op.EQ, "unknown", (1,)), True),
        (And((Leaf(Op.EQ, "i", (3,)), Leaf(Op.EQ, "s", ("z",)))), False),
        (Or((Leaf(Op.EQ, "i", (3,)), Leaf(Op.EQ, "s", ("z",)))), True),
        (And(()), True),
        (Or(()), False),
    ],
)
def test_bounds_decide(leaf: Predicate, may_match: bool) -> None:
    assert compiled(leaf)(BETWEEN_3_AND_7) is may_match


def test_equal_bounds_rule_out_inequality_and_only_nulls_rule_out_everything_else() -> None:
    same = {"i": Bounds(5, 5, 0, 3)}
    assert not compiled(Leaf(Op.NE, "i", (5,)))(same)
    assert not compiled(Leaf(Op.NOT_IN, "i", (4, 5)))(same)
    nulls = {"i": Bounds(None, None, 3, 3)}
    assert compiled(Leaf(Op.IS_NULL, "i"))(nulls)
    for leaf in (Leaf(Op.NE, "i", (5,)), Leaf(Op.IS_NOT_NULL, "i"), Leaf(Op.NOT_IN, "i", ()), Leaf(Op.IS_NAN, "i", negated=True)):
        assert not compiled(leaf)(nulls)


FILE_SCHEMA = schema({"id": "INT", "f": "DOUBLE", "s": "STRING", "gone": "INT", "n": "INT"})
READ_SCHEMA = TableSchema(
    id=1,
    fields=tuple(field for field in FILE_SCHEMA.fields if field.name not in ("gone", "n"))
    + schema({"_1": "INT", "_2": "INT", "_3": "INT", "_4": "INT", "_5": "INT", "new": "INT"}).fields[-1:],
    highest_field_id=5,
    primary_keys=("id",),
)


def bounds_of_file(
    low: tuple[Any, ...], high: tuple[Any, ...], columns: tuple[str, ...] | None, nulls: tuple[int | None, ...]
) -> dict[str, Bounds]:
    types = FILE_SCHEMA.types_of(FILE_SCHEMA.names if columns is None else columns)
    stats = SimpleStats(binary_row.serialize(low, types), binary_row.serialize(high, types), nulls)
    file: DataFileMeta = file_meta(keys=(10, 20), value_stats=stats, value_stats_cols=columns, level=5)
    return FileBounds(READ_SCHEMA, lambda _: FILE_SCHEMA, frozenset(READ_SCHEMA.names)).of(file)


def test_statistics_are_mapped_by_field_id_and_missing_columns_are_all_null() -> None:
    found = bounds_of_file((11, 1.0, "a", 1, 1), (19, 2.0, "b", 2, 2), None, (0, 3, None, 0, 0))
    assert found["id"] == Bounds(11, 19, 0, 10)
    assert found["f"] == Bounds(1.0, None, 3, 10)  # the largest may be NaN
    assert found["s"] == Bounds("a", "b", None, 10)
    assert found["new"] == Bounds(None, None, 10, 10)


def test_statistics_of_some_columns_or_none() -> None:
    assert bounds_of_file(("a",), ("b",), ("s",), (0,))["s"] == Bounds("a", "b", 0, 10)
    none = bounds_of_file((), (), (), ())
    assert none["id"] == Bounds(10, 20, 0, 10)  # the key says it
    assert none["f"] == Bounds(None, None, None, 10)


def test_bounds_that_may_not_hold_are_no_bounds() -> None:
    found = bounds_of_file((11, 0.0, "a", 1, 1), (19, math.nan, "x?", 2, 2), None, (0,) * 5)
    assert math.copysign(1, found["f"].low) == -1  # -0.0 may stand beside 0.0
    assert found["f"].high is None
    assert found["s"].high is None  # may be a cut text that Java could not increment
    assert bounds_of_file((11, math.nan, None, 1, 1), (19, 1.0, None, 2, 2), None, (0,) * 5)["f"].low is None


def test_damaged_statistics_are_no_bounds() -> None:
    file = file_meta(value_stats=SimpleStats(b"\0\0", b"", (0,)), key_stats=SimpleStats(b"", b"\1", ()), min_key=b"", level=5)
    found = FileBounds(READ_SCHEMA, lambda _: FILE_SCHEMA, frozenset(READ_SCHEMA.names)).of(file)
    assert found["id"] == Bounds(None, None, None, 10)


def test_truncated_text_bounds_still_hold() -> None:
    values = ["\U0010ffff" * 20, "a" * 20, "日本" * 20]
    for value in values:
        low, high = simple_stats.truncate(value, value, 16)
        assert compiled(Leaf(Op.EQ, "s", (value,)))({"s": Bounds(low, high, 0, 1)})


KEYS = {
    "i": ("INT", st.integers(-(2**31), 2**31 - 1)),
    "l": ("BIGINT", st.integers(-(2**63), 2**63 - 1)),
    "s": ("STRING", st.text(st.characters(exclude_categories=["Cs"]), max_size=12)),
    "t": ("TIMESTAMP(6)", st.integers(-(10**15), 10**15).map(lambda micros: micros * 1000)),
    "d": ("DECIMAL(20, 2)", st.decimals(-(10**10), 10**10, places=2)),
    "b": ("BOOLEAN", st.booleans()),
}


@settings(max_examples=100, deadline=None)
@given(st.data(), st.lists(st.sampled_from(sorted(KEYS)), min_size=1, max_size=3, unique=True), st.integers(1, 9), st.booleans())
def test_a_pruned_bucket_holds_none_of_the_keys(data: st.DataObject, names: list[str], buckets: int, mod: bool) -> None:
    if mod and names not in (["i"], ["l"]):
        mod = False
    table_schema = schema({name: KEYS[name][0] for name in names} | {"v": "INT"}, names, options={"bucket": str(buckets)})
    rows_ = data.draw(st.lists(st.fixed_dictionaries({name: KEYS[name][1] for name in names}), min_size=1, max_size=6))
    function = "mod" if mod else "default"
    homes = bucket_numbers(table_of(rows_, table_schema), table_schema, buckets, function).tolist()
    predicate = And(
        tuple(
            Leaf(Op.IN, name, (*dict.fromkeys(row[name] for row in rows_), None))
            if data.draw(st.booleans())
            else Leaf(Op.EQ, name, (rows_[0][name],))
            for name in names
        )
    )
    chosen = Buckets(predicate, table_schema, function)
    found = mask(predicate, table_of(rows_, table_schema), table_schema)
    numbers = chosen.numbers(buckets)
    assert numbers is None or {home for home, is_wanted in zip(homes, found, strict=True) if is_wanted} <= set(numbers)
    if len(names) == 1 and isinstance(predicate.children[0], Leaf) and predicate.children[0].op == Op.EQ:
        assert numbers == [homes[0]]


@pytest.mark.parametrize(
    "predicate",
    [
        Leaf(Op.GT, "i", (1,)),
        Or((Leaf(Op.EQ, "i", (1,)), Leaf(Op.EQ, "v", (1,)))),
        Leaf(Op.EQ, "v", (1,)),
        Leaf(Op.IN, "i", tuple(range(1001))),
    ],
)
def test_other_conditions_prune_no_bucket(predicate: Predicate) -> None:
    chosen = Buckets(predicate, schema({"i": "INT", "v": "INT"}), "default")
    assert chosen.numbers(4) is None


def test_unknown_bucket_functions_and_zero_keys_prune_nothing() -> None:
    one_int = schema({"i": "INT", "v": "INT"})
    assert Buckets(Leaf(Op.EQ, "i", (1,)), one_int, "hive").numbers(4) is None
    one_double = schema({"d": "DOUBLE", "v": "INT"})
    for value in (math.nan, 0.0):
        assert Buckets(Leaf(Op.EQ, "d", (value,)), one_double, "default").numbers(4) is None
