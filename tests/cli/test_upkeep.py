"""The command expire, as people and programs see it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support import kept
from tests.support.command import run
from tests.support.evolve import set_options
from tests.support.small_table import SmallTable


@pytest.fixture
def table(tmp_path: Path) -> SmallTable:
    """Snapshots 1 to 6."""
    table = SmallTable(tmp_path)
    for number in range(3):
        table.write({number: number})
        table.maintain()
    return table


def test_json_has_every_member(table: SmallTable) -> None:
    dry = json.loads(run("expire", table.path, "--retain-min", 2, "--time-retained", "0s", "--dry-run", "--json").stdout)
    assert table.store.snapshot_ids() == (1, 2, 3, 4, 5, 6)
    done = json.loads(run("expire", table.path, "--retain-min", 2, "--time-retained", "0s", "--json").stdout)
    assert done | {"deleted": None, "found": done["deleted"]} == dry
    assert list(done) == ["version", "table", "snapshots", "deleted", "found", "bytes", "earliest", "latest", "consumers", "skipped"]
    assert (done["version"], done["table"], done["snapshots"]) == (1, table.path, [1, 2, 3, 4])
    assert done["found"] is None and done["consumers"] == done["skipped"] == []
    assert (done["earliest"], done["latest"]) == (5, 6)
    assert f"snapshot/snapshot-{1}" in done["deleted"]
    assert not any(Path(table.path, path).exists() for path in done["deleted"])


def test_people_see_how_many_files_of_each_kind_went(table: SmallTable) -> None:
    shown = run("expire", table.path, "--retain-min", 1, "--time-retained", "0s", "--max", 2, "--dry-run")
    assert shown.exit_code == 0
    assert "snapshots 1 to 2 would expire with" in shown.stdout
    shown = run("expire", table.path, "--retain-max", 4, "--retain-min", 1)
    assert "snapshots 1 to 2 expired with" in shown.stdout and "kept: 3 to 6" in shown.stdout
    words = [line.split() for line in shown.stdout.splitlines()]
    assert ["snapshots", "2"] in words and any(line[:1] == ["manifests"] for line in words)
    assert "nothing to expire" in run("expire", table.path, "--retain-max", 4, "--retain-min", 1).stdout


def test_options_of_the_call_and_of_the_command_line(table: SmallTable) -> None:
    assert run("expire", table.path, "--option", "snapshot.num-retained.min=1", "--option", "snapshot.num-retained.max=5").exit_code == 0
    assert table.store.snapshot_ids() == (2, 3, 4, 5, 6)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--retain-max", "2"], "snapshot.num-retained.min"),
        (["--retain-min", "0"], "at least 1 snapshot"),
        (["--time-retained", "soon"], "'soon' is not a duration"),
        (["--max", "-1"], "snapshots to expire cannot be below zero"),
    ],
)
def test_what_makes_no_sense_is_a_usage_error(table: SmallTable, words: list[str], says: str) -> None:
    result = run("expire", table.path, *words)
    assert result.exit_code == 2
    assert says in result.stderr
    assert table.store.snapshot_ids() == (1, 2, 3, 4, 5, 6)


def test_a_refused_table_is_named(table: SmallTable) -> None:
    set_options(table.path, **{"changelog.time-retained": "1 d"})
    result = run("expire", table.path)
    assert result.exit_code == 7
    assert table.path in result.stderr and "changelog.time-retained" in result.stderr


def test_what_stays_because_it_cannot_be_read_is_said_on_stderr(table: SmallTable) -> None:
    kept.make_tag(table.path, "t", 2)
    Path(table.path, "manifest", table.store.snapshot(2).base_manifest_list).unlink()
    result = run("expire", table.path, "--retain-min", 1, "--time-retained", "0s", "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["skipped"]
    assert "snapshot 2 of a tag or branch cannot be read" in result.stderr
