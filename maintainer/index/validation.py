"""Which index definitions a table may have (spec 06 §4; Java `SchemaValidation`).

Judged when a table is created and before each of its later schemas, also where only options change:

    all lists together ──▶ the table, for families of exact predicates ──▶ each of their columns, by its family ──▶ Vector ──▶ Full Text

The first rule that is broken is told, in this order and in Java's words, followed by what to change. What a family says of a column and of its
options is in the family's own module; so all six are judged, whether or not this package maintains them.
"""

from __future__ import annotations

from collections.abc import Mapping

from maintainer.errors import UsageError
from maintainer.index.definition import SORTED, FamilyName, listed_columns, resolve, vector_type
from maintainer.index.family import rules
from maintainer.index.options import integer, is_true
from maintainer.model.schema import TableSchema
from maintainer.table.options import MergeEngine, TableOptions

_EXACT = "Primary-key BTree, Bitmap, Multivalue, and FM indexes"


def validate(schema: TableSchema) -> None:
    """Raises `UsageError` for the first rule that the schema's index options break."""
    lists = {family: listed_columns(schema.options, family) for family in FamilyName}
    _validate_lists(lists)
    exact = {family: lists[family] for family in SORTED if lists[family]}
    if exact:
        _validate_exact(schema, exact)
    for family in FamilyName:
        if lists[family] and family not in exact:
            _validate_ranked(schema, family, lists[family])


def _validate_lists(lists: Mapping[FamilyName, tuple[str, ...]]) -> None:
    for family, names in lists.items():
        if len(set(names)) < len(names):
            raise UsageError(f"{family.columns_key} must not contain duplicate columns, but is {_java_list(names)}. Name each column once.")
    owner: dict[str, FamilyName] = {}
    for family, names in lists.items():
        for name in names:
            if name in owner:
                keys = f"{owner[name].columns_key} and {family.columns_key}"
                raise UsageError(f"Column '{name}' can own at most one primary-key index. It is in {keys}: take it out of one of them.")
            owner[name] = family


def _validate_exact(schema: TableSchema, lists: Mapping[FamilyName, tuple[str, ...]]) -> None:
    options, keys = schema.options, ", ".join(family.columns_key for family in lists)
    if not is_true(options, "deletion-vectors.enabled"):
        first_row = TableOptions(options).merge_engine is MergeEngine.FIRST_ROW
        advice = "A table with merge-engine = first-row has none: leave" if first_row else "Set it, or leave"
        raise UsageError(f"{_EXACT} require deletion-vectors.enabled = true. {advice} out {keys}.")
    if not schema.primary_keys:
        raise UsageError(f"{_EXACT} require a primary-key table. Give the table a primary key, or leave out {keys}.")
    _require_bucket(options, f"{_EXACT} require", keys)
    if is_true(options, "deletion-vectors.merge-on-read"):
        raise UsageError(f"{_EXACT} require deletion-vectors.merge-on-read = false. Unset it, or leave out {keys}.")
    if is_true(options, "pk-clustering-override"):
        raise UsageError(f"{_EXACT} do not support pk-clustering-override. Unset it, or leave out {keys}.")
    for family, names in lists.items():
        for name in names:
            if not schema.has_field(name):
                advice = _columns(schema) if name else "Name a column there, or unset the option."
                raise UsageError(f"{family.columns_key} entry '{name}' must reference an existing column. {advice}")
    for family, names in lists.items():
        for name in names:
            _validate_column(schema, family, name, str(family))


def _validate_ranked(schema: TableSchema, family: FamilyName, names: tuple[str, ...]) -> None:
    """Vector and Full Text: one column each, and first-row tables may have them without deletion vectors."""
    key, who = family.columns_key, f"Primary-key {family} index"
    options = schema.options
    if len(names) != 1:
        raise UsageError(f"{key} must contain exactly one column in the first release, but is {_java_list(names)}. Keep one of them.")
    column = names[0]
    if not column:
        raise UsageError(f"{key} must contain a non-empty column. Name one, or unset the option.")
    index_type = vector_type(schema, column) if family is FamilyName.VECTOR else str(family)
    if not schema.primary_keys:
        raise UsageError(f"{who} requires a primary-key table. Give the table a primary key, or unset {key}.")
    engine = TableOptions(options).merge_engine
    vectors = is_true(options, "deletion-vectors.enabled")
    if not vectors and engine is not MergeEngine.FIRST_ROW:
        raise UsageError(f"{who} requires deletion-vectors.enabled = true. Set it, or unset {key}.")
    if vectors and is_true(options, "deletion-vectors.merge-on-read"):
        with_engine = f" with merge-engine = {engine}" if family is FamilyName.VECTOR else ""
        raise UsageError(f"{who}{with_engine} requires deletion-vectors.merge-on-read = false. Unset it, or unset {key}.")
    _require_bucket(options, f"{who} requires", key)
    if is_true(options, "pk-clustering-override"):
        raise UsageError(f"{who} does not support pk-clustering-override. Unset it, or unset {key}.")
    _validate_column(schema, family, column, index_type)


def _validate_column(schema: TableSchema, family: FamilyName, column: str, index_type: str) -> None:
    options = resolve(schema.options, family, column, index_type)
    data_type = schema.field(column).type if schema.has_field(column) else None
    judge = rules(family)
    if data_type is None:
        raise UsageError(f"{family.columns_key} entry '{column}' must reference {judge.TAKES}. {_columns(schema)}")
    judge.validate(column, data_type, options)


def _require_bucket(options: Mapping[str, str], who: str, keys: str) -> None:
    bucket = integer(options, "bucket", -1)
    if bucket <= 0 and bucket != -2:
        raise UsageError(
            f"{who} fixed or postpone bucket mode (bucket > 0 or bucket = -2), but bucket is {bucket}. Set bucket, or leave out {keys}."
        )


def _columns(schema: TableSchema) -> str:
    return f"The columns are {', '.join(schema.names)}."


def _java_list(names: tuple[str, ...]) -> str:
    return f"[{', '.join(names)}]"
