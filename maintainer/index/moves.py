"""Which rows of a group an older payload of the same definition has, and where they are now (spec 06 §7, §10).

    older payload: a 0–9 | b 10–14 | c 15–17        sources now: a 0–9 | bb 10–29 | c 30–32
    moves:         a 0 → 0, 10 rows; c 15 → 30, 3 rows             to be read: bb

A file never changes, so what a payload says of a file that is still there holds, on whatever level the file is now. Where there is any doubt
about that, the payload is not used: its metadata is not as a writer leaves it, another payload claims the same level, a file has another row
count now, the column had another type since one of the files was written, or the sources are the same and yet a new payload is wanted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from maintainer.errors import CorruptFile
from maintainer.format import source_meta
from maintainer.format.source_meta import SourceMeta, ordered
from maintainer.index.definition import IndexDefinition
from maintainer.index.payload import Move
from maintainer.model.bucket import BucketState
from maintainer.model.files import DataFileMeta, IndexFileMeta

LEAST_SHARE = 3
"""At least one in so many rows of a payload must be left: it is read as a whole, which costs about a third of reading and sorting its rows."""

Sources = Sequence[tuple[str, int]]


@dataclass(frozen=True)
class Reuse:
    """An older payload of `total_rows` rows, and which of its rows can be taken over: those of `files`, which move so."""

    payload: IndexFileMeta
    total_rows: int
    files: tuple[str, ...]
    moves: tuple[Move, ...]

    @property
    def rows(self) -> int:
        return sum(move.rows for move in self.moves)


def reuse(state: BucketState, definition: IndexDefinition, sources: Sources, unchanged: Callable[[DataFileMeta], bool]) -> Reuse | None:
    """The payload of the bucket that has most rows of these sources; None when there is none that can be relied on.

    `unchanged` tells whether a file was written, and all since has happened, with the type that the column has.
    """
    older = [(payload, meta) for payload in state.payloads if (meta := _meta(payload, definition)) is not None]
    levels = [meta.level for _, meta in older]
    files = {file.file_name: file for file in state.files}
    found = [_reuse(payload, meta, sources) for payload, meta in older if levels.count(meta.level) == 1]
    sure = [one for one in found if one is not None and all(unchanged(files[name]) for name in one.files)]
    return max(sure, key=lambda one: one.rows, default=None)


def _meta(payload: IndexFileMeta, definition: IndexDefinition) -> SourceMeta | None:
    """What a payload of the definition says of its sources; None when it is of another one, or says nothing."""
    index = payload.global_index
    if index is None or (payload.index_type, index.index_field_id) != definition.identity or index.source_meta is None:
        return None
    try:
        return source_meta.decode(index.source_meta)
    except CorruptFile:
        return None


def _reuse(payload: IndexFileMeta, meta: SourceMeta, sources: Sources) -> Reuse | None:
    index = payload.global_index
    assert index is not None
    total, names = meta.total_rows, {name for name, _ in meta.files}
    now = dict(sources)
    usual = (
        index.index_meta is not None
        and total > 0
        and (index.row_range_start, index.row_range_end, payload.row_count) == (0, total - 1, total)
        and len(names) == len(meta.files)
        and ordered(meta.files) == meta.files
        and all(now.get(name, rows) == rows for name, rows in meta.files)
    )
    if not usual or meta.files == tuple(sources):
        return None
    first = dict(zip((name for name, _ in sources), SourceMeta(meta.level, tuple(sources)).first_ordinals, strict=True))
    left = [(name, Move(old, first[name], rows)) for (name, rows), old in zip(meta.files, meta.first_ordinals, strict=True) if name in now]
    found = Reuse(payload, total, tuple(name for name, _ in left), tuple(move for _, move in left))
    return found if found.rows and LEAST_SHARE * found.rows >= total else None
