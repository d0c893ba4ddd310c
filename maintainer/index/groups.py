"""Group state: which payloads of a bucket may be used, which files they cover, and what has to be rebuilt (spec 06 §6, §9, §16; Java
`PkSortedBucketIndexState`, `PrimaryKeyIndexLevels`).

Per definition and data level there is one group, which covers *all* source files of that level (COMPACT files above level 0). Invariant of an
active group: its source list equals the level's source files, in ordinal order, with the same row counts; and it is the only such payload.
Everything else is stale and never used: a doubt about a payload rejects the payload, never the query.

The state is evaluated on all files of the bucket, before any pruning, as one pruned file would make its whole level look stale.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from maintainer.errors import CorruptFile
from maintainer.format import source_meta
from maintainer.format.source_meta import SourceMeta, ordered
from maintainer.index.definition import IndexDefinition
from maintainer.model.bucket import BucketState
from maintainer.model.files import DataFileMeta, FileSource, IndexFileMeta

Sources = tuple[tuple[str, int], ...]

NOT_VISIBLE = "level 0: not visible until compacted"
POSTPONED = "postponed: not visible until it is in a bucket"
APPEND_FILE = "APPEND file above level 0: not an index source"
UNKNOWN_SOURCE = "file of unknown source above level 0: not an index source"


class GroupPlan(NamedTuple):
    """What a level of a definition needs: a payload over `sources` (none when they are empty), and `inputs` deleted in the same commit.

    Level 0 stands for payloads that name no level.
    """

    level: int
    sources: Sources
    inputs: tuple[IndexFileMeta, ...]


@dataclass(frozen=True)
class GroupState:
    """The groups of one definition in one bucket.

    `sources` holds the source metadata of each active payload by level; `stale` the payloads that must not be used, with the reason.
    """

    active: Mapping[int, IndexFileMeta]
    sources: Mapping[int, SourceMeta]
    covered: Mapping[str, IndexFileMeta]
    stale: tuple[tuple[IndexFileMeta, str], ...]
    level_reasons: Mapping[int, str]

    def reason(self, file: DataFileMeta) -> str | None:
        """Why the file is not covered; None when it is."""
        if file.file_name in self.covered:
            return None
        if file.level == 0:
            return NOT_VISIBLE
        if not file.is_index_source:
            return APPEND_FILE if file.file_source == FileSource.APPEND else UNKNOWN_SOURCE
        return self.level_reasons.get(file.level, f"no group for level {file.level}")


def sources(files: Iterable[DataFileMeta]) -> dict[int, list[tuple[str, int]]]:
    """The index sources of each level as (name, row count), in ordinal order; levels ascend."""
    levels: dict[int, list[tuple[str, int]]] = {}
    for file in files:
        if file.is_index_source:
            levels.setdefault(file.level, []).append((file.file_name, file.row_count))
    return {level: list(ordered(levels[level])) for level in sorted(levels)}


def fingerprint(sources: Sequence[tuple[str, int]]) -> str:
    """Of the sources of a group: two that differ in a file or a row count have another one."""
    return hashlib.sha256(json.dumps(list(sources)).encode("ascii")).hexdigest()[:32]


def evaluate(state: BucketState, definition: IndexDefinition, relaxed: bool = False) -> GroupState:
    """Accept or reject each payload of the definition. Never raises for what a payload's metadata holds.

    `relaxed` is Java 2.1's rule: a payload whose list names files that are gone still covers those that are there unchanged.
    """
    levels = {level: tuple(files) for level, files in sources(state.files).items()}
    # Java has the relaxed rule for the sorted families only.
    relaxed = relaxed and not definition.family.ranks
    stale: list[tuple[IndexFileMeta, str]] = []
    reasons: dict[int, str] = {}
    candidates: dict[int, list[tuple[IndexFileMeta, SourceMeta]]] = {}
    for payload in state.payloads:
        if not belongs(payload, definition):
            continue
        meta, why = _check(payload, definition, levels, relaxed)
        if meta is not None and why is None:
            candidates.setdefault(meta.level, []).append((payload, meta))
            continue
        why = f"stale: {why}"
        stale.append((payload, why))
        if meta is not None:
            reasons[meta.level] = why
    active: dict[int, IndexFileMeta] = {}
    metas: dict[int, SourceMeta] = {}
    covered: dict[str, IndexFileMeta] = {}
    for level in sorted(candidates):
        if len(candidates[level]) > 1:
            reasons[level] = f"{_count_word(len(candidates[level]))} payloads for level {level}"
            stale.extend((payload, reasons[level]) for payload, _ in candidates[level])
            continue
        (active[level], metas[level]) = candidates[level][0]
        here = set(levels[level])
        covered.update((name, active[level]) for name, rows in metas[level].files if (name, rows) in here)
        if any(name not in covered for name, _ in levels[level]):
            reasons[level] = f"the group of level {level} was built without this file"
    for level, files in levels.items():
        if level not in active and not _total(files):
            reasons.setdefault(level, f"level {level} holds no rows")
    return GroupState(active, metas, covered, tuple(stale), reasons)


def pick(state: BucketState, definition: IndexDefinition) -> list[GroupPlan]:
    """All levels of the bucket that need a payload built or dropped, ascending; always by the strict rule, whatever readers accept."""
    groups = evaluate(state, definition)
    inputs: dict[int, list[IndexFileMeta]] = {}
    for payload, _ in groups.stale:
        inputs.setdefault(level_of(payload), []).append(payload)
    wanted = {
        level: tuple(files) for level, files in sources(state.files).items() if level not in groups.active and _total(files) > 0
    }  # fmt: skip
    return [GroupPlan(level, wanted.get(level, ()), tuple(inputs.get(level, ()))) for level in sorted(wanted.keys() | inputs.keys())]


def orphans(state: BucketState, definitions: Iterable[IndexDefinition]) -> list[IndexFileMeta]:
    """Payloads of primary-key indexes that no definition claims (it was removed, or changed its family or type); nothing else drops them."""
    return of_no_definition(state.payloads, definitions)


def of_no_definition(payloads: Iterable[IndexFileMeta], definitions: Iterable[IndexDefinition]) -> list[IndexFileMeta]:
    """Those that are payloads of primary-key indexes, but of none of these."""
    known = {definition.identity for definition in definitions}
    return [
        payload
        for payload in payloads
        if payload.global_index is not None
        and source_meta.is_source_meta(payload.global_index.source_meta)
        and (payload.index_type, payload.global_index.index_field_id) not in known
    ]


def belongs(payload: IndexFileMeta, definition: IndexDefinition) -> bool:
    """Whether a payload is the definition's: of its type and field."""
    return payload.global_index is not None and (payload.index_type, payload.global_index.index_field_id) == definition.identity


