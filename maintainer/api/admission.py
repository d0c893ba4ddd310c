"""Which buckets of a round are worked on at a time, and how much memory each may use (DESIGN §4 rule 5).

All buckets of a round share one budget. Work is admitted in its order, as long as a thread is free and what the work should have is left of the
budget; work that should have more than there is waits until it is alone, gets everything, and spills. Invariants:

    the memory of all work under way is at most the budget; nothing is admitted twice; where nothing is under way, the next work is admitted,
    so each work has its turn, whatever comes behind it

What would be left over is shared by those who are admitted together, up to what they have use for: a lone bucket gets the whole budget. It is
not shared while somebody waits for memory, who might have it sooner otherwise.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence

from maintainer.maintain.estimate import LEAST_MEMORY, MERGE_FACTOR
from maintainer.model.work import Work

Admitted = tuple[Work, int]
"""Work, and the bytes that it may use."""


class Admission:
    """The work of a round that waits, and the budget. May be told from several threads."""

    def __init__(self, work: Sequence[Work], memory: int, threads: int) -> None:
        self._waiting = deque(work)
        self._memory = self._free = memory
        self._threads = max(1, threads)
        self._under_way: dict[int, int] = {}
        """Of each work, by its identity, what it may use."""
        self._lock = threading.Lock()

    def next(self) -> list[Admitted]:
        """What may begin now."""
        with self._lock:
            return self._admit()

    def ended(self, work: Work) -> list[Admitted]:
        """This one does not use its memory any more; what may begin now."""
        with self._lock:
            self._free += self._under_way.pop(id(work))
            return self._admit()

    def _admit(self) -> list[Admitted]:
        admitted: list[Work] = []
        left = self._free
        while self._waiting and len(self._under_way) + len(admitted) < self._threads:
            need = min(self._waiting[0].estimated_memory, self._memory)
            if need > left:
                break
            left -= need
            admitted.append(self._waiting.popleft())
        if not admitted:
            return []
        waits_for_memory = self._waiting and len(self._under_way) + len(admitted) < self._threads
        shares = self._shares(admitted, 0 if waits_for_memory else left)
        for work, share in zip(admitted, shares, strict=True):
            self._free -= share
            self._under_way[id(work)] = share
        return list(zip(admitted, shares, strict=True))

    def _shares(self, admitted: Sequence[Work], left: int) -> list[int]:
        """What each should have, and a part of what is left; who has use for little is served first."""
        shares = [min(work.estimated_memory, self._memory) for work in admitted]
        by_use = sorted(range(len(admitted)), key=lambda index: _useful(admitted[index]) - shares[index])
        for place, index in enumerate(by_use):
            last = place == len(by_use) - 1
            part = left if last else min(left // (len(by_use) - place), max(0, _useful(admitted[index]) - shares[index]))
            shares[index] += part
            left -= part
        return shares


def _useful(work: Work) -> int:
    """Memory beyond which merging does not get faster: everything fits."""
    return max(work.estimated_memory, LEAST_MEMORY + MERGE_FACTOR * work.estimated_bytes)
