"""Deletion vectors switched on for a table whose levels were made without them: Java's rows from before, for our reader at once, and for Java
after our full compaction.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

import maintainer
from tests.peers import readers
from tests.support.campaign import share

pytestmark = pytest.mark.skipif(readers.JAVA_ABSENT is not None, reason=str(readers.JAVA_ABSENT))

SEEDS = share("tables that get deletion vectors", short=2, long=30)
FIELDS = [("k", "INT NOT NULL"), ("a", "BIGINT"), ("b", "STRING"), ("s", "INT"), ("c", "BIGINT")]
ENGINES: dict[str, dict[str, str]] = {
    "partial-update": {},
    "groups": {"merge-engine": "partial-update", "fields.s.sequence-group": "a,c", "fields.c.aggregate-function": "sum"},
    "aggregation": {"fields.a.aggregate-function": "sum", "fields.b.aggregate-function": "max", "fields.c.aggregate-function": "sum"},
    "deduplicate": {"sequence.field": "s"},
    "aggregation, looked up": {
        "merge-engine": "aggregation",
        "fields.a.aggregate-function": "sum",
        "fields.c.aggregate-function": "sum",
        "changelog-producer": "lookup",
    },
}


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_old_levels_are_merged_as_they_were_made(name: str, seed: int, tmp_path: Path) -> None:
    generator = random.Random(f"{name} {seed}")
    java = readers.java()
    options = {"merge-engine": name, **ENGINES[name]}
    definition = {
        "fields": [{"name": column, "type": sql} for column, sql in FIELDS],
        "primaryKeys": ["k"],
        "options": {"bucket": "1", "write-only": "true", "deletion-vectors.modifiable": "true", **options},
    }
    (tmp_path / "schema.json").write_text(json.dumps(definition))
    java.run("create", tmp_path, "db.t", tmp_path / "schema.json")
    directory = tmp_path / "db.db" / "t"
    forced = ("--set", "compaction.force-up-level-0=true")
    for size in (400, 60, 8):
        write(directory, generator, size)
        java.run("compact", directory, *forced)
    levels = {file["level"] for file in java.run("files", directory)}
    assert len(levels) > 1, levels
    waiting = seed % 2 == 1
    if waiting:
        write(directory, generator, 10)
    expected = readers.java_rows(directory)
    (tmp_path / "alter.json").write_text(json.dumps([{"set": "deletion-vectors.enabled", "to": "true"}]))
    java.run("alter", directory, tmp_path / "alter.json")
    if not waiting:  # level 0 is not seen any more
        judge(directory, expected, "switched on")
    assert maintainer.open_table(str(directory)).maintain().outcome == "nothing"
    report = maintainer.open_table(str(directory)).maintain(full=True)
    assert report.outcome == "committed"
    judge(directory, expected, "healed")
    assert readers.java_rows(directory) == expected
    verified = maintainer.open_table(str(directory)).verify(deep=True)
    assert verified.ok, verified.problems


def write(directory: Path, generator: random.Random, rows: int) -> None:
    lines = [json.dumps({"kind": "+I", "row": row(generator, generator.randrange(rows))}) for _ in range(rows)]
    path = directory.with_suffix(".jsonl")
    path.write_text("\n".join(lines))
    readers.java().run("write", directory, path)


def row(generator: random.Random, key: int) -> list[Any]:
    """Always with a sequence: without one the group of a lone record is kept by plain compactions only (spec 05 §1.2)."""

    def maybe(value: Any) -> Any:
        return None if generator.random() < 0.4 else value

    return [key, maybe(generator.randrange(100)), maybe(generator.choice("xyz")), generator.randrange(9), maybe(generator.randrange(100))]


def judge(directory: Path, expected: readers.Rows, context: str) -> None:
    table = maintainer.open_table(str(directory))
    rows = readers.bag_of_arrow(table.scan().to_arrow(), table.schema)
    assert rows == expected, f"{context}: only there {list(rows - expected)[:3]}, missing {list(expected - rows)[:3]}"
