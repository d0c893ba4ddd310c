"""Nothing is lost (DESIGN §4 rule 8): whatever request of a pass, a writer, an expiration or a command goes wrong, on a local disk and on any
store that fsspec reaches. `tests.support.crashes` says what is checked; `tests.api.test_crashes_s3` has S3, `tests.service.test_kills` killed
processes.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from unittest import mock

import pytest

from maintainer.api.create import schema_of
from maintainer.errors import MaintainerError
from maintainer.storage import remote
from maintainer.storage.local import LocalStorage
from maintainer.storage.storage import Storage
from maintainer.table.opening import create_store, open_store
from maintainer.table.store import TableStore
from tests.support import striking_disk, striking_filesystem, striking_storage
from tests.support.campaign import share
from tests.support.crashes import QUICK, SCENES, Before, Scene, check_aftermath, check_unreliable, hides, work_with_an_unreliable_store
from tests.support.losing_disk import LosingDisk
from tests.support.small_table import SmallTable
from tests.support.striking_disk import StrikingDisk
from tests.support.striking_filesystem import StrikingFileSystem
from tests.support.striking_storage import StrikingStorage

TRIALS = share("failing requests of a local store: trials a scene", short=6, long=10_000)
DISK_TRIALS = share("failing disks: trials a scene", short=4, long=10_000)
POWER_TRIALS = share("power that is lost: trials a scene", short=3, long=10_000)
REMOTE_TRIALS = share("failing requests of an fsspec store: trials a scene", short=4, long=10_000)
UNRELIABLE = share("unreliable fsspec stores", short=2, long=300)
PEERS = 40
"""Of so many trials, pypaimon reads the table of one."""


@pytest.fixture(scope="module", params=SCENES)
def scene(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Scene, SmallTable]:
    scene = SCENES[request.param]
    return scene, scene.make(tmp_path_factory.mktemp("scene"))


@pytest.fixture(autouse=True)
def in_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)


Attempt = Callable[[str, str, int], tuple[BaseException | None, str]]
"""Does what a scene does with a table while a strike hits the n-th request: the error that came of it, and the request."""


def strike_all(
    scene: Scene,
    table: SmallTable,
    directory: Path,
    strikes: tuple[str, ...],
    requests: int,
    trials: int,
    attempt: Attempt,
    clean: str = "",
    is_durable: bool = True,
) -> None:
    """Every strike at every request, or a sample of them. `clean` is the strike after which nothing may be left behind."""
    cases = [(strike, at) for strike in strikes for at in range(1, requests + 1)]
    Random(1).shuffle(cases)
    ended: Counter[str] = Counter()
    before: Before | None = None
    for number, (strike, at) in enumerate(cases[:trials]):
        path = str(shutil.copytree(table.path, directory / "db.db" / "t"))
        before = before or Before.of(path, scene)
        error, struck = attempt(path, strike, at)
        ended[type(error).__name__] += 1
        context = f"{strike} at request {at} ({struck})"
        peers = number % PEERS == 0
        check_aftermath(
            *(scene, table, path, before, error, context),
            leaves_nothing=strike == clean,
            peers=peers,
            is_durable=is_durable,
            hides=hides(strike, struck),
        )
        shutil.rmtree(path)
    assert len(cases) == 1 or set(ended) != {"NoneType"}, ended


def ending(do: Callable[[], object]) -> BaseException | None:
    try:
        do()
    except (MaintainerError, KeyboardInterrupt, MemoryError) as error:
        return error
    return None


def copied(table: SmallTable, directory: Path) -> str:
    return str(shutil.copytree(table.path, directory / "db.db" / "sound"))


def test_any_request_may_fail(scene: tuple[Scene, SmallTable], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, table = scene
    monkeypatch.setattr("os.fsync", lambda descriptor: None)
    sound = StrikingStorage(copied(table, tmp_path))
    one.do(TableStore(sound))

    def attempt(path: str, strike: str, at: int) -> tuple[BaseException | None, str]:
        storage = StrikingStorage(path, strike, at)
        return ending(lambda: one.do(TableStore(storage))), str(storage.struck)

    strike_all(one, table, tmp_path, striking_storage.STRIKES, len(sound.requests), TRIALS, attempt, clean="fail")


def test_any_change_of_a_disk_may_fail(scene: tuple[Scene, SmallTable], tmp_path: Path) -> None:
    one, table = scene
    sound = StrikingDisk()
    path = copied(table, tmp_path)
    with sound.inserted():
        one.do(TableStore(LocalStorage(path)))

    def attempt(path: str, strike: str, at: int) -> tuple[BaseException | None, str]:
        disk = StrikingDisk(strike, at)
        with disk.inserted():
            return ending(lambda: one.do(TableStore(LocalStorage(path)))), str(disk.struck)

    strike_all(one, table, tmp_path, striking_disk.STRIKES, len(sound.changes), DISK_TRIALS, attempt, clean="ENOSPC")


def test_power_may_be_lost_at_any_change(scene: tuple[Scene, SmallTable], tmp_path: Path) -> None:
    one, table = scene
    sound, graves = LosingDisk(tmp_path), tmp_path / "graves"
    path = copied(table, tmp_path)
    with sound.inserted():
        one.do(TableStore(LocalStorage(path)))

    def attempt(path: str, strike: str, at: int) -> tuple[BaseException | None, str]:
        shutil.rmtree(graves, ignore_errors=True)
        graves.mkdir()
        disk = LosingDisk(graves, at)
        with disk.inserted():
            error = ending(lambda: one.do(TableStore(LocalStorage(path))))
        disk.lose_power(path, Random(at))
        return error, "power"

    strike_all(one, table, tmp_path, ("lost",), sound.changes + 1, POWER_TRIALS, attempt, is_durable=False)


def test_any_request_of_a_library_may_fail(scene: tuple[Scene, SmallTable], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, table = scene
    monkeypatch.setattr("os.fsync", lambda descriptor: None)
    monkeypatch.setattr(remote, "_proved", set())
    sound = StrikingFileSystem()
    one.do(TableStore(sound.storage(copied(table, tmp_path))))

    def attempt(path: str, strike: str, at: int) -> tuple[BaseException | None, str]:
        monkeypatch.setattr(remote, "_proved", set())
        filesystem = StrikingFileSystem(strike, at)
        error = ending(lambda: one.do(TableStore(filesystem.storage(path))))
        filesystem.do_what_is_late()
        return error, str(filesystem.struck)

    strike_all(one, table, tmp_path, striking_filesystem.STRIKES, len(sound.requests), REMOTE_TRIALS, attempt, clean="denied")


def test_a_table_that_is_being_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is there whole, or it is not there and can be made again."""
    monkeypatch.setattr(remote, "_proved", set())
    schema = schema_of(
        {"fields": [{"name": "id", "type": "INT"}], "primaryKeys": ["id"], "options": {"bucket": "1", "deletion-vectors.enabled": "true"}}
    )
    sound = StrikingFileSystem()
    with mock.patch.object(Storage, "open", lambda uri, options=None: sound.storage(uri)):
        create_store(str(tmp_path / "sound"), schema)
    for strike in striking_filesystem.STRIKES:
        for at in range(1, len(sound.requests) + 1):
            path, filesystem = str(tmp_path / f"{strike} {at}"), StrikingFileSystem(strike, at)
            monkeypatch.setattr(remote, "_proved", set())
            with mock.patch.object(Storage, "open", lambda uri, options=None, one=filesystem: one.storage(uri)):
                error = ending(lambda place=path: create_store(place, schema))
            filesystem.do_what_is_late()
            is_there = TableStore(LocalStorage(path)).schema_ids() == (0,)
            assert is_there or error is not None, (strike, at)
            if not is_there:
                create_store(path, schema)
            assert open_store(path).latest_schema().options == schema.options
            assert open_store(path).latest_snapshot() is None


@pytest.mark.parametrize("seed", range(UNRELIABLE))
def test_a_store_that_is_never_reliable(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Faults while others are dealt with, and requests that are done when nobody expects them any more."""
    monkeypatch.setattr("os.fsync", lambda descriptor: None)
    random = Random(seed)
    table = SmallTable(tmp_path / "db.db", indexes=True, bucket="2", **{"manifest.merge-min-count": "3", **QUICK})
    table.write({key: key for key in range(50)})
    filesystem = StrikingFileSystem(random=random, chance=random.choice([0.005, 0.02, 0.1]))
    perhaps = work_with_an_unreliable_store(TableStore(filesystem.storage(table.path)), table.rows, random, 12)
    filesystem.do_what_is_late()
    check_unreliable(table.path, table.rows, perhaps, f"seed {seed}")
