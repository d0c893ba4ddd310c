"""Plans and results that travel between processes (DESIGN §3 "Execute"): one process plans, others execute, one commits.

What arrives is checked against the table as it is: a plan of another schema or of a snapshot that is not the table's is not executed, and
committing checks every result as if it had been made here, and whether its files are there. A result may come twice: what its first commit
published stays, what it gave up is not published later.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from maintainer.api.maintenance import default_memory
from maintainer.commit.committer import CommitOutcome, Committer
from maintainer.errors import CommitConflict, CommitStateUnknown, MaintainerError, MissingFile
from maintainer.maintain.execute import execute
from maintainer.maintain.quarantine import FailedGroup, load, save, still_failed
from maintainer.maintain.reclaim import abort_all, abort_payloads, added_files, kept_names
from maintainer.model.work import Group, Plan, Result
from maintainer.table.state import load_latest
from maintainer.table.store import TableStore
from maintainer.table.support import check_table

_ON_A_BRANCH = re.compile(r"(.+) \(branch (.+)\)")


class Place(NamedTuple):
    """Where a plan or result says its table is."""

    uri: str
    branch: str | None


def place_of(table: str) -> Place:
    """From the name in a document (`TableStore.name`) back to what opens the table."""
    match = _ON_A_BRANCH.fullmatch(table)
    return Place(match[1], match[2]) if match else Place(table, None)


def execute_plan(store: TableStore, plan: Plan, memory: int | None = None) -> Iterator[Result]:
    """The results of a plan's work, one bucket after the other; nothing of it is visible before `commit_results`."""
    schema = store.latest_schema()
    check_table(store, schema)
    if plan.snapshot_id is not None:
        snapshot = store.find_snapshot(plan.snapshot_id)
        if schema.id != plan.schema_id or snapshot is None or snapshot.uuid != plan.snapshot_uuid:
            raise CommitConflict(f"{store.name}: the table is not the one of this plan any more (snapshot {plan.snapshot_id}); plan again")
    for work in plan.work:
        yield execute(plan, work, store, schema, memory or default_memory())


def commit_results(store: TableStore, results: Sequence[Result]) -> CommitOutcome:
    """Makes results visible; the files of those that do not fit the table any more are deleted."""
    missing = {result.message.bucket_key: path for result in results if (path := _missing_file(store, result)) is not None}
    gone = {key: f"{path} is not there as the result says: it was given up, or made for another place" for key, path in missing.items()}
    stores = store.on_every_branch()
    try:
        outcome = Committer(store).commit_results([result for result in results if result.message.bucket_key not in gone])
    except CommitStateUnknown:
        raise
    except MaintainerError:
        abort_all(stores, results, 0)
        raise
    outcome = replace(outcome, conflicts={**gone, **outcome.conflicts})
    abort_all(stores, [result for result in results if result.message.bucket_key in outcome.abandoned], 0)
    abort_payloads(stores, results, outcome.discarded, 0)
    _leave_failures(store, [result for result in results if result.message.bucket_key not in outcome.conflicts])
    return outcome


def _leave_failures(store: TableStore, results: Sequence[Result]) -> None:
    """Groups that could not be built, for whoever plans next; what is committed is committed, whether that succeeds or not."""
    failures = {Group(result.message.bucket_key, one.column, one.level): one for result in results for one in result.failures}
    if not failures:
        return
    with suppress(MaintainerError):
        schema, now = store.latest_schema(), int(time.time() * 1000)
        failed = load(store) | {group: FailedGroup.of(failure, schema, now) for group, failure in failures.items()}
        save(store, still_failed(failed, load_latest(store, schema=schema), schema))


def _missing_file(store: TableStore, result: Result) -> str | None:
    """The path of a file that a result adds and that is not there, or not with its size."""
    kept = kept_names(result.message)
    for file in added_files(store, result.message):
        if file.name not in kept:
            try:
                size = store.storage.size(file.path)
            except MissingFile:
                return file.path
            if file.size not in (None, size):
                return file.path
    return None
