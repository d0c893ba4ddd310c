"""What people see of the demo: a live table on a terminal, a line for each change elsewhere, nothing when the output is for programs."""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from maintainer.cli.output import console

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live

    from maintainer.api.account import PassReport
    from maintainer.inspect.contents import Files
    from maintainer.inspect.coverage import Coverage

BAR_WIDTH = 24
KEPT_LINES = 6


class Screen:
    """Says what happens; used by the writer's thread and by the one that maintains."""

    def __init__(self, say: Any = None) -> None:
        self._print = say
        self._started = time.monotonic()
        self._lock = threading.Lock()
        self.progress = ""
        self.coverage: Coverage | None = None
        self.files: Files | None = None
        self.answers = ""

    def say(self, line: str) -> None:
        if self._print is not None:
            with self._lock:
                self._print(f"{time.monotonic() - self._started:5.1f} s  {line}")

    def wrote(self, number: int, of: int, rows: int, coverage: Coverage) -> None:
        self.progress = f"batch {number} of {of}, {rows:,} orders"
        self.coverage = coverage
        self.say(f"writer   {self.progress}; {coverage.visible_ratio:.0%} of the rows visible")

    def saw(self, coverage: Coverage, files: Files, report: PassReport, right: int, asked: int) -> None:
        self.coverage, self.files = coverage, files
        self.answers = f"{right} of {asked} right" if asked else "none yet"
        if report.outcome == "committed":
            work = f"{report.input_files} → {report.output_files} files, {report.groups_built} index groups"
            self.say(f"pass     snapshot {report.snapshot_after}: {work}; {self._found(coverage)}")

    def _found(self, coverage: Coverage) -> str:
        return f"{coverage.visible_ratio:.0%} visible, {coverage.ratio():.0%} indexed; answers: {self.answers}"


class LiveScreen(Screen):
    """The same on a terminal: the state of the table is always in sight, with the last lines below it."""

    def __init__(self, live: Live) -> None:
        super().__init__(self._keep)
        self._live = live
        self._lines: list[str] = []

    def _keep(self, line: str) -> None:
        self._lines = [*self._lines[1 - KEPT_LINES :], line]
        self._live.update(self._render())

    def _found(self, coverage: Coverage) -> str:
        return f"{coverage.ratio():.0%} indexed"  # the rest is in the table above

    def saw(self, coverage: Coverage, files: Files, report: PassReport, right: int, asked: int) -> None:
        super().saw(coverage, files, report, right, asked)
        self._live.update(self._render())

    def _render(self) -> RenderableType:
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        table = Table.grid(padding=(0, 2))
        table.add_row("writer", self.progress or "-")
        if self.coverage is not None and self.files is not None:
            levels = Counter(file.level for file in self.files.files)
            table.add_row("snapshot", str(self.coverage.snapshot))
            table.add_row("files", ", ".join(f"{count} in level {level}" for level, count in sorted(levels.items())) or "-")
            table.add_row("visible", bar(self.coverage.visible_ratio))
            for each in self.coverage.definitions:
                table.add_row(f"index {each.column}", bar(each.ratio))
            table.add_row("answers", self.answers)
        return Group(table, Text(""), *(Text(line, style="dim", no_wrap=True, overflow="ellipsis") for line in self._lines))


def bar(ratio: float) -> str:
    """A ratio as people see it at a glance."""
    full = round(ratio * BAR_WIDTH)
    color = "green" if ratio == 1.0 else "yellow"
    return f"[{color}]{'━' * full}[/][dim]{'━' * (BAR_WIDTH - full)}[/] {ratio:.1%}"


@contextmanager
def screen(quiet: bool) -> Iterator[Screen]:
    """The screen that fits where stdout goes."""
    if quiet:
        yield Screen()
    elif not sys.stdout.isatty():
        yield Screen(lambda line: print(line, flush=True))
    else:
        from rich.live import Live

        with Live(console=console(), refresh_per_second=8) as live:
            yield LiveScreen(live)
