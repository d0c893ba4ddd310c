"""Is this table fit for us, and what should be set (DESIGN §5 "doctor")?

A diagnosis is wanted most where something is broken. So each question is asked on its own: one that cannot be answered, for a file cannot be
read, is a finding and not an end. What the findings are about is in three modules: the table's options here, what its files look like in
`maintainer.inspect.condition`, and who else has to do with it in `maintainer.inspect.surroundings`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from maintainer.errors import MaintainerError, StorageError, Unsupported, UsageError
from maintainer.index import definition
from maintainer.index.validation import validate
from maintainer.inspect import condition, index_definitions, surroundings
from maintainer.inspect.diagnosis import ERROR, INFO, WARNING, Diagnosis, Finding
from maintainer.model.schema import TableSchema
from maintainer.model.snapshot import Snapshot
from maintainer.table.options import TableOptions
from maintainer.table.state import TableState, load_latest
from maintainer.table.store import TableStore
from maintainer.table.support import check_live_files, findings

T = TypeVar("T")

SHORTEST_RETENTION = 600.0
"""Seconds; readers of a snapshot that is gone earlier than this may fail in the middle."""

_REPAIR = "`maintainer verify` lists all that is broken; restore the file from a backup, or roll back to a snapshot that is whole"


def diagnose(store: TableStore) -> Diagnosis:
    """Everything that is worth saying about the table."""
    return _Doctor(store).diagnosis()


class _Doctor:
    def __init__(self, store: TableStore) -> None:
        self._store = store
        self._found: list[Finding] = []

    def diagnosis(self) -> Diagnosis:
        store = self._store
        schema = store.latest_schema()
        options = store.options(schema)
        self._add("options", lambda: _unreadable_options(options))
        snapshot = self._ask("the latest snapshot", store.latest_snapshot)
        state = None if snapshot is None else self._ask("the latest snapshot's files", lambda: load_latest(store))
        schemas = [] if state is None else self._ask("the schemas of the data files", lambda: _schemas(store, state)) or []
        self._add("the kind of the table", lambda: _refusals(schema, schemas))
        if state is not None:
            self._add("data files", lambda: _unread_files(state))
        is_defined = self._try_definitions(schema)
        self._add("options", lambda: _of_options(schema, options, is_defined))
        if is_defined is not None:
            self._add("index definitions", lambda: index_definitions.of_definitions(store, schema, state))
        if snapshot is None and not self._found_error("the latest snapshot"):
            self._found.append(Finding(INFO, "no snapshot", "nothing was written yet", "write, then run a pass"))
        self._add("changelog", lambda: _of_changelogs(store, options))
        if state is not None:
            self._add("deletion vectors", lambda: condition.of_levels(store, schema, schemas, state))
        if state is not None and is_defined is not None:
            self._add("coverage", lambda: condition.of_files(store, state))
        recent: list[Snapshot] = self._ask("the recent snapshots", lambda: surroundings.recent_snapshots(store)) or []
        self._add("other writers", lambda: surroundings.writers(store, options, recent))
        self._add("retention", lambda: surroundings.retention(store, options, state, recent))
        self._add("tags and consumers", lambda: surroundings.holders(store, options))
        self._add("store", lambda: surroundings.publishing(store, options))
        self._add("leftovers", lambda: surroundings.leftovers(store, recent))
        return Diagnosis.of(store.name, self._found)

    def _try_definitions(self, schema: TableSchema) -> bool | None:
        """Whether there are index definitions; None when they are wrong."""
        try:
            validate(schema)
            return bool(definition.definitions(schema))
        except MaintainerError as error:
            self._found.append(Finding(ERROR, "index definitions", str(error), "correct the option in the table"))
            return None

    def _found_error(self, what: str) -> bool:
        return any(finding.what == what for finding in self._found)

    def _ask(self, what: str, question: Callable[[], T | None]) -> T | None:
        """The answer, or None and a finding about why there is none."""
        try:
            return question()
        except StorageError as error:
            self._found.append(Finding(WARNING, what, f"the store does not give it: {error}", "look at the store and at its access rights"))
        except Unsupported as error:
            self._found.append(Finding(ERROR, what, str(error), "maintain the table with the engine that writes it"))
        except UsageError as error:
            self._found.append(Finding(ERROR, what, str(error), "correct the option in the table"))
        except MaintainerError as error:
            self._found.append(Finding(ERROR, what, str(error), _REPAIR))
        return None

    def _add(self, what: str, question: Callable[[], Iterable[Finding]]) -> None:
        self._found += self._ask(what, lambda: list(question())) or []


def _schemas(store: TableStore, state: TableState | None) -> list[TableSchema]:
    return [] if state is None else [store.schema(schema_id) for schema_id in sorted(state.schema_ids)]


def _refusals(schema: TableSchema, schemas: list[TableSchema]) -> Iterator[Finding]:
    for finding in findings(schema, schemas):
        if finding.maintaining:
            yield Finding(ERROR, finding.what, finding.why, _remedy(finding.what))
        elif finding.reading:
            option = finding.what.split(" = ")[0]
            yield Finding(WARNING, finding.what, f"this table cannot be read here: {finding.why}", f"read with --option {option}=")


def _remedy(what: str) -> str:
    engine = "maintain the table with the engine that writes it"
    return f"change {what.split(' = ')[0]}, or {engine}" if " = " in what else engine


def _unread_files(state: TableState) -> Iterator[Finding]:
    try:
        check_live_files(state.files())
    except Unsupported as error:
        yield Finding(ERROR, "data files", str(error), _remedy("data files"))


def _unreadable_options(options: TableOptions) -> Iterator[Finding]:
    """Values that cannot be understood, all of them."""
    for error in options.mistakes():
        yield Finding(ERROR, str(error).split(" = ")[0], str(error), "correct the option in the table")


def _of_options(schema: TableSchema, options: TableOptions, is_defined: bool | None) -> Iterator[Finding]:
    if not options.write_only:
        remedy = "set write-only = true in the table, or for every writer job"
        why = "writers compact and expire on their own, beside us: both sides do the work, and commits conflict"
        yield Finding(WARNING, "write-only = false", why, remedy)
        if is_defined:
            why = "when they compact, Java Paimon 1.x fails on index groups, or carries them over although their files are gone"
            yield Finding(WARNING, "writers of Java Paimon 1.x", why, remedy)
    if options.lookup_compact_gentle and options.needs_lookup:
        yield Finding(
            INFO,
            "lookup-compact = gentle",
            f"the daemon leaves new files in level 0 until it has found new ones {options.lookup_compact_max_interval} times in a bucket, or "
            "there are too many of them" + ("; batch readers do not see their rows before that" if options.hides_level_0 else ""),
            "set lookup-compact = radical where this is too late; `maintainer once` does not wait",
        )
    if options.bitmap64:
        yield Finding(
            WARNING,
            "deletion-vectors.bitmap64 = true",
            "pypaimon 2.1 cannot read 64-bit deletion vectors and fails; Java and pypaimon-rust can",
            "read the table with those, or leave the option unset in tables that pypaimon reads",
        )
    if options.snapshot_time_retained < SHORTEST_RETENTION:
        yield Finding(
            WARNING,
            f"snapshot.time-retained = {options['snapshot.time-retained']}",
            "a query or compaction that takes longer loses the files that it reads",
            "keep snapshots for at least ten minutes",
        )
    if is_defined is False and schema.primary_keys and options.deletion_vectors_enabled:
        yield Finding(
            INFO,
            "no index",
            "the table defines no primary-key index",
            "name columns in one of pk-*.index.columns; docs/indexes.md says which index answers what",
        )
    if is_defined and not options.boolean("global-index.enabled", True):
        yield Finding(
            WARNING,
            f"global-index.enabled = {options['global-index.enabled']}",
            "queries do not use the indexes, which are built all the same",
            "unset the option, or the index definitions",
        )


def _of_changelogs(store: TableStore, options: TableOptions) -> Iterator[Finding]:
    """Who writes the changelog, when, and for how long it is there."""
    producer = options.changelog_producer
    if producer == "none":
        return
    if producer == "full-compaction":
        commits = options.full_compaction_delta_commits
        yield Finding(
            INFO,
            "changelog-producer = full-compaction",
            "only compactions into the highest level write the changelog; the daemon compacts a bucket in full "
            + ("each time it finds new files in it" if commits == 1 else f"when it has found new files in it {commits} times"),
            "set full-compaction.delta-commits to how seldom that may be"
            if commits == 1
            else f"maintainer once {store.uri}, which does not wait for so many, or a smaller full-compaction.delta-commits",
        )
    elif producer == "lookup":
        why = "compactions of level 0 write the changelog: a change is told of when its file is compacted"
        yield Finding(INFO, "changelog-producer = lookup", why, "run the daemon on the table")
    latest, _, kept = options.changelog_retained
    if options.consumer_expiration_time is None and latest is None and kept is None:
        why = "changelogs go with their snapshots, and a streaming reader that is behind by more than snapshot.time-retained loses changes"
        yield Finding(INFO, "changelog retention", why, "give streaming jobs a consumer-id, which keeps what they have not read")
