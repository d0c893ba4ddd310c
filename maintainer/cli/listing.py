"""Tables for people. Where nobody looks at a terminal, a row is one line and nothing is left out. On a terminal, room is made in this order:
file names and users lose the rest of their uuid, columns that one can do without are left out, texts take several lines.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

GAP = 2
"""Blanks between two columns."""
LEAST_TEXT = 18
"""Columns are left out before a text becomes narrower than this."""
TIGHT_TEXT = 9
"""Texts become that narrow before numbers and names take several lines, too."""
NOTHING = "-"
"""A cell without a value. A column with nothing else is not shown if it says so."""

_UUID = re.compile(r"([0-9a-f]{8})-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_CONTROL = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}


@dataclass(frozen=True)
class Column:
    title: str
    number: bool = False
    wraps: bool = False
    """A text that may take several lines."""
    spare: int = 0
    """Above 0: it is left out where there is no room for it, the largest number first."""
    hides: bool = False
    """It is not shown when no row has a value."""


def text(content: str, style: str = "") -> Text:
    """A text as it is: nothing in it is markup, and it cannot command a terminal."""
    from rich.text import Text

    return Text(content.translate(_CONTROL), style=style)


def say(console: Console, content: str, style: str = "") -> None:
    """A line. The terminal breaks it where it must, so that paths can be copied."""
    console.print(text(content, style), soft_wrap=True)


def show(console: Console, columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
    """The rows below the titles of their columns."""
    from rich import box
    from rich.table import Table

    shown = [number for number, column in enumerate(columns) if not column.hides or any(row[number] != NOTHING for row in rows)]
    widths = _widths(columns, rows)
    shortened = False
    if _room(shown, widths) > console.width:
        rows = [[_UUID.sub(r"\1…", cell) for cell in row] for row in rows]
        shortened, widths = _widths(columns, rows) != widths, _widths(columns, rows)
    while _room(shown, _least(columns, widths, LEAST_TEXT)) > console.width and (spare := [one for one in shown if columns[one].spare]):
        shown.remove(max(spare, key=lambda one: columns[one].spare))
        shortened = True
    fits = _room(shown, _least(columns, widths, TIGHT_TEXT)) <= console.width
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, GAP - 1, 0, 0))
    for number in shown:
        column = columns[number]
        table.add_column(text(column.title), justify="right" if column.number else "left", overflow="fold", no_wrap=fits and not column.wraps)
    for row in rows:
        table.add_row(*(text(row[number]) for number in shown))
    console.print()
    console.print(table)
    if shortened:
        say(console, "(shortened to fit; --json has all of it)", "dim")


def show_records(console: Console, titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Rows of many columns: a table while each of them has room for a word, else the rows one below the other, a line for each value."""
    from rich.table import Table

    columns = [Column(title, wraps=True) for title in titles]
    if _room(range(len(columns)), _least(columns, _widths(columns, rows), TIGHT_TEXT)) <= console.width:
        show(console, columns, rows)
        return
    for number, row in enumerate(rows, 1):
        console.print()
        say(console, f"row {number}", "dim")
        table = Table(box=None, show_header=False, show_edge=False, pad_edge=False, padding=(0, GAP, 0, 0))
        table.add_column(overflow="fold", no_wrap=True)
        table.add_column(overflow="fold")
        for title, value in zip(titles, row, strict=True):
            table.add_row(text(title), text(value))
        console.print(table)


def _widths(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> list[int]:
    from rich.cells import cell_len

    lines = ([column.title, *(line for row in rows for line in row[number].split("\n"))] for number, column in enumerate(columns))
    return [max(map(cell_len, cells)) for cells in lines]


def _least(columns: Sequence[Column], widths: Sequence[int], text_width: int) -> list[int]:
    return [min(width, text_width) if column.wraps else width for column, width in zip(columns, widths, strict=True)]


def _room(shown: Sequence[int], widths: Sequence[int]) -> int:
    return sum(widths[number] for number in shown) + GAP * (len(shown) - 1)
