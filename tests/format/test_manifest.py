"""Manifests: our own, those of other producers, and broken ones."""

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
from maintainer.format import avro, manifest
from maintainer.model.files import EMPTY_ROW, DataFileMeta, FileKind, FileSource, ManifestEntry, SimpleStats
from tests.support import strategies
from tests.support.builders import entry, file_meta, row

NEWEST: dict[str, Any] = manifest.SCHEMA_WITH_SEQUENCES
NULLABLE = ["_CREATION_TIME", "_DELETE_ROW_COUNT", "_EMBEDDED_FILE_INDEX", "_FILE_SOURCE", "_VALUE_STATS_COLS", "_EXTERNAL_PATH"]
RICH = file_meta(
    "data-1.parquet",
    5,
    extra_files=("data-1.parquet.index",),
    creation_time=1_795_986_724_086,
    embedded_file_index=b"\x00\x01",
    value_stats=SimpleStats(row((1, "a"), ["INT", "STRING"]), row((9, None), ["INT", "STRING"]), (0, None)),
    value_stats_cols=("id", "name"),
    external_path="oss://bucket/data-1.parquet",
    first_row_id=7,
    write_cols=("id",),
)
ENTRIES = [
    entry(RICH),
    entry(replace(RICH, level=6), FileKind.DELETE, row("p", "STRING"), 3, 8),
    entry(file_meta(), bucket=-2, total_buckets=-2),
]


def schema_with(fields: int, null_items: bool = False) -> dict[str, Any]:
    """The schema of a writer that knew only the first fields of `_FILE`."""
    schema = json.loads(json.dumps(NEWEST))
    file = schema["fields"][5]["type"]
    file["fields"] = file["fields"][:fields]
    if null_items:
        for field in file["fields"]:
            array = field["type"][1] if isinstance(field["type"], list) else field["type"]
            if isinstance(array, dict) and array["type"] == "array" and not isinstance(array["items"], list):
                array["items"] = ["null", array["items"]]
    return schema  # type: ignore[no-any-return]


def foreign(schema: Any, entries: list[ManifestEntry], codec: str = "zstandard", **changes: Any) -> bytes:
    """A manifest that fastavro writes with this schema."""
    out = io.BytesIO()
    records = [{**manifest._record(each), **changes} for each in entries]
    fastavro.writer(out, schema, records, codec=codec)
    return out.getvalue()


def test_schema_is_the_one_of_java() -> None:
    """Field order, names and namespace; the golden files have this very text (see test_java_tables)."""
    text = json.dumps(manifest.SCHEMA, separators=(",", ":"))
    assert text.startswith(
        '{"type":"record","name":"record","namespace":"org.apache.paimon.avro.generated","fields":[{"name":"_VERSION","type":"int"}'
    )
    assert '{"name":"_CREATION_TIME","type":["null",{"type":"long","logicalType":"timestamp-millis"}],"default":null}' in text
    names = [field["name"] for field in manifest.SCHEMA["fields"][5]["type"]["fields"]]
    assert len(names) == 20
    assert names[11:] == ["_EXTRA_FILES", *NULLABLE, "_FIRST_ROW_ID", "_WRITE_COLS"]


@given(st.lists(strategies.manifest_entries(), max_size=3))
def test_round_trip(entries: list[ManifestEntry]) -> None:
    assert manifest.decode(manifest.encode(entries)) == entries


def test_no_entries() -> None:
    assert manifest.decode(manifest.encode([])) == []


def test_many_entries_in_many_blocks() -> None:
    entries = [entry(file_meta(f"data-{n}.parquet")) for n in range(2500)]
    assert manifest.decode(manifest.encode(entries)) == entries


def test_twenty_first_field_is_only_written_where_it_is_needed() -> None:
    def fields(data: bytes) -> int:
        return len(json.loads(avro.read_header(data, "manifest").schema)["fields"][5]["type"]["fields"])

    assert fields(manifest.encode(ENTRIES)) == 20
    assert fields(manifest.encode([*ENTRIES, entry(replace(RICH, write_cols_sequences=()))])) == 21


def test_creation_time_stays_milliseconds() -> None:
    data = manifest.encode([entry(RICH)])
    (decoded,) = manifest.decode(data)
    assert decoded.file.creation_time == 1_795_986_724_086


