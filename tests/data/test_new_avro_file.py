"""Avro files that we write."""

from __future__ import annotations

import io
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maintainer.data.avro_encoding import encode
from maintainer.data.values import from_arrow, to_arrow_array
from maintainer.errors import CorruptFile, Unsupported
from maintainer.format import avro, avro_record, data_formats
from maintainer.model.types import DataField, DataType
from maintainer.storage.storage import Storage
from tests.support import builders, strategies
from tests.support.data_files import kv_table, open_file, write_rows

AVRO = {"file.format": "avro"}


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage.open(str(tmp_path))


def held(data_type: DataType) -> bool:
    return not list(data_formats.unheld("avro", [DataField(0, "c", data_type)]))


def encoded(text: str, values: list[Any]) -> list[str]:
    data_type = builders.types(text)[0]
    return [record.hex() for record in encode([to_arrow_array(values, data_type)], [DataField(0, "c", data_type)]).to_pylist()]


@pytest.mark.parametrize(
    ("text", "values", "records"),
    [
        ("INT NOT NULL", [0, -1, 1, 63, 64, -64, -65, 2**31 - 1, -(2**31)], "00 01 02 7e 8001 7f 8101 feffffff0f ffffffff0f"),
        ("BIGINT", [None, 0, -(2**63), 2**63 - 1], "00 0200 02ffffffffffffffffff01 02feffffffffffffffff01"),
        ("TINYINT NOT NULL", [-128, 127], "ff01 fe01"),
        ("BOOLEAN", [True, False, None], "0201 0200 00"),
        ("FLOAT NOT NULL", [1.0], "0000803f"),
        ("DOUBLE NOT NULL", [1.0], "000000000000f03f"),
        ("STRING", ["", "a", None, "ä"], "0200 020261 00 0204c3a4"),
        ("BYTES NOT NULL", [b"\xff" * 64], "8001" + "ff" * 64),
        (
            "DECIMAL(38, 0)",
            [Decimal(n) for n in (0, 1, -1, 127, 128, -128, -129, 10**37)],
            "020200 020201 0202ff 02027f 02040080 020280 0204ff7f 02200785ee10d5da46d900f436a000000000",
        ),
        ("ARRAY<INT>", [[1, None], [], None], "020402020000 0200 00"),
        ("MAP<STRING, INT NOT NULL>", [[("a", 1)], []], "020202610200 0200"),
        ("MAP<INT, INT>", [[(1, None)]], "020202020000"),
        ("MULTISET<STRING>", [[("a", 2)]], "020202610400"),
        ("ROW<a INT NOT NULL, b STRING NOT NULL>", [(1, "x"), None], "02020278 00"),
        ("ROW<a ROW<b INT NOT NULL> NOT NULL>", [None, ((5,),)], "00 020a"),
    ],
)
def test_bytes_of_values(text: str, values: list[Any], records: str) -> None:
    assert encoded(text, values) == records.split()


@given(
    st.lists(strategies.data_types().filter(held), min_size=1, max_size=4).flatmap(
        lambda types: st.tuples(st.just(types), st.lists(strategies.rows(types), min_size=1, max_size=6))
    ),
    st.booleans(),
)
def test_round_trip_of_every_type(
    tmp_path_factory: pytest.TempPathFactory, case: tuple[list[DataType], list[tuple[Any, ...]]], polars: bool
) -> None:
    types, values = case
    schema = builders.schema({"id": "INT"} | {f"c{i}": data_type for i, data_type in enumerate(types)})
    columns = {"id": range(len(values))} | {f"c{i}": [row[i] for row in values] for i in range(len(types))}
    storage = Storage.open(str(tmp_path_factory.mktemp("t")))
    (meta,) = write_rows(storage, schema, kv_table(schema, columns), options=AVRO)
    with pytest.MonkeyPatch.context() as patch:
        if not polars:
            patch.setitem(sys.modules, "polars", None)
        with open_file(storage, meta, schema) as file:
            table = file.read(schema.names)
    for name, data_type in zip(list(columns)[1:], types, strict=True):
        assert builders.same(from_arrow(table[name], data_type), columns[name])


