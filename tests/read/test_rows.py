"""Which row groups, columns and bytes of a Parquet file are read, and that the rows are right whatever is selected."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap64

import maintainer.data.parquet_file as parquet_module
import maintainer.read.rows as rows_module
import maintainer.storage.ranges as ranges_module
from maintainer.data import footer
from maintainer.data.data_file import Column
from maintainer.data.parquet_file import ParquetDataFile
from maintainer.model.files import EMPTY_ROW, BucketKey, DataFileMeta
from maintainer.model.predicate import Predicate
from maintainer.read.parallel import flat, in_order
from maintainer.read.residual import evaluate
from maintainer.read.rows import RowReader
from maintainer.read.scan import Scan
from maintainer.read.sql import parse_predicate
from maintainer.storage.local import LocalStorage
from maintainer.storage.ranges import RangeFile, RangeInput
from maintainer.table.opening import open_store
from maintainer.table.store import TableStore
from tests.support import campaign
from tests.support.builders import schema
from tests.support.built_tables import BuiltTable

OPTIONS = {"bucket": "1", "deletion-vectors.enabled": "true", "pk-btree.index.columns": "a", "pk-bitmap.index.columns": "s"}
SCHEMA = schema({"id": "INT", "a": "INT", "s": "STRING", "x": "DOUBLE"}, options=OPTIONS)
GROUP = 1000
NONE = BitMap64()


class OneFile:
    """A table of one file with row groups of 1000 rows, and what was read of it."""

    def __init__(self, directory: Path, rows: int, group: int = GROUP) -> None:
        built = BuiltTable(directory, SCHEMA)
        (meta,) = built.put([{"id": i, "a": i % 100, "s": f"text {i % 7}" if i % 10 else None, "x": i / 2} for i in range(rows)])
        self.key = BucketKey(EMPTY_ROW, 0)
        self.path = directory / built.store.layout.data_file_path(*self.key, meta)
        pq.write_table(pq.ParquetFile(self.path).read(), self.path, row_group_size=group, write_page_index=False, use_dictionary=False)
        self.meta: DataFileMeta = built.change(meta, file_size=self.path.stat().st_size)
        built.index()
        built.publish()
        self.store: TableStore = built.store

    def reader(self, columns: Sequence[str], where: str | None = None, store: TableStore | None = None) -> RowReader:
        predicate = None if where is None else parse_predicate(where, SCHEMA, "UTC")
        return RowReader(store or self.store, SCHEMA, tuple(columns), predicate)

    def ids(self, reader: RowReader, positions: Sequence[int] | None, deleted: Sequence[int] = ()) -> list[int]:
        selected = None if positions is None else BitMap64(positions)
        batches = reader.read(self.key, self.meta, selected, BitMap64(deleted))
        return [value for batch in batches for value in batch.column("id").to_pylist()]


Read = tuple[list[str], list[int]]


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[Read]:
    """Columns and row groups, in the order in which they are read."""
    found: list[Read] = []
    original = ParquetDataFile._raw_batches

    def spying(self: ParquetDataFile, plans: Sequence[Column], batch_rows: int, piece: list[int], rows: int) -> Iterator[pa.RecordBatch]:
        found.append(([str(plan.name) for plan in plans], piece))
        return original(self, plans, batch_rows, piece, rows)

    monkeypatch.setattr(ParquetDataFile, "_raw_batches", spying)
    return found


def test_only_row_groups_with_a_selected_row_are_read(tmp_path: Path, reads: list[Read]) -> None:
    file = OneFile(tmp_path / "t", 10_000)
    assert file.ids(file.reader(["id", "x"]), [999, 1000, 5500]) == [999, 1000, 5500]
    assert reads == [(["id", "x"], [0]), (["id", "x"], [1]), (["id", "x"], [5])]


def test_row_groups_of_which_all_selected_rows_are_deleted_are_not_read(tmp_path: Path, reads: list[Read]) -> None:
    file = OneFile(tmp_path / "t", 10_000)
    assert file.ids(file.reader(["id"]), [10, 2000, 2001, 3000], [2000, 2001, 3001]) == [10, 3000]
    assert [groups for _, groups in reads] == [[0], [3]]
    reads.clear()
    assert file.ids(file.reader(["id"]), None, range(1000, 9001)) == [*range(1000), *range(9001, 10_000)]
    assert [groups for _, groups in reads] == [[0], [9]]


def test_no_column_is_read_but_those_that_come_out_and_those_that_are_tested(tmp_path: Path, reads: list[Read]) -> None:
    file = OneFile(tmp_path / "t", 3000)
    assert file.ids(file.reader(["id"], "a = 7"), [7, 8, 2007]) == [7, 2007]
    assert reads == [(["a", "id"], [0]), (["a", "id"], [2])]
    reads.clear()
    batches = list(file.reader([], None).read(file.key, file.meta, BitMap64([5, 1500]), NONE))
    assert [(batch.num_rows, batch.num_columns) for batch in batches] == [(2, 0)]
    assert reads == []


def test_where_nothing_is_selected_the_tested_columns_are_read_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reads: list[Read]
) -> None:
    monkeypatch.setattr(parquet_module, "_PIECE", 1)
    file = OneFile(tmp_path / "t", 4000)
    assert file.ids(file.reader(["id", "x"], "s IS NULL AND x < 501"), None) == list(range(0, 1002, 10))
    assert reads == [(["s", "x"], [0]), (["id"], [0]), (["s", "x"], [1]), (["id"], [1])], "the bounds of others allow no row"
    reads.clear()
    assert file.ids(file.reader(["id"], "s = 'text 9'"), None) == []
    assert reads == [], "bounds of texts"
    reads.clear()
    assert file.ids(file.reader(["id", "x"], "s = 'text 12'"), None) == []
    assert [columns for columns, _ in reads] == [["s"]] * 4, "no row is left, so nothing else is read"


def test_where_selected_rows_turn_out_to_be_none_the_tested_columns_are_read_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reads: list[Read]
) -> None:
    monkeypatch.setattr(ParquetDataFile, "together", lambda self, groups, columns: [[group] for group in groups])
    monkeypatch.setattr(ParquetDataFile, "pieces", lambda self, groups, columns: [list(groups)])
    file = OneFile(tmp_path / "t", 5000)
    selected = [5, 1005, 2005, 3005, 4005]
    assert file.ids(file.reader(["id", "x"], "s = 'text 3'"), selected) == [i for i in selected if i % 7 == 3 and i % 10]
    first, *others = [columns for columns, _ in reads]
    assert first == ["s", "id", "x"] and others[0] == ["s"]


def test_neighbouring_row_groups_with_many_selected_rows_are_read_in_one_go(tmp_path: Path, reads: list[Read]) -> None:
    file = OneFile(tmp_path / "t", 6000)
    selected = [*range(900, 1100), *range(2000, 2010), 4000, 5001]
    assert file.ids(file.reader(["id"]), selected) == selected
    assert [groups for _, groups in reads] == [[0, 1, 2], [4], [5]]


def test_bounds_are_looked_at_for_row_groups_that_can_be_read_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = OneFile(tmp_path / "t", 10_000)
    asked: list[int] = []
    original = footer.bounds

    def spying(metadata: Any, group: int, *others: Any) -> Any:
        asked.append(group)
        return original(metadata, group, *others)

    monkeypatch.setattr(footer, "bounds", spying)
    assert file.ids(file.reader(["id"], "x < 2400"), [1, 4500, 9000]) == [1, 4500]
    assert asked == [0, 4, 9]


def test_nothing_behind_the_last_selected_row_is_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = OneFile(tmp_path / "t", 20_000, group=20_000)
    decoded = [0]
    original = ParquetDataFile._raw_batches

    def counting(self: ParquetDataFile, *arguments: Any) -> Iterator[pa.RecordBatch]:
        for batch in original(self, *arguments):
            decoded[0] += batch.num_rows
            yield batch

    monkeypatch.setattr(ParquetDataFile, "_raw_batches", counting)
    assert file.ids(file.reader(["id"]), [17, 5000]) == [17, 5000]
    assert decoded[0] <= 8192


class Recorded(LocalStorage):
    """A local directory that records the bytes that are read of data files; as an object store, in requests."""

    def __init__(self, root: str, remote: bool) -> None:
        super().__init__(root)
        self.remote = remote
        self.spans: list[tuple[int, int]] = []
        self.requests: list[list[tuple[int, int]]] = []

    def open_input(self, path: str, size: int | None = None, known: bool = False) -> Any:
        data = Path(self.root, path).read_bytes()
        if self.remote:

            def fetch(spans: Sequence[tuple[int, int]]) -> list[bytes]:
                self.requests.append(list(spans))
                return [data[start:end] for start, end in spans]

            return RangeFile(RangeInput(fetch, size or len(data), path, known))
        storage = self

        class Spying(pa.PythonFile):  # type: ignore[misc]
            pass

        class Source:
            closed = False
            at = 0

            def seek(self, offset: int, whence: int = 0) -> int:
                self.at = [0, self.at, len(data)][whence] + offset
                return self.at

            def tell(self) -> int:
                return self.at

            def read(self, length: int = -1) -> bytes:
                end = len(data) if length < 0 else min(len(data), self.at + length)
                storage.spans.append((self.at, end))
                found, self.at = data[self.at : end], end
                return found

            def size(self) -> int:
                return len(data)

            def close(self) -> None:
                self.closed = True

            def readable(self) -> bool:
                return True

            def seekable(self) -> bool:
                return True

        return Spying(Source(), mode="r")


def chunk(path: Path, group: int, name: str) -> tuple[int, int]:
    metadata = pq.read_metadata(path)
    column = metadata.row_group(group).column(metadata.schema.to_arrow_schema().names.index(name))
    return column.data_page_offset, column.data_page_offset + column.total_compressed_size


def test_no_bytes_are_read_but_those_of_the_wanted_columns_of_the_wanted_row_groups(tmp_path: Path) -> None:
    file = OneFile(tmp_path / "t", 20_000)
    storage = Recorded(str(tmp_path / "t"), remote=False)
    store = TableStore(storage)
    reader = file.reader(["id"], "x >= 0", store)
    assert file.ids(reader, [1]) == [1]
    storage.spans.clear()
    assert file.ids(reader, [2500, 2501, 17_000]) == [2500, 2501, 17_000]
    wanted = sorted(chunk(file.path, group, name) for group in (2, 17) for name in ("id", "x"))
    assert all(any(start <= low and high <= end for start, end in wanted) for low, high in storage.spans)


def test_row_groups_of_a_remote_file_are_fetched_at_once_and_its_footer_only_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranges_module, "WHOLE", 1000)
    monkeypatch.setattr(ranges_module, "_GAP", 10_000)
    file = OneFile(tmp_path / "t", 20_000)
    storage = Recorded(str(tmp_path / "t"), remote=True)
    store = TableStore(storage)
    reader = file.reader(["id"], "x >= 0", store)
    size = file.meta.file_size
    selected = [5, 3000, 6000, 9000]
    assert file.ids(reader, selected) == selected
    tail, data = storage.requests
    assert tail == [(size - (64 << 10), size + 1)]
    chunks = [chunk(file.path, group, name) for group in (0, 3, 6, 9) for name in ("id", "x")]
    assert {start for start, _ in chunks} <= {start for start, _ in data} | {start for start, _ in chunks[1::2]}
    assert sum(end - start for start, end in data) < 5 * sum(end - start for start, end in chunks)
    storage.requests.clear()
    assert file.ids(file.reader(["id"], "x >= 0", store), selected) == selected
    assert storage.requests == [data]


def test_columns_that_are_read_after_others_cost_one_more_request_and_not_one_for_each_row_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranges_module, "WHOLE", 1000)
    file = OneFile(tmp_path / "t", 10_000)
    storage = Recorded(str(tmp_path / "t"), remote=True)
    reader = file.reader(["id"], "a = 5", TableStore(storage))
    file.ids(reader, [1])
    storage.requests.clear()
    assert len(file.ids(reader, None)) == 100
    assert len(storage.requests) <= 2


def test_footers_are_parsed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = OneFile(tmp_path / "t", 3000)
    parsed = [0]
    original = pq.read_metadata

    def counting(source: Any) -> Any:
        parsed[0] += 1
        return original(source)

    monkeypatch.setattr(pq, "read_metadata", counting)
    kept, forgetful = open_store(file.store.uri), open_store(file.store.uri, options={"read.file-cache-size": "0"})
    for store, expected in ((kept, 1), (forgetful, 3)):
        parsed[0] = 0
        for _ in range(3):
            assert file.ids(file.reader(["id"], None, store), [1]) == [1]
        assert parsed[0] == expected
    assert 1000 < kept.cache("files", 0).used < 100_000


def test_a_file_is_cut_into_pieces_for_several_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reads: list[Read]) -> None:
    monkeypatch.setattr(parquet_module, "_PIECE", 1)
    file = OneFile(tmp_path / "t", 5000)
    reader = file.reader(["id", "s"], "a < 50")
    parts = list(reader.parts(file.key, file.meta, None, lambda: BitMap64([3, 1000])))
    assert len(parts) == 5 and reads == []
    whole = pa.Table.from_batches(flat(iter(parts)))
    for threads in (1, 2, 3):
        assert pa.Table.from_batches(in_order([lambda: reader.parts(file.key, file.meta, None, lambda: BitMap64([3, 1000]))], threads)) == whole
    assert whole["id"].to_pylist() == [i for i in range(5000) if i % 100 < 50 and i not in (3, 1000)]


def test_large_row_groups_stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built = BuiltTable(tmp_path / "t", SCHEMA)
    built.put([{"id": i, "a": i % 5, "s": None, "x": float(i)} for i in range(5_000)], deleted=range(1_000, 2_000))
    built.index()
    built.publish()
    expected = Scan(built.store, "a = 1").to_arrow()
    monkeypatch.setattr(rows_module, "WHOLE_GROUP", 0)
    monkeypatch.setattr(rows_module, "BATCH_ROWS", 700)
    monkeypatch.setattr(rows_module, "_FEW", 100)
    batches = list(Scan(built.store, "a = 1").to_batches())
    assert len(batches) > 3
    assert pa.Table.from_batches(batches) == expected
    assert expected.num_rows == 800


CONDITIONS = [
    None,
    "a < 50",
    "s IS NULL",
    "s = 'text 3' AND x > 100",
    "a = 7 OR x < 20",
    "x > 1e9",
    "id >= 0",
    "s LIKE '%5' AND a IN (5, 15, 25)",
]


def test_random_selections_give_the_rows_that_a_plain_reading_gives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_module, "_PIECE", 10_000)
    file = OneFile(tmp_path / "t", 3456, group=500)
    remote = TableStore(Recorded(str(tmp_path / "t"), remote=True))
    rows = pq.ParquetFile(file.path).read()
    for seed in range(campaign.share("random rows of a file", short=80, long=3000)):
        seeded = random.Random(seed)
        where = seeded.choice(CONDITIONS)
        columns = seeded.sample(SCHEMA.names, seeded.randrange(1, 5))
        share = seeded.choice([0.0005, 0.01, 0.5, 1])
        positions = None if seeded.random() < 0.3 else [i for i in range(3456) if seeded.random() < share]
        deleted = [i for i in range(3456) if seeded.random() < seeded.choice([0, 0.01, 0.6])] if seeded.random() < 0.6 else []
        monkeypatch.setattr(rows_module, "MOST_LEFT", seeded.choice([1, 5_000, 64 << 20]))
        reader = file.reader(columns, where, seeded.choice([file.store, remote]))
        wanted = np.isin(np.arange(3456), np.arange(3456) if positions is None else positions) & ~np.isin(np.arange(3456), deleted)
        if reader.predicate is not None:
            wanted &= np.asarray(_plain(reader.predicate, rows))
        expected = rows.filter(pa.array(wanted)).select(columns)
        selected = None if positions is None else BitMap64(positions)
        found = in_order([lambda r=reader, s=selected, d=deleted: r.parts(file.key, file.meta, s, lambda: BitMap64(d))], seeded.choice([1, 2]))  # type: ignore[misc]
        batches = list(found)
        assert pa.Table.from_batches(batches, expected.schema if not batches else None).to_pylist() == expected.to_pylist()


def _plain(predicate: Predicate, rows: pa.Table) -> pa.BooleanArray:
    return evaluate(predicate, rows, SCHEMA)


def test_large_row_groups_are_decoded_by_several_threads_and_small_ones_are_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = OneFile(tmp_path / "t", 3000)
    threads: list[bool] = []
    original = pq.ParquetFile.iter_batches

    def spying(self: pq.ParquetFile, *arguments: Any, use_threads: bool, **named: Any) -> Any:
        threads.append(use_threads)
        return original(self, *arguments, use_threads=use_threads, **named)

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", spying)
    assert len(file.ids(file.reader(["id", "s"]), None)) == 3000
    assert set(threads) == {False}
    monkeypatch.setattr(parquet_module, "_LARGE", 10_000)
    monkeypatch.setattr(parquet_module, "_PIECE", 10_000)
    threads.clear()
    assert len(file.ids(file.reader(["id", "s"]), None)) == 3000
    assert threads == [True] * 3


def test_a_scan_holds_little_of_what_it_reads(tmp_path: Path) -> None:
    rows = 800_000
    file = OneFile(tmp_path / "t", 1)
    table = pa.table(
        {
            "id": pa.array(np.arange(rows), pa.int32()),
            "a": pa.array(np.arange(rows), pa.int32()),
            "s": pa.array([f"a text of about forty bytes, as they are {i}" for i in range(rows)]),
            "x": pa.array(np.arange(rows), pa.float64()),
        }
    )
    pq.write_table(table, file.path, row_group_size=20_000)
    meta = replace(file.meta, file_size=file.path.stat().st_size, row_count=rows)
    reader, most, found, before = file.reader(SCHEMA.names), 0, 0, pa.total_allocated_bytes()
    for batch in in_order([lambda: reader.parts(file.key, meta, None, lambda: NONE)], threads=2, most_bytes=4 << 20):
        found += batch.num_rows
        time.sleep(0.001)  # so that the threads are faster
        most = max(most, pa.total_allocated_bytes() - before)
    assert found == rows
    assert most < 32 << 20 < table.nbytes // 1.5


def test_texts_that_the_file_has_once_and_many_rows_have_are_not_held_for_all_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = 100_000
    file = OneFile(tmp_path / "t", 1)
    numbers = pa.array(np.arange(rows), pa.int32())
    texts = pa.DictionaryArray.from_arrays(pa.array(np.arange(rows) % 3, pa.int32()), pa.array([text * 3000 for text in "abc"]))
    table = pa.table({"id": numbers, "a": numbers, "s": texts, "x": numbers.cast(pa.float64())})
    pq.write_table(table, file.path, row_group_size=rows, store_schema=False)
    meta = replace(file.meta, file_size=file.path.stat().st_size, row_count=rows)
    assert meta.file_size < 2 << 20
    monkeypatch.setattr(rows_module, "MOST_LEFT", 8 << 20)
    reader, most, found, before = file.reader(SCHEMA.names, "s < 'b' OR s >= 'c'"), 0, 0, pa.total_allocated_bytes()
    for batch in reader.read(file.key, meta, None, NONE):
        found += batch.num_rows
        most = max(most, pa.total_allocated_bytes() - before)
        assert batch.nbytes < 12 << 20
    assert found == rows - rows // 3
    assert most < 90 << 20
