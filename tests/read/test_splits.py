"""Splits: together they are the scan, whoever reads them and however they travelled; what they cannot be is refused."""

from __future__ import annotations

import base64
import pickle
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyroaring import BitMap64

import maintainer
from maintainer import changes
from maintainer.api.table import Table
from maintainer.data.deletions import write_deletions
from maintainer.data.spill import Spill
from maintainer.errors import CorruptFile, MaintainerError, MissingFile, Unsupported, UsageError
from maintainer.format import split as codec
from maintainer.model.files import EMPTY_ROW, BucketKey, FileSource
from maintainer.model.split import DataSplit, DeletionFile, IndexedSplit, Split
from maintainer.read import vectors
from maintainer.read.scan import Scan
from maintainer.read.scan_split import ScanSplit
from maintainer.storage.layout import FileNames
from maintainer.storage.local import LocalStorage
from maintainer.storage.remote import RemoteStorage
from maintainer.table.state import SnapshotExpired
from maintainer.table.store import TableStore
from tests.support.builders import row as row_bytes
from tests.support.builders import schema
from tests.support.built_tables import BuiltTable
from tests.support.campaign import share

OPTIONS = {"bucket": "1", "deletion-vectors.enabled": "true", "pk-btree.index.columns": "a"}
SCHEMA = schema({"id": "INT", "a": "INT", "s": "STRING"}, options=OPTIONS)
MERGED = schema({"id": "INT", "a": "INT", "s": "STRING"}, options={"bucket": "1"})


