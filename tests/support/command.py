"""The command line, called within the process of the test."""

from __future__ import annotations

from typing import Any

from typer.testing import CliRunner, Result

from maintainer.cli.main import app


def run(*words: Any, stdin: str | None = None) -> Result:
    """`maintainer …`, with what it wrote and its exit code."""
    return CliRunner().invoke(app, [str(word) for word in words], input=stdin)
