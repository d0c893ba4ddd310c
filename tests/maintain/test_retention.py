"""Which snapshots may go: the formula of spec 03 §14, and what Java's lacks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maintainer.errors import Unsupported, UsageError
from maintainer.maintain.reclaim.retention import Retention, expiring
from maintainer.table.options import TableOptions

NOW = 1_000_000_000
ALL = 2**31 - 1


def gone(
    ids: list[int],
    ages: dict[int, float] | None = None,
    *,
    least: int = 1,
    most: int = ALL,
    seconds: float = 100.0,
    limit: int = 50,
    keep: int = ALL,
) -> list[int]:
    """The ids that go. `ages`: seconds since a snapshot was committed; those that are not said are old."""
    retention = Retention(least, most, seconds, limit)
    times = {each: NOW - int((ages or {}).get(each, 10_000) * 1000) for each in ids}
    earliest, end = expiring(ids, times.get, retention, [keep], NOW)
    return [each for each in ids if earliest <= each < end]


def test_the_latest_snapshot_stays_however_old_it_is() -> None:
    assert gone([1, 2, 3]) == [1, 2]
    assert gone([3]) == []
    assert gone([]) == []


def test_the_least_number_stays_however_old() -> None:
    assert gone([1, 2, 3, 4, 5], least=3) == [1, 2]
    assert gone([1, 2, 3], least=3) == []
    assert gone([1, 2, 3], least=9) == []


def test_a_snapshot_goes_when_the_one_after_it_is_too_old() -> None:
    """A reader that began with it when it was the latest has had the whole time."""
    assert gone([1, 2, 3, 4], {3: 50, 4: 10}) == [1]
    assert gone([1, 2, 3, 4], {2: 50, 3: 40, 4: 10}) == []
    assert gone([1, 2, 3, 4], {3: 100, 4: 10}) == [1]  # exactly as old as what is kept
    assert gone([1, 2, 3, 4], {3: 101, 4: 10}) == [1, 2]


def test_the_largest_number_lets_young_ones_go() -> None:
    young = dict.fromkeys(range(1, 11), 1.0)
    assert gone(list(range(1, 11)), young, most=4) == [1, 2, 3, 4, 5, 6]
    assert gone(list(range(1, 11)), {**young, **dict.fromkeys(range(1, 9), 500.0)}, most=4, least=2) == [1, 2, 3, 4, 5, 6, 7]


def test_at_most_so_many_go_at_a_time() -> None:
    assert gone(list(range(5, 100)), limit=10) == list(range(5, 15))
    assert gone(list(range(5, 100)), dict.fromkeys(range(5, 100), 1.0), most=3, limit=10) == list(range(5, 15))
    assert gone([1, 2, 3], limit=0) == []


def test_consumers_keep_what_they_have_to_read() -> None:
    assert gone([1, 2, 3, 4, 5], keep=3) == [1, 2]
    assert gone([3, 4, 5], keep=1) == []
    assert gone([1, 2, 3, 4, 5], dict.fromkeys(range(1, 6), 1.0), most=1, keep=3) == [1, 2]


def test_missing_snapshots_count_as_gone() -> None:
    assert gone([1, 4, 5]) == [1, 4]
    assert gone([1, 4, 5], {4: 1, 5: 1}) == [1]  # of 2 and 3, which are missing, nobody knows when they were made
    assert gone([1, 2, 9, 10], limit=5) == [1, 2]


@given(
    st.sets(st.integers(1, 30), min_size=1),
    st.lists(st.integers(0, 200), min_size=40, max_size=40),
    st.integers(1, 10),
    st.integers(0, 10),
    st.integers(0, 200),
    st.integers(0, 20),
    st.integers(1, 40),
)
def test_what_goes_is_the_oldest_and_only_what_may(
    found: set[int], steps: list[int], least: int, extra: int, seconds: int, limit: int, keep: int
) -> None:
    ids = sorted(found)
    ages = {each: float(sum(steps[each:])) for each in ids}
    went = gone(ids, ages, least=least, most=least + extra, seconds=seconds, limit=limit, keep=keep)
    assert went == ids[: len(went)]
    assert len(went) <= limit
    assert all(each < keep for each in went)
    assert all(each <= ids[-1] - least for each in went)
    for each in went:
        following = next(other for other in ids if other > each)
        assert each <= ids[-1] - least - extra or following != each + 1 or ages[following] > seconds
    assert ids[len(went) :]


def test_the_call_stands_above_the_table() -> None:
    options = TableOptions({"snapshot.num-retained.min": "2", "snapshot.num-retained.max": "5", "snapshot.time-retained": "2 h"})
    assert Retention.of(options) == Retention(2, 5, 7200.0, 50)
    assert Retention.of(options, 1, 3, 60.0, 7) == Retention(1, 3, 60.0, 7)
    assert Retention.of(TableOptions({})) == Retention(10, ALL, 3600.0, 50)


@pytest.mark.parametrize(("least", "most"), [(0, 5), (-1, 5), (3, 2)])
def test_what_makes_no_sense_is_refused(least: int, most: int) -> None:
    with pytest.raises(UsageError):
        Retention.of(TableOptions({}), least, most)
    with pytest.raises(UsageError):
        Retention.of(TableOptions({"snapshot.num-retained.min": str(least), "snapshot.num-retained.max": str(most)}))


@pytest.mark.parametrize(
    ("key", "value", "refused"),
    [
        ("changelog.num-retained.min", "11", True),
        ("changelog.num-retained.min", "10", False),
        ("changelog.num-retained.max", "2147483647", False),
        ("changelog.time-retained", "61 min", True),
        ("changelog.time-retained", "1 h", False),
    ],
)
def test_changelogs_that_outlive_their_snapshots_are_refused(key: str, value: str, refused: bool) -> None:
    options = TableOptions({key: value})
    if refused:
        with pytest.raises(Unsupported, match=key):
            Retention.of(options)
    else:
        Retention.of(options)
    with pytest.raises(Unsupported, match=key):  # the call keeps less than the table
        Retention.of(options, least=1, most=2, seconds=1.0)
