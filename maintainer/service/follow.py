"""Maintaining one table for as long as the daemon runs: look, and when something has changed or is due, a pass (DESIGN §3).

    turn ──▶ look ──▶ changed, or due? ──▶ lease memory ──▶ pass ──▶ expire
      │                                                       │
      └── failed: event, wait twice as long as before ◀───────┘

A turn never raises but `Gone`. What goes wrong in it waits for the next turn of this table; other tables do not notice. A table that is refused
or damaged is told of once, and again only when the reason or the schema is another one. Losing a race is no failure: the next turn plans again.
"""

from __future__ import annotations

import math
import random
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import structlog

from maintainer.api import maintenance
from maintainer.api.account import PassReport
from maintainer.api.maintenance import Known
from maintainer.commit.publish import AGAINST_REPLACEMENT, check_store
from maintainer.data.key_cache import KeyCache
from maintainer.data.spill import Spill
from maintainer.errors import CommitConflict, CommitStateUnknown, CorruptTable, MaintainerError, NotATable, Unsupported, UsageError, told
from maintainer.maintain.reclaim.expire import expire
from maintainer.model.snapshot import Snapshot
from maintainer.service.discovery import ConfiguredTable
from maintainer.service.lease import Lease, MemoryBudget
from maintainer.service.rewrites import RewriteAccount
from maintainer.service.watch import MOST_REMEMBERED, Change, Sighting, Watch
from maintainer.table.manifests import KEPT_ENTRIES
from maintainer.table.state import load_latest
from maintainer.table.support import check_table

if TYPE_CHECKING:
    from maintainer.api.table import Table

log = structlog.get_logger(__name__)

MOST_WAIT = 300.0
"""Seconds between two attempts on a table or store that keeps failing."""
DAMAGED_WAIT = 30.0
"""The same while only some buckets of a table are damaged: the others go on receiving rows."""
EXPIRE_AFTER_COMMITS = 60.0
"""Seconds between two expirations while this process commits."""
EXPIRE_EVERY = 600.0
"""Seconds after which snapshots are expired although this process has committed nothing."""

MOST_KEPT = KEPT_ENTRIES
"""Entries of manifests that are kept over all tables; a single table keeps no more by itself."""

_ONCE = (UsageError.exit_code, CorruptTable.exit_code, Unsupported.exit_code)
"""Exit codes of states that last: they are told of once."""


class Gone(Exception):
    """The table was only found in a warehouse, and is not there any more."""


class KeptMetadata:
    """What passes keep of the manifests they have read, so that the next one reads only new ones; bounded over all tables."""

    def __init__(self, most: int = MOST_KEPT) -> None:
        self._most = most
        self._order: OrderedDict[Follower, None] = OrderedDict()
        self._lock = threading.Lock()

    def used(self, follower: Follower) -> None:
        """A pass of this table has ended: others that were not used for longest forget what is too much."""
        with self._lock:
            self._order[follower] = None
            self._order.move_to_end(follower)
            kept = {each: each.kept for each in self._order}
            total = sum(kept.values())
            for each, entries in list(kept.items())[:-1]:
                if total <= self._most:
                    break
                each.forget()
                total -= entries
                del self._order[each]

    def gone(self, follower: Follower) -> None:
        with self._lock:
            self._order.pop(follower, None)


@dataclass(frozen=True)
class Workshop:
    """What all tables share."""

    poll_interval: float
    budget: MemoryBudget
    spill: Spill
    cache: KeyCache | None
    stop: threading.Event
    tables: Callable[[], int]
    """How many tables share the budget."""
    kept: KeptMetadata = field(default_factory=KeptMetadata)


class Backoff:
    """How long to wait after failures in a row: each time twice as long, at most five minutes, and never in step with others."""

    def __init__(self, first: float) -> None:
        self._first = first
        self.failures = 0

    def failed(self) -> float:
        self.failures += 1
        return min(MOST_WAIT, self._first * 2.0 ** min(self.failures - 1, 30)) * random.uniform(0.75, 1.0)

    def succeeded(self) -> int:
        """How many failures are over."""
        over, self.failures = self.failures, 0
        return over


