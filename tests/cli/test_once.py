"""`once --config FILE`: one pass over all tables of a configuration, each with a fate of its own; and how `once` ends early."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

import maintainer
from maintainer.cli.passes import TERMINATED
from maintainer.cli.views import duration
from tests.support.command import run
from tests.support.evolve import set_options
from tests.support.s3 import Bucket, s3_bucket  # noqa: F401
from tests.support.small_table import SmallTable
from tests.support.warehouses import deny, table_in


def configured(path: Path, document: dict[str, Any]) -> Path:
    """A configuration file; JSON is YAML."""
    path.write_text(json.dumps(document))
    return path


@pytest.fixture(autouse=True)
def as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where events of this process go is not for one test to say."""
    monkeypatch.setattr("maintainer.service.events.log_events", lambda *arguments, **more: None)


def once(*words: str | Path) -> Result:
    return run("once", *words)


def passes_of(done: Result) -> dict[str, dict[str, Any]]:
    """The entries of the document, by the name of the table's database."""
    return {Path(each["table"]).parent.name.removesuffix(".db"): each for each in json.loads(done.stdout)["passes"]}


def filled(warehouse: Path, database: str, **options: str) -> SmallTable:
    table = table_in(warehouse, database, **options)
    table.write({key: key for key in range(50)})
    return table


def test_all_tables_of_a_warehouse_and_those_that_are_named(tmp_path: Path) -> None:
    tables = [filled(tmp_path / "wh", "a"), filled(tmp_path / "wh", "b"), filled(tmp_path / "elsewhere", "c")]
    excluded = filled(tmp_path / "wh", "left")
    document = {"warehouses": [{"uri": str(tmp_path / "wh"), "exclude": ["left.*"]}], "tables": [{"uri": tables[2].path}]}
    config = configured(tmp_path / "config.yaml", document)
    done = once("--config", config, "--json")
    assert done.exit_code == 0, done.stderr
    entries = passes_of(done)
    assert {name: entry["outcome"] for name, entry in entries.items()} == {"a": "committed", "b": "committed", "c": "committed"}
    for table in tables:
        table.check()
    assert excluded.store.latest_snapshot_id() == 1
    again = once("--config", config, "--json")
    assert {entry["outcome"] for entry in passes_of(again).values()} == {"nothing"}


def test_one_failing_table_does_not_keep_the_others_from_their_passes(tmp_path: Path) -> None:
    sound, broken = filled(tmp_path, "sound"), filled(tmp_path, "broken")
    for path in Path(broken.path, "manifest").iterdir():
        path.write_bytes(b"x")
    done = once("--config", configured(tmp_path / "config.yaml", {"warehouses": [{"uri": str(tmp_path)}]}), "--json")
    assert done.exit_code == 3
    entries = passes_of(done)
    assert (entries["broken"]["outcome"], entries["sound"]["outcome"]) == ("failed", "committed")
    assert broken.path in entries["broken"]["reason"]
    sound.check()


def test_what_was_only_discovered_and_is_none_for_us_is_no_failure(tmp_path: Path) -> None:
    filled(tmp_path, "sound")
    unsupported = filled(tmp_path, "unsupported")
    set_options(unsupported.path, **{"sequence.snapshot-ordering": "true"})
    found = {"warehouses": [{"uri": str(tmp_path)}]}
    done = once("--config", configured(tmp_path / "found.yaml", found), "--json")
    assert done.exit_code == 0, done.stderr
    entry = passes_of(done)["unsupported"]
    assert (entry["outcome"], entry["snapshot_after"]) == ("nothing", None)
    assert "sequence.snapshot-ordering = true" in entry["reason"]
    named = {**found, "tables": [{"uri": unsupported.path}]}
    done = once("--config", configured(tmp_path / "named.yaml", named), "--json")
    assert done.exit_code == 7
    entries = passes_of(done)
    assert (entries["unsupported"]["outcome"], entries["sound"]["outcome"]) == ("failed", "nothing")


def test_a_warehouse_that_cannot_be_looked_into_does_not_keep_others(tmp_path: Path) -> None:
    table = filled(tmp_path / "good", "a")
    deny(tmp_path / "denied")
    document = {"warehouses": [{"uri": str(tmp_path / "denied")}, {"uri": str(tmp_path / "good")}]}
    done = once("--config", configured(tmp_path / "config.yaml", document), "--json")
    assert done.exit_code == 5, done.stderr
    by_name = {Path(each["table"]).name: each["outcome"] for each in json.loads(done.stdout)["passes"]}
    assert by_name == {"t": "committed", "denied": "failed"}
    table.check()


