"""The memory that passes share."""

from __future__ import annotations

import threading
import time

import pytest

from maintainer.service.lease import LEAST_SHARE, MOST_PASSES, MemoryBudget


@pytest.mark.parametrize(
    ("total", "tables", "share"),
    [
        (1 << 30, 1, 1 << 30),
        (1 << 30, 2, 1 << 29),
        (1 << 30, 100, LEAST_SHARE),
        (100 << 20, 5, 100 << 20),
        (1 << 40, 1000, (1 << 40) // MOST_PASSES),
        (1 << 30, 0, 1 << 30),
    ],
)
def test_shares(total: int, tables: int, share: int):
    assert MemoryBudget(total).share(tables) == share


def test_never_more_than_there_is_and_everybody_gets_a_turn():
    budget, stop, lock = MemoryBudget(10), threading.Event(), threading.Lock()
    held: list[int] = []
    seen: list[int] = []
    done: list[int] = []

    def work(size: int) -> None:
        with budget.lease(size, stop) as lease:
            assert lease is not None
            with lock:
                held.append(size)
                seen.append(sum(held))
            time.sleep(0.002)
            with lock:
                held.remove(size)
                done.append(size)

    threads = [threading.Thread(target=work, args=(size,)) for size in (10, 3, 3, 3, 7, 10, 1, 11) * 3]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert len(done) == len(threads)
    assert max(seen) <= 11  # the one that asked for 11 has all of it, alone


def test_who_waits_longest_is_served_first():
    budget, stop = MemoryBudget(10), threading.Event()
    order: list[int] = []

    def work(size: int) -> None:
        with budget.lease(size, stop):
            order.append(size)

    with budget.lease(10, stop):
        threads = []
        for size in (9, 1, 10, 2):
            threads.append(threading.Thread(target=work, args=(size,)))
            threads[-1].start()
            while len(budget._waiting) < len(threads):
                time.sleep(0.001)
    for thread in threads:
        thread.join(10)
    assert order.index(10) < order.index(2)
    assert order.index(9) < order.index(10)


def test_a_stop_ends_the_waiting():
    budget, stop = MemoryBudget(10), threading.Event()
    got: list[object] = []

    def wait() -> None:
        with budget.lease(5, stop) as lease:
            got.append(lease)

    with budget.lease(10, stop):
        thread = threading.Thread(target=wait)
        thread.start()
        stop.set()
        budget.wake()
        thread.join(10)
    assert got == [None]


def test_memory_of_one_who_hangs_is_given_back_once():
    budget, stop = MemoryBudget(10), threading.Event()
    with budget.lease(10, stop) as hanging:
        assert hanging is not None
        hanging.give_back()
        with budget.lease(10, stop) as other:
            assert other is not None
            hanging.give_back()
            assert budget._free == 0
    assert budget._free == 10
