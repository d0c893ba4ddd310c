"""`once` on every table of Java that is in scope: afterwards all is visible and indexed, sound, and nothing is left to do."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

import maintainer
from maintainer.api.table import Table
from maintainer.data.values import json_rows
from tests.golden.test_compaction import REPLAYED
from tests.support import golden

IN_SCOPE = (
    *((name, archive) for name in REPLAYED for archive in ("input", "after")),
    ("async_index", "table"),
    ("empty_table", "table"),
    ("expired", "table"),
    ("idx_bitmap_blocks", "table"),
    ("idx_bitmap_types", "table"),
    ("idx_btree_blocks", "table"),
    ("idx_btree_types", "table"),
    ("idx_levels", "table"),
    ("idx_partial", "table"),
    ("idx_stale", "table"),
    ("inline_compaction", "table"),
    ("manifest_merging", "table"),
    ("overwrite_rollback", "table"),
    ("schema_evolution", "after"),
)
"""Every (case, archive) that `maintainer.table.support` does not refuse."""


def opened(name: str, archive: str, directory: Path) -> Table:
    found = golden.case(name)
    assert found is not None
    return maintainer.open_table(str(golden.unpack(name, directory, found["archives"][archive])))


def rows(table: Table, use_index: bool = True) -> Counter[str]:
    scan = table.scan(use_index=use_index)
    return Counter(json.dumps(row) for row in json_rows(scan.to_arrow(), scan.fields))


@pytest.mark.parametrize(("name", "archive"), IN_SCOPE)
def test_once_covers_everything(name: str, archive: str, tmp_path: Path) -> None:
    table = opened(name, archive, tmp_path)
    assert table.maintain().failures == ()
    assert table.coverage().ratio() == 1.0
    assert table.verify(deep=True).problems == ()
    assert table.maintain().outcome == "nothing"
    before = rows(table)
    table.maintain(full=True)  # what one merge of all files gives
    assert rows(table) == before == rows(table, use_index=False)
    assert table.coverage().ratio() == 1.0
    assert table.maintain(full=True).outcome == "nothing"


def test_every_other_table_is_refused_or_as_sound_after_a_pass(tmp_path: Path) -> None:
    for path in golden.directory().glob("*.json"):
        for archive in json.loads(path.read_text())["archives"]:
            if (path.stem, archive) not in IN_SCOPE:
                table = opened(path.stem, archive, tmp_path / archive)
                try:
                    table.maintain()
                except maintainer.Unsupported:
                    continue
                assert table.verify(deep=True).problems == ()
                assert table.maintain().outcome == "nothing"
