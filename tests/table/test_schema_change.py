from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from maintainer.api import changes as c
from maintainer.errors import UsageError
from maintainer.model.schema import TableSchema
from maintainer.model.schema_change import SchemaChange
from maintainer.table.schema_change import changed_schema, option_references
from tests.support import builders

COLUMNS = {
    "id": "INT", "p": "STRING", "a": "INT", "s": "STRING", "r": "ROW<x INT, y STRING, q ROW<k INT>>", "l": "ARRAY<INT>",
    "lr": "ARRAY<ROW<k INT, v STRING>>", "m": "MAP<STRING, ARRAY<INT>>", "i": "INT",
}  # fmt: skip
INDEX = {"bucket": "2", "deletion-vectors.enabled": "true", "pk-btree.index.columns": "i"}


def table(options: dict[str, str] | None = None, **more: Any) -> TableSchema:
    made = builders.schema(COLUMNS, ["p", "id"], ["p"], {**INDEX, **(options or {})})
    return replace(made, **more)


def after(*changes: SchemaChange, options: dict[str, str] | None = None, has_snapshots: bool = True) -> TableSchema:
    return changed_schema(table(options), changes, has_snapshots=has_snapshots)


def columns(schema: TableSchema) -> dict[str, tuple[int, str]]:
    return {field.name: (field.id, str(field.type)) for field in schema.fields}


def test_the_next_schema_has_the_next_id_and_all_else_as_it_was() -> None:
    old = table(comment="before")
    new = changed_schema(old, [c.set_option("x", "y")], has_snapshots=True)
    assert new == replace(old, id=1, options={**old.options, "x": "y"})
    assert old.options == table().options


