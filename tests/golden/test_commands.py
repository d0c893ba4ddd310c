"""Every command that looks at a table, on every table that Java wrote: an answer, or a reason why there is none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support import golden
from tests.support.campaign import share
from tests.support.command import run

NAMES = sorted(path.stem for path in golden.directory().glob("*.json"))
COMMANDS = (
    *(["files"], ["coverage"], ["verify"], ["verify", "--deep"], ["doctor"], ["snapshots"], ["plan"], ["plan", "--full"]),
    *(["query"], ["query", "--explain"], ["query", "--limit", "1"]),
)
LOOKS_EVERYWHERE = ("doctor", "snapshots", "files")
"""These answer whatever the table is."""
UNSUPPORTED = 7


@pytest.mark.parametrize("name", NAMES[:: share("commands on golden tables, each n-th", short=6, long=1)])
def test_an_answer_or_a_reason(name: str, tmp_path: Path) -> None:
    path = golden.unpack(name, tmp_path)
    for words in COMMANDS:
        command = [words[0], str(path), *words[1:], "--json"]
        found = run(*command)
        assert found.exit_code in (0, UNSUPPORTED), (command, found.exit_code, found.stdout[-500:], found.stderr, found.exception)
        assert "Traceback" not in found.output and "should not have happened" not in found.stderr, (command, found.output)
        if found.exit_code == 0:
            documents = [json.loads(line) for line in found.stdout.splitlines()] if words[0] == "query" else [json.loads(found.stdout)]
            assert documents or words[0] == "query", command
        else:
            assert words[0] not in LOOKS_EVERYWHERE, (command, found.stderr)
            (reason,) = [line for line in found.stderr.splitlines() if line.startswith("maintainer: ")]
            assert name in reason and len(reason) > 30, reason
