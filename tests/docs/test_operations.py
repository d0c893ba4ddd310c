"""The handbook of operations names every event of the log, with its levels, and no other."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
EVENT = re.compile(r"[a-z]+(-[a-z]+)*\.[a-z]+(-[a-z]+)*")
LEVELS = {"debug", "info", "warning", "error"}


def documented() -> dict[str, set[str]]:
    text = (ROOT / "docs" / "operations.md").read_text("utf-8")
    rows = re.findall(r"^\| (`[^|]*) \| ([a-z, ]+) \|", text.split("## Events")[1].split("## ")[0], re.MULTILINE)
    return {event: set(levels.split(", ")) for names, levels in rows for event in re.findall("`(.*?)`", names)}


def logged() -> dict[str, set[str]]:
    """By event the levels, as far as a call says its level itself."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in (ROOT / "maintainer").rglob("*.py"):
        for call in (node for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.Call)):
            for name in names(call):
                found[name] |= {called(call.func)} & LEVELS
    return found


def names(call: ast.Call) -> Iterator[str]:
    """The events that a call may log: what decides by itself at which level is called `event`, `tell` or `log`, or found by `getattr`."""
    if called(call.func) in {*LEVELS, "event", "tell", "log", "getattr"}:
        for argument in call.args[:2]:
            for node in ast.walk(argument):
                if isinstance(node, ast.Constant) and isinstance(node.value, str) and EVENT.fullmatch(node.value):
                    yield node.value


def called(function: ast.expr) -> str:
    match function:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
        case ast.Call(func=inner):
            return called(inner)
    return ""


def test_every_event_is_in_the_table_with_its_level() -> None:
    code, table = logged(), documented()
    assert sorted(code) == sorted(table)
    assert len(code) > 40
    assert {event: levels - table[event] for event, levels in code.items() if levels - table[event]} == {}


def test_events_are_logged_by_a_name() -> None:
    """Whatever is logged is an event, not a sentence."""
    for path in (ROOT / "maintainer").rglob("*.py"):
        for call in (node for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.Call)):
            match call:
                case ast.Call(func=ast.Attribute(value=ast.Name(id="log"), attr=level), args=[ast.Constant(value=name), *_]) if level in LEVELS:
                    assert EVENT.fullmatch(str(name)), f"{path}: {name}"
