"""Java's own compactions, replayed: the same input, options and kind of compaction give the same files, rows, deleted positions and groups.

Names of new files are free, and so is where a rolling writer cuts them: of rewritten files it is compared what a level holds, record by record.
Files that Java kept or moved must be the very same files at the same level.
"""

from __future__ import annotations

import json
import tarfile
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from maintainer.api.account import PassReport
from maintainer.api.maintenance import run_pass
from maintainer.data.deletions import read_deletions
from maintainer.data.reader import open_data_file
from maintainer.data.values import json_rows, json_value
from maintainer.errors import Unsupported
from maintainer.format import binary_row
from maintainer.index import groups
from maintainer.index.definition import definitions
from maintainer.index.family import family
from maintainer.model.bucket import BucketState
from maintainer.model.files import DataFileMeta, FileSource
from maintainer.model.predicate import Leaf, Op
from maintainer.model.schema import KIND_FIELD, SEQUENCE_FIELD, TableSchema
from maintainer.read.scan import Scan
from maintainer.table.opening import open_store
from maintainer.table.state import TableState, load_state
from maintainer.table.store import TableStore
from tests.support import golden
from tests.support.java_cases import CASES

KINDS = ("+I", "-U", "+U", "-D")

REPLAYED = (
    "all_deleted",
    "bucket_function_mod",
    "cl_full",
    "cl_input",
    "cl_lookup",
    "cl_lookup_agg",
    "data_file_names",
    "dv_bitmap64",
    "dv_many_index_files",
    "dv_minor",
    "dv_minor_then_full",
    "dv_switch_bitmap64",
    "force_up_level0",
    "idx_added_later",
    "idx_full_compaction",
    "idx_partial_update",
    "idx_partitioned",
    "keys_composite",
    "l0_40",
    "large_kept",
    "levels_small",
    "maxlevel_dv_full",
    "me_agg",
    "me_agg_remove",
    "me_agg_retract",
    "me_dedup_ignore_delete",
    "me_firstrow",
    "me_nested_update",
    "me_partial_groups",
    "me_partial_groups_agg",
    "me_partial_remove",
    "me_partial_remove_group",
    "me_partial_seq_field",
    "me_rowkind",
    "me_seq1",
    "me_seq2desc",
    "merge_on_read",
    "nested_avro",
    "nested_orc",
    "nested_parquet",
    "nodv_full",
    "nodv_minor",
    "nothing_to_do",
    "partitioned",
    "per_level_format",
    "row_target",
    "schema_evolution",
    "schema_evolution_full",
    "thin_mode",
    "types_avro",
    "types_orc",
    "types_parquet",
    "upgrade_append",
    "upgrade_only_file",
    "vector_column",
)

LEFT = {
    "index_in_data_dir": "index-file-in-data-file-dir = true",
    "pk_nullable": "primary-key.nullable = true",
    "postpone": "bucket = -2",
    "snapshot_ordering": "sequence.snapshot-ordering = true",
    "vec_added_later": "pk-vector.index.columns = v",
}
"""Left to later issues: what a pass says when it refuses the table."""


@cache
def case(name: str) -> dict[str, Any]:
    found = golden.case(name)
    assert found is not None
    return found


def opened(name: str, directory: Path, archive: str) -> TableStore:
    golden.unpack(name, directory, case(name)["archives"][archive])
    return open_store(str(directory / name), options=case(name)["compaction"]["dynamic_options"])


def compacted(name: str, store: TableStore) -> PassReport:
    return run_pass(store, full=case(name)["compaction"]["kind"] == "full", rewrite_append=False, repeat=False)


def state_of(store: TableStore) -> TableState:
    snapshot = store.latest_snapshot()
    assert snapshot is not None
    return load_state(store, snapshot)


def partition_text(schema: TableSchema, partition: bytes) -> str:
    values = binary_row.deserialize(partition, schema.partition_types) if schema.partition_keys else ()
    values = [json_value(value, data_type) for value, data_type in zip(values, schema.partition_types, strict=True)]
    return json.dumps(dict(zip(schema.partition_keys, values, strict=True)), sort_keys=True)


def key_json(schema: TableSchema, key: bytes) -> list[Any]:
    return [json_value(value, kind) for value, kind in zip(binary_row.deserialize(key, schema.key_types), schema.key_types, strict=True)]


