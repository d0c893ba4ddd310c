"""Index payloads of a store that is far away: asked at the same time, with the answers and the faults of a store that is near."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from maintainer.model.files import IndexFileMeta
from maintainer.model.predicate import And, Leaf, Op, Or, Predicate
from maintainer.read.decisions import INDEXED, PRUNED, RAW
from maintainer.read.scan import Scan
from maintainer.storage.local import LocalStorage
from maintainer.table.store import TableStore
from tests.support.builders import schema
from tests.support.built_tables import BuiltTable
from tests.support.predicates import holds

COLUMNS = {"id": "INT", "a": "INT", "s": "STRING"}
OPTIONS = {
    "bucket": "2",
    "deletion-vectors.enabled": "true",
    "pk-btree.index.columns": "a",
    "pk-bitmap.index.columns": "s",
    "metadata.stats-mode": "none",
}
ROWS = [{"id": i, "a": i % 7, "s": f"v{i % 5}"} for i in range(60)]
BOTH = And((Leaf(Op.EQ, "a", (3,)), Leaf(Op.IN, "s", ("v1", "v2"))))
EITHER = Or((Leaf(Op.EQ, "a", (3,)), Leaf(Op.GT, "a", (5,)), Leaf(Op.EQ, "s", ("v1",))))


class Far(LocalStorage):
    """A local disk whose payloads are read by whoever holds on to `reading`."""

    remote = True

    def read_end(self, path: str, offset: int, size: int) -> bytes:
        with self.reading(path):
            return super().read_end(path, offset, size)

    @contextmanager
    def reading(self, path: str) -> Iterator[None]:
        yield


@pytest.fixture
def table(tmp_path: Path) -> BuiltTable:
    table = BuiltTable(tmp_path / "t", schema(COLUMNS, options=OPTIONS))
    table.put(ROWS)
    return table


def far(table: BuiltTable, **options: str) -> TableStore:
    return TableStore(Far(table.store.uri), options=options)


def found(store: TableStore, predicate: Predicate) -> list[int]:
    return sorted(Scan(store, predicate, ["id"]).to_arrow()["id"].to_pylist())


def expected(predicate: Predicate) -> list[int]:
    return [row["id"] for row in ROWS if holds(predicate, row)]


@pytest.mark.parametrize("predicate", [BOTH, EITHER], ids=["and", "or"])
def test_payloads_of_all_buckets_and_columns_are_asked_at_the_same_time(
    table: BuiltTable, monkeypatch: pytest.MonkeyPatch, predicate: Predicate
) -> None:
    payloads = table.index(["a", "s"])
    table.publish()
    all_of_them = threading.Barrier(len(payloads), timeout=30)
    first: set[str] = set()

    @contextmanager
    def reading(self: Far, path: str) -> Iterator[None]:
        if path not in first:
            first.add(path)
            all_of_them.wait()
        yield

    monkeypatch.setattr(Far, "reading", reading)
    store = far(table)
    with capture_logs() as logs:
        assert len(payloads) == 4 and found(store, predicate) == expected(predicate)
    assert not [log for log in logs if log["event"] == "index.unusable"], "one of them waited for another one"
    assert {file.decision for file in Scan(store, predicate).explain().files} <= {INDEXED, PRUNED}


@pytest.mark.parametrize("threads", [1, 2])
def test_no_more_of_them_than_the_option_says(table: BuiltTable, monkeypatch: pytest.MonkeyPatch, threads: int) -> None:
    table.index(["a", "s"])
    table.publish()
    lock, at_once = threading.Lock(), [0]
    most = 0

    @contextmanager
    def reading(self: Far, path: str) -> Iterator[None]:
        nonlocal most
        with lock:
            at_once[0] += 1
            most = max(most, at_once[0])
        time.sleep(0.05)
        yield
        with lock:
            at_once[0] -= 1

    monkeypatch.setattr(Far, "reading", reading)
    assert found(far(table, **{"global-index.thread-num": str(threads)}), BOTH) == expected(BOTH)
    assert 1 <= most <= threads


@pytest.mark.parametrize("predicate", [BOTH, EITHER], ids=["and", "or"])
def test_a_broken_one_is_read_around_with_one_warning_each(table: BuiltTable, predicate: Predicate) -> None:
    payloads: list[IndexFileMeta] = table.index(["a", "s"])
    table.publish()
    broken = [payload for payload in payloads if payload.index_type == "btree"]
    for payload in broken:
        path = table.index_path(payload)
        path.write_bytes(path.read_bytes()[:-12] + bytes(12))
    store = far(table)
    with capture_logs() as logs:
        assert found(store, predicate) == expected(predicate)
    warned = [log["payload"] for log in logs if log["event"] == "index.unusable"]
    assert sorted(warned) == sorted(payload.file_name for payload in broken)
    decisions = {file.decision for file in Scan(store, predicate).explain().files}
    assert decisions == ({RAW} if predicate is EITHER else {INDEXED})
