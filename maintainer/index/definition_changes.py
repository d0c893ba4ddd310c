"""What became of the index definitions between two schemas, whoever changed them (spec 06 §5).

| change    | payloads that are there                                  | what a pass does                  |
| --------- | -------------------------------------------------------- | --------------------------------- |
| added     | none                                                     | builds a group for every level    |
| removed   | match no definition: Java keeps them for ever            | drops them                        |
| moved     | as removed; the column has another family or type now    | drops them, and builds new ones   |
| options   | valid as they are: a payload does not say how it was made | nothing; a rebuild applies them  |

Definitions are compared by the ids of their columns, as payloads know nothing else of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from maintainer.errors import UsageError
from maintainer.index import groups
from maintainer.index.definition import IndexDefinition, build_options, definitions
from maintainer.model.bucket import BucketState
from maintainer.model.files import IndexFileMeta
from maintainer.model.report import Entry
from maintainer.model.schema import TableSchema

ADDED, REMOVED, MOVED, OPTIONS = "added", "removed", "moved", "options"


@dataclass(frozen=True)
class DefinitionChange:
    """One definition that is not what it was; `old` and `new` are what there is of it."""

    change: str
    old: IndexDefinition | None
    new: IndexDefinition | None

    @property
    def now(self) -> IndexDefinition:
        """The definition as it is, or as it was last."""
        found = self.new or self.old
        assert found is not None
        return found

    @property
    def options(self) -> tuple[str, ...]:
        """The build options that differ."""
        old, new = ({} if one is None else build_options(one) for one in (self.old, self.new))
        return tuple(key for key in sorted(old.keys() | new.keys()) if old.get(key) != new.get(key)) if self.change == OPTIONS else ()

    @property
    def notice(self) -> DefinitionNotice:
        return DefinitionNotice(self.now.column, str(self.now.family), self.change, self.reason)

    @property
    def reason(self) -> str:
        """What happened, in words."""
        match self.change:
            case "added":
                return f"{self.now.family.columns_key} names the column now"
            case "removed":
                return f"{self.now.family.columns_key} does not name the column any more"
            case "moved":
                return f"the column was indexed as {self.old.index_type if self.old else ''}"
            case _:
                return f"other build options: {', '.join(self.options)}"


@dataclass(frozen=True)
class DefinitionNotice(Entry):
    """A changed definition, as events and plans tell of it."""

    column: str
    family: str
    change: str
    reason: str


@dataclass(frozen=True)
class DefinitionEffect(Entry):
    """What a changed definition means for the payloads of a table: `levels` is how many groups will be built, `payloads` how many are dropped,
    or stay as they are where only options changed."""

    column: str
    family: str
    change: str
    options: tuple[str, ...]
    levels: int
    payloads: int
    what: str


def definition_changes(old: TableSchema, new: TableSchema) -> tuple[DefinitionChange, ...]:
    """Those of the new schema in the order of its fields, then those that are gone. A schema whose definitions make no sense has none."""
    return tuple(_changes(_definitions(old), _definitions(new)))


def effect(change: DefinitionChange, buckets: Iterable[BucketState]) -> DefinitionEffect:
    """What the next pass does for a changed definition, and what it does not."""
    levels = payloads = 0
    for bucket in buckets:
        if change.change in (ADDED, MOVED):
            levels += sum(1 for files in groups.sources(bucket.files).values() if sum(rows for _, rows in files))
        if change.old is not None:
            payloads += sum(groups.belongs(payload, change.old) for payload in bucket.payloads)
    definition = change.now
    return DefinitionEffect(
        column=definition.column,
        family=str(definition.family),
        change=change.change,
        options=change.options,
        levels=levels,
        payloads=payloads,
        what=_what(change, levels, payloads),
    )


def why_dropped(payload: IndexFileMeta, schema: TableSchema) -> tuple[str | None, str]:
    """The column of a payload that no definition claims, as it is called now (None: it is gone), and why it is dropped."""
    assert payload.global_index is not None
    field = schema.field_by_id(payload.global_index.index_field_id)
    if field is None:
        return None, f"its column (id {payload.global_index.index_field_id}) was dropped"
    now = next((one for one in _definitions(schema).values() if one.field_id == field.id), None)
    if now is None:
        return field.name, "the column has no index definition any more"
    return field.name, f"the column is indexed as {now.index_type} now"


def _definitions(schema: TableSchema) -> dict[int, IndexDefinition]:
    try:
        return {one.field_id: one for one in definitions(schema)}
    except UsageError:
        return {}


def _changes(old: dict[int, IndexDefinition], new: dict[int, IndexDefinition]) -> Iterator[DefinitionChange]:
    for field_id, definition in new.items():
        was = old.get(field_id)
        if was is None:
            yield DefinitionChange(ADDED, None, definition)
        elif was.identity != definition.identity:
            yield DefinitionChange(MOVED, was, definition)
        elif build_options(was) != build_options(definition):
            yield DefinitionChange(OPTIONS, was, definition)
    for field_id, definition in old.items():
        if field_id not in new:
            yield DefinitionChange(REMOVED, definition, None)


def _what(change: DefinitionChange, levels: int, payloads: int) -> str:
    will_build = f"{_count(levels, 'group')} will be built by the next pass" if levels else "nothing to build yet"
    will_drop = f"{_count(payloads, 'payload')} will be dropped by it"
    match change.change:
        case "added":
            return will_build
        case "moved":
            return f"{will_build}, {will_drop}" if payloads else will_build
        case "removed":
            return f"{_count(payloads, 'payload')} will be dropped by the next pass" if payloads else "nothing to drop"
        case _:
            stays = f"{_count(payloads, 'payload')} stay{'s' * (payloads == 1)} as built" if payloads else "nothing was built yet"
            column = change.now.column
            rebuild = f"; `maintainer index TABLE rebuild --column {column} --force` applies them at once" if payloads else ""
            return f"{stays}; the options apply from the next build of each level{rebuild}"


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'s' * (number != 1)}"
