"""An abandoned result loses its own files and nothing else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from maintainer.api.maintenance import plan_pass
from maintainer.commit.committer import Committer
from maintainer.errors import StorageError
from maintainer.maintain.execute import execute
from maintainer.maintain.plan import PlanRequest
from maintainer.maintain.reclaim import abort, names_in_use
from maintainer.model.work import Result
from tests.support.changelogs import changes
from tests.support.small_table import SmallTable


def executed(table: SmallTable) -> Result:
    plan = plan_pass(table.store, PlanRequest())
    return execute(plan, plan.work[0], table.store, table.table.schema, 64 << 20)


@pytest.fixture
def table(tmp_path: Path) -> SmallTable:
    table = SmallTable(tmp_path, indexes=True)
    table.write({key: key for key in range(100)})
    table.maintain()
    table.write({1: 1})
    return table


def test_everything_that_an_attempt_wrote_is_deleted(table: SmallTable) -> None:
    before = table.paths()
    result = executed(table)
    assert table.paths() - before == set(result.created)
    deleted = abort(table.store, result, names_in_use(table.store))
    assert sorted(deleted) == sorted(result.created)
    assert table.paths() == before
    table.maintain()
    table.check()


def test_a_result_that_was_committed_loses_nothing(table: SmallTable) -> None:
    """Somebody aborts what somebody else has committed: the latest snapshot names the files."""
    result = executed(table)
    Committer(table.store).commit_results([result])
    assert abort(table.store, result, names_in_use(table.store)) == ()
    table.check()


def test_a_changelog_that_was_committed_is_not_deleted_either(tmp_path: Path) -> None:
    """The same result committed twice, which is a conflict the second time."""
    table = SmallTable(tmp_path, **{"deletion-vectors.enabled": "false", "changelog-producer": "lookup"})
    table.write({1: 1})
    result = executed(table)
    assert result.message.compact_changelog_files
    assert Committer(table.store).commit_results([result]).snapshots
    assert abort(table.store, result, names_in_use(table.store)) == ()
    assert [change.kind for change in changes(table.store)] == ["+I"]


def test_paths_that_the_message_does_not_add_are_not_touched(table: SmallTable) -> None:
    """A result may come from outside and claim to have created anything."""
    result = executed(table)
    hostile = replace(result, created=("schema/schema-0", "snapshot/snapshot-1", f"bucket-0/{table.file(0).file_name}"))
    assert abort(table.store, hostile, frozenset()) == ()
    assert Path(table.path, "schema", "schema-0").exists()
    (made,) = result.message.compact_after
    manifest = next(Path(table.path, "manifest").iterdir()).name
    message = replace(result.message, compact_after=(made, replace(made, file_name=manifest), replace(made, file_name="schema-0")))
    hostile = replace(hostile, created=(*hostile.created, f"manifest/{manifest}"), message=message)
    assert abort(table.store, hostile, frozenset()) == ()
    assert Path(table.path, "manifest", manifest).exists()
    assert {file.level for file in table.bucket().files} == {0, 5}


def test_what_cannot_be_deleted_is_left_for_the_orphan_cleaner(table: SmallTable, monkeypatch: pytest.MonkeyPatch) -> None:
    result = executed(table)
    delete = table.store.storage.delete

    def refuse_first(path: str) -> None:
        if path == result.created[0]:
            raise StorageError("denied")
        delete(path)

    monkeypatch.setattr(table.store.storage, "delete", refuse_first)
    assert sorted(abort(table.store, result, frozenset())) == sorted(result.created[1:])
