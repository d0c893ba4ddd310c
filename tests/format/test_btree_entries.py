"""Entries of many blocks at once are what they are one by one."""

from __future__ import annotations

import random
import struct

import numpy as np
import pytest

from maintainer.errors import CorruptFile
from maintainer.format.btree_entries import entries
from maintainer.format.btree_file import Block
from tests.support.campaign import share
from tests.support.sorted_index import varint

Entry = tuple[bytes, list[int]]


def block(some: list[Entry], damage: random.Random | None = None) -> Block:
    rows = []
    for key, ids in some:
        value = varint(len(ids)) + b"".join(map(varint, ids))
        rows.append(varint(len(key)) + key + varint(len(value)) + value)
    body = bytearray(b"".join(rows))
    if damage is not None:
        body[damage.randrange(len(body))] ^= 1 << damage.randrange(8)
    if len({len(row) for row in rows}) == 1:
        return Block(bytes(body) + struct.pack("<ib", len(rows[0]), 0))
    positions = [sum(map(len, rows[:i])) for i in range(len(rows))]
    return Block(bytes(body) + struct.pack(f"<{len(rows)}iib", *positions, len(rows), 1))


def one_by_one(blocks: list[Block]) -> list[Entry]:
    found = []
    for each in blocks:
        ids, counts = each.ids(0, each.count, 1)
        lists = np.split(ids, np.cumsum(counts)[:-1])
        found += [(each.entry(i)[0], lists[i].tolist()) for i in range(each.count)]
    return found


def at_once(blocks: list[Block]) -> list[Entry]:
    keys, ids, starts = entries(blocks)
    assert len(keys) == len(starts)
    return [(keys[i], part.tolist()) for i, part in enumerate(np.split(ids, starts[1:]))]


def random_entries(chance: random.Random) -> list[Entry]:
    width = chance.choice([None, 1, 2, 3, 4, 8, 9, 20, 127, 128, 300])
    most = chance.choice([1, 1, 3, 200])
    largest = chance.choice([100, 1 << 14, 1 << 28, 1 << 42, 1 << 50, (1 << 63) - 1])
    return [
        (
            chance.randbytes(chance.randrange(30) if width is None else width),
            [chance.randrange(largest) for _ in range(chance.randint(1, most))],
        )
        for _ in range(chance.randint(1, 40))
    ]


def test_blocks_of_all_kinds_of_entries() -> None:
    for seed in range(share("entries of BTree blocks", short=300, long=20_000)):
        chance = random.Random(seed)
        many = [random_entries(chance) for _ in range(chance.randint(1, 3))]
        if seed % 2:  # alike in all blocks
            many = [random_entries(random.Random(seed)) for _ in many]
        assert at_once([block(some) for some in many]) == [entry for some in many for entry in some]


def test_a_flipped_bit_is_an_error_or_what_single_entries_say() -> None:
    """Checksums come before; what gets through them must not become something else."""
    refused = 0
    rounds = share("damaged entries of BTree blocks", short=400, long=40_000)
    for seed in range(rounds):
        chance = random.Random(seed)
        blocks = [block(random_entries(chance), chance)]
        try:
            expected = one_by_one(blocks)
        except CorruptFile:
            refused += 1
            with pytest.raises(CorruptFile):
                at_once(blocks)
            continue
        assert at_once(blocks) == expected
    assert 0 < refused < rounds


def test_no_blocks_have_no_entries() -> None:
    keys, ids, starts = entries([])
    assert (len(keys), len(ids), len(starts)) == (0, 0, 0)
