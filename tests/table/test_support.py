"""The allow-list: what is maintained, what is read, and that a refusal names its option and its reason."""

from __future__ import annotations

from dataclasses import replace

import pytest

from maintainer.errors import Unsupported
from maintainer.model.schema import TableSchema
from maintainer.model.types import DataField, DataType
from maintainer.table import support
from maintainer.table.support import (
    ACTED_ON,
    HARMLESS,
    NOT_READ,
    REFUSED,
    check_live_files,
    check_maintainable,
    check_readable,
    file_format,
    findings,
)
from tests.support import builders
from tests.support.builders import file_meta, type_

GOOD = {"bucket": "2", "deletion-vectors.enabled": "true"}


def schema(**options: str | None) -> TableSchema:
    """The plain table in scope, with options; `None` leaves one out. Underscores stand for dots."""
    merged = {**GOOD, **{key.replace("__", "-").replace("_", "."): value for key, value in options.items()}}
    return builders.schema(options={key: value for key, value in merged.items() if value is not None})


def with_option(key: str, value: str) -> TableSchema:
    return builders.schema(options={**GOOD, key: value})


def test_the_plain_table_is_in_scope() -> None:
    assert findings(builders.schema(options=GOOD)) == []


REFUSED_OPTIONS = [
    ("sequence.snapshot-ordering", "true", "false"),
    ("file-index.bloom-filter.columns", "v", ""),
    ("file-index.bloom-filter.v.fpp", "0.1", ""),
    ("file.format", "csv", "AVRO"),
    ("file.compression", "lzo", "SNAPPY"),
    ("index-file-in-data-file-dir", "true", "false"),
    ("data-file.external-paths", "s3://b", ""),
    ("data-file.external-paths.strategy", "round-robin", "none"),
    ("global-index.external-path", "s3://b", ""),
    ("primary-key.nullable", "true", "false"),
    ("pk-clustering-override", "true", "false"),
    ("chain-table.enabled", "true", "false"),
    ("pk-vector.index.columns", "v", ""),
    ("pk-full-text.index.columns", "v", ""),
    ("lock.enabled", "true", "false"),
    ("row-tracking.enabled", "true", "false"),
    ("data-evolution.enabled", "true", "false"),
    ("blob-field", "v", ""),
    ("metadata.iceberg.storage", "hadoop-catalog", "disabled"),
    ("query-auth.enabled", "true", "false"),
    ("commit.callbacks", "com.example.Callback", ""),
    ("parquet.encryption.footer.key", "k", ""),
    ("fields.v.map.storage-layout", "shared-shredding", "default"),
    ("type", "format-table", "table"),
]


@pytest.mark.parametrize(("key", "value", "default"), REFUSED_OPTIONS)
def test_an_option_out_of_scope_is_refused_by_name_and_accepted_when_off(key: str, value: str, default: str) -> None:
    with pytest.raises(Unsupported, match=f"cannot be maintained: .*{key} = {value}: .+") as caught:
        check_maintainable(with_option(key, value))
    assert caught.value.exit_code == 7
    check_maintainable(with_option(key, default))


READ_REFUSED = [
    ("chain-table.enabled", "true"),
    ("pk-clustering-override", "true"),
    ("data-evolution.enabled", "true"),
    ("query-auth.enabled", "true"),
    ("type", "iceberg-table"),
    ("scan.watermark", "3"),
    ("scan.mode", "from-creation-timestamp"),
    ("scan.mode", "latest-delta"),
    ("incremental-between", "1,2"),
    ("scan.fallback-branch", "b"),
    ("fields.v.map.storage-layout", "shared-shredding"),
]


@pytest.mark.parametrize(("key", "value"), READ_REFUSED)
def test_reading_is_refused_where_rows_could_be_wrong(key: str, value: str) -> None:
    with pytest.raises(Unsupported, match=f"cannot be read: {key} = {value}: .+"):
        check_readable(with_option(key, value))


