"""Tables with FM indexes: built by the maintenance, narrowing our scans, in nobody's way (spec 09 §13)."""

from __future__ import annotations

import itertools
import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from structlog.testing import capture_logs

import maintainer
from maintainer import col
from maintainer.api.maintenance import run_pass
from maintainer.format.fm_layout import Metadata
from maintainer.index.family import fm
from maintainer.index.family.fm_carried import CarriedPartitions
from maintainer.model.bucket import BucketState
from maintainer.model.files import EMPTY_ROW, BucketKey
from maintainer.model.predicate import Predicate
from maintainer.table.state import load_state
from tests.peers import readers

OPTIONS = {
    "bucket": "1",
    "deletion-vectors.enabled": "true",
    "num-sorted-run.compaction-trigger": "4",
    "pk-fm.index.columns": "body,code",
    "pk-btree.index.columns": "name",
    "fm-index.locate-cost-ratio": "1",
    "fields.body.pk-fm.index.options": json.dumps({"partition-size": "10 kb", "sa-sample-rate": "4"}),
    "fields.code.pk-fm.index.options": json.dumps({"compression": "zstd", "fm-index.partition-row-count": "300"}),
}
TYPES = {"id": "BIGINT NOT NULL", "name": "STRING", "body": "STRING", "code": "CHAR(6)"}


def rows(first: int, count: int, salt: int) -> pa.Table:
    ids = range(first, first + count)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "name": [f"n{number % 7}" for number in ids],
            "body": [None if number % 13 == salt else f"{number * salt % 977} wörds needle{number % 50} 日本"[number % 3 :] for number in ids],
            "code": [["", None, "ab", f"{number % 100:03}"][number * salt % 4] for number in ids],
        }
    )


def create(path: Path, **options: str) -> maintainer.Table:
    fields = [{"name": name, "type": text} for name, text in TYPES.items()]
    given = {**OPTIONS, **{name.replace("_", "-"): value for name, value in options.items()}}
    return maintainer.create_table(str(path), {"fields": fields, "primaryKeys": ["id"], "options": given})


