"""Too many runs for the budget: the smallest ones become one, again and again (DESIGN rule 5; Java `MergeSorter`, `spillToBinary`).

    40 runs, fan 7     a a a a a a │ b b b b b b b │ …        the first pass takes as many runs as leave full ones behind, smallest first
                            ╰─ one run in a temporary file, all records and their ages in it

The buffers of all runs share the budget, so that with many runs, many columns or wide rows a batch has few rows; what each chunk of a column
costs, whatever is in it, is more than moving the rows another time then. Passes are as many as are cheapest, by the numbers of runs and
columns; and as many as it takes for one row of each run to fit. Large runs are moved last, most often not at all.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from math import ceil, log2

from maintainer.merge.candidates import Source
from maintainer.merge.spilling import Spill, SpillFile

CHUNK_BYTES = 2500
"""A chunk of a column in a batch costs as much as moving so many bytes through a temporary file and a window."""
Run = Sequence[Source]


def runs_at_a_time(sizes: Sequence[float], widest: float, columns: int, limit: int) -> int:
    """How many runs are merged at a time, at least two; for runs of these sizes in memory, the widest row, and buffers of `limit` bytes."""
    runs = len(sizes)
    if runs <= 2 or sum(sizes) <= limit:
        return max(runs, 2)
    most = max(2, int(limit / max(widest, 1.0)))
    costs = []
    for passes in range(1, ceil(log2(runs)) + 1):
        fan = ceil(runs ** (1 / passes))
        if 2 <= fan <= most:
            costs.append((passes - 1 + passes * CHUNK_BYTES * columns * 2 * fan / limit, fan))
    return min(costs)[1] if costs else 2


def reduced(
    runs: Sequence[Run], sizes: Sequence[float], fan: int, merged: Callable[[Sequence[Run], SpillFile], Run], spill: Spill, files: ExitStack
) -> list[Run]:
    """At most `fan` runs with the same records; `merged` writes some runs to a temporary file as one. Files that are left are in `files`."""
    every = list(runs)
    made: dict[int, ExitStack] = {}
    heap = [(size, number) for number, size in enumerate(sizes)]
    heapq.heapify(heap)
    while len(heap) > fan:
        taken = [heapq.heappop(heap) for _ in range(min(fan, len(heap) - fan + 1))]
        made[len(every)] = files.enter_context(ExitStack())
        run = merged([every[number] for _, number in taken], made[len(every)].enter_context(spill.file()))
        heapq.heappush(heap, (sum(size for size, _ in taken), len(every)))
        every.append(run)
        for _, number in taken:
            if number in made:
                made.pop(number).close()
    return [every[number] for _, number in sorted(heap, key=lambda one: one[1])]
