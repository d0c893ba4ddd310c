"""Which peers judge our tables in this run: their versions, or why they are absent, and how often each was asked."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
from collections import Counter
from pathlib import Path

from tests.support.present import java_absent

NAMES = ("pypaimon", "pypaimon_rust", "java")
ROOT = Path(__file__).parents[2]
NOTE = ROOT / ".venv" / "peers-missing"
"""Written by scripts/test when pip could not install the extra `peers`."""

asked: Counter[str] = Counter()
"""How often this process asked each peer; `tests/conftest.py` adds up what the workers say."""


def absent(name: str) -> str | None:
    """Why a peer cannot take part; None when it can."""
    if name == "java":
        return java_absent()
    if importlib.util.find_spec(name):
        return None
    return NOTE.read_text().strip() if NOTE.exists() else "not installed (extra 'peers')"


def version(name: str) -> str:
    if name == "java":
        found = re.search(r"<paimon\.version>([^<]+)<", (ROOT / "tests" / "java-peer" / "pom.xml").read_text())
        return f"Paimon {found[1]}" if found else "of unknown version"
    return importlib.metadata.version(name.replace("_", "-"))
