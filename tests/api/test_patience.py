"""What options put off to a later time: for the daemon it is put off, and what it has to remember of a bucket lives as long as it does."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from maintainer.api.maintenance import Known, plan_pass, run_pass
from maintainer.errors import UsageError
from maintainer.maintain.plan import PlanRequest
from maintainer.table.opening import open_store
from maintainer.table.store import TableStore
from tests.support.small_table import SmallTable


def with_options(table: SmallTable, options: dict[str, str]) -> TableStore:
    return open_store(table.path, options=options)


@pytest.fixture
def table(tmp_path: Path) -> SmallTable:
    """A large base, so that no size demands anything of a few small files."""
    table = SmallTable(tmp_path)
    table.write({key: key * 1_000_003 % 2**40 for key in range(3000)})
    table.maintain(full=True)
    return table


GENTLE = {"lookup-compact": "gentle", "lookup-compact.max-interval": "5"}


def test_a_gentle_table_waits_for_its_time_and_passes_without_news_do_not_count(table: SmallTable) -> None:
    store, known = with_options(table, GENTLE), Known()
    outcomes = []
    for commit in range(5):
        if commit == 3:
            assert [level for level, _, _ in table.files()] == [0, 0, 0, 5]
            run_pass(store)  # by somebody who does not wait, or the number of runs would demand something before the counter does
        table.write({commit: commit})
        outcomes += [run_pass(store, known=known, patient=True).outcome for _ in range(3)]
    assert outcomes == ["nothing"] * 12 + ["committed", "nothing", "nothing"]
    table.check()


def test_it_says_what_waits(table: SmallTable) -> None:
    table.write({1: 1})
    report = run_pass(with_options(table, GENTLE), known=Known(), patient=True)
    assert report.reason == "1 level-0 file left for later: lookup-compact = gentle"


def test_any_other_pass_is_radical(table: SmallTable) -> None:
    table.write({1: 1})
    assert run_pass(with_options(table, GENTLE)).outcome == "committed"
    table.check()


COMMITS = {"full-compaction.delta-commits": "3"}


def test_after_so_many_commits_all_of_a_bucket_is_compacted(table: SmallTable) -> None:
    store, known = with_options(table, COMMITS), Known()
    levels = []
    for commit in range(6):
        table.write({commit: commit})
        run_pass(store, known=known, patient=True)
        assert run_pass(store, known=known, patient=True).outcome == "nothing"
        levels.append([level for level, _, _ in table.files()])
    assert levels == [[4, 5], [4, 5], [5], [4, 5], [4, 5], [5]]
    table.check()


def test_to_a_pass_that_does_not_come_again_they_are_reached(table: SmallTable) -> None:
    table.write({1: 1})
    report = run_pass(with_options(table, COMMITS))
    assert report.reason == "full-compaction.delta-commits = 3: all runs together"
    assert table.files() == [(5, "COMPACT", 3000)]
    assert run_pass(with_options(table, COMMITS)).outcome == "nothing"


def test_a_pass_that_makes_one_pick_does_not_ask_for_commits(table: SmallTable) -> None:
    table.write({1: 1})
    run_pass(with_options(table, COMMITS), repeat=False)
    assert [level for level, _, _ in table.files()] == [4, 5]


def test_full_compactions_for_the_changelog_keep_their_distance(table: SmallTable, monkeypatch: pytest.MonkeyPatch) -> None:
    store, known = with_options(table, {"changelog-producer.compaction-interval": "1 h"}), Known()
    now = time.time()
    levels, due = [], []
    for hours in (0.5, 1.5, 2.0, 2.6):
        monkeypatch.setattr("maintainer.api.maintenance.time.time", lambda hours=hours: now + 3600 * hours)
        table.write({1: round(hours * 10)})
        run_pass(store, known=known, patient=True)
        assert run_pass(store, known=known, patient=True).outcome == "nothing"
        levels.append([level for level, _, _ in table.files()])
        due.append(None if known.due is None else round((known.due / 1000 - now) / 3600, 1))
    assert levels == [[4, 5], [5], [4, 5], [5]]
    assert due == [1.0, None, 2.5, None]
    table.write({1: 1})
    assert run_pass(store).reason == "changelog-producer.compaction-interval has gone by: all runs together"
    table.check()


INTERVAL = {"compaction.optimization-interval": "1 h"}


def test_the_time_of_the_last_full_compaction_is_remembered(table: SmallTable, monkeypatch: pytest.MonkeyPatch) -> None:
    store, known = with_options(table, INTERVAL), Known()
    now = time.time()
    levels = []
    for hours in (0, 0.5, 1.5, 2.0, 2.6):
        monkeypatch.setattr("maintainer.api.maintenance.time.time", lambda hours=hours: now + 3600 * hours)
        table.write({1: round(hours * 10)})
        run_pass(store, known=known, patient=True)
        levels.append([level for level, _, _ in table.files()])
        assert run_pass(store, known=known, patient=True).outcome == "nothing"
    assert levels == [[4, 5], [4, 5], [5], [4, 5], [5]]
    table.check()


def test_an_unknown_time_zone_is_a_mistake_that_names_the_option(table: SmallTable) -> None:
    with pytest.raises(UsageError, match=r"option read.time-zone = 'Mars/Base': there is no such time zone"):
        plan_pass(with_options(table, {"read.time-zone": "Mars/Base"}), PlanRequest())
