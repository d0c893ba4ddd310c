"""The daemon: all tables of a configuration, in one process, until it is told to stop (DESIGN §4 `service`).

Every table has a job of the scheduler, which takes the table's next turn (`maintainer.service.follow`), and every warehouse one that looks for
tables which came or went. Jobs of tables that share a store share its threads and no others, and a turn that hangs gives its memory back: so a
store that fails, or never answers, costs its own tables only. Turns begin spread over the poll interval, and never two of one table at once.

The first SIGTERM or SIGINT ends it in good order: no new turns, running passes commit what is finished and drop the rest. The second ends it on
the spot, which leaves no more behind than a crash does (spec 03 §17).
"""

from __future__ import annotations

import logging
import os
import random
import threading
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import structlog

from maintainer import __version__
from maintainer.api.maintenance import default_memory
from maintainer.data.key_cache import KeyCache
from maintainer.data.spill import Spill
from maintainer.errors import MaintainerError, StorageError, told
from maintainer.service.configuration import CacheSettings, Configuration, Warehouse, size_text
from maintainer.service.discovery import ConfiguredTable, named_tables, tables_in, why_none
from maintainer.service.follow import Backoff, Follower, Gone, Workshop
from maintainer.service.lease import MemoryBudget
from maintainer.service.masking import shown_uri
from maintainer.service.signals import Signals
from maintainer.service.watch import RESOLVE_EVERY

log = structlog.get_logger(__name__)

STORE_THREADS = 16
"""Turns of tables of one store at once; most of them wait for its answers or for memory."""
STOP_SECONDS = 25.0
"""How long running passes may take to end: Kubernetes kills after 30 seconds."""
LOOK_SECONDS = 2.0
"""How long turns may take to end that only read: nothing is lost with them."""
STALL_SECONDS = 600.0
"""A turn that gives no sign of life for so long hangs in its store."""
CLOCK_SECONDS = 2.0
"""By so much the clock must have been set back to matter."""
MOST_SPREAD = 60.0
"""Seconds over which the first turns are spread, at most."""
JITTER = 0.1
"""Of the poll interval, so that looks do not fall into step."""


