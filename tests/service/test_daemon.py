"""The daemon as a process: what it maintains, what it survives, how it ends and what it says."""

from __future__ import annotations

import shutil
import signal
import socket
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

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


def test_what_writers_append_becomes_visible_and_covered(tmp_path: Path):
    table = table_in(tmp_path / "wh")
    with RunningDaemon(tmp_path, in_warehouse(tmp_path / "wh")) as daemon:
        for first in (0, 5, 30):
            table.write(some_rows(first, value=first), delete=[first + 1] if first else [])
            eventually(lambda: is_covered(table))
            table.check()
        assert daemon.stop() == 0
    assert daemon.output == ""
    started = daemon.events("service.started")[0]
    assert (started["memory"], started["level"]) == ("256 mb", "info")
    for event in daemon.events():
        assert datetime.fromisoformat(event["timestamp"]).utcoffset() is not None
        assert event["level"] in ("info", "warning", "error")
    assert [event["event"] for event in daemon.events()][-2:] == ["service.stopping", "service.stopped"]
    assert not daemon.events(level="error")
    assert daemon.events("table.changed", change="new snapshot")


def test_an_idle_table_gets_no_passes(tmp_path: Path):
    table = table_in(tmp_path / "wh")
    table.write(some_rows(0))
    with RunningDaemon(tmp_path, in_warehouse(tmp_path / "wh")) as daemon:
        daemon.wait_for("pass.finished")
        time.sleep(2)
        assert daemon.stop() == 0
    assert len(daemon.events("pass.finished")) == 1
    assert table.store.latest_snapshot_id() == 2


def test_tables_come_and_go(tmp_path: Path):
    with RunningDaemon(tmp_path, in_warehouse(tmp_path / "wh", exclude=["no.*"])) as daemon:
        daemon.wait_for("warehouse.listed", tables=0, level="warning")
        table = table_in(tmp_path / "wh", "new")
        other = table_in(tmp_path / "wh", "no")
        table.write(some_rows(0))
        other.write(some_rows(0))
        daemon.wait_for("table.found", table=table.path)
        eventually(lambda: is_covered(table))
        shutil.rmtree(table.path)
        daemon.wait_for("table.forgotten", table=table.path)
        again = SmallTable(Path(table.path).parent, indexes=True)
        again.write(some_rows(100))
        daemon.wait_for("table.found", count=2, table=table.path)
        eventually(lambda: is_covered(again))
        again.check()
        assert daemon.stop() == 0
    assert not is_covered(other)
    assert not daemon.events(level="error")


def test_a_table_made_again_at_once_is_followed_anew(tmp_path: Path):
    table = table_in(tmp_path / "wh")
    table.write(some_rows(0))
    with RunningDaemon(tmp_path, named(table)) as daemon:
        eventually(lambda: is_covered(table))
        shutil.rmtree(table.path)
        again = SmallTable(Path(table.path).parent, indexes=True, bucket="2")
        for first in (0, 5, 100):
            again.write(some_rows(first))
        eventually(lambda: is_covered(again))
        again.check()
        assert daemon.stop() == 0


