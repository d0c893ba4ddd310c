"""How many times in a row a query waits for an object store that is far away."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pytest

import maintainer
from maintainer.api.changes import add_column
from maintainer.api.table import Table
from tests.support.distant_endpoint import CountingEndpoint
from tests.support.s3 import Bucket, endpoint

ROWS = 4000
DEFINITION = {
    "fields": [{"name": name, "type": text} for name, text in (("id", "BIGINT"), ("v", "STRING"), ("n", "INT"))],
    "primaryKeys": ["id"],
    "options": {
        "bucket": "3",
        "deletion-vectors.enabled": "true",
        "write-only": "true",
        "pk-btree.index.columns": "n",
        "pk-bitmap.index.columns": "v",
        "publish.verify-delay": "0 ms",
    },
}
COLD = 12
"""Round trips of a query, with opening the table."""
WARM = 3
"""Of the next one on the same table."""


@pytest.fixture
def distant(s3_bucket: Bucket) -> Iterator[CountingEndpoint]:
    with CountingEndpoint(endpoint()) as distant:
        yield distant


def test_what_is_asked_at_the_same_time_is_one_round_trip(s3_bucket: Bucket, distant: CountingEndpoint) -> None:
    far = Bucket(s3_bucket.uri, {**s3_bucket.storage_options, "endpoint_url": distant.url}).storage()
    far.write("file", b"content")
    distant.clear()
    assert [far.read("file") for _ in range(3)] == [b"content"] * 3
    assert (distant.round_trips, distant.how_many) == (3, 3)
    distant.clear()
    several = 40  # four times what the library would let through
    with ThreadPoolExecutor(several) as threads:
        list(threads.map(far.read, ["file"] * several))
    assert (distant.round_trips, distant.how_many) == (1, several)


def write(table: Table, first: int, rows: int, add: int = 0) -> None:
    ids = np.arange(first, first + rows)
    with table.writer() as writer:
        writer.write(pa.table({"id": ids, "v": [f"v{i % 20}" for i in ids], "n": pa.array(ids * 7919 % ROWS + add, pa.int32())}))


def rows(table: Table, where: str) -> list[int]:
    found: list[int] = table.scan(where=where, columns=["id"]).to_arrow()["id"].to_pylist()
    return sorted(found)


def test_a_query(s3_bucket: Bucket, distant: CountingEndpoint) -> None:
    """Two levels with an index of two columns in three buckets, with deletion vectors: cold, warm, after a commit, and with an older schema."""
    place = s3_bucket.place("wh/db.db/t")
    near = maintainer.create_table(place, DEFINITION, storage_options=s3_bucket.storage_options)
    write(near, 0, ROWS)
    near.maintain(full=True)
    write(near, 0, ROWS // 10, add=1)
    near.maintain()
    deleted = sum(file.deleted_rows for file in near.files().files)
    assert deleted and {file.level > 0 for file in near.files().files} == {True}
    wanted = {"n = 77": 1, "n = 77 AND v = 'v4'": 0, "n IN (1, 2, 3, 4) AND v <> 'v3'": None, "id = 1234": 1}

    def opened(**options: str) -> Table:
        distant.clear()
        far = {**s3_bucket.storage_options, "endpoint_url": distant.url}
        return maintainer.open_table(place, storage_options=far, options=options)

    for where, count in wanted.items():
        far = opened()
        found = rows(far, where)
        assert distant.round_trips <= COLD, distant.asked
        assert found == rows(near, where) and count in (None, len(found))
        distant.clear()
        assert rows(far, where) == found and distant.round_trips <= WARM, distant.asked

    took = []
    for threads in ("32", "1"):
        far = opened(**{"global-index.thread-num": threads})
        assert rows(far, "n = 77 AND v <> 'x'") == rows(near, "n = 77")
        took.append(distant.round_trips)
    assert took[0] + 1 < took[1], "no two payloads are asked at the same time"

    near.alter(add_column("w", "INT"))
    write_more = pa.table({"id": [ROWS], "v": ["new"], "n": pa.array([77], pa.int32()), "w": pa.array([1], pa.int32())})
    with near.writer() as writer:
        writer.write(write_more)
    near.maintain()
    distant.clear()
    assert rows(far, "n = 77") == rows(near, "n = 77") and ROWS in rows(near, "n = 77")
    assert distant.round_trips <= COLD, "of a table that was changed meanwhile only what is new is read"
    far = opened()
    assert rows(far, "n = 77 AND w IS NULL") == rows(near, "n = 77 AND w IS NULL")
    assert distant.round_trips <= COLD, distant.asked
