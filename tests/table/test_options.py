from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maintainer.errors import UsageError
from maintainer.table.options import TableOptions, parse_duration, parse_memory_size
from tests.support import builders


@pytest.mark.parametrize(
    ("text", "size"),
    [("128 mb", 128 << 20), ("8MB", 8 << 20), ("1024", 1024), (" 1 kibibyte ", 1024), ("2 Gb", 2 << 30), ("3 t", 3 << 40), ("0b", 0)],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_memory_size(text) == size


@pytest.mark.parametrize(
    ("text", "seconds"), [("1 h", 3600), ("10 ms", 0.01), ("500", 0.5), ("2min", 120), ("1 d", 86400), ("5 µs", 5e-6), ("7 S", 7)]
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "mb", "-1", "1.5 mb", "1 mbb", "one", "1 2", "1 mb x"])
def test_what_is_no_size_or_duration(text: str) -> None:
    with pytest.raises(UsageError, match="is not a size"):
        parse_memory_size(text)
    with pytest.raises(UsageError, match="is not a duration"):
        parse_duration(text)


@given(st.text(max_size=12))
def test_any_text_is_a_value_or_a_usage_error(text: str) -> None:
    for parse in (parse_memory_size, parse_duration):
        with suppress(UsageError):
            assert parse(text) >= 0


def test_defaults_are_those_of_java_2_1() -> None:
    options = TableOptions({})
    assert (options.bucket, options.bucket_function) == (-1, "default")
    assert (options.deletion_vectors_enabled, options.bitmap64) == (False, False)
    assert (options.compaction_trigger, options.num_levels) == (5, 6)
    assert (options.max_size_amplification_percent, options.size_ratio, options.small_file_ratio) == (200, 1, 0.7)
    assert options.target_file_size == 128 << 20
    assert (options.file_format, options.file_compression, options.zstd_level) == ("parquet", "zstd", 1)
    assert (options.manifest_target_file_size, options.manifest_full_compaction_threshold_size) == (8 << 20, 16 << 20)
    assert (options.manifest_merge_min_count, options.manifest_compression) == (30, "zstd")
    assert (options.commit_max_retries, options.commit_timeout) == (10, None)
    assert (options.commit_min_retry_wait, options.commit_max_retry_wait) == (0.01, 10.0)
    assert (options.last_safe_snapshot, options.sequence_number_in_snapshot) == (None, False)
    assert (options.rewrite_append, options.relaxed_group_acceptance) == (True, False)
    assert (options.rewrite_append_budget, options.commit_interval) == (10 << 30, 60.0)


def test_the_number_of_levels_follows_the_trigger() -> None:
    assert TableOptions({"num-sorted-run.compaction-trigger": "2"}).num_levels == 3
    assert TableOptions({"num-sorted-run.compaction-trigger": "2", "num-levels": "9"}).num_levels == 9


@pytest.mark.parametrize(
    ("key", "value", "property_", "says"),
    [
        ("num-levels", "x", "num_levels", "not a whole number"),
        ("num-sorted-run.compaction-trigger", "0", "compaction_trigger", "at least 1"),
        ("deletion-vectors.enabled", "yes", "deletion_vectors_enabled", "neither true nor false"),
        ("target-file-size", "big", "target_file_size", "not a size"),
        ("commit.timeout", "soon", "commit_timeout", "not a duration"),
        ("compaction.small-file-ratio", "nan", "small_file_ratio", "not a finite number"),
        ("read.group-acceptance", "lax", "relaxed_group_acceptance", "strict or relaxed"),
        ("file.compression.per.level", "lz4", "file_compression_per_level", "like '0:lz4"),
        ("file.compression.per.level", "a:lz4", "file_compression_per_level", "not a whole number"),
        ("publish.verify-delay", "11 min", "publish_verify_delay", "must be at most 600 s"),
    ],
)
def test_an_error_names_the_option_and_its_value(key: str, value: str, property_: str, says: str) -> None:
    with pytest.raises(UsageError, match=f"option {key} = '{value}'.*{says}"):
        getattr(TableOptions({key: value}), property_)


def test_other_options_do_not_disturb() -> None:
    options = TableOptions({"num-levels": "x", "bucket": "4"})
    assert options.bucket == 4


def test_values_per_level() -> None:
    options = TableOptions({"file.compression.per.level": "0:lz4, 5:ZSTD"})
    assert options.file_compression_per_level == {0: "lz4", 5: "zstd"}


def test_options_of_a_call_stand_above_those_of_the_table() -> None:
    schema = builders.schema(options={"bucket": "4", "num-levels": "3"})
    options = TableOptions.of(schema, {"num-levels": "7"})
    assert (options.bucket, options.num_levels) == (4, 7)
    assert dict(options) == {"bucket": "4", "num-levels": "7"} and len(options) == 2


def test_fallback_keys() -> None:
    options: Any = TableOptions({"old": "true"})
    assert options.boolean("new", False, "old") is True