def test_a_bad_table_or_store_does_not_keep_others_from_their_passes(tmp_path: Path):
    good = table_in(tmp_path / "wh", "good")
    corrupt = table_in(tmp_path / "wh", "corrupt")
    corrupt.write(some_rows(0))
    manifest = next(Path(corrupt.path, "manifest").glob("manifest-list-*"))
    manifest.write_bytes(manifest.read_bytes()[:20])
    deny(tmp_path / "wh2" / "denied.db" / "t")
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # nobody listens
        options = {
            "endpoint_url": f"http://127.0.0.1:{unused.getsockname()[1]}",
            "key": "access",
            "secret": "very-secret-secret",
            "config_kwargs": {"retries": {"max_attempts": 1}, "connect_timeout": 1},
        }
        tables = [{"uri": str(tmp_path / "wh2" / "denied.db" / "t")}, {"uri": "s3://bucket/db.db/t", "storage-options": options}]
        warehouses = [{"uri": str(tmp_path / "wh")}, {"uri": "s3://bucket/wh", "storage-options": options}]
        with RunningDaemon(tmp_path, {"tables": tables, "warehouses": warehouses}) as daemon:
            for first in (0, 5, 30):
                good.write(some_rows(first, value=first))
                eventually(lambda: is_covered(good))
            denied = daemon.wait_for("table.failed", count=3, table=tables[0]["uri"], exit_code=5)
            unreachable = daemon.wait_for("table.failed", table=tables[1]["uri"], exit_code=5)
            listing = daemon.wait_for("warehouse.failed", warehouse="s3://bucket/wh", exit_code=5)
            damaged = daemon.wait_for("table.failed", table=corrupt.path)
            time.sleep(1)
            assert daemon.stop() == 0
    assert damaged["exit_code"] == 3
    assert manifest.name in damaged["error"]
    assert len(daemon.events("table.failed", table=corrupt.path)) == 1  # told of once, although it is tried again
    assert denied["failures"] == 3
    assert unreachable["retry_in"] > 0
    assert listing["retry_in"] > 0
    assert {event["level"] for event in daemon.events("table.failed") if event["retry_in"]} == {"error"}
    assert not daemon.events("table.failed", table=good.path)
    assert not any("very-secret-secret" in line for line in daemon.lines)
    good.check()


def test_a_table_that_is_mended_recovers(tmp_path: Path):
    table = table_in(tmp_path / "wh")
    table.write(some_rows(0))
    with RunningDaemon(tmp_path, named(table)) as daemon:
        eventually(lambda: is_covered(table))
        table.write(some_rows(5))
        daemon.wait_for("pass.finished", snapshot_after=4)
        snapshots = Path(table.path, "snapshot")
        snapshots.rename(tmp_path / "kept")
        deny(snapshots)
        daemon.wait_for("table.failed", count=2, table=table.path, exit_code=5)
        snapshots.unlink()
        (tmp_path / "kept").rename(snapshots)
        recovered = daemon.wait_for("table.recovered", table=table.path)
        assert recovered["failures"] >= 2
        table.write(some_rows(9))
        eventually(lambda: is_covered(table))
        assert daemon.stop() == 0
    table.check()


def test_a_table_that_is_refused_is_told_of_once_and_taken_when_its_schema_allows(tmp_path: Path):
    table = table_in(tmp_path / "wh", "refused")
    wanted = table_in(tmp_path / "other", "wanted")
    for each in (table, wanted):
        set_options(each.path, **{"fields.v.ignore-retract": "true"})
    with RunningDaemon(tmp_path, {**in_warehouse(tmp_path / "wh"), **named(wanted)}) as daemon:
        skipped = daemon.wait_for("table.skipped", table=table.path)
        failed = daemon.wait_for("table.failed", table=wanted.path)
        time.sleep(1.5)
        assert (skipped["exit_code"], skipped["level"], failed["exit_code"], failed["level"]) == (7, "warning", 7, "error")
        assert "ignore-retract" in skipped["error"]
        assert len(daemon.events("table.skipped")) == 1
        set_options(table.path, **{"fields.v.ignore-retract": None})
        daemon.wait_for("table.recovered", table=table.path)
        table.write(some_rows(0))
        eventually(lambda: is_covered(table))
        assert daemon.stop() == 0
    assert not daemon.events("pass.finished", outcome="failed")


def test_a_table_that_comes_later_and_a_new_index(tmp_path: Path):
    with RunningDaemon(tmp_path, named(tmp_path / "wh" / "db.db" / "t")) as daemon:
        missing = daemon.wait_for("table.failed", exit_code=2)
        assert "not a Paimon table" in missing["error"]
        table = table_in(tmp_path / "wh", indexes=False)
        table.write(some_rows(0))
        daemon.wait_for("table.recovered")
        eventually(lambda: is_covered(table))
        set_options(table.path, **{"pk-btree.index.columns": "v"})
        eventually(lambda: len(table.table.coverage().definitions) == 1 and is_covered(table))
        assert daemon.stop() == 0


