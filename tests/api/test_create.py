"""New tables: what Java would create, and nothing that it or we would refuse."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import maintainer
from maintainer.api.create import schema_of
from maintainer.errors import Unsupported, UsageError
from maintainer.format import schema_json
from tests.support.java_cases import java_case

OPTIONS = {"bucket": "2", "deletion-vectors.enabled": "true"}


def definition(**changes: Any) -> dict[str, Any]:
    document = {
        "fields": [{"name": "id", "type": "INT"}, {"name": "name", "type": "STRING"}, {"name": "p", "type": "DATE"}],
        "primaryKeys": ["p", "id"],
        "partitionKeys": ["p"],
        "options": OPTIONS,
    }
    return {**document, **changes}


def test_ids_are_given_in_order_and_keys_become_not_null() -> None:
    schema = schema_of(definition())
    assert [(field.id, field.name, str(field.type)) for field in schema.fields] == [
        (0, "id", "INT NOT NULL"),
        (1, "name", "STRING"),
        (2, "p", "DATE NOT NULL"),
    ]
    assert (schema.id, schema.highest_field_id) == (0, 2)


def test_nested_members_take_their_ids_from_the_same_row() -> None:
    fields = [{"name": "r", "type": "ROW<a INT, b ARRAY<ROW<c INT>>>"}, {"name": "id", "type": "INT"}]
    schema = schema_of({"fields": fields, "primaryKeys": ["id"], "options": OPTIONS})
    members = {member.name: member.id for member in schema.fields[0].type.fields}
    ids = {schema.fields[0].id, schema.fields[1].id, *members.values()}
    assert schema.fields[0].id == 0
    assert schema.fields[1].id == schema.highest_field_id == 4
    assert len(ids) == 4


@pytest.mark.parametrize("name", ["dv_minor", "idx_btree_types", "keys_composite", "nested_parquet", "idx_bitmap_types"])
def test_a_java_schema_makes_the_same_table_again(name: str) -> None:
    """Java's own schema JSON, and the ids that Java gave."""
    path = java_case(name).directory / "schema" / "schema-0"
    java = schema_json.decode(path.read_bytes())
    ours = schema_of(path.read_text("utf-8"))
    assert ours.fields == java.fields
    assert ours.highest_field_id == java.highest_field_id
    assert ours.primary_keys == java.primary_keys
    assert ours.options == {key: value for key, value in java.options.items() if key != "path"}


def test_sql_and_json_make_the_same_table(tmp_path: Path) -> None:
    sql = tmp_path / "t.sql"
    sql.write_text(
        "CREATE TABLE t (id INT, name STRING, p DATE, PRIMARY KEY (p, id) NOT ENFORCED) PARTITIONED BY (p) "
        "WITH ('bucket' = '2', 'deletion-vectors.enabled' = 'true')"
    )
    document = tmp_path / "t.json"
    document.write_text(json.dumps(definition()))
    from_sql, from_json = schema_of(sql), schema_of(document)
    assert (from_sql.fields, from_sql.options, from_sql.primary_keys) == (from_json.fields, from_json.options, from_json.primary_keys)


def test_keys_may_be_options() -> None:
    schema = schema_of(definition(primaryKeys=None, partitionKeys=None, options={**OPTIONS, "primary-key": "p, id", "partition": "p"}))
    assert (schema.primary_keys, schema.partition_keys) == (("p", "id"), ("p",))
    assert dict(schema.options) == OPTIONS


def test_a_table_is_created_once(tmp_path: Path) -> None:
    table = maintainer.create_table(str(tmp_path / "t"), definition())
    assert table.schema == maintainer.open_table(str(tmp_path / "t")).schema
    with pytest.raises(UsageError, match="there is a table already"):
        maintainer.create_table(str(tmp_path / "t"), definition())


def test_a_table_of_a_warehouse_is_named_by_its_database(tmp_path: Path) -> None:
    maintainer.create_table("db.t", definition(), warehouse=str(tmp_path))
    assert (tmp_path / "db.db" / "t" / "schema" / "schema-0").exists()


