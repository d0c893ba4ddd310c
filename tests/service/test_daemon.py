"""The daemon as a process: what it maintains, what it survives, how it ends and what it says."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from maintainer.service.configuration import Configuration
from maintainer.service.daemon import LOOK_SECONDS, STORE_THREADS, Daemon
from maintainer.service.watch import RESOLVE_EVERY
from tests.support.daemons import RunningDaemon, eventually
from tests.support.evolve import set_options
from tests.support.s3 import Bucket, s3_bucket  # noqa: F401
from tests.support.small_table import SmallTable
from tests.support.warehouses import deny, some_rows, table_in


def is_covered(table: SmallTable) -> bool:
    coverage = table.table.coverage()
    return coverage.visible_ratio == 1.0 and all(one.ratio == 1.0 for one in coverage.definitions)


def named(*tables: SmallTable | str | Path) -> dict[str, Any]:
    return {"tables": [{"uri": each.path if isinstance(each, SmallTable) else str(each)} for each in tables]}


def in_warehouse(path: Path, **more: Any) -> dict[str, Any]:
    return {"warehouses": [{"uri": str(path), **more}]}


@dataclass(frozen=True)
class Shared:
    """A daemon that most tests use, each with tables of its own in databases of its own."""

    daemon: RunningDaemon
    warehouse: Path
    denied: Path
    later: Path

    def table(self, database: str, **options: Any) -> SmallTable:
        return table_in(self.warehouse, database, **options)

    def errors(self, table: SmallTable) -> list[dict[str, Any]]:
        return self.daemon.events(level="error", table=table.path)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    path = tmp_path_factory.mktemp("shared")
    denied, later = path / "wh2" / "denied.db" / "t", path / "wh2" / "later.db" / "t"
    deny(denied)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # nobody listens
        options = {
            "endpoint_url": f"http://127.0.0.1:{unused.getsockname()[1]}",
            "key": "access",
            "secret": "very-secret-secret",
            "config_kwargs": {"retries": {"max_attempts": 1}, "connect_timeout": 1},
        }
        tables = [{"uri": str(denied)}, {"uri": str(later)}, {"uri": "s3://bucket/db.db/t", "storage-options": options}]
        warehouses = [{"uri": "s3://bucket/wh", "storage-options": options}, {"uri": str(path / "wh"), "exclude": ["no.*"]}]
        with RunningDaemon(path, {"tables": tables, "warehouses": warehouses, "memory": "512 mb"}) as daemon:
            yield Shared(daemon, path / "wh", denied, later)
            assert daemon.stop() == 0
    assert daemon.output == ""
    assert daemon.events("service.stopping")
    assert daemon.events()[-1]["event"] == "service.stopped"


def test_a_table_that_is_named_may_come_later_and_get_an_index(shared: Shared):
    missing = shared.daemon.wait_for("table.failed", table=str(shared.later), exit_code=2)
    assert "not a Paimon table" in missing["error"]
    table = table_in(shared.later.parent.parent, "later", indexes=False)
    table.write(some_rows(0))
    eventually(lambda: is_covered(table))
    set_options(table.path, **{"pk-btree.index.columns": "v"})
    eventually(lambda: len(table.table.coverage().definitions) == 1 and is_covered(table))


def test_what_writers_append_becomes_visible_and_covered_and_then_nothing_is_done(shared: Shared):
    table = shared.table("appended")
    for first in (0, 5, 30):
        table.write(some_rows(first, value=first), delete=[first + 1] if first else [])
        eventually(lambda: is_covered(table))
        table.check()
    shared.daemon.wait_for("pass.finished", table=table.path, snapshot_after=6)
    passes = len(shared.daemon.events("pass.finished", table=table.path))
    time.sleep(0.15 * RESOLVE_EVERY)
    assert len(shared.daemon.events("pass.finished", table=table.path)) == passes
    assert table.store.latest_snapshot_id() == 6
    assert shared.daemon.events("table.changed", table=table.path, change="new snapshot")
    assert not shared.errors(table)


def test_every_line_is_an_event_with_its_time_in_utc(shared: Shared):
    started = shared.daemon.wait_for("service.started")
    assert (started["memory"], started["level"], started["tables"]) == ("512 mb", "info", 3)
    for event in shared.daemon.events():
        assert datetime.fromisoformat(event["timestamp"]).utcoffset() == timedelta(0)
        assert event["level"] in ("info", "warning", "error")


def test_tables_come_and_go(shared: Shared):
    table, excluded = shared.table("new"), shared.table("no")
    for each in (table, excluded):
        each.write(some_rows(0))
    shared.daemon.wait_for("table.found", table=table.path, named=False)
    eventually(lambda: is_covered(table))
    shutil.rmtree(table.path)
    shared.daemon.wait_for("table.forgotten", table=table.path)
    again = SmallTable(Path(table.path).parent, indexes=True)
    again.write(some_rows(100))
    shared.daemon.wait_for("table.found", count=2, table=table.path)
    eventually(lambda: is_covered(again))
    again.check()
    assert not is_covered(excluded)
    assert not shared.errors(table)


def test_a_table_made_again_at_once_is_followed_anew(shared: Shared):
    table = shared.table("again")
    table.write(some_rows(0))
    eventually(lambda: is_covered(table))
    shutil.rmtree(table.path)
    again = SmallTable(Path(table.path).parent, indexes=True, bucket="2")
    for first in (0, 5, 100):
        again.write(some_rows(first))
    eventually(lambda: is_covered(again))
    again.check()


def test_a_bad_table_or_store_does_not_keep_others_from_their_passes(shared: Shared):
    daemon, good = shared.daemon, shared.table("good")
    other = SmallTable(shared.warehouse.parent, indexes=True)
    other.write(some_rows(0))
    manifest = next(Path(other.path, "manifest").glob("manifest-list-*"))
    manifest.write_bytes(manifest.read_bytes()[:20])
    corrupt = shared.warehouse / "corrupt.db" / "t"
    corrupt.parent.mkdir()
    Path(other.path).rename(corrupt)
    for first in (0, 5, 30):
        good.write(some_rows(first, value=first))
        eventually(lambda: is_covered(good))
    assert daemon.wait_for("table.failed", count=3, table=str(shared.denied), exit_code=5)["failures"] == 3
    assert daemon.wait_for("table.failed", table="s3://bucket/db.db/t", exit_code=5)["retry_in"] > 0
    assert daemon.wait_for("warehouse.failed", warehouse="s3://bucket/wh", exit_code=5)["retry_in"] > 0
    damaged = daemon.wait_for("table.failed", table=str(corrupt), exit_code=3)
    assert manifest.name in damaged["error"]
    time.sleep(0.5)
    assert len(daemon.events("table.failed", table=str(corrupt))) == 1  # told of once, although it is tried again
    assert {event["level"] for event in daemon.events("table.failed")} == {"error"}
    assert not any("very-secret-secret" in line for line in daemon.lines)
    assert not shared.errors(good)
    good.check()


def test_a_table_that_is_mended_recovers(shared: Shared):
    table = shared.table("mended")
    table.write(some_rows(0))
    eventually(lambda: is_covered(table))
    snapshots, kept = Path(table.path, "snapshot"), Path(table.path, "kept")
    shared.daemon.wait_for("pass.finished", table=table.path)
    snapshots.rename(kept)
    deny(snapshots)
    shared.daemon.wait_for("table.failed", count=2, table=table.path, exit_code=5)
    snapshots.unlink()
    kept.rename(snapshots)
    assert shared.daemon.wait_for("table.recovered", table=table.path)["failures"] >= 2
    table.write(some_rows(9))
    eventually(lambda: is_covered(table))
    table.check()


def test_a_table_that_is_refused_is_told_of_once_and_taken_when_its_schema_allows(shared: Shared):
    other = SmallTable(shared.warehouse.parent, indexes=True)
    set_options(other.path, **{"sequence.snapshot-ordering": "true"})
    place = shared.warehouse / "refused.db"
    place.mkdir(parents=True)
    Path(other.path).rename(place / "t")
    refused = str(place / "t")
    skipped = shared.daemon.wait_for("table.skipped", table=refused)
    time.sleep(1)
    assert (skipped["exit_code"], skipped["level"]) == (7, "warning")
    assert "snapshot-ordering" in skipped["error"]
    assert len(shared.daemon.events("table.skipped", table=refused)) == 1
    set_options(refused, **{"sequence.snapshot-ordering": None})
    shared.daemon.wait_for("table.recovered", table=refused)
    assert not shared.daemon.events("pass.finished", table=refused, outcome="failed")


RETENTION = {"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "2", "snapshot.time-retained": "1 ms"}


def test_snapshots_expire_unless_this_is_switched_off(shared: Shared):
    expiring, keeping = shared.table("expiring", **RETENTION), shared.table("keeping", **RETENTION, **{"maintain.expire": "false"})
    for number in range(4):
        expiring.write(some_rows(number))
        keeping.write(some_rows(number))
    shared.daemon.wait_for("expire.finished", table=expiring.path)
    eventually(lambda: is_covered(expiring) and len(expiring.store.snapshot_ids()) <= 3)
    eventually(lambda: is_covered(keeping))
    assert keeping.store.snapshot_ids()[0] == 1
    assert not shared.daemon.events("expire.finished", table=keeping.path)
    expiring.check()


def test_a_store_that_never_answers_costs_only_its_own_tables_and_no_time_at_the_end(tmp_path: Path):
    good = table_in(tmp_path / "wh")
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(100)  # takes connections, and says nothing
        options = {"endpoint_url": f"http://127.0.0.1:{silent.getsockname()[1]}", "key": "k", "secret": "s"}
        hanging = [{"uri": f"s3://bucket/db.db/t{number}", "storage-options": options} for number in range(STORE_THREADS + 4)]
        warehouses = [{"uri": "s3://other/wh", "storage-options": options}, {"uri": str(tmp_path / "wh")}]
        with RunningDaemon(tmp_path, {"tables": hanging, "warehouses": warehouses}) as daemon:
            for first in (0, 5):
                good.write(some_rows(first))
                eventually(lambda: is_covered(good))
            started = time.monotonic()
            assert daemon.stop() == 0
            assert time.monotonic() - started < LOOK_SECONDS + 3
    abandoned = daemon.events("service.stopped")[0]["abandoned"]
    assert len([uri for uri in abandoned if uri.startswith("s3://bucket/")]) == STORE_THREADS
    good.check()


def test_a_warehouse_that_never_answers_takes_no_time_at_the_end(tmp_path: Path):
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(100)
        options = {"endpoint_url": f"http://127.0.0.1:{silent.getsockname()[1]}", "key": "k", "secret": "s"}
        with RunningDaemon(tmp_path, {"warehouses": [{"uri": "s3://other/wh", "storage-options": options}]}) as daemon:
            daemon.wait_for("service.started")
            silent.accept()
            started = time.monotonic()
            assert daemon.stop() == 0
            assert time.monotonic() - started < LOOK_SECONDS + 3
    assert daemon.events("service.stopped")[0]["abandoned"] == ["s3://other/wh"]


def large_table(directory: Path) -> SmallTable:
    """Work for a while: 16 buckets."""
    table = table_in(directory, bucket="16")
    count = 100_000
    with table.table.writer() as writer:
        ids = pa.array(range(count), pa.int32())
        values = pa.array([(key * 7919) % count for key in range(count)], pa.int64())
        texts = pa.array([f"text {key % 5000}" for key in range(count)])
        writer.write(pa.table([ids, values, texts], names=["id", "v", "s"]))
    return table


def test_a_signal_during_a_pass_ends_it_soon_and_soundly(tmp_path: Path):
    table = large_table(tmp_path / "wh")
    with RunningDaemon(tmp_path, named(table)) as daemon:
        daemon.wait_for("work.started", count=3)
        started = time.monotonic()
        assert daemon.stop() == 0
        assert time.monotonic() - started < 15
    assert daemon.events("service.stopping", signal="SIGTERM", running=[table.path])
    assert daemon.events("service.stopped", abandoned=[])
    assert daemon.events("pass.finished", reason="stopped")
    assert table.table.verify().ok
    assert not is_covered(table)
    files = {path.name for path in Path(table.path).glob("bucket-*/*.parquet")}
    assert files == before_of(table)
    table.maintain()
    assert is_covered(table)
    assert table.table.verify().ok


def before_of(table: SmallTable) -> set[str]:
    """Data files of earlier snapshots, which are not expired yet."""
    from maintainer.table.state import load_state

    return {file.file_name for number in table.store.snapshot_ids() for file in load_state(table.store, table.store.snapshot(number)).files()}


@pytest.mark.parametrize(("first", "second", "code"), [(signal.SIGTERM, signal.SIGINT, 130), (signal.SIGINT, signal.SIGTERM, 143)])
def test_a_second_signal_ends_it_at_once(first: signal.Signals, second: signal.Signals, code: int):
    program = """if True:
        import time
        from maintainer.service.signals import Signals
        signals = Signals()
        print("ready", flush=True)
        print(signals.wait(60), flush=True)
        time.sleep(60)  # a pass that takes its time to end
    """
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(first)
        assert process.stdout.readline() == f"{first.name}\n"
        process.send_signal(second)
        assert process.wait(30) == code


def test_two_daemons_on_one_table(tmp_path: Path):
    table = table_in(tmp_path / "wh")
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    with RunningDaemon(first, named(table)) as one, RunningDaemon(second, named(table)) as other:
        one.wait_for("table.found")
        other.wait_for("table.found")
        for number in range(12):
            table.write(some_rows(number * 3, value=number))
            time.sleep(0.05)
        eventually(lambda: is_covered(table))
        assert (one.stop(), other.stop()) == (0, 0)
    assert not one.events(level="error")
    assert not other.events(level="error")
    table.check()


def test_console_events_without_colours_and_ctrl_c(tmp_path: Path):
    table = table_in(tmp_path / "wh")
    configuration = {**named(table), "log": {"format": "console", "level": "warning"}}
    with RunningDaemon(tmp_path, configuration, MAINTAINER_LOG_LEVEL="info") as daemon:
        eventually(lambda: any("table.found" in line for line in daemon.lines))
        daemon.signal(signal.SIGINT)
        assert daemon.wait() == 0
    assert not any("\x1b" in line for line in daemon.lines)
    assert all(line[:4].isdigit() for line in daemon.lines)


def test_on_s3(tmp_path: Path, s3_bucket: Bucket):  # noqa: F811
    import maintainer

    options = {"bucket": "1", "deletion-vectors.enabled": "true", "pk-btree.index.columns": "v", "publish.verify-delay": "0"}
    schema = {"fields": [{"name": "id", "type": "INT"}, {"name": "v", "type": "BIGINT"}], "primaryKeys": ["id"], "options": options}
    table = maintainer.create_table(s3_bucket.place("wh/db.db/t"), schema, storage_options=s3_bucket.storage_options)
    entry = {"uri": s3_bucket.place("wh"), "storage-options": s3_bucket.storage_options}
    with RunningDaemon(tmp_path, {"warehouses": [entry]}) as daemon:
        with table.writer() as writer:
            writer.write(pa.table({"id": pa.array([1, 2, 3], pa.int32()), "v": pa.array([1, 2, 3], pa.int64())}))
        eventually(lambda: table.coverage().visible_ratio == 1.0 and table.coverage().definitions[0].ratio == 1.0)
        assert daemon.stop() == 0
    assert table.scan().to_arrow().num_rows == 3
    assert not daemon.events(level="error")


def test_a_clock_that_is_set_back_does_not_stop_the_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    daemon = Daemon(Configuration.model_validate({"tables": [{"uri": str(tmp_path / "t")}]}))
    daemon._scheduler.start(paused=True)
    daemon._add_job("store", print, [], 1, 5.0, 0.0, "table")
    ahead = datetime.now(UTC) + timedelta(hours=1)
    daemon._scheduler.modify_job("table", next_run_time=ahead)
    daemon._follow_the_clock()
    assert daemon._scheduler.get_job("table").next_run_time == ahead
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now - 3600)
    daemon._follow_the_clock()
    assert daemon._scheduler.get_job("table").next_run_time < ahead - timedelta(minutes=50)
    daemon._scheduler.shutdown()
