from __future__ import annotations

import itertools
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

from maintainer.read.parallel import Alone, Part, Task, flat, in_order
from tests.support import campaign


def batch(number: int, size: int = 1) -> pa.RecordBatch:
    return pa.record_batch({"n": pa.array([number] * size, pa.int64())})


def numbers(batches: Iterator[pa.RecordBatch]) -> list[int]:
    return [found.column("n")[0].as_py() for found in batches]


def giving(*parts: Part, delay: float = 0) -> Task:
    def task() -> Iterator[Part]:
        for part in parts:
            time.sleep(delay)
            yield part

    return task


def until(condition: Callable[[], bool]) -> bool:
    """Whether it comes true within some seconds."""
    deadline = time.monotonic() + 10
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.002)
    return condition()


def readers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "read"]


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_batches_come_in_the_order_of_the_tasks(threads: int) -> None:
    tasks = [giving(*(batch(10 * task + part) for part in range(3)), delay=0.004 if task % 2 else 0) for task in range(10)]
    assert numbers(in_order(tasks, threads)) == [10 * task + part for task in range(10) for part in range(3)]
    assert not readers()


def test_tasks_of_a_task_belong_in_its_place() -> None:
    inner = giving(batch(2), giving(batch(3), batch(4), delay=0.003), batch(5))
    tasks = [giving(batch(0), batch(1)), inner, giving(), giving(giving(giving(batch(6)))), giving(batch(7))]
    for threads in (1, 2, 4):
        assert numbers(in_order(tasks, threads)) == list(range(8))


def random_task(random: random.Random, count: list[int], depth: int = 0) -> Task:
    parts: list[Part] = []
    for _ in range(random.randrange(5)):
        if depth < 3 and random.random() < 0.4:
            parts.append(random_task(random, count, depth + 1))
        else:
            count[0] += 1
            parts.append(batch(count[0], random.choice([1, 100])))
    task = giving(*parts, delay=random.choice([0, 0, 0.0002]))
    return Alone(task) if random.random() < 0.1 else task


def test_random_trees_are_read_as_by_one_thread() -> None:
    for seed in range(campaign.share("trees of tasks", short=60, long=3000)):
        seeded = random.Random(seed)
        tasks = [random_task(seeded, [1000 * top]) for top in range(seeded.randrange(8))]
        expected = numbers(flat(iter(tasks)))
        found = in_order(tasks, seeded.choice([1, 2, 3, 8]), seeded.choice([1, 2000, 1 << 20]), may_end_early=seeded.random() < 0.5)
        assert numbers(found) == expected
    assert not readers()


def test_no_more_is_held_than_the_limit_and_a_batch_for_each_thread() -> None:
    made, taken, size = [0], [0], 1000
    most = [0]

    def task() -> Iterator[Part]:
        for _ in range(20):
            made[0] += 1
            most[0] = max(most[0], made[0] - taken[0])
            yield batch(0, size)

    one = 8 * size + 1024
    found = in_order([task] * 6, threads=3, most_bytes=5 * one)
    for _ in found:
        time.sleep(0.001)
        taken[0] += 1
    assert taken[0] == 120
    assert most[0] <= 5 + 3 + 2, "what waits, what is being made, and what the reader has in hand"


def test_a_task_that_is_read_slowly_lets_others_go_on_and_one_that_is_slow_makes_nobody_wait_for_ever() -> None:
    slow = giving(*(batch(number, 500) for number in range(5)), delay=0.01)
    fast = [giving(*(batch(10 * task + number, 500) for number in range(10))) for task in range(1, 6)]
    assert numbers(in_order([slow, *fast], threads=2, most_bytes=1)) == [*range(5), *range(10, 60)]


def test_an_error_is_raised_in_its_place() -> None:
    def failing() -> Iterator[Part]:
        yield batch(2)
        raise ValueError("broken")

    tasks = [giving(batch(0), batch(1), delay=0.005), failing, giving(batch(3))]
    for threads in (1, 2, 4):
        found: list[int] = []
        with pytest.raises(ValueError, match="broken"):
            for each in in_order(tasks, threads):
                found += numbers(iter([each]))
        assert found == [0, 1, 2]
        assert not readers()


def test_an_error_between_tasks_is_raised_in_its_place() -> None:
    def tasks() -> Iterator[Task]:
        yield giving(batch(0), delay=0.005)
        yield giving(batch(1))
        raise KeyError("no more")

    for threads in (1, 3):
        found: list[int] = []
        with pytest.raises(KeyError):
            for each in in_order(tasks(), threads):
                found += numbers(iter([each]))
        assert found == [0, 1]


