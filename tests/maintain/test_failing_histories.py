"""Histories of a table whose groups fail now and then, of any family and for any reason, in either index mode.

Whatever payloads are left, queries by the strict and by the relaxed rule give the rows that they give without indexes; and once nothing fails
any more, everything is covered.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from maintainer.api.maintenance import Known
from maintainer.api.table import Table
from maintainer.errors import CorruptFile, SpillError, StorageError
from maintainer.index.family import bitmap, btree
from tests.support.campaign import share
from tests.support.small_table import SmallTable

HISTORIES = share("histories with groups that fail", short=6, long=1000)
ERRORS = (ValueError("a value"), SpillError("no room"), MemoryError(), CorruptFile("torn"), StorageError("refused"), KeyError("a defect"))


@pytest.mark.parametrize("seed", range(HISTORIES))
def test_failures_never_change_an_answer(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(seed)
    mode = random.choice(["wait", "async"])
    table = SmallTable(tmp_path, indexes=True, target_file_size="4 kb", **{"maintain.index-mode": mode})
    healthy = {module: module.build for module in (btree, bitmap)}

    def failing(module: Any) -> Any:
        def build(rows: Any, *rest: Any) -> Any:
            if random.random() < 0.5:
                if random.random() < 0.5:
                    next(iter(rows), None)
                raise random.choice(ERRORS)
            return healthy[module](rows, *rest)

        return build

    for module in healthy:
        monkeypatch.setattr(module, "build", failing(module))
    known = Known()
    table.write({key: key * 1_000_003 % 2**40 for key in range(1500)})
    for _ in range(random.randint(3, 6)):
        first = random.randrange(1400)
        if random.random() < 0.6:
            table.write({key: random.randrange(2**40) for key in range(first, first + random.choice([1, 100]))})
        if random.random() < 0.5:
            table.write(delete=range(first, first + random.choice([1, 100])))
        known = known if random.random() < 0.7 else Known()
        match random.choice(["pass", "pass", "full", "rebuild", "force"]):
            case "pass":
                table.maintain(known=known)
            case "full":
                table.maintain(full=True, known=known)
            case "rebuild":
                table.maintain(index_only=True, known=known)
            case "force":
                table.maintain(index_only=True, force=True, known=known)
        check_answers(table, random)
        assert not table.unreferenced()
    for module, build in healthy.items():
        monkeypatch.setattr(module, "build", build)
    table.maintain(known=known)
    table.maintain(index_only=True, known=known)
    check_answers(table, random)
    table.check()
    assert table.maintain(known=known).failures == table.maintain(known=Known()).failures == ()


def check_answers(table: SmallTable, random: Random) -> None:
    """What a query gives, with groups that are accepted by either rule; level 0 is not seen."""
    seen = {row["id"]: row for row in table.table.scan(use_index=False).to_arrow().to_pylist()}
    for rule in ("strict", "relaxed"):
        asked = Table(table.with_options(**{"read.group-acceptance": rule}))
        some = random.choice([*seen.values(), {"v": 5, "s": "s3"}])
        for where, wanted in (
            (f"v = {some['v']}", {key for key, row in seen.items() if row["v"] == some["v"]}),
            (f"s = '{some['s']}' AND v > {2**39}", {key for key, row in seen.items() if row["s"] == some["s"] and row["v"] > 2**39}),
        ):
            assert set(asked.scan(where=where).to_arrow()["id"].to_pylist()) == wanted, (rule, where)
        assert all(0 <= one.ratio <= 1 for one in asked.coverage().definitions)
