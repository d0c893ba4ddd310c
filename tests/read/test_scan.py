from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from structlog.testing import capture_logs

import maintainer.read.rows as rows_module
from maintainer.data.reader import DataFile
from maintainer.errors import CorruptFile, MissingFile, UsageError
from maintainer.format import snapshot_json
from maintainer.model.files import BucketKey, FileSource
from maintainer.model.predicate import Or
from maintainer.read.decisions import INDEXED, PRUNED, RAW
from maintainer.read.expression import col
from maintainer.read.scan import Scan
from maintainer.table.opening import open_store
from maintainer.table.state import SnapshotExpired
from tests.support.builders import schema, type_
from tests.support.built_tables import BuiltTable
from tests.support.evolve import retype_column
from tests.support.small_table import SmallTable

OPTIONS = {"bucket": "1", "deletion-vectors.enabled": "true", "pk-btree.index.columns": "a", "pk-bitmap.index.columns": "s"}
SCHEMA = schema({"id": "INT", "a": "INT", "s": "STRING", "x": "DOUBLE"}, options=OPTIONS)
WORDS = ["red", "green", "blue", None]


def row(i: int) -> dict[str, Any]:
    return {"id": i, "a": None if i % 5 == 4 else i % 5, "s": WORDS[i % 4], "x": float(i)}


def ids(scan: Scan) -> list[int]:
    return sorted(scan.to_arrow()["id"].to_pylist())


@pytest.fixture
def table(tmp_path: Path) -> Iterator[BuiltTable]:
    """Level 5: ids 0-19 and 20-39 (2 and 3 deleted), covered; level 3: 40-49, covered; level 2: 50-59, an APPEND file; level 0: 60-69."""
    built = BuiltTable(tmp_path / "t", SCHEMA)
    built.put([row(i) for i in range(20)], deleted=[2, 3])
    built.put([row(i) for i in range(20, 40)])
    built.put([row(i) for i in range(40, 50)], level=3)
    built.put([row(i) for i in range(50, 60)], level=2, source=FileSource.APPEND)
    built.put([row(i) for i in range(60, 70)], level=0, source=FileSource.APPEND)
    built.index()
    built.publish()
    return built


VISIBLE = [i for i in range(60) if i not in (2, 3)]


def test_all_visible_rows_come_once_and_level_0_not_at_all(table: BuiltTable) -> None:
    scan = Scan(table.store)
    assert ids(scan) == VISIBLE
    decisions = {file.decision: file.reason for file in scan.explain().files}
    assert decisions == {RAW: "no condition", PRUNED: "level 0: not visible until compacted"}


def test_covered_files_are_narrowed_and_others_read_raw_with_the_reason(table: BuiltTable) -> None:
    scan = Scan(table.store, "a = 1 AND s = 'green'")
    assert ids(scan) == [i for i in VISIBLE if i % 5 == 1 and i % 4 == 1] == [1, 21, 41]
    files = scan.explain().files
    assert [file.decision for file in files] == [INDEXED, INDEXED, INDEXED, RAW, PRUNED]
    assert [file.ranges for file in files[:3]] == [((1, 1),), ((1, 1),), ((1, 1),)]
    assert [file.rows for file in files] == [1, 1, 1, 10, 0]
    assert files[0].column == "a, s"
    assert files[0].group is not None and len(files[0].group.split(", ")) == 2
    assert "APPEND" in files[3].reason


def test_the_explanation_has_the_documented_shape(table: BuiltTable) -> None:
    document = Scan(table.store, "a = 1").explain().to_dict()
    assert set(document) == {"version", "table", "snapshot", "files", "steps", "hidden"}
    assert document["snapshot"] == 1
    for file in document["files"]:
        assert set(file) == {"partition", "bucket", "file", "level", "size", "decision", "reason", "column", "group", "ranges", "rows"}
    assert {tuple(step) for step in document["steps"]} == {("step", "files", "rows", "bytes")}
    assert [set(each) for each in document["hidden"]] == [{"partition", "bucket", "files", "rows", "reason", "do"}]
    assert document["files"][0]["ranges"] == [[1, 1], [6, 6], [11, 11], [16, 16]]
    assert document["files"][0]["partition"] == {}
    assert document["files"][4]["ranges"] is None


