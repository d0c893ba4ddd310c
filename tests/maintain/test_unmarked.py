"""Levels that overlap, and were made before deletion vectors were switched on."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maintainer.maintain.unmarked import schemas_without_vectors, unmarked
from maintainer.merge.sections import key_range
from maintainer.model.files import DataFileMeta
from tests.support.builders import file_meta, schema, types

KEY = key_range(types("INT"))
OLD = frozenset({0})


def file(name: str, level: int, low: int, high: int, schema_id: int = 0) -> DataFileMeta:
    return file_meta(name, level, keys=(low, high), schema_id=schema_id)


def names(*files: DataFileMeta) -> set[str] | None:
    found = unmarked(files, OLD, KEY)
    return None if found is None else {each.file_name for each in found}


def test_two_old_levels_that_overlap() -> None:
    assert names(file("a", 4, 0, 10), file("b", 5, 10, 20)) == {"a", "b"}
    assert names(file("a", 3, 5, 6), file("b", 5, 0, 20), file("c", 5, 21, 30)) == {"a", "b"}


@pytest.mark.parametrize(
    "files",
    [
        [],
        [file("a", 5, 0, 10), file("b", 5, 11, 20)],
        [file("a", 4, 0, 9), file("b", 5, 10, 20)],
        [file("a", 4, 0, 10, schema_id=1), file("b", 5, 0, 20)],
        [file("a", 4, 0, 10), file("b", 5, 0, 20, schema_id=1)],
        [file("a", 0, 0, 10), file("b", 5, 0, 20)],
    ],
    ids=["none", "one level", "apart", "the upper is new", "the lower is new", "level 0"],
)
def test_others_are_as_they_should_be(files: list[DataFileMeta]) -> None:
    assert names(*files) is None


def test_which_schemas_marked_nothing() -> None:
    off, on = schema(options={"bucket": "1"}), schema(schema_id=1)
    assert schemas_without_vectors([off, on]) == {0}


ranges = st.tuples(st.integers(1, 4), st.integers(0, 30), st.integers(0, 8), st.integers(0, 1))


@given(st.lists(ranges, max_size=10))
def test_any_overlap_of_two_old_levels_is_found(drawn: list[tuple[int, int, int, int]]) -> None:
    files: list[DataFileMeta] = []
    for number, (level, low, width, schema_id) in enumerate(drawn):
        if all(other.level != level or KEY(other)[1] < (low,) or (low + width,) < KEY(other)[0] for other in files):
            files.append(file(f"f{number}", level, low, low + width, schema_id))
    old = [each for each in files if each.schema_id == 0]
    overlap = [
        {one.file_name, other.file_name}
        for one, other in itertools.combinations(old, 2)
        if one.level != other.level and KEY(one)[0] <= KEY(other)[1] and KEY(other)[0] <= KEY(one)[1]
    ]
    found = names(*files)
    assert found in overlap if overlap else found is None
