from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maintainer.errors import UsageError
from maintainer.table.option_text import parse_duration, parse_memory_size
from maintainer.table.options import TableOptions
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
        ("read.index-cache-size", "large", "index_cache_size", "not a size"),
        ("read.file-cache-size", "large", "file_cache_size", "not a size"),
        ("read.group-acceptance", "lax", "relaxed_group_acceptance", "strict or relaxed"),
        ("file.compression.per.level", "lz4", "file_compression_per_level", "like '0:lz4"),
        ("file.compression.per.level", "a:lz4", "file_compression_per_level", "not a whole number"),
        ("num-levels", str(2**63), "num_levels", "too large"),
        ("target-file-size", "9" * 400, "target_file_size", "too large"),
        ("target-file-size", "8388608 tb", "target_file_size", "too large"),
        ("commit.timeout", "9" * 400 + " d", "commit_timeout", "too large"),
        ("changelog-producer", "lookups", "changelog_producer", "must be none, input, lookup or full-compaction"),
        ("lookup-compact", "mild", "lookup_compact_gentle", "must be radical or gentle"),
        ("lookup-compact.max-interval", "often", "lookup_compact_max_interval", "not a whole number"),
        ("compaction.offpeak.start.hour", "24", "offpeak_hours", "must be at most 23"),
        ("compaction.offpeak.end.hour", "25", "offpeak_hours", "must be at most 24"),
        ("compaction.offpeak-ratio", "-1", "offpeak_ratio", "must be at least 0"),
        ("compaction.optimization-interval", "soon", "optimization_interval", "not a duration"),
        ("compaction.total-size-threshold", "small", "total_size_threshold", "not a size"),
        ("compaction.incremental-size-threshold", "small", "incremental_size_threshold", "not a size"),
        ("compaction.force-up-level-0", "yes", "force_up_level_0", "neither true nor false"),
        ("compaction.force-rewrite-all-files", "yes", "force_rewrite_all_files", "neither true nor false"),
        ("full-compaction.delta-commits", "-1", "full_compaction_delta_commits", "must be at least 0"),
        ("publish.verify-delay", "11 min", "publish_verify_delay", "must be at most 600 s"),
    ],
)
def test_an_error_names_the_option_and_its_value(key: str, value: str, property_: str, says: str) -> None:
    with pytest.raises(UsageError, match=f"option {key} = '{value}'.*{says}"):
        getattr(TableOptions({key: value}), property_)


def test_intervals_are_whole_milliseconds() -> None:
    for text, milliseconds in [("1009 ms", 1009), ("1 h", 3_600_000), ("1999 us", 1), ("4611 us", 4), ("36500 d", 3_153_600_000_000)]:
        assert TableOptions({"compaction.optimization-interval": text}).optimization_interval == milliseconds


@pytest.mark.parametrize(
    ("options", "interval"),
    [
        ({}, 10),
        ({"num-sorted-run.compaction-trigger": "7"}, 14),
        ({"lookup-compact.max-interval": "20"}, 20),
        ({"lookup-compact.max-interval": "3"}, 5),
    ],
)
def test_a_gentle_compaction_takes_level_0_no_more_often_than_the_trigger_says(options: dict[str, str], interval: int) -> None:
    assert TableOptions(options).lookup_compact_max_interval == interval


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, False),
        ({"deletion-vectors.enabled": "true"}, True),
        ({"merge-engine": "FIRST-ROW"}, True),
        ({"merge-engine": "aggregation"}, False),
        ({"changelog-producer": "lookup"}, True),
        ({"changelog-producer": "full-compaction"}, False),
        ({"force-lookup": "true"}, True),
    ],
)
def test_which_tables_look_older_rows_up(options: dict[str, str], expected: bool) -> None:
    assert TableOptions(options).needs_lookup is expected


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, False),
        ({"deletion-vectors.enabled": "true"}, True),
        ({"deletion-vectors.enabled": "true", "deletion-vectors.merge-on-read": "true"}, False),
        ({"merge-engine": "first-row"}, True),
        ({"changelog-producer": "lookup"}, False),
    ],
)
def test_which_batch_readers_leave_level_0_out(options: dict[str, str], expected: bool) -> None:
    assert TableOptions(options).hides_level_0 is expected


@pytest.mark.parametrize(
    ("options", "commits"),
    [
        ({}, None),
        ({"full-compaction.delta-commits": "0"}, None),
        ({"full-compaction.delta-commits": "3"}, 3),
        ({"changelog-producer": "full-compaction"}, 1),
        ({"changelog-producer": "full-compaction", "full-compaction.delta-commits": "0"}, 1),
        ({"changelog-producer": "full-compaction", "full-compaction.delta-commits": "5"}, 5),
        ({"changelog-producer.compaction-interval": "5 min"}, 1),
    ],
)
def test_after_how_many_commits_a_bucket_is_compacted_in_full(options: dict[str, str], commits: int | None) -> None:
    assert TableOptions(options).full_compaction_delta_commits == commits


def test_the_number_of_commits_goes_before_their_interval() -> None:
    interval = {"changelog-producer.compaction-interval": "5 min"}
    assert TableOptions(interval).full_compaction_interval == 300_000
    assert TableOptions({**interval, "full-compaction.delta-commits": "5"}).full_compaction_interval is None


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
