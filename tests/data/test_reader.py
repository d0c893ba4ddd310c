from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from maintainer.data.reader import RowGroup
from maintainer.data.values import from_arrow
from maintainer.errors import CastError, CorruptFile, MaintainerError, MissingFile, Unsupported
from maintainer.model.files import DataFileMeta
from maintainer.model.schema import TableSchema
from maintainer.model.types import DataField
from maintainer.storage.storage import Storage
from tests.support import builders, campaign
from tests.support.data_files import kv_table, open_file, put, write_rows

SCHEMA = builders.schema({"id": "INT", "name": "STRING", "price": "DOUBLE"})
ALL = ["id", "name", "price", "_SEQUENCE_NUMBER", "_VALUE_KIND"]


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage.open(str(tmp_path))


def rows(count: int) -> pa.Table:
    return kv_table(SCHEMA, {"id": range(count), "name": [f"n{i}" for i in range(count)], "price": [i / 2 for i in range(count)]})


def grouped(storage: Storage, count: int = 100, group: int = 30) -> DataFileMeta:
    """A file of several row groups, without key columns."""
    return put(storage, rows(count), row_group_size=group)


def test_reads_what_was_written(storage: Storage) -> None:
    (meta,) = write_rows(storage, SCHEMA, rows(50))
    with open_file(storage, meta, SCHEMA) as file:
        assert file.row_count == 50
        assert file.read(ALL).to_pylist() == rows(50).to_pylist()
        assert file.read(["price", "id"]).column_names == ["price", "id"]


def test_fields_have_the_nullability_of_the_schema_and_no_ids(storage: Storage) -> None:
    (meta,) = write_rows(storage, SCHEMA, rows(5))
    with open_file(storage, meta, SCHEMA) as file:
        schema = file.read(["id", "name", "_VALUE_KIND"]).schema
    assert schema.equals(pa.schema([pa.field("id", pa.int32(), False), ("name", pa.string()), pa.field("_VALUE_KIND", pa.int8(), False)]), True)


def test_row_groups_are_physical(storage: Storage) -> None:
    with open_file(storage, grouped(storage), SCHEMA) as file:
        assert file.row_groups == (RowGroup(0, 30), RowGroup(30, 30), RowGroup(60, 30), RowGroup(90, 10))
        assert file.read(["id"], [2, 0])["id"].to_pylist() == [*range(60, 90), *range(30)]
        assert file.read(["id"], []).num_rows == 0


@pytest.mark.parametrize("columns", [ALL, ["id"], []])
@pytest.mark.parametrize("batch_rows", [7, 30, 1000])
def test_batches_come_with_their_physical_position(storage: Storage, columns: list[str], batch_rows: int) -> None:
    with open_file(storage, grouped(storage), SCHEMA) as file:
        for groups, wanted in ((None, [*range(100)]), ([1, 3], [*range(30, 60), *range(90, 100)]), ([3, 2], [*range(90, 100), *range(60, 90)])):
            found: list[int] = []
            for first, batch in file.batches(columns, batch_rows, groups):
                assert 0 < batch.num_rows <= batch_rows
                if columns:
                    assert batch.column("id").to_pylist() == [*range(first, first + batch.num_rows)]
                found += range(first, first + batch.num_rows)
            assert found == wanted


def test_bounds_of_row_groups(storage: Storage) -> None:
    meta = grouped(storage)
    with open_file(storage, meta, SCHEMA) as file:
        assert file.group_bounds("id") == [(0, 29), (30, 59), (60, 89), (90, 99)]
        assert file.group_bounds("name")[0] == ("n0", "n9")
        assert 0 < file.stored_bytes("price") < meta.file_size
        (low, high), *_ = file.group_bounds("price")  # type: ignore[misc]
        assert str((low, high)) == "(-0.0, nan)"


