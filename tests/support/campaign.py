"""How much work a campaign does: a fixed share in the ordinary suite, all of it with `--long`."""

from __future__ import annotations

import os

VARIABLE = "MAINTAINER_TEST_LONG"
"""Set by `--long`, so that worker processes know it too."""


def is_long() -> bool:
    return os.environ.get(VARIABLE) == "1"


def count(short: int, long: int) -> int:
    """The number of rounds, seeds or steps to run."""
    return long if is_long() else short
