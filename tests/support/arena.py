"""One table, on a local disk or on S3, that many work on at once: processes that race, daemons, and the rows that must be there in the end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import maintainer
from maintainer.api.table import Table
from maintainer.table.opening import open_store
from maintainer.table.store import TableStore
from tests.peers import readers
from tests.support import s3
from tests.support.daemons import RunningDaemon
from tests.support.racers import PATIENT, STORAGE_OPTIONS
from tests.support.s3_copies import download
from tests.support.small_table import arrow_of
from tests.support.striking_storage import files_below, referenced

ROOT = Path(__file__).parents[2]
FIELDS = [{"name": "id", "type": "INT"}, {"name": "v", "type": "BIGINT"}, {"name": "s", "type": "STRING"}]
OPTIONS = {
    "bucket": "2",
    "deletion-vectors.enabled": "true",
    "pk-btree.index.columns": "v",
    "pk-bitmap.index.columns": "s",
    **PATIENT,
}
EXPIRING = {"snapshot.num-retained.min": "3", "snapshot.num-retained.max": "6", "snapshot.time-retained": "1 ms"}
PATIENCE = 120.0
"""Seconds until all is covered after the last commit of a writer."""

Rows = dict[int, tuple[int | None, str | None]]


class Arena:
    """A table `db.t` with two buckets and two indexes."""

    def __init__(self, directory: Path, bucket: s3.Bucket | None = None, **options: str) -> None:
        self.directory, self.bucket = directory, bucket
        self.uri = str(directory / "db.db" / "t") if bucket is None else bucket.place("db.db/t")
        self.storage_options: Mapping[str, Any] = {} if bucket is None else bucket.storage_options
        given = {key: text for key, text in {**OPTIONS, **options}.items() if text}
        schema = {"fields": FIELDS, "primaryKeys": ["id"], "options": given}
        maintainer.create_table(self.uri, schema, storage_options=self.storage_options)
        self.rows: Rows = {}
        self.texts_follow = True
        """Whether every `s` is made from its `v`."""
        self.events: list[dict[str, Any]] = []
        """What the daemons said."""

    @property
    def store(self) -> TableStore:
        return open_store(self.uri, storage_options=self.storage_options)

    @property
    def table(self) -> Table:
        return Table(self.store)

    def write(self, values: Mapping[int, int]) -> None:
        rows: Rows = {key: (value, f"s{value % 7}") for key, value in values.items()}
        with self.table.writer() as writer:
            writer.write(arrow_of(rows))
        self.rows |= rows

    # who takes part

    def racer(self, role: str, seconds: float) -> subprocess.Popen[str]:
        words = [sys.executable, "-m", "tests.support.racers", role.rstrip("0123456789"), self.uri, str(seconds), role[-1]]
        environment = {**os.environ, STORAGE_OPTIONS: json.dumps(self.storage_options)}
        return subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)

    def daemon(self, number: int) -> RunningDaemon:
        directory = self.directory / f"daemon{number}"
        directory.mkdir()
        return RunningDaemon(directory, {"tables": [{"uri": self.uri, "storage-options": dict(self.storage_options)}]})

    def race(self, seconds: float, *roles: str, daemons: int = 2, beside: Sequence[str] = ()) -> dict[str, str]:
        """Racers, by role and seed, and perhaps another command, until they end; then the daemons until all is covered. What each printed."""
        with ExitStack() as stack:
            running = [stack.enter_context(self.daemon(number)) for number in range(daemons)]
            for daemon in running:
                daemon.wait_for("service.started")
            started = {role: self.racer(role, seconds) for role in roles}
            if beside:
                started["beside"] = subprocess.Popen(beside, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            ended = {role: (*process.communicate(timeout=seconds + 240), process.returncode) for role, process in started.items()}
            for role, (_, errors, code) in ended.items():
                assert code == 0, f"{role} ended with {code}:\n{errors}"
            if daemons:
                self.wait_for_coverage()
            for daemon in running:
                assert daemon.stop() == 0
                self.events += daemon.events()
        print(f"{self.uri}: {self.store.latest_snapshot_id()} snapshots; daemons: {dict(self.told('info', 'warning', 'error', 'critical'))}")
        return {role: output for role, (output, _, _) in ended.items()}

    def wait_for_coverage(self) -> None:
        deadline = time.monotonic() + PATIENCE
        while True:
            coverage = self.table.coverage()
            if coverage.visible_ratio == 1.0 and all(one.ratio == 1.0 for one in coverage.definitions):
                return
            assert time.monotonic() < deadline, f"not covered after {PATIENCE} s: {coverage}"
            time.sleep(0.2)

    # what came of it

    def told(self, *levels: str) -> Counter[str]:
        """How often the daemons said what, of these levels."""
        return Counter(event["event"] for event in self.events if event["level"] in levels)

    def visible(self, use_index: bool = False, snapshot_id: int | None = None) -> Rows:
        """The rows that a reader sees, no key twice, and every `s` made from its `v`."""
        where = "v >= 0" if use_index else None
        found = self.table.scan(where=where, use_index=use_index, snapshot_id=snapshot_id).to_arrow().to_pydict()
        rows = dict(zip(found["id"], zip(found["v"], found["s"], strict=True), strict=True))
        assert len(rows) == len(found["id"])
        assert not self.texts_follow or all(text == f"s{value % 7}" for value, text in rows.values())
        return rows

    def check(self) -> readers.Rows:
        """Everything is there, covered, and sound; every snapshot that is listed can be read; the peers see the same rows."""
        assert self.visible() == self.visible(use_index=True) == self.rows
        coverage = self.table.coverage()
        assert coverage.visible_ratio == 1.0 and all(one.ratio == 1.0 for one in coverage.definitions), coverage
        verified = self.table.verify(deep=True)
        assert verified.ok, verified.problems
        for snapshot_id in self.store.snapshot_ids():
            self.visible(snapshot_id=snapshot_id)
        assert referenced(self.store) <= self.files()
        expected = readers.bag([key, *values] for key, values in self.rows.items())
        copy = self.copy()
        if not readers.PYPAIMON_ABSENT:
            assert readers.pypaimon_rows(copy, self.table.schema) == expected
        if not readers.RUST_ABSENT:
            assert readers.rust_rows(copy, self.table.schema) == expected
        return expected

    def files(self) -> set[str]:
        if self.bucket is None:
            return files_below(self.uri)
        prefix = self.uri.removeprefix("s3://")
        return {name.removeprefix(f"{prefix}/") for name in self._s3().find(prefix)}

    def copy(self) -> Path:
        """The table as a local directory."""
        if self.bucket is None:
            return Path(self.uri)
        copy = self.directory / f"copy{time.monotonic_ns()}" / "db.db" / "t"
        download(self._s3(), self.uri, copy)
        return copy

    def _s3(self) -> Any:
        import s3fs

        return s3fs.S3FileSystem(**self.storage_options, use_listings_cache=False)


def rows_of(outputs: Mapping[str, str], roles: Iterable[str] = ("writer",)) -> Rows:
    """What the writers say that is live."""
    names = tuple(roles)
    written = [json.loads(output.splitlines()[-1]) for role, output in outputs.items() if role.rstrip("0123456789") in names]
    return {int(key): (value, f"s{value % 7}") for rows in written for key, value in rows.items()}
