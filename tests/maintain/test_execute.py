"""Executing work on small tables: the worked example of spec 04 §11, two rounds, deletion vectors, groups, and what a failure leaves."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from maintainer.api.maintenance import plan_pass, run_pass
from maintainer.commit.committer import Committer
from maintainer.data.writer import DataFileWriter
from maintainer.errors import CorruptFile, MissingFile, StorageError, UsageError
from maintainer.format import binary_row, source_meta
from maintainer.index.family import btree
from maintainer.maintain.execute import execute
from maintainer.maintain.plan import PlanRequest
from maintainer.model.commit import CommitMessage
from maintainer.model.files import EMPTY_ROW, BucketKey, FileSource
from maintainer.model.schema import KIND_FIELD, SEQUENCE_FIELD
from maintainer.model.work import Plan, Result, Work, WorkKind
from tests.support.builders import type_
from tests.support.evolve import add_column
from tests.support.small_table import SmallTable

MEMORY = 64 << 20


@pytest.fixture
def example(tmp_path: Path) -> SmallTable:
    """File B: keys 0 … 1999 at positions 0 … 1999, sequence numbers 0 … 1999, in level 5."""
    return with_base(SmallTable(tmp_path))


def with_base(table: SmallTable, rows: int = 2000) -> SmallTable:
    numbers = random.Random(7)
    table.write({key: numbers.randrange(2**60) for key in range(rows)})
    table.maintain(rewrite_append=False)
    assert [(level, count) for level, _, count in table.files()] == [(5, rows)]
    return table


def write_example(table: SmallTable) -> None:
    table.write({2: 12, 3: 13})
    table.write({5: 15}, delete=[4])
    table.write({2: 22, 5000: 25})


def planned(table: SmallTable, **request: Any) -> Plan:
    return plan_pass(table.store, PlanRequest(**request))


def executed(table: SmallTable, **request: Any) -> Result:
    plan = planned(table, **request)
    (work,) = plan.work
    return execute(plan, work, table.store, table.table.schema, MEMORY)


class TestWorkedExample:
    def test_normal_pick(self, example: SmallTable) -> None:
        write_example(example)
        example.maintain(repeat=False)
        base, new = example.file(5), example.file(4)
        assert example.files() == [(4, "COMPACT", 4), (5, "APPEND", 2000)]
        assert [(number, key) for _, number, key in example.records(new)] == [(2004, 2), (2001, 3), (2003, 5), (2005, 5000)]
        assert (new.min_sequence_number, new.max_sequence_number, new.delete_row_count) == (2001, 2005, 0)
        assert example.deleted(base) == [2, 3, 4, 5]
        assert example.deleted(new) == []
        example.check()

    def test_then_full_compaction_and_full_again(self, example: SmallTable) -> None:
        write_example(example)
        example.maintain()
        report = example.maintain(full=True)
        assert (report.input_files, report.output_files) == (2, 1)
        assert example.files() == [(5, "COMPACT", 2000)]
        assert (example.file(5).min_sequence_number, example.file(5).max_sequence_number) == (0, 2005)
        vectors = example.bucket().deletion_file
        assert vectors is not None
        assert (vectors.row_count, vectors.deletion_ranges, vectors.file_size) == (0, (), 1)
        assert Path(example.path, "index", vectors.file_name).read_bytes() == b"\x01"
        snapshot = example.store.latest_snapshot_id()
        assert example.maintain(full=True).outcome == "nothing"
        assert example.store.latest_snapshot_id() == snapshot
        example.check()

    def test_full_instead_of_normal_writes_no_deletion_vectors(self, example: SmallTable) -> None:
        write_example(example)
        example.maintain(full=True)
        assert example.files() == [(5, "COMPACT", 2000)]
        assert example.bucket().deletion_file is None
        example.check()

    def test_one_level_0_file_moves_up_as_it_is_and_marks_the_base(self, example: SmallTable) -> None:
        example.write({2: 12, 3: 13})
        name = example.file(0).file_name
        report = example.maintain()
        assert (example.file(4).file_name, example.file(4).file_source) == (name, FileSource.APPEND)
        assert (report.input_files, report.output_files, report.bytes_read) == (1, 1, 0)
        assert example.deleted(example.file(5)) == [2, 3]
        example.check()

    def test_a_level_0_file_with_a_delete_is_rewritten(self, example: SmallTable) -> None:
        example.write({2: 12}, delete=[3])
        example.maintain()
        assert example.files() == [(4, "COMPACT", 1), (5, "APPEND", 2000)]
        assert example.deleted(example.file(5)) == [2, 3]
        example.check()

    def test_a_file_with_only_deletes_leaves_nothing_but_marks(self, example: SmallTable) -> None:
        example.write(delete=[3, 1999, 2000])
        report = example.maintain()
        assert (report.input_files, report.output_files) == (1, 0)
        assert example.files() == [(5, "APPEND", 2000)]
        assert example.deleted(example.file(5)) == [3, 1999]
        example.check()

    def test_the_next_small_file_is_merged_with_the_upgraded_one(self, example: SmallTable) -> None:
        example.write({2: 12, 4: 14})
        example.maintain()
        example.write({3: 13, 4: 24})
        example.maintain()
        assert example.files() == [(4, "COMPACT", 3), (5, "APPEND", 2000)]
        assert example.deleted(example.file(5)) == [2, 3, 4]
        example.check()

    def test_full_compaction_of_the_highest_level_rewrites_only_files_with_a_vector(self, tmp_path: Path) -> None:
        table = SmallTable(tmp_path, target_file_size="4 kb")
        table.write({key: key * 1_000_003 % 2**40 for key in range(3000)})
        table.maintain()
        table.write(delete=[10])
        table.maintain()
        (level,) = {file.level for file in table.bucket().files}
        before = {file.file_name: file for file in table.bucket().files}
        marked = {name for name in before if table.deleted(name)}
        assert (level, len(before) > 1, len(marked)) == (5, True, 1)
        table.maintain(full=True)
        after = {file.file_name for file in table.bucket().files}
        assert before.keys() - after == marked
        assert len(after - before.keys()) == 1
        table.check()


class TestStates:
    def test_one_small_file_and_nothing_else_moves_to_the_highest_level(self, tmp_path: Path) -> None:
        table = SmallTable(tmp_path)
        table.write({1: 1})
        paths = table.paths()
        assert planned(table).work[0].kind is WorkKind.UPGRADE
        assert table.maintain().bytes_written == 0
        assert table.files() == [(5, "APPEND", 1)]
        assert table.paths() == paths
        table.check()

    def test_all_rows_deleted(self, tmp_path: Path) -> None:
        table = SmallTable(tmp_path, indexes=True)
        table.write({1: 1, 2: 2})
        table.maintain()
        table.write(delete=[1, 2])
        table.maintain(full=True)
        snapshot = table.store.latest_snapshot()
        assert snapshot is not None
        assert snapshot.total_record_count == 0
        assert (table.files(), table.bucket().payloads) == ([], ())
        table.check()
        table.write({1: 3})
        table.maintain()
        table.check()

    def test_output_rolls_into_files_with_disjoint_keys(self, tmp_path: Path) -> None:
        table = SmallTable(tmp_path, indexes=True, target_file_size="20 kb")
        table.write({key: key * 1_000_003 % 2**40 for key in range(0, 12_000, 2)})
        table.write({key: key * 1_000_003 % 2**40 for key in range(1, 12_000, 2)})
        table.maintain()
        files = [file for file in table.bucket().files if file.level == 5]
        assert len(files) > 2
        assert sum(file.row_count for file in files) == 12_000
        assert table.groups() == {"v": [5], "s": [5]}
        table.check()

    def test_more_levels_than_the_option_allows_stay_usable(self, example: SmallTable) -> None:
        example.write({2: 12}, delete=[3])
        store = example.with_options(num_levels="3")
        plan = plan_pass(store, PlanRequest())
        assert plan.work[0].unit is not None
        assert plan.work[0].unit.output_level == 4

    def test_added_columns_are_null_in_rewritten_rows(self, tmp_path: Path) -> None:
        table = SmallTable(tmp_path)
        table.write({1: 1})
        text = Path(table.path, "schema", "schema-0").read_text()
        schema = json.loads(text)
        schema["id"], schema["highestFieldId"] = 1, 3
        schema["fields"].append({"id": 3, "name": "later", "type": "INT"})
        Path(table.path, "schema", "schema-1").write_text(json.dumps(schema))
        table.write(delete=[7])
        table.maintain(full=True)
        assert table.file(5).schema_id == 1
        assert table.table.scan().to_arrow().to_pylist() == [{"id": 1, "v": 1, "s": "s1", "later": None}]

    def test_an_added_row_column_has_no_members(self, tmp_path: Path) -> None:
        table = SmallTable(tmp_path)
        table.write({1: 1, 2: 2})
        add_column(table.path, "later", type_("ROW<x INT NOT NULL, y VARIANT NOT NULL>"))
        table.write(delete=[2])
        table.maintain(full=True)
        assert table.file(5).schema_id == 1
        assert table.table.scan().to_arrow().to_pylist() == [{"id": 1, "v": 1, "s": "s1", "later": None}]


class TestSecondRound:
    """Two small runs make a file of level 3 by their sizes; then there are three runs, one too many, and level 3 goes into level 4."""

    def test_what_the_first_round_makes_and_the_second_consumes_is_in_no_list_and_gone(self, two_rounds: SmallTable) -> None:
        before = two_rounds.paths()
        result = executed(two_rounds)
        message = result.message
        made = {path for path in result.created if path.startswith("bucket-0/")}
        assert sorted(file.level for file in message.compact_before) == [0, 0, 4]
        assert [(file.level, f"bucket-0/{file.file_name}" in made) for file in message.compact_after] == [(4, True)]
        assert two_rounds.paths() - before == set(result.created)
        assert len(made) == 1
        assert result.reason == "2 level-0 files cannot be seen by batch readers; second round: 2 files into level 4"

    def test_what_the_first_round_moves_and_the_second_consumes_is_taken_away_from_where_it_was(self, tmp_path: Path) -> None:
        """Every file counts as large here: those of level 0 move to level 3 as they are, and then overlap level 4."""
        table = table_of_two_rounds(tmp_path, (1000, 1399), target_file_size="1 kb")
        moved = {file.file_name for file in table.bucket().files if file.level == 0}
        message = executed(table).message
        assert {(file.file_name, file.level) for file in message.compact_before if file.file_name in moved} == {(name, 0) for name in moved}
        assert not moved & {file.file_name for file in message.compact_after}
        assert {f"bucket-0/{name}" for name in moved} <= table.paths()

    def test_what_both_rounds_move_appears_where_it_was_and_where_it_is(self, tmp_path: Path) -> None:
        table = table_of_two_rounds(tmp_path, (5, 6), target_file_size="1 kb")
        moved = {file.file_name for file in table.bucket().files if file.level == 0}
        result = executed(table)
        assert {(file.file_name, file.level) for file in result.message.compact_before} == {(name, 0) for name in moved}
        assert {(file.file_name, file.level) for file in result.message.compact_after} == {(name, 4) for name in moved}
        assert [path for path in result.created if path.startswith("bucket-0/")] == []

    def test_both_rounds_are_one_snapshot(self, two_rounds: SmallTable) -> None:
        before = two_rounds.store.latest_snapshot_id()
        report = two_rounds.maintain()
        assert before is not None
        assert report.snapshot_after == before + 1
        assert [level for level, _, _ in two_rounds.files()] == [4, 5]
        two_rounds.check()


@pytest.fixture
def two_rounds(tmp_path: Path) -> SmallTable:
    return table_of_two_rounds(tmp_path, (5, 6))


def table_of_two_rounds(directory: Path, keys: tuple[int, int], **options: str) -> SmallTable:
    """Level 5 holds keys 0 … 2999, level 4 keys 1000 … 1399, and two files of level 0 one key each."""
    numbers = random.Random(3)
    table = SmallTable(directory, num_sorted_run_compaction_trigger="2", num_levels="6", **options)
    for base in (range(3000), range(1000, 1400)):
        table.write({key: numbers.randrange(2**60) for key in base})
        table.maintain()
    for key in keys:
        table.write({key: 10})
    assert sorted({level for level, _, _ in table.files()}) == [0, 4, 5]
    return table


class TestDeletionVectors:
    def test_one_new_file_holds_all_vectors_of_the_bucket(self, tmp_path: Path) -> None:
        table = SmallTable(tmp_path, target_file_size="4 kb")
        table.write({key: key * 1_000_003 % 2**40 for key in range(3000)})
        table.maintain()
        table.write(delete=[10])
        table.maintain()
        first = table.bucket().deletion_file
        table.write(delete=[2990])
        table.maintain()
        second = table.bucket().deletion_file
        assert first is not None
        assert second is not None
        assert (first.row_count, second.row_count) == (1, 2)
        table.check()

    def test_what_changes_nothing_keeps_the_file(self, example: SmallTable) -> None:
        example.write({1: 1})
        example.maintain()
        before = example.bucket().deletion_file
        example.write({9_000: 1})
        report = example.maintain()
        assert report.outcome == "committed"
        assert example.bucket().deletion_file == before

    def test_the_form_follows_the_option_as_soon_as_a_vector_changes(self, example: SmallTable) -> None:
        example.write(delete=[1])
        example.maintain()
        assert magic(example) == bytes.fromhex("5e43f2d0")
        example.write(delete=[2])
        run_pass(example.with_options(deletion_vectors_bitmap64="true"))
        assert magic(example) == bytes.fromhex("d1d33964")
        assert example.deleted(example.file(5)) == [1, 2]


def magic(table: SmallTable) -> bytes:
    vectors = table.bucket().deletion_file
    assert vectors is not None
    return Path(table.path, "index", vectors.file_name).read_bytes()[5:9]


class TestGroups:
    def test_level_0_files_are_rewritten_so_that_indexes_may_cover_them(self, tmp_path: Path) -> None:
        table = SmallTable(tmp_path, indexes=True)
        table.write({1: 1, 2: None})
        table.maintain()
        assert table.files() == [(5, "COMPACT", 2)]
        assert table.groups() == {"v": [5], "s": [5]}
        table.check()

    def test_unchanged_levels_keep_their_payloads(self, tmp_path: Path) -> None:
        table = with_base_of_indexed(tmp_path)
        before = {payload.file_name for payload in table.bucket().payloads}
        table.write({1: 7})
        report = table.maintain()
        assert table.groups() == {"v": [4, 5], "s": [4, 5]}
        assert before < {payload.file_name for payload in table.bucket().payloads}
        assert (report.groups_built, report.groups_dropped) == (2, 0)
        table.check()

    def test_groups_of_levels_that_vanish_go_with_them(self, tmp_path: Path) -> None:
        table = with_base_of_indexed(tmp_path)
        table.write({1: 7})
        table.maintain()
        report = table.maintain(full=True)
        assert (report.groups_built, report.groups_dropped) == (2, 4)
        assert table.groups() == {"v": [5], "s": [5]}
        table.check()

    def test_sources_are_in_the_order_of_javas_strings(self, tmp_path: Path) -> None:
        """UTF-16 puts the emoji (a surrogate pair) before U+FF5E; code points would put it behind."""
        table = SmallTable(tmp_path, indexes=True, target_file_size="1 kb")
        for prefix, keys in (("d～-", range(500)), ("d😀-", range(5000, 5500))):
            table.write({key: key * 7 for key in keys})
            run_pass(table.with_options(**{"data-file.prefix": prefix}), full=True)
        payload = next(payload for payload in table.bucket().payloads if payload.index_type == "btree")
        assert payload.global_index is not None
        assert payload.global_index.source_meta is not None
        assert [name[1] for name, _ in source_meta.decode(payload.global_index.source_meta).files] == ["😀", "～"]
        table.check()

    def test_data_and_groups_are_in_one_half_of_the_message(self, tmp_path: Path) -> None:
        table = SmallTable(tmp_path, indexes=True)
        table.write({1: 1})
        message = executed(table).message
        assert message.has_compact_part
        assert not message.has_append_part
        assert [file.index_type for file in message.compact_new_index_files] == ["btree", "bitmap"]

    def test_groups_alone_are_in_the_data_increment(self, tmp_path: Path) -> None:
        table = with_base_of_indexed(tmp_path)
        result = executed(table, index_only=True, force=True)
        assert result.kind is WorkKind.INDEX
        assert not result.message.has_compact_part
        assert len(result.message.new_index_files) == len(result.message.deleted_index_files) == 2

    def test_a_build_that_fails_leaves_its_level_uncovered_and_the_rest_commits(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        table = with_base_of_indexed(tmp_path)
        table.write({1: 7})

        def build(*arguments: Any) -> Any:
            raise ValueError("a value that cannot be indexed")

        with monkeypatch.context() as patch:
            patch.setattr(btree, "build", build)
            report = table.maintain(full=True)
        assert report.outcome == "committed"
        assert [(failure.column, failure.level) for failure in report.failures] == [("v", 5)]
        assert "a value that cannot be indexed" in report.failures[0].reason
        assert table.groups() == {"v": [], "s": [5]}
        assert {payload.index_type for payload in table.bucket().payloads} == {"bitmap"}
        assert table.maintain(index_only=True).failures == ()
        table.check()

    def test_a_payload_that_covers_other_rows_than_its_level_is_not_used(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        table = SmallTable(tmp_path, indexes=True)
        table.write({1: 1})
        build = btree.build
        monkeypatch.setattr(btree, "build", lambda *arguments: replace(build(*arguments), row_count=2))
        assert [failure.column for failure in table.maintain().failures] == ["v"]
        assert table.groups() == {"v": [], "s": [5]}


def with_base_of_indexed(tmp_path: Path) -> SmallTable:
    table = SmallTable(tmp_path, indexes=True)
    table.write({key: key * 1_000_003 % 2**40 for key in range(2000)})
    table.maintain()
    assert table.files() == [(5, "COMPACT", 2000)]
    return table


class TestFailure:
    @pytest.mark.parametrize("nth", range(4))
    def test_what_an_attempt_created_is_deleted_wherever_it_fails(self, nth: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A data file, the deletion vectors, and two payloads are written; the disk is full from the n-th on. Without room for a payload, the
        data can be published all the same."""
        table = with_base_of_indexed(tmp_path)
        table.write({1: 7, 2: 8})
        before = table.paths()
        plan = planned(table)
        create = table.store.storage.create
        count = iter(range(100))

        def limited(path: str) -> Any:
            if next(count) >= nth:
                raise StorageError(f"{path}: no space left")
            return create(path)

        monkeypatch.setattr(table.store.storage, "create", limited)
        if nth < 2:
            with pytest.raises(StorageError, match="no space left"):
                execute(plan, plan.work[0], table.store, table.table.schema, MEMORY)
            assert table.paths() == before
            return
        result = execute(plan, plan.work[0], table.store, table.table.schema, MEMORY)
        assert [failure.column for failure in result.failures] == ["v", "s"][nth - 2 :]
        assert table.paths() == before | set(result.created)
        assert len(result.created) == nth

    def test_a_missing_input_is_named_and_nothing_is_left(self, example: SmallTable) -> None:
        example.write({2: 12}, delete=[3])
        plan = planned(example)
        gone = example.file(0).file_name
        Path(example.path, "bucket-0", gone).unlink()
        before = example.paths()
        with pytest.raises(MissingFile, match=gone):
            execute(plan, plan.work[0], example.store, example.table.schema, MEMORY)
        assert example.paths() == before

    def test_progress_may_stop_the_work(self, example: SmallTable) -> None:
        write_example(example)
        before = example.paths()
        plan = planned(example, full=True)

        def stop(work: Work, size: int) -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            execute(plan, plan.work[0], example.store, example.table.schema, MEMORY, stop)
        assert example.paths() == before

    def test_it_may_do_so_at_any_time(self, example: SmallTable) -> None:
        """Also while a group is built, where other errors concern the group alone."""
        write_example(example)
        before = example.paths()
        plan = planned(example, full=True)
        calls: list[int] = []
        execute(plan, plan.work[0], example.store, example.table.schema, MEMORY, lambda work, size: calls.append(size))
        for path in example.paths() - before:
            Path(example.path, path).unlink()

        class Enough(Exception):
            pass

        def stop(work: Work, size: int) -> None:
            left.pop()
            if not left:
                raise Enough

        for number in range(1, len(calls) + 1):
            left = [0] * number
            with pytest.raises(Enough):
                execute(plan, plan.work[0], example.store, example.table.schema, MEMORY, stop)
            assert example.paths() == before

    def test_a_plan_of_another_schema_is_refused(self, example: SmallTable) -> None:
        example.write({2: 12})
        plan = replace(planned(example), schema_id=3)
        with pytest.raises(UsageError, match="schema 3"):
            execute(plan, plan.work[0], example.store, example.table.schema, MEMORY)


