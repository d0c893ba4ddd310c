"""Tables whose schema released Java changed between its writes: we read and compact them to the rows that Java reads (spec 02 §13)."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

import maintainer
from tests.peers import readers
from tests.support import peers

FIELDS = [
    ("id", "INT"), ("i", "INT"), ("d", "DOUBLE"), ("f", "FLOAT"), ("m", "DECIMAL(10, 3)"), ("s", "STRING"), ("day", "DATE"),
    ("ts", "TIMESTAMP(6)"),
    ("b", "BOOLEAN"), ("r", "ROW<x INT, y STRING, z DOUBLE>"), ("l", "ARRAY<INT>"), ("gone", "STRING"), ("back", "INT"),
]  # fmt: skip
OLD = [
    [1, 300, 1.5, 0.5, "12.345", "17", "2024-02-29", "2024-02-29T12:34:56.123456000", True, {"x": 1, "y": "a", "z": 1e10}, [1, None], "g", 1],
    [
        2,
        -129,
        1e-5,
        16777216.0,
        "-0.005",
        "-3",
        "1970-01-01",
        "1970-01-01T00:00:00.000000000",
        False,
        {"x": None, "y": None, "z": None},
        [],
        "h",
        2,
    ],
    [3, None, None, None, None, None, None, None, None, None, None, None, None],
]
CHANGES: list[dict[str, Any]] = [
    {"retype": "i", "type": "BIGINT"},
    {"retype": "d", "type": "STRING"},
    {"retype": "f", "type": "DECIMAL(20, 2)"},
    {"retype": "m", "type": "INT"},
    {"retype": "s", "type": "SMALLINT"},
    {"retype": "day", "type": "TIMESTAMP(3)"},
    {"retype": "ts", "type": "STRING"},
    {"retype": "b", "type": "INT"},
    {"drop": ["r", "x"]},
    {"rename": ["r", "y"], "to": "why"},
    {"retype": ["r", "z"], "type": "FLOAT"},
    {"add": ["r", "x"], "type": "STRING"},
    {"drop": "gone"},
    {"drop": "back"},
    {"rename": "s", "to": "number"},
    {"add": "more", "type": "INT"},
    {"add": "back", "type": "STRING"},
]
NEW = [
    [2, 2**40, "text", "1.25", 7, 5, "2024-01-01T00:00:00.000000000", "t", 0, {"why": "n", "z": 0.5, "x": "new"}, [9], 1, "back"],
    [4, 1, "x", "0.00", 1, 2, None, None, 1, None, None, None, None],
]


@pytest.mark.skipif(bool(peers.absent("java")), reason=peers.absent("java") or "")
@pytest.mark.parametrize("full", [True, False])
def test_a_schema_that_java_changed(full: bool, tmp_path: Path) -> None:
    java = readers.java()
    options = {"bucket": "1", "deletion-vectors.enabled": "true", "write-only": "true"}
    document = {"fields": [{"name": name, "type": text} for name, text in FIELDS], "primaryKeys": ["id"], "options": options}
    (tmp_path / "schema.json").write_text(json.dumps(document))
    path = tmp_path / "db.db" / "t"
    subprocess.run([readers.JAVA_PEER, "create", tmp_path, "db.t", tmp_path / "schema.json"], check=True, capture_output=True)
    write(java, path, OLD)
    table = maintainer.open_table(str(path))
    if not full:  # then the older rows are above level 0 already
        table.maintain()
    (tmp_path / "changes.json").write_text(json.dumps(CHANGES))
    assert java.run("alter", path, tmp_path / "changes.json") == [{"schemaId": 1}]
    write(java, path, NEW)
    table = maintainer.open_table(str(path))
    assert table.maintain(full=full).outcome == "committed"
    assert table.verify(deep=True).ok
    found = table.scan().to_arrow()
    assert found.num_rows == 4
    assert readers.bag_of_arrow(found, table.schema) == readers.java_rows(path)
    assert not full or {file.schema_id for file in table.files().files} == {1}
    assert table.scan(where="i = 300 AND d = '1.5' AND number = 17").to_arrow()["id"].to_pylist() == [1]


def write(java: Any, path: Path, rows: list[list[Any]]) -> None:
    lines = path.parent / "rows.jsonl"
    lines.write_text("\n".join(json.dumps({"kind": "+I", "row": row}) for row in rows))
    java.run("write", path, lines, "--write-only")
