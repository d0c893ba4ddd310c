"""Buckets side by side within one budget: who may begin, with how much memory, and that each has its turn."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maintainer.api import round as round_of_a_pass
from maintainer.api.admission import Admission, Admitted
from maintainer.api.maintenance import run_pass
from maintainer.maintain.execute import execute
from maintainer.model.bucket import BucketState
from maintainer.model.files import EMPTY_ROW
from maintainer.model.work import Result, Work, WorkKind
from tests.support.small_table import SmallTable

MB = 1 << 20


def works(*needs: int, size: int = 0) -> list[Work]:
    """Work that should have so many megabytes each, and reads so much."""
    return [
        Work(WorkKind.COMPACT, BucketState(EMPTY_ROW, number, 1, ()), "", estimated_memory=need * MB, estimated_bytes=size * MB)
        for number, need in enumerate(needs)
    ]


def shown(admitted: list[Admitted]) -> list[tuple[int, int]]:
    """(bucket, megabytes)."""
    return [(work.bucket.bucket, memory // MB) for work, memory in admitted]


@pytest.mark.parametrize(("need", "memory"), [(32, 1024), (256, 1024), (5000, 1024), (32, 16)])
def test_a_lone_bucket_gets_the_whole_budget(need: int, memory: int) -> None:
    assert shown(Admission(works(need), memory * MB, 8).next()) == [(0, memory)]


def test_so_does_the_last_one_that_is_left() -> None:
    work = works(600, 600)
    admission = Admission(work, 1024 * MB, 2)
    assert shown(admission.next()) == [(0, 600)]
    assert shown(admission.ended(work[0])) == [(1, 1024)]


def test_what_is_left_over_is_shared_by_those_that_can_use_it() -> None:
    assert shown(Admission(works(256, 256, size=1000), 1024 * MB, 2).next()) == [(0, 512), (1, 512)]
    small, large = works(36, 256)
    large = replace(large, estimated_bytes=1000 * MB)
    small = replace(small, estimated_bytes=MB)
    assert shown(Admission([small, large], 1024 * MB, 2).next()) == [(0, 36), (1, 988)]


def test_no_more_than_there_are_threads() -> None:
    work = works(32, 32, 32, size=100)
    admission = Admission(work, 1024 * MB, 2)
    assert [bucket for bucket, _ in shown(admission.next())] == [0, 1]
    assert shown(admission.ended(work[1])) == [(2, 592)]


def test_who_waits_for_memory_is_not_kept_waiting_by_what_others_could_use() -> None:
    work = works(200, 300, 700, size=1000)
    admission = Admission(work, 1000 * MB, 3)
    assert shown(admission.next()) == [(0, 200), (1, 300)]
    assert shown(admission.ended(work[1])) == [(2, 800)]


def test_who_needs_more_than_there_is_waits_until_he_is_alone() -> None:
    work = works(100, 5000, 100)
    admission = Admission(work, 1000 * MB, 8)
    assert shown(admission.next()) == [(0, 100)]
    assert shown(admission.ended(work[0])) == [(1, 1000)]
    assert shown(admission.ended(work[1])) == [(2, 1000)]
    assert admission.ended(work[2]) == []


@given(st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 2000)), max_size=12), st.integers(1, 1500), st.integers(1, 5), st.randoms())
def test_the_budget_is_kept_and_each_has_its_turn(needs: list[tuple[int, int]], memory: int, threads: int, choose: random.Random) -> None:
    work = [replace(one, estimated_bytes=size * MB) for one, (_, size) in zip(works(*(need for need, _ in needs)), needs, strict=True)]
    admission = Admission(work, memory * MB, threads)
    running = admission.next()
    done: list[int] = []
    while running:
        assert sum(share for _, share in running) <= memory * MB
        assert len(running) <= threads
        assert all(share >= min(one.estimated_memory, memory * MB) for one, share in running)
        ended, _ = running.pop(choose.randrange(len(running)))
        done.append(ended.bucket.bucket)
        running += admission.ended(ended)
    assert sorted(done) == list(range(len(work)))


class Counting:
    """Executes in the place of the real thing, and counts what runs at a time."""

    def __init__(self, then: Callable[..., Result]) -> None:
        self._then = then
        self._lock = threading.Lock()
        self.running: dict[int, int] = {}
        self.most_memory = self.most = 0
        self.granted: list[int] = []

    def __call__(self, plan: Any, work: Work, store: Any, schema: Any, memory: int, *others: Any) -> Result:
        with self._counted(work, memory):
            return self._then(plan, work, store, schema, memory, *others)

    @contextmanager
    def _counted(self, work: Work, memory: int) -> Iterator[None]:
        with self._lock:
            self.running[work.bucket.bucket] = memory
            self.granted.append(memory)
            self.most_memory = max(self.most_memory, sum(self.running.values()))
            self.most = max(self.most, len(self.running))
        try:
            time.sleep(0.005)
            yield
        finally:
            with self._lock:
                del self.running[work.bucket.bucket]


@pytest.mark.parametrize(("memory", "cores"), [(1 << 30, 4), (100 * MB, 4), (40 * MB, 4), (1 << 30, 1)])
def test_threads_of_a_pass_keep_within_the_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, memory: int, cores: int) -> None:
    table = SmallTable(tmp_path, bucket="12")
    table.write({key: key for key in range(500)})
    counting = Counting(execute)
    monkeypatch.setattr(round_of_a_pass, "execute", counting)
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    report = run_pass(table.store, memory=memory)
    assert report.outcome == "committed"
    table.check()
    assert len(counting.granted) == 12
    assert counting.most_memory <= memory
    assert counting.most == min(cores, memory // (32 * MB))


def test_one_bucket_of_a_pass_may_use_all_of_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = SmallTable(tmp_path)
    table.write({key: key for key in range(500)})
    counting = Counting(execute)
    monkeypatch.setattr(round_of_a_pass, "execute", counting)
    run_pass(table.store, memory=1 << 30)
    assert counting.granted == [1 << 30]
