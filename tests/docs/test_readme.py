"""The tour of the README runs as it stands, and says what comes out."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SIZE = re.compile(r"[\d.]+ [KM]?B$")  # a matter of libraries
README = (ROOT / "README.md").read_text("utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def test_the_tour_runs_and_gives_what_it_shows(tmp_path: Path) -> None:
    script = "set -euo pipefail\n" + "\n".join(blocks("sh"))
    env = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "COLUMNS": "160",
        "PYTHONIOENCODING": "utf-8",
    }
    shown = subprocess.run(["bash", "-c", script], cwd=tmp_path, env=env, capture_output=True, text=True, encoding="utf-8", check=False)
    assert shown.returncode == 0, shown.stderr
    out = [SIZE.sub("", " ".join(line.split())) for line in shown.stdout.splitlines()]
    checked = 0
    for line in "".join(blocks("text")).splitlines():
        words = SIZE.sub("", " ".join(re.sub(r"data-\S+|…/", "", line).split())).strip("─ ")
        if words:
            assert any(words in found.replace(str(tmp_path) + "/", "") for found in out), line
            checked += 1
    assert checked > 10
    for code in blocks("python"):
        done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


def test_every_command_is_in_the_readme() -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "maintainer", "--help"], capture_output=True, text=True, check=True, env={**os.environ, "COLUMNS": "200"}
    )
    commands = re.findall(r"^│ ([a-z]+) {2,}", shown.stdout, re.MULTILINE)
    assert len(commands) > 12
    for name in commands:
        assert f"`{name}" in README, name


def test_links_lead_somewhere() -> None:
    for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text("utf-8")):
            assert (page.parent / target).exists(), (page.name, target)