def test_an_explanation_is_printed_for_people(table: BuiltTable) -> None:
    shown = str(Scan(table.store, "a = 1").explain()).splitlines()
    assert shown[0] == f"{table.store.name}  snapshot 1"
    assert [line.split()[:2] for line in shown[1:4]] == [["files", "5"], ["level", "4"], ["index", "4"]]
    read = [line.split(maxsplit=4) for line in shown[4:-1]]
    assert [(decision, rows, reason) for decision, rows, _, _, reason in read] == [
        *[("indexed", "4", "index: 4 of 20 rows")] * 2,
        ("indexed", "2", "index: 2 of 10 rows"),
        ("raw", "10", "a: APPEND file above level 0: not an index source"),
    ]
    assert all(where.startswith("bucket-0/data-") for _, _, _, where, _ in read)
    assert shown[-1].startswith("hidden") and shown[-1].split(maxsplit=3)[3].startswith(
        "bucket 0: level 0: not visible until compacted; maintainer once "
    )
    assert str(Scan(open_store(table.store.uri), "a > 9").explain()).splitlines()[-1].split() == [
        "index",
        "0",
        "files",
        "left",
        "0",
        "rows",
        "left",
    ]


def test_positions_count_deleted_rows(table: BuiltTable) -> None:
    scan = Scan(table.store, "a IN (2, 3)")
    assert scan.explain().files[0].ranges == ((2, 3), (7, 8), (12, 13), (17, 18))
    assert ids(scan) == [i for i in VISIBLE if i % 5 in (2, 3)]


def test_without_indexes_the_rows_are_the_same(table: BuiltTable) -> None:
    scan = Scan(table.store, "a = 1", use_index=False)
    assert ids(scan) == ids(Scan(table.store, "a = 1"))
    assert {file.reason for file in scan.explain().files if file.decision == RAW} == {"indexes are switched off"}
    off = BuiltTable.opened(table, {"global-index.enabled": "false"})
    assert {file.decision for file in Scan(off, "a = 1").explain().files} == {RAW, PRUNED}


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("x = 1", "no index on the columns of the condition"),
        ("a = 1 OR x = 1", "a row may satisfy the condition by a column without index"),
        ("NOT startswith(s, 'r')", "s: the bitmap index does not answer not startswith"),
    ],
)
def test_raw_files_say_why(table: BuiltTable, sql: str, reason: str) -> None:
    first = Scan(table.store, sql).explain().files[0]
    assert (first.decision, first.reason) == (RAW, reason)


def test_a_payload_that_is_too_large_for_ranges_says_so(table: BuiltTable) -> None:
    key = "btree-index.fallback-scan-max-size"
    small = BuiltTable.opened(table, {key: "1 b"})
    assert Scan(small, "a > 1").explain().files[0].reason == f"a: the btree index is larger than {key} says for >"
    assert "larger" not in Scan(small, "a = 1").explain().files[0].reason


@pytest.mark.parametrize(("text", "reason"), [("{bad", "must be a JSON object"), ('{"x": null}', "value for key x must not be null")])
def test_options_of_an_index_that_make_no_sense_keep_nobody_from_reading(text: str, reason: str, table: BuiltTable) -> None:
    odd = BuiltTable.opened(table, {"fields.a.pk-btree.index.options": text})
    scan = Scan(odd, "a = 1")
    assert ids(scan) == ids(Scan(table.store, "a = 1"))
    assert reason in scan.explain().files[0].reason


def test_a_file_without_a_matching_row_is_not_read(table: BuiltTable) -> None:
    first = Scan(table.store, "a = 1 AND s = 'nothing'").explain().files[0]
    assert (first.decision, first.ranges) == (PRUNED, None)


