"""FM payloads of pypaimon-rust, compressed its way, are read by ours: all values, and the answers to needles (spec 09 §5, §19)."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest

from maintainer.format import fm_block
from maintainer.format.stored_block import LZ4, ZSTD
from maintainer.index.family import family
from maintainer.index.family.fm_reader import FMReader
from maintainer.model.predicate import Leaf, Op
from tests.support import peers
from tests.support.rust_index import RustPayload, RustTable
from tests.support.sorted_index import definition, reading

pytestmark = pytest.mark.skipif(peers.absent("pypaimon_rust") is not None, reason=f"pypaimon_rust: {peers.absent('pypaimon_rust')}")

WORDS = ["alpha", "beta ", "é", "日本語", "😀", "\0", "\1", "2026-11-30 ERROR ", "aa"]


def texts() -> list[str | None]:
    chosen = random.Random(7)
    found: list[str | None] = [
        None if chosen.random() < 0.1 else "".join(chosen.choices(WORDS, k=chosen.randint(0, 12))) for _ in range(20_000)
    ]
    found[123] = "".join(chosen.choices("abcdefgh😀", k=200_000))
    return found


def opened(payload: RustPayload) -> FMReader:
    options = {"fm-index.locate-cost-ratio": "1"}
    reader = family("fm").open(reading(payload.data), len(payload.data), definition("fm", "STRING", options), payload.index_meta, payload.rows)
    assert isinstance(reader, FMReader)
    return reader


@pytest.mark.parametrize(("compression", "codec"), [("lz4", LZ4), ("zstd", ZSTD)])
def test_compressed_payloads(compression: str, codec: int, tmp_path: Path) -> None:
    values = texts()
    table = RustTable(tmp_path, pa.array(values), {"global-index.row-count-per-shard": "7000"})
    options = {"fm-index.compression": compression, "fm-index.partition-row-count": "5000", "fm-index.partition-size": "600 kb"}
    payloads = table.index("fm", options)
    rows = {
        text: [row for row, value in enumerate(values) if value is not None and text in value] for text in ("😀é", "a\0", "ERROR beta", "habc")
    }
    found: dict[str, list[int]] = {text: [] for text in rows}
    recovered: list[bytes | None] = []
    for payload in payloads:
        reader = opened(payload)
        assert reader.verify() == []
        recovered += [value.as_py() for part in reader.values() for value in part]
        used = {info.codec for place in reader.places for info in reader.directory(place).blocks}
        assert codec in used and used <= {codec, fm_block.NONE}
        for text in rows:
            found[text] += [payload.first + row for row in reader.evaluate(Leaf(Op.CONTAINS, "c", (text,))) or ()]
    assert recovered == [None if value is None else value.encode() for value in values]
    assert found == rows
