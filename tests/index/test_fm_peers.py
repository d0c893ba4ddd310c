"""pypaimon-rust writes the same FM payloads, and finds in ours what is there (spec 09 §19)."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pytest

from tests.support import peers
from tests.support.campaign import share
from tests.support.rust_index import RustTable
from tests.support.sorted_index import Built, build_arrays, definition

pytestmark = pytest.mark.skipif(peers.absent("pypaimon_rust") is not None, reason=f"pypaimon_rust: {peers.absent('pypaimon_rust')}")

PLAIN = {"fm-index.compression": "none"}
WORDS = ["alpha", "beta", "Gamma ", "é", "日本語", "😀", "\x00", "\x01", "\x02", "2026-11-30 ERROR ", "a", "aa", "\n", "%", "_"]


def texts(seed: int, rows: int, words: int) -> list[str | None]:
    chosen = random.Random(seed)
    pool = chosen.sample(WORDS, chosen.randint(1, len(WORDS)))
    rates = chosen.choice([(0.0, 0.0), (0.1, 0.1), (0.9, 0.05)])
    values: list[str | None] = []
    for _ in range(rows):
        kind = chosen.random()
        values.append(None if kind < rates[0] else "" if kind < sum(rates) else "".join(chosen.choices(pool, k=chosen.randint(0, words))))
    return values


def ours(values: list[str | None], options: Mapping[str, str]) -> Built:
    return build_arrays([pa.array(values, pa.string())], definition("fm", "STRING", options), len(values))


def assert_same(table: RustTable, values: list[str | None], options: Mapping[str, str]) -> int:
    """Returns the number of payloads."""
    theirs = table.index("fm", options)
    assert sum(payload.rows for payload in theirs) == len(values)
    for payload in theirs:
        found = ours(values[payload.first : payload.first + payload.rows], options)
        assert (found.data, found.index_meta) == (payload.data, payload.index_meta)
    table.drop_index("fm")
    return len(theirs)


@pytest.mark.parametrize("seed", range(share("FM payloads of pypaimon-rust", short=6, long=200)))
def test_same_bytes(seed: int, tmp_path: Path) -> None:
    chosen = random.Random(seed)
    values = texts(seed, chosen.choice([1, 2, 50, 1000]), chosen.choice([1, 5, 30]))
    table = RustTable(tmp_path, pa.array(values, pa.string()))
    longest = max(len((value or "").encode()) for value in values)
    for _ in range(3):
        options = {
            "fm-index.partition-size": f"{longest + 2 + chosen.choice([0, 1, 100, 1 << 16])} b",
            "fm-index.partition-row-count": str(chosen.choice([1 + len(values) // 7, 100_000])),
            "fm-index.sa-sample-rate": str(2 ** chosen.randint(0, 10)),
        }
        assert_same(table, values, {**PLAIN, **options})


def test_same_bytes_in_many_blocks(tmp_path: Path) -> None:
    values = texts(1, 60_000, 9)
    chosen = random.Random(2)
    values[77] = "".join(chosen.choices("abcdefgh", k=300_000))
    table = RustTable(tmp_path, pa.array(values))
    for options in ({}, {"fm-index.partition-size": "512 kb"}, {"fm-index.partition-row-count": "7777"}, {"fm-index.sa-sample-rate": "1"}):
        assert_same(table, values, {**PLAIN, **options})


def test_more_rows_than_a_block_of_bits_has(tmp_path: Path) -> None:
    values = [None if number % 3 else "x" for number in range(270_000)]
    rows = {"sorted-index.records-per-range": "300000", "fm-index.partition-row-count": "300000"}
    assert assert_same(RustTable(tmp_path, pa.array(values)), values, {**PLAIN, **rows}) == 1


@pytest.mark.parametrize(
    "options", [{}, {"fm-index.compression": "zstd", "fm-index.compression-level": "9"}, PLAIN, {"fm-index.compression": "lzo"}]
)
def test_our_payload_in_place_of_theirs(options: dict[str, str], tmp_path: Path) -> None:
    values: list[str | None] = [*texts(3, 20_000, 9), "unique-needle-1", *texts(4, 5000, 9), "a unique-needle-2", None, ""]
    table = RustTable(tmp_path, pa.array(values), {"fm-index.locate-cost-ratio": "1"})
    (theirs,) = table.index("fm", options)
    found = ours(values, options)
    table.replace(theirs, found.data, found.index_meta)
    for needle in ("unique-needle", "needle-2", "2026-11-30 ERROR 2026-11-30 ERROR alpha", "é日本", "not there"):
        assert table.ids(f"c LIKE '%{needle}%'") == [number for number, value in enumerate(values) if value is not None and needle in value]
    theirs.path.write_bytes(bytes([found.data[0] ^ 255]) + found.data[1:])
    with pytest.raises(ValueError, match=r"(?i)checksum"):  # so the index is what answered
        table.ids("c LIKE '%unique-needle%'")
