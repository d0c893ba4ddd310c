"""A column that became NOT NULL and has a NULL: a file that is moved keeps it, one that is rewritten cannot. The pass says which column it
is, and nothing is lost; once the NULL is gone the table is maintained again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

import maintainer
from tests.support.evolve import retype_column
from tests.support.small_table import SmallTable

PLAIN = {"deletion-vectors.enabled": "false"}
TABLES: list[Mapping[str, str]] = [
    {},
    PLAIN,
    {**PLAIN, "changelog-producer": "lookup"},
    {**PLAIN, "changelog-producer": "full-compaction"},
    {**PLAIN, "merge-engine": "first-row"},
    {**PLAIN, "merge-engine": "partial-update"},
    {**PLAIN, "merge-engine": "aggregation"},
]


@pytest.mark.parametrize("options", TABLES, ids=[" ".join(options.values()) or "vectors" for options in TABLES])
def test_a_null_where_none_may_be_is_an_error_that_loses_nothing(options: Mapping[str, str], tmp_path: Path) -> None:
    table = SmallTable(tmp_path, **options)
    table.write({1: (1, "a"), 2: (None, "b")})
    table.write({1: (2, "c"), 3: (3, "d")})
    nullable = table.table.schema.field("v").type
    retype_column(table.path, "v", replace(nullable, nullable=False))
    opened = maintainer.open_table(table.path)
    latest, paths = opened.store.latest_snapshot_id(), table.paths()
    with pytest.raises(maintainer.MaintainerError, match=r"bucket-0.*column v is NOT NULL"):
        opened.maintain(full=True)
    assert (opened.store.latest_snapshot_id(), table.paths()) == (latest, paths)
    if options.get("merge-engine") in (None, "partial-update", "aggregation") and options:
        assert len(opened.scan(columns=["id"]).to_arrow()) == 3
    retype_column(table.path, "v", nullable)
    assert maintainer.open_table(table.path).maintain(full=True).outcome == "committed"
    rows = {row["id"]: row["v"] for row in maintainer.open_table(table.path).scan().to_arrow().to_pylist()}
    assert rows == {1: 1 if options.get("merge-engine") == "first-row" else 2, 2: None, 3: 3}