def test_statistics_and_keys_prune_files(table: BuiltTable) -> None:
    assert [file.decision for file in Scan(table.store, "id BETWEEN 45 AND 55").explain().files] == [PRUNED, PRUNED, RAW, RAW, PRUNED]
    assert [file.decision for file in Scan(table.store, "s > 'z'").explain().files] == [PRUNED] * 5
    assert ids(Scan(table.store, "id = 45 OR id = 5")) == [5, 45]
    assert "key range" in Scan(table.store, "id = 45").explain().files[0].reason


def test_a_pruned_file_does_not_disable_the_group_of_its_level(table: BuiltTable) -> None:
    files = Scan(table.store, "id >= 25 AND a = 1").explain().files
    assert [file.decision for file in files[:2]] == [PRUNED, INDEXED]


def test_columns_come_in_the_order_asked_or_that_of_the_table(table: BuiltTable) -> None:
    assert Scan(table.store).to_arrow().column_names == ["id", "a", "s", "x"]
    scan = Scan(table.store, "a = 1 AND id < 10", ["x", "s"])
    assert scan.to_arrow().to_pydict() == {"x": [1.0, 6.0], "s": ["green", "blue"]}
    assert [field.name for field in scan.fields] == ["x", "s"]
    assert scan.to_arrow().schema.types == [pa.float64(), pa.string()]


def test_no_columns_still_count_rows(table: BuiltTable) -> None:
    assert Scan(table.store, columns=[]).to_arrow().num_rows == len(VISIBLE)
    assert Scan(table.store, "a = 1", columns=[]).to_arrow().num_rows == 12


def test_the_limit_is_applied_after_the_filter(table: BuiltTable) -> None:
    assert ids(Scan(table.store, "a = 1", limit=5)) == [1, 6, 11, 16, 21]
    assert Scan(table.store, limit=0).to_arrow().num_rows == 0
    assert Scan(table.store, limit=1000).to_arrow().num_rows == len(VISIBLE)


