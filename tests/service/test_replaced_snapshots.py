"""A writer that looks whether a snapshot is there, stops, and later puts its own in its place, whatever is there by then (spec 03 §9.3).

It stops where a test wants it to, and goes on when the daemon's turn, or our writer, is where a test wants that to be. What must be true each
time: the daemon tells of a snapshot that was replaced, no snapshot is built on the lost one, its work is done again, and no row is lost.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from maintainer.api.table import Table
from maintainer.data.spill import Spill
from maintainer.service.discovery import ConfiguredTable
from maintainer.service.follow import Follower, Workshop
from maintainer.service.lease import MemoryBudget
from maintainer.service.watch import RESOLVE_EVERY
from maintainer.storage.local import LocalStorage
from maintainer.storage.remote import RemoteStorage
from tests.support import s3
from tests.support.arena import Arena, Rows
from tests.support.racers import unsafe_store
from tests.support.small_table import arrow_of

ALARMS = ("publish.replaced", "snapshot.replaced", "commit.base-replaced")
DELAYS = {"none": "0 ms", "some": "300 ms"}


class Foreign(threading.Thread):
    """A commit of a writer that checks and then replaces; it stops once, `before` it checks or `between` that and replacing."""

    def __init__(self, arena: Arena, stops: str, first: int) -> None:
        super().__init__(daemon=True)
        self._arena = arena
        self._rows: Rows = {key: (key, f"s{key % 7}") for key in range(first, first + 20)}
        self._reached, self._go = threading.Event(), threading.Event()
        self._store = unsafe_store(arena.uri, arena.storage_options)
        self._store.storage.between = lambda path: None
        setattr(self._store.storage, stops, self._stop_once)
        self.snapshot: int | None = None
        self.start()
        assert self._reached.wait(60)

    def run(self) -> None:
        with Table(self._store).writer() as writer:
            writer.write(arrow_of(self._rows))
            self.snapshot = writer.commit()

    def _stop_once(self, path: str) -> None:
        if not self._reached.is_set():
            self._reached.set()
            assert self._go.wait(60)

    def finish(self) -> None:
        self._go.set()
        self.join(60)
        assert self.snapshot is not None
        self._arena.rows |= self._rows


class Points:
    """Where this thread is with publishing: calls `at` with the name of the point and the path."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, storage: type[Any]) -> None:
        self.at: Callable[[str, str], None] = lambda point, path: None
        self._mine = threading.current_thread()
        self._published = ""
        self._hinted: str | None = None
        create_if_absent, replace, read, create = storage.create_if_absent, storage.replace, storage.read, storage.create

        def creating(this: Any, path: str, *more: Any, **others: Any) -> bool:
            self._reach("publishing", path)
            created = create_if_absent(this, path, *more, **others)
            if created:
                self._reach("published", path)
                self._published = path
            return bool(created)

        def replacing(this: Any, path: str, data: bytes) -> None:
            replace(this, path, data)
            if path == "snapshot/LATEST" and threading.current_thread() is self._mine:
                self._hinted = self._published
                self._reach("delaying", self._published)

        def reading(this: Any, path: str) -> bytes:
            data = read(this, path)
            if path == self._hinted and threading.current_thread() is self._mine:
                self._hinted = None
                self._reach("verified", path)
            return bytes(data)

        def making(this: Any, path: str) -> Any:
            self._reach("preparing", path)
            return create(this, path)

        for name, hooked in (("create_if_absent", creating), ("replace", replacing), ("read", reading), ("create", making)):
            monkeypatch.setattr(storage, name, hooked)

    def _reach(self, point: str, path: str) -> None:
        if threading.current_thread() is self._mine and path.startswith(("snapshot/snapshot-", "manifest/")):
            self.at(point, path)


class Scene:
    """A table with rows to compact, a foreign writer that has stopped, and a daemon's follower whose next turn publishes the same snapshot."""

    def __init__(self, arena: Arena, points: Points, events: list[Any]) -> None:
        self.arena, self.points, self.events = arena, points, events
        arena.write({key: 1000 + key for key in range(100)})
        given = {
            "poll_interval": 5.0,
            "budget": MemoryBudget(256 << 20),
            "spill": Spill(),
            "cache": None,
            "stop": threading.Event(),
            "tables": lambda: 1,
        }
        configured = ConfiguredTable(arena.uri, arena.storage_options, {}, True, arena.uri)
        self.follower = Follower(configured, Workshop(**given))
        self.times = 0

    def when(self, point: str, number: int, do: Callable[[], None]) -> None:
        """Do something once, when this thread is at a point with snapshot `number` (0: with a manifest)."""

        def at(reached: str, path: str) -> None:
            if reached == point and (path == f"snapshot/snapshot-{number}" or (not number and path.startswith("manifest/"))) and not self.times:
                self.times += 1
                do()

        self.points.at = at

    def turn(self, count: int = 1) -> None:
        for _ in range(count):
            assert self.follower.turn() is None

    def alarms(self) -> list[tuple[str, int]]:
        return [(event["event"], event["snapshot"]) for event in self.events if event["event"] in ALARMS]

    def end(self, lineage: bool = True) -> None:
        """The daemon notices by itself what there is to notice, and then everything is in order."""
        self.points.at = lambda point, path: None
        self.turn(RESOLVE_EVERY + 1)
        store = self.arena.store
        snapshots = [store.snapshot(number) for number in store.snapshot_ids()]
        for before, after in pairwise(snapshots) if lineage else ():
            delta = {meta.file_name for meta in store.manifests.delta_of(before)}
            assert delta <= {meta.file_name for meta in store.manifests.lists_of(after)[0]}, f"{after.id} is not built on {before.id}"
        assert not [event for event in self.events if event["log_level"] in ("error", "critical") and event["event"] not in ALARMS]
        self.arena.check()


