"""Tables for people, at several widths."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from maintainer.cli.listing import Column, say, show, show_records

UUID = "a73077d8-6897-4daf-92c9-9bdc21c7d37f"
COLUMNS = [
    Column("partition", hides=True),
    Column("bucket", number=True),
    Column("source", spare=1),
    Column("sequence", spare=2),
    Column("reason", wraps=True),
    Column("file"),
]
ROWS = [
    ("-", "0", "COMPACT", "0–2", "statistics: no row can match it", f"data-{UUID}-0.parquet"),
    ("-", "11", "APPEND", "3–17", "[b]none[/b] :smile:", f"data-{UUID}-1.parquet"),
]


def shown(width: int, columns: list[Column] = COLUMNS, rows: list[tuple[str, ...]] = ROWS) -> list[str]:
    console = Console(file=StringIO(), width=width, highlight=False)
    show(console, columns, rows)
    assert isinstance(console.file, StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def test_everything_is_there_where_there_is_room() -> None:
    assert shown(10_000) == [
        "",
        "bucket  source   sequence  reason                           file",
        "─" * 111,
        f"     0  COMPACT  0–2       statistics: no row can match it  data-{UUID}-0.parquet",
        f"    11  APPEND   3–17      [b]none[/b] :smile:              data-{UUID}-1.parquet",
    ]


def test_names_are_shortened_first() -> None:
    assert shown(90)[3:] == [
        "     0  COMPACT  0–2       statistics: no row can match it  data-a73077d8…-0.parquet",
        "    11  APPEND   3–17      [b]none[/b] :smile:              data-a73077d8…-1.parquet",
        "(shortened to fit; --json has all of it)",
    ]


def test_then_texts_wrap_and_columns_are_left_out() -> None:
    assert shown(80)[3:] == [
        "     0  COMPACT  0–2       statistics: no row can       data-a73077d8…-0.parquet",
        "                           match it",
        "    11  APPEND   3–17      [b]none[/b] :smile:          data-a73077d8…-1.parquet",
        "(shortened to fit; --json has all of it)",
    ]
    assert shown(65)[1].split() == ["bucket", "source", "reason", "file"]
    assert shown(55)[1].split() == ["bucket", "reason", "file"]


@pytest.mark.parametrize("width", range(12, 130))
def test_no_line_is_longer_than_the_terminal_and_no_text_is_lost(width: int) -> None:
    lines = shown(width)[:-1]
    assert all(len(line) <= width for line in lines)
    only = shown(width, COLUMNS[4:5], [ROWS[0][4:5]])[3:]
    assert "".join(only).replace(" ", "") == "statistics:norowcanmatchit"


def test_a_column_without_a_value_is_hidden_only_where_it_says_so() -> None:
    assert shown(200, [Column("a", hides=True), Column("b")], [("-", "-")])[1:] == ["b", "─", "-"]
    assert shown(200, [Column("a", hides=True), Column("b")], [("-", "1"), ("x", "2")])[1].split() == ["a", "b"]


def test_nothing_commands_the_terminal() -> None:
    console = Console(file=StringIO(), width=20, force_terminal=True, highlight=False)
    show(console, [Column("a")], [("\x1b[2Jx\ny\x9b",)])
    say(console, "/a/[red]b/c" + "d" * 30 + "\x1b")
    assert isinstance(console.file, StringIO)
    output = console.file.getvalue()
    assert "\\x1b[2Jx" in output and "y\\x9b" in output and "\x1b[2J" not in output
    assert "/a/[red]b/c" + "d" * 30 + "\\x1b\n" in output


def records(width: int, titles: list[str], rows: list[list[str]]) -> list[str]:
    console = Console(file=StringIO(), width=width, highlight=False)
    show_records(console, titles, rows)
    assert isinstance(console.file, StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def test_rows_of_many_columns_come_one_below_the_other_where_a_table_would_be_too_narrow() -> None:
    titles = ["id", "customer", "note"]
    rows = [["1", "customer-000001", "at the door, [b]please[/b]"], ["2", "NULL", "a note that takes more than a line"]]
    assert records(60, titles, rows)[1] == "id  customer         note"
    assert records(24, titles, rows)[1] == "id  customer   note"
    assert (
        "\n".join(records(23, titles, rows))
        == """
row 1
id        1
customer  customer-0000
          01
note      at the door,
          [b]please[/b]

row 2
id        2
customer  NULL
note      a note that
          takes more
          than a line"""
    )
