"""Options and hypothesis profiles of the suite, and the closing word on the peers.

`--long` runs the tests marked long and raises the counts of campaigns (`tests.support.campaign`).
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from typing import Any

import pytest
import structlog
from hypothesis import HealthCheck, settings

from tests.support import campaign, peers
from tests.support.s3 import s3_bucket  # noqa: F401  (a fixture)

settings.register_profile("short", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("long", max_examples=1000, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])

_asked_by_workers: Counter[str] = Counter()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="run the long campaigns with their full counts")
    parser.addoption("--rewrite", action="store_true", help="write expected answers anew where they are text files")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--long"):
        os.environ[campaign.VARIABLE] = "1"
    settings.load_profile("long" if campaign.is_long() else "short")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What is marked long does not belong to the ordinary suite; the number of them is printed as deselected."""
    long = [item for item in items if item.get_closest_marker("long")]
    if long and not campaign.is_long():
        items[:] = [item for item in items if item not in set(long)]
        config.hook.pytest_deselected(items=long)


@pytest.fixture(autouse=True)
def all_events_are_logged() -> None:
    """Tests look at events of every level; commands that run in this process, and the library itself, would leave warnings only."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(0), logger_factory=lambda *_: structlog.PrintLogger(sys.stderr))


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["peers"] = dict(peers.asked)
        session.config.workeroutput["campaigns"] = campaign.COUNTS


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    said = getattr(node, "workeroutput", {})
    _asked_by_workers.update(said.get("peers", {}))
    campaign.COUNTS.update(said.get("campaigns", {}))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What the campaigns counted; which peers took part and how often they were asked, or why not."""
    if campaign.COUNTS:
        terminalreporter.section("campaigns")
        for name, (count, full) in sorted(campaign.COUNTS.items()):
            terminalreporter.write_line(f"{name:50} {count} of {full}")
    asked = peers.asked + _asked_by_workers
    terminalreporter.section("peers")
    for name in peers.NAMES:
        reason = peers.absent(name)
        state = f"absent: {reason}" if reason else f"{peers.version(name)}, asked {asked[name]} times"
        terminalreporter.write_line(f"{name:14} {state}")
