"""Index manifests."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maintainer.errors import CorruptFile, Unsupported
from maintainer.format import avro, index_manifest
from maintainer.model.files import FileKind, GlobalIndexMeta, IndexFileMeta, IndexManifestEntry
from tests.support import strategies
from tests.support.builders import deletion_file, index_entry, payload, row

PAYLOAD = payload("index-2", "bitmap", source_meta=b"\x00\x00\x00\x01", index_meta=b"\x05")
ENTRIES = [
    index_entry(deletion_file("index-1", [("data-1", 1, 50, 2), ("data-2", 51, 60, None)])),
    index_entry(deletion_file("index-3", []), partition=row("p", "STRING"), bucket=4),
    index_entry(PAYLOAD),
    index_entry(IndexFileMeta("not-known-yet", "index-4", 5, 6, external_path="oss://b/index-4")),
]


def foreign(schema: Any, entries: list[IndexManifestEntry] = ENTRIES, **changes: Any) -> bytes:
    out = io.BytesIO()
    fastavro.writer(out, schema, [{**index_manifest._record(entry), **changes} for entry in entries], codec="zstandard")
    return out.getvalue()


def global_index_fields(data: bytes) -> list[str]:
    schema = json.loads(avro.read_header(data, "index manifest").schema)
    return [field["name"] for field in schema["fields"][10]["type"][1]["fields"]]


@given(st.lists(strategies.index_manifest_entries(), max_size=4))
def test_round_trip(entries: list[IndexManifestEntry]) -> None:
    assert index_manifest.decode(index_manifest.encode(entries)) == entries


def test_empty_and_missing_ranges_differ() -> None:
    decoded = index_manifest.decode(index_manifest.encode(ENTRIES))
    assert [entry.file.deletion_ranges for entry in decoded][1:3] == [(), None]
    assert decoded == ENTRIES


def test_build_schema_id_is_kept_and_only_then_written() -> None:
    assert PAYLOAD.global_index is not None
    newer = index_entry(replace(PAYLOAD, file_name="index-9", global_index=replace(PAYLOAD.global_index, build_schema_id=3)))
    data = foreign(index_manifest.SCHEMA_WITH_BUILD_SCHEMA, [*ENTRIES, newer])
    assert index_manifest.decode(data) == [*ENTRIES, newer]
    again = index_manifest.encode(index_manifest.decode(data))
    assert global_index_fields(again)[6:] == ["_BUILD_SCHEMA_ID"]
    assert index_manifest.decode(again) == [*ENTRIES, newer]
    assert len(global_index_fields(index_manifest.encode(ENTRIES))) == 6


def test_files_of_java_1_have_no_global_index_column() -> None:
    schema = {**index_manifest.SCHEMA, "fields": index_manifest.SCHEMA["fields"][:9]}
    decoded = index_manifest.decode(foreign(schema, ENTRIES[:2]))
    assert decoded == ENTRIES[:2]


def test_global_index_without_source_meta_column() -> None:
    schema = json.loads(json.dumps(index_manifest.SCHEMA))
    schema["fields"][10]["type"][1]["fields"].pop()
    decoded = index_manifest.decode(foreign(schema, ENTRIES[2:3]))
    assert decoded[0].file.global_index == GlobalIndexMeta(0, 9, 1, None, b"\x05", None)


def test_ranges_may_be_plain_records() -> None:
    schema = json.loads(json.dumps(index_manifest.SCHEMA))
    array = schema["fields"][8]["type"][1]
    array["items"] = array["items"][1]
    assert index_manifest.decode(foreign(schema)) == ENTRIES


def test_ranges_may_lack_the_cardinality() -> None:
    schema = json.loads(json.dumps(index_manifest.SCHEMA))
    schema["fields"][8]["type"][1]["items"][1]["fields"].pop()
    ranges = index_manifest.decode(foreign(schema))[0].file.deletion_ranges
    assert ranges is not None
    assert [each.cardinality for each in ranges] == [None, None]


@pytest.mark.parametrize("version", [0, 2, 3])
def test_other_versions_are_unsupported(version: int) -> None:
    with pytest.raises(Unsupported, match=f"version {version};"):
        index_manifest.decode(foreign(index_manifest.SCHEMA, _VERSION=version))


@pytest.mark.parametrize(
    "changes",
    [
        {"_KIND": 2},
        {"_PARTITION": b"abc"},
        {"_BUCKET": -3},
        {"_FILE_SIZE": -1},
        {"_ROW_COUNT": -1},
        {"_DELETIONS_VECTORS_RANGES": [None]},
        {"_DELETIONS_VECTORS_RANGES": [{"f0": "d", "f1": -1, "f2": 1, "_CARDINALITY": None}]},
        {"_DELETIONS_VECTORS_RANGES": [{"f0": "d", "f1": 1, "f2": -1, "_CARDINALITY": None}]},
    ],
)
def test_impossible_values_are_corrupt(changes: dict[str, Any]) -> None:
    with pytest.raises(CorruptFile):
        index_manifest.decode(foreign(index_manifest.SCHEMA, **changes))


def test_deletes_are_decoded() -> None:
    entries = [replace(ENTRIES[2], kind=FileKind.DELETE)]
    assert index_manifest.decode(index_manifest.encode(entries)) == entries


@given(st.data())
def test_mutated_bytes_decode_or_are_refused(data: st.DataObject) -> None:
    mutated = data.draw(strategies.mutated(index_manifest.encode(ENTRIES, data.draw(st.sampled_from(["null", "zstd"])))))
    try:
        entries = index_manifest.decode(mutated)
    except (CorruptFile, Unsupported):
        return
    assert all(entry.file.row_count >= 0 for entry in entries)
