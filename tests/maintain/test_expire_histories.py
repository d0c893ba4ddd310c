"""Random histories of a table, with tags, branches, consumers and rollbacks, and expirations in between; whatever request of an expiration
fails; and expirations beside one another and beside passes. Every snapshot and tag that stays has the rows it had when it was the latest.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pytest

import maintainer
from maintainer.api.maintenance import run_pass
from maintainer.errors import MaintainerError, StorageError
from maintainer.maintain.reclaim.expire import Expiry, expire
from maintainer.table.opening import open_store
from maintainer.table.store import TableStore
from tests.support import kept
from tests.support.campaign import share
from tests.support.evolve import set_options
from tests.support.small_table import SmallTable
from tests.support.striking_storage import STRIKES, StrikingStorage, files_below

HISTORIES = share("expiration: random histories", short=4, long=300)
STEPS = 25
TRIALS = share("expiration: failing requests", short=24, long=10_000)
INDEXES = ({"pk-btree.index.columns": "v"}, {"pk-bitmap.index.columns": "s"}, {"pk-btree.index.columns": "v", "pk-bitmap.index.columns": "s"})


@dataclass
class History:
    """A table, and the rows of its snapshots and tags by the branch on which they are."""

    table: SmallTable
    random: Random
    snapshots: dict[str | None, dict[int, kept.Rows]] = field(default_factory=lambda: {None: {}})
    tags: dict[str | None, dict[str, kept.Rows]] = field(default_factory=lambda: {None: {}})
    told: list[str] = field(default_factory=list)

    @property
    def path(self) -> str:
        return self.table.path

    def store(self, branch: str | None = None) -> TableStore:
        return open_store(self.path, branch=branch)

    def note(self, branch: str | None = None) -> None:
        """Remember the rows of new snapshots."""
        for snapshot in self.store(branch).snapshot_ids():
            if snapshot not in self.snapshots[branch]:
                self.snapshots[branch][snapshot] = kept.rows_at(self.path, snapshot, branch=branch)

    def write(self, branch: str | None) -> None:
        keys = self.random.sample(range(40), 6)
        with maintainer.open_table(self.path, branch=branch).writer() as writer:
            writer.delete(kept.key_table(keys[:2]))
            writer.write(kept.rows_table({key: self.random.randrange(100) for key in keys[2:]}))

    def maintain(self, branch: str | None) -> None:
        full, rewrite = self.random.random() < 0.3, self.random.random() < 0.5
        maintainer.open_table(self.path, branch=branch).maintain(full=full, rewrite_append=rewrite)

    def define(self, branch: str | None) -> None:
        if branch is None:
            set_options(self.path, **self.random.choice(INDEXES))
            self.maintain(branch)

    def tag(self, branch: str | None) -> None:
        ids = self.store(branch).snapshot_ids()
        if ids and len(self.tags[branch]) < 4:
            name, snapshot = f"t{len(self.told)}", self.random.choice(ids)
            kept.make_tag(self.path, name, snapshot, branch)
            self.tags[branch][name] = self.snapshots[branch][snapshot]

    def untag(self, branch: str | None) -> None:
        if self.tags[branch]:
            name = self.random.choice(sorted(self.tags[branch]))
            del self.tags[branch][name]
            folder = f"branch/branch-{branch}/tag" if branch else "tag"
            os.unlink(Path(self.path, folder, f"tag-{name}"))

    def branch(self, branch: str | None) -> None:
        if branch is None and self.tags[None] and len(self.tags) < 3:
            name, tag = f"b{len(self.told)}", self.random.choice(sorted(self.tags[None]))
            kept.make_branch(self.path, name, tag)
            self.snapshots[name], self.tags[name] = {}, {tag: self.tags[None][tag]}
            self.note(name)
            assert list(self.snapshots[name].values()) == [self.tags[None][tag]]

    def roll_back(self, branch: str | None) -> None:
        if branch is None and self.store().snapshot_ids():
            kept.restore(self.path, self.random.choice(self.store().snapshot_ids()))

    def consumer(self, branch: str | None) -> None:
        ids = self.store().snapshot_ids()
        if branch is None and ids:
            kept.make_consumer(self.path, "c", self.random.choice(ids))

    def expire(self, branch: str | None) -> None:
        store = self.store(branch)
        least = self.random.randint(1, 4)
        request: dict[str, Any] = {
            "retain_min": least,
            "retain_max": least + self.random.choice([0, 3, 100]),
            "seconds": self.random.choice([0, 0, 3600]),
            "limit": self.random.choice([1, 5, 50]),
        }
        before, junk = files_below(self.path), files_below(self.path) - kept.kept_files(self.path)
        latest = store.latest_snapshot_id()
        dry = expire(store, dry_run=True, **request)
        found = expire(store, **request)
        self.told.append(f"  {request} -> {found.snapshots}")
        assert dry.found == found.deleted and dry.snapshots == found.snapshots
        assert not found.skipped
        assert store.latest_snapshot_id() == latest
        assert len(store.snapshot_ids()) >= min(least, len(store.snapshot_ids()) + len(found.snapshots))
        assert before - files_below(self.path) == set(found.deleted or ())
        assert files_below(self.path) - kept.kept_files(self.path) <= junk
        again = expire(store, **{**request, "limit": 0})
        assert again.deleted == ()
        self.check()

    def check(self) -> None:
        for branch, snapshots in self.snapshots.items():
            ids = self.store(branch).snapshot_ids()
            for snapshot in ids:
                assert kept.rows_at(self.path, snapshot, branch=branch) == snapshots[snapshot], (branch, snapshot)
            for name, rows in self.tags[branch].items():
                assert kept.rows_at(self.path, tag=name, branch=branch) == rows, (branch, name)
            verified = maintainer.open_table(self.path, branch=branch).verify()
            assert verified.ok, verified.problems


DEEDS: list[tuple[Callable[[History, str | None], None], int]] = [
    (History.write, 8),
    (History.maintain, 8),
    (History.define, 1),
    (History.tag, 3),
    (History.untag, 1),
    (History.branch, 1),
    (History.roll_back, 1),
    (History.consumer, 1),
    (History.expire, 4),
]


@pytest.mark.parametrize("seed", range(HISTORIES))
def test_every_snapshot_and_tag_keeps_its_rows(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.fsync", lambda descriptor: None)
    random = Random(seed)
    options = random.choice([{}, {"target-file-size": "1 kb"}, {"manifest.merge-min-count": "3"}, {"bucket": "2"}])
    history = History(SmallTable(tmp_path, indexes=random.random() < 0.5, **options), random)
    deeds, weights = zip(*DEEDS, strict=True)
    try:
        for _ in range(STEPS):
            deed = random.choices(deeds, weights)[0]
            branch = random.choice([None, None, *history.snapshots])
            history.told.append(f"{deed.__name__} on {branch or 'main'}")
            deed(history, branch)
            history.note(branch)
        history.expire(None)
    except BaseException:
        print("\n".join(history.told))
        raise


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> History:
    """A table with a tag, a branch and a consumer, and much to expire."""
    table = SmallTable(tmp_path_factory.mktemp("scene"), indexes=True, **{"manifest.merge-min-count": "3"})
    history = History(table, Random(1))
    for number in range(4):
        history.write(None)
        history.maintain(None)
        history.note()
        if number == 1:
            kept.make_tag(table.path, "old", 2)
            kept.make_branch(table.path, "b", "old")
            history.tags[None]["old"] = history.snapshots[None][2]
            history.snapshots["b"], history.tags["b"] = {2: history.snapshots[None][2]}, {"old": history.snapshots[None][2]}
    kept.make_consumer(table.path, "c", table.store.snapshot_ids()[-2])
    return history


def at(scene: History, path: str) -> History:
    """The same history at another place."""
    table = SmallTable.__new__(SmallTable)
    table.path, table.table = path, maintainer.open_table(path)
    return History(table, scene.random, scene.snapshots, scene.tags)


def all_of_it(store: TableStore) -> Expiry:
    return expire(store, retain_min=1, seconds=0, threads=1)


def test_any_request_may_fail(scene: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What stays is whole, and the next run ends where an undisturbed one does."""
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    sound = StrikingStorage(str(shutil.copytree(scene.path, tmp_path / "sound")))
    all_of_it(TableStore(sound))
    wanted = files_below(sound.root)
    assert len(files_below(scene.path)) > len(wanted) + 20
    cases = [(strike, number) for strike in STRIKES for number in range(1, len(sound.requests) + 1)]
    Random(1).shuffle(cases)
    for strike, number in cases[:TRIALS]:
        request = sound.requests[number - 1]
        if strike == "short" and request.startswith("list ") and not request.startswith("list snapshot"):
            continue  # tags and consumers that a store hides cannot be respected
        path = str(shutil.copytree(scene.path, tmp_path / "t"))
        storage = StrikingStorage(path, strike, number)
        with suppress(MaintainerError, KeyboardInterrupt, MemoryError):
            all_of_it(TableStore(storage))
        context = f"{strike} at {number}: {storage.struck}"
        assert kept_after(path, open_store(path).snapshot_ids()[0]) <= files_below(path), context
        all_of_it(open_store(path))
        assert files_below(path) - wanted <= leftovers(strike, request, files_below(scene.path)), context
        assert wanted <= files_below(path), context
        at(scene, path).check()
        shutil.rmtree(path)


