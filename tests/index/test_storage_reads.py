"""What a question costs in reads of storage: a few cold, one or none where something was asked before, and none that metadata can answer."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from maintainer.errors import CorruptFile
from maintainer.format.kept import Cache
from maintainer.format.stored_block import KeepingRanges
from maintainer.index import family
from maintainer.index.cache import cache_of
from maintainer.index.definition import IndexDefinition
from maintainer.model.files import FileSource
from maintainer.model.predicate import Leaf, Op
from maintainer.read.scan import Scan
from maintainer.storage.local import LocalStorage
from maintainer.table.store import TableStore
from tests.support.builders import schema
from tests.support.built_tables import BuiltTable
from tests.support.sorted_index import Built, build_arrays, definition

ROWS = 60_000
NUMBERS = np.random.default_rng(5).permutation(ROWS)
TEXTS = np.char.zfill(NUMBERS.astype("U6"), 8)
NULLS = NUMBERS % 10 == 3


@dataclass
class Counted:
    """A payload whose reads are counted, asked by readers of their own that share what they keep."""

    built: Built
    index: IndexDefinition
    cache: Cache = field(default_factory=lambda: Cache(64 << 20))
    reads: list[tuple[int, int]] = field(default_factory=list)

    def _read(self, offset: int, length: int) -> bytes:
        self.reads.append((offset, length))
        return self.built.data[offset : offset + length]

    def ask(self, op: Op, *literals: Any) -> tuple[list[int] | None, int]:
        """The answer, and how many reads it cost."""
        del self.reads[:]
        read = KeepingRanges(self._read, self.cache.of("payload"))
        opened = family.family(self.index.family).open(read, len(self.built.data), self.index, self.built.index_meta, ROWS)
        found = opened.evaluate(Leaf(op, "c", literals))
        return None if found is None else list(found), len(self.reads)

    def cold(self, op: Op, *literals: Any) -> tuple[list[int] | None, int]:
        self.cache.forget("payload")
        return self.ask(op, *literals)


BLOCKS = {"btree-index.block-size": "200 b", "bitmap-index.dictionary-block-size": "200 b", "multivalue-index.dictionary-block-size": "200 b"}


def payload(name: str, data_type: str, values: pa.Array, **options: str) -> Counted:
    index = definition(name, data_type, {**BLOCKS, **options})
    return Counted(build_arrays([values], index, len(values)), index)


def rows_where(mask: np.ndarray) -> list[int]:
    return np.flatnonzero(mask).tolist()


@pytest.fixture(scope="module")
def btree() -> Counted:
    return payload("btree", "BIGINT", pa.array(NUMBERS, pa.int64(), mask=NULLS))


@pytest.fixture(scope="module")
def texts() -> Counted:
    return payload("btree", "STRING", pa.array(TEXTS, pa.string()))


@pytest.fixture(scope="module")
def bitmap() -> Counted:
    return payload("bitmap", "STRING", pa.array(TEXTS, pa.string(), mask=NULLS))


@pytest.fixture(scope="module")
def multivalue() -> Counted:
    lists = pa.ListArray.from_arrays(np.arange(0, 2 * ROWS + 1, 2), pa.array(np.repeat(NUMBERS, 2) + np.tile([0, 1], ROWS), pa.int64()))
    return payload("multivalue", "ARRAY<BIGINT>", lists)


def test_a_btree_is_read_three_times_at_most(btree: Counted) -> None:
    assert len(btree.built.data) > 1 << 20  # so that the index does not lie in what is read first
    assert btree.cold(Op.EQ, 777) == (rows_where(NUMBERS == 777), 3)
    assert btree.ask(Op.EQ, 777) == (rows_where(NUMBERS == 777), 0)
    for number in (5, 20_000, 59_998):
        assert btree.ask(Op.EQ, number) == (rows_where(number == NUMBERS), 1)
    assert btree.ask(Op.EQ, ROWS) == ([], 0)  # as the metadata says
    assert btree.ask(Op.EQ, None) == ([], 0)
    assert btree.ask(Op.IN, *range(30_000, 30_100)) == (rows_where(~NULLS & (NUMBERS // 100 == 300)), 1)
    assert btree.ask(Op.IN, 1000, 40_000, 40_000, None, ROWS)[1] == 2
    wanted = rows_where(~NULLS & (NUMBERS >= 6000) & (NUMBERS <= 6400))
    assert btree.cold(Op.BETWEEN, 6000, 6400) == (wanted, 3)
    assert btree.ask(Op.BETWEEN, 6000, 6400) == (wanted, 0)
    assert btree.cold(Op.BETWEEN, 6400, 6000)[0] == []
    assert btree.cold(Op.LT, 100) == (rows_where(~NULLS & (NUMBERS < 100)), 3)
    assert btree.cold(Op.GE, ROWS) == ([], 0)


def test_null_rows_of_a_btree_are_read_once(btree: Counted) -> None:
    assert btree.cold(Op.IS_NULL) == (rows_where(NULLS), 3)
    for op, mask in ((Op.IS_NULL, NULLS), (Op.IS_NOT_NULL, ~NULLS)):
        assert btree.ask(op) == (rows_where(mask), 0)
    assert btree.ask(Op.NE, 8) == (rows_where(~NULLS & (NUMBERS != 8)), 1)
    assert btree.cold(Op.NE, 8)[1] <= 4


def test_prefixes_cost_what_their_blocks_do(texts: Counted) -> None:
    assert texts.cold(Op.STARTS_WITH, "000123") == (rows_where(NUMBERS // 100 == 123), 3)
    assert texts.ask(Op.STARTS_WITH, "000124")[1] == 1
    assert texts.ask(Op.LIKE, "00033333") == (rows_where(NUMBERS == 33_333), 1)
    assert texts.ask(Op.STARTS_WITH, "1") == ([], 0)
    assert texts.cold(Op.IS_NULL) == ([], 0)
    assert texts.ask(Op.CONTAINS, "7") == (list(range(ROWS)), 0)


def test_a_bitmap_is_read_four_times_at_most(bitmap: Counted) -> None:
    assert bitmap.cold(Op.EQ, "00000777") == (rows_where(NUMBERS == 777), 4)
    assert bitmap.ask(Op.EQ, "00000777") == (rows_where(NUMBERS == 777), 0)
    assert bitmap.ask(Op.EQ, "00040004") == (rows_where(NUMBERS == 40_004), 2)
    assert bitmap.ask(Op.EQ, "00060000") == ([], 0)
    wanted = [f"{number:08}" for number in range(30_000, 30_100)]
    assert bitmap.ask(Op.IN, *wanted) == (rows_where(~NULLS & (NUMBERS // 100 == 300)), 2)
    assert bitmap.cold(Op.STARTS_WITH, "000300") == (rows_where(~NULLS & (NUMBERS // 100 == 300)), 4)
    assert bitmap.cold(Op.BETWEEN, "00030000", "00030099") == (rows_where(~NULLS & (NUMBERS // 100 == 300)), 4)
    assert bitmap.cold(Op.IS_NULL)[1] <= 2
    assert bitmap.ask(Op.IS_NOT_NULL) == (rows_where(~NULLS), 0)
    found, reads = bitmap.cold(Op.ENDS_WITH, "77")
    assert found == rows_where(~NULLS & (NUMBERS % 100 == 77))
    assert reads <= 8


def test_a_multivalue_is_read_four_times_at_most(multivalue: Counted) -> None:
    def having(number: int) -> list[int]:
        return rows_where((number == NUMBERS) | (number - 1 == NUMBERS))

    assert multivalue.cold(Op.ARRAY_CONTAINS, 777) == (having(777), 4)
    assert multivalue.ask(Op.ARRAY_CONTAINS, 777) == (having(777), 0)
    assert multivalue.ask(Op.ARRAY_CONTAINS, 50_000) == (having(50_000), 2)
    assert multivalue.ask(Op.ARRAY_CONTAINS, ROWS + 1) == ([], 0)
    assert multivalue.ask(Op.ARRAY_CONTAINS, None) == ([], 0)
    assert multivalue.cold(Op.ARRAY_CONTAINS_ALL, 41, 42) == (rows_where(NUMBERS == 41), 4)
    assert multivalue.ask(Op.ARRAY_CONTAINS_ALL, 1, 30_000)[0] == []
    assert multivalue.cold(Op.ARRAYS_OVERLAP, *range(20, 40))[1] == 4
    assert multivalue.ask(Op.ARRAY_CONTAINS_ALL) == (None, 0)


def test_an_fm_payload_is_read_where_a_search_comes_by() -> None:
    values = pa.array([f"row {number} of many, with some words in it" for number in NUMBERS[:ROWS].tolist()], pa.string())
    counted = payload("fm", "STRING", values, **{"fm-index.locate-cost-ratio": "1", "fm-index.demand-page-size": "64 kb"})
    wanted = rows_where(NUMBERS == 12_345)
    found, reads = counted.cold(Op.CONTAINS, "row 12345 of")
    assert found == wanted
    read = sum(length for _, length in counted.reads)
    assert reads <= 60
    assert read < len(counted.built.data) * 3 // 4
    assert counted.ask(Op.CONTAINS, "row 12345 of") == (wanted, 0)
    assert counted.ask(Op.IS_NULL)[0] == []
    assert counted.ask(Op.CONTAINS, "")[0] == list(range(ROWS))


@pytest.mark.parametrize("size", [0, 3000, 200_000])
def test_answers_do_not_depend_on_what_is_kept(size: int, btree: Counted, bitmap: Counted) -> None:
    source = random.Random(size)
    for counted in (btree, bitmap):
        cached = Counted(counted.built, counted.index, Cache(size))
        for _ in range(30):
            number = source.randrange(ROWS)
            literal = number if counted is btree else f"{number:08}"
            assert cached.ask(Op.EQ, literal)[0] == rows_where(~NULLS & (number == NUMBERS))
            assert cached.cache.used <= size


class CountingStorage(LocalStorage):
    """Notes reads of index files."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.reads: list[str] = []

    def _read(self, path: str, descriptor: int, offset: int, length: int) -> bytes:
        if path.startswith("index/index-") and not path.startswith("index/index-dv"):
            self.reads.append(path)
        return super()._read(path, descriptor, offset, length)


