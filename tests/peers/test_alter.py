"""The same changes by Java and by us: the same schema file, and peers read what we altered."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

import maintainer
from maintainer import changes as c
from maintainer.errors import UsageError
from maintainer.model.schema_change import SchemaChange
from tests.peers import readers
from tests.support import peers

pytestmark = pytest.mark.skipif(bool(peers.absent("java")), reason=peers.absent("java") or "")

FIELDS = [
    ("id", "INT"), ("p", "STRING"), ("a", "INT"), ("s", "STRING"), ("d", "DECIMAL(10, 2)"), ("r", "ROW<x INT, y STRING>"),
    ("l", "ARRAY<INT>"), ("lr", "ARRAY<ROW<k INT, v STRING>>"), ("m", "MAP<STRING, INT>"), ("gone", "STRING"),
]  # fmt: skip
OPTIONS = {"bucket": "1", "deletion-vectors.enabled": "true", "write-only": "true", "snapshot.num-retained.min": "1"}
ROW = [1, "p", 5, "text", "1.25", {"x": 1, "y": "m"}, [1, 2], [{"k": 1, "v": "v"}], [["k", 1]], "g"]

CASES: dict[str, tuple[list[dict[str, Any]], list[SchemaChange]]] = {
    "options": (
        [
            {"set": "snapshot.num-retained.max", "to": "50"},
            {"unset": "snapshot.num-retained.min"},
            {"unset": "never.set"},
            {"set": "bucket", "to": "1"},
        ],
        [
            c.set_option("snapshot.num-retained.max", "50"),
            c.unset_option("snapshot.num-retained.min"),
            c.unset_option("never.set"),
            c.set_option("bucket", "1"),
        ],
    ),
    "columns added": (
        [
            {"add": "n", "type": "ROW<a INT, b ARRAY<ROW<z INT>>>", "comment": "why"},
            {"add": "f", "type": "INT", "move": ["FIRST"]},
            {"add": "o", "type": "TIMESTAMP(3)", "move": ["AFTER", "a"]},
            {"add": ["r", "z"], "type": "BIGINT"},
            {"add": ["lr", "element", "w"], "type": "DATE"},
        ],
        [
            c.add_column("n", "ROW<a INT, b ARRAY<ROW<z INT>>>", "why"),
            c.add_column("f", "INT", first=True),
            c.add_column("o", "TIMESTAMP(3)", after="a"),
            c.add_column("r.z", "BIGINT"),
            c.add_column("lr.element.w", "DATE"),
        ],
    ),
    "columns changed": (
        [
            {"retype": "a", "type": "BIGINT"},
            {"retype": "d", "type": "STRING"},
            {"retype": ["r", "x"], "type": "STRING"},
            {"retype": ["l", "element"], "type": "BIGINT"},
            {"retype": ["m", "value"], "type": "DOUBLE"},
            {"retype": ["lr", "element", "k"], "type": "BIGINT"},
            {"comment": "s", "to": "a text"},
            {"default": "s", "to": "unknown"},
            {"describe": "a table"},
            {"place": "s", "move": ["FIRST"]},
            {"place": "a", "move": ["AFTER", "r"]},
            {"place": "m", "move": ["BEFORE", "id"]},
        ],
        [
            c.alter_type("a", "BIGINT"),
            c.alter_type("d", "STRING"),
            c.alter_type("r.x", "STRING"),
            c.alter_type("l.element", "BIGINT"),
            c.alter_type("m.value", "DOUBLE"),
            c.alter_type("lr.element.k", "BIGINT"),
            c.set_column_comment("s", "a text"),
            c.set_default("s", "unknown"),
            c.set_comment("a table"),
            c.move_column("s", first=True),
            c.move_column("a", after="r"),
            c.move_column("m", before="id"),
        ],
    ),
    "columns dropped and renamed": (
        [{"drop": "gone"}, {"rename": "s", "to": "t"}, {"rename": "id", "to": "key"}, {"drop": ["r", "x"]}, {"add": "gone", "type": "INT"}],
        [c.drop_column("gone"), c.rename_column("s", "t"), c.rename_column("id", "key"), c.drop_column("r.x"), c.add_column("gone", "INT")],
    ),
    "nullability": (
        [{"set": "alter-column-null-to-not-null.disabled", "to": "false"}],
        [c.set_option("alter-column-null-to-not-null.disabled", "false")],
    ),
}
SEQUENCES = {"sequence.field": "a", "merge-engine": "partial-update"}
GROUPS = {"merge-engine": "partial-update", "fields.a.sequence-group": "s,d", "fields.s.aggregate-function": "max"}
REFUSED: dict[str, tuple[dict[str, Any], SchemaChange]] = {
    # deletion vectors: guarded since 2.0, which 1.3.1 does not know
    "merge-engine": ({"set": "merge-engine", "to": "aggregation"}, c.set_option("merge-engine", "aggregation")),
    "bucket": ({"set": "bucket", "to": "-1"}, c.set_option("bucket", "-1")),
    "key": ({"drop": "id"}, c.drop_column("id")),
    "key type": ({"retype": "id", "type": "BIGINT"}, c.alter_type("id", "BIGINT")),
    "partition": ({"rename": "p", "to": "q"}, c.rename_column("p", "q")),
    "cast": ({"retype": "a", "type": "DATE"}, c.alter_type("a", "DATE")),
    "missing": ({"drop": "nope"}, c.drop_column("nope")),
    "there": ({"add": "a", "type": "INT"}, c.add_column("a", "INT")),
    "not null": ({"nullable": "a", "to": False}, c.set_nullable("a", False)),
}


def make(directory: Path, options: dict[str, str] | None = None) -> tuple[Path, Path]:
    """Two tables that Java wrote, one byte for byte the other."""
    document = {
        "fields": [{"name": name, "type": text} for name, text in FIELDS],
        "primaryKeys": ["p", "id"],
        "partitionKeys": ["p"],
        "options": {**OPTIONS, **(options or {})},
    }
    (directory / "schema.json").write_text(json.dumps(document))
    path = directory / "db.db" / "t"
    subprocess.run([readers.JAVA_PEER, "create", directory, "db.t", directory / "schema.json"], check=True, capture_output=True)
    (directory / "rows.jsonl").write_text(json.dumps({"kind": "+I", "row": ROW}))
    readers.java().run("write", path, directory / "rows.jsonl", "--write-only")
    other = directory / "db.db" / "ours"
    shutil.copytree(path, other)
    return path, other


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("original"))[0]


def copies(original: Path, directory: Path) -> tuple[Path, Path]:
    for name in ("java", "ours"):
        shutil.copytree(original, directory / "db.db" / name)
    return directory / "db.db" / "java", directory / "db.db" / "ours"


def by_java(table: Path, changes: list[dict[str, Any]]) -> None:
    document = table.parent / f"{table.name}.changes.json"
    document.write_text(json.dumps(changes))
    readers.java().run("alter", table, document)


def content(table: Path, schema_id: int = 1) -> dict[str, Any]:
    document = json.loads((table / "schema" / f"schema-{schema_id}").read_text("utf-8"))
    del document["timeMillis"]
    return dict(document)


@pytest.mark.parametrize("case", CASES)
def test_java_and_we_write_the_same_schema(case: str, original: Path, tmp_path: Path) -> None:
    theirs, ours = copies(original, tmp_path)
    by_java(theirs, CASES[case][0])
    done = maintainer.open_table(str(ours)).alter(*CASES[case][1])
    assert (done.previous_schema_id, done.schema_id) == (0, 1)
    assert content(ours) == content(theirs)


@pytest.mark.parametrize("options", [SEQUENCES, GROUPS], ids=["sequence", "groups"])
def test_options_follow_a_renamed_column_as_in_java(options: dict[str, str], tmp_path: Path) -> None:
    theirs, ours = make(tmp_path, options)
    by_java(theirs, [{"rename": "a", "to": "newer"}, {"rename": "s", "to": "t"}])
    maintainer.open_table(str(ours)).alter(c.rename_column("a", "newer"), c.rename_column("s", "t"))
    assert content(ours) == content(theirs)


@pytest.mark.parametrize("case", REFUSED)
def test_what_java_refuses_we_refuse(case: str, original: Path, tmp_path: Path) -> None:
    theirs, ours = copies(original, tmp_path)
    with pytest.raises(readers.JavaError):
        by_java(theirs, [REFUSED[case][0]])
    with pytest.raises(UsageError):
        maintainer.open_table(str(ours)).alter(REFUSED[case][1])
    assert not (ours / "schema" / "schema-1").exists()


def test_peers_read_a_table_that_we_altered(original: Path, tmp_path: Path) -> None:
    _, ours = copies(original, tmp_path)
    table = maintainer.open_table(str(ours))
    for case in CASES:
        if case != "columns dropped and renamed":
            table.alter(*CASES[case][1])
    table.alter(c.set_nullable("a", False), c.rename_column("id", "key"), c.drop_column("gone"), c.alter_type("r.x", "BIGINT"))
    assert table.maintain(full=True).outcome == "committed"
    table = maintainer.open_table(str(ours))
    found = readers.bag_of_arrow(table.scan().to_arrow(), table.schema)
    assert sum(found.values()) == 1
    assert readers.java_rows(ours) == found
    if not readers.PYPAIMON_ABSENT:
        assert readers.pypaimon_rows(ours, table.schema) == found
    if not readers.RUST_ABSENT:
        assert readers.rust_rows(ours, table.schema) == found