def write(table: maintainer.Table, values: pa.Table) -> None:
    with table.writer() as writer:
        writer.write(values)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Several levels, with rows that are hidden by vectors and some that no group has."""
    path = tmp_path_factory.mktemp("warehouse") / "db.db" / "t"
    table = create(path)
    for number, (first, count) in enumerate([(0, 900), (500, 80), (850, 100), (100, 20)]):
        write(table, rows(first, count, number + 2))
        if number < 3:
            table.maintain(full=number == 0)
    assert len(levels := {file.level for file in table.files().files}) >= 3 and 0 in levels
    return path


def conditions() -> Iterator[Predicate]:
    for text in ("needle7", "dle4", "ö", "日本", "", "nowhere", "3 w"):
        yield col("body").contains(text)
    yield col("body").startswith("12")
    yield col("body").endswith("needle3 日本")
    yield col("body") == "17 wörds needle8 日本"
    yield col("body").like("%wörds%dle1_%")
    yield col("body").is_null()
    yield col("body").is_not_null()
    yield col("code") == ""
    yield col("code").isin(["ab", "001", None])
    yield col("code").startswith("0")
    yield col("code").is_null()
    yield col("code").contains("b") & col("body").contains("needle1") & (col("name") == "n3")
    yield col("body").contains("needle11") | (col("name") == "n3")
    yield ~col("body").contains("needle")


@pytest.mark.parametrize("condition", [*conditions()], ids=str)
def test_scans_find_the_same_rows(directory: Path, condition: Predicate) -> None:
    table = maintainer.open_table(str(directory))
    with capture_logs() as logs:
        found = table.scan(where=condition).to_arrow().sort_by("id")
    assert found.equals(table.scan(where=condition, use_index=False).to_arrow().sort_by("id"))
    assert not [entry for entry in logs if entry["log_level"] in ("warning", "error")]


def test_files_are_narrowed(directory: Path) -> None:
    table = maintainer.open_table(str(directory))
    for condition in (col("body").contains("needle7 "), col("code") == "001"):
        files = table.scan(where=condition).explain().files
        assert {file.decision for file in files} >= {"indexed"}
        assert sum(file.rows or 0 for file in files if file.decision == "indexed") < 200
    assert table.scan(where=col("body").contains("nowhere")).to_arrow().num_rows == 0


def test_groups_are_sound(directory: Path) -> None:
    table = maintainer.open_table(str(directory))
    found = table.verify(deep=True)
    assert not found.problems
    assert found.checked["index-content"] >= 6
    for definition in table.coverage().definitions:
        assert definition.covered_rows > 700
    payloads = [payload for payload in bucket(table).payloads if payload.index_type == "fm"]
    partitions = [len(Metadata.decode(payload.global_index.index_meta or b"").partitions) for payload in payloads if payload.global_index]
    assert max(partitions) > 2


def bucket(table: maintainer.Table) -> BucketState:
    snapshot = table.store.latest_snapshot()
    assert snapshot is not None
    return load_state(table.store, snapshot).bucket(BucketKey(EMPTY_ROW, 0))


@pytest.mark.skipif(readers.PYPAIMON_ABSENT is not None, reason=str(readers.PYPAIMON_ABSENT))
def test_pypaimon_reads_the_table(directory: Path) -> None:
    table = maintainer.open_table(str(directory))
    assert readers.pypaimon_rows(directory, table.schema) == readers.bag_of_arrow(table.scan().to_arrow(), table.schema)


@pytest.mark.skipif(readers.RUST_ABSENT is not None, reason=str(readers.RUST_ABSENT))
def test_rust_reads_the_table(directory: Path) -> None:
    table = maintainer.open_table(str(directory))
    assert readers.rust_rows(directory, table.schema) == readers.bag_of_arrow(table.scan().to_arrow(), table.schema)


def test_a_value_that_is_too_long_concerns_its_own_group(tmp_path: Path) -> None:
    table = create(tmp_path / "t")
    long = pa.table({"id": [1, 2], "name": ["a", "b"], "body": ["x" * 10_239, "short"], "code": ["c", "d"]})
    write(table, long)
    report = table.maintain(full=True)
    assert report.outcome == "committed"
    (failure,) = report.failures
    assert failure.column == "body"
    assert "the value of row 0 has 10239 bytes" in failure.reason and "fm-index.partition-size" in failure.reason
    assert {each.column: each.ratio for each in table.coverage().definitions} == {"name": 1.0, "body": 0.0, "code": 1.0}
    assert table.scan(where=col("body").contains("xx")).to_arrow().num_rows == 1
    write(table, long.set_column(2, "body", pa.array(["x" * 10_238, "short"])))  # the longest that there may be
    assert not table.maintain(full=True).failures
    assert {each.ratio for each in table.coverage().definitions} == {1.0}


def test_a_group_takes_over_the_partitions_before_the_first_file_that_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = itertools.count(1)
    monkeypatch.setattr(uuid, "uuid4", lambda: uuid.UUID(int=next(numbers)))  # later files come after earlier ones
    table = create(tmp_path / "t", target_file_size="8 kb")
    write(table, rows(0, 6000, 3))
    table.maintain(full=True)
    assert len(bucket(table).files) > 3
    carried: list[tuple[int, int]] = []
    real = fm.carry

    def noted(*arguments: Any) -> CarriedPartitions | None:
        found = real(*arguments)
        if found is not None:
            carried.append((len(found.partitions), len(found.moves)))
        return found

    monkeypatch.setattr(fm, "carry", noted)
    write(table, rows(5999, 1, 5))
    assert table.maintain(full=True).groups_built == 3
    assert len(carried) == 2
    assert all(partitions and moves for partitions, moves in carried)
    payloads = {payload.file_name: (tmp_path / "t" / "index" / payload.file_name).read_bytes() for payload in bucket(table).payloads}
    run_pass(table.store, index_only=True, force=True)
    again = {(tmp_path / "t" / "index" / payload.file_name).read_bytes() for payload in bucket(table).payloads}
    assert again == set(payloads.values())
