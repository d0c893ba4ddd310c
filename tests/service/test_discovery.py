"""Which tables a configuration comes to."""

from __future__ import annotations

from pathlib import Path

import pytest

from maintainer.errors import MaintainerError, StorageError
from maintainer.service.configuration import Configuration, Warehouse
from maintainer.service.discovery import tables_in, tables_of, why_none
from maintainer.storage.local import LocalStorage
from maintainer.storage.storage import Entry
from tests.support.s3 import Bucket, s3_bucket  # noqa: F401
from tests.support.striking_storage import StrikingStorage
from tests.support.warehouses import deny, table_in


def names(warehouse: Path, **patterns: list[str]) -> list[str]:
    found = tables_in(Warehouse.model_validate({"uri": str(warehouse), **patterns}))
    return [table.uri.removeprefix(f"{warehouse}/") for table in found]


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    for database in ("a", "ab", "b"):
        table_in(tmp_path, database, indexes=False)
    (tmp_path / "a.db" / "no_schema").mkdir()
    (tmp_path / "a.db" / "empty" / "schema").mkdir(parents=True)
    (tmp_path / "a.db" / "file").touch()
    (tmp_path / "a.db" / ".hidden" / "schema").mkdir(parents=True)
    (tmp_path / "a.db" / ".hidden" / "schema" / "schema-0").touch()
    (tmp_path / "no_database" / "t" / "schema").mkdir(parents=True)
    (tmp_path / "no_database" / "t" / "schema" / "schema-0").touch()
    return tmp_path


def test_all_tables(warehouse: Path):
    assert names(warehouse) == ["a.db/t", "ab.db/t", "b.db/t"]


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        ({"include": ["a.*"]}, ["a.db/t"]),
        ({"include": ["a*"]}, ["a.db/t", "ab.db/t"]),
        ({"include": ["*.t"], "exclude": ["a?.t"]}, ["a.db/t", "b.db/t"]),
        ({"exclude": ["*"]}, []),
        ({"include": []}, []),
        ({"include": ["A.t", "b.t"]}, ["b.db/t"]),
    ],
)
def test_patterns(warehouse: Path, patterns: dict[str, list[str]], expected: list[str]):
    assert names(warehouse, **patterns) == expected


@pytest.mark.parametrize(
    ("place", "patterns", "reason"),
    [
        ("", {"include": ["b.x"]}, "include and exclude select none of its tables, which are a.t, ab.t, b.t"),
        ("", {"exclude": ["*"]}, "include and exclude select none of its tables, which are a.t, ab.t, b.t"),
        ("nowhere", {}, "there is no such directory, or it is empty"),
        ("b.db", {}, "this is a database; the warehouse is the directory above it"),
        ("no_database", {}, "it holds no database <db>.db"),
        ("empty_database", {}, "its databases hold no table"),
    ],
)
def test_why_a_warehouse_has_no_tables(warehouse: Path, place: str, patterns: dict[str, list[str]], reason: str):
    (warehouse / "empty_database" / "d.db").mkdir(parents=True)
    entry = Warehouse.model_validate({"uri": str(warehouse / place), **patterns})
    assert tables_in(entry) == []
    assert why_none(entry) == reason


def test_known_tables_cost_no_look_at_their_schema(warehouse: Path, monkeypatch: pytest.MonkeyPatch):
    listed: list[str] = []
    plain = StrikingStorage.list
    monkeypatch.setattr(StrikingStorage, "list", lambda self, path: listed.append(path) or plain(self, path))
    monkeypatch.setattr("maintainer.storage.storage.Storage.open", lambda uri, options=None: StrikingStorage(uri))
    entry = Warehouse.model_validate({"uri": str(warehouse), "include": ["*.t"]})
    known = frozenset(table.key for table in tables_in(entry))
    assert len(listed) == 4 + 3  # the warehouse, three databases, and a schema directory for each table
    listed.clear()
    assert len(tables_in(entry, known)) == 3
    assert listed == ["", "a.db", "ab.db", "b.db"]