@pytest.mark.parametrize("fields", range(12, 22))
@pytest.mark.parametrize("null_items", [False, True])
def test_manifests_of_older_and_newer_writers(fields: int, null_items: bool) -> None:
    names = [field["name"] for field in NEWEST["fields"][5]["type"]["fields"]]
    decoded = manifest.decode(foreign(schema_with(fields, null_items), ENTRIES))
    unknown = {OF_FIELD[name]: None for name in names[fields:]}
    assert decoded == [replace(each, file=replace(each.file, **unknown)) for each in ENTRIES]


OF_FIELD = {
    "_CREATION_TIME": "creation_time",
    "_DELETE_ROW_COUNT": "delete_row_count",
    "_EMBEDDED_FILE_INDEX": "embedded_file_index",
    "_FILE_SOURCE": "file_source",
    "_VALUE_STATS_COLS": "value_stats_cols",
    "_EXTERNAL_PATH": "external_path",
    "_FIRST_ROW_ID": "first_row_id",
    "_WRITE_COLS": "write_cols",
    "_WRITE_COLS_SEQUENCES": "write_cols_sequences",
}


@pytest.mark.parametrize("codec", ["null", "deflate", "zstandard", "bzip2", "xz", "snappy"])
def test_codecs(codec: str) -> None:
    if codec == "snappy":
        pytest.importorskip("cramjam")
    assert manifest.decode(foreign(NEWEST, ENTRIES, codec)) == ENTRIES


def test_top_level_union() -> None:
    assert manifest.decode(foreign(["null", NEWEST], ENTRIES)) == ENTRIES


def test_order_of_fields_does_not_matter_to_the_reader() -> None:
    assert manifest.decode(foreign({**NEWEST, "fields": NEWEST["fields"][::-1]}, ENTRIES)) == ENTRIES


def test_version_1_asks_to_recreate_the_table() -> None:
    with pytest.raises(Unsupported, match="recreate"):
        manifest.decode(foreign(NEWEST, ENTRIES, _VERSION=1))


@pytest.mark.parametrize("version", [0, 3, -1])
def test_other_versions_are_unsupported(version: int) -> None:
    with pytest.raises(Unsupported, match=f"version {version};"):
        manifest.decode(foreign(NEWEST, ENTRIES, _VERSION=version))


@pytest.mark.parametrize(
    "changes", [{"_KIND": 2}, {"_PARTITION": b""}, {"_PARTITION": b"\x7f" * 12}, {"_BUCKET": -3}, {"_TOTAL_BUCKETS": -3}, {"_KIND": -1}]
)
def test_impossible_values_are_corrupt(changes: dict[str, Any]) -> None:
    with pytest.raises(CorruptFile):
        manifest.decode(foreign(NEWEST, ENTRIES, **changes))


@pytest.mark.parametrize("changes", [{"file_size": -1}, {"row_count": -1}, {"level": -1}])
def test_impossible_numbers_of_a_file_are_corrupt_and_name_it(changes: dict[str, int]) -> None:
    with pytest.raises(CorruptFile, match=r"data-1\.parquet"):
        manifest.decode(manifest.encode([entry(replace(RICH, **changes))]))  # type: ignore[arg-type]


def test_unknown_file_source_is_corrupt() -> None:
    record = manifest._record(ENTRIES[0])
    with pytest.raises(CorruptFile, match="file source 7"):
        manifest.decode(foreign(NEWEST, ENTRIES[:1], _FILE={**record["_FILE"], "_FILE_SOURCE": 7}))


def test_missing_file_source_is_unknown() -> None:
    file = manifest.decode(manifest.encode([entry(replace(RICH, file_source=None))]))[0].file
    assert file.file_source is None
    assert not file.is_index_source
    assert replace(file, file_source=FileSource.COMPACT).is_index_source


@given(st.data())
def test_mutated_bytes_decode_or_are_refused(data: st.DataObject) -> None:
    compression = data.draw(st.sampled_from(["null", "zstd"]))
    mutated = data.draw(strategies.mutated(manifest.encode(ENTRIES, compression)))
    try:
        entries = manifest.decode(mutated)
    except (CorruptFile, Unsupported):
        return
    assert all(isinstance(each.file, DataFileMeta) and each.file.row_count >= 0 for each in entries)


def test_truncated_bytes_are_corrupt() -> None:
    data = manifest.encode(ENTRIES, "null")
    empty = len(manifest.encode([], "null"))
    for size in range(len(data)):
        if size == empty:  # a whole file without blocks
            continue
        with pytest.raises(CorruptFile):
            manifest.decode(data[:size])


def test_unpartitioned_entries_have_the_empty_row() -> None:
    assert manifest.decode(manifest.encode([entry(RICH)]))[0].partition == EMPTY_ROW
