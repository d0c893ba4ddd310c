"""Expiration on an object store: what it costs, and that it is side by side."""

from __future__ import annotations

import threading
import time
from typing import Any

import pyarrow as pa

import maintainer
from maintainer.api.table import Table
from maintainer.maintain.reclaim.expire import expire
from maintainer.table.store import TableStore
from tests.support import s3
from tests.support.s3 import Bucket, s3_bucket  # noqa: F401

DEFINITION = {
    "fields": [{"name": "id", "type": "INT"}, {"name": "v", "type": "BIGINT"}],
    "primaryKeys": ["id"],
    "options": {"bucket": "1", "deletion-vectors.enabled": "true", "pk-btree.index.columns": "v", "publish.verify-delay": "0 s"},
}


def test_requests(s3_bucket: Bucket) -> None:  # noqa: F811
    table = maintainer.create_table(s3_bucket.place("t"), DEFINITION, storage_options=s3_bucket.storage_options)
    for number in range(4):
        with table.writer() as writer:
            writer.write(pa.table({"id": pa.array([number, 9], pa.int32()), "v": pa.array([number, 0], pa.int64())}))
        table.maintain()
    filesystem = s3.hooked(s3_bucket)
    store: TableStore = s3_bucket.store(filesystem=filesystem)

    expire(store)  # all are young; EARLIEST is written
    filesystem.requests.clear()
    assert expire(store).snapshots == ()
    assert len(filesystem.requests) <= 8, filesystem.requests

    filesystem.requests.clear()
    under_way = filesystem.before = UnderWay()
    found = expire(store, retain_min=2, seconds=0)
    assert found.snapshots == (1, 2, 3, 4, 5, 6)
    assert found.deleted is not None
    calls = dict(s3.counted(filesystem))
    deletes = sum(number for method, number in calls.items() if method.startswith("delete"))
    assert deletes == len(found.deleted), calls
    reads = sum(number for method, number in calls.items() if method.startswith("get"))
    assert reads <= 8 * len(found.snapshots) + 12, calls
    assert under_way.most > 1  # side by side

    assert Table(s3_bucket.store()).scan().to_arrow().sort_by("id").to_pydict() == {"id": [0, 1, 2, 3, 9], "v": [0, 1, 2, 3, 0]}
    verified = Table(s3_bucket.store()).verify(deep=True)
    assert verified.ok, verified.problems


class UnderWay:
    """How many requests are in their first moments at once; called before each of them."""

    def __init__(self) -> None:
        self.now = self.most = 0
        self._lock = threading.Lock()

    def __call__(self, method: str, parameters: dict[str, Any]) -> None:
        with self._lock:
            self.now += 1
            self.most = max(self.most, self.now)
        time.sleep(0.05)
        with self._lock:
            self.now -= 1
