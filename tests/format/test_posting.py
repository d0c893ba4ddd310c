from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from maintainer.format import posting
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
