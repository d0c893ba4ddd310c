"""Metadata that pypaimon and pypaimon-rust write is read by us, what we write is read by them, and rows come out with the same bytes."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from maintainer.data.arrow_types import value_schema
from maintainer.data.values import to_arrow_array
from maintainer.format import binary_row, commit_message, index_manifest, manifest, manifest_list, schema_json, snapshot_json
from maintainer.format.simple_stats import decode_stats
from maintainer.model.commit import CommitMessage
from maintainer.model.files import EMPTY_ROW, FileKind, ManifestEntry, ManifestFileMeta, SimpleStats
from maintainer.model.snapshot import Snapshot
from tests.format.test_file_rows import DATA_FILE, DELETIONS, PAYLOAD
from tests.support import peers
from tests.support.builders import row, schema

SCHEMA = schema(
    {
        "p": "STRING",
        "k": "BIGINT",
        "k2": "STRING",
        "i": "INT",
        "d": "DOUBLE",
        "dec": "DECIMAL(10, 2)",
        "big": "DECIMAL(30, 4)",
        "day": "DATE",
        "ts": "TIMESTAMP(6)",
        "b": "BYTES",
        "flag": "BOOLEAN",
        "tags": "ARRAY<STRING>",
    },
    primary_keys=["p", "k", "k2"],
    partition_keys=["p"],
    options={"bucket": "2", "bucket-key": "k"},
)
ROWS: list[tuple[Any, ...]] = [
    ("x", 1, "a", 5, 0.5, Decimal("1.50"), Decimal("12345678901234567890.0001"), 19_000, 1_700_000_000_123_456_000, b"\x01\x02", True, ["t"]),
    ("x", 2, "longer than a slot", None, -1.5, Decimal("-7.25"), Decimal("-1.0000"), -5, -1_000, b"\xff" * 20, False, None),
    ("é", -3, "", 7, 2.0, None, None, 0, 0, b"", None, []),
]


def pypaimon_table(directory: Path) -> Any:
    import pypaimon

    peers.asked["pypaimon"] += 1
    return pypaimon.CatalogFactory.create({"warehouse": str(directory.parents[1])}).get_table("db.t")


def rust_table(directory: Path) -> Any:
    from pypaimon_rust.datafusion import PaimonCatalog

    peers.asked["pypaimon_rust"] += 1
    return PaimonCatalog({"warehouse": str(directory.parents[1])}).get_table("db.t")


OPEN = {"pypaimon": pypaimon_table, "pypaimon_rust": rust_table}


def written(peer: str, tmp_path: Path) -> Path:
    """A table whose schema we wrote and whose two commits are the peer's."""
    if (reason := peers.absent(peer)) is not None:
        pytest.skip(f"{peer}: {reason}")
    directory = tmp_path / "db.db" / "t"
    (directory / "schema").mkdir(parents=True)
    (directory / "schema" / "schema-0").write_bytes(schema_json.encode(SCHEMA))
    for rows in (ROWS[:2], ROWS):
        columns = [to_arrow_array([each[index] for each in rows], field.type) for index, field in enumerate(SCHEMA.fields)]
        builder = OPEN[peer](directory).new_batch_write_builder()
        write, commit = builder.new_write(), builder.new_commit()
        for batch in pa.table(columns, schema=value_schema(SCHEMA.fields)).to_batches():
            write.write_arrow(batch) if peer == "pypaimon_rust" else write.write_arrow_batch(batch)
        commit.commit(write.prepare_commit())
    return directory


def snapshot(directory: Path, number: int) -> Snapshot:
    return snapshot_json.decode((directory / "snapshot" / f"snapshot-{number}").read_bytes())


def delta(directory: Path, number: int) -> tuple[list[ManifestFileMeta], list[ManifestEntry]]:
    name = snapshot(directory, number).delta_manifest_list
    metas = manifest_list.decode((directory / "manifest" / name).read_bytes())
    return metas, [entry for meta in metas for entry in manifest.decode((directory / "manifest" / meta.file_name).read_bytes())]


