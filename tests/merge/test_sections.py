"""Sections and runs of files by their key ranges."""

from __future__ import annotations

from decimal import Decimal
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maintainer.errors import CorruptFile
from maintainer.merge.sections import key_range, newest_first, sections
from maintainer.model.files import DataFileMeta
from tests.support.builders import file_meta, row, types

KEY = key_range(types("INT"))


def files_of(*ranges: tuple[int, int]) -> list[DataFileMeta]:
    return [file_meta(f"{low}-{high}", keys=(low, high)) for low, high in ranges]


def shown(*ranges: tuple[int, int]) -> list[list[list[str]]]:
    return [[[file.file_name for file in run] for run in section] for section in sections(files_of(*ranges), KEY)]


def test_files_that_do_not_touch_are_sections_of_their_own() -> None:
    assert shown((20, 29), (0, 9), (10, 19)) == [[["0-9"]], [["10-19"]], [["20-29"]]]


def test_files_that_share_one_key_are_one_section_of_two_runs() -> None:
    assert shown((0, 10), (10, 20)) == [[["0-10"], ["10-20"]]]


def test_a_file_bridges_others_which_then_share_a_run() -> None:
    assert shown((0, 4), (6, 9), (3, 7), (12, 13)) == [[["0-4", "6-9"], ["3-7"]], [["12-13"]]]


def test_a_file_goes_to_the_run_that_ends_first() -> None:
    assert shown((0, 9), (1, 3), (2, 5), (4, 6), (6, 8)) == [[["0-9"], ["1-3", "4-6"], ["2-5", "6-8"]]]


def test_no_files_no_sections() -> None:
    assert sections([], KEY) == []


def test_metadata_without_a_readable_key_names_the_file() -> None:
    with pytest.raises(CorruptFile, match="bad"):
        sections([file_meta("bad", min_key=b"\0\0\0\5")], KEY)


def test_a_key_with_a_null_names_the_file() -> None:
    with pytest.raises(CorruptFile, match=r"bad: corrupt: .* NULL"):
        sections([file_meta("bad", min_key=row(None))], KEY)


def test_keys_compare_by_type_and_column() -> None:
    composite = key_range(types("STRING", "DECIMAL(38, 2)"))
    low = file_meta("low", keys=(("é", Decimal("1e30")), ("é", Decimal("1e31"))), key_types=("STRING", "DECIMAL(38, 2)"))
    high = file_meta("high", keys=(("😀", Decimal("-1e30")), ("😀", Decimal(0))), key_types=("STRING", "DECIMAL(38, 2)"))
    assert [section[0][0].file_name for section in sections([high, low], composite)] == ["low", "high"]


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 12)), max_size=25))
def test_sections_are_disjoint_ascending_and_no_smaller_than_they_could_be(ranges: list[tuple[int, int]]) -> None:
    files = [file_meta(str(number), keys=(low, low + width)) for number, (low, width) in enumerate(ranges)]
    bounds = {str(number): (low, low + width) for number, (low, width) in enumerate(ranges)}
    found = sections(files, KEY)
    assert sorted(file.file_name for section in found for run in section for file in run) == sorted(bounds)
    spans = [[bounds[file.file_name] for run in section for file in run] for section in found]
    for before, after in pairwise(spans):
        assert max(high for _, high in before) < min(low for low, _ in after)
    for section, span in zip(found, spans, strict=True):
        for run in section:
            for left, right in pairwise(run):
                assert bounds[left.file_name][1] < bounds[right.file_name][0]
        deepest = max(sum(low <= point <= high for low, high in span) for point, _ in span)
        assert len(section) == deepest
        assert len(section) > 1 or len(section[0]) == 1


def test_the_newest_file_has_the_largest_sequence_number() -> None:
    files = [file_meta(name, sequences=sequences) for name, sequences in [("a", (0, 5)), ("b", (6, 9)), ("c", (7, 9))]]
    assert [file.file_name for file in sorted(files, key=newest_first)] == ["b", "c", "a"]
