"""Whether a bucket's change still fits the latest snapshot (spec 03 §7.3–§7.5, 06 §13.3; Java `ConflictDetection`).

What is checked, in this order; the first that fails is the reason:

    base          the snapshot that the work was computed from is still part of the table's history
    bucket count  all files of a partition were written with one number of buckets
    files         every deleted file is there, no added one is
    key ranges    files of one level above 0 do not overlap
    vectors       the bucket's deletion-vector file is the one that the work read: Java lets the last writer win, and loses deletes; and every
                  file of which rows are deleted is there: one that was rewritten meanwhile took these rows with it, alive
    payloads      the sources of every added payload are exactly the source files of its level after the change, and no other claims them

A conflict is final for this change: it has to be planned again. Concurrent level-0 appends never are one. A payload that does not fit is left
out, and the rest of the change goes on without it, for an index never keeps data back; if nothing else is left, that is a conflict.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

from maintainer.commit.changes import Base, BucketChange
from maintainer.errors import CommitConflict, CorruptFile, CorruptTable
from maintainer.format import source_meta
from maintainer.format.source_meta import SourceMeta
from maintainer.index import groups
from maintainer.merge.sections import KeyRange
from maintainer.model.bucket import BucketState
from maintainer.model.files import (
    DELETION_VECTORS,
    HASH,
    DataFileMeta,
    FileIdentity,
    FileKind,
    IndexFileMeta,
    IndexManifestEntry,
    ManifestEntry,
)
from maintainer.model.snapshot import Snapshot
from maintainer.table.manifests import merge_into

Group = tuple[str, int, int]
"""Index type, field id and level."""


def check_base(base: Base, latest: Snapshot | None, found: Snapshot | None) -> None:
    """`found` is the snapshot that now has the base's id, None when it expired."""
    if latest is None:
        raise CommitConflict(f"the work is based on snapshot {base.snapshot_id}, but the table has no snapshot any more")
    if latest.id < base.snapshot_id:
        raise CommitConflict(f"the table was rolled back: the work is based on snapshot {base.snapshot_id}, the latest is now {latest.id}")
    if found is not None and found.uuid != base.snapshot_uuid:
        raise CommitConflict(f"the table was rolled back: snapshot {base.snapshot_id} is not the one that the work is based on")


def check_bucket_count(change: BucketChange, live_counts: Collection[int]) -> None:
    """`live_counts`: the numbers of buckets that the partition's live files were written with."""
    for count in sorted(live_counts):
        if change.entries and count > 0 and change.total_buckets > 0 and count != change.total_buckets:
            raise CommitConflict(f"the number of buckets of the partition changed from {change.total_buckets} to {count}")


class Checked(NamedTuple):
    """A change as it fits the latest state, and the names of the payloads that it lost, with the reason for each."""

    change: BucketChange
    discarded: Mapping[str, str]


def check_change(change: BucketChange, bucket: BucketState, key: KeyRange) -> Checked:
    """The change as it fits the bucket's latest state; `CommitConflict` says why it does not.

    Deletes of index files that somebody else removed are left out. Where somebody else added payloads for a level that the change brings one
    for, readers would trust none of them: theirs stays if it is valid, else ours takes its place (spec 06 §13.3).
    """
    files = _files_after(change, bucket)
    if change.entries:
        _check_key_ranges(files, key)
    if change.base is not None and change.entries:
        _check_vectors(change, change.base, bucket, files)
    entries, discarded = _index_entries(change, bucket, files)
    checked = replace(change, index_entries=entries)
    if discarded and checked.is_empty:
        raise CommitConflict(next(iter(discarded.values())))
    return Checked(checked, discarded)


def _files_after(change: BucketChange, bucket: BucketState) -> list[DataFileMeta]:
    live: dict[FileIdentity, ManifestEntry] = {}
    merge_into(live, (ManifestEntry(FileKind.ADD, *change.bucket, bucket.total_buckets, file) for file in bucket.files))
    try:
        merge_into({}, change.entries)
        unmatched = merge_into(live, change.entries)
    except CorruptTable as error:
        raise CommitConflict(f"the change {error}") from None
    if unmatched:
        names = ", ".join(f"{entry.file.file_name} of level {entry.file.level}" for entry in unmatched)
        raise CommitConflict(f"the change deletes {names}, which is no longer there")
    return [entry.file for entry in live.values()]


