"""What becomes of each file of a unit."""

from __future__ import annotations

import itertools
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from maintainer.maintain.unit import Keep, Rewrite, Rewriter, Step, UnitOptions, Upgrade, steps
from maintainer.merge.sections import key_range
from maintainer.model.files import DataFileMeta, FileSource
from maintainer.model.work import CompactionUnit
from tests.support.builders import file_meta, types

KEY = key_range(types("INT"))
SMALL, LARGE = 10, 1000
OPTIONS = UnitOptions(max_level=5, highest_level=5, small_file_size=100)


def shown(found: list[Step]) -> list[str]:
    def text(step: Step) -> str:
        match step:
            case Rewrite():
                return "rewrite " + " ".join("|".join("+".join(f.file_name for f in run) for run in section) for section in step.sections)
            case Upgrade():
                return f"upgrade {step.file.file_name}{' evaluated' if step.evaluate else ''}"
            case Keep():
                return f"keep {step.file.file_name}"

    return [text(step) for step in found]


def taken(files: list[DataFileMeta], output_level: int = 5, options: UnitOptions = OPTIONS) -> list[str]:
    return shown(steps(CompactionUnit(output_level, tuple(files)), KEY, options))


def test_a_lone_small_file_moves_up() -> None:
    assert taken([file_meta("a", size=SMALL)]) == ["upgrade a"]


def test_two_small_neighbours_are_merged_though_they_do_not_overlap() -> None:
    files = [file_meta("a", size=SMALL, keys=(0, 9)), file_meta("b", size=SMALL, keys=(10, 19))]
    assert taken(files) == ["rewrite a b"]


def test_a_file_of_the_small_file_limit_is_not_small() -> None:
    files = [file_meta("a", size=99, keys=(0, 9)), file_meta("b", size=100, keys=(10, 19)), file_meta("c", size=99, keys=(20, 29))]
    assert taken(files) == ["upgrade a", "upgrade b", "upgrade c"]


def test_a_large_file_between_small_ones_moves_up_in_order() -> None:
    files = [
        file_meta("a", size=SMALL, keys=(0, 9)),
        file_meta("b", size=SMALL, keys=(10, 19)),
        file_meta("large", size=LARGE, keys=(20, 29)),
        file_meta("c", size=SMALL, keys=(30, 39)),
    ]
    assert taken(files) == ["rewrite a b", "upgrade large", "upgrade c"]


def test_overlapping_files_are_merged_whatever_their_size_with_small_neighbours() -> None:
    files = [
        file_meta("a", size=LARGE, keys=(0, 9)),
        file_meta("b", size=LARGE, keys=(5, 19)),
        file_meta("c", size=SMALL, keys=(20, 29)),
        file_meta("d", size=LARGE, keys=(30, 39)),
    ]
    assert taken(files) == ["rewrite a|b c", "upgrade d"]


def test_a_file_at_the_output_level_stays() -> None:
    assert taken([file_meta("a", 5, size=LARGE, keys=(0, 9)), file_meta("b", size=SMALL, keys=(10, 19))]) == ["keep a", "upgrade b"]


def test_what_may_hold_deletes_is_rewritten_into_the_highest_level() -> None:
    for deletes in (1, None):
        assert taken([file_meta("a", 4, size=SMALL, deletes=deletes)]) == ["rewrite a"]
        assert taken([file_meta("a", 5, size=LARGE, deletes=deletes)]) == ["rewrite a"]
        assert taken([file_meta("a", 3, size=SMALL, deletes=deletes)], output_level=4) == ["upgrade a"]


def test_a_level_0_file_with_deletes_is_rewritten_into_any_level() -> None:
    assert taken([file_meta("a", size=SMALL, deletes=1)], output_level=3) == ["rewrite a"]
    assert taken([file_meta("a", size=SMALL, deletes=None)], output_level=3) == ["rewrite a"]


def test_below_the_highest_level_a_moved_file_still_has_older_versions_to_mark() -> None:
    assert taken([file_meta("a", size=SMALL)], output_level=4) == ["upgrade a evaluated"]
    assert taken([file_meta("a", 2, size=SMALL)], output_level=4) == ["upgrade a"]


