"""An S3 endpoint that is far away: a proxy before a real one, whose answers take `latency` seconds each, however fast the real one is.

    with DistantEndpoint(endpoint, 0.02) as distant:
        … storage_options | {"endpoint_url": distant.url} …
        distant.round_trips, len(distant.asked)

Round trips are what a client waits for: the largest number of requests of which each began when the one before it had been answered. What is
asked for at the same time is one. It is counted, not divided out of the time that was taken, so that a slow machine does not change it, unless
it is so slow that requests of one moment are a whole latency apart.

`CountingEndpoint` counts on any machine, but takes no time that means anything: it answers when the process has nothing left to do but wait,
and then all requests at once. What is answered together is one round trip.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self
from urllib.parse import unquote, urlsplit

from tests.support.striking_endpoint import Answer, Request, StrikingEndpoint


@dataclass(frozen=True)
class Asked:
    """A request of a client: what for, and the seconds (`time.monotonic`) at which it came and was answered."""

    method: str
    key: str
    range: str | None
    came: float
    answered: float

    def __str__(self) -> str:
        return f"{self.method} {self.key}{f' {self.range}' if self.range else ''}"


class DistantEndpoint(StrikingEndpoint):
    """`asked` is what was asked for since `clear`, in the order of the answers."""

    def __init__(self, endpoint: str, latency: float) -> None:
        super().__init__(endpoint, timeout=30.0)
        self.latency = latency
        self.asked: list[Asked] = []
        self._asking = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def clear(self) -> None:
        self.asked = []

    @property
    def round_trips(self) -> int:
        return len(chain(self.asked))

    def serve(self, request: Request) -> tuple[Answer | None, int | None]:
        came = time.monotonic()
        answer = self.forward(request)
        time.sleep(max(0.0, came + self.latency - time.monotonic()))
        headers = {name.lower(): value for name, value in request.headers.items()}
        query = urlsplit(request.target).query
        key = f"{request.key}?{unquote(query)}" if query else request.key
        with self._asking:
            self.asked.append(Asked(request.method, key, headers.get("range"), came, time.monotonic()))
        return answer, None


class CountingEndpoint(StrikingEndpoint):
    """`asked` is what was asked for since `clear`, round trip by round trip."""

    def __init__(self, endpoint: str) -> None:
        super().__init__(endpoint, timeout=30.0)
        self.asked: list[list[str]] = []
        self._changed = threading.Condition()
        self._under_way = 0
        self._waiting: list[str] = []
        self._round = 0
        self._closed = False
        threading.Thread(target=self._answer, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._closed = True
        self.close()

    def clear(self) -> None:
        self.asked = []

    @property
    def round_trips(self) -> int:
        return len(self.asked)

    @property
    def how_many(self) -> int:
        return sum(map(len, self.asked))

    def serve(self, request: Request) -> tuple[Answer | None, int | None]:
        with self._changed:
            self._under_way += 1
        answer = self.forward(request)
        with self._changed:
            self._waiting.append(str(request))
            now = self._round
            self._changed.wait_for(lambda: self._round > now)
        return answer, None

    def _answer(self) -> None:
        """Whenever all requests wait for their answers, and nobody is about to ask for more."""
        others = _cpu_of_others()
        while not self._closed:
            time.sleep(0.01)
            before, others = others, _cpu_of_others()
            with self._changed:
                if self._waiting and len(self._waiting) == self._under_way and others - before < 1e-4 and not _somebody_runs():
                    self.asked.append(self._waiting)
                    self._waiting, self._under_way = [], 0
                    self._round += 1
                    self._changed.notify_all()


def _cpu_of_others() -> float:
    """Seconds that the other threads of the process have worked."""
    return time.process_time() - time.thread_time()


def _somebody_runs() -> bool:
    """Whether another thread of the process works, or would if a processor were free; where that cannot be seen, nobody does."""
    for thread in Path("/proc/self/task").glob("*/stat"):
        if int(thread.parent.name) != threading.get_native_id():
            with suppress(OSError):
                if thread.read_text().rpartition(")")[2].split()[0] in "RD":
                    return True
    return False


def chain(asked: Sequence[Asked]) -> list[Asked]:
    """A longest chain of requests of which each began after the one before it had been answered."""
    found: list[Asked] = []
    for each in sorted(asked, key=lambda each: each.answered):
        if not found or each.came >= found[-1].answered:
            found.append(each)
    return found
