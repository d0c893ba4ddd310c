"""What is read of an FM payload, and what is kept: footers, the pages in which a search comes by, and nothing twice (spec 09 §9)."""

from __future__ import annotations

import random
from functools import cache

import pyarrow as pa
import pytest

from maintainer.errors import CorruptFile
from maintainer.format.kept import Cache
from maintainer.format.stored_block import KeepingRanges
from maintainer.index.family import family
from maintainer.model.predicate import Leaf, Op
from tests.support.sorted_index import Built, build_arrays, definition

ROWS = 60_000
OPTIONS = {"fm-index.partition-row-count": "30000"}


@cache
def values() -> list[str | None]:
    chosen = random.Random(1)
    words = ["".join(chosen.choices("etaoinshrdlu", k=chosen.randint(2, 8))) for _ in range(5000)]
    found: list[str | None] = [" ".join(chosen.choices(words, k=10)) for _ in range(ROWS)]
    found[777] = None
    found[40_000] = "Jürgen found 😀"
    return found


@cache
def payload(compression: str = "lz4") -> Built:
    return build_arrays([pa.array(values())], definition("fm", "STRING", {**OPTIONS, "fm-index.compression": compression}), ROWS)


class Store:
    """A payload in a store that counts its reads, and a table's memory."""

    def __init__(self, limit: int = 128 << 20, payload: Built | None = None) -> None:
        self.payload = payload or globals()["payload"]()
        self.cache = Cache(limit)
        self.reads: list[tuple[int, int]] = []

    def ask(self, op: Op, *literals: object, **options: str) -> tuple[list[int] | None, int, int]:
        """The answer of a fresh reader, how many reads it took, and how many bytes."""
        given = {**OPTIONS, **{f"fm-index.{name.replace('_', '-')}": value for name, value in options.items()}}
        self.reads = []

        def read(offset: int, length: int) -> bytes:
            self.reads.append((offset, length))
            return self.payload.data[offset : offset + length]

        data = self.payload.data
        reader = family("fm").open(
            KeepingRanges(read, self.cache.of("payload")), len(data), definition("fm", "STRING", given), self.payload.index_meta, ROWS
        )
        found = reader.evaluate(Leaf(op, "c", literals))
        return None if found is None else list(found), len(self.reads), sum(length for _, length in self.reads)


def test_opening_reads_nothing_and_what_needs_no_block_reads_footers_and_directories() -> None:
    store = Store()
    # the end of the payload, the end of the first partition, and what its directory has before that
    assert store.ask(Op.CONTAINS, "Q")[:2] == ([], 3)
    assert store.ask(Op.CONTAINS, "Q") == ([], 0, 0)
    assert store.ask(Op.IS_NOT_NULL)[1] == 1  # the block with the null
    assert store.ask(Op.NE, "x") == (None, 0, 0)
    assert store.ask(Op.CONTAINS, None) == ([], 0, 0)
    fresh = Store()
    assert fresh.ask(Op.NE, "x") == (None, 0, 0)


def test_a_search_reads_few_pages_and_once() -> None:
    store = Store()
    found, reads, size = store.ask(Op.CONTAINS, "found 😀", demand_page_size="64 kb")
    assert found == [40_000]
    assert size < len(store.payload.data) / 2
    again = store.ask(Op.CONTAINS, "found 😀", demand_page_size="64 kb")
    assert again == ([40_000], 0, 0)
    assert store.ask(Op.CONTAINS, "Jürgen f")[0] == [40_000]
    assert len(set(store.reads)) == len(store.reads)
    assert reads > 10


def test_larger_pages_are_fewer_reads() -> None:
    small, large = Store(), Store()
    needle = "found 😀"
    one, other = small.ask(Op.CONTAINS, needle, demand_page_size="64 kb"), large.ask(Op.CONTAINS, needle, demand_page_size="4 mb")
    assert one[0] == other[0]
    assert other[1] <= 3 + 2 * 8 < one[1]  # a page is all of a vector
    assert one[2] < other[2]


@pytest.mark.parametrize("page", [64 << 10, 256 << 10])
def test_no_read_is_larger_than_a_page(page: int) -> None:
    store = Store(payload=payload("none"))
    store.ask(Op.CONTAINS, "found", demand_page_size=f"{page} b", locate_cost_ratio="1")
    assert max(length for _, length in store.reads[3:]) <= page


def test_no_block_is_read_twice_while_there_is_room() -> None:
    store = Store(payload=payload("none"))
    seen: set[int] = set()
    for word in ("found", "tea", "rou", "et", "h s", "Jür"):
        store.ask(Op.CONTAINS, word, demand_page_size="64 kb")
        places = {place for offset, length in store.reads for place in range(offset >> 6, offset + length - 1 >> 6)}
        assert not places & seen
        seen |= places


def test_what_is_kept_stays_within_the_option_and_the_memory_of_the_table() -> None:
    for option, limit in (("2 mb", 128 << 20), ("64 mb", 4 << 20), ("64 mb", 0)):
        store = Store(limit)
        right = [row for row, value in enumerate(values()) if value is not None and "teh" in value]
        for _ in range(2):
            assert store.ask(Op.CONTAINS, "teh", read_cache_size=option, locate_cost_ratio="1")[0] == right
            assert store.cache.used <= min(limit, 2 << 20 if option == "2 mb" else limit)
            held = store.cache.of("payload").get("partitions")
            assert (held.size if held else 0) <= store.cache.used


def test_a_damaged_block_is_found_when_it_is_read_and_not_before() -> None:
    good = payload("none")
    store = Store(payload=good)
    store.ask(Op.CONTAINS, "found", demand_page_size="64 kb")
    untouched = next(at for at in range(0, 1 << 20, 64) if not any(start <= at < start + length for start, length in store.reads))
    touched = store.reads[-1][0] + 5000
    for at, fails in ((untouched, False), (touched, True)):
        data = bytearray(good.data)
        data[at] ^= 1
        damaged = Store(payload=Built(bytes(data), good.size, good.row_count, good.index_meta))
        if not fails:
            assert damaged.ask(Op.CONTAINS, "found", demand_page_size="64 kb")[0] == [40_000]
            continue
        for _ in range(2):  # nothing wrong is kept
            with pytest.raises(CorruptFile, match="checksum"):
                damaged.ask(Op.CONTAINS, "found", demand_page_size="64 kb", locate_cost_ratio="1")
