"""Deleting what an abandoned attempt wrote: the only place that deletes data and index files (decision 14, spec 03 §12).

Invariant: a file that a snapshot may refer to is never deleted. An abandoned result loses the paths that it created itself, and of those only
the data and index files that its message adds, that its message does not also take away (an upgraded file is in both lists), and that the
latest snapshot does not name. Java, pypaimon and pypaimon-rust lack the last two conditions, and delete live files when they abort an upgrade.

Abort only when the commit is known not to have happened. Where that is unknown, the files stay for the orphan cleaner.
"""

from __future__ import annotations

from collections.abc import Collection

import structlog

from maintainer.errors import StorageError
from maintainer.model.commit import CommitMessage
from maintainer.model.work import Result
from maintainer.table.store import TableStore

log = structlog.get_logger(__name__)


def abort(store: TableStore, result: Result, live_names: Collection[str]) -> tuple[str, ...]:
    """Delete the files of a result that will not be committed; the paths that were deleted.

    `live_names` are the names of all data and index files of the latest snapshot. Deleting is best effort: what is left is an orphan.
    """
    kept = kept_names(result.message) | set(live_names)
    doomed = {path for path, name in added_paths(store, result.message).items() if name not in kept}
    deleted = []
    for path in result.created:
        if path not in doomed:
            continue
        try:
            store.storage.delete(path)
        except StorageError as error:
            log.warning("abort.leftover", table=result.table, path=path, error=str(error))
            continue
        deleted.append(path)
    log.info("result.aborted", table=result.table, bucket=result.message.bucket, files=len(deleted))
    return tuple(deleted)


def added_paths(store: TableStore, message: CommitMessage) -> dict[str, str]:
    """The path of each file that a message adds, sidecars included, with its name."""
    layout, partition, bucket = store.layout, message.partition, message.bucket
    names = (name for file in message.added_files for name in (file.file_name, *file.extra_files))
    paths = {layout.data_file_path(partition, bucket, name): name for name in names}
    return paths | {layout.index_file_path(file, partition, bucket): file.file_name for file in message.added_index_files}


def kept_names(message: CommitMessage) -> set[str]:
    """Names of all files that were there before the message, sidecars included."""
    data = {name for file in message.removed_files for name in (file.file_name, *file.extra_files)}
    return data | {file.file_name for file in message.removed_index_files}
