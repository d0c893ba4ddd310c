"""Files that we wrote, in the smallest table around them, read by everybody else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from maintainer.data.arrow_types import value_schema
from maintainer.data.values import json_rows
from maintainer.format import data_formats, manifest, manifest_list, schema_json, snapshot_json
from maintainer.model.files import EMPTY_ROW, FileKind, FileSource, ManifestEntry, ManifestFileMeta
from maintainer.model.schema import TableSchema
from maintainer.model.snapshot import BATCH_IDENTIFIER, CommitKind, Snapshot
from maintainer.model.types import DataField
from maintainer.storage.storage import Storage
from tests.peers import readers
from tests.support import builders
from tests.support.data_files import kv_table, write_rows

DAY = 86_400 * 10**9
SECOND = 10**9
YEAR_1, YEAR_9999 = -719_162, 2_932_896
VALUES: dict[str, list[Any]] = {
    "BOOLEAN": [True, False],
    "TINYINT": [-128, 127],
    "SMALLINT": [-32768, 32767],
    "INT": [-(2**31), 2**31 - 1],
    "BIGINT": [-(2**63), 2**63 - 1],
    "FLOAT": [1.5, float("inf"), -0.0, float("nan")],
    "DOUBLE": [5e-324, float("-inf"), -0.0, float("nan")],
    "DECIMAL(9, 2)": [Decimal("-9999999.99"), Decimal("0.01")],
    "DECIMAL(10, 0)": [Decimal(-(10**10) + 1), Decimal(1)],
    "DECIMAL(18, 18)": [Decimal("-0.999999999999999999"), Decimal("0E-18")],
    "DECIMAL(19, 0)": [Decimal(-(10**19) + 1)],
    "DECIMAL(38, 10)": [Decimal("-9999999999999999999999999999.9999999999")],
    "CHAR(5)": ["ab", ""],
    "VARCHAR(5)": ["日本😀", "a\x00b"],
    "STRING": ["", "x" * 10_000],
    "BINARY(2)": [b"\xff\x00"],
    "BYTES": [b"", bytes(range(256))],
    "DATE": [YEAR_1, -1, YEAR_9999],
    "TIME(3)": [0, 86_399_999],
    "TIMESTAMP(0)": [YEAR_1 * DAY, YEAR_9999 * DAY + 86_399 * SECOND],
    "TIMESTAMP(3)": [-1_000_000, YEAR_9999 * DAY],
    "TIMESTAMP(6)": [-1_000, YEAR_1 * DAY],
    "TIMESTAMP(9)": [-1, 2**63 - 1, -(2**63)],
    "TIMESTAMP(3) WITH LOCAL TIME ZONE": [-1_000_000],
    "TIMESTAMP(6) WITH LOCAL TIME ZONE": [-1_000],
    "ARRAY<INT>": [[1, None, 3], []],
    "ARRAY<ARRAY<STRING>>": [[["a"], None, []]],
    "MAP<STRING, INT>": [[("a", 1), ("b", None)], []],
    "MAP<INT, ARRAY<DECIMAL(20, 2)>>": [[(1, [Decimal("1.50"), None])]],
    "ROW<x INT, y ROW<z STRING>>": [(1, ("a",)), (None, None)],
    "ARRAY<ROW<x BIGINT, t TIMESTAMP(6)>>": [[(1, 5_000), None]],
    "TIMESTAMP(9) WITH LOCAL TIME ZONE": [-1],
    "MULTISET<STRING>": [[("a", 2)]],
}
PYPAIMON_CANNOT = {"MULTISET<STRING>"}
NANOSECONDS_ONLY = {("pypaimon", "orc"), ("pypaimon_rust", "orc")}
"""They read timestamps of ORC files as 64-bit numbers of nanoseconds, of Java's files, too."""


FORMATS: dict[str, dict[str, str]] = {
    "parquet": {},
    "thin": {"data-file.thin-mode": "true"},
    "avro": {"file.format": "avro"},
    "avro-snappy-thin": {"file.format": "avro", "file.compression": "snappy", "data-file.thin-mode": "true"},
    "orc": {"file.format": "orc"},
    "orc-snappy-thin": {"file.format": "orc", "file.compression": "snappy", "data-file.thin-mode": "true"},
}


def one_file_table(directory: Path, schema: TableSchema, rows: pa.Table, level: int = 5) -> None:
    """A table whose only snapshot has the file of these rows."""
    storage = Storage.open(str(directory))
    (file,) = write_rows(storage, schema, rows, level=level, source=FileSource.COMPACT)
    entries = manifest.encode([ManifestEntry(FileKind.ADD, EMPTY_ROW, 0, 1, file)])
    delta = manifest_list.encode([ManifestFileMeta("manifest-1", len(entries), 1, 0, builders.stats((), (), ()), schema.id)])
    base = manifest_list.encode([])
    snapshot = Snapshot(
        id=1,
        schema_id=schema.id,
        base_manifest_list="manifest-list-0",
        delta_manifest_list="manifest-list-1",
        commit_user="test",
        commit_identifier=BATCH_IDENTIFIER,
        commit_kind=CommitKind.COMPACT,
        time_millis=1_784_213_019_480,
        total_record_count=rows.num_rows,
        delta_record_count=rows.num_rows,
        base_manifest_list_size=len(base),
        delta_manifest_list_size=len(delta),
        next_row_id=0,
        uuid="b4a0d7a6-6a51-4b0c-8a3e-000000000001",
    )
    for path, data in {
        "manifest/manifest-1": entries,
        "manifest/manifest-list-0": base,
        "manifest/manifest-list-1": delta,
        f"schema/schema-{schema.id}": schema_json.encode(schema),
        "snapshot/snapshot-1": snapshot_json.encode(snapshot),
        "snapshot/LATEST": b"1",
    }.items():
        storage.write(path, data)


