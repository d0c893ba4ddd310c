from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from maintainer.data import statistics
from maintainer.data.statistics import Mode
from maintainer.errors import UsageError
from maintainer.format.simple_stats import ColumnStats, decode_stats
from maintainer.model.files import EMPTY_ROW, DataFileMeta, SimpleStats
from maintainer.model.schema import TableSchema
from maintainer.storage.storage import Storage
from maintainer.table.options import TableOptions
from tests.support import builders
from tests.support.data_files import kv_table, write_rows


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage.open(str(tmp_path))


def stats_of(meta: DataFileMeta, schema: TableSchema) -> dict[str, ColumnStats]:
    names = schema.names if meta.value_stats_cols is None else meta.value_stats_cols
    return dict(zip(names, decode_stats(meta.value_stats, schema.types_of(names)), strict=True))


def written(storage: Storage, text: str, values: list[Any], **options: str) -> ColumnStats:
    schema = builders.schema({"id": "BIGINT", "c": text})
    named = {name.replace("_", "."): value for name, value in options.items()}
    table = kv_table(schema, {"id": range(len(values)), "c": values})
    (meta,) = write_rows(storage, schema, table, options={"metadata.stats-mode": "full", **named})
    return stats_of(meta, schema)["c"]


@pytest.mark.parametrize(
    ("text", "mode"),
    [
        ("none", Mode(counts=False, bounds=False)),
        ("COUNTS", Mode(bounds=False)),
        ("Full", Mode()),
        (" truncate(16) ", Mode(length=16)),
        ("TRUNCATE( 3 )", Mode(length=3)),
    ],
)
def test_mode(text: str, mode: Mode) -> None:
    assert Mode.parse(text) == mode


@pytest.mark.parametrize("text", ["", "truncate", "truncate(0)", "truncate(-1)", "truncate(x)", "all"])
def test_mode_that_there_is_not(text: str) -> None:
    with pytest.raises(UsageError, match="statistics mode"):
        Mode.parse(text)


def modes(level: int = 0, **options: str) -> list[str]:
    schema = builders.schema({"id": "INT", "dt": "INT", "bo": "INT", "d": "INT"})
    named = {name.replace("__", ".").replace("_", "-"): value for name, value in options.items()}
    names = {Mode.parse(text): text for text in ("none", "counts", "full", "truncate(16)")}
    return [names[mode] for mode in statistics.column_modes(schema.fields, TableOptions(named), level)]


def test_default_mode() -> None:
    assert modes() == ["truncate(16)"] * 4


def test_mode_per_level() -> None:
    named = {"metadata.stats-mode": "counts", "metadata.stats-mode.per.level": "0:none,5:full"}
    schema = builders.schema({"id": "INT"})
    assert [statistics.column_modes(schema.fields, TableOptions(named), level) for level in (0, 1, 5)] == [
        [Mode.parse("none")],
        [Mode.parse("counts")],
        [Mode.parse("full")],
    ]


def test_mode_of_one_column_wins_and_takes_part_in_the_first_n() -> None:
    found = modes(metadata__stats_mode="counts", metadata__stats_keep_first_n_columns="3", fields__d__stats_mode="full")
    assert found == ["counts", "counts", "counts", "full"]
    found = modes(metadata__stats_mode="counts", metadata__stats_keep_first_n_columns="2", fields__id__stats_mode="full")
    assert found == ["full", "counts", "none", "none"]
    assert modes(metadata__stats_keep_first_n_columns="0") == ["none"] * 4


def test_bad_option_is_named() -> None:
    with pytest.raises(UsageError, match=r"fields\.d\.stats-mode"):
        modes(fields__d__stats_mode="some")


@pytest.mark.parametrize("name", ["FLOAT", "DOUBLE"])
@pytest.mark.parametrize(
    ("values", "bounds"),
    [
        ([1.5, math.nan, None, 2.5], (None, None)),
        ([math.nan], (None, None)),
        ([0.0, 1.0], ("-0.0", "1.0")),
        ([-1.0, -0.0], ("-1.0", "0.0")),
        ([-math.inf, math.inf], ("-inf", "inf")),
        ([math.inf, None], ("inf", "inf")),
        ([-math.inf], ("-inf", "-inf")),
        ([None], (None, None)),
    ],
)
def test_bounds_of_floats(storage: Storage, name: str, values: list[Any], bounds: tuple[Any, Any]) -> None:
    found = written(storage, name, values)
    assert tuple(None if bound is None else str(bound) for bound in found[:2]) == bounds
    assert found.null_count == values.count(None)


