"""Small tables made by our own writer, and ways to break them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

import maintainer

OPTIONS = {
    "bucket": "2",
    "deletion-vectors.enabled": "true",
    "write-only": "true",
    "pk-btree.index.columns": "n",
    "pk-bitmap.index.columns": "v",
}


def make_table(
    directory: Path, options: Mapping[str, str | None] | None = None, partitioned: bool = False, more: Sequence[tuple[str, str]] = ()
) -> maintainer.Table:
    """`p STRING` (if partitioned), `id BIGINT`, `v STRING`, `n INT` and `more`; two buckets, a BTree on n, a Bitmap on v. An option None is
    left out."""
    partition = ["p"] if partitioned else []
    merged = {key: value for key, value in {**OPTIONS, **(options or {})}.items() if value is not None}
    fields = [("p", "STRING")] * partitioned + [("id", "BIGINT"), ("v", "STRING"), ("n", "INT"), *more]
    definition = {
        "fields": [{"name": name, "type": text} for name, text in fields],
        "primaryKeys": [*partition, "id"],
        "partitionKeys": partition,
        "options": merged,
    }
    return maintainer.create_table(str(directory / "t"), definition)


def append(table: maintainer.Table, first: int, count: int, value: str = "x", delete: bool = False, **others: Any) -> None:
    """Ids first … first + count − 1, as one commit."""
    ids = list(range(first, first + count))
    rows = {"id": ids, "v": [f"{value}{i % 5}" for i in ids], "n": [i % 7 if i % 10 else None for i in ids]}
    rows |= {name: [given] * count for name, given in others.items()}
    with table.writer() as writer:
        if delete:
            writer.delete(pa.table({name: column for name, column in rows.items() if name in table.schema.primary_keys}))
        else:
            writer.write(pa.table(rows))


def make_busy_table(directory: Path, options: Mapping[str, str | None] | None = None) -> maintainer.Table:
    """Two covered levels with deletion vectors, and level-0 files on top: everything that a table can consist of."""
    table = make_table(directory, {"num-sorted-run.compaction-trigger": "10", **(options or {})})
    append(table, 0, 1000)
    table.maintain(full=True)
    append(table, 100, 50, "y")
    append(table, 300, 20, delete=True)
    table.maintain()
    append(table, 990, 30, "z")
    return table


def paths(table: maintainer.Table, pattern: str) -> list[Path]:
    """Files of the table's directory, such as `**/data-*` or `manifest/*`."""
    return sorted(path for path in Path(table.store.uri).glob(pattern) if path.is_file())
