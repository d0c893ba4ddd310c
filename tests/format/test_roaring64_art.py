"""64-bit bitmaps as Java's `Roaring64Bitmap` writes them (spec 05 §6.7)."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from maintainer.errors import CorruptFile
from maintainer.format.roaring64_art import decode, encode
from tests.support.campaign import share

ROUNDS = share("mutated rbm64 bytes", short=1500, long=200_000)
HEAD = "01 0100000000000000 04 0000 00"
VECTORS = {
    (): "00",
    (1,): f"{HEAD} 000000000000 0000000000000000 01000000 fe 01000000 01 02 01000000 0100 0100000000000000 00000000 00000000",
    (
        2**40,
        2**40 + 1,
    ): f"{HEAD} 000001000000 0000000000000000 01000000 fe 01000000 01 02 02000000 0000 0100 0100000000000000 00000000 00000000",
    (5, 70000): (
        "01 0200000000000000 00 0200 05 0000000000 00000100 04000000 000000000000 0000000000000000 04000000 000000000001 0100000000000000 "
        "01000000 fe 02000000 01 02 01000000 0500 01 02 01000000 7011 0200000000000000 00000000 01000000"
    ),
}


@pytest.mark.parametrize(("values", "text"), VECTORS.items())
def test_the_bytes_are_those_of_java(values: tuple[int, ...], text: str) -> None:
    assert encode(BitMap64(values)) == bytes.fromhex(text)
    assert decode(bytes.fromhex(text)) == BitMap64(values)


@pytest.mark.parametrize("children", [2, 4, 5, 16, 17, 48, 49, 256])
@pytest.mark.parametrize("shift", [16, 24, 56])
def test_every_width_of_a_node(children: int, shift: int) -> None:
    values = BitMap64([child << shift for child in range(256 - children, 256)])
    assert decode(encode(values)) == values


def test_every_kind_of_container_and_the_largest_values() -> None:
    runs, bits, some = range(2**63, 2**63 + 70_000), range(2**64 - 2**17, 2**64, 2), [3, 9, 2**48]
    values = BitMap64([*some, *runs, *bits])
    assert decode(encode(values)) == values


def test_unused_slots_and_full_levels_are_read() -> None:
    small = bytes.fromhex(VECTORS[(1,)])
    at = small.index(bytes.fromhex("fe 01000000"))
    slotted = small[:at] + bytes.fromhex("fe 03000000 00 00") + small[at + 5 :]
    assert decode(slotted) == BitMap64([1])
    two_levels = small[: at - 4] + bytes.fromhex("02000000 ff 01000000 00 fe 01000000") + small[at + 5 :]
    assert decode(two_levels) == BitMap64([1])


@given(st.lists(st.integers(0, 2**64 - 1) | st.integers(0, 2**20), max_size=60))
def test_what_is_written_is_read(values: list[int]) -> None:
    assert decode(encode(BitMap64(values))) == BitMap64(values)


def test_mutated_bytes_are_a_bitmap_or_an_error() -> None:
    wide = BitMap64([child << shift for shift in (17, 25, 33) for child in range(60)])
    sources = [BitMap64([1]), BitMap64([5, 70000]), wide, BitMap64(range(2**33, 2**33 + 5000)), BitMap64(range(0, 20000, 2))]
    several = [encode(values) for values in sources]
    random = Random(7)
    for _ in range(ROUNDS):
        data = bytearray(random.choice(several))
        for _ in range(random.randrange(1, 4)):
            match random.randrange(3):
                case 0:
                    data[random.randrange(len(data))] = random.choice([0, 1, 2, 4, 0x7F, 0xFE, 0xFF, random.randrange(256)])
                case 1:
                    del data[random.randrange(len(data)) :]
                    data.append(0)
                case _:
                    data[random.randrange(len(data))] ^= 1 << random.randrange(8)
        try:
            found = decode(bytes(data))
        except CorruptFile:
            continue
        assert decode(encode(found)) == found
        assert len(list(found)) == len(found)


@pytest.mark.parametrize("data", [b"", b"\2", b"\1", b"\0\0", bytes.fromhex(VECTORS[(1,)]) + b"\0", bytes.fromhex(VECTORS[(1,)])[:-1]])
def test_too_little_and_too_much_is_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptFile):
        decode(data)
