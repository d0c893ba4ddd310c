"""The next index manifest (spec 01 §10.1, 03 §8.5; Java `IndexManifestFileHandler`).

| index type                      | an entry is known by      | ADD                         |
| DELETION_VECTORS, HASH          | partition, bucket, type   | replaces the bucket's entry |
| every other, of all the buckets | file name                 | replaces the same name      |

DELETEs apply first. Entries of unknown types are carried over as they are. The table has buckets: tables without have another rule.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from maintainer.errors import CommitConflict
from maintainer.format.source_meta import is_source_meta
from maintainer.model.files import DELETION_VECTORS, HASH, FileKind, IndexManifestEntry


def combine(previous: Iterable[IndexManifestEntry], changes: Iterable[IndexManifestEntry]) -> list[IndexManifestEntry]:
    """All live index files after the changes."""
    live = {_key(entry): entry for entry in previous}
    changes = tuple(changes)
    for entry in changes:
        if entry.kind is FileKind.DELETE and live.pop(_key(entry), None) is None and entry.file.index_type not in (DELETION_VECTORS, HASH):
            raise CommitConflict(f"the index file {entry.file.file_name} is no longer there")
    kept = list(live.values())
    for entry in changes:
        if entry.kind is FileKind.ADD:
            _check_overlap(kept, entry)
            live[_key(entry)] = entry
    return list(live.values())


def _key(entry: IndexManifestEntry) -> Hashable:
    if entry.file.index_type in (DELETION_VECTORS, HASH):
        return entry.partition, entry.bucket, entry.file.index_type
    return entry.file.file_name


def _check_overlap(kept: Iterable[IndexManifestEntry], added: IndexManifestEntry) -> None:
    """Two row-id indexes of one column may not cover the same rows; indexes of primary-key tables are told apart by their source files."""
    new = added.file.global_index
    if new is None or is_source_meta(new.source_meta):
        return
    for entry in kept:
        old = entry.file.global_index
        if old is None or entry.file.index_type != added.file.index_type or entry.file.file_name == added.file.file_name:
            continue
        disjoint = old.row_range_end < new.row_range_start or new.row_range_end < old.row_range_start
        if old.index_field_id == new.index_field_id and not (old.extra_field_ids == new.extra_field_ids and disjoint):
            raise CommitConflict(f"the index file {entry.file.file_name} covers rows that {added.file.file_name} covers, too")