class TestSettings:
    def test_options_come_from_the_table_and_before_it_from_the_command(self, tmp_path: Path) -> None:
        table, other = filled(tmp_path, "a"), filled(tmp_path, "b")
        document = {"warehouses": [{"uri": str(tmp_path), "options": {"maintain.rewrite-append": "false"}}]}
        config = configured(tmp_path / "config.yaml", document)
        assert once("--config", config, "--option", "file.compression=none").exit_code == 0
        assert [source for _, source, _ in table.files()] == ["APPEND"]
        other.write({1: 1})
        assert once("--config", config, "--option", "maintain.rewrite-append=true").exit_code == 0
        assert {source for _, source, _ in (*table.files(), *other.files())} == {"COMPACT"}

    def test_memory_and_spill(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """They reach the pass; a command's memory goes before that of the file."""
        filled(tmp_path, "a")
        given: list[dict[str, Any]] = []
        report = maintainer.Table.maintain

        def maintain(self: maintainer.Table, **request: Any) -> Any:
            given.append(request)
            return report(self, **request)

        monkeypatch.setattr(maintainer.Table, "maintain", maintain)
        spill = {"directory": str(tmp_path / "spill"), "limit": "1 gb"}
        config = configured(tmp_path / "config.yaml", {"warehouses": [{"uri": str(tmp_path)}], "memory": "200 mb", "spill": spill})
        for words in ([], ["--memory", "300mb", "--cache", str(tmp_path / "keys")]):
            assert once("--config", config, *words).exit_code == 0
        assert [each["memory"] for each in given] == [200 << 20, 300 << 20]
        assert [(each["spill"].directory, each["spill"].limit) for each in given] == [(str(tmp_path / "spill"), 1 << 30)] * 2
        assert given[0]["cache"] is None
        assert given[1]["cache"].directory == tmp_path / "keys"

    def test_events_go_to_stderr_as_the_configuration_says(self, tmp_path: Path) -> None:
        filled(tmp_path, "a")
        document = {"warehouses": [{"uri": str(tmp_path)}], "log": {"format": "json", "level": "info"}}
        words = [sys.executable, "-m", "maintainer", "once", "--config", configured(tmp_path / "c.yaml", document), "--json"]
        done = subprocess.run(words, capture_output=True, text=True)
        events = [json.loads(line)["event"] for line in done.stderr.splitlines()]
        assert (done.returncode, events[0], events[-1]) == (0, "pass.planned", "pass.finished")
        assert "pass.finished" not in done.stdout

    def test_a_log_in_json_is_json_throughout(self, tmp_path: Path) -> None:
        filled(tmp_path / "wh", "a")
        wrong = filled(tmp_path / "wh", "wrong")
        set_options(wrong.path, **{"snapshot.num-retained.max": "2"})
        deny(tmp_path / "denied")
        document = {
            "warehouses": [{"uri": str(tmp_path / "wh")}, {"uri": str(tmp_path / "denied")}],
            "tables": [{"uri": str(tmp_path / "none")}],
            "log": {"format": "json", "level": "warning"},
        }
        words = [sys.executable, "-m", "maintainer", "once", "--config", configured(tmp_path / "c.yaml", document), "--json"]
        done = subprocess.run(words, capture_output=True, text=True)
        events = {event["event"]: event for event in map(json.loads, done.stderr.splitlines())}
        assert {name: event["level"] for name, event in events.items()} == {
            "table.failed": "error",
            "expire.failed": "warning",
            "warehouse.failed": "error",
        }
        assert (events["table.failed"]["exit_code"], events["table.failed"]["table"]) == (2, str(tmp_path / "none"))
        assert events["warehouse.failed"]["warehouse"] == str(tmp_path / "denied")
        assert done.returncode == 5

    @pytest.mark.parametrize(
        "words",
        [["T"], ["--warehouse", "/wh"], ["--branch", "b"], ["--storage-option", "k=v"]],
    )
    def test_what_stands_in_the_configuration_is_refused_beside_it(self, tmp_path: Path, words: list[str]) -> None:
        config = configured(tmp_path / "config.yaml", {"warehouses": [{"uri": str(tmp_path)}]})
        result = once("--config", str(config), *words)
        assert result.exit_code == 2
        assert f"once --config does not go with {words[0] if words[0] != 'T' else 'TABLE'}" in result.stderr

    def test_neither_tables_nor_a_configuration(self) -> None:
        result = once()
        assert (result.exit_code, "--config FILE" in result.stderr) == (2, True)

    def test_a_configuration_that_is_wrong(self, tmp_path: Path) -> None:
        result = once("--config", str(configured(tmp_path / "c.yaml", {"tabels": []})))
        assert (result.exit_code, "did you mean tables?" in result.stderr) == (2, True)

    def test_a_warehouse_without_tables(self, tmp_path: Path) -> None:
        done = once("--config", configured(tmp_path / "c.yaml", {"warehouses": [{"uri": str(tmp_path)}]}), "--json")
        assert (done.exit_code, json.loads(done.stdout)["passes"]) == (0, [])
        shown = once("--config", tmp_path / "c.yaml").stdout
        assert f"{tmp_path}: there is no table to maintain: it holds no database <db>.db" in " ".join(shown.split())


RETENTION = {"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "2", "snapshot.expire.limit": "2"}


class TestExpiration:
    def old(self, warehouse: Path, **options: str) -> SmallTable:
        table = filled(warehouse, "a", **{**RETENTION, **options})
        for key in range(6):
            table.write({key: -key})
        return table

    def test_all_old_snapshots_go_after_the_pass(self, tmp_path: Path) -> None:
        """However many there are: a limit is for one commit of many."""
        table = self.old(tmp_path)
        config = configured(tmp_path / "c.yaml", {"warehouses": [{"uri": str(tmp_path)}]})
        (entry,) = passes_of(once("--config", config, "--json")).values()
        assert (entry["outcome"], entry["expired"]["snapshots"], entry["expired"]["error"]) == ("committed", 6, None)
        assert entry["expired"]["files"] > 0 and entry["expired"]["bytes"] > 0
        assert len(table.store.snapshot_ids()) == 2
        table.check()
        shown = once("--config", config)
        assert "expired" not in shown.stdout
        table.write({1: 1})
        assert "2 snapshots expired, " in once("--config", config).stdout

    def test_not_when_the_option_says_so(self, tmp_path: Path) -> None:
        table = self.old(tmp_path, **{"maintain.expire": "false"})
        (entry,) = passes_of(once("--config", configured(tmp_path / "c.yaml", {"warehouses": [{"uri": str(tmp_path)}]}), "--json")).values()
        assert entry["expired"] is None
        assert len(table.store.snapshot_ids()) == 8

    def test_not_for_tables_of_the_command_line(self, tmp_path: Path) -> None:
        table = self.old(tmp_path)
        (entry,) = passes_of(once(table.path, "--json")).values()
        assert (entry["outcome"], entry["expired"]) == ("committed", None)
        assert len(table.store.snapshot_ids()) == 8

    def test_a_failure_of_it_is_no_failure_of_the_pass(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.old(tmp_path)

        def expire(self: maintainer.Table) -> Any:
            raise maintainer.StorageError("denied")

        monkeypatch.setattr(maintainer.Table, "expire", expire)
        config = configured(tmp_path / "c.yaml", {"warehouses": [{"uri": str(tmp_path)}]})
        result = once("--config", str(config), "--json")
        (entry,) = json.loads(result.stdout)["passes"]
        assert (result.exit_code, entry["outcome"]) == (5, "committed")
        assert entry["expired"]["error"].endswith("denied")
        assert "snapshots were not expired" in result.stderr


def test_a_warehouse_on_s3(tmp_path: Path, s3_bucket: Bucket) -> None:  # noqa: F811
    import pyarrow as pa

    fields = [{"name": "id", "type": "INT"}, {"name": "v", "type": "BIGINT"}]
    options = {"bucket": "2", "deletion-vectors.enabled": "true", "pk-btree.index.columns": "v"}
    tables = []
    for name in ("one", "two"):
        definition = {"fields": fields, "primaryKeys": ["id"], "options": options}
        tables.append(maintainer.create_table(s3_bucket.place(f"wh/db.db/{name}"), definition, storage_options=s3_bucket.storage_options))
        with tables[-1].writer() as writer:
            writer.write(pa.table({"id": pa.array(range(50), pa.int32()), "v": pa.array(range(50), pa.int64())}))
    entry = {"uri": s3_bucket.place("wh"), "storage-options": s3_bucket.storage_options, "options": {"publish.verify-delay": "0 ms"}}
    done = once("--config", configured(tmp_path / "config.yaml", {"warehouses": [entry]}), "--json")
    assert done.exit_code == 0, done.stderr
    entries = json.loads(done.stdout)["passes"]
    assert [(each["table"], each["outcome"]) for each in entries] == [(table.store.uri, "committed") for table in tables]
    for table in tables:
        coverage = table.coverage()
        assert (coverage.rows, coverage.visible_ratio, coverage.definitions[0].ratio) == (50, 1.0, 1.0)
    assert s3_bucket.storage_options["secret"] == "test" or s3_bucket.storage_options["secret"] not in done.stderr


def test_a_failed_pass_shows_what_it_committed_before(tmp_path: Path) -> None:
    table = filled(tmp_path, "a", bucket="4")
    (lost,) = table.bucket(2).files
    Path(table.path, "bucket-2", lost.file_name).unlink()
    result = once(table.path, "--json")
    assert result.exit_code == 3
    (entry,) = json.loads(result.stdout)["passes"]
    assert (entry["outcome"], entry["snapshot_before"], entry["snapshot_after"]) == ("failed", 1, 2)
    assert (entry["input_files"], entry["groups_built"]) == (3, 6)
    assert lost.file_name in entry["reason"]
    table.write({key: -key for key in range(50)})
    shown = once(table.path)
    assert "snapshot 3 → 4\nfailed: this was committed before\nfiles 6 → 3" in shown.stdout
    assert shown.stderr.count("\n") == 1


def test_plan_shows_how_much_there_is_to_do(tmp_path: Path) -> None:
    table = filled(tmp_path, "a", bucket="3")
    document = json.loads(run("plan", table.path, "--json").stdout)
    assert document["estimated_bytes"] == sum(work["estimated_bytes"] for work in document["work"]) > 0
    assert document["estimated_memory"] == max(work["estimated_memory"] for work in document["work"])
    assert "3 buckets, " in run("plan", table.path).stdout


def test_sigterm_commits_what_is_finished(tmp_path: Path) -> None:
    table = filled(tmp_path, "a", bucket="40")
    other = filled(tmp_path, "b")
    program = (
        "import time\n"
        "from maintainer.api import round\n"
        "from maintainer.cli.main import main\n"
        "execute = round.execute\n"
        "round.execute = lambda *given: (time.sleep(0.1), execute(*given))[1]\n"
        "main()\n"
    )
    words = [sys.executable, "-c", program, "once", table.path, other.path, "--json", "--option", "maintain.commit-interval=0"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 30
    while table.store.latest_snapshot_id() == 1 and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == TERMINATED, errors
    (entry,) = json.loads(output)["passes"]
    assert (entry["outcome"], entry["reason"]) == ("committed", "stopped")
    assert 0 < entry["input_files"] < 40
    assert other.store.latest_snapshot_id() == 1
    assert table.table.verify(deep=True).ok


@pytest.mark.parametrize(("seconds", "text"), [(0, "0 s"), (59.4, "59 s"), (60, "1 min 0 s"), (3725, "1 h 2 min"), (90_000, "25 h 0 min")])
def test_times_that_are_left(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_a_terminal_shows_how_far_it_is(tmp_path: Path) -> None:
    table = filled(tmp_path, "a", bucket="8")
    program = (
        "import time\n"
        "from maintainer.api import round\n"
        "from maintainer.cli.main import main\n"
        "execute = round.execute\n"
        "round.execute = lambda *given: (time.sleep(0.5), execute(*given))[1]\n"
        "main()\n"
    )
    reader, terminal = pty.openpty()
    environment = {**os.environ, "COLUMNS": "200", "TERM": "xterm"}
    process = subprocess.Popen([sys.executable, "-c", program, "once", table.path], stdout=subprocess.PIPE, stderr=terminal, env=environment)
    os.close(terminal)
    shown = b""
    try:
        while piece := os.read(reader, 65536):
            shown += piece
    except OSError:  # the terminal's other end is gone
        pass
    os.close(reader)
    assert process.wait(60) == 0
    text = shown.decode()
    assert "maintaining" in text and "%" in text and " of " in text and "s left" in text
    assert b"committed: " in (process.stdout.read() if process.stdout else b"")
