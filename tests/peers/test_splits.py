"""Splits between peers: Java, pypaimon and pypaimon-rust read ours, and we read theirs, with the rows that the reader gives by its own plan.

Peers have defects of their own in some formats (nanoseconds, old dates of ORC), so what they make of our splits is compared with what they
make of theirs.
"""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import maintainer
from maintainer.api.table import Table
from maintainer.format import split as codec
from maintainer.model.split import DataSplit, IndexedSplit
from tests.peers import readers
from tests.support import golden, peers
from tests.support.campaign import share

UNREADABLE = {"de_column_update", "de_global_index"}
"""Rows are spread over several files: these tables are refused."""
CASES = sorted({path.stem for path in golden.directory().glob("*.json")} - UNREADABLE)
SOME = CASES[:: max(1, len(CASES) // share("splits between peers", short=8, long=len(CASES)))]

without_rust = pytest.mark.skipif(readers.RUST_ABSENT is not None, reason=str(readers.RUST_ABSENT))
without_java = pytest.mark.skipif(readers.JAVA_ABSENT is not None, reason=str(readers.JAVA_ABSENT))
without_pypaimon = pytest.mark.skipif(readers.PYPAIMON_ABSENT is not None, reason=str(readers.PYPAIMON_ABSENT))


@pytest.fixture(params=SOME)
def directory(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return golden.unpack(request.param, tmp_path / "default.db")


@pytest.fixture(scope="module")
def narrowed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two partitions of two buckets, with indexes and deletion vectors."""
    path = tmp_path_factory.mktemp("warehouse") / "default.db" / "t"
    table = maintainer.create_table(
        str(path),
        "CREATE TABLE t (p STRING, id BIGINT, name STRING, n INT, PRIMARY KEY (p, id) NOT ENFORCED) PARTITIONED BY (p) WITH ('bucket' = '2', "
        "'deletion-vectors.enabled' = 'true', 'write-only' = 'true', 'pk-btree.index.columns' = 'name', 'pk-bitmap.index.columns' = 'n')",
    )
    for first, count in ((0, 400), (100, 60)):
        with table.writer() as writer:
            ids = range(first, first + count)
            columns = {"p": [f"p={i % 2}" for i in ids], "id": ids, "name": [f"name-{i % 50}" for i in ids]}
            writer.write(pa.table({**columns, "n": pa.array([i % 7 for i in ids], pa.int32())}))
        table.maintain(full=first == 0)
    return path


def bag(tables: Sequence[pa.Table], table: Table) -> readers.Rows:
    return sum((readers.bag_of_arrow(each, table.schema) for each in tables), Counter())


# pypaimon-rust


def rust_builder(directory: Path) -> Any:
    from pypaimon_rust.datafusion import PaimonCatalog

    peers.asked["pypaimon_rust"] += 1
    catalog = PaimonCatalog({"warehouse": str(directory.parent.parent)})
    return catalog.get_table(f"default.{directory.name}").new_read_builder()


def rust_read(directory: Path, splits: Sequence[bytes], table: Table) -> readers.Rows:
    from pypaimon_rust.datafusion import Split

    batches = rust_builder(directory).new_read().read([Split.deserialize(data) for data in splits])
    return bag([pa.Table.from_batches(batches)] if batches else [], table)


@without_rust
def test_rust_reads_our_splits_and_we_read_its(directory: Path) -> None:
    table = maintainer.open_table(str(directory))
    planned = [split.serialize() for split in rust_builder(directory).new_scan().plan().splits()]
    assert [codec.encode(codec.decode(data)) for data in planned] == planned
    assert bag([table.read_split(data).to_arrow() for data in planned], table) == bag([table.scan().to_arrow()], table)
    try:
        own = rust_read(directory, planned, table)
    except ValueError as error:
        pytest.skip(f"Rust does not read this table: {error}")
    for version in (8, 9):
        assert rust_read(directory, [split.to_bytes(version) for split in table.scan().splits()], table) == own


@without_rust
@pytest.mark.parametrize("where", ["name = 'name-7'", "n < 3", "name = 'name-7' AND n = 0", "name = 'none'"])
def test_rust_reads_the_rows_that_our_indexes_select(narrowed: Path, where: str) -> None:
    table = maintainer.open_table(str(narrowed))
    splits = table.scan(where).splits()
    assert all(isinstance(split.split, IndexedSplit) for split in splits)
    selected = bag([table.read_split(split.to_bytes()).to_arrow() for split in splits], table)
    assert rust_read(narrowed, [split.to_bytes() for split in splits], table) == selected
    assert bag([table.scan(where).to_arrow()], table) <= selected


@without_rust
def test_rust_takes_the_worked_example() -> None:
    from pypaimon_rust.datafusion import Split

    from tests.format.test_split import EXAMPLE, PLANNED

    assert Split.deserialize(bytes.fromhex(EXAMPLE)).serialize().hex() == bytes.fromhex(EXAMPLE).hex()
    assert Split.deserialize(codec.encode(PLANNED)).serialize() == codec.encode(PLANNED)


# Java, which has no indexed splits in this version, and no frame around splits


@without_java
def test_java_reads_our_splits_and_we_read_its(directory: Path, tmp_path: Path) -> None:
    table = maintainer.open_table(str(directory))
    try:
        peers.asked["java"] += 1
        planned = [base64.b64decode(line["split"]) for line in readers.java().run("splits", directory)]
        own = readers.java_rows(directory)
    except readers.JavaError as error:
        pytest.skip(f"Java 1.3.1 does not read this table: {str(error).splitlines()[0]}")
    found = [codec.decode(data) for data in planned]
    assert [codec.encode_data_split(split, 8) for split in found if isinstance(split, DataSplit)] == planned
    assert bag([table.read_split(data).to_arrow() for data in planned], table) == own
    ours = [split.split for split in table.scan().splits()]
    lines = [base64.b64encode(codec.encode_data_split(split, 8)).decode() for split in ours if isinstance(split, DataSplit)]
    (tmp_path / "splits").write_text("\n".join(lines))
    assert readers.bag(readers.java().run("read-splits", directory, tmp_path / "splits")) == own


# pypaimon


class Pypaimon:
    """The table as pypaimon has it, and its splits as bytes."""

    def __init__(self, directory: Path, table: Table) -> None:
        peers.asked["pypaimon"] += 1
        self.table = table
        opened = readers.pypaimon_table(directory)
        fields = {field.name: field for field in opened.table_schema.fields}
        self.partition = [fields[name] for name in table.schema.partition_keys]
        self.key = [fields[name] for name in table.schema.trimmed_primary_keys]
        self.builder = opened.new_read_builder()

    def planned(self) -> Iterator[bytes]:
        from pypaimon.read.split_serializer import serialize_split_v1

        return map(serialize_split_v1, self.builder.new_scan().plan().splits())

    def read(self, splits: Sequence[bytes]) -> readers.Rows:
        from pypaimon.read.split_serializer import deserialize_split_v1

        found = [deserialize_split_v1(data, self.partition, self.key) for data in splits]
        return bag([self.builder.new_read().to_arrow(found)] if found else [], self.table)


@without_pypaimon
def test_pypaimon_reads_our_splits_and_we_read_its(directory: Path) -> None:
    table = maintainer.open_table(str(directory))
    try:
        peer = Pypaimon(directory, table)
        planned = list(peer.planned())
        own = peer.read(planned)
    except (RuntimeError, NotImplementedError) as error:
        pytest.skip(f"pypaimon does not read this table: {error}")
    assert bag([table.read_split(data).to_arrow() for data in planned], table) == bag([table.scan().to_arrow()], table)
    assert peer.read([split.to_bytes() for split in table.scan().splits()]) == own


@without_pypaimon
@pytest.mark.parametrize("where", ["name = 'name-7'", "n < 3", "name = 'name-7' AND n = 0"])
def test_pypaimon_reads_the_rows_that_our_indexes_select(narrowed: Path, where: str) -> None:
    table = maintainer.open_table(str(narrowed))
    splits = [split.to_bytes() for split in table.scan(where).splits()]
    selected = bag([table.read_split(data).to_arrow() for data in splits], table)
    assert Pypaimon(narrowed, table).read(splits) == selected


@without_pypaimon
def test_scores_travel_to_pypaimon_and_back(narrowed: Path) -> None:
    from pypaimon.read.split_serializer import deserialize_split_v1, serialize_split_v1

    table = maintainer.open_table(str(narrowed))
    peer = Pypaimon(narrowed, table)
    found = table.scan("n = 1").splits()[0].split
    assert isinstance(found, IndexedSplit)
    scored = IndexedSplit(found.split, found.ranges, tuple(number / 8 for number in range(found.rows)))
    there = deserialize_split_v1(codec.encode(scored), peer.partition, peer.key)
    assert there.scores() == list(scored.scores or ())
    assert codec.decode(serialize_split_v1(there)) == scored
