"""The committer: changes of buckets to snapshots (spec 03 §6–§8, §12, 06 §13; Java `FileStoreCommitImpl`).

One attempt reads the latest snapshot, drops the changes that no longer fit it, writes manifests beside everybody's, and publishes
`snapshot-<n+1>` if nobody else has. A lost race is attempted again; a conflict never is.

Invariants:
* Data files and index files are never deleted here: who made them deletes them when he is told that they were not committed.
* Manifests of an attempt are deleted only when the attempt certainly was not published.
* While the outcome of a publish is unknown nothing else is attempted, for the work might be published twice.
* Nothing is published on top of a snapshot that a writer who checks and then renames or copies (Java and pypaimon, except on HDFS) has
  replaced: the one that an attempt was prepared on is compared once more, as the last thing before publishing. In the instant that is left
  ours is not lost, but the snapshot of the other writer is.
"""

from __future__ import annotations

import functools
import random
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import structlog

from maintainer.commit import changes as change_of
from maintainer.commit.attempt import Attempts
from maintainer.commit.changes import BucketChange
from maintainer.commit.conflicts import check_base, check_bucket_count, check_change
from maintainer.commit.publish import AGAINST_REPLACEMENT, Outcome, check_store, publish, verify_delay
from maintainer.commit.strict_mode import StrictMode
from maintainer.errors import CommitConflict, CommitStateUnknown, MaintainerError, MissingFile, UsageError
from maintainer.merge.sections import key_range
from maintainer.model.bucket import BucketState
from maintainer.model.commit import CommitMessage
from maintainer.model.files import BucketKey, FileKind
from maintainer.model.schema import TableSchema
from maintainer.model.snapshot import CommitKind, Snapshot
from maintainer.model.work import Result
from maintainer.table.options import TableOptions
from maintainer.table.state import SnapshotExpired, TableState, load_latest
from maintainer.table.store import TableStore

log = structlog.get_logger(__name__)


@functools.cache
def process_user() -> str:
    """Who this process is in commits (decision 13): fresh for every process, the same for all its tables."""
    return str(uuid.uuid4())


@dataclass(frozen=True)
class CommitOutcome:
    """The snapshots that were published, and the buckets whose results no longer fitted, with the reason for each."""

    snapshots: tuple[Snapshot, ...] = ()
    conflicts: Mapping[BucketKey, str] = field(default_factory=dict)
    replaced: frozenset[BucketKey] = frozenset()
    """Of the conflicts: those that were published in a snapshot that was replaced. Whoever saw it may build on their files, so they stay."""
    discarded: Mapping[BucketKey, Mapping[str, str]] = field(default_factory=dict)
    """Of the buckets that were committed: payloads that were not, as they no longer fitted, by their names with the reason for each."""

    @property
    def abandoned(self) -> frozenset[BucketKey]:
        """The buckets whose files nobody can need any more."""
        return frozenset(self.conflicts) - self.replaced


Check = Callable[[TableState | None, TableSchema, Sequence[BucketChange]], Sequence[BucketChange]]
"""The changes that may be published on top of a state (None: there is no snapshot); raises when the whole commit may not be."""