def sample(texts: Sequence[str], layout: str = "parquet", peer: str = "") -> tuple[TableSchema, pa.Table]:
    """All values of these types, each type with NULLs, but for what files of the format do not hold, or the peer does not read there."""
    options = {"bucket": "1", "deletion-vectors.enabled": "true", **FORMATS[layout]}
    file_format = options.get("file.format", "parquet")
    texts = [text for text in texts if not list(data_formats.unheld(file_format, [DataField(0, "c", builders.types(text)[0])]))]
    schema = builders.schema({"id": "INT"} | {f"c{i}": text for i, text in enumerate(texts)}, options=options)
    is_narrow = (peer, file_format) in NANOSECONDS_ONLY
    values = [[value for value in VALUES[text] if not (is_narrow and text.startswith("TIMESTAMP") and abs(value) >> 63)] for text in texts]
    if file_format == "orc":  # does not hold the last 999 milliseconds before 1970
        values = [
            [value - 2 * SECOND if text.startswith("TIMESTAMP") and -SECOND < value < 0 else value for value in found]
            for text, found in zip(texts, values, strict=True)
        ]
    count = max(map(len, values)) + 1
    columns = {f"c{i}": [*present, *[None] * (count - len(present))] for i, present in enumerate(values)}
    return schema, kv_table(schema, {"id": range(count), **columns})


def expected(schema: TableSchema, table: pa.Table) -> readers.Rows:
    return readers.bag(list(row.values()) for row in json_rows(table, schema.fields))


def test_plain_pyarrow_reads_our_files(tmp_path: Path) -> None:
    schema, table = sample(list(VALUES))
    (meta,) = write_rows(Storage.open(str(tmp_path)), schema, table)
    found = pq.read_table(tmp_path / "bucket-0" / meta.file_name)
    assert found.column_names == ["_KEY_id", "_SEQUENCE_NUMBER", "_VALUE_KIND", *schema.names]
    assert found["_KEY_id"] == found["id"]
    nanoseconds = {f"c{i}" for i, text in enumerate(VALUES) if text.startswith("TIMESTAMP(9)")}  # INT96 has no zone
    wanted = value_schema(schema.fields)
    assert {field.name for field in wanted if found.schema.field(field.name).remove_metadata() != field} <= nanoseconds
    values = found.select(list(schema.names)).cast(wanted)
    assert expected(schema, values) == expected(schema, table)


Read = Callable[[Path, TableSchema], readers.Rows]
PEERS: dict[str, tuple[Read, str | None, set[str]]] = {
    "pypaimon": (readers.pypaimon_rows, readers.PYPAIMON_ABSENT, PYPAIMON_CANNOT),
    "pypaimon_rust": (readers.rust_rows, readers.RUST_ABSENT, set()),
    "java": (lambda table, schema: readers.java_rows(table), readers.JAVA_ABSENT, set()),
}


@pytest.mark.parametrize("layout", FORMATS)
@pytest.mark.parametrize("peer", PEERS)
def test_peer_reads_our_files(tmp_path: Path, peer: str, layout: str) -> None:
    read, absent, cannot = PEERS[peer]
    if absent:
        pytest.skip(absent)
    schema, table = sample([text for text in VALUES if text not in cannot], layout, peer)
    one_file_table(tmp_path / "db.db" / "t", schema, table)
    assert read(tmp_path / "db.db" / "t", schema) == expected(schema, table)


@pytest.mark.parametrize("peer", PEERS)
def test_peer_reads_long_files_of_many_row_groups(tmp_path: Path, peer: str) -> None:
    read, absent, _ = PEERS[peer]
    if absent:
        pytest.skip(absent)
    count = 45_000
    schema = builders.schema({"id": "BIGINT", "t": "TIMESTAMP(9)", "name": "STRING", "list": "ARRAY<INT>"})
    table = kv_table(
        schema,
        {
            "id": range(count),
            "t": [None if i % 7 == 0 else (i - 20_000) * DAY // 3 for i in range(count)],
            "name": [f"name {i % 5}" for i in range(count)],
            "list": [[i] * (i % 3) for i in range(count)],
        },
    )
    one_file_table(tmp_path / "db.db" / "t", schema, table)
    assert read(tmp_path / "db.db" / "t", schema) == expected(schema, table)