class TestRewriteAppend:
    def test_append_files_of_several_levels_are_rewritten_where_they_are(self, tmp_path: Path) -> None:
        table = SmallTable(tmp_path, indexes=True)
        table.write({key: key * 1_000_003 % 2**40 for key in range(2000)})
        table.maintain(rewrite_append=False)
        table.write({1: 5})
        table.maintain(rewrite_append=False)
        assert table.files() == [(4, "APPEND", 1), (5, "APPEND", 2000)]
        assert table.groups() == {"v": [], "s": []}
        report = table.maintain()
        assert table.files() == [(4, "COMPACT", 1), (5, "COMPACT", 1999)]
        assert report.snapshot_after == (report.snapshot_before or 0) + 1
        table.check()

    def test_a_file_without_a_live_row_is_dropped(self, tmp_path: Path) -> None:
        table = SmallTable(tmp_path, indexes=True)
        table.write({1: 5})
        table.maintain(rewrite_append=False)
        table.write(delete=[1])
        table.maintain(rewrite_append=False)
        table.maintain()
        assert table.files() == []
        table.check()


class TestDisorder:
    """Level-0 files of other writers that are not in key order (pypaimon 2.1 puts NaN first), with key bounds that are wrong, too."""

    @pytest.mark.parametrize("indexes", [True, False])
    @pytest.mark.parametrize("others", [0, 1])
    def test_they_are_merged_right(self, indexes: bool, others: int, tmp_path: Path) -> None:
        table = SmallTable(tmp_path, indexes=indexes)
        table.write({key: key * 1_000_003 % 2**40 for key in range(2000)})
        table.maintain(full=True)
        append_rows(table, [50, 3, 70, 3, 2120], first_sequence=5000)
        for key in range(others):
            table.write({key: 9})
        table.maintain()
        assert [file.file_source for file in table.bucket().files if file.level < 5] == [FileSource.COMPACT]
        table.check()

    def test_a_single_one_is_not_moved_as_it_is(self, tmp_path: Path) -> None:
        table = SmallTable(tmp_path)
        append_rows(table, [5, 3, 4], first_sequence=0)
        table.maintain()
        assert table.files() == [(5, "COMPACT", 3)]
        assert [key for _, _, key in table.records(table.file(5))] == [3, 4, 5]
        table.check()

    @pytest.mark.parametrize("indexes", [True, False])
    @pytest.mark.parametrize("others", [[], [7, 8, 10]])
    @pytest.mark.parametrize("bounds", [(1, 5), (3, 10), (10, 1), (-100, 500)])
    def test_bounds_of_the_metadata_that_are_wrong_do_no_harm(
        self, bounds: tuple[int, int], others: list[int], indexes: bool, tmp_path: Path
    ) -> None:
        table = SmallTable(tmp_path, indexes=indexes, target_file_size="1 kb")
        table.write({key: key * 1_000_003 % 2**40 for key in range(0, 2000, 3)})
        table.maintain(full=True)
        append_rows(table, [1, 5, 10], first_sequence=5000, bounds=bounds)
        if others:
            append_rows(table, others, first_sequence=6000)
        for delete in ([], [5]):
            table.write(delete=delete)
            table.maintain(rewrite_append=False)
        table.maintain(full=True)
        table.check()

    def test_above_level_0_disorder_is_corrupt(self, tmp_path: Path) -> None:
        table = SmallTable(tmp_path, indexes=True)
        append_rows(table, [5, 3, 4], first_sequence=0, level=5)
        before = table.paths()
        with pytest.raises(CorruptFile, match=r"/t/bucket-0/data-.*\.parquet: corrupt: its keys are not in order"):
            table.maintain()
        assert table.paths() == before