@pytest.mark.parametrize(
    ("text", "column", "bounds"),
    [
        ("DECIMAL(38, 2)", pa.array(["-1.00", "2.50"]).cast(pa.decimal128(38, 2)), "(Decimal('-1.00'), Decimal('2.50'))"),
        ("DECIMAL(5, 2)", pa.array(["-1.00", "2.50"]).cast(pa.decimal128(5, 2)), "(Decimal('-1.00'), Decimal('2.50'))"),
        ("TIMESTAMP(3)", pa.array([-1, 5], pa.timestamp("ms")), "(-1000000, 5000000)"),
        ("TIMESTAMP(6)", pa.array([-1, 5], pa.timestamp("us")), "(-1000, 5000)"),
        ("TIMESTAMP(9)", pa.array([-1, 5], pa.timestamp("ns")), "(-1, 5)"),
        ("TIME(3)", pa.array([1000, 5000], pa.time32("ms")), "(1000, 5000)"),
        ("TIME(3)", pa.array([1000, 5000], pa.time64("us")), "(1, 5)"),
        ("DATE", pa.array([-1, 5], pa.date32()), "(-1, 5)"),
        ("BYTES", pa.array([b"\xff", b"a"]), r"(b'a', b'\xff')"),
        ("STRING", pa.array(["豈", "😀"]), "('豈', '😀')"),
        ("BOOLEAN", pa.array([True, False]), "(False, True)"),
        ("BIGINT", pa.array([None, None], pa.int64()), "None"),
        ("ARRAY<INT>", pa.array([[1], [2]], pa.list_(pa.int32())), "None"),
    ],
)
@pytest.mark.parametrize("integers", [True, False])
def test_bounds_are_internal_values(storage: Storage, text: str, column: pa.Array, bounds: str, integers: bool) -> None:
    schema = builders.schema({"id": "INT", "c": text})
    table = kv_table(builders.schema({"id": "INT"}), {"id": [1, 2]}).append_column("c", column)
    with open_file(storage, put(storage, table, store_decimal_as_integer=integers), schema) as file:
        assert repr(file.group_bounds("c")) == f"[{bounds}]"


def test_bounds_of_int96_and_of_missing_columns_are_unknown(storage: Storage) -> None:
    schema = builders.schema({"id": "INT", "t": "TIMESTAMP(9)", "added": "INT"})
    table = kv_table(builders.schema({"id": "INT"}), {"id": [1, 2]}).append_column("t", pa.array([1, 2], pa.timestamp("ns")))
    with open_file(storage, put(storage, table, use_deprecated_int96_timestamps=True), schema) as file:
        assert file.group_bounds("t") == file.group_bounds("added") == [None]
        assert file.stored_bytes("added") == 0


def evolved(*fields: tuple[int, str, str]) -> TableSchema:
    return replace(SCHEMA, id=1, fields=tuple(DataField(number, name, builders.type_(text)) for number, name, text in fields))


def test_columns_of_an_older_schema(storage: Storage) -> None:
    newer = evolved((2, "cost", "DOUBLE"), (0, "key", "INT NOT NULL"), (5, "name", "STRING"), (6, "tags", "ARRAY<STRING>"))
    newer = replace(newer, primary_keys=("key",))
    (meta,) = write_rows(storage, SCHEMA, rows(3))
    with open_file(storage, meta, SCHEMA, newer) as file:
        wanted = [{"cost": i / 2, "key": i, "name": None, "tags": None, "_VALUE_KIND": 0} for i in range(3)]
        assert file.read(["cost", "key", "name", "tags", "_VALUE_KIND"]).to_pylist() == wanted
        assert [row for _, batch in file.batches(["tags", "key"], 2) for row in batch.to_pylist()] == [
            {"tags": None, "key": i} for i in range(3)
        ]
        assert [batch.num_rows for _, batch in file.batches(["tags"], 2)] == [2, 1]
        assert file.group_bounds("key") == [(0, 2)]


def test_retyped_column_is_refused_by_file_and_column(storage: Storage) -> None:
    (meta,) = write_rows(storage, SCHEMA, rows(3))
    with open_file(storage, meta, SCHEMA, evolved((0, "id", "DATE NOT NULL"), (1, "name", "STRING"))) as file:
        assert file.read(["name"]).num_rows == 3
        for read in (file.read, file.group_bounds, lambda names: list(file.batches(names, 10))):
            with pytest.raises(Unsupported, match=rf"{meta.file_name}: column id: .*INT to DATE"):
                read(["id"] if read != file.group_bounds else "id")  # type: ignore[arg-type]


def test_retyped_columns_are_cast_and_have_bounds_where_order_is_kept(storage: Storage) -> None:
    (meta,) = write_rows(storage, SCHEMA, rows(3))
    with open_file(storage, meta, SCHEMA, evolved((0, "id", "BIGINT NOT NULL"), (1, "name", "STRING"))) as file:
        assert file.read(["id"]).to_pydict() == {"id": [0, 1, 2]}
        assert file.read(["id"]).schema.field("id").type == pa.int64()
        assert file.group_bounds("id") == [(0, 2)]
    with open_file(storage, meta, SCHEMA, evolved((0, "id", "STRING NOT NULL"), (1, "name", "INT"))) as file:
        assert file.read(["id"]).to_pydict() == {"id": ["0", "1", "2"]}
        assert file.group_bounds("id") == [None]
        with pytest.raises(CastError, match=rf"{meta.file_name}: column name: '.*' is no INT"):
            file.read(["name"])


