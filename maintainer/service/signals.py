"""SIGTERM and SIGINT: the first one is a request that somebody waits for, the second ends the process on the spot (DESIGN §5).

Taken before anything else is imported, so that a service that is told to stop while it starts ends like any other.
"""

from __future__ import annotations

import os
import queue
import signal
from types import FrameType

TAKEN = (signal.SIGTERM, signal.SIGINT)


class Signals:
    """What the process was told. To be made in its main thread."""

    def __init__(self) -> None:
        self._received: queue.SimpleQueue[int] = queue.SimpleQueue()  # the only queue that a signal handler may put into
        self._seen = False
        self._before = {number: signal.signal(number, self._receive) for number in TAKEN}

    def wait(self, seconds: float) -> str | None:
        """The name of the signal that came first, None when none has come after so many seconds."""
        try:
            return signal.Signals(self._received.get(timeout=seconds)).name
        except queue.Empty:
            return None

    def give_back(self) -> None:
        """Signals do again what they did before."""
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if self._seen:
            os._exit(128 + number)
        self._seen = True
        self._received.put(number)
