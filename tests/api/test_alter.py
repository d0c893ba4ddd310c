"""Schemas that are altered: published once, judged like new ones, and what they mean for indexes is told and done."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import maintainer
from maintainer import changes as c
from maintainer.errors import CommitConflict, Unsupported, UsageError
from maintainer.format import schema_json
from maintainer.model.schema_change import SchemaChange
from maintainer.storage.storage import OutcomeUnknown
from maintainer.table.store import TableStore
from tests.support.builders import type_
from tests.support.command import run
from tests.support.evolve import retype_column, set_options
from tests.support.tables import append, make_busy_table, make_table

BTREE, BITMAP = "pk-btree.index.columns", "pk-bitmap.index.columns"


def schemas(table: maintainer.Table) -> list[str]:
    return sorted(path.name for path in (Path(table.store.uri) / "schema").iterdir())


class TestPublishing:
    def test_the_next_schema_is_a_file_of_its_own_and_holds_at_once(self, tmp_path: Path) -> None:
        table = make_table(tmp_path)
        append(table, 0, 10)
        done = table.alter(c.add_column("w", "INT"), set={"snapshot.num-retained.max": "50"})
        assert (done.table, done.schema_id, done.previous_schema_id, done.indexes, done.notes) == (table.name, 1, 0, (), ())
        assert table.schema.id == 1
        assert table.schema.time_millis > 0
        with table.writer() as writer:
            writer.write(pa.table({"id": [100], "v": ["x"], "n": [1], "w": [7]}))
        table.maintain(full=True)
        assert table.scan(where="id IN (0, 100)", columns=["id", "w"], order_by="id").to_arrow().to_pydict() == {"id": [0, 100], "w": [None, 7]}
        assert table.verify(deep=True).ok

    def test_changes_that_change_nothing_make_no_schema(self, tmp_path: Path) -> None:
        table = make_table(tmp_path)
        done = table.alter(set={"bucket": "2"}, unset=["never.set"])
        assert (done.schema_id, done.previous_schema_id) == (0, 0)
        assert schemas(table) == ["schema-0"]
        with pytest.raises(UsageError, match="what is to be changed"):
            table.alter()

    def test_what_else_is_to_be_done_is_told(self, tmp_path: Path) -> None:
        table = make_table(tmp_path, {"deletion-vectors.modifiable": "true", "alter-column-null-to-not-null.disabled": "false"})
        assert table.alter(set={"bucket": "3"}, unset=["never.set"]).notes == ("option never.set was not set",)
        append(table, 0, 10)
        done = table.alter(c.set_nullable("n", False), set={"bucket": "4", "deletion-vectors.enabled": "false"}, unset=[BTREE, BITMAP])
        assert [note.split()[0:2] for note in done.notes] == [["column", "n:"], ["partitions", "that"], ["run", "`maintainer"]]

    def test_dynamic_options_stay_out_of_it(self, tmp_path: Path) -> None:
        table = make_table(tmp_path)
        opened = maintainer.open_table(table.store.uri, options={"read.batch-size": "7"})
        opened.alter(set={"snapshot.num-retained.max": "50"})
        assert "read.batch-size" not in table.schema.options

    def test_who_comes_second_starts_again_from_the_schema_of_the_first(self, tmp_path: Path) -> None:
        table = make_table(tmp_path, {"commit.max-retries": "50"})
        errors: list[Exception] = []

        def add(name: str) -> None:
            try:
                maintainer.open_table(table.store.uri).alter(c.add_column(name, "INT"))
            except Exception as error:
                errors.append(error)

        threads = [threading.Thread(target=add, args=(f"c{i}",)) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not errors
        assert set(table.schema.names[3:]) == {f"c{i}" for i in range(8)}
        assert schemas(table) == [f"schema-{i}" for i in range(9)]
        ids = [field.id for field in table.schema.fields]
        assert sorted(ids) == list(range(11))

    @pytest.mark.parametrize("is_there", [True, False])
    def test_an_answer_of_the_store_that_was_lost(self, is_there: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        table = make_table(tmp_path)
        create, lost = type(table.store.storage).create_if_absent, [True]

        def loses(storage: Any, path: str, data: bytes, **options: Any) -> bool:
            losing = path.endswith("schema-1") and lost.pop() if lost else False
            created = create(storage, path, data, **options) if is_there or not losing else False
            if losing:
                raise OutcomeUnknown(path)
            return created

        monkeypatch.setattr(type(table.store.storage), "create_if_absent", loses)
        assert table.alter(c.add_column("w", "INT")).schema_id == 1
        assert schemas(table) == ["schema-0", "schema-1"]
        assert "w" in table.schema.names

    def test_a_race_that_cannot_be_won_ends(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        table = make_table(tmp_path, {"commit.max-retries": "2"})
        monkeypatch.setattr(TableStore, "publish_schema", lambda store, schema: False)
        with pytest.raises(CommitConflict, match="3 times somebody else published a schema first"):
            table.alter(c.add_column("w", "INT"))

    def test_a_change_that_the_first_made_impossible_is_told(self, tmp_path: Path) -> None:
        table = make_table(tmp_path)
        table.alter(c.add_column("w", "INT"))
        with pytest.raises(UsageError, match="Column w already exists"):
            table.alter(c.add_column("w", "BIGINT"))

    def test_branches_have_schemas_of_their_own(self, tmp_path: Path) -> None:
        table = make_table(tmp_path)
        branch = Path(table.store.uri) / "branch" / "branch-dev" / "schema"
        branch.mkdir(parents=True)
        (branch / "schema-0").write_bytes(schema_json.encode(table.schema))
        maintainer.open_table(table.store.uri, branch="dev").alter(c.add_column("w", "INT"))
        assert (branch / "schema-1").exists()
        assert schemas(table) == ["schema-0"]


class TestJudging:
    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (c.set_option(BTREE, "nope"), "pk-btree.index.columns entry 'nope' must reference an existing column."),
            (c.set_option(BITMAP, "v,n"), "Column 'n' can own at most one primary-key index."),
            (c.set_option("pk-vector.index.columns", "id"), "fields.id.pk-vector.index.type must be configured"),
            (c.set_option("pk-full-text.index.columns", "id"), "must reference a CHAR/VARCHAR/STRING column"),
            (c.set_option("btree-index.block-size", "large"), "btree-index.block-size = 'large' is not a memory size"),
            (c.set_option("fields.n.pk-btree.index.options", "{"), "fields.n.pk-btree.index.options must be a JSON object"),
            (c.set_option("num-levels", "0"), "num-levels"),
            (c.set_option("fields.zz.aggregate-function", "max"), "there is no column 'zz'"),
            (c.set_option("sequence.field", "zz"), "zz"),
            (c.set_option("file.format", "csv"), "files of this format are not written"),
            (c.add_column("blob", "BLOB"), "type BLOB is not supported yet"),
            (c.set_default("id", "seven"), "the default value 'seven' is no BIGINT"),
            (c.add_column("_LEVEL", "INT"), "belongs to Paimon's own columns"),
            (c.drop_column("n"), "Cannot drop primary-key index column: [n]"),
        ],
    )
    def test_a_schema_that_no_table_can_have_is_not_published(self, change: SchemaChange, message: str, tmp_path: Path) -> None:
        table = make_table(tmp_path)
        append(table, 0, 10)
        with pytest.raises((UsageError, Unsupported)) as raised:
            table.alter(change)
        assert message in str(raised.value)
        assert schemas(table) == ["schema-0"]

    def test_a_default_must_fit_the_new_type(self, tmp_path: Path) -> None:
        table = make_table(tmp_path)
        table.alter(c.add_column("w", "STRING"), c.set_default("w", "text"))
        with pytest.raises(UsageError, match="the default value 'text' is no INT"):
            table.alter(c.alter_type("w", "INT"))

    def test_files_must_be_read_as_the_new_type_whatever_lies_between(self, tmp_path: Path) -> None:
        """INT to STRING to DATE is allowed step by step, but there is no cast from INT to DATE."""
        table = make_table(tmp_path, {BTREE: None})
        append(table, 0, 10)
        table.alter(c.alter_type("n", "STRING"))
        with pytest.raises(Unsupported, match=r"its type was changed since schema 0 \(INT to DATE\), and there is no cast"):
            table.alter(c.alter_type("n", "DATE"))
        table.maintain(full=True)
        table.alter(c.alter_type("n", "DATE"))

    def test_indexes_that_cannot_be_maintained_yet_are_judged_by_their_rules_and_then_refused(self, tmp_path: Path) -> None:
        table = make_table(tmp_path)
        with pytest.raises(Unsupported, match=r"pk-full-text\.index\.columns = v.*not maintained yet"):
            table.alter(set={"pk-full-text.index.columns": "v"}, unset=[BITMAP])

    def test_a_table_that_cannot_be_maintained_may_be_made_one_that_can(self, tmp_path: Path) -> None:
        table = make_table(tmp_path)
        own(table, {"global-index.external-path": "s3://elsewhere", "data-file.external-paths": "s3://b"})
        with pytest.raises(Unsupported, match="columns cannot be changed here"):
            table.alter(c.add_column("w", "INT"))
        with pytest.raises(Unsupported, match="could not be maintained any more"):
            table.alter(set={"index-file-in-data-file-dir": "true"})
        table.alter(unset=["data-file.external-paths"])
        table.alter(set={"snapshot.num-retained.max": "50"}, unset=["global-index.external-path"])
        table.alter(c.add_column("w", "INT"))
        assert "w" in table.schema.names


class TestIndexes:
    def test_a_new_definition_is_built_by_the_next_pass(self, tmp_path: Path) -> None:
        table = make_busy_table(tmp_path, {BTREE: None, BITMAP: None})
        (added,) = table.alter(set={BTREE: "n"}).indexes
        assert (added.column, added.family, added.change, added.payloads) == ("n", "btree", "added", 0)
        assert added.levels > 0
        assert added.what == f"{added.levels} groups will be built by the next pass"
        assert table.maintain(index_only=True).groups_built == added.levels

    def test_payloads_of_a_definition_that_is_gone_are_dropped_by_the_next_pass(self, tmp_path: Path) -> None:
        table = make_busy_table(tmp_path)
        (removed,) = table.alter(unset=[BTREE]).indexes
        assert (removed.column, removed.change, removed.levels) == ("n", "removed", 0)
        assert removed.payloads > 0
        assert "will be dropped" in removed.what
        assert table.maintain(index_only=True).groups_dropped == removed.payloads
        assert table.verify(deep=True).ok

    def test_a_column_that_moves_to_another_family_is_both(self, tmp_path: Path) -> None:
        table = make_busy_table(tmp_path)
        (moved,) = table.alter(set={BITMAP: "v,n"}, unset=[BTREE]).indexes
        assert (moved.column, moved.family, moved.change) == ("n", "bitmap", "moved")
        report = table.maintain(index_only=True)
        assert (report.groups_built, report.groups_dropped) == (moved.levels, moved.payloads)
        assert table.scan(where="n = 3").to_arrow().num_rows == table.scan(where="n = 3", use_index=False).to_arrow().num_rows

    def test_build_options_apply_from_the_next_build_of_each_level(self, tmp_path: Path) -> None:
        table = make_busy_table(tmp_path)
        table.maintain()
        (changed,) = table.alter(set={"fields.n.pk-btree.index.options": '{"block-size": "1 kb"}'}).indexes
        assert (changed.change, changed.options, changed.levels) == ("options", ("btree-index.block-size",), 0)
        assert "maintainer index TABLE rebuild --column n --force" in changed.what
        before = table.coverage()
        assert table.maintain(index_only=True).outcome == "nothing"
        assert table.maintain(index_only=True, columns=["n"], force=True).groups_built == changed.payloads
        assert table.coverage().definitions == before.definitions

    def test_options_of_readers_are_no_news_for_payloads(self, tmp_path: Path) -> None:
        table = make_busy_table(tmp_path)
        assert table.alter(set={"btree-index.fallback-scan-max-size": "1 mb"}).indexes == ()

    def test_payloads_of_before_a_change_of_type_are_dropped_before_the_column_is_indexed_again(self, tmp_path: Path) -> None:
        table = make_busy_table(tmp_path)
        table.alter(unset=[BTREE])
        table.alter(c.alter_type("n", "BIGINT"))
        with pytest.raises(UsageError, match="maintainer once TABLE"):
            table.alter(set={BTREE: "n"})
        table.maintain()
        (note,) = table.alter(set={BTREE: "n"}).notes
        assert "compaction.force-rewrite-all-files=true" in note
        table.maintain()
        assert table.coverage().ratio("n") == 0.0
        maintainer.open_table(table.store.uri, options={"compaction.force-rewrite-all-files": "true"}).maintain(full=True)
        assert table.coverage().ratio("n") == 1.0
        assert table.verify(deep=True).ok

    def test_a_payload_of_a_type_that_was_changed_back_is_not_asked(self, tmp_path: Path) -> None:
        """Its keys are of the type of between, and no file was written with that."""
        table = make_busy_table(tmp_path)
        table.maintain()
        for number_type in ("FLOAT", "INT"):
            own(table, {BTREE: None})
            retype_column(table.store.uri, "n", type_(number_type))
            if number_type == "FLOAT":
                table.maintain(index_only=True)
            own(table, {BTREE: "n"})
            if number_type == "FLOAT":
                table.maintain(index_only=True)
        assert table.scan(where="n = 5").to_arrow().num_rows == table.scan(where="n = 5", use_index=False).to_arrow().num_rows > 0
        assert table.coverage().ratio("n") == 0.0

    def test_one_option_that_is_unset_needs_no_list(self, tmp_path: Path) -> None:
        table = make_table(tmp_path)
        assert table.alter(unset=BTREE).indexes[0].change == "removed"

    def test_what_a_change_inside_of_an_indexed_column_means_is_told(self, tmp_path: Path) -> None:
        table = make_table(tmp_path, {"pk-multivalue.index.columns": "tags"}, more=[("tags", "ARRAY<INT>")])
        assert table.alter(c.alter_type("tags.element", "BIGINT")).notes == ()
        append(table, 0, 10, tags=[1, 2])
        table.maintain()
        assert table.alter(c.add_column("w", "INT")).notes == ()
        (note,) = table.alter(c.alter_type("tags.element", "STRING")).notes
        assert note.startswith(
            "column tags: queries do not use its index from now on, as the type of the column was changed (BIGINT to STRING)"
        )
        assert "compact TABLE --full --option compaction.force-rewrite-all-files=true" in note

    def test_an_indexed_column_is_renamed_in_three_steps(self, tmp_path: Path) -> None:
        table = make_busy_table(tmp_path)
        table.alter(unset=[BTREE])
        table.alter(c.rename_column("n", "number"))
        table.alter(set={BTREE: "number"})
        report = table.maintain()
        assert report.outcome == "committed"
        assert {each.column for each in table.coverage().definitions} == {"v", "number"}
        assert table.verify(deep=True).ok


def own(table: maintainer.Table, options: dict[str, str | None]) -> None:
    """Options as another engine sets them: nobody asks us."""
    set_options(table.store.uri, **options)


class TestCommand:
    def alter(self, table: maintainer.Table, *words: str) -> dict[str, Any]:
        result = run("alter", table.store.uri, *words, "--json")
        assert result.exit_code == 0, result.output
        return dict(json.loads(result.stdout))

    def test_every_action(self, tmp_path: Path) -> None:
        table = make_table(tmp_path)
        done = self.alter(table, "set", "snapshot.num-retained.max=50", "comment=c=d", "and", "unset", "write-only")
        assert done == {"version": 1, "table": table.name, "schema_id": 1, "previous_schema_id": 0, "indexes": [], "notes": []}
        assert table.schema.options["comment"] == "c=d"
        assert "write-only" not in table.schema.options
        self.alter(table, "add-column", "w", "DECIMAL(10, 2)", "comment", "a price", "default", "1.5", "after", "id")
        w = table.schema.field("w")
        assert (str(w.type), w.description, w.default_value, table.schema.names[1]) == ("DECIMAL(10, 2)", "a price", "1.5", "w")
        self.alter(table, "add-column", "r", "ROW<x INT>", "and", "add-column", "r.y", "INT", "first", "and", "rename-column", "r.x", "z")
        assert str(table.schema.field("r").type) == "ROW<y INT, z INT>"
        self.alter(table, "alter-type", "w", "STRING", "and", "drop-default", "w", "and", "comment-column", "w", "text")
        w = table.schema.field("w")
        assert (str(w.type), w.description, w.default_value) == ("STRING", "text", None)
        self.alter(
            table, "move-column", "w", "last", "and", "drop-column-comment", "w", "and", "set-default", "w", "none", "and", "comment", "all"
        )
        assert (table.schema.names[-1], table.schema.comment) == ("w", "all")
        self.alter(table, "set", "alter-column-null-to-not-null.disabled=false")
        self.alter(table, "set-not-null", "w", "and", "drop-comment")
        assert (str(table.schema.field("w").type), table.schema.comment) == ("STRING NOT NULL", None)
        self.alter(table, "drop-not-null", "w", "and", "drop-column", "r")
        assert table.schema.field("w").type.nullable
        assert "r" not in table.schema.names

    @pytest.mark.parametrize(
        ("words", "message"),
        [
            (["rename", "a", "b"], "'rename' is nothing that can be done to a schema; there are set, unset"),
            (["set"], "set: key=value is missing"),
            (["set", "x"], "set 'x': expected key=value"),
            (["add-column", "w"], "add-column: a type is missing"),
            (["add-column", "w", "INT", "NOT", "NULL"], "'NOT' is no place"),
            (["add-column", "w", "TEXT"], "Paimon has STRING"),
            (["alter-type", "n", "BIGINT", "STRING"], "'STRING' is one word too many"),
            (["move-column", "n", "up"], "'up' is no place"),
            (["rename-column", "n", "a.b"], "names with dots stand in backticks"),
            (["unset", "x", "and"], "'' is nothing that can be done"),
        ],
    )
    def test_words_that_say_nothing_are_usage_errors(self, words: list[str], message: str, tmp_path: Path) -> None:
        result = run("alter", make_table(tmp_path).store.uri, *words)
        assert result.exit_code == 2
        assert message in result.output

    def test_people_are_told_what_it_means(self, tmp_path: Path) -> None:
        table = make_busy_table(tmp_path)
        result = run("alter", table.store.uri, "unset", BTREE)
        assert "schema 0 → 1" in result.stdout
        assert "index on n (btree), removed" in result.stdout
        refused = run("alter", table.store.uri, "drop-column", "v")
        assert refused.exit_code == 2
        assert "Cannot drop primary-key index column: [v]. Take it out of pk-bitmap.index.columns" in refused.output


def test_names_in_backticks_may_hold_dots() -> None:
    assert c.path("r.`a.b`.c") == ("r", "a.b", "c")
    for wrong in ("", "a.", ".a", "`a"):
        with pytest.raises(UsageError, match="is no name of a column"):
            c.path(wrong)
