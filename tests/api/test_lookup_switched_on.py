"""Lookups that are switched on for a table with overlapping levels, without deletion vectors: a record of a lower level does not contain those
of higher ones yet, and all of them count until one full compaction has merged them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.evolve import set_options
from tests.support.small_table import SmallTable

ENGINES = {
    "partial-update": {"merge-engine": "partial-update"},
    "aggregation": {"merge-engine": "aggregation", "fields.default-aggregate-function": "last_non_null_value"},
    "sequence": {"sequence.field": "v"},
}


def shown(table: SmallTable) -> dict[int, tuple[int | None, str | None]]:
    rows = table.table.scan().to_arrow().to_pydict()
    return dict(zip(rows["id"], zip(rows["v"], rows["s"], strict=True), strict=True))


@pytest.mark.parametrize("option", [{"changelog-producer": "lookup"}, {"force-lookup": "true"}], ids=["changelog", "force-lookup"])
@pytest.mark.parametrize("engine", ENGINES)
def test_no_record_of_the_time_before_is_lost(engine: str, option: dict[str, str], tmp_path: Path) -> None:
    table = SmallTable(tmp_path, **{"deletion-vectors.enabled": "false", "compaction.force-up-level-0": "true", **ENGINES[engine]})
    table.write({key: (key, f"text {key * 7919 % 10007}") for key in range(2000)})
    table.maintain(full=True)
    expected = dict(table.rows)
    if engine == "sequence":
        table.write({7: (1, "too late"), 8: (100, "newer")})
        expected[8] = (100, "newer")
    else:
        table.write({7: (None, "other"), 8: (100, None)})
        expected[7], expected[8] = (7, "other"), (100, expected[8][1])
    table.maintain()
    assert sorted({level for level, _, _ in table.files()}) == [4, 5]
    set_options(table.path, **option)
    assert shown(table) == expected

    table.write({5: (5000, "later")})
    expected[5] = (5000, "later")
    report = table.maintain()
    assert report.outcome == "nothing" and "--full" in str(report.reason)
    assert shown(table) == expected
    assert table.maintain(full=True).outcome == "committed"
    assert shown(table) == expected
    for key in (6, 7):
        table.write({key: (6000, "last")})
        expected[key] = (6000, "last")
        assert table.maintain().outcome == "committed"
    assert shown(table) == expected


def test_where_the_newest_record_is_all_that_counts_nothing_waits(tmp_path: Path) -> None:
    table = SmallTable(tmp_path, **{"deletion-vectors.enabled": "false", "compaction.force-up-level-0": "true"})
    table.write({key: key for key in range(2000)})
    table.maintain(full=True)
    table.write({7: 70})
    table.maintain()
    set_options(table.path, **{"changelog-producer": "lookup"})
    table.write({7: 71, 8: 80})
    assert table.maintain().outcome == "committed"
    assert shown(table) == table.rows
