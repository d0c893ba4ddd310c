"""What all commands share: the options that name and open a table, the output format, and errors as exit codes.

A command is a function whose first parameter is the `Invocation`; the decorator `command` adds the shared options behind the command's own.
An error of the package becomes one line on stderr and the exit code of its class (`maintainer.errors`); anything else is a defect, exit
code 1, and `--debug` shows where it is.
"""

from __future__ import annotations

import errno
import functools
import inspect
import os
import sys
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from maintainer.errors import MaintainerError, UsageError, told

if TYPE_CHECKING:
    from maintainer.api.table import Table
    from maintainer.cli.output import Output

TABLE_HELP = "URI or path of a table directory, or db.t with --warehouse."
TableName = Annotated[str, typer.Argument(metavar="TABLE", help=TABLE_HELP, show_default=False)]

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it."""
_OUTPUT = frozenset({errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EFBIG})
"""What a full or broken device says when output goes to it. Stores say it as `StorageError`."""


@dataclass(frozen=True)
class Invocation:
    """One call of a command."""

    warehouse: str | None
    branch: str | None
    storage_options: Mapping[str, str]
    options: Mapping[str, str]
    json: bool
    debug: bool

    def open(self, table: str) -> Table:
        from maintainer.api.table import open_table

        return open_table(
            table,
            warehouse=self.warehouse,
            storage_options=self.storage_options,
            branch=self.branch,
            options=self.options,
        )

    def on_branch(self, branch: str | None) -> Invocation:
        """The same call, for a table on this branch unless the call names one."""
        return self if self.branch or branch is None else replace(self, branch=branch)

    @functools.cached_property
    def output(self) -> Output:
        from maintainer.cli.output import JsonOutput, TextOutput

        return JsonOutput() if self.json else TextOutput()


_SHARED: dict[str, Any] = {
    "warehouse": Annotated[str | None, typer.Option(metavar="URI", help="Warehouse of a table that is named like db.t.")],
    "branch": Annotated[str | None, typer.Option(metavar="NAME", help="Branch of the table.")],
    "storage_option": Annotated[list[str] | None, typer.Option(metavar="K=V", help="Option for the file system (fsspec); may be repeated.")],
    "option": Annotated[list[str] | None, typer.Option(metavar="K=V", help="Dynamic table option for this command; may be repeated.")],
    "json": Annotated[bool, typer.Option("--json", help="Machine-readable output on stdout.")],
    "debug": Annotated[bool, typer.Option("--debug", help="Show tracebacks and debug logs.")],
}

Command = Callable[..., int | None]


def command(app: typer.Typer, name: str, without: Container[str] = ()) -> Callable[[Command], Command]:
    """Registers a function as a command; what it returns is the exit code (None: 0). `without` names shared options that say nothing to it."""

    def register(function: Command) -> Command:
        hints = get_type_hints(function, include_extras=True)
        own = list(inspect.signature(function).parameters.values())[1:]
        parameters = [parameter.replace(annotation=hints[parameter.name]) for parameter in own]
        for shared, annotation in _SHARED.items():
            if shared in without:
                continue
            default = False if shared in ("json", "debug") else None
            parameters.append(inspect.Parameter(shared, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation))

        def run(**values: Any) -> None:
            shared = {key: values.pop(key, None) for key in _SHARED}
            raise typer.Exit(_run(function, values, shared))

        run.__doc__ = function.__doc__
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        app.command(name)(run)
        return function

    return register


def _run(function: Command, values: Mapping[str, Any], shared: Mapping[str, Any]) -> int:
    debug = bool(shared["debug"])
    try:
        invocation = Invocation(
            warehouse=shared["warehouse"],
            branch=shared["branch"],
            storage_options=key_values(shared["storage_option"], "--storage-option"),
            options=key_values(shared["option"], "--option"),
            json=bool(shared["json"]),
            debug=debug,
        )
        _log_to_stderr(debug)
        code = function(invocation, **values) or 0
        if sys.stdout is not None:
            sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        complain("interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output had enough of it; the interpreter must not complain when it flushes at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if debug:
            raise
        message, code = explained(error, values.get("table"))
        complain(message)
        return code


def explained(error: Exception, table: object) -> tuple[str, int]:
    """What went wrong, and the exit code. Errors of decoders name their file; which of many tables it belongs to is known here."""
    message, code = told(error)
    if not isinstance(error, MaintainerError):
        if isinstance(error, OSError) and error.filename is None and error.errno in _OUTPUT:
            return f"cannot write the output: {error.strerror}", code
        message += " (--debug shows where)"
    return f"{table}: {message}" if isinstance(table, str) and table not in message else message, code


def complain(message: str) -> None:
    """One line on stderr, as every error and warning has it."""
    print(f"maintainer: {' '.join(message.split())}", file=sys.stderr)


def key_values(pairs: list[str] | None, option: str) -> dict[str, str]:
    """`k=v` texts as a mapping."""
    found = {}
    for pair in pairs or ():
        key, given, value = pair.partition("=")
        if not given or not key.strip():
            raise UsageError(f"{option} {pair!r}: expected key=value")
        found[key.strip()] = value
    return found


def seconds(duration: str) -> float:
    """What `60s` or `5 min` says; a bare number is of seconds."""
    from maintainer.table.option_text import parse_duration

    return float(duration) if duration.strip().isdigit() else parse_duration(duration)


def _log_to_stderr(debug: bool) -> None:
    import logging

    import structlog

    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG if debug else logging.WARNING),
        logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),
    )
