"""Data files that Java wrote: read like Java reads them, and described by us like Java describes them."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from maintainer.data import statistics
from maintainer.data.arrow_types import file_fields
from maintainer.data.reader import open_data_file
from maintainer.data.values import json_rows
from maintainer.data.writer import DataFileWriter
from maintainer.errors import Unsupported
from maintainer.format import deletion_vector, index_manifest
from maintainer.format.simple_stats import ColumnStats, decode_stats
from maintainer.model.files import DELETION_VECTORS, BucketKey, DataFileMeta, FileSource, IndexFileMeta, ManifestEntry
from maintainer.model.schema import KEY_PREFIX, TableSchema
from maintainer.model.types import FLOATS, TIMESTAMPS, DataType
from maintainer.storage.layout import Layout
from maintainer.storage.storage import Storage
from maintainer.table.options import TableOptions
from tests.support.java_cases import CASES, JavaCase, java_case

KINDS = ["+I", "-U", "+U", "-D"]
NOT_READ = {
    "snapshot_ordering": "Java replaces the sequence numbers of these files",
}
ARCHIVES = sorted(path.name.removesuffix(".tar.gz") for path in CASES.glob("*.tar.gz"))
LAST = [name for name in ARCHIVES if f"{name}.after" not in ARCHIVES]
"""The last state of each case; it still has the files of the states before."""


FORMATS = (".parquet", ".avro")


def case_of(archive: str) -> JavaCase:
    name, after, _ = archive.partition(".after")
    return java_case(name, bool(after))


def parquet_files(case: JavaCase, formats: tuple[str, ...] = (".parquet",)) -> Iterator[tuple[ManifestEntry, TableSchema]]:
    """Of key-value tables."""
    for entry in case.data_files.values():
        schema = case.schemas[entry.file.schema_id]
        if schema.primary_keys and entry.file.file_name.endswith(formats):
            yield entry, schema


def records(case: JavaCase, entry: ManifestEntry, schema: TableSchema) -> list[list[Any]]:
    """Rows in the form of the case's JSON, by the latest schema."""
    latest = case.latest_schema
    with open_data_file(case.storage, case.path(entry), entry.file, schema, latest) as file:
        table = file.read([*latest.names, "_SEQUENCE_NUMBER", "_VALUE_KIND"])
        batches = [batch for _, batch in file.batches(table.column_names, 100)]
    assert [row for batch in batches for row in json_rows(batch, latest.fields)] == list(json_rows(table, latest.fields))
    kinds, sequences = table["_VALUE_KIND"].to_pylist(), table["_SEQUENCE_NUMBER"].to_pylist()
    rows = json_rows(table, latest.fields)
    return [[KINDS[kind], sequence, *row.values()] for kind, sequence, row in zip(kinds, sequences, rows, strict=True)]


@pytest.mark.parametrize("archive", [name for name in LAST if name.split(".")[0] not in NOT_READ])
def test_records(archive: str) -> None:
    case = case_of(archive)
    for entry, schema in parquet_files(case, FORMATS):
        found = records(case, entry, schema)
        expected = case.json.get("dataFiles", {}).get(entry.file.file_name, {}).get("records")
        assert len(found) == entry.file.row_count
        if expected is not None:
            assert found == expected


@pytest.mark.parametrize("archive", ["types_avro.after", "nested_avro.after"])
def test_avro_records_without_polars(archive: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "polars", None)
    test_records(archive)


def test_the_cases_hold_every_type() -> None:
    names = ("types_parquet", "nested_parquet", "vector_column")
    assert len({field.type.root for name in names for field in java_case(name).latest_schema.fields}) >= 19
    for name in names:
        files = java_case(name).json["dataFiles"].values()
        assert any(file.get("records") for file in files)


@pytest.mark.parametrize("archive", [name for name in ARCHIVES if name.startswith("schema_evolution")])
def test_columns_that_kept_their_type_are_read_from_files_of_every_schema(archive: str) -> None:
    case = case_of(archive)
    latest = case.latest_schema
    schemas, columns = set(), set()
    for entry, schema in parquet_files(case):
        expected = case.json["dataFiles"][entry.file.file_name].get("records", [])
        with open_data_file(case.storage, case.path(entry), entry.file, schema, latest) as file:
            for index, field in enumerate(latest.fields, start=2):
                try:
                    table = file.read([field.name])
                except Unsupported:
                    continue
                if expected:
                    assert [row[field.name] for row in json_rows(table, [field])] == [record[index] for record in expected]
                    schemas.add(schema.id)
                    columns.add(field.name)
    assert len(schemas) >= 3
    assert len(columns) >= len(latest.fields) - 1


def same_but_for_our_choices(ours: ColumnStats, javas: ColumnStats, data_type: DataType) -> bool:
    """Equal, except for NaN and zero as a bound, and for the bounds of INT96 columns (spec 02 §8.4)."""
    if repr(ours) == repr(javas):
        return True
    if ours.null_count != javas.null_count:
        return False
    if data_type.root in TIMESTAMPS and data_type.precision > 6:
        return javas[:2] == (None, None)
    if data_type.root in FLOATS:
        return ours[:2] == javas[:2] or (ours[:2] == (None, None) and (javas.max != javas.max))
    return False


def compare_value_stats(ours: DataFileMeta, javas: DataFileMeta, schema: TableSchema) -> None:
    assert ours.value_stats_cols == javas.value_stats_cols
    types = schema.types_of(schema.names if javas.value_stats_cols is None else javas.value_stats_cols)
    pairs = zip(decode_stats(ours.value_stats, types), decode_stats(javas.value_stats, types), types, strict=True)
    assert [pair for pair in pairs if not same_but_for_our_choices(*pair)] == []


