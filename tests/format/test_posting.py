from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap64

from maintainer.errors import CorruptFile
from maintainer.format import posting, roaring
from maintainer.format.byte_column import ByteColumn
from tests.support.campaign import share
from tests.support.sorted_index import bitmap

IDS = st.integers(0, 300) | st.integers(0, 2**20) | st.integers(0, 2**34)
GROUPS = st.lists(
    st.sets(IDS, min_size=1, max_size=12) | st.builds(lambda first, count: set(range(first, first + count)), IDS, st.integers(1, 40)),
    max_size=8,
)


@given(GROUPS)
def test_groups_are_encoded_as_single_bitmaps_are(groups: list[set[int]]) -> None:
    ids = np.array([number for group in groups for number in sorted(group)], np.int64)
    starts = np.cumsum([0, *map(len, groups)])[:-1].astype(np.int64)
    column = posting.encode_groups(ids, starts)
    assert [column[i] for i in range(len(column))] == [bitmap(group) for group in groups]
    assert [posting.encode(np.array(sorted(group), np.int64)) for group in groups] == [bitmap(group) for group in groups]
    assert set(posting.to_bitmap(ids[::-1])) == set(ids.tolist())


def test_large_containers_have_their_own_form() -> None:
    # Bit containers from 4097 values on; 2047 runs become runs, 2048 stay bits (spec 08 §6).
    for group in (range(0, 2 * 4096, 2), range(0, 2 * 4097, 2), [n for run in range(2047) for n in range(8 * run, 8 * run + 7)]):
        ids = np.array([*group, *group], np.int64)
        column = posting.encode_groups(ids, np.array([0, len(ids) // 2]))
        assert [column[0], column[1]] == [bitmap(group)] * 2


def test_vectors() -> None:
    # spec 08 §6
    for ids, text in [
        ([], "0000000000000000"),
        ([0], "0100000000000000000000003a30000001000000000000001000000000 00"),
        ([1, 3], "0100000000000000 00000000 3a300000 01000000 0000 0100 10000000 0100 0300"),
        ([0, 1, 2, 3], "0100000000000000 00000000 3b30 0000 01 0000 0300 0100 0000 0300"),
        ([2**63 - 1], "0100000000000000 ffffff7f 3a300000 01000000 ffff 0000 10000000 ffff"),
    ]:
        assert posting.encode(np.array(ids, np.int64)) == bytes.fromhex(text)


def test_a_run_as_large_as_an_array_stays_an_array() -> None:
    # 15 values in 7 runs: 30 bytes either way; a bitmap that was made by subtraction would keep its runs.
    ids = [0, 1, 2, 4, 5, 6, 8, 9, 11, 12, 15, 16, 17, 20, 22]
    assert posting.encode(np.array(ids, np.int64))[12:14] == bytes.fromhex("3a30")


def decoded(column: ByteColumn, before: bytes = b"", most: int = 1 << 20) -> list[list[int]]:
    data = np.frombuffer(before + column.data.tobytes() + b"\xff" * 3, np.uint8)
    begins, sizes = column.offsets[:-1] + len(before), column.lengths
    found: list[list[int]] = []
    while len(found) < len(sizes):
        ids, counts = posting.decode_groups(data, begins[len(found) :], sizes[len(found) :], most, 1 << 63)
        assert len(counts)
        if isinstance(ids, BitMap64):
            assert counts.tolist() == [len(ids)] and len(ids) > most
            found.append(list(ids))
            continue
        found += [part.tolist() for part in np.split(ids, np.cumsum(counts)[:-1])]
    return found


@given(GROUPS, st.binary(max_size=3), st.sampled_from([1, 100, 1 << 20]))
def test_groups_are_read_as_they_were_written(groups: list[set[int]], before: bytes, most: int) -> None:
    groups = [*groups, set(range(0, 9000, 2)), set(range(5, 5 + 70_000 * 3, 3))]
    column = ByteColumn.of_rows([bitmap(group) for group in groups])
    assert decoded(column, before, most) == [sorted(group) for group in groups]


@pytest.mark.parametrize(("begin", "size"), [(2**63 - 20, 100), (2**63 - 1, 2**63 - 1), (0, 2**63 - 1), (-1, 10), (0, -1)])
def test_places_outside_of_a_payload(begin: int, size: int) -> None:
    # The end of some is beyond what int64 holds.
    with pytest.raises(CorruptFile, match="outside"):
        posting.decode_groups(np.zeros(36, np.uint8), np.array([begin]), np.array([size]), 100, 100)


@settings(max_examples=share("damaged postings", short=300, long=20_000))
@given(st.lists(st.sets(IDS, min_size=1, max_size=12), min_size=1, max_size=4), st.integers(0, 10**6), st.integers(0, 7))
def test_a_damaged_posting_is_refused_or_read_as_the_library_reads_it(groups: list[set[int]], byte: int, bit: int) -> None:
    rows = [bytearray(bitmap(group)) for group in groups]
    rows[0][byte % len(rows[0])] ^= 1 << bit
    try:
        found = decoded(ByteColumn.of_rows([bytes(row) for row in rows]))
    except CorruptFile:
        return
    assert found == [list(roaring.decode64(bytes(row))) for row in rows]


def test_postings_outside_of_the_bytes_and_empty_ones_are_refused() -> None:
    data = np.frombuffer(bitmap([1, 5]), np.uint8)
    for begin, size, below in ((-1, 10, 9), (0, len(data) + 1, 9), (len(data), 8, 9), (0, 0, 9), (0, len(data), 5)):
        with pytest.raises(CorruptFile):
            posting.decode_groups(data, np.array([begin]), np.array([size]), 10, below)
    with pytest.raises(CorruptFile, match="empty"):
        posting.decode_groups(np.zeros(8, np.uint8), np.array([0]), np.array([8]), 10, 9)


def test_a_few_bytes_that_stand_for_more_ids_than_there_can_be_are_refused() -> None:
    data = np.frombuffer(bitmap(range(1 << 20)), np.uint8)
    with pytest.raises(CorruptFile, match="not below 1000"):
        posting.decode_groups(data, np.array([0]), np.array([len(data)]), 10, 1000)
