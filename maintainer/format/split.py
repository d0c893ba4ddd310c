"""Splits as bytes (spec 07 §8; Java `SplitSerializer`, `DataSplit`, `IndexedSplit`). All numbers are big-endian.

| part          | encoding                                                                                                                |
| ------------- | ----------------------------------------------------------------------------------------------------------------------- |
| frame         | int64 `SPLIT_V1`, int32 version 1, int32 type: 1 data, 3 indexed                                                        |
| indexed split | int64 magic, int32 version 1, data split, int32 n, n × int64 first and last, byte 0, or byte 1, int32 m, m × float32 score |
| data split    | int64 magic, int32 version, int64 snapshot, partition (int32 size, row), int32 bucket, text bucket path, total buckets  |
|               | (byte 0, or byte 1, int32), files and vectors from before (none), files, vectors, byte streaming, byte raw-convertible  |
| files         | int32 count; each int32 size and its row (`maintainer.format.file_rows`)                                                |
| vectors       | byte 0, or byte 1, int32 count; each byte 0, or byte 1, text path, int64 offset, length and cardinality (−1: unknown)   |

Rows of files have 20 columns in data splits of version 8 (Java 2.0.0) and 21 in those of version 9 (2.1). What Java's `DataSplit.serialize`
writes, a data split without the frame, is read as well.
"""

from __future__ import annotations

import numpy as np

from maintainer.errors import CorruptFile, Unsupported, UsageError
from maintainer.format import binary_row
from maintainer.format.file_rows import decode_data_file, encode_data_file
from maintainer.format.java_data import INT32, INT64, DataInput, optional, sized, text
from maintainer.model.split import DataSplit, DeletionFile, IndexedSplit, Ranges, Split

VERSION = 9
"""Of data splits that we write, unless a peer needs 8."""
ROW_VERSIONS = {8: 12, 9: 13}
"""Versions of data splits, with a version of commit messages that has the same rows of files."""

_FRAME = INT64.pack(0x53504C49545F5631) + INT32.pack(1)
_DATA, _INDEXED = 1, 3
_OTHERS = {2: "incremental", 4: "chain", 5: "query-auth", 6: "fallback data", 7: "fallback"}
_DATA_MAGIC = INT64.pack(-2394839472490812314)
_INDEXED_HEAD = INT64.pack(-938472394838495695) + INT32.pack(1)
_NOTHING_BEFORE = INT32.pack(0) + b"\0"


def encode(split: Split, version: int = VERSION) -> bytes:
    """A framed split; `version` is that of the data split in it."""
    if isinstance(split, DataSplit):
        return _FRAME + INT32.pack(_DATA) + encode_data_split(split, version)
    parts = [_FRAME, INT32.pack(_INDEXED), _INDEXED_HEAD, encode_data_split(split.split, version)]
    parts += [INT32.pack(len(split.ranges)), np.array(split.ranges, dtype=">i8").tobytes()]
    if split.scores is None:
        parts.append(b"\0")
    else:
        parts += [b"\1", INT32.pack(len(split.scores)), np.array(split.scores, dtype=">f4").tobytes()]
    return b"".join(parts)


def encode_data_split(split: DataSplit, version: int = VERSION) -> bytes:
    """A data split without the frame."""
    if version not in ROW_VERSIONS:
        raise UsageError(f"data splits of version {version} cannot be written; versions {min(ROW_VERSIONS)} and {max(ROW_VERSIONS)} can")
    deletions = split.deletion_files
    if deletions is not None and len(deletions) != len(split.files):
        raise UsageError(f"a split of {len(split.files)} files has {len(deletions)} deletion vectors")
    parts = [_DATA_MAGIC, INT32.pack(version), INT64.pack(split.snapshot_id), sized(split.partition), INT32.pack(split.bucket)]
    parts += [text(split.bucket_path), optional(INT32, split.total_buckets), _NOTHING_BEFORE, INT32.pack(len(split.files))]
    parts += [sized(encode_data_file(file, ROW_VERSIONS[version])) for file in split.files]
    parts += [b"\0"] if deletions is None else [b"\1", INT32.pack(len(deletions)), *map(_deletion_file, deletions)]
    return b"".join((*parts, _flag(split.is_streaming), _flag(split.raw_convertible)))