def test_a_reached_limit_opens_no_further_file(table: BuiltTable, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    original = rows_module.open_data_file

    def counting(storage: Any, path: str, *rest: Any) -> DataFile:
        opened.append(path)
        return original(storage, path, *rest)

    monkeypatch.setattr(rows_module, "open_data_file", counting)
    assert len(ids(Scan(table.store, limit=3))) == 3
    assert len(opened) == 1


def test_order_by_puts_nulls_first_ascending_and_last_descending(table: BuiltTable) -> None:
    ascending = Scan(table.store, "id < 10", ["a"], order_by="a").to_arrow()["a"].to_pylist()
    descending = Scan(table.store, "id < 10", ["a"], order_by="a DESC").to_arrow()["a"].to_pylist()
    assert ascending == [None, None, 0, 0, 1, 1, 2, 3]
    assert descending == [3, 2, 1, 1, 0, 0, None, None]
    assert Scan(table.store, columns=["id"], order_by=[("s", "desc"), "id"], limit=2).to_arrow()["id"].to_pylist() == [0, 4]


def test_wrong_questions_are_refused(table: BuiltTable) -> None:
    store = table.store
    for make, message in (
        (lambda: Scan(store, "nope = 1"), "no column 'nope'; the columns are id, a, s, x"),
        (lambda: Scan(store, columns=["nope"]), "no column 'nope'"),
        (lambda: Scan(store, columns=["a", "a"]), "asked for twice"),
        (lambda: Scan(store, order_by="nope"), "no column 'nope'"),
        (lambda: Scan(store, limit=-1), "limit must be a number of rows"),
        (lambda: Scan(store, snapshot_id=9), "there is no snapshot 9; there are 1 to 1"),
        (lambda: Scan(store, tag="t"), "there is no tag 't'"),
        (lambda: Scan(store, as_of=5), r"no snapshot as old as 5 \(1970-01-01 00:00:00.005 UTC\); the oldest is 1, of \d{4}-.* UTC$"),
        (lambda: Scan(store, as_of="2001-01-01 10:00"), "no snapshot as old as 2001-01-01 10:00; the oldest is 1, of "),
        (lambda: Scan(store, as_of=1.5), "a time is wanted, a text like .*, or whole milliseconds since 1970, not 1.5"),  # type: ignore[arg-type]
        (lambda: Scan(store, snapshot_id="1"), "snapshot_id is the number of a snapshot, not '1'"),  # type: ignore[arg-type]
        (lambda: Scan(store, columns=[0]), "columns are given by their names, not by 0"),  # type: ignore[list-item]
        (lambda: Scan(store, columns=5), "columns are given by their names, not by 5"),  # type: ignore[arg-type]
        (lambda: Scan(store, tag=5), "tag is the name of a tag, not 5"),  # type: ignore[arg-type]
        (lambda: Scan(store, memory=-1), "memory is a number of bytes, not -1"),
        (lambda: Scan(store, memory="10 mb"), "memory is a number of bytes, not '10 mb'"),  # type: ignore[arg-type]
        (lambda: Scan(store, spill="/tmp"), "spill is a maintainer.Spill, not '/tmp'"),  # type: ignore[arg-type]
        (lambda: Scan(store, snapshot_id=1, tag="t"), "only one of"),
        (lambda: Scan(store, as_of="yesterday"), "is not a timestamp"),
    ):
        with pytest.raises(UsageError, match=message):
            make().to_arrow()
        with pytest.raises(UsageError, match=message):
            make().to_batches()


def test_time_travel(table: BuiltTable) -> None:
    snapshot = table.store.latest_snapshot()
    assert snapshot is not None
    table.put([row(i) for i in range(100, 103)], level=4)
    table.publish()
    assert len(ids(Scan(table.store))) == len(VISIBLE) + 3
    assert ids(Scan(table.store, snapshot_id=1)) == VISIBLE
    assert ids(Scan(table.store, as_of=snapshot.time_millis)) == VISIBLE
    moment = dt.datetime.fromtimestamp(snapshot.time_millis / 1000 + 0.0005, dt.UTC)
    assert ids(Scan(table.store, as_of=moment)) in (VISIBLE, [*VISIBLE, 100, 101, 102])


def test_arrow_pandas_polars_and_streams_agree(table: BuiltTable) -> None:
    scan = Scan(table.store, col("a") == 1)
    expected = scan.to_arrow()
    assert scan.to_pandas()["id"].tolist() == expected["id"].to_pylist()
    assert scan.to_polars()["id"].to_list() == expected["id"].to_pylist()
    assert pa.table(scan) == expected
    assert pl.DataFrame(scan).shape == expected.shape
    assert pa.Table.from_batches(scan.to_batches(), schema=expected.schema) == expected


def test_a_level_whose_sources_differ_is_raw_unless_relaxed_acceptance_is_asked_for(tmp_path: Path) -> None:
    built = BuiltTable(tmp_path / "t", SCHEMA)
    built.put([row(i) for i in range(10)])
    built.index()
    built.put([row(i) for i in range(10, 20)])
    built.publish()
    strict = Scan(built.store, "a = 1").explain().files
    assert [file.decision for file in strict] == [RAW, RAW]
    assert "stale: sources differ" in strict[0].reason
    relaxed = BuiltTable.opened(built, {"read.group-acceptance": "relaxed"})
    scan = Scan(relaxed, "a = 1")
    assert [file.decision for file in scan.explain().files] == [INDEXED, RAW]
    assert ids(scan) == [1, 6, 11, 16]


def alternating(tmp_path: Path, rows: int) -> BuiltTable:
    built = BuiltTable(tmp_path / str(rows), SCHEMA)
    built.put([{"id": i, "a": i % 2, "s": "x", "x": 0.0} for i in range(rows)])
    built.index()
    built.publish()
    return built


def test_4096_ranges_are_followed_and_4097_are_read_raw(tmp_path: Path) -> None:
    for ranges, decision in ((4096, INDEXED), (4097, RAW)):
        scan = Scan(alternating(tmp_path, 2 * ranges).store, "a = 1", ["id"])
        (file,) = scan.explain().files
        assert file.decision == decision
        assert scan.to_arrow().num_rows == ranges
    assert "4097 ranges" in file.reason


def test_all_rows_no_rows_and_the_last_row(tmp_path: Path) -> None:
    store = alternating(tmp_path, 10).store
    assert Scan(store, "a IN (0, 1)").explain().files[0].ranges == ((0, 9),)
    assert Scan(store, "a = 0 AND s = 'y'").explain().files[0].decision == PRUNED
    assert Scan(store, "s = 'x' AND id > 8").to_arrow()["id"].to_pylist() == [9]


def test_a_fully_deleted_file_gives_nothing(tmp_path: Path) -> None:
    built = BuiltTable(tmp_path / "t", SCHEMA)
    built.put([row(i) for i in range(5)], deleted=range(5))
    built.index()
    built.publish()
    assert Scan(built.store).to_arrow().num_rows == 0
    assert Scan(built.store, "a = 1").to_arrow().num_rows == 0


def test_damaged_payloads_are_read_around_with_one_warning(tmp_path: Path) -> None:
    damages = {
        "missing": lambda path: path.unlink(),
        "cut": lambda path: path.write_bytes(path.read_bytes()[:-1]),
        "empty": lambda path: path.write_bytes(b""),
        "footer": lambda path: path.write_bytes(path.read_bytes()[:-8] + bytes(8)),
        "flipped": lambda path: path.write_bytes(bytes((path.read_bytes()[0] ^ 0xFF,)) + path.read_bytes()[1:]),
    }
    for name, damage in damages.items():
        built = BuiltTable(tmp_path / name, SCHEMA)
        built.put([row(i) for i in range(20)])
        built.put([row(i) for i in range(20, 40)])
        (payload,) = built.index(["a"])
        built.publish()
        damage(built.index_path(payload))
        with capture_logs() as logs:
            scan = Scan(built.store, "a = 1 OR a = 2")
            plan = scan.explain()
        assert {file.decision for file in plan.files} == {RAW}, name
        assert [(log["log_level"], log["payload"]) for log in logs] == [("warning", payload.file_name)], name
        assert ids(scan) == [i for i in range(40) if i % 5 in (1, 2)], name


def test_a_payload_that_knows_more_rows_than_its_group_is_read_around(tmp_path: Path) -> None:
    built = BuiltTable(tmp_path / "t", SCHEMA)
    built.put([row(i) for i in range(40)])
    (large,) = built.index(["a"])
    data = built.index_path(large).read_bytes()
    small = BuiltTable(tmp_path / "u", SCHEMA)
    small.put([row(i) for i in range(10)])
    small.swap_payload("a", data)
    small.publish()
    with capture_logs() as logs:
        assert ids(Scan(small.store, "a = 1")) == [1, 6]
    assert len(logs) == 1 and "ordinal" in logs[0]["error"]


def test_a_damaged_data_file_is_an_error_that_names_it(table: BuiltTable) -> None:
    (path,) = [path for path in Path(table.store.uri).glob("bucket-0/*") if path.name == Scan(table.store).explain().files[0].file]
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CorruptFile, match=path.name):
        Scan(table.store).to_arrow()
    path.unlink()
    with pytest.raises(MissingFile, match=path.name):
        Scan(table.store).to_arrow()
    assert ids(Scan(table.store, "id >= 20")) == VISIBLE[18:]