class Daemon:
    """Maintains the tables of a configuration."""

    def __init__(self, configuration: Configuration) -> None:
        from apscheduler.schedulers.background import BackgroundScheduler

        self._configuration = configuration
        self._stop = threading.Event()
        self._lock = threading.RLock()
        """A table and its job come and go together."""
        self._followers: dict[str, Follower] = {}
        self._lanes: set[str] = set()
        """Names of what has threads of its own."""
        self._memory = configuration.memory or default_memory()
        self._workshop = Workshop(
            poll_interval=configuration.poll_interval,
            budget=MemoryBudget(self._memory),
            spill=Spill(configuration.spill.directory, configuration.spill.limit),
            cache=_cache(configuration.cache),
            stop=self._stop,
            tables=lambda: sum(not follower.is_failing for follower in self._all()),
        )
        defaults = {"max_instances": 1, "coalesce": True, "misfire_grace_time": None}
        self._scheduler = BackgroundScheduler(timezone=UTC, job_defaults=defaults)
        self._listings = [
            _Listing(warehouse, f"warehouse {number}", configuration.poll_interval) for number, warehouse in enumerate(configuration.warehouses)
        ]
        self._stalled: set[Follower] = set()
        self._clock_offset = _clock_offset()

    def run(self, signals: Signals) -> int:
        """Works until a signal comes; the exit code. Turns that did not end in time are left behind (`is_abandoned`)."""
        self._start()
        while (reason := signals.wait(1.0)) is None:
            self._look_for_stalls()
            self._follow_the_clock()
        self._end(reason)
        return 0

    @property
    def is_abandoned(self) -> bool:
        """Whether turns or listings still run that nobody waits for any more."""
        return any(follower.is_running for follower in self._all()) or any(listing.is_running for listing in self._listings)

    # start and end

    def _start(self) -> None:
        configuration = self._configuration
        log.info(
            "service.started",
            version=__version__,
            pid=os.getpid(),
            config=configuration.path,
            tables=len(configuration.tables),
            warehouses=[shown_uri(warehouse.uri) for warehouse in configuration.warehouses],
            poll_interval=configuration.poll_interval,
            memory=size_text(self._memory),
            passes_at_once=self._workshop.budget.most,
            spill=self._workshop.spill.directory,
            cache=None if self._workshop.cache is None else str(self._workshop.cache.directory),
        )
        self._scheduler.start()
        for table in named_tables(configuration):
            self._follow(table)
        for listing in self._listings:
            self._add_job(listing.job, self._list, [listing], 1, self._configuration.poll_interval * RESOLVE_EVERY, 0.0)

    def _end(self, reason: str) -> None:
        running = self._running()
        log.info("service.stopping", signal=reason, running=running, at_most=STOP_SECONDS)
        self._stop.set()
        self._workshop.budget.wake()
        self._scheduler.shutdown(wait=False)
        started = time.monotonic()
        while self.is_abandoned:
            patience = STOP_SECONDS if any(follower.is_writing for follower in self._all()) else LOOK_SECONDS
            if time.monotonic() - started >= patience:
                break
            time.sleep(0.02)
        left = self._running()
        log.log(logging.WARNING if left else logging.INFO, "service.stopped", abandoned=left)

    def _running(self) -> list[str]:
        """Tables that have a turn, and warehouses that are being listed."""
        tables = [follower.name for follower in self._all() if follower.is_running]
        return tables + [listing.warehouse.uri for listing in self._listings if listing.is_running]

    def _look_for_stalls(self) -> None:
        silent = {follower for follower in self._all() if follower.silent_for() > STALL_SECONDS}
        for follower in silent - self._stalled:
            log.error(
                "table.stalled",
                table=follower.name,
                seconds=round(follower.silent_for()),
                error="the store has not answered for a long time; others get the memory of this pass",
            )
            follower.surrender()
        self._stalled = silent

    def _follow_the_clock(self) -> None:
        """The scheduler goes by the time of day: when that is set back, nothing would be due for as long."""
        offset = _clock_offset()
        if offset < self._clock_offset - CLOCK_SECONDS:
            log.warning("clock.set-back", seconds=round(self._clock_offset - offset))
            for job in self._scheduler.get_jobs():
                self._postpone(job.id, random.uniform(0, min(self._configuration.poll_interval, MOST_SPREAD)))
        self._clock_offset = offset

    # tables

    def _all(self) -> list[Follower]:
        with self._lock:
            return list(self._followers.values())

    def _follow(self, table: ConfiguredTable) -> None:
        interval = self._configuration.poll_interval
        with self._lock:
            if table.key in self._followers:
                return
            follower = self._followers[table.key] = Follower(table, self._workshop)
            log.info("table.found", table=follower.name, named=table.named)
            self._add_job(table.store, self._turn, [follower], STORE_THREADS, interval, min(interval, MOST_SPREAD), table.key)

    def _turn(self, follower: Follower) -> None:
        try:
            wait = follower.turn()
        except Gone:
            self._forget(follower)
            return
        if wait is not None:
            self._postpone(follower.table.key, wait)

    def _forget(self, follower: Follower) -> None:
        from apscheduler.jobstores.base import JobLookupError

        with self._lock:
            if self._followers.get(follower.table.key) is not follower:
                return
            del self._followers[follower.table.key]
            with suppress(JobLookupError):
                self._scheduler.remove_job(follower.table.key)
        self._workshop.kept.gone(follower)
        log.info("table.forgotten", table=follower.name)

    # warehouses

    def _list(self, listing: _Listing) -> None:
        listing.is_running = True
        try:
            if not self._stop.is_set():
                self._take_what_is_listed(listing)
        finally:
            listing.is_running = False

    def _take_what_is_listed(self, listing: _Listing) -> None:
        warehouse = listing.warehouse
        with self._lock:
            known = {key: follower for key, follower in self._followers.items() if not follower.table.named}
        unlisted: list[MaintainerError] = []
        try:
            found = tables_in(warehouse, frozenset(known), unlisted)
        except Exception as error:
            self._tell_of_failed_listing(listing, error)
            return
        if unlisted:
            self._tell_of_failed_listing(listing, unlisted[0])
        else:
            failures = listing.backoff.succeeded()
            if failures:
                log.info("warehouse.recovered", warehouse=warehouse.uri, failures=failures)
        keys = {table.key for table in found}
        if unlisted:  # nothing is gone only because it could not be looked for
            keys |= listing.keys or set()
        if listing.keys is None or listing.keys != keys:
            if keys:
                log.info("warehouse.listed", warehouse=warehouse.uri, tables=len(keys))
            else:
                log.warning("warehouse.listed", warehouse=warehouse.uri, tables=0, reason=why_none(warehouse))
        gone, listing.keys = (listing.keys or set()) - keys, keys
        for key in gone & set(known):
            self._forget(known[key])
        for table in found:
            self._follow(table)

    def _tell_of_failed_listing(self, listing: _Listing, error: Exception) -> None:
        wait = listing.backoff.failed()
        message, code = told(error)
        fields = {"failures": listing.backoff.failures, "retry_in": round(wait, 1)}
        log.error("warehouse.failed", warehouse=listing.warehouse.uri, error=message, exit_code=code, **fields)
        self._postpone(listing.job, wait)

    # jobs

    def _add_job(
        self, lane: str, call: Any, arguments: list[Any], threads: int, interval: float, spread: float, name: str | None = None
    ) -> None:
        """A job on the threads of its lane, the first time within `spread` seconds."""
        from apscheduler.executors.pool import ThreadPoolExecutor
        from apscheduler.triggers.interval import IntervalTrigger

        with self._lock:
            if lane not in self._lanes:
                self._lanes.add(lane)
                self._scheduler.add_executor(ThreadPoolExecutor(threads), alias=lane)
        self._scheduler.add_job(
            call,
            IntervalTrigger(seconds=interval, jitter=interval * JITTER, timezone=UTC),
            args=arguments,
            id=name or lane,
            executor=lane,
            next_run_time=datetime.now(UTC) + timedelta(seconds=random.uniform(0, spread)),
        )

    def _postpone(self, job: str, seconds: float) -> None:
        from apscheduler.jobstores.base import JobLookupError

        with suppress(JobLookupError):  # forgotten meanwhile
            self._scheduler.modify_job(job, next_run_time=datetime.now(UTC) + timedelta(seconds=seconds))


def _cache(settings: CacheSettings) -> KeyCache | None:
    """Where keys are kept. That there is no place for them by default is no reason not to start."""
    if not settings.limit:
        return None
    try:
        return KeyCache(settings.directory or KeyCache.default_directory(), settings.limit)
    except StorageError as error:
        if settings.directory is not None:
            raise
        log.warning("key-cache.off", error=str(error))
        return None


def _clock_offset() -> float:
    """How far the time of day is before the time that only goes on."""
    return time.time() - time.monotonic()


class _Listing:
    """What is known of a warehouse."""

    def __init__(self, warehouse: Warehouse, job: str, poll_interval: float) -> None:
        self.warehouse = warehouse
        self.job = job
        self.backoff = Backoff(poll_interval)
        self.keys: set[str] | None = None
        self.is_running = False
