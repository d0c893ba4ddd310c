"""Work: what should happen to one bucket (decided by planning), and the result of an attempt at it. Plain values without secrets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from maintainer.model.bucket import BucketState
from maintainer.model.commit import CommitMessage
from maintainer.model.files import BucketKey, DataFileMeta
from maintainer.model.report import Entry


class WorkKind(StrEnum):
    COMPACT = "compact"
    """Files are merged into new ones."""
    UPGRADE = "upgrade"
    """Files only move to another level (deletion vectors of older files may change)."""
    REWRITE_APPEND = "rewrite-append"
    """APPEND files above level 0 are rewritten where they are, so that indexes may cover them (decision 5)."""
    INDEX = "index"
    """Only index groups are built or dropped."""


@dataclass(frozen=True)
class Clock:
    """What time it is where the table is maintained: epoch milliseconds, and the hour of the day (0–23)."""

    now: int = 0
    local_hour: int = 0


@dataclass(frozen=True)
class PickMemory:
    """What picking has to remember of a bucket from one time to the next; nothing of it is stored in the table (spec 04 §3.1, §3.5).

    `last_full`: when all runs were last compacted together, in epoch milliseconds; None: nobody knows. `put_off`: how often a gentle compaction
    has left level 0 alone since it last took it. `commits`: how often there was something new since a full compaction was last due for that.
    `level_0`: the files of level 0 that those two have counted.
    """

    last_full: int | None = None
    put_off: int = 0
    commits: int = 0
    level_0: frozenset[str] = frozenset()


@dataclass(frozen=True)
class CompactionUnit:
    """Files of one bucket to be compacted together (spec 04 §3): in order of age, newest run first; `file_rewrite` rewrites each on its own."""

    output_level: int
    files: tuple[DataFileMeta, ...]
    file_rewrite: bool = False


class Group(NamedTuple):
    """A definition and level of a bucket."""

    key: BucketKey
    column: str
    level: int


@dataclass(frozen=True, order=True)
class Rebuild:
    """An index group that the work is expected to build."""

    column: str
    level: int


@dataclass(frozen=True)
class Work:
    """One decision of the planner: everything an executor needs besides the table's schema and storage.

    `unit` is None for WorkKind.INDEX. `rewrite_append`: rewrite APPEND files instead of upgrading them. `rewrite_elsewhere`: then rewrite the
    APPEND files of the other levels where they are, too (decision 5). `second_round`: after the unit, pick once more from the state that it
    leaves (spec 04 §9.4), with `memory` as the first pick left it; a `gentle` one does not force level 0. `clock` is when this was decided.
    `rebuilds` are what planning expects; execution rebuilds what really changed, except for groups that are `quarantined`, unless their sources
    change. Estimates are in bytes.
    """

    kind: WorkKind
    bucket: BucketState
    reason: str
    unit: CompactionUnit | None = None
    rewrite_append: bool = True
    rewrite_elsewhere: bool = True
    second_round: bool = True
    gentle: bool = False
    clock: Clock = Clock()
    memory: PickMemory = PickMemory()
    rebuilds: tuple[Rebuild, ...] = ()
    quarantined: tuple[Rebuild, ...] = ()
    estimated_bytes: int = 0
    estimated_memory: int = 0


@dataclass(frozen=True)
class Plan:
    """All work that a table needs in one snapshot; `idle_reason` says why there is none, `held` what is not done in some buckets, and why, and
    `quarantined` which groups could not be built, and why.

    `memories` is what picking remembers of buckets for which nothing is planned; of the others, their work carries it. `due` is when something
    will have to be done that is left for later (epoch milliseconds); None: no time makes anything due.
    """

    table: str
    snapshot_id: int | None
    snapshot_uuid: str | None
    schema_id: int
    work: tuple[Work, ...]
    idle_reason: str | None = None
    held: Mapping[BucketKey, str] = field(default_factory=dict, compare=False)
    quarantined: Mapping[Group, str] = field(default_factory=dict, compare=False)
    definition_changes: tuple[Entry, ...] = field(default=(), compare=False)
    """Index definitions that are not what they were when the snapshot was committed."""
    memories: Mapping[BucketKey, PickMemory] = field(default_factory=dict, compare=False)
    due: int | None = field(default=None, compare=False)

    @property
    def estimated_bytes(self) -> int:
        """Of all work together."""
        return sum(work.estimated_bytes for work in self.work)

    @property
    def estimated_memory(self) -> int:
        """Of the neediest work."""
        return max((work.estimated_memory for work in self.work), default=0)


@dataclass(frozen=True)
class IndexFailure(Entry):
    """A (definition, level) whose payload could not be built; it stays uncovered and the data commits (decision 8).

    `sources` is the fingerprint of what it was to be built from. `about_values`: only other values can help; else it may also be that there was
    no memory, no room to spill to, or a file that is damaged.
    """

    column: str
    level: int
    reason: str
    sources: str = ""
    about_values: bool = True


@dataclass(frozen=True)
class Result:
    """What executing one work item produced.

    `deletion_file` is the name of the bucket's deletion-vector file that the work was computed from (None: there was none); committing checks
    that it is still the current one. `created` are the paths, relative to the table, that this attempt wrote.
    """

    table: str
    snapshot_id: int
    snapshot_uuid: str | None
    schema_id: int
    kind: WorkKind
    reason: str
    deletion_file: str | None
    message: CommitMessage
    created: tuple[str, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    failures: tuple[IndexFailure, ...] = ()
    memory: PickMemory | None = field(default=None, compare=False)
    """What picking remembers of the bucket once this is committed; None: what it did before. Not for other processes."""