def test_snapshots_expire(tmp_path: Path):
    options = {"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "2", "snapshot.time-retained": "1 ms"}
    table = table_in(tmp_path / "wh", **options)
    for number in range(6):
        table.write(some_rows(number))
    with RunningDaemon(tmp_path, named(table)) as daemon:
        daemon.wait_for("expire.finished")
        table.write(some_rows(50))
        eventually(lambda: is_covered(table) and len(table.store.snapshot_ids()) <= 3)
        assert daemon.stop() == 0
    table.check()


def test_expiry_can_be_switched_off(tmp_path: Path):
    options = {"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "2", "maintain.expire": "false"}
    table = table_in(tmp_path / "wh", **options)
    for number in range(6):
        table.write(some_rows(number))
    with RunningDaemon(tmp_path, named(table)) as daemon:
        daemon.wait_for("pass.finished")
        assert daemon.stop() == 0
    assert len(table.store.snapshot_ids()) == 7


def large_table(directory: Path) -> SmallTable:
    """Work for a while: 16 buckets."""
    table = table_in(directory, bucket="16")
    count = 200_000
    with table.table.writer() as writer:
        ids = pa.array(range(count), pa.int32())
        values = pa.array([(key * 7919) % count for key in range(count)], pa.int64())
        texts = pa.array([f"text {key % 5000}" for key in range(count)])
        writer.write(pa.table([ids, values, texts], names=["id", "v", "s"]))
    return table


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_during_a_pass_ends_it_soon_and_soundly(tmp_path: Path, number: signal.Signals):
    table = large_table(tmp_path / "wh")
    with RunningDaemon(tmp_path, named(table)) as daemon:
        daemon.wait_for("work.started", count=3)
        started = time.monotonic()
        daemon.signal(number)
        assert daemon.wait() == 0
        assert time.monotonic() - started < 20
    assert daemon.events("service.stopping", signal=number.name, running=[table.path])
    assert daemon.events("service.stopped", abandoned=[])
    assert daemon.events("pass.finished")
    assert table.table.verify().ok
    assert not is_covered(table)
    files = {path.name for path in Path(table.path).glob("bucket-*/*.parquet")}
    assert files == {file.name for file in table.table.files().files} | before_of(table)
    with RunningDaemon(tmp_path, named(table)) as daemon:
        eventually(lambda: is_covered(table))
        assert daemon.stop() == 0
    assert table.table.verify().ok


def before_of(table: SmallTable) -> set[str]:
    """Data files of earlier snapshots, which are not expired yet."""
    from maintainer.table.state import load_state

    return {file.file_name for number in table.store.snapshot_ids() for file in load_state(table.store, table.store.snapshot(number)).files()}


def test_a_second_signal_ends_it_at_once(tmp_path: Path):
    table = large_table(tmp_path / "wh")
    with RunningDaemon(tmp_path, named(table)) as daemon:
        daemon.wait_for("work.started", count=2)
        daemon.signal(signal.SIGTERM)
        daemon.signal(signal.SIGINT)
        assert daemon.wait() in (130, 143, 0)
    assert table.table.verify().ok


def test_two_daemons_on_one_table(tmp_path: Path):
    table = table_in(tmp_path / "wh")
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    with RunningDaemon(first, named(table)) as one, RunningDaemon(second, named(table)) as other:
        for number in range(12):
            table.write(some_rows(number * 3, value=number))
            time.sleep(0.05)
        eventually(lambda: is_covered(table))
        assert (one.stop(), other.stop()) == (0, 0)
    assert not one.events(level="error")
    assert not other.events(level="error")
    table.check()


def test_console_events_without_colours(tmp_path: Path):
    table = table_in(tmp_path / "wh")
    configuration = {**named(table), "log": {"format": "console", "level": "warning"}}
    with RunningDaemon(tmp_path, configuration, MAINTAINER_LOG_LEVEL="info") as daemon:
        eventually(lambda: any("table.found" in line for line in daemon.lines))
        assert daemon.stop() == 0
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