class Bucket:
    """One of our buckets in Java's words."""

    def __init__(self, store: TableStore, state: BucketState, schema: TableSchema) -> None:
        self.store = store
        self.state = state
        self.schema = schema
        self.vectors = read_deletions(store.storage, store.layout, state.deletion_file)

    def records(self, meta: DataFileMeta) -> list[list[Any]]:
        """The physical records of a file, as in the JSON."""
        path = self.store.layout.data_file_path(self.state.partition, self.state.bucket, meta)
        with open_data_file(self.store.storage, path, meta, self.store.schema(meta.schema_id), self.schema) as file:
            table = file.read([KIND_FIELD.name, SEQUENCE_FIELD.name, *self.schema.names])
        rows = json_rows(table, [KIND_FIELD, SEQUENCE_FIELD, *self.schema.fields])
        return [[KINDS[row[KIND_FIELD.name]], *list(row.values())[1:]] for row in rows]

    def file(self, meta: DataFileMeta) -> dict[str, Any]:
        return {
            "name": meta.file_name,
            "level": meta.level,
            "rowCount": meta.row_count,
            "fileSource": meta.file_source.name if meta.file_source is not None else None,
            "minSequenceNumber": meta.min_sequence_number,
            "maxSequenceNumber": meta.max_sequence_number,
            "deleteRowCount": meta.delete_row_count,
            "schemaId": meta.schema_id,
            "minKey": key_json(self.schema, meta.min_key),
            "maxKey": key_json(self.schema, meta.max_key),
            "records": self.records(meta),
            "deleted": sorted(self.vectors.get(meta.file_name, ())),
        }

    def groups(self) -> dict[tuple[str, int, int], dict[str, list[str]]]:
        """(type, field id, level) → value → primary keys, for every active group; asserts that there are no others."""
        found = {}
        by_name = {file.file_name: file for file in self.state.files}
        assert groups.orphans(self.state, definitions(self.schema)) == []
        for definition in definitions(self.schema):
            group = groups.evaluate(self.state, definition)
            assert group.stale == ()
            for level, payload in group.active.items():
                keys = [key for name, _ in group.sources[level].files for key in self.primary_keys(by_name[name])]
                path = self.store.layout.index_file_path(payload)
                assert payload.global_index is not None
                reader = family(definition.family).open(
                    lambda offset, length, path=path: self.store.storage.read_range(path, offset, length),
                    payload.file_size,
                    definition,
                    payload.global_index.index_meta,
                    len(keys),
                )
                answers = {}
                equal = Op.EQ if definition.data_type.element is None else Op.ARRAY_CONTAINS
                for value, literal in self.values(definition.column, group.sources[level].files, by_name).items():
                    rows = reader.evaluate(
                        Leaf(Op.IS_NULL, definition.column) if literal is None else Leaf(equal, definition.column, (literal,))
                    )
                    assert rows is not None
                    answers[value] = sorted(keys[row] for row in rows)
                found[definition.index_type, definition.field_id, level] = answers
        return found

    def primary_keys(self, meta: DataFileMeta) -> list[str]:
        positions = [2 + self.schema.names.index(name) for name in self.schema.trimmed_primary_keys]
        return [json.dumps([record[position] for position in positions]) for record in self.records(meta)]

    def values(self, column: str, sources: Any, by_name: dict[str, DataFileMeta]) -> dict[str, Any]:
        position = 2 + self.schema.names.index(column)
        found = [record[position] for name, _ in sources for record in self.records(by_name[name])]
        data_type = self.schema.field(column).type
        if data_type.element is not None:
            found = [value for array in found for value in array or () if value is not None]
            data_type = data_type.element
        return {text: golden.value_of(json.loads(text), data_type) for text in map(json.dumps, found)}


Buckets = dict[tuple[str, int], Bucket]
"""By the JSON text of the partition, and the number."""


def ours(store: TableStore) -> Buckets:
    state = state_of(store)
    return {
        (partition_text(state.schema, key.partition), key.bucket): Bucket(store, bucket, state.schema) for key, bucket in state.buckets.items()
    }