def test_a_table_is_taken_once_and_the_entry_of_its_warehouse_speaks_for_it_too(warehouse: Path):
    entry = {"uri": str(warehouse), "exclude": ["b.*"], "storage-options": {"x": 1, "y": 1}, "options": {"maintain.expire": "false"}}
    tables = [
        {"uri": f"{warehouse}/a.db/t", "storage-options": {"y": 2}, "options": {"maintain.rewrite-append": "false"}},
        {"uri": f"{warehouse}/b.db/t"},
    ]
    found = list(tables_of(Configuration.model_validate({"warehouses": [entry, entry], "tables": tables})))
    assert [(table.uri.removeprefix(f"{warehouse}/"), table.named) for table in found] == [
        ("a.db/t", True),
        ("b.db/t", True),
        ("ab.db/t", False),
    ]
    assert (found[0].storage_options, found[0].options) == ({"x": 1, "y": 2}, {"maintain.expire": "false", "maintain.rewrite-append": "false"})
    assert (found[1].storage_options, found[1].options) == ({}, {})
    assert (found[2].storage_options, found[2].options) == ({"x": 1, "y": 1}, {"maintain.expire": "false"})


def test_a_warehouse_that_cannot_be_listed_does_not_hide_others(warehouse: Path, tmp_path_factory: pytest.TempPathFactory):
    tmp_path = tmp_path_factory.mktemp("elsewhere")
    deny(tmp_path / "denied")
    configuration = Configuration.model_validate({"warehouses": [{"uri": str(tmp_path / "denied")}, {"uri": str(warehouse)}]})
    failed: list[tuple[str, MaintainerError]] = []
    found = list(tables_of(configuration, lambda entry, error: failed.append((entry.uri, error))))
    assert len(found) == 3
    assert [uri for uri, _ in failed] == [str(tmp_path / "denied")]
    with pytest.raises(StorageError):
        list(tables_of(configuration))


def test_a_directory_that_cannot_be_looked_into_does_not_hide_the_tables_beside_it(warehouse: Path):
    deny(warehouse / "a.db" / "denied" / "schema")
    deny(warehouse / "a.db" / "endless")
    (warehouse / "a.db" / "dead").symlink_to("nowhere")
    deny(warehouse / "endless.db")
    assert names(warehouse) == ["a.db/denied", "a.db/t", "ab.db/t", "b.db/t"]


def test_a_database_that_cannot_be_listed_does_not_hide_others(warehouse: Path, monkeypatch: pytest.MonkeyPatch):
    def listed(self: LocalStorage, path: str) -> list[Entry]:
        if path == "ab.db":
            raise StorageError("denied")
        return plain(self, path)

    plain = LocalStorage.list
    monkeypatch.setattr(LocalStorage, "list", listed)
    configuration = Configuration.model_validate({"warehouses": [{"uri": str(warehouse)}]})
    failed: list[str] = []
    found = tables_of(configuration, lambda entry, error: failed.append(str(error)))
    assert [table.uri.removeprefix(f"{warehouse}/") for table in found] == ["a.db/t", "b.db/t"]
    assert failed == ["denied"]
    with pytest.raises(StorageError):
        list(tables_of(configuration))


def test_tables_that_are_named_need_not_be_there(tmp_path: Path):
    (found,) = tables_of(Configuration.model_validate({"tables": [{"uri": str(tmp_path / "later")}]}))
    assert found.named


def test_secrets_are_not_shown(tmp_path: Path):
    (found,) = tables_of(Configuration.model_validate({"tables": [{"uri": "s3://b/t", "storage-options": {"secret": "hidden"}}]}))
    assert "hidden" not in repr(found)


def test_on_s3(s3_bucket: Bucket):  # noqa: F811
    import maintainer

    fields = {"fields": [{"name": "id", "type": "INT"}], "primaryKeys": ["id"], "options": {"bucket": "1", "deletion-vectors.enabled": "true"}}
    for name in ("wh/a.db/t", "wh/b.db/t", "wh/no/t"):
        maintainer.create_table(s3_bucket.place(name), fields, storage_options=s3_bucket.storage_options)
    entry = {"uri": s3_bucket.place("wh"), "exclude": ["b.*"], "storage-options": s3_bucket.storage_options}
    (found,) = tables_of(Configuration.model_validate({"warehouses": [entry]}))
    assert found.uri == s3_bucket.place("wh/a.db/t")
    assert found.open().schema.primary_keys == ("id",)