def test_nan_of_any_row_group_counts(storage: Storage) -> None:
    values = [1.0] * 45_000
    assert written(storage, "DOUBLE", values)[:2] == (1.0, 1.0)
    values[25_000] = math.nan
    assert written(storage, "DOUBLE", values) == ColumnStats(None, None, 0)


@pytest.mark.parametrize("text", ["STRING", "BYTES"])
def test_values_too_long_for_a_footer_still_have_bounds(storage: Storage, text: str) -> None:
    values: list[Any] = ["b" * 5000, *["m"] * 30_000, "z" * 1_000_000]
    if text == "BYTES":
        values = [value.encode() for value in values]
    found = written(storage, text, values)
    assert (found.min, found.max) == (values[0], values[-1])
    cut = written(storage, text, values, **{"fields.c.stats-mode": "truncate(2)"})
    assert cut == (ColumnStats("bb", "z{", 0) if text == "STRING" else ColumnStats(b"bb", b"z{", 0))


def test_truncation_is_by_code_points_and_only_of_texts_and_binaries(storage: Storage) -> None:
    mode = {"fields.c.stats-mode": "truncate(2)"}
    assert written(storage, "STRING", ["日本語", "日本x", None], **mode) == ColumnStats("日本", "日札", 1)
    assert written(storage, "STRING", ["a", "\U0010ffff" * 3], **mode) == ColumnStats(None, None, 0)
    assert written(storage, "BYTES", [b"ab\x00", b"a\xff\xff"], **mode) == ColumnStats(b"ab", b"b", 0)
    assert written(storage, "BIGINT", [12345], **mode) == ColumnStats(12345, 12345, 0)


def test_all_null_column(storage: Storage) -> None:
    assert written(storage, "INT", [None, None]) == ColumnStats(None, None, 2)


NESTED = builders.schema({"id": "INT", "s": "STRING", "a": "ARRAY<INT>", "n": "INT"})
ROWS = kv_table(NESTED, {"id": [1, 2], "s": ["x" * 20, None], "a": [[1], None], "n": [5, 6]})


def test_dense_storage_leaves_out_what_is_unknown(storage: Storage) -> None:
    (meta,) = write_rows(storage, NESTED, ROWS)
    assert meta.value_stats_cols == ("id", "s", "n")
    assert stats_of(meta, NESTED)["s"] == ColumnStats("x" * 16, "x" * 15 + "y", 1)


def test_counts_are_known_columns(storage: Storage) -> None:
    (meta,) = write_rows(storage, NESTED, ROWS, options={"metadata.stats-mode": "counts"})
    assert stats_of(meta, NESTED) == {"id": ColumnStats(None, None, 0), "s": ColumnStats(None, None, 1), "n": ColumnStats(None, None, 0)}


def test_no_statistics(storage: Storage) -> None:
    (meta,) = write_rows(storage, NESTED, ROWS, options={"metadata.stats-mode": "none"})
    assert (meta.value_stats, meta.value_stats_cols) == (SimpleStats(EMPTY_ROW, EMPTY_ROW, ()), ())
    assert decode_stats(meta.key_stats, NESTED.key_types) == [ColumnStats(1, 2, 0)]


def test_storage_that_is_not_dense_has_every_column(storage: Storage) -> None:
    (meta,) = write_rows(storage, NESTED, ROWS, options={"metadata.stats-dense-store": "false", "fields.n.stats-mode": "none"})
    assert meta.value_stats_cols is None
    assert stats_of(meta, NESTED)["a"] == stats_of(meta, NESTED)["n"] == ColumnStats(None, None, None)
    assert meta.value_stats.null_counts == (0, 1, None, None)


def test_key_statistics_are_cut_to_128_and_keys_are_not(storage: Storage) -> None:
    schema = builders.schema({"id": "STRING", "n": "INT"})
    keys = ["a" * 200, "b" * 10_000]
    (meta,) = write_rows(storage, schema, kv_table(schema, {"id": keys, "n": [1, 2]}), options={"metadata.stats-mode": "none"})
    assert decode_stats(meta.key_stats, schema.key_types) == [ColumnStats("a" * 128, "b" * 127 + "c", 0)]
    assert (meta.min_key, meta.max_key) == (builders.row(keys[0], "STRING"), builders.row(keys[1], "STRING"))
