"""Keeps Apache Paimon primary-key tables compacted and fully indexed, without a JVM.

table = maintainer.open_table("/wh/db.db/orders")
table.maintain()
table.scan(where="price > 10", columns=["id", "price"]).to_arrow()
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from maintainer.api import changes
    from maintainer.api.table import Table, create_table, open_table
    from maintainer.data.key_cache import KeyCache
    from maintainer.data.spill import Spill
    from maintainer.errors import (
        CommitConflict,
        CommitStateUnknown,
        CorruptFile,
        CorruptTable,
        MaintainerError,
        MissingFile,
        NotATable,
        StorageError,
        Unsupported,
        UsageError,
    )
    from maintainer.index.build import build_payload, build_sorted
    from maintainer.index.payload import Resources
    from maintainer.read.expression import col
    from maintainer.read.scan_split import ScanSplit

__version__ = "0.1.0"

_MODULES = {
    **dict.fromkeys(("Table", "create_table", "open_table"), "maintainer.api.table"),
    "KeyCache": "maintainer.data.key_cache",
    "Spill": "maintainer.data.spill",
    "build_payload": "maintainer.index.build",
    "build_sorted": "maintainer.index.build",
    "Resources": "maintainer.index.payload",
    "col": "maintainer.read.expression",
    "ScanSplit": "maintainer.read.scan_split",
    **dict.fromkeys(
        (
            "CommitConflict",
            "CommitStateUnknown",
            "CorruptFile",
            "CorruptTable",
            "MaintainerError",
            "MissingFile",
            "NotATable",
            "StorageError",
            "Unsupported",
            "UsageError",
        ),
        "maintainer.errors",
    ),
}

_SUBMODULES = {"changes": "maintainer.api.changes"}

__all__ = [
    "CommitConflict",
    "CommitStateUnknown",
    "CorruptFile",
    "CorruptTable",
    "KeyCache",
    "MaintainerError",
    "MissingFile",
    "NotATable",
    "Resources",
    "ScanSplit",
    "Spill",
    "StorageError",
    "Table",
    "Unsupported",
    "UsageError",
    "build_payload",
    "build_sorted",
    "changes",
    "col",
    "create_table",
    "open_table",
]


def __getattr__(name: str) -> Any:
    """The public names, imported when they are first asked for: `maintainer --help` pays for none of them."""
    if name in _SUBMODULES:
        value: Any = import_module(_SUBMODULES[name])
    elif name in _MODULES:
        value = getattr(import_module(_MODULES[name]), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
