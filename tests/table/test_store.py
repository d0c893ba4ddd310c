from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from maintainer.errors import CorruptFile, CorruptTable, NotATable, Unsupported, UsageError
from maintainer.format import schema_json
from maintainer.table.opening import check_branch, create_store, open_store, table_uri
from maintainer.table.store import TableStore
from tests.support import builders
from tests.support.builders import file_meta
from tests.support.metadata_tables import append, empty_table, latest


@pytest.fixture
def store(tmp_path: Path) -> TableStore:
    """Three snapshots."""
    store = empty_table(tmp_path)
    for number in range(3):
        append(store, file_meta(f"f{number}.parquet"))
    return store


class TestOpening:
    def test_by_path_uri_or_name_in_a_warehouse(self, tmp_path: Path) -> None:
        create_store("db.t", builders.schema(), warehouse=str(tmp_path))
        path = tmp_path / "db.db" / "t"
        for opened in (open_store(str(path)), open_store(f"file://{path}"), open_store("db.t", warehouse=f"file:{tmp_path}")):
            assert opened.latest_schema() == builders.schema()
            assert opened.uri == str(path)

    def test_names(self) -> None:
        assert table_uri("db.t", "/wh/") == "/wh/db.db/t"
        assert table_uri("db.t.with.dots", "/wh") == "/wh/db.db/t.with.dots"
        for name in ("t", "db.", "db/t", "../x.t", ".t"):
            with pytest.raises(UsageError, match=r"named like db\.t"):
                table_uri(name, "/wh")

    def test_a_catalog_file_is_not_supported_yet(self) -> None:
        with pytest.raises(UsageError, match="catalog files are not supported yet"):
            open_store("db.t", catalog="c.yaml")

    @pytest.mark.parametrize(
        ("make", "place", "says"),
        [
            ([], "nothing", "there is no such directory$"),
            (["wh/a.db/orders/schema/schema-0"], "wh/a.db/x", "there is no such directory; the database has orders$"),
            ([f"wh/a.db/t{i}/schema/schema-0" for i in range(6)], "wh/a.db/x", "; the database has t0, t1, t2, t3, t4, …$"),
            (["sales.sql"], "sales", "there is no such directory$"),
            (["wh/a.db/orders/schema/schema-0"], "wh/a.db/order", r"there is no such directory, did you mean .*/wh/a\.db/orders\?"),
            (["x/y/z"], "x/y/z", "this is a file"),
            (["t/schema/schema-0", "t/bucket-0/data-0.parquet"], "t/bucket-0", "the table may be .*/t$"),
            (["wh/a.db/t/schema/schema-0"], "wh", "this is a warehouse"),
            (["wh/a.db/t/schema/schema-0"], "wh/a.db", "this is a database with t"),
            (["x/_delta_log/0.json"], "x", "Delta"),
            (["x/metadata/v1.json"], "x", "Iceberg"),
            (["x/schema/schema-0.tmp"], "x", "not a Paimon table"),
            ([], "empty", "the directory is empty"),
        ],
    )
    def test_what_is_not_a_table(self, tmp_path: Path, make: list[str], place: str, says: str) -> None:
        for name in make:
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("")
        (tmp_path / "empty").mkdir()
        with pytest.raises(NotATable, match=says) as caught:
            open_store(str(tmp_path / place))
        assert caught.value.exit_code == 2 and str(tmp_path / place) in str(caught.value)

    def test_a_branch_that_is_not_there(self, tmp_path: Path) -> None:
        create_store(str(tmp_path / "t"), builders.schema())
        with pytest.raises(NotATable, match=r"the branches are: only main$"):
            open_store(str(tmp_path / "t"), branch="dev")
        (tmp_path / "t/branch/branch-test/schema").mkdir(parents=True)
        with pytest.raises(NotATable, match=r"the branches are: test$"):
            open_store(str(tmp_path / "t"), branch="dev")

    def test_a_name_without_a_warehouse(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        with pytest.raises(NotATable, match=r"db\.t needs a warehouse"):
            open_store("db.t")

    def test_a_table_is_created_once(self, tmp_path: Path) -> None:
        store = create_store(str(tmp_path / "t"), builders.schema())
        assert store.latest_snapshot() is None and store.snapshot_ids() == ()
        with pytest.raises(UsageError, match="there is a table already"):
            create_store(str(tmp_path / "t"), builders.schema())
        with pytest.raises(UsageError, match="has id 0"):
            create_store(str(tmp_path / "u"), builders.schema(schema_id=1))


class TestSchemas:
    def test_the_latest_is_the_largest_id(self, store: TableStore) -> None:
        for schema_id in (1, 2, 10):
            store.storage.write(f"schema/schema-{schema_id}", schema_json.encode(replace(builders.schema(), id=schema_id)))
        for name in (".schema-11.x.tmp", "schema-11.tmp", "schema-x", "schema-", "schema-12/f"):
            store.storage.write(f"schema/{name}", b"")
        assert store.schema_ids() == (0, 1, 2, 10)
        assert store.latest_schema().id == 10
        assert [schema.id for schema in store.schemas()] == [0, 1, 2, 10]

    def test_a_schema_that_calls_itself_otherwise(self, store: TableStore) -> None:
        store.storage.write("schema/schema-5", schema_json.encode(builders.schema()))
        with pytest.raises(CorruptTable, match=r"schema/schema-5: .*calls itself 0"):
            store.latest_schema()

    def test_a_broken_schema_names_its_file(self, store: TableStore) -> None:
        store.storage.write("schema/schema-1", b'{"id": 1')
        with pytest.raises(CorruptFile, match=r"t/schema/schema-1: corrupt"):
            store.latest_schema()

    def test_dynamic_options_are_merged_into_schemas(self, store: TableStore) -> None:
        opened = open_store(store.uri, options={"num-levels": "3"})
        assert opened.latest_schema().options["num-levels"] == "3"
        assert opened.options().num_levels == 3
        assert opened.schema_of(latest(store)).options["num-levels"] == "3"
        assert "num-levels" not in opened.schema(0).options

    @pytest.mark.parametrize(("given", "text"), [(3, "3"), (True, "true"), (0.5, "0.5"), ("x", "x")])
    def test_a_dynamic_option_may_be_a_number_or_a_boolean(self, store: TableStore, given: object, text: str) -> None:
        assert open_store(store.uri, options={"some.option": given}).dynamic_options == {"some.option": text}  # type: ignore[dict-item]

    def test_a_dynamic_option_with_a_mistaken_name_or_kind_is_refused(self, store: TableStore) -> None:
        with pytest.raises(
            UsageError, match=r"option read\.index-cache-siz = .*: there is no such option; did you mean read\.index-cache-size\?"
        ):
            open_store(store.uri, options={"read.index-cache-siz": "1 mb"})
        with pytest.raises(UsageError, match=r"option num-levels = \[5\]: the value of an option is text, a number, or true or false"):
            open_store(store.uri, options={"num-levels": [5]})  # type: ignore[dict-item]

    def test_a_table_may_be_given_by_a_path(self, store: TableStore) -> None:
        place = Path(store.uri)
        assert open_store(place).uri == store.uri
        with pytest.raises(UsageError, match="there is a table already"):
            create_store(place, store.latest_schema())

    def test_what_belongs_to_the_table_cannot_be_set_for_a_call(self, store: TableStore) -> None:
        open_store(store.uri, options={"bucket": "2"})
        with pytest.raises(UsageError, match="option bucket = '4'"):
            open_store(store.uri, options={"bucket": "4"})
        with pytest.raises(UsageError, match=r"deletion-vectors\.enabled"):
            open_store(store.uri, options={"deletion-vectors.enabled": "false"})
        with pytest.raises(UsageError, match=r"option pk-fm\.index\.columns = 'v': this option belongs to the table"):
            open_store(store.uri, options={"pk-fm.index.columns": "v"})
        open_store(store.uri, options={"fm-index.read-cache-size": "1 mb"})


class TestLatest:
    @pytest.mark.parametrize("hint", [None, b"3", b"1", b"2", b"9", b"3\n", b" 3", b"", b"garbage", b"-3", b"0", b"\xff\x00", b"9" * 400])
    def test_hints_that_lag_lead_or_hold_garbage(self, store: TableStore, hint: bytes | None) -> None:
        store.storage.delete("snapshot/LATEST")
        if hint is not None:
            store.storage.replace("snapshot/LATEST", hint)
        assert store.latest_snapshot_id() == 3
        assert latest(store).id == 3

    def test_a_hint_that_cannot_be_read(self, store: TableStore) -> None:
        store.storage.delete("snapshot/LATEST")
        Path(store.uri, "snapshot", "LATEST").mkdir()
        assert store.latest_snapshot_id() == 3

    def test_a_right_hint_costs_no_listing(self, store: TableStore, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(store.storage, "list", None)
        assert store.latest_snapshot_id() == 3

    def test_other_names_are_skipped(self, store: TableStore) -> None:
        for name in (".snapshot-9.x.tmp", "snapshot-9.tmp", "snapshot-x", "snapshot-10/f", "snapshot--1", "snapshot-" + "9" * 30):
            store.storage.write(f"snapshot/{name}", b"")
        store.storage.delete("snapshot/LATEST")
        assert store.snapshot_ids() == (1, 2, 3) and store.latest_snapshot_id() == 3

    def test_no_snapshot_directory_is_an_empty_table(self, tmp_path: Path) -> None:
        store = empty_table(tmp_path)
        assert store.latest_snapshot() is None and store.latest_snapshot_id() is None
        assert store.snapshot_as_of(2**60) is None
        with pytest.raises(UsageError, match="no snapshot 1; the table has no snapshot"):
            store.snapshot(1)

    def test_a_snapshot_that_calls_itself_otherwise(self, store: TableStore) -> None:
        store.storage.write("snapshot/snapshot-4", store.storage.read("snapshot/snapshot-3"))
        with pytest.raises(CorruptTable, match=r"snapshot-4: .*calls itself 3"):
            store.latest_snapshot()

    def test_an_unknown_version_names_its_file(self, store: TableStore) -> None:
        text = json.loads(store.storage.read("snapshot/snapshot-3"))
        store.storage.write("snapshot/snapshot-4", json.dumps({**text, "id": 4, "version": 4}).encode())
        with pytest.raises(Unsupported, match=r"t/snapshot/snapshot-4: .*version 4") as caught:
            store.latest_snapshot()
        assert caught.value.exit_code == 7

    def test_a_truncated_snapshot_names_its_file(self, store: TableStore) -> None:
        store.storage.write("snapshot/snapshot-4", store.storage.read("snapshot/snapshot-3")[:-20])
        with pytest.raises(CorruptFile, match=r"t/snapshot/snapshot-4: corrupt"):
            store.latest_snapshot()


class TestTimeTravel:
    def test_by_time_with_gaps(self, store: TableStore) -> None:
        times = [store.snapshot(snapshot_id).time_millis for snapshot_id in (1, 2, 3)]
        store.storage.delete("snapshot/snapshot-2")
        found = store.snapshot_as_of(times[2])
        assert found is not None and found.id == 3
        assert store.snapshot_as_of(times[0] - 1) is None

    def test_hostile_tag_names(self, store: TableStore) -> None:
        with pytest.raises(UsageError, match="not a file name"):
            store.tag("../../x")


def test_names_of_branches() -> None:
    assert [check_branch(name) for name in (None, "", " ", "main", "b", " b ")] == [None, None, None, None, "b", "b"]
    with pytest.raises(UsageError, match="is a number"):
        check_branch("12")


def test_a_branch_without_schema_is_not_a_table(store: TableStore) -> None:
    with pytest.raises(NotATable, match=r"\(branch b\).*branch/branch-b/schema"):
        open_store(store.uri, branch="b")
    with pytest.raises(UsageError, match="it is a path"):
        open_store(store.uri, branch="../b")