@given(strategies.data_types().filter(held).flatmap(lambda t: st.tuples(st.just(t), st.lists(strategies.values(t), min_size=3, max_size=9))))
def test_slices_and_hidden_values_are_encoded_as_what_they_show(case: tuple[DataType, list[Any]]) -> None:
    data_type, values = case
    field = DataField(0, "c", data_type.with_nullable(True))
    array = to_arrow_array(values, field.type)
    every = encode([array], [field]).to_pylist()
    assert encode([array.slice(1, 2)], [field]).to_pylist() == every[1:3]
    row = DataType(strategies.TypeRoot.ROW, fields=(DataField(1, "m", data_type),))
    hidden = pa.StructArray.from_arrays([array], ["m"], mask=pa.array([True, *[False] * (len(values) - 1)]))
    assert encode([hidden], [DataField(0, "c", row)])[0].as_py() == b"\0"


def test_containers_are_those_of_the_specification(storage: Storage, tmp_path: Path) -> None:
    schema = builders.schema({"id": "INT", "name": "STRING", "price": "DECIMAL(5, 2)", "tags": "ARRAY<STRING>"})
    count = 20_000
    columns = {
        "id": range(count),
        "name": [f"name {i * 7919 % 9973}" for i in range(count)],
        "price": [None if i % 3 else Decimal(i % 1000) / 100 for i in range(count)],
        "tags": [["a"] * (i % 3) for i in range(count)],
    }
    (meta,) = write_rows(storage, schema, kv_table(schema, columns), options=AVRO)
    assert meta.file_name.endswith(".avro")
    data = storage.read(f"bucket-0/{meta.file_name}")
    assert meta.file_size == len(data)
    reader = fastavro.reader(io.BytesIO(data))
    rows = list(reader)
    assert list(rows[0]) == ["_KEY_id", "_SEQUENCE_NUMBER", "_VALUE_KIND", *schema.names]
    assert [[row[name] for row in rows] for name in schema.names] == [list(values) for values in columns.values()]
    container = avro.read_header(data, "file")
    blocks = [len(block) for _, _, block in avro._blocks(data, container, "file")]
    assert container.codec == "zstandard"
    assert all(50_000 < size < 70_000 for size in blocks[:-1])


def test_a_damaged_block_is_an_error_with_file_and_offset(storage: Storage, tmp_path: Path) -> None:
    schema = builders.schema({"id": "INT"})
    (meta,) = write_rows(storage, schema, kv_table(schema, {"id": range(10)}), options=AVRO)
    path = tmp_path / "bucket-0" / meta.file_name
    data = bytearray(path.read_bytes())
    block = avro.read_header(bytes(data), "file").blocks
    data[-1] ^= 1  # of the sync marker
    path.write_bytes(data)
    with open_file(storage, meta, schema) as file, pytest.raises(CorruptFile, match="sync marker") as raised:
        file.read(["id"])
    assert (raised.value.offset, raised.value.path) == (block, str(path))


@pytest.mark.parametrize(
    ("options", "codec"),
    [
        ({}, "zstandard"),
        ({"file.compression": "snappy"}, "snappy"),
        ({"file.compression": "deflate"}, "deflate"),
        ({"file.compression": "none"}, "null"),
        ({"file.compression": "null"}, "null"),
        ({"file.compression": "bzip2"}, "bzip2"),
        ({"file.compression": "xz"}, "xz"),
        ({"file.compression": "lz4", "file.compression.per.level": "0:snappy"}, "snappy"),
        ({"file.compression": "lz4", "avro.codec": "deflate"}, "deflate"),
    ],
)
def test_codecs(storage: Storage, options: dict[str, str], codec: str) -> None:
    schema = builders.schema({"id": "INT"})
    (meta,) = write_rows(storage, schema, kv_table(schema, {"id": range(10)}), options={**AVRO, **options})
    data = storage.read(f"bucket-0/{meta.file_name}")
    assert avro.read_header(data, "file").codec == codec
    assert [row["id"] for row in fastavro.reader(io.BytesIO(data))] == [*range(10)]