PARTITIONED = schema(
    {"p": "STRING", "n": "INT", "id": "BIGINT", "v": "INT"},
    ["p", "n", "id"],
    ["p", "n"],
    {"bucket": "4", "deletion-vectors.enabled": "true", "pk-btree.index.columns": "v"},
)


@pytest.fixture
def partitioned(tmp_path: Path) -> BuiltTable:
    built = BuiltTable(tmp_path / "t", PARTITIONED)
    built.put([{"p": p, "n": n, "id": i, "v": i % 3} for p in ("a", "b/c", "ä") for n in (1, 2) for i in range(20)])
    built.index()
    built.publish()
    return built


@pytest.mark.parametrize(
    ("sql", "partitions"),
    [
        ("p = 'b/c'", [("b/c", 1), ("b/c", 2)]),
        ("p > 'a' AND n = 2 AND v = 1", [("b/c", 2), ("ä", 2)]),
        ("p = 'a' AND v = 1 OR n = 2 AND p LIKE 'b%'", [("a", 1), ("a", 2), ("b/c", 2)]),
        ("p = 'a' OR v = 1", [(p, n) for p in ("a", "b/c", "ä") for n in (1, 2)]),
        ("p = 'nowhere'", []),
        ("p IS NULL", []),
    ],
)
def test_partitions_are_pruned_by_their_values(partitioned: BuiltTable, sql: str, partitions: list[tuple[str, int]]) -> None:
    scan = Scan(partitioned.store, sql)
    read = {tuple(file.partition.values()) for file in scan.explain().files if file.decision != PRUNED}
    assert read == set(partitions)
    assert {tuple(file.partition) for file in scan.explain().files} == {("p", "n")}
    pruned = {file.reason for file in scan.explain().files if tuple(file.partition.values()) not in read}
    assert pruned <= {"partition: no row can match"}
    assert sorted(map(str, scan.to_arrow().to_pylist())) == sorted(
        map(str, Scan(partitioned.store, sql, use_index=False).to_arrow().to_pylist())
    )
    assert set(zip(*(scan.to_arrow()[name].to_pylist() for name in ("p", "n")), strict=True)) <= set(partitions)


