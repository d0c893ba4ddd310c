"""How errors call the key of a record."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from maintainer.model.schema import KEY_PREFIX


def key_text(rows: pa.Table, keys: Sequence[str], row: int) -> str:
    """The key of a row as text: (id = 7, name = x)."""
    parts = []
    for name in keys:
        column = next((at for at in (name, KEY_PREFIX + name) if at in rows.column_names), None)
        if column is not None:
            parts.append(f"{name} = {rows.column(column)[row]}")
    return f"({', '.join(parts)})"
