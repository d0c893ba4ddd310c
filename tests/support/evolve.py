"""Schema changes as another engine makes them: a new schema file beside the old ones (spec 01 §4.3)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from maintainer.format import schema_json
from maintainer.model.schema import TableSchema
from maintainer.model.types import DataField, DataType


def evolve(table: str, change: Callable[[TableSchema], TableSchema]) -> TableSchema:
    """Write the next schema version, made from the latest one."""
    directory = Path(table) / "schema"
    latest = max(int(path.name.removeprefix("schema-")) for path in directory.glob("schema-*"))
    schema = schema_json.decode((directory / f"schema-{latest}").read_bytes())
    changed = replace(change(schema), id=latest + 1)
    (directory / f"schema-{latest + 1}").write_bytes(schema_json.encode(changed))
    return changed


def add_column(table: str, name: str, data_type: DataType) -> TableSchema:
    """A new column at the end; its type must not hold ROWs with ids of their own unless they are fresh."""

    def change(schema: TableSchema) -> TableSchema:
        field_id = schema.highest_field_id + 1
        fresh, highest = _with_fresh_ids(data_type, field_id)
        return replace(schema, fields=(*schema.fields, DataField(field_id, name, fresh)), highest_field_id=highest)

    return evolve(table, change)


def _with_fresh_ids(data_type: DataType, highest: int) -> tuple[DataType, int]:
    """The type with every ROW member numbered after `highest`, and the new highest id."""
    fields = []
    for field in data_type.fields:
        own = highest + 1
        inner, highest = _with_fresh_ids(field.type, own)
        fields.append(replace(field, id=own, type=inner))
    element, key = data_type.element, data_type.key
    if key is not None:
        key, highest = _with_fresh_ids(key, highest)
    if element is not None:
        element, highest = _with_fresh_ids(element, highest)
    return replace(data_type, fields=tuple(fields), element=element, key=key), highest


def drop_column(table: str, name: str) -> TableSchema:
    return evolve(table, lambda schema: replace(schema, fields=tuple(f for f in schema.fields if f.name != name)))


def rename_column(table: str, name: str, to: str) -> TableSchema:
    return evolve(table, lambda schema: replace(schema, fields=tuple(replace(f, name=to) if f.name == name else f for f in schema.fields)))


def retype_column(table: str, name: str, data_type: DataType) -> TableSchema:
    return evolve(
        table, lambda schema: replace(schema, fields=tuple(replace(f, type=data_type) if f.name == name else f for f in schema.fields))
    )


def set_options(table: str, **options: str | None) -> TableSchema:
    """Set options (underscores stand for nothing: give names by `**{"pk-btree.index.columns": "a"}`); None removes one."""

    def change(schema: TableSchema) -> TableSchema:
        changed = {**schema.options, **options}
        return replace(schema, options={key: value for key, value in changed.items() if value is not None})

    return evolve(table, change)
