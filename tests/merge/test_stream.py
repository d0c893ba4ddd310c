"""Merging runs: random files against a dict, and what survives of one key."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maintainer.data.spill import Spill
from maintainer.data.values import from_arrow, to_arrow_array
from maintainer.errors import CorruptFile, StorageError
from maintainer.merge import spilling, stream
from maintainer.merge import windows as windows_module
from maintainer.merge.candidates import Candidates, Source
from maintainer.merge.engine import merge_function
from maintainer.merge.order import Keys, comparable
from maintainer.merge.sections import key_range, newest_first, sections
from maintainer.merge.stream import Scan, merge_runs, scan
from maintainer.model.files import DataFileMeta
from maintainer.model.schema import TableSchema
from maintainer.model.types import DataField, DataType
from maintainer.model.values import order_keys
from maintainer.table.merging import MergeRules
from tests.support.builders import file_meta, types

INT = types("INT")
SYSTEM = ("_SEQUENCE_NUMBER", "_VALUE_KIND")
ADD, UPDATE_BEFORE, UPDATE_AFTER, DELETE = range(4)
PLENTY = 1 << 30


def rules_of(key_types: Sequence[DataType]) -> MergeRules:
    """Those of a deduplicate table with deletion vectors."""
    names = [f"k{i}" for i in range(len(key_types))]
    fields = [DataField(index, name, data_type) for index, (name, data_type) in enumerate(zip(names, key_types, strict=True))]
    fields.append(DataField(len(fields), "v", types("STRING")[0]))
    return MergeRules.of(TableSchema(0, tuple(fields), 9, primary_keys=tuple(names), options={"deletion-vectors.enabled": "true"}))


def merged_rows(window: Candidates, drop_deletes: bool) -> pa.Table:
    return merge_function(window_rules, window_rules.schema).merge(window, lookup=False).rows(drop_deletes)


def lookup_keys(window: Candidates) -> Keys:
    """The keys that only level 0 knows."""
    return window.group_keys(window.high < 0)


window_rules = rules_of(INT)


@dataclass(frozen=True)
class Record:
    key: tuple[Any, ...]
    sequence: int
    kind: int
    value: str


def source(
    name: str, level: int, records: Sequence[Record], key_types: Sequence[DataType] = INT, ordered: bool = True, width: int = 100
) -> Source:
    """A file of these records, in this order; `width` is what its metadata makes a row out to be."""
    keys = sorted((record.key for record in records), key=order_keys)
    sequences = [record.sequence for record in records]
    meta = file_meta(
        name,
        level,
        len(records),
        keys=(keys[0], keys[-1]),
        key_types=[str(data_type) for data_type in key_types],
        sequences=(min(sequences), max(sequences)),
        size=width * len(records),
    )
    columns = {f"k{i}": to_arrow_array([record.key[i] for record in records], data_type) for i, data_type in enumerate(key_types)}
    columns["v"] = pa.array([record.value for record in records])
    columns["_SEQUENCE_NUMBER"] = pa.array(sequences, pa.int64())
    columns["_VALUE_KIND"] = pa.array([record.kind for record in records], pa.int8())
    table = pa.table(columns)

    def read(names: Sequence[str], batch_rows: int) -> Iterator[pa.RecordBatch]:
        yield from table.select(names).to_batches(max_chunksize=batch_rows)

    return Source(meta, read, ordered)


def windows(runs: Sequence[Sequence[Source]], key_types: Sequence[DataType] = INT, budget: int = PLENTY) -> Iterator[Candidates]:
    names = [f"k{i}" for i in range(len(key_types))]
    return merge_runs(runs, [*names, "v", *SYSTEM], rules_of(key_types), names, key_types, budget, Spill())


def records_of(table: pa.Table, key_types: Sequence[DataType] = INT) -> list[Record]:
    columns = [from_arrow(table[f"k{i}"].combine_chunks(), data_type) for i, data_type in enumerate(key_types)]
    keys = list(zip(*columns, strict=True))
    others = (table[name].to_pylist() for name in ("_SEQUENCE_NUMBER", "_VALUE_KIND", "v"))
    return [Record(*row) for row in zip(keys, *others, strict=True)]


def merged(runs: Sequence[Sequence[Source]], drop_deletes: bool = True, budget: int = PLENTY) -> list[tuple[int, str]]:
    return [
        (record.key[0], record.value) for window in windows(runs, budget=budget) for record in records_of(merged_rows(window, drop_deletes))
    ]


def one(name: str, level: int, *records: tuple[int, int, int, str]) -> list[Source]:
    """A run of one file: (key, sequence, kind, value)."""
    return [source(name, level, [Record((key,), sequence, kind, value) for key, sequence, kind, value in records])]


# ------------------------------------------------------------------------------------------------------- what survives of a key


def test_the_largest_sequence_number_survives_whatever_the_order_of_runs() -> None:
    runs = [one("old", 5, (1, 1, ADD, "old")), one("new", 0, (1, 3, UPDATE_AFTER, "new")), one("middle", 0, (1, 2, ADD, "middle"))]
    for order in (runs, runs[::-1], runs[1:] + runs[:1]):
        assert merged(order) == [(1, "new")]


def test_an_older_level_survives_with_a_larger_sequence_number() -> None:
    assert merged([one("a", 3, (1, 9, ADD, "high")), one("b", 0, (1, 2, ADD, "low"))]) == [(1, "high")]


def test_of_records_above_level_0_only_that_of_the_smallest_level_counts() -> None:
    high, low = one("high", 5, (1, 9, ADD, "high")), one("low", 3, (1, 1, ADD, "low"))
    assert merged([high, low]) == [(1, "low")]
    assert merged([high, low, one("flush", 0, (1, 0, ADD, "flush"))]) == [(1, "low")]
    assert merged([high, low, one("flush", 0, (1, 2, ADD, "flush"))]) == [(1, "flush")]


def test_of_equal_sequence_numbers_an_add_survives_a_retract() -> None:
    assert merged([one("a", 0, (1, 5, ADD, "add")), one("b", 0, (1, 5, DELETE, "retract"))]) == [(1, "add")]
    assert merged([one("a", 0, (1, 5, UPDATE_BEFORE, "x")), one("b", 5, (1, 5, UPDATE_AFTER, "add"))]) == [(1, "add")]


def test_of_equal_records_the_smaller_level_survives_and_then_the_newer_file() -> None:
    assert merged([one("a", 0, (1, 5, ADD, "level 0")), one("b", 2, (1, 5, ADD, "level 2"))]) == [(1, "level 0")]
    newer = one("newer", 0, (1, 5, ADD, "newer"), (2, 9, ADD, "newer"))
    older = one("older", 0, (1, 5, ADD, "older"), (2, 6, ADD, "older"))
    for order in ([newer, older], [older, newer]):
        assert merged(order) == [(1, "newer"), (2, "newer")]


def test_deletes_are_kept_or_dropped() -> None:
    runs = [one("a", 4, (1, 1, ADD, "a"), (2, 2, ADD, "a")), one("b", 0, (1, 3, DELETE, "b"), (3, 4, UPDATE_BEFORE, "b"))]
    assert merged(runs) == [(2, "a")]
    assert merged(runs, drop_deletes=False) == [(1, "b"), (2, "a"), (3, "b")]
    assert merged(runs[1:], drop_deletes=False) == [(1, "b"), (3, "b")]
    assert merged(runs[1:]) == []


def test_keys_without_a_record_above_level_0_are_looked_up_also_when_deleted() -> None:
    runs = [
        one("a", 4, (1, 1, ADD, "a"), (2, 2, ADD, "a")),
        one("b", 0, (2, 5, ADD, "b"), (3, 6, ADD, "b"), (4, 7, DELETE, "b")),
    ]
    (window,) = windows(runs)
    assert [lookup_keys(window).at(index) for index in range(len(lookup_keys(window)))] == [(3,), (4,)]
    (window,) = windows(runs[:1])
    assert len(lookup_keys(window)) == 0


def test_a_record_is_kept_as_it_is() -> None:
    (window,) = windows([one("a", 0, (1, 7, UPDATE_AFTER, "v"))])
    assert records_of(merged_rows(window, True)) == [Record((1,), 7, UPDATE_AFTER, "v")]


# ---------------------------------------------------------------------------------------------------------- files out of order


def test_a_level_0_file_out_of_order_is_noticed_sorted_and_merged() -> None:
    double = types("DOUBLE")
    nan = float("nan")
    rows = [Record((key,), index, ADD, f"new {key}") for index, key in enumerate([nan, -1.0, 2.0], start=10)]
    flush = source("flush", 0, rows, double)
    assert scan(flush, ["k0"], double) == Scan(False, comparable((-1.0,), double), comparable((nan,), double))
    base = source("base", 5, [Record((key,), 0, ADD, f"old {key}") for key in (-1.0, 1.0, nan)], double)
    (window,) = windows([[base], [replace(flush, ordered=False)]], double)
    assert [record.value for record in records_of(merged_rows(window, True), double)] == ["new -1.0", "old 1.0", "new 2.0", "new nan"]


def test_duplicates_within_a_disordered_file_are_merged_like_those_of_files() -> None:
    rows = [(2, 5, ADD, "a"), (1, 7, ADD, "b"), (2, 6, DELETE, "c"), (1, 7, DELETE, "d"), (3, 1, ADD, "e"), (3, 1, ADD, "f")]
    run = [replace(one("flush", 0, *rows)[0], ordered=False)]
    assert merged([run], drop_deletes=False) == [(1, "b"), (2, "c"), (3, "f")]


def test_scanning_sees_disorder_across_batches_and_repeated_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "BATCH_ROWS", 2)

    def of(*keys: int) -> Scan:
        return scan(one("flush", 0, *((key, 0, ADD, "") for key in keys))[0], ["k0"], INT)

    assert of(1, 2, 3, 4, 5) == Scan(True, (1,), (5,))
    assert of(1, 2, 2, 3) == Scan(False, (1,), (3,))
    assert of(3, 4, 1, 2) == Scan(False, (1,), (4,))
    assert of(3, 9, 5, 1, 7) == Scan(False, (1,), (9,))


def test_long_keys_are_read_in_small_batches() -> None:
    def read(names: Sequence[str], batch_rows: int) -> Iterator[pa.RecordBatch]:
        asked.append(batch_rows)
        return original.read(names, batch_rows)

    asked: list[int] = []
    for width in (1, 20_000):
        records = [Record((f"{at}".zfill(width),), 0, ADD, "") for at in range(3)]
        original = source("flush", 0, records, types("STRING"))
        assert scan(replace(original, read=read), ["k0"], types("STRING")).ordered
    assert asked[0] == stream.BATCH_ROWS
    assert asked[1] * 20_000 <= stream.KEY_BATCH_BYTES <= asked[1] * 21_000


def test_a_scan_of_no_rows_finds_no_keys() -> None:
    empty = Source(file_meta("a"), lambda names, rows: iter([pa.record_batch({"k0": pa.array([], pa.int32())})]))
    assert scan(empty, ["k0"], INT) == Scan(True, None, None)


@given(st.integers(0, 2**32), st.integers(1, 800), st.integers(1, 100), st.integers(1, 60), st.integers(3_000, 100_000))
def test_a_file_sorted_by_spilling_is_what_it_is_sorted_in_memory(seed: int, size: int, keys: int, batch_rows: int, budget: int) -> None:
    random_ = random.Random(seed)
    rows = [(random_.randrange(keys), random_.randrange(3), random_.randrange(4)) for _ in range(size)]
    run = [one("flush", 0, *((key, sequence, kind, f"{at}") for at, (key, sequence, kind) in enumerate(rows)))[0]]
    run = [replace(run[0], ordered=False)]
    expected = [records_of(merged_rows(window, False)) for window in windows([run])]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stream, "BATCH_ROWS", batch_rows)
        patch.setattr(spilling, "LEAST_BATCH", budget // 100)
        assert [record for window in windows([run], budget=budget) for record in records_of(merged_rows(window, False))] == expected[0]


def test_a_small_file_is_sorted_without_a_temporary_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Spill, "file", None)
    run = [replace(one("flush", 0, (2, 5, ADD, "a"), (1, 7, ADD, "b"))[0], ordered=False)]
    assert merged([run]) == [(1, "b"), (2, "a")]


def large_and_disordered(name: str = "flush", rows: int = 4000) -> Source:
    records = [(key * 7919 % rows, key, ADD, f"{key}" * 10) for key in range(rows)]
    return replace(one(name, 0, *records)[0], ordered=False)


SMALL = 600_000
"""A budget that `large_and_disordered` needs several chunks with."""


def merge_small(runs: Sequence[Sequence[Source]], spill: Spill) -> Iterator[Candidates]:
    return merge_runs(runs, ["k0", "v", *SYSTEM], rules_of(INT), ["k0"], INT, SMALL, spill)


def test_what_was_spilled_is_given_back_at_the_end_and_when_the_merge_is_left() -> None:
    spill = Spill()
    rows = 0
    for window in merge_small([[large_and_disordered("a")], [large_and_disordered("b")]], spill):
        rows += merged_rows(window, True).num_rows
        assert spill.used or rows == 4000
    assert (rows, spill.used) == (4000, 0)
    left = merge_small([[large_and_disordered()]], spill)
    next(left)
    assert spill.used
    left.close()
    assert not spill.used


def test_nothing_stays_spilled_when_reading_fails() -> None:
    def broken(names: Sequence[str], batch_rows: int) -> Iterator[pa.RecordBatch]:
        yield from whole.read(names, batch_rows)
        assert spill.used
        raise OSError("gone")

    whole = large_and_disordered()
    spill = Spill()
    with pytest.raises(OSError, match="gone"):
        list(merge_small([[replace(whole, read=broken)]], spill))
    assert not spill.used


def test_runs_that_would_hold_too_much_when_open_are_copied_smallest_first() -> None:
    def reading(name: str, rows: int) -> list[Source]:
        (original,) = one(name, 0, *((key, 0, ADD, "") for key in range(rows)))

        def read(names: Sequence[str], batch_rows: int) -> Iterator[pa.RecordBatch]:
            open_now.append(name)
            yield from original.read(names, batch_rows)
            open_now.remove(name)

        return [replace(original, read=read, held=100 << 20)]

    open_now: list[str] = []
    runs = [reading("large", 500), *(reading(f"{number}", 100 + number) for number in range(20)), reading("larger", 600)]
    spill = Spill()
    merge = merge_runs(runs, ["k0", "v", *SYSTEM], rules_of(INT), ["k0"], INT, 1 << 30, spill)
    rows = 0
    for window in merge:
        rows += window.groups
        assert set(open_now) <= {"large", "larger"}
    assert rows == 600
    assert not spill.used


def test_the_limit_of_spilling_is_an_error_that_names_the_setting() -> None:
    spill = Spill(limit=20_000)
    with pytest.raises(StorageError, match=r"above the limit of 20000; raise `spill\.limit`"):
        list(merge_small([[large_and_disordered()]], spill))
    assert not spill.used


@pytest.mark.parametrize("keys", [(1, 3, 2), (1, 2, 2), (5, 6, 1, 2)])
def test_disorder_above_level_0_is_a_corrupt_file(keys: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "BATCH_ROWS", 2)
    runs = [one("broken", 3, *((key, 0, ADD, "") for key in keys)), one("fine", 0, (4, 9, ADD, ""))]
    with pytest.raises(CorruptFile, match="broken"):
        merged(runs)


def test_files_of_a_run_that_overlap_after_all_are_corrupt() -> None:
    run = [*one("first", 3, (1, 0, ADD, ""), (9, 0, ADD, "")), *one("second", 3, (5, 0, ADD, ""))]
    with pytest.raises(CorruptFile, match="second"):
        merged([run])


def test_a_null_key_names_its_file() -> None:
    batch = pa.record_batch(
        {"k0": pa.array([1, None]), "v": ["a", "b"], "_SEQUENCE_NUMBER": [0, 1], "_VALUE_KIND": pa.array([0, 0], pa.int8())}
    )
    broken = Source(file_meta("broken", 2), lambda names, rows: iter([batch.select(list(names))]))
    with pytest.raises(CorruptFile, match="broken"):
        list(windows([[broken]]))
    with pytest.raises(CorruptFile, match="broken"):
        scan(broken, ["k0"], INT)


# ------------------------------------------------------------------------------------------------------------------- streaming


def expected_of(files: Sequence[tuple[DataFileMeta, Sequence[Record]]]) -> list[tuple[Record, bool]]:
    """By a dict: the survivor of each key, and whether a record of a level above 0 was there."""
    by_key: dict[Any, list[tuple[DataFileMeta, Record]]] = {}
    for meta, records in files:
        for record in records:
            by_key.setdefault(order_keys(record.key), []).append((meta, record))
    result = []
    for _, candidates in sorted(by_key.items(), key=lambda item: item[0]):
        high = [candidate for candidate in candidates if candidate[0].level > 0]
        counted = [candidate for candidate in candidates if candidate[0].level == 0]
        counted += [min(high, key=lambda candidate: candidate[0].level)] if high else []
        age = sorted((meta for meta, _ in counted if meta.level == 0), key=newest_first)
        rank = {meta.file_name: -index for index, meta in enumerate(age)}
        best = max(counted, key=lambda c: (c[1].sequence, c[1].kind % 2 == 0, -c[0].level, rank.get(c[0].file_name, 0)))
        result.append((best[1], bool(high)))
    return result


@st.composite
def buckets(draw: st.DrawFn) -> tuple[tuple[DataType, ...], list[tuple[int, list[Record], int]]]:
    """Key types and files of a bucket: level, records (above level 0 in key order), and width of a row as metadata says."""
    key_types = draw(
        st.sampled_from([types("INT"), types("STRING"), types("BIGINT", "STRING"), types("DOUBLE"), types("DECIMAL(30, 3)", "INT")])
    )
    random_ = random.Random(draw(st.integers(0, 2**32)))
    pool = [tuple(_value(random_, data_type, size) for data_type in key_types) for size in range(draw(st.integers(1, 60)))]
    distinct = list({order_keys(key): key for key in pool}.items())
    files = []
    levels = [0] * draw(st.integers(0, 4)) + sorted(draw(st.sets(st.integers(1, 5), max_size=3)))
    sequences = draw(st.sampled_from(["by age", "random", "few"]))
    for number, level in enumerate(levels):
        keys = [key for _, key in sorted(random_.sample(distinct, random_.randint(1, len(distinct))), key=lambda item: item[0])]
        base = (10 - number) * 1000
        records = [
            Record(
                key,
                {"by age": base + index, "random": random_.randrange(100_000), "few": random_.randrange(3)}[sequences],
                random_.choice([0, 0, 0, 1, 2, 3]),
                f"{number}/{index}",
            )
            for index, key in enumerate(keys)
        ]
        cut = random_.randint(0, len(records)) if level else 0
        parts = [part for part in (records[:cut], records[cut:]) if part]
        if level == 0 and draw(st.booleans()):
            random_.shuffle(records)
        files += [(level, part, draw(st.sampled_from([1, 100, 10_000]))) for part in parts]
    return key_types, files


def _in_order(records: Sequence[Record]) -> bool:
    keys = [order_keys(record.key) for record in records]
    return all(before < after for before, after in pairwise(keys))


def _value(random_: random.Random, data_type: DataType, size: int) -> Any:
    from decimal import Decimal

    match str(data_type.root):
        case "STRING" | "VARCHAR":
            return "".join(random_.choice("ab\0é") for _ in range(random_.randrange(20)))
        case "DOUBLE":
            return random_.choice([float("nan"), 0.0, -0.0, random_.random(), -random_.random(), float(size)])
        case "DECIMAL":
            return Decimal(random_.choice([1, -1, 10**26, size])).scaleb(-3)
        case _:
            return random_.choice([size, -size, random_.randrange(-(2**31), 2**31 - 1)])


@given(
    buckets(),
    st.sampled_from([1, 40_000, 200_000, PLENTY]),
    st.sampled_from([1, 2, 7, 1000]),
    st.sampled_from([1, 5, 1000]),
    st.sampled_from([0, 30_000]),
    st.booleans(),
)
def test_random_files_merge_like_a_dict(
    case: tuple[tuple[DataType, ...], list[tuple[int, list[Record], int]]],
    budget: int,
    batch_rows: int,
    window_rows: int,
    held: int,
    drop: bool,
) -> None:
    key_types, files = case
    sources = {
        f"{i}": replace(source(f"{i}", level, records, key_types, ordered=_in_order(records), width=width), held=held)
        for i, (level, records, width) in enumerate(files)
    }
    found: list[tuple[Record, bool]] = []
    written: list[Record] = []
    looked_up: list[Any] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stream, "BATCH_ROWS", batch_rows)
        patch.setattr(windows_module, "WINDOW_ROWS", window_rows)
        patch.setattr(stream, "LEAST_FOR_OPEN_FILES", 0)
        for section in sections([each.file for each in sources.values()], key_range(key_types)):
            for window in windows([[sources[file.file_name] for file in run] for run in section], key_types, budget):
                found += zip(records_of(merged_rows(window, False), key_types), (window.high >= 0).tolist(), strict=True)
                written += records_of(merged_rows(window, drop), key_types)
                looked_up += [lookup_keys(window).at(index) for index in range(len(lookup_keys(window)))]
    expected = expected_of([(sources[f"{i}"].file, records) for i, (_, records, _) in enumerate(files)])
    assert [(repr(record), high) for record, high in found] == [(repr(record), high) for record, high in expected]
    assert [repr(record) for record in written] == [repr(record) for record, _ in expected if not (drop and record.kind % 2)]
    assert looked_up == [comparable(record.key, key_types) for record, high in expected if not high]


def wide_run(name: str, level: int, rows: int, step: int, width: int, live: list[int]) -> list[Source]:
    """A file that makes up its rows as they are read."""

    def read(names: Sequence[str], batch_rows: int) -> Iterator[pa.RecordBatch]:
        for first in range(0, rows, batch_rows):
            keys = np.arange(first, min(first + batch_rows, rows), dtype=np.int64) * step
            live.append(len(keys))
            full = {"k0": keys, "v": pa.array(["x" * width] * len(keys)), "_SEQUENCE_NUMBER": keys, "_VALUE_KIND": np.zeros(len(keys), np.int8)}
            yield pa.record_batch({column: full[column] for column in names})

    return [Source(file_meta(name, level, rows, size=rows * width // stream.EXPANSION), read)]


def test_memory_stays_within_the_budget_whatever_the_number_of_runs() -> None:
    budget, width = 8 << 20, 1000
    for runs, file_rows in ((2, 40_000), (50, 4_000)):
        batches: list[int] = []
        sources = [wide_run(f"{i}", i % 2 * 3, file_rows, 1 + i % 3, width, batches) for i in range(runs)]
        before = pa.total_allocated_bytes()
        peak = rows = 0
        for window in windows(sources, types("BIGINT"), budget):
            rows += merged_rows(window, True).num_rows
            peak = max(peak, pa.total_allocated_bytes() - before)
        assert rows >= file_rows
        assert peak < budget
        assert max(batches) * width * 2 <= budget


def test_windows_are_large_when_the_budget_allows_whatever_the_sizes_of_runs() -> None:
    batches: list[int] = []
    runs = [wide_run("base", 5, 600_000, 1, 1, batches), *(wide_run(f"{i}", 0, 20_000, 30, 1, batches) for i in range(4))]
    sizes = [len(window.keys) for window in windows(runs, types("BIGINT"), 256 << 20)]
    assert sum(sizes) == 680_000
    assert min(sizes[:-1]) >= 100_000


def test_runs_that_take_turns_are_passed_on_as_they_are() -> None:
    runs = [one("a", 0, (1, 1, ADD, "a"), (2, 2, ADD, "a")), one("b", 0, (3, 3, ADD, "b"))]
    assert merged(runs, budget=1) == [(1, "a"), (2, "a"), (3, "b")]


def test_nothing_to_merge() -> None:
    assert list(windows([])) == []
    assert list(windows([[]])) == []