@pytest.mark.parametrize(
    ("sql", "buckets"), [("id = 7", 1), ("id IN (7, 8)", 2), ("id = 7 AND v = 1", 1), ("id > 7", 4), ("id = 7 OR v = 1", 4)]
)
def test_buckets_are_pruned_by_the_hash_of_their_keys(partitioned: BuiltTable, sql: str, buckets: int) -> None:
    explained = Scan(partitioned.store, f"p = 'a' AND n = 1 AND ({sql})").explain().files
    hashed = {file.bucket for file in explained if file.reason.startswith("bucket")}
    assert 4 - len(hashed) <= buckets
    if buckets == 4:
        assert not hashed
    everything = Scan(partitioned.store, columns=["id", "v"]).to_arrow().to_pylist()
    found = Scan(partitioned.store, sql, ["id", "v"]).to_arrow().to_pylist()
    test = {"id = 7": 7, "id IN (7, 8)": 8, "id = 7 AND v = 1": 7}.get(sql)
    if test is not None:
        assert sum(each["id"] == test for each in found) == sum(each["id"] == test for each in everything) == 6


def test_the_partition_comes_from_the_manifest_and_not_from_the_file(tmp_path: Path) -> None:
    built = BuiltTable(tmp_path / "t", PARTITIONED)
    from maintainer.format import binary_row

    where = BucketKey(binary_row.serialize(("moved", None), PARTITIONED.partition_types), 0)
    built.put([{"p": "a", "n": 1, "id": i, "v": i} for i in range(3)], key=where)
    built.publish()
    assert Scan(built.store, "p = 'moved' AND n IS NULL").to_arrow()["p"].to_pylist() == ["moved"] * 3
    assert Scan(built.store, "p = 'a'").to_arrow().num_rows == 0


def test_added_dropped_and_renamed_columns(tmp_path: Path) -> None:
    import dataclasses

    from maintainer.format import schema_json

    built = BuiltTable(tmp_path / "t", SCHEMA)
    built.put([row(i) for i in range(10)])
    built.index()
    built.publish()
    fields = tuple(dataclasses.replace(field, name="renamed") if field.name == "x" else field for field in SCHEMA.fields if field.name != "s")
    added = dataclasses.replace(schema({"z": "STRING"}).fields[0], id=9)
    added = dataclasses.replace(added, type=added.type.with_nullable(True))
    options = {key: value for key, value in OPTIONS.items() if key != "pk-bitmap.index.columns"}
    later = dataclasses.replace(SCHEMA, id=1, fields=(*fields, added), highest_field_id=9, options=options)
    built.store.storage.write(built.store.layout.schema_path(1), schema_json.encode(later))
    scan = Scan(built.store, "a = 1")
    assert scan.to_arrow().to_pydict() == {"id": [1, 6], "a": [1, 1], "renamed": [1.0, 6.0], "z": [None, None]}
    assert scan.explain().files[0].decision == INDEXED
    assert [file.decision for file in Scan(built.store, "z = 'x'").explain().files] == [PRUNED]
    assert ids(Scan(built.store, "z IS NULL AND renamed > 7")) == [8, 9]
    assert Scan(built.store, "s = 'red'", snapshot_id=1).to_arrow().column_names == ["id", "a", "s", "x"]
    with pytest.raises(UsageError, match="no column 's'; the columns are id, a, renamed, z"):
        Scan(built.store, "s = 'red'").to_arrow()


