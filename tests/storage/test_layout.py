from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maintainer.errors import CorruptFile, Unsupported, UsageError
from maintainer.model.files import EMPTY_ROW
from maintainer.storage.layout import (
    FileNames,
    Layout,
    bucket_directory,
    check_file_name,
    escape,
    java_float_text,
    partition_path,
    partition_text,
)
from tests.support import builders
from tests.support.builders import deletion_file, file_meta, row, type_, types

SECOND = 1_000_000_000


def path(value: Any, kind: str, legacy_name: bool = True) -> str:
    return partition_path(["p t"], types(kind), [value], legacy_name=legacy_name)


def test_special_characters_are_escaped_as_java_does() -> None:
    assert path("a/b=c%d e:f", "STRING") == "p t=a%2Fb%3Dc%25d e%3Af"
    assert escape("日本\x01{x}[y]^z\\\"'*?#|<>,;!") == "日本%01%7Bx%7D%5By%5D%5Ez%5C%22%27%2A%3F%23|<>,;!"
    assert escape("\x00\x1f\x7f") == "%00%1F%7F"


@pytest.mark.parametrize("value", [None, "", "  ", "\t\n", "\u3000"])
def test_null_and_blank_share_the_default_directory(value: str | None) -> None:
    assert path(value, "STRING") == "p t=__DEFAULT_PARTITION__"


def test_a_no_break_space_is_not_blank_in_java() -> None:
    assert path("\xa0", "STRING") == "p t=\xa0"


@pytest.mark.parametrize(
    ("value", "kind", "legacy", "plain"),
    [
        (True, "BOOLEAN", "true", "true"),
        (-128, "TINYINT", "-128", "-128"),
        (2**63 - 1, "BIGINT", "9223372036854775807", "9223372036854775807"),
        (0.1, "DOUBLE", "0.1", "0.1"),
        (Decimal("1.5"), "DECIMAL(10, 2)", "1.50", "1.50"),
        (Decimal("-0.0000001"), "DECIMAL(10, 7)", "-0.0000001", "-0.0000001"),
        (19723, "DATE", "19723", "2024-01-01"),
        (3661001, "TIME(3)", "3661001", "01%3A01%3A01.001"),
        (3661000, "TIME(3)", "3661000", "01%3A01%3A01.0"),
        (3661000, "TIME(0)", "3661000", "01%3A01%3A01"),
        (1_700_000_000_123_450_000, "TIMESTAMP(6)", "2023-11-14T22%3A13%3A20.123450", "2023-11-14 22%3A13%3A20.123450"),
        (1_704_067_200 * SECOND, "TIMESTAMP(3)", "2024-01-01T00%3A00", "2024-01-01 00%3A00%3A00.000"),
        (1_704_067_201 * SECOND, "TIMESTAMP(0)", "2024-01-01T00%3A00%3A01", "2024-01-01 00%3A00%3A01"),
        (1_704_067_200 * SECOND + 1, "TIMESTAMP(9)", "2024-01-01T00%3A00%3A00.000000001", "2024-01-01 00%3A00%3A00.000000001"),
        (-SECOND, "TIMESTAMP(3)", "1969-12-31T23%3A59%3A59", "1969-12-31 23%3A59%3A59.000"),
        (1_704_067_200 * SECOND, "TIMESTAMP(3) WITH LOCAL TIME ZONE", "2024-01-01T00%3A00", "2024-01-01 00%3A00%3A00.000"),
        ("日本", "STRING", "日本", "日本"),
    ],
)
def test_values_in_directory_names(value: Any, kind: str, legacy: str, plain: str) -> None:
    assert path(value, kind) == f"p t={legacy}"
    assert path(value, kind, legacy_name=False) == f"p t={plain}"


def test_a_binary_partition_has_no_directory() -> None:
    with pytest.raises(Unsupported, match="BYTES"):
        partition_text(b"x", type_("BYTES"))