def test_without_deletion_vectors_a_file_with_deletes_moves_below_the_highest_level() -> None:
    options = replace(OPTIONS, rewriter=Rewriter.PLAIN, deletion_vectors=False)
    assert taken([file_meta("a", size=SMALL, deletes=1)], 4, options) == ["upgrade a"]


def test_append_files_are_rewritten_where_indexes_want_them() -> None:
    options = replace(OPTIONS, rewrite_append=True)
    assert taken([file_meta("a", size=SMALL)], 5, options) == ["rewrite a"]
    assert taken([file_meta("a", 5, size=LARGE, source=FileSource.APPEND)], 5, options) == ["rewrite a"]
    assert taken([file_meta("a", 3, size=SMALL, source=FileSource.COMPACT)], 4, options) == ["upgrade a"]


def test_all_files_are_rewritten_on_request() -> None:
    options = replace(OPTIONS, force_rewrite_all_files=True)
    assert taken([file_meta("a", 5, size=LARGE)], 5, options) == ["rewrite a"]


def test_a_rewrite_of_single_files_keeps_them_apart_and_in_order() -> None:
    files = (file_meta("b", 5, size=SMALL, keys=(10, 19)), file_meta("a", 5, size=SMALL, keys=(0, 9)))
    assert shown(steps(CompactionUnit(5, files, file_rewrite=True), KEY, OPTIONS)) == ["rewrite b", "rewrite a"]


def test_a_disordered_file_is_never_moved_and_its_real_range_counts() -> None:
    nan_first = file_meta("nan", size=LARGE, keys=(50, 9))
    assert shown(steps(CompactionUnit(5, (nan_first,)), KEY, OPTIONS, {"nan": ((1,), (50,))})) == ["rewrite nan"]
    files = (nan_first, file_meta("a", 5, size=LARGE, keys=(0, 4)))
    assert shown(steps(CompactionUnit(5, files), KEY, OPTIONS, {"nan": ((1,), (50,))})) == ["rewrite a|nan"]


def test_only_a_rewrite_of_level_0_looks_older_versions_up() -> None:
    assert not Rewrite((((file_meta("a", 3),),),)).takes_level_0
    assert Rewrite((((file_meta("a", 3),), (file_meta("b", 0),)),)).takes_level_0


def test_deletes_are_dropped_where_nothing_older_is_left_to_hide() -> None:
    plain = replace(OPTIONS, rewriter=Rewriter.PLAIN, deletion_vectors=False)
    assert plain.drops_deletes(5)
    assert not plain.drops_deletes(4)
    assert replace(plain, highest_level=4).drops_deletes(4)
    assert OPTIONS.drops_deletes(4)
    assert not replace(OPTIONS, highest_level=-1).drops_deletes(0)


