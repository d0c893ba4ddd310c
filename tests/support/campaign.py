"""How much of a campaign runs: a fixed share in the ordinary suite, the full count with `--long`. The run's summary prints the counts."""

from __future__ import annotations

import os

VARIABLE = "MAINTAINER_TEST_LONG"
"""Set by `--long`, so that worker processes know it too."""

COUNTS: dict[str, tuple[int, int]] = {}
"""Campaign name -> (its count in this run, its count in a long run)."""


def is_long() -> bool:
    return os.environ.get(VARIABLE) == "1"


def share(name: str, *, short: int, long: int) -> int:
    """The number of rounds, seeds or steps of this campaign that run now."""
    count = long if is_long() else short
    COUNTS[name] = (count, long)
    return count
