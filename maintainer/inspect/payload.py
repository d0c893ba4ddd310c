"""Opening the payload of an active index group."""

from __future__ import annotations

from maintainer.index.cache import open_payload
from maintainer.index.definition import IndexDefinition
from maintainer.index.family import FamilyReader
from maintainer.index.groups import GroupState
from maintainer.model.bucket import BucketState
from maintainer.table.store import TableStore


def open_group(store: TableStore, bucket: BucketState, groups: GroupState, definition: IndexDefinition, level: int) -> FamilyReader:
    """The reader of the group of this level, which must be active."""
    return open_payload(store, bucket, groups.active[level], definition, groups.sources[level].total_rows)
