"""FM payloads have the bytes that spec 09 says: the vectors of its section 15, and whatever a writer makes that goes symbol by symbol."""

from __future__ import annotations

import hashlib
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from maintainer.format.byte_column import ByteColumn
from maintainer.format.fm_block import BlockInfo, load
from maintainer.format.fm_encode import Coding, PayloadWriter, suffix_array, text_of
from maintainer.format.fm_layout import Metadata, PartitionDirectory, PartitionFooter
from maintainer.format.stored_block import LZ4, NONE, ZSTD, compressor
from tests.support import fm_reference
from tests.support.campaign import share
from tests.support.fm_reference import Value

VECTORS: list[tuple[list[Value], int, int, str, str]] = [
    ([b"banana", None, b"\x00\xffbanana", b""], 4, 1860, "e2735836", "883c9aa005d58c128fa0b21f94c8ff3957b083ec036b363814d02a4ae7363821"),
    ([None], 32, 1672, "f2e92e95", "68b320bca0e2a8ff4fd512ccbe9a7174e2cca01638bb6cfdc85bd7d50ca1a9ed"),
    ([b""], 32, 1672, "f2e92e95", "e6bdc486e6d7b9a4039f9f6aa2dd875926d81cf96672485587d891ad96f93132"),
    ([b"a"], 32, 1676, "beae83d4", "f81daf44e1f5bb5c517b0187d5f5f38d4c3c06e0afd2f2a37ed3d6d0b33c1fcd"),
    (["\U0001f600".encode()], 32, 1840, "e9159bf5", "8ece4f640b01027a27c5a6075105c0f48423e7e1b2a89f330cbf6b6e804ec4b6"),
    ([b"ab", None, b"", b"ab"], 32, 1680, "6cfeed64", "65b35dee0ffccedad2c59ea4c18bf875bd9b15213f1f511f574861d51c8a0c09"),
]
"""Spec 09 §15: values, sample rate; bytes, checksum of the metadata, SHA-256. The first is Java's golden file."""

ALL_BYTES = bytes(range(256))


def payload(partitions: list[list[Value]], coding: Coding) -> tuple[bytes, bytes]:
    """A payload, and its metadata."""
    data = bytearray()
    writer = PayloadWriter(data.extend, coding)
    for values in partitions:
        half = len(values) // 2  # a partition comes in pieces
        pieces = [ByteColumn.of_rows([value or b"" for value in part]) for part in (values[:half], values[half:])]
        writer.add(text_of(pieces, np.array([value is None for value in values])))
    metadata = writer.finish()
    return bytes(data), metadata


@pytest.mark.parametrize(("values", "rate", "size", "meta", "digest"), VECTORS)
def test_payloads_of_the_specification(values: list[Value], rate: int, size: int, meta: str, digest: str) -> None:
    data, metadata = payload([values], Coding(rate))
    assert (len(data), metadata[-4:].hex(), hashlib.sha256(data).hexdigest()) == (size, meta, digest)
    assert fm_reference.write(values, rate) == (data, metadata)


values_of = st.lists(st.none() | st.binary(max_size=12) | st.text("ab", max_size=20).map(str.encode), min_size=1, max_size=12)


@given(st.lists(values_of, min_size=1, max_size=3), st.sampled_from([2**power for power in range(11)]))
@example([[ALL_BYTES, None, ALL_BYTES[::-1] * 2]], 4)  # 258 symbols
@example([[ALL_BYTES[:255], b"\x00"]], 1)  # 257: suffixes are sorted by two bytes to a symbol
@example([[ALL_BYTES[:254], b""]], 2)  # 256, and four levels
@example([[b"ab" * 1500]], 32)  # more than one group of words
@example([[None] * 70], 32)
def test_payloads_written_symbol_by_symbol(partitions: list[list[Value]], rate: int) -> None:
    expected = fm_reference.Payload()
    row = 0
    for values in partitions:
        fm_reference.partition(expected, values, row, rate)
        row += len(values)
    data, metadata = payload(partitions, Coding(rate))
    assert data.startswith(expected.data)
    assert [part.rows for part in Metadata.decode(metadata).partitions] == [len(values) for values in partitions]


@pytest.mark.parametrize("length", [31, 32, 33, 63, 64, 65, 2047, 2048, 4096])
def test_texts_that_fill_a_word_or_group(length: int) -> None:
    values: list[Value] = [b"x" * (length - 2)]
    assert payload([values], Coding(8)) == fm_reference.write(values, 8)


@pytest.mark.parametrize("symbols", [3, 200, 300])
def test_suffix_arrays_are_those_of_sorted_suffixes(symbols: int) -> None:
    random = np.random.default_rng(symbols)
    for _ in range(share("FM suffix arrays", short=20, long=500)):
        text = np.append(random.integers(1, symbols, random.integers(1, 400)), 0).astype(np.uint8 if symbols < 256 else np.uint16)
        found = suffix_array(text)
        assert found.tolist() == sorted(range(len(text)), key=lambda at, text=text: text[at:].tolist())


def blocks(data: bytes, metadata: bytes) -> list[BlockInfo]:
    """Those of all vectors of a payload of one partition."""
    partition = Metadata.decode(metadata).partitions[0]
    footer = PartitionFooter.decode(data[partition.end - 64 : partition.end], partition)
    directory = load(footer.directory, data[footer.directory.offset : footer.directory.end])
    return list(PartitionDirectory.decode(directory, footer, partition.start).blocks)


@pytest.mark.parametrize(("name", "codec"), [("lz4", LZ4), ("zstd", ZSTD)])
def test_blocks_are_compressed_where_that_saves_enough(name: str, codec: int) -> None:
    values: list[Value] = [b"abc" * 2000, b"x", *(b"" for _ in range(30)), ALL_BYTES, np.random.default_rng(1).bytes(900)]
    plain = payload([values], Coding(1))
    packed = payload([values], Coding(1, compressor(name)))
    infos = blocks(*packed)
    assert {info.codec for info in infos} == {NONE, codec}
    assert all((info.stored_size < info.size - info.size // 8) == (info.codec != NONE) for info in infos)
    raw = [load(info, packed[0][info.offset : info.end]) for info in infos]
    assert raw == [plain[0][info.offset : info.end] for info in blocks(*plain)]


def test_partitions_follow_one_another() -> None:
    _, metadata = payload([[b"a"], [None, b""], [b"b" * 100]], Coding(32))
    partitions = Metadata.decode(metadata).partitions
    assert [(part.first_row, part.rows) for part in partitions] == [(0, 1), (1, 2), (3, 1)]
    assert all(before.end == after.start for before, after in pairwise(partitions))
