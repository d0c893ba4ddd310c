"""A plain model of picking, written from spec 04 §3 alone: lists of (level, size), a dictionary of options, no code of the package.

`pick` answers what a normal pick of a bucket takes: (output level, number of runs), or None; and it updates what the bucket remembers.
"""

from __future__ import annotations

from typing import Any

Run = tuple[int, int]
Taken = tuple[int, int] | None

DEFAULTS: dict[str, Any] = {
    "T": 5,
    "num-levels": None,
    "amplification": 200,
    "ratio": 1,
    "offpeak": (-1, -1, 0),
    "interval": None,
    "total": None,
    "incremental": None,
    "forced": True,
    "gentle": None,
}


class Bucket:
    """What a Java writer holds of a bucket while it is open."""

    def __init__(self, runs: list[Run], options: dict[str, Any], last_full: int | None = None, counter: int = 0) -> None:
        self.o = {**DEFAULTS, **options}
        self.runs = runs
        levels = self.o["num-levels"] or self.o["T"] + 1
        self.max_level = max([levels - 1] + [level for level, _ in runs])
        self.last_full = last_full
        self.counter = counter

    def pick(self, now: int, hour: int) -> Taken:
        self.now, self.hour = now, hour
        for step in (self.early_full, self.amplification, self.ratio, self.count):
            found = step()
            if found is not None:
                return found if found[1] > 0 else None
        return self.forced() if self.o["forced"] else None

    def early_full(self) -> Taken:
        if self.o["interval"] is None and self.o["total"] is None and self.o["incremental"] is None:
            return None
        n = len(self.runs)
        if n == 1:
            return None
        hit = False
        if self.o["interval"] is not None:
            hit = self.last_full is None or self.now - self.last_full > self.o["interval"]
        if not hit and self.o["total"] is not None:
            hit = sum(size for _, size in self.runs) < self.o["total"]
        if not hit and self.o["incremental"] is not None:
            outside = 0
            for level, size in self.runs:
                if level != self.max_level:
                    outside += size
            hit = outside > self.o["incremental"]
        if not hit:
            return None
        self.last_full = self.now
        return self.max_level, n

    def amplification(self) -> Taken:
        if len(self.runs) < self.o["T"]:
            return None
        candidates = 0
        for _, size in self.runs[:-1]:
            candidates += size
        if candidates * 100 > self.o["amplification"] * self.runs[-1][1]:
            self.last_full = self.now
            return self.max_level, len(self.runs)
        return None

    def ratio(self) -> Taken:
        return self.extend(1, False) if len(self.runs) >= self.o["T"] else None

    def count(self) -> Taken:
        n, t = len(self.runs), self.o["T"]
        return self.extend(n - t + 1, False) if n > t else None

    def forced(self) -> Taken:
        if self.o["gentle"] is not None:
            self.counter += 1
            if self.counter != self.o["gentle"]:
                return None
            self.counter = 0
        c = len([1 for level, _ in self.runs if level == 0])
        return self.extend(c, True) if c > 0 else None

    def extend(self, count: int, forced: bool) -> Taken:
        size = sum(size for _, size in self.runs[:count])
        triggered = forced or count > 1
        i = count
        while i < len(self.runs):
            level, next_size = self.runs[i]
            larger = float(size) * (100.0 + self.o["ratio"] + self.offpeak()) / 100.0 < float(next_size)
            if larger and (not triggered or level > 1):
                break
            size += next_size
            count += 1
            triggered = True
            i += 1
        return self.unit(count) if triggered else None

    def unit(self, count: int) -> Taken:
        n = len(self.runs)
        out = self.max_level if count == n else max(0, self.runs[count][0] - 1)
        if out == 0:
            while count < n:
                level = self.runs[count][0]
                count += 1
                if level != 0:
                    out = level
                    break
        if count == n:
            out = self.max_level
            self.last_full = self.now
        return out, count

    def offpeak(self) -> int:
        start, end, ratio = self.o["offpeak"]
        if start == -1 or end == -1 or start == end:
            return 0
        inside = start <= self.hour < end if start < end else self.hour < end or self.hour >= start
        return int(ratio) if inside else 0


def full(
    runs: list[list[tuple[int, str]]], max_level: int, rewrite_all: bool, vectors: set[str], expired: set[str]
) -> tuple[list[str], bool] | None:
    """Full compaction (§3.6) of runs of (level, file name): the names it takes, and whether each is rewritten on its own."""
    files = [file for run in runs for file in run]
    if not files:
        return None
    if len(runs) > 1 or files[0][0] != max_level:
        return [name for _, name in files], False
    found = [name for _, name in files if rewrite_all or name in expired or name in vectors]
    return (found, True) if found else None