def kept_after(path: str, half_deleted: int) -> set[str]:
    """What is needed while the oldest snapshot may be on its way out."""
    hidden = Path(path, "snapshot", f"snapshot-{half_deleted}")
    data = hidden.read_bytes()
    hidden.unlink()
    try:
        return kept.kept_files(path)
    finally:
        hidden.write_bytes(data)


def leftovers(strike: str, request: str, before: set[str]) -> set[str]:
    """A store that said once that a file is not there or shorter than it is has hidden what the file names: that is for the orphan cleaner."""
    return before if strike in ("short", "vanished") and "manifest/" in request else set()


def test_two_expirations_and_a_pass_at_once(scene: History, tmp_path: Path) -> None:
    for round_number in range(share("expiration: races", short=2, long=100)):
        path = str(shutil.copytree(scene.path, tmp_path / str(round_number)))
        with maintainer.open_table(path).writer() as writer:
            writer.write(kept.rows_table({1: 1, 2: 2}))
        jobs: list[Callable[[TableStore], object]] = [all_of_it, lambda store: expire(store, retain_min=1, seconds=0), run_pass]
        with ThreadPoolExecutor(len(jobs)) as pool:
            for future in [pool.submit(job, open_store(path)) for job in jobs]:
                with suppress(StorageError):  # a snapshot vanished while the other expiration looked
                    future.result()
        expire(open_store(path), retain_min=1, seconds=0)
        history = at(scene, path)
        history.note()
        history.check()
        assert files_below(path) == kept.kept_files(path)
