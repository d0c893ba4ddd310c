"""Every metadata file of the tables that Java wrote: decoded, compared with what Java says of it, and encoded again.

What is deterministic must come out byte for byte: rows (partitions, keys, statistics). JSON documents and the schemas of Avro files must come
out equal.
"""

from __future__ import annotations

import json
import tarfile
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import pytest

from maintainer.data.values import json_value
from maintainer.format import avro, binary_row, commit_message, file_rows, index_manifest, manifest, manifest_list, schema_json, snapshot_json
from maintainer.format.simple_stats import decode_stats
from maintainer.model.commit import CommitMessage
from maintainer.model.files import DataFileMeta, FileSource, SimpleStats
from maintainer.model.schema import TableSchema
from maintainer.model.types import DataType
from tests.support import golden

ARCHIVES = [*sorted(path.name for path in golden.directory().glob("*.tar.gz")), "pk-java.tar.gz"]
_METADATA = {"schema", "snapshot", "tag", "manifest"}

Files = dict[str, bytes]


@cache
def tables(archive: str) -> dict[str, Files]:
    """Table directory -> metadata files of its main branch."""
    path = golden.PK_JAVA if archive == "pk-java.tar.gz" else golden.find(archive)
    if path is None or not path.exists():
        pytest.skip(f"{archive} is not here: it is a public project's test data, which the repository does not hold")
    found: dict[str, Files] = {}
    with tarfile.open(path) as tar:
        for member in tar:
            table, _, name = member.name.rpartition("/")
            table, _, kind = table.rpartition("/")
            if member.isfile() and kind in _METADATA and "/branch" not in table:
                source = tar.extractfile(member)
                assert source is not None
                found.setdefault(table, {})[f"{kind}/{name}"] = source.read()
    assert found
    return found


def files(archive: str, prefix: str, *but: str) -> Iterator[tuple[str, bytes]]:
    for table in tables(archive).values():
        for name, data in sorted(table.items()):
            if name.startswith(prefix) and not name.startswith(but):
                yield name, data


def schemas(table: Files) -> dict[int, TableSchema]:
    found = [schema_json.decode(data) for name, data in table.items() if name.startswith("schema/schema-")]
    return {schema.id: schema for schema in found}


def data_files(archive: str) -> Iterator[tuple[TableSchema, bytes, DataFileMeta]]:
    """(schema that its writer used, partition, file) of every manifest entry."""
    for table in tables(archive).values():
        by_id = schemas(table)
        for name, data in table.items():
            if name.startswith("manifest/manifest-") and not name.startswith("manifest/manifest-list-"):
                for entry in manifest.decode(data):
                    yield by_id[entry.file.schema_id], entry.partition, entry.file


def stats_columns(schema: TableSchema, file: DataFileMeta) -> tuple[str, ...]:
    if file.value_stats_cols is not None:
        return file.value_stats_cols
    return schema.names if file.write_cols is None else file.write_cols


everywhere = pytest.mark.parametrize("archive", ARCHIVES)


@everywhere
def test_schemas(archive: str) -> None:
    found = list(files(archive, "schema/schema-"))
    assert found
    for name, data in found:
        schema = schema_json.decode(data)
        assert f"schema/schema-{schema.id}" == name
        assert json.loads(schema_json.encode(schema)) == json.loads(data)


@everywhere
def test_snapshots_and_tags(archive: str) -> None:
    for name, data in files(archive, "snapshot/snapshot-"):
        snapshot = snapshot_json.decode(data)
        assert f"snapshot/snapshot-{snapshot.id}" == name
        assert not snapshot.extra
        assert json.loads(snapshot_json.encode(snapshot)) == json.loads(data)
    for _, data in files(archive, "tag/tag-"):
        assert json.loads(snapshot_json.encode(snapshot_json.decode_tag(data))) == json.loads(data)


@pytest.mark.parametrize(
    ("prefix", "but", "decode", "encode"),
    [
        ("manifest/manifest-", ("manifest/manifest-list-",), manifest.decode, manifest.encode),
        ("manifest/manifest-list-", (), manifest_list.decode, manifest_list.encode),
        ("manifest/index-manifest-", (), index_manifest.decode, index_manifest.encode),
    ],
    ids=["manifest", "manifest-list", "index-manifest"],
)
@everywhere
def test_avro_files(archive: str, prefix: str, but: tuple[str, ...], decode: Callable[[bytes], Any], encode: Callable[[Any], bytes]) -> None:
    for name, data in files(archive, prefix, *but):
        values = decode(data)
        again = encode(values)
        assert decode(again) == values, name
        theirs, ours = (avro.read_header(each, name) for each in (data, again))
        assert ours.codec == theirs.codec == "zstandard"
        if "_WRITE_COLS_SEQUENCES" not in theirs.schema:
            assert json.loads(ours.schema) == json.loads(theirs.schema), name


