"""New tables: a definition in JSON or SQL, checked as Java checks it (`SchemaValidation`), published as schema 0.

A definition is Paimon's own schema JSON, or its essence {"fields": [{"name", "type", "description"?, "defaultValue"?}], "primaryKeys",
"partitionKeys", "options", "comment"}; types are JSON or SQL text. Field ids are always given anew, in the order of the columns, as Java
does for a new table. Primary-key columns become NOT NULL.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from maintainer.api.ddl import parse_create_table
from maintainer.errors import Unsupported, UsageError
from maintainer.format.data_type import assign_ids, parse_field
from maintainer.index import validation
from maintainer.maintain.reclaim.retention import Retention
from maintainer.model.files import FileRole
from maintainer.model.schema import KEY_PREFIX, SYSTEM_NAMES, TableSchema
from maintainer.model.types import CHARACTERS, NESTED, DataField, TypeRoot
from maintainer.table.options import TableOptions
from maintainer.table.support import check_maintainable

Definition = Mapping[str, Any] | str | os.PathLike[str]
"""A document, its text as JSON or SQL, or a file that holds either."""

_MEMBERS = ("fields", "primaryKeys", "partitionKeys", "options", "comment", "version", "id", "highestFieldId", "timeMillis")
"""What Java's schema files have; all but the first five are given anew."""
_FIELDS = "fields."
_DEFAULT_FUNCTION = "fields.default-aggregate-function"
_MOST_LEVELS = 64
"""Of those whose options are looked at."""
_NO_KEYS = NESTED | {TypeRoot.BLOB}


def schema_of(given: Definition) -> TableSchema:
    """The first schema of a new table; `UsageError` or `Unsupported` say why there can be none."""
    document = _document(given)
    for member in document:
        if member not in _MEMBERS:
            raise UsageError(f"the table definition has the member {member!r}, which means nothing; it may have {', '.join(_MEMBERS)}")
    options = _options(document)
    primary_keys = _keys(document, options, "primaryKeys", "primary-key")
    partition_keys = _keys(document, options, "partitionKeys", "partition")
    fields, highest = _fields(document, primary_keys)
    schema = TableSchema(
        id=0,
        fields=fields,
        highest_field_id=highest,
        partition_keys=partition_keys,
        primary_keys=primary_keys,
        options=options,
        comment=document.get("comment"),
        time_millis=int(time.time() * 1000),
    )
    validate(schema)
    return schema


def validate(schema: TableSchema) -> None:
    """Raises for what Java would not create, and for what this package would not maintain."""
    _check_names(schema)
    _check_keys(schema)
    validation.validate(schema)
    check_maintainable(schema)
    _check_options(schema)
    from maintainer.write.default_value import default_value

    for field in schema.fields:
        default_value(field)


def _check_options(schema: TableSchema) -> None:
    options = TableOptions.of(schema)
    mistakes = "; ".join(map(str, options.mistakes()))
    if mistakes:
        raise UsageError(mistakes)
    _check_columns(schema, options)
    _check_statistics(schema, options)
    with suppress(Unsupported):  # a table that is never expired is maintained all the same
        Retention.of(options)


def _check_statistics(schema: TableSchema, options: TableOptions) -> None:
    from maintainer.data.statistics import column_modes

    for role in FileRole:
        for level in range(min(options.num_levels, _MOST_LEVELS)):
            column_modes(schema.fields, options, level, role)


def _check_columns(schema: TableSchema, options: TableOptions) -> None:
    """Options that name a column that is not there would be of no effect (Java `SchemaValidation.validateFieldsPrefix`)."""
    listed = f"the columns are {', '.join(schema.names)}"
    for key in sorted(options):
        if key.startswith(_FIELDS) and key != _DEFAULT_FUNCTION:
            named = key.removeprefix(_FIELDS)
            if not any(named.startswith((f"{name}.", f"{name},")) for name in schema.names):
                raise UsageError(f"option {key} = {options[key]!r}: there is no column {named.split('.')[0]!r}; {listed}")
    kinds = options.rowkind_field
    if kinds is not None and kinds not in schema.names:
        raise UsageError(f"option rowkind.field = {kinds!r}: there is no column {kinds!r}; {listed}")
    if kinds is not None and schema.field(kinds).type.root not in CHARACTERS:
        raise UsageError(f"option rowkind.field = {kinds!r}: the column must be of a character type, not {schema.field(kinds).type}")


