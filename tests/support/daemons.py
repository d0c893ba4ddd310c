"""The daemon as a process of its own, and what it says."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import yaml

PATIENCE = 60.0
"""Seconds for what takes less than one on an idle machine."""


class RunningDaemon:
    """`maintainer run`, with a poll interval of 0.1 s and JSON events unless the configuration says otherwise."""

    def __init__(self, directory: Path, configuration: Mapping[str, Any], **environment: str) -> None:
        path = directory / "maintainer.yaml"
        path.write_text(yaml.safe_dump({"poll-interval": "100 ms", "memory": "256 mb", "log": {"format": "json"}, **configuration}))
        self.lines: list[str] = []
        self._process = subprocess.Popen(
            [sys.executable, "-m", "maintainer", "run", "--config", str(path)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def __enter__(self) -> RunningDaemon:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()
        if error is not None:
            print("\n".join(self.lines[-80:]))

    def events(self, name: str | None = None, **fields: Any) -> list[dict[str, Any]]:
        """Events so far, of this name and with these values."""
        found = [json.loads(line) for line in list(self.lines)]
        return [event for event in found if name in (None, event["event"]) and all(event.get(key) == value for key, value in fields.items())]

    def wait_for(self, name: str, count: int = 1, **fields: Any) -> dict[str, Any]:
        """The event of this name and with these values, the `count`-th one, as soon as it comes."""
        eventually(lambda: len(self.events(name, **fields)) >= count or self._process.poll() is not None)
        found = self.events(name, **fields)
        assert len(found) >= count, f"no {name} with {fields}"
        return found[count - 1]

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def wait(self) -> int:
        """The exit code."""
        code = self._process.wait(PATIENCE)
        self._reader.join()
        return code

    def stop(self) -> int:
        self.signal(signal.SIGTERM)
        return self.wait()

    @property
    def output(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.read()

    def _read(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self.lines.append(line.rstrip("\n"))


def eventually(holds: Callable[[], bool]) -> None:
    """Waits for what must become true."""
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, "this did not happen in time"
        time.sleep(0.02)
