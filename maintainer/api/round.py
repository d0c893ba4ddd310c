"""One round of a pass: buckets are worked on side by side, and what is finished is committed in groups, while work goes on (DESIGN §3).

    plan.work ──▶ admission ──▶ threads: execute a bucket each ──▶ finished ──▶ one commit of the group ──▶ account
                  by memory                                         └ when the first of them has waited for the commit interval, and at the end

Invariants:
* A result that waits is metadata and nothing else; its files are written.
* What goes wrong in a bucket concerns this bucket: others are worked on and committed, and the first error is raised at the end. Where the
  store fails, or a commit, no more work is begun.
* Files of results that are not committed are deleted, unless they may have been published.
* A bucket that somebody else has compacted meanwhile is a conflict, whether that is noticed before it is worked on, by an input that is gone,
  or when it is committed. Conflicts are the caller's to plan again, and so are groups that are left out of a commit because they are stale.
"""

from __future__ import annotations

import os
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Any

from maintainer.api.account import Account, Advance
from maintainer.api.admission import Admission, Admitted
from maintainer.commit.committer import CommitOutcome, Committer
from maintainer.data.key_cache import KeyCache
from maintainer.data.spill import Spill
from maintainer.errors import CommitStateUnknown, MaintainerError, MissingFile, StorageError
from maintainer.index import groups
from maintainer.index.definition import definitions
from maintainer.index.definition_changes import why_dropped
from maintainer.maintain.execute import Progress, execute
from maintainer.maintain.reclaim.abort import abort, abort_all, abort_payloads
from maintainer.model.files import BucketKey
from maintainer.model.schema import TableSchema
from maintainer.model.work import PickMemory, Plan, Result, Work, WorkKind
from maintainer.storage.layout import Layout
from maintainer.table.state import TableState, load_latest
from maintainer.table.store import TableStore

TICK = 0.5
"""Seconds that go by at most before somebody is told how far it is."""

URGENCY = (WorkKind.COMPACT, WorkKind.UPGRADE, WorkKind.INDEX, WorkKind.REWRITE_APPEND)
"""Rows become visible first, then they are found by indexes, and what can be seen already comes last."""


@dataclass(frozen=True)
class Terms:
    """What holds for all rounds of a pass."""

    memory: int
    commit_interval: float | None
    """Seconds that a finished bucket waits for others; None: as the table's options say."""
    spill: Spill | None
    cache: KeyCache | None
    stop: threading.Event
    """When it is set, work under way is abandoned, and what is finished is committed."""
    progress: Progress | None
    event: Callable[..., None]
    """Takes the name and the fields of what happens; with `urgent` the log has it as a warning."""
    tick: Callable[[], None]
    """Called at least each `TICK` seconds unless a commit takes longer."""