def _decode(payload: IndexFileMeta) -> SourceMeta:
    meta = payload.global_index
    if meta is None or meta.source_meta is None:
        raise CorruptFile("no source metadata")
    return source_meta.decode(meta.source_meta)


def level_of(payload: IndexFileMeta) -> int:
    """The data level that a payload was built for; 0 when it does not say."""
    try:
        return _decode(payload).level
    except CorruptFile:
        return 0


def _check(
    payload: IndexFileMeta, definition: IndexDefinition, levels: Mapping[int, Sources], relaxed: bool
) -> tuple[SourceMeta | None, str | None]:
    """The payload's source metadata (None when it cannot be decoded), and why it is rejected (None when it is not)."""
    try:
        meta = _decode(payload)
    except CorruptFile as error:
        return None, f"unreadable source metadata: {error.reason}"
    present = levels.get(meta.level)
    if present is None:
        return meta, f"level {meta.level} has no source file"
    names = [name for name, _ in meta.files]
    if relaxed:
        rows = dict(present)
        if ordered(meta.files) != meta.files or len(set(names)) < len(names):
            return meta, "sources are not in order"
        if any(rows.get(name, count) != count for name, count in meta.files):
            return meta, "row count of a source differs"
        if not any(name in rows for name in names):
            return meta, "no source is left"
    elif meta.files != present:
        return meta, "sources differ"
    if definition.family.counts_rows:
        why = _check_rows(payload, meta.total_rows)
        if why is not None:
            return meta, why
    return meta, None


def _check_rows(payload: IndexFileMeta, total: int) -> str | None:
    assert payload.global_index is not None
    if not total:
        return "its sources hold no rows"
    first, last = payload.global_index.row_range_start, payload.global_index.row_range_end
    if (first, last) != (0, total - 1):
        return f"row range [{first}, {last}] is not that of {total} source rows"
    if payload.row_count != total:
        return f"row count {payload.row_count} is not that of {total} source rows"
    return None


def _total(files: Sequence[tuple[str, int]]) -> int:
    return sum(rows for _, rows in files)


def _count_word(count: int) -> str:
    return "two" if count == 2 else str(count)
