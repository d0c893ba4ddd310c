"""Plans and results travel as JSON: what comes back does the same, and anything else is refused."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from maintainer.api.maintenance import plan_pass
from maintainer.commit.committer import Committer
from maintainer.errors import UsageError
from maintainer.index.family import bitmap
from maintainer.maintain.execute import execute
from maintainer.maintain.plan import PlanRequest, plan_table
from maintainer.maintain.transport import plan_from_json, plan_to_json, result_from_json, result_to_json
from maintainer.model.work import Plan, Result
from tests.support.small_table import SmallTable


@pytest.fixture
def table(tmp_path: Path) -> SmallTable:
    """Level 5 covered, with deletion vectors; level 0 with two files."""
    table = SmallTable(tmp_path, indexes=True)
    table.write({key: key * 1_000_003 % 2**40 for key in range(500)})
    table.maintain()
    table.write(delete=[7])
    table.maintain()
    table.write({1: 1})
    table.write({2: 2}, delete=[3])
    return table


def sent(document: Any) -> Any:
    return json.loads(json.dumps(document))


def planned(table: SmallTable) -> Plan:
    return plan_pass(table.store, PlanRequest())


def executed(table: SmallTable, plan: Plan) -> Result:
    return execute(plan, plan.work[0], table.store, table.table.schema, 64 << 20)


def test_a_plan_comes_back_whole(table: SmallTable) -> None:
    plan = planned(table)
    assert plan_from_json(sent(plan_to_json(plan, table.table.schema))) == plan


def test_a_plan_says_what_people_want_to_know(table: SmallTable) -> None:
    plan = planned(table)
    document = plan_to_json(plan, table.table.schema)
    (work,) = document["work"]
    assert (document["table"], document["snapshot"], document["idle_reason"]) == (table.path, plan.snapshot_id, None)
    assert {name: work[name] for name in ("partition", "bucket", "kind", "output_level", "rebuilds")} == {
        "partition": {},
        "bucket": 0,
        "kind": "compact",
        "output_level": 4,
        "rebuilds": [{"column": "s", "level": 4}, {"column": "v", "level": 4}],
    }
    assert sorted(work["input_files"]) == sorted(file.file_name for file in table.bucket().files if file.level == 0)


def test_index_work_and_idle_plans_travel_too(table: SmallTable) -> None:
    schema = table.table.schema
    forced = plan_pass(table.store, PlanRequest(index_only=True, force=True))
    assert plan_from_json(sent(plan_to_json(forced, schema))) == forced
    idle = plan_table(None, "t", schema, PlanRequest())
    assert plan_from_json(sent(plan_to_json(idle, schema))) == idle


def test_a_result_that_travelled_is_committed(table: SmallTable) -> None:
    plan = plan_from_json(sent(plan_to_json(planned(table), table.table.schema)))
    result = executed(table, plan)
    arrived = result_from_json(sent(result_to_json(result, table.table.schema)))
    assert arrived == result
    assert Committer(table.store).commit_results([arrived]).conflicts == {}
    table.check()


def test_a_result_names_its_failures(table: SmallTable, monkeypatch: pytest.MonkeyPatch) -> None:
    def build(*arguments: Any) -> Any:
        raise ValueError("no")

    monkeypatch.setattr(bitmap, "build", build)
    document = sent(result_to_json(executed(table, planned(table)), table.table.schema))
    (failure,) = document["failures"]
    assert failure["sources"]
    assert failure | {"sources": ""} == {"column": "s", "level": 4, "reason": "ValueError: no", "sources": "", "about_values": True}
    assert document["work"] == {"partition": {}, "bucket": 0, "kind": "compact", "reason": "2 level-0 files cannot be seen by batch readers"}
    assert document["counts"]["groups_built"] == 1


def members(document: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths of all members of objects inside a document."""
    if isinstance(document, dict):
        return [found for name, value in document.items() for found in [(*path, name), *members(value, (*path, name))]]
    if isinstance(document, list):
        return [found for index, value in enumerate(document) for found in members(value, (*path, index))]
    return []


def at(document: Any, path: tuple[Any, ...]) -> Any:
    for step in path:
        document = document[step]
    return document


FREE = {
    *("partition", "bucket", "table", "uuid", "reason", "idle_reason", "held", "quarantined", "column", "input_files", "definition_changes"),
    *("estimated_bytes", "estimated_memory"),
}
"""What no reader needs, or where any text or number will do."""


@pytest.mark.parametrize("wrong", [None, "?", -1.5, [], {}, True])
def test_anything_else_is_refused_and_never_a_crash(table: SmallTable, wrong: Any) -> None:
    plan = planned(table)
    documents = [
        (sent(plan_to_json(plan, table.table.schema)), plan_from_json),
        (sent(result_to_json(executed(table, plan), table.table.schema)), result_from_json),
    ]
    for document, decode in documents:
        for path in members(document):
            changed = copy.deepcopy(document)
            at(changed, path[:-1])[path[-1]] = wrong
            try:
                found = decode(changed)
            except UsageError:
                continue
            assert found is not None
            assert type(wrong) is type(at(document, path)) or path[-1] in FREE or wrong is None or path[-2:] == ("counts", path[-1]), path


def test_missing_members_are_named(table: SmallTable) -> None:
    document = sent(plan_to_json(planned(table), table.table.schema))
    del document["work"][0]["state"]
    with pytest.raises(UsageError, match="work: 'state' is missing"):
        plan_from_json(document)
    with pytest.raises(UsageError, match="version 2 is not version 1"):
        plan_from_json({**document, "version": 2})


@pytest.mark.parametrize(
    ("member", "wrong"), [("state", "AAAA"), ("state", "not base64"), ("input_files", ["data-unknown.parquet"]), ("kind", "postpone")]
)
def test_what_does_not_fit_together_is_refused(table: SmallTable, member: str, wrong: Any) -> None:
    document = sent(plan_to_json(planned(table), table.table.schema))
    document["work"][0][member] = wrong
    with pytest.raises(UsageError):
        plan_from_json(document)


def test_a_name_that_leads_out_of_the_table_is_refused(table: SmallTable) -> None:
    """A plan comes from outside; its names are no better than those of a manifest. So does a result."""
    plan = planned(table)
    (work,) = plan.work
    assert work.unit is not None
    hostile = replace(work.unit.files[0], file_name="../../outside.parquet")
    unit = replace(work.unit, files=(hostile, *work.unit.files[1:]))
    bucket = replace(work.bucket, files=tuple(hostile if file == work.unit.files[0] else file for file in work.bucket.files))
    changed = replace(work, unit=unit, bucket=bucket)
    with pytest.raises(UsageError, match="is not a file name"):
        plan_from_json(sent(plan_to_json(replace(plan, work=(changed,)), table.table.schema)))
    result = executed(table, plan)
    (made,) = result.message.compact_after
    for name in ("..", "a/b", "", "a\0b", "a\\b"):
        for outside in (replace(made, file_name=name), replace(made, extra_files=(name,))):
            message = replace(result.message, compact_after=(outside,))
            with pytest.raises(UsageError, match="is not a file name"):
                result_from_json(sent(result_to_json(replace(result, message=message), table.table.schema)))
        payload = replace(result.message.compact_new_index_files[0], file_name=name)
        message = replace(result.message, compact_new_index_files=(payload,))
        with pytest.raises(UsageError, match="is not a file name"):
            result_from_json(sent(result_to_json(replace(result, message=message), table.table.schema)))
