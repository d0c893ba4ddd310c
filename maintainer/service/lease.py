"""One memory budget for all passes (DESIGN §4 rule 5): a pass takes a share before it starts, and waits while there is none.

A share is an equal part of the budget, by as many passes as may run at once; with one table, all of it. Who waits longest is served first.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

LEAST_SHARE = 256 << 20
"""Bytes with which a pass does one bucket after the other without spilling much."""
MOST_PASSES = 8


class Lease:
    """Memory that somebody has, until it is given back."""

    def __init__(self, budget: MemoryBudget, size: int) -> None:
        self.size = size
        self._budget = budget
        self._held = True

    def give_back(self) -> None:
        """May be called twice, and by somebody else: for one who hangs in a store, and does not use it."""
        with self._budget._changed:
            if self._held:
                self._held = False
                self._budget._free += self.size
                self._budget._changed.notify_all()


class MemoryBudget:
    """Bytes that are shared by passes of several threads."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.most = max(1, min(MOST_PASSES, total // LEAST_SHARE))
        """Passes at once."""
        self._free = total
        self._waiting: deque[object] = deque()
        self._changed = threading.Condition()

    def share(self, tables: int) -> int:
        """What one of so many tables may take."""
        return self.total // max(1, min(self.most, tables))

    @contextmanager
    def lease(self, size: int, stop: threading.Event) -> Iterator[Lease | None]:
        """So much memory, as soon as it is free; None when it was not before `stop` was set."""
        lease = self._take(min(size, self.total), stop)
        try:
            yield lease
        finally:
            if lease is not None:
                lease.give_back()

    def wake(self) -> None:
        """Whoever waits looks at its `stop`."""
        with self._changed:
            self._changed.notify_all()

    def _take(self, size: int, stop: threading.Event) -> Lease | None:
        ticket = object()
        with self._changed:
            self._waiting.append(ticket)
            try:
                while not stop.is_set():
                    if self._waiting[0] is ticket and self._free >= size:
                        self._free -= size
                        return Lease(self, size)
                    self._changed.wait()
                return None
            finally:
                self._waiting.remove(ticket)
                self._changed.notify_all()