class TestColumns:
    def test_a_new_column_gets_an_id_above_all_that_were_given_and_its_members_the_next_ones(self) -> None:
        old = table()
        new = after(c.add_column("n", "ROW<a INT, b ARRAY<ROW<z INT>>>", "why"), c.add_column("o", "INT", after="id"))
        assert new.names[:2] == ("id", "o")
        added = new.field("n")
        assert (added.id, added.description) == (old.highest_field_id + 1, "why")
        a, b = added.type.fields
        assert (a.id, b.id) == (added.id + 1, added.id + 3)
        assert b.type.element is not None
        assert b.type.element.fields[0].id == added.id + 2
        assert new.field("o").id == new.highest_field_id == added.id + 4

    def test_dropping_never_gives_an_id_back(self) -> None:
        new = after(c.drop_column("s"), c.add_column("s", "INT"))
        assert new.field("s").id == table().highest_field_id + 1
        assert new.names[-1] == "s"

    @pytest.mark.parametrize(
        ("path", "kind", "found"),
        [
            ("r.x", "BIGINT", "ROW<x BIGINT, y STRING, q ROW<k INT>>"),
            ("r.q.k", "BIGINT", "ROW<x INT, y STRING, q ROW<k BIGINT>>"),
            ("l.element", "BIGINT", "ARRAY<BIGINT>"),
            ("lr.element.k", "BIGINT", "ARRAY<ROW<k BIGINT, v STRING>>"),
            ("m.value.element", "BIGINT", "MAP<STRING, ARRAY<BIGINT>>"),
            ("a", "STRING", "STRING"),
        ],
    )
    def test_types_change_at_any_depth_and_keep_their_id(self, path: str, kind: str, found: str) -> None:
        name = path.split(".")[0]
        new = after(c.alter_type(path, kind))
        assert columns(new)[name] == (table().field(name).id, found)

    def test_a_type_change_keeps_whether_there_may_be_null(self) -> None:
        schema = table()
        fields = tuple(replace(f, type=f.type.with_nullable(False)) if f.name == "a" else f for f in schema.fields)
        new = changed_schema(replace(schema, fields=fields), [c.alter_type("a", "BIGINT")], has_snapshots=True)
        assert str(new.field("a").type) == "BIGINT NOT NULL"
        with pytest.raises(UsageError, match="leave out NOT NULL"):
            after(c.alter_type("a", "BIGINT NOT NULL"))

    def test_members_are_added_renamed_and_dropped_by_their_paths(self) -> None:
        new = after(
            c.add_column("r.n", "INT", first=True), c.rename_column("r.y", "why"), c.drop_column("r.x"), c.add_column("lr.element.w", "INT")
        )
        assert columns(new)["r"][1] == "ROW<n INT, why STRING, q ROW<k INT>>"
        assert columns(new)["lr"][1] == "ARRAY<ROW<k INT, v STRING, w INT>>"

    @pytest.mark.parametrize(
        ("position", "found"),
        [
            ({"first": True}, ["a", "id", "p", "s"]),
            ({"last": True}, ["id", "p", "s", "a"]),
            ({"after": "id"}, ["id", "a", "p", "s"]),
            ({"before": "p"}, ["id", "a", "p", "s"]),
            ({"after": "s"}, ["id", "p", "s", "a"]),
        ],
    )
    def test_columns_move(self, position: dict[str, Any], found: list[str]) -> None:
        schema = builders.schema({"id": "INT", "p": "INT", "a": "INT", "s": "INT"})
        new = changed_schema(schema, [c.move_column("a", **position)], has_snapshots=True)
        assert list(new.names) == found

    def test_new_columns_go_before_the_partition_where_the_table_wants_it(self) -> None:
        new = after(c.add_column("n", "INT"), options={"add-column-before-partition": "true"})
        assert new.names[:3] == ("id", "n", "p")

    def test_comments_defaults_and_nullability(self) -> None:
        new = after(
            c.set_comment("all"),
            c.set_column_comment("a", "one"),
            c.set_default("a", "5"),
            c.set_column_comment("r.x", "member"),
            c.set_nullable("s", False),
            options={"alter-column-null-to-not-null.disabled": "false"},
        )
        a = new.field("a")
        assert (new.comment, a.description, a.default_value) == ("all", "one", "5")
        assert new.field("r").type.fields[0].description == "member"
        assert not new.field("s").type.nullable
        again = changed_schema(new, [c.set_default("a", None), c.set_column_comment("a", None), c.set_comment(None)], has_snapshots=True)
        assert (again.comment, again.field("a").description, again.field("a").default_value) == (None, None, None)

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (c.add_column("a", "INT"), "Column a already exists."),
            (c.add_column("r.x", "INT"), "Column r.x already exists."),
            (c.add_column("n", "INT NOT NULL"), "Column n cannot specify NOT NULL"),
            (c.add_column("z.x", "INT"), "Column z does not exist"),
            (c.add_column("n", "INT", after="zz"), "Column zz does not exist"),
            (c.add_column("n", "BYTES", "__BLOB_FIELD"), "give the type itself"),
            (c.rename_column("sx", "t"), "Column sx does not exist: did you mean s?"),
            (c.rename_column("s", "a"), "Column a already exists."),
            (c.rename_column("p", "part"), "Cannot rename partition column: [p]"),
            (c.rename_column("i", "j"), "Cannot rename primary-key index column: [i]. Take it out of pk-btree.index.columns"),
            (c.rename_column("l.element", "e"), "l.element is no column of its own"),
            (c.drop_column("id"), "Cannot drop partition key or primary key: [id]"),
            (c.drop_column("p"), "Cannot drop partition key or primary key: [p]"),
            (c.drop_column("i"), "Cannot drop primary-key index column: [i]"),
            (c.drop_column("r.q.k"), "Cannot drop all fields in r.q"),
            (c.drop_column("l.element"), "l.element is no column of its own"),
            (c.drop_column("nope"), "Column nope does not exist"),
            (c.alter_type("i", "BIGINT"), "Cannot update type of primary-key index column: [i]"),
            (c.alter_type("id", "BIGINT"), "Cannot update primary key"),
            (c.alter_type("p", "INT"), "Cannot update partition column: [p]"),
            (c.alter_type("a", "DATE"), "Column type a[INT] cannot be converted to DATE without losing information."),
            (c.alter_type("r", "ROW<x INT>"), "Members of a ROW are changed by their paths"),
            (c.alter_type("a", "BLOB"), "Cannot change column type involving BLOB"),
            (c.alter_type("l.x", "BIGINT"), "what ARRAY<INT> holds is called l.element"),
            (c.alter_type("m.key", "INT"), "what MAP<STRING, ARRAY<INT>> holds is called m.value"),
            (c.alter_type("a.x", "BIGINT"), "a is INT, which has no members"),
            (c.set_nullable("id", True), "Cannot change nullability of primary key"),
            (c.set_nullable("s", False), "'alter-column-null-to-not-null.disabled' = 'false'"),
            (c.set_column_comment("r.zz", "x"), "Column r.zz does not exist"),
            (c.set_default("zz", "1"), "Column zz does not exist"),
            (c.move_column("a", after="a"), "Cannot move itself for column a"),
            (c.move_column("a", after="zz"), "Column zz does not exist"),
        ],
    )
    def test_what_cannot_be_done_to_columns(self, change: SchemaChange, message: str) -> None:
        with pytest.raises(UsageError) as raised:
            after(change)
        assert message in str(raised.value)

    def test_only_the_indexed_column_itself_is_guarded(self) -> None:
        options = {"pk-btree.index.columns": "r", "alter-column-null-to-not-null.disabled": "false"}
        new = after(
            c.alter_type("r.x", "BIGINT"),
            c.rename_column("r.y", "z"),
            c.set_nullable("r", False),
            c.set_column_comment("r", "x"),
            c.move_column("r", first=True),
            options=options,
        )
        assert columns(new)["r"][1] == "ROW<x BIGINT, z STRING, q ROW<k INT>> NOT NULL"

    def test_a_column_is_free_once_an_earlier_alter_took_it_out_of_the_list(self) -> None:
        with pytest.raises(UsageError, match="in an alter before this one"):
            after(c.unset_option("pk-btree.index.columns"), c.rename_column("i", "j"))
        new = changed_schema(after(c.unset_option("pk-btree.index.columns")), [c.rename_column("i", "j")], has_snapshots=True)
        assert "j" in new.names

    def test_every_family_guards_its_columns(self) -> None:
        for family in ("btree", "bitmap", "multivalue", "fm", "vector", "full-text"):
            with pytest.raises(UsageError, match=f"Take it out of pk-{family}.index.columns"):
                after(c.drop_column("a"), options={f"pk-{family}.index.columns": "s , a"})

    def test_only_wider_types_where_explicit_casts_are_switched_off(self) -> None:
        options = {"disable-explicit-type-casting": "true"}
        assert str(after(c.alter_type("a", "BIGINT"), options=options).field("a").type) == "BIGINT"
        with pytest.raises(UsageError, match="Unset disable-explicit-type-casting"):
            after(c.alter_type("a", "SMALLINT"), options=options)


