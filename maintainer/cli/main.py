"""The command `maintainer`: all commands in one place. What a command works with is imported when it runs, so that `--help` answers at once."""

from __future__ import annotations

import io
import os
import sys
from typing import Annotated, Any

import typer

from maintainer import __version__
from maintainer.cli import demo, inspection, maintenance, rows, schemas, service, upkeep

app = typer.Typer(
    name="maintainer",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for commands in (schemas, rows, maintenance, service, inspection, upkeep, demo):
    commands.register(app)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"maintainer {__version__}")
        raise typer.Exit


@app.callback()
def maintainer(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")] = False,
) -> None:
    """Keeps Apache Paimon primary-key tables compacted and fully indexed, without a JVM."""


def main() -> None:
    """The entry point of the command."""
    sys.meta_path.insert(0, _WithoutPandas())
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by whoever started us
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 -- as long as the process
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a terminal of another encoding, or a path that is no UTF-8, is no failure
    app()


class _WithoutPandas:
    """Arrow imports pandas, where it is installed, for its first array: half a second of every command, and no command needs it. polars, which
    reads Avro, goes without what is said not to be there; any other ImportError would be its own."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError("pandas is not used on the command line", name=fullname)
