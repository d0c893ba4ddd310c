"""Warehouses of small tables: each in a database of its own, all named t."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.small_table import SmallTable


def table_in(warehouse: Path, database: str = "db", indexes: bool = True, **options: str) -> SmallTable:
    """The table `t` of a database."""
    directory = warehouse / f"{database}.db"
    directory.mkdir(parents=True, exist_ok=True)
    return SmallTable(directory, indexes=indexes, **options)


def deny(path: Path) -> None:
    """Makes a directory that cannot be looked into, not even by root."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(path.name)


def some_rows(first: int, count: int = 10, value: int = 1) -> dict[int, Any]:
    return {key: value * 1000 + key for key in range(first, first + count)}
