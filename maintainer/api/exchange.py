"""Plans and results that travel between processes (DESIGN §3 "Execute"): one process plans, others execute, one commits.

What arrives is checked against the table as it is: a plan of another schema or of a snapshot that is not the table's is not executed, and
committing checks every result as if it had been made here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from maintainer.api.maintenance import default_memory, live_names
from maintainer.commit.committer import CommitOutcome, Committer
from maintainer.errors import CommitConflict, CommitStateUnknown, MaintainerError
from maintainer.maintain.execute import Progress, execute
from maintainer.maintain.reclaim import abort
from maintainer.model.work import Plan, Result
from maintainer.table.state import load_state
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


def execute_plan(store: TableStore, plan: Plan, memory: int | None = None, progress: Progress | None = None) -> Iterator[Result]:
    """The results of a plan's work, one bucket after the other; nothing of it is visible before `commit_results`."""
    schema = store.latest_schema()
    check_table(store, schema)
    if plan.snapshot_id is not None:
        snapshot = store.find_snapshot(plan.snapshot_id)
        if schema.id != plan.schema_id or snapshot is None or snapshot.uuid != plan.snapshot_uuid:
            raise CommitConflict(f"{store.name}: the table is not the one of this plan any more (snapshot {plan.snapshot_id}); plan again")
    for work in plan.work:
        yield execute(plan, work, store, schema, memory or default_memory(), progress)


def commit_results(store: TableStore, results: Sequence[Result]) -> CommitOutcome:
    """Makes results visible; the files of those that do not fit the table any more are deleted."""
    try:
        outcome = Committer(store).commit_results(results)
    except CommitStateUnknown:
        raise
    except MaintainerError:
        abort_results(store, results)
        raise
    abort_results(store, [result for result in results if result.message.bucket_key in outcome.conflicts])
    return outcome


def abort_results(store: TableStore, results: Sequence[Result]) -> None:
    """Deletes what results created and no snapshot refers to.

    A result may come a second time, after its first commit: then older snapshots hold its files, whatever the latest one does.
    """
    if not results:
        return
    live: set[str] = set()
    state = None
    base = min(result.snapshot_id for result in results)
    for snapshot in (*filter(None, map(store.find_snapshot, store.snapshot_ids())), *map(store.tag, store.tag_names())):
        if snapshot.id > base:
            state = load_state(store, snapshot, state)
            live |= live_names(state)
    for result in results:
        abort(store, result, live)
