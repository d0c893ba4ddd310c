"""Others at work on the same table at the same time: no row is lost, no key is there twice, nobody fails, and all is covered at the end."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import maintainer
from maintainer.api.maintenance import run_pass
from maintainer.commit.committer import Committer
from maintainer.errors import CommitConflict, MissingFile
from maintainer.table.opening import open_store
from tests.peers import readers
from tests.support import crashes
from tests.support.campaign import share
from tests.support.consumer import followed
from tests.support.racers import PATIENT
from tests.support.small_table import SmallTable, arrow_of
from tests.support.striking_storage import files_below, named_by, referenced

SECONDS = share("races of processes: seconds each", short=2, long=60)
ROOT = Path(__file__).parents[2]
SMALL_STEPS = {"manifest.merge-min-count": "4", "target-file-size": "4 kb", "num-sorted-run.compaction-trigger": "3"}


def race(table: SmallTable, *roles: str, beside: Sequence[str] = ()) -> dict[str, str]:
    """Runs processes, by role and seed; what each printed. `beside`: a command of another kind that takes part."""
    started, seconds = {}, SECONDS
    if beside:
        seconds += 3  # it may take a while to start
        started["beside"] = subprocess.Popen(beside, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    for role in roles:
        words = [sys.executable, "-m", "tests.support.racers", role.rstrip("0123456789"), table.path, str(seconds), role[-1]]
        started[role] = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    ended = {role: (*process.communicate(timeout=SECONDS + 120), process.returncode) for role, process in started.items()}
    for role, (_, errors, code) in ended.items():
        assert code == 0, f"{role} ended with {code}:\n{errors}"
    return {role: output for role, (output, _, _) in ended.items()}


def rows_of(outputs: Mapping[str, str]) -> dict[int, Any]:
    """What the writers say that is live."""
    written = [json.loads(output.splitlines()[-1]) for role, output in outputs.items() if role.startswith("writer")]
    return {int(key): (value, f"s{value % 7}") for rows in written for key, value in rows.items()}


def check(table: SmallTable) -> readers.Rows:
    """After one more pass everything is there, by every reader, and nothing that a snapshot needs is missing."""
    assert table.maintain().outcome in ("committed", "nothing")
    table.check()
    assert referenced(open_store(table.path)) <= files_below(table.path)
    expected = readers.bag([key, *values] for key, values in table.rows.items())
    if not readers.PYPAIMON_ABSENT:
        assert readers.pypaimon_rows(Path(table.path), table.table.schema) == expected
    if not readers.RUST_ABSENT:
        assert readers.rust_rows(Path(table.path), table.table.schema) == expected
    return expected


@pytest.mark.parametrize("options", [pytest.param({}, marks=pytest.mark.long, id="defaults"), pytest.param(SMALL_STEPS, id="small steps")])
def test_two_maintainers_two_writers_and_a_reader(tmp_path: Path, options: dict[str, str]) -> None:
    table = SmallTable(tmp_path / "db.db", indexes=True, bucket="2", **options, **PATIENT)
    table.rows = rows_of(race(table, "writer0", "writer1", "maintainer2", "maintainer3", "reader4"))
    check(table)
    assert files_below(table.path) == referenced(table.store)


PLAIN = {"deletion-vectors.enabled": "false"}
CHANGELOGS = {"lookup": {**PLAIN, "changelog-producer": "lookup"}, "full-compaction": {**PLAIN, "changelog-producer": "full-compaction"}}


@pytest.mark.parametrize("options", CHANGELOGS.values(), ids=CHANGELOGS)
def test_a_changelog_of_two_maintainers(tmp_path: Path, options: dict[str, str]) -> None:
    """Each change is told once, whoever compacts it."""
    table = SmallTable(tmp_path / "db.db", bucket="2", **options, **PATIENT)
    table.rows = rows_of(race(table, "writer0", "writer1", "maintainer2", "maintainer3", "reader4"))
    check(table)
    assert {row["id"]: (row["v"], row["s"]) for row in followed(table.store)} == table.rows
    assert files_below(table.path) == referenced(table.store)


@pytest.mark.long
def test_an_aggregation_of_two_maintainers(tmp_path: Path) -> None:
    table = SmallTable(tmp_path / "db.db", bucket="2", **PLAIN, **crashes.AGGREGATION, **PATIENT)
    table.rows = rows_of(race(table, "writer0", "writer1", "maintainer2", "maintainer3", "reader4"))
    assert table.maintain().outcome in ("committed", "nothing")
    table.check()
    assert files_below(table.path) == referenced(table.store)


@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize("options", CHANGELOGS.values(), ids=CHANGELOGS)
def test_what_the_winner_told_the_loser_does_not_tell_again(tmp_path: Path, options: dict[str, str], full: bool) -> None:
    table = SmallTable(tmp_path, bucket="2", **options)
    table.write({key: key for key in range(100)})
    table.maintain()
    table.write({key: -key for key in range(0, 100, 3)}, delete=[7])
    done = []

    def meanwhile(name: str, fields: Mapping[str, Any]) -> None:
        if name == "work.started" and not done:
            done.append(name)
            run_pass(open_store(table.path), full=True)
            table.write({5: 55}, delete=[9])

    assert table.maintain(full=full, on_event=meanwhile).outcome == "committed"
    table.check()
    assert {row["id"]: (row["v"], row["s"]) for row in followed(table.store)} == table.rows
    assert files_below(table.path) == referenced(open_store(table.path))


def test_snapshots_that_expire_at_once(tmp_path: Path) -> None:
    """Whatever was read may be gone a moment later: that is a reason to look again, and no damage."""
    table = SmallTable(tmp_path / "db.db", indexes=True, bucket="2", **PATIENT)
    table.rows = rows_of(race(table, "writer0", "writer1", "maintainer2", "maintainer3", "reader4", "expirer5"))
    check(table)


def test_a_writer_that_renames_over_our_snapshots(tmp_path: Path) -> None:
    """With a delay that is longer than it takes between looking and renaming, nothing of ours is lost; its own rows may be."""
    table = SmallTable(tmp_path / "db.db", indexes=True, bucket="2", **{"publish.verify-delay": "50 ms"}, **PATIENT)
    rows = rows_of(race(table, "writer0", "writer1", "renamer2", "maintainer3", "reader4"))
    run_pass(table.store)
    found = table.table.scan().to_arrow().to_pydict()
    seen = dict(zip(found["id"], zip(found["v"], found["s"], strict=True), strict=True))
    assert {key: values for key, values in seen.items() if key % 4 < 2} == rows
    table.rows = seen
    check(table)


@pytest.mark.long
@pytest.mark.skipif(bool(readers.JAVA_ABSENT), reason=readers.JAVA_ABSENT or "")
def test_maintainers_beside_a_java_writer(tmp_path: Path) -> None:
    table = SmallTable(tmp_path / "db.db", indexes=True, bucket="2", **{"write-only": "true"})
    live = Path(readers.JAVA_PEER.parent, "live.sh")
    words = [str(live), table.path, str(SECONDS), "1", "--engine", "java", "--rate", "500", "--keys", "1000", "--delete-percent", "10"]
    race(table, "maintainer2", "maintainer3", beside=words)
    rows = [json.loads(line) for line in Path(f"{table.path}.live.jsonl").read_text().splitlines()]
    table.rows = {key: (value, text) for key, value, text in rows}
    expected = check(table)
    assert readers.java_rows(Path(table.path)) == expected


@pytest.mark.skipif(bool(readers.PYPAIMON_ABSENT), reason=readers.PYPAIMON_ABSENT or "")
def test_maintainers_beside_pypaimon_writers(tmp_path: Path) -> None:
    table = SmallTable(tmp_path / "db.db", indexes=True, bucket="2", **PATIENT)
    table.rows = rows_of(race(table, "writer0", "writer_of_pypaimon1", "writer_of_pypaimon2", "maintainer3", "reader4"))
    check(table)


@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize("when", ["pass.planned", "work.started"])
def test_inputs_that_were_compacted_and_expired_meanwhile(tmp_path: Path, when: str, full: bool) -> None:
    table = SmallTable(tmp_path, indexes=True, bucket="2")
    table.write({key: key for key in range(100)})
    table.maintain()
    table.write({key: -key for key in range(0, 100, 3)}, delete=[7])
    done = []

    def meanwhile(name: str, fields: Mapping[str, Any]) -> None:
        if name == when and not done:
            done.append(name)
            run_pass(open_store(table.path), full=True)
            table.write({5: 55})
            *old, latest = table.store.snapshot_ids()
            doomed = {path for number in old for path in named_by(table.store, table.store.snapshot(number))}
            for path in doomed - named_by(table.store, table.store.snapshot(latest)):
                Path(table.path, path).unlink()
            for number in old:
                Path(table.path, "snapshot", f"snapshot-{number}").unlink()

    assert table.maintain(full=full, on_event=meanwhile).outcome == "committed"
    table.check()
    assert files_below(table.path) == referenced(open_store(table.path))


class TestDroppedAndMadeAgain:
    """Another table at the same place, of which nothing may be known from the first one."""

    @pytest.fixture
    def old(self, tmp_path: Path) -> SmallTable:
        table = SmallTable(tmp_path, indexes=True)
        table.write({key: key for key in range(50)})
        table.maintain()
        table.write({1: 1})
        return table

    def again(self, old: SmallTable) -> maintainer.Table:
        shutil.rmtree(old.path)
        fields = [{"name": "w", "type": "STRING"}, {"name": "id", "type": "INT"}, {"name": "p", "type": "INT"}]
        options = {"bucket": "1", "deletion-vectors.enabled": "true", "pk-btree.index.columns": "w"}
        table = maintainer.create_table(old.path, {"fields": fields, "primaryKeys": ["p", "id"], "partitionKeys": ["p"], "options": options})
        with table.writer() as writer:
            writer.write(pa.Table.from_pylist([{"w": "a", "id": 1, "p": 1}]))
        return table

    def test_an_opened_table_sees_the_new_one(self, old: SmallTable) -> None:
        assert old.table.scan().to_arrow().num_rows == 50
        self.again(old)
        assert old.table.maintain().outcome == "committed"
        with old.table.writer() as writer:
            writer.write(pa.Table.from_pylist([{"w": "b", "id": 2, "p": 1}]))
        old.table.maintain()
        assert old.table.scan().to_arrow().to_pylist() == [{"w": "a", "id": 1, "p": 1}, {"w": "b", "id": 2, "p": 1}]
        assert old.table.verify(deep=True).ok

    def test_a_pass_under_way_starts_anew(self, old: SmallTable) -> None:
        made = []

        def meanwhile(name: str, fields: Mapping[str, Any]) -> None:
            if name == "pass.planned" and not made:
                made.append(self.again(old))

        assert run_pass(old.store, on_event=meanwhile).outcome == "committed"
        assert made[0].scan().to_arrow().to_pylist() == [{"w": "a", "id": 1, "p": 1}]
        assert files_below(old.path) == referenced(open_store(old.path))

    def test_a_pass_that_is_about_to_commit_starts_anew(self, old: SmallTable, monkeypatch: pytest.MonkeyPatch) -> None:
        made: list[maintainer.Table] = []
        commit = Committer.commit_results

        def commit_results(self: Committer, results: Any) -> Any:
            if not made:
                made.append(again(old))
            return commit(self, results)

        again = self.again
        monkeypatch.setattr(Committer, "commit_results", commit_results)
        assert run_pass(old.store).outcome == "committed"
        assert made[0].scan().to_arrow().to_pylist() == [{"w": "a", "id": 1, "p": 1}]
        assert files_below(old.path) == referenced(open_store(old.path))

    def test_a_writer_does_not_write_into_it(self, old: SmallTable) -> None:
        with pytest.raises(CommitConflict, match="another table was made in the place"), old.table.writer() as writer:
            writer.write(arrow_of({7: (7, "x")}))
            again = self.again(old)
            before = files_below(old.path)
        assert files_below(old.path) == before
        again.maintain()
        assert again.scan().to_arrow().num_rows == 1


def test_a_missing_input_of_the_latest_snapshot_is_damage_whoever_writes(tmp_path: Path) -> None:
    table = SmallTable(tmp_path)
    table.write({1: 1})
    name = table.file(0).file_name
    Path(table.path, "bucket-0", name).unlink()
    with pytest.raises(MissingFile, match=name):
        table.maintain(on_event=lambda name, fields: table.write({2: 2}) and None if name == "pass.planned" else None)