def test_a_codec_that_avro_does_not_have_is_refused(storage: Storage) -> None:
    schema = builders.schema({"id": "INT"})
    with pytest.raises(Unsupported, match=r"file\.compression\.per\.level = lz4: avro files can be compressed by zstd, "):
        write_rows(storage, schema, options={**AVRO, "file.compression.per.level": "0:lz4"})


@pytest.mark.parametrize(
    "text", ["TIMESTAMP(9)", "TIMESTAMP(7) WITH LOCAL TIME ZONE", "VARIANT", "ARRAY<ROW<t TIMESTAMP(8)>>", "MULTISET<INT>"]
)
def test_a_type_that_avro_does_not_have_is_refused_before_anything_is_written(storage: Storage, text: str) -> None:
    schema = builders.schema({"id": "INT", "c": text})
    with pytest.raises(Unsupported, match=r"column c: .*Avro files have no"):
        write_rows(storage, schema, options=AVRO)
    assert storage.list("") == []


def test_files_roll_at_the_target_size(storage: Storage) -> None:
    schema = builders.schema({"id": "INT", "name": "STRING"})
    count = 100_000
    table = kv_table(schema, {"id": range(count), "name": [f"name {i * 7919 % count}" for i in range(count)]})
    target = 200_000
    metas = write_rows(storage, schema, table, options={**AVRO, "target-file-size": f"{target} b"})
    assert len(metas) > 2
    assert all(target <= meta.file_size <= 1.1 * target for meta in metas[:-1])
    found = [value for meta in metas for value in open_file(storage, meta, schema).read(["id"])["id"].to_pylist()]
    assert found == [*range(count)]


def test_files_as_the_level_says(storage: Storage) -> None:
    schema = builders.schema({"id": "INT"})
    options = {"file.format": "avro", "file.format.per.level": "0:parquet", "changelog-file.format": "parquet"}
    rows = kv_table(schema, {"id": [1]})
    ends = [write_rows(storage, schema, rows, options=options, level=level)[0].file_name.split(".")[-1] for level in (0, 1, 5)]
    assert ends == ["parquet", "avro", "avro"]


def test_record_names_are_those_of_java() -> None:
    schema = avro_record.record_schema(builders.schema({"id": "INT", "r": "ROW<x ROW<y INT>>", "m": "MAP<INT, INT>"}).fields)
    assert schema["fields"][1]["type"][1]["name"] == "record_r"
    assert schema["fields"][1]["type"][1]["fields"][0]["type"][1]["name"] == "record_r_x"
    assert schema["fields"][2]["type"][1]["items"]["name"] == "record_m"
    nested = avro_record.record_schema(builders.schema({"id": "INT", "m": "MAP<INT, ROW<a INT>>", "n": "MAP<INT, MAP<INT, INT>>"}).fields)
    values = [field["type"][1]["items"]["fields"][1]["type"][1] for field in nested["fields"][1:]]
    assert [values[0]["name"], values[1]["items"]["name"]] == ["record_m_value", "record_n_value"]


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        ({"a b": "INT"}, "no names like 'a b'"),
        ({"1x": "INT"}, "no names like '1x'"),
        ({"r": "ROW<`x-y` INT>"}, "no names like 'x-y'"),
        ({"a": "ROW<b ROW<c INT>>", "a_b": "ROW<x INT>"}, "would both be called record_a_b"),
    ],
)
def test_names_that_java_could_not_write_are_refused(columns: dict[str, str], why: str) -> None:
    (found,) = data_formats.unheld("avro", builders.schema({"id": "INT", "ä_1": "INT", **columns}).fields)
    assert why in found[1]
