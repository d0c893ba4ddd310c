"""Random tables of released Java, maintained by us: all readers return Java's own rows before and after each pass.

Java makes the tables (`random --plain`: several schemas, partitions, buckets, updates, deletes, options that name indexed columns) and says
which rows a batch reader sees now and which it sees after a full compaction. Seeds are fixed; `scripts/test --long` runs many more.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import maintainer
from tests.peers import readers
from tests.support.campaign import share

pytestmark = pytest.mark.skipif(readers.JAVA_ABSENT is not None, reason=str(readers.JAVA_ABSENT))

SEEDS = share("java tables", short=16, long=400)
CHUNK = 8


@pytest.mark.parametrize("first", range(1, SEEDS + 1, CHUNK))
def test_every_reader_returns_javas_rows_before_and_after_each_pass(first: int, tmp_path: Path) -> None:
    made = readers.java().run("random", tmp_path, "db.t", str(first), "--count", str(min(CHUNK, SEEDS + 1 - first)), "--plain")
    for description in made:
        directory = tmp_path / "db.db" / description["table"]
        context = f"seed {description['seed']}: {description['columns']} {description['options']}"
        judge(directory, readers.bag_of_lines(directory.with_suffix(".visible.jsonl")), f"before: {context}")
        expected = readers.bag_of_lines(directory.with_suffix(".expected.jsonl"))
        table = maintainer.open_table(str(directory))
        report = table.maintain()
        assert report.outcome in ("committed", "nothing"), (report, context)
        judge(directory, expected, f"after a pass: {context}")
        coverage = maintainer.open_table(str(directory)).coverage()
        assert coverage.visible_ratio == 1.0, (coverage, context)
        assert all(definition.ratio == 1.0 for definition in coverage.definitions), (coverage, context)
        assert table.maintain().outcome == "nothing", context
        table.maintain(full=True)
        judge(directory, expected, f"after a full compaction: {context}")
        verified = maintainer.open_table(str(directory)).verify()
        assert verified.ok, (verified.problems, context)


def judge(directory: Path, expected: readers.Rows, context: str) -> None:
    """All readers that are here return the expected rows."""
    table = maintainer.open_table(str(directory))
    schema = table.schema
    answers: dict[str, Any] = {"ours": readers.bag_of_arrow(table.scan().to_arrow(), schema)}
    if readers.JAVA_ABSENT is None:
        answers["java"] = readers.java_rows(directory)
    bitmap64 = schema.options.get("deletion-vectors.bitmap64") == "true"
    if readers.PYPAIMON_ABSENT is None and not bitmap64:
        answers["pypaimon"] = readers.pypaimon_rows(directory, schema)
    if readers.RUST_ABSENT is None:
        answers["pypaimon-rust"] = readers.rust_rows(directory, schema)
    for reader, rows in answers.items():
        assert rows == expected, f"{reader} {context}: only there {list(rows - expected)[:3]}, missing {list(expected - rows)[:3]}"