class TestLookupUpgrade:
    """A file of level 0 that a lookup rewriter is to move (spec 04 §6.2), without deletion vectors unless said otherwise."""

    OPTIONS = replace(OPTIONS, deletion_vectors=False)

    def test_without_vectors_and_changelog_nothing_has_to_be_looked_at(self) -> None:
        assert taken([file_meta("a", size=SMALL, deletes=1)], 4, self.OPTIONS) == ["upgrade a"]

    def test_a_changelog_needs_the_records_in_any_level(self) -> None:
        options = replace(self.OPTIONS, lookup_changelog=True)
        assert taken([file_meta("a", size=SMALL)], 4, options) == ["upgrade a evaluated"]
        assert taken([file_meta("a", size=SMALL)], 5, options) == ["upgrade a evaluated"]
        assert taken([file_meta("a", 3, size=SMALL)], 5, options) == ["upgrade a"]

    def test_records_that_older_ones_have_a_say_in_are_merged_with_them(self) -> None:
        options = replace(self.OPTIONS, last_wins=False)
        assert taken([file_meta("a", size=SMALL)], 4, options) == ["rewrite a"]
        assert taken([file_meta("a", size=SMALL)], 5, options) == ["upgrade a"]

    def test_ignored_deletes_are_not_moved_above_the_rows_that_they_would_hide(self) -> None:
        """Of the levels above 0 the smallest one counts alone, so that the delete would (they are of the time before they were ignored)."""
        options = replace(self.OPTIONS, ignore_delete=True)
        assert taken([file_meta("a", size=SMALL, deletes=1)], 4, options) == ["rewrite a"]
        assert taken([file_meta("a", size=SMALL, deletes=0)], 4, options) == ["upgrade a"]

    def test_deletes_go_with_vectors_alone(self) -> None:
        for vectors in (False, True):
            options = replace(self.OPTIONS, last_wins=False, deletion_vectors=vectors, highest_level=2)
            (step,) = steps(CompactionUnit(4, (file_meta("a", size=SMALL),)), KEY, options)
            assert isinstance(step, Rewrite) and step.drop_deletes == vectors

    def test_a_level_of_another_format_takes_no_file_as_it_is(self) -> None:
        options = replace(self.OPTIONS, file_formats={0: "avro"})
        assert taken([file_meta("a", size=SMALL)], 5, options) == ["rewrite a"]
        assert taken([file_meta("a", 1, size=SMALL)], 5, options) == ["upgrade a"]
        assert taken([file_meta("a", size=SMALL)], 5, replace(options, rewriter=Rewriter.PLAIN)) == ["upgrade a"]

    def test_a_vector_index_wants_files_of_a_compaction(self) -> None:
        assert taken([file_meta("a", size=SMALL)], 5, replace(OPTIONS, vector_index=True)) == ["rewrite a"]


def test_a_full_changelog_tells_what_reaches_the_highest_level() -> None:
    options = replace(OPTIONS, rewriter=Rewriter.FULL_CHANGELOG, deletion_vectors=False)
    assert taken([file_meta("a", size=SMALL)], 5, options) == ["upgrade a evaluated"]
    assert taken([file_meta("a", 3, size=SMALL)], 5, options) == ["upgrade a evaluated"]
    assert taken([file_meta("a", size=SMALL)], 4, options) == ["upgrade a"]


def test_files_with_expired_records_are_rewritten() -> None:
    options = replace(OPTIONS, expire_files=frozenset({"a"}))
    files = [file_meta("a", 5, size=LARGE, keys=(0, 9)), file_meta("b", 5, size=LARGE, keys=(10, 19))]
    assert taken(files, 5, options) == ["rewrite a", "keep b"]


@st.composite
def units(draw: st.DrawFn) -> CompactionUnit:
    files = []
    for number, (level, low, width) in enumerate(draw(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 99), st.integers(0, 20))))):
        size, deletes = draw(st.sampled_from([SMALL, LARGE])), draw(st.sampled_from([0, 1, None]))
        source = draw(st.sampled_from([None, FileSource.APPEND]))
        files.append(file_meta(str(number), level, size=size, keys=(low, low + width), deletes=deletes, source=source))
    return CompactionUnit(draw(st.integers(1, 5)), tuple(files))


@given(units(), st.booleans())
def test_each_file_is_in_one_step_and_steps_are_in_key_order(unit: CompactionUnit, rewrite_append: bool) -> None:
    options = replace(OPTIONS, rewrite_append=rewrite_append)
    found = steps(unit, KEY, options)
    assert sorted(file.file_name for step in found for file in step.files) == sorted(file.file_name for file in unit.files)
    spans = [(min(KEY(file)[0] for file in step.files), max(KEY(file)[1] for file in step.files)) for step in found]
    assert all(before[1] < after[0] for before, after in itertools.pairwise(spans))
    for step in found:
        if isinstance(step, Upgrade):
            assert step.file.level != unit.output_level
            assert not (unit.output_level == 5 and step.file.may_hold_deletes)
        if isinstance(step, Keep):
            assert step.file.level == unit.output_level
        if not isinstance(step, Rewrite) and rewrite_append:
            assert step.file.file_source == FileSource.COMPACT
