"""The tables of the measurements of queries, made once for all of them. `MAINTAINER_BENCH_TABLES` names a directory that keeps them.

rows_<n>       `n` million rows in 4 buckets, compacted; BTree on `number` (10 rows of each value, anywhere), `moment` (ascends with keys)
               and `name` (10 rows of each), Bitmap on `state` (100 values)
many_files     metadata of 100,000 data files which do not exist: 100 partitions of 10 buckets of 100 files of one level, with real BTree
               payloads of `number`, whose values are anywhere; statistics of `id` (the key, one range after the other) and `moment`
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import maintainer
from maintainer.commit.committer import Committer
from maintainer.format import binary_row, source_meta
from maintainer.format.simple_stats import SimpleStats
from maintainer.format.source_meta import SourceMeta, ordered
from maintainer.model.commit import CommitMessage
from maintainer.model.files import DataFileMeta, FileSource, GlobalIndexMeta, IndexFileMeta
from maintainer.model.schema import TableSchema
from maintainer.model.work import Result, WorkKind

DATABASE = "bench"
MILLION = 1_000_000
PARTITIONS, BUCKETS, FILES, FILE_ROWS = 100, 10, 100, 20
OPTIONS = {"deletion-vectors.enabled": "true", "write-only": "true"}


@cache
def warehouse() -> Path:
    given = os.environ.get("MAINTAINER_BENCH_TABLES")
    if given:
        return Path(given)
    directory = tempfile.TemporaryDirectory(prefix="maintainer-bench-")
    atexit.register(directory.cleanup)
    return Path(directory.name)


def many_rows(millions: int) -> Path:
    uri = warehouse() / f"{DATABASE}.db" / f"rows_{millions}"
    return uri if uri.exists() else _made(uri, lambda part: write_rows(str(part), millions * MILLION))


def updated_rows(millions: int) -> Path:
    uri = warehouse() / f"{DATABASE}.db" / f"updated_{millions}"
    return uri if uri.exists() else _made(uri, lambda part: _update(shutil.copytree(many_rows(millions), part), millions * MILLION))


def many_files() -> Path:
    uri = warehouse() / f"{DATABASE}.db" / "many_files"
    return uri if uri.exists() else _made(uri, _write_files)


def write_rows(uri: str, count: int, **storage: str) -> None:
    columns = "id BIGINT, number BIGINT, moment BIGINT, name STRING, state STRING, amount INT, price DOUBLE"
    options = {**OPTIONS, "bucket": "4", "pk-btree.index.columns": "number,moment,name", "pk-bitmap.index.columns": "state"}
    table = maintainer.create_table(uri, _ddl(columns, "id", options), storage_options=storage or None)
    shuffled = _shuffled(count)
    for first in range(0, count, MILLION):
        with table.writer() as writer:
            writer.write(_rows(np.arange(first, min(first + MILLION, count)), shuffled[first : first + MILLION]))
    _maintain(table, full=True)


def _update(uri: Path, count: int) -> None:
    table = maintainer.open_table(str(uri))
    ids = np.sort(np.random.default_rng(8).choice(count, count // 100, replace=False))
    with table.writer() as writer:
        writer.write(_rows(ids, _shuffled(count)[ids]))
    _maintain(table)
    if not any(file.deleted_rows for file in table.files().files):
        raise SystemExit("there should be deletion vectors")


def _maintain(table: maintainer.Table, full: bool = False) -> None:
    report = table.maintain(full=full, memory=1 << 30)
    if report.outcome != "committed" or table.coverage().visible_ratio != 1.0:
        raise SystemExit(f"the table did not become what it should: {report}")


def _shuffled(count: int) -> npt.NDArray[np.int64]:
    return np.random.default_rng(7).permutation(count)


def number_of(row: int, count: int) -> int:
    """A value of `number` that stands in 10 rows."""
    return row * 7919 % (count // 10)


def name_of(number: int) -> str:
    return f"customer-{number:08}"


def moment_of(key: int) -> int:
    """The least value of `moment` that rows have from this key on."""
    return key * 1000


def _made(uri: Path, write: Callable[[Path], None]) -> Path:
    """A table that was not written to its end is no table."""
    part = uri.with_name(f"{uri.name}_part")
    shutil.rmtree(part, ignore_errors=True)
    write(part)
    part.rename(uri)
    return uri


def _ddl(columns: str, key: str, options: dict[str, str], partitions: str = "") -> str:
    said = ", ".join(f"'{name}' = '{value}'" for name, value in options.items())
    return f"CREATE TABLE t ({columns}, PRIMARY KEY ({key}) NOT ENFORCED){partitions} WITH ({said})"


def _rows(ids: npt.NDArray[np.int64], shuffled: npt.NDArray[np.int64]) -> pa.Table:
    return pa.table(
        {
            "id": ids,
            "number": shuffled // 10,
            "moment": ids * 1000 + shuffled % 1000,
            "name": _numbered("customer", shuffled // 10, 8),
            "state": _numbered("state", shuffled % 100, 2),
            "amount": pa.array(shuffled % 100_003, pa.int32()),
            "price": (shuffled % 1_000_003) / 7.0,
        }
    )


def _numbered(name: str, of: npt.NDArray[np.int64], width: int) -> pa.Array:
    """`name-00042`"""
    whole = np.empty((len(of), len(name) + 1 + width), np.uint8)
    whole[:, :-width] = np.frombuffer(f"{name}-".encode(), np.uint8)
    for at in range(1, width + 1):
        of, whole[:, -at] = np.divmod(of, 10)
    whole[:, -width:] += ord("0")
    offsets = np.arange(0, whole.size + 1, whole.shape[1], dtype=np.int32)
    return pa.StringArray.from_buffers(len(whole), pa.py_buffer(offsets), pa.py_buffer(whole.reshape(-1)))


def _write_files(uri: Path) -> None:
    columns = "day STRING NOT NULL, id BIGINT NOT NULL, number BIGINT, moment BIGINT, name STRING"
    options = {**OPTIONS, "bucket": str(BUCKETS), "pk-btree.index.columns": "number"}
    table = maintainer.create_table(str(uri), _ddl(columns, "day, id", options, " PARTITIONED BY (day)"))
    committer = Committer(table.store, "bench")
    random = np.random.default_rng(9)
    (uri / "index").mkdir()
    buckets = [_bucket(table, day, bucket, random) for day in range(PARTITIONS) for bucket in range(BUCKETS)]
    for first in range(0, len(buckets), 100):
        snapshot = committer.commit_append([files for files, _ in buckets[first : first + 100]])
    assert snapshot is not None
    results = [Result(table.store.uri, snapshot.id, snapshot.uuid, 0, WorkKind.INDEX, "bench", None, message) for _, message in buckets]
    if not committer.commit_results(results).snapshots:
        raise SystemExit("the payloads were not committed")


def _bucket(table: maintainer.Table, day: int, bucket: int, random: np.random.Generator) -> tuple[CommitMessage, CommitMessage]:
    """A bucket of files whose values of `number` are random, and their payload."""
    schema = table.schema
    values = random.integers(0, MILLION, FILES * FILE_ROWS).reshape(FILES, FILE_ROWS)
    files = [_file(schema, day, bucket, at, values[at]) for at in range(FILES)]
    sources = ordered((file.file_name, file.row_count) for file in files)
    numbers = dict(zip((file.file_name for file in files), values, strict=True))
    name = f"index-{day:03}-{bucket:02}"
    definition = table.index_definitions["number"]
    with open(f"{table.store.uri}/index/{name}", "wb") as file:
        in_order = pa.chunked_array([pa.array(numbers[source]) for source, _ in sources])
        built = maintainer.build_payload(definition, in_order, len(in_order), file.write)
    meta = source_meta.encode(SourceMeta(5, sources))
    index = GlobalIndexMeta(0, built.row_count - 1, definition.field_id, None, built.index_meta, meta)
    payload = IndexFileMeta(definition.index_type, name, built.size, built.row_count, global_index=index)
    partition = binary_row.serialize((f"{day:03}",), [schema.field("day").type])
    return CommitMessage(partition, bucket, BUCKETS, new_files=tuple(files)), CommitMessage(
        partition, bucket, BUCKETS, new_index_files=(payload,)
    )


def _file(schema: TableSchema, day: int, bucket: int, at: int, numbers: npt.NDArray[np.int64]) -> DataFileMeta:
    """The keys of a file are above those of the file before it, and so are its moments; each bucket has every tenth key or so."""
    first = (day * FILES + at) * BUCKETS * FILE_ROWS
    last = first + BUCKETS * FILE_ROWS - 1
    key_type = [schema.field("id").type]
    key_low, key_high = binary_row.serialize((first,), key_type), binary_row.serialize((last,), key_type)
    types = [field.type for field in schema.fields]
    low = (f"{day:03}", first, int(numbers.min()), moment_of(first), "a")
    high = (f"{day:03}", last, int(numbers.max()), moment_of(last) + 999, "z")
    stats = SimpleStats(binary_row.serialize(low, types), binary_row.serialize(high, types), (0,) * len(types))
    return DataFileMeta(
        file_name=f"data-{day:03}-{bucket:02}-{at:03}.parquet",
        file_size=FILE_ROWS * 100,
        row_count=FILE_ROWS,
        min_key=key_low,
        max_key=key_high,
        key_stats=SimpleStats(key_low, key_high, (0,)),
        value_stats=stats,
        min_sequence_number=first,
        max_sequence_number=last,
        schema_id=0,
        level=5,
        creation_time=1_784_213_019_480,
        delete_row_count=0,
        file_source=FileSource.COMPACT,
    )
