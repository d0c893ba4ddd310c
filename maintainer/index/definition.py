"""Index definitions: which columns of a table schema are indexed, how, and whether that is allowed (spec 06 §1–§4).

Java: `PrimaryKeyIndexDefinitions`, `SchemaValidation`. A definition exists only in the schema's options: `pk-<family>.index.columns` lists the
columns of a family, `fields.<c>.pk-<family>.index.options` holds build options. On disk a definition is known by its index type and field id;
payloads store neither names nor options.

All six families are recognized and validated; `unsupported_families` tells which of them this package cannot maintain yet, so that a table
that has them is refused as a whole instead of going stale in part.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from maintainer.errors import UsageError
from maintainer.index.options import ROLLING_KEYS, compression, integer, is_true, memory_size, overlay, peer_blocks
from maintainer.model.schema import TableSchema
from maintainer.model.types import CHARACTERS, FLOATS, INTEGERS, TIMESTAMPS, DataType, TypeRoot


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


MAINTAINED = frozenset({FamilyName.BTREE, FamilyName.BITMAP})
SORTED = (FamilyName.BTREE, FamilyName.BITMAP, FamilyName.MULTIVALUE, FamilyName.FM)
"""The families that share one set of rules."""

KEY_TYPES = (
    INTEGERS | FLOATS | CHARACTERS | TIMESTAMPS | {TypeRoot.BOOLEAN, TypeRoot.DECIMAL, TypeRoot.DATE, TypeRoot.TIME}
)  # fmt: skip
"""Types whose values can be keys of a sorted payload (spec 08 §2.1)."""

DEFAULT_METRIC = "inner_product"
METRICS = ("l2", "cosine", DEFAULT_METRIC)


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
            index_type = _vector_type(schema, column.name) if family is FamilyName.VECTOR else str(family)
            options = _resolve(schema.options, family, column.name, index_type)
            found.append(IndexDefinition(column.name, column.id, index_type, family, options, column.type))
    return tuple(found)


def validate(schema: TableSchema) -> None:
    """Raise `UsageError` with Java's words for the first rule (in Java's order) that the schema's index options break."""
    lists = {family: listed_columns(schema.options, family) for family in FamilyName}
    for family, names in lists.items():
        if len(set(names)) < len(names):
            raise UsageError(f"{family.columns_key} must not contain duplicate columns, but is {_java_list(names)}.")
    owned: set[str] = set()
    for names in lists.values():
        for name in names:
            if name in owned:
                raise UsageError(f"Column '{name}' can own at most one primary-key index.")
            owned.add(name)
    if any(lists[family] for family in SORTED):
        _validate_sorted(schema, lists)
    for family in (FamilyName.VECTOR, FamilyName.FULL_TEXT):
        if lists[family]:
            _validate_search(schema, family, lists[family])


def _resolve(options: Mapping[str, str], family: FamilyName, column: str, index_type: str) -> dict[str, str]:
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


def _vector_type(schema: TableSchema, column: str) -> str:
    key = f"fields.{column}.pk-vector.index.type"
    index_type = schema.options.get(key, "")
    if not index_type.strip():
        raise UsageError(f"{key} must be configured when a primary-key vector index is defined.")
    return index_type


def _validate_sorted(schema: TableSchema, lists: Mapping[FamilyName, tuple[str, ...]]) -> None:
    who = "Primary-key BTree, Bitmap, Multivalue, and FM indexes"
    options = schema.options
    if not is_true(options, "deletion-vectors.enabled"):
        raise UsageError(f"{who} require deletion-vectors.enabled = true. Set it, or leave out pk-*.index.columns.")
    if not schema.primary_keys:
        raise UsageError(f"{who} require a primary-key table.")
    _require_bucket(options, who, "require")
    if is_true(options, "deletion-vectors.merge-on-read"):
        raise UsageError(f"{who} require deletion-vectors.merge-on-read = false.")
    if is_true(options, "pk-clustering-override"):
        raise UsageError(f"{who} do not support pk-clustering-override.")
    for family in SORTED:
        for name in lists[family]:
            if not schema.has_field(name):
                raise UsageError(f"{family.columns_key} entry '{name}' must reference an existing column.")
            data_type = schema.field(name).type
            resolved = _resolve(options, family, name, str(family))
            match family:
                case FamilyName.FM:
                    _validate_fm(name, data_type, resolved)
                case FamilyName.MULTIVALUE:
                    if data_type.root is not TypeRoot.ARRAY or data_type.element is None:
                        raise UsageError(f"Multivalue index requires an ARRAY column, but column '{name}' is {data_type}.")
                    _validate_sorted_payload(family, data_type.element, resolved)
                case _:
                    _validate_sorted_payload(family, data_type, resolved)


