"""Builds keep within the memory that they are given, and what they write does not depend on it."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

from maintainer.data.spill import Spill
from maintainer.errors import MaintainerError, StorageError
from maintainer.format import posting
from maintainer.format.byte_column import ByteColumn
from maintainer.index.family import bitmap, btree, column_sort, ordering, postings, spilled_runs
from maintainer.index.family.key_runs import KeyBatch
from maintainer.index.family.ordering import LargeKey, Values, in_key_order, whole_keys
from maintainer.index.family.spilled_runs import SpilledRuns
from maintainer.index.payload import Resources, Rows
from tests.support.builders import type_
from tests.support.sorted_index import build_arrays, definition, grouped, reference_bitmap, reference_btree

LITTLE = 64 << 10


def columns(rows: int, seed: int) -> Iterator[tuple[str, list[int | str | None]]]:
    chance = random.Random(seed)
    for distinct in (1, 3, 500, 10**9):
        numbers: list[int | None] = [None if chance.random() < 0.1 else chance.randrange(distinct) for _ in range(rows)]
        yield "BIGINT", list(numbers)
        yield "STRING", [None if number is None else f"text {number}" for number in numbers]


@pytest.mark.parametrize("name", ["btree", "bitmap"])
def test_what_is_sorted_in_runs_is_written_like_what_is_sorted_in_memory(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ordering, "_PIECE", 200)
    spilled = []
    append = SpilledRuns.append
    monkeypatch.setattr(SpilledRuns, "append", lambda self, batches: (spilled.append(1), append(self, batches))[1])
    for text, values in columns(3000, 1):
        index = definition(name, text, {"maintain.bitmap-peer-blocks": "off"})
        arrays = [pa.array(values, pa.int64() if text == "BIGINT" else pa.string())]
        spilled.clear()
        spill = Spill()
        built = build_arrays(arrays, index, len(values), Resources(LITTLE, spill))
        assert len(spilled) > 1 and not spill.used
        reference = {"btree": reference_btree, "bitmap": reference_bitmap}[name]
        assert built.data == reference(*grouped(values, index.data_type))
        assert built == build_arrays(arrays, index, len(values))


@pytest.mark.parametrize("name", ["btree", "bitmap"])
def test_more_runs_than_can_be_merged_become_fewer_first(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ordering, "_PIECE", 10)
    opened = []
    file = Spill.file
    monkeypatch.setattr(Spill, "file", lambda self: (opened.append(1), file(self))[1])
    values = np.random.default_rng(2).integers(0, 300, 800)
    index = definition(name, "BIGINT")
    spill = Spill()
    built = build_arrays([pa.array(values)], index, 800, Resources(2000, spill))
    assert len(opened) > 3 and not spill.used
    assert built == build_arrays([pa.array(values)], index, 800)


def test_what_is_spilled_is_gone_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ordering, "_PIECE", 100)
    spill = Spill()
    values = Values([Rows(0, pa.array(range(5000)))], type_("BIGINT"), 5000)
    with pytest.raises(ZeroDivisionError), in_key_order(values, type_("BIGINT"), Resources(LITTLE, spill)) as keys:
        next(iter(keys))
        assert spill.used
        raise ZeroDivisionError
    assert not spill.used
    with pytest.raises(StorageError, match="limit"):
        build_arrays([pa.array(range(5000))], definition("btree", "BIGINT"), 5000, Resources(LITTLE, Spill(limit=1000)))


def test_what_a_column_says_that_it_takes_grows_with_what_it_holds() -> None:
    column = column_sort.Column(type_("STRING"))
    texts = pa.array([f"text number {number}" for number in range(50_000)])
    for start in range(0, 50_000, 1000):
        column.add(column_sort.Pairs(texts.slice(start, 1000), range(start, start + 1000)))
    assert column.memory < 50_000 * 150
    assert sum(entry.get_total_buffer_size() for entry in column.entries) < 50_000 * 50  # none of them holds more than its own texts
    assert column_sort.SortedColumn(column).distinct == 50_000
    assert (len(column), column.memory) == (0, 0)


def test_keys_that_go_on_are_put_together() -> None:
    def batch(keys: str, *ids: list[int]) -> KeyBatch:
        counts = [len(each) for each in ids]
        return KeyBatch(ByteColumn.of_rows([key.encode() for key in keys]), np.concatenate(ids), np.cumsum(counts) - counts)

    given = [batch("ab", [1], [2, 3]), batch("b", [4]), batch("b", [0, 9]), batch("bc", [5], [6]), batch("d", [7]), batch("d", [8])]
    found = []
    for each in whole_keys(given):
        if isinstance(each, LargeKey):
            found.append((each.key, np.concatenate(list(each.rows.parts(2))).tolist()))
        else:
            ends = [*each.starts.tolist(), len(each.ids)]
            found += [(each.keys[i], each.ids[ends[i] : ends[i + 1]].tolist()) for i in range(len(each))]
    assert found == [(b"a", [1]), (b"b", [0, 2, 3, 4, 5, 9]), (b"c", [6]), (b"d", [7, 8])]
    assert list(whole_keys([])) == []


@pytest.mark.parametrize("size", [1, 300, 70_000])
@pytest.mark.parametrize("block_size", [1, 40, 65536, 1 << 20])
@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_a_key_of_very_many_rows_is_an_entry_like_others(size: int, block_size: int, compression: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ordering, "BATCH_ROWS", 50)
    monkeypatch.setattr("maintainer.format.btree._PART", 1000)
    values = [*("aa" if row % 3 else "b" for row in range(size)), "a", "ab", "c", "d"]
    for name, option in (("btree", "block-size"), ("bitmap", "dictionary-block-size")):
        index = definition(name, "STRING", {f"{name}-index.{option}": f"{block_size} b", f"{name}-index.compression": compression})
        reference = {"btree": reference_btree, "bitmap": reference_bitmap}[name]
        assert build_arrays([pa.array(values)], index, len(values)).data == reference(
            *grouped(values, index.data_type), block_size, compression
        )


def test_entries_wait_in_a_file_until_it_is_known_how_they_are_laid_out(monkeypatch: pytest.MonkeyPatch) -> None:
    values = [-1, 0, 1, 256] * 500
    index = definition("bitmap", "INT")
    expected = build_arrays([pa.array(values, pa.int32())], index, len(values))
    spilled = []
    pack = postings.pack
    monkeypatch.setattr(postings, "pack", lambda arrays: (spilled.append(1), pack(arrays))[1])
    monkeypatch.setattr(ordering, "_PIECE", 100)
    spill = Spill()
    assert build_arrays([pa.array(values, pa.int32())], index, len(values), Resources(4000, spill)) == expected
    assert spilled and not spill.used
    assert expected.data == reference_bitmap(*grouped(values, index.data_type), 1)
    monkeypatch.setattr(bitmap, "MAX_PEER_KEYS", 3)
    normal = build_arrays([pa.array(values, pa.int32())], index, len(values), Resources(4000, spill))
    assert normal.data == reference_bitmap(*grouped(values, index.data_type))


def test_batches_come_back_as_they_were_written() -> None:
    large = 1 << 32
    for keys, ids, starts in (
        (ByteColumn.of_rows([b"", b"abc"]), [5, 6], [0, 1]),
        (ByteColumn(np.arange(8, dtype=np.uint8), None, width=4), [0, large, 7], [0, 2]),
        (ByteColumn.of_rows([b""]), [1, 2, 3], [0]),
        (ByteColumn.of_rows([b"a", b"bc", b"d"]).slice(1, 3), [1, 2], [0, 1]),
    ):
        batch = KeyBatch(keys, np.array(ids), np.array(starts))
        read = spilled_runs._unpacked(spilled_runs._packed(batch))
        assert [read.keys[i] for i in range(len(read))] == [keys[i] for i in range(len(keys))]
        assert (read.ids.tolist(), read.starts.tolist(), read.keys.width) == (ids, starts, keys.width)


def test_a_run_that_is_merged_is_cut_into_batches_again() -> None:
    batch = KeyBatch(ByteColumn.of_rows([b"a", b"b" * 50, b"c", b"d"]), np.arange(40), np.array([0, 1, 2, 39]))
    pieces = list(spilled_runs._cut(batch, 80))
    assert [(piece.keys[0][:1], len(piece), len(piece.ids)) for piece in pieces] == [
        (b"a", 2, 2), (b"c", 1, 10), (b"c", 1, 10), (b"c", 1, 10), (b"c", 1, 7), (b"d", 1, 1),
    ]  # fmt: skip
    assert np.concatenate([piece.ids for piece in pieces]).tolist() == list(range(40))


@pytest.mark.parametrize("name", ["btree", "bitmap"])
def test_rows_that_are_missing_or_come_twice_fail_the_build(name: str) -> None:
    module = {"btree": btree, "bitmap": bitmap}[name]
    for rows in ([Rows(0, pa.array([1])), Rows(2, pa.array([1]))], [Rows(0, pa.array([1, 2])), Rows(1, pa.array([1]))]):
        with pytest.raises(MaintainerError, match="missing, or come twice"):
            module.build(rows, definition(name, "BIGINT"), 3, lambda data: None)


def test_bitmaps_of_all_ids_and_of_their_pieces_are_the_same() -> None:
    values = [-1] * 10
    assert posting.encode(np.arange(10)) == ordering.RowSet().complement(len(values)).encode()