both = pytest.mark.parametrize("peer", ["pypaimon", "pypaimon_rust"])


@both
def test_metadata_of_a_peer(peer: str, tmp_path: Path) -> None:
    directory = written(peer, tmp_path)
    latest = snapshot(directory, 2)
    assert (latest.id, latest.schema_id, latest.total_record_count, latest.delta_record_count) == (2, 0, 5, 3)
    metas, entries = delta(directory, 2)
    assert sum(meta.num_added_files for meta in metas) == len(entries)
    assert {entry.kind for entry in entries} == {FileKind.ADD}
    assert sum(entry.file.row_count for entry in entries) == 3
    assert {binary_row.deserialize(entry.partition, SCHEMA.partition_types)[0] for entry in entries} == {"x", "é"}
    assert {entry.total_buckets for entry in entries} == {2}
    keys = {binary_row.deserialize(entry.file.min_key, SCHEMA.key_types) for entry in entries}
    assert keys <= {(each[1], each[2]) for each in ROWS}


@both
def test_rows_of_a_peer_are_encoded_to_the_same_bytes(peer: str, tmp_path: Path) -> None:
    directory = written(peer, tmp_path)
    metas, entries = delta(directory, 2)
    rows = [(entry.partition, SCHEMA.partition_types) for entry in entries]
    for entry in entries:
        file = entry.file
        columns = SCHEMA.names if file.value_stats_cols is None else file.value_stats_cols
        rows += [(key, SCHEMA.key_types) for key in (file.min_key, file.max_key, file.key_stats.min_values, file.key_stats.max_values)]
        rows += [(bound, SCHEMA.types_of(columns)) for bound in (file.value_stats.min_values, file.value_stats.max_values)]
        assert len(decode_stats(file.value_stats, SCHEMA.types_of(columns))) == len(columns)
    for meta in metas:
        rows += [(bound, SCHEMA.partition_types) for bound in (meta.partition_stats.min_values, meta.partition_stats.max_values)]
    for data, types in rows:
        values = binary_row.deserialize(data, types)
        again = binary_row.serialize(values, types)
        if peer == "pypaimon_rust" and None in values:  # it keeps no place for a null DECIMAL(30, 4) or TIMESTAMP(6)
            assert binary_row.deserialize(again, types) == values
        else:
            assert again == data


@both
def test_peers_read_on_from_metadata_that_we_wrote_again(peer: str, tmp_path: Path) -> None:
    """Every manifest, list and snapshot of the table replaced by our own encoding of it; sizes in the metadata follow."""
    directory = written(peer, tmp_path)
    names = sorted(path.name for path in (directory / "manifest").iterdir())
    sizes: dict[str, int] = {}

    def replaced(name: str, data: bytes) -> None:
        (directory / name).write_bytes(data)
        sizes[name.rsplit("/", 1)[-1]] = len(data)

    for name in names:
        if name.startswith("manifest-") and not name.startswith("manifest-list-"):
            replaced(f"manifest/{name}", manifest.encode(manifest.decode((directory / "manifest" / name).read_bytes())))
    for name in names:
        if name.startswith("manifest-list-"):
            metas = manifest_list.decode((directory / "manifest" / name).read_bytes())
            replaced(f"manifest/{name}", manifest_list.encode([replace(meta, file_size=sizes[meta.file_name]) for meta in metas]))
    for number in (1, 2):
        found = snapshot(directory, number)
        found = replace(
            found,
            base_manifest_list_size=sizes[found.base_manifest_list],
            delta_manifest_list_size=sizes[found.delta_manifest_list],
        )
        replaced(f"snapshot/snapshot-{number}", snapshot_json.encode(found))
    builder = OPEN[peer](directory).new_read_builder()
    splits = builder.new_scan().plan().splits()
    read = builder.new_read()
    table = read.to_arrow(splits) if peer == "pypaimon" else pa.Table.from_batches(read.read(splits))
    assert sorted(table.column("k").to_pylist()) == [-3, 1, 2]