class Round:
    """The work of one plan under way."""

    def __init__(
        self,
        store: TableStore,
        schema: TableSchema,
        plan: Plan,
        committer: Committer,
        account: Account,
        advance: Advance,
        terms: Terms,
        memories: dict[BucketKey, PickMemory],
    ) -> None:
        """`memories` gets what picking remembers of the buckets that were committed."""
        self.store = store
        self.schema = schema
        self.plan = plan
        self.committer = committer
        self.account = account
        self.advance = advance
        self.terms = terms
        self.memories = memories
        self._interval = store.options(schema).commit_interval if terms.commit_interval is None else terms.commit_interval
        self._definitions = definitions(schema)
        self._layout = Layout.of(schema)  # that of the store is another one when another table was made in this place
        self._latest: TableState | None = None
        """The table as it was last seen; None: as planned."""
        self._ended: SimpleQueue[tuple[Work, Result | BaseException]] = SimpleQueue()
        self._finished: list[Result] = []
        """Results that wait to be committed."""
        self._due = 0.0
        self._conflicts: dict[BucketKey, str] = {}
        self._error: Exception | None = None
        self._given_up = threading.Event()
        self._pool: ThreadPoolExecutor
        self._admission: Admission

    def run(self) -> Mapping[BucketKey, str]:
        """Do all work and commit it; the buckets that have to be planned again, each with the reason. Raises the first error at its end."""
        threads = max(1, min(os.cpu_count() or 1, len(self.plan.work)))
        ordered = sorted(self.plan.work, key=lambda item: URGENCY.index(item.kind))
        try:
            with ThreadPoolExecutor(threads, thread_name_prefix="bucket") as pool:
                try:
                    self._pool, self._admission = pool, Admission(ordered, self.terms.memory, threads)
                    self._begin(self._admission.next())
                    self._collect(len(self.plan.work))
                except BaseException:
                    self._given_up.set()
                    pool.shutdown(wait=False, cancel_futures=True)
                    raise
        finally:
            self._delete_what_nobody_commits()
        if self._error is not None:
            raise self._error
        return self._conflicts

    # in the threads of the pool

    def _begin(self, admitted: Sequence[Admitted]) -> None:
        for work, memory in admitted:
            self._pool.submit(self._attempt, work, memory)

    def _attempt(self, work: Work, memory: int) -> None:
        """Work on one bucket, say how it ended, and let others begin."""
        ended: Result | BaseException
        try:
            ended = self._execute(work, memory)
        except BaseException as error:
            _forget_data(error)
            ended = error
        try:
            self._begin(self._admission.ended(work))
        except RuntimeError:
            if not self._given_up.is_set():  # else the pool takes nothing any more
                raise
        finally:
            self._ended.put((work, ended))

    def _execute(self, work: Work, memory: int) -> Result:
        self._watch(work, 0)
        if self._latest is not None and _is_outdated(work, self._latest):
            raise _Outdated("somebody else has compacted the bucket meanwhile")
        fields = {"kind": str(work.kind), "reason": work.reason, "bytes": work.estimated_bytes, "memory": memory}
        self.terms.event("work.started", **self._place(work.bucket.key), **fields)
        return execute(self.plan, work, self.store, self.schema, memory, self._watch, self.terms.spill, self.terms.cache)

    def _watch(self, work: Work, size: int) -> None:
        if self._given_up.is_set() or self.terms.stop.is_set():
            raise _Abandoned
        self.advance.read(work, size)
        if self.terms.progress is not None:
            self.terms.progress(work, size)

    # in the thread of the caller

    def _collect(self, count: int) -> None:
        """Take what the threads end with, so many times, and commit it in time."""
        while count:
            ended = self._next(self._patience())
            while ended is not None:
                self._take(*ended)
                count -= 1
                ended = self._next(0)
            if self._finished and monotonic() >= self._due:
                self._commit()
            self.terms.tick()
        if self._finished:
            self._commit()

    def _next(self, seconds: float) -> tuple[Work, Result | BaseException] | None:
        try:
            return self._ended.get(timeout=seconds) if seconds > 0 else self._ended.get_nowait()
        except Empty:
            return None

    def _patience(self) -> float:
        """How long to wait for the next end of work."""
        return min(TICK, self._due - monotonic()) if self._finished else TICK

    def _take(self, work: Work, ended: Result | BaseException) -> None:
        self.advance.ended(work)
        if isinstance(ended, _Abandoned):
            return
        if isinstance(ended, _Outdated):
            self._conflict(work.bucket.key, str(ended))
            return
        self.account.tried(work)
        if isinstance(ended, Result):
            if any(not failure.about_values for failure in ended.failures) and self._is_overtaken(work):
                self._conflict(work.bucket.key, f"{ended.failures[0].reason}, and somebody else has compacted the bucket meanwhile")
                abort(self.store, ended, frozenset())
                return
            if not self._finished:
                self._due = monotonic() + self._interval
            self._finished.append(ended)
        elif isinstance(ended, MissingFile) and self._is_outdated_now(work):
            self._conflict(work.bucket.key, str(ended))
        elif isinstance(ended, Exception):
            self._fail(work, ended)
        else:
            raise ended

    def _fail(self, work: Work, error: Exception) -> None:
        """The first error is raised in the end; of the others, this is all that is ever said."""
        fields = {"kind": str(work.kind), "error": str(error) or type(error).__name__}
        self.terms.event("work.failed", urgent=self._error is not None, **self._place(work.bucket.key), **fields)
        self._error = self._error or error
        if isinstance(error, StorageError):
            self._given_up.set()

    def _commit(self) -> None:
        """Publish what waits and still fits; the files of everything else are deleted, unless it may have been published."""
        group, self._finished = self._finished, []
        outcome = self._outcome(group)
        abandoned = [result for result in group if result.message.bucket_key in outcome.abandoned]
        abort_all([self.store], abandoned, group[0].snapshot_id)
        abort_payloads([self.store], group, outcome.discarded, group[0].snapshot_id)
        self.account.committed(group, outcome)
        self._latest = self.committer.known_state or self._latest
        for snapshot in outcome.snapshots:
            self.terms.event("pass.committed", snapshot=snapshot.id, uuid=snapshot.uuid, kind=str(snapshot.commit_kind))
        for key, reason in outcome.conflicts.items():
            self._conflict(key, reason)
        for key, reasons in outcome.discarded.items():
            self._conflict(key, "; ".join(reasons.values()))
        for result in group:
            if result.message.bucket_key not in outcome.conflicts:
                if result.memory is not None and result.memory != PickMemory():
                    self.memories[result.message.bucket_key] = result.memory
                self._tell_dropped(result)
                for failure in result.failures:
                    fields = {"column": failure.column, "data_level": failure.level, "reason": failure.reason}  # `level` is that of the log
                    self.terms.event("pass.index-failed", urgent=True, **self._place(result.message.bucket_key), **fields)

    def _tell_dropped(self, result: Result) -> None:
        """Payloads that went because no definition is theirs any more."""
        message = result.message
        gone = (*message.deleted_index_files, *message.compact_deleted_index_files)
        for payload in groups.of_no_definition(gone, self._definitions):
            column, reason = why_dropped(payload, self.schema)
            fields = {"column": column, "family": payload.index_type, "data_level": groups.level_of(payload), "reason": reason}
            self.terms.event("payload.dropped", **self._place(message.bucket_key), **fields, file=payload.file_name)

    def _outcome(self, group: Sequence[Result]) -> CommitOutcome:
        try:
            return self.committer.commit_results(group)
        except CommitStateUnknown:
            raise
        except MaintainerError as error:
            abort_all([self.store], group, group[0].snapshot_id)
            keys = {result.message.bucket_key for result in group}
            of_group = [work for work in self.plan.work if work.bucket.key in keys]
            if isinstance(error, MissingFile) and any(map(self._is_outdated_now, of_group)):
                return CommitOutcome(conflicts=dict.fromkeys(keys, str(error)))
            raise

    def _conflict(self, key: BucketKey, reason: str) -> None:
        self._conflicts[key] = reason
        self.terms.event("pass.conflict", **self._place(key), reason=reason)

    def _is_outdated_now(self, work: Work) -> bool:
        self._latest = load_latest(self.store, self._latest or self.committer.known_state)
        return self._latest is None or _is_outdated(work, self._latest)

    def _is_overtaken(self, work: Work) -> bool:
        """The same for finished work; where that cannot be learned, committing it will tell."""
        try:
            return self._is_outdated_now(work)
        except MaintainerError:
            return False

    def _delete_what_nobody_commits(self) -> None:
        """After an end by an exception: results that no commit was tried with."""
        while (ended := self._next(0)) is not None:
            if isinstance(ended[1], Result):
                self._finished.append(ended[1])
        for result in self._finished:
            abort(self.store, result, frozenset())

    def _place(self, key: BucketKey) -> dict[str, Any]:
        return {"partition": self._layout.partition_directory(key.partition), "bucket": key.bucket}


class _Abandoned(Exception):
    """The pass ends before this bucket does."""


class _Outdated(Exception):
    """The work makes no sense any more."""


def _is_outdated(work: Work, state: TableState) -> bool:
    """Whether files that the work reads are not the table's any more: somebody else compacted them, and they may have expired."""
    bucket = state.bucket(work.bucket.key)
    return bucket.deletion_file != work.bucket.deletion_file or not set(work.bucket.files) <= set(bucket.files)


def _forget_data(error: BaseException | None) -> None:
    """An error is kept until the end of the round, the rows that it happened with are not."""
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__
