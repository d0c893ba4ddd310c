"""What every report has in common: a frozen object whose attributes are the members of its JSON document (DESIGN §5)."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

VERSION = 1
"""Of the JSON documents; members may be added under the same version, none renamed."""


@dataclass(frozen=True)
class Report:
    """About one table."""

    table: str

    def to_dict(self) -> dict[str, Any]:
        """The JSON document."""
        return {"version": VERSION, **asdict(self)}
