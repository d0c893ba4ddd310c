"""Avro containers: foreign forms of what we read, and bytes that are not what they claim."""

from __future__ import annotations

import bz2
import io
import json
import lzma
import zlib
from typing import Any

import fastavro
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from maintainer.errors import CorruptFile, Unsupported, UsageError
from maintainer.format import avro
from tests.support import strategies

SCHEMA = {
    "type": "record",
    "name": "record",
    "fields": [
        {"name": "name", "type": "string"},
        {"name": "size", "type": "long"},
        {"name": "tags", "type": ["null", {"type": "array", "items": ["null", "long"]}], "default": None},
        {
            "name": "inner",
            "type": ["null", {"type": "record", "name": "inner", "fields": [{"name": "data", "type": "bytes"}]}],
            "default": None,
        },
    ],
}
RECORDS = [
    {"name": "a", "size": 1, "tags": [1, None], "inner": {"data": b"\x00\x01"}},
    {"name": "é", "size": -(2**63), "tags": None, "inner": None},
    {"name": "", "size": 2**63 - 1, "tags": [], "inner": {"data": b""}},
]


def written(schema: Any = SCHEMA, records: Any = RECORDS, codec: str = "null", **others: Any) -> bytes:
    """What fastavro writes."""
    out = io.BytesIO()
    fastavro.writer(out, schema, records, codec=codec, **others)
    return out.getvalue()


def container(schema: Any, blocks: list[tuple[int, bytes]], codec: str = "null", sync: bytes = b"s" * 16) -> bytes:
    """A container made by hand, so that it can be wrong."""
    text = schema if isinstance(schema, bytes) else json.dumps(schema).encode()
    parts = [avro.MAGIC, varint(2), entry(b"avro.schema", text), entry(b"avro.codec", codec.encode()), b"\0", sync]
    for count, block in blocks:
        parts += [varint(count), varint(len(block)), block, sync]
    return b"".join(parts)


def varint(value: int) -> bytes:
    rest = (value << 1) ^ (value >> 63)
    out = b""
    while rest > 0x7F:
        out, rest = out + bytes([rest & 0x7F | 0x80]), rest >> 7
    return out + bytes([rest])


def entry(key: bytes, value: bytes) -> bytes:
    return varint(len(key)) + key + varint(len(value)) + value


def read(data: bytes, expected: Any = SCHEMA) -> list[dict[str, Any]]:
    return [record for records in avro.read_records(data, expected, "test file") for record in records]


@pytest.mark.parametrize("compression", ["zstd", "zstandard", "ZSTD", "null", "none", "deflate", "snappy", "bzip2", "xz"])
@pytest.mark.parametrize("records", [[], RECORDS, RECORDS * 700])
def test_round_trip_and_fastavro_reads_it(compression: str, records: list[dict[str, Any]]) -> None:
    data = avro.write_records(SCHEMA, records, compression, 1)
    assert read(data) == records
    if compression == "snappy":
        pytest.importorskip("cramjam")
    assert list(fastavro.reader(io.BytesIO(data))) == records


def test_same_records_same_bytes() -> None:
    assert avro.write_records(SCHEMA, RECORDS, "zstd", 1) == avro.write_records(SCHEMA, RECORDS, "zstd", 1)


def test_unknown_compression_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="brotli"):
        avro.write_records(SCHEMA, RECORDS, "brotli", 1)


@pytest.mark.parametrize("codec", ["null", "deflate", "zstandard", "bzip2", "xz"])
@pytest.mark.parametrize("interval", [1, 16000])
def test_files_of_fastavro(codec: str, interval: int) -> None:
    assert read(written(codec=codec, sync_interval=interval)) == RECORDS


def test_snappy_files_of_fastavro() -> None:
    pytest.importorskip("cramjam")
    assert read(written(codec="snappy")) == RECORDS


def test_zstd_frames_without_content_size() -> None:
    plain = fastavro_block()
    compressor = zstandard.ZstdCompressor(write_content_size=False)
    assert read(container(SCHEMA, [(3, compressor.compress(plain))], "zstandard")) == RECORDS


def fastavro_block(schema: Any = SCHEMA, records: Any = RECORDS) -> bytes:
    """The records without a container around them."""
    out = io.BytesIO()
    for record in records:
        fastavro.schemaless_writer(out, fastavro.parse_schema(schema), record)
    return out.getvalue()


def test_top_level_union_with_null() -> None:
    assert read(written(["null", SCHEMA])) == RECORDS


def test_null_record_is_corrupt() -> None:
    with pytest.raises(CorruptFile, match="null where"):
        read(container(["null", SCHEMA], [(1, varint(0))]))


