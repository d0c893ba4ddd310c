"""Who else has to do with a table, for a doctor: other writers, what they keep, and whether we can publish safely (spec 03 §9.3, §14)."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress

from maintainer.errors import MaintainerError, StorageError, Unsupported, UsageError
from maintainer.inspect.diagnosis import ERROR, INFO, WARNING, Finding
from maintainer.maintain.reclaim.retention import Retention
from maintainer.model.snapshot import CommitKind, Snapshot
from maintainer.table.options import TableOptions
from maintainer.table.state import TableState
from maintainer.table.store import TableStore

RECENT = 50
"""Snapshots that are looked at for what writers do."""
BYTES_PER_SECOND = 25 << 20
"""What a pass may be expected to get through, reading, merging, writing and indexing."""
PILED_UP = 200
"""Snapshots beyond their retention."""
MANY_LEFTOVERS = 20
_OURS = "maintainer-"
_GRACE_MS = 86_400_000


def recent_snapshots(store: TableStore) -> list[Snapshot]:
    """The newest snapshots, newest first."""
    found = (store.find_snapshot(snapshot_id) for snapshot_id in reversed(store.snapshot_ids()[-RECENT:]))
    return [snapshot for snapshot in found if snapshot is not None]


def writers(store: TableStore, options: TableOptions, recent: Sequence[Snapshot]) -> Iterator[Finding]:
    """What the recent snapshots say about others: who compacts, and who publishes on an object store."""
    others = [snapshot for snapshot in recent if not (snapshot.writer_version or "").startswith(_OURS)]
    compacting: dict[str, list[int]] = {}
    for snapshot in others:
        if snapshot.commit_kind is CommitKind.COMPACT:
            compacting.setdefault(snapshot.commit_user, []).append(snapshot.id)
    for user, ids in compacting.items():
        why = (
            f"it made {len(ids)} of the last {len(recent)} snapshots by compacting, the latest is {ids[0]}: both sides do the work, "
            "and commits conflict"
        )
        do = "set write-only = true for this job"
        if options.write_only:
            do = "write-only = true in the table, so this is a compaction job or one that overrides the option: stop it, or this maintenance"
        yield Finding(WARNING, f"commit user {user} compacts", why, do)
    users = ", ".join(list(dict.fromkeys(snapshot.commit_user for snapshot in others))[:5])
    if options.single_writer and users:
        why = f"so nobody else may commit, but others did: {users}; each may replace the other's snapshot, and its rows are lost"
        yield Finding(
            WARNING, "publish.single-writer = true", why, "unset the option where the store can create exclusively, or stop the others"
        )
    elif store.storage.remote and users:
        delay = options.publish_verify_delay
        do = "let only one of them commit at a time, or give them a catalog with locks; keep publish.verify-delay at 2 s or more"
        if delay is not None and delay < 1:
            do = f"publish.verify-delay = {options['publish.verify-delay']} is too short to notice: set 2 s or more"
        why = (
            f"others commit to this object store: {users}. Java and Python Paimon look whether a snapshot exists and then write it, "
            "so they can replace one of ours; it is noticed and done again, but what was built on it meanwhile is lost"
        )
        yield Finding(WARNING, "other writers on an object store", why, do)


def retention(store: TableStore, options: TableOptions, state: TableState | None, recent: Sequence[Snapshot]) -> Iterator[Finding]:
    """Whether snapshots live as long as passes take, and whether they go at all."""
    try:
        Retention.of(options)
    except (UsageError, Unsupported) as error:
        yield Finding(WARNING, "snapshots are not expired", str(error), "correct the retention options in the table")
    size = 0 if state is None else sum(file.file_size for file in state.files())
    interval = _interval(recent)
    kept = options.snapshot_time_retained
    if interval is not None:
        kept = max(min(kept, options.snapshot_retained_max * interval), options.snapshot_retained_min * interval)
    needed = size / BYTES_PER_SECOND
    if needed > kept:
        by_number = interval is not None and options.snapshot_retained_max * interval < options.snapshot_time_retained
        option = "snapshot.num-retained.max" if by_number else "snapshot.time-retained"
        why = (
            f"a pass over all {size / 2**30:.1f} GB may take about {_span(needed)}, and snapshots are kept for {_span(kept)} only: "
            "what it reads may be deleted when others compact or expire meanwhile"
        )
        yield Finding(WARNING, "retention is shorter than a pass", why, f"raise {option} so that snapshots are kept for {_span(2 * needed)}")
    ids = store.snapshot_ids()
    if len(ids) > options.snapshot_retained_min + PILED_UP:
        beyond = store.find_snapshot(ids[-options.snapshot_retained_min - PILED_UP])
        age = 0.0 if beyond is None else time.time() - beyond.time_millis / 1000
        if age > 2 * options.snapshot_time_retained:
            why = f"there are {len(ids)} snapshots, most of them older than snapshot.time-retained: nobody expires them, and their files stay"
            yield Finding(WARNING, "snapshots pile up", why, f"maintainer expire {store.uri}, or run the daemon with maintain.expire = true")


def _interval(recent: Sequence[Snapshot]) -> float | None:
    """Seconds from one recent snapshot to the next; None where they do not tell."""
    if len(recent) < 3:
        return None
    return max(0.001, (recent[0].time_millis - recent[-1].time_millis) / 1000 / (len(recent) - 1))


def holders(store: TableStore, options: TableOptions) -> Iterator[Finding]:
    """Tags and consumers that keep files for ever."""
    names = []
    for name in store.tag_names():
        try:
            if "tagTimeRetained" not in store.tag(name).extra:
                names.append(name)
        except MaintainerError as error:
            yield Finding(WARNING, f"tag {name}", str(error), "delete the tag, or restore its file")
    if names:
        shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
        yield Finding(
            INFO, "tags without an end", f"they keep the files of their snapshots for ever: {shown}", "delete those that nobody needs"
        )
    if options.consumer_expiration_time is not None:
        return
    latest = store.latest_snapshot_id() or 0
    for entry in store.consumers():
        name = entry.name.removeprefix("consumer-")
        following = None
        try:
            following = store.find_next_snapshot_of(entry)
        except MaintainerError as error:
            yield Finding(WARNING, f"consumer {name}", str(error), f"delete {store.consumer_directory}/{entry.name}")
        if following is not None and following <= latest and time.time() * 1000 - entry.modified_ms > _GRACE_MS:
            why = f"it made no progress for more than a day, and keeps all snapshots from {following} on (the latest is {latest})"
            yield Finding(WARNING, f"consumer {name}", why, "delete it if its job is gone, or set consumer.expiration-time")


def publishing(store: TableStore, options: TableOptions) -> Iterator[Finding]:
    """Whether a snapshot can be published so that no other is replaced; tried out with a file that is deleted at once."""
    if options.single_writer:
        if not store.storage.remote:
            why = "the option switches off the check that another writer published the same snapshot"
            yield Finding(INFO, "publish.single-writer is set on a local file system", why, "unset it where the file system has hard links")
        return
    try:
        if store.storage.remote:
            store.storage.prove_exclusive_create()
        else:
            _try_hard_link(store)
    except Unsupported as error:
        yield Finding(ERROR, "store", str(error), "use another store, or set publish.single-writer = true if nothing else ever commits")
    except StorageError as error:
        yield Finding(WARNING, "store", f"nothing can be written: {error}", "give this account the right to write, list and delete")


def _try_hard_link(store: TableStore) -> None:
    path = f"schema/.probe.{uuid.uuid4()}.tmp"
    try:
        store.storage.create_if_absent(path, b"")
    finally:
        with suppress(StorageError):
            store.storage.delete(path)


def leftovers(store: TableStore, recent: Sequence[Snapshot]) -> Iterator[Finding]:
    """Temporary files beside the snapshots that nobody finished: a cheap sign that attempts were given up."""
    if not recent:
        return
    entries = store.storage.list(store.snapshot_path(recent[0].id).rpartition("/")[0])
    old = time.time() * 1000 - _GRACE_MS
    count = sum(entry.name.startswith(".") and entry.modified_ms < old and not entry.is_directory for entry in entries)
    if count >= MANY_LEFTOVERS:
        why = f"{count} unfinished files beside the snapshots are older than a day: writers were killed, and may have left data files, too"
        yield Finding(INFO, "leftovers", why, "remove files that no snapshot names (in Java: the procedure remove_orphan_files)")


def _span(seconds: float) -> str:
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
