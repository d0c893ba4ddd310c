"""Output formats: the same documents as JSON for programs or as tables for people. Commands hand over a document and never know which it is."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Protocol

from maintainer.cli import views

if TYPE_CHECKING:
    from rich.console import Console

Document = Mapping[str, Any]
Row = Mapping[str, Any]

Advance = Callable[[int], None]

PLAIN_WIDTH = 160
"""Columns of a table that goes to a file or pipe; on a terminal it is the terminal's width."""
SHOWN_ROWS = 100
"""Rows of a query that are shown as a table unless a limit is asked for."""


class Output(Protocol):
    def document(self, view: str, document: Document) -> None:
        """One document; `view` names how people see it (`maintainer.cli.views`)."""

    def rows(self, columns: list[str], rows: Iterable[Row], limited: bool) -> None:
        """The rows of a query; `limited` when the query itself limits them."""

    def line(self, document: Document) -> None:
        """One of several documents, a line each."""

    def progress(self, title: str) -> AbstractContextManager[Advance]:
        """Around long work: shows on a terminal that it goes on; gives what counts the bytes that were worked through."""


class JsonOutput:
    """JSON on stdout and nothing else."""

    def document(self, view: str, document: Document) -> None:
        print(json.dumps(document, ensure_ascii=False))

    def rows(self, columns: list[str], rows: Iterable[Row], limited: bool) -> None:
        for row in rows:
            print(json.dumps(row, ensure_ascii=False))

    def line(self, document: Document) -> None:
        print(json.dumps(document, ensure_ascii=False), flush=True)

    def progress(self, title: str) -> AbstractContextManager[Advance]:
        return nullcontext(_ignore)


class TextOutput:
    """Tables on stdout."""

    def __init__(self) -> None:
        self._console = console()

    def document(self, view: str, document: Document) -> None:
        views.VIEWS[view](document, self._console)

    def rows(self, columns: list[str], rows: Iterable[Row], limited: bool) -> None:
        shown: list[Row] = []
        more = False
        for row in rows:
            if not limited and len(shown) == SHOWN_ROWS:
                more = True
                break
            shown.append(row)
        views.rows(columns, shown, self._console)
        if more:
            self._console.print(f"Only the first {SHOWN_ROWS} rows are shown; --limit asks for more, --json gives all.", style="dim")

    def line(self, document: Document) -> None:
        print(json.dumps(document, ensure_ascii=False), flush=True)

    @contextmanager
    def progress(self, title: str) -> Iterator[Advance]:
        if not sys.stderr.isatty():
            yield _ignore
            return
        from rich.console import Console
        from rich.progress import FileSizeColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn(), FileSizeColumn())
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(title, total=None)
            yield lambda size: bar.advance(task, size)


def _ignore(size: int) -> None:
    """Nobody looks."""


def console() -> Console:
    """Where tables go; a wide one when nobody looks at a terminal."""
    from rich.console import Console

    return Console(highlight=False, width=None if sys.stdout.isatty() else PLAIN_WIDTH)
