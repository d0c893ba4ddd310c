"""The families that can be built and read, found by name (DESIGN §4, rule 3).

Each lives in a module of its own; adding one is a line in `_MODULES`. A family builds one payload from the values of an ordered source
group, and opens a payload to ask it which rows may satisfy a predicate.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module
from typing import Protocol, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap64

from maintainer.errors import Unsupported
from maintainer.format.stored_block import ReadRange
from maintainer.index.definition import FamilyName, IndexDefinition
from maintainer.index.payload import BuiltPayload
from maintainer.model.predicate import Leaf

_MODULES = {
    FamilyName.BTREE: "maintainer.index.family.btree",
    FamilyName.BITMAP: "maintainer.index.family.bitmap",
}


class FamilyReader(Protocol):
    """An open payload. What it reads is checked; `CorruptFile` means that the payload must not be used."""

    def evaluate(self, leaf: Leaf) -> BitMap64 | None:
        """The ordinals of all rows that satisfy the leaf, and perhaps some more; None when this payload cannot answer."""

    def batches(self) -> Iterator[tuple[Sequence[bytes], npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
        """Everything the payload holds: some keys, the ordinals of all of them one behind the other, and how many each has."""

    def verify(self) -> list[str]:
        """Read the whole payload and say what it promises and does not keep; empty when it is sound."""


class Family(Protocol):
    """What every family module offers."""

    def build(self, column: pa.ChunkedArray | Iterable[pa.Array], definition: IndexDefinition, total_rows: int) -> BuiltPayload:
        """The payload of a group whose `total_rows` values come in ordinal order."""

    def open(self, read: ReadRange, size: int, definition: IndexDefinition, index_meta: bytes | None, total_rows: int) -> FamilyReader:
        """A payload of `size` bytes; nothing is read before it is asked."""


def family(name: str) -> Family:
    """The family of this name; `Unsupported` when this package does not have it."""
    try:
        module = _MODULES[FamilyName(name)]
    except (KeyError, ValueError):
        raise Unsupported(f"indexes of the family {name!r} are not supported") from None
    return cast(Family, import_module(module))
