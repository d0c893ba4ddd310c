"""What a payload is built from and what comes of it, and the index manifest's record of it (spec 06 §8, §10; Java `PkSortedIndexFile`).

    rows, ordinal by ordinal ──┐
    what an older payload has ─┴─▶ family ──▶ bytes, handed to a sink as they come ──▶ BuiltPayload

A payload is never held as a whole: a sink takes its bytes one after the other, and what a build has to hold is bounded by its `Resources`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa

from maintainer.data.spill import Spill
from maintainer.format import source_meta
from maintainer.format.source_meta import SourceMeta
from maintainer.format.stored_block import Buffer, Sink
from maintainer.index.definition import IndexDefinition
from maintainer.model.files import GlobalIndexMeta, IndexFileMeta

DEFAULT_MEMORY = 256 << 20
_LARGE = 1 << 20


class Rows(NamedTuple):
    """Values of consecutive rows; `first` is the ordinal of the first one."""

    first: int
    values: pa.Array


class Move(NamedTuple):
    """Rows of a source file that an older payload has: `rows` ordinals from `old` on are those from `new` on in the payload to build."""

    old: int
    new: int
    rows: int


@dataclass(frozen=True)
class Resources:
    """What a build may use: bytes of memory, and where it spills what does not fit."""

    memory: int = DEFAULT_MEMORY
    spill: Spill = field(default_factory=Spill)


@dataclass(frozen=True)
class BuiltPayload:
    """What is known of a payload when all of its bytes have been handed to the sink."""

    size: int
    row_count: int
    index_meta: bytes


class PayloadOutput:
    """Hands on what a writer gives it; many small pieces become one."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._small = bytearray()
        self.size = 0
        """Bytes so far."""

    def write(self, data: Buffer) -> None:
        """Append; `data` may change afterwards."""
        self.size += len(data)
        if len(data) >= _LARGE:
            self._flush()
            self._sink(data)
            return
        self._small += data
        if len(self._small) >= _LARGE:
            self._flush()

    def built(self, row_count: int, index_meta: bytes) -> BuiltPayload:
        """The end: nothing is written any more."""
        self._flush()
        return BuiltPayload(self.size, row_count, index_meta)

    def _flush(self) -> None:
        if self._small:
            self._sink(self._small)
            self._small = bytearray()


def payload_entry(
    definition: IndexDefinition,
    level: int,
    sources: Sequence[tuple[str, int]],
    built: BuiltPayload,
    file_name: str,
    external_path: str | None = None,
) -> IndexFileMeta:
    """The metadata of a payload that was written as `file_name` for all `sources` (ordered by name) of a level."""
    meta = SourceMeta(level, tuple(sources))
    return IndexFileMeta(
        index_type=definition.index_type,
        file_name=file_name,
        file_size=built.size,
        row_count=built.row_count,
        external_path=external_path,
        global_index=GlobalIndexMeta(
            row_range_start=0,
            row_range_end=meta.total_rows - 1,
            index_field_id=definition.field_id,
            index_meta=built.index_meta,
            source_meta=source_meta.encode(meta),
        ),
    )