def row(i: int) -> dict[str, Any]:
    return {"id": i, "a": i % 5, "s": f"s{i}"}


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Ids 0-19 (2, 6 and 19 deleted) and 20-39, covered; 50-59 in a file that is not; 60-69 in level 0."""
    built = BuiltTable(tmp_path / "t", SCHEMA)
    built.put([row(i) for i in range(20)], deleted=[2, 6, 19])
    built.put([row(i) for i in range(20, 40)])
    built.put([row(i) for i in range(50, 60)], level=2, source=FileSource.APPEND)
    built.put([row(i) for i in range(60, 70)], level=0, source=FileSource.APPEND)
    built.index()
    built.publish()
    return Table(built.store)


@pytest.fixture
def merged(tmp_path: Path) -> Table:
    """Two sections, of two files and of three, and a file that nothing overlaps."""
    built = BuiltTable(tmp_path / "m", MERGED)
    built.put([row(i) for i in range(0, 20, 2)])
    built.put([row(i) for i in range(0, 20, 4)], level=0, kinds=[3, 0, 0, 0, 0], first_sequence=100)
    built.put([row(i) for i in range(30, 40)])
    built.put([row(i) for i in range(50, 60)])
    built.put([row(i) for i in range(52, 54)], level=3, first_sequence=100)
    built.put([row(i) for i in range(59, 61)], level=0, first_sequence=200)
    built.publish()
    return Table(built.store)


def rows(source: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = source.to_arrow().to_pylist()
    return found


def together(splits: list[ScanSplit]) -> list[dict[str, Any]]:
    return [found for split in splits for found in rows(split)]


@pytest.mark.parametrize("where", [None, "a = 1", "a = 1 OR s = 's7'", "a = 1 AND s > 's3'", "a = 77"])
@pytest.mark.parametrize("name", ["table", "merged"])
def test_splits_give_the_rows_of_the_scan_in_its_order(name: str, where: str | None, request: pytest.FixtureRequest) -> None:
    opened: Table = request.getfixturevalue(name)
    scan = opened.scan(where, columns=["s", "id"])
    assert together(scan.splits()) == rows(scan)
    assert together([opened.read_split(split.to_bytes(), ["s", "id"], where) for split in scan.splits()]) == rows(scan)
    assert together(pickle.loads(pickle.dumps(scan.splits()))) == rows(scan)


def test_each_file_is_a_split_and_so_is_each_section(table: Table, merged: Table) -> None:
    found = [split.split for split in table.scan("a = 1").splits()]
    assert [type(split) for split in found] == [IndexedSplit, IndexedSplit, DataSplit]
    narrowed, _, raw = found
    assert isinstance(narrowed, IndexedSplit) and isinstance(raw, DataSplit)
    assert narrowed.ranges == ((1, 1), (6, 6), (11, 11), (16, 16))
    assert not narrowed.split.raw_convertible and raw.raw_convertible
    (where,) = narrowed.split.deletion_files or ()
    assert where is not None and (where.offset, where.cardinality) == (1, 3) and where.path.startswith(f"{table.store.uri}/index/")
    assert raw.deletion_files is None
    assert raw.bucket_path == f"{table.store.uri}/bucket-0" and (raw.snapshot_id, raw.total_buckets) == (1, 1)
    shapes = [(len(split.files), split.split.raw_convertible) for split in merged.scan().splits() if isinstance(split.split, DataSplit)]
    assert shapes == [(2, False), (1, True), (3, False)]


@pytest.mark.parametrize(("keys", "options", "raw"), [(("id",), {"bucket": "1"}, False), ((), {"bucket": "-1"}, True)])
def test_a_file_alone_in_level_0_may_hold_deletes_where_there_are_keys(
    tmp_path: Path, keys: tuple[str, ...], options: dict[str, str], raw: bool
) -> None:
    built = BuiltTable(tmp_path / "t", schema({"id": "INT", "a": "INT", "s": "STRING"}, keys, options=options))
    built.put([row(i) for i in range(5)], level=0, source=FileSource.APPEND, key=BucketKey(EMPTY_ROW, 0))
    built.publish()
    (found,) = Table(built.store).scan().splits()
    assert isinstance(found.split, DataSplit) and found.split.raw_convertible == raw
    assert len(rows(found)) == 5


def test_a_split_is_read_in_whatever_form_it_is_held(table: Table) -> None:
    (split, *_) = table.scan("a = 1", columns=["id"]).splits()
    data = split.to_bytes()
    for held in (split, split.split, data, bytearray(data), memoryview(data)):
        assert rows(table.read_split(held, ["id"], "a = 1")) == rows(split)  # type: ignore[arg-type]
    for wrong in ("text", None, 5, [data]):
        with pytest.raises(UsageError, match="a split is the bytes that a planner serialized, not "):
            table.read_split(wrong)  # type: ignore[arg-type]


def test_a_split_says_what_it_is(table: Table) -> None:
    split = table.scan("a = 1", columns=["id"]).splits()[0]
    assert split.rows == 4
    assert split.files == (table.scan("a = 1").plan().to_read[0].file.file_name,)
    assert split.schema == pa.schema([pa.field("id", pa.int32(), nullable=False)])
    assert repr(split) == f"<ScanSplit {table.name}, snapshot 1, bucket 0: 1 file, 4 rows>"


def test_a_split_has_no_order_and_no_limit(table: Table) -> None:
    for scan in (table.scan(order_by="id"), table.scan(limit=1)):
        with pytest.raises(UsageError, match="no order_by and no limit"):
            scan.splits()


def test_a_table_without_a_snapshot_has_no_splits(tmp_path: Path) -> None:
    assert Table(BuiltTable(tmp_path / "t", SCHEMA).store).scan().splits() == []


CHILD = """
import base64, pickle, sys
split = pickle.loads(base64.b64decode(sys.stdin.read()))
print(split.to_arrow().column("id").to_pylist())
import structlog
structlog.get_logger().info("a detail")
structlog.get_logger().warning("a warning")
"""


def test_another_process_reads_a_pickled_split(table: Table) -> None:
    split = table.scan("a = 1 AND s <> 's1'", columns=["id"]).splits()[0]
    data = base64.b64encode(pickle.dumps(split))
    done = subprocess.run([sys.executable, "-c", CHILD], input=data, capture_output=True, check=True)
    assert b"a warning" in done.stderr and b"a detail" not in done.stderr
    assert done.stdout.decode().strip() == str(split.to_arrow().column("id").to_pylist()) == "[11, 16]"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """What local stores are asked for, by the directory: `schema`, `index`, `bucket-0`, …"""
    count: Counter[str] = Counter()

    def counted(name: str) -> None:
        method: Callable[..., Any] = getattr(LocalStorage, name)

        def ask(self: LocalStorage, path: str, *more: Any, **others: Any) -> Any:
            count[path.partition("/")[0]] += 1
            return method(self, path, *more, **others)

        monkeypatch.setattr(LocalStorage, name, ask)

    for name in ("read", "read_start", "read_range", "read_end", "list", "size", "exists", "open_input"):
        counted(name)
    return count


def test_a_pickled_split_asks_for_nothing_but_its_files_and_vectors(table: Table, asked: Counter[str]) -> None:
    data = pickle.dumps(table.scan("a = 1").splits()[0])
    asked.clear()
    assert len(rows(pickle.loads(data))) == 3
    assert set(asked) == {"index", "bucket-0"} and asked["index"] == 1


def test_bytes_are_read_after_a_look_at_the_schema(table: Table, asked: Counter[str]) -> None:
    data = table.scan("a = 1").splits()[0].to_bytes()
    opened = Table(TableStore(table.store.storage))
    asked.clear()
    opened.read_split(data)
    assert asked == {"schema": 2}  # which there are, and the latest


def test_bytes_are_read_with_the_schema_that_the_options_choose(table: Table) -> None:
    split = table.scan("a = 1").splits()[0]
    table.alter(changes.rename_column("s", "t"))
    assert "t" in table.read_split(split.to_bytes()).schema.names
    old = maintainer.open_table(table.store.uri, options={"scan.snapshot-id": "1"})
    assert rows(old.read_split(split.to_bytes(), where="a = 1")) == rows(split)


def test_tables_scans_and_spills_are_opened_again_elsewhere(table: Table, tmp_path: Path) -> None:
    opened = maintainer.open_table(table.store.uri, options={"read.time-zone": "Asia/Tokyo"})
    again: Table = pickle.loads(pickle.dumps(opened))
    assert (again.name, again.store.dynamic_options) == (opened.name, {"read.time-zone": "Asia/Tokyo"})
    branch: TableStore = pickle.loads(pickle.dumps(TableStore(table.store.storage, "dev")))
    assert (branch.branch, branch.uri) == ("dev", table.store.uri)
    scan = opened.scan("a = 1", spill=Spill(str(tmp_path / "spill"), 1 << 20))
    other: Scan = pickle.loads(pickle.dumps(scan))
    assert rows(other) == rows(scan)
    assert other.spill is not None and (other.spill.directory, other.spill.limit) == (str(tmp_path / "spill"), 1 << 20)  # type: ignore[attr-defined]


def test_secrets_travel_with_a_pickle_and_are_shown_nowhere(table: Table) -> None:
    pytest.importorskip("s3fs")
    storage = RemoteStorage("s3://bucket/wh/t", {"key": "who", "secret": "tell nobody"})
    again = pickle.loads(pickle.dumps(storage))
    assert again._fs.secret == "tell nobody" and again.root == storage.root
    split = table.scan().splits()[0]
    store = TableStore(storage)
    shown = ScanSplit(replace(split.reader, store=store), split.split)
    for value in (storage, store, Table(store), shown, Scan(store)):
        assert "tell nobody" not in repr(value)
    assert b"tell nobody" not in shown.to_bytes()


def test_a_split_whose_snapshot_expired_says_so(table: Table) -> None:
    split = table.scan().splits()[0]
    uri = Path(table.store.uri)
    for path in uri.glob("bucket-0/*"):
        path.unlink()
    with pytest.raises(MissingFile):
        rows(split)
    (uri / "snapshot" / "snapshot-1").rename(uri / "snapshot" / "snapshot-7")
    with pytest.raises(SnapshotExpired, match="snapshot 1 expired before its splits were read"):
        rows(split)


# splits that others planned


def split_of(table: Table, where: str | None = None, number: int = 0) -> Split:
    return table.scan(where).splits()[number].split


def data_of(split: Split) -> DataSplit:
    return split.split if isinstance(split, IndexedSplit) else split


@pytest.mark.parametrize(
    "start", ["file:/elsewhere/wh/db.db/t", "s3a://bucket/wh/db.db/t", "/mnt/t"], ids=["file uri", "other scheme", "other directory"]
)
def test_paths_begin_as_the_planner_reaches_the_table(table: Table, start: str) -> None:
    split = data_of(split_of(table))
    (where,) = split.deletion_files or ()
    assert where is not None
    foreign = replace(
        split,
        bucket_path=f"{start}/bucket-0",
        deletion_files=(replace(where, path=f"{start}/index/{where.path.rpartition('/')[2]}", cardinality=None),),
    )
    assert rows(table.read_split(codec.encode(foreign))) == rows(table.read_split(split))
    named = replace(split.files[0], external_path=f"{start}/bucket-0/{split.files[0].file_name}")
    assert rows(table.read_split(replace(foreign, bucket_path="", files=(named,)))) == rows(table.read_split(split))


@pytest.mark.parametrize(
    ("changes", "error", "match"),
    [
        ({"is_streaming": True}, Unsupported, "its rows are changes"),
        ({"bucket": -2}, Unsupported, "have no bucket yet"),
        ({"partition": row_bytes("x", "STRING")}, UsageError, "1 partition values, the table 0"),
        ({"bucket_path": "/wh/db.db/u/bucket-1"}, UsageError, "of another table"),
        ({"deletion_files": (DeletionFile("/elsewhere/index-1", 1, 22),)}, Unsupported, "outside of the table"),
    ],
)
def test_splits_that_are_not_read_say_why(table: Table, changes: dict[str, Any], error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        table.read_split(replace(data_of(split_of(table)), **changes))


def test_files_elsewhere_are_refused(table: Table) -> None:
    split = data_of(split_of(table))
    with pytest.raises(Unsupported, match="outside of the table"):
        table.read_split(replace(split, files=(replace(split.files[0], external_path="/tmp/x.parquet"),)))


@pytest.mark.parametrize("name", ["../../etc/passwd", "a\0b", "\ud800.parquet", "..", ""])
def test_names_in_a_split_never_lead_out_of_the_table(table: Table, name: str) -> None:
    split = data_of(split_of(table))
    with pytest.raises((CorruptFile, Unsupported)):
        rows(table.read_split(replace(split, files=(replace(split.files[0], file_name=name),))))
    vector = DeletionFile(f"{table.store.uri}/index/{name}", 1, 22)
    with pytest.raises((CorruptFile, Unsupported, MissingFile)):
        rows(table.read_split(replace(split, deletion_files=(vector,))))


def test_bytes_that_are_no_split_are_corrupt(table: Table) -> None:
    with pytest.raises(CorruptFile, match="claims"):
        table.read_split(b"no")


@pytest.mark.parametrize("name", ["table", "merged"])
def test_changed_bytes_are_read_or_refused(name: str, request: pytest.FixtureRequest) -> None:
    opened: Table = request.getfixturevalue(name)
    splits = [split.to_bytes() for where in (None, "a = 1") for split in opened.scan(where).splits()]
    source = random.Random(name)
    for _ in range(share("changed bytes of splits", short=150, long=5000)):
        data = bytearray(source.choice(splits))
        for _ in range(source.randrange(1, 4)):
            at = source.randrange(len(data))
            data[at : at + source.choice([0, 1, 1, 4])] = source.randbytes(source.choice([0, 1, 1, 4]))
        with suppress(MaintainerError):
            rows(opened.read_split(bytes(data)))


@pytest.mark.parametrize("ranges", [(), ((-1, 0),), ((19, 20),), ((3, 2),), ((0, 2**31),)])
def test_an_indexed_split_that_contradicts_its_file_is_an_error(table: Table, ranges: tuple[tuple[int, int], ...]) -> None:
    with pytest.raises(CorruptFile, match="an indexed split selects"):
        rows(table.read_split(IndexedSplit(data_of(split_of(table)), ranges)))


def test_positions_beyond_those_of_java_are_an_error(table: Table) -> None:
    split = data_of(split_of(table))
    large = replace(split, files=(replace(split.files[0], row_count=2**33),))
    with pytest.raises(CorruptFile, match="positions 4 to 2147483648"):
        rows(table.read_split(IndexedSplit(large, ((4, 2**31),))))


def test_an_indexed_split_has_one_file_and_a_score_for_each_row(table: Table) -> None:
    split = data_of(split_of(table))
    with pytest.raises(CorruptFile, match="has one data file, and this one 2"):
        rows(table.read_split(IndexedSplit(replace(split, files=split.files * 2, deletion_files=None), ((0, 0),))))
    with pytest.raises(CorruptFile, match="which holds deletes"):
        rows(table.read_split(IndexedSplit(replace(split, files=(replace(split.files[0], delete_row_count=1),)), ((0, 0),))))
    with pytest.raises(CorruptFile, match="2 scores for 1 rows"):
        rows(table.read_split(IndexedSplit(split, ((0, 0),), (0.5, 0.25))))


def test_scores_come_with_their_rows(table: Table) -> None:
    """Of positions 1, 2, 3 and 6, of which 2 and 6 are deleted."""
    split = IndexedSplit(data_of(split_of(table)), ((1, 3), (6, 6)), (0.1, 0.2, 0.3, 0.6))
    columns = ["__paimon_search_score", "id"]
    found = table.read_split(split, columns).to_arrow()
    assert found.column("id").to_pylist() == [1, 3]
    assert found.column(0) == pa.chunked_array([[0.1, 0.3]], pa.float32())
    assert table.read_split(split, columns, "a = 3").to_arrow() == found.slice(1)
    assert rows(table.read_split(split, columns[:1])) == [{columns[0]: value.as_py()} for value in found.column(0)]
    plain = table.read_split(split_of(table, number=1), columns, "a = 1").to_arrow()
    assert plain.column(0).null_count == plain.num_rows == 4
    with pytest.raises(UsageError, match="no column '__paimon_search_score'"):
        table.scan(columns=columns).to_arrow()


def test_a_split_is_of_its_snapshot(table: Table) -> None:
    for choice in ({"snapshot_id": 1}, {"limit": 3}, {"order_by": "id"}):
        with pytest.raises(UsageError, match="of some snapshot already"):
            table.scan(**choice).of_split(split_of(table))  # type: ignore[arg-type]


def test_files_that_are_not_raw_convertible_are_merged(merged: Table) -> None:
    """As Java splits: several sections in one, and whatever is said of files that hold deletes."""
    every = [file for split in merged.scan().splits() for file in data_of(split.split).files]
    split = replace(data_of(split_of(merged)), files=tuple(every))
    assert sorted(row["id"] for row in rows(merged.read_split(split))) == sorted(row["id"] for row in rows(merged.scan()))
    holding = next(file for file in every if file.delete_row_count)
    alone = replace(split, files=(holding,), raw_convertible=True)
    assert [row["id"] for row in rows(merged.read_split(alone))] == [4, 8, 12, 16]


# deletion vectors


@pytest.fixture
def marked(tmp_path: Path) -> Iterator[BuiltTable]:
    """30 files with a vector each, in one file of vectors."""
    built = BuiltTable(tmp_path / "v", SCHEMA)
    for number in range(30):
        built.put([row(100 * number + i) for i in range(10)], deleted=[number % 10])
    built.publish()
    yield built


def test_vectors_of_a_bucket_are_read_once_and_kept(marked: BuiltTable, asked: Counter[str]) -> None:
    assert Scan(marked.store).to_arrow().num_rows == 270
    assert asked["index"] == 1
    assert Scan(marked.store).to_arrow().num_rows == 270
    assert asked["index"] == 1
    off = TableStore(marked.store.storage, options={"read.file-cache-size": "0"})
    asked.clear()
    assert Scan(off).to_arrow().num_rows == 270
    assert asked["index"] == 30


def test_vectors_far_behind_the_start_are_read_by_themselves(marked: BuiltTable, asked: Counter[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectors, "START", 200)
    every = [data_of(split.split) for split in Scan(marked.store).splits()]
    near = [split for split in every if split.deletion_files and split.deletion_files[0].offset + split.deletion_files[0].length + 8 <= 200]  # type: ignore[union-attr]
    assert 0 < len(near) < 30
    assert Scan(marked.store).to_arrow().num_rows == 270
    assert asked["index"] == 1 + 30 - len(near)


def test_the_last_of_64_bit_vectors_is_found_without_knowing_the_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectors, "START", 10)
    built = BuiltTable(tmp_path / "v", SCHEMA)
    (file,) = built.put([row(i) for i in range(10)])
    built.put_index_file(write_deletions(built.store.storage, built.store.layout, FileNames("index-"), {file.file_name: BitMap64([3])}, True))
    built.publish()
    assert [found["id"] for found in rows(Scan(built.store))] == [0, 1, 2, 4, 5, 6, 7, 8, 9]


def test_a_damaged_vector_names_its_file(marked: BuiltTable) -> None:
    (path,) = Path(marked.store.uri).glob("index/*")
    data = bytearray(path.read_bytes())
    data[20] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(CorruptFile, match=path.name):
        Scan(marked.store).to_arrow()
    data[20] ^= 1
    path.write_bytes(bytes(data))
    assert Scan(marked.store).to_arrow().num_rows == 270  # nothing of the damage was kept
    path.write_bytes(bytes(data[:15]))
    with pytest.raises(CorruptFile, match=path.name):
        Scan(TableStore(marked.store.storage)).to_arrow()
    path.unlink()
    with pytest.raises(MissingFile, match=path.name):
        Scan(TableStore(marked.store.storage)).to_arrow()
