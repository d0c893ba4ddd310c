"""Manifest lists."""

from __future__ import annotations

import io
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maintainer.errors import CorruptFile, Unsupported
from maintainer.format import manifest_list
from maintainer.model.files import ManifestFileMeta, SimpleStats
from tests.support import strategies
from tests.support.builders import stats

MANIFESTS = [
    ManifestFileMeta("manifest-a-0", 1000, 3, 1, SimpleStats(), 0, 0, 3, 0, 5),
    ManifestFileMeta("manifest-a-1", 9_999_999_999, 0, 2, stats("a", None, [1], "STRING"), 2, min_row_id=0, max_row_id=99),
]


def foreign(schema: Any, **changes: Any) -> bytes:
    out = io.BytesIO()
    fastavro.writer(out, schema, [{**manifest_list._record(meta), **changes} for meta in MANIFESTS], codec="zstandard")
    return out.getvalue()


@given(st.lists(strategies.manifest_files(), max_size=4))
def test_round_trip(manifests: list[ManifestFileMeta]) -> None:
    assert manifest_list.decode(manifest_list.encode(manifests)) == manifests


def test_first_base_list_of_a_table_is_empty() -> None:
    assert manifest_list.decode(manifest_list.encode([])) == []


@pytest.mark.parametrize("fields", [7, 9, 11, 13])
def test_lists_of_older_writers(fields: int) -> None:
    decoded = manifest_list.decode(foreign({**manifest_list.SCHEMA, "fields": manifest_list.SCHEMA["fields"][:fields]}))
    assert [meta.file_name for meta in decoded] == ["manifest-a-0", "manifest-a-1"]
    assert decoded[0].min_bucket == (0 if fields > 7 else None)
    assert decoded[0].max_level == (5 if fields > 9 else None)
    assert decoded[1].max_row_id == (99 if fields > 11 else None)


def test_newer_fields_are_skipped() -> None:
    newer = [
        {"name": "_TOTAL_BUCKETS", "type": ["null", "int"], "default": None},
        {"name": "_EXTRA_FILES", "type": ["null", {"type": "array", "items": "string"}], "default": None},
    ]
    schema = {**manifest_list.SCHEMA, "fields": [*manifest_list.SCHEMA["fields"], *newer]}
    assert manifest_list.decode(foreign(schema, _TOTAL_BUCKETS=4, _EXTRA_FILES=["manifest-a-0.avro.sidecar"])) == MANIFESTS


def test_null_counts_may_be_unknown() -> None:
    record = manifest_list._record(MANIFESTS[0])["_PARTITION_STATS"]
    decoded = manifest_list.decode(foreign(manifest_list.SCHEMA, _PARTITION_STATS={**record, "_NULL_COUNTS": None}))
    assert decoded[0].partition_stats.null_counts is None


def test_versions() -> None:
    with pytest.raises(Unsupported, match="recreate"):
        manifest_list.decode(foreign(manifest_list.SCHEMA, _VERSION=1))
    with pytest.raises(Unsupported, match="version 3; version 2 is supported"):
        manifest_list.decode(foreign(manifest_list.SCHEMA, _VERSION=3))


@pytest.mark.parametrize("name", ["_FILE_SIZE", "_NUM_ADDED_FILES", "_NUM_DELETED_FILES"])
def test_negative_numbers_are_corrupt(name: str) -> None:
    with pytest.raises(CorruptFile, match="manifest-a-0"):
        manifest_list.decode(foreign(manifest_list.SCHEMA, **{name: -1}))


def test_another_kind_of_avro_file_is_corrupt() -> None:
    schema = {"type": "record", "name": "r", "fields": [{"name": "a", "type": "int"}]}
    out = io.BytesIO()
    fastavro.writer(out, schema, [{"a": 1}])
    with pytest.raises(CorruptFile, match="manifest list has no _VERSION"):
        manifest_list.decode(out.getvalue())


@given(st.data())
def test_mutated_bytes_decode_or_are_refused(data: st.DataObject) -> None:
    mutated = data.draw(strategies.mutated(manifest_list.encode(MANIFESTS, data.draw(st.sampled_from(["null", "zstd"])))))
    try:
        manifests = manifest_list.decode(mutated)
    except (CorruptFile, Unsupported):
        return
    assert all(meta.file_size >= 0 for meta in manifests)
