"""ORC files that Java wrote, and damaged ones."""

from __future__ import annotations

import io
import os
import random
import zlib
from typing import Any

import pyarrow as pa
import pyarrow.orc as arrow_orc
import pytest
import zstandard

from maintainer.errors import CorruptFile, MaintainerError
from maintainer.format import binary_row, orc, orc_lengths
from maintainer.format.simple_stats import decode_stats, file_stats
from maintainer.model.files import SimpleStats
from tests.data.test_java_files import case_of, parquet_files, records
from tests.support import builders

CODECS = ("uncompressed", "zstd", "snappy", "lz4", "zlib")


@pytest.mark.parametrize("archive", ["types_orc.after", "nested_orc.after", "per_level_format.after"])
def test_records_are_those_of_java(archive: str) -> None:
    case = case_of(archive)
    compared = 0
    for entry, schema in parquet_files(case, (".orc",)):
        found = records(case, entry, schema)
        expected = case.json["dataFiles"].get(entry.file.file_name, {}).get("records")
        if expected is not None:
            assert found == expected
            compared += 1
    assert compared


def plain(rows: int = 3000) -> pa.Table:
    return pa.table(
        {
            "a": pa.array(range(rows)),
            "s": pa.array([f"x{i % 50}" for i in range(rows)]),
            "r": pa.array([str(i * i) * (i % 9) for i in range(rows)]),
            "l": pa.array([[i, i + 1] if i % 5 else None for i in range(rows)]),
            "t": pa.array([i * 12345 if i % 7 else None for i in range(rows)], pa.timestamp("us")),
        }
    )


def written(table: pa.Table, codec: str, **options: Any) -> bytes:
    sink = io.BytesIO()
    arrow_orc.write_table(table, sink, compression=codec, **options)
    return sink.getvalue()


def stripes(data: bytes) -> list[bytes]:
    """What Arrow is handed of each stripe."""

    def fetch(offset: int, length: int) -> bytes:
        return data[offset : offset + length]

    tail = orc.read_tail(fetch, len(data))
    columns = [(column, orc.Timestamps.WHOLE) for column in tail.types[0].children]
    return [orc.assemble(fetch, tail, stripe, orc.read_stripe_footer(fetch, tail, stripe), columns) for stripe in tail.stripes]


@pytest.mark.parametrize("codec", CODECS)
def test_a_stripe_becomes_a_file_of_its_own(codec: str) -> None:
    table = plain()
    data = written(table, codec, stripe_size=1, batch_size=1000, dictionary_key_size_threshold=0.5)
    found = [arrow_orc.ORCFile(pa.BufferReader(stripe)).read() for stripe in stripes(data)]
    assert len(found) == 3
    again = pa.concat_tables(found).rename_columns(table.column_names)
    assert again.to_pylist() == table.to_pylist()


def test_damaged_files_end_neither_the_process_nor_with_other_errors() -> None:
    """In a process of its own: what it is about is that it survives."""
    files = [written(plain(500), codec) for codec in CODECS]
    child = os.fork()
    if not child:
        status = 0
        try:
            chance = random.Random(7)
            for _ in range(300):
                damaged = bytearray(chance.choice(files))
                for _ in range(chance.choice([1, 1, 2, 4])):
                    damaged[chance.randrange(3, len(damaged))] = chance.choice([0, 127, 254, 255, chance.randrange(256)])
                try:
                    for stripe in stripes(bytes(damaged)):
                        arrow_orc.ORCFile(pa.BufferReader(stripe)).read_stripe(0).validate()
                except (MaintainerError, pa.ArrowException, OSError):
                    pass
        except BaseException:
            status = 1
        os._exit(status)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize(
    ("data", "version", "total"),
    [
        ("0a2710", 2, 50_000),  # short repeat
        ("5e035ca1ab1edeadbeef", 2, 23_713 + 43_806 + 57_005 + 48_879),  # direct
        ("8e13 2b21 07d0 1e00 1470 2832 3c46 505a 646e 7882 8c96 a0aa b4be fce8", 2, 1_039_890),  # patched
        ("c609 0202 2242 4246", 2, 129),  # deltas: the primes up to 29
        ("610007", 1, 700),
        ("fb020306070b", 1, 29),
    ],
)
def test_lengths_are_added_up(data: str, version: int, total: int) -> None:
    assert orc_lengths.total(bytes.fromhex(data), version) == total


@pytest.mark.parametrize("data", ["c1ff024fc1b70200", "0a27", "07", "7f", "3fffffffffffffffff"])
def test_wrong_lengths_are_corrupt(data: str) -> None:
    with pytest.raises(CorruptFile):
        orc_lengths.total(bytes.fromhex(data), 2)


def test_bounds_of_char_columns_are_padded_and_so_none() -> None:
    types = builders.types("CHAR(5)", "STRING")
    row = binary_row.serialize(["     ", "a"], types)
    stats = SimpleStats(row, row, (0, 0))
    assert file_stats("data-1.orc", stats, types) == [(None, None, 0), ("a", "a", 0)]
    assert file_stats("data-1.parquet", stats, types) == decode_stats(stats, types)


@pytest.mark.parametrize("codec", ["zlib", "zstd"])
def test_chunks_that_are_cut_off_or_too_large_are_corrupt(codec: str) -> None:
    text = b"".join(b"%d " % number for number in range(2000))
    raw = zlib.compressobj(wbits=-15)
    data = raw.compress(text) + raw.flush() if codec == "zlib" else zstandard.ZstdCompressor().compress(text)

    def content(chunk: bytes, most: int) -> bytes:
        return orc.decompress((len(chunk) << 1).to_bytes(3, "little") + chunk, codec, most, 1 << 20)

    assert content(data, len(text)) == text
    for cut in (1, 5, len(data) // 2):
        with pytest.raises(CorruptFile, match=r"cut off|decompressed"):
            content(data[:-cut], len(text))
    with pytest.raises(CorruptFile, match=str(len(text) - 1)):
        content(data, len(text) - 1)
