"""Commands of the service: run, config."""

from __future__ import annotations

from typing import Annotated

import typer

from maintainer.cli.invocation import Invocation, command

ConfigurationFile = Annotated[str, typer.Option("--config", metavar="FILE", help="The configuration, a YAML file.", show_default=False)]
_OF_TABLES = ("warehouse", "branch", "storage_option", "option")
"""Shared options that stand in the configuration here, for each table."""


def register(app: typer.Typer) -> None:
    command(app, "config", without=_OF_TABLES)(config)


def config(call: Invocation, file: ConfigurationFile) -> None:
    """What a configuration comes to, and where each value is from; secrets are masked."""
    from maintainer.model.report import VERSION
    from maintainer.service.configuration import load

    call.output.document("config", {"version": VERSION, "values": load(file).values()})
