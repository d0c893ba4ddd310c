"""Index definitions: which columns of a table schema are indexed, and how (spec 06 §1–§3; Java `PrimaryKeyIndexDefinitions`).

A definition exists only in the schema's options: `pk-<family>.index.columns` lists the
columns of a family, `fields.<c>.pk-<family>.index.options` holds build options. On disk a definition is known by its index type and field id;
payloads store neither names nor options.

All six families are recognized, and `maintainer.index.validation` judges all of them; a table with one that cannot be maintained yet is refused
as a whole (`maintainer.table.support`) instead of going stale in part.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from maintainer.errors import UsageError
from maintainer.index.options import READ_ONLY, ROLLING_KEYS, overlay
from maintainer.model.schema import TableSchema
from maintainer.model.types import DataType


class FamilyName(StrEnum):
    """The index families, in the order in which Java looks for double use of a column."""

    VECTOR = "vector"
    BTREE = "btree"
    BITMAP = "bitmap"
    MULTIVALUE = "multivalue"
    FM = "fm"
    FULL_TEXT = "full-text"

    @property
    def columns_key(self) -> str:
        """The option that lists the family's columns."""
        return f"pk-{self}.index.columns"

    @property
    def ranks(self) -> bool:
        """Whether its indexes are searched for what is best, instead of for all that satisfies a predicate."""
        return self in (FamilyName.VECTOR, FamilyName.FULL_TEXT)

    @property
    def counts_rows(self) -> bool:
        """Whether the row count and range of a payload are those of its sources (spec 06 §16.2: peers write others for vectors)."""
        return self is not FamilyName.VECTOR


MAINTAINED = frozenset({FamilyName.BTREE, FamilyName.BITMAP, FamilyName.MULTIVALUE, FamilyName.FM})
SORTED = tuple(family for family in FamilyName if not family.ranks)
"""The families of exact predicates, which share the rules for their table; the others rank what they find."""

DEFAULT_METRIC = "inner_product"


@dataclass(frozen=True)
class IndexDefinition:
    """One indexed column. `options` are resolved: table options with the column's own laid over them."""

    column: str
    field_id: int
    index_type: str
    family: FamilyName
    options: Mapping[str, str] = field(hash=False)
    data_type: DataType

    @property
    def identity(self) -> tuple[str, int]:
        """What the definition is called on disk."""
        return self.index_type, self.field_id


def listed_columns(options: Mapping[str, str], family: FamilyName) -> tuple[str, ...]:
    """The columns that the family's option names; a present but empty option names one column without a name."""
    value = options.get(family.columns_key)
    return () if value is None else tuple(name.strip() for name in value.split(","))


def definitions(schema: TableSchema) -> tuple[IndexDefinition, ...]:
    """All definitions of a schema in the order of its fields."""
    families = {name: family for family in FamilyName for name in listed_columns(schema.options, family)}
    found = []
    for column in schema.fields:
        family = families.get(column.name)
        if family is not None:
            index_type = vector_type(schema, column.name) if family is FamilyName.VECTOR else str(family)
            options = resolve(schema.options, family, column.name, index_type)
            found.append(IndexDefinition(column.name, column.id, index_type, family, options, column.type))
    return tuple(found)


def build_options(definition: IndexDefinition) -> dict[str, str]:
    """The options that decide what the bytes of a payload are: the family's own, without those that only readers look at."""
    family = definition.family
    own: tuple[str, ...] = (f"{family}-index.", f"{family}.", f"maintain.{family}-")
    if definition.index_type != family:  # the parameters of what is built are called after it
        own += (f"{definition.index_type}.", f"fields.{definition.column}.")
    return {key: value for key, value in definition.options.items() if key.startswith(own) and not key.endswith((*READ_ONLY, ".index.options"))}


def resolve(options: Mapping[str, str], family: FamilyName, column: str, index_type: str) -> dict[str, str]:
    """The options that hold for a column: the table's, with the column's own laid over them."""
    key = f"fields.{column}.pk-{family}.index.options"
    match family:
        case FamilyName.VECTOR:
            prefix, own = f"{index_type}.", f"fields.{column}."
            rivals = {k: v for k, v in options.items() if k.startswith((prefix, own)) and not k.startswith(f"{own}pk-vector.")}
            resolved = overlay(key, options, options, prefix, kept=(prefix, "fields."), rivals=rivals)
            resolved[f"{prefix}metric"] = vector_metric(options, column)
            return resolved
        case FamilyName.FULL_TEXT:
            base = {k: v for k, v in options.items() if k.startswith("full-text.")}
            return overlay(key, options, base, "full-text.", kept=("full-text.",))
        case _:
            base = {k: v for k, v in options.items() if k not in ROLLING_KEYS}
            return overlay(key, options, base, f"{family}-index.", kept=(f"{family}-index.", "fields."))


def vector_metric(options: Mapping[str, str], column: str) -> str:
    """The distance metric of a vector column: the field-scoped option alone decides, whatever the table says elsewhere."""
    return options.get(f"fields.{column}.pk-vector.distance.metric", DEFAULT_METRIC).lower().replace("-", "_")


def vector_type(schema: TableSchema, column: str) -> str:
    """The ANN index of a vector column, which is also its index type on disk."""
    key = f"fields.{column}.pk-vector.index.type"
    index_type = schema.options.get(key, "")
    if not index_type.strip():
        raise UsageError(f"{key} must be configured when a primary-key vector index is defined. Set it, to ivf-flat for example.")
    return index_type