@pytest.fixture
def levels(tmp_path: Path) -> BuiltTable:
    """Groups of two columns on three levels."""
    options = {"bucket": "1", "deletion-vectors.enabled": "true", "metadata.stats-mode": "none"}
    options |= {"pk-btree.index.columns": "name", "pk-bitmap.index.columns": "price"}
    built = BuiltTable(tmp_path / "t", schema({"id": "INT", "name": "STRING", "price": "INT"}, options=options))
    for level in (3, 4, 5):
        rows = [{"id": 1000 * level + i, "name": f"name {i:02} {level}", "price": i % 5} for i in range(50)]
        built.put(rows, level=level, source=FileSource.COMPACT)
    built.index()
    built.publish()
    return built


def test_a_scan_reads_each_group_once(levels: BuiltTable) -> None:
    storage = CountingStorage(levels.store.uri)
    store = TableStore(storage)
    assert len(Scan(store, "name IN ('name 07 4', 'name 08 5')", ["id"]).to_arrow()) == 2
    assert len(storage.reads) == len(set(storage.reads)) == 3  # small payloads are one read
    del storage.reads[:]
    assert Scan(store, "name = 'name 09 4'", ["id"]).to_arrow()["id"].to_pylist() == [4009]
    assert len(storage.reads) <= 3
    del storage.reads[:]
    assert Scan(store, "name = 'name 09 4'", ["id"]).to_arrow()["id"].to_pylist() == [4009]
    assert storage.reads == []
    assert 0 < cache_of(store, 0).used <= cache_of(store, 0).limit == 128 << 20
    assert len(Scan(store, "price = 3", ["id"]).to_arrow()) == 30
    assert len(storage.reads) == 3
    other = TableStore(storage, options={"read.index-cache-size": "0"})
    for _ in range(2):
        del storage.reads[:]
        assert len(Scan(other, "name = 'name 09 4'", ["id"]).to_arrow()) == 1
        assert len(storage.reads) >= 1
    assert cache_of(other, 1).used == 0


def test_a_payload_that_is_repaired_is_used_again(levels: BuiltTable) -> None:
    store = TableStore(CountingStorage(levels.store.uri))
    path = next(Path(store.uri, "index").glob("index-*-0"))
    good = path.read_bytes()
    path.write_bytes(good[:40] + b"\xff" + good[41:-20] + bytes(20))
    scan = Scan(store, "name = 'name 01 3'", ["id"])
    assert scan.to_arrow()["id"].to_pylist() == [3001]
    assert "raw" in {file.decision for file in scan.explain().files}
    path.write_bytes(good)
    assert {file.decision for file in scan.explain().files} <= {"indexed", "pruned"}
    assert scan.to_arrow()["id"].to_pylist() == [3001]


def test_a_payload_of_another_size_is_corrupt(btree: Counted) -> None:
    short = Counted(Built(btree.built.data[:-1], len(btree.built.data) - 1, ROWS, btree.built.index_meta), btree.index)
    with pytest.raises(CorruptFile):
        short.ask(Op.EQ, 7)
