"""Schema files (spec 01 §4.1; Java `SchemaSerializer`): JSON, immutable once written.

    {"version", "id", "fields": [{"id", "name", "type", "description"?, "defaultValue"?}], "highestFieldId", "partitionKeys", "primaryKeys",
     "options": {string: string}, "comment"?, "timeMillis"}

Absent members are never written as null: Java reads an explicit null as the text "null".
"""

from __future__ import annotations

from maintainer.errors import CorruptFile, Unsupported, UsageError
from maintainer.format.data_type import parse_field, render_field
from maintainer.format.json_document import Document, dump
from maintainer.model.schema import TableSchema

VERSION = 3


def decode(data: bytes) -> TableSchema:
    document = Document(data, "schema")
    version = document.take_if_present("version", int)
    version = 1 if version is None else version
    if version > VERSION:
        raise Unsupported(f"the schema has format version {version}; versions up to {VERSION} are supported")
    options = document.take_text_map("options") or {}
    if version <= 1:
        options = {"bucket": "1", **options}
    if version <= 2:
        options = {"file.format": "orc", **options}
    try:
        fields = tuple(parse_field(field) for field in document.take("fields", list))
    except UsageError as error:
        raise CorruptFile(f"in the schema: {error}") from None
    schema = TableSchema(
        id=document.take("id", int),
        fields=fields,
        highest_field_id=document.take("highestFieldId", int),
        partition_keys=document.take_texts("partitionKeys"),
        primary_keys=document.take_texts("primaryKeys"),
        options=options,
        comment=document.take_if_present("comment", str),
        time_millis=document.take_if_present("timeMillis", int) or 0,
        version=version,
        extra=document.members,
    )
    names = set(schema.names)
    if len(names) != len(schema.fields):
        raise CorruptFile("the schema has two fields of one name")
    for key in (*schema.partition_keys, *schema.primary_keys):
        if key not in names:
            raise CorruptFile(f"the schema has the key {key!r}, which is not one of its fields")
    return schema


def encode(schema: TableSchema) -> bytes:
    return dump(
        {
            "version": schema.version,
            "id": schema.id,
            "fields": [render_field(field) for field in schema.fields],
            "highestFieldId": schema.highest_field_id,
            "partitionKeys": list(schema.partition_keys),
            "primaryKeys": list(schema.primary_keys),
            "options": dict(schema.options),
            "comment": schema.comment,
            "timeMillis": schema.time_millis,
            **schema.extra,
        }
    )
