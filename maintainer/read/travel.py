"""The snapshot that a table's own options choose for a batch read (spec 07 §1; Java `AbstractDataTableScan`, `TimeTravelUtil`).

| scan.mode                                                      | reads                                                               |
| -------------------------------------------------------------- | ------------------------------------------------------------------- |
| default                                                        | what an option below chooses, else the latest snapshot              |
| latest-full, full, latest                                      | the latest snapshot                                                 |
| compacted-full                                                 | the newest COMPACT snapshot, the latest one when there is none      |
| from-snapshot, from-snapshot-full, from-timestamp              | what an option below chooses                                        |

The options: `scan.snapshot-id`, `scan.tag-name`, `scan.timestamp-millis`, `scan.timestamp`, `scan.version` (a tag, or else a snapshot id);
at most one may be set, and what it names is read with the schema of that snapshot. A choice of the call goes before all of them. Other modes
and options are refused (`maintainer.table.support`).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable

from maintainer.data.values import timestamp_text
from maintainer.errors import UsageError
from maintainer.model.schema import TableSchema
from maintainer.model.snapshot import CommitKind, Snapshot
from maintainer.model.types import DataType, TypeRoot
from maintainer.read.literals import place
from maintainer.storage.ahead import ahead
from maintainer.table.options import TableOptions
from maintainer.table.store import TableStore
from maintainer.table.support import check_readable, naming

_KEYS = ("scan.snapshot-id", "scan.tag-name", "scan.timestamp-millis", "scan.timestamp", "scan.version")
_LATEST = frozenset({"latest-full", "full", "latest"})
_ANY_IDENTIFIER = 2**63 - 1


def chosen(store: TableStore) -> tuple[Snapshot | None, TableSchema]:
    """The snapshot to read when the call does not choose one, and the schema to read it with."""
    latest = _latest_ahead(store)
    schema = store.latest_schema()
    with naming(store.name):
        check_readable(schema)
    options = store.options(schema)
    mode = options.text("scan.mode").lower() or "default"
    keys = [key for key in _KEYS if options.text(key)]
    if len(keys) > 1 or (keys and (mode in _LATEST or mode == "compacted-full")):
        rivals = ", ".join([*(["scan.mode"] if mode != "default" else []), *keys])
        raise UsageError(f"{store.name}: only one of the table's options can choose the snapshot: {rivals}")
    if keys:
        snapshot = _travelled(store, keys[0], options)
        return snapshot, store.schema_of(snapshot)
    if mode == "compacted-full":
        return _compacted(store, options), schema
    if mode in _LATEST or mode == "default":
        return latest(), schema
    raise UsageError(f"{store.name}: option scan.mode = {mode} needs one of {', '.join(_KEYS)}")


def chosen_schema(store: TableStore) -> TableSchema:
    """The schema of `chosen`, without looking for a snapshot that does not matter."""
    schema = store.latest_schema()
    options = store.options(schema)
    return chosen(store)[1] if any(options.text(key) for key in ("scan.mode", *_KEYS)) else schema


def _latest_ahead(store: TableStore) -> Callable[[], Snapshot | None]:
    """The latest snapshot, found while the schema is looked for, unless the last known one chooses another."""
    known = store.last_known_schema()
    if known is None or any(store.options(known).text(key) for key in ("scan.mode", *_KEYS)):
        return store.latest_snapshot
    return ahead(store.storage, store.latest_snapshot)


def at_time(store: TableStore, moment: int | str | dt.datetime) -> Snapshot:
    """The newest snapshot that is not younger than a time: epoch milliseconds, or a time or text (of the session time zone)."""
    found = store.snapshot_as_of(_millis(moment, store.options().time_zone))
    if found is None:
        raise UsageError(f"{store.name}: there is no snapshot as old as {_shown(moment)}; {_oldest(store)}")
    return found


def _shown(moment: int | str | dt.datetime) -> str:
    """A time as it was given; milliseconds also as what they are, since seconds are easily taken for them."""
    text = str(moment).strip()
    return f"{text} ({_clock(int(text))})" if text.lstrip("-").isdecimal() else text


def _oldest(store: TableStore) -> str:
    ids = store.snapshot_ids()
    oldest = store.find_snapshot(ids[0]) if ids else None
    return "the table has no snapshot" if oldest is None else f"the oldest is {oldest.id}, of {_clock(oldest.time_millis)}"


def _clock(millis: int) -> str:
    return f"{timestamp_text(millis * 1_000_000).replace('T', ' ')[:-6]} UTC"


def _travelled(store: TableStore, key: str, options: TableOptions) -> Snapshot:
    text = options.text(key)
    match key:
        case "scan.snapshot-id":
            return store.snapshot(options.integer(key, 0))
        case "scan.tag-name":
            return store.tag(text)
        case "scan.timestamp-millis":
            return at_time(store, options.integer(key, 0))
        case "scan.timestamp":
            return at_time(store, text)
        case _:
            if text in store.tag_names():
                return store.tag(text)
            if not text.isdecimal():
                raise UsageError(f"{store.name}: option {key} = {text!r}: there is no such tag, and it is not the id of a snapshot")
            return store.snapshot(int(text))


def _compacted(store: TableStore, options: TableOptions) -> Snapshot | None:
    """Java looks for full compactions where the table makes them every so many commits."""
    every = 1
    if "full-compaction.delta-commits" in options:
        every = max(1, options.integer("full-compaction.delta-commits", 1))
    latest = store.latest_snapshot()
    for snapshot_id in reversed(store.snapshot_ids()):
        snapshot = store.find_snapshot(snapshot_id)
        if snapshot is None or snapshot.commit_kind is not CommitKind.COMPACT:
            continue
        if snapshot.commit_identifier % every == 0 or snapshot.commit_identifier == _ANY_IDENTIFIER:
            return snapshot
    return latest


def _millis(moment: int | str | dt.datetime, time_zone: str) -> int:
    """Epoch milliseconds; text and times without a zone are of the session time zone."""
    if isinstance(moment, str) and moment.strip().isdecimal():
        return int(moment)
    if isinstance(moment, int) and not isinstance(moment, bool):
        return moment
    if not isinstance(moment, str | dt.date) and type(moment).__module__.split(".")[0] == "builtins":
        raise UsageError(f"a time is wanted, a text like '2024-01-31 23:59:59', or whole milliseconds since 1970, not {moment!r}")
    nanos = place(moment, DataType(TypeRoot.TIMESTAMP_LTZ, precision=9), "as of", time_zone).value
    if nanos is None:
        raise UsageError(f"{moment!r} is too far away")
    return int(nanos // 1_000_000)
