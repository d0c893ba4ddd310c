"""The maintenance pass: state → plans → results → snapshots, until nothing is left to do (DESIGN §3, §5 `passes`).

    load the latest state ──▶ plan ──▶ round: execute and commit, bucket by bucket ──▶ plan again …
                                ▲                           │
                                └── conflict: the bucket's files are dropped ──┘

Invariants: a table that is not supported is refused before anything is written; what was committed stays committed, however the pass ends, and
its last event says so; files are deleted only when it is certain that no snapshot refers to them.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import structlog

from maintainer.api.account import Account, Advance, GroupFailure, PassReport
from maintainer.api.round import TICK, Round, Terms
from maintainer.commit.committer import Committer
from maintainer.data.key_cache import KeyCache
from maintainer.data.spill import Spill
from maintainer.data.values import partition_json
from maintainer.errors import MaintainerError
from maintainer.index import groups
from maintainer.index.definition import definitions
from maintainer.index.definition_changes import DefinitionChange, definition_changes
from maintainer.maintain.execute import Progress
from maintainer.maintain.plan import PlanRequest, plan_table
from maintainer.maintain.quarantine import RETRY_AFTER, FailedGroup, load, save, still_failed, waiting
from maintainer.maintain.record_expiry import expire_files
from maintainer.maintain.unmarked import schemas_without_lookup, schemas_without_vectors
from maintainer.model.files import BucketKey
from maintainer.model.schema import TableSchema
from maintainer.model.work import Group, IndexFailure, PickMemory, Plan, WorkKind
from maintainer.storage.layout import Layout
from maintainer.table.options import TableOptions
from maintainer.table.state import TableState, load_latest
from maintainer.table.store import TableStore
from maintainer.table.support import check_table

log = structlog.get_logger(__name__)

DEFAULT_MEMORY = 1 << 30
MOST_CONFLICTS = 10
"""Rounds in a row that lose everything to somebody faster, before a pass gives up."""
MOST_ROUNDS = 20
"""Rounds of a pass: what a bucket needs takes fewer, and rows of a writer that never rests are for the next pass."""
LOG_PROGRESS = 10.0
"""Seconds between two lines of a log that say how far a pass is."""
MOST_TOLD = 20
"""Groups that could not be built, in the last event of a pass: they are there each time. The report has them all."""
STOPPED = "stopped"

OnEvent = Callable[[str, Mapping[str, Any]], None]
"""Called with the name and the fields of each event of a pass, as they are logged."""


@dataclass
class Known:
    """What a pass knew of its table at the end: one that is given it reads only what has come since (DESIGN §3 "Watch")."""

    state: TableState | None = None
    failed: dict[Group, FailedGroup] | None = None
    """Groups that could not be built; None: nobody has looked what the last process left."""
    saved: dict[Group, FailedGroup] = field(default_factory=dict)
    """The same as other processes can read it."""
    memories: dict[BucketKey, PickMemory] = field(default_factory=dict)
    """What picking remembers of the buckets, where the table's options make it remember anything."""
    due: int | None = None
    """When something will have to be done that was left for later, in epoch milliseconds."""
    held: dict[BucketKey, str] = field(default_factory=dict)
    """Buckets for which nothing is done, and why, as was told already."""
    schema: TableSchema | None = None
    """The schema whose index definitions were told of already."""

    @property
    def retry_at(self) -> int | None:
        """When a group that could not be built is to be tried again though nothing changes, in epoch milliseconds. One whose time has come
        already was tried again, or its bucket is not worked on."""
        now = _now()
        times = (one.retry_at for one in (self.failed or {}).values())
        soonest = min((time for time in times if time is not None and time > now), default=None)
        return None if soonest is None else min(soonest, now + RETRY_AFTER)  # the clock may have been set back since


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
    commit_interval: float | None = None,
    stop: threading.Event | None = None,
    spill: Spill | None = None,
    cache: KeyCache | None = None,
    rewrite_append_bytes: int | None = None,
    known: Known | None = None,
    patient: bool = False,
) -> PassReport:
    """Bring a table into shape, and say what was done; errors are raised, after what was finished before them was committed.

    `full`: everything into the highest level. `partitions`: only these, each by some or all of its columns. `index_only`: groups, no data; of
    these `columns` only, with `force` also current ones. `rewrite_append = False` keeps Java's choice for APPEND files above level 0, and
    `rewrite_append_bytes` limits what is rewritten of those that are there already. Without `repeat` one round is enough (conflicts are still
    replanned). `memory` is a budget in bytes, and what does not fit goes to `spill`. `cache` has key columns of
    files that earlier passes read, and gets those of this one. Finished buckets wait for others at most
    `commit_interval` seconds (default: the table's option). `stop` may be set at any time: what is finished is committed, the rest is dropped,
    and the reason of the report is "stopped". `known` is for passes over the same table again and again, and `patient` says that they will
    come: what `lookup-compact = gentle` and `full-compaction.delta-commits` put off is put off, to any other pass its time is now (a pass
    without `repeat` does not ask for commits: it makes the pick that it was told to).

    The callbacks are called from several threads. `on_event` gets what is logged, and `pass.progress` each half second. The last event is
    `pass.finished`; after an error its outcome is `failed`, and it says what was committed before.
    """
    request = PlanRequest(
        full=full,
        partitions=partitions,
        rewrite_append=rewrite_append,
        rewrite_append_bytes=rewrite_append_bytes,
        index_only=index_only,
        columns=None if columns is None else tuple(columns),
        force=force,
        patient=patient,
        by_commits=repeat,
    )
    this = _Pass(store, request, repeat, on_event, known or Known())
    return this.run(
        Terms(
            memory=memory or default_memory(),
            commit_interval=commit_interval,
            spill=spill,
            cache=cache,
            stop=stop or threading.Event(),
            progress=progress,
            event=this.event,
            tick=this.tell_progress,
        )
    )


