"""The log of the daemon: events with fields, one a line on stderr, for people or as JSON (docs/operations.md "Events").

Every line passes here, also what libraries say by `logging` or `warnings`, so that each line is an event and none holds a secret of the
configuration or a password inside of a URI.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Mapping, MutableMapping
from contextlib import suppress
from typing import Any

import structlog

from maintainer.service.configuration import Configuration
from maintainer.service.masking import MASK, shown_uri

Event = MutableMapping[str, Any]


def log_events(configuration: Configuration, debug: bool = False, quiet: bool = False) -> None:
    """Configures structlog, and the standard library's logging with it, for this process. `quiet`: warnings and what is worse, at most."""
    level = logging.DEBUG if debug else getattr(logging, configuration.log.level.upper())
    level = max(level, logging.WARNING) if quiet and not debug else level
    renderer: Any
    if configuration.log.format == "json":
        renderer = structlog.processors.JSONRenderer(default=str)
    else:
        renderer = structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), sort_keys=False)
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            _Masking(configuration.secrets()),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=lambda *_: _LINES,
        cache_logger_on_first_use=False,
    )
    logging.root.handlers[:] = [_Forwarding()]
    logging.root.setLevel(logging.WARNING)
    logging.captureWarnings(True)
    logging.getLogger("apscheduler").setLevel(logging.CRITICAL)  # a look that is left out because a pass still runs is as it should be


class _Lines:
    """Lines on stderr. Work goes on when nobody reads them any more, or the disk behind them is full."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def msg(self, line: str) -> None:
        with self._lock, suppress(OSError, ValueError):
            print(line, file=sys.stderr, flush=True)

    log = debug = info = warning = error = critical = exception = fatal = msg


_LINES = _Lines()


class _Masking:
    """Replaces secrets in all texts of an event."""

    def __init__(self, secrets: frozenset[str]) -> None:
        self._secrets = sorted(secrets, key=len, reverse=True)

    def __call__(self, logger: object, method: str, event: Event) -> Event:
        return {key: self._masked(value) for key, value in event.items()}

    def _masked(self, value: Any) -> Any:
        if isinstance(value, str):
            for secret in self._secrets:
                value = value.replace(secret, MASK)
            return shown_uri(value)
        if isinstance(value, Mapping):
            return {key: self._masked(inner) for key, inner in value.items()}
        if isinstance(value, list | tuple):
            return [self._masked(inner) for inner in value]
        return value if value is None or isinstance(value, bool | int | float) else self._masked(str(value))


class _Forwarding(logging.Handler):
    """What a library logs, as an event."""

    def emit(self, record: logging.LogRecord) -> None:
        level = "error" if record.levelno >= logging.ERROR else "warning" if record.levelno >= logging.WARNING else "info"
        getattr(structlog.get_logger(), level)("library.message", library=record.name, message=" ".join(record.getMessage().split()))
