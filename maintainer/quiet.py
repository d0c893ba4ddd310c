"""What a library that is used by another program says."""

from __future__ import annotations


def log_quietly() -> None:
    """Warnings on stderr, unless the program has configured structlog: by itself it would print every event to stdout."""
    import logging
    import sys

    import structlog

    if not structlog.is_configured():
        structlog.configure(
            wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING), logger_factory=lambda *_: structlog.PrintLogger(sys.stderr)
        )