def plan_pass(store: TableStore, request: PlanRequest) -> Plan:
    """What a pass would do now; nothing is read but metadata."""
    schema, state = _load(store, None)
    request = _with_state(request, store, schema, state)
    plan = plan_table(state, store.name, schema, request)
    if plan.work and definitions(schema):
        quarantined = waiting(still_failed(load(store), state, schema), request.now)
        reasons = {group: one.reason for group, one in quarantined.items()}
        plan = plan_table(state, store.name, schema, replace(request, quarantined=reasons)) if reasons else plan
    return replace(plan, definition_changes=tuple(change.notice for change in _changed_definitions(store, schema, state)))


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
    """A pass under way: its rounds, and what it tells."""

    def __init__(self, store: TableStore, request: PlanRequest, repeat: bool, on_event: OnEvent | None, known: Known) -> None:
        self.store = store
        self.known = known
        self.request = request
        self.repeat = repeat
        self.on_event = on_event
        self.account = Account(store.name)
        self.advance = Advance()
        self._retries = request.index_only
        """Whether groups are tried again that could not be built: somebody asks for them."""
        self._noted: dict[Group, IndexFailure] = {}
        """Failures of this pass that are in `known`."""
        self._schema: TableSchema | None = None
        """What was last planned with."""
        self._told = self._logged = time.monotonic()

    def run(self, terms: Terms) -> PassReport:
        try:
            report = self._rounds(terms)
        except BaseException as error:
            if isinstance(error, MaintainerError) and self._schema is not None:  # what else was found must not be found out again
                self._note_failures(self._schema)
                self._save_failures()
            self.event("pass.finished", **self.account.report("failed", str(error) or type(error).__name__, complete=False).to_dict())
            raise
        self.event("pass.finished", **{**report.to_dict(), "failures": [failure.to_dict() for failure in report.failures[:MOST_TOLD]]})
        return report

    def _rounds(self, terms: Terms) -> PassReport:
        """Plan and work until nothing is left."""
        account = self.account
        schema, state = _load(self.store, self.known.state)
        self.known.state = state
        account.snapshot_before = None if state is None else state.snapshot.id
        self._tell_definitions(schema, state)
        committer = Committer(self.store)
        committer.known_state = state
        lost = 0
        for _ in range(MOST_ROUNDS):
            if terms.stop.is_set():
                return self._ended(early=STOPPED)
            plan = self._plan(state, schema)
            if not plan.work:
                return self._ended(plan.idle_reason)
            steps = account.steps
            conflicts = Round(self.store, schema, plan, committer, account, self.advance, terms, self.known.memories).run()
            if terms.stop.is_set():
                return self._ended(early=STOPPED)
            progressed = account.steps > steps
            lost = lost + 1 if conflicts and not progressed else 0
            if lost > MOST_CONFLICTS:
                return account.report("conflict", next(iter(conflicts.values())), complete=False)
            if not conflicts and not (self.repeat and progressed):
                if not self._owes_groups(schema):
                    return self._ended()
                self.request = replace(self.request, index_only=True, full=False)
            if conflicts:
                time.sleep(min(1.0, 0.02 * 2**lost) * random.random())
            schema, state = _load(self.store, state)
            self.known.state = state
        return self._ended(early=f"{account.reasons()}; what has come since is left for the next pass")

    def _owes_groups(self, schema: TableSchema) -> bool:
        """Whether the groups of the only round that was asked for wait for another one."""
        return bool(self.account.owed) and not self.request.index_only and TableOptions.of(schema).index_mode == "async"

    def _ended(self, idle: str | None = None, early: str | None = None) -> PassReport:
        """`idle` is why there was nothing to do, `early` why the pass ends although there may be."""
        self._settle_failures()
        if self.account.snapshot_after is None:
            failed = len(self.account.failures)
            idle = idle or (f"{failed} group{'s' * (failed > 1)} could not be built" if failed else None)
            return self.account.report("nothing", early or idle, complete=early is None)
        return self.account.report("committed", early or self.account.reasons(), complete=early is None)

    def _plan(self, state: TableState | None, schema: TableSchema) -> Plan:
        account, self._schema = self.account, schema
        self._note_failures(schema)
        plan = self._plan_with(state, schema)
        if plan.work and self.known.failed is None and definitions(schema):
            self._load_failures()
            if self.known.failed:
                plan = self._plan_with(state, schema)
        self.known.memories = {**self.known.memories, **plan.memories}
        self.known.due = plan.due
        self._tell_held(plan, schema)
        self.advance.planned(plan.work)
        self.event(
            "pass.planned",
            snapshot=plan.snapshot_id,
            work=len(plan.work),
            bytes=plan.estimated_bytes,
            memory=plan.estimated_memory,
            idle_reason=plan.idle_reason,
        )
        account.owed -= {work.bucket.key for work in plan.work if work.kind is WorkKind.INDEX}
        return plan

    def _plan_with(self, state: TableState | None, schema: TableSchema) -> Plan:
        account, most = self.account, self.request.rewrite_append_bytes
        self.known.failed = still = None if self.known.failed is None else still_failed(self.known.failed, state, schema)
        quarantined = waiting(still or {}, _now())
        request = replace(
            self.request,
            memories=self.known.memories,
            settled=account.settled,
            quarantined={group: one.reason for group, one in quarantined.items() if group in account.failures or not self._retries},
            groups_first=account.owed,
            rewrite_append_bytes=None if most is None else max(0, most - account.rewritten_append_bytes),
        )
        return plan_table(state, self.store.name, schema, _with_state(request, self.store, schema, state))

    def _load_failures(self) -> None:
        if self.known.failed is None:
            self.known.saved = load(self.store)
            self.known.failed = dict(self.known.saved)

    def _note_failures(self, schema: TableSchema) -> None:
        """Remember what could not be built since this was last called."""
        new = {group: one for group, one in self.account.failures.items() if self._noted.get(group) != one}
        if new:
            self._load_failures()
            now = _now()
            self.known.failed = {**(self.known.failed or {}), **{group: FailedGroup.of(one, schema, now) for group, one in new.items()}}
            self._noted |= new

    def _settle_failures(self) -> None:
        """What the report says of groups that are missing, and what is left for others to know."""
        account = self.account
        if not (account.failures or self.known.failed):
            self._save_failures()
            return
        try:
            schema, state = _load(self.store, self.known.state)
        except MaintainerError as error:  # what is committed is committed
            log.warning("index-failures.unsaved", table=self.store.name, error=str(error))
            return
        self._note_failures(schema)
        self.known.failed = still_failed(self.known.failed or {}, state, schema)
        reasons = {group: one.reason for group, one in self.known.failed.items()}
        for group, failure in account.failures.items():  # those that are there, but were to be built again
            files = [] if state is None else groups.sources(state.bucket(group.key).files).get(group.level, [])
            if groups.fingerprint(files) == failure.sources:
                reasons[group] = failure.reason
        account.told_failures = tuple(
            GroupFailure(partition_json(schema, group.key.partition), group.key.bucket, group.column, group.level, reasons[group])
            for group in sorted(reasons)
        )
        self._save_failures()

    def _save_failures(self) -> None:
        if self.known.failed is not None and self.known.failed != self.known.saved:
            self.known.saved = dict(self.known.failed)
            save(self.store, self.known.saved)

    def _tell_definitions(self, schema: TableSchema, state: TableState | None) -> None:
        """What somebody did to index definitions, once."""
        before, self.known.schema = self.known.schema, schema
        changes = _changed_definitions(self.store, schema, state) if before is None else definition_changes(before, schema)
        for change in changes:
            self.event("definition.changed", **change.notice.to_dict())

    def _tell_held(self, plan: Plan, schema: TableSchema) -> None:
        """What is not done in some buckets, once."""
        layout = Layout.of(schema)
        for key, reason in plan.held.items():
            if self.known.held.get(key) != reason:
                self.event("pass.held", urgent=True, partition=layout.partition_directory(key.partition), bucket=key.bucket, reason=reason)
        self.known.held = dict(plan.held)

    def event(self, name: str, urgent: bool = False, **fields: Any) -> None:
        (log.warning if urgent else log.info)(name, **{"table": self.store.name, **fields})
        self._call_back(name, fields)

    def tell_progress(self) -> None:
        """Say how far the pass is, if it is time to."""
        now = time.monotonic()
        if now - self._told >= TICK:
            self._told = now
            numbers = self.advance.numbers()
            if now - self._logged >= LOG_PROGRESS:
                self._logged = now
                log.info("pass.progress", table=self.store.name, **numbers)
            self._call_back("pass.progress", numbers)

    def _call_back(self, name: str, fields: Mapping[str, Any]) -> None:
        if self.on_event is not None:
            self.on_event(name, {"table": self.store.name, **fields})


