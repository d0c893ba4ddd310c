"""Whoever follows a changelog from the start has the table's rows: random tables of every engine, producer and option of compactions, after
every pass that completes what the producer tells."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from maintainer.data.values import json_rows
from tests.property.test_engines import ENGINES, EveryKind
from tests.support.campaign import share
from tests.support.changelogs import Replay, changes

SEEDS = share("changelogs of tables of every engine", short=10, long=2000)
CASES = [
    *((name, "lookup") for name in ENGINES),
    *((name, "full-compaction") for name, engine in ENGINES.items() if not engine.is_first_row),
    ("deduplicate", "input"),
    ("deduplicate without deletes", "input"),
]
"""What writers tell makes the table's rows only where a row is what was written last."""


def rows_of(made: EveryKind) -> list[Any]:
    table = made.table
    return [list(row.values()) for row in json_rows(table.scan().to_arrow(), table.schema.fields)]


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_changelog_makes_the_rows_of_the_table(seed: int, tmp_path: Path) -> None:
    name, producer = CASES[seed * 7 % len(CASES)]
    made = EveryKind.make(tmp_path, name, seed, {"changelog-producer": producer})
    options = made.table.schema.options
    replay, told = Replay(made.table.schema, strict=producer != "input"), 0
    for _ in range(made.random.randrange(2, 6)):
        for _ in range(made.random.randrange(1, 5)):
            made.write(made.random.choice([3, 30, 200]))
        full = producer == "full-compaction" or made.random.random() < 0.25
        assert made.table.maintain(full=full).outcome in ("committed", "nothing")
        everything = changes(made.table.store)
        if ENGINES[name].is_first_row:  # it is told with the kind that it was written with
            assert {change.kind for change in everything} <= {"+I", "+U"}
            everything = [change._replace(kind="+I") for change in everything]
        replay.follow(everything[told:])
        told = len(everything)
        assert sorted(map(repr, replay.rows.values())) == sorted(map(repr, rows_of(made))), options
        if options.get("changelog-producer.row-deduplicate") == "true" and producer != "input":
            updates = [change for change in everything if change.kind in ("-U", "+U")]
            assert all(old.row != new.row for old, new in zip(updates[::2], updates[1::2], strict=True)), options
    assert told, options