@pytest.mark.parametrize(("key", "value", "_default"), [case for case in REFUSED_OPTIONS if case[:2] not in READ_REFUSED])
def test_what_only_writers_must_know_can_be_read(key: str, value: str, _default: str) -> None:
    if key != "type":
        check_readable(with_option(key, value))


@pytest.mark.parametrize("key", [key for key, _ in READ_REFUSED if key.startswith(("scan.", "incremental"))])
def test_options_of_readers_do_not_stop_maintenance(key: str) -> None:
    check_maintainable(with_option(key, "1"))


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"bucket": "-1"}, "bucket = -1: .*dynamic"),
        ({"bucket": None}, "bucket = -1: .*dynamic"),
        ({"bucket": "-2"}, "bucket = -2: .*postpone"),
        ({"bucket": "0"}, "bucket = 0: .*positive"),
        ({"merge-engine": "first-row"}, "deletion-vectors.enabled: the first-row engine"),
        ({"changelog-producer": "full-compaction"}, "changelog-producer"),
        ({"sequence.field": "ts"}, "sequence.field = 'ts': there is no column"),
        ({"record-level.expire-time": "1 d"}, "record-level.expire-time: record-level.time-field must name"),
        ({"record-level.expire-time": "1 d", "record-level.time-field": "name"}, "record-level.time-field = 'name': its type"),
    ],
)
def test_kinds_of_tables(options: dict[str, str | None], what: str) -> None:
    table = builders.schema(options={key: value for key, value in {**GOOD, **options}.items() if value is not None})
    with pytest.raises(Unsupported, match=what):
        check_maintainable(table)
    check_readable(table)


def test_a_table_without_primary_key() -> None:
    table = replace(builders.schema(options={"bucket": "2"}), primary_keys=())
    with pytest.raises(Unsupported, match="no primary key"):
        check_maintainable(table)
    check_readable(table)
    check_readable(replace(table, options=GOOD))


def test_a_primary_key_without_all_partition_keys() -> None:
    table = builders.schema({"id": "INT", "p": "STRING"}, ["id"], ["p"], GOOD)
    with pytest.raises(Unsupported, match=r"partitioned by p: .*move between partitions"):
        check_maintainable(table)


def test_a_binary_partition_column() -> None:
    table = builders.schema({"p": "BYTES NOT NULL", "id": "INT"}, ["p", "id"], ["p"], GOOD)
    for check in (check_maintainable, check_readable):
        with pytest.raises(Unsupported, match="partition column p: type BYTES"):
            check(table)


def test_a_partition_column_whose_directory_depends_on_the_time_zone() -> None:
    columns = {"p": "TIMESTAMP(3) WITH LOCAL TIME ZONE NOT NULL", "id": "INT"}
    check_maintainable(builders.schema(columns, ["p", "id"], ["p"], GOOD))
    with pytest.raises(Unsupported, match="time zone"):
        check_maintainable(builders.schema(columns, ["p", "id"], ["p"], {**GOOD, "partition.legacy-name": "false"}))


def test_a_blob_column() -> None:
    with pytest.raises(Unsupported, match="column b: type BLOB"):
        check_maintainable(builders.schema({"id": "INT", "b": "BLOB"}, options=GOOD))


def test_retyped_columns_between_schemas_of_live_files() -> None:
    old = builders.schema({"id": "INT", "v": "INT", "r": "ROW<a INT>"}, options=GOOD)
    check_maintainable(builders.schema({"id": "INT", "v": "BIGINT", "r": "ROW<a STRING>"}, options=GOOD, schema_id=1), [old])
    new = builders.schema({"id": "INT", "v": "DATE", "r": "ROW<a INT>"}, options=GOOD, schema_id=1)
    check_maintainable(new, [new])
    with pytest.raises(Unsupported, match=r"column v: its type was changed since schema 0 \(INT to DATE\)"):
        check_maintainable(new, [new, old])
    nullable = replace(old, fields=tuple(replace(f, type=f.type.with_nullable(False)) for f in old.fields))
    renamed = replace(old, fields=tuple(DataField(f.id, f"{f.name}2", f.type) for f in old.fields), id=2, primary_keys=("id2",))
    check_maintainable(old, [nullable, renamed])
    deeper = builders.schema({"id": "INT", "v": "INT", "r": "ROW<a DATE>"}, options=GOOD)
    with pytest.raises(Unsupported, match="column r"):
        check_maintainable(old, [deeper])


