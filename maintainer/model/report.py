"""Reports: frozen objects whose attributes are the members of a JSON document, and what they list (DESIGN §5)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

VERSION = 1
"""Of the JSON documents; members may be added under the same version, none renamed."""


@dataclass(frozen=True)
class Entry:
    """An object of a JSON document."""

    def to_dict(self) -> dict[str, Any]:
        """The object as `json.loads` would give it."""
        return {each.name: _json(getattr(self, each.name)) for each in fields(self)}


@dataclass(frozen=True)
class Report(Entry):
    """A whole document, about one table."""

    table: str

    def to_dict(self) -> dict[str, Any]:
        """The JSON document."""
        return {"version": VERSION, **super().to_dict()}


def _json(value: Any) -> Any:
    if isinstance(value, Entry):
        return value.to_dict()
    if isinstance(value, Mapping):
        return {key: _json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_json(item) for item in value]
    return value