@pytest.mark.parametrize(
    ("value", "single", "text"),
    [
        (100.0, False, "100.0"),
        (1e10, False, "1.0E10"),
        (1e7, False, "1.0E7"),
        (9999999.0, False, "9999999.0"),
        (0.001, False, "0.001"),
        (0.0001, False, "1.0E-4"),
        (-1.5e-9, False, "-1.5E-9"),
        (123456789.125, False, "1.23456789125E8"),
        (0.0, False, "0.0"),
        (-0.0, False, "-0.0"),
        (float("nan"), False, "NaN"),
        (float("-inf"), False, "-Infinity"),
        (0.10000000149011612, True, "0.1"),
        (16777216.0, True, "1.6777216E7"),
        (3.4028234663852886e38, True, "3.4028235E38"),
    ],
)
def test_floats_are_written_as_java_writes_them(value: float, single: bool, text: str) -> None:
    assert java_float_text(value, single) == text


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_the_text_of_a_double_gives_it_back(value: float) -> None:
    assert float(java_float_text(value, single=False)) == value


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", "/etc/passwd", "a\\b", "a\0b"])
def test_hostile_file_names_are_corrupt_and_name_the_manifest(name: str) -> None:
    with pytest.raises(CorruptFile, match="manifest-1: corrupt"):
        check_file_name(name, "manifest-1")
    layout = Layout()
    for ask in (layout.manifest_path, layout.tag_path, layout.index_file_path):
        with pytest.raises(CorruptFile):
            ask(name)
    with pytest.raises(CorruptFile):
        layout.data_file_path(EMPTY_ROW, 0, name)


def test_paths_of_a_plain_table() -> None:
    layout = Layout.of(builders.schema())
    assert layout.schema_path(3) == "schema/schema-3"
    assert layout.snapshot_path(7) == "snapshot/snapshot-7"
    assert layout.tag_path("v1") == "tag/tag-v1"
    assert layout.manifest_path("manifest-a") == "manifest/manifest-a"
    assert layout.data_file_path(EMPTY_ROW, 2, file_meta("f.parquet")) == "bucket-2/f.parquet"
    assert layout.bucket_directory(EMPTY_ROW, -2) == "bucket-postpone"
    assert layout.index_file_path(deletion_file("index-1")) == "index/index-1"
    assert bucket_directory(builders.schema(), EMPTY_ROW, 1) == "bucket-1"


def test_a_branch_shares_data_and_manifests() -> None:
    layout = Layout.of(builders.schema(), branch="b")
    assert layout.snapshot_path(1) == "branch/branch-b/snapshot/snapshot-1"
    assert layout.schema_path(0) == "branch/branch-b/schema/schema-0"
    assert layout.manifest_path("m") == "manifest/m"
    assert layout.bucket_directory(EMPTY_ROW, 0) == "bucket-0"


def test_a_partitioned_table_with_a_directory_for_data() -> None:
    schema = builders.schema(
        {"dt": "DATE NOT NULL", "r": "STRING NOT NULL", "id": "INT"},
        primary_keys=["dt", "r", "id"],
        partition_keys=["dt", "r"],
        options={"data-file.path-directory": "data/files/", "partition.default-name": "none", "partition.legacy-name": "false"},
    )
    layout = Layout.of(schema)
    partition = row((19723, None), ["DATE", "STRING"])
    assert layout.partition_values(partition) == (19723, None)
    assert layout.partition_directory(partition) == "dt=2024-01-01/r=none"
    assert layout.data_file_path(partition, 0, "f") == "data/files/dt=2024-01-01/r=none/bucket-0/f"


def test_a_directory_for_data_stays_inside_the_table() -> None:
    with pytest.raises(UsageError, match=r"data-file\.path-directory"):
        Layout.of(builders.schema(options={"data-file.path-directory": "../elsewhere"}))


def test_files_outside_of_the_table_are_refused() -> None:
    with pytest.raises(Unsupported, match="s3://b/f"):
        Layout().data_file_path(EMPTY_ROW, 0, file_meta("f.parquet", external_path="s3://b/f.parquet"))


def test_index_files_beside_the_data_need_the_bucket() -> None:
    layout = Layout.of(builders.schema(options={"index-file-in-data-file-dir": "true"}))
    assert layout.index_file_path("index-1", EMPTY_ROW, 4) == "bucket-4/index-1"
    with pytest.raises(Unsupported, match="index-file-in-data-file-dir"):
        layout.index_file_path("index-1")


def test_new_names_are_unique_and_counted() -> None:
    names = FileNames("data-", ".parquet")
    first, second = names.next(), names.next()
    assert first.endswith("-0.parquet") and second.endswith("-1.parquet")
    assert first.startswith("data-") and len(first) == len("data-") + 36 + len("-0.parquet")
    assert FileNames("data-").next() != FileNames("data-").next()
