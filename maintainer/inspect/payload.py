"""Opening the payload of an active index group."""

from __future__ import annotations

from functools import partial

from maintainer.errors import CorruptTable
from maintainer.index.definition import IndexDefinition
from maintainer.index.family import FamilyReader, family
from maintainer.index.groups import GroupState
from maintainer.model.bucket import BucketState
from maintainer.table.store import TableStore


def open_group(store: TableStore, bucket: BucketState, groups: GroupState, definition: IndexDefinition, level: int) -> FamilyReader:
    """The reader of the group of this level, which must be active."""
    payload = groups.active[level]
    if payload.global_index is None:
        raise CorruptTable(f"{payload.file_name}: no index metadata")
    path = store.layout.index_file_path(payload, bucket.partition, bucket.bucket)
    return family(definition.family).open(
        partial(store.storage.read_range, path),
        payload.file_size,
        definition,
        payload.global_index.index_meta,
        groups.sources[level].total_rows,
    )
