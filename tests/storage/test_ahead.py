"""Requests ahead of their use: at the same time where each is a round trip, and only when they are needed on a local disk."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from maintainer.errors import MissingFile
from maintainer.storage.ahead import ahead, in_turn
from maintainer.storage.local import LocalStorage
from maintainer.storage.storage import Storage


class Remote(LocalStorage):
    remote = True


@pytest.fixture
def local(tmp_path: Path) -> Storage:
    return LocalStorage(str(tmp_path))


@pytest.fixture
def remote(tmp_path: Path) -> Storage:
    return Remote(str(tmp_path))


def missing() -> int:
    raise MissingFile("a file")


def test_a_local_disk_is_asked_when_the_answer_is(local: Storage) -> None:
    asked: list[int] = []
    answer = ahead(local, lambda: asked.append(1) or len(asked))
    assert asked == []
    assert answer() == 1 and answer() == 1 and asked == [1]
    values = in_turn(local, (partial(lambda n: asked.append(n) or n, n) for n in range(5)))
    assert next(values) == 0 and asked == [1, 0], "the others may never be asked for"


def test_a_remote_store_is_asked_at_once(remote: Storage) -> None:
    both = threading.Barrier(3, timeout=10)
    answers = [ahead(remote, both.wait) for _ in range(2)]
    both.wait()
    assert sorted(answer() in (0, 1, 2) for answer in answers) == [True, True]
    assert answers[0]() == answers[0](), "a call is made once"


def test_values_come_in_the_order_of_the_calls_and_no_more_than_some_are_under_way(remote: Storage) -> None:
    under_way, most = 0, 0
    lock, last = threading.Lock(), threading.Event()

    def call(n: int) -> int:
        nonlocal under_way, most
        with lock:
            under_way += 1
            most = max(most, under_way)
        if n == 0:
            last.wait(10)
        if n == 2:
            last.set()
        with lock:
            under_way -= 1
        return n

    assert list(in_turn(remote, (partial(call, n) for n in range(20)), 3)) == list(range(20))
    assert 1 < most <= 3


@pytest.mark.parametrize("kind", ["local", "remote"])
def test_an_error_is_raised_in_its_place_and_that_of_an_answer_that_nobody_asks_for_never(
    request: pytest.FixtureRequest, kind: str, recwarn: pytest.WarningsRecorder
) -> None:
    storage: Storage = request.getfixturevalue(kind)
    ahead(storage, missing)
    calls: list[Callable[[], int]] = [lambda: 1, missing, lambda: 3]
    values = in_turn(storage, calls)
    assert next(values) == 1
    with pytest.raises(MissingFile):
        next(values)
    assert not list(recwarn)


def test_calls_may_begin_others(remote: Storage) -> None:
    def outer(n: int) -> int:
        return sum(in_turn(remote, (partial(int, m) for m in range(n)), 2))

    assert list(in_turn(remote, (partial(outer, n) for n in range(10)), 2)) == [n * (n - 1) // 2 for n in range(10)]