def _document(given: Definition) -> Mapping[str, Any]:
    if isinstance(given, os.PathLike):
        try:
            with open(given, encoding="utf-8") as file:
                given = file.read()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else error
            raise UsageError(f"cannot read the table definition {os.fspath(given)}: {reason}") from None
    if isinstance(given, Mapping):
        return given
    if not isinstance(given, str):
        raise UsageError(f"a table is defined by a document, JSON or SQL text, or a pathlib.Path of a file, not by {type(given).__name__}")
    if not given.lstrip().startswith("{"):
        if len(given.split()) == 1 and os.path.exists(given):
            raise UsageError(f"the table definition {given!r} is the name of a file: give a pathlib.Path, or what it holds")
        return parse_create_table(given)
    try:
        document: Mapping[str, Any] = json.loads(given)
    except ValueError as error:
        raise UsageError(f"the table definition is no JSON: {error}") from None
    return document


def _options(document: Mapping[str, Any]) -> dict[str, str]:
    options = document.get("options") or {}
    if not isinstance(options, Mapping):
        raise UsageError("the table definition: options must be an object of texts")
    texts: dict[str, str] = {}
    for key, value in options.items():
        if isinstance(value, bool):
            value = str(value).lower()
        elif not isinstance(value, (str, int, float)):
            raise UsageError(f"the table definition: option {key} must be a text, not {value!r}")
        texts[str(key)] = str(value)
    texts.pop("path", None)  # where a table lies is for its catalog to say; a copied table would carry a wrong one
    return texts


def _keys(document: Mapping[str, Any], options: dict[str, str], member: str, option: str) -> tuple[str, ...]:
    """The keys of the document, or of the option by which engines without such a clause give them."""
    keys = document.get(member) or []
    listed = options.pop(option, None)
    if listed is not None:
        if keys:
            raise UsageError(f"the table definition gives {member} and option {option}; give one of them")
        keys = [name.strip() for name in listed.split(",")]
    if not isinstance(keys, Sequence) or isinstance(keys, str) or not all(isinstance(key, str) for key in keys):
        raise UsageError(f"the table definition: {member} must be a list of column names")
    return tuple(keys)


def _fields(document: Mapping[str, Any], primary_keys: tuple[str, ...]) -> tuple[tuple[DataField, ...], int]:
    given = document.get("fields")
    if not isinstance(given, Sequence) or isinstance(given, str) or not given:
        raise UsageError("the table definition has no fields")
    fields, highest = [], -1
    for document_of_field in given:
        if not isinstance(document_of_field, Mapping):
            raise UsageError(f"the table definition: a field must be an object with name and type, not {document_of_field!r}")
        field = parse_field({**document_of_field, "id": 0})
        field_id = highest + 1
        data_type, highest = assign_ids(field.type, field_id)
        if field.name in primary_keys:
            data_type = data_type.with_nullable(False)
        fields.append(replace(field, id=field_id, type=data_type))
    return tuple(fields), highest


def _check_names(schema: TableSchema) -> None:
    for name, count in Counter(schema.names).items():
        if not name.strip():
            raise UsageError("the table definition: a column has no name")
        if count > 1:
            raise UsageError(f"the table definition has {count} columns {name!r}")
        if name in SYSTEM_NAMES or name.startswith(KEY_PREFIX):
            raise UsageError(f"column {name!r}: this name belongs to Paimon's own columns")


def _check_keys(schema: TableSchema) -> None:
    bucket_keys = tuple(name.strip() for name in schema.options.get("bucket-key", "").split(",") if name.strip())
    for what, keys in (("primary key", schema.primary_keys), ("partition keys", schema.partition_keys), ("bucket-key", bucket_keys)):
        for name, count in Counter(keys).items():
            if count > 1:
                raise UsageError(f"the {what} names column {name!r} twice")
            if not schema.has_field(name):
                raise UsageError(f"the {what} names {name!r}, which is no column; the columns are {', '.join(schema.names)}")
            if schema.field(name).type.root in _NO_KEYS:
                raise UsageError(f"the {what} cannot have column {name!r} of type {schema.field(name).type}")
    for name in bucket_keys:
        if name in schema.partition_keys or name not in schema.primary_keys:
            raise UsageError(f"option bucket-key: {name!r} must be a column of the primary key that is not a partition key")
