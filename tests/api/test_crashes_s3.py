"""Nothing is lost on S3 either: whatever HTTP request goes wrong, with the retries of s3fs and botocore between it and us (spec 03 §9.3, §17).

A trial copies a scene into a bucket, does it through a proxy that strikes, and copies the bucket back to look at what is there.
"""

from __future__ import annotations

import asyncio
import shutil
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest

from maintainer.api.maintenance import run_pass
from maintainer.api.table import Table
from maintainer.errors import MaintainerError
from maintainer.storage import remote
from maintainer.storage.remote import RemoteStorage
from maintainer.table.store import TableStore
from tests.support import s3
from tests.support.campaign import share
from tests.support.crashes import QUICK, SCENES, Before, Scene, check_aftermath, check_unreliable, hides, work_with_an_unreliable_store
from tests.support.s3_copies import download, upload
from tests.support.small_table import SmallTable
from tests.support.striking_endpoint import STRIKES, StrikingEndpoint

TRIALS = share("failing requests of S3: trials a scene", short=2, long=10_000)
FILES = share("failing requests of files that are sent in parts", short=6, long=10_000)
UNRELIABLE = share("unreliable S3", short=1, long=100)
PEERS = 20
"""Of so many trials, pypaimon reads the table of one, and the next pass of another one is on S3."""
TIMEOUT = 0.6
"""Seconds that clients wait for an answer."""


@dataclass(frozen=True)
class Place:
    """A bucket, a file system that reaches it through a proxy that strikes, and one that reaches it as it is."""

    bucket: s3.Bucket
    endpoint: StrikingEndpoint
    struck: Any
    sound: Any

    def store(self, path: str, filesystem: Any = None) -> TableStore:
        return TableStore(RemoteStorage(self.bucket.place(path), filesystem=filesystem or self.struck))

    def forget(self, path: str) -> None:
        self.sound.rm(self.bucket.place(path), recursive=True)


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    bucket = s3.fresh_bucket()
    import s3fs

    options = {**bucket.storage_options, "use_listings_cache": False, "skip_instance_cache": True}
    endpoint = StrikingEndpoint(options["endpoint_url"], TIMEOUT)
    patience = {"read_timeout": TIMEOUT, "connect_timeout": 2, "retries": {"max_attempts": 1}}
    struck = s3fs.S3FileSystem(**{**options, "endpoint_url": endpoint.url, "config_kwargs": patience})
    struck.retries = 2
    yield Place(bucket, endpoint, struck, s3fs.S3FileSystem(**options))
    endpoint.close()