@pytest.mark.parametrize("archive", LAST)
def test_statistics_of_java_files_from_their_footers(archive: str) -> None:
    case = case_of(archive)
    for entry, schema in parquet_files(case):
        file = pq.ParquetFile(case.directory / case.path(entry))
        fields = [field for field in file_fields(schema) if field.name in file.schema_arrow.names]
        stats = dict(zip(fields, statistics.from_footer(file.metadata, file.schema_arrow, fields), strict=True))
        keys = [schema.field(name) for name in schema.trimmed_primary_keys]
        in_file = [field for field in fields if field.name.startswith(KEY_PREFIX)] or keys  # thin files have no key columns
        assert statistics.key_stats([stats[field] for field in in_file], keys) == entry.file.key_stats


def options_of(case: JavaCase, meta: DataFileMeta) -> TableOptions:
    """The options that a file was written with; in the case stats_modes, those of its write."""
    options = dict(case.schemas[meta.schema_id].options)
    options.pop("target-file-size", None)
    if case.name == "stats_modes":
        sequences = sorted(entry.file.min_sequence_number for entry in case.data_files.values())
        step = case.json["steps"][sequences.index(meta.min_sequence_number) + 1]
        options |= dict(part.split("=") for part in re.findall(r"metadata\S*?=[^,]*", step))
        if "stats none" in step:
            options |= {"metadata.stats-mode": "none", "fields.s.stats-mode": "full"}
    return TableOptions(options)


@pytest.mark.parametrize("archive", LAST)
def test_rows_of_java_written_by_us_have_the_same_metadata(archive: str, tmp_path: Path) -> None:
    case = case_of(archive)
    storage = Storage.open(str(tmp_path))
    for entry, schema in parquet_files(case, FORMATS if case.name != "postpone" else (".parquet",)):
        meta = entry.file
        with open_data_file(case.storage, case.path(entry), meta, schema, schema) as file:
            table = file.read([*schema.names, "_SEQUENCE_NUMBER", "_VALUE_KIND"])
        assert meta.file_source is not None
        writer = DataFileWriter(
            storage,
            Layout.of(schema),
            schema,
            options_of(case, meta),
            BucketKey(entry.partition, entry.bucket),
            level=meta.level,
            source=FileSource(meta.file_source),
        )
        writer.write(table)
        (ours,) = writer.close()
        for name in ("row_count", "min_key", "max_key", "schema_id", "level", "delete_row_count", "file_source"):
            assert getattr(ours, name) == getattr(meta, name), name
        assert ours.key_stats == meta.key_stats or meta.file_name.endswith(".avro")  # Java cuts those as the table's mode says
        if case.name != "snapshot_ordering":
            assert (ours.min_sequence_number, ours.max_sequence_number) == (meta.min_sequence_number, meta.max_sequence_number)
        compare_value_stats(ours, meta, schema)
        assert ours.creation_time is not None
        with open_data_file(storage, writer.created[0], ours, schema, schema) as file:
            again = file.read(table.column_names)
        assert again.schema == table.schema
        assert list(json_rows(again, schema.fields)) == list(json_rows(table, schema.fields))


def deletion_files(case: JavaCase) -> Iterator[tuple[IndexFileMeta, str]]:
    """The deletion-vector files that are still there, each once, with their paths."""
    seen = set()
    layout = Layout.of(case.latest_schema)
    for path in sorted((case.directory / "manifest").glob("index-manifest-*")):
        for entry in index_manifest.decode(path.read_bytes()):
            file = entry.file
            if file.index_type == DELETION_VECTORS and file.file_name not in seen:
                found = layout.index_file_path(file, entry.partition, entry.bucket)
                if case.storage.exists(found):
                    seen.add(file.file_name)
                    yield file, found


@pytest.mark.parametrize("archive", LAST)
def test_deletion_vectors(archive: str) -> None:
    case = case_of(archive)
    expected = {
        (vector["indexFile"], vector["dataFile"]): (vector["positions"], vector["kind"])
        for snapshot in case.json.get("snapshots", [])
        for vector in snapshot.get("deletionVectors", [])
    }
    for file, path in deletion_files(case):
        data = case.storage.read(path)
        vectors = deletion_vector.decode_file(data, file.deletion_ranges or ())
        forms = set()
        for name, positions in vectors.items():
            if (file.file_name, name) in expected:
                wanted, kind = expected[file.file_name, name]
                assert list(positions) == wanted
                forms.add(kind == "Bitmap64DeletionVector")
        if len(forms) == 1:
            again, ranges = deletion_vector.encode_file(vectors, forms.pop())
            assert len(again) == file.file_size == len(data)
            theirs = {vector.data_file: data[vector.offset : vector.offset + vector.length] for vector in file.deletion_ranges or ()}
            assert {vector.data_file: again[vector.offset : vector.offset + vector.length] for vector in ranges} == theirs


@pytest.mark.parametrize(("name", "kind"), [("dv_minor", "BitmapDeletionVector"), ("dv_bitmap64", "Bitmap64DeletionVector")])
def test_the_cases_hold_vectors_of_both_forms(name: str, kind: str) -> None:
    found = [vector["kind"] for snapshot in java_case(name).json["snapshots"] for vector in snapshot.get("deletionVectors", [])]
    assert kind in found
