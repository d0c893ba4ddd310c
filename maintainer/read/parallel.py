"""Several files, or pieces of files, read at a time, with the rows in order (DESIGN §4 rule 5; spec 07 §9).

A task gives batches, or tasks whose batches belong in that place: a file that is opened turns out to have pieces. So tasks are a tree, and its
batches come out as if one thread walked it:

    split 1 ── file ── piece 1: ▇ ▇      ◀ the reader takes from the first place that is not done
                    ── piece 2: ▇          workers take the first task that nobody has begun
    split 2 ── file …

Invariants:

* Workers hold no more than `most_bytes` of batches that nobody took yet, and one more batch each; a worker that has no room waits.
* The reader never waits for a worker that waits: it takes what is at its place, and begins that task itself if nobody did. So a single task
  needs no thread at all, and the first batch is made at once.
* An error of a task is raised in its place, after all batches before it; what is behind an end that is never reached is nobody's error.
* Tasks are taken when somebody can begin them, and no more than one for each thread that must wait for its turn: many of these are no delay.
* Closing the iterator ends all tasks at their next batch, closes them and waits for their threads.
"""

from __future__ import annotations

import atexit
import heapq
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import pyarrow as pa

from maintainer.storage.storage import Storage

MOST_BYTES = 64 << 20
"""Of batches that are made before they are asked for."""
_MOST_THREADS = 8
_REMOTE_THREADS = 8
"""Of an object store, whose answers take longer than decoding them."""
_BATCH = 1024
"""Bytes that a batch takes beside its values."""

Part: TypeAlias = "pa.RecordBatch | Task"
Task: TypeAlias = Callable[[], Iterator[Part]]


@dataclass(frozen=True)
class Alone:
    """A task that takes so much memory that it is not begun before all tasks in front of it are done."""

    task: Task

    def __call__(self) -> Iterator[Part]:
        return self.task()


def threads_for(storage: Storage) -> int:
    """How many threads read from a store."""
    affinity = getattr(os, "sched_getaffinity", None)  # not on macOS
    processors = len(affinity(0)) if affinity else os.cpu_count() or 1
    return max(_REMOTE_THREADS if storage.remote else 1, min(processors, _MOST_THREADS))


def flat(parts: Iterator[Part]) -> Iterator[pa.RecordBatch]:
    """The batches of a task one after the other, in this thread."""
    for part in parts:
        if isinstance(part, pa.RecordBatch):
            yield part
        else:
            yield from flat(part())


def in_order(tasks: Iterable[Task], threads: int, most_bytes: int = MOST_BYTES, *, may_end_early: bool = False) -> Iterator[pa.RecordBatch]:
    """The batches of all tasks in their order. Tasks are taken when there is somebody to begin them; taking one must cost next to nothing.

    Where the reader `may_end_early`, no other task is begun before the first one is done: it may be all that is wanted.
    """
    if threads <= 1:
        for task in tasks:
            yield from flat(task())
        return
    with closing(_Line(tasks, threads, most_bytes, may_end_early)) as line:
        yield from line.batches()


class _Place:
    """The place of a task in the order: where what it gives is kept until it is the first."""

    __slots__ = ("begun", "children", "done", "error", "key", "parts", "task")

    def __init__(self, key: tuple[int, ...], task: Task) -> None:
        self.key = key
        self.task = task
        self.parts: deque[pa.RecordBatch | _Place] = deque()
        self.children = 0
        self.begun = False
        self.done = False
        self.error: BaseException | None = None

    def __lt__(self, other: _Place) -> bool:
        return self.key < other.key


