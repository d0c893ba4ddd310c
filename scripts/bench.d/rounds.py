"""What all measurements share: processes of their own, CPU seconds, and the best of some rounds."""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROUNDS = 5
COMMAND = str(Path(sys.executable).with_name("maintainer"))
CHILD = [sys.executable, str(Path(__file__).with_name("measure.py")), "--child"]

Measurement = tuple[str, float, str, float | None, bool]
"""name, value, unit, versus, whether `versus` is a limit."""


def run(command: list[str]) -> tuple[str, float]:
    """What a command says last, and the CPU seconds of its process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stderr}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return done.stdout.splitlines()[-1], after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def best_wall(command: Callable[[], list[str]], rounds: int = ROUNDS) -> float:
    """The best wall-clock time of some rounds of a command, after one that warms the caches."""
    subprocess.run([COMMAND, "--help"], check=True, capture_output=True)
    times = []
    for _ in range(rounds):
        words = command()
        start = time.perf_counter()
        subprocess.run(words, check=True, capture_output=True)
        times.append(time.perf_counter() - start)
    return min(times)


def peak_memory() -> int:
    """The most bytes that this process ever had."""
    found = re.search(r"VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text()) if os.path.exists("/proc/self/status") else None
    return 1024 * int(found[1]) if found else 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
