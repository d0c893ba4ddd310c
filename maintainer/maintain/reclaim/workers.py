"""Requests side by side, within a bound: on an object store each takes a round trip (DESIGN §4 rule 5)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import TypeVar

A = TypeVar("A")
B = TypeVar("B")

THREADS = 16


class Workers:
    """A context manager. The first error ends the work that has not begun, and is raised when all that has begun is done."""

    def __init__(self, threads: int = THREADS) -> None:
        self._pool = ThreadPoolExecutor(threads, "reclaim") if threads > 1 else None

    def map(self, function: Callable[[A], B], items: Iterable[A]) -> list[B]:
        """The function of each item, in the order of the items."""
        if self._pool is None:
            return [function(item) for item in items]
        futures = [self._pool.submit(function, item) for item in items]
        try:
            return [future.result() for future in futures]
        finally:
            for future in futures:
                future.cancel()
            for future in futures:
                if not future.cancelled():
                    future.exception()

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
