"""An S3 endpoint for tests, and file systems that count requests or lose their answers.

The endpoint is `MAINTAINER_TEST_S3_ENDPOINT` (scripts/test sets it), or a server of moto's that this process starts: with the Python of the
environment that `MAINTAINER_TEST_MOTO` names, or of `.venv-s3`. A bucket of its own for every test; for a store where buckets cannot be made
`MAINTAINER_TEST_S3_BUCKET` names one, and every test has a prefix in it. Credentials: `MAINTAINER_TEST_S3_KEY` and `…_SECRET`.
"""

from __future__ import annotations

import asyncio
import atexit
import functools
import importlib.util
import os
import subprocess
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from maintainer.storage.remote import RemoteStorage
from maintainer.table.store import TableStore

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Bucket:
    """A place in a store that nobody else uses."""

    uri: str
    storage_options: dict[str, Any]

    def place(self, path: str) -> str:
        return f"{self.uri}/{path}"

    def texts(self) -> list[str]:
        """The storage options for a command line."""
        return [text for key, value in self.storage_options.items() for text in ("--storage-option", f"{key}={value}")]

    def storage(self, path: str = "t", filesystem: Any = None) -> RemoteStorage:
        return RemoteStorage(self.place(path), self.storage_options, filesystem=filesystem)

    def store(self, path: str = "t", filesystem: Any = None, **options: str) -> TableStore:
        return TableStore(self.storage(path, filesystem), options=options)


@functools.cache
def absent() -> str | None:
    """Why there is no S3 here; None when there is."""
    if importlib.util.find_spec("s3fs") is None:
        return "s3fs is not installed (extra 's3')"
    if os.environ.get("MAINTAINER_TEST_S3_ENDPOINT") or _moto_python():
        return None
    return "no S3: neither MAINTAINER_TEST_S3_ENDPOINT nor MAINTAINER_TEST_MOTO is set, and scripts/test has not made .venv-s3"


@functools.cache
def endpoint() -> str:
    """The endpoint; starts a server if there is none."""
    return os.environ.get("MAINTAINER_TEST_S3_ENDPOINT") or _start_moto()


def fresh_bucket() -> Bucket:
    reason = absent()
    if reason:
        pytest.skip(reason)
    import s3fs

    key, secret = (os.environ.get(f"MAINTAINER_TEST_S3_{name}", "test") for name in ("KEY", "SECRET"))
    options = {"endpoint_url": endpoint(), "key": key, "secret": secret}
    shared = os.environ.get("MAINTAINER_TEST_S3_BUCKET")
    if shared:
        return Bucket(f"s3://{shared}/{uuid.uuid4()}", options)
    name = f"test-{uuid.uuid4()}"
    s3fs.S3FileSystem(**options).call_s3("create_bucket", Bucket=name)
    return Bucket(f"s3://{name}", options)


@pytest.fixture
def s3_bucket() -> Bucket:
    return fresh_bucket()


def _moto_python() -> Path | None:
    for directory in (os.environ.get("MAINTAINER_TEST_MOTO"), ROOT / ".venv-s3"):
        if directory and (Path(directory) / "bin" / "python").exists():
            return Path(directory) / "bin" / "python"
    return None


def _start_moto() -> str:
    written = Path(tempfile.mkdtemp(prefix="moto-")) / "port"
    server = subprocess.Popen([_moto_python(), ROOT / "tests" / "support" / "moto_server.py", "0", written], stderr=subprocess.DEVNULL)
    atexit.register(server.kill)
    deadline = time.monotonic() + 60
    while not written.exists():
        if server.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError("moto's server does not start")
        time.sleep(0.05)
    return f"http://127.0.0.1:{written.read_text()}"


def hooked(bucket: Bucket, **more: Any) -> Any:
    """A file system of s3fs with `requests`, (method, key) of each, and two hooks around them: `before(method, parameters)` and `after(method,
    parameters)` may raise, or do something meanwhile. What they raise goes through the retries of s3fs, like the errors of the network."""
    return _hooked_class()(**bucket.storage_options, use_listings_cache=False, skip_instance_cache=True, **more)


def counted(filesystem: Any) -> Iterator[tuple[str, int]]:
    """The requests by method, most frequent first."""
    yield from Counter(method for method, _ in filesystem.requests).most_common()


@functools.cache
def _hooked_class() -> Any:
    import s3fs

    class Hooked(s3fs.S3FileSystem):  # type: ignore[misc]
        cachable = False

        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            self.requests: list[tuple[str, str]] = []
            self.before: Callable[[str, dict[str, Any]], None] = lambda method, parameters: None
            self.after: Callable[[str, dict[str, Any]], None] = lambda method, parameters: None

        async def get_s3(self, bucket: str | None = None) -> Any:
            return _Client(self, await super().get_s3(bucket))

    class _Client:
        """botocore's client below the point where s3fs repeats requests."""

        def __init__(self, filesystem: Any, client: Any) -> None:
            self._filesystem = filesystem
            self._client = client

        def __getattr__(self, name: str) -> Any:
            method = getattr(self._client, name)

            async def call(**parameters: Any) -> Any:
                self._filesystem.requests.append((name, parameters.get("Key", parameters.get("Prefix", ""))))
                await asyncio.to_thread(self._filesystem.before, name, parameters)  # a hook may use the same loop
                answer = await method(**parameters)
                await asyncio.to_thread(self._filesystem.after, name, parameters)
                return answer

            call.__name__ = name
            return call

    return Hooked
