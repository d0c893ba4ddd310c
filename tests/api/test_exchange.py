"""Plans and results that come late, twice, from elsewhere, or damaged: the table stays as it is, or gets what it should."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from maintainer.api.exchange import commit_results, execute_plan
from maintainer.api.maintenance import plan_pass, run_pass
from maintainer.commit.committer import CommitOutcome
from maintainer.errors import CommitConflict, MaintainerError, UsageError
from maintainer.maintain.plan import PlanRequest
from maintainer.maintain.transport import plan_from_json, plan_to_json, result_from_json, result_to_json
from maintainer.model.types import DataType, TypeRoot
from maintainer.model.work import Result
from maintainer.table.opening import open_store
from maintainer.table.store import TableStore
from tests.support.campaign import share
from tests.support.evolve import add_column
from tests.support.small_table import SmallTable
from tests.support.striking_storage import files_below, referenced


@pytest.fixture
def table(tmp_path: Path) -> SmallTable:
    return filled(SmallTable(tmp_path, indexes=True))


def filled(table: SmallTable) -> SmallTable:
    """Level 5 with groups and deletion vectors, and level 0."""
    table.write({key: key * 7 for key in range(200)})
    table.maintain()
    table.write({1: 1}, delete=[2])
    table.maintain()
    table.write({3: 3}, delete=[4])
    return table


def planned(table: SmallTable) -> Any:
    return sent(plan_to_json(plan_pass(table.store, PlanRequest()), table.table.schema))


def executed(table: SmallTable, plan: Any) -> Any:
    (result,) = execute_plan(open_store(table.path), plan_from_json(plan))
    return sent(result_to_json(result, table.table.schema))


def committed(table: SmallTable, *results: Any) -> CommitOutcome:
    return commit_results(open_store(table.path), [result_from_json(result) for result in results])


def sent(document: Any) -> Any:
    return json.loads(json.dumps(document))


def the_reason(outcome: CommitOutcome) -> str:
    assert outcome.snapshots == ()
    (reason,) = outcome.conflicts.values()
    return reason


def check(table: SmallTable) -> None:
    """Nothing that a snapshot needs is gone, and the next pass makes everything right."""
    assert referenced(open_store(table.path)) <= files_below(table.path)
    table.maintain()
    table.check()


class TestTwice:
    def test_a_result_that_is_committed_twice_keeps_its_files(self, table: SmallTable) -> None:
        result = executed(table, planned(table))
        assert committed(table, result).conflicts == {}
        assert "which is there already" in the_reason(committed(table, result))
        check(table)

    def test_also_when_only_an_older_snapshot_names_them(self, table: SmallTable) -> None:
        result = executed(table, planned(table))
        committed(table, result)
        table.maintain(full=True)
        assert the_reason(committed(table, result))
        check(table)

    def test_also_when_only_a_tag_or_a_branch_names_them(self, table: SmallTable) -> None:
        result = executed(table, planned(table))
        (snapshot,) = committed(table, result).snapshots
        root = Path(table.path)
        for place in ("tag", "branch/branch-b/snapshot"):
            (root / place).mkdir(parents=True)
        shutil.copytree(root / "schema", root / "branch" / "branch-b" / "schema")
        shutil.copy(root / "snapshot" / f"snapshot-{snapshot.id}", root / "branch" / "branch-b" / "snapshot")
        table.maintain(full=True)
        for number in table.store.snapshot_ids()[:-1]:
            (root / "snapshot" / f"snapshot-{number}").unlink()
        assert the_reason(committed(table, result))
        assert set(result["created"]) <= files_below(table.path)
        shutil.move(root / "branch" / "branch-b" / "snapshot" / f"snapshot-{snapshot.id}", root / "tag" / "tag-t")
        assert the_reason(committed(table, result))
        assert set(result["created"]) <= files_below(table.path)

    def test_of_a_plan_that_is_executed_twice_one_result_counts(self, table: SmallTable) -> None:
        plan = planned(table)
        first, second = executed(table, plan), executed(table, plan)
        assert committed(table, first).conflicts == {}
        assert the_reason(committed(table, second))
        assert not set(second["created"]) & files_below(table.path)
        check(table)

    def test_so_does_one_of_groups_alone(self, tmp_path: Path) -> None:
        """The second time its payloads are left out, because they are there already."""
        table = SmallTable(tmp_path, indexes=True)
        table.write({1: 1})
        table.maintain()
        run_pass(table.seen_with(**{"pk-btree.index.columns": ""}), index_only=True)
        plan = planned(table)
        result = executed(table, plan)
        assert [work["kind"] for work in plan["work"]] == ["index"]
        assert committed(table, result).conflicts == {}
        assert the_reason(committed(table, result))
        check(table)

    def test_a_result_that_was_given_up_is_not_published_later(self, table: SmallTable) -> None:
        """It did not fit and lost its files; then the table is rolled back, and it would fit again."""
        result = executed(table, planned(table))
        table.write({5: 5})
        table.maintain()
        assert the_reason(committed(table, result))
        for number in table.store.snapshot_ids():
            if number > result["snapshot"]:
                Path(table.path, "snapshot", f"snapshot-{number}").unlink()
        assert "is not there as the result says" in the_reason(committed(table, result))
        table.rows[5] = (35, "s0")
        check(table)

    def test_a_result_of_a_copy_is_not_published(self, table: SmallTable, tmp_path: Path) -> None:
        """The copy has the same snapshots with the same uuids, but the files are there and not here."""
        copy = shutil.copytree(table.path, tmp_path / "copy")
        (result,) = execute_plan(open_store(str(copy)), plan_from_json(planned(table)))
        outcome = commit_results(open_store(table.path), [result])
        assert "made for another place" in the_reason(outcome)
        check(table)


class TestLate:
    def test_rows_that_arrived_meanwhile_do_not_matter(self, table: SmallTable) -> None:
        plan = planned(table)
        table.write({6: 6})
        result = executed(table, plan)
        table.write({7: 7})
        assert committed(table, result).conflicts == {}
        check(table)

    def test_another_compaction_meanwhile(self, table: SmallTable) -> None:
        plan = planned(table)
        table.maintain()
        result = executed(table, plan)
        assert the_reason(committed(table, result))
        assert not set(result["created"]) & files_below(table.path)
        check(table)

    def test_deletion_vectors_that_changed_meanwhile(self, table: SmallTable) -> None:
        plan = planned(table)
        table.write(delete=[9])
        table.maintain()
        result = executed(table, plan)
        assert the_reason(committed(table, result))
        check(table)

    def test_another_schema_meanwhile(self, table: SmallTable) -> None:
        plan = planned(table)
        result = executed(table, plan)
        add_column(table.path, "w", DataType(TypeRoot.INT))
        with pytest.raises(CommitConflict, match="plan again"):
            executed(table, plan)
        assert committed(table, result).conflicts == {}
        check(table)

    def test_a_rollback_meanwhile(self, table: SmallTable) -> None:
        plan = planned(table)
        result = executed(table, plan)
        Path(table.path, "snapshot", f"snapshot-{plan['snapshot']}").unlink()
        with pytest.raises(CommitConflict, match="plan again"):
            executed(table, plan)
        assert "rolled back" in the_reason(committed(table, result))
        del table.rows[3]
        table.rows[3], table.rows[4] = (21, "s0"), (28, "s0")
        check(table)

    def test_a_table_that_was_dropped_and_made_again(self, table: SmallTable, tmp_path: Path) -> None:
        plan = planned(table)
        result = executed(table, plan)
        shutil.rmtree(table.path)
        again = filled(SmallTable(tmp_path, indexes=True))
        before = files_below(again.path)
        with pytest.raises(CommitConflict, match="plan again"):
            executed(again, plan)
        assert the_reason(committed(again, result))
        assert files_below(again.path) == before
        check(again)

    def test_a_base_that_expired_is_only_good_for_committing(self, table: SmallTable) -> None:
        plan = planned(table)
        result = executed(table, plan)
        table.write({8: 8})
        for number in table.store.snapshot_ids()[:-1]:
            Path(table.path, "snapshot", f"snapshot-{number}").unlink()
        with pytest.raises(CommitConflict, match="plan again"):
            executed(table, plan)
        assert committed(table, result).conflicts == {}
        check(table)


class TestHostile:
    @pytest.mark.parametrize("snapshot", [-1, 0, 10**18, 10**30])
    def test_a_snapshot_that_cannot_be(self, table: SmallTable, snapshot: int) -> None:
        live = table.file(5)
        result = result_from_json(executed(table, planned(table)))
        hostile = replace(
            result,
            snapshot_id=snapshot,
            created=(*result.created, f"bucket-0/{live.file_name}"),
            message=replace(result.message, compact_before=(), compact_after=(*result.message.compact_after, live)),
        )
        self.refused(table, hostile)

    @pytest.mark.parametrize(
        "name", ["schema/schema-0", "snapshot/LATEST", "../t/schema/schema-0", "/etc/hostname", "bucket-0/../schema/schema-0"]
    )
    def test_paths_that_were_not_created(self, table: SmallTable, name: str) -> None:
        result = result_from_json(executed(table, planned(table)))
        wrong = replace(result.message, compact_before=result.message.compact_before[:0])
        (made,) = wrong.compact_after
        wrong = replace(wrong, compact_after=(made, replace(made, file_name=name.rpartition("/")[2])))
        self.refused(table, replace(result, created=(*result.created, name), message=wrong))

    def refused(self, table: SmallTable, hostile: Result) -> None:
        before = files_below(table.path) - set(hostile.created)
        try:
            outcome = committed(table, result_to_json(hostile, table.table.schema))
            assert outcome.snapshots == ()
        except UsageError:
            pass
        assert before <= files_below(table.path)
        check(table)

    @pytest.mark.parametrize("level", [-1, 6, 2**31, 10**30])
    def test_a_level_that_cannot_be(self, table: SmallTable, level: int) -> None:
        plan = planned(table)
        plan["work"][0]["output_level"] = level
        before = files_below(table.path)
        with pytest.raises(UsageError, match=f"there is no level {level} to compact into; the highest is 5"):
            executed(table, plan)
        assert files_below(table.path) == before

    def test_damaged_documents(self, table: SmallTable, tmp_path: Path) -> None:
        """Whatever a plan or result says, nothing but a `MaintainerError` comes of it, and every file that a snapshot names is there."""
        plan = planned(table)
        directories = {"plan": Path(table.path), "result": tmp_path / "executed"}
        shutil.copytree(table.path, directories["result"])
        (result,) = execute_plan(open_store(str(directories["result"])), plan_from_json(plan))
        documents = {"plan": plan, "result": result_to_json(result, table.table.schema)}
        needed = referenced(table.store)
        work = tmp_path / "work"
        for seed in range(share("damaged plans and results", short=60, long=5000)):
            random = Random(seed)
            kind = random.choice(["plan", "result"])
            shutil.copytree(directories[kind], work)
            document = damaged(random, sent(documents[kind]))
            arrived = TRIALS[kind](open_store(str(work)), document)
            assert needed <= files_below(str(work)), (seed, document)
            if arrived:
                assert referenced(open_store(str(work))) <= files_below(str(work)), (seed, document)
            assert sorted(path.name for path in tmp_path.iterdir()) == ["executed", "t", "work"]
            shutil.rmtree(work)


def _try_plan(store: TableStore, document: Any) -> bool:
    try:
        return bool(commit_results(store, list(execute_plan(store, plan_from_json(document)))).snapshots)
    except MaintainerError:
        return False


def _try_result(store: TableStore, document: Any) -> bool:
    try:
        return bool(commit_results(store, [result_from_json(document)]).snapshots)
    except MaintainerError:
        return False


TRIALS: dict[str, Callable[[TableStore, Any], bool]] = {"plan": _try_plan, "result": _try_result}
ODD: list[Any] = [
    None,
    True,
    -1,
    0,
    5,
    99,
    2**31,
    10**30,
    1.5,
    "",
    "../x",
    "v",
    "compact",
    "upgrade",
    "index",
    "\0",
    [],
    {},
    ["../../x"],
    [None],
]
ODD += [[{"column": "v", "level": 5}], [{"column": "other", "level": 5}], [{"column": "v", "level": 2**40}]]


def damaged(random: Random, document: Any) -> Any:
    """A document with one or two members that are missing or something else, or with flipped bits in its files."""
    parts = [document, *(document["work"] if isinstance(document["work"], list) else [document["work"]])]
    for _ in range(random.choice([1, 1, 2])):
        part = random.choice(parts)
        key = random.choice(list(part))
        if key in ("state", "message") or random.random() < 0.5:
            key = next((name for name in ("state", "message") if name in part), key)
        if key in ("state", "message"):
            data = bytearray(base64.b64decode(part[key]))
            for _ in range(random.choice([1, 1, 4])):
                data[random.randrange(len(data))] ^= 1 << random.randrange(8)
            part[key] = base64.b64encode(bytes(data)).decode()
        elif random.random() < 0.1 and key != "work":
            del part[key]
        elif key != "work":
            part[key] = random.choice(ODD)
    return document