@everywhere
def test_manifests_hold_as_many_entries_as_their_list_says(archive: str) -> None:
    for table in tables(archive).values():
        for name, data in table.items():
            if name.startswith("manifest/manifest-list-"):
                for meta in manifest_list.decode(data):
                    file = table.get(f"manifest/{meta.file_name}")
                    if file is not None:  # the others have expired
                        assert len(file) == meta.file_size
                        kinds = [entry.kind for entry in manifest.decode(file)]
                        assert (kinds.count(0), kinds.count(1)) == (meta.num_added_files, meta.num_deleted_files)  # type: ignore[arg-type]


@everywhere
def test_rows_are_encoded_to_the_same_bytes(archive: str) -> None:
    def check(data: bytes, types: Sequence[DataType]) -> None:
        assert binary_row.serialize(binary_row.deserialize(data, types), types) == data

    for schema, partition, file in data_files(archive):
        check(partition, schema.partition_types)
        keys = schema.key_types if schema.primary_keys else ()
        stats_types = schema.types_of(stats_columns(schema, file))
        for data in (file.min_key, file.max_key):
            check(data, keys)
        for stats, types in ((file.key_stats, keys), (file.value_stats, stats_types)):
            check(stats.min_values, types)
            check(stats.max_values, types)


@everywhere
def test_files_go_through_messages_unchanged(archive: str) -> None:
    found = tuple(file for _, _, file in data_files(archive))
    indexes = tuple(entry.file for _, data in files(archive, "manifest/index-manifest-") for entry in index_manifest.decode(data))
    message = CommitMessage(bytes(12), 0, 1, new_files=found, compact_new_index_files=indexes)
    assert commit_message.unframe(commit_message.frame(message, 13)) == message
    for file in found:
        body = file_rows.encode_data_file(file, 13)
        assert file_rows.encode_data_file(file_rows.decode_data_file(body, 13), 13) == body


@everywhere
def test_statistics_are_what_java_decodes(archive: str) -> None:
    found = golden.case(archive.split(".")[0])
    if found is None:
        pytest.skip("Java's answers are not part of this archive")
    compare_statistics(archive, found)


def test_statistics_of_every_scalar_type_are_compared() -> None:
    found = golden.case("types_parquet")
    assert found is not None
    assert len(compare_statistics("types_parquet.tar.gz", found)) == 26


def compare_statistics(archive: str, found: dict[str, Any]) -> set[str]:
    """The columns that were compared."""
    compared = set()
    for schema, _, file in data_files(archive):
        expected = found["dataFiles"].get(file.file_name, {}).get("valueStats")
        if expected is None or file.value_stats == SimpleStats():
            continue
        columns = stats_columns(schema, file)
        types = schema.types_of(columns)
        for name, data_type, column in zip(columns, types, decode_stats(file.value_stats, types), strict=True):
            java = expected.get(name) or {"min": None, "max": None, "nullCount": None}
            bounds = [json_value(column.min, data_type), json_value(column.max, data_type)]
            if data_type.nullable or bounds != [None, None]:  # Java reads a missing bound of a NOT NULL column as 0
                assert bounds == [java["min"], java["max"]], (file.file_name, name)
            assert column.null_count == java["nullCount"], (file.file_name, name)
            compared.add(name)
    return compared


@everywhere
def test_files_of_every_snapshot_are_what_java_lists(archive: str) -> None:
    found = golden.case(archive.split(".")[0])
    if found is None:
        pytest.skip("Java's answers are not part of this archive")
    by_name = {(file.file_name, file.level): (schema, partition, file) for schema, partition, file in data_files(archive)}
    for snapshot in found["snapshots"]:
        for bucket in snapshot["buckets"]:
            for java in bucket["files"]:
                if (java["name"], java["level"]) not in by_name:
                    continue  # a later state, which is in the other archive, or a branch
                schema, partition, file = by_name[java["name"], java["level"]]
                types = schema.key_types if schema.primary_keys else ()
                keys = [binary_row.deserialize(key, types) for key in (file.min_key, file.max_key)]
                assert [[json_value(value, kind) for value, kind in zip(key, types, strict=True)] for key in keys] == [
                    java.get("minKey") or [],
                    java.get("maxKey") or [],
                ]
                values = binary_row.deserialize(partition, schema.partition_types)
                assert {
                    name: json_value(value, kind)
                    for name, value, kind in zip(schema.partition_keys, values, schema.partition_types, strict=True)
                } == bucket["partition"]
                source = None if java["fileSource"] is None else FileSource[java["fileSource"]]
                assert (file.row_count, file.file_size, file.file_source, file.delete_row_count, file.schema_id, list(file.extra_files)) == (
                    java["rowCount"],
                    java["fileSize"],
                    source,
                    java["deleteRowCount"],
                    java["schemaId"],
                    java["extraFiles"],
                )
                assert (file.min_sequence_number, file.max_sequence_number) == (java["minSequenceNumber"], java["maxSequenceNumber"])
