"""Random tables of released Java, maintained by us: all readers return Java's own rows before and after each pass.

Java makes the tables and says which rows a batch reader sees now and which it sees after a full compaction: `random --plain` (deduplicate,
deletion vectors, Parquet, options that name indexed columns), and `random` (every merge engine, changelog producer and file format). Seeds are
fixed; `scripts/test --long` runs many more.
"""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import maintainer
from maintainer.errors import Unsupported
from tests.peers import readers
from tests.support.campaign import share

pytestmark = pytest.mark.skipif(readers.JAVA_ABSENT is not None, reason=str(readers.JAVA_ABSENT))

SEEDS = share("java tables", short=16, long=400)
KINDS = share("java tables of every kind", short=10, long=400)
CHUNK = 8

NOT_COMPACTED: tuple[str, ...] = ("the last 999 milliseconds before 1970",)
"""Why we do not compact some tables yet, as refusals say it."""
FORGOTTEN = {
    "aggregation.remove-record-on-delete",
    "partial-update.remove-record-on-delete",
    "partial-update.remove-record-on-sequence-group",
}
"""After a removal Java 1.3.1 forgets values that 2.0 and later keep."""
NOT_READ: tuple[str, ...] = ("data files in format",)


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


@pytest.mark.parametrize("first", range(1, KINDS + 1, CHUNK))
def test_tables_of_every_kind_are_read_and_compacted_as_by_java(first: int, tmp_path: Path) -> None:
    made = readers.java().run("random", tmp_path, "db.t", str(first), "--count", str(min(CHUNK, KINDS + 1 - first)))
    for description in made:
        directory = tmp_path / "db.db" / description["table"]
        options = description["options"]
        context = f"seed {description['seed']}: {description['columns']} {options}"
        if FORGOTTEN & options.keys():
            continue
        table = maintainer.open_table(str(directory))
        try:
            judge(directory, readers.bag_of_lines(directory.with_suffix(".visible.jsonl")), f"before: {context}")
            verified = table.verify(deep=True)
            assert verified.ok, (verified.problems, context)
        except Unsupported as refusal:
            assert any(reason in str(refusal) for reason in NOT_READ), (refusal, context)
            continue
        expected = readers.bag_of_lines(directory.with_suffix(".expected.jsonl"))
        other = directory.with_name(f"{directory.name}_other")
        shutil.copytree(directory, other)
        for place, full in ((directory, True), (other, False)):
            compacted = f"after a {'full' if full else 'normal'} compaction: {context}"
            try:
                maintainer.open_table(str(place)).maintain(full=full)
            except Unsupported as refusal:
                assert any(reason in str(refusal) for reason in NOT_COMPACTED), (refusal, context)
                continue
            judge(place, expected, compacted)
            verified = maintainer.open_table(str(place)).verify(deep=True)
            assert verified.ok, (verified.problems, compacted)
            assert maintainer.open_table(str(place)).maintain(full=full).outcome == "nothing", compacted


def judge(directory: Path, expected: readers.Rows, context: str) -> None:
    """All readers that are here return the expected rows."""
    table = maintainer.open_table(str(directory))
    schema = table.schema
    answers: dict[str, Any] = {"ours": readers.bag_of_arrow(table.scan().to_arrow(), schema)}
    if readers.JAVA_ABSENT is None:
        answers["java"] = readers.java_rows(directory)
    bitmap64 = schema.options.get("deletion-vectors.bitmap64") == "true"
    if readers.PYPAIMON_ABSENT is None and not bitmap64:
        with suppress(NotImplementedError, pa.ArrowTypeError):  # options of merge engines that it refuses; maps that it merged fail
            answers["pypaimon"] = readers.pypaimon_rows(directory, schema)
    if readers.RUST_ABSENT is None:
        answers["pypaimon-rust"] = readers.rust_rows(directory, schema)
    for reader, rows in answers.items():
        assert rows == expected, f"{reader} {context}: only there {list(rows - expected)[:3]}, missing {list(expected - rows)[:3]}"
