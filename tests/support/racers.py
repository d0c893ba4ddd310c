"""Processes that work on one table at the same time: `python -m tests.support.racers ROLE TABLE SECONDS SEED`. Options of a store that is not
local are in the environment (`STORAGE_OPTIONS`, a JSON object).

| writer             | writes and deletes keys of its own (id mod 4 = seed) and ends with a line of JSON: its live rows                   |
| writer_of_pypaimon | the same with pypaimon, without deletes                                                                            |
| renamer            | a writer that publishes as Java and pypaimon do: looks whether a snapshot is there, then puts its own in its place |
| maintainer         | one pass after the other, some of them full                                                                        |
| reader             | scans with and without indexes: no key twice, every `s` that of its `v`                                            |
| expirer            | keeps the latest snapshot only, and nothing that only the others name                                              |

Any error ends the process with a traceback and a code; being too slow for a snapshot that expired, or too unlucky in races, is none.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from random import Random
from typing import Any

import pyarrow as pa

import maintainer
from maintainer.api.table import Table
from maintainer.storage.local import LocalStorage
from maintainer.storage.remote import RemoteStorage
from maintainer.table.opening import open_store
from maintainer.table.state import SnapshotExpired
from maintainer.table.store import TableStore
from tests.support.small_table import arrow_of
from tests.support.striking_storage import named_by

STORAGE_OPTIONS = "RACERS_STORAGE_OPTIONS"
PATIENT = {"commit.max-retries": "100", "commit.max-retry-wait": "500 ms"}
"""Table options for races of so many commits a second that some lose more often in a row than anybody would in earnest."""
LEAST_COMMITS = 3
"""Of a writer, however slow the machine is."""


class CheckThenReplace:
    """Publishes by check-then-replace, and sometimes the process is not running in between. Before a class of `Storage`."""

    stall = 0.003

    def create_if_absent(self: Any, path: str, data: bytes, exclusive: bool = True) -> bool:
        self.before(path)
        if self.exists(path):
            return False
        self.replace(f"{path}.mine", data)
        there = self.exists(path)
        if not there:
            self.between(path)
            self.move(f"{path}.mine", path)
        self.delete(f"{path}.mine")
        return not there

    def before(self, path: str) -> None:
        """Before it looks whether the snapshot is there."""

    def between(self, path: str) -> None:
        """After it looked, and before it replaces what is there by then."""
        if Random().random() < 0.3:
            time.sleep(self.stall)

    def prove_exclusive_create(self) -> None:
        pass


class RenamingStorage(CheckThenReplace, LocalStorage):
    """As Java on a local disk."""

    def move(self, source: str, target: str) -> None:
        os.replace(self._path(source), self._path(target))


class CopyingStorage(CheckThenReplace, RemoteStorage):
    """As Java and pypaimon on S3."""

    stall = 0.02

    def move(self, source: str, target: str) -> None:
        self._fs.copy(self._path(source), self._path(target))


def unsafe_store(path: str, storage_options: Mapping[str, Any]) -> TableStore:
    """The table for one who publishes like that, and never looks again."""
    storage = CopyingStorage(path, storage_options) if storage_options else RenamingStorage(path)
    return TableStore(storage, options={"publish.verify-delay": "0 ms"})


def write(table: Table, end: float, seed: int, deletes: bool = True) -> None:
    random, rows, count = Random(seed), {}, 0
    while time.time() < end or count < LEAST_COMMITS:
        count += 1
        keys = {4 * random.randrange(300) + seed for _ in range(random.choice([1, 5, 40]))}
        dead = [key for key in keys if deletes and random.random() < 0.2]
        written = {key: random.randrange(10**6) for key in keys.difference(dead)}
        with table.writer() as writer:
            if dead:
                writer.delete(pa.table([pa.array(dead, pa.int32())], names=["id"]))
            if written:
                writer.write(arrow_of({key: (value, f"s{value % 7}") for key, value in written.items()}))
        for key in dead:
            rows.pop(key, None)
        rows |= written
        time.sleep(random.choice([0, 0.01, 0.05]))
    print(json.dumps(rows))


def write_with_pypaimon(path: str, storage_options: Mapping[str, Any], end: float, seed: int) -> None:
    random, rows, table, count = Random(seed), {}, pypaimon_table(path, storage_options), 0
    while time.time() < end or count < LEAST_COMMITS:
        count += 1
        written = {4 * random.randrange(300) + seed: random.randrange(10**6) for _ in range(random.choice([1, 5, 40]))}
        builder = table.new_batch_write_builder()
        writer, commit = builder.new_write(), builder.new_commit()
        data = arrow_of({key: (value, f"s{value % 7}") for key, value in written.items()})
        writer.write_arrow(data.cast(pa.schema([data.schema.field(0).with_nullable(False), *list(data.schema)[1:]])))
        commit.commit(writer.prepare_commit())
        writer.close()
        commit.close()
        rows |= written
    print(json.dumps(rows))


def pypaimon_table(path: str, storage_options: Mapping[str, Any]) -> Any:
    """The table as pypaimon's, through its own access to S3."""
    from pypaimon import CatalogFactory

    warehouse, database, name = path.rsplit("/", 2)
    options = {"warehouse": warehouse}
    if storage_options:
        names = {"endpoint_url": "s3.endpoint", "key": "s3.access-key", "secret": "s3.secret-key"}
        options |= {names[key]: value for key, value in storage_options.items()}
        options |= {"s3.region": "us-east-1", "s3.path-style-access": "true"}
    return CatalogFactory.create(options).get_table(f"{database.removesuffix('.db')}.{name}")


def maintain(table: Table, end: float, seed: int) -> None:
    random = Random(seed)
    while time.time() < end:
        table.maintain(full=random.random() < 0.1)
        time.sleep(random.choice([0, 0.02]))


def read(table: Table, end: float) -> None:
    count = 0
    while time.time() < end:
        with suppress(SnapshotExpired):
            rows = table.scan(where="v >= 0", use_index=bool(count % 2)).to_arrow().to_pydict()
            assert len(set(rows["id"])) == len(rows["id"])
            assert all(text == f"s{value % 7}" for value, text in zip(rows["v"], rows["s"], strict=True))
        count += 1


def expire(path: str, end: float) -> None:
    while time.time() < end:
        store = open_store(path)
        *old, _ = store.snapshot_ids() or (0,)
        doomed = {name for number in old for name in named_by(store, store.snapshot(number))}
        kept = {name for number in store.snapshot_ids() if number not in old for name in named_by(store, store.snapshot(number))}
        for name in [*sorted(doomed - kept), *(f"snapshot/snapshot-{number}" for number in old)]:  # buckets, index, manifests, snapshots
            store.storage.delete(name)
        time.sleep(0.05)


def main(role: str, path: str, seconds: str, seed: str) -> None:
    storage_options = json.loads(os.environ.get(STORAGE_OPTIONS, "{}"))
    table = maintainer.open_table(path, storage_options=storage_options)
    end = time.time() + float(seconds)
    match role:
        case "writer":
            write(table, end, int(seed))
        case "writer_of_pypaimon":
            write_with_pypaimon(path, storage_options, end, int(seed))
        case "renamer":
            write(Table(unsafe_store(path, storage_options)), end, int(seed), deletes=False)
        case "maintainer":
            maintain(table, end, int(seed))
        case "reader":
            read(table, end)
        case "expirer":
            expire(path, end)


if __name__ == "__main__":
    main(*sys.argv[1:])
