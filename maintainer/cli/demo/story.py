"""What the demo does: a writer appends batches of new, changed and deleted orders, while passes run beside it and queries are asked all the
time.

A model in plain Python dicts says what every answer must be. What a batch reader sees is the state that the last pass compacted, so each
row carries the number of the batch that wrote it: the newest number that is visible tells which version of the model an answer must equal.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from maintainer.api.table import Table, create_table
from maintainer.model.report import Report

if TYPE_CHECKING:
    from maintainer.cli.demo.screen import Screen

DEFINITION = """
CREATE TABLE orders (
    region STRING, id BIGINT, customer STRING, status STRING, amount DECIMAL(10, 2), batch INT,
    PRIMARY KEY (region, id) NOT ENFORCED
) PARTITIONED BY (region) WITH (
    'bucket' = '2',
    'deletion-vectors.enabled' = 'true',
    'write-only' = 'true',
    'pk-btree.index.columns' = 'customer,amount',
    'pk-bitmap.index.columns' = 'status'
)
"""
FIRST_ROWS = 30_000
BATCHES = 16
NEW, CHANGED, DELETED = 1_500, 1_200, 300
PAUSE = 0.4
"""Seconds between two batches."""
COLUMNS = ("region", "id", "customer", "status", "amount", "batch")
_REGIONS = ("asia", "europe", "us")
_STATUS = ("new", "paid", "sent", "returned")

Order = tuple[str, int, str, str, Decimal, int]
Orders = dict[int, Order]

QUERIES: tuple[tuple[str, Callable[[Order], bool]], ...] = (
    ("customer = 'c-0417'", lambda order: order[2] == "c-0417"),
    ("customer LIKE 'c-10%' AND status = 'returned'", lambda order: order[2].startswith("c-10") and order[3] == "returned"),
    ("amount BETWEEN 499.5 AND 501", lambda order: Decimal("499.5") <= order[4] <= 501),
    ("status IN ('new', 'returned') AND amount > 995", lambda order: order[3] in ("new", "returned") and order[4] > 995),
    (
        "region = 'asia' AND customer = 'c-0001' OR amount < 1.5",
        lambda order: (order[0] == "asia" and order[2] == "c-0001") or order[4] < Decimal("1.5"),
    ),
    ("status <> 'sent' AND customer >= 'c-1195'", lambda order: order[3] != "sent" and order[2] >= "c-1195"),
)


@dataclass(frozen=True)
class Summary(Report):
    """What came out of it."""

    rows: int
    written: int
    snapshots: int
    passes: int
    visible_ratio: float
    covered_ratio: float
    queries: int
    right: int
    rows_asked: int
    rows_read: int
    files_read_raw: int
    problems: int
    seconds: float
    ok: bool


class Story:
    """One run. `versions[n]` are the orders after batch n; the writer's thread appends, the other one reads what is there."""

    def __init__(self, directory: Path, seed: int = 20260801) -> None:
        self.table: Table = create_table("shop.orders", DEFINITION, warehouse=str(directory))
        self.random = Random(seed)
        self.versions: list[Orders] = [{}]
        self.written = 0
        self.passes = 0
        self.queries = 0
        self.right = 0
        self.failure: BaseException | None = None

    def run(self, screen: Screen) -> Summary:
        started = time.monotonic()
        writer = threading.Thread(target=self._write, args=(screen,), daemon=True)
        screen.say(f"A table with indexes on customer, amount and status, at {self.table.name}")
        screen.say(f"A writer appends {BATCHES + 1} batches; passes run beside it, and every answer is compared with a model.")
        writer.start()
        while writer.is_alive():
            self._maintain(screen, repeat=False)  # with a writer beside it, "until nothing is left" may take long
            self._ask(QUERIES[self.queries % len(QUERIES)])
            time.sleep(0.05)
        writer.join()
        if self.failure is not None:
            raise self.failure
        self._maintain(screen)
        return self._finish(screen, started)

    def _write(self, screen: Screen) -> None:
        try:
            orders, next_id = self.versions[0], 0
            for number in range(1, BATCHES + 2):
                new = FIRST_ROWS if number == 1 else NEW
                orders, next_id = self._write_batch(number, orders, next_id, new)
                screen.wrote(number, BATCHES + 1, len(orders), self.table.coverage())
                time.sleep(PAUSE)
        except BaseException as error:
            self.failure = error

    def _write_batch(self, number: int, before: Orders, next_id: int, new: int) -> tuple[Orders, int]:
        """One commit: deletes, then new and changed orders. Later rows of a batch replace earlier ones."""
        known = list(before)
        deleted = self.random.sample(known, min(DELETED, len(known)))
        changed = self.random.choices(known, k=CHANGED) if known else []
        rows = [self._order(order_id, number) for order_id in [*range(next_id, next_id + new), *changed]]
        after = dict(before)
        for order_id in deleted:
            del after[order_id]
        after.update({row[1]: row for row in rows})
        self.versions.append(after)  # before the commit: once it is visible, it can be asked for
        with self.table.writer() as writer:
            if deleted:
                writer.delete(pa.table({"region": [_REGIONS[order_id % 3] for order_id in deleted], "id": deleted}))
            writer.write(pa.Table.from_pylist([dict(zip(COLUMNS, row, strict=True)) for row in rows]))
        self.written += len(rows) + len(deleted)
        return after, next_id + new

    def _order(self, order_id: int, batch: int) -> Order:
        random = self.random
        amount = Decimal(random.randrange(100, 100_000)).scaleb(-2)
        return _REGIONS[order_id % 3], order_id, f"c-{random.randrange(1200):04d}", random.choice(_STATUS), amount, batch

    def _maintain(self, screen: Screen, repeat: bool = True) -> None:
        report = self.table.maintain(repeat=repeat)
        self.passes += report.outcome == "committed"
        screen.saw(self.table.coverage(), self.table.files(), report, self.right, self.queries)

    def _ask(self, query: tuple[str, Callable[[Order], bool]], use_index: bool = True) -> None:
        """Asks one question of the latest snapshot and compares the answer."""
        latest = self.table.store.latest_snapshot_id()
        if latest is None:
            return
        where, test = query
        newest = self.table.scan(columns=["batch"], order_by="batch DESC", limit=1, snapshot_id=latest).to_arrow()
        orders = self.versions[newest.column("batch")[0].as_py() if newest.num_rows else 0]
        found = self.table.scan(where=where, snapshot_id=latest, use_index=use_index).to_arrow()
        answer: set[Any] = {tuple(row.values()) for row in found.to_pylist()}
        self.queries += 1
        self.right += found.num_rows == len(answer) and answer == {order for order in orders.values() if test(order)}

    def _finish(self, screen: Screen, started: float) -> Summary:
        """Everything is written and compacted: all queries with and without indexes, and a look at every file."""
        screen.say("All is written. Now each query with and without indexes; verification.")
        for query in QUERIES:
            self._ask(query)
            self._ask(query, use_index=False)
        looked_at = [file for where, _ in QUERIES for file in self.table.scan(where=where).explain().files]
        coverage = self.table.coverage()
        verified = self.table.verify(deep=True)
        everything = {tuple(row.values()) for row in self.table.scan().to_arrow().to_pylist()}
        same = everything == set(self.versions[-1].values())
        return Summary(
            table=self.table.name,
            rows=coverage.rows,
            written=self.written,
            snapshots=len(self.table.store.snapshot_ids()),
            passes=self.passes,
            visible_ratio=coverage.visible_ratio,
            covered_ratio=coverage.ratio(),
            queries=self.queries,
            right=self.right,
            rows_asked=coverage.rows * len(QUERIES),
            rows_read=sum(file.rows for file in looked_at),
            files_read_raw=sum(file.decision == "raw" for file in looked_at),
            problems=len(verified.problems),
            seconds=round(time.monotonic() - started, 1),
            ok=same and coverage.ratio() == 1.0 and verified.ok and self.right == self.queries,
        )
