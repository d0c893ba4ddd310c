"""What a scan does with each file of a snapshot: the result of planning (`maintainer.read.plan`), pure data.

| decision  | meaning                                                                                        |
| --------- | ---------------------------------------------------------------------------------------------- |
| pruned    | no row of it can match (or it is not visible); it is not opened                                |
| indexed   | index groups narrowed it to `ranges` of physical positions, inclusive, ascending, not adjacent |
| raw       | all of its rows are read; `reason` says why no index helped                                    |
| merged    | its rows are merged with those of other files, or its deletes are taken out                    |

Of a hundred thousand files most are pruned, so for each there is the number of a reason and no more, and its `FilePlan` is made when somebody
asks for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, overload

import numpy as np
import numpy.typing as npt

from maintainer.model.bucket import BucketState
from maintainer.model.files import DataFileMeta
from maintainer.model.predicate import Predicate
from maintainer.model.schema import TableSchema
from maintainer.model.snapshot import Snapshot
from maintainer.read.file_columns import FileColumns

Flags = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int64]

PRUNED = "pruned"
INDEXED = "indexed"
RAW = "raw"
MERGED = "merged"


@dataclass(frozen=True, slots=True)
class FilePlan:
    """What a scan does with one file. `rows` are the physical rows it reads, at the positions of `ranges` (None: all of them); files that are
    merged with one another have the same `section`, all others none."""

    bucket: BucketState
    file: DataFileMeta
    decision: str
    reason: str
    column: str | None = None
    group: str | None = None
    ranges: tuple[tuple[int, int], ...] | None = None
    rows: int = 0
    section: int | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Step:
    """What is left to be read after a step of planning: files, rows, and the bytes of these files."""

    name: str
    files: int
    rows: int
    bytes: int


class FilePlans(Sequence[FilePlan]):
    """The decisions for some files, each made when it is asked for: pruned files, of which there may be many, cost nothing."""

    def __init__(self, decisions: Decisions, files: Numbers) -> None:
        self._decisions = decisions
        self._files = files

    def __len__(self) -> int:
        return len(self._files)

    @overload
    def __getitem__(self, at: int) -> FilePlan: ...
    @overload
    def __getitem__(self, at: slice) -> FilePlans: ...
    def __getitem__(self, at: int | slice) -> FilePlan | FilePlans:
        if isinstance(at, slice):
            return FilePlans(self._decisions, self._files[at])
        return self._decisions.plan(int(self._files[at]))

    def __iter__(self) -> Iterator[FilePlan]:
        return map(self._decisions.plan, self._files.tolist())

    @property
    def to_read(self) -> FilePlans:
        """Those that are not pruned."""
        return FilePlans(self._decisions, self._files[self._decisions.read(self._files)])


@dataclass(frozen=True)
class ScanPlan:
    """The decisions for all live files of a snapshot (None: the table has no snapshot yet), what each step left, and the files whose rows no
    batch reader sees yet, as far as a row of them may match."""

    snapshot: Snapshot | None
    schema: TableSchema
    predicate: Predicate | None
    files: FilePlans | tuple[()] = ()
    steps: tuple[Step, ...] = ()
    hidden: Sequence[FilePlan] = ()

    @property
    def to_read(self) -> Sequence[FilePlan]:
        return self.files.to_read if isinstance(self.files, FilePlans) else ()


class Why(NamedTuple):
    decision: str
    reason: str
    column: str | None = None
    group: str | None = None


class Decisions:
    """A decision for each file: the number of a reason, and for a few files more than that."""

    def __init__(self, columns: FileColumns) -> None:
        self.columns = columns
        self._numbers: dict[Why, int] = {}
        self._codes = np.zeros(len(columns), np.int32)
        self._sections: dict[int, int] = {}
        self._ranges: dict[int, tuple[int, Numbers]] = {}

    def decide(self, files: Numbers | Flags, why: Why) -> None:
        self._codes[files] = self._numbers.setdefault(why, len(self._numbers))

    def merge(self, files: Numbers, sections: Numbers) -> None:
        """The sections of these files."""
        self._sections |= zip(files.tolist(), sections.tolist(), strict=True)

    def narrow(self, file: int, why: Why, rows: int, ranges: Numbers) -> None:
        self._codes[file] = self._numbers.setdefault(why, len(self._numbers))
        self._ranges[file] = rows, ranges

    def read(self, files: Numbers) -> Flags:
        """Which of these are not pruned."""
        found: Flags = np.array([why.decision != PRUNED for why in self._numbers], bool)[self._codes[files]]
        return found

    @property
    def rows(self) -> int:
        """Rows that are read."""
        every = np.arange(len(self.columns))
        whole = self.read(every)
        whole[list(self._ranges)] = False
        return int(self.columns.rows[whole].sum()) + sum(rows for rows, _ in self._ranges.values())

    def plan(self, index: int) -> FilePlan:
        columns = self.columns
        bucket, file = columns.buckets[columns.bucket_of[index]], columns.files[index]
        decision, reason, column, group = self._why[self._codes[index]]
        if decision == PRUNED:
            return FilePlan(bucket, file, decision, reason, column, group)
        found = self._ranges.get(index)
        if found is None:
            return FilePlan(bucket, file, decision, reason, column, group, None, file.row_count, self._sections.get(index))
        rows, ranges = found
        return FilePlan(bucket, file, decision, reason, column, group, tuple(map(tuple, ranges.tolist())), rows)

    @cached_property
    def _why(self) -> tuple[Why, ...]:
        return tuple(self._numbers)
