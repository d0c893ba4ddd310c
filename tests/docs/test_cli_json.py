"""The contract of the JSON documents names the members that they have, and no other."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

from maintainer.api.account import PassReport
from maintainer.api.alter import Alteration
from maintainer.cli.demo.story import Summary
from maintainer.inspect.contents import Files, Snapshots
from maintainer.inspect.coverage import AwaitedCoverage, Coverage
from maintainer.inspect.diagnosis import Diagnosis
from maintainer.inspect.verify import Verification
from maintainer.maintain.reclaim.expire import Expiry
from maintainer.read.explanation import Explanation

TEXT = (Path(__file__).parents[2] / "docs" / "cli-json.md").read_text("utf-8")
DOCUMENTS = dict(re.findall(r"^\| `([^|]*)` \| `(\{[^`]*\})`", TEXT, re.MULTILINE))
DOCUMENTS["a pass"] = re.findall(r"## A pass\n\n`(\{[^`]*\})`", TEXT)[0]


def documented(command: str) -> list[str]:
    return sorted(re.findall(r'"(\w+)"', DOCUMENTS[command]))


def members(kind: type[Any]) -> Iterator[str]:
    """The members of a document, and those of what it lists."""
    hints = get_type_hints(kind)
    for field in fields(kind):
        yield field.name
        for inner in get_args(hints[field.name]):
            if is_dataclass(inner):
                yield from members(inner)


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        ("coverage", Coverage),
        ("verify", Verification),
        ("files", Files),
        ("snapshots", Snapshots),
        ("doctor", Diagnosis),
        ("expire", Expiry),
        ("query --explain", Explanation),
        ("demo", Summary),
        ("alter", Alteration),
    ],
)
def test_documents_have_the_members_of_the_contract(command: str, kind: type[Any]) -> None:
    assert documented(command) == sorted(members(kind))


def test_a_pass_says_what_expired_besides() -> None:
    assert documented("a pass") == sorted([*members(PassReport), "expired"])


def test_waiting_gives_a_coverage_and_whether_it_was_reached() -> None:
    assert sorted(members(AwaitedCoverage)) == sorted([*members(Coverage), "reached"])
