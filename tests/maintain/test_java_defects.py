"""Defects of Java's compactions (spec 03 §12, 04 §14), each with the right behaviour, on our side."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyroaring import BitMap64

from maintainer.api.maintenance import plan_pass
from maintainer.commit.committer import Committer
from maintainer.data.deletions import read_deletions, write_deletions
from maintainer.maintain.execute import execute
from maintainer.maintain.plan import PlanRequest
from maintainer.maintain.reclaim import abort, names_in_use
from maintainer.model.work import Result, WorkKind
from maintainer.storage.layout import FileNames
from tests.support.small_table import SmallTable

MEMORY = 64 << 20


def executed(table: SmallTable, **request: bool) -> Result:
    plan = plan_pass(table.store, PlanRequest(**request))
    (work,) = plan.work
    return execute(plan, work, table.store, table.table.schema, MEMORY)


def with_base(directory: Path, rows: int = 500) -> SmallTable:
    table = SmallTable(directory)
    table.write({key: key * 1_000_003 % 2**40 for key in range(rows)})
    table.maintain()
    return table


def test_stale_lookup_after_delete(tmp_path: Path) -> None:
    """§14.1: a deleted row of a higher level is found again by a long-lived Java writer; here it does not exist any more."""
    table = with_base(tmp_path)
    table.write(delete=[7])
    table.maintain()
    vectors = table.bucket().deletion_file
    table.write({7: 1})
    table.maintain()
    assert table.bucket().deletion_file == vectors
    assert table.deleted(table.file(5)) == [7]
    table.check()


def test_lost_delete_on_concurrent_compactions(tmp_path: Path) -> None:
    """§14.2: job 1 rewrites the base; job 2 marks a row of it meanwhile; job 1 must not bring the row back to life."""
    table = with_base(tmp_path)
    table.write(delete=[1])
    table.maintain()
    first = executed(table, full=True)
    table.write(delete=[2])
    table.maintain()
    outcome = Committer(table.store).commit_results([first])
    assert outcome.snapshots == ()
    assert list(outcome.conflicts) == [first.message.bucket_key]
    abort(table.store, first, names_in_use(table.store))
    assert 2 not in table.rows
    table.check()
    table.maintain(full=True)
    table.check()


def test_lost_first_delete_on_concurrent_compactions(tmp_path: Path) -> None:
    """§14.2, where the bucket had no deletion vectors when job 1 read it."""
    table = with_base(tmp_path)
    table.write({1000: 1})
    first = executed(table, full=True)
    table.write(delete=[2])
    plan = plan_pass(table.store, PlanRequest())
    (work,) = plan.work
    assert work.unit is not None
    newest = replace(work.unit, files=tuple(file for file in work.unit.files if file.may_hold_deletes))
    second = execute(plan, replace(work, unit=newest, second_round=False), table.store, table.table.schema, MEMORY)
    committer = Committer(table.store)
    assert committer.commit_results([second]).conflicts == {}
    assert list(committer.commit_results([first]).conflicts) == [first.message.bucket_key]
    abort(table.store, first, names_in_use(table.store))
    table.maintain()
    table.check()


def test_vectors_of_files_that_are_gone(tmp_path: Path) -> None:
    """§14.3: older versions leave such ranges behind; they are ignored, and dropped when the map is written."""
    table = with_base(tmp_path)
    table.write(delete=[1])
    plan = plan_pass(table.store, PlanRequest())
    (work,) = plan.work
    base = table.file(5).file_name
    vectors = {base: BitMap64([7]), "data-gone.parquet": BitMap64([1, 2])}
    foreign = write_deletions(table.store.storage, table.store.layout, FileNames("index-"), vectors, bitmap64=False)
    work = replace(work, bucket=replace(work.bucket, deletion_file=foreign))
    result = execute(plan, work, table.store, table.table.schema, MEMORY)
    (written,) = result.message.compact_new_index_files
    assert result.deletion_file == foreign.file_name
    assert read_deletions(table.store.storage, table.store.layout, written) == {base: BitMap64([1, 7])}


@pytest.mark.parametrize("delete_first", [True, False])
@pytest.mark.parametrize("between", [True, False])
def test_equal_sequence_numbers(delete_first: bool, between: bool, tmp_path: Path) -> None:
    """§14.4: two writers that do not know of one another give the same number; an add wins over a delete, whoever came first."""
    table = with_base(tmp_path)
    deleter, inserter = table.table.writer(), table.table.writer()
    deleter.delete(pa.table([pa.array([7], pa.int32())], names=["id"]))
    row = pa.table([pa.array([7], pa.int32()), pa.array([70], pa.int64()), pa.array(["s0"])], names=["id", "v", "s"])
    inserter.write(row)
    # Both read the state now, before either commits.
    deleter._flush()
    inserter._flush()
    first, second = (deleter, inserter) if delete_first else (inserter, deleter)
    first.commit()
    second.commit()
    numbers = [file.max_sequence_number for file in table.bucket().files if file.level == 0]
    assert numbers == [500, 500]
    if between:
        table.write({8: 80})
    table.rows[7] = (70, "s0")
    table.maintain()
    table.check()


def test_tombstones_are_dropped_at_every_level(tmp_path: Path) -> None:
    """§14.5: with deletion vectors there is nothing below for a tombstone to hide; later rows of the key are simply there."""
    table = with_base(tmp_path)
    table.write({600: 1}, delete=[3])
    table.maintain()
    assert table.records(table.file(4)) == [("+I", 501, 600)]
    table.write({3: 33})
    table.maintain()
    table.check()


def test_aborting_an_upgrade_keeps_the_file(tmp_path: Path) -> None:
    """03 §12: Java, pypaimon and pypaimon-rust delete the live file, as the message adds it."""
    table = with_base(tmp_path)
    table.write({3: 33})
    result = executed(table)
    assert result.kind is WorkKind.UPGRADE
    name = table.file(0).file_name
    forged = replace(result, created=(*result.created, f"bucket-0/{name}"))
    abort(table.store, forged, frozenset())
    assert Path(table.path, "bucket-0", name).exists()
    table.maintain()
    table.check()