REFUSED: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"fields": []}, UsageError, "has no fields"),
    ({"fields": ["id"]}, UsageError, "a field must be an object"),
    ({"fields": [{"name": "id", "type": "INTT"}]}, UsageError, "'id'.*INTT"),
    ({"fields": [{"name": "id", "type": "INT"}, {"name": "id", "type": "INT"}]}, UsageError, "2 columns 'id'"),
    ({"fields": [{"name": " ", "type": "INT"}]}, UsageError, "no name"),
    ({"fields": [{"name": "_SEQUENCE_NUMBER", "type": "INT"}]}, UsageError, "belongs to Paimon"),
    ({"fields": [{"name": "_KEY_a", "type": "INT"}]}, UsageError, "belongs to Paimon"),
    ({"primaryKeys": ["p", "nothing"]}, UsageError, "primary key names 'nothing'"),
    ({"primaryKeys": ["p", "id", "id"]}, UsageError, "twice"),
    ({"primaryKeys": "id"}, UsageError, "list of column names"),
    ({"partitionKeys": ["nothing"]}, UsageError, "partition keys names 'nothing'"),
    ({"options": {**OPTIONS, "bucket-key": "name"}}, UsageError, "bucket-key"),
    ({"options": {**OPTIONS, "bucket-key": "p"}}, UsageError, "bucket-key"),
    ({"options": {**OPTIONS, "x": [1]}}, UsageError, "option x must be a text"),
    ({"options": {**OPTIONS, "pk-btree.index.columns": "nothing"}}, UsageError, "must reference an existing column"),
    ({"options": {**OPTIONS, "pk-btree.index.columns": "id", "pk-bitmap.index.columns": "id"}}, UsageError, "at most one"),
    ({"options": {**OPTIONS, "bucket": "-1"}}, Unsupported, "bucket = -1"),
    ({"options": {**OPTIONS, "merge-engine": "first-row"}}, Unsupported, "deletion-vectors.enabled: the first-row engine"),
    ({"options": {**OPTIONS, "changelog-producer": "full-compaction"}}, Unsupported, "changelog-producer"),
    ({"options": {**OPTIONS, "file.format": "csv"}}, Unsupported, "file.format = csv"),
    ({"options": {**OPTIONS, "fields.x.aggregate-function": "sum"}}, UsageError, "there is no column 'x'; the columns are"),
    ({"options": {**OPTIONS, "rowkind.field": "x"}}, UsageError, "rowkind.field = 'x': there is no column 'x'"),
    ({"options": {**OPTIONS, "rowkind.field": "id"}}, UsageError, "rowkind.field = 'id': the column must be of a character type"),
    ({"options": {**OPTIONS, "some.new.option": "1"}}, Unsupported, "some.new.option"),
    ({"options": {**OPTIONS, "write-only": "yes"}}, UsageError, "write-only = 'yes'"),
    ({"options": {**OPTIONS, "num-levels": "x"}}, UsageError, "num-levels = 'x'"),
    ({"options": {**OPTIONS, "metadata.stats-mode": "some"}}, UsageError, "'some' is not a statistics mode"),
    ({"options": {**OPTIONS, "fields.name.stats-mode": "n"}}, UsageError, "'n' is not a statistics mode"),
    ({"options": {**OPTIONS, "metadata.stats-mode.per.level": "0:full,5:x"}}, UsageError, "'x' is not a statistics mode"),
    ({"options": {**OPTIONS, "snapshot.num-retained.max": "2"}}, UsageError, "snapshot.num-retained.min"),
    ({"primaryKeys": []}, Unsupported, "no primary key"),
    ({"primaryKeys": ["p"]}, Unsupported, "all of its columns are partition keys"),
    ({"primaryKeys": ["id"]}, Unsupported, "partitioned by p"),
]


@pytest.mark.parametrize(("changes", "error", "message"), REFUSED, ids=[message for _, _, message in REFUSED])
def test_what_cannot_be_a_table_is_refused_and_nothing_is_made(
    changes: dict[str, Any], error: type[Exception], message: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=message):
        maintainer.create_table(str(tmp_path / "t"), definition(**changes))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", ["ARRAY<INT>", "MAP<INT, INT>", "ROW<a INT>", "MULTISET<INT>"])
def test_nested_columns_cannot_be_keys(text: str) -> None:
    with pytest.raises(UsageError, match="the primary key cannot have column 'id'"):
        schema_of(definition(fields=[{"name": "id", "type": text}, {"name": "p", "type": "DATE"}]))


def test_a_default_must_be_a_value() -> None:
    fields = [{"name": "id", "type": "INT"}, {"name": "p", "type": "DATE"}, {"name": "n", "type": "INT", "defaultValue": "x"}]
    with pytest.raises(UsageError, match="default value 'x' is no INT"):
        schema_of(definition(fields=fields))


def test_a_missing_definition_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"nowhere\.json"):
        schema_of(tmp_path / "nowhere.json")


def test_broken_json_is_no_definition() -> None:
    with pytest.raises(UsageError, match="no JSON"):
        schema_of('{"fields": [')


def test_what_is_no_definition_is_refused_with_what_would_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.sql").write_text("CREATE TABLE t (id BIGINT)")
    with pytest.raises(UsageError, match=r"'t\.sql' is the name of a file: give a pathlib\.Path"):
        schema_of("t.sql")
    with pytest.raises(UsageError, match=r"not by Schema$"):
        schema_of(pa.schema([("id", pa.int64())]))
    with pytest.raises(UsageError, match="the member 'primary_keys', which means nothing; it may have fields, primaryKeys, "):
        schema_of({"fields": [{"name": "id", "type": "BIGINT"}], "primary_keys": ["id"]})
    with pytest.raises(UsageError, match="unknown type 'TEXT', Paimon has STRING"):
        schema_of({"fields": [{"name": "id", "type": "TEXT"}]})
