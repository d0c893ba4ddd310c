"""Files that are read in few requests."""

from __future__ import annotations

import io
from collections.abc import Sequence

import pytest

from maintainer.errors import CorruptFile
from maintainer.storage.ranges import WHOLE, RangeFile, RangeInput, join

DATA = bytes(range(256)) * 20_000


class Store:
    """Answers ranges of some bytes, and counts them."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.asked: list[tuple[int, int]] = []

    def __call__(self, spans: Sequence[tuple[int, int]]) -> list[bytes]:
        self.asked += spans
        return [self.data[start:end] for start, end in spans]


def test_a_small_file_is_one_request() -> None:
    store = Store(DATA[:WHOLE])
    file = RangeInput(store, WHOLE, "f")
    assert file.read(10) == DATA[:10] and file.read(10) == DATA[10:20]
    assert file.seek(-5, io.SEEK_END) == WHOLE - 5 and file.read() == DATA[WHOLE - 5 : WHOLE] and file.read() == b""
    assert file.seek(5) == 5 and file.seek(3, io.SEEK_CUR) == 8 and file.tell() == 8
    assert store.asked == [(0, WHOLE + 1)]


def test_the_end_of_a_large_file_is_at_hand() -> None:
    store = Store(DATA)
    file = RangeInput(store, len(DATA), "f")
    file.seek(-1000, io.SEEK_END)
    assert file.read() == DATA[-1000:]
    assert len(store.asked) == 1
    file.seek(len(DATA) - (64 << 10) - 10)
    assert file.read(20) == DATA[len(DATA) - (64 << 10) - 10 :][:20]
    assert store.asked[1:] == [(len(DATA) - (64 << 10) - 10, len(DATA) - (64 << 10))]


@pytest.mark.parametrize("size", [0, 1, 999, 1001, WHOLE + 5])
def test_a_size_that_is_wrong_is_corrupt_before_anything_is_read(size: int) -> None:
    with pytest.raises(CorruptFile, match=f"(more than|fewer).* bytes, its metadata says {size}"):
        RangeInput(Store(DATA[:1000]), size, "f")


def test_what_was_announced_costs_nothing_more_and_is_let_go() -> None:
    store = Store(DATA)
    file = RangeInput(store, len(DATA), "f")
    store.asked.clear()
    file.prefetch([(4_000_000, 4_100_000), (0, 1000), (2000, 3000), (-5, 3), (len(DATA) + 5, len(DATA) + 9)])
    assert store.asked == [(0, 3000), (4_000_000, 4_100_000)], "a small gap is read, too"
    for start, end in [(0, 10), (990, 1000), (4_000_000, 4_100_000)]:
        file.seek(start)
        assert file.read(end - start) == DATA[start:end]
    assert len(store.asked) == 2
    file.prefetch(())
    file.seek(0)
    assert file.read(10) == DATA[:10] and store.asked[2:] == [(0, 10)]


def test_what_crosses_into_the_end_is_put_together() -> None:
    store = Store(DATA)
    file = RangeInput(store, len(DATA), "f")
    edge = len(DATA) - (64 << 10)
    file.prefetch([(edge - 5000, edge + 5000)])
    file.seek(edge - 5000)
    assert file.read(10_000) == DATA[edge - 5000 : edge + 5000]
    assert store.asked[1:] == [(edge - 5000, edge)]


def test_a_file_that_became_shorter_is_corrupt() -> None:
    store = Store(DATA)
    file = RangeInput(store, len(DATA), "f")
    store.data = DATA[:5000]
    file.seek(4990)
    with pytest.raises(CorruptFile, match="20 bytes expected, 10 found"):
        file.read(20)
    with pytest.raises(CorruptFile, match="bytes expected"):
        file.prefetch([(4000, 6000)])


def test_arrow_reads_it_and_passes_errors_on() -> None:
    store = Store(DATA)
    with RangeFile(RangeInput(store, len(DATA), "f")) as file:
        assert file.size() == len(DATA)
        assert file.read_at(5, 100) == DATA[100:105]
        file.prefetch([(0, 500)])
        store.data = b""
        assert file.read_at(5, 100) == DATA[100:105]
        with pytest.raises(CorruptFile):
            file.read_at(5, 1000)


def test_ranges_that_are_close_are_joined() -> None:
    assert join([]) == []
    assert join([(5, 5)]) == []
    assert join([(10, 20), (0, 15), (1_000_000, 1_000_001), (12, 13)]) == [(0, 20), (1_000_000, 1_000_001)]
