"""The columns of many files say what each file says by itself."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import maintainer.read.file_columns as file_columns
from maintainer.format import binary_row
from maintainer.merge.sections import overlapping
from maintainer.model.bucket import BucketState
from maintainer.model.files import EMPTY_ROW, BucketKey, DataFileMeta, SimpleStats
from maintainer.model.predicate import Leaf, Op, Predicate, fields_of
from maintainer.model.schema import TableSchema
from maintainer.model.types import DataField, DataType
from maintainer.model.values import order_key
from maintainer.read.file_columns import FileColumns
from maintainer.read.prune import NOTHING_KNOWN, Bounds, compiled
from maintainer.read.ranked import RankedBounds, may_match
from maintainer.table.state import TableState
from tests.support.builders import file_meta, schema, type_
from tests.support.campaign import share
from tests.support.file_bounds import FileBounds
from tests.support.predicates import ELEMENTS, SCHEMA, VALUES, predicates

ROUNDS = share("bounds of many files against those of each", short=40, long=10_000)
KEYS = ("i", "s")
READ = TableSchema(1, SCHEMA.fields, SCHEMA.highest_field_id, primary_keys=KEYS)
NARROWER = {"l": "INT", "i": "SMALLINT", "d": "FLOAT", "s": "INT", "t9": "TIMESTAMP(9) WITH LOCAL TIME ZONE", "dec": "DECIMAL(9, 2)"}
"""Types that columns had once: some were widened since, some became something else."""
WRITTEN = {
    0: TableSchema(
        0,
        tuple(
            DataField(field.id, f"old_{field.name}", type_(NARROWER[field.name]) if field.name in NARROWER else field.type)
            for field in SCHEMA.fields
            if field.name not in ("by", "ai")
        ),
        SCHEMA.highest_field_id,
        primary_keys=("old_i", "old_s"),
    ),
    1: READ,
}
POOLS: Mapping[str, list[Any]] = {
    "SMALLINT": [-5, 0, 5],
    "INT": VALUES["i"][1],
    "FLOAT": VALUES["f"][1],
    "TIMESTAMP(9) WITH LOCAL TIME ZONE": VALUES["t9"][1],
    "DECIMAL(9, 2)": VALUES["dec"][1][:3],
}


def pool(column: DataField) -> list[Any]:
    found = POOLS.get(column.type.sql())
    return found if found is not None else VALUES[column.name.removeprefix("old_")][1]


@st.composite
def stats_of(draw: st.DrawFn, columns: list[DataField], rows: int) -> SimpleStats:
    """Bounds as writers give them, and some that are damaged or cut off."""
    types = [column.type for column in columns]
    low, high, nulls = [], [], []
    for column in columns:
        values = [] if column.type.element is not None else draw(st.lists(st.sampled_from(pool(column)), max_size=2))
        values.sort(key=order_key)
        low.append(values[0] if values else None)
        high.append(draw(st.sampled_from([values[-1], None])) if values else None)
        nulls.append(draw(st.sampled_from([0, 1, rows, None])))
    data = [binary_row.serialize(each, types) for each in (low, high)]
    if draw(st.integers(0, 9)) == 0:
        data[draw(st.integers(0, 1))] = draw(st.sampled_from([b"", b"\0\0\0\1", EMPTY_ROW, b"\xff" * 40]))
    counts = draw(st.sampled_from([tuple(nulls), tuple(nulls[:1]), None]))
    return SimpleStats(data[0], data[1], counts)


@st.composite
def files(draw: st.DrawFn) -> DataFileMeta:
    rows = draw(st.integers(0, 3))
    written = WRITTEN[draw(st.integers(0, 1))]
    named = draw(st.sampled_from([None, (), written.names[:4], written.names[-6:]]))
    columns = [written.field(name) for name in (written.names if named is None else named)]
    keys = [written.field(name) for name in written.primary_keys]
    ends = sorted((tuple(draw(st.sampled_from(pool(key))) for key in keys) for _ in range(2)), key=lambda key: [order_key(one) for one in key])
    types = [key.type for key in keys]
    low, high = (binary_row.serialize(end, types) for end in ends)
    return file_meta(
        f"f{draw(st.integers(0, 10**9))}.{draw(st.sampled_from(['orc', 'parquet']))}",
        5,
        rows,
        schema_id=written.id,
        value_stats=draw(stats_of(columns, rows)),
        value_stats_cols=named,
        key_stats=draw(st.sampled_from([SimpleStats(), SimpleStats(low, high, (0, 0))])),
        min_key=draw(st.sampled_from([low, low, b""])),
        max_key=high,
    )


def state_of(*buckets: list[DataFileMeta], read: TableSchema = READ) -> TableState:
    states = [BucketState(EMPTY_ROW, number, len(buckets), tuple(each)) for number, each in enumerate(buckets)]
    return TableState(None, read, {BucketKey(EMPTY_ROW, state.bucket): state for state in states})  # type: ignore[arg-type]


@settings(max_examples=ROUNDS, deadline=None)
@given(st.data(), st.lists(st.lists(files(), max_size=4), max_size=3))
def test_files_that_may_match_are_those_of_which_each_may(data: st.DataObject, buckets: list[list[DataFileMeta]]) -> None:
    names = data.draw(st.lists(st.sampled_from(tuple(VALUES) + tuple(ELEMENTS)), min_size=1, max_size=2, unique=True))
    predicate = data.draw(predicates(names))
    columns = FileColumns.of(state_of(*buckets))
    found = may_match(predicate, lambda name: columns.bounds(READ.field(name), WRITTEN.__getitem__), len(columns))
    bounds = FileBounds(READ, WRITTEN.__getitem__, fields_of(predicate))
    assert found.tolist() == [compiled(predicate)(bounds.of(file)) for file in columns.files]


def ranked(low: list[Any], high: list[Any], data_type: DataType) -> RankedBounds:
    """Bounds of files with two rows, none of them null."""
    read = TableSchema(1, (DataField(0, "c", data_type),), 0)
    made = [
        file_meta(
            value_stats=SimpleStats(binary_row.serialize([one], [data_type]), binary_row.serialize([other], [data_type]), (0,)),
            value_stats_cols=None,
            schema_id=1,
        )
        for one, other in zip(low, high, strict=True)
    ]
    return FileColumns(state_of(made, read=read)).bounds(read.fields[0], lambda _: read)


@settings(max_examples=ROUNDS, deadline=None)
@given(st.data(), st.sampled_from(["s", "by", "l", "t6", "big", "dec"]))
def test_ranks_decide_as_bounds_do(data: st.DataObject, name: str) -> None:
    data_type, values = VALUES[name]
    made = st.tuples(st.sampled_from(values), st.sampled_from(values)).map(lambda pair: sorted(pair, key=order_key))
    pairs = data.draw(st.lists(made, min_size=1, max_size=5))
    predicate = data.draw(predicates([name]))
    bounds = ranked([low for low, _ in pairs], [high for _, high in pairs], data_type)
    each = [Bounds(low, None if isinstance(high, str) and high.endswith("?") else high, 0, 10) for low, high in pairs]
    assert may_match(predicate, lambda _: bounds, len(pairs)).tolist() == [compiled(predicate)({name: one}) for one in each]


@settings(max_examples=ROUNDS, deadline=None)
@given(st.data())
def test_unknown_bounds_decide_as_no_bounds_do(data: st.DataObject) -> None:
    predicate: Predicate = data.draw(predicates(["s", "l", "ai"]))
    unknown = RankedBounds.unknown(2)
    assert may_match(predicate, lambda _: unknown, 2).tolist() == [compiled(predicate)({"s": NOTHING_KNOWN})] * 2


KEY_TYPES = [["INT"], ["STRING", "INT"], ["DECIMAL(20, 2)"], ["TIMESTAMP(9)", "BOOLEAN"], ["DOUBLE", "INT"]]
KEY_POOLS: Mapping[str, list[Any]] = {
    "INT": list(range(-3, 12)),
    "STRING": ["", "a", "ab", "b", "é", "zz", "a" * 12],
    "DECIMAL(20, 2)": [VALUES["big"][1][1].scaleb(-2) + each for each in range(5)],
    "TIMESTAMP(9)": [-(10**22), -1, 0, 1, 10**9, 10**22],
    "BOOLEAN": [False, True],
    "DOUBLE": VALUES["d"][1],
}


@settings(max_examples=ROUNDS, deadline=None)
@given(st.data(), st.sampled_from(KEY_TYPES))
def test_sections_are_those_of_merging(data: st.DataObject, texts: list[str]) -> None:
    types = tuple(type_(text) for text in texts)
    key = st.tuples(*(st.sampled_from(KEY_POOLS[text]) for text in texts))
    read = schema({f"k{number}": text for number, text in enumerate(texts)} | {"v": "INT"}, [f"k{number}" for number in range(len(texts))])
    buckets = []
    for number in range(data.draw(st.integers(1, 2))):
        made = []
        for index, (one, other) in enumerate(data.draw(st.lists(st.tuples(key, key), max_size=6))):
            ends = sorted((one, other), key=lambda key: [order_key(value) for value in key])
            low, high = (binary_row.serialize(end, types) for end in ends)
            made.append(file_meta(f"{number}-{index}", data.draw(st.integers(0, 2)), min_key=low, max_key=high))
        buckets.append(made)
    columns = FileColumns(state_of(*buckets, read=read))
    asked = np.flatnonzero(np.array([data.draw(st.integers(0, 4)) > 0 for _ in columns.files], bool))
    if not len(asked):
        return
    ordered, starts, sizes = columns.sections(asked, read.key_types)
    assert sizes.tolist() == [len(section) for section in np.split(ordered, starts[1:])]
    found = sorted(sorted(columns.files[index].file_name for index in section) for section in np.split(ordered, starts[1:]))
    expected = [
        sorted(file.file_name for run in section for file in run)
        for number in range(len(buckets))
        for section in overlapping(read, [columns.files[index] for index in asked.tolist() if columns.files[index].file_name[0] == str(number)])
    ]
    assert found == sorted(expected)


def test_what_was_asked_for_long_ago_makes_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_columns, "MOST_KEPT", 3000)
    columns = FileColumns(state_of([file_meta()]))
    made: list[str] = []

    def ask(names: str) -> str:
        """What had to be made of these."""
        made.clear()
        for name in names:

            def make(name: str = name) -> Any:
                made.append(name)
                return np.zeros(5000 if name == "L" else 999, np.int8), np.zeros(1, np.int8)

            columns.kept(name, make)
        return "".join(made)

    assert ask("abcabc") == "abc"
    assert ask("dabcd") == "d", "beside the last one the others have a place"
    assert ask("L") == "L"
    assert ask("bcdL") == "", "one that is larger than all may be, too"
    assert ask("eL") == "eL", "but not for long"


@pytest.mark.parametrize("data_type", ["FLOAT", "DOUBLE"])
def test_bounds_of_floats_leave_room_for_minus_zero_and_nan(data_type: str) -> None:
    """Writers that compare like IEEE may have one zero for the other, and no NaN, in their statistics."""
    bounds = ranked([0.0, 1.0, math.nan], [1.0, 2.0, math.nan], type_(data_type))

    def may(op: Op, *literals: float) -> list[bool]:
        found: list[bool] = may_match(Leaf(op, "c", literals), lambda _: bounds, 3).tolist()
        return found

    assert may(Op.EQ, -0.0) == [True, False, True]
    assert may(Op.LT, 0.0) == [True, False, True]
    assert may(Op.LT, -0.0) == [False, False, True]
    assert may(Op.GT, math.inf) == may(Op.EQ, math.nan) == may(Op.IS_NAN) == [True, True, True]


def test_a_text_that_was_cut_within_a_character_is_no_upper_bound() -> None:
    bounds = ranked(["a", "a"], ["a" * 15 + "?", "a" * 15 + "b"], type_("STRING"))
    assert may_match(Leaf(Op.EQ, "c", ("b",)), lambda _: bounds, 2).tolist() == [True, False]


def test_padded_texts_are_no_bounds() -> None:
    """ORC pads CHAR in its statistics, and not only there."""
    char = type_("CHAR(3)")
    read = TableSchema(1, (DataField(0, "c", char),), 0)
    stats = SimpleStats(binary_row.serialize(["ab "], [char]), binary_row.serialize(["ab "], [char]), (0,))
    made = [file_meta(name, value_stats=stats, value_stats_cols=None, schema_id=1) for name in ("f.orc", "f.parquet")]
    bounds = FileColumns(state_of(made, read=read)).bounds(read.fields[0], lambda _: read)
    assert may_match(Leaf(Op.EQ, "c", ("ab",)), lambda _: bounds, 2).tolist() == [True, False]


def test_files_of_level_0_with_floating_keys_overlap_all_others() -> None:
    keys = schema({"k": "DOUBLE", "v": "INT"}, ["k"])
    ends = [binary_row.serialize([float(each)], keys.key_types) for each in range(6)]
    made = [file_meta(f"f{at}", level, min_key=ends[2 * at], max_key=ends[2 * at + 1]) for at, level in enumerate((1, 1, 0))]
    columns = FileColumns(state_of(made, read=keys))
    assert columns.sections(np.arange(3), keys.key_types)[2].tolist() == [3]
    assert columns.sections(np.arange(2), keys.key_types)[2].tolist() == [1, 1]
