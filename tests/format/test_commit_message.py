"""Commit messages of versions 10 to 14."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maintainer.errors import CorruptFile, Unsupported, UsageError
from maintainer.format import binary_row, commit_message, modified_utf8
from maintainer.model.commit import CommitMessage
from maintainer.model.files import EMPTY_ROW
from tests.format.test_file_rows import DATA_FILE, DELETIONS, PAYLOAD
from tests.support import strategies
from tests.support.builders import types

EMPTY = CommitMessage(EMPTY_ROW, 3)
EMPTY_V12 = "0000000c 00000000 0000000000000000 00000003 00" + "00000000" * 10
FULL = CommitMessage(EMPTY_ROW, 0, 1, compact_after=(DATA_FILE,), compact_new_index_files=(PAYLOAD, DELETIONS))


def test_vector_of_an_empty_message() -> None:
    body = bytes.fromhex(EMPTY_V12)
    assert len(body) == 61
    assert commit_message.encode(EMPTY).hex() == body.hex()
    assert commit_message.decode(body, 12) == EMPTY
    with_snapshot = replace(EMPTY, check_from_snapshot=7)
    assert commit_message.encode(with_snapshot, 14) == body + bytes.fromhex("01 0000000000000007")
    assert commit_message.decode(commit_message.encode(with_snapshot, 14), 14) == with_snapshot


@pytest.mark.parametrize(
    ("version", "size", "digest"),
    [
        (11, 789, "5fda66cec896826c4e5f82dfabaa63af72dec0f5e948b12d50d065f3a49d65a3"),
        (12, 813, "120bfe423eb3ddd2e9840c2939d76a24088eeaa2f8c69649e95da53be010419c"),
        (13, 821, "23688c4b66e3469b974aa4de30397ab9463bbadc3f269acac25402bf0f5d3394"),
        (14, 822, "800f3a1baa36a8006488912b3d4cca33a4242b10373f73716d4cbeebcd12a665"),
    ],
)
def test_digests_of_a_full_message(version: int, size: int, digest: str) -> None:
    message = FULL
    if version == 11:
        assert PAYLOAD.global_index is not None
        payload = replace(PAYLOAD, global_index=replace(PAYLOAD.global_index, source_meta=None))
        message = replace(FULL, compact_new_index_files=(payload, DELETIONS))
    body = commit_message.encode(message, version)
    assert (len(body), hashlib.sha256(body).hexdigest()) == (size, digest)
    assert commit_message.decode(body, version) == message


def test_vector_of_a_java_committable_holds_the_empty_message() -> None:
    """Identifier 5, no watermark, properties {k: v}, message version 12, one message (spec 03 §5.1)."""
    text = "0000000000000005 01 00000001 0001 6b 0001 76 0000000c 00000001" + EMPTY_V12
    properties = b"".join(len(utf).to_bytes(2, "big") + utf for utf in map(modified_utf8.encode, "kv"))
    head = (5).to_bytes(8, "big") + b"\x01" + (1).to_bytes(4, "big") + properties + (12).to_bytes(4, "big") + (1).to_bytes(4, "big")
    assert head + commit_message.encode(EMPTY) == bytes.fromhex(text)


@given(st.sampled_from([11, 12, 13, 14]), st.data())
def test_round_trip(version: int, data: st.DataObject) -> None:
    message = data.draw(strategies.commit_messages(version))
    if version == 11:
        dropped = {name: tuple(map(_without_source, getattr(message, name))) for name in INDEX_LISTS}
        message = replace(message, **dropped)
    assert commit_message.decode(commit_message.encode(message, version), version) == message
    assert commit_message.unframe(commit_message.frame(message, version)) == message


INDEX_LISTS = ("new_index_files", "deleted_index_files", "compact_new_index_files", "compact_deleted_index_files")


def _without_source(file: object) -> object:
    index = file.global_index  # type: ignore[attr-defined]
    return file if index is None else replace(file, global_index=replace(index, source_meta=None))  # type: ignore[type-var]


def test_version_10_has_no_global_index() -> None:
    columns = types("STRING", "STRING", "BIGINT", "BIGINT", "ARRAY<ROW<f0 STRING, f1 INT, f2 INT, c BIGINT>>", "STRING")
    row = binary_row.encode_row(["DELETION_VECTORS", "index-b-0", 60, 1, [("data-1.parquet", 1, 50, 2)], None], columns)
    none, one = bytes(4), (1).to_bytes(4, "big")
    head = bytes.fromhex("0000000c 00000000 0000000000000000 00000003 00")
    body = head + 3 * none + one + len(row).to_bytes(4, "big") + row + 6 * none
    assert commit_message.decode(body, 10) == replace(EMPTY, new_index_files=(DELETIONS,))


def test_downgrade_leaves_out_what_is_harmless_and_refuses_the_rest() -> None:
    file = replace(DATA_FILE, write_cols=("a",), write_cols_sequences=(1,))
    message = CommitMessage(EMPTY_ROW, 0, new_files=(file,), check_from_snapshot=5)
    assert commit_message.decode(commit_message.encode(message, 13), 13) == replace(message, check_from_snapshot=None)
    twelve = commit_message.decode(commit_message.encode(message, 12), 12)
    assert twelve.new_files == (replace(file, write_cols_sequences=None),)
    with pytest.raises(UsageError, match="index-a-0"):
        commit_message.encode(FULL, 11)


@pytest.mark.parametrize("version", [-1, 0, 9, 10, 15])
def test_versions_that_cannot_be_written(version: int) -> None:
    with pytest.raises(UsageError, match=str(version)):
        commit_message.encode(EMPTY, version)


@pytest.mark.parametrize("version", [-1, 0, 9, 15, 2**31 - 1])
def test_versions_that_cannot_be_read(version: int) -> None:
    body = commit_message.encode(EMPTY)
    with pytest.raises(Unsupported, match=f"unsupported CommitMessage version {version};"):
        commit_message.decode(body, version)
    with pytest.raises(Unsupported, match=f"unsupported CommitMessage version {version};"):
        commit_message.unframe(version.to_bytes(4, "big", signed=True) + len(body).to_bytes(4, "big") + body)


def test_trailing_bytes_are_corrupt() -> None:
    with pytest.raises(CorruptFile, match="1 bytes follow"):
        commit_message.decode(commit_message.encode(FULL) + b"\x00", 12)
    with pytest.raises(CorruptFile, match="1 bytes follow"):
        commit_message.unframe(commit_message.frame(FULL) + b"\x00")


def test_truncated_bytes_are_corrupt() -> None:
    data = commit_message.frame(FULL)
    for size in range(len(data)):
        with pytest.raises(CorruptFile):
            commit_message.unframe(data[:size])


@pytest.mark.parametrize("count", ["7fffffff", "ffffffff", "0000000b"])
def test_counts_are_checked_before_anything_is_allocated(count: str) -> None:
    body = bytes.fromhex("0000000c 00000000 0000000000000000 00000003 00" + count) + bytes(36)
    with pytest.raises(CorruptFile):
        commit_message.decode(body, 12)


def test_partition_must_be_a_row() -> None:
    with pytest.raises(CorruptFile):
        commit_message.decode(bytes.fromhex("00000004 00000000 00000003 00") + bytes(40), 12)


@given(strategies.commit_messages(14), st.data())
def test_mutated_bytes_decode_or_are_refused(message: CommitMessage, data: st.DataObject) -> None:
    mutated = data.draw(strategies.mutated(commit_message.frame(message, 14)))
    try:
        decoded = commit_message.unframe(mutated)
    except (CorruptFile, Unsupported):
        return
    assert isinstance(decoded, CommitMessage)