def _changed_definitions(store: TableStore, schema: TableSchema, state: TableState | None) -> tuple[DefinitionChange, ...]:
    """Index definitions that are not what they were when the latest snapshot was committed."""
    if state is None or state.snapshot.schema_id == schema.id:
        return ()
    try:
        return definition_changes(store.schema_of(state.snapshot), schema)
    except MaintainerError:  # a schema that cannot be read any more: it only told what is over
        return ()


def _load(store: TableStore, previous: TableState | None) -> tuple[TableSchema, TableState | None]:
    """The latest schema and state (None: no snapshot); `Unsupported` when the table is not one that is maintained."""
    schema = store.latest_schema()
    check_table(store, schema)
    state = load_latest(store, previous, schema)
    if state is not None:
        check_table(store, schema, state)
    return schema, state


def _now() -> int:
    return int(time.time() * 1000)


def _with_state(request: PlanRequest, store: TableStore, schema: TableSchema, state: TableState | None) -> PlanRequest:
    """The request at this time, for a table with these options, and with what its files' schemas say."""
    schemas = [] if state is None else [store.schema(schema_id) for schema_id in sorted(state.schema_ids)]
    now = _now()
    return replace(
        request,
        now=now,
        expired=expire_files(schema, () if state is None else state.files(), store.schema, now // 1000),
        rewrite_append=request.rewrite_append and TableOptions.of(schema).rewrite_append,
        without_vectors=schemas_without_vectors(schemas),
        without_lookup=schemas_without_lookup(schemas),
    )