MEMBERS = [
    ("ROW<a INT, b STRING>", "ROW<b STRING, c DATE>", [1, 2], [2, 3], True),
    ("ROW<a INT, b STRING>", "ROW<x INT, a STRING>", [1, 2], [1, 2], True),
    ("ROW<a INT, b STRING>", "ROW<a STRING, b STRING>", [1, 2], [3, 2], True),
    ("ROW<a INT>", "ROW<a DATE>", [1], [1], False),
    ("ROW<a VARCHAR(3)>", "ROW<a BIGINT>", [1], [1], True),
    ("ROW<a TIME(3)>", "ROW<a TIME(0)>", [1], [1], False),
]


@pytest.mark.parametrize("around", ["{}", "ARRAY<{}>", "MAP<STRING, {}>", "ARRAY<MAP<INT, {}>>"])
@pytest.mark.parametrize(("before", "after", "ids", "later_ids", "fine"), MEMBERS)
def test_members_of_rows_come_and_go_like_columns(
    before: str, after: str, ids: list[int], later_ids: list[int], fine: bool, around: str
) -> None:
    def schema(text: str, member_ids: list[int], schema_id: int) -> TableSchema:
        made = builders.schema({"id": "INT", "r": around.format(text)}, options=GOOD, schema_id=schema_id)
        return replace(made, fields=(made.fields[0], replace(made.fields[1], type=numbered(made.fields[1].type, member_ids))))

    old, new = schema(before, ids, 0), schema(after, later_ids, 1)
    if fine:
        check_maintainable(new, [old, new])
    else:
        with pytest.raises(Unsupported, match="column r: its type was changed since schema 0"):
            check_maintainable(new, [old, new])


def numbered(data_type: DataType, ids: list[int]) -> DataType:
    """The type with these ids for the members of its only ROW."""
    if data_type.element is not None:
        return replace(data_type, element=numbered(data_type.element, ids))
    return replace(data_type, fields=tuple(replace(field, id=number) for field, number in zip(data_type.fields, ids, strict=True)))


def test_an_unknown_option_is_refused_until_the_user_vouches_for_it() -> None:
    table = with_option("something.new", "42")
    with pytest.raises(Unsupported, match=r"something\.new = 42: .*maintain\.ignored-options"):
        check_maintainable(table)
    check_readable(table)
    check_maintainable(replace(table, options={**table.options, "maintain.ignored-options": "a, something.new"}))


@pytest.mark.parametrize(
    ("slip", "meant"),
    [("pk-btree.index.column", "pk-btree.index.columns"), ("write_only", "write-only"), ("buckets", "bucket"), ("something.new", None)],
)
def test_a_slip_is_told_what_was_meant(slip: str, meant: str | None) -> None:
    (found,) = findings(with_option(slip, "1"))
    assert (f"(did you mean {meant}?)" in found.why) if meant else ("did you mean" not in found.why)


def test_a_refused_option_cannot_be_vouched_for() -> None:
    table = replace(with_option("sequence.field", "v"), options={**GOOD, "sequence.field": "v", "maintain.ignored-options": "sequence.field"})
    with pytest.raises(Unsupported, match=r"sequence\.field"):
        check_maintainable(table)