NAMING = {
    "sequence.field": "a,s",
    "bucket-key": "id",
    "fields.a.aggregate-function": "max",
    "fields.a,s.sequence-group": "l,m",
    "fields.l.nested-key": "a",
    "fields.default-aggregate-function": "last_value",
    "record-level.time-field": "a",
}


class TestOptionsOfColumns:
    def test_are_renamed_with_it(self) -> None:
        new = after(c.rename_column("a", "b"), c.rename_column("id", "key"), c.rename_column("l", "list"), options=NAMING)
        assert {key: value for key, value in new.options.items() if key not in INDEX} == {
            "sequence.field": "b,s",
            "bucket-key": "key",
            "fields.b.aggregate-function": "max",
            "fields.b,s.sequence-group": "list,m",
            "fields.list.nested-key": "a",
            "fields.default-aggregate-function": "last_value",
            "record-level.time-field": "b",
        }
        assert new.primary_keys == ("p", "key")

    def test_a_renamed_member_leaves_them(self) -> None:
        new = after(c.rename_column("r.x", "s2"), c.rename_column("r.y", "s3"), options={"sequence.field": "r"})
        assert new.options["sequence.field"] == "r"

    def test_keep_a_column_from_being_dropped(self) -> None:
        with pytest.raises(UsageError) as raised:
            after(c.drop_column("a"), options=NAMING)
        for key in ("sequence.field", "fields.a.aggregate-function", "fields.a,s.sequence-group", "record-level.time-field"):
            assert key in str(raised.value)
        unset = [c.unset_option(key) for key in option_references(NAMING, "a")]
        assert "a" not in after(*unset, c.drop_column("a"), options=NAMING).names


