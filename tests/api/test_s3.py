"""The whole job on a table in an object store: made, written, maintained, queried and verified, by the library and the command line; peers.

Requests are counted: they are what object stores are slow and dear by.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import maintainer
from maintainer.api.table import Table
from maintainer.cli.main import app
from maintainer.data.writer import GROUP_ROWS
from maintainer.table.store import TableStore
from tests.support import peers
from tests.support.s3 import Bucket, hooked

OPTIONS = {
    "bucket": "1",
    "deletion-vectors.enabled": "true",
    "write-only": "true",
    "pk-btree.index.columns": "n",
    "pk-bitmap.index.columns": "v",
    "publish.verify-delay": "0 ms",
}
DEFINITION = {
    "fields": [{"name": name, "type": text} for name, text in (("id", "BIGINT"), ("v", "STRING"), ("n", "INT"))],
    "primaryKeys": ["id"],
    "options": OPTIONS,
}
PLACE = "wh/db.db/t"


@pytest.fixture
def table(s3_bucket: Bucket) -> Table:
    return maintainer.create_table(s3_bucket.place(PLACE), DEFINITION, storage_options=s3_bucket.storage_options)


def rows(first: int, count: int, add: int = 0) -> pa.Table:
    ids = range(first, first + count)
    return pa.table({"id": ids, "v": [f"v{i % 5}" for i in ids], "n": pa.array([i % 7 + add for i in ids], pa.int32())})


def write(table: Table, first: int, count: int, add: int = 0, delete: int = 0) -> None:
    with table.writer() as writer:
        writer.write(rows(first, count, add))
        if delete:
            writer.delete(pa.table({"id": range(delete)}))


def contents(table: Table, **query: Any) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in table.scan(**query).to_arrow().to_pylist())


def expected(add: int = 10) -> list[tuple[Any, ...]]:
    """After 200 rows, of which the second half was written again and the first ten deleted."""
    return [(i, f"v{i % 5}", i % 7 + (add if i >= 100 else 0)) for i in range(10, 200)]


def written(table: Table) -> Table:
    write(table, 0, 200)
    write(table, 100, 100, add=10, delete=10)
    return table


def test_the_whole_job(table: Table, s3_bucket: Bucket) -> None:
    assert contents(written(table)) == []
    report = table.maintain()
    assert report.outcome == "committed" and report.groups_built == 2
    coverage = table.coverage()
    assert coverage.visible_ratio == 1.0 and all(each.ratio == 1.0 for each in coverage.definitions)
    assert contents(table) == expected()
    found = contents(table, where="n = 12 AND v IN ('v1', 'v2')")
    assert found == [row for row in expected() if row[2] == 12 and row[1] in ("v1", "v2")] and found
    decisions = {each.decision for each in table.scan(where="n = 12").explain().files}
    assert decisions == {"indexed"}
    assert table.verify(deep=True).ok

    write(table, 300, 50)
    assert table.maintain(full=True).outcome == "committed"
    assert contents(table) == expected() + [(i, f"v{i % 5}", i % 7) for i in range(300, 350)]
    rebuilt = table.maintain(index_only=True, force=True)
    assert rebuilt.groups_built == 2 and rebuilt.output_files == 0
    assert table.maintain().outcome == "nothing"
    again = maintainer.open_table("db.t", warehouse=s3_bucket.place("wh"), storage_options=s3_bucket.storage_options)
    assert again.verify(deep=True).ok and again.doctor().fit


def run(*words: str, given: str = "", code: int = 0) -> str:
    done = CliRunner().invoke(app, words, input=given)
    assert done.exit_code == code, done.stderr
    return done.stdout if code == 0 else done.stderr


def test_the_command_line(table: Table, s3_bucket: Bucket) -> None:
    uri, options = s3_bucket.place(PLACE), [*s3_bucket.texts(), "--storage-option", 'client_kwargs={"region_name": "eu-west-1"}']
    written(table)
    plan = run("plan", uri, *options, "--json")
    assert json.loads(plan)["work"][0]["kind"] == "compact" and "secret" not in plan
    result = run("execute", *options, given=plan)
    done = json.loads(run("commit", *options, "--json", given=result))
    assert done["snapshot"] == 3 if "snapshot" in done else done
    assert json.loads(run("once", uri, *options, "--json"))["passes"][0]["outcome"] == "nothing"
    found = [json.loads(line) for line in run("query", uri, *options, "--json", "--where", "n = 12", "--select", "id").splitlines()]
    assert sorted(row["id"] for row in found) == [row[0] for row in expected() if row[2] == 12]
    assert json.loads(run("coverage", uri, *options, "--json"))["visible_ratio"] == 1.0
    assert json.loads(run("verify", uri, "--deep", *options, "--json"))["ok"]
    assert json.loads(run("compact", "db.t", "--warehouse", s3_bucket.place("wh"), "--full", *options, "--json"))["passes"]
    assert "there is no such bucket" in run("coverage", "s3://there-is-no-such-bucket/t", *options, code=5)
    assert "must be true or false" in run("coverage", uri, *options, "--storage-option", "anon=perhaps", code=2)


def pypaimon_table(place: Bucket) -> Any:
    reason = peers.absent("pypaimon")
    if reason:
        pytest.skip(f"pypaimon: {reason}")
    from pypaimon import CatalogFactory

    options = place.storage_options
    catalog = CatalogFactory.create(
        {
            "warehouse": place.place("wh"),
            "fs.s3.endpoint": options["endpoint_url"],
            "fs.s3.accessKeyId": options["key"],
            "fs.s3.accessKeySecret": options["secret"],
            "fs.s3.region": "us-east-1",
        }
    )
    peers.asked["pypaimon"] += 1
    return catalog.get_table("db.t")


def pypaimon_rows(place: Bucket) -> list[tuple[Any, ...]]:
    builder = pypaimon_table(place).new_read_builder()
    read = builder.new_read().to_arrow(builder.new_scan().plan().splits())
    return sorted(tuple(row.values()) for row in read.select(["id", "v", "n"]).to_pylist())


def test_pypaimon_reads_what_was_maintained(table: Table, s3_bucket: Bucket) -> None:
    written(table).maintain()
    assert pypaimon_rows(s3_bucket) == expected()


def test_what_pypaimon_writes_is_maintained(table: Table, s3_bucket: Bucket) -> None:
    builder = pypaimon_table(s3_bucket).new_batch_write_builder()
    for first in (0, 100):
        writer, committer = builder.new_write(), builder.new_commit()
        writer.write_arrow(rows(first, 150).cast(pa.schema([pa.field("id", pa.int64(), False), ("v", pa.string()), ("n", pa.int32())])))
        committer.commit(writer.prepare_commit())
        writer.close()
        committer.close()
    assert table.maintain().outcome == "committed"
    assert contents(table) == [(i, f"v{i % 5}", i % 7) for i in range(250)] == pypaimon_rows(s3_bucket)
    assert table.verify(deep=True).ok


def test_pypaimon_rust_reads_what_was_maintained(table: Table, s3_bucket: Bucket) -> None:
    reason = peers.absent("pypaimon_rust")
    if reason:
        pytest.skip(f"pypaimon-rust: {reason}")
    from pypaimon_rust.datafusion import PaimonCatalog

    written(table).maintain()
    options = s3_bucket.storage_options
    catalog = PaimonCatalog(
        {
            "warehouse": s3_bucket.place("wh"),
            "s3.endpoint": options["endpoint_url"],
            "s3.access-key": options["key"],
            "s3.secret-key": options["secret"],
            "s3.region": "us-east-1",
            "s3.path-style-access": "true",
        }
    )
    peers.asked["pypaimon_rust"] += 1
    builder = catalog.get_table("db.t").new_read_builder()
    read = pa.Table.from_batches(builder.new_read().read(builder.new_scan().plan().splits()))
    assert sorted(tuple(row.values()) for row in read.to_pylist()) == expected()


class TestRequests:
    """How many requests it takes; an upper bound here is a promise, and a lower count a reason to lower it."""

    @pytest.fixture
    def count(self, table: Table, s3_bucket: Bucket) -> Callable[[Callable[[Table], object]], Counter[str]]:
        filesystem = hooked(s3_bucket)

        def count(do: Callable[[Table], object]) -> Counter[str]:
            fresh = Table(TableStore(s3_bucket.storage(PLACE, filesystem)))
            filesystem.requests.clear()
            do(fresh)
            return Counter(method.removesuffix("_object").removesuffix("_objects_v2") for method, _ in filesystem.requests)

        return count

    def test_an_idle_poll_is_one_ranged_get(self, table: Table, s3_bucket: Bucket) -> None:
        written(table)
        filesystem = hooked(s3_bucket)
        ranges = []
        filesystem.before = lambda method, parameters: ranges.append((method, parameters.get("Range"), parameters["Key"]))
        store = TableStore(s3_bucket.storage(PLACE, filesystem))
        for _ in range(3):
            assert store.next_snapshot(2) is None
        assert ranges == [("get_object", "bytes=0-65535", f"{PLACE}/snapshot/snapshot-3")] * 3
        assert store.next_snapshot(1) == table.store.latest_snapshot() and len(ranges) == 4

    def test_opening_a_table(self, table: Table, count: Any) -> None:
        written(table)
        assert count(lambda fresh: fresh.store.latest_schema()) == {"list": 1, "get": 1}
        assert count(lambda fresh: fresh.store.latest_snapshot()) == {"get": 3}

    def test_a_pass_over_small_files(self, table: Table, count: Any) -> None:
        """Two requests a level-0 file (it is looked at, then merged), two for the new file, of which each index reads its column, and one for
        the note of groups that could not be built."""
        written(table)
        spent = count(lambda fresh: fresh.maintain())
        assert spent["put"] == 9, "a data file, two index payloads, four manifests, the snapshot and the hint"
        assert spent["get"] <= 29 and spent["list"] <= 4 and set(spent) <= {"put", "get", "list"}
        idle = count(lambda fresh: fresh.maintain())
        assert idle["get"] <= 13 and idle["list"] <= 2 and set(idle) == {"get", "list"}

    def test_a_query(self, table: Table, count: Any) -> None:
        """Schema and snapshot are 5, each manifest and manifest list one, and so are the index payload and the data file."""
        written(table).maintain(full=True)
        spent = count(lambda fresh: fresh.scan(where="n = 12", columns=["id"]).to_arrow())
        assert spent["list"] <= 2 and spent["get"] <= 13 and set(spent) == {"get", "list"}
        assert count(lambda fresh: fresh.scan().to_arrow())["get"] <= 12

    def test_a_large_file_is_read_in_a_few_ranges(self, table: Table, count: Any) -> None:
        """Row groups are fetched together, some megabytes at a time, whether few or all columns are read."""
        random = Random(1)
        with table.writer() as writer:
            ids = range(100_000)
            noise = [f"{random.getrandbits(256):x}" for _ in ids]
            writer.write(pa.table({"id": ids, "v": noise, "n": pa.array([i % 1000 for i in ids], pa.int32())}))
        table.maintain(full=True)
        (file,) = table.files().files
        assert file.size > 3 << 20
        metadata = count(lambda fresh: fresh.coverage())["get"]
        whole = count(lambda fresh: fresh.scan().to_arrow())["get"] - metadata
        assert whole <= 1 + -(-file.size // (4 << 20)), "the footer, and ranges of 4 to 8 MB"
        groups = -(-file.rows // GROUP_ROWS)
        assert count(lambda fresh: fresh.scan(columns=["id"]).to_arrow())["get"] - metadata <= 1 + groups, "of a row group, one range"
