"""The families that can be built and read, found by name (DESIGN §4, rule 3).

Each lives in a module of its own; adding one is a line in `_MODULES`. A family says which columns and options it takes, builds one payload
from the values of an ordered source group, and opens a payload to ask it which rows may satisfy a predicate.

When a few of the files of a group changed, a family may build from what the older payload says of the others: `carry` takes it from the
reader of that payload, and `build` gets it beside the rows of the new files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any, ClassVar, Protocol, cast, runtime_checkable

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap64

from maintainer.errors import Unsupported
from maintainer.format.stored_block import ReadRange, Sink
from maintainer.index.definition import MAINTAINED, FamilyName, IndexDefinition
from maintainer.index.payload import BuiltPayload, Move, Resources, Rows
from maintainer.model.predicate import Leaf, Op
from maintainer.model.types import DataType

_MODULES = {
    FamilyName.BTREE: "maintainer.index.family.btree",
    FamilyName.BITMAP: "maintainer.index.family.bitmap",
    FamilyName.MULTIVALUE: "maintainer.index.family.multivalue",
    FamilyName.FM: "maintainer.index.family.fm",
    FamilyName.VECTOR: "maintainer.index.family.vector",
    FamilyName.FULL_TEXT: "maintainer.index.family.full_text",
}


class CarriedRows(Protocol):
    """What a build need not be told of. More than that is between `carry` and `build` of a family."""

    @property
    def moves(self) -> tuple[Move, ...]:
        """The moves whose rows it has, all of them of each."""


class FamilyReader(Protocol):
    """An open payload. What it reads is checked; `CorruptFile` means that the payload must not be used."""

    answered: ClassVar[frozenset[Op]]
    """What every sound payload answers; equality, NULL and conditions on arrays exactly, but for zeros."""

    def evaluate(self, leaf: Leaf) -> BitMap64 | None:
        """The ordinals of all rows that satisfy the leaf, and perhaps some more; None when this payload cannot answer."""

    def why_not(self, leaf: Leaf) -> str:
        """Why there is no answer to a condition that was asked, as words after "the index"."""

    def batches(self) -> Iterator[tuple[Sequence[bytes], npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
        """Everything the payload holds: some keys, the ordinals of all of them one behind the other, and how many each has."""

    def verify(self) -> list[str]:
        """Read the whole payload and say what it promises and does not keep; empty when it is sound."""


@runtime_checkable
class ConjunctionReader(FamilyReader, Protocol):
    """A reader to which several conditions are one question, which costs less than each of them does."""

    def evaluate_all(self, leaves: Iterable[Leaf]) -> BitMap64 | None:
        """The ordinals of all rows that satisfy every leaf, and perhaps some more; None when this payload cannot answer any of them."""


class Rules(Protocol):
    """What a family takes; all six have them."""

    TAKES: str
    """The kind of column, in words."""

    def validate(self, column: str, data_type: DataType, options: Mapping[str, str]) -> None:
        """Raise `UsageError` when the family cannot index such a column, or not with these (resolved) options; what the table must be like
        is for `maintainer.index.validation` to say."""


class Family(Rules, Protocol):
    """What a family module offers that is built and read."""

    def build(
        self,
        rows: Iterable[Rows],
        definition: IndexDefinition,
        total_rows: int,
        sink: Sink,
        resources: Resources = ...,
        carried: Any = None,
    ) -> BuiltPayload:
        """Hand the bytes of the payload of a group of `total_rows` rows to `sink`, in order.

        `rows` ascend; together with what is `carried` they are all rows of the group, each once, else `MaintainerError`.
        """

    def carry(self, reader: FamilyReader, moves: Sequence[Move]) -> CarriedRows | None:
        """What an open payload says of the rows that moved, or of some of them, for `build`; None when it has to be built from all rows.

        Nothing need be read before `build` does; what is read is checked, and `CorruptFile` then means to build from all rows, too.
        """

    def open(self, read: ReadRange, size: int, definition: IndexDefinition, index_meta: bytes | None, total_rows: int) -> FamilyReader:
        """A payload of `size` bytes; nothing is read before it is asked."""


def rules(name: FamilyName) -> Rules:
    """The rules of a family, whether or not it is maintained."""
    return cast(Rules, import_module(_MODULES[name]))


def family(name: str) -> Family:
    """The family of this name; `Unsupported` when this package does not have it."""
    if name not in MAINTAINED:
        raise Unsupported(f"indexes of the family {name!r} are not supported")
    return cast(Family, import_module(_MODULES[FamilyName(name)]))
