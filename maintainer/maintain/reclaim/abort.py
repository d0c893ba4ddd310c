"""Deleting what an abandoned attempt wrote (spec 03 §12).

Invariant: a file that a snapshot may refer to is never deleted. An abandoned result loses the paths that it created itself, and of those only
the data and index files that its message adds, that its message does not also take away (an upgraded file is in both lists), and that no
snapshot names. Java, pypaimon and pypaimon-rust lack the last two conditions, and delete live files when they abort an upgrade.

Abort only when the commit is known not to have happened. Where that is unknown, the files stay for the orphan cleaner.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import structlog

from maintainer.errors import MaintainerError
from maintainer.model.commit import CommitMessage
from maintainer.model.files import BucketKey
from maintainer.model.snapshot import Snapshot
from maintainer.model.work import Result
from maintainer.table.state import SnapshotExpired, TableState, load_state
from maintainer.table.store import TableStore

log = structlog.get_logger(__name__)


def abort_all(stores: Sequence[TableStore], results: Sequence[Result], after: int) -> None:
    """Delete the files of results that will not be committed.

    Spared is what a snapshot after `after` names, or a tag, on any of `stores`, which are one table on its branches. Where that cannot be
    learned, all files stay.
    """
    if not results:
        return
    try:
        used = {name for store in stores for name in names_in_use(store, after)}
    except MaintainerError as error:
        log.warning("attempt.leftover", table=results[0].table, results=len(results), error=str(error))
        return
    for result in results:
        abort(stores[0], result, used)


def abort(store: TableStore, result: Result, used: Collection[str]) -> tuple[str, ...]:
    """Delete the files of a result that will not be committed, except those with `used` names; the paths that were deleted.

    Deleting is best effort: what is left is an orphan.
    """
    kept = kept_names(result.message) | set(used)
    try:
        doomed = {file.path for file in added_files(store, result.message) if file.name not in kept}
    except MaintainerError as error:  # another table was made in this place, with other partitions
        log.warning("attempt.leftover", table=result.table, bucket=result.message.bucket, error=str(error))
        return ()
    deleted = store.delete_abandoned(path for path in result.created if path in doomed)
    log.info("result.aborted", table=result.table, bucket=result.message.bucket, files=len(deleted))
    return tuple(deleted)


def abort_payloads(stores: Sequence[TableStore], results: Sequence[Result], discarded: Mapping[BucketKey, Collection[str]], after: int) -> None:
    """The same of payloads that were left out when the rest of their results was committed; `discarded` are their names."""
    trimmed = []
    for result in results:
        names = discarded.get(result.message.bucket_key, ())
        created = tuple(path for path in result.created if path.rpartition("/")[2] in names)
        if created:
            trimmed.append(replace(result, created=created))
    abort_all(stores, trimmed, after)


class AddedFile(NamedTuple):
    """A data or index file that a message adds; of a sidecar, the message does not say the size."""

    path: str
    name: str
    size: int | None


def added_files(store: TableStore, message: CommitMessage) -> Iterator[AddedFile]:
    """All files that a message adds, in either half, sidecars included."""
    layout, partition, bucket = store.layout, message.partition, message.bucket
    for file in message.added_files:
        yield AddedFile(layout.data_file_path(partition, bucket, file), file.file_name, file.file_size)
        for name in file.extra_files:
            yield AddedFile(layout.data_file_path(partition, bucket, name), name, None)
    for index in message.added_index_files:
        yield AddedFile(layout.index_file_path(index, partition, bucket), index.file_name, index.file_size)


def kept_names(message: CommitMessage) -> set[str]:
    """Names of all files that were there before the message, sidecars included."""
    data = {name for file in message.removed_files for name in (file.file_name, *file.extra_files)}
    return data | {file.file_name for file in message.removed_index_files}


def names_in_use(store: TableStore, after: int = 0) -> set[str]:
    """Names of all data, changelog and index files of the snapshots after this one, and of the data and index files of all tags, which do not
    keep a changelog."""
    names: set[str] = set()
    state: TableState | None = None
    snapshots = [store.find_snapshot(snapshot_id) for snapshot_id in store.snapshot_ids() if snapshot_id > after]
    for snapshot in (*filter(None, snapshots), *map(store.tag, store.tag_names())):
        try:
            state = load_state(store, snapshot, state)
        except SnapshotExpired:
            continue
        for bucket in state.buckets.values():
            deletions = () if bucket.deletion_file is None else (bucket.deletion_file,)
            names.update(file.file_name for file in (*deletions, *bucket.payloads, *bucket.other_index_files))
            names.update(name for file in bucket.files for name in (file.file_name, *file.extra_files))
    for snapshot in filter(None, snapshots):
        names |= _changelog_names(store, snapshot)
    return names


def _changelog_names(store: TableStore, snapshot: Snapshot) -> set[str]:
    name = snapshot.changelog_manifest_list
    metas = () if name is None else store.manifests.files_of(name, f"snapshot {snapshot.id}", snapshot.changelog_manifest_list_size)
    files = (entry.file for meta in metas for entry in store.manifests.entries(meta.file_name, str(name)))
    return {each for file in files for each in (file.file_name, *file.extra_files)}
