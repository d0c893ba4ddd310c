"""Changes of a table's schema: a schema and changes give the next schema (spec 01 §4.3, 06 §5; Java `SchemaManager`).

Pure, and Java's rules in Java's order: changes of options ask what was there before all of the changes, those of columns what the ones before
left. Columns keep their ids for ever; new ones, and the members of new ROWs, get ids above the highest that was ever given.

Options that name a renamed column are renamed with it. Java does so for some and refuses the others; we do it for all that name columns.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from maintainer.errors import UsageError
from maintainer.format.data_type import assign_ids
from maintainer.model.casting import castable, widens
from maintainer.model.schema import TableSchema
from maintainer.model.schema_change import (
    AddColumn,
    AlterType,
    DropColumn,
    MoveColumn,
    Path,
    Position,
    RemoveOption,
    RenameColumn,
    SchemaChange,
    SetColumnComment,
    SetComment,
    SetDefault,
    SetNullable,
    SetOption,
)
from maintainer.model.types import DataField, DataType, TypeRoot
from maintainer.table import column_path
from maintainer.table.options import TableOptions

IMMUTABLE = frozenset({
    "bucket-key", "bucket-function.type", "data-file.path-directory", "merge-engine", "sequence.snapshot-ordering",
    "aggregation.remove-record-on-delete", "partial-update.remove-record-on-delete", "partial-update.remove-record-on-sequence-group",
    "rowkind.field", "primary-key", "primary-key.nullable", "partition", "dynamic-bucket.initial-buckets", "force-lookup",
    "row-tracking.enabled", "data-evolution.enabled", "index-file-in-data-file-dir", "blob-field", "blob-descriptor-field", "blob-view-field",
    "pk-clustering-override",
})  # fmt: skip
"""What cannot be changed once there is data (Java `CoreOptions.IMMUTABLE_OPTIONS`)."""

_VECTORS, _MODIFIABLE = "deletion-vectors.enabled", "deletion-vectors.modifiable"
_ONE_WAY = ("ignore-delete", "ignore-update-before")
_CLUSTERING, _OVERRIDE = "clustering.columns", "pk-clustering-override"
_NOT_NULL_GUARD = "alter-column-null-to-not-null.disabled"
_INDEX_COLUMNS = re.compile(r"pk-.+\.index\.columns")
_NAMES_COLUMNS = (
    "bucket-key",
    "sequence.field",
    "rowkind.field",
    "record-level.time-field",
    "partial-update.remove-record-on-sequence-group",
    "changelog-producer.row-deduplicate-ignore-fields",
)
"""Options whose values are columns."""
_FIELDS, _DEFAULTS, _GROUP = "fields.", "fields.default-aggregate-function", "sequence-group"
_DIRECTIVES = ("__BLOB", "__VECTOR")


def changed_schema(schema: TableSchema, changes: Sequence[SchemaChange], *, has_snapshots: bool) -> TableSchema:
    """The next schema, for what may be done to a table by Java's rules; `UsageError` says what may not, and what to do instead.

    Whether the schema is one that a table can have is for others to judge. Its time is left as it was.
    """
    evolution = _Evolution(schema, has_snapshots)
    for change in changes:
        evolution.apply(change)
    return evolution.schema()


def option_references(options: Mapping[str, str], column: str) -> list[str]:
    """The options that name a column, those of an index list included."""
    found = []
    for key, value in sorted(options.items()):
        names = _names(value) if key in _NAMES_COLUMNS or _INDEX_COLUMNS.fullmatch(key) or key.endswith(f".{_GROUP}") else ()
        if column in names or column in _owners(key):
            found.append(key)
    return found


def indexed_columns(schema: TableSchema) -> dict[str, str]:
    """The columns that own a primary-key index, each with the option that lists it."""
    return {name: key for key, value in schema.options.items() if _INDEX_COLUMNS.fullmatch(key) for name in _names(value)}


class _Evolution:
    """A schema on its way from the old one to the next; `apply` is called for one change after the other."""

    def __init__(self, old: TableSchema, has_snapshots: bool) -> None:
        self.old = old
        self.has_snapshots = has_snapshots
        self.fields = old.fields
        self.options = dict(old.options)
        self.primary_keys = old.primary_keys
        self.partition_keys = old.partition_keys
        self.comment = old.comment
        self.highest = old.highest_field_id
        self._indexed = indexed_columns(old)
        self._old = TableOptions(old.options)

    def schema(self) -> TableSchema:
        for option, name in (("primary-key", "primary_keys"), ("partition", "partition_keys")):
            listed = self.options.pop(option, None)
            if listed is not None:
                if getattr(self, name):
                    raise UsageError(f"option {option}: the table has these keys already, and they cannot be changed; unset the option")
                setattr(self, name, _names(listed))
        nullable = TableOptions(self.options).boolean("primary-key.nullable", False)
        fields = (
            replace(field, type=field.type.with_nullable(nullable)) if field.name in self.primary_keys else field for field in self.fields
        )
        return replace(
            self.old,
            id=self.old.id + 1,
            fields=tuple(fields),
            highest_field_id=self.highest,
            partition_keys=self.partition_keys,
            primary_keys=self.primary_keys,
            options=self.options,
            comment=self.comment,
            version=max(self.old.version, 3),
        )

    def apply(self, change: SchemaChange) -> None:
        match change:
            case SetOption():
                self._set(change.key, change.value)
            case RemoveOption():
                self._remove(change.key)
            case SetComment():
                self.comment = change.comment
            case AddColumn():
                self._add(change)
            case RenameColumn():
                self._rename(change.path, change.name)
            case DropColumn():
                self._drop(change.path)
            case AlterType():
                self._alter_type(change.path, change.type)
            case SetNullable():
                self._set_nullable(change.path, change.nullable)
            case SetColumnComment():
                _check_comment(change.comment)
                self._edit(change.path, lambda field: replace(field, description=change.comment))
            case SetDefault():
                self._edit((change.name,), lambda field: replace(field, default_value=change.default))
            case MoveColumn():
                self._move(change.name, change.position)

    # options

    def _set(self, key: str, value: str) -> None:
        old = self._old.get(key)
        if old == value or self._means_what_is(key, old, value):
            return
        if key in ("type", "path"):
            raise UsageError(f"Change '{key}' is not supported yet.")
        if self.has_snapshots:
            self._check_set(key, old, value)
        self.options[key] = value

    def _means_what_is(self, key: str, old: str | None, value: str) -> bool:
        """Whether an option says in other words what the schema says: keys are kept apart from options."""
        if key == "type":
            return value.lower() == (old or "table").lower()
        keys = {"primary-key": self.old.primary_keys, "partition": self.old.partition_keys}.get(key)
        return old is None and keys is not None and _names(value) == keys

    def _check_set(self, key: str, old: str | None, value: str) -> None:
        if key in IMMUTABLE:
            raise UsageError(
                f"Change '{key}' is not supported yet. The data that the table holds was written with {old or 'its default'}: "
                "create another table and copy the rows."
            )
        if key == "bucket":
            before, after = self._old.bucket, TableOptions({key: value}).bucket
            if before == -1:
                raise UsageError("Cannot change bucket when it is -1. Create another table and copy the rows.")
            if after == -1:
                raise UsageError("Cannot change bucket to -1. Create another table and copy the rows.")
        elif key == _VECTORS:
            self._check_vectors(TableOptions({key: value}).deletion_vectors_enabled)
        elif key in _ONE_WAY:
            if self._old.boolean(key, False) and not TableOptions({key: value}).boolean(key, False):
                raise UsageError(f"Cannot change {key} from true to false. What was dropped does not come back.")
        elif key == _CLUSTERING and _OVERRIDE in self._old:
            raise UsageError(f"Cannot change {key} when {_OVERRIDE} enabled.")

    def _check_vectors(self, after: bool) -> None:
        before = self._old.deletion_vectors_enabled
        if before != after and not self._old.boolean(_MODIFIABLE, False):
            raise UsageError(
                f"Cannot change deletion vectors mode from {str(before).lower()} to {str(after).lower()}. If modifying table deletion-vectors "
                f"mode without full-compaction, this may result in data duplication. If you are confident, you can set table option "
                f"'{_MODIFIABLE}' = 'true' to allow deletion vectors modification: in an alter of its own before this one."
            )

    def _remove(self, key: str) -> None:
        if key in ("type", "path"):
            raise UsageError(f"Change '{key}' is not supported yet.")
        if self.has_snapshots:
            if key in IMMUTABLE:
                raise UsageError(f"Change '{key}' is not supported yet. Create another table and copy the rows.")
            if key == "bucket":
                raise UsageError("Cannot reset bucket. Set it to the number that you want.")
            if key == _VECTORS:
                self._check_vectors(False)
            if key == _CLUSTERING and _OVERRIDE in self._old:
                raise UsageError(f"Cannot reset {key} when {_OVERRIDE} enabled.")
        self.options.pop(key, None)

    # columns

    def _add(self, change: AddColumn) -> None:
        name = ".".join(change.path)
        if not change.type.nullable:
            raise UsageError(f"Column {name} cannot specify NOT NULL: rows that are there have no value. Add it as nullable.")
        _check_comment(change.comment)
        own = self.highest + 1
        data_type, self.highest = assign_ids(change.type, own)
        field = DataField(own, change.path[-1], data_type, change.comment)

        def add(fields: tuple[DataField, ...], last: str) -> tuple[DataField, ...]:
            column_path.check_absent(fields, (*change.path[:-1], last))
            position = change.position
            if position is None and len(change.path) == 1 and self._old.boolean("add-column-before-partition", False):
                first = next((each.name for each in fields if each.name in self.old.partition_keys), None)
                position = None if first is None else Position("before", first)
            at = len(fields) if position is None else column_path.index(fields, position)
            return (*fields[:at], field, *fields[at:])

        self.fields = column_path.at(self.fields, change.path, add)

    def _rename(self, path: Path, name: str) -> None:
        if len(path) == 1:
            if path[0] in self.old.partition_keys:
                raise UsageError(f"Cannot rename partition column: [{path[0]}]. Directories of partitions have its name.")
            self._check_not_indexed(path[0], "rename")
            if self._field(path[0]).type.root is TypeRoot.BLOB:
                raise UsageError(f"Cannot rename BLOB column: [{path[0]}]")

        def rename(fields: tuple[DataField, ...], last: str) -> tuple[DataField, ...]:
            at = column_path.find(fields, (*path[:-1], last))
            column_path.check_absent(fields, (*path[:-1], name))
            return (*fields[:at], replace(fields[at], name=name), *fields[at + 1 :])

        self.fields = column_path.at(self.fields, path, rename)
        if len(path) == 1:
            self.primary_keys = tuple(name if key == path[0] else key for key in self.primary_keys)
            self.options = _renamed(self.options, path[0], name)

    def _drop(self, path: Path) -> None:
        if len(path) == 1:
            if path[0] in (*self.old.partition_keys, *self.old.primary_keys):
                raise UsageError(f"Cannot drop partition key or primary key: [{path[0]}]. Create another table and copy the rows.")
            self._check_not_indexed(path[0], "drop")
            named = option_references(self.options, path[0])
            if named and any(field.name == path[0] for field in self.fields):
                raise UsageError(f"Cannot drop column [{path[0]}]: options name it. First unset or change {', '.join(named)}.")

        def drop(fields: tuple[DataField, ...], last: str) -> tuple[DataField, ...]:
            at = column_path.find(fields, (*path[:-1], last))
            if len(fields) == 1:
                raise UsageError(f"Cannot drop all fields in {'table' if len(path) == 1 else '.'.join(path[:-1])}")
            return (*fields[:at], *fields[at + 1 :])

        self.fields = column_path.at(self.fields, path, drop)

    def _alter_type(self, path: Path, data_type: DataType) -> None:
        if len(path) == 1:
            if path[0] in self.old.partition_keys:
                raise UsageError(f"Cannot update partition column: [{path[0]}]")
            if path[0] in self.old.primary_keys:
                raise UsageError(f"Cannot update primary key: [{path[0]}]. Create another table and copy the rows.")
            self._check_not_indexed(path[0], "update type of")
        name, explicit = ".".join(path), not self._old.boolean("disable-explicit-type-casting", False)

        def retyped(old: DataType) -> DataType:
            if not data_type.nullable and old.nullable:
                raise UsageError(f"Column {name} is nullable, and a new type leaves it so: leave out NOT NULL, and forbid NULL apart")
            new = data_type.with_nullable(old.nullable)
            if TypeRoot.BLOB in (old.root, new.root):
                raise UsageError(f"Cannot change column type involving BLOB: [{name}] {old} -> {new}")
            if not castable(old, new) or not (explicit or widens(old, new)):
                why = "Members of a ROW are changed by their paths, like r.x." if TypeRoot.ROW in (old.root, new.root) else ""
                if castable(old, new):
                    why = "Unset disable-explicit-type-casting if values may be cut or fail."
                raise UsageError(f"Column type {name}[{old}] cannot be converted to {new} without losing information. {why}".rstrip())
            return new

        self._edit_type(path, retyped)

    def _set_nullable(self, path: Path, nullable: bool) -> None:
        if nullable and len(path) == 1 and path[0] in self.old.primary_keys:
            raise UsageError(f"Cannot change nullability of primary key: [{path[0]}]")

        def changed(old: DataType) -> DataType:
            if old.nullable and not nullable and self._old.boolean(_NOT_NULL_GUARD, True):
                raise UsageError(
                    f"Cannot update column type from nullable to non nullable for {'.'.join(path)}. You can set table configuration option "
                    f"'{_NOT_NULL_GUARD}' = 'false' to allow converting null columns to not null: in an alter of its own before this one. Make "
                    "sure that no row has NULL there."
                )
            return old.with_nullable(nullable)

        self._edit_type(path, changed)

    def _move(self, name: str, position: Position) -> None:
        at = column_path.find(self.fields, (name,))
        rest = (*self.fields[:at], *self.fields[at + 1 :])
        if position.reference == name:
            raise UsageError(f"Cannot move itself for column {name}")
        to = column_path.index(rest, position)
        self.fields = (*rest[:to], self.fields[at], *rest[to:])

    def _check_not_indexed(self, column: str, operation: str) -> None:
        key = self._indexed.get(column)
        if key is not None:
            raise UsageError(
                f"Cannot {operation} primary-key index column: [{column}]. Take it out of {key} in an alter before this one and put it back in "
                "one after it: its index is built anew then."
            )

    def _field(self, name: str) -> DataField:
        return self.fields[column_path.find(self.fields, (name,))]

    def _edit(self, path: Path, edit: Callable[[DataField], DataField]) -> None:
        def edited(fields: tuple[DataField, ...], last: str) -> tuple[DataField, ...]:
            at = column_path.find(fields, (*path[:-1], last))
            return (*fields[:at], edit(fields[at]), *fields[at + 1 :])

        self.fields = column_path.at(self.fields, path, edited)

    def _edit_type(self, path: Path, edit: Callable[[DataType], DataType]) -> None:
        def edited(fields: tuple[DataField, ...], last: str) -> tuple[DataField, ...]:
            at = column_path.find(fields, (*path[:-1], last))
            return (*fields[:at], replace(fields[at], type=edit(fields[at].type)), *fields[at + 1 :])

        self.fields = column_path.at(self.fields, path, edited, edit)


def _check_comment(comment: str | None) -> None:
    if comment is not None and comment.strip().startswith(_DIRECTIVES):
        raise UsageError(f"comment {comment!r}: Java engines take this for a type of the column; give the type itself")


def _renamed(options: Mapping[str, str], old: str, new: str) -> dict[str, str]:
    """The options with a column's new name wherever they name it."""

    def mapped(names: Sequence[str]) -> str:
        return ",".join(name.replace(old, new) if name.strip() == old else name for name in names)

    found = {}
    for key, value in options.items():
        owners = _owners(key)
        suffix = key[len(_FIELDS) + len(",".join(owners)) :]
        lists = key in _NAMES_COLUMNS or suffix == f".{_GROUP}"
        if old in owners:
            key = f"{_FIELDS}{mapped(owners)}{suffix}"
        found[key] = mapped(value.split(",")) if lists else value
    return found


def _owners(key: str) -> tuple[str, ...]:
    """The columns that an option `fields.<c>[,<c>…].…` is about, as they are written."""
    if not key.startswith(_FIELDS) or key == _DEFAULTS:
        return ()
    return tuple(key.removeprefix(_FIELDS).split(".", 1)[0].split(","))


def _names(text: str) -> tuple[str, ...]:
    return tuple(name for part in text.split(",") if (name := part.strip()))
