"""Rebuilding the index groups of a bucket after its files changed (spec 06 §6, §9, §10, §12; Java `BucketedPrimaryKeyIndexMaintainer`).

Invariant: after the commit of a unit of work, every level of its bucket whose COMPACT files hold rows has, per definition, exactly one payload,
built over exactly those files; and the index manifest names no other payload of the bucket. The exceptions are groups that wait for a commit
of their own (`maintain.index-mode = async`), and those whose build failed: their levels stay uncovered, and readers fall back to the data.

A payload covers *every physical row* of its sources, in UTF-16 order of their names: deletion vectors are not applied, as positions must count
all rows. A level whose sources are unchanged keeps its payload; any difference rebuilds the whole level.

What goes wrong with a group concerns this group alone, whatever it is; only a store that is away fails the whole work. What becomes of the
payloads that the group was to replace (decision 8):

| payload                                          | the build failed for its values | for anything else, or waits  |
| ------------------------------------------------ | ------------------------------- | ---------------------------- |
| current; to be built again because it was asked  | stays                           | stays                        |
| superseded, but some of its files are there      | goes                            | stays                        |
| of no file that is there; one of two for a level | goes                            | goes                         |

A superseded payload that stays is of use to readers with the relaxed rule, and to the next build, which need not read the files that it has:

    files that an older payload of the bucket has ─▶ its entries, in new ordinals ──┐
    other files of the level                      ─▶ their column                 ──┴─▶ the payload that all files would give, byte for byte

Which payload that is `maintainer.index.moves` says. When anything goes wrong with a build that uses one, all files are read.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

import structlog

from maintainer.data.reader import DataFile
from maintainer.errors import CorruptFile, CorruptTable, MaintainerError, SpillError, StorageError
from maintainer.format.stored_block import Buffer, ReadRange
from maintainer.index import family, groups
from maintainer.index.definition import IndexDefinition
from maintainer.index.family import CarriedRows
from maintainer.index.groups import GroupPlan
from maintainer.index.moves import Reuse, reuse
from maintainer.index.payload import BuiltPayload, Resources, Rows, payload_entry
from maintainer.model.bucket import BucketState
from maintainer.model.files import DataFileMeta, IndexFileMeta
from maintainer.model.work import IndexFailure, Rebuild

log = structlog.get_logger(__name__)

BATCH_ROWS = 16 * 1024
BATCH_BYTES = 16 << 20
"""Of the stored bytes of whole rows: one column of them may take a multiple in memory."""
STORE_ATTEMPTS = 2
"""A request that fails once may have met a store that is back by now."""
_MOST_REASON = 500
_NOT_ABOUT_VALUES = (StorageError, CorruptFile, CorruptTable, MemoryError, OSError, ImportError)
"""What may be over some day although the files are the same: no room to spill to, no memory, a file that is damaged, lost or refused, a library
that is missing here and not elsewhere."""


class NewPayload(Protocol):
    """A file that a payload is written to."""

    name: str

    def write(self, data: Buffer, /) -> None: ...


@dataclass(frozen=True)
class Site:
    """What builds read and write, and what they may use."""

    open_file: Callable[[DataFileMeta], DataFile]
    open_payload: Callable[[IndexFileMeta], ReadRange]
    """Reads of a payload that is there already."""
    create: Callable[[], AbstractContextManager[NewPayload]]
    """Makes the file of a payload, which is gone again when the block ends with an error."""
    count: Callable[[int], None]
    """Told of the bytes that were read, again and again; may raise to stop the work."""
    check_store: Callable[[], None]
    """Raises `StorageError` when the store of the table is away."""
    resources: Resources
    unchanged: Callable[[IndexDefinition, DataFileMeta], bool] | None = None
    """Whether a file has always been of the type that the column has, so that an older payload may speak for it; None: all files are read."""


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
    site: Site,
    waits: Callable[[Rebuild], bool] = lambda group: False,
) -> GroupChanges:
    """Build and drop groups; `state` is the bucket as the commit leaves it. Those that have to wait are not built now."""
    files = {file.file_name: file for file in state.files}
    added: list[IndexFileMeta] = []
    removed = list(orphans)
    failures: list[IndexFailure] = []
    for definition, plan in plans:
        if not plan.sources:
            removed += plan.inputs
            continue
        if waits(Rebuild(definition.column, plan.level)):
            removed += _of_no_use(state, definition, plan, relaxed=True)
            continue
        built = _attempt(definition, plan, [files[name] for name, _ in plan.sources], site, _older(state, definition, plan, site))
        if isinstance(built, IndexFailure):
            failures.append(built)
            removed += _of_no_use(state, definition, plan, relaxed=not built.about_values)
        else:
            added.append(built)
            removed += plan.inputs
    return GroupChanges(tuple(added), tuple(_distinct(removed)), tuple(failures))


def _older(state: BucketState, definition: IndexDefinition, plan: GroupPlan, site: Site) -> Reuse | None:
    """The payload that a group may be built from; None also when that cannot be learned."""
    if site.unchanged is None:
        return None
    try:
        return reuse(state, definition, plan.sources, partial(site.unchanged, definition))
    except Exception as error:  # a schema that is lost, for one
        log.warning("group.built-anew", column=definition.column, data_level=plan.level, payload=None, error=_one_line(error))
        return None


def build_group(
    definition: IndexDefinition, plan: GroupPlan, files: Sequence[DataFileMeta], site: Site, older: Reuse | None = None
) -> IndexFileMeta:
    """One payload over `files`, the sources of the plan in their order; raises whatever goes wrong, and then there is no file."""
    total = sum(rows for _, rows in plan.sources)
    payload_entry(definition, plan.level, plan.sources, BuiltPayload(0, 0, b""), "")  # may fail, and then nothing must have been written
    carried = None if older is None else _carried(definition, older, site)
    known = {} if carried is None else {move.new: move.rows for move in carried.moves}
    with closing(_rows(definition, files, site, known)) as rows, site.create() as file:  # a family that fails leaves a file open

        def write(data: Buffer) -> None:
            site.count(0)  # a sort may go on for long when all is read
            file.write(data)

        built = family.family(definition.family).build(rows, definition, total, write, site.resources, carried)
        if built.row_count != total:
            raise ValueError(f"the payload covers {built.row_count} rows, the level has {total}")
    return payload_entry(definition, plan.level, plan.sources, built, file.name)


def _carried(definition: IndexDefinition, older: Reuse, site: Site) -> CarriedRows | None:
    """What the family takes over from an older payload; None when it takes nothing."""
    payload, index = older.payload, older.payload.global_index
    assert index is not None
    found = family.family(definition.family)
    reader = found.open(site.open_payload(payload), payload.file_size, definition, index.index_meta, older.total_rows)
    return found.carry(reader, older.moves)


def _attempt(
    definition: IndexDefinition, plan: GroupPlan, files: Sequence[DataFileMeta], site: Site, older: Reuse | None
) -> IndexFileMeta | IndexFailure:
    """Build a group, or say why it cannot be built. Raises when the store is away, and what `site.count` raises to stop the work, whatever a
    family makes of that."""
    stopped: list[BaseException] = []

    def count(size: int) -> None:
        try:
            site.count(size)
        except BaseException as error:
            stopped.append(error)
            raise

    attempts = STORE_ATTEMPTS
    while True:
        attempts -= 1
        try:
            built = build_group(definition, plan, files, replace(site, count=count), older)
        except Exception as error:
            if stopped:
                raise stopped[0] from None
            if older is not None and not isinstance(error, SpillError | MemoryError):
                name = older.payload.file_name
                log.warning("group.built-anew", column=definition.column, data_level=plan.level, payload=name, error=_one_line(error))
                older = None
                attempts += 1
                continue
            if isinstance(error, StorageError) and not isinstance(error, SpillError):
                site.check_store()
                if attempts:
                    continue
            return IndexFailure(
                column=definition.column,
                level=plan.level,
                reason=_one_line(error),
                sources=groups.fingerprint(plan.sources),
                about_values=not any(isinstance(each, _NOT_ABOUT_VALUES) for each in (error, error.__cause__)),
            )
        if stopped:
            raise stopped[0]
        return built


def _rows(definition: IndexDefinition, files: Sequence[DataFileMeta], site: Site, known: Mapping[int, int]) -> Generator[Rows]:
    """The indexed column of all physical rows, file after file, but not of files that are known: their first ordinals, and their rows. What is
    read is counted as it goes on, by the share of the rows."""
    first = 0
    for meta in files:
        if known.get(first) == meta.row_count:
            first += meta.row_count
            continue
        batch_rows = max(1, min(BATCH_ROWS, BATCH_BYTES * meta.row_count // max(meta.file_size, 1)))
        with site.open_file(meta) as file:
            size = left = file.stored_bytes(definition.column)
            for _, batch in file.batches([definition.column], batch_rows):
                yield Rows(first, batch.column(0))
                first += batch.num_rows
                share = min(left, size * batch.num_rows // max(meta.row_count, 1))
                left -= share
                site.count(share)
            site.count(left)


def _of_no_use(state: BucketState, definition: IndexDefinition, plan: GroupPlan, relaxed: bool) -> list[IndexFileMeta]:
    """Payloads that a group which is not built was to replace, and that no reader can use: by the `relaxed` rule, or by the strict one."""
    useful = {payload.file_name for payload in groups.evaluate(state, definition, relaxed).active.values()}
    return [payload for payload in plan.inputs if payload.file_name not in useful]


def _one_line(error: Exception) -> str:
    text = " ".join(str(error).split())
    if not isinstance(error, MaintainerError):  # ours say what is wrong and what to do
        text = f"{type(error).__name__}: {text}"
    return text if len(text) <= _MOST_REASON else f"{text[:_MOST_REASON]}…"


def _distinct(payloads: Sequence[IndexFileMeta]) -> Iterator[IndexFileMeta]:
    return iter({payload.file_name: payload for payload in payloads}.values())
