"""Deletion vectors that are switched on for a table with overlapping levels (spec 04 §7.2): who looks is told what to do, passes leave the
bucket alone until somebody asks for a full compaction, and the rows are right before, meanwhile, and after."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.peers import readers
from tests.support.command import run
from tests.support.crashes import visible
from tests.support.evolve import set_options
from tests.support.small_table import SmallTable

ENGINES: Mapping[str, Mapping[str, str]] = {
    "deduplicate": {},
    "partial-update": {"merge-engine": "partial-update", "partial-update.remove-record-on-delete": "true"},
    "aggregation": {"merge-engine": "aggregation", "fields.default-aggregate-function": "last_non_null_value"},
}


@pytest.fixture(params=ENGINES)
def table(request: pytest.FixtureRequest, tmp_path: Path) -> SmallTable:
    """Levels 5 and 4, of which the second has newer rows for some keys of the first, in a table that has deletion vectors by now."""
    options = {"deletion-vectors.enabled": "false", "compaction.force-up-level-0": "true"}
    table = SmallTable(tmp_path / "db.db", **options, **ENGINES[request.param])
    table.write({key: key for key in range(2000)})
    table.maintain(full=True)
    table.write({key: -key for key in range(0, 2000, 50)})
    table.maintain()
    assert [level for level, _, _ in table.files()] == [4, 5]
    set_options(table.path, **{"deletion-vectors.enabled": "true"})
    return table


def test_it_is_held_until_it_is_compacted_in_full(table: SmallTable) -> None:
    as_it_was = dict(table.rows)
    assert visible(table.path) == as_it_was
    doctor = documented("doctor", table.path)
    (finding,) = [one for one in doctor["findings"] if one["what"] == "deletion-vectors.enabled was set later"]
    assert "--full" in finding["do"]

    table.write(dict.fromkeys(range(0, 2000, 40), 7))
    assert visible(table.path) == as_it_was
    planned = documented("plan", table.path)
    (held,) = planned["held"]
    assert planned["work"] == [] and "--full" in held["reason"] and (held["partition"], held["bucket"]) == ({}, 0)
    assert held["reason"] in " ".join(run("plan", table.path).stdout.split())
    report = table.maintain()
    assert report.outcome == "nothing" and "--full" in str(report.reason)
    assert visible(table.path) == as_it_was

    assert documented("plan", table.path, "--full")["held"] == []
    assert run("compact", table.path, "--full").exit_code == 0
    table.check()
    if not readers.JAVA_ABSENT:
        assert readers.java_rows(Path(table.path)) == readers.bag([key, *values] for key, values in table.rows.items())
    assert table.maintain().outcome == "nothing"
    assert documented("plan", table.path)["held"] == []

    table.write(dict.fromkeys(range(0, 2000, 30), 8))
    table.maintain()
    table.check()


@pytest.mark.parametrize("options", ENGINES.values(), ids=ENGINES)
def test_level_0_files_of_before_are_compacted_as_ever(options: Mapping[str, str], tmp_path: Path) -> None:
    """They mark what they replace when they are compacted, so the bucket does not have to wait for a full compaction."""
    table = SmallTable(tmp_path / "db.db", **{"deletion-vectors.enabled": "false"}, **options)
    table.write({key: key for key in range(200)})
    table.maintain(full=True)
    table.write({key: -key for key in range(0, 200, 50)})
    set_options(table.path, **{"deletion-vectors.enabled": "true"})
    assert table.maintain().outcome == "committed"
    assert [level for level, _, _ in table.files()] == [4, 5]
    assert documented("plan", table.path)["held"] == []
    table.check()
    table.write({1: 1})
    assert table.maintain().outcome == "committed"
    table.check()


def documented(*words: str) -> Any:
    done = run(*words, "--json")
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)