class Follower:
    """A table that is maintained. Its turns are taken one at a time; the rest may be called from other threads."""

    def __init__(self, table: ConfiguredTable, workshop: Workshop) -> None:
        self.table = table
        self.name = table.uri
        self._workshop = workshop
        self._opened: Table | None = None
        self._watch: Watch | None = None
        self._due: float | None = None
        """When a pass is needed although nothing changes (monotonic seconds)."""
        self._known = Known()
        self._published: dict[int, str | None] = {}
        self._progressed = False
        """Whether the running turn has committed something."""
        self._rewrites = RewriteAccount()
        self._expired = -math.inf
        self._committed = False
        """Whether this process has committed since it last expired."""
        self._snapshots: dict[int, Snapshot] = {}
        """Snapshots that expirations have read."""
        self._expiry_told: str | None = None
        self._backoff = Backoff(workshop.poll_interval)
        self._told: object = None
        self._lease: Lease | None = None
        self._writing = False
        self._waiting = False
        self._sign: float | None = None
        """When the running turn last gave a sign of life; None: no turn runs."""

    @property
    def is_running(self) -> bool:
        return self._sign is not None

    @property
    def is_failing(self) -> bool:
        """Whether the last turn did not do what it should."""
        return self._told is not None

    @property
    def is_writing(self) -> bool:
        """Whether the running turn has begun what should come to its end: a pass or an expiry."""
        return self._writing

    def silent_for(self) -> float:
        """Seconds since the running turn gave a sign of life; 0 when no turn runs, or it waits for memory."""
        sign = self._sign
        return 0.0 if sign is None or self._waiting else time.monotonic() - sign

    @property
    def kept(self) -> int:
        """Entries of manifests, and files of its state, that this table keeps in memory."""
        opened, state = self._opened, self._known.state
        files = 0 if state is None else sum(len(bucket.files) for bucket in state.buckets.values())
        return files + (0 if opened is None else opened.store.manifests.kept)

    def forget(self) -> None:
        """Keep none of it; may be called while a turn runs, which then reads again."""
        self._known.state = None
        opened = self._opened
        if opened is not None:
            opened.store.manifests.forget()

    def surrender(self) -> None:
        """Gives the memory of a turn that hangs to others."""
        lease = self._lease
        if lease is not None:
            lease.give_back()

    def turn(self) -> float | None:
        """One look and what follows from it; in how many seconds the next one is due if not at the usual time. Raises only `Gone`."""
        if self._workshop.stop.is_set():
            return None
        self._alive()
        self._progressed = False
        try:
            self._turn()
        except CommitStateUnknown as error:
            self._due = time.monotonic()
            log.warning("pass.unknown", table=self.name, error=str(error))
        except CommitConflict as error:
            self._due = time.monotonic()
            log.info("pass.conflict", table=self.name, error=str(error))
        except Exception as error:
            return self._failed(error)
        else:
            self._recovered()
        finally:
            self._sign = None
        return None

    def _turn(self) -> None:
        if self._opened is None or self._watch is None:
            self._opened = self.table.open()
            self._watch = Watch(self._opened.store)
        sighting = self._watch.look()
        if sighting is not None:
            self._due = time.monotonic()
            self._tell(sighting)
            if sighting.change is Change.RECREATED:  # what is known of files and schemas by their names is of another table
                self._known = Known()
                self._opened = self.table.open()
                self._watch = Watch(self._opened.store)
        if self._due is not None and time.monotonic() >= self._due:
            self._pass(self._opened, self._watch)
        waited = time.monotonic() - self._expired
        if waited >= (EXPIRE_AFTER_COMMITS if self._committed else EXPIRE_EVERY) and not self._workshop.stop.is_set():
            self._expire(self._opened)

    def _pass(self, table: Table, watch: Watch) -> None:
        schema = table.schema
        options = table.store.options(schema)
        check_table(table.store, schema)  # a pass would ask this and the next, too, but tell of it each time
        check_store(table.store, options)
        if self._told is not None:
            load_latest(table.store, schema=schema)  # so would it of metadata that are still damaged
        budget = self._workshop.budget
        allowed = self._rewrites.grant(options.rewrite_append_budget)
        self._waiting = True
        with budget.lease(budget.share(self._workshop.tables()), self._workshop.stop) as lease:
            self._waiting = False
            if lease is None:
                return
            self._lease, self._writing = lease, True
            self._alive()
            try:
                report = maintenance.run_pass(
                    table.store,
                    memory=lease.size,
                    stop=self._workshop.stop,
                    spill=self._workshop.spill,
                    cache=self._workshop.cache,
                    rewrite_append_bytes=allowed,
                    known=self._known,
                    patient=True,
                    progress=lambda work, size: self._alive(),
                    on_event=self._on_event,
                )
            finally:
                self._lease, self._writing = None, False
        self._due = self._next_pass(report, allowed)
        self._workshop.kept.used(self)
        published, self._published = self._published, {}
        watch.passed(report.snapshot_after, published)
        self._committed = self._committed or bool(published)

    def _next_pass(self, report: PassReport, allowed: int) -> float | None:
        """When a pass is needed even if nothing changes."""
        if not report.complete:
            return time.monotonic()
        if report.rewritten_append_bytes or not allowed:  # there may be more than could be afforded
            return time.monotonic() + max(self._workshop.poll_interval, self._rewrites.seconds_to_grant())
        times = [moment for moment in (self._known.due, self._known.retry_at) if moment is not None]
        return time.monotonic() + max(0.0, min(times) / 1000 - time.time()) if times else None

    def _on_event(self, name: str, fields: Mapping[str, Any]) -> None:
        self._alive()
        if name == "pass.committed":
            self._progressed = True
            self._published = dict([*self._published.items(), (fields["snapshot"], fields["uuid"])][-MOST_REMEMBERED:])
        elif name == "pass.finished":
            self._rewrites.charge(fields.get("rewritten_append_bytes") or 0)

    def _expire(self, table: Table) -> None:
        """Deletes what retention gives up. Maintenance does not depend on it, so its failures stay here."""
        self._expired, self._committed = time.monotonic(), False
        try:
            options = table.store.options()
            if not options.expire:
                return
            self._writing = True
            expiry = expire(table.store, progress=lambda count: self._alive(), kept=self._snapshots)
        except Exception as error:
            if str(error) != self._expiry_told:
                self._expiry_told = str(error)
                message, code = told(error)
                log.warning("expire.failed", table=self.name, error=message, exit_code=code)
            return
        finally:
            self._writing = False
        self._expiry_told = None
        if 0 < options.snapshot_expire_limit <= len(expiry.snapshots):
            self._expired = -math.inf  # there may be more: writers can commit faster than one limit at a time goes
        if expiry.snapshots:
            log.info(
                "expire.finished",
                table=self.name,
                snapshots=len(expiry.snapshots),
                deleted=len(expiry.deleted or ()),
                bytes=expiry.bytes,
                earliest=expiry.earliest,
            )

    def _tell(self, sighting: Sighting) -> None:
        for lost in sighting.lost:
            what = "a commit of this service was overwritten; its work is done again" if lost.ours else "a published snapshot was overwritten"
            log.error(
                "snapshot.replaced",
                table=self.name,
                snapshot=lost.snapshot_id,
                ours=lost.ours,
                lost_uuid=lost.uuid,
                uuid=lost.instead.uuid,
                by=lost.instead.commit_user,
                error=f"{what}; nothing is built on the lost snapshot",
                do=AGAINST_REPLACEMENT,
            )
        if sighting.change is not Change.COMMITTED:
            self._snapshots.clear()
        log.info(
            "table.changed",
            table=self.name,
            change=str(sighting.change),
            snapshot=None if sighting.latest is None else sighting.latest.id,
            before=None if sighting.before is None else sighting.before.id,
        )

    def _failed(self, error: Exception) -> float | None:
        if self._workshop.stop.is_set() and isinstance(error, MaintainerError):
            log.warning("table.failed", table=self.name, error=str(error), exit_code=error.exit_code, retry_in=None)
            return None
        if isinstance(error, CorruptTable) and self._is_gone():
            error = NotATable(f"{self.name}: there is no table any more")
        if isinstance(error, NotATable):
            self._opened = self._watch = None
            self._known = Known()
            if not self.table.named:
                raise Gone
        wait = self._backoff.failed()
        message, code = told(error)
        if code == CorruptTable.exit_code and self._progressed:
            wait = min(wait, DAMAGED_WAIT)
        state = (code, message, self._schemas() if code in _ONCE else None)
        if code not in _ONCE or state != self._told:
            skipped = code == Unsupported.exit_code and not self.table.named
            tell = log.warning if skipped else log.error
            tell(
                "table.skipped" if skipped else "table.failed",
                table=self.name,
                error=message,
                exit_code=code,
                failures=self._backoff.failures,
                retry_in=round(wait, 1),
            )
            log.debug("table.failure", table=self.name, exc_info=error)
        self._told = state
        return wait

    def _recovered(self) -> None:
        self._told = None
        failures = self._backoff.succeeded()
        if failures:
            log.info("table.recovered", table=self.name, failures=failures)

    def _schemas(self) -> object:
        try:
            return None if self._opened is None else self._opened.store.schema_ids()
        except MaintainerError:
            return None

    def _is_gone(self) -> bool:
        return self._opened is not None and self._schemas() == ()

    def _alive(self) -> None:
        self._sign = time.monotonic()
