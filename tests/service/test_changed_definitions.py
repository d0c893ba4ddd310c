"""The daemon and index definitions that another engine changes while nobody writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from structlog.testing import capture_logs

from maintainer.service.watch import RESOLVE_EVERY
from tests.service.test_follow import follower
from tests.support.evolve import set_options
from tests.support.small_table import SmallTable
from tests.support.warehouses import some_rows, table_in


def turns(follows: Any) -> list[tuple[str, Any]]:
    """What as many turns tell as it takes to look at the schemas."""
    with capture_logs() as events:
        for _ in range(RESOLVE_EVERY + 1):
            follows.turn()
    return [(event["event"], event["column"]) for event in events if event["event"] in ("definition.changed", "payload.dropped")]


def covered(table: SmallTable) -> dict[str, float]:
    return {each.column: each.ratio for each in table.table.coverage().definitions}


def test_it_notices_them_tells_once_and_does_what_follows(tmp_path: Path) -> None:
    table = table_in(tmp_path)
    table.write(some_rows(0, 100))
    follows = follower(table)
    assert turns(follows) == []
    before = covered(table)
    assert set(before.values()) == {1.0}
    btree = next(key for key in table.table.schema.options if key == "pk-btree.index.columns")
    column = table.table.schema.options[btree]
    set_options(table.path, **{btree: None})
    told = turns(follows)
    assert told[0] == ("definition.changed", column)
    assert ("payload.dropped", column) in told
    assert column not in covered(table)
    assert turns(follows) == []
    set_options(table.path, **{btree: column})
    assert turns(follows) == [("definition.changed", column)]
    assert covered(table) == before
    table.check()