@pytest.fixture
def events() -> Iterator[list[Any]]:
    with capture_logs() as found:
        yield found


@pytest.fixture(params=["local", pytest.param("s3", marks=pytest.mark.long)])
def scene(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, events: list[Any]) -> Scene:
    delay = getattr(request.node, "callspec", None)
    options = {"publish.verify-delay": DELAYS[delay.params.get("delay", "none")] if delay is not None else "0 ms"}
    if request.param == "local":
        return Scene(Arena(tmp_path, **options), Points(monkeypatch, LocalStorage), events)
    return Scene(Arena(tmp_path, s3.fresh_bucket(), **options), Points(monkeypatch, RemoteStorage), events)


def test_before_it_checks_it_only_loses_a_race(scene: Scene) -> None:
    foreign = Foreign(scene.arena, "before", 200)
    scene.when("published", 2, foreign.finish)
    scene.turn()
    assert foreign.snapshot == 3
    scene.end()
    assert scene.alarms() == [] and scene.times == 1


def test_when_it_replaces_nothing_we_only_lose_a_race(scene: Scene) -> None:
    foreign = Foreign(scene.arena, "between", 200)
    scene.when("publishing", 2, foreign.finish)
    scene.turn()
    assert foreign.snapshot == 2
    scene.end()
    assert scene.alarms() == [] and scene.times == 1


def test_it_replaces_a_snapshot_that_was_just_published(scene: Scene) -> None:
    foreign = Foreign(scene.arena, "between", 200)
    scene.when("published", 2, foreign.finish)
    scene.turn()
    assert foreign.snapshot == 2
    scene.end()
    assert scene.alarms() == [("publish.replaced", 2)]


@pytest.mark.parametrize("delay", ["some"])
def test_it_replaces_a_snapshot_during_the_verify_delay(scene: Scene, delay: str) -> None:
    foreign = Foreign(scene.arena, "between", 200)
    timer = threading.Timer(0.05, foreign.finish)
    scene.when("delaying", 2, timer.start)
    scene.turn()
    timer.join()
    scene.end()
    assert scene.alarms() == [("publish.replaced", 2)]


def test_it_replaces_a_snapshot_just_after_that_was_verified(scene: Scene) -> None:
    """The pass goes on from what is there now, and the watch knows what is not there any more."""
    foreign = Foreign(scene.arena, "between", 200)
    scene.when("verified", 2, foreign.finish)
    scene.turn()
    scene.end()
    assert ("snapshot.replaced", 2) in scene.alarms()
    (alarm,) = [event for event in scene.events if event["event"] == "snapshot.replaced"]
    assert alarm["ours"] and alarm["log_level"] == "error"


@pytest.mark.parametrize("more", [0, 1, 3])
def test_it_replaces_a_snapshot_between_two_turns(scene: Scene, more: int) -> None:
    """Perhaps others go on before the next turn looks."""
    foreign = Foreign(scene.arena, "between", 200)
    scene.turn()
    foreign.finish()
    assert foreign.snapshot == 2
    for number in range(more):
        scene.arena.write({key: 5000 + key for key in range(300 + number, 310 + number)})
    scene.end()
    (alarm,) = [event for event in scene.events if event["event"] == "snapshot.replaced"]
    assert (alarm["snapshot"], alarm["ours"]) == (2, True)


def test_it_replaces_a_snapshot_while_the_next_one_is_prepared_on_it(scene: Scene) -> None:
    """Ours is verified, and loaded as what the next commit is built on; that one is given up at the last moment."""
    foreign = Foreign(scene.arena, "between", 200)
    scene.turn()
    with scene.arena.table.writer() as writer:
        rows: Rows = {500: (3, "s3"), 501: (4, "s4")}
        writer.write(arrow_of(rows))
        scene.when("preparing", 0, foreign.finish)
        assert writer.commit() == 3
    scene.arena.rows |= rows
    assert foreign.snapshot == 2 and ("commit.base-replaced", 2) in scene.alarms()
    scene.end()


@pytest.mark.parametrize("delay", ["none", "some"])
def test_our_writer_publishes_its_rows_again(scene: Scene, delay: str) -> None:
    foreign = Foreign(scene.arena, "between", 200)
    timer = threading.Timer(0.05, foreign.finish)
    if delay == "some":
        scene.when("delaying", 2, timer.start)
    else:
        scene.when("published", 2, foreign.finish)
    scene.arena.write({key: 9000 + key for key in range(400, 420)})
    if delay == "some":
        timer.join()
    assert scene.alarms() == [("publish.replaced", 2)]
    scene.turn()
    scene.end()


def test_it_replaces_a_snapshot_that_others_have_built_on(scene: Scene) -> None:
    """Its own rows are lost, for what was built is what is there; all it leaves behind is the alarm."""
    foreign = Foreign(scene.arena, "between", 200)
    scene.turn()
    rows = {key: 5000 + key for key in range(300, 310)}
    scene.arena.write(rows)
    scene.turn()
    foreign.finish()
    assert foreign.snapshot == 2
    for key in range(200, 220):
        del scene.arena.rows[key]
    scene.end(lineage=False)
    assert scene.alarms() == [("snapshot.replaced", 2)]