class Committer:
    """Commits to one table. Safe to use from several threads, one commit at a time."""

    def __init__(self, store: TableStore, user: str | None = None) -> None:
        """Refuses a store that cannot publish safely before any work is done for it."""
        options = store.options()
        check_store(store, options)
        self._store = store
        self.user = user or f"{options.commit_user_prefix or 'maintainer'}_{process_user()}"
        self._strict_mode = StrictMode(store, self.user, options)
        self.known_state: TableState | None = None
        """The table as it was last looked at. Whoever has loaded it already may say so, and it is not read twice."""
        self._lock = threading.Lock()

    def commit_results(self, results: Sequence[Result]) -> CommitOutcome:
        """One COMPACT snapshot with all buckets whose data changed, then one APPEND snapshot with those that only got index files.

        A conflict drops only its bucket, and a payload that has become stale only itself: it is the caller's to delete. So are the files of
        dropped buckets, unless they are `replaced`, and those of all buckets when a `MaintainerError` other than `CommitStateUnknown` is
        raised: then nothing was published. After any other exception nothing may be deleted.
        """
        kinds: dict[CommitKind, dict[BucketKey, BucketChange]] = {CommitKind.COMPACT: {}, CommitKind.APPEND: {}}
        schema = self._store.latest_schema()
        default = self._store.options(schema).bucket
        for result in results:
            kind = change_of.kind_of(result)
            if kind is None:
                continue
            change = change_of.of_result(result, default)
            if change.bucket in kinds[kind]:
                raise UsageError(f"two results of one commit change bucket {change.bucket.bucket} of the same partition")
            kinds[kind][change.bucket] = change
        conflicts: dict[BucketKey, str] = {}
        discarded: dict[BucketKey, dict[str, str]] = {}
        replaced: set[BucketKey] = set()
        snapshots: list[Snapshot] = []
        for kind, changes in kinds.items():
            try:
                snapshot = self._commit_changes(kind, schema, list(changes.values()), conflicts, replaced, discarded)
            except CommitStateUnknown:
                raise
            except MaintainerError as error:
                if not snapshots and not replaced:
                    raise
                # The compactions stand, or did for a while, and their files must stay: only the second half was not committed.
                conflicts.update(dict.fromkeys(changes, f"not committed: {error}"))
                log.error("commit.failed", table=self._store.name, kind=str(kind), error=str(error))
                continue
            if snapshot is not None:
                snapshots.append(snapshot)
        return CommitOutcome(
            tuple(snapshots), conflicts, frozenset(replaced), {key: discarded[key] for key in discarded.keys() - conflicts.keys()}
        )

    def commit_append(self, messages: Sequence[CommitMessage], properties: Mapping[str, str] | None = None) -> Snapshot | None:
        """New files of a writer, as Java commits them: only the number of buckets is checked. None when there is nothing to commit."""
        schema = self._store.latest_schema()
        default = self._store.options(schema).bucket
        changes = [change_of.of_append(message, default) for message in messages]
        attempts = Attempts(self._store, schema, CommitKind.APPEND, self.user, properties)

        def check(state: TableState | None, of: TableSchema, wanted: Sequence[BucketChange]) -> Sequence[BucketChange]:
            return _checked_appends(state, wanted, _deleted_since(self._store, attempts.replaced_from, state))

        return self._commit(attempts, schema, [change for change in changes if not change.is_empty], check)

    def _commit_changes(
        self,
        kind: CommitKind,
        schema: TableSchema,
        changes: Sequence[BucketChange],
        conflicts: dict[BucketKey, str],
        replaced: set[BucketKey],
        discarded: dict[BucketKey, dict[str, str]],
    ) -> Snapshot | None:
        attempts = Attempts(self._store, schema, kind, self.user, None)

        def check(state: TableState | None, of: TableSchema, wanted: Sequence[BucketChange]) -> list[BucketChange]:
            # What was published and replaced stays: somebody may have seen it.
            return _fitting(self._store, state, of, wanted, conflicts, {} if attempts.was_replaced else discarded)

        try:
            return self._commit(attempts, schema, changes, check)
        except _LostEveryRace as error:
            conflicts.update({change.bucket: str(error) for change in changes if change.bucket not in conflicts})
            return None
        finally:
            if attempts.was_replaced:
                replaced.update(change.bucket for change in changes if change.bucket in conflicts)

    def _commit(self, attempts: Attempts, schema: TableSchema, changes: Sequence[BucketChange], check: Check) -> Snapshot | None:
        """The loop of spec 03 §8; None when no change is left to commit."""
        if not changes:
            return None
        with self._lock:
            store = self._store
            try:
                return self._attempt(attempts, store.options(schema), schema, changes, check)
            except MaintainerError as error:
                if not attempts.was_replaced:
                    raise
                raise CommitStateUnknown(f"{store.name}: a snapshot was published, another writer replaced it, and now: {error}") from error

    def _attempt(
        self, attempts: Attempts, options: TableOptions, schema: TableSchema, changes: Sequence[BucketChange], check: Check
    ) -> Snapshot | None:
        store, started = self._store, time.monotonic()
        for retry in range(options.commit_max_retries + 1):
            try:
                self.known_state = load_latest(store, self.known_state, schema)
                changes = check(self.known_state, schema, changes)
                if changes:
                    latest = None if self.known_state is None else self.known_state.snapshot
                    self._strict_mode.check(latest, {change.bucket.partition for change in changes})
            except BaseException:
                attempts.discard()
                raise
            if not changes:
                attempts.discard()
                return None
            snapshot = self._prepared(attempts, changes)
            if snapshot is not None and self._publish(snapshot, attempts, options):
                kind, buckets = str(snapshot.commit_kind), len(changes)
                log.info("commit.published", table=store.name, snapshot=snapshot.id, kind=kind, buckets=buckets, retries=retry)
                return snapshot
            log.info("commit.lost-race", table=store.name, snapshot=None if snapshot is None else snapshot.id, retries=retry)
            if retry == options.commit_max_retries:
                break
            if options.commit_timeout is not None and time.monotonic() - started > options.commit_timeout:
                break
            time.sleep(retry_wait(options, retry))
        attempts.discard()
        raise _LostEveryRace(f"{store.name}: other commits came first {retry + 1} times in {time.monotonic() - started:.1f} s; gave up")

    def _prepared(self, attempts: Attempts, changes: Sequence[BucketChange]) -> Snapshot | None:
        """The next snapshot; None when the one before it is not the latest any more, and has expired already."""
        try:
            return attempts.prepare(self.known_state, changes)
        except MissingFile:
            if self.known_state is None or self._store.latest_snapshot() == self.known_state.snapshot:
                raise
            return None

    def _publish(self, snapshot: Snapshot, attempts: Attempts, options: TableOptions) -> bool:
        """Whether the snapshot is the table's now. Where that cannot be learned, nothing is deleted."""
        waits = (retry_wait(options, retry) for retry in range(options.commit_max_retries))
        try:
            if not options.single_writer and self._is_base_replaced():
                attempts.lost()
                return False
            delay = verify_delay(self._store, options)
            outcome = publish(self._store, snapshot, waits, delay, exclusive=not options.single_writer)
        except MaintainerError:
            attempts.discard()
            raise
        if outcome is Outcome.UNKNOWN:
            raise CommitStateUnknown(
                f"{self._store.name}: snapshot {snapshot.id} (uuid {snapshot.uuid}) was sent, but the store does not say whether it was "
                "published; none of its files were deleted. Look for this uuid before the same work is committed again"
            )
        if outcome is Outcome.LOST:
            attempts.lost()
            return False
        if outcome is Outcome.REPLACED:
            attempts.replaced(snapshot)
            return False
        attempts.won()
        self._strict_mode.published(snapshot)
        return True

    def _is_base_replaced(self) -> bool:
        """Whether the snapshot that the next one was prepared on is another one by now: then it must not become the next one's past."""
        if self.known_state is None:
            return False
        base = self.known_state.snapshot
        found = self._store.find_snapshot(base.id)
        if found is not None and found != base:
            log.error(
                "commit.base-replaced",
                table=self._store.name,
                snapshot=base.id,
                lost_uuid=base.uuid,
                uuid=found.uuid,
                by=found.commit_user,
                error="another writer has put its own snapshot over one that was about to be built on; this commit is prepared again",
                do=AGAINST_REPLACEMENT,
            )
        return found != base


