"""The account of bytes that are rewritten only for the indexes."""

from __future__ import annotations

from maintainer.service.rewrites import HOUR, RewriteAccount


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_an_hour_begins_with_all_of_it_and_fills_evenly():
    clock = Clock()
    account = RewriteAccount(clock)
    assert account.grant(1200) == 1200
    account.charge(1200)
    assert account.grant(1200) == 0
    clock.now += HOUR / 2
    assert account.grant(1200) == 600
    clock.now += 10 * HOUR
    assert account.grant(1200) == 1200


def test_little_is_not_granted():
    clock = Clock()
    account = RewriteAccount(clock)
    account.grant(1200)
    account.charge(1150)
    assert account.grant(1200) == 0
    clock.now += account.seconds_to_grant()
    assert account.grant(1200) == 100


def test_one_file_may_overdraw_it():
    clock = Clock()
    account = RewriteAccount(clock)
    account.grant(1200)
    account.charge(3600)
    assert round(account.seconds_to_grant()) == round((2400 + 100) / 1200 * HOUR)
    clock.now += HOUR
    assert account.grant(1200) == 0
    clock.now += 2 * HOUR
    assert account.grant(1200) == 1200


def test_nothing_is_nothing():
    account = RewriteAccount(Clock())
    assert account.grant(0) == 0
    assert account.seconds_to_grant() == HOUR


def test_another_budget_counts_from_now():
    clock = Clock()
    account = RewriteAccount(clock)
    account.grant(1200)
    account.charge(1200)
    clock.now += HOUR / 2
    assert account.grant(120) == 120
    clock.now += HOUR
    assert account.grant(12000) == 120 or account.grant(12000) == 0