def java_files(name: str, there: Buckets) -> dict[tuple[str, int], list[dict[str, Any]]]:
    """Java's files after its compaction; records from the JSON where it has them, else from the archive, whose buckets are `there`."""
    snapshot = result_snapshot(name)
    deleted = {entry["dataFile"]: entry["positions"] for entry in snapshot.get("deletionVectors", [])}
    found = {}
    for bucket in snapshot["buckets"]:
        key = (json.dumps(bucket["partition"], sort_keys=True), bucket["bucket"])
        metas = {file.file_name: file for file in there[key].state.files}
        found[key] = [
            {**file, "records": records_of(name, there[key], metas[file["name"]]), "deleted": deleted.get(file["name"], [])}
            for file in bucket["files"]
        ]
    return found


def records_of(name: str, bucket: Bucket, meta: DataFileMeta) -> list[list[Any]]:
    records = case(name)["dataFiles"][meta.file_name].get("records")
    return bucket.records(meta) if records is None else records


def result_snapshot(name: str) -> dict[str, Any]:
    wanted = case(name)["compaction"]["result_snapshot"] or case(name)["compaction"]["input_snapshot"]
    return next(snapshot for snapshot in case(name)["snapshots"] if snapshot["id"] == wanted)


def input_names(name: str) -> set[str]:
    wanted = case(name)["compaction"]["input_snapshot"]
    snapshot = next(snapshot for snapshot in case(name)["snapshots"] if snapshot["id"] == wanted)
    return {file["name"] for bucket in snapshot["buckets"] for file in bucket["files"]}


COMPARED = (
    "level",
    "rowCount",
    "fileSource",
    "minSequenceNumber",
    "maxSequenceNumber",
    "deleteRowCount",
    "schemaId",
    "minKey",
    "maxKey",
    "records",
    "deleted",
)


def test_every_compaction_case_is_replayed_or_left_with_a_reason() -> None:
    names = {path.stem for path in CASES.glob("*.json") if "compaction" in json.loads(path.read_text())}
    assert names == {*REPLAYED, *LEFT}
    assert not set(REPLAYED) & set(LEFT)


@pytest.mark.parametrize("name", sorted(LEFT))
def test_a_table_of_a_later_issue_is_refused_and_left_alone(name: str, tmp_path: Path) -> None:
    store = opened(name, tmp_path, "input")
    before = sorted(path for path in tmp_path.rglob("*"))
    with pytest.raises(Unsupported) as refusal:
        compacted(name, store)
    assert LEFT[name] in str(refusal.value)
    assert sorted(path for path in tmp_path.rglob("*")) == before


@pytest.mark.parametrize("name", REPLAYED)
def test_replay(name: str, tmp_path: Path) -> None:
    store = opened(name, tmp_path / "ours", "input")
    there = ours(opened(name, tmp_path / "java", "after"))
    java = java_files(name, there)
    report = compacted(name, store)
    wanted = case(name)["compaction"]["result_snapshot"]
    assert report.outcome == ("nothing" if wanted is None else "committed")
    assert report.failures == ()
    mine = {key: [bucket.file(meta) for meta in bucket.state.files] for key, bucket in ours(store).items() if bucket.state.files}
    assert mine.keys() == java.keys()
    old = input_names(name)
    for key, files in java.items():
        check_files(mine[key], files, old)
    mine_groups = {(key, *group): answers for key, bucket in ours(store).items() for group, answers in bucket.groups().items()}
    assert mine_groups == dict(java_groups(name, there))
    check_rows(name, store)
    if wanted is not None:
        check_changelog(name, store)


def check_changelog(name: str, store: TableStore) -> None:
    """Java's changelog records, key by key in their order, bucket by bucket; and what the snapshot says of them."""
    state, theirs = state_of(store), result_snapshot(name)
    if len(case(name)["snapshots"]) < 2 or theirs["commitKind"] != "COMPACT":
        return
    found = defaultdict(list)
    snapshot = state.snapshot
    name_of_list = snapshot.changelog_manifest_list
    metas = () if name_of_list is None else store.manifests.files_of(name_of_list, "", snapshot.changelog_manifest_list_size)
    for entry in (entry for meta in metas for entry in store.manifests.entries(meta.file_name, "")):
        assert entry.file.file_source is FileSource.APPEND
        bucket = Bucket(store, state.bucket(entry.bucket_key), state.schema)
        found[partition_text(state.schema, entry.partition), entry.bucket].append((entry.file, bucket.records(entry.file)))
    java = defaultdict(list)
    for file in theirs.get("changelogFiles") or ():
        records = case(name)["dataFiles"][file["name"]]["records"]
        java[json.dumps(file.get("partition", {}), sort_keys=True), file.get("bucket", 0)] += records
    assert {key: sorted((record for _, part in parts for record in part), key=json.dumps) for key, parts in found.items()} == {
        key: sorted(records, key=json.dumps) for key, records in java.items()
    }
    assert snapshot.changelog_record_count == theirs["changelogRecordCount"]