def _check_key_ranges(files: Iterable[DataFileMeta], key: KeyRange) -> None:
    levels: defaultdict[int, list[DataFileMeta]] = defaultdict(list)
    for file in files:
        if file.level > 0:
            levels[file.level].append(file)
    for level, members in levels.items():
        members.sort(key=lambda file: key(file)[0])
        for left, right in pairwise(members):
            if not key(left)[1] < key(right)[0]:
                raise CommitConflict(f"{left.file_name} and {right.file_name} of level {level} would overlap")


def _check_vectors(change: BucketChange, base: Base, bucket: BucketState, files: Iterable[DataFileMeta]) -> None:
    current = None if bucket.deletion_file is None else bucket.deletion_file.file_name
    if current != base.deletion_file:
        raise CommitConflict(f"the deletion vectors changed from {base.deletion_file or 'none'} to {current or 'none'}")
    live = {file.file_name for file in files}
    added = [entry.file for entry in change.index_entries if entry.kind is FileKind.ADD and entry.file.index_type == DELETION_VECTORS]
    gone = [one.data_file for file in added for one in file.deletion_ranges or () if one.data_file not in live]
    if gone:
        raise CommitConflict(f"the change deletes rows of {gone[0]}, which is no longer there")


def _index_entries(
    change: BucketChange, bucket: BucketState, files: list[DataFileMeta]
) -> tuple[tuple[IndexManifestEntry, ...], Mapping[str, str]]:
    """The entries that fit, and the payloads that do not, with the reason."""
    there = {file.file_name for file in (*bucket.payloads, *bucket.other_index_files)}
    if bucket.deletion_file is not None:
        there.add(bucket.deletion_file.file_name)
    deletes = [entry for entry in change.index_entries if entry.kind is FileKind.DELETE and entry.file.file_name in there]
    adds = [entry for entry in change.index_entries if entry.kind is FileKind.ADD]
    deleted = {entry.file.file_name for entry in deletes}
    rivals: defaultdict[Group, list[IndexFileMeta]] = defaultdict(list)
    for payload in bucket.payloads:
        group = _group(payload)
        if group is not None and payload.file_name not in deleted:
            rivals[group].append(payload)
    sources = {level: tuple(members) for level, members in groups.sources(files).items()}
    kept, claimed, discarded = [], dict[Group, str](), dict[str, str]()
    for entry in adds:
        name = entry.file.file_name
        if entry.file.index_type in (DELETION_VECTORS, HASH):
            kept.append(entry)
            continue
        meta, group = _source_meta(entry.file), _group(entry.file)
        if meta is None or group is None:
            raise CommitConflict(f"{name} says nothing that can be checked about the files that it indexes")
        if group in claimed:
            raise CommitConflict(f"{claimed[group]} and {name} index the same files of level {meta.level}")
        claimed[group] = name
        if meta.files != sources.get(meta.level, ()):
            discarded[name] = f"{name} indexes other files than level {meta.level} holds"
            deletes = [entry for entry in deletes if _group(entry.file) != group]  # perhaps of use yet; whoever builds the group again decides
            continue
        valid = [payload for payload in rivals[group] if _is_like(payload, entry.file)]
        if len(valid) == 1:
            discarded[name] = f"{valid[0].file_name} indexes the same files of level {meta.level} already"
        else:
            kept.append(entry)
            valid = []
        deletes += [IndexManifestEntry(FileKind.DELETE, *change.bucket, payload) for payload in rivals[group] if payload not in valid]
    return (*deletes, *kept), discarded


def _is_like(payload: IndexFileMeta, ours: IndexFileMeta) -> bool:
    """Whether readers take a payload as they would take ours: it says the same of the same source files."""
    theirs, mine = payload.global_index, ours.global_index
    if theirs is None or mine is None:
        return False
    rows = (theirs.row_range_start, theirs.row_range_end, payload.row_count)
    return rows == (mine.row_range_start, mine.row_range_end, ours.row_count) and _source_meta(payload) == _source_meta(ours)


def _group(payload: IndexFileMeta) -> Group | None:
    """Index type, field id and level; None for what is no payload of a level."""
    meta = _source_meta(payload)
    return None if meta is None or payload.global_index is None else (payload.index_type, payload.global_index.index_field_id, meta.level)


def _source_meta(payload: IndexFileMeta) -> SourceMeta | None:
    if payload.global_index is None or payload.global_index.source_meta is None:
        return None
    try:
        return source_meta.decode(payload.global_index.source_meta)
    except CorruptFile:
        return None
