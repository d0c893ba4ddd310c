"""The maintenance pass: state → plans → results → snapshot, until nothing is left to do (DESIGN §3, §5 `passes`).

    load the latest state ──▶ plan ──▶ execute each bucket ──▶ commit ──▶ plan again …
                                  ▲                              │
                                  └── conflict: drop the hit bucket's files ┘

Invariants: a table that is not supported is refused before anything is written; when a bucket fails, nothing of this round is committed and
everything it wrote is deleted; files are deleted only when it is certain that no snapshot refers to them.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import structlog

from maintainer.commit.committer import CommitOutcome, Committer
from maintainer.errors import CommitStateUnknown, MaintainerError, MissingFile
from maintainer.maintain.execute import Progress, execute
from maintainer.maintain.plan import PlanRequest, plan_table
from maintainer.maintain.reclaim import abort, abort_all
from maintainer.model.files import BucketKey
from maintainer.model.report import Entry
from maintainer.model.schema import TableSchema
from maintainer.model.work import IndexFailure, Plan, Result, Work
from maintainer.table.options import TableOptions
from maintainer.table.state import TableState, load_latest
from maintainer.table.store import TableStore
from maintainer.table.support import check_table

log = structlog.get_logger(__name__)

DEFAULT_MEMORY = 1 << 30
LEAST_MEMORY_OF_A_BUCKET = 256 << 20
"""A bucket gets a thread of its own only with at least this budget."""
MOST_CONFLICTS = 10
"""Rounds in a row that a pass replans because somebody else was faster, before it gives up."""

MOST_ROUNDS = 20
"""Rounds of a pass: what a bucket needs takes fewer, and rows of a writer that never rests are for the next pass."""
MOST_REASONS = 3

OnEvent = Callable[[str, Mapping[str, Any]], None]
"""Called with the name and the fields of each event of a pass, as they are logged."""


@dataclass(frozen=True)
class PassReport(Entry):
    """What a pass did to one table; the counts are of files, groups and bytes over all its rounds."""

    table: str
    snapshot_before: int | None
    snapshot_after: int | None
    outcome: str
    """`committed`, `nothing` or `conflict`; `failed` is for whoever reports an exception in this shape."""
    reason: str | None = None
    input_files: int = 0
    output_files: int = 0
    groups_built: int = 0
    groups_dropped: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    seconds: float = 0.0
    failures: tuple[IndexFailure, ...] = ()
    """Groups that could not be built; their levels stay uncovered."""


def run_pass(
    store: TableStore,
    full: bool = False,
    partitions: Sequence[Mapping[str, str]] | None = None,
    index_only: bool = False,
    rewrite_append: bool = True,
    repeat: bool = True,
    memory: int | None = None,
    progress: Progress | None = None,
    on_event: OnEvent | None = None,
    columns: Sequence[str] | None = None,
    force: bool = False,
) -> PassReport:
    """Bring a table into shape, and say what was done; errors are raised.

    `full`: everything into the highest level. `partitions`: only these, each by some or all of its columns. `index_only`: groups, no data; of
    these `columns` only, with `force` also current ones. `rewrite_append = False` keeps Java's choice for APPEND files above level 0. Without
    `repeat` one round is enough (conflicts are still replanned). `memory` is a budget in bytes. The callbacks are called from several threads.
    """
    request = PlanRequest(
        full=full,
        partitions=partitions,
        rewrite_append=rewrite_append,
        index_only=index_only,
        columns=None if columns is None else tuple(columns),
        force=force,
    )
    return _Pass(store, request, repeat, memory or default_memory(), progress, on_event).run()


def plan_pass(store: TableStore, request: PlanRequest) -> Plan:
    """What a pass would do now; nothing is read but metadata."""
    schema, state = _load(store, None)
    return plan_table(state, store.name, schema, _with_options(request, schema))


def default_memory() -> int:
    """1 GiB, or half of what the container may use if that is less."""
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            with open(path, encoding="ascii") as file:
                return min(DEFAULT_MEMORY, int(file.read()) // 2)
        except (OSError, ValueError):
            continue
    return DEFAULT_MEMORY


class _Pass:
    """A pass under way."""

    def __init__(
        self, store: TableStore, request: PlanRequest, repeat: bool, memory: int, progress: Progress | None, on_event: OnEvent | None
    ) -> None:
        self.store = store
        self.request = request
        self.repeat = repeat
        self.memory = memory
        self.progress = progress
        self.on_event = on_event
        self.settled: frozenset[BucketKey] = frozenset()
        self.counts: Counter[str] = Counter()
        self.reasons: dict[str, None] = {}
        self.failures: dict[tuple[BucketKey, str, int], IndexFailure] = {}
        self.snapshot_after: int | None = None

    def run(self) -> PassReport:
        started = time.monotonic()
        schema, state = _load(self.store, None)
        before = None if state is None else state.snapshot.id
        committer = Committer(self.store)
        lost = rounds = 0
        while True:
            rounds += 1
            plan = plan_table(state, self.store.name, schema, self._request(schema))
            self._event("pass.planned", snapshot=plan.snapshot_id, work=len(plan.work), idle_reason=plan.idle_reason)
            reason = plan.idle_reason
            if not plan.work:
                break
            try:
                results = self._execute(plan, schema)
                outcome = self._commit(committer, results)
            except MissingFile as error:
                if not self._is_outdated(plan):
                    raise
                results, outcome = [], CommitOutcome(conflicts=dict.fromkeys((work.bucket.key for work in plan.work), str(error)))
            progressed = self._account(plan, results, outcome)
            lost = lost + 1 if outcome.conflicts else 0
            if lost > MOST_CONFLICTS:
                reason = next(iter(outcome.conflicts.values()))
                break
            if not outcome.conflicts and not (self.repeat and progressed and rounds < MOST_ROUNDS):
                break
            if lost:
                time.sleep(min(1.0, 0.02 * 2**lost) * random.random())
            schema, state = _load(self.store, state)
        word = "conflict" if lost > MOST_CONFLICTS else "nothing" if self.snapshot_after is None else "committed"
        report = PassReport(
            table=self.store.name,
            snapshot_before=before,
            snapshot_after=before if self.snapshot_after is None else self.snapshot_after,
            outcome=word,
            reason=_few(self.reasons) if word == "committed" else reason,
            input_files=self.counts["input_files"],
            output_files=self.counts["output_files"],
            groups_built=self.counts["groups_built"],
            groups_dropped=self.counts["groups_dropped"],
            bytes_read=self.counts["bytes_read"],
            bytes_written=self.counts["bytes_written"],
            seconds=round(time.monotonic() - started, 3),
            failures=tuple(self.failures.values()),
        )
        self._event("pass.finished", **report.to_dict())
        return report

    def _request(self, schema: TableSchema) -> PlanRequest:
        request = replace(self.request, now=int(time.time() * 1000), settled=self.settled, quarantined=frozenset(self.failures))
        return _with_options(request, schema)

    def _execute(self, plan: Plan, schema: TableSchema) -> list[Result]:
        """The results of all work of a plan; when one fails, its exception and no files."""
        threads = self._threads(plan.work)
        stop = threading.Event()

        def watched(work: Work, size: int) -> None:
            if stop.is_set():
                raise _Stopped
            if self.progress is not None:
                self.progress(work, size)

        def one(work: Work) -> Result:
            watched(work, 0)
            fields = {"bucket": work.bucket.bucket, "kind": str(work.kind), "reason": work.reason}
            self._event("work.started", **fields, bytes=work.estimated_bytes, memory=work.estimated_memory)
            return execute(plan, work, self.store, schema, self.memory // threads, watched)

        futures: list[Future[Result]] = []
        try:
            with ThreadPoolExecutor(threads, thread_name_prefix="bucket") as pool:
                try:
                    futures += [pool.submit(one, work) for work in plan.work]
                    wait(futures, return_when=FIRST_EXCEPTION)
                    for future in futures:
                        if future.done():
                            future.result()
                    return [future.result() for future in futures]
                except BaseException:
                    stop.set()
                    for future in futures:
                        future.cancel()
                    raise
        except BaseException:
            finished = [future for future in futures if not future.cancelled() and future.exception() is None]
            for future in finished:
                abort(self.store, future.result(), frozenset())
            raise

    def _threads(self, work: Sequence[Work]) -> int:
        """How many buckets may be worked on at a time: the neediest ones together keep within the budget, if more than one is."""
        most = max(1, min(len(work), os.cpu_count() or 1, self.memory // LEAST_MEMORY_OF_A_BUCKET))
        needs = accumulate(sorted((item.estimated_memory for item in work), reverse=True)[:most])
        return max(1, sum(need <= self.memory for need in needs))

    def _commit(self, committer: Committer, results: Sequence[Result]) -> CommitOutcome:
        """Publish what still fits; the files of everything else are deleted, unless it may have been published."""
        try:
            outcome = committer.commit_results(results)
        except CommitStateUnknown:
            raise
        except MaintainerError:
            abort_all([self.store], results, results[0].snapshot_id)
            raise
        abort_all([self.store], [result for result in results if result.message.bucket_key in outcome.conflicts], results[0].snapshot_id)
        for snapshot in outcome.snapshots:
            self._event("pass.committed", snapshot=snapshot.id, kind=str(snapshot.commit_kind))
        for key, reason in outcome.conflicts.items():
            self._event("pass.conflict", bucket=key.bucket, reason=reason)
        return outcome

    def _is_outdated(self, plan: Plan) -> bool:
        """Whether files that a plan reads are not the table's any more: somebody else compacted them, and they may have expired."""
        state = load_latest(self.store)
        for work in plan.work:
            bucket = work.bucket if state is None else state.bucket(work.bucket.key)
            if bucket.deletion_file != work.bucket.deletion_file or not set(work.bucket.files) <= set(bucket.files):
                return True
        return state is None

    def _account(self, plan: Plan, results: Sequence[Result], outcome: CommitOutcome) -> bool:
        """Add up what was committed; whether another round may find something else to do."""
        committed = [result for result in results if result.message.bucket_key not in outcome.conflicts]
        self.settled |= {result.message.bucket_key for result in committed}
        if outcome.snapshots:
            self.snapshot_after = outcome.snapshots[-1].id
        known = len(self.failures)
        for result in committed:
            self.counts.update(result.counts)
            if not result.message.is_empty:
                self.reasons[result.reason] = None
            for failure in result.failures:
                self.failures[result.message.bucket_key, failure.column, failure.level] = failure
                self._event("pass.index-failed", bucket=result.message.bucket, **failure.to_dict())
        return bool(outcome.snapshots) or len(self.failures) > known

    def _event(self, name: str, **fields: Any) -> None:
        log.info(name, **{"table": self.store.name, **fields})
        if self.on_event is not None:
            self.on_event(name, {"table": self.store.name, **fields})


class _Stopped(Exception):
    """Another bucket of the pass failed."""


def _load(store: TableStore, previous: TableState | None) -> tuple[TableSchema, TableState | None]:
    """The latest schema and state (None: no snapshot); `Unsupported` when the table is not one that is maintained."""
    schema = store.latest_schema()
    check_table(store, schema)
    state = load_latest(store, previous, schema)
    if state is not None:
        check_table(store, schema, state)
    return schema, state


def _with_options(request: PlanRequest, schema: TableSchema) -> PlanRequest:
    return replace(request, rewrite_append=request.rewrite_append and TableOptions.of(schema).rewrite_append)


def _few(reasons: Iterable[str]) -> str:
    """The first of the reasons, and how many more there are."""
    all_of_them = list(reasons)
    more = len(all_of_them) - MOST_REASONS
    return "; ".join(all_of_them[:MOST_REASONS]) + (f"; and {more} more" if more > 0 else "")