def test_closing_early_ends_all_tasks_and_their_threads() -> None:
    opened, closed = [0], [0]
    lock = threading.Lock()

    def task() -> Iterator[Part]:
        with lock:
            opened[0] += 1
        try:
            for number in range(1000):
                yield batch(number)
        finally:
            with lock:
                closed[0] += 1

    for count in range(5):
        found = in_order([partial(task)] * 10, threads=4, most_bytes=50_000)
        for _ in range(count):
            next(found)
        assert count < 4 or until(lambda: opened[0] > 5)  # workers have begun tasks, too
        found.close()  # type: ignore[attr-defined]
        assert closed == opened
        assert not readers()


def test_an_error_behind_the_end_is_nobodys() -> None:
    def failing() -> Iterator[Part]:
        raise ValueError("never seen")
        yield

    found = in_order([giving(batch(0), batch(1)), failing], threads=2)
    assert numbers(iter([next(found)])) == [0]
    found.close()  # type: ignore[attr-defined]


def test_one_task_needs_no_thread() -> None:
    seen: set[str] = set()

    def task() -> Iterator[Part]:
        seen.add(threading.current_thread().name)
        yield batch(0)
        yield batch(1)

    assert numbers(in_order([task], threads=4)) == [0, 1]
    assert seen == {threading.current_thread().name}


def test_several_tasks_run_at_the_same_time() -> None:
    together = threading.Barrier(3, timeout=10)

    def task() -> Iterator[Part]:
        together.wait()
        yield batch(0)

    assert numbers(in_order([task] * 3, threads=3)) == [0, 0, 0]


def test_where_the_reader_may_end_early_nothing_else_is_begun_before_the_first_task_is_done() -> None:
    begun: list[int] = []

    def task(number: int) -> Iterator[Part]:
        begun.append(number)
        yield batch(number)
        yield batch(number)

    found = in_order([partial(task, number) for number in range(5)], threads=3, may_end_early=True)
    next(found)
    next(found)
    time.sleep(0.02)
    assert begun == [0]
    assert len(list(found)) == 8


def test_a_task_that_must_be_alone_is_begun_when_all_before_it_are_done() -> None:
    running, most = [0], [0]
    done: list[int] = []

    def alone(number: int) -> Iterator[Part]:
        assert sorted(done) == list(range(number))
        running[0] += 1
        most[0] = max(most[0], running[0])
        yield batch(number)
        running[0] -= 1
        done.append(number)

    def beside(number: int) -> Iterator[Part]:
        time.sleep(0.002)
        yield batch(number)
        done.append(number)

    tasks: list[Task] = [partial(beside, 0), Alone(partial(alone, 1)), Alone(partial(alone, 2)), Alone(partial(alone, 3))]
    assert numbers(in_order(tasks, threads=4)) == [0, 1, 2, 3]
    assert most == [1]


def test_tasks_that_must_be_alone_are_not_taken_long_before_their_turn() -> None:
    taken = [0]

    def tasks() -> Iterator[Task]:
        for number in range(1000):
            taken[0] += 1
            yield Alone(giving(batch(number), delay=0.001))

    rows = in_order(tasks(), threads=4)
    for turn in range(10):
        assert numbers(itertools.islice(rows, 1)) == [turn]
        assert taken[0] <= turn + 1 + 4


def test_tasks_behind_those_that_must_be_alone_are_begun_once_these_had_their_turn() -> None:
    others = [threading.Event() for _ in range(3)]

    def beside(number: int) -> Iterator[Part]:
        others[number].set()
        yield batch(number)

    def alone() -> Iterator[Part]:
        assert all(event.wait(10) for event in others)
        yield batch(9)

    tasks: list[Task] = [Alone(giving(batch(8))), Alone(giving(batch(8))), Alone(alone), *(partial(beside, number) for number in range(3))]
    assert numbers(in_order(tasks, threads=2)) == [8, 8, 9, 0, 1, 2]


def test_an_iterator_may_be_closed_by_one_of_its_own_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """The garbage collector runs in any thread."""
    wrong: list[object] = []
    monkeypatch.setattr("sys.unraisablehook", wrong.append)
    held: list[Any] = []
    let_go = threading.Event()

    def task() -> Iterator[Part]:
        yield batch(0)
        let_go.wait(10)
        held.clear()
        yield batch(1)

    rows = in_order([giving(batch(7), batch(7)), task, task], threads=2)
    next(rows)
    held.append(rows)
    del rows
    let_go.set()
    assert until(lambda: not readers())
    assert not wrong


def test_an_interruption_of_the_reader_is_not_kept_back() -> None:
    def interrupted() -> Iterator[Part]:
        yield giving(batch(1))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        next(in_order([interrupted], threads=2))


def test_a_process_ends_though_an_iterator_is_open() -> None:
    code = """
import pyarrow as pa
from maintainer.read.parallel import in_order
def task():
    for _ in range(1000):
        yield pa.record_batch({"n": pa.array(range(10_000))})
rows = in_order([task] * 8, 4)
print(next(rows).num_rows + next(rows).num_rows)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "20000\n"
    assert done.stderr == ""
