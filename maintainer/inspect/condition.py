"""What the files of a table look like, for a doctor: what readers do not see or find, and what piles up (DESIGN §5 "doctor")."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from maintainer.index.groups import APPEND_FILE, UNKNOWN_SOURCE
from maintainer.index.usable import rewrite
from maintainer.inspect.coverage import NOT_BUILT, Coverage, coverage
from maintainer.inspect.diagnosis import INFO, WARNING, Finding
from maintainer.maintain.unmarked import schemas_without_vectors, unmarked
from maintainer.merge.sections import key_range
from maintainer.model.schema import TableSchema
from maintainer.table.state import TableState
from maintainer.table.store import TableStore

MANY_LEVEL_0_FILES = 50
"""In one bucket: a compaction reads them all at once."""
MANY_FILES = 1000
SMALL = 16
"""A file is small when it has less than a 16th of the target size."""


def of_levels(store: TableStore, schema: TableSchema, schemas: Sequence[TableSchema], state: TableState) -> Iterator[Finding]:
    """Buckets that were compacted before deletion vectors were switched on, and never in full since."""
    if not store.options(schema).deletion_vectors_enabled:
        return
    without = schemas_without_vectors(schemas)
    key = key_range(schema.key_types)
    count = sum(unmarked(bucket.files, without, key) is not None for bucket in state.buckets.values()) if without else 0
    if count:
        why = (
            f"in {count} bucket{'s' * (count > 1)} overlapping levels were made without deletion vectors: readers that rely on those give the "
            "rows of a key twice, and passes leave these buckets alone"
        )
        yield Finding(WARNING, "deletion-vectors.enabled was set later", why, f"maintainer compact {store.uri} --full")


def of_files(store: TableStore, state: TableState) -> Iterator[Finding]:
    """Coverage, and files that should not stay as they are."""
    once = f"maintainer once {store.uri}"
    options = store.options(state.schema)
    found = coverage(store, state)
    hidden = found.rows - found.visible_rows
    waiting = [each for each in found.uncovered if each.column is None]
    if hidden:
        yield Finding(INFO, "level 0", f"{hidden} rows in {len(waiting)} files are not visible to batch readers", once)
    never = {(each.bucket, each.file): each.rows for each in found.uncovered if each.reason in (APPEND_FILE, UNKNOWN_SOURCE)}
    if never:
        do = once
        if not options.rewrite_append:
            do = f"{once} --option maintain.rewrite-append=true, or set that option in the table: it is false"
        why = f"{sum(never.values())} rows in {len(never)} files are visible, but no index can cover files that no compaction wrote"
        yield Finding(INFO, "APPEND files above level 0", why, do)
    missing = [f"{each.column} {each.ratio:.1%}" for each in found.definitions if each.covered_rows < found.visible_rows]
    yield from _of_failed_groups(store, found)
    elsewhere = {each.reason for each in found.uncovered if each.column is not None and not each.reason.startswith(NOT_BUILT)}
    elsewhere -= {APPEND_FILE, UNKNOWN_SOURCE}
    if elsewhere and missing:
        reasons = "; ".join(sorted(elsewhere)[:3])
        do = rewrite(store.uri) if all(rewrite() in reason for reason in elsewhere) else once  # a pass has nothing to do for those
        yield Finding(INFO, "coverage", f"indexes cover {found.ratio():.1%} of the rows ({', '.join(missing)}): {reasons}", do)
    crowded = Counter((tuple(each.partition.items()), each.bucket) for each in waiting if each.level == 0).most_common(1)
    if crowded and crowded[0][1] >= MANY_LEVEL_0_FILES:
        (_, bucket), count = crowded[0]
        why = f"bucket {bucket} has {count} files that wait for compaction: nothing compacts this table often enough"
        yield Finding(WARNING, "level 0 piles up", why, f"run the daemon on it, or {once} more often")
    small = sum(file.level > 0 and file.file_size * SMALL < options.target_file_size for file in state.files())
    buckets = sum(bool(bucket.files) for bucket in state.buckets.values())
    if small >= MANY_FILES and small > 4 * buckets:
        why = f"{small} files in {buckets} buckets are far below target-file-size"
        yield Finding(INFO, "small files", why, f"maintainer compact {store.uri} --full")


def _of_failed_groups(store: TableStore, found: Coverage) -> Iterator[Finding]:
    groups = {
        (str(each.column), tuple(each.partition.items()), each.bucket, each.level): each.reason.removeprefix(NOT_BUILT)
        for each in found.uncovered
        if each.reason.startswith(NOT_BUILT)
    }
    for name in sorted({name for name, *_ in groups}):
        reasons = Counter(reason for (column, *_), reason in groups.items() if column == name)
        count = reasons.total()
        which = "1 group" if count == 1 else f"{count} groups"
        retried = "passes try again when the files change, and after an hour if no value is at fault"
        why = f"{which} could not be built: {reasons.most_common(1)[0][0]}; {retried}"
        yield Finding(WARNING, f"index on {name}", why, f"remedy that, then run maintainer index {store.uri} rebuild --column {name}")
