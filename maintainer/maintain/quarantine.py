"""Groups that could not be built: what is known of them from one pass to the next, and in other processes (decision 8).

    <table>/maintainer/index-failures.json        {"version": 1, "groups": [{"partition", "bucket", "column", "level", "sources", …}]}

A group that failed is not tried again before something has changed that it depends on: its source files, the schema, or this package; where no
value was at fault, an hour does, too. `maintainer index rebuild` tries at once.

The file is a note to others: whoever plans, counts coverage or diagnoses finds the reasons in it. Nothing depends on it. It is written when a
pass ends with other failures than it began with, without regard for others who write it, and whatever is wrong with it means an empty one: then
a group is tried once more.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import structlog

from maintainer import __version__
from maintainer.errors import MaintainerError, MissingFile
from maintainer.index import groups
from maintainer.index.definition import definitions
from maintainer.model.files import BucketKey
from maintainer.model.schema import TableSchema
from maintainer.model.work import Group, IndexFailure
from maintainer.table.state import TableState
from maintainer.table.store import TableStore

log = structlog.get_logger(__name__)

RETRY_AFTER = 3_600_000
"""Milliseconds after which a group is tried again that failed for want of memory or of room, or because of a file."""
VERSION = 1
MOST_BYTES = 16 << 20
MOST_GROUPS = 10_000
"""The others are tried again by the next process."""


@dataclass(frozen=True)
class FailedGroup:
    """What a group was to be built from (a fingerprint), under which schema, by which version of this package and when (epoch milliseconds),
    and what went wrong."""

    sources: str
    schema_id: int
    reason: str
    about_values: bool
    since: int
    by: str = __version__

    @classmethod
    def of(cls, failure: IndexFailure, schema: TableSchema, now: int) -> FailedGroup:
        return cls(failure.sources, schema.id, failure.reason, failure.about_values, now)

    @property
    def retry_at(self) -> int | None:
        """When to try again though nothing has changed, in epoch milliseconds; None: no time helps."""
        return None if self.about_values else self.since + RETRY_AFTER


Failed = Mapping[Group, FailedGroup]


def still_failed(failed: Failed, state: TableState | None, schema: TableSchema) -> dict[Group, FailedGroup]:
    """Those that are missing yet and depend on nothing that has changed."""
    defined = {definition.column: definition for definition in definitions(schema)} if failed else {}
    found = {}
    for group, one in failed.items():
        definition = defined.get(group.column)
        if state is None or definition is None or (one.schema_id, one.by) != (schema.id, __version__):
            continue
        bucket = state.bucket(group.key)
        sources = groups.sources(bucket.files).get(group.level, [])
        if sources and groups.fingerprint(sources) == one.sources and group.level not in groups.evaluate(bucket, definition).active:
            found[group] = one
    return found


def waiting(failed: Failed, now: int) -> dict[Group, FailedGroup]:
    """Those that are not tried again yet; `now` in epoch milliseconds. One that is said to have failed in the future is tried."""
    return {group: one for group, one in failed.items() if one.retry_at is None or one.since <= now < one.retry_at}


def load(store: TableStore) -> dict[Group, FailedGroup]:
    """What the last pass left; empty when that cannot be learned."""
    try:
        data = store.storage.read_start(store.index_failures_path, MOST_BYTES)
    except MissingFile:
        return {}
    except MaintainerError as error:
        log.warning("index-failures.unread", table=store.name, error=str(error))
        return {}
    try:
        return decode(data)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        log.warning("index-failures.damaged", table=store.name, error=f"{type(error).__name__}: {error}")
        return {}


def save(store: TableStore, failed: Failed) -> None:
    """Leave it for others, as far as that can be done."""
    try:
        store.storage.replace(store.index_failures_path, encode(failed))
    except MaintainerError as error:
        log.warning("index-failures.unsaved", table=store.name, error=str(error))


def encode(failed: Failed) -> bytes:
    """The content of the file."""
    entries = [
        {
            "partition": base64.b64encode(group.key.partition).decode("ascii"),
            "bucket": group.key.bucket,
            "column": group.column,
            "level": group.level,
            **asdict(failed[group]),
        }
        for group in sorted(failed)[:MOST_GROUPS]
    ]
    return json.dumps({"version": VERSION, "groups": entries}, indent=1).encode("ascii")


def decode(data: bytes) -> dict[Group, FailedGroup]:
    """What the file says; `ValueError`, `KeyError` or `TypeError` when it does not look like one."""
    document = json.loads(data)
    if document["version"] != VERSION:
        return {}
    return dict(map(_entry, document["groups"]))


def _entry(entry: Mapping[str, Any]) -> tuple[Group, FailedGroup]:
    def typed(name: str, kind: type) -> Any:
        value = entry[name]
        if type(value) is not kind:
            raise TypeError(f"{name} is {value!r}")
        return value

    key = BucketKey(base64.b64decode(typed("partition", str), validate=True), typed("bucket", int))
    group = Group(key, typed("column", str), typed("level", int))
    texts = {name: typed(name, str) for name in ("sources", "reason", "by")}
    return group, FailedGroup(schema_id=typed("schema_id", int), about_values=typed("about_values", bool), since=typed("since", int), **texts)
