"""The deletion-vector file of a bucket, in and out (spec 02 §12; Java `DeletionVectorsIndexFile`)."""

from __future__ import annotations

from collections.abc import Mapping

from pyroaring import BitMap64

from maintainer.errors import CorruptFile
from maintainer.format import deletion_vector
from maintainer.model.files import DELETION_VECTORS, IndexFileMeta
from maintainer.storage.layout import FileNames, Layout
from maintainer.storage.storage import Storage


def read_deletions(
    storage: Storage, layout: Layout, deletion_file: IndexFileMeta | None, partition: bytes | None = None, bucket: int | None = None
) -> dict[str, BitMap64]:
    """Deleted positions by data file name; none when the bucket has no such file."""
    if deletion_file is None:
        return {}
    path = layout.index_file_path(deletion_file, partition, bucket)
    data = storage.read(path)
    try:
        ranges = deletion_file.deletion_ranges
        if ranges is None:
            raise CorruptFile("the index manifest has no ranges for this deletion-vector file")
        if len(data) != deletion_file.file_size:
            raise CorruptFile(f"it has {len(data)} bytes, the index manifest says {deletion_file.file_size}")
        return deletion_vector.decode_file(data, ranges)
    except CorruptFile as error:
        raise error.at(storage.display(path)) from error


def write_deletions(storage: Storage, layout: Layout, names: FileNames, vectors: Mapping[str, BitMap64], bitmap64: bool) -> IndexFileMeta:
    """A new file with all these vectors, in one form; without any it is the one byte that says that the bucket has none."""
    data, ranges = deletion_vector.encode_file(vectors, bitmap64)
    name = names.next()
    storage.write(layout.index_file_path(name), data)
    return IndexFileMeta(DELETION_VECTORS, name, len(data), len(ranges), deletion_ranges=ranges)
