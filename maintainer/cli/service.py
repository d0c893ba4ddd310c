"""Commands of the service: run, config."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from maintainer.cli.invocation import Invocation, command

ConfigurationFile = Annotated[str, typer.Option("--config", metavar="FILE", help="The configuration, a YAML file.", show_default=False)]
_OF_TABLES = ("warehouse", "branch", "storage_option", "option")
"""Shared options that stand in the configuration here, for each table."""


def register(app: typer.Typer) -> None:
    command(app, "run", without=(*_OF_TABLES, "json"))(run)
    command(app, "config", without=_OF_TABLES)(config)


def run(call: Invocation, file: ConfigurationFile) -> int:
    """Maintain all tables of a configuration until SIGTERM or Ctrl-C, in the foreground; events go to stderr."""
    from maintainer.service.signals import Signals

    signals = Signals()
    try:
        from maintainer.service.configuration import load

        configuration = load(file)

        from maintainer.service.daemon import Daemon
        from maintainer.service.events import log_events

        log_events(configuration, debug=call.debug)
        daemon = Daemon(configuration)
        code = daemon.run(signals)
    finally:
        signals.give_back()
    if daemon.is_abandoned:  # the interpreter would wait at its end for threads that hang in a store
        sys.stderr.flush()
        os._exit(code)
    return code


def config(call: Invocation, file: ConfigurationFile) -> None:
    """What a configuration comes to, and where each value is from; secrets are masked."""
    from maintainer.model.report import VERSION
    from maintainer.service.configuration import load

    call.output.document("config", {"version": VERSION, "values": load(file).values()})
