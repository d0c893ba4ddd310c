"""SIGKILL at any moment of the life of a process, one after the other on one table: on a local disk and on S3 (spec 03 §17).

The processes are the commands `once`, `compact --full`, `write`, `expire` and the daemon, which sees commits of a writer while it runs.
After each death everything that snapshots name is there; in the end one pass makes all rows visible and covered, and not one is missing.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

import maintainer
from maintainer.api.table import Table
from maintainer.table.opening import open_store
from maintainer.table.store import TableStore
from tests.peers import readers
from tests.support import s3
from tests.support.campaign import share
from tests.support.s3_copies import download
from tests.support.small_table import arrow_of
from tests.support.striking_storage import files_below, referenced

KILLS = {
    "local": share("killed processes on a local disk", short=5, long=400),
    "s3": share("killed processes on S3", short=2, long=200),
}
COMMANDS = ("once", "compact", "write", "expire", "run")
LEAST, MOST = 3, 5
"""Snapshots that an expiration leaves."""
OPTIONS = {
    "bucket": "2",
    "deletion-vectors.enabled": "true",
    "pk-btree.index.columns": "v",
    "pk-bitmap.index.columns": "s",
    "manifest.merge-min-count": "5",
    "target-file-size": "4 kb",
    "publish.verify-delay": "0 ms",
    "snapshot.num-retained.min": str(LEAST),
    "snapshot.num-retained.max": str(MOST),
    "snapshot.time-retained": "1 ms",
}
FIELDS = [{"name": "id", "type": "INT"}, {"name": "v", "type": "BIGINT"}, {"name": "s", "type": "STRING"}]


class Victims:
    """A table, the rows that it should have, and the processes that work on it and are killed."""

    def __init__(self, directory: Path, bucket: s3.Bucket | None) -> None:
        self.directory, self.bucket, self.random = directory, bucket, Random(7)
        self.uri = str(directory / "db.db" / "t") if bucket is None else bucket.place("db.db/t")
        self.storage_options = {} if bucket is None else bucket.storage_options
        maintainer.create_table(self.uri, {"fields": FIELDS, "primaryKeys": ["id"], "options": OPTIONS}, storage_options=self.storage_options)
        self.rows: dict[int, tuple[int | None, str | None]] = {}
        self.lives = dict.fromkeys(COMMANDS, 1.0)
        """How long each command takes when it is left alone."""
        self.deaths: Counter[str] = Counter()
        self.write({key: key for key in range(200)})

    @property
    def store(self) -> TableStore:
        return open_store(self.uri, storage_options=self.storage_options)

    def write(self, values: Mapping[int, int]) -> None:
        rows: dict[int, tuple[int | None, str | None]] = {key: (value, f"s{value % 7}") for key, value in values.items()}
        with Table(self.store).writer() as writer:
            writer.write(arrow_of(rows))
        self.rows |= rows

    def some_values(self) -> dict[int, int]:
        random = self.random
        return {random.randrange(400): random.randrange(10**6) for _ in range(random.choice([1, 20, 200]))}

    def words(self, command: str, values: Mapping[int, int]) -> list[str]:
        options = [] if self.bucket is None else self.bucket.texts()
        if command == "run":
            file = self.directory / "maintainer.yaml"
            table = {"uri": self.uri, "storage-options": self.storage_options}
            file.write_text(json.dumps({"tables": [table], "poll-interval": "100 ms", "log": {"level": "error"}}))  # JSON is YAML
            return ["run", "--config", str(file)]
        if command == "write":
            file = self.directory / "rows.jsonl"
            file.write_text("".join(f'{{"id": {key}, "v": {value}, "s": "s{value % 7}"}}\n' for key, value in values.items()))
            return ["write", self.uri, str(file), *options]
        return [command, self.uri, *(["--full"] if command == "compact" else []), *options]

    def kill_one(self, command: str, sound: bool = False) -> None:
        """Starts a process and kills it some time later, unless it is over by then."""
        before, values = self.store.latest_snapshot_id(), self.some_values()
        words, started = self.words(command, values), time.monotonic()
        process = subprocess.Popen([sys.executable, "-m", "maintainer", *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        life = self.lives[command]
        end = started + (60 if sound else self.random.uniform(0.3 * life, 1.1 * life))
        if command == "run":
            end = started + self.random.uniform(0.3 * life, 2 * life)
            while time.monotonic() < end - 0.3 and process.poll() is None:
                time.sleep(0.3 * self.random.random())
                self.write(self.some_values())
        with suppress(subprocess.TimeoutExpired):
            process.wait(max(0.0, end - time.monotonic()))
        process.kill()
        _, errors = process.communicate(timeout=60)
        context = f"{command}, killed after {time.monotonic() - started:.2f} s: {process.returncode}, {errors.decode()}"
        assert process.returncode in ((-signal.SIGKILL,) if command == "run" else (0, -signal.SIGKILL)), context
        if process.returncode == 0:
            self.lives[command] = time.monotonic() - started
        else:
            self.deaths[command] += 1
        if command == "write":
            self.written(before, values, process.returncode == 0, context)
        self.check(context)

    def written(self, before: int | None, values: Mapping[int, int], must_be: bool, context: str) -> None:
        if self.bucket is not None:
            time.sleep(0.05)  # what was sent may still be on its way
        if self.store.latest_snapshot_id() != before:
            self.rows |= {key: (value, f"s{value % 7}") for key, value in values.items()}
        else:
            assert not must_be, context

    def check(self, context: str) -> None:
        """Nothing is missing, except what belongs to a snapshot whose expiration was cut short: the oldest one."""
        store = self.store
        ids = store.snapshot_ids()
        named, there = referenced(store, ids[0] if len(ids) <= LEAST else ids[1]), self.files()
        assert named <= there, f"{context}: lost {named - there}"
        verified = Table(store).verify()
        assert verified.ok, (context, verified.problems)
        rows = Table(store).scan(columns=["id"]).to_arrow().column("id").to_pylist()
        assert len(set(rows)) == len(rows), context

    def files(self) -> set[str]:
        if self.bucket is None:
            return files_below(self.uri)
        import s3fs

        filesystem = s3fs.S3FileSystem(**self.storage_options, use_listings_cache=False)
        prefix = self.uri.removeprefix("s3://")
        return {name.removeprefix(f"{prefix}/") for name in filesystem.find(prefix)}

    def converge(self) -> None:
        table = Table(self.store)
        table.maintain()
        rows = table.scan().to_arrow().to_pydict()
        assert dict(zip(rows["id"], zip(rows["v"], rows["s"], strict=True), strict=True)) == self.rows
        coverage = table.coverage()
        assert coverage.visible_ratio == 1.0 and all(one.ratio == 1.0 for one in coverage.definitions)
        verified = table.verify(deep=True)
        assert verified.ok, verified.problems
        while table.expire().snapshots:  # some at a time
            pass
        assert len(table.store.snapshot_ids()) <= MOST
        self.check("in the end")
        if not readers.PYPAIMON_ABSENT:
            assert readers.pypaimon_rows(self.copy(), table.schema) == readers.bag([key, *values] for key, values in self.rows.items())

    def copy(self) -> Path:
        if self.bucket is None:
            return Path(self.uri)
        import s3fs

        copy = self.directory / f"copy{self.deaths.total()}" / "db.db" / "t"
        download(s3fs.S3FileSystem(**self.storage_options, use_listings_cache=False), self.uri, copy)
        return copy


@pytest.mark.parametrize("kind", ["local", "s3"])
def test_killed_processes(tmp_path: Path, kind: str) -> None:
    victims = Victims(tmp_path, s3.fresh_bucket() if kind == "s3" else None)
    kills = KILLS[kind]
    victims.kill_one("once", sound=True)
    victims.lives = dict.fromkeys(COMMANDS, victims.lives["once"])
    turn = 0
    while victims.deaths.total() < kills:
        if victims.random.random() < 0.5:
            victims.write(victims.some_values())
        victims.kill_one(COMMANDS[turn % len(COMMANDS)] if turn < kills else victims.random.choice(COMMANDS))
        turn += 1
        if turn % 50 == 0:
            victims.converge()
    victims.converge()