def decode(data: bytes) -> Split:
    """A split with or without the frame. Kinds and versions that are not read raise `Unsupported`."""
    source = DataInput(data, "split")
    split = _data_split(source) if data[:8] == _DATA_MAGIC else _framed(source)
    source.end()
    return split


def _framed(source: DataInput) -> Split:
    if source.take(8) != _FRAME[:8]:
        raise CorruptFile("these bytes do not begin like a split", offset=0)
    version = source.number(INT32)
    if version != 1:
        raise Unsupported(f"splits of version {version} are not read, only those of version 1")
    kind = source.number(INT32)
    if kind == _DATA:
        return _data_split(source)
    if kind != _INDEXED:
        raise Unsupported(f"splits of type {kind}{f' ({_OTHERS[kind]})' if kind in _OTHERS else ''} are not read, only data and indexed splits")
    if source.take(8) != _INDEXED_HEAD[:8]:
        raise CorruptFile("the magic number of an indexed split is wrong", offset=source.position - 8)
    version = source.number(INT32)
    if version != 1:
        raise Unsupported(f"indexed splits of version {version} are not read, only those of version 1")
    split, ranges = _data_split(source), _ranges(source)
    if not source.flag():
        return IndexedSplit(split, ranges)
    scores = np.frombuffer(source.take(4 * source.count(4)), dtype=">f4")
    return IndexedSplit(split, ranges, tuple(scores.tolist()))


def _data_split(source: DataInput) -> DataSplit:
    if source.take(8) != _DATA_MAGIC:
        raise Unsupported("data splits of version 1 (another magic number) are not read, only those of versions 8 and 9")
    version = source.number(INT32)
    if version not in ROW_VERSIONS:
        raise Unsupported(f"data splits of version {version} are not read, only those of versions {min(ROW_VERSIONS)} and {max(ROW_VERSIONS)}")
    snapshot_id, partition = source.number(INT64), source.sized()
    binary_row.arity(partition)
    bucket, path, total_buckets = source.number(INT32), source.text(), source.optional(INT32)
    if source.count() or (source.flag() and source.count()):
        raise Unsupported("splits of changes, with files from before and after, are not read")
    files = tuple(decode_data_file(source.sized(), ROW_VERSIONS[version]) for _ in range(source.count()))
    deletions = _deletion_files(source) if source.flag() else None
    if deletions is not None and len(deletions) != len(files):
        raise CorruptFile(f"the split has {len(files)} files and {len(deletions)} deletion vectors", offset=source.position)
    return DataSplit(
        snapshot_id, partition, bucket, path, total_buckets, files, deletions, is_streaming=source.flag(), raw_convertible=source.flag()
    )


def _deletion_files(source: DataInput) -> tuple[DeletionFile | None, ...]:
    return tuple(_one_deletion_file(source) if source.flag() else None for _ in range(source.count(1)))


def _one_deletion_file(source: DataInput) -> DeletionFile:
    path, offset, length, cardinality = source.text(), source.number(INT64), source.number(INT64), source.number(INT64)
    if offset < 0 or length < 0:
        raise CorruptFile(f"the split has a deletion vector of {length} bytes at {offset}", offset=source.position)
    return DeletionFile(path, offset, length, cardinality if cardinality >= 0 else None)


def _deletion_file(where: DeletionFile | None) -> bytes:
    if where is None:
        return b"\0"
    numbers = (where.offset, where.length, -1 if where.cardinality is None else where.cardinality)
    return b"\1" + text(where.path) + b"".join(map(INT64.pack, numbers))


def _ranges(source: DataInput) -> Ranges:
    pairs = np.frombuffer(source.take(16 * source.count(16)), dtype=">i8").reshape(-1, 2)
    return tuple(zip(pairs[:, 0].tolist(), pairs[:, 1].tolist(), strict=True))


def _flag(value: bool) -> bytes:
    return b"\1" if value else b"\0"
