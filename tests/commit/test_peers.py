"""Other implementations read tables that we committed: a real compaction's files, merged manifests, partitions, upgrades and index files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import maintainer
from maintainer.model.schema import TableSchema
from tests.peers.readers import PYPAIMON_ABSENT, RUST_ABSENT, Rows, bag, pypaimon_rows, rust_rows
from tests.support.metadata_tables import state

MERGING = {"manifest.merge-min-count": "3", "manifest.target-file-size": "4 kb", "manifest.full-compaction-threshold-size": "6 kb"}

Reader = Callable[[Path, TableSchema], Rows]


@pytest.mark.parametrize(
    "read",
    [
        pytest.param(pypaimon_rows, marks=pytest.mark.skipif(PYPAIMON_ABSENT is not None, reason=str(PYPAIMON_ABSENT)), id="pypaimon"),
        pytest.param(rust_rows, marks=pytest.mark.skipif(RUST_ABSENT is not None, reason=str(RUST_ABSENT)), id="pypaimon-rust"),
    ],
)
def test_peers_read_what_we_committed(tmp_path: Path, read: Reader) -> None:
    definition = {
        "fields": [{"name": "p", "type": "STRING"}, {"name": "id", "type": "INT"}, {"name": "v", "type": "STRING"}],
        "primaryKeys": ["p", "id"],
        "partitionKeys": ["p"],
        "options": {"bucket": "2", "deletion-vectors.enabled": "true", "write-only": "true", "pk-btree.index.columns": "v", **MERGING},
    }
    path = tmp_path / "db.db" / "t"
    table = maintainer.create_table(str(path), definition)
    model: dict[tuple[str, int], str] = {}
    import pyarrow as pa

    for round_ in range(8):
        rows = [(p, number, f"v{round_}") for p in ("a", "b=c") for number in range(round_, round_ + 5)]
        with table.writer() as writer:
            writer.write(pa.table({name: [row[i] for row in rows] for i, name in enumerate(("p", "id", "v"))}))
        model |= {(p, number): v for p, number, v in rows}
        if round_ % 2:
            table.maintain(full=round_ == 5)
            schema = maintainer.open_table(str(path)).store.latest_schema()
            assert read(path, schema) == bag([p, number, v] for (p, number), v in model.items())
    merged = state(maintainer.open_table(str(path)).store)
    base, _ = maintainer.open_table(str(path)).store.manifests.lists_of(merged.snapshot)
    assert len(base) < merged.snapshot.id / 2
