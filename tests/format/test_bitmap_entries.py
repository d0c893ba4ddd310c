"""All entries of a Bitmap payload are what single lookups find, or the payload is refused."""

from __future__ import annotations

import random

import numpy as np
import pytest

from maintainer.errors import CorruptFile
from maintainer.format import bitmap_entries
from maintainer.format.bitmap_entries import dictionary, read_entries
from maintainer.format.bitmap_file import BitmapFile
from maintainer.format.bitmap_index import FOOTER
from maintainer.format.stored_block import PayloadBytes
from tests.support.builders import type_
from tests.support.campaign import share
from tests.support.sorted_index import bitmap, reading, reference_bitmap, stored, varint

TOTAL = 300_000
Entry = tuple[bytes, list[int]]


def opened(data: bytes) -> BitmapFile:
    return BitmapFile(PayloadBytes(reading(data), len(data)), type_("STRING"))


def found(file: BitmapFile) -> list[Entry]:
    entries: list[Entry] = []
    for keys, ids, starts in read_entries(file, TOTAL):
        parts = [(keys[i], part.tolist()) for i, part in enumerate(np.split(ids, starts[1:]))]
        if entries and parts[0][0] == entries[-1][0]:  # the key goes on
            entries[-1] = (entries[-1][0], entries[-1][1] + parts.pop(0)[1])
        entries += parts
    return entries


def random_entries(chance: random.Random, most: int) -> list[Entry]:
    """Keys of all lengths, and ordinals in a few or in many containers, in runs or apart."""
    keys = {chance.randbytes(chance.choice([0, 1, 3, 8, 20, 127, 128, 300])) for _ in range(chance.randint(1, most))}
    entries = []
    for key in sorted(keys):
        if chance.random() < 0.2:
            first = chance.randrange(TOTAL - 9000)
            ids = list(range(first, first + chance.choice([2, 9000]), chance.choice([1, 2])))
        else:
            ids = sorted({chance.randrange(TOTAL) for _ in range(chance.choice([1, 1, 3, 30, 6000]))})
        entries.append((key, ids))
    return entries


@pytest.fixture(params=[(8 << 20, 1 << 18, 256 << 10), (3000, 50, 400)], ids=["at once", "in small parts"])
def parts(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, size in zip(("READ_BYTES", "CHUNK_IDS", "_DICTIONARY_BYTES"), request.param, strict=True):
        monkeypatch.setattr(bitmap_entries, name, size)


@pytest.mark.usefixtures("parts")
@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_payloads_are_read_as_they_were_written(compression: str) -> None:
    for seed in range(share("entries of bitmap payloads", short=25, long=1_000)):
        chance = random.Random(seed)
        entries = random_entries(chance, 60)
        data = reference_bitmap(entries, [], chance.choice([1, 60, 500, 16384]), compression)
        assert found(opened(data)) == entries


@pytest.mark.usefixtures("parts")
def test_flipped_bits_are_refused_or_read_as_single_postings_are() -> None:
    refused = 0
    rounds = share("damaged bitmap payloads", short=150, long=10_000)
    for seed in range(rounds):
        chance = random.Random(seed)
        data = bytearray(reference_bitmap(random_entries(chance, 6), [], chance.choice([1, 60, 16384])))
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        try:
            file = opened(bytes(data))
            entries = found(file)
        except CorruptFile:
            refused += 1
            continue
        assert entries == [(entry.key, list(file.posting(entry))) for entry in file.entries()]
    assert 0 < refused < rounds


@pytest.mark.parametrize("offsets", [(32, 0), (0, 0), (0, 200), (0, 2**62)])
def test_postings_that_do_not_follow_one_another_are_refused(offsets: tuple[int, int]) -> None:
    postings = bitmap([1, 2]) + bitmap([3, 4])
    size = len(postings) // 2

    def payload(offsets: tuple[int, int]) -> bytes:
        entries = (varint(1) + key + varint(offset) + varint(size) for key, offset in zip((b"a", b"b"), offsets, strict=True))
        block, block_size = stored(varint(2) + b"".join(entries), "none")
        at = len(postings) + len(block)
        index, index_size = stored(varint(1) + varint(1) + b"a" + varint(len(postings)) + varint(block_size), "none")
        return postings + block + index + FOOTER.pack(0, 0, 0, 0, at, index_size, 2, 1, 0x42474958)

    assert size == 32 and found(opened(payload((0, size)))) == [(b"a", [1, 2]), (b"b", [3, 4])]
    with pytest.raises(CorruptFile):
        found(opened(payload(offsets)))


@pytest.mark.parametrize(
    "raw",
    [
        varint(2) + b"\x01a\x00\x01",  # one entry fewer than it says
        varint(1) + b"\x01a\x00\x01\x01b\x00\x01",  # one more
        varint(1) + b"\x05a\x00\x01",  # a key that does not fit
        varint(1) + b"\xff\xff\xff\xff\x7fa\x00\x01",
        varint(1) + b"\x01a\x80\x80",  # numbers without an end
        varint(1) + b"\x80\x80",
        varint(1) + b"\x01b\x00\x01",  # another key than the index has
        varint(0),
        b"\x80",
    ],
)
def test_a_dictionary_block_that_does_not_add_up_is_refused(raw: bytes) -> None:
    with pytest.raises(CorruptFile):
        dictionary([raw], [b"a"])
    with pytest.raises(CorruptFile):
        dictionary([varint(1) + b"\x01a\x00\x01", raw], [b"a", b"a"])
