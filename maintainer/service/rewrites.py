"""How much the daemon rewrites only so that indexes may cover it: `maintain.rewrite-append-budget` bytes per hour and table (decision 5).

The account fills evenly and holds at most one hour's worth. A single file may overdraw it, for it cannot be rewritten by halves.
"""

from __future__ import annotations

import time
from collections.abc import Callable

HOUR = 3600.0
LEAST_PART = 12
"""Nothing is granted below this part of an hour's worth: rather a few files in a while than one file at every look."""


class RewriteAccount:
    """Bytes that may be rewritten now. For one thread at a time; `charge` may come from others."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._budget: int | None = None
        self._level = 0.0
        self._as_of = clock()

    def grant(self, budget: int) -> int:
        """What may be spent now of `budget` bytes per hour."""
        if self._budget is None:
            self._level = float(budget)
        else:
            self._fill()
        self._budget, self._as_of = budget, self._clock()
        self._level = min(self._level, float(budget))
        return int(self._level) if budget > 0 and self._level >= budget / LEAST_PART else 0

    def charge(self, size: int) -> None:
        self._level -= size

    def seconds_to_grant(self) -> float:
        """How long until something is granted again."""
        if not self._budget:
            return HOUR
        self._fill()
        return max(0.0, (self._budget / LEAST_PART - self._level) * HOUR / self._budget)

    def _fill(self) -> None:
        now = self._clock()
        self._level += (self._budget or 0) * (now - self._as_of) / HOUR
        self._as_of = now