def test_index_manifests_for_pypaimon(tmp_path: Path) -> None:
    from tests.support.builders import index_entry

    directory = written("pypaimon", tmp_path)
    partition = row("x", "STRING")
    entries = [index_entry(PAYLOAD, partition=partition, bucket=1), index_entry(DELETIONS, partition=partition)]
    (directory / "manifest" / "index-manifest-x-0").write_bytes(index_manifest.encode(entries))
    from pypaimon.manifest.index_manifest_file import IndexManifestFile

    theirs = IndexManifestFile(pypaimon_table(directory))
    read = theirs.read("index-manifest-x-0")
    assert [each.index_file.file_name for each in read] == ["index-a-0", "index-b-0"]
    again = index_manifest.decode((directory / "manifest" / theirs.write(read)).read_bytes())
    assert sorted(again, key=lambda entry: entry.file.file_name) == entries


MESSAGES = {
    "empty": CommitMessage(EMPTY_ROW, 3),
    "all lists": CommitMessage(
        EMPTY_ROW,
        0,
        4,
        (DATA_FILE,),
        (replace(DATA_FILE, level=0),),
        (replace(DATA_FILE, file_name="changelog-1.parquet"),),
        (PAYLOAD,),
        (DELETIONS,),
        (DATA_FILE, replace(DATA_FILE, file_name="data-2.parquet")),
        (replace(DATA_FILE, value_stats=SimpleStats(row((1, "a"), ["INT", "STRING"]), row((2, None), ["INT", "STRING"]), (0, 1))),),
        (replace(DATA_FILE, extra_files=("x.index", "y")),),
        (DELETIONS, PAYLOAD),
        (PAYLOAD,),
        7,
    ),
}


@pytest.mark.parametrize("name", MESSAGES)
def test_pypaimon_rust_reads_our_messages_and_writes_the_same_bytes(name: str) -> None:
    if (reason := peers.absent("pypaimon_rust")) is not None:
        pytest.skip(f"pypaimon_rust: {reason}")
    from pypaimon_rust.datafusion import CommitMessage as RustMessage

    peers.asked["pypaimon_rust"] += 1
    body = commit_message.encode(MESSAGES[name], 14)
    assert RustMessage.deserialize(body, version=14).serialize() == body


@pytest.mark.parametrize("name", MESSAGES)
def test_pypaimon_reads_our_messages_and_writes_the_same_bytes(name: str) -> None:
    if (reason := peers.absent("pypaimon")) is not None:
        pytest.skip(f"pypaimon: {reason}")
    from pypaimon.schema.data_types import AtomicType, DataField
    from pypaimon.write.commit_message_serializer import deserialize_commit_message, serialize_commit_message

    peers.asked["pypaimon"] += 1
    body = commit_message.encode(MESSAGES[name], 14)
    message = deserialize_commit_message(body, [], [DataField(0, "id", AtomicType("BIGINT"))])
    again = serialize_commit_message(message, [])
    assert commit_message.decode(again, 14) == MESSAGES[name]


def test_messages_of_pypaimon_rust(tmp_path: Path) -> None:
    directory = written("pypaimon_rust", tmp_path)
    write = rust_table(directory).new_batch_write_builder().new_write()
    columns = [to_arrow_array([each[index] for each in ROWS], field.type) for index, field in enumerate(SCHEMA.fields)]
    write.write_arrow(pa.table(columns, schema=value_schema(SCHEMA.fields)).to_batches()[0])
    bodies = [message.serialize() for message in write.prepare_commit()]
    messages = [commit_message.decode(body, 14) for body in bodies]
    assert sum(file.row_count for message in messages for file in message.new_files) == len(ROWS)
    assert [commit_message.encode(message, 14) for message in messages] == bodies
