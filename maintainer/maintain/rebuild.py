"""Rebuilding the index groups of a bucket after its files changed (spec 06 §6, §9, §10, §12; Java `BucketedPrimaryKeyIndexMaintainer`).

Invariant: after the commit of a unit of work, every level of its bucket whose COMPACT files hold rows has, per definition, exactly one payload,
built over exactly those files; and the index manifest names no other payload of the bucket. The one exception is a build that failed: its level
stays uncovered, its stale payload goes all the same (decision 8), and readers fall back to the data.

A payload covers *every physical row* of its sources, in UTF-16 order of their names: deletion vectors are not applied, as positions must count
all rows. A level whose sources are unchanged keeps its payload; any difference rebuilds the whole level.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from maintainer.data.reader import DataFile
from maintainer.errors import CorruptFile, CorruptTable, StorageError
from maintainer.format.stored_block import Buffer
from maintainer.index import family, groups
from maintainer.index.definition import IndexDefinition
from maintainer.index.groups import GroupPlan
from maintainer.index.payload import BuiltPayload, Resources, Rows, payload_entry
from maintainer.model.bucket import BucketState
from maintainer.model.files import DataFileMeta, IndexFileMeta
from maintainer.model.work import IndexFailure, Rebuild

BATCH_ROWS = 16 * 1024
BATCH_BYTES = 16 << 20
"""Of the stored bytes of whole rows: one column of them may take a multiple in memory."""
_NOT_ABOUT_VALUES = (StorageError, CorruptFile, CorruptTable, MemoryError)
"""What fails the whole work instead of one group: nothing would come of publishing around a broken store or table."""


class NewPayload(Protocol):
    """A file that a payload is written to."""

    name: str

    def write(self, data: Buffer, /) -> None: ...


@dataclass(frozen=True)
class GroupChanges:
    """What the index manifest gets and loses in one bucket."""

    added: tuple[IndexFileMeta, ...]
    removed: tuple[IndexFileMeta, ...]
    failures: tuple[IndexFailure, ...]


def group_plans(
    state: BucketState, definitions: Sequence[IndexDefinition], forced: frozenset[Rebuild] = frozenset()
) -> list[tuple[IndexDefinition, GroupPlan]]:
    """All groups of a bucket to build or to drop; `forced` ones also when they are current."""
    plans = []
    for definition in definitions:
        wanted = groups.pick(state, definition)
        planned = {plan.level for plan in wanted}
        active = groups.evaluate(state, definition).active
        sources = groups.sources(state.files)
        wanted += [
            GroupPlan(level, tuple(sources[level]), (active[level],))
            for column, level in ((rebuild.column, rebuild.level) for rebuild in sorted(forced))
            if column == definition.column and level in active and level not in planned
        ]
        plans += [(definition, plan) for plan in wanted]
    return plans


def rebuild_groups(
    state: BucketState,
    plans: Sequence[tuple[IndexDefinition, GroupPlan]],
    orphans: Sequence[IndexFileMeta],
    open_file: Callable[[DataFileMeta], DataFile],
    create: Callable[[], AbstractContextManager[NewPayload]],
    was_read: Callable[[int], None],
    resources: Resources,
) -> GroupChanges:
    """Build and drop groups; `state` is the bucket as the commit leaves it. `create` makes the file of a payload, which is gone again
    when the block ends with an error; `was_read` is told the bytes of each column that was read."""
    files = {file.file_name: file for file in state.files}
    added: list[IndexFileMeta] = []
    removed = list(orphans)
    failures: list[IndexFailure] = []
    for definition, plan in plans:
        removed += plan.inputs
        if not plan.sources:
            continue
        total = sum(rows for _, rows in plan.sources)
        read: list[int] = []
        try:
            payload_entry(
                definition, plan.level, plan.sources, BuiltPayload(0, 0, b""), ""
            )  # may fail, and then nothing must have been written
            rows = _rows(definition, [files[name] for name, _ in plan.sources], open_file, read.append)
            with create() as file:
                built = family.family(definition.family).build(rows, definition, total, file.write, resources)
                if built.row_count != total:
                    raise ValueError(f"the payload covers {built.row_count} rows, the level has {total}")
            added.append(payload_entry(definition, plan.level, plan.sources, built, file.name))
        except _NOT_ABOUT_VALUES:
            raise
        except Exception as error:  # whatever a family stumbles over concerns its own group alone
            failures.append(IndexFailure(definition.column, plan.level, f"{type(error).__name__}: {error}"))
        was_read(sum(read))  # may raise to stop the work, which is no failure of the group
    return GroupChanges(tuple(added), tuple(_distinct(removed)), tuple(failures))


def _rows(
    definition: IndexDefinition,
    files: Sequence[DataFileMeta],
    open_file: Callable[[DataFileMeta], DataFile],
    was_read: Callable[[int], None],
) -> Iterator[Rows]:
    """The indexed column of all physical rows, file after file."""
    first = 0
    for meta in files:
        batch_rows = max(1, min(BATCH_ROWS, BATCH_BYTES * meta.row_count // max(meta.file_size, 1)))
        with open_file(meta) as file:
            for _, batch in file.batches([definition.column], batch_rows):
                yield Rows(first, batch.column(0))
                first += batch.num_rows
            was_read(file.stored_bytes(definition.column))


def _distinct(payloads: Sequence[IndexFileMeta]) -> Iterator[IndexFileMeta]:
    return iter({payload.file_name: payload for payload in payloads}.values())
