"""What building a payload produced, and the index manifest's record of it (spec 06 §8; Java `PkSortedIndexFile`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from maintainer.format import source_meta
from maintainer.format.source_meta import SourceMeta
from maintainer.index.definition import IndexDefinition
from maintainer.model.files import GlobalIndexMeta, IndexFileMeta

Chunk = bytes | bytearray | memoryview
_SMALL = 16 << 10
_LARGE = 1 << 20


@dataclass(frozen=True)
class BuiltPayload:
    """The bytes of a payload, in pieces that are written one after the other, and what its metadata says of it."""

    chunks: Sequence[Chunk]
    size: int
    row_count: int
    index_meta: bytes


class PayloadSink:
    """Collects what a writer gives it; many small pieces become a few large ones."""

    def __init__(self) -> None:
        self._chunks: list[Chunk] = []
        self._small = bytearray()
        self._size = 0

    def write(self, data: Chunk) -> None:
        """Append; `data` must not change afterwards."""
        self._size += len(data)
        if len(data) < _SMALL:
            self._small += data
        if len(data) >= _SMALL or len(self._small) >= _LARGE:
            self._flush()
        if len(data) >= _SMALL:
            self._chunks.append(data)

    def payload(self, row_count: int, index_meta: bytes) -> BuiltPayload:
        """Everything that was written."""
        self._flush()
        return BuiltPayload(self._chunks, self._size, row_count, index_meta)

    def _flush(self) -> None:
        if self._small:
            self._chunks.append(self._small)
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
