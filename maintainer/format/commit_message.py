"""Commit messages as bytes (spec 03 §2, §5; Java `CommitMessageSerializer`). All numbers are big-endian.

| part                                   | encoding                                                                 |
| -------------------------------------- | ------------------------------------------------------------------------ |
| partition                              | int32 size, serialized row                                               |
| bucket                                 | int32                                                                    |
| total buckets                          | byte 0, or byte 1 and int32                                              |
| ten lists: new, deleted and changelog  | int32 count; each file int32 size and its row (`maintainer.format.file_rows`) |
| files, new and deleted index files of  |                                                                          |
| the data part, then of the compaction  |                                                                          |
| check-from snapshot (version 14)       | byte 0, or byte 1 and int64                                              |

A body does not tell its version. Our frame, which is also that of Java's object serialization, does: int32 version, int32 size, body.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from maintainer.errors import Unsupported, UsageError
from maintainer.format import binary_row
from maintainer.format.file_rows import decode_data_file, decode_index_file, encode_data_file, encode_index_file
from maintainer.format.java_data import INT32, INT64, DataInput, optional, sized
from maintainer.model.commit import CommitMessage

VERSION = 12
"""What we write: the version of Java 2.0.0."""
READABLE = range(10, 15)
WRITABLE = range(11, 15)

T = TypeVar("T")


def encode(message: CommitMessage, version: int = VERSION) -> bytes:
    """The body. What the version cannot hold is left out where that is harmless (`maintainer.format.file_rows`), else it is an error."""
    if version not in WRITABLE:
        raise UsageError(f"commit messages of version {version} cannot be written; versions {WRITABLE[0]} to {WRITABLE[-1]} can")
    parts = [sized(message.partition), INT32.pack(message.bucket), optional(INT32, message.total_buckets)]

    def add(encode_file: Callable[[T, int], bytes], files: Sequence[T]) -> None:
        parts.append(INT32.pack(len(files)))
        parts.extend(sized(encode_file(file, version)) for file in files)

    add(encode_data_file, message.new_files)
    add(encode_data_file, message.deleted_files)
    add(encode_data_file, message.changelog_files)
    add(encode_index_file, message.new_index_files)
    add(encode_index_file, message.deleted_index_files)
    add(encode_data_file, message.compact_before)
    add(encode_data_file, message.compact_after)
    add(encode_data_file, message.compact_changelog_files)
    add(encode_index_file, message.compact_new_index_files)
    add(encode_index_file, message.compact_deleted_index_files)
    if version >= 14:
        parts.append(optional(INT64, message.check_from_snapshot))
    return b"".join(parts)


def decode(body: bytes, version: int) -> CommitMessage:
    if version not in READABLE:
        raise Unsupported(f"unsupported CommitMessage version {version}; versions {READABLE[0]} to {READABLE[-1]} can be read")
    source = DataInput(body, "commit message")
    partition = source.sized()
    binary_row.arity(partition)
    bucket = source.number(INT32)
    total_buckets = source.optional(INT32)

    def files(decode_file: Callable[[bytes, int], T]) -> tuple[T, ...]:
        return tuple(decode_file(source.sized(), version) for _ in range(source.count()))

    # Evaluation order is the order of the bytes.
    message = CommitMessage(
        partition,
        bucket,
        total_buckets,
        files(decode_data_file),
        files(decode_data_file),
        files(decode_data_file),
        files(decode_index_file),
        files(decode_index_file),
        files(decode_data_file),
        files(decode_data_file),
        files(decode_data_file),
        files(decode_index_file),
        files(decode_index_file),
        source.optional(INT64) if version >= 14 else None,
    )
    source.end()
    return message


def frame(message: CommitMessage, version: int = VERSION) -> bytes:
    """The body behind its version and size."""
    return INT32.pack(version) + sized(encode(message, version))


def unframe(data: bytes) -> CommitMessage:
    source = DataInput(data, "framed commit message")
    version = source.number(INT32)
    if version not in READABLE:
        raise Unsupported(f"unsupported CommitMessage version {version}; versions {READABLE[0]} to {READABLE[-1]} can be read")
    body = source.sized()
    source.end()
    return decode(body, version)
