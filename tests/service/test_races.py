"""Daemons, writers of all kinds and readers on one table at once: no row is lost, no key is there twice, nobody fails, all is covered."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.peers import readers
from tests.support import s3
from tests.support.arena import EXPIRING, Arena, Rows, rows_of
from tests.support.campaign import is_long, share
from tests.support.consumer import followed

SECONDS = share("races of daemons: seconds each", short=2, long=60)
LIVE = Path(readers.JAVA_PEER.parent, "live.sh")
ALARMS = {"publish.replaced", "snapshot.replaced", "commit.base-replaced"}
"""What daemons say of writers that replace what is there."""
SLOW = {"service.stopped"}
"""The warning of a look that a slow store did not answer before the end."""


def arena(directory: Path, kind: str, **options: str) -> Arena:
    return Arena(directory, s3.fresh_bucket() if kind == "s3" else None, **options)


def key_class(rows: Rows, *seeds: int) -> Rows:
    """The rows of some writers: each has keys of its own."""
    return {key: values for key, values in rows.items() if key % 4 in seeds}


@pytest.mark.parametrize("kind", ["local", "s3"])
def test_two_daemons_two_writers_and_a_reader(tmp_path: Path, kind: str) -> None:
    table = arena(tmp_path, kind, **EXPIRING, **{"publish.verify-delay": "20 ms"})
    table.rows = rows_of(table.race(SECONDS, "writer0", "writer1", "reader4"))
    assert table.told("error", "critical") == {}
    assert table.told("warning").keys() <= SLOW
    assert table.told("info")["pass.committed"] > 0
    assert table.told("info")["expire.finished"] > 0 or not is_long()
    table.check()


@pytest.mark.parametrize("producer", [pytest.param("lookup", marks=pytest.mark.long), "full-compaction"])
def test_two_daemons_that_write_a_changelog(tmp_path: Path, producer: str) -> None:
    """Each change is told once, whoever compacts it."""
    plain = {"deletion-vectors.enabled": "false", "pk-btree.index.columns": "", "pk-bitmap.index.columns": ""}
    table = arena(tmp_path, "local", **plain, **{"changelog-producer": producer, "maintain.expire": "false"})
    table.rows = rows_of(table.race(SECONDS, "writer0", "writer1", "reader4"))
    assert table.told("error", "critical") == {}
    table.table.maintain()
    table.check()
    assert {row["id"]: (row["v"], row["s"]) for row in followed(table.store)} == table.rows


@pytest.mark.skipif(bool(readers.JAVA_ABSENT), reason=readers.JAVA_ABSENT or "")
@pytest.mark.parametrize("engine", ["java", pytest.param("flink", marks=pytest.mark.long)])
def test_daemons_beside_a_java_engine(tmp_path: Path, engine: str) -> None:
    """What it wrote is told by itself and read by itself. Its rename may replace a snapshot of ours; that is done again."""
    table = arena(tmp_path, "local", **EXPIRING, **{"write-only": "true"})
    words = [str(LIVE), table.uri, str(SECONDS), "1", "--engine", engine, "--rate", "500", "--keys", "1000", "--delete-percent", "10"]
    table.race(SECONDS, beside=words)
    assert table.told("error", "critical").keys() <= ALARMS
    rows = [json.loads(line) for line in Path(f"{table.uri}.live.jsonl").read_text().splitlines()]
    table.rows = {key: (value, text) for key, value, text in rows}
    table.texts_follow = False
    assert readers.java_rows(Path(table.uri)) == table.check()


@pytest.mark.long
@pytest.mark.parametrize("kind", ["local", "s3"])
def test_beside_a_writer_that_checks_and_then_replaces(tmp_path: Path, kind: str) -> None:
    """With a delay that is longer than it takes between looking and replacing, nothing of ours is lost; rows of its own may be."""
    table = arena(tmp_path, kind, **EXPIRING, **{"publish.verify-delay": "50 ms" if kind == "local" else "300 ms"})
    rows = rows_of(table.race(SECONDS, "writer0", "renamer2", "reader4"))
    assert table.told("error", "critical").keys() <= ALARMS
    table.rows = table.visible()
    assert key_class(table.rows, 0, 1, 3) == rows
    table.check()


@pytest.mark.skipif(bool(readers.PYPAIMON_ABSENT), reason=readers.PYPAIMON_ABSENT or "")
@pytest.mark.long
@pytest.mark.parametrize("kind", ["local", "s3"])
def test_beside_pypaimon_writers(tmp_path: Path, kind: str) -> None:
    """On S3 it looks for the snapshot and copies its own there some requests later: over ours, if that came in between."""
    table = arena(tmp_path, kind, **EXPIRING, **{} if kind == "local" else {"publish.verify-delay": "1 s"})
    outputs = table.race(SECONDS, "writer0", "writer_of_pypaimon1", "reader4")
    assert table.told("error", "critical").keys() <= ALARMS
    table.rows = table.visible()
    assert key_class(table.rows, 0, 2, 3) == rows_of(outputs)
    if not table.told("error"):
        assert table.rows == rows_of(outputs, ["writer", "writer_of_pypaimon"])
    table.check()
