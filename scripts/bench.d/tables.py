"""The tables that measurements work on."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import maintainer

KEYS = {
    "int64": ("id BIGINT", "id"),
    "text": ("id STRING", "id"),
    "composite": ("region INT, id BIGINT", "region, id"),
}
VALUES = "amount INT, price DOUBLE, name STRING, state STRING, changed TIMESTAMP(3)"
STATES = np.array(["open", "paid", "shipped", "returned"])


@dataclass(frozen=True)
class Shape:
    """Level-0 files, each of that many rows with keys of a range; `distinct`: no key is in two files."""

    runs: int
    rows: int
    keys: int
    key: str = "int64"
    distinct: bool = False
    options: dict[str, str] = field(default_factory=dict)


def write(uri: Path, shape: Shape) -> maintainer.Table:
    columns, key = KEYS[shape.key]
    options = {"bucket": "1", "deletion-vectors.enabled": "true", "write-only": "true", **shape.options}
    said = ", ".join(f"'{name}'='{value}'" for name, value in options.items())
    table = maintainer.create_table(str(uri), f"CREATE TABLE t ({columns}, {VALUES}, PRIMARY KEY ({key}) NOT ENFORCED) WITH ({said})")
    random = np.random.default_rng(7)
    shuffled = random.permutation(shape.runs * shape.rows).reshape(shape.runs, shape.rows)
    for run in range(shape.runs):
        ids = shuffled[run] if shape.distinct else random.choice(shape.keys, shape.rows, replace=False)
        append(table, shape.key, np.sort(ids), run, random)
    return table


def append(table: maintainer.Table, key: str, ids: Any, run: int, random: np.random.Generator) -> None:
    rows = len(ids)
    batch = {
        **key_columns(key, ids),
        "amount": pa.array(random.integers(0, 100_000, rows), pa.int32()),
        "price": random.random(rows) * 1000,
        "name": pa.array(np.char.add("customer-", (ids * 7919 % 2_030_000).astype(str))),
        "state": pa.array(STATES[random.integers(0, len(STATES), rows)]),
        "changed": pa.array(1_750_000_000_000 + run * 86_400_000 + np.sort(random.integers(0, 86_400_000, rows)), pa.timestamp("ms")),
    }
    with table.writer() as writer:
        writer.write(pa.table(batch))


def key_columns(key: str, ids: Any) -> dict[str, Any]:
    if key == "int64":
        return {"id": ids}
    if key == "text":
        return {"id": pa.array(np.char.add("customer-", np.char.zfill(ids.astype(str), 9)))}
    return {"region": pa.array(ids // 100_000, pa.int32()), "id": ids}