def check_files(mine: list[dict[str, Any]], java: list[dict[str, Any]], old: set[str]) -> None:
    kept = {file["name"]: pick(file) for file in java if file["name"] in old}
    assert {file["name"]: pick(file) for file in mine if file["name"] in old} == kept
    new, theirs = new_by_level(mine, old), new_by_level(java, old)
    assert new.keys() == theirs.keys()
    for level, files in theirs.items():
        assert [record for file in new[level] for record in file["records"]] == [record for file in files for record in file["records"]]
        assert not any(file["deleted"] for file in new[level])
        if len(new[level]) == len(files):
            assert [pick(file) for file in new[level]] == [pick(file) for file in files]
        for what in ("fileSource", "schemaId", "deleteRowCount"):
            assert {file[what] for file in new[level]} == {file[what] for file in files}


def pick(file: dict[str, Any]) -> dict[str, Any]:
    return {name: file[name] for name in COMPARED}


def new_by_level(files: list[dict[str, Any]], old: set[str]) -> dict[int, list[dict[str, Any]]]:
    levels = defaultdict(list)
    for file in files:
        if file["name"] not in old:
            levels[file["level"]].append(file)
    return {level: sorted(found, key=lambda file: file["minKey"]) for level, found in levels.items()}


def java_groups(name: str, there: Buckets) -> Iterator[tuple[Any, dict[str, list[str]]]]:
    """(bucket, type, field id, level) → value → primary keys, as Java's reader of its payloads has them."""
    table = case(name)["table"]
    names = [column["name"] for column in table["columns"]]
    positions = [2 + names.index(key) for key in table["primaryKeys"] if key not in table["partitionKeys"]]
    for group in result_snapshot(name).get("indexGroups", []):
        assert group["current"] and group["definedInSchema"]
        bucket = (json.dumps(group["partition"], sort_keys=True), group["bucket"])
        metas = {file.file_name: file for file in there[bucket].state.files}
        records = [record for file in group["sourceFiles"] for record in records_of(name, there[bucket], metas[file["file"]])]
        keys = [json.dumps([record[position] for position in positions]) for record in records]
        answers = {json.dumps(value): sorted(keys[row] for row in rows) for value, rows in group["content"]["entries"]}
        if group["content"].get("nulls"):
            answers["null"] = sorted(keys[row] for row in group["content"]["nulls"])
        yield (bucket, group["type"], group["fieldId"], group["level"]), answers


def check_rows(name: str, store: TableStore) -> None:
    """A batch reader of our result returns Java's rows."""
    snapshot = result_snapshot(name)["id"]
    found = {number: (columns, rows) for number, columns, rows in golden.rows_of(case(name))}
    columns, rows = found[snapshot]
    scan = Scan(store, columns=list(columns))
    mine = [list(row.values()) for row in json_rows(scan.to_arrow(), [store.latest_schema().field(column) for column in columns])]
    assert sorted(map(json.dumps, mine)) == sorted(map(json.dumps, rows))


def test_the_public_golden_table_becomes_covered(tmp_path: Path) -> None:
    """Level 1 holds an APPEND file that Java moved up: it is rewritten there, and both levels have all groups."""
    if not golden.PK_JAVA.exists():
        pytest.skip(f"{golden.PK_JAVA.name} is not here (public test data that is not kept in this repository)")
    with tarfile.open(golden.PK_JAVA) as tar:
        tar.extractall(tmp_path, filter="data")
    (directory,) = tmp_path.rglob("test_pk_global_index_golden")
    store = open_store(str(directory))
    before = Scan(store).to_arrow().sort_by("id")
    report = run_pass(store)
    assert (report.outcome, report.failures) == ("committed", ())
    assert Scan(store).to_arrow().sort_by("id") == before
    (bucket,) = ours(store).values()
    assert {(level, group) for group, _, level in bucket.groups()} == {(level, group) for level in (1, 2) for group in ("btree", "bitmap")}
    assert run_pass(store).outcome == "nothing"
