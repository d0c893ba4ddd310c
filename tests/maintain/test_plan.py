"""Planning is a function of the state: kinds, reasons, expected groups, requests, and why there is nothing to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from maintainer.errors import CorruptTable, UsageError
from maintainer.format import source_meta
from maintainer.format.source_meta import SourceMeta
from maintainer.maintain.plan import PlanRequest, append_bytes, plan_table
from maintainer.model.bucket import BucketState
from maintainer.model.files import EMPTY_ROW, BucketKey, DataFileMeta, FileSource, IndexFileMeta
from maintainer.model.schema import TableSchema
from maintainer.model.snapshot import CommitKind, Snapshot
from maintainer.model.work import Group, Plan, Rebuild, Work, WorkKind
from maintainer.table.state import TableState
from tests.support import builders

COLUMNS = {"id": "INT", "v": "BIGINT", "s": "STRING"}
PLAIN = {"bucket": "1", "deletion-vectors.enabled": "true"}
INDEXED = {**PLAIN, "pk-btree.index.columns": "v", "pk-bitmap.index.columns": "s"}
KEY = BucketKey(EMPTY_ROW, 0)

SNAPSHOT = Snapshot(7, 0, "base", "delta", "user", 1, CommitKind.APPEND, 0, 0, 0, uuid="u-7")


def schema(options: dict[str, str] = PLAIN, **changes: str) -> TableSchema:
    return builders.schema(COLUMNS, options={**options, **changes})


def bucket(
    *files: DataFileMeta, payloads: Sequence[IndexFileMeta] = (), deletion_file: IndexFileMeta | None = None, number: int = 0
) -> BucketState:
    return BucketState(EMPTY_ROW, number, 1, files, deletion_file, tuple(payloads))


def plan(*buckets: BucketState, options: dict[str, str] = PLAIN, request: PlanRequest | None = None) -> Plan:
    chosen = schema(options)
    return plan_table(TableState(SNAPSHOT, chosen, {each.key: each for each in buckets}), "t", chosen, request or PlanRequest())


def only(found: Plan) -> Work:
    (work,) = found.work
    return work


def level_0(name: str, *keys: int, sequence: int = 100, deletes: int = 0, size: int = 1000) -> DataFileMeta:
    return builders.file_meta(name, 0, len(keys), keys=(min(keys), max(keys)), sequences=(sequence, sequence), deletes=deletes, size=size)


def base(name: str = "base", level: int = 5, source: FileSource = FileSource.COMPACT, size: int = 100_000) -> DataFileMeta:
    return builders.file_meta(name, level, 1000, keys=(0, 999), source=source, size=size)


def group(index_type: str, field_id: int, level: int, *files: DataFileMeta, name: str = "") -> IndexFileMeta:
    meta = SourceMeta(level, source_meta.ordered((file.file_name, file.row_count) for file in files))
    return builders.payload(name or f"{index_type}-{level}", index_type, meta.total_rows, field_id, source_meta.encode(meta))


def groups_of(level: int, *files: DataFileMeta) -> list[IndexFileMeta]:
    return [group("btree", 1, level, *files), group("bitmap", 2, level, *files)]


class TestKinds:
    def test_level_0_files_are_compacted(self) -> None:
        work = only(plan(bucket(level_0("a", 1, 2, sequence=1), level_0("b", 2, 3, sequence=2), base())))
        assert work.kind is WorkKind.COMPACT
        assert work.unit is not None
        assert [file.file_name for file in work.unit.files] == ["b", "a"]
        assert work.unit.output_level == 4
        assert work.reason == "2 level-0 files cannot be seen by batch readers"
        assert work.second_round
        assert work.estimated_bytes == 2000

    def test_a_lone_small_file_is_only_moved(self) -> None:
        work = only(plan(bucket(level_0("a", 1, 2), base())))
        assert (work.kind, work.estimated_bytes) == (WorkKind.UPGRADE, 0)

    def test_the_changelog_of_a_file_that_is_only_moved_is_read_from_it(self) -> None:
        work = only(plan(bucket(level_0("a", 1, 2)), options={"bucket": "1", "changelog-producer": "lookup"}))
        assert (work.kind, work.estimated_bytes) == (WorkKind.UPGRADE, 1000)

    def test_with_definitions_it_is_rewritten(self) -> None:
        work = only(plan(bucket(level_0("a", 1, 2)), options=INDEXED))
        assert work.kind is WorkKind.COMPACT
        assert work.rewrite_append

    def test_javas_choice_is_kept_on_request(self) -> None:
        work = only(plan(bucket(level_0("a", 1, 2)), options=INDEXED, request=PlanRequest(rewrite_append=False)))
        assert (work.kind, work.rewrite_append, work.rebuilds) == (WorkKind.UPGRADE, False, ())

    def test_append_files_above_level_0_are_rewritten_where_they_are(self) -> None:
        low, high = replace(base("low", 4, FileSource.APPEND), file_size=10), base(source=FileSource.APPEND)
        work = only(plan(bucket(low, high), options=INDEXED))
        assert work.kind is WorkKind.REWRITE_APPEND
        assert work.unit is not None
        assert (work.unit.output_level, work.unit.files, work.unit.file_rewrite) == (4, (low,), True)
        assert work.rebuilds == tuple(Rebuild(column, level) for column in ("s", "v") for level in (4, 5))
        assert work.estimated_bytes == low.file_size + high.file_size

    def test_files_of_unknown_source_are_rewritten_like_append_files(self) -> None:
        file = replace(base(), file_source=None)
        assert only(plan(bucket(file), options=INDEXED)).kind is WorkKind.REWRITE_APPEND

    @pytest.mark.parametrize(("options", "request_"), [(PLAIN, PlanRequest()), (INDEXED, PlanRequest(rewrite_append=False))])
    def test_append_files_stay_where_nothing_is_gained(self, options: dict[str, str], request_: PlanRequest) -> None:
        assert plan(bucket(base(source=FileSource.APPEND)), options=options, request=request_).work == ()

    def test_append_files_are_rewritten_within_a_budget(self) -> None:
        """Bucket by bucket, and one more than nothing; compactions go on without the files that have to wait."""
        buckets = [bucket(base(f"b-{number}", source=FileSource.APPEND), number=number) for number in range(3)]
        buckets.append(bucket(level_0("new", 1), base("b-3", source=FileSource.APPEND), number=3))

        def planned(budget: int | None) -> list[tuple[int, str, int]]:
            found = plan(*buckets, options=INDEXED, request=PlanRequest(rewrite_append_bytes=None if budget is None else budget * 1000))
            return [(work.bucket.bucket, str(work.kind), append_bytes(work) // 100_000) for work in found.work]

        rewritten = [(number, "rewrite-append", 1) for number in range(3)]
        assert planned(None) == planned(400) == [*rewritten, (3, "compact", 1)]
        assert planned(399) == [*rewritten, (3, "compact", 0)]
        assert planned(200) == [*rewritten[:2], (3, "compact", 0)]
        assert planned(1) == [*rewritten[:1], (3, "compact", 0)]
        assert planned(0) == [(3, "compact", 0)]

    def test_files_that_wait_for_the_budget_are_the_reason_for_an_idle_plan(self) -> None:
        found = plan(bucket(base(source=FileSource.APPEND)), options=INDEXED, request=PlanRequest(rewrite_append_bytes=0))
        assert (found.work, found.idle_reason) == ((), "1 APPEND file above level 0 waits for the budget of rewriting such files")

    def test_a_bucket_whose_append_files_wait_still_gets_its_groups(self) -> None:
        low = base("low", 4)
        work = only(plan(bucket(low, base(source=FileSource.APPEND)), options=INDEXED, request=PlanRequest(rewrite_append_bytes=0)))
        assert (work.kind, {rebuild.level for rebuild in work.rebuilds}) == (WorkKind.INDEX, {4})

    def test_gentle_tables_are_treated_as_radical(self) -> None:
        assert only(plan(bucket(level_0("a", 1), base()), options={**PLAIN, "lookup-compact": "gentle"})).unit is not None

    def test_full_compaction_takes_everything(self) -> None:
        work = only(plan(bucket(level_0("a", 1, 2), base("low", 4), base()), request=PlanRequest(full=True)))
        assert work.unit is not None
        assert (work.unit.output_level, len(work.unit.files)) == (5, 3)
        assert work.reason == "full compaction was asked for"

    def test_full_compaction_of_one_highest_level_takes_only_files_with_a_vector(self) -> None:
        first, second = base("first"), builders.file_meta("second", 5, 10, keys=(2000, 2009))
        assert plan(bucket(first, second), request=PlanRequest(full=True)).work == ()
        vectors = builders.deletion_file(ranges=[("second", 1, 22, 1)])
        work = only(plan(bucket(first, second, deletion_file=vectors), request=PlanRequest(full=True)))
        assert work.unit is not None
        assert (work.unit.files, work.unit.file_rewrite) == ((second,), True)


class TestGroups:
    def test_missing_groups_are_built_even_when_nothing_is_compacted(self) -> None:
        work = only(plan(bucket(base("low", 4), base()), options=INDEXED))
        assert work.kind is WorkKind.INDEX
        assert (work.unit, work.second_round) == (None, False)
        assert work.rebuilds == tuple(Rebuild(column, level) for column in ("s", "v") for level in (4, 5))
        assert work.reason == "4 groups missing or stale"
        assert work.estimated_memory > 32 << 20

    def test_memory_is_that_of_the_largest_group_or_what_merging_makes_do_with(self) -> None:
        large = replace(base(), row_count=1_000_000, file_size=16 << 20)
        on_numbers, on_texts = ({**PLAIN, "pk-btree.index.columns": column} for column in "vs")
        numbers = only(plan(bucket(large), options=on_numbers)).estimated_memory
        texts = only(plan(bucket(large), options=on_texts)).estimated_memory
        both = only(plan(bucket(large), options=INDEXED)).estimated_memory
        huge = replace(base(), row_count=100_000_000, file_size=1 << 30)
        merging = only(plan(bucket(huge, level_0("a", 1)), request=PlanRequest(full=True))).estimated_memory
        spilling = only(plan(bucket(huge), options=INDEXED)).estimated_memory
        assert 100 << 20 < numbers < 150 << 20 < texts == both < spilling == 288 << 20
        assert 256 << 20 <= merging < 257 << 20

    def test_current_groups_are_left_alone(self) -> None:
        found = plan(bucket(base(), payloads=groups_of(5, base())), options=INDEXED)
        assert found.work == ()
        assert found.idle_reason == "no file is to be compacted, and every index group is current"

    def test_two_payloads_for_a_level_are_both_replaced(self) -> None:
        twice = group("btree", 1, 5, base(), name="twice")
        work = only(plan(bucket(base(), payloads=[*groups_of(5, base()), twice]), options=INDEXED))
        assert work.rebuilds == (Rebuild("v", 5),)
        assert work.reason == "1 group missing or stale; 2 stale payloads to be dropped"

    def test_groups_of_levels_that_vanished_are_dropped(self) -> None:
        work = only(plan(bucket(base(), payloads=[*groups_of(5, base()), *groups_of(3, base("gone", 3))]), options=INDEXED))
        assert (work.kind, work.rebuilds, work.reason) == (WorkKind.INDEX, (), "2 stale payloads to be dropped")

    def test_payloads_of_removed_definitions_are_dropped(self) -> None:
        work = only(plan(bucket(base(), payloads=groups_of(5, base()))))
        reason = "2 payloads of no definition to be dropped (v, s: the column has no index definition any more)"
        assert (work.kind, work.rebuilds, work.reason) == (WorkKind.INDEX, (), reason)

    def test_compaction_expects_the_groups_of_the_levels_that_it_changes(self) -> None:
        state = bucket(level_0("a", 1), base(), payloads=groups_of(5, base()))
        assert only(plan(state, options=INDEXED)).rebuilds == (Rebuild("s", 4), Rebuild("v", 4))
        assert only(plan(state, options=INDEXED, request=PlanRequest(full=True))).rebuilds == (Rebuild("s", 5), Rebuild("v", 5))

    def test_index_only_leaves_files_alone(self) -> None:
        found = plan(bucket(level_0("a", 1), base()), options=INDEXED, request=PlanRequest(index_only=True))
        assert only(found).kind is WorkKind.INDEX
        assert plan(bucket(level_0("a", 1)), options=INDEXED, request=PlanRequest(index_only=True)).work == ()

    def test_only_the_named_columns(self) -> None:
        found = plan(bucket(base()), options=INDEXED, request=PlanRequest(index_only=True, columns=("s",)))
        assert only(found).rebuilds == (Rebuild("s", 5),)

    def test_force_builds_current_groups_again_once(self) -> None:
        state = bucket(base(), payloads=groups_of(5, base()))
        request = PlanRequest(index_only=True, force=True)
        work = only(plan(state, options=INDEXED, request=request))
        assert work.rebuilds == (Rebuild("s", 5), Rebuild("v", 5))
        assert work.reason == "2 groups to be built as asked"
        assert plan(state, options=INDEXED, request=replace(request, settled=frozenset({KEY}))).work == ()

    def test_a_group_that_failed_is_not_planned_again(self) -> None:
        request = PlanRequest(quarantined={Group(KEY, "v", 5): "no"})
        found = plan(bucket(base()), options=INDEXED, request=request)
        assert only(found).rebuilds == (Rebuild("s", 5),)
        assert found.quarantined == {Group(KEY, "v", 5): "no"}
        with_s = bucket(base(), payloads=[group("bitmap", 2, 5, base())])
        assert plan(with_s, options=INDEXED, request=request).work == ()

    def test_a_compaction_expects_a_group_that_failed_only_if_its_sources_change(self) -> None:
        state = bucket(level_0("a", 1), base(), payloads=[group("bitmap", 2, 5, base())])
        request = PlanRequest(quarantined={Group(KEY, "v", 5): "no"})
        work = only(plan(state, options=INDEXED, request=request))
        assert (work.rebuilds, work.quarantined) == ((Rebuild("s", 4), Rebuild("v", 4)), (Rebuild("v", 5),))
        work = only(plan(state, options=INDEXED, request=replace(request, full=True)))
        assert work.rebuilds == (Rebuild("s", 5), Rebuild("v", 5))

    def test_groups_with_a_commit_of_their_own_are_not_expected_of_a_compaction(self) -> None:
        state = bucket(level_0("a", 1), base(), payloads=groups_of(5, base()))
        work = only(plan(state, options={**INDEXED, "maintain.index-mode": "async"}))
        assert (work.kind, work.rebuilds) == (WorkKind.COMPACT, ())

    def test_groups_that_have_waited_go_before_the_next_compaction(self) -> None:
        state = bucket(level_0("a", 1), base())
        assert only(plan(state, options=INDEXED)).kind is WorkKind.COMPACT
        assert only(plan(state, options=INDEXED, request=PlanRequest(groups_first=frozenset({KEY})))).kind is WorkKind.INDEX
        done = bucket(level_0("a", 1), base(), payloads=groups_of(5, base()))
        assert only(plan(done, options=INDEXED, request=PlanRequest(groups_first=frozenset({KEY})))).kind is WorkKind.COMPACT


class TestRequests:
    def test_a_settled_bucket_is_not_compacted_in_full_again(self) -> None:
        request = PlanRequest(full=True, settled=frozenset({KEY}))
        assert plan(bucket(base("low", 4), base()), request=request).work == ()

    def test_each_bucket_is_planned_on_its_own_in_order(self) -> None:
        found = plan(bucket(level_0("b", 1), number=1), bucket(base(), number=2), bucket(level_0("a", 1)))
        assert [work.bucket.bucket for work in found.work] == [0, 1]

    @pytest.mark.parametrize(
        ("partitions", "chosen"),
        [
            (None, 3),
            ([{"day": "2024-02-29"}], 2),
            ([{"day": "19782"}], 2),
            ([{"day": "2024-02-29", "region": "eu"}], 1),
            ([{"region": "eu"}, {"region": "us"}], 2),
            ([{"region": "__DEFAULT_PARTITION__"}], 1),
            ([{"region": "asia"}], 0),
        ],
    )
    def test_partitions_are_chosen_by_some_or_all_of_their_columns(self, partitions: list[dict[str, str]] | None, chosen: int) -> None:
        columns = {"day": "DATE", "region": "STRING", "id": "INT"}
        table = builders.schema(columns, ("day", "region", "id"), ("day", "region"), PLAIN)
        values = [(19782, "eu"), (19782, "us"), (1, None)]
        keys = [BucketKey(builders.row(value, ("DATE", "STRING")), 0) for value in values]
        states = {key: BucketState(*key, 1, (level_0("a", 1),)) for key in keys}
        found = plan_table(TableState(SNAPSHOT, table, states), "t", table, PlanRequest(partitions=partitions))
        assert len(found.work) == chosen
        assert (found.idle_reason == "no data in these partitions") == (chosen == 0)

    def test_unknown_columns_of_a_request_are_named(self) -> None:
        with pytest.raises(UsageError, match=r"'day' is no partition column; the table has no partitions"):
            plan(bucket(base()), request=PlanRequest(partitions=[{"day": "1"}]))
        with pytest.raises(UsageError, match=r"there is no index on 'id'; indexed columns: v, s"):
            plan(bucket(base()), options=INDEXED, request=PlanRequest(index_only=True, columns=("id",)))


class TestIdle:
    def test_no_snapshot(self) -> None:
        found = plan_table(None, "t", schema(), PlanRequest())
        assert (found.snapshot_id, found.work, found.idle_reason) == (None, (), "the table has no snapshot")

    def test_no_data(self) -> None:
        assert plan().idle_reason == "the table holds no data"

    def test_nothing_to_do(self) -> None:
        found = plan(bucket(base()))
        assert (found.table, found.snapshot_id, found.snapshot_uuid, found.idle_reason) == ("t", 7, "u-7", "no file is to be compacted")


def test_overlapping_files_of_a_level_are_refused_by_their_names() -> None:
    with pytest.raises(CorruptTable, match=r"t: bucket-0: the key ranges of (base and other|other and base) of level 5 overlap"):
        plan(bucket(base(), base("other")))


class TestReasons:
    """They say what is so for this kind of table."""

    @pytest.mark.parametrize(
        ("options", "reason"),
        [
            ({"deletion-vectors.enabled": "true"}, "2 level-0 files cannot be seen by batch readers"),
            ({"merge-engine": "first-row"}, "2 level-0 files cannot be seen by batch readers"),
            (
                {"deletion-vectors.enabled": "true", "deletion-vectors.merge-on-read": "true"},
                "2 level-0 files without deletion vectors for the rows that they replace",
            ),
            ({"changelog-producer": "lookup"}, "2 level-0 files the changelog of which is not written yet"),
            ({"force-lookup": "true"}, "2 level-0 files, where force-lookup leaves none"),
            ({"compaction.force-up-level-0": "true"}, "2 level-0 files, where compaction.force-up-level-0 leaves none"),
            ({"changelog-producer": "full-compaction"}, "3 sorted runs, the changelog of which a full compaction writes"),
            ({"full-compaction.delta-commits": "4"}, "full-compaction.delta-commits = 4: all runs together"),
            (
                {"compaction.optimization-interval": "1 h"},
                "3 sorted runs, and the last full compaction is longer ago than compaction.optimization-interval says",
            ),
            ({"compaction.total-size-threshold": "1 gb"}, "3 sorted runs, together smaller than compaction.total-size-threshold"),
            (
                {"compaction.incremental-size-threshold": "1 b"},
                "3 sorted runs, below the highest level larger than compaction.incremental-size-threshold",
            ),
            ({"num-sorted-run.compaction-trigger": "3", "num-levels": "6"}, "3 sorted runs of like sizes (compaction.size-ratio)"),
            (
                {
                    "num-sorted-run.compaction-trigger": "3",
                    "num-levels": "6",
                    "compaction.max-size-amplification-percent": "0",
                },
                "3 sorted runs, the newer ones too large for the oldest (compaction.max-size-amplification-percent)",
            ),
        ],
    )
    def test_of_level_0_and_of_sizes(self, options: dict[str, str], reason: str) -> None:
        state = bucket(level_0("a", 1, 2, sequence=1), level_0("b", 2, 3, sequence=2), base())
        request = PlanRequest(now=2 * builders.file_meta().creation_time)  # type: ignore[operator]
        assert only(plan(state, options={"bucket": "1", **options}, request=request)).reason == reason

    def test_few_level_0_files_of_a_table_that_merges_while_reading_stay(self) -> None:
        found = plan(bucket(level_0("a", 1), base()), options={"bucket": "1"})
        assert (found.work, found.idle_reason) == ((), "no file is to be compacted")


class TestSwitchedOn:
    """Deletion vectors came after compactions without them (schema 0 had none)."""

    OLD = PlanRequest(without_vectors=frozenset({0}))

    def test_a_bucket_with_overlapping_levels_waits_for_a_full_compaction(self) -> None:
        found = plan(bucket(level_0("a", 1), base("low", 4), base()), request=self.OLD)
        assert found.work == ()
        assert list(found.held) == [KEY]
        assert found.idle_reason is not None
        assert "(level 4)" in found.idle_reason and "maintainer compact TABLE --full" in found.idle_reason

    def test_which_heals_it(self) -> None:
        work = only(plan(bucket(level_0("a", 1), base("low", 4), base()), request=replace(self.OLD, full=True)))
        assert work.unit is not None
        assert (work.unit.output_level, len(work.unit.files)) == (5, 3)

    def test_others_go_on(self) -> None:
        healed = bucket(level_0("a", 1), base(), number=1)
        found = plan(bucket(level_0("a", 1), base("low", 4), base()), healed, request=self.OLD)
        assert [work.bucket.bucket for work in found.work] == [1]
        assert [key.bucket for key in found.held] == [0]

    def test_a_file_of_before_is_not_moved_above_others_where_it_would_be_taken_for_one_that_marked_nothing(self) -> None:
        state = bucket(level_0("a", 1), base())
        assert only(plan(state, request=self.OLD)).kind is WorkKind.COMPACT
        assert only(plan(state, request=PlanRequest(without_vectors=frozenset({7})))).kind is WorkKind.UPGRADE

    def test_a_table_without_deletion_vectors_merges_anyway(self) -> None:
        state = bucket(*(level_0(f"a{number}", 1, size=100_000) for number in range(5)), base("low", 4), base())
        assert only(plan(state, options={"bucket": "1"}, request=self.OLD)).unit is not None


class TestMemory:
    @pytest.mark.parametrize(
        "options",
        [
            {"changelog-producer": "lookup"},
            {"changelog-producer": "lookup", "deletion-vectors.enabled": "true"},
            {"merge-engine": "aggregation", "deletion-vectors.enabled": "true"},
            {"sequence.field": "v", "deletion-vectors.enabled": "true"},
        ],
    )
    def test_looking_older_rows_up_and_writing_changelogs_takes_more(self, options: dict[str, str]) -> None:
        state = bucket(level_0("a", 1, 2, sequence=1), level_0("b", 2, 3, sequence=2), base(size=8 << 20))
        plain = only(plan(state)).estimated_memory
        assert only(plan(state, options={"bucket": "1", **options})).estimated_memory > plain