def test_an_index_says_nothing_about_a_column_whose_type_was_changed(table: BuiltTable) -> None:
    """Its payload may have been built before: the keys in it would be read as values of another type."""
    retype_column(table.store.uri, "a", type_("STRING"))
    files = Scan(table.store, "a = '1'").explain().files
    reason = "a: the type of the column was changed (INT to STRING) since some files were written: "
    assert {file.decision for file in files if file.decision != PRUNED} == {RAW}
    assert all(file.reason.startswith(reason) for file in files if file.decision == RAW)
    assert sum(file.decision == RAW for file in files) == 4
    assert ids(Scan(table.store, "a = '1'")) == [i for i in VISIBLE if i % 5 == 1]
    assert ids(Scan(table.store, "s = 'red'", ["id"])) == [i for i in VISIBLE if i % 4 == 0]


@pytest.mark.parametrize("nothing", ["FALSE", "NULL", "id > 3 AND FALSE", "id > 3 OR FALSE AND a = 1", pc.scalar(False), Or(())])
def test_a_condition_without_columns_needs_no_partition(table: BuiltTable, nothing: Any) -> None:
    found = [i for i in VISIBLE if i > 3] if isinstance(nothing, str) and " OR " in nothing else []
    for use_index in (True, False):
        assert ids(Scan(table.store, nothing, use_index=use_index)) == found
    assert ids(Scan(table.store, "id IS NULL OR TRUE")) == VISIBLE


def test_a_table_without_snapshot(tmp_path: Path) -> None:
    store = BuiltTable(tmp_path / "t", SCHEMA).store
    scan = Scan(store, "a = 1")
    assert scan.to_arrow().num_rows == 0
    assert scan.to_arrow().column_names == ["id", "a", "s", "x"]
    assert list(scan.to_batches()) == []
    assert scan.explain().to_dict()["snapshot"] is None


def test_patterns_of_one_column_are_told_apart(table: BuiltTable) -> None:
    patterns = [*(f"z{i}%" for i in range(30)), "re%", *(f"y{i}%" for i in range(30))]
    scan = Scan(table.store, " OR ".join(f"s LIKE '{pattern}'" for pattern in patterns))
    assert INDEXED in {file.decision for file in scan.explain().files}
    assert ids(scan) == [i for i in VISIBLE if i % 4 == 0]


@pytest.mark.parametrize("kind", ["data file", "manifest"])
def test_files_of_an_expiring_snapshot_are_no_damage(tmp_path: Path, kind: str) -> None:
    """Its files go before it does; so one that is missing is waited for to be explained."""
    table = SmallTable(tmp_path)
    table.write({key: key for key in range(10)})
    table.maintain()
    old = table.store.snapshot(2)
    path = (
        Path(table.path, "bucket-0", table.file(5).file_name) if kind == "data file" else Path(table.path, "manifest", old.base_manifest_list)
    )
    scan = Scan(open_store(table.path), snapshot_id=2)
    path.unlink()
    with pytest.raises(MissingFile):  # of the latest snapshot
        scan.to_arrow()
    Path(table.path, "snapshot", "snapshot-3").write_text(snapshot_json.encode(replace(old, id=3, uuid="next")).decode())
    timer = threading.Timer(0.2, Path(table.path, "snapshot", "snapshot-2").unlink)
    timer.start()
    with pytest.raises(SnapshotExpired, match="snapshot 2 expired while it was read"):
        scan.to_arrow()
    timer.join()
