"""`maintainer demo`: the whole story on a local warehouse that it makes itself."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from maintainer.cli.invocation import Invocation, command

WRONG = 1
"""Exit code when an answer was wrong."""


def register(app: typer.Typer) -> None:
    command(app, "demo", without=("warehouse", "branch", "storage_option", "option"))(demo)


def demo(
    call: Invocation,
    directory: Annotated[Path | None, typer.Option(metavar="DIR", help="Where the warehouse goes, to look at it afterwards.")] = None,
) -> int:
    """See a table being written, compacted, indexed and queried, all at once; takes about 20 seconds."""
    from maintainer.cli.demo.screen import screen
    from maintainer.cli.demo.story import Story

    kept = directory is not None
    with ExitStack() as stack:
        if directory is None:
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="maintainer-demo-")))
        with screen(quiet=call.json) as view:
            summary = Story(directory).run(view)
        call.output.document("demo", summary.to_dict())
        place = f"Look at it: maintainer files {summary.table}" if kept else "Its table is gone; with --directory DIR it stays."
        call.output.note(place)
        return 0 if summary.ok else WRONG
