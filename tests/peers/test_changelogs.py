"""Streaming readers of the peers are told what the changelogs say that our writers (input) and our compactions (lookup, full-compaction) make:
the same records, those of a key in the same order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from maintainer.data.values import json_rows
from maintainer.model.schema import TableSchema
from tests.peers import readers
from tests.property.test_changelogs import CASES
from tests.property.test_engines import EveryKind
from tests.support import peers
from tests.support.campaign import share
from tests.support.changelogs import Change, changes

SEEDS = share("changelogs as streaming peers see them", short=5, long=200)


def java_changes(path: Path) -> list[Change]:
    peers.asked["java"] += 1
    return [Change(**line) for line in readers.java().run("changelog", path)]


def pypaimon_changes(path: Path, schema: TableSchema, snapshots: int) -> list[Change]:
    """As many snapshots tell something."""
    peers.asked["pypaimon"] += 1
    builder = readers.pypaimon_table(path).new_stream_read_builder().with_include_row_kind()
    scan, read, found = builder.new_streaming_scan(), builder.new_read(), []
    scan.next_snapshot_id, scan._diff_threshold = 1, 1000
    for plan in islice(scan.stream_sync(), snapshots):
        rows = read.to_arrow(plan.splits())
        kinds = rows.column("_row_kind").to_pylist()
        rows = readers.conformed(rows, schema)
        found += [Change(0, kind, list(row.values())) for kind, row in zip(kinds, json_rows(rows, schema.fields), strict=True)]
    return found


def by_key(found: Sequence[Change], schema: TableSchema) -> dict[str, list[tuple[str, Any]]]:
    keys, told = [schema.names.index(name) for name in schema.primary_keys], defaultdict(list)
    for change in found:
        told[repr([change.row[index] for index in keys])].append((change.kind, change.row))
    return dict(told)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_peers_are_told_what_we_say(seed: int, tmp_path: Path) -> None:
    (tmp_path / "db.db").mkdir()
    name, producer = CASES[seed * 4 % len(CASES)]
    made = EveryKind.make(tmp_path / "db.db", name, seed, {"changelog-producer": producer})
    for _ in range(3):
        for _ in range(made.random.randrange(1, 4)):
            made.write(made.random.choice([3, 30, 100]))
        made.table.maintain(full=producer == "full-compaction")
    store, schema, path = made.table.store, made.table.schema, Path(made.path)
    told = changes(store)
    assert told
    expected = by_key(told, schema)
    if readers.JAVA_ABSENT is None:
        found = java_changes(path)
        assert by_key(found, schema) == expected, schema.options
        assert sorted(map(repr, found)) == sorted(map(repr, told))
    if readers.PYPAIMON_ABSENT is None:
        found = pypaimon_changes(path, schema, len({change.snapshot for change in told}))
        assert by_key(found, schema) == expected, schema.options
