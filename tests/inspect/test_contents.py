"""The lists of files and snapshots."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

import maintainer
from maintainer.format import snapshot_json
from tests.support.java_cases import has_after, java_case
from tests.support.tables import append, make_busy_table, make_table


def test_files_say_what_the_manifest_says(tmp_path: Path) -> None:
    table = make_busy_table(tmp_path)
    found = table.files()
    assert found.snapshot == table.snapshots().snapshots[-1].id
    assert {file.source for file in found.files if file.level == 0} == {"APPEND"}
    assert {file.covered_by for file in found.files if file.level > 0} == {("v", "n")}
    assert sum(file.deleted_rows for file in found.files) == 70
    for file in found.files:
        path = Path(table.store.uri) / f"bucket-{file.bucket}" / file.name
        assert path.stat().st_size == file.size


@pytest.mark.parametrize("name", ["dv_minor", "idx_levels", "keys_composite", "partitioned"])
def test_files_and_snapshots_of_java(name: str) -> None:
    case = java_case(name, after=has_after(name))
    table = maintainer.open_table(str(case.directory))
    expected = case.json["snapshots"][-1]
    files = {file.name: file for file in table.files().files}
    theirs = {file["name"]: (bucket, file) for bucket in expected["buckets"] for file in bucket["files"]}
    assert files.keys() == theirs.keys()
    for file_name, (bucket, file) in theirs.items():
        ours = files[file_name]
        assert (ours.bucket, ours.partition) == (bucket["bucket"], bucket["partition"])
        assert (ours.level, ours.rows, ours.size, ours.source) == (file["level"], file["rowCount"], file["fileSize"], file["fileSource"])
    snapshots = {each.id: (each.kind, each.total_records, each.schema_id) for each in table.snapshots().snapshots}
    for each in case.json["snapshots"]:
        assert snapshots[each["id"]] == (each["commitKind"], each["totalRecordCount"], each["schemaId"])


def test_a_table_without_a_snapshot_has_no_files(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    assert table.files().to_dict() == {"version": 1, "table": table.name, "snapshot": None, "files": []}
    assert table.snapshots().snapshots == ()


def test_times_are_in_utc(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    append(table, 0, 1)
    (only,) = table.snapshots().snapshots
    snapshot = table.store.snapshot(1)
    path = Path(table.store.uri) / table.store.snapshot_path(1)
    path.write_bytes(snapshot_json.encode(replace(snapshot, time_millis=1_796_000_523_004)))
    assert table.snapshots().snapshots[0].time == "2026-11-30T01:02:03.004000000Z"
    assert (only.kind, only.total_records, only.delta_records, only.identifier) == ("APPEND", 1, 1, 2**63 - 1)


def test_reports_are_frozen_and_can_be_json(tmp_path: Path) -> None:
    table = make_busy_table(tmp_path)
    for report in (table.files(), table.snapshots(), table.coverage(), table.verify(), table.doctor()):
        assert json.loads(json.dumps(report.to_dict())) == report.to_dict()
        assert report.to_dict()["version"] == 1
        with pytest.raises(AttributeError):
            report.table = "another"  # type: ignore[misc]


def test_lists_can_be_walked_through(tmp_path: Path) -> None:
    table = make_busy_table(tmp_path)
    assert [file.name for file in table.files()] == [file.name for file in table.files().files]
    assert [snapshot.id for snapshot in table.snapshots()] == [snapshot.id for snapshot in table.snapshots().snapshots]
    assert len(table.files()) == len(table.files().files) and len(table.snapshots()) == len(table.snapshots().snapshots)
