"""Data files and index files as rows of commit messages."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maintainer.errors import CorruptFile, UsageError
from maintainer.format import binary_row, file_rows
from maintainer.format.file_rows import decode_data_file, decode_index_file, encode_data_file, encode_index_file
from maintainer.model.files import DataFileMeta, DeletionRange, FileSource, GlobalIndexMeta, IndexFileMeta, SimpleStats
from tests.support import strategies
from tests.support.builders import file_meta, row, stats

DATA_FILE = DataFileMeta(
    file_name="data-1.parquet",
    file_size=1000,
    row_count=4,
    min_key=row(1, "BIGINT"),
    max_key=row(4, "BIGINT"),
    key_stats=stats(1, 4, [0], "BIGINT"),
    value_stats=SimpleStats(),
    min_sequence_number=0,
    max_sequence_number=3,
    schema_id=0,
    level=2,
    creation_time=1784213019480,
    delete_row_count=0,
    file_source=FileSource.COMPACT,
    value_stats_cols=(),
)
PAYLOAD = IndexFileMeta("btree", "index-a-0", 122, 4, global_index=GlobalIndexMeta(0, 3, 1, None, b"\x01\x02", b"SRCSRCSRC"))
DELETIONS = IndexFileMeta("DELETION_VECTORS", "index-b-0", 60, 1, (DeletionRange("data-1.parquet", 1, 50, 2),))

DATA_FILE_V12 = """
0000400e00000000 0e000000a8000000 e803000000000000 0400000000000000 14000000b8000000 14000000d0000000 60000000e8000000 4800000048010000
0000000000000000 0300000000000000 0000000000000000 0200000000000000 0800000090010000 581b626b9f010000 0000000000000000 0000000000000000
0100000000000000 0800000098010000 0000000000000000 0000000000000000 0000000000000000 646174612d312e70 6172717565740000 0000000100000000
0000000001000000 0000000000000000 0000000100000000 0000000004000000 0000000000000000 0000000000000000 1400000020000000 1400000038000000
1000000050000000 0000000100000000 0000000001000000 0000000000000000 0000000100000000 0000000004000000 0000000000000000 0100000000000000
0000000000000000 0000000000000000 0c00000020000000 0c00000030000000 0800000040000000 0000000000000000 0000000000000000 0000000000000000
0000000000000000 0000000000000000 0000000000000000 0000000000000000
"""
PAYLOAD_V12 = """
0030000000000000 6274726565000085 0900000040000000 7a00000000000000 0400000000000000 0000000000000000 0000000000000000 4800000050000000
696e6465782d612d 3000000000000000 0008000000000000 0000000000000000 0300000000000000 0100000000000000 0000000000000000 0102000000000082
0900000038000000 5352435352435352 4300000000000000
"""
DELETIONS_V12 = """
0060000000000000 1000000040000000 0900000050000000 3c00000000000000 0100000000000000 4800000060000000 0000000000000000 0000000000000000
44454c4554494f4e5f564543544f5253 696e6465782d622d3000000000000000 0100000000000000 3800000010000000
0000000000000000 0e00000028000000 0100000000000000 3200000000000000 0200000000000000 646174612d312e70617271756574 0000
"""


def test_vector_of_a_data_file() -> None:
    body = bytes.fromhex(DATA_FILE_V12)
    assert encode_data_file(DATA_FILE, 12).hex() == body.hex()
    assert decode_data_file(body, 12) == DATA_FILE
    assert len(encode_data_file(DATA_FILE, 13)) == 424


@pytest.mark.parametrize(("file", "text"), [(PAYLOAD, PAYLOAD_V12), (DELETIONS, DELETIONS_V12)])
def test_vectors_of_index_files(file: IndexFileMeta, text: str) -> None:
    body = bytes.fromhex(text)
    assert encode_index_file(file, 12).hex() == body.hex()
    assert decode_index_file(body, 12) == file


def test_version_11_has_no_source_meta() -> None:
    assert PAYLOAD.global_index is not None
    without = replace(PAYLOAD, global_index=replace(PAYLOAD.global_index, source_meta=None))
    assert len(encode_index_file(without, 11)) == 128
    assert decode_index_file(encode_index_file(without, 11), 11) == without
    with pytest.raises(UsageError, match="version 11"):
        encode_index_file(PAYLOAD, 11)


@pytest.mark.parametrize("version", [11, 12, 13, 14])
@given(file=strategies.file_metas(sequences_of_columns=True))
def test_data_file_round_trip(version: int, file: DataFileMeta) -> None:
    kept = file if version >= 13 else replace(file, write_cols_sequences=None)
    assert decode_data_file(encode_data_file(file, version), version) == kept


@given(strategies.index_files())
def test_index_file_round_trip(file: IndexFileMeta) -> None:
    assert decode_index_file(encode_index_file(file, 12), 12) == file


def test_empty_and_missing_lists_differ() -> None:
    empty = replace(DELETIONS, deletion_ranges=())
    assert decode_index_file(encode_index_file(empty, 12), 12).deletion_ranges == ()
    assert decode_index_file(encode_index_file(replace(empty, deletion_ranges=None), 12), 12).deletion_ranges is None
    assert decode_data_file(encode_data_file(replace(DATA_FILE, value_stats_cols=None), 12), 12).value_stats_cols is None


@pytest.mark.parametrize(
    "changes",
    [
        {"size": -1},
        {"rows": -1},
        {"level": -1},
        {"level": 128},
        {"extra_files": ("a", None)},
        {"value_stats_cols": (None,)},
        {"file_source": 2},
    ],
)
def test_impossible_values_of_a_data_file_are_corrupt(changes: dict[str, Any]) -> None:
    body = encode_data_file(file_meta(**changes), 12) if "file_source" not in changes else encode_data_file(_with_source(2), 12)
    with pytest.raises(CorruptFile):
        decode_data_file(body, 12)


def _with_source(code: int) -> DataFileMeta:
    file = file_meta()
    object.__setattr__(file, "file_source", code)
    return file


def test_missing_required_value_is_named() -> None:
    kinds = file_rows._types(file_rows._FILE_COLUMNS[:20])
    values = list(binary_row.decode_row(bytes.fromhex(DATA_FILE_V12), kinds))
    for index, kind in enumerate(kinds):
        if not kind.nullable:
            broken = [*values[:index], None, *values[index + 1 :]]
            with pytest.raises(CorruptFile, match=file_rows._FILE_COLUMNS[index][0]):
                decode_data_file(binary_row.encode_row(broken, kinds), 12)


@pytest.mark.parametrize("member", [None, (None, 1, 2, 3), ("d", -1, 2, 3), ("d", 1, -2, 3), ("d", None, 2, 3)])
def test_broken_deletion_range_is_corrupt(member: Any) -> None:
    kinds = file_rows._types(file_rows._index_columns(12))
    body = binary_row.encode_row(["DELETION_VECTORS", "index-1", 10, 1, [member], None, None], kinds)
    with pytest.raises(CorruptFile, match="index-1"):
        decode_index_file(body, 12)


@given(strategies.file_metas(), strategies.index_files(), st.data())
def test_mutated_bytes_decode_or_are_corrupt(file: DataFileMeta, index_file: IndexFileMeta, data: st.DataObject) -> None:
    for body, decode in ((encode_data_file(file, 12), decode_data_file), (encode_index_file(index_file, 12), decode_index_file)):
        mutated = data.draw(strategies.mutated(body))
        try:
            decoded = decode(mutated, 12)
        except CorruptFile:
            continue
        assert decoded.file_size >= 0