class _Line:
    def __init__(self, tasks: Iterable[Task], threads: int, most_bytes: int, hesitates: bool) -> None:
        self._tasks = iter(tasks)
        self._threads = threads
        self._most = most_bytes
        self._hesitates = hesitates
        self._changed = threading.Condition()
        self._top: deque[_Place] = deque()
        self._taken = 0
        self._alone = 0
        self._waiting: list[_Place] = []
        self._reading: _Place | None = None
        self._held = 0
        self._closed = False
        self._workers: list[threading.Thread] = []
        _open.add(self)

    def batches(self) -> Iterator[pa.RecordBatch]:
        while True:
            with self._changed:
                if not self._top and not self._take():
                    return
                place = self._top.popleft()
                if isinstance(place.task, Alone):
                    self._alone -= 1
                    self._changed.notify_all()
            yield from self._at(place)
            self._hesitates = False

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for worker in self._workers:
            if worker is not threading.current_thread():  # the garbage collector closes an iterator in any thread
                worker.join()
        _open.discard(self)

    # the reader

    def _at(self, place: _Place) -> Iterator[pa.RecordBatch]:
        """All batches that belong here."""
        with self._changed:
            mine = not place.begun
            place.begun = True
        if mine:
            yield from self._own(place)
            return
        while True:
            with self._changed:
                self._reading = place
                self._changed.notify_all()
                while not place.parts and not place.done:
                    self._changed.wait()
                part = place.parts.popleft() if place.parts else None
                if isinstance(part, pa.RecordBatch):
                    self._held -= _size(part)
                    self._changed.notify_all()
            if part is None:
                if place.error is not None:
                    raise place.error
                return
            if isinstance(part, _Place):
                yield from self._at(part)
            else:
                yield part

    def _own(self, place: _Place) -> Iterator[pa.RecordBatch]:
        """A task that nobody has begun, in the reader's thread. What it gives of further tasks is offered to the workers first."""
        self._start()
        children: deque[_Place] = deque()
        error: Exception | None = None
        with closing(_closable(place.task())) as parts:
            while True:
                try:
                    part = next(parts, None)
                except Exception as found:
                    part, error = None, found
                if part is not None and not isinstance(part, pa.RecordBatch):
                    with self._changed:
                        children.append(self._child(place, part))
                        self._changed.notify_all()
                    continue
                if children:
                    self._start()
                while children:
                    yield from self._at(children.popleft())
                if error is not None:
                    raise error
                if part is None:
                    return
                yield part

    # the workers

    def _start(self) -> None:
        """A worker for each task that nobody has begun, up to the limit."""
        if self._hesitates or len(self._workers) >= self._threads:
            return
        with self._changed:
            free = self._threads - len(self._workers)
            waiting = sum(not place.begun for place in self._waiting)
            while waiting < free and self._take():
                waiting += 1
            for _ in range(min(waiting, free)):
                worker = threading.Thread(target=copy_context().run, args=(self._work,), name="read", daemon=True)
                self._workers.append(worker)
                worker.start()

    def _work(self) -> None:
        while True:
            with self._changed:
                place = self._next()
                while place is None:
                    if self._closed:
                        return
                    self._changed.wait()
                    place = self._next()
            self._run(place)

    def _next(self) -> _Place | None:
        """The first task that nobody has begun, which is begun now."""
        while not self._closed and self._held < self._most and (self._waiting or self._take()):
            while self._waiting:
                place = heapq.heappop(self._waiting)
                if not place.begun:
                    place.begun = True
                    return place
        return None

    def _run(self, place: _Place) -> None:
        try:
            with closing(_closable(place.task())) as parts:
                for part in parts:
                    if not self._put(place, part):
                        break
        except BaseException as error:
            place.error = error
        with self._changed:
            place.done = True
            self._changed.notify_all()

    def _put(self, place: _Place, part: Part) -> bool:
        """Whether there is a reader for more."""
        with self._changed:
            if isinstance(part, pa.RecordBatch):
                while not self._closed and self._held >= self._most and not (self._reading is place and not place.parts):
                    self._changed.wait()
                place.parts.append(part)
                self._held += _size(part)
            else:
                place.parts.append(self._child(place, part))
            self._changed.notify_all()
            return not self._closed

    # both, with the lock

    def _child(self, place: _Place, task: Task) -> _Place:
        child = _Place((*place.key, place.children), task)
        place.children += 1
        self._offer(child)
        return child

    def _take(self) -> bool:
        """Another one of the tasks, if there is one, and if not too many wait for their turn."""
        if self._alone >= self._threads:
            return False
        try:
            task = next(self._tasks, None)
        except BaseException as error:  # in its place, and not in a worker
            task = partial(_raise, error)
            self._tasks = iter(())
        if task is None:
            return False
        place = _Place((self._taken,), task)
        self._taken += 1
        self._alone += isinstance(task, Alone)
        self._top.append(place)
        self._offer(place)
        return True

    def _offer(self, place: _Place) -> None:
        if not isinstance(place.task, Alone):
            heapq.heappush(self._waiting, place)


def _size(batch: pa.RecordBatch) -> int:
    return int(batch.nbytes) + _BATCH


def _closable(parts: Iterator[Part]) -> Any:
    return parts if hasattr(parts, "close") else (part for part in parts)


def _raise(error: BaseException) -> Iterator[Part]:
    raise error


_open: weakref.WeakSet[_Line] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """Iterators that nobody closed must not leave threads inside of Arrow when the process ends."""
    for line in list(_open):
        line.close()
