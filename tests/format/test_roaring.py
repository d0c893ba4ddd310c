from __future__ import annotations

import random
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap, BitMap64

from maintainer.errors import CorruptFile
from maintainer.format import roaring

ONE = "0100000000000000 00000000 "
JAVA = {  # spec 08 §6
    (): "0000000000000000",
    (0,): ONE + "3a300000 01000000 0000 0000 10000000 0000",
    (1, 3): ONE + "3a300000 01000000 0000 0100 10000000 0100 0300",
    (0, 1, 2): ONE + "3a300000 01000000 0000 0200 10000000 0000 0100 0200",
    (0, 1, 2, 3): ONE + "3b30 0000 01 0000 0300 0100 0000 0300",
    (0, 2**32): "0200000000000000 00000000 3a300000 01000000 0000 0000 10000000 0000 01000000 3a300000 01000000 0000 0000 10000000 0000",
    (2**63 - 1,): "0100000000000000 ffffff7f 3a300000 01000000 ffff 0000 10000000 ffff",
}

positions = st.one_of(
    st.sets(st.integers(0, 200)),
    st.sets(st.integers(0, 2**32 - 1), max_size=20),
    st.sets(st.integers(0, 2**63 - 1), max_size=20),
    st.tuples(st.integers(0, 2**33), st.integers(1, 200_000)).map(lambda run: range(run[0], run[0] + run[1])),
    st.tuples(st.integers(0, 2**33), st.integers(1, 20_000), st.integers(2, 9)).map(lambda run: range(run[0], run[0] + run[1], run[2])),
)


@pytest.mark.parametrize("values", JAVA, ids=str)
def test_bytes_are_those_of_java(values: tuple[int, ...]) -> None:
    data = bytes.fromhex(JAVA[values])
    assert roaring.encode64(BitMap64(values)) == data
    assert roaring.decode64(data) == BitMap64(values)


def test_encoding_optimizes_what_was_added_one_by_one() -> None:
    bitmap = BitMap64()
    for position in range(100):
        bitmap.add(position)
    assert len(roaring.encode64(bitmap)) == 27


@pytest.mark.parametrize(("runs", "converted"), [(2047, True), (2048, False)])
def test_runs_replace_a_bitmap_container_only_if_they_are_smaller(runs: int, converted: bool) -> None:
    values = [start + offset for start in range(0, runs * 16, 16) for offset in range(5)]
    data = roaring.encode64(BitMap64(values))
    assert (data[12:14] == b"\x3b\x30") == converted
    assert len(data) == (12 + 4 + 1 + 4 + 2 + 4 * runs if converted else 12 + 8 + 4 + 4 + 8192)


@given(positions)
def test_round_trip(values: set[int] | range) -> None:
    assert roaring.decode64(roaring.encode64(BitMap64(values))) == BitMap64(values)


@given(positions)
def test_the_walk_finds_the_end_of_every_32_bit_bitmap(values: set[int] | range) -> None:
    bitmap = BitMap(value % 2**32 for value in values)
    plain = bitmap.serialize()
    bitmap.run_optimize()
    for data in (plain, bitmap.serialize()):
        assert roaring.check_portable(b"junk" + data + b"more", 4) == 4 + len(data)


def test_bitmaps_that_were_not_optimized_are_valid() -> None:
    bitmap = BitMap64()
    for position in range(5000):
        bitmap.add(position)
    assert roaring.decode64(bitmap.serialize()) == bitmap


def test_empty_entries_are_valid() -> None:
    data = bytes.fromhex("0200000000000000 00000000 3a30000000000000 03000000 3a300000 01000000 0000 0000 10000000 0000")
    assert roaring.decode64(data) == BitMap64([3 * 2**32])


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ("", "ends too early"),
        ("00000000000000", "ends too early"),
        ("0000000000000000 00", "follow"),
        (JAVA[(1, 3)] + "00", "follow"),
        ("ffffffffffffffff" + JAVA[(1, 3)][17:], "entries"),
        ("0100000000000000 ffffffff" + JAVA[(1, 3)][25:], "negative or out of order"),
        ("0200000000000000" + JAVA[(0,)][16:] + JAVA[(0,)][16:], "out of order"),
        (ONE + "3c300000 01000000 0000 0100 10000000 0100 0300", "cookie"),
        (ONE + "3a300000 ffffffff 0000 0100 10000000 0100 0300", "containers"),
        (ONE + "3a300000 00000100 0000 0100 10000000 0100 0300", "ends too early"),
        (ONE + "3a300000 01000000 0000 ffff 10000000 0100 0300", "ends too early"),
        (ONE + "3a300000 01000000 0000 0100 10000000 0300 0100", "increasing"),
        (ONE + "3b30 0000 01 0000 0300 ffff 0000 0300", "ends too early"),
        (ONE + "3b30 0000 01 0000 0300 0000", "roaring"),
    ],
)
def test_bytes_that_are_no_bitmap(data: str, reason: str) -> None:
    with pytest.raises(CorruptFile, match=reason):
        roaring.decode64(bytes.fromhex(data))


def test_mutated_bytes_are_a_bitmap_or_corrupt() -> None:
    chance = random.Random(1)
    seeds = [
        BitMap64(range(20)),
        BitMap64([1, 3, 5, 70000]),
        BitMap64(range(0, 30000, 3)),
        BitMap64([5, 2**32 + 1, 2**40]),
        BitMap64([*range(100), *range(70000, 70100), *range(2**32, 2**32 + 9)]),
    ]
    for data in map(roaring.encode64, seeds):
        for _ in range(2000):
            mutated = bytearray(data)
            for _ in range(chance.randint(1, 3)):
                mutated[chance.randrange(len(mutated))] = chance.choice([0, 1, 127, 128, 255, chance.randrange(256)])
            cut = bytes(mutated[: chance.randint(0, len(mutated))] if chance.random() < 0.2 else mutated)
            try:
                bitmap = roaring.decode64(cut)
            except CorruptFile:
                continue
            assert roaring.decode64(roaring.encode64(bitmap)) == bitmap


def test_a_count_that_promises_more_than_there_is_allocates_nothing() -> None:
    with pytest.raises(CorruptFile):
        roaring.decode64(struct.pack("<Q", 2**62) + bytes(100))
