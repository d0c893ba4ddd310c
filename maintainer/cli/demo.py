"""Commands that do the work: once, compact, index, plan, execute, commit."""

from __future__ import annotations

import typer


def register(app: typer.Typer) -> None:
    pass