def test_all_findings_are_named_at_once() -> None:
    table = builders.schema(options={"bucket": "-1", "sequence.field": "v", "sequence.snapshot-ordering": "true"})
    with pytest.raises(Unsupported) as caught:
        check_maintainable(table)
    for what in ("bucket = -1", "sequence.snapshot-ordering = true", "sequence.field = 'v'"):
        assert what in str(caught.value)


ORDINARY = {
    "path": "/wh/db.db/t",
    "owner": "root",
    "provider": "paimon",
    "transient_lastDdlTime": "1700000000",
    "write-only": "true",
    "snapshot.time-retained": "7 d",
    "snapshot.num-retained.min": "5",
    "tag.automatic-creation": "process-time",
    "tag.creation-period": "daily",
    "partition.expiration-time": "30 d",
    "partition.timestamp-formatter": "yyyyMMdd",
    "consumer.expiration-time": "1 d",
    "scan.parallelism": "4",
    "sink.parallelism": "4",
    "source.split.target-size": "256 mb",
    "metastore.partitioned-table": "true",
    "num-sorted-run.stop-trigger": "2147483647",
    "sort-spill-threshold": "10",
    "lookup-wait": "false",
    "lookup-compact": "gentle",
    "changelog-producer.row-deduplicate": "true",
    "parquet.block.size": "1048576",
    "metadata.stats-mode": "none",
    "fields.v.stats-mode": "full",
    "pk-btree.index.columns": "name",
    "fields.name.pk-btree.index.options": "{}",
    "btree-index.block-size": "32 kb",
    "write-buffer-size": "64 mb",
    "commit.user-prefix": "x",
    "full-compaction.delta-commits": "5",
    "publish.single-writer": "true",
    "read.group-acceptance": "relaxed",
    "read.index-cache-size": "0",
    "read.file-cache-size": "0",
    "maintain.rewrite-append": "false",
}


def test_ordinary_options_of_engines_pass() -> None:
    assert findings(builders.schema(options={**GOOD, **ORDINARY})) == []


def test_every_option_is_on_one_list_and_every_list_gives_reasons() -> None:
    lists = [support._words(table) for table in (ACTED_ON, HARMLESS, NOT_READ)]
    counted = [key for words in lists for key in words]
    assert sorted(counted) == sorted(set(counted))
    assert not set(counted) & REFUSED.keys()
    assert all(reason for words in lists for reason in words.values())
    assert all(refusal.reason and refusal.accepted for refusal in REFUSED.values())


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("data-1-0.parquet", "parquet"),
        ("data-1-0.PARQUET", "parquet"),
        ("data-1-0.zst.avro", "avro"),
        ("data-1-0.json.gz", "json"),
        ("data-1-0.zstd.parquet", "parquet"),
        ("data-1-0", ""),
        ("x.gz", "gz"),
    ],
)
def test_the_format_of_a_file_is_in_its_name(name: str, expected: str) -> None:
    assert file_format(name) == expected


def test_files_that_cannot_be_read_are_named() -> None:
    check_live_files([file_meta("a.parquet"), file_meta("b.zst.parquet")])
    for bad, says in [
        (file_meta("a.csv"), "'csv'"),
        (file_meta("a"), "''"),
        (file_meta("a.parquet", external_path="s3://b/a.parquet"), "s3://b"),
        (file_meta("a.parquet", write_cols=("v",)), "some of the columns"),
        (file_meta("a.parquet", first_row_id=0), "row ids"),
    ]:
        with pytest.raises(Unsupported, match=f"{bad.file_name}: .*{says}"):
            check_live_files([file_meta(), bad])


def test_types_of_the_scope_are_no_finding() -> None:
    kinds = ["VARIANT", "VECTOR<FLOAT, 3>", "MAP<STRING, ARRAY<ROW<a INT>>>", "MULTISET<INT>", "TIMESTAMP(9)", "DECIMAL(38, 10)", "TIME(3)"]
    columns = {"id": "INT", **{f"c{number}": type_(kind) for number, kind in enumerate(kinds)}}
    assert findings(builders.schema(columns, options=GOOD)) == []
