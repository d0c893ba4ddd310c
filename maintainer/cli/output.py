"""Output formats: the same documents as JSON for programs or as tables for people. Commands hand over a document and never know which it is."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

from maintainer.cli import views
from maintainer.cli.listing import say

if TYPE_CHECKING:
    from rich.console import Console

Document = Mapping[str, Any]
Row = Mapping[str, Any]

Advance = Callable[[int], None]
Meter = Callable[[int, int, float | None], None]
"""Takes the bytes that are done, those that there are, and the seconds that are left, as far as that can be said."""

UNLIMITED = 10_000
"""Columns where nobody looks at a terminal and `COLUMNS` does not say otherwise: one line for each row, for grep and awk."""
SHOWN_ROWS = 100
"""Rows of a query that are shown as a table unless a limit is asked for."""


class Output(Protocol):
    most_rows: int | None
    """How many rows of a query are of use where it does not say so itself."""

    def document(self, view: str, document: Document) -> None:
        """One document; `view` names how people see it (`maintainer.cli.views`)."""

    def rows(self, columns: list[str], rows: Iterable[Row], limited: bool, why_none: Callable[[], str]) -> None:
        """The rows of a query; `limited` when the query itself limits them, `why_none` says to people why there may be none."""

    def line(self, document: Document) -> None:
        """One of several documents, a line each."""

    def note(self, line: str) -> None:
        """Something that only people want to know."""

    def progress(self, title: str) -> AbstractContextManager[Advance]:
        """Around long work: shows on a terminal that it goes on; gives what counts the bytes that were worked through."""

    def meter(self, title: str) -> AbstractContextManager[Meter]:
        """Around long work of a known size: shows on a terminal how much of it is done, and gives what is told of that."""


class JsonOutput:
    """JSON on stdout and nothing else."""

    most_rows: int | None = None

    def document(self, view: str, document: Document) -> None:
        print(_json(document))

    def rows(self, columns: list[str], rows: Iterable[Row], limited: bool, why_none: Callable[[], str]) -> None:
        for row in rows:
            print(_json(row))

    def line(self, document: Document) -> None:
        print(_json(document), flush=True)

    def note(self, line: str) -> None:
        pass

    def progress(self, title: str) -> AbstractContextManager[Advance]:
        return nullcontext(_ignore)

    def meter(self, title: str) -> AbstractContextManager[Meter]:
        return nullcontext(_ignore)


class TextOutput:
    """Tables on stdout."""

    most_rows: int | None = SHOWN_ROWS + 1

    def __init__(self) -> None:
        self._console = console()

    def document(self, view: str, document: Document) -> None:
        views.VIEWS[view](document, self._console)

    def rows(self, columns: list[str], rows: Iterable[Row], limited: bool, why_none: Callable[[], str]) -> None:
        shown = list(islice(rows, None if limited else SHOWN_ROWS + 1))
        if not shown:
            say(self._console, f"No rows. {why_none()}".rstrip())
            return
        views.rows(columns, shown if limited else shown[:SHOWN_ROWS], self._console)
        if not limited and len(shown) > SHOWN_ROWS:
            say(self._console, f"Only the first {SHOWN_ROWS} rows are shown; --limit asks for more, --json gives all.", "dim")

    def line(self, document: Document) -> None:
        print(_json(document), flush=True)

    def note(self, line: str) -> None:
        say(self._console, line, "dim")

    @contextmanager
    def progress(self, title: str) -> Iterator[Advance]:
        if not sys.stderr.isatty():
            yield _ignore
            return
        from rich.console import Console
        from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn(), TextColumn("{task.fields[done]}"))
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(title, total=None, done="")

            def advance(size: int) -> None:
                bar.advance(task, size)
                bar.update(task, done=views.size(int(bar.tasks[0].completed)))

            yield advance

    @contextmanager
    def meter(self, title: str) -> Iterator[Meter]:
        if not sys.stderr.isatty():
            yield _ignore
            return
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        columns = (
            *(SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(24), TextColumn("{task.fields[done]}")),
            *(TimeElapsedColumn(), TextColumn("{task.fields[left]}")),
        )
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(title, total=None, done="", left="")

            def show(done: int, total: int, seconds_left: float | None) -> None:
                share = f"{done / total:4.0%}  {views.size(done)} of {views.size(total)}" if total else ""
                left = "" if seconds_left is None else f"{views.duration(seconds_left)} left"
                bar.update(task, completed=done, total=total or None, done=share, left=left)

            yield show


def _json(document: Mapping[str, Any]) -> str:
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    return json.dumps(document, ensure_ascii=not encoding.lower().startswith("utf"))


def _ignore(*numbers: float | None) -> None:
    """Nobody looks."""


def console() -> Console:
    """Where tables go: as wide as the terminal, or as `COLUMNS` says, or else as their content."""
    from rich.console import Console

    return Console(highlight=False, width=None if sys.stdout.isatty() or os.environ.get("COLUMNS") else UNLIMITED)