def test_fields_are_found_by_name_and_unknown_ones_are_skipped() -> None:
    extra = {"name": "later", "type": {"type": "map", "values": {"type": "enum", "name": "e", "symbols": ["A", "B"]}}}
    fields = [extra, *reversed(SCHEMA["fields"])]
    records = [{**record, "later": {"k": "B"}} for record in RECORDS]
    decoded = read(written({**SCHEMA, "fields": fields}, records))
    assert [{name: record[name] for name in RECORDS[0]} for record in decoded] == RECORDS


def test_missing_nullable_field_is_absent_and_missing_required_field_is_corrupt() -> None:
    narrow = {**SCHEMA, "fields": SCHEMA["fields"][:2]}
    assert read(written(narrow)) == [{"name": record["name"], "size": record["size"]} for record in RECORDS]
    with pytest.raises(CorruptFile, match="has no size"):
        read(written({**SCHEMA, "fields": SCHEMA["fields"][:1]}))


def test_int_and_long_are_the_same_and_logical_types_stay_numbers() -> None:
    fields = [SCHEMA["fields"][0], {"name": "size", "type": {"type": "long", "logicalType": "timestamp-millis"}}]
    assert read(container({**SCHEMA, "fields": fields}, [(1, b"\x02a" + varint(5))])) == [{"name": "a", "size": 5}]
    fields[1] = {"name": "size", "type": "int"}
    assert read(written({**SCHEMA, "fields": fields}, [{"name": "a", "size": 5}])) == [{"name": "a", "size": 5}]


def test_named_types_that_are_referred_to() -> None:
    inner = {"type": "record", "name": "inner", "namespace": "n", "fields": [{"name": "data", "type": "bytes"}]}
    fields = [*SCHEMA["fields"][:2], {"name": "first", "type": inner}, {"name": "inner", "type": ["null", "n.inner"]}]
    records = [{"name": "a", "size": 1, "first": {"data": b"1"}, "inner": {"data": b"2"}}]
    assert read(written({**SCHEMA, "fields": fields}, records)) == records


def test_required_field_may_be_nullable_in_the_file_but_not_null() -> None:
    fields = [{"name": "name", "type": ["null", "string"]}, {"name": "size", "type": ["long", "null"]}]
    schema = {**SCHEMA, "fields": fields}
    assert read(written(schema, [{"name": "a", "size": 1}])) == [{"name": "a", "size": 1}]
    with pytest.raises(CorruptFile, match="null where"):
        read(written(schema, [{"name": "a", "size": 1}, {"name": None, "size": 1}]))


def test_required_items_may_be_nullable_in_the_file_but_not_null() -> None:
    expected = {"type": "record", "name": "r", "fields": [{"name": "tags", "type": ["null", {"type": "array", "items": "string"}]}]}
    actual = {"type": "record", "name": "r", "fields": [{"name": "tags", "type": ["null", {"type": "array", "items": ["null", "string"]}]}]}
    records = [{"tags": None}, {"tags": []}, {"tags": ["a"]}]
    assert read(written(actual, records), expected) == records
    with pytest.raises(CorruptFile, match="null where"):
        read(written(actual, [{"tags": ["a", None]}]), expected)


@pytest.mark.parametrize(
    ("name", "found"), [("name", "bytes"), ("name", "long"), ("size", "string"), ("size", "double"), ("tags", "long"), ("inner", "bytes")]
)
def test_field_of_another_type_is_corrupt(name: str, found: str) -> None:
    fields = [{"name": field["name"], "type": found} if field["name"] == name else field for field in SCHEMA["fields"]]
    with pytest.raises(CorruptFile, match=f"{name} is {found}"):
        read(container({**SCHEMA, "fields": fields}, []))


@pytest.mark.parametrize(
    "schema",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b'"record"',
        b"[" * 100_000,
        {"type": "record", "name": "r", "fields": []},
        {"type": "record", "name": "r"},
        {"type": "record", "fields": [{"name": "a", "type": "nothing"}]},
        {"type": "record", "name": "r", "fields": [{"name": "a", "type": "r"}]},
        {"type": "record", "name": "r", "fields": [{"name": "a", "type": ["null", "r"]}]},
        {"type": "record", "name": "r", "fields": [{"name": "a", "type": "null"}]},
        {"type": "record", "name": "r", "fields": [{"name": "a", "type": {"type": "array", "items": "null"}}]},
        {"type": "record", "name": "r", "fields": [{"name": "a", "type": {"type": "fixed", "name": "f", "size": 0}}]},
        {"type": "record", "name": "r", "fields": [{"name": "a", "type": {"type": "fixed", "name": "f", "size": "8"}}]},
        {"type": "record", "name": "r", "fields": [{"name": "a", "type": []}]},
        {"type": "record", "name": "r", "fields": [{"name": 1, "type": "int"}, 5]},
        {"type": {"type": {"type": "record"}}},
    ],
)
def test_schemas_that_cannot_be_read_are_corrupt(schema: Any) -> None:
    with pytest.raises(CorruptFile):
        read(container(schema, [(1, b"\x00" * 8)]))


