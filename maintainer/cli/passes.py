"""Passes over tables, one after the other, for `once`, `compact` and `index`: progress, one document, one exit code (DESIGN §5)."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from maintainer.cli.invocation import Invocation, complain, explained
from maintainer.errors import CommitConflict, NotATable, Unsupported

if TYPE_CHECKING:
    from maintainer.api.table import Table

SEVERITY = (3, 5, 7, 4, 1)
"""Exit codes of several tables: the first of these that occurred."""
TERMINATED = 128 + signal.SIGTERM
"""Exit code after SIGTERM, as shells have it."""

Entry = Mapping[str, Any]
Tell = Callable[[str, str, str, int], None]
"""Takes the event of a failure, the table or warehouse it is about, what is wrong, and the exit code of that."""


def say_failure(event: str, place: str, message: str, code: int) -> None:
    """A failure as one line on stderr."""
    complain(f"snapshots were not expired: {message}" if event == "expire.failed" else message)


def log_failure(event: str, place: str, message: str, code: int) -> None:
    """A failure as the daemon logs it, so that a log in JSON is JSON throughout."""
    import structlog

    log = structlog.get_logger(__name__)
    subject = {"warehouse" if event == "warehouse.failed" else "table": place}
    (log.warning if event == "expire.failed" else log.error)(event, **subject, error=message, exit_code=code)


@dataclass(frozen=True)
class Target:
    """A table that gets a pass."""

    name: str
    open: Callable[[], Table]
    discovered: bool = False
    """Nobody named it: that it cannot be maintained is no failure."""
    expires: bool = False
    """Its snapshots are expired after the pass, as its options say."""


def run_passes(
    call: Invocation, targets: Iterable[Target], failed: Iterable[tuple[str, Exception]] = (), tell: Tell = say_failure, **request: Any
) -> int:
    """A pass over each table; one that fails does not keep the others from theirs. `failed`: warehouses where tables could not be looked for.

    SIGTERM ends the pass that runs, with what it has finished, and no other begins.
    """
    from maintainer.model.report import VERSION

    targets = list(targets)
    entries: list[Entry] = []
    codes: list[int] = []
    with _stop_at_sigterm() as stop:
        for target in targets:
            if stop.is_set():
                break
            told: dict[str, Entry] = {}
            try:
                entry, code = _run(call, target, stop, told, tell, request)
            except Exception as error:
                if call.debug and len(targets) == 1:
                    raise
                entry, code = _failure("table.failed", target.name, error, told, tell, target.discovered)
            entries.append(entry)
            codes.append(code)
    for place, reason in failed:
        entry, code = _failure("warehouse.failed", place, reason, {}, tell)
        entries.append(entry)
        codes.append(code)
    call.output.document("passes", {"version": VERSION, "passes": entries})
    if stop.is_set():
        complain("terminated before everything was done")
        return TERMINATED
    return next((code for code in (*SEVERITY, *codes) if code and code in codes), 0)


def _run(
    call: Invocation, target: Target, stop: threading.Event, told: dict[str, Entry], tell: Tell, request: Mapping[str, Any]
) -> tuple[Entry, int]:
    """One table: its entry in the document, and its exit code. `told` gets the last event of each name, also of a pass that fails."""
    with call.output.meter(f"maintaining {target.name}") as meter:

        def on_event(name: str, fields: Mapping[str, Any]) -> None:
            told[name] = fields
            if name == "pass.progress":
                meter(fields["bytes_done"], fields["bytes"], fields["seconds_left"])

        table = target.open()
        report = table.maintain(on_event=on_event, stop=stop, **request)
    code = CommitConflict.exit_code if report.outcome == "conflict" else 0
    expired = None
    if target.expires and not stop.is_set() and table.store.options().expire:
        with call.output.progress(f"expiring snapshots of {target.name}"):
            expired, failure = _expire(table, tell)
        code = code or failure
    return {**report.to_dict(), "expired": expired}, code


def _expire(table: Table, tell: Tell) -> tuple[Entry, int]:
    """Expires all that the table's options let go. What was maintained stays so when this fails."""
    snapshots = files = size = code = 0
    problem = None
    try:
        while (expiry := table.expire()).snapshots:  # each deletes at most `snapshot.expire.limit` of them
            snapshots += len(expiry.snapshots)
            files += len(expiry.deleted or ())
            size += expiry.bytes
    except Exception as error:
        problem, code = explained(error, table.name)
        tell("expire.failed", table.name, problem, code)
        code = 0 if isinstance(error, Unsupported) else code
    return {"snapshots": snapshots, "files": files, "bytes": size, "error": problem}, code


def _failure(event: str, name: str, error: Exception, told: Mapping[str, Entry], tell: Tell, discovered: bool = False) -> tuple[Entry, int]:
    """What an error comes to. That a discovered table is none for us is seen before anything is planned, and is no failure."""
    from maintainer.api.account import PassReport

    message, code = explained(error, name)
    if discovered and isinstance(error, Unsupported | NotATable) and "pass.planned" not in told:
        return {**PassReport(name, None, None, "nothing", message).to_dict(), "expired": None}, 0
    tell(event, name, message, code)
    entry = told.get("pass.finished") or PassReport(name, None, None, "failed", complete=False).to_dict()
    return {**entry, "reason": message, "expired": None}, code


@contextmanager
def _stop_at_sigterm() -> Iterator[threading.Event]:
    """An event that the first SIGTERM sets; the second one ends the process."""
    stop = threading.Event()

    def handle(number: int, frame: object) -> None:
        signal.signal(signal.SIGTERM, before)
        stop.set()

    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = signal.signal(signal.SIGTERM, handle)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGTERM, before)
