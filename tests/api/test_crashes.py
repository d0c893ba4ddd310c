"""Nothing is lost (DESIGN §4 rule 8): whatever request of a pass or a writer goes wrong, and whenever a process is killed.

Afterwards the latest snapshot can be read and holds the rows of before or after, every file that a snapshot names is there, and the next pass
makes everything visible and covered.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import pytest

from maintainer.api.maintenance import run_pass
from maintainer.api.table import Table
from maintainer.errors import CommitStateUnknown, MaintainerError
from maintainer.table.store import TableStore, open_store
from tests.peers import readers
from tests.support.campaign import share
from tests.support.evolve import set_options
from tests.support.small_table import SmallTable, arrow_of
from tests.support.striking_storage import STRIKES, StrikingStorage, files_below, referenced

Rows = Mapping[int, tuple[int | None, str | None]]
INDEXES = {"pk-btree.index.columns": "v", "pk-bitmap.index.columns": "s"}
LARGE = {"target-file-size": "1 kb"}
"""Files that are not too small to be moved as they are."""
WRITTEN = dict.fromkeys(range(1, 5), (9, "x"))


@dataclass(frozen=True)
class Scene:
    """A table, and something that is done to it."""

    table: SmallTable
    do: Callable[[TableStore], Any]
    written: Rows


def _compact(table: SmallTable) -> None:
    table.write({key: -key for key in range(0, 300, 7)}, delete=range(5, 300, 50))
    table.write({1000 + key: key for key in range(20)})


def _upgrade(table: SmallTable) -> None:
    table.write({key: key for key in range(400, 700)})


def _index(table: SmallTable) -> None:
    set_options(table.path, **INDEXES)


def _mixed(table: SmallTable) -> None:
    set_options(table.path, **INDEXES)
    table.write({1: -1})


def write(store: TableStore) -> None:
    with Table(store).writer() as writer:
        writer.write(arrow_of(WRITTEN))


SCENES: dict[str, tuple[dict[str, Any], Callable[[SmallTable], object], Callable[[TableStore], Any]]] = {
    "compaction": ({"indexes": True}, _compact, run_pass),
    "full compaction": ({"indexes": True}, _compact, lambda store: run_pass(store, full=True)),
    "upgrade": (LARGE, _upgrade, run_pass),
    "APPEND files are rewritten": ({"indexes": True, **LARGE}, lambda table: None, run_pass),
    "groups only": ({}, _index, run_pass),
    "compactions, and groups of other buckets": ({"bucket": "3"}, _mixed, run_pass),
    "writer": ({"indexes": True, "bucket": "2"}, lambda table: None, write),
}
TRIALS = share("failing requests: trials a scene", short=12, long=10_000)


@pytest.fixture(scope="module", params=SCENES)
def scene(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Scene:
    options, prepare, do = SCENES[request.param]
    table = SmallTable(tmp_path_factory.mktemp("scene") / "db.db", **{"manifest.merge-min-count": "3", **options})
    table.write({key: key for key in range(300)})
    table.maintain(rewrite_append=request.param != "APPEND files are rewritten")
    prepare(table)
    return Scene(table, do, WRITTEN if do is write else {})


def test_any_request_may_fail(scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.fsync", lambda descriptor: None)
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    sound = StrikingStorage(str(shutil.copytree(scene.table.path, tmp_path / "db.db" / "sound")))
    scene.do(TableStore(sound))
    cases = [(strike, at) for strike in STRIKES for at in range(1, len(sound.requests) + 1)]
    Random(1).shuffle(cases)
    ended: Counter[str] = Counter()
    for strike, at in cases[:TRIALS]:
        path = shutil.copytree(scene.table.path, tmp_path / "db.db" / "t")
        ended[try_once(scene, str(path), strike, at)] += 1
        shutil.rmtree(path)
    assert len(ended) > 2, ended


def try_once(scene: Scene, path: str, strike: str, at: int) -> str:
    """One strike at one request: how it ended."""
    before, rows_before, files_before = open_store(path).latest_snapshot_id(), visible(path), files_below(path)
    needed = referenced(open_store(path))
    storage = StrikingStorage(path, strike, at)
    error: BaseException | None = None
    try:
        scene.do(TableStore(storage))
    except (MaintainerError, KeyboardInterrupt, MemoryError) as caught:
        error = caught
    context = f"{strike} at request {at} ({storage.struck}): {error!r}"
    there, named = files_below(path), referenced(open_store(path))
    assert needed | named <= there, f"{context}: lost {(needed | named) - there}"
    verified = Table(open_store(path)).verify()
    assert verified.ok, (context, verified.problems)
    committed = open_store(path).latest_snapshot_id() != before
    assert committed or visible(path) == rows_before, context
    if strike == "fail":
        assert there <= files_before | named, f"{context}: left {there - files_before - named}"
    if scene.written and not isinstance(error, (CommitStateUnknown, KeyboardInterrupt, MemoryError)):
        assert committed == (error is None), context
    run_pass(open_store(path))
    assert visible(path) == {**scene.table.rows, **(scene.written if committed else {})}, context
    settled(path)
    return type(error).__name__


def visible(path: str) -> Rows:
    rows = Table(open_store(path)).scan().to_arrow().to_pydict()
    assert len(set(rows["id"])) == len(rows["id"])
    return dict(zip(rows["id"], zip(rows["v"], rows["s"], strict=True), strict=True))


def settled(path: str) -> None:
    """All is covered and sound, and nothing is left to do."""
    table = Table(open_store(path))
    coverage = table.coverage()
    assert coverage.visible_ratio == 1.0 and all(one.ratio == 1.0 for one in coverage.definitions)
    verified = table.verify(deep=True)
    assert verified.ok, verified.problems
    assert table.maintain().outcome == "nothing"


KILLS = share("killed processes", short=8, long=600)


def test_killed_processes(tmp_path: Path) -> None:
    """`maintainer once`, `compact --full` and `write`, killed at any moment of their lives, one after the other on one table."""
    table = SmallTable(tmp_path / "db.db", indexes=True, bucket="2", **{"manifest.merge-min-count": "5", "target-file-size": "4 kb"})
    table.write({key: key for key in range(200)})
    random, killed, numbers = Random(7), 0, count(1)
    while killed < KILLS:
        number = next(numbers)
        key, value = random.randrange(400), random.randrange(10**6)
        lines = tmp_path / "rows.jsonl"
        lines.write_text(f'{{"id": {key}, "v": {value}, "s": "s{value % 7}"}}\n')
        words = random.choice([["once", table.path], ["compact", table.path, "--full"], ["write", table.path, str(lines)]])
        before, started = table.store.latest_snapshot_id(), time.monotonic()
        process = subprocess.Popen([sys.executable, "-m", "maintainer", *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        with suppress(subprocess.TimeoutExpired):
            process.wait(random.uniform(0.1, 1.2))
        process.kill()
        _, errors = process.communicate(timeout=60)
        assert process.returncode in (0, -signal.SIGKILL), (number, words, errors)
        killed += process.returncode != 0
        context = (number, words, time.monotonic() - started)
        if words[0] == "write":
            if table.store.latest_snapshot_id() != before:
                table.rows[key] = (value, f"s{value % 7}")
            else:
                assert process.returncode != 0, context
        assert referenced(open_store(table.path)) <= files_below(table.path), context
        assert Table(open_store(table.path)).verify().ok, context
    table.maintain()
    table.check()
    if not readers.PYPAIMON_ABSENT:
        expected = readers.bag([key, *values] for key, values in table.rows.items())
        assert readers.pypaimon_rows(Path(table.path), table.table.schema) == expected