def test_column_order_extra_columns_and_foreign_schemas_do_not_matter(storage: Storage) -> None:
    table = rows(10).select(ALL[::-1]).append_column("more", pa.array(range(10)))
    dictionary = table.set_column(3, "name", table["name"].dictionary_encode()).cast(
        pa.schema([(f.name, pa.large_string() if f.name == "name" else f.type) for f in table.schema])
    )
    for name, stored in (("a.parquet", table), ("b.parquet", dictionary)):
        meta = put(storage, stored, name, store_schema=True, version="2.6", data_page_version="2.0", compression="lz4")
        with open_file(storage, meta, SCHEMA) as file:
            assert file.read(ALL).to_pylist() == rows(10).to_pylist()


def test_names_with_dots_are_names(storage: Storage) -> None:
    schema = builders.schema({"a": "INT", "a.b": "INT", "r": "ROW<b INT>", "r.b": "STRING"})
    table = kv_table(schema, {"a": [1], "a.b": [2], "r": [(3,)], "r.b": ["x"]})
    (meta,) = write_rows(storage, schema, table)
    with open_file(storage, meta, schema) as file:
        assert file.read(["r.b", "a", "r", "a.b"]).to_pylist() == [{"r.b": "x", "a": 1, "r": {"b": 3}, "a.b": 2}]
        assert file.read(["a"]).to_pylist() == [{"a": 1}]
        assert file.group_bounds("a.b") == [(2, 2)]
        assert file.group_bounds("r.b") == [("x", "x")]


def test_column_that_the_file_lacks_is_null(storage: Storage) -> None:
    meta = put(storage, rows(3).drop_columns(["name"]))
    with open_file(storage, meta, SCHEMA) as file:
        assert file.read(["name", "id"]).to_pylist() == [{"name": None, "id": i} for i in range(3)]


@pytest.mark.parametrize("column", ["id", "_SEQUENCE_NUMBER", "_VALUE_KIND"])
def test_column_that_must_be_there(storage: Storage, column: str) -> None:
    with open_file(storage, put(storage, rows(3).drop_columns([column])), SCHEMA) as file, pytest.raises(CorruptFile, match=column):
        file.read([column])


@pytest.mark.parametrize("column", ["id", "_SEQUENCE_NUMBER", "_VALUE_KIND"])
def test_null_where_there_must_be_a_value(storage: Storage, column: str) -> None:
    table = rows(3)
    index = table.column_names.index(column)
    table = table.set_column(index, column, pa.nulls(3, table.schema.field(column).type))
    with open_file(storage, put(storage, table), SCHEMA) as file, pytest.raises(CorruptFile, match=f"column {column}: NULL"):
        file.read([column])


def test_unknown_row_kind_is_corrupt(storage: Storage) -> None:
    table = rows(3).set_column(4, "_VALUE_KIND", pa.array([0, 4, 1], pa.int8()))
    with open_file(storage, put(storage, table), SCHEMA) as file, pytest.raises(CorruptFile, match="row kinds from 0 to 4"):
        file.read(["_VALUE_KIND"])


def test_two_columns_of_one_name(storage: Storage) -> None:
    table = rows(3).append_column("name", pa.array(["x"] * 3))
    with open_file(storage, put(storage, table), SCHEMA) as file, pytest.raises(CorruptFile, match="2 columns have the name name"):
        file.read(["name"])


def test_text_that_is_not_utf_8_is_corrupt(storage: Storage) -> None:
    bad = pa.Array.from_buffers(pa.string(), 1, pa.array([b"\xff\xfe"]).buffers())
    with open_file(storage, put(storage, rows(1).set_column(1, "name", bad)), SCHEMA) as file, pytest.raises(CorruptFile, match="column name"):
        file.read(["name"])