def _validate_sorted_payload(family: FamilyName, key_type: DataType, options: Mapping[str, str]) -> None:
    if key_type.root not in KEY_TYPES:
        raise UsageError(f"DataType: {key_type} is not supported by global index now.")
    prefix = f"{family}-index."
    compression(options, prefix)
    integer(options, f"{prefix}compression-level", 1)
    if family is FamilyName.BTREE:
        memory_size(options, f"{prefix}block-size", 0)
    elif memory_size(options, f"{prefix}dictionary-block-size", 1) <= 0:
        raise UsageError("Bitmap dictionary block size must be greater than 0.")
    memory_size(options, f"{prefix}fallback-scan-max-size", 0)
    peer_blocks(options)


def _validate_fm(column: str, data_type: DataType, options: Mapping[str, str]) -> None:
    if data_type.root not in CHARACTERS:
        raise UsageError(f"FM index requires a character string column, but column '{column}' is {data_type}.")
    if integer(options, "fm-index.partition-row-count", 100_000) <= 0:
        raise UsageError("FM index partition row count must be positive.")
    if not 2 <= memory_size(options, "fm-index.partition-size", 2**24) < 2**31 - 1:
        raise UsageError("FM index partition size must be between 2 bytes and 2147483646 bytes.")
    rate = integer(options, "fm-index.sa-sample-rate", 32)
    if not 1 <= rate <= 1024 or rate & (rate - 1):
        raise UsageError(f"FM index suffix array sample rate must be a power of two between 1 and 1024, but is {rate}.")
    compression(options, "fm-index.", "lz4")
    integer(options, "fm-index.compression-level", 1)


def _validate_search(schema: TableSchema, family: FamilyName, columns: tuple[str, ...]) -> None:
    """Vector and Full Text: one column each, and first-row tables may have them without deletion vectors."""
    key = family.columns_key
    who = f"Primary-key {str(family).replace('-', ' ')} index"
    options = schema.options
    if len(columns) != 1:
        raise UsageError(f"{key} must contain exactly one column in the first release, but is {_java_list(columns)}.")
    column = columns[0]
    if not column:
        raise UsageError(f"{key} must contain a non-empty column.")
    index_type = _vector_type(schema, column) if family is FamilyName.VECTOR else str(family)
    if not schema.primary_keys:
        raise UsageError(f"{who} requires a primary-key table.")
    engine = options.get("merge-engine", "deduplicate")
    vectors = is_true(options, "deletion-vectors.enabled")
    if not vectors and engine != "first-row":
        raise UsageError(f"{who} requires deletion-vectors.enabled = true.")
    if vectors and is_true(options, "deletion-vectors.merge-on-read"):
        raise UsageError(f"{who} with merge-engine = {engine} requires deletion-vectors.merge-on-read = false.")
    _require_bucket(options, who, "requires")
    if is_true(options, "pk-clustering-override"):
        raise UsageError(f"{who} does not support pk-clustering-override.")
    _resolve(options, family, column, index_type)
    if not schema.has_field(column):
        raise UsageError(f"{key} entry '{column}' must reference an existing column.")
    data_type = schema.field(column).type
    if family is FamilyName.FULL_TEXT:
        if data_type.root not in CHARACTERS:
            raise UsageError(f"{key} entry '{column}' must reference a CHAR/VARCHAR/STRING column.")
        return
    if data_type.root is not TypeRoot.VECTOR:
        raise UsageError(f"{key} entry '{column}' must reference a VECTOR column.")
    if data_type.element is None or data_type.element.root is not TypeRoot.FLOAT:
        raise UsageError(f"{key} entry '{column}' must use FLOAT elements.")
    metric = vector_metric(options, column)
    if metric not in METRICS:
        raise UsageError(f"fields.{column}.pk-vector.distance.metric must be one of {', '.join(METRICS)}, but is {metric}.")


def _require_bucket(options: Mapping[str, str], who: str, verb: str) -> None:
    bucket = integer(options, "bucket", -1)
    if bucket <= 0 and bucket != -2:
        raise UsageError(f"{who} {verb} fixed or postpone bucket mode (bucket > 0 or bucket = -2), but bucket is {bucket}.")


def _java_list(names: tuple[str, ...]) -> str:
    return f"[{', '.join(names)}]"
