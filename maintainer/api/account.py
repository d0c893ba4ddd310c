"""What a pass has done so far, and how far it is: plain accounting, nothing is read or written here (DESIGN §5 `passes`)."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from maintainer.commit.committer import CommitOutcome
from maintainer.maintain.plan import append_bytes
from maintainer.model.files import BucketKey
from maintainer.model.report import Entry
from maintainer.model.work import Group, IndexFailure, Result, Work, WorkKind

MOST_REASONS = 3


@dataclass(frozen=True)
class GroupFailure(Entry):
    """A group that could not be built."""

    partition: Mapping[str, Any]
    bucket: int
    column: str
    level: int
    reason: str


@dataclass(frozen=True)
class PassReport(Entry):
    """What a pass did to one table; the counts are of files, groups and bytes over all its rounds, of what was committed."""

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
    failures: tuple[GroupFailure, ...] = ()
    """Groups that could not be built, in this pass or an earlier one that nothing has changed since; their levels stay uncovered."""
    rewritten_append_bytes: int = 0
    """Of APPEND files above level 0 that were rewritten where they were, committed or not: what `rewrite_append_bytes` limits."""
    complete: bool = True
    """False: there may be more to do at once, for the pass was told to stop, lost to others, failed, or did not keep up with a writer."""


class Account:
    """Adds up the groups of results that a pass commits."""

    def __init__(self, table: str) -> None:
        self.table = table
        self.started = time.monotonic()
        self.snapshot_before: int | None = None
        self.snapshot_after: int | None = None
        self.settled: frozenset[BucketKey] = frozenset()
        """Buckets that had their turn: what is asked for once is not planned for them again."""
        self.failures: dict[Group, IndexFailure] = {}
        """Groups that could not be built in this pass."""
        self.told_failures: tuple[GroupFailure, ...] = ()
        """What the report says of those that are missing yet, and of earlier ones."""
        self.owed: frozenset[BucketKey] = frozenset()
        """Buckets that were compacted, and whose groups may be waiting for a commit of their own."""
        self.rewritten_append_bytes = 0
        self.steps = 0
        """Goes up whenever the table or what is known of it changed, so that planning again may find something else."""
        self._counts: Counter[str] = Counter()
        self._reasons: dict[str, set[BucketKey]] = {}

    def tried(self, work: Work) -> None:
        """A work item was executed, with whatever success."""
        self.rewritten_append_bytes += append_bytes(work)

    def committed(self, results: Sequence[Result], outcome: CommitOutcome) -> None:
        """A group of results was committed, except for the conflicts of the outcome."""
        if outcome.snapshots:
            self.snapshot_after = outcome.snapshots[-1].id
            self.steps += 1
        for result in results:
            key = result.message.bucket_key
            if key in outcome.conflicts:
                continue
            self.settled |= {key}
            self.owed = self.owed - {key} if result.kind is WorkKind.INDEX else self.owed | {key}
            self._counts.update(result.counts)
            self._counts["groups_built"] -= len(outcome.discarded.get(key, ()))
            if not result.message.is_empty:
                self._reasons.setdefault(result.reason, set()).add(key)
            failed = {Group(key, failure.column, failure.level): failure for failure in result.failures}
            self.steps += any(self.failures.get(group) != one for group, one in failed.items())
            self.failures |= failed

    def reasons(self) -> str:
        """Why there was something to do."""
        return _few(reason if len(keys) == 1 else f"{reason} (in each of {len(keys)} buckets)" for reason, keys in self._reasons.items())

    def report(self, outcome: str, reason: str | None, complete: bool) -> PassReport:
        return PassReport(
            table=self.table,
            snapshot_before=self.snapshot_before,
            snapshot_after=self.snapshot_before if self.snapshot_after is None else self.snapshot_after,
            outcome=outcome,
            reason=reason,
            input_files=self._counts["input_files"],
            output_files=self._counts["output_files"],
            groups_built=self._counts["groups_built"],
            groups_dropped=self._counts["groups_dropped"],
            bytes_read=self._counts["bytes_read"],
            bytes_written=self._counts["bytes_written"],
            seconds=round(time.monotonic() - self.started, 3),
            failures=self.told_failures,
            rewritten_append_bytes=self.rewritten_append_bytes,
            complete=complete,
        )


class Advance:
    """How far a pass is, by the estimates of its plans. Work that turns out larger than estimated counts as what was estimated.

    May be told from several threads.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._started: float | None = None
        self._buckets = self._bytes = self._buckets_done = self._bytes_done = 0
        self._under_way: dict[BucketKey, int] = {}

    def planned(self, work: Iterable[Work]) -> None:
        """This is to be done, on top of all that was planned before."""
        with self._lock:
            self._started = self._started or time.monotonic()
            for item in work:
                self._buckets += 1
                self._bytes += item.estimated_bytes

    def read(self, work: Work, size: int) -> None:
        with self._lock:
            self._under_way[work.bucket.key] = min(self._under_way.get(work.bucket.key, 0) + size, work.estimated_bytes)

    def ended(self, work: Work) -> None:
        with self._lock:
            self._under_way.pop(work.bucket.key, None)
            self._buckets_done += 1
            self._bytes_done += work.estimated_bytes

    def numbers(self) -> Mapping[str, int | float | None]:
        """As the event `pass.progress` has them; `seconds_left` is None while nothing can be said."""
        with self._lock:
            done = self._bytes_done + sum(self._under_way.values())
            left = None
            if done and self._started is not None:
                left = round((time.monotonic() - self._started) * (self._bytes - done) / done, 1)
            return {
                "buckets_done": self._buckets_done,
                "buckets": self._buckets,
                "bytes_done": done,
                "bytes": self._bytes,
                "seconds_left": left,
            }


def _few(reasons: Iterable[str]) -> str:
    """The first of the reasons, and how many more there are."""
    all_of_them = list(reasons)
    more = len(all_of_them) - MOST_REASONS
    return "; ".join(all_of_them[:MOST_REASONS]) + (f"; and {more} more" if more > 0 else "")