class TestOptions:
    def test_are_set_and_unset(self) -> None:
        new = after(c.set_option("x", "1"), c.unset_option("y"), c.unset_option("never"), options={"y": "2"})
        assert new.options == {**INDEX, "x": "1"}

    @pytest.mark.parametrize(
        ("options", "change", "message"),
        [
            ({}, c.set_option("merge-engine", "aggregation"), "Change 'merge-engine' is not supported yet."),
            ({"merge-engine": "aggregation"}, c.unset_option("merge-engine"), "Change 'merge-engine' is not supported yet."),
            ({}, c.set_option("pk-clustering-override", "true"), "Change 'pk-clustering-override' is not supported yet."),
            ({}, c.set_option("primary-key", "a"), "Change 'primary-key' is not supported yet."),
            ({}, c.set_option("type", "format-table"), "Change 'type' is not supported yet."),
            ({}, c.set_option("path", "/x"), "Change 'path' is not supported yet."),
            ({}, c.unset_option("type"), "Change 'type' is not supported yet."),
            ({"bucket": "-1"}, c.set_option("bucket", "4"), "Cannot change bucket when it is -1."),
            ({}, c.set_option("bucket", "-1"), "Cannot change bucket to -1."),
            ({}, c.set_option("bucket", "many"), "is not a whole number"),
            ({}, c.unset_option("bucket"), "Cannot reset bucket."),
            ({}, c.set_option("deletion-vectors.enabled", "false"), "Cannot change deletion vectors mode from true to false."),
            ({}, c.unset_option("deletion-vectors.enabled"), "'deletion-vectors.modifiable' = 'true'"),
            ({"ignore-delete": "true"}, c.set_option("ignore-delete", "false"), "Cannot change ignore-delete from true to false."),
            ({"pk-clustering-override": "true"}, c.set_option("clustering.columns", "a"), "Cannot change clustering.columns"),
            ({"pk-clustering-override": "true"}, c.unset_option("clustering.columns"), "Cannot reset clustering.columns"),
        ],
    )
    def test_what_data_keeps_from_being_changed(self, options: dict[str, str], change: SchemaChange, message: str) -> None:
        with pytest.raises(UsageError) as raised:
            after(change, options=options)
        assert message in str(raised.value)

    def test_a_table_without_data_may_become_anything_but_of_another_type(self) -> None:
        new = after(c.set_option("merge-engine", "aggregation"), c.unset_option("bucket"), has_snapshots=False)
        assert new.options["merge-engine"] == "aggregation"
        with pytest.raises(UsageError, match="Change 'type'"):
            after(c.set_option("type", "format-table"), has_snapshots=False)

    def test_what_says_the_same_is_no_change(self) -> None:
        new = after(
            c.set_option("primary-key", "p, id"), c.set_option("partition", "p"), c.set_option("type", "TABLE"), c.set_option("bucket", "2")
        )
        assert new.options == INDEX

    def test_vectors_may_be_switched_in_an_alter_after_the_one_that_allows_it(self) -> None:
        allowed = after(c.set_option("deletion-vectors.modifiable", "true"))
        with pytest.raises(UsageError, match="in an alter of its own before this one"):
            after(c.set_option("deletion-vectors.modifiable", "true"), c.set_option("deletion-vectors.enabled", "false"))
        new = changed_schema(allowed, [c.set_option("deletion-vectors.enabled", "false")], has_snapshots=True)
        assert new.options["deletion-vectors.enabled"] == "false"

    def test_keys_that_are_given_as_options_are_taken_into_the_schema(self) -> None:
        bare = replace(table(), primary_keys=(), partition_keys=())
        new = changed_schema(bare, [c.set_option("primary-key", "id, p"), c.set_option("partition", "p")], has_snapshots=False)
        assert (new.primary_keys, new.partition_keys) == (("id", "p"), ("p",))
        assert "primary-key" not in new.options
        assert not new.field("id").type.nullable

    @pytest.mark.parametrize("key", ["primary-key", "partition"])
    def test_keys_that_are_there_are_not_changed_by_options(self, key: str) -> None:
        with pytest.raises(UsageError, match=f"option {key}: the table has these keys already"):
            after(c.set_option(key, "a"), has_snapshots=False)
