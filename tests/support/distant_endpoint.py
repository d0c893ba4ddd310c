"""An S3 endpoint that is far away: a proxy before a real one, whose answers take `latency` seconds each, however fast the real one is.

    with DistantEndpoint(endpoint, 0.02) as distant:
        … storage_options | {"endpoint_url": distant.url} …
        distant.round_trips, len(distant.asked)

Round trips are what a client waits for: the largest number of requests of which each began when the one before it had been answered. What is
asked for at the same time is one. It is counted, not divided out of the time that was taken, so that a slow machine does not change it, unless
it is so slow that requests of one moment are a whole latency apart.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
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


def chain(asked: Sequence[Asked]) -> list[Asked]:
    """A longest chain of requests of which each began after the one before it had been answered."""
    found: list[Asked] = []
    for each in sorted(asked, key=lambda each: each.answered):
        if not found or each.came >= found[-1].answered:
            found.append(each)
    return found
