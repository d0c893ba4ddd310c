"""The page about indexes: its example runs as it stands, its options are acted on, and what it calls the default is one."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from maintainer.api.changes import parse_actions
from maintainer.errors import UsageError
from maintainer.index.definition import FamilyName
from maintainer.table.support import ACTED_ON

PAGE = (Path(__file__).parents[2] / "docs" / "indexes.md").read_text("utf-8")


def test_the_example_runs(tmp_path: Path) -> None:
    script = "set -euo pipefail\n" + "\n".join(re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL))
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}", "COLUMNS": "200"}
    shown = subprocess.run(["bash", "-c", script], cwd=tmp_path, env=env, capture_output=True, text=True, encoding="utf-8", check=False)
    assert shown.returncode == 0, shown.stderr
    assert '"id": 2, "author": "emmy"' in shown.stdout
    assert "index on author (bitmap), moved: 1 group will be built by the next pass, 1 payload will be dropped by it" in shown.stdout
    assert "author: the column is indexed as bitmap now" in shown.stdout
    (program,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    built = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    assert built.stdout.startswith(f"{(tmp_path / 'language.index').stat().st_size} 3 b'")


def test_every_family_is_there_with_its_option() -> None:
    found = re.findall(r"^\| [A-Z][\w ]+ \| `(pk-[a-z-]+\.index\.columns)`", PAGE, re.MULTILINE)
    assert sorted(found) == sorted(family.columns_key for family in FamilyName)


def test_options_of_payloads_are_acted_on() -> None:
    known = " ".join(ACTED_ON.values()).split()
    named = set()
    for row in re.findall(r"^\| (`(?:btree|bitmap|multivalue|fm)-index\.[^|]+) \|", PAGE, re.MULTILINE):
        first, *others = re.findall(r"`([^`]+)`", row)
        named |= {first, *(first.split(".")[0] + other for other in others)}
    assert named == {option for option in known if re.match("(btree|bitmap|multivalue|fm)-index", option)}
    for option in re.findall(r"^\| `((?:maintain|read)\.[a-z-]+)`", PAGE, re.MULTILINE):
        assert option in known


def test_all_actions_are_on_the_page() -> None:
    with pytest.raises(UsageError) as raised:
        parse_actions(["?"])
    for action in str(raised.value).split("there are ")[1].split(", "):
        assert re.search(rf"(?<![\w-]){action}(?![\w-])", PAGE), action
