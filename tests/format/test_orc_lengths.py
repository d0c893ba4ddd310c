"""Streams of lengths as Arrow's writer packs them, and damaged ones."""

from __future__ import annotations

import io
import random
from collections.abc import Callable, Iterator

import pyarrow as pa
import pyarrow.orc as arrow_orc
import pytest

from maintainer.errors import CorruptFile
from maintainer.format import orc, orc_lengths
from tests.support.campaign import share

ROUNDS = share("damaged lengths of ORC files", short=400, long=40_000)

SHAPES: dict[str, Callable[[random.Random, int], list[int]]] = {
    "small": lambda chance, rows: [chance.randrange(5) for _ in range(rows)],
    "one is large": lambda chance, rows: [chance.randrange(300) if chance.random() < 0.02 else chance.randrange(8) for _ in range(rows)],
    "repeated": lambda chance, rows: [chance.choice([1, 2, 3, 3, 3, 3, 3, 3, 3, 200]) for _ in range(rows)],
    "the same": lambda chance, rows: [7] * rows,
    "growing": lambda chance, rows: [i // 90 for i in range(rows)],
    "shrinking": lambda chance, rows: [max(0, 200 - i) for i in range(rows)],
    "wide": lambda chance, rows: [chance.randrange(3_000) for _ in range(rows // 20 + 1)],
}


def streams(lengths: list[int]) -> Iterator[bytes]:
    """The LENGTH streams of texts and lists with these lengths."""
    table = pa.table({"s": ["x" * length for length in lengths], "l": pa.array([[1] * length for length in lengths], pa.list_(pa.int8()))})
    sink = io.BytesIO()
    arrow_orc.write_table(
        table, sink, compression="uncompressed", stripe_size=1 << 40, batch_size=len(lengths), dictionary_key_size_threshold=0
    )
    data = sink.getvalue()

    def fetch(offset: int, length: int) -> bytes:
        return data[offset : offset + length]

    tail = orc.read_tail(fetch, len(data))
    for streams in orc.read_stripe_footer(fetch, tail, tail.stripes[0]).streams.values():
        yield from (fetch(stream.offset, stream.length) for stream in streams if stream.kind == orc.LENGTH)


@pytest.mark.parametrize("shape", SHAPES)
def test_lengths_of_all_kinds_of_runs_are_added_up(shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(shape)
    for rows in (1, 2, 3, 511, 512, 513, 3000):
        lengths = SHAPES[shape](chance, rows)
        texts, lists = streams(lengths)
        for at_once, window in ((100, 40), (1 << 18, 1 << 20)):
            monkeypatch.setattr(orc_lengths, "_AT_ONCE", at_once)
            monkeypatch.setattr(orc_lengths, "_WINDOW", window)
            assert orc_lengths.total(texts, 2) == orc_lengths.total(lists, 2) == sum(lengths)


def test_damaged_lengths_are_corrupt_or_others() -> None:
    chance = random.Random(5)
    intact = [data for shape in SHAPES.values() for data in streams(shape(chance, 600))]
    refused = 0
    for _ in range(ROUNDS):
        damaged = bytearray(chance.choice(intact))
        for _ in range(chance.choice([1, 1, 2, 4])):
            damaged[chance.randrange(len(damaged))] = chance.choice([0, 127, 255, chance.randrange(256)])
        if chance.random() < 0.2:
            del damaged[chance.randrange(len(damaged)) :]
        for version in (1, 2):
            for check in (orc_lengths.total, orc_lengths.check_scales):
                try:
                    check(bytes(damaged), version)
                except CorruptFile:
                    refused += 1
    assert refused


def test_nothing_has_no_length() -> None:
    assert orc_lengths.total(b"", 2) == orc_lengths.total(b"", 1) == 0


@pytest.mark.parametrize("data", ["8e13 2b21 07d0 1e00", "5e035ca1", "c609 80", "c0"])
def test_runs_that_are_cut_off_are_corrupt(data: str) -> None:
    with pytest.raises(CorruptFile):
        orc_lengths.total(bytes.fromhex(data), 2)
