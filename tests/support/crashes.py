"""Tables to which something is done while something goes wrong, and what must be true afterwards (DESIGN §4 rule 8; spec 03 §12, §17).

A scene is made once and copied for every trial. Whatever happened: the table can be read and is sound, everything that a snapshot names is
there, its rows are those of before or after, and the next pass makes everything visible and covered.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

from maintainer.api.exchange import commit_results, execute_plan
from maintainer.api.maintenance import plan_pass, run_pass
from maintainer.api.table import Table
from maintainer.errors import CommitStateUnknown, MaintainerError
from maintainer.maintain.plan import PlanRequest
from maintainer.maintain.reclaim.expire import expire
from maintainer.storage.storage import Storage
from maintainer.table.opening import open_store
from maintainer.table.store import TableStore
from tests.peers import readers
from tests.support.command import run
from tests.support.consumer import followed
from tests.support.evolve import set_options
from tests.support.small_table import SmallTable, arrow_of
from tests.support.striking_storage import files_below, referenced

Rows = Mapping[int, tuple[int | None, str | None]]
INDEXES = {"pk-btree.index.columns": "v", "pk-bitmap.index.columns": "s"}
LARGE = {"target-file-size": "1 kb"}
"""Files that are not too small to be moved as they are."""
PLAIN = {"deletion-vectors.enabled": "false"}
AGGREGATION = {
    "merge-engine": "aggregation",
    "fields.default-aggregate-function": "last_value",
    "aggregation.remove-record-on-delete": "true",
}
WRITTEN: Rows = dict.fromkeys(range(1, 5), (9, "x"))
RETAINED = 2
"""Snapshots that an expiration must leave alone."""
QUICK = {"publish.verify-delay": "0 ms", "commit.max-retries": "2", "commit.min-retry-wait": "1 ms", "commit.max-retry-wait": "5 ms"}
"""Nobody else commits in these scenes, so there is nothing to wait for."""


class CommandFailed(MaintainerError):
    """A command ended with a documented exit code, and said why."""


@dataclass(frozen=True)
class Scene:
    """A table, and something that is done to it."""

    name: str
    prepare: Callable[[SmallTable], object]
    do: Callable[[TableStore], Any]
    options: Mapping[str, Any] = field(default_factory=dict)
    rewrites_append: bool = True
    """Whether the pass before the scene does."""
    tidies_up: bool = True
    """Whether what was made in vain is deleted when that is possible."""

    @property
    def expires(self) -> bool:
        return self.do is _expire

    @property
    def written(self) -> Rows:
        return WRITTEN if self.do is _write else {}

    def make(self, directory: Path) -> SmallTable:
        table = SmallTable(directory / "db.db", **{"manifest.merge-min-count": "3", **QUICK, **self.options})
        table.write({key: key for key in range(300)})
        table.maintain(rewrite_append=self.rewrites_append)
        self.prepare(table)
        return table


def _compact(table: SmallTable) -> None:
    table.write({key: -key for key in range(0, 300, 7)}, delete=range(5, 300, 50))
    table.write({1000 + key: key for key in range(20)})


def _history(table: SmallTable) -> None:
    for start in (0, 1):
        table.write({key: -key for key in range(start, 300, 9)}, delete=range(5 + start, 300, 50))
        table.maintain(full=start == 1)
    _compact(table)


def _index(table: SmallTable) -> None:
    set_options(table.path, **INDEXES)


def _mixed(table: SmallTable) -> None:
    set_options(table.path, **INDEXES)
    table.write({1: -1})


def _write(store: TableStore) -> None:
    with Table(store).writer() as writer:
        writer.write(arrow_of(WRITTEN))


def _expire(store: TableStore) -> None:
    expire(store, retain_min=RETAINED, retain_max=RETAINED, seconds=0)


def _exchange(store: TableStore) -> None:
    """Results that are not committed stay: somebody may try again."""
    commit_results(store, list(execute_plan(store, plan_pass(store, PlanRequest()))))


def _read(store: TableStore) -> None:
    """The right rows, or an error."""
    for where, wanted in ((None, range(300)), ("v < 20", range(20)), ("s = 's3' AND v >= 100", range(101, 300, 7))):
        rows = Table(store).scan(where=where).to_arrow().sort_by("id").to_pylist()
        assert rows == [{"id": key, "v": key, "s": f"s{key % 7}"} for key in wanted], where


def _once(store: TableStore) -> None:
    """The command, which says what went wrong in one line and by its exit code."""
    with mock.patch.object(Storage, "open", lambda uri, options=None: store.storage):
        result = run("once", store.uri, "--json")
    if result.exit_code == 130:
        raise KeyboardInterrupt
    if result.exit_code == 1 and "MemoryError" in result.stderr:
        raise MemoryError
    failed = [line for line in result.stderr.splitlines() if line.startswith("maintainer: ")]
    assert "should not have happened" not in result.stderr, result.stderr
    if result.exit_code:
        assert result.exit_code in (1, 2, 3, 4, 5, 7) and failed, (result.exit_code, result.stderr)
        raise CommandFailed(f"{result.exit_code}: {failed[0]}")
    assert json.loads(result.stdout)["passes"][0]["outcome"] in ("committed", "nothing")


SCENES = {
    scene.name: scene
    for scene in (
        Scene("compaction", _compact, run_pass, {"indexes": True}),
        Scene("full compaction", _compact, lambda store: run_pass(store, full=True), {"indexes": True}),
        Scene("upgrade", lambda table: table.write({key: key for key in range(400, 700)}), run_pass, LARGE),
        Scene("APPEND files are rewritten", lambda table: None, run_pass, {"indexes": True, **LARGE}, rewrites_append=False),
        Scene("groups only", _index, run_pass),
        Scene("groups with a commit of their own", _compact, run_pass, {"indexes": True, "maintain.index-mode": "async"}),
        Scene("compactions, and groups of other buckets", _mixed, run_pass, {"bucket": "3"}),
        Scene("a commit for each bucket", _compact, lambda store: run_pass(store, commit_interval=0), {"indexes": True, "bucket": "3"}),
        Scene("writer", lambda table: None, _write, {"indexes": True, "bucket": "2"}),
        Scene("expire", _history, _expire, {"indexes": True}, tidies_up=False),
        Scene("once", _mixed, _once, {"bucket": "2"}),
        Scene("plans and results that travel", _compact, _exchange, {"indexes": True, "bucket": "2"}, tidies_up=False),
        Scene("reader", _compact, _read, {"indexes": True}),
        Scene("changelog of lookups", _compact, run_pass, {**PLAIN, "changelog-producer": "lookup"}),
        Scene("changelog of full compactions", _compact, run_pass, {**PLAIN, "changelog-producer": "full-compaction", "bucket": "2"}),
        Scene("aggregation", _compact, run_pass, {**PLAIN, **AGGREGATION, "num-sorted-run.compaction-trigger": "2"}),
        Scene("expire changelogs", _history, _expire, {**PLAIN, "changelog-producer": "lookup"}, tidies_up=False),
    )
}


@dataclass(frozen=True)
class Before:
    """A table as it was before something went wrong: latest snapshot, rows that can be seen, files, and those that must stay."""

    snapshot: int
    rows: Rows
    files: frozenset[str]
    needed: frozenset[str]

    @staticmethod
    def of(path: str, scene: Scene) -> Before:
        latest = open_store(path).latest_snapshot_id()
        assert latest is not None
        since = latest - RETAINED + 1 if scene.expires else 0
        return Before(latest, visible(path), frozenset(files_below(path)), frozenset(referenced(open_store(path), since)))


def check_aftermath(
    scene: Scene,
    table: SmallTable,
    path: str,
    before: Before,
    error: BaseException | None,
    context: str,
    leaves_nothing: bool = False,
    converge: Callable[[], object] | None = None,
    peers: bool = False,
    is_durable: bool = True,
    hides: bool = False,
) -> None:
    """What must be true of a table at `path` after the scene ended with an error or without one.

    `leaves_nothing`: it had the chance to delete what it wrote in vain. `converge`: the next pass, if it is not to be one on this directory.
    `peers`: pypaimon reads, too. Not `is_durable`: what was deleted may have come back.
    `hides`: what `hides()` says.
    """
    context = f"{scene.name}: {context}: {error!r}"
    there, since = files_below(path), before.snapshot - RETAINED + 1 if scene.expires else 0
    named = referenced(open_store(path), since)
    assert before.needed | named <= there, f"{context}: lost {(before.needed | named) - there}"
    if scene.expires and is_durable:
        check_half_expired(path, before, context)
    verified = Table(open_store(path)).verify()
    assert verified.ok, (context, verified.problems)
    committed = open_store(path).latest_snapshot_id() != before.snapshot
    rows = visible(path)
    assert committed or rows == before.rows, context
    if peers:
        check_pypaimon(path, rows, context)
    if leaves_nothing and scene.tidies_up:
        assert there <= before.files | named, f"{context}: left {there - before.files - named}"
    if scene.written and not isinstance(error, CommitStateUnknown | KeyboardInterrupt | MemoryError):
        assert committed == (error is None), context
    if scene.expires:
        check_expired(path, before, context, leaves_nothing=is_durable and not hides)
    if converge is not None:
        converge()
        return
    run_pass(open_store(path))
    run_pass(open_store(path), index_only=True)  # groups for which there was no memory or room
    wanted = {**table.rows, **(scene.written if committed else {})}
    assert visible(path) == wanted, context
    settled(path, context)
    if peers:
        check_pypaimon(path, wanted, context)


def hides(strike: str, request: str) -> bool:
    """Whether a store said once that a manifest is not there, or is shorter than it is: what only that one names is for the orphan cleaner."""
    return strike in ("short", "gone", "vanished") and "manifest" in request


def check_half_expired(path: str, before: Before, context: str) -> None:
    """Of the snapshots that are still there, the oldest at most lacks files."""
    store = open_store(path)
    ids = store.snapshot_ids()
    assert ids[-RETAINED:] == tuple(range(before.snapshot - RETAINED + 1, before.snapshot + 1)), (context, ids)
    whole = referenced(store, ids[1])
    assert whole <= files_below(path), f"{context}: lost {whole - files_below(path)}"


def check_expired(path: str, before: Before, context: str, leaves_nothing: bool) -> None:
    """The next expiration does all that was left to do."""
    _expire(open_store(path))
    ids = open_store(path).snapshot_ids()
    assert ids == tuple(range(before.snapshot - RETAINED + 1, before.snapshot + 1)), (context, ids)
    there, named = files_below(path), referenced(open_store(path))
    left = {name for name in there - named if not name.endswith(".tmp")}
    assert named <= there and not (leaves_nothing and left), f"{context}: lost {named - there}, left {left}"


def check_pypaimon(path: str, rows: Rows, context: str) -> None:
    if not readers.PYPAIMON_ABSENT:
        expected = readers.bag([key, *values] for key, values in rows.items())
        with suppress(NotImplementedError):  # options of aggregations that it refuses
            assert readers.pypaimon_rows(Path(path), Table(open_store(path)).schema) == expected, context


def work_with_an_unreliable_store(store: TableStore, rows: dict[int, Any], random: Random, steps: int) -> list[dict[int, Any]]:
    """Commits, passes and expirations, of which some fail; to `rows` go those that were written for certain. Returned are the rows of commits
    of which nobody can say whether they happened: of each, all rows are there or none. Keys are written once."""
    perhaps: list[dict[int, Any]] = []
    for step in range(steps):
        kind = random.choice(["write", "write", "maintain", "full", "expire"])
        written = {1000 * (step + 1) + key: (key, f"s{key % 7}") for key in range(random.choice([1, 30]))}
        try:
            match kind:
                case "write":
                    with Table(store).writer() as writer:
                        writer.write(arrow_of(written))
                    rows |= written
                case "expire":
                    _expire(store)
                case _:
                    run_pass(store, full=kind == "full")
        except CommitStateUnknown:
            if kind == "write":
                perhaps.append(written)
        except MaintainerError:
            pass
    return perhaps


def check_unreliable(path: str, rows: Rows, perhaps: list[dict[int, Any]], context: str) -> None:
    """After all that, on a store that works again."""
    store = open_store(path)
    ids = store.snapshot_ids()
    named, there = referenced(store, ids[1] if len(ids) > RETAINED else ids[0]), files_below(path)
    assert named <= there, f"{context}: lost {named - there}"
    run_pass(store)
    found = dict(visible(path))
    for written in perhaps:
        assert found.keys() >= written.keys() or not found.keys() & written.keys(), context
        found = {key: value for key, value in found.items() if key not in written}
    assert found == rows, context
    settled(path, context)
    _expire(store)
    assert referenced(store) <= files_below(path), context


def visible(path: str) -> Rows:
    """What a batch reader sees; no key twice."""
    rows = Table(open_store(path)).scan().to_arrow().to_pydict()
    assert len(set(rows["id"])) == len(rows["id"])
    return dict(zip(rows["id"], zip(rows["v"], rows["s"], strict=True), strict=True))


def settled(path: str, context: str = "") -> None:
    """All is covered and sound, and nothing is left to do."""
    table = Table(open_store(path))
    coverage = table.coverage()
    assert coverage.visible_ratio == 1.0 and all(one.ratio == 1.0 for one in coverage.definitions), context
    verified = table.verify(deep=True)
    assert verified.ok, (context, verified.problems)
    assert table.maintain().outcome == "nothing", context
    store = table.store
    if store.options().changelog_producer in ("lookup", "full-compaction") and store.snapshot_ids()[0] == 1:
        told = {row["id"]: (row["v"], row["s"]) for row in followed(store)}
        assert told == visible(path), context