class _LostEveryRace(CommitConflict):
    """As many lost races as the options allow; nothing was published."""


def retry_wait(options: TableOptions, retry: int) -> float:
    """Seconds before the next attempt: doubling, with up to a fifth of chance on top."""
    milliseconds = 1000 * min(options.commit_min_retry_wait * 2.0**retry, options.commit_max_retry_wait)
    return (milliseconds + random.randrange(max(1, int(0.2 * milliseconds)))) / 1000


def _fitting(
    store: TableStore,
    state: TableState | None,
    schema: TableSchema,
    wanted: Iterable[BucketChange],
    conflicts: dict[BucketKey, str],
    discarded: dict[BucketKey, dict[str, str]],
) -> list[BucketChange]:
    """The changes that fit the state; the reasons of the others go to `conflicts`, and those of payloads that were left out to `discarded`."""
    key = key_range(schema.key_types)
    counts = _live_bucket_counts(state)
    find = functools.cache(store.find_snapshot)
    fitting = []
    for change in wanted:
        try:
            if change.base is not None:
                check_base(change.base, None if state is None else state.snapshot, find(change.base.snapshot_id))
            check_bucket_count(change, counts.get(change.bucket.partition, ()))
            bucket = BucketState(*change.bucket, 0, ()) if state is None else state.bucket(change.bucket)
            checked, left_out = check_change(change, bucket, key)
        except CommitConflict as error:
            conflicts[change.bucket] = str(error)
            log.info("commit.conflict", table=store.name, bucket=change.bucket.bucket, reason=str(error))
            continue
        if left_out:
            discarded.setdefault(change.bucket, {}).update(left_out)
            log.info("commit.stale-payloads", table=store.name, bucket=change.bucket.bucket, reasons=list(left_out.values()))
        if not checked.is_empty:
            fitting.append(checked)
    return fitting


def _checked_appends(state: TableState | None, changes: Sequence[BucketChange], deleted: Collection[str]) -> Sequence[BucketChange]:
    """The appends without files that have been there already: an earlier attempt was published and replaced, but what is there builds on it,
    and may have compacted them since, which `deleted` tells."""
    counts = _live_bucket_counts(state)
    there = set() if state is None else {file.file_name for change in changes for file in state.bucket(change.bucket).files}
    missing = []
    for change in changes:
        known = counts.setdefault(change.bucket.partition, {change.total_buckets})
        check_bucket_count(change, known)
        entries = tuple(entry for entry in change.entries if not (entry.file.file_name in there or entry.file.file_name in deleted))
        if entries or change.changelog:  # the changelog of a snapshot that was replaced is nowhere else
            missing.append(replace(change, entries=entries))
    return missing


def _deleted_since(store: TableStore, replaced: int | None, state: TableState | None) -> set[str]:
    """Names of the files that the snapshots after one that was replaced deleted."""
    names: set[str] = set()
    if replaced is None or state is None:
        return names
    for snapshot_id in range(replaced + 1, state.snapshot.id + 1):
        snapshot = store.find_snapshot(snapshot_id)
        if snapshot is None:
            raise SnapshotExpired(f"{store.name}: snapshot {snapshot_id} expired before anybody knew what it was built on")
        names |= {entry.file.file_name for entry in store.manifests.delta_entries(snapshot) if entry.kind is FileKind.DELETE}
    return names


def _live_bucket_counts(state: TableState | None) -> dict[bytes, set[int]]:
    """By partition, the numbers of buckets that its live files were written with."""
    counts: defaultdict[bytes, set[int]] = defaultdict(set)
    for bucket in state.buckets.values() if state is not None else ():
        if bucket.files and bucket.total_buckets > 0:
            counts[bucket.partition].add(bucket.total_buckets)
    return dict(counts)