def test_int96_is_read_in_the_precision_of_the_column(storage: Storage) -> None:
    schema = builders.schema({"id": "INT", "a": "TIMESTAMP(9)", "b": "TIMESTAMP(3) WITH LOCAL TIME ZONE", "c": "ARRAY<TIMESTAMP(6)>"})
    ns = pa.timestamp("ns")
    table = kv_table(builders.schema({"id": "INT"}), {"id": [1, 2, 3]})
    for name, column in {
        "a": pa.array([-1, None, 2**63 - 1], ns),
        "b": pa.array([-1, None, 1_999_999], ns),
        "c": pa.array([[-1, 1999], None, []], pa.list_(ns)),
    }.items():
        table = table.append_column(name, column)
    with open_file(storage, put(storage, table, use_deprecated_int96_timestamps=True), schema) as file:
        found = file.read(["a", "b", "c"])
    assert [from_arrow(found[name], schema.field(name).type) for name in "abc"] == [
        [-1, None, 2**63 - 1],
        [-1_000_000, None, 1_000_000],
        [[-1000, 1000], None, []],
    ]


def test_time_that_64_bits_cannot_hold_names_column_and_file(storage: Storage) -> None:
    schema = builders.schema({"id": "INT", "t": "TIMESTAMP(9)"})
    table = kv_table(builders.schema({"id": "INT"}), {"id": [1]}).append_column("t", pa.array([2**54], pa.timestamp("us")))
    with open_file(storage, put(storage, table), schema) as file, pytest.raises(Unsupported, match=r"data-x.parquet: column t: .*2262-04-11"):
        file.read(["t"])


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"file_size": -1}, "its metadata says"),
        ({"file_size": +1}, "its metadata says"),
        ({"row_count": +1}, "its metadata 101"),
        ({"row_count": -1}, "its metadata 99"),
    ],
)
def test_size_and_row_count_must_be_those_of_the_metadata(storage: Storage, change: dict[str, int], reason: str) -> None:
    meta = grouped(storage)
    wrong: dict[str, Any] = {name: getattr(meta, name) + by for name, by in change.items()}
    with pytest.raises(CorruptFile, match=rf"bucket-0/data-x.parquet: corrupt: .*{reason}"):
        open_file(storage, replace(meta, **wrong), SCHEMA)


def test_missing_file(storage: Storage) -> None:
    with pytest.raises(MissingFile, match=r"data-y\.parquet"):
        open_file(storage, builders.file_meta("data-y.parquet"), SCHEMA)


@pytest.mark.parametrize("size", [0, 3, 8, 11, 100])
def test_truncated_file(storage: Storage, tmp_path: Path, size: int) -> None:
    meta = grouped(storage)
    path = tmp_path / "bucket-0" / meta.file_name
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(CorruptFile, match=r"data-x\.parquet"):
        open_file(storage, replace(meta, file_size=size), SCHEMA)


@pytest.mark.parametrize("name", ["data-1.lance", "data-1.csv", "data-1"])
def test_other_formats_are_unsupported(storage: Storage, name: str) -> None:
    with pytest.raises(Unsupported, match=f"unsupported data file format .* in file .*{name}"):
        open_file(storage, builders.file_meta(name), SCHEMA)


def test_flipped_bytes_of_our_pages_are_noticed(storage: Storage, tmp_path: Path) -> None:
    (meta,) = write_rows(storage, SCHEMA, rows(300))
    path = tmp_path / "bucket-0" / meta.file_name
    data = path.read_bytes()
    footer = pq.read_metadata(path)
    chunk = footer.row_group(0).column(4)  # name
    start, end = chunk.data_page_offset, chunk.data_page_offset + chunk.total_compressed_size
    body = [at for at in range(start + 40, end) if at < end]
    for at in random.Random(1).sample(body, 60):
        mutated = bytearray(data)
        mutated[at] ^= 0x10
        path.write_bytes(mutated)
        with open_file(storage, meta, SCHEMA) as file, pytest.raises(CorruptFile, match=meta.file_name):
            file.read(ALL)


def test_mutated_files_raise_our_errors_only(storage: Storage, tmp_path: Path) -> None:
    (meta,) = write_rows(storage, SCHEMA, rows(40))
    path = tmp_path / "bucket-0" / meta.file_name
    data = path.read_bytes()
    chance = random.Random(2)
    outcomes = set()
    for _ in range(campaign.share("mutated data files", short=400, long=5000)):
        mutated = bytearray(data)
        mutated[chance.randrange(len(data))] ^= chance.choice([1, 2, 16, 128, 255])
        path.write_bytes(mutated)
        try:
            with open_file(storage, meta, SCHEMA) as file:
                file.read(ALL)
                list(file.batches(ALL, 7))
                for name in SCHEMA.names:
                    file.group_bounds(name)
            outcomes.add("read")
        except MaintainerError as error:
            assert meta.file_name in str(error)
            outcomes.add(type(error).__name__)
    assert {"read", "CorruptFile"} <= outcomes
