"""A rebuilt FM payload takes over the partitions before the first change, and has the bytes of a full build (spec 09 §13)."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
import pytest

from maintainer.errors import CorruptFile, Unsupported
from maintainer.format.fm_layout import Metadata
from maintainer.index.family import fm
from maintainer.index.family.fm_carried import CarriedPartitions
from maintainer.index.payload import Move, Rows
from tests.support.campaign import share
from tests.support.sorted_index import Built, build_arrays, definition

Files = Sequence[tuple[str, pa.Array]]


def built(files: Files, options: Mapping[str, str]) -> Built:
    return build_arrays([values for _, values in files], definition("fm", "STRING", options), sum(len(values) for _, values in files))


def firsts(files: Files) -> dict[str, int]:
    found, first = {}, 0
    for name, values in files:
        found[name] = first
        first += len(values)
    return found


def carry(payload: Built, before: Files, after: Files, options: Mapping[str, str], data: bytes | None = None) -> CarriedPartitions | None:
    stored = payload.data if data is None else data
    index = definition("fm", "STRING", options)
    reader = fm.open(lambda offset, length: stored[offset : offset + length], len(stored), index, payload.index_meta, payload.row_count)
    old, new = firsts(before), firsts(after)
    return fm.carry(reader, [Move(old[name], new[name], len(values)) for name, values in before if name in new])


def rebuilt(found: CarriedPartitions, after: Files, options: Mapping[str, str]) -> bytes:
    """From what is carried, and the files that are not."""
    known = {move.new: move.rows for move in found.moves}

    def rows() -> Iterator[Rows]:
        for name, first in firsts(after).items():
            values = dict(after)[name]
            if known.get(first) != len(values):
                yield from (Rows(first + at, values.slice(at, 7)) for at in range(0, len(values), 7))

    data = bytearray()
    total = sum(len(values) for _, values in after)
    made = fm.build(rows(), definition("fm", "STRING", options), total, data.extend, carried=found)
    assert (made.size, made.row_count) == (len(data), total)
    return bytes(data)


def column(chosen: random.Random, rows: int) -> pa.Array:
    values = ["".join(chosen.choices("abcé", k=chosen.choice([0, 1, 5, 30]))) if chosen.random() > 0.1 else None for _ in range(rows)]
    return pa.array(values, pa.string())


@pytest.mark.parametrize("seed", range(share("rebuilt FM payloads", short=25, long=3000)))
def test_rebuilt_payload_is_that_of_a_full_build(seed: int) -> None:
    chosen = random.Random(seed)
    options = {
        "fm-index.partition-size": f"{chosen.choice([70, 200, 1000])} b",
        "fm-index.partition-row-count": str(chosen.choice([3, 10, 1000])),
        "fm-index.sa-sample-rate": str(chosen.choice([1, 4, 32])),
        "fm-index.compression": chosen.choice(["none", "lz4", "zstd"]),
    }
    before = [(f"f{number}0", column(chosen, chosen.randint(0, 40))) for number in range(chosen.randint(1, 6))] + [("g", column(chosen, 1))]
    after = [file for file in before if chosen.random() > 0.2]
    after = sorted([*after, *((f"f{chosen.randint(0, 9)}5", column(chosen, chosen.randint(1, 30))) for _ in range(chosen.randint(0, 1)))])
    if not sum(len(values) for _, values in after):
        after = [("z", column(chosen, 3))]
    payload, full = built(before, options), built(after, options)
    found = carry(payload, before, after, options)
    if found is not None:
        assert rebuilt(found, after, options) == full.data
    old, new, unchanged = firsts(before), firsts(after), 0
    for name, values in before:
        if len(values) and new.get(name) != old[name]:
            break
        unchanged += len(values)
    ends = [part.first_row + part.rows for part in Metadata.decode(payload.index_meta).partitions]
    same = [part for part in Metadata.decode(full.index_meta).partitions if part in Metadata.decode(payload.index_meta).partitions]
    expected = [part for part in same if part.first_row + part.rows < unchanged]
    carried = [] if found is None else list(found.partitions)
    # A partition that ends where rows change is carried when it cannot take another row.
    assert carried == expected or (carried[:-1] == expected and carried[-1].first_row + carried[-1].rows == unchanged and unchanged in ends)


FILES = [(f"f{number}", pa.array([f"{number} {row} {'x' * 40}" for row in range(25)])) for number in range(4)]
SMALL = {"fm-index.partition-size": "500 b", "fm-index.compression": "lz4"}


def test_files_that_are_carried_as_a_whole_need_not_be_read() -> None:
    after = [*FILES[:2], ("f2x", FILES[2][1]), FILES[3]]
    found = carry(built(FILES, SMALL), FILES, after, SMALL)
    assert found is not None
    assert found.moves == (Move(0, 0, 25),)  # of the second file some partition has the last rows and others
    assert found.partitions[-1].first_row > 25


@pytest.mark.parametrize(
    "options",
    [
        {"fm-index.partition-size": "560 b"},
        {"fm-index.partition-size": "400 b"},
        {"fm-index.partition-row-count": "9"},
        {"fm-index.sa-sample-rate": "16"},
        {"fm-index.compression": "zstd"},
        {"fm-index.compression": "none"},
    ],
    ids=str,
)
def test_partitions_that_other_options_would_not_make_are_not_carried(options: dict[str, str]) -> None:
    payload = built(FILES, SMALL)
    wanted = {**SMALL, **options}
    found = carry(payload, FILES, FILES[:3], wanted)
    if found is not None:  # by chance the first ones may be the same
        assert rebuilt(found, FILES[:3], wanted) == built(FILES[:3], wanted).data
        assert len(found.partitions) < 2
    assert carry(payload, FILES, FILES[:3], SMALL) is not None


def test_a_value_that_is_too_long_by_now_is_not_carried() -> None:
    files = [("f0", pa.array(["x" * 400, "y" * 200])), ("f1", pa.array(["z"]))]
    payload = built(files, SMALL)
    found = carry(payload, files, files[:1], SMALL)
    assert found is not None and len(found.partitions) == 1
    assert carry(payload, files, files[:1], {**SMALL, "fm-index.partition-size": "300 b"}) is None


def test_nothing_is_carried_when_the_first_rows_are_others() -> None:
    assert carry(built(FILES, SMALL), FILES, FILES[1:], SMALL) is None
    assert carry(built(FILES, SMALL), FILES, [("a", FILES[0][1]), *FILES], SMALL) is None


def test_damage_is_found_while_partitions_are_copied() -> None:
    payload = built(FILES, SMALL)
    after = FILES[:3]
    good = carry(payload, FILES, after, SMALL)
    assert good is not None
    full = built(after, SMALL).data
    for at in range(0, good.partitions[-1].end, 37):
        data = payload.data[:at] + bytes([payload.data[at] ^ 1]) + payload.data[at + 1 :]
        with pytest.raises((CorruptFile, Unsupported)):  # a version that it has not, perhaps
            found = carry(payload, FILES, after, SMALL, data)
            assert found is not None
            rebuilt(found, after, SMALL)
    assert rebuilt(good, after, SMALL) == full
