"""An opened table: its schemas and snapshots (spec 01 §4, §5.3, §6; Java `SchemaManager`, `SnapshotManager`, `TagManager`).

The latest snapshot is the hint's only if `snapshot-<hint>` exists and `snapshot-<hint+1>` does not; else it is found by listing. A hint that
lags, leads, or holds garbage costs one listing and changes nothing. A store that has found a latest snapshot before, or a hint when it was
opened, asks for that snapshot and its follower together with the hint, by the same rule: so an unchanged table costs one round trip.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeVar

import structlog

from maintainer.errors import CorruptFile, CorruptTable, MissingFile, NotATable, StorageError, Unsupported, UsageError
from maintainer.format import schema_json, snapshot_json
from maintainer.format.json_document import Document
from maintainer.format.kept import Cache
from maintainer.model.schema import TableSchema
from maintainer.model.snapshot import Snapshot
from maintainer.storage.ahead import ahead
from maintainer.storage.layout import Layout, check_file_name
from maintainer.storage.storage import Entry, OutcomeUnknown, Storage
from maintainer.table.manifests import Manifests
from maintainer.table.options import TableOptions

if TYPE_CHECKING:
    from maintainer.table.state import TableState

log = structlog.get_logger(__name__)

T = TypeVar("T")

_SCHEMA = re.compile(r"schema-([0-9]{1,18})")
_SNAPSHOT = re.compile(r"snapshot-([0-9]{1,18})")
_HINT = re.compile(rb"[0-9]{1,18}")
_MOST_OF_A_HINT = 32
"""Bytes; more than an id can have, so that what is longer is no hint."""
_MOST_OF_A_SNAPSHOT = 64 << 10
"""A snapshot file has 1 KB; larger ones cost a second request."""
_STEPS = 4
"""Snapshots behind the hint that are tried one after the other before listing is taken to be cheaper."""


class TableStore:
    """A table at a place, on a branch, with the dynamic options of this call. Safe to use from several threads."""

    def __init__(self, storage: Storage, branch: str | None = None, options: Mapping[str, str] | None = None) -> None:
        self.storage = storage
        self.branch = branch
        self.dynamic_options = dict(options or {})
        self._paths = Layout(branch=branch)  # metadata paths, known before any schema is
        self._schemas: dict[int, TableSchema] = {}
        self._newest: Entry | None = None
        self._listed: tuple[int, ...] = ()
        self._layout: Layout | None = None
        self._caches: dict[str, Cache] = {}
        self._latest: Snapshot | None = None
        self._guess: Callable[[], int | None] = lambda: None
        self._latest_state: TableState | None = None
        self._other_state: TableState | None = None
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<TableStore {self.name}>"

    def __reduce__(self) -> tuple[Any, ...]:
        """Opened again, elsewhere: nothing that is kept goes along."""
        return TableStore, (self.storage, self.branch, self.dynamic_options)

    def know(self, schema: TableSchema, schemas: Iterable[TableSchema]) -> None:
        """Take schemas from somebody who has read them: one that says where files are, and others as their files have them."""
        with self._lock:
            self._layout = self._layout or Layout.of(schema, self.branch)
            self._schemas |= {each.id: each for each in schemas}

    @property
    def uri(self) -> str:
        return self.storage.root

    @property
    def name(self) -> str:
        """How people call the table: its place, and its branch unless that is main."""
        return self.uri if self.branch is None else f"{self.uri} (branch {self.branch})"

    @property
    def schema_directory(self) -> str:
        return self._paths.schema_directory

    @property
    def layout(self) -> Layout:
        return self._layout or Layout.of(self.latest_schema(), self.branch)

    @cached_property
    def manifests(self) -> Manifests:
        return Manifests(self.storage, self._paths, lambda partition: self.layout.partition_values(partition))

    def cache(self, name: str, limit: int) -> Cache:
        """What the table keeps of files that never change, as long as it is open: at most `limit` bytes, by the first call of a name."""
        with self._lock:
            return self._caches.setdefault(name, Cache(limit))

    @property
    def states(self) -> tuple[TableState, ...]:
        """The states that are kept: of the latest snapshot that was found, or one before it, and of the last other one that was read."""
        return tuple(state for state in (self._latest_state, self._other_state) if state is not None)

    def keep(self, state: TableState) -> None:
        """Keep a state in the place of the one before it of its kind."""
        with self._lock:
            if self._latest is None or state.snapshot == self._latest:
                self._latest_state = state
            else:
                self._other_state = state

    def on_every_branch(self) -> tuple[TableStore, ...]:
        """The table as it is opened here, and then on main and all branches, which share its data, index and manifest files."""
        entries = self.storage.list("branch")
        names = [entry.name.removeprefix("branch-") for entry in entries if entry.is_directory and entry.name.startswith("branch-")]
        return (self, *(TableStore(self.storage, name) for name in (None, *names) if name != self.branch))

    # schemas

    def schema_ids(self) -> tuple[int, ...]:
        """Ids of all schema files, ascending."""
        return self._ids(self._paths.schema_directory, _SCHEMA)

    def known_schema_ids(self) -> tuple[int, ...]:
        """The same, as of when the newest schema was last looked for; without a request if it was."""
        return self._listed or self.schema_ids()

    def schema(self, schema_id: int) -> TableSchema:
        """A schema as its file has it; schema files never change, unless the table is dropped and another one made in its place."""
        known = self._schemas.get(schema_id)
        if known is None:
            path = self._paths.schema_path(schema_id)
            known = _decode(self.storage, path, schema_json.decode)
            if known.id != schema_id:
                raise CorruptTable(f"{self.storage.display(path)}: the schema inside calls itself {known.id}")
            with self._lock:
                self._schemas[schema_id] = known
        return known

    def schemas(self) -> tuple[TableSchema, ...]:
        """All schemas, oldest first."""
        return tuple(self.schema(schema_id) for schema_id in self.schema_ids())

    def latest_schema(self) -> TableSchema:
        """The newest schema, with the dynamic options merged into its own."""
        newest = self.newest_schema_id()
        if newest is None:
            raise NotATable(f"{self.name}: not a Paimon table: there is no {self._paths.schema_directory}/schema-<id>")
        schema = self._with_options(self.schema(newest))
        if self._layout is None:
            self._layout = Layout.of(schema, self.branch)
        return schema

    def newest_schema_id(self) -> int | None:
        """The id of the newest schema, None where there is no table; what is known of schemas is forgotten when it is another table."""
        entries = self._numbered(self._paths.schema_directory, _SCHEMA)
        if not entries:
            return None
        newest = max(entries)
        with self._lock:
            self._listed = tuple(sorted(entries))
            if self._newest != entries[newest]:
                self._newest, self._schemas, self._layout = entries[newest], {}, None
        return newest

    def last_known_schema(self) -> TableSchema | None:
        """The newest schema when it was last looked for, without a request; None when it was not, or was not read."""
        known = self._schemas.get(self._listed[-1]) if self._listed else None
        return None if known is None else self._with_options(known)

    def schema_of(self, snapshot: Snapshot) -> TableSchema:
        """The schema of a snapshot (what time travel reads with), with the dynamic options merged into its own."""
        return self._with_options(self.schema(snapshot.schema_id))

    def options(self, schema: TableSchema | None = None) -> TableOptions:
        """The options of a schema (the latest one), those of this call above them."""
        return TableOptions.of(schema or self.latest_schema(), self.dynamic_options)

    def own_schema(self) -> TableSchema:
        """The newest schema as its file has it, without the dynamic options."""
        return self.schema(self.latest_schema().id)

    def publish_schema(self, schema: TableSchema) -> bool:
        """Write the file of a schema; False when there is one of this id already, which is somebody else's."""
        single = self.options(schema).single_writer
        if not single:
            self.storage.prove_exclusive_create()
        path, data = self._paths.schema_path(schema.id), schema_json.encode(schema)
        try:
            created = self.storage.create_if_absent(path, data, exclusive=not single)
        except OutcomeUnknown:
            created = False
        # An answer that was lost makes our own schema look like somebody else's; one of the same bytes is as good as ours.
        return created or self.storage.read(path) == data

    def _with_options(self, schema: TableSchema) -> TableSchema:
        if not self.dynamic_options:
            return schema
        return replace(schema, options={**schema.options, **self.dynamic_options})

    # snapshots

    def snapshot_ids(self) -> tuple[int, ...]:
        """Ids of the snapshot files, ascending; there may be gaps after a crash."""
        return self._ids(self._paths.snapshot_directory, _SNAPSHOT)

    def snapshot(self, snapshot_id: int) -> Snapshot:
        """A snapshot; `UsageError` with the ids there are when it does not exist (any more)."""
        snapshot = self.find_snapshot(snapshot_id)
        if snapshot is None:
            ids = self.snapshot_ids()
            there = f"there are {ids[0]} to {ids[-1]}" if ids else "the table has no snapshot"
            raise UsageError(f"{self.name}: there is no snapshot {snapshot_id}; {there}")
        return snapshot

    def find_snapshot(self, snapshot_id: int) -> Snapshot | None:
        """A snapshot, or None when there is no file for it."""
        path = self._paths.snapshot_path(snapshot_id)
        try:
            return self._checked_snapshot(path, snapshot_id)
        except MissingFile:
            return None

    def _checked_snapshot(self, path: str, snapshot_id: int, data: bytes | None = None) -> Snapshot:
        snapshot = _decode(self.storage, path, snapshot_json.decode, data)
        if snapshot.id != snapshot_id:
            raise CorruptTable(f"{self.storage.display(path)}: the snapshot inside calls itself {snapshot.id}")
        return snapshot

    def next_snapshot(self, after: int) -> Snapshot | None:
        """The snapshot that follows this one, or None: one ranged GET, which is all that watching an idle table costs."""
        path = self._paths.snapshot_path(after + 1)
        try:
            start = self.storage.read_start(path, _MOST_OF_A_SNAPSHOT)
        except MissingFile:
            return None
        return self._checked_snapshot(path, after + 1, start if len(start) < _MOST_OF_A_SNAPSHOT else None)

    def latest_snapshot_id(self) -> int | None:
        latest = self.latest_snapshot()
        return None if latest is None else latest.id

    def latest_snapshot(self) -> Snapshot | None:
        """The newest snapshot, or None for a table without any."""
        self._latest = latest = self._find_latest()
        return latest

    def guess_latest(self) -> None:
        """Begins to read the hint, so that the first search has a place to begin with, where that saves a round trip."""
        if self.storage.remote:
            self._guess = ahead(self.storage, partial(self.hint, "LATEST"))

    def look_from(self, snapshot: Snapshot) -> None:
        """This one has just become the latest: the next search begins there."""
        self._latest = snapshot

    def _find_latest(self) -> Snapshot | None:
        found = self._from_hint(self._guess() or None if self._latest is None else self._latest.id)
        if found is not None:
            return found
        for _ in range(3):  # between finding and reading, a rollback may take it away
            ids = self.snapshot_ids()
            if not ids:
                return None
            latest = ids[-1]
            snapshot = self.find_snapshot(latest)
            if snapshot is not None:
                return snapshot
        raise CorruptTable(f"{self.name}: snapshot {latest} is listed but cannot be read")

    def _from_hint(self, known: int | None) -> Snapshot | None:
        """The newest snapshot if the hint, or what was the newest one before, leads to it: three requests, or a few more where it lags."""
        begun = None if known is None else self._pair(known)
        hint = self.hint("LATEST")
        if not hint:
            return None
        if known is not None and begun is not None and hint <= known + 1 and begun[0]() is not None:
            first, (current, following) = known, begun
        else:
            first, (current, following) = hint, self._pair(hint)
        found = following()
        if found is None:
            return current()
        for after in range(first + 1, first + _STEPS):
            further = self.next_snapshot(after)
            if further is None:
                return found
            found = further
        return None

    def _pair(self, snapshot_id: int) -> tuple[Callable[[], Snapshot | None], Callable[[], Snapshot | None]]:
        """A snapshot and the one after it, asked for at the same time."""
        return ahead(self.storage, partial(self.find_snapshot, snapshot_id)), ahead(self.storage, partial(self.next_snapshot, snapshot_id))

    def snapshot_as_of(self, millis: int) -> Snapshot | None:
        """The newest snapshot that was committed at this time (epoch milliseconds) or before it."""
        ids: Sequence[int] = self.snapshot_ids()
        found: Snapshot | None = None
        low, high = 0, len(ids)
        while low < high:
            middle = (low + high) // 2
            snapshot = self.find_snapshot(ids[middle])
            if snapshot is None or snapshot.time_millis <= millis:  # expired in between: it is old
                found = snapshot or found
                low = middle + 1
            else:
                high = middle
        return found

    def snapshot_path(self, snapshot_id: int) -> str:
        return self._paths.snapshot_path(snapshot_id)

    def hint_path(self, hint: str) -> str:
        """LATEST or EARLIEST."""
        return self._paths.hint_path(hint)

    # tags

    def tag_names(self) -> tuple[str, ...]:
        entries = self.storage.list(self._paths.tag_directory)
        return tuple(entry.name[len("tag-") :] for entry in entries if entry.name.startswith("tag-") and not entry.is_directory)

    def tag(self, name: str) -> Snapshot:
        """The snapshot that a tag keeps; it may have expired."""
        try:
            check_file_name(name)
        except CorruptFile as error:
            raise UsageError(f"{self.name}: {error.reason}") from None
        tag = self.find_tag(name)
        if tag is None:
            names = ", ".join(self.tag_names()) or "none"
            raise UsageError(f"{self.name}: there is no tag {name!r}; the tags are: {names}")
        return tag

    def find_tag(self, name: str) -> Snapshot | None:
        """The snapshot that a tag keeps, or None when there is no such tag."""
        try:
            return _decode(self.storage, self._paths.tag_path(name), snapshot_json.decode_tag)
        except MissingFile:
            return None

    # consumers and changelogs

    @property
    def consumer_directory(self) -> str:
        return self._paths.consumer_directory

    @property
    def changelog_directory(self) -> str:
        return self._paths.changelog_directory

    @property
    def index_failures_path(self) -> str:
        return self._paths.index_failures_path

    def consumers(self) -> list[Entry]:
        """The files `consumer-<id>` of streaming reads that keep snapshots for themselves."""
        entries = self.storage.list(self._paths.consumer_directory)
        return [entry for entry in entries if entry.name.startswith("consumer-") and not entry.is_directory]

    def find_next_snapshot_of(self, consumer: Entry) -> int | None:
        """The snapshot that a consumer reads next, or None when the consumer is gone."""
        try:
            return _decode(self.storage, f"{self.consumer_directory}/{consumer.name}", _next_snapshot)
        except MissingFile:
            return None

    def hint(self, hint: str) -> int | None:
        """What the hint says, None when it says nothing; it may be wrong."""
        try:
            text = self.storage.read_start(self._paths.hint_path(hint), _MOST_OF_A_HINT)
        except (MissingFile, StorageError):  # if the store is at fault, listing will say so
            return None
        return int(text) if _HINT.fullmatch(text) else None

    def delete_abandoned(self, paths: Iterable[str]) -> list[str]:
        """Delete what an attempt made and has no use for any more, as far as that can be done: the rest is orphaned. What was deleted."""
        deleted = []
        for path in paths:
            try:
                self.storage.delete(path)
            except StorageError as error:
                log.warning("attempt.leftover", table=self.name, path=path, error=str(error))
            else:
                deleted.append(path)
        return deleted

    def _ids(self, directory: str, pattern: re.Pattern[str]) -> tuple[int, ...]:
        return tuple(sorted(self._numbered(directory, pattern)))

    def _numbered(self, directory: str, pattern: re.Pattern[str]) -> dict[int, Entry]:
        entries = (entry for entry in self.storage.list(directory) if not entry.is_directory)
        return {int(match[1]): entry for entry in entries if (match := pattern.fullmatch(entry.name))}


def _decode(storage: Storage, path: str, decode: Callable[[bytes], T], data: bytes | None = None) -> T:
    data = storage.read(path) if data is None else data
    try:
        return decode(data)
    except CorruptFile as error:
        raise error.at(storage.display(path)) from None
    except Unsupported as error:
        raise Unsupported(f"{storage.display(path)}: {error}") from None


def _next_snapshot(data: bytes) -> int:
    return Document(data, "consumer").take("nextSnapshot", int)