def append_rows(table: SmallTable, keys: list[int], first_sequence: int, level: int = 0, bounds: tuple[int, int] | None = None) -> None:
    """A commit with one file of rows in the given order; of equal keys the last counts. Its metadata may give other bounds of the key."""
    schema = table.table.schema
    writer = DataFileWriter(
        table.store.storage,
        table.store.layout,
        schema,
        table.store.options(),
        BucketKey(EMPTY_ROW, 0),
        level=level,
        source=FileSource.APPEND,
    )
    count = len(keys)
    columns = {
        "id": pa.array(keys, pa.int32()),
        "v": pa.array(range(count), pa.int64()),
        "s": pa.array([f"new {at}" for at in range(count)]),
        SEQUENCE_FIELD.name: pa.array(range(first_sequence, first_sequence + count), pa.int64()),
        KIND_FIELD.name: pa.array([0] * count, pa.int8()),
    }
    writer.write(pa.table(columns))
    files = tuple(writer.close())
    if bounds is not None:
        low, high = (binary_row.serialize([key], schema.key_types) for key in bounds)
        files = tuple(replace(file, min_key=low, max_key=high) for file in files)
    Committer(table.store).commit_append([CommitMessage(EMPTY_ROW, 0, 1, new_files=files)])
    table.rows |= {key: (at, f"new {at}") for at, key in enumerate(keys)}