@pytest.fixture(autouse=True)
def in_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits before he tries again; answers that do not come are waited for."""
    sleep = asyncio.sleep
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    monkeypatch.setattr("asyncio.sleep", lambda seconds, *result: sleep(min(seconds, 0.1), *result))


@pytest.mark.parametrize("name", SCENES)
def test_any_http_request_may_fail(name: str, place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = SCENES[name]
    table = scene.make(tmp_path / "scene")
    before = Before.of(table.path, scene)

    def attempt(path: str, strike: str, at: int) -> BaseException | None:
        monkeypatch.setattr(remote, "_proved", set())
        upload(place.sound, Path(table.path), place.bucket.place(path))
        place.endpoint.arm(strike, at)
        try:
            scene.do(place.store(path))
        except MaintainerError as error:
            return error
        finally:
            place.endpoint.calm()
        return None

    assert attempt(f"{uuid.uuid4()}/sound", "denied", 0) is None
    cases = [(strike, at) for strike in STRIKES for at in range(1, len(place.endpoint.requests) + 1)]
    Random(1).shuffle(cases)
    ended: Counter[str] = Counter()
    for number, (strike, at) in enumerate(cases[:TRIALS]):
        path = f"{uuid.uuid4()}/db.db/t"
        error = attempt(path, strike, at)
        ended[type(error).__name__] += 1
        place.endpoint.do_what_is_late()
        copy = tmp_path / "db.db" / "t"
        download(place.sound, place.bucket.place(path), copy)
        struck = place.endpoint.struck or str(place.endpoint.requests[at - 1 : at])
        context = f"{strike} at request {at} ({struck})"
        peers, on_s3 = number % PEERS == 0, number % PEERS == 1
        check_aftermath(
            *(scene, table, str(copy), before, error, context),
            leaves_nothing=strike == "denied",
            peers=peers,
            hides=hides(strike, struck),
        )
        if on_s3:
            converge(place, path, table, scene, context)
        place.forget(path)
        shutil.rmtree(copy)


def converge(place: Place, path: str, table: SmallTable, scene: Scene, context: str) -> None:
    """The next pass, where it happened."""
    opened = Table(place.store(path, place.sound))
    run_pass(opened.store)
    rows = opened.scan().to_arrow().to_pydict()
    found = dict(zip(rows["id"], zip(rows["v"], rows["s"], strict=True), strict=True))
    assert found in (table.rows, {**table.rows, **scene.written}), context
    assert len(rows["id"]) == len(found), context
    coverage = opened.coverage()
    assert coverage.visible_ratio == 1.0 and all(one.ratio == 1.0 for one in coverage.definitions), context
    verified = opened.verify(deep=True)
    assert verified.ok, (context, verified.problems)


@pytest.mark.parametrize("seed", range(UNRELIABLE))
def test_a_store_that_is_never_reliable(seed: int, place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Faults while others are dealt with, and requests that are done when nobody expects them any more."""
    random, path, copy = Random(seed), f"{uuid.uuid4()}/db.db/t", tmp_path / "copy.db" / "t"
    table = SmallTable(tmp_path / "db.db", indexes=True, bucket="2", **{"manifest.merge-min-count": "3", **QUICK})
    table.write({key: key for key in range(50)})
    upload(place.sound, Path(table.path), place.bucket.place(path))
    monkeypatch.setattr(remote, "_proved", set())
    place.endpoint.arm("", 0, random, random.choice([0.01, 0.03, 0.08]))
    perhaps = work_with_an_unreliable_store(place.store(path), table.rows, random, 6)
    place.endpoint.calm()
    place.endpoint.do_what_is_late()
    download(place.sound, place.bucket.place(path), copy)
    check_unreliable(str(copy), table.rows, perhaps, f"seed {seed}")
    place.forget(path)


def test_a_file_in_parts_is_whole_or_not_there(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Data files larger than a part; when one cannot be made, no part of it is kept either."""
    monkeypatch.setattr(remote, "PART", 5 << 20)
    pieces = [Random(seed).randbytes(4 << 20) for seed in range(3)]
    data = b"".join(pieces)

    def attempt(path: str, strike: str, at: int) -> MaintainerError | None:
        storage = place.store(path).storage
        place.endpoint.arm(strike, at)
        try:
            with storage.create("file") as output:
                for piece in pieces:
                    output.write(piece)
        except MaintainerError as error:
            return error
        finally:
            place.endpoint.calm()
        return None

    assert attempt(f"{uuid.uuid4()}", "denied", 0) is None
    requests = len(place.endpoint.requests)
    assert requests >= 4
    cases = [(strike, at) for strike in STRIKES for at in range(1, requests + 1)]
    Random(1).shuffle(cases)
    for strike, at in cases[:FILES]:
        path = f"{uuid.uuid4()}"
        error = attempt(path, strike, at)
        place.endpoint.do_what_is_late()
        sound = place.store(path, place.sound).storage
        context = f"{strike} at request {at} ({place.endpoint.struck}): {error!r}"
        if error is None or sound.exists("file"):
            assert sound.read("file") == data, context
        assert not sound.list("") or sound.exists("file"), context
        if strike in ("denied", "error", "reset") and "DELETE" not in str(place.endpoint.struck):
            bucket, _, prefix = place.bucket.place(path).removeprefix("s3://").partition("/")
            uploads = place.sound.call_s3("list_multipart_uploads", Bucket=bucket, Prefix=prefix)
            assert not uploads.get("Uploads"), context
        sound.delete("file")
