"""Changing a table's schema: the next schema file, published so that of two at once one wins and the other starts again (Java `SchemaManager`).

    latest schema ──▶ changed ──▶ judged as a new table is ──▶ schema-<n+1>, create if absent ──▶ what it means for the indexes
          ▲                                                             │
          └────────────────────── there is one already ◀────────────────┘

A table of a kind that is not maintained may get other options, but none that make it worse, and no other columns: what its files would need for
that is not known here. Changes that change nothing make no schema.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import structlog

from maintainer.api.create import validate
from maintainer.errors import CommitConflict, MissingFile, Unsupported, UsageError
from maintainer.index import groups, validation
from maintainer.index.definition import definitions
from maintainer.index.definition_changes import ADDED, MOVED, DefinitionEffect, definition_changes, effect
from maintainer.index.usable import why_unusable
from maintainer.model.report import Report
from maintainer.model.schema import TableSchema
from maintainer.model.schema_change import RemoveOption, SchemaChange, SetComment, SetNullable, SetOption
from maintainer.table.schema_change import changed_schema
from maintainer.table.state import TableState, load_latest
from maintainer.table.store import TableStore
from maintainer.table.support import Finding, findings

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Alteration(Report):
    """What an alter did. `schema_id` is the schema that holds now, which is `previous_schema_id` when nothing changed; `notes` is what else the
    changes ask for."""

    schema_id: int
    previous_schema_id: int
    indexes: tuple[DefinitionEffect, ...]
    notes: tuple[str, ...]


def alter(store: TableStore, changes: Sequence[SchemaChange]) -> Alteration:
    """Change the schema. `UsageError` and `Unsupported` say why it cannot be changed like that, `CommitConflict` that others were faster."""
    if not changes:
        raise UsageError(f"{store.name}: say what is to be changed")
    attempts = store.options().commit_max_retries + 1
    for attempt in range(attempts):
        old = store.own_schema()
        has_snapshots = store.latest_snapshot() is not None
        new = changed_schema(old, changes, has_snapshots=has_snapshots)
        if replace(new, id=old.id, version=old.version) == old:
            return Alteration(store.name, old.id, old.id, (), ("nothing changed: the schema says so already",))
        before = _refused(store, old, None)
        state = load_latest(store, schema=old) if has_snapshots and not before else None
        _judge(store, new, changes, state, before)
        retyped = {} if state is None else _retyped(store, old, new, state)
        new = replace(new, time_millis=int(time.time() * 1000))
        if _published(store, new):
            log.info("schema.altered", table=store.name, schema=new.id, changes=[str(change) for change in changes])
            buckets = () if state is None else tuple(state.buckets.values())
            effects = tuple(effect(change, buckets) for change in definition_changes(old, new))
            notes = *_notes(old, new, changes, state), *retyped.values()
            return Alteration(store.name, new.id, old.id, effects, notes)
        time.sleep(min(1.0, 0.02 * 2**attempt) * random.random())
    raise CommitConflict(f"{store.name}: {attempts} times somebody else published a schema first; run it again")


def _published(store: TableStore, schema: TableSchema) -> bool:
    try:
        return store.publish_schema(schema)
    except MissingFile:  # the store did not answer, and did nothing
        return False


def _judge(store: TableStore, new: TableSchema, changes: Sequence[SchemaChange], state: TableState | None, before: Sequence[Finding]) -> None:
    """Raises unless a table may have the new schema; `before` is why the table is not maintained as it is."""
    if before and not all(isinstance(change, SetOption | RemoveOption | SetComment) for change in changes):
        raise Unsupported(f"{store.name}: columns cannot be changed here, as this table cannot be maintained: {_told(before)}")
    validation.validate(new)
    worse = [finding for finding in _refused(store, new, state) if finding not in before]
    if worse:
        raise Unsupported(f"{store.name}: the table could not be maintained any more: {_told(worse)}")
    if not before:
        validate(new)


def _retyped(store: TableStore, old: TableSchema, new: TableSchema, state: TableState) -> dict[str, str]:
    """New definitions on columns whose type was changed while there was data, each with what that means. Payloads of a former definition would
    be taken for theirs, with keys of another type in them."""
    added = [change.new for change in definition_changes(old, new) if change.new is not None and change.change in (ADDED, MOVED)]
    schemas = state.schemas_since(store) if added else ()
    found = {one.column: why for one in added if (why := why_unusable(one, schemas)) is not None}
    payloads = [payload for bucket in state.buckets.values() for payload in bucket.payloads]
    for one in added:
        if one.column in found and any(groups.belongs(payload, one) for payload in payloads):
            raise UsageError(
                f"{one.family.columns_key}: the type of column {one.column} was changed, and payloads of the index that it had before are "
                "still there. Run `maintainer once TABLE`, which drops them, and then this again."
            )
    return {column: f"column {column}: queries use its index once no file is older than its type, as {why}" for column, why in found.items()}


def _refused(store: TableStore, schema: TableSchema, state: TableState | None) -> list[Finding]:
    schemas = [] if state is None else [store.schema(schema_id) for schema_id in sorted(state.schema_ids)]
    return [finding for finding in findings(schema, schemas) if finding.maintaining]


def _told(found: Sequence[Finding]) -> str:
    return "; ".join(map(str, found))


def _notes(old: TableSchema, new: TableSchema, changes: Sequence[SchemaChange], state: TableState | None) -> Iterator[str]:
    for change in changes:
        if isinstance(change, RemoveOption) and change.key not in old.options:
            yield f"option {change.key} was not set"
        if isinstance(change, SetNullable) and not change.nullable and state is not None:
            yield f"column {'.'.join(change.path)}: rows that have NULL there were not looked for"
    if state is None:
        return
    former = {one.column: one.family for one in definitions(old)}
    for one in definitions(new):
        if former.get(one.column) is one.family and (why := why_unusable(one, [old])) is not None:
            yield f"column {one.column}: queries do not use its index from now on, as {why}"
    if old.options.get("bucket") != new.options.get("bucket"):
        yield "partitions that hold data take no rows until an engine has written them anew (INSERT OVERWRITE); new ones get the new number"
    if _vectors(old) != _vectors(new):
        yield "run `maintainer compact TABLE --full` now: until then, files of before are merged by readers, or their rows are seen twice"


def _vectors(schema: TableSchema) -> str:
    return schema.options.get("deletion-vectors.enabled", "false").strip().lower()
