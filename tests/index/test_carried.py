"""What an older payload says of the rows that are left is what their values say, and a payload that cannot be right is not believed."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from pyroaring import BitMap64

from maintainer.errors import CorruptFile
from maintainer.format.byte_column import ByteColumn
from maintainer.format.index_meta import IndexMeta
from maintainer.index import family
from maintainer.index.definition import FamilyName
from maintainer.index.family.carried import Carried, Older, carried
from maintainer.index.family.key_runs import KeyBatch
from maintainer.index.payload import Move
from tests.support.builders import type_
from tests.support.campaign import share
from tests.support.random_rows import random_value
from tests.support.sorted_index import build, definition, grouped, open_payload

TYPES = ("BOOLEAN", "INT", "BIGINT", "DOUBLE", "DECIMAL(9, 2)", "DECIMAL(25, 4)", "STRING", "TIMESTAMP(3)", "TIMESTAMP(9)")
Entry = tuple[bytes, list[int]]


def entries_of(run: Iterator[KeyBatch]) -> list[Entry]:
    entries: list[Entry] = []
    for batch in run:
        for i, part in enumerate(np.split(batch.ids, batch.starts[1:])):
            if entries and entries[-1][0] == batch.keys[i]:
                entries[-1][1].extend(part.tolist())
            else:
                entries.append((batch.keys[i], part.tolist()))
    return entries


def random_moves(chance: random.Random, total: int) -> list[Move]:
    """Files of the older group, of which some are left, between files that are new."""
    moves = []
    old = new = 0
    while old < total:
        rows = chance.randint(0, max(1, total // 3))
        rows = min(rows, total - old)
        new += chance.choice([0, 0, 5])
        if chance.random() < 0.7:
            moves.append(Move(old, new, rows))
            new += rows
        old += rows
    return moves


def left(values: Sequence[Any], moves: Sequence[Move]) -> tuple[dict[int, Any], int]:
    """Ordinals of the new group with their values, and how many there are."""
    return {move.new + i: values[move.old + i] for move in moves for i in range(move.rows)}, sum(move.rows for move in moves)


@pytest.mark.parametrize("name", ["btree", "bitmap"])
@pytest.mark.parametrize("data_type", TYPES)
def test_rows_that_are_left_keep_their_keys(name: str, data_type: str) -> None:
    for seed in range(share("rows that are left", short=8, long=300)):
        chance = random.Random(seed)
        index = definition(name, data_type, {f"{name}-index.{'block-size' if name == 'btree' else 'dictionary-block-size'}": "300 b"})
        nulls = chance.choice([0.0, 0.1, 0.9])
        values = [random_value(chance, index.data_type, nulls=nulls) for _ in range(chance.randint(1, 300))]
        built = build(index, values)
        moves = random_moves(chance, len(values))
        reader = open_payload(built.data, index, built.index_meta, len(values))
        found: Carried = family.family(FamilyName(name)).carry(reader, moves)
        expected, rows = left(values, moves)
        ordinals = sorted(expected)
        keys, missing = grouped([expected[i] for i in ordinals], index.data_type)
        assert found.rows == rows
        assert [i for part in found.null_ids for i in part.tolist()] == [ordinals[i] for i in missing]
        assert entries_of(found.run) == [(key, [ordinals[i] for i in ids]) for key, ids in keys]


BIGINT = type_("BIGINT")


def older(entries: Sequence[Entry], nulls: Sequence[int], total: int, **changes: Any) -> Older:
    """A payload of numbers; `changes` of what is said of it."""
    keys = ByteColumn.of_rows([key for key, _ in entries])
    counts = np.array([len(ids) for _, ids in entries], np.int64)
    ids = np.array([i for _, some in entries for i in some], np.int64)
    meta = IndexMeta(entries[0][0], entries[-1][0], bool(nulls)) if entries else IndexMeta(None, None, bool(nulls))
    meta = IndexMeta(**{**meta.__dict__, **changes})
    return Older([(keys, ids, np.cumsum(counts) - counts)], BitMap64(nulls), meta, total, BIGINT)


def key(number: int) -> bytes:
    return number.to_bytes(8, "little", signed=True)


def read(payload: Older, moves: Sequence[Move] | None = None) -> list[Entry]:
    found = carried(payload, [Move(0, 0, payload.total_rows)] if moves is None else moves)
    assert sum(len(part) for part in found.null_ids) <= found.rows
    return entries_of(found.run)


def test_a_payload_in_order_that_has_every_row_once_is_believed() -> None:
    assert read(older([(key(-1), [1, 3]), (key(0), [0])], [2], 4)) == [(key(-1), [1, 3]), (key(0), [0])]
    assert read(older([], [0, 1], 2)) == []
    # Java 2.0 left the rows of a key in any order.
    assert read(older([(key(-1), [3, 0, 1])], [2], 4)) == [(key(-1), [0, 1, 3])]


def test_rows_of_many_files_move() -> None:
    """Each to an ordinal of its own, every other file being gone."""
    entries = [(key(i), [i]) for i in range(200)]
    moves = [Move(old, old + old // 8, 4) for old in range(0, 200, 8)]
    expected = [(key(move.old + i), [move.new + i]) for move in moves for i in range(4)]
    assert read(older(entries, [], 200), moves) == expected
    assert read(older(entries, [], 200), moves[:3]) == expected[:12]


@pytest.mark.parametrize(
    ("entries", "nulls", "total", "changes"),
    [
        ([(key(0), [0]), (key(-1), [1])], [], 2, {}),  # keys out of order
        ([(key(0), [0]), (key(0), [1])], [], 2, {}),  # twice in one batch
        ([(key(0), [0]), (key(1), [2])], [], 3, {}),  # a row is missing
        ([(key(0), [0]), (key(1), [0])], [], 2, {}),  # a row has two keys
        ([(key(0), [0, 1]), (key(1), [1])], [], 2, {}),
        ([(key(0), [0]), (key(1), [1])], [1], 2, {}),  # a row has a key and is null
        ([(key(0), [0]), (key(1), [3])], [], 2, {}),  # a row that is not there
        ([(key(0), [0]), (key(1), [-1])], [], 2, {}),
        ([(key(0), [0])], [7], 2, {}),
        ([(key(0), [0])], [1, 2**60], 2, {}),  # so far away that nobody can go there step by step
        ([(b"1234", [0])], [], 1, {}),  # no key of the type
        ([(key(0), [0]), (key(1), [1])], [], 2, {"first_key": key(-5)}),  # not what the metadata says
        ([(key(0), [0]), (key(1), [1])], [], 2, {"last_key": key(5)}),
        ([(key(0), [0]), (key(1), [1])], [], 2, {"has_nulls": True}),
        ([(key(0), [0])], [1], 2, {"has_nulls": False}),
    ],
)
def test_a_payload_that_cannot_be_right_is_not_believed(
    entries: Sequence[Entry], nulls: Sequence[int], total: int, changes: dict[str, Any]
) -> None:
    with pytest.raises(CorruptFile):
        read(older(entries, nulls, total, **changes))


def test_a_row_that_is_gone_is_checked_too() -> None:
    """A posting with one wrong row may have had one of a file that is still there in its place."""
    with pytest.raises(CorruptFile):
        read(older([(key(0), [0]), (key(1), [0])], [], 2), [Move(0, 0, 1)])


@pytest.mark.parametrize(
    "moves",
    [
        [Move(0, 0, 3)],
        [Move(1, 0, 1), Move(0, 1, 1)],
        [Move(0, 0, 2), Move(1, 2, 1)],
        [Move(0, 5, 1), Move(1, 0, 1)],
    ],
)
def test_moves_that_make_no_sense_are_an_error(moves: list[Move]) -> None:
    with pytest.raises(ValueError, match="not moved in order"):
        read(older([(key(0), [0, 1])], [], 2), moves)


def test_a_payload_of_a_newer_version_or_without_metadata_is_not_carried() -> None:
    for name in ("btree", "bitmap"):
        index = definition(name, "BIGINT")
        built = build(index, [1, 2])
        reader = open_payload(built.data, index, None, 2)
        assert family.family(FamilyName(name)).carry(reader, [Move(0, 0, 2)]) is None
    index = definition("btree", "BIGINT")
    built = build(index, [1, 2])
    newer = built.data[:-8] + (2).to_bytes(4, "little") + built.data[-4:]
    assert family.family(FamilyName.BTREE).carry(open_payload(newer, index, built.index_meta, 2), [Move(0, 0, 2)]) is None
