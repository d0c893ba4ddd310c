"""Older versions of keys are found and marked like in a dict of the live rows, level by level."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap64

from maintainer.data import writer
from maintainer.data.key_cache import KeyCache
from maintainer.data.reader import DataFile, open_data_file
from maintainer.data.values import to_arrow_array
from maintainer.errors import CorruptFile
from maintainer.maintain.lookup import DeletionVectors, Lookup
from maintainer.merge.matching import match
from maintainer.merge.order import Keys
from maintainer.model.files import EMPTY_ROW, BucketKey, DataFileMeta, FileSource
from maintainer.model.schema import KIND_FIELD, SEQUENCE_FIELD, TableSchema
from maintainer.model.values import order_keys
from maintainer.storage.layout import Layout
from maintainer.storage.storage import Storage
from maintainer.table.options import TableOptions
from tests.support import builders
from tests.support.campaign import share

Key = tuple[Any, ...]

KEY_COLUMNS: dict[str, dict[str, str]] = {
    "int": {"a": "INT"},
    "text": {"a": "STRING"},
    "composite": {"a": "INT", "b": "STRING"},
    "wide decimal": {"a": "DECIMAL(30, 2)"},
    "double": {"a": "DOUBLE"},
}


class Bucket:
    """Files of some levels, and the lookup over them."""

    def __init__(self, directory: Path, columns: dict[str, str]) -> None:
        self.schema: TableSchema = builders.schema(columns, primary_keys=tuple(columns))
        self.storage = Storage.open(str(directory))
        self.layout = Layout.of(self.schema)
        self.types = self.schema.key_types
        self.opened: list[DataFile] = []

    def table(self, keys: list[Key]) -> pa.Table:
        columns = [to_arrow_array([key[index] for key in keys], data_type) for index, data_type in enumerate(self.types)]
        return pa.table(columns, names=list(self.schema.trimmed_primary_keys))

    def keys(self, keys: list[Key]) -> Keys:
        return Keys.of(self.table(keys).columns, self.types)

    def file(self, keys: list[Key], level: int) -> list[DataFileMeta]:
        options = TableOptions.of(self.schema)
        out = writer.DataFileWriter(
            self.storage, self.layout, self.schema, options, BucketKey(EMPTY_ROW, 0), level=level, source=FileSource.COMPACT
        )
        rows = self.table(keys)
        rows = rows.append_column(SEQUENCE_FIELD.name, pa.array(range(len(keys)), pa.int64()))
        out.write(rows.append_column(KIND_FIELD.name, pa.array([0] * len(keys), pa.int8())))
        return out.close()

    def open(self, meta: DataFileMeta) -> DataFile:
        path = self.layout.data_file_path(EMPTY_ROW, 0, meta)
        file = open_data_file(self.storage, path, meta, self.schema, self.schema)
        self.opened.append(file)
        return file

    def lookup(self, levels: list[list[DataFileMeta]], deletions: DeletionVectors, *more: Any) -> Lookup:
        return Lookup(levels, self.open, deletions, self.schema.trimmed_primary_keys, self.types, *more)


def key_of(kind: str, number: int) -> Key:
    """An order-preserving mapping of small numbers to keys of each kind."""
    match kind:
        case "int":
            return (number * 3 - 50,)
        case "text":
            return (f"ä{number:05d}",)
        case "composite":
            return (number // 4, f"k{number % 4}")
        case "wide decimal":
            return (Decimal(number).scaleb(-2) - 7,)
        case _:
            return (float("nan"),) if number == 199 else (number - 0.5,)


def small_row_groups(patch: pytest.MonkeyPatch, rows: int) -> None:
    patch.setattr(writer, "GROUP_ROWS", rows)
    patch.setattr(writer, "MAX_CHUNKS", 2**60)


def split(numbers: list[int]) -> list[list[int]]:
    """The keys of the files of a level."""
    middle = len(numbers) // 3
    return [part for part in (numbers[:middle], numbers[middle:]) if part]


@pytest.mark.parametrize("kind", KEY_COLUMNS)
@settings(max_examples=share("lookup of older versions", short=30, long=1000))
@given(data=st.data())
def test_marks_are_those_of_a_plain_model(kind: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    numbers = st.lists(st.integers(0, 199), unique=True, max_size=60).map(sorted)
    levels = [split(level) for level in data.draw(st.lists(numbers, max_size=3))]
    dead = data.draw(st.lists(st.integers(0, 59), max_size=20))
    wanted_keys, size = data.draw(numbers), data.draw(st.integers(1, 40))
    windows = [wanted_keys[start : start + size] for start in range(0, len(wanted_keys), size)] + [[]]
    bucket = Bucket(tmp_path_factory.mktemp("lookup"), KEY_COLUMNS[kind])
    with pytest.MonkeyPatch.context() as patch:
        small_row_groups(patch, 7)
        metas = [[meta for keys in level for meta in bucket.file([key_of(kind, n) for n in keys], 1 + at)] for at, level in enumerate(levels)]
    model: list[tuple[str, dict[int, int]]] = []
    deletions = DeletionVectors()
    for level, found in zip(levels, metas, strict=True):
        for meta, keys in zip(found, level, strict=True):
            positions = {number: position for position, number in enumerate(keys) if position not in dead}
            model.append((meta.file_name, positions))
            gone = [position for position in dead if position < len(keys)]
            if gone:
                deletions.vectors[meta.file_name] = BitMap64(gone)
    expected = {name: set(deletions.vectors.get(name, ())) for name, _ in model}
    count = 0
    with pytest.MonkeyPatch.context() as patch, bucket.lookup(metas, deletions) as lookup:
        patch.setattr("maintainer.maintain.lookup_file.BATCH_ROWS", 3)
        for window in windows:
            wanted = 0
            for number in window:
                for name, positions in model:
                    if number in positions:
                        expected[name].add(positions.pop(number))
                        wanted += 1
                        break
            count += wanted
            assert lookup.mark(bucket.keys([key_of(kind, number) for number in window])) == wanted
    assert {name: set(deletions.vectors.get(name, ())) for name, _ in model} == expected
    assert deletions.modified == (count > 0)
    assert all(file._source.closed for file in bucket.opened)


@pytest.mark.parametrize("kind", KEY_COLUMNS)
@settings(max_examples=share("lookup of rows", short=20, long=500))
@given(data=st.data())
def test_hits_are_those_of_a_plain_model(kind: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    numbers = st.lists(st.integers(0, 199), unique=True, max_size=60).map(sorted)
    levels = [split(level) for level in data.draw(st.lists(numbers, max_size=3))]
    dead = data.draw(st.lists(st.integers(0, 59), max_size=20))
    expired = data.draw(st.sets(st.integers(0, 59), max_size=20))
    passes = data.draw(st.lists(st.tuples(numbers, st.integers(1, 40)), min_size=2, max_size=3))
    directory = tmp_path_factory.mktemp("lookup")
    bucket = Bucket(directory, KEY_COLUMNS[kind])
    with pytest.MonkeyPatch.context() as patch:
        small_row_groups(patch, 7)
        metas = [[meta for keys in level for meta in bucket.file([key_of(kind, n) for n in keys], 1 + at)] for at, level in enumerate(levels)]
    deletions = DeletionVectors({meta.file_name: BitMap64(dead) for files in metas for meta in files} if dead else {})
    cache = data.draw(st.sampled_from([None, KeyCache(str(directory / "cache"))]))
    for numbers_of_pass, size in passes:
        with pytest.MonkeyPatch.context() as patch, bucket.lookup(metas, deletions, [SEQUENCE_FIELD.name], Unexpired(expired), cache) as lookup:
            patch.setattr("maintainer.maintain.lookup_file.BATCH_ROWS", 3)
            for start in range(0, len(numbers_of_pass), size):
                window = numbers_of_pass[start : start + size]
                expected = []
                for index, number in enumerate(window):
                    for files, parts in zip(metas, levels, strict=True):
                        places = [(meta, part.index(number)) for meta, part in zip(files, parts, strict=True) if number in part]
                        found = [(meta, at) for meta, at in places if at not in dead and at not in expired]
                        if found:
                            expected.append((index, found[0][0].level, found[0][0].file_name, found[0][1]))
                            break
                hits = lookup.find(bucket.keys([key_of(kind, number) for number in window]))
                assert list(zip(hits.indices, hits.levels, hits.files, hits.positions, strict=True)) == expected
                rows = [] if hits.rows is None else hits.rows.column(SEQUENCE_FIELD.name).to_pylist()
                assert rows == [position for _, _, _, position in expected]
    assert not deletions.modified
    assert all(file._source.closed for file in bucket.opened)


class Unexpired:
    """Leaves out rows by their sequence number, which is their position."""

    columns = (SEQUENCE_FIELD.name,)

    def __init__(self, expired: set[int]) -> None:
        self.expired = list(expired)

    def keeps(self, rows: pa.Table) -> np.ndarray:
        return ~np.isin(rows.column(SEQUENCE_FIELD.name).to_numpy(), self.expired)


@given(st.sets(st.integers(-5, 40)), st.sets(st.integers(-5, 40)), st.sampled_from(["int", "text", "composite"]), st.integers(1, 99))
def test_match_is_the_intersection(left: set[int], right: set[int], kind: str, few: int) -> None:
    types = builders.types(*KEY_COLUMNS[kind].values())
    values = [sorted((key_of(kind, number) for number in numbers), key=order_keys) for numbers in (left, right)]
    keys = [Keys.of([to_arrow_array([key[i] for key in side], one) for i, one in enumerate(types)], types) for side in values]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("maintainer.merge.matching._FEW", few)
        here, there = match(*keys)
    assert [values[0][row] for row in here] == [values[1][row] for row in there] == [value for value in values[0] if value in set(values[1])]


def test_what_has_expired_is_not_found_but_ends_where_it_is(tmp_path: Path) -> None:
    """Else the old row, in its file still, and the new one would both be alive."""
    bucket = Bucket(tmp_path, KEY_COLUMNS["double"])
    metas = bucket.file([(float(number),) for number in range(10)], 5)
    deletions = DeletionVectors()
    with bucket.lookup([metas], deletions, (), Unexpired({3, 4})) as lookup:
        assert list(lookup.find(bucket.keys([(1.0,), (3.0,)]), mark=True).positions) == [1]
        assert list(lookup.find(bucket.keys([(4.0,), (5.0,)])).positions) == [5]
    assert deletions.vectors == {metas[0].file_name: BitMap64([1, 3])}


def test_only_row_groups_that_may_hold_a_key_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bucket = Bucket(tmp_path, KEY_COLUMNS["int"])
    small_row_groups(monkeypatch, 100)
    metas = bucket.file([(number,) for number in range(1000)], 5)
    read: list[int] = []
    original = DataFile.batches

    def noting(self: DataFile, columns: Any, batch_rows: int, row_groups: Any = None) -> Any:
        read.extend(row_groups)
        return original(self, columns, batch_rows, row_groups)

    monkeypatch.setattr(DataFile, "batches", noting)
    with bucket.lookup([metas], DeletionVectors()) as lookup:
        assert lookup.mark(bucket.keys([(5,), (7,), (350,)])) == 3
        assert lookup.mark(bucket.keys([(351,), (999,)])) == 2
        assert lookup.mark(bucket.keys([(2000,)])) == 0
    assert read == [0, 3, 9]


def test_constant_first_columns_leave_the_next_one_to_tell_row_groups_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bucket = Bucket(tmp_path, KEY_COLUMNS["composite"])
    small_row_groups(monkeypatch, 10)
    metas = bucket.file([(7, f"{number:03d}") for number in range(95)] + [(8, f"{number:03d}") for number in range(25)], 5)
    with bucket.lookup([metas], DeletionVectors()) as lookup:
        assert list(lookup.find(bucket.keys([(7, "005"), (7, "058"), (7, "0585"), (8, "024")])).positions) == [5, 58, 119]
        assert lookup.bytes_read <= metas[0].file_size / 3


def test_rows_of_a_file_are_read_once_whatever_the_windows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bucket = Bucket(tmp_path, KEY_COLUMNS["int"])
    metas = bucket.file([(number,) for number in range(1000)], 5)
    read: list[int] = []
    original = DataFile.batches

    def counting(self: DataFile, columns: Any, *more: Any) -> Any:
        for first, batch in original(self, columns, *more):
            read.extend([batch.num_rows] * (SEQUENCE_FIELD.name in columns))
            yield first, batch

    monkeypatch.setattr(DataFile, "batches", counting)
    with bucket.lookup([metas], DeletionVectors(), [SEQUENCE_FIELD.name]) as lookup:
        for number in range(0, 1000, 10):
            hits = lookup.find(bucket.keys([(number,), (number + 5,)]))
            assert hits.rows is not None
            assert hits.rows.column(0).to_pylist() == [number, number + 5]
    assert sum(read) == 1000


def test_keys_in_the_cache_are_found_without_opening_the_file(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path, KEY_COLUMNS["int"])
    metas = bucket.file([(number,) for number in range(1000)], 5)
    cache = KeyCache(str(tmp_path / "cache"))
    for opened in (1, 1, 2):
        with bucket.lookup([metas], DeletionVectors(), (), None, cache, "bucket" if opened == 1 else "another bucket") as lookup:
            assert list(lookup.find(bucket.keys([(5,), (700,), (1001,)])).positions) == [5, 700]
        assert len(bucket.opened) == opened


def test_a_lookup_that_fails_keeps_nothing(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path, KEY_COLUMNS["int"])
    metas = bucket.file([(number,) for number in range(1000)], 5)
    cache = KeyCache(str(tmp_path / "cache"))
    with pytest.raises(KeyboardInterrupt), bucket.lookup([metas], DeletionVectors(), (), None, cache) as lookup:
        lookup.find(bucket.keys([(5,)]))
        raise KeyboardInterrupt
    assert cache.used == 0


def test_keys_in_the_cache_are_of_the_very_file(tmp_path: Path) -> None:
    """Not of one that had the same name, size and number of rows in the same place: the table was dropped, and is another one now."""
    bucket = Bucket(tmp_path, KEY_COLUMNS["int"])
    cache = KeyCache(str(tmp_path / "cache"))
    (old,), *others = (bucket.file([(number + step,) for number in range(0, 1000, 10)], 5) for step in range(10))
    step, new = next((step, meta) for step, (meta,) in enumerate(others, 1) if meta.file_size == old.file_size)
    path = bucket.layout.data_file_path(EMPTY_ROW, 0, old)
    with bucket.lookup([[old]], DeletionVectors(), (), None, cache) as lookup:
        assert len(lookup.find(bucket.keys([(500,), (500 + step,)]))) == 1
    bucket.storage.delete(path)
    bucket.storage.write(path, bucket.storage.read(bucket.layout.data_file_path(EMPTY_ROW, 0, new)))
    again = replace(new, file_name=old.file_name)
    with bucket.lookup([[again]], DeletionVectors(), (), None, cache) as lookup:
        assert lookup.find(bucket.keys([(500,), (500 + step,)])).indices.tolist() == [1]


def test_damage_of_the_cache_in_the_middle_of_a_walk_goes_back_to_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("maintainer.maintain.lookup_file.BATCH_ROWS", 100)
    bucket = Bucket(tmp_path, KEY_COLUMNS["int"])
    metas = bucket.file([(number,) for number in range(1000)], 5)
    cache = KeyCache(str(tmp_path / "cache"))
    for damaged in (False, True, False):
        if damaged:
            (path,) = (tmp_path / "cache").glob("*.keys")
            data = bytearray(path.read_bytes())
            data[8 * 550] ^= 1  # in the sixth block
            path.write_bytes(data)
        with bucket.lookup([metas], DeletionVectors(), (), None, cache) as lookup:
            assert list(lookup.find(bucket.keys([(5,), (510,), (550,)])).positions) == [5, 510, 550]
            assert list(lookup.find(bucket.keys([(551,), (700,)])).positions) == [551, 700]
        assert len(list((tmp_path / "cache").glob("*.keys"))) == 1
    assert len(bucket.opened) == 2


def test_keys_that_do_not_ascend_are_a_mistake(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path, KEY_COLUMNS["int"])
    metas = bucket.file([(1,), (2,)], 5)
    with bucket.lookup([metas], DeletionVectors()) as lookup:
        lookup.mark(bucket.keys([(2,)]))
        with pytest.raises(ValueError, match="must ascend"):
            lookup.mark(bucket.keys([(1,)]))


def test_a_key_that_was_deleted_already_is_not_found_again(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path, KEY_COLUMNS["int"])
    metas = bucket.file([(1,), (2,)], 5)
    deletions = DeletionVectors({metas[0].file_name: BitMap64([0])})
    with bucket.lookup([metas], deletions) as lookup:
        assert lookup.mark(bucket.keys([(1,)])) == 0
        assert not deletions.modified
        assert lookup.mark(bucket.keys([(2,)])) == 1
    assert list(deletions.vectors[metas[0].file_name]) == [0, 1]


def test_disorder_above_level_0_is_corrupt(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path, KEY_COLUMNS["int"])
    metas = bucket.file([(1,), (5,), (3,), (9,)], 5)
    with bucket.lookup([metas], DeletionVectors()) as lookup, pytest.raises(CorruptFile, match=metas[0].file_name):
        lookup.mark(bucket.keys([(3,)]))


class TestDeletionVectors:
    def test_marking_twice_changes_nothing(self) -> None:
        deletions = DeletionVectors()
        assert deletions.mark("a", np.array([3, 5])) == 2
        deletions.modified = False
        assert deletions.mark("a", np.array([5])) == 0
        assert not deletions.modified
        assert deletions.mark("a", np.array([], dtype=np.int64)) == 0

    def test_forgetting_a_file_without_a_vector_changes_nothing(self) -> None:
        deletions = DeletionVectors({"a": BitMap64([1])})
        deletions.remove("b")
        assert not deletions.modified
        deletions.remove("a")
        assert deletions.modified
        assert deletions.vectors == {}

    def test_only_vectors_of_live_files_are_written(self) -> None:
        deletions = DeletionVectors({"b": BitMap64([1]), "gone": BitMap64([2]), "a": BitMap64([3])})
        assert list(deletions.retain({"a", "b", "c"})) == ["a", "b"]