def test_named_types_do_not_grow_without_bound() -> None:
    """Each type has two members of the one before it: 2⁴⁰ fields in a small schema."""
    fields: list[Any] = [{"name": "f0", "type": {"type": "record", "name": "r0", "fields": [{"name": "a", "type": "int"}]}}]
    for level in range(1, 40):
        members = [{"name": name, "type": f"r{level - 1}"} for name in "ab"]
        fields.append({"name": f"f{level}", "type": {"type": "record", "name": f"r{level}", "fields": members}})
    with pytest.raises(CorruptFile, match="too large"):
        read(container({"type": "record", "name": "r", "fields": fields}, []))


@pytest.mark.parametrize(
    ("count", "block"),
    [
        (1, b""),
        (2**62, fastavro_block()),
        (-3, fastavro_block()),
        (2, fastavro_block()),
        (4, fastavro_block()),
        (3, fastavro_block() + b"\0"),
        (3, fastavro_block()[:-1]),
        (1, varint(2**40) + b"abc"),
        (1, varint(-5) + b"abc"),
        (1, varint(1) + b"\xff" + varint(1) + b"\0\0"),
        (1, varint(0) + varint(1) + varint(5)),
        (1, varint(0) + varint(1) + varint(1) + varint(2**50) + b"\0"),
    ],
)
def test_blocks_that_are_not_what_they_claim_are_corrupt(count: int, block: bytes) -> None:
    with pytest.raises(CorruptFile):
        read(container(SCHEMA, [(count, block)]))


def test_wrong_sync_marker_is_corrupt() -> None:
    data = container(SCHEMA, [(3, fastavro_block())])
    with pytest.raises(CorruptFile, match="sync marker"):
        read(data[:-1] + b"x")


def test_unknown_codec_is_unsupported() -> None:
    with pytest.raises(Unsupported, match="lz4"):
        read(container(SCHEMA, [(3, b"abc")], "lz4"))


@pytest.mark.parametrize(
    ("codec", "compress"),
    [
        ("deflate", lambda data: zlib.compress(data, 9)[2:-4]),
        ("bzip2", bz2.compress),
        ("xz", lzma.compress),
        ("zstandard", zstandard.ZstdCompressor(write_content_size=False).compress),
        ("zstandard", zstandard.ZstdCompressor().compress),
    ],
)
def test_bombs_are_refused(codec: str, compress: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(avro, "EXPANSION", (10, 1 << 16))
    bomb = compress(bytes(4 << 20))
    with pytest.raises(CorruptFile, match="too many bytes"):
        read(container(SCHEMA, [(1, bomb)], codec))
    block = compress(varint(60_000) + bytes(60_000) + bytes(3))  # one record with a long name
    assert len(read(container(SCHEMA, [(1, block)], codec))) == 1
    with pytest.raises(CorruptFile, match="too many bytes"):
        read(container(SCHEMA, [(1, block)] * 30, codec))


def test_snappy_bomb_and_wrong_checksum_are_refused() -> None:
    with pytest.raises(CorruptFile, match="claimed"):
        read(container(SCHEMA, [(1, b"\xff\xff\xff\xff\x0f" + bytes(20))], "snappy"))
    data = bytearray(avro.write_records(SCHEMA, RECORDS, "snappy", 1))
    data[-17] ^= 1
    with pytest.raises(CorruptFile, match="checksum"):
        read(bytes(data))


@pytest.mark.parametrize("compression", ["null", "deflate", "zstd", "snappy", "bzip2", "xz"])
def test_truncated_bytes_are_corrupt(compression: str) -> None:
    data = avro.write_records(SCHEMA, RECORDS, compression, 1)
    header = avro.read_header(data, "test file").blocks
    for size in range(len(data)):
        if size == header:
            assert read(data[:size]) == []
            continue
        with pytest.raises(CorruptFile):
            read(data[:size])


@pytest.mark.parametrize("compression", ["null", "deflate", "zstd", "snappy"])
@given(data=st.data())
def test_mutated_bytes_decode_or_are_refused(compression: str, data: st.DataObject) -> None:
    mutated = data.draw(strategies.mutated(avro.write_records(SCHEMA, RECORDS, compression, 1)))
    try:
        records = read(mutated)
    except (CorruptFile, Unsupported):
        return
    assert all(isinstance(record["size"], int) for record in records)
