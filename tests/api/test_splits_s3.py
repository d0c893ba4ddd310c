"""Splits of a table in an object store: they carry how to reach it, and reading one asks for its files only."""

from __future__ import annotations

import base64
import pickle
import subprocess
import sys

import pyarrow as pa

import maintainer
from maintainer.api.table import Table
from maintainer.model.split import IndexedSplit
from maintainer.read.scan import Scan
from maintainer.storage.remote import RemoteStorage
from maintainer.table.store import TableStore
from tests.support.distant_endpoint import DistantEndpoint
from tests.support.s3 import Bucket, hooked

DEFINITION = """
CREATE TABLE t (id BIGINT, n INT, PRIMARY KEY (id) NOT ENFORCED)
WITH ('bucket' = '1', 'deletion-vectors.enabled' = 'true', 'pk-btree.index.columns' = 'n', 'publish.verify-delay' = '0 ms')
"""
CHILD = """
import base64, pickle, sys
print(pickle.loads(base64.b64decode(sys.stdin.read())).to_arrow().column("id").to_pylist())
"""


def written(bucket: Bucket) -> Table:
    table = maintainer.create_table(bucket.place("wh/db.db/t"), DEFINITION, storage_options=bucket.storage_options)
    for first in (0, 40):
        with table.writer() as writer:
            writer.write(pa.table({"id": range(first, 100), "n": pa.array([i % 10 for i in range(first, 100)], pa.int32())}))
        table.maintain()
    return table


def test_a_split_is_read_elsewhere_with_the_requests_of_its_file(s3_bucket: Bucket) -> None:
    table = written(s3_bucket)
    scan = table.scan(where="n = 3 AND id < 90", columns=["id"])
    expected = sorted(range(3, 90, 10))
    data = [pickle.dumps(split) for split in scan.splits()]
    read: list[int] = []
    for each in data:
        split = pickle.loads(each)
        filesystem = split.reader.store.storage._fs = hooked(s3_bucket)
        rows = split.to_arrow().column("id").to_pylist()
        asked = {key.removeprefix("wh/db.db/t/").partition("/")[0] for _, key in filesystem.requests}
        assert asked <= {"bucket-0", "index"}
        assert len(filesystem.requests) <= 4
        child = subprocess.run([sys.executable, "-c", CHILD], input=base64.b64encode(each), capture_output=True, check=True)
        assert child.stdout.decode().strip() == str(rows)
        read += rows
    assert sorted(read) == expected


def test_the_vectors_of_a_split_are_read_while_its_file_is_opened(s3_bucket: Bucket) -> None:
    table = written(s3_bucket)
    with DistantEndpoint(s3_bucket.storage_options["endpoint_url"], 0.05) as distant:
        store = TableStore(RemoteStorage(table.store.uri, {**s3_bucket.storage_options, "endpoint_url": distant.url}))
        scan = Scan(store, where="n = 3")
        (split,) = (each for each in scan.splits() if isinstance(each.split, IndexedSplit) and each.split.split.deletion_files)
        distant.clear()
        assert split.to_arrow().num_rows == 4
        assert len(distant.asked) == 2
        assert distant.round_trips == 1
