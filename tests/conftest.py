"""Options, hypothesis profiles and the peers of the suite.

`--long` runs the tests marked long and raises the counts of campaigns (`tests.support.campaign`). A test that asks for one of the fixtures
`pypaimon`, `pypaimon_rust` or `java` is skipped, with the reason, where that peer is missing; the closing summary counts what ran.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from types import ModuleType

import pytest
from hypothesis import HealthCheck, settings

from tests.support import campaign, peers

settings.register_profile("short", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("long", max_examples=1000, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="run the long campaigns with their full counts")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--long"):
        os.environ[campaign.VARIABLE] = "1"
    settings.load_profile("long" if campaign.is_long() else "short")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not campaign.is_long():
        for item in items:
            if item.get_closest_marker("long"):
                item.add_marker(pytest.mark.skip(reason="a long campaign; run it with --long"))


@pytest.fixture
def pypaimon(record_property: Callable[[str, object], None]) -> ModuleType:
    """The Python peer, `pypaimon`."""
    return _module("pypaimon", record_property)


@pytest.fixture
def pypaimon_rust(record_property: Callable[[str, object], None]) -> ModuleType:
    """The Rust peer's Python package, `pypaimon_rust`."""
    return _module("pypaimon_rust", record_property)


@pytest.fixture
def java(record_property: Callable[[str, object], None]) -> peers.Java:
    """Released Java Paimon as a command."""
    record_property("peer", "java")
    if reason := peers.java_missing():
        pytest.skip(reason)
    return peers.Java()


def _module(name: str, record_property: Callable[[str, object], None]) -> ModuleType:
    record_property("peer", name)
    if reason := peers.module_missing(name):
        pytest.skip(reason)
    return peers.module(name)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Which peers took part, in how many tests; a missing one with its reason."""
    ran: Counter[str] = Counter()
    asked: Counter[str] = Counter()
    for outcome in ("passed", "failed", "error", "skipped"):
        for report in terminalreporter.stats.get(outcome, []):
            for key, value in getattr(report, "user_properties", []):
                if key == "peer":
                    asked[value] += 1
                    ran[value] += outcome in ("passed", "failed")
    if not asked:
        return
    terminalreporter.section("peers")
    for name in peers.NAMES:
        missing = peers.missing(name)
        state = f"absent: {missing}" if missing else peers.version(name)
        terminalreporter.write_line(f"{name:14} {state:40} {ran[name]} of {asked[name]} tests ran")
