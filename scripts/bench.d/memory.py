"""Peak memory of whole processes with the default budget of 1 GiB: it is at most the budget and 300 MB.

memory.long   10 million rows in 5 runs
memory.wide   5 runs of 20,000 rows with 500 columns
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import tables
from rounds import CHILD, Measurement, peak_memory, run
from tables import Shape

import maintainer

BUDGET = 1 << 30
LIMIT = (BUDGET + (300 << 20)) / 1e6


def long(directory: Path) -> Iterator[Measurement]:
    table = directory / "bench.db" / "long"
    tables.write(table, Shape(5, 2_000_000, 9_000_000))
    yield "memory.long", float(run([*CHILD, "peak", str(table)])[0]) / 1e6, "MB", LIMIT, True


def wide(directory: Path) -> Iterator[Measurement]:
    uri = directory / "bench.db" / "wide"
    names = [f"c{number}" for number in range(500)]
    fields = [{"name": "id", "type": "BIGINT"}, *({"name": name, "type": "STRING"} for name in names)]
    options = {"bucket": "1", "deletion-vectors.enabled": "true", "write-only": "true"}
    table = maintainer.create_table(str(uri), {"fields": fields, "primaryKeys": ["id"], "options": options})
    random = np.random.default_rng(3)
    for _ in range(5):
        ids = np.sort(random.choice(60_000, 20_000, replace=False))
        column = pa.array(np.char.add("value-", random.integers(0, 10**9, 20_000).astype(str)))
        with table.writer() as writer:
            writer.write(pa.table({"id": ids, **dict.fromkeys(names, column)}))
    yield "memory.wide", float(run([*CHILD, "peak", str(uri)])[0]) / 1e6, "MB", LIMIT, True


def peak(uri: str) -> int:
    """Peak memory of this process after a full compaction."""
    report = maintainer.open_table(uri).maintain(full=True, memory=BUDGET)
    if report.outcome != "committed":
        raise SystemExit(f"the compaction did not do what it should: {report}")
    return peak_memory()


CHILDREN = {"peak": peak}
