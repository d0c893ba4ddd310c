"""Making a snapshot visible, exactly once (spec 03 §9; Java `RenamingSnapshotCommit`).

A commit is durable when `snapshot/snapshot-<id>` exists with our content. Whatever the store answers, what counts is what stands there:

| the store says | the file holds | outcome                                                                 |
| created        | –              | WON                                                                     |
| exists         | our uuid       | WON: an earlier answer was lost                                         |
| exists         | another uuid   | LOST: for certain, our snapshot can only ever stand there               |
| unknown        | nothing        | the same bytes again; after the last try UNKNOWN, and nothing is deleted |
| failed         | our uuid       | WON: libraries repeat requests by themselves, and an earlier one was done |
| failed         | not readable   | UNKNOWN for the same reason, except on local disks                      |
| failed         | anything else  | the error, if nothing was sent before                                   |

A writer that checks whether the file exists and then renames or copies over it (Java and pypaimon on local disks, too) may replace what was
created here in between. So it is read once more, `publish.verify-delay` later, before anything is built on it: REPLACED when it holds another
uuid by then. Somebody may have built on ours all the same, so nothing that it names may be deleted. Every publication waits, for the next
snapshot must not be built on one that is lost; it waits in no lock but that of the committer, which is the table's own.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from enum import Enum

import structlog

from maintainer.errors import CorruptFile, CorruptTable, MaintainerError, StorageError, Unsupported
from maintainer.format import snapshot_json
from maintainer.model.snapshot import Snapshot
from maintainer.storage.storage import OutcomeUnknown
from maintainer.table.options import TableOptions
from maintainer.table.store import TableStore

log = structlog.get_logger(__name__)


VERIFY_DELAY = 2.0
"""Seconds, on object stores: as long as a writer may take between looking for a snapshot that is not there and copying its own over ours."""

AGAINST_REPLACEMENT = (
    "let all writers of this table commit where overwriting is impossible: through a REST catalog or a catalog lock that all of them hold, on "
    "S3 behind a bucket policy that requires s3:if-none-match on */snapshot/snapshot-*, on a local disk from one process at a time; or "
    "maintain it while they rest. A larger publish.verify-delay notices a replacement before the commit is reported"
)
"""What every event says that tells of a snapshot which another writer has put its own over."""


class Outcome(Enum):
    WON = "won"
    LOST = "lost"
    REPLACED = "replaced"
    UNKNOWN = "unknown"


def check_store(store: TableStore, options: TableOptions) -> None:
    """Raises `Unsupported` when the table's store cannot publish a snapshot at most once, and the table's options do not allow that."""
    if not options.single_writer:
        store.storage.prove_exclusive_create()


def verify_delay(store: TableStore, options: TableOptions) -> float:
    """Seconds after which a published snapshot is read again."""
    if options.publish_verify_delay is not None:
        return options.publish_verify_delay
    return VERIFY_DELAY if store.storage.remote and not options.single_writer else 0.0


def publish(store: TableStore, snapshot: Snapshot, waits: Iterator[float], verify_delay: float = 0.0, exclusive: bool = True) -> Outcome:
    """Publishes a snapshot; `waits` are the pauses before it is tried again while the outcome is unknown. Not `exclusive` is for a table that
    nobody else commits to, on a store that cannot create exclusively."""
    path = store.snapshot_path(snapshot.id)
    data = snapshot_json.encode(snapshot)
    sent = False  # an earlier request may have made the file, or may still make it
    while True:
        try:
            if store.storage.create_if_absent(path, data, exclusive):
                break
            outcome = _what_stands_there(store, snapshot)
        except MaintainerError as error:
            if sent or isinstance(error, OutcomeUnknown):
                sent = True
                log.warning("publish.unknown", table=store.name, snapshot=snapshot.id, error=str(error))
                outcome = _what_stands_there(store, snapshot)
            else:
                stands = _looked_at(store, snapshot)
                if stands is Outcome.UNKNOWN and store.storage.remote:
                    return stands
                if stands is not Outcome.WON:
                    raise
                outcome = stands
        if outcome is Outcome.WON:
            break
        if outcome is Outcome.LOST:
            return outcome
        pause = next(waits, None)
        if pause is None:
            return Outcome.UNKNOWN
        time.sleep(pause)
    _write_hint(store, snapshot.id)
    time.sleep(verify_delay)
    if _what_stands_there(store, snapshot) is Outcome.LOST:
        lost = "another writer has put its own snapshot over this commit, which is made again on top of it"
        log.error("publish.replaced", table=store.name, snapshot=snapshot.id, lost_uuid=snapshot.uuid, error=lost, do=AGAINST_REPLACEMENT)
        return Outcome.REPLACED
    store.look_from(snapshot)
    return Outcome.WON


def _what_stands_there(store: TableStore, snapshot: Snapshot) -> Outcome:
    """Of a snapshot that was sent: where nothing stands, it may still come."""
    return _looked_at(store, snapshot) or Outcome.UNKNOWN


def _looked_at(store: TableStore, snapshot: Snapshot) -> Outcome | None:
    """None: nothing stands there. UNKNOWN: the store does not say."""
    try:
        found = store.find_snapshot(snapshot.id)
    except (StorageError, CorruptFile, CorruptTable) as error:
        log.warning("publish.unknown", table=store.name, snapshot=snapshot.id, error=str(error))
        return Outcome.UNKNOWN
    except Unsupported:  # a format version that we do not write
        return Outcome.LOST
    if found is None:
        return None
    return Outcome.WON if found.uuid == snapshot.uuid else Outcome.LOST


def _write_hint(store: TableStore, snapshot_id: int) -> None:
    """LATEST is advice: readers find the snapshot without it."""
    try:
        store.storage.replace(store.hint_path("LATEST"), str(snapshot_id).encode())
    except MaintainerError as error:
        log.warning("publish.hint", table=store.name, snapshot=snapshot_id, error=str(error))
