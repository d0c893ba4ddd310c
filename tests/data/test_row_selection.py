"""What of a data file is read when only some of its rows are wanted: stripes of ORC files, blocks of Avro files, and no byte of the others."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyroaring import BitMap64

from maintainer.data import avro_file
from maintainer.data.reader import DataFile, open_data_file
from maintainer.errors import CorruptFile
from maintainer.format import avro, orc
from maintainer.model.files import DataFileMeta
from maintainer.storage.ranges import RangeInput
from maintainer.storage.storage import Storage
from tests.support import builders
from tests.support.campaign import share
from tests.support.data_files import kv_table, open_file, write_rows

SCHEMA = builders.schema({"id": "INT", "name": "STRING", "price": "DOUBLE"})
ROWS = 70_000
"""Three stripes of an ORC file, and some dozens of blocks of an Avro file."""
ROUNDS = share("damaged files of which some rows are read", short=12, long=2_000)
WANTED = ([0], [ROWS - 1], [5, 6, 7, 40_000], range(30_000, 36_000), range(0, ROWS, 997), range(ROWS))


def rows(count: int) -> pa.Table:
    names = [f"{i * 7919 % 100_003}-{i}" for i in range(count)]
    return kv_table(SCHEMA, {"id": range(count), "name": names, "price": [i / 2 for i in range(count)]})


@pytest.fixture(scope="module", params=["orc", "avro"])
def file(request: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Storage, DataFileMeta]:
    storage = Storage.open(str(tmp_path_factory.mktemp(request.param)))
    (meta,) = write_rows(storage, SCHEMA, rows(ROWS), options={"file.format": request.param}, level=5)
    return storage, meta


def remote(storage: Storage, meta: DataFileMeta) -> Storage:
    """The same file in a store of requests."""
    copy = Storage.open(f"memory://{uuid.uuid4()}/t")
    copy.write(f"bucket-0/{meta.file_name}", storage.read(f"bucket-0/{meta.file_name}"))
    return copy


def selected(data: DataFile, positions: Sequence[int], columns: list[str]) -> list[tuple[Any, ...]]:
    """The rows at these positions, each with its position."""
    data.narrow(BitMap64(positions))
    found: list[tuple[Any, ...]] = []
    for here, batch in data.selected(columns, np.array(positions, np.int64), 10_000):
        found += zip(here.tolist(), *(column.to_pylist() for column in batch.columns), strict=True)
    return found


@pytest.mark.parametrize("positions", WANTED, ids=str)
@pytest.mark.parametrize("where", [lambda storage, _: storage, remote], ids=["local", "remote"])
def test_rows_at_positions_are_those_of_the_whole_file(
    file: tuple[Storage, DataFileMeta], where: Callable[[Storage, DataFileMeta], Storage], positions: Sequence[int]
) -> None:
    storage, meta = file
    whole = rows(ROWS).select(["name", "id"]).take(pa.array(positions, pa.int64())).to_pylist()
    with open_file(where(storage, meta), meta, SCHEMA) as data:
        assert selected(data, positions, ["name", "id"]) == [(at, *row.values()) for at, row in zip(positions, whole, strict=True)]
        assert sum(group.rows for group in data.row_groups) == ROWS


def test_what_holds_no_wanted_row_is_not_decompressed(file: tuple[Storage, DataFileMeta], monkeypatch: pytest.MonkeyPatch) -> None:
    storage, meta = file
    seen: list[int] = []
    for module in (avro, orc):
        plain = module.decompress
        monkeypatch.setattr(module, "decompress", lambda data, *rest, plain=plain: (seen.append(len(data)), plain(data, *rest))[1])
    with open_file(storage, meta, SCHEMA) as data:
        seen.clear()
        assert len(selected(data, [40_000], ["id"])) == 1
    if meta.file_name.endswith(".avro"):
        assert len(seen) == 1
    else:
        assert len(seen) == 2, "the footer of one stripe, and a stream of one column"
    assert sum(seen) < meta.file_size / 8


def test_a_file_that_is_known_is_not_walked_again(file: tuple[Storage, DataFileMeta], monkeypatch: pytest.MonkeyPatch) -> None:
    storage, meta = file
    far = remote(storage, meta)
    with open_file(far, meta, SCHEMA) as data:
        first = selected(data, [5, 40_000], ["id"])
        known = data.known
    assert known is not None and 0 < known.held < meta.file_size
    asked: list[list[tuple[int, int]]] = []
    plain = RangeInput.__init__

    def init(self: RangeInput, fetch: Any, *rest: Any, **more: Any) -> None:
        plain(self, lambda spans: (asked.append(list(spans)), fetch(spans))[1], *rest, **more)

    monkeypatch.setattr(RangeInput, "__init__", init)
    with open_data_file(far, f"bucket-0/{meta.file_name}", meta, SCHEMA, SCHEMA) as data:
        kind = type(data)
    asked.clear()
    with kind(far, f"bucket-0/{meta.file_name}", meta, SCHEMA, SCHEMA, known) as data:
        assert selected(data, [5, 40_000], ["id"]) == first
        with data.again() as other:
            assert selected(other, [5, 40_000], ["id"]) == first
    assert all(sum(end - start for start, end in spans) < meta.file_size / 2 for spans in asked)
    assert len(asked) <= 4, "for each of both, one request"


def avro_table(tmp_path: Path, blocks: list[list[int]], codec: str = "null", change: Callable[[int, int], int] = lambda _, count: count) -> Any:
    """A file with these blocks of ids; `change` is what each of them claims to have."""
    storage = Storage.open(str(tmp_path))
    schema = '{"type":"record","name":"r","fields":[{"name":"id","type":"int"},{"name":"name","type":["null","string"]}]}'
    sync = b"0123456789abcdef"
    parts = [avro.header(schema, codec, sync)]
    for number, ids in enumerate(blocks):
        text = b"\2" + avro.varint(20_000) + b"x" * 20_000
        block = avro.compress(codec, 1, b"".join(avro.varint(value) + text for value in ids))
        parts += [avro.varint(change(number, len(ids))), avro.varint(len(block)), block, sync]
    storage.write("bucket-0/data-1.avro", b"".join(parts))
    total = sum(map(len, blocks))
    return storage, builders.file_meta("data-1.avro", rows=total, size=sum(map(len, parts)))


BLOCKS = [[*range(20 * number, 20 * number + 20)] for number in range(8)]
"""Of 400 KB each, so that it is worth a request not to fetch one."""
NAMES = builders.schema({"id": "INT", "name": "STRING"})


def test_large_blocks_without_wanted_rows_are_not_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage, meta = avro_table(tmp_path, BLOCKS)
    fetched: list[int] = []
    plain = RangeInput.read
    monkeypatch.setattr(RangeInput, "read", lambda self, length: (fetched.append(length), plain(self, length))[1])
    with open_file(remote(storage, meta), meta, NAMES) as data:
        asked: list[list[tuple[int, int]]] = []
        data._prefetch = lambda spans, given=data._prefetch: (asked.append(list(spans)), given(spans))[1]  # type: ignore[attr-defined]
        fetched.clear()
        assert [row[1] for row in selected(data, [70, 71, 150], ["id"])] == [70, 71, 150]
    (spans,) = asked
    assert [400_000 < end - start < 401_000 for start, end in spans] == [True, True], "two blocks, fetched together"
    assert sorted(fetched) == [16, 32, *[48] * 7, 400_132, 400_136], "of the others their heads and markers"


def test_blocks_that_the_walk_brings_are_not_fetched_again(tmp_path: Path) -> None:
    storage, meta = avro_table(tmp_path, BLOCKS, codec="zstandard")  # small ones
    with open_file(remote(storage, meta), meta, NAMES) as data:
        asked: list[list[tuple[int, int]]] = []
        data._prefetch = lambda spans, given=data._prefetch: (asked.append(list(spans)), given(spans))[1]  # type: ignore[attr-defined]
        assert [row[1] for row in selected(data, [70], ["id"])] == [70]
    assert asked == [[]]


@pytest.mark.parametrize("codec", ["null", "zstandard"])
def test_a_wrong_count_of_a_block_that_is_not_read_is_corrupt(tmp_path: Path, codec: str) -> None:
    storage, meta = avro_table(tmp_path, BLOCKS, codec, lambda number, count: count - (number == 2))
    with open_file(storage, meta, NAMES) as data, pytest.raises(CorruptFile, match="159 records, its metadata says 160"):
        data.narrow(BitMap64([100]))


def test_rows_of_blocks_without_records(tmp_path: Path) -> None:
    storage, meta = avro_table(tmp_path, [[], [1, 2], [], [], [3], []])
    with open_file(storage, meta, NAMES) as data:
        assert [row[1] for row in selected(data, [2], ["id"])] == [3]
    storage, meta = avro_table(tmp_path / "none", [[], []])
    with open_file(storage, meta, NAMES) as data:
        assert selected(data, [], ["id"]) == [] and data.row_groups == ()


def test_damaged_blocks_are_corrupt_or_other_values(file: tuple[Storage, DataFileMeta], tmp_path: Path) -> None:
    storage, meta = file
    content = storage.read(f"bucket-0/{meta.file_name}")
    copy, chance, refused = Storage.open(str(tmp_path)), random.Random(3), 0
    for number in range(ROUNDS):
        damaged = bytearray(content)
        for _ in range(chance.choice([1, 3])):
            damaged[chance.randrange(len(damaged))] = chance.choice([0, 255, chance.randrange(256)])
        other = replace(meta, file_name=f"data-{number}.{meta.file_name.rpartition('.')[2]}")
        copy.write(f"bucket-0/{other.file_name}", damaged)
        try:
            with open_file(copy, other, SCHEMA) as data:
                selected(data, [7, 33_333, 33_334, 69_999], ["id", "name"])
        except CorruptFile:
            refused += 1
        copy.delete(f"bucket-0/{other.file_name}")
    assert refused


def test_runs_of_wanted_blocks_are_no_larger_than_is_decoded_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(avro_file, "_AT_ONCE", 10)
    wanted = [True, True, True, False, False, True]
    assert [(run.start, run.stop) for run in avro_file._runs(wanted, [5, 5, 5, 50, 50, 11])] == [(0, 2), (2, 3), (3, 5), (5, 6)]
