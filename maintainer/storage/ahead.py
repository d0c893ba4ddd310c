"""Requests that are made before their answers are needed, where every request is a round trip (spec 07 §5, `global-index.thread-num`).

    answer = ahead(storage, call)          the call begins now
    …                                      what does not depend on it
    answer()                               its value, or its error

A local disk answers at once, and there a thread would cost more than it saves: the call is made when its answer is asked for, once or
never. Calls may begin others; each has a thread of its own, so none waits for a place that another one holds.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextvars import copy_context
from functools import cache
from typing import TypeVar

from maintainer.storage.storage import Storage

T = TypeVar("T")

MOST = 32
"""Requests of one kind at the same time, unless an option says otherwise."""


def ahead(storage: Storage, call: Callable[[], T]) -> Callable[[], T]:
    """Begins a call; what it gives has its value, or raises its error. Nobody need ask."""
    if not storage.remote:
        return cache(call)
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=copy_context().run, args=(run,), name="ahead", daemon=True).start()
    return future.result


def in_turn(storage: Storage, calls: Iterable[Callable[[], T]], most: int = MOST) -> Iterator[T]:
    """The values of calls in their order, of which at most `most` are under way or wait to be taken."""
    begun: deque[Callable[[], T]] = deque()
    for call in calls:
        if len(begun) >= most:
            yield begun.popleft()()
        begun.append(ahead(storage, call))
    while begun:
        yield begun.popleft()()
