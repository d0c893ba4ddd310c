"""ORC files that we write."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pyarrow.orc as arrow_orc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maintainer.data.values import from_arrow
from maintainer.errors import Unsupported
from maintainer.format import data_formats, orc
from maintainer.model.types import TIMESTAMPS, DataField, DataType
from maintainer.storage.storage import Storage
from tests.support import builders, strategies
from tests.support.data_files import kv_table, open_file, write_rows

ORC = {"file.format": "orc"}
SECOND = 10**9


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage.open(str(tmp_path))


def held(data_type: DataType) -> bool:
    return not list(data_formats.unheld("orc", [DataField(0, "c", data_type)]))


@given(
    st.lists(strategies.data_types().filter(held), min_size=1, max_size=4).flatmap(
        lambda types: st.tuples(st.just(types), st.lists(strategies.rows(types), min_size=1, max_size=6))
    ),
    st.sampled_from([1, 3]),
)
def test_round_trip_of_every_type(
    tmp_path_factory: pytest.TempPathFactory, case: tuple[list[DataType], list[tuple[Any, ...]]], group: int
) -> None:
    types, values = case
    schema = builders.schema({"id": "INT"} | {f"c{i}": data_type for i, data_type in enumerate(types)})
    columns = {"id": range(len(values))} | {f"c{i}": [row[i] for row in values] for i in range(len(types))}
    storage = Storage.open(str(tmp_path_factory.mktemp("t")))
    table = kv_table(schema, columns)
    parts = [table.slice(start, group) for start in range(0, len(values), group)]
    try:
        (meta,) = write_rows(storage, schema, *parts, options=ORC)
    except Unsupported as error:
        assert "the last 999 milliseconds before 1970" in str(error)
        assert any(part.root in TIMESTAMPS for data_type in types for part in data_formats.parts(data_type))
        return
    with open_file(storage, meta, schema) as file:
        found = file.read(schema.names)
    for name, data_type in zip(list(columns)[1:], types, strict=True):
        assert builders.same(from_arrow(found[name], data_type), columns[name])


def test_a_stripe_is_a_row_group(storage: Storage) -> None:
    schema = builders.schema({"id": "INT", "t": "TIME(3)", "at": "TIMESTAMP(6)", "name": "STRING"})
    count = 50_000
    columns: dict[str, Any] = {
        "id": range(count),
        "t": [i % 86_400_000 for i in range(count)],
        "at": [None if i % 3 else i * SECOND for i in range(count)],
        "name": [f"name {i * 7919 % count}" for i in range(count)],
    }
    (meta,) = write_rows(storage, schema, kv_table(schema, columns), options=ORC)
    assert meta.file_name.endswith(".orc")
    data = storage.read(f"bucket-0/{meta.file_name}")
    assert meta.file_size == len(data)
    found = arrow_orc.ORCFile(io.BytesIO(data))
    rows = [found.read_stripe(number).num_rows for number in range(found.nstripes)]
    assert (len(rows) > 1, sum(rows), rows[0]) == (True, count, 16_384)
    table = found.read()
    assert table.column_names == ["_KEY_id", "_SEQUENCE_NUMBER", "_VALUE_KIND", *schema.names]
    assert table["t"].to_pylist() == columns["t"]
    with open_file(storage, meta, schema) as file:
        assert [group.rows for group in file.row_groups] == rows
        assert from_arrow(file.read(["at"])["at"], schema.field("at").type) == columns["at"]


@pytest.mark.parametrize("compression", data_formats.CODECS["orc"])
def test_times_before_1970_are_exact(storage: Storage, compression: str) -> None:
    schema = builders.schema({"id": "INT", "t": "TIMESTAMP(9)", "r": "ROW<t TIMESTAMP(6)>", "a": "ARRAY<TIMESTAMP(3) WITH LOCAL TIME ZONE>"})
    count = 3_000
    times = [None if i % 5 == 0 else -(i * i * 1_000_003 + 2 * SECOND) * 1_000 for i in range(count)]
    columns: dict[str, Any] = {
        "id": range(count),
        "t": [None if time is None else time - 2 - i % 999 for i, time in enumerate(times)],
        "r": [None if i % 7 == 0 else (time,) for i, time in enumerate(times)],
        "a": [None if i % 3 == 0 else [-(i + 2) * SECOND - 1_000_000] * (i % 3) + [None, SECOND] for i in range(count)],
    }
    (meta,) = write_rows(storage, schema, kv_table(schema, columns), options={**ORC, "file.compression": compression})
    with open_file(storage, meta, schema) as file:
        found = file.read(schema.names)
    assert {name: from_arrow(found[name], schema.field(name).type) for name in columns} == {**columns, "id": [*range(count)]}
    plain = arrow_orc.ORCFile(io.BytesIO(storage.read(f"bucket-0/{meta.file_name}"))).read(["t"])["t"]
    assert plain.cast("int64").to_pylist() == columns["t"]


@pytest.mark.parametrize("target", [20_000, 60_000])
def test_files_roll_at_the_target_size(storage: Storage, target: int) -> None:
    schema = builders.schema({"id": "INT", "name": "STRING"})
    count = 100_000
    table = kv_table(schema, {"id": range(count), "name": [f"name {i * 7919 % count}" for i in range(count)]})
    parts = [table.slice(start, 500) for start in range(0, count, 500)]
    metas = write_rows(storage, schema, *parts, options={**ORC, "target-file-size": f"{target} b"})
    assert len(metas) > 2
    sizes = [meta.file_size for meta in metas[:-1]]
    assert all(target / 3 <= size <= 2.5 * target for size in sizes), sizes
    assert all(meta.file_size == len(storage.read(f"bucket-0/{meta.file_name}")) for meta in metas)
    found = [value for meta in metas for value in open_file(storage, meta, schema).read(["id"])["id"].to_pylist()]
    assert found == [*range(count)]


@pytest.mark.parametrize("compression", data_formats.CODECS["orc"])
def test_codecs(storage: Storage, compression: str) -> None:
    schema = builders.schema({"id": "INT"})
    (meta,) = write_rows(storage, schema, kv_table(schema, {"id": range(1_000)}), options={**ORC, "file.compression": compression})
    data = storage.read(f"bucket-0/{meta.file_name}")
    assert orc.read_tail(lambda offset, length: data[offset : offset + length], len(data)).codec == compression
    assert arrow_orc.ORCFile(io.BytesIO(data)).read(["id"])["id"].to_pylist() == [*range(1_000)]


def test_a_codec_that_is_not_written_is_refused(storage: Storage) -> None:
    schema = builders.schema({"id": "INT"})
    with pytest.raises(Unsupported, match=r"file\.compression = lzo: orc files can be compressed by zstd, snappy, lz4, zlib, none"):
        write_rows(storage, schema, options={**ORC, "file.compression": "lzo"})


@pytest.mark.parametrize("text", ["VARIANT", "VECTOR<FLOAT, 3>", "ARRAY<ROW<v VARIANT>>", "MAP<INT, VARIANT>"])
def test_a_type_that_orc_does_not_have_is_refused_before_anything_is_written(storage: Storage, text: str) -> None:
    schema = builders.schema({"id": "INT", "c": text})
    with pytest.raises(Unsupported, match=r"column c: ORC files have no type"):
        write_rows(storage, schema, options=ORC)
    assert storage.list("") == []


@pytest.mark.parametrize("text", ["TIMESTAMP(3) WITH LOCAL TIME ZONE", "ARRAY<TIMESTAMP(6) WITH LOCAL TIME ZONE>"])
def test_instants_are_refused_where_java_would_move_them(storage: Storage, text: str) -> None:
    schema = builders.schema({"id": "INT", "c": text})
    with pytest.raises(Unsupported, match=r"column c: .*unless orc\.timestamp-ltz\.legacy\.type = false or read\.time-zone = UTC"):
        write_rows(storage, schema, options={**ORC, "read.time-zone": "Asia/Tokyo"})
    assert storage.list("") == []
    rows = kv_table(schema, {"id": [1], "c": [None]})
    for options in ({}, {"read.time-zone": "Asia/Tokyo", "orc.timestamp-ltz.legacy.type": "false"}):
        assert write_rows(storage, schema, rows, options={**ORC, **options})


@pytest.mark.parametrize(
    ("text", "value", "shown"), [("TIMESTAMP(3)", -1_000_000, "1969-12-31 23:59:59.999"), ("TIMESTAMP(9)", -1, ".999999999")]
)
def test_a_time_that_would_be_written_wrong_is_refused_by_name(storage: Storage, text: str, value: int, shown: str) -> None:
    schema = builders.schema({"id": "INT", "c": text})
    with pytest.raises(Unsupported, match=f"column c: .*{shown}.*the last 999 milliseconds before 1970"):
        write_rows(storage, schema, kv_table(schema, {"id": [1], "c": [value]}), options=ORC)
    assert storage.list("bucket-0") == []
