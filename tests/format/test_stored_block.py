from __future__ import annotations

import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maintainer.errors import CorruptFile, Unsupported
from maintainer.format.stored_block import GAP, READ_AHEAD, TAIL_SIZE, PayloadBytes, compressor, open_block, store
from tests.support.sorted_index import LZ4_BTREE, stored, varint
from tests.support.strategies import mutated

RAW = st.binary(max_size=200) | st.integers(0, 400).map(lambda n: b"ab" * n)
LZ4_BLOCK = LZ4_BTREE[0x79 : 0x79 + 0x1A + 5]


def written(raw: bytes, name: str, level: int = 1) -> tuple[bytes, int]:
    parts: list[bytes] = []
    size = store((raw[:3], raw[3:]), lambda data: parts.append(bytes(data)), compressor(name, level))
    return b"".join(parts), size


def closed(body: bytes, number: int) -> bytes:
    """A block with this body and a right checksum."""
    checked = body + bytes((number,))
    return checked + struct.pack("<I", zlib.crc32(checked))


@given(RAW, st.sampled_from(["none", "zstd", "lz4"]))
def test_blocks_are_written_as_by_java_and_read_back(raw: bytes, name: str) -> None:
    data, size = written(raw, name)
    assert (data, size) == stored(raw, name)
    assert size == len(data) - 5
    assert open_block(data) == raw


def test_what_does_not_shrink_by_an_eighth_stays_raw() -> None:
    data, _ = written(bytes(range(256)), "zstd")
    assert data[-5] == 0
    data, size = written(b"a" * 256, "zstd")
    assert data[-5] == 1
    assert size < 30


def test_lz4_is_read() -> None:
    assert open_block(LZ4_BLOCK) == bytes.fromhex("1a" + "61" * 24 + "3131" + "020074" + "1e00000000")


@pytest.mark.parametrize(
    ("body", "number", "reason"),
    [
        (b"", 4, "unknown block compression 4"),
        (b"\x80", 1, "malformed"),
        (varint(5) + b"no frame", 1, "cannot be decompressed"),
        (varint(2**40) + written(b"a" * 100, "zstd")[0][1:-5], 1, "after decompression"),
        (varint(50) + written(b"a" * 100, "zstd")[0][1:-5], 1, "after decompression"),
        (varint(5) + b"\x00" * 3, 2, "truncated"),
        (varint(5) + struct.pack("<ii", 1, 6) + b"\x00", 2, "contradict"),
        (varint(2**31 - 1) + struct.pack("<ii", 4, 2**31 - 1) + b"\x00" * 4, 2, "contradict"),
        (varint(9) + struct.pack("<ii", 4, 9) + b"\xff" * 4, 2, "cannot be decompressed"),
    ],
)
def test_malformed_bodies_are_corrupt(body: bytes, number: int, reason: str) -> None:
    with pytest.raises(CorruptFile, match=reason):
        open_block(closed(body, number))


def test_lzo_is_said_to_be_unsupported() -> None:
    with pytest.raises(Unsupported, match="lzo"):
        open_block(closed(varint(5) + b"\x00" * 12, 3))


def test_a_level_makes_zstd_try_harder_and_is_cut_to_those_that_there_are() -> None:
    raw = b" ".join(b"%d" % (number * number) for number in range(4000))
    sizes = [written(raw, "zstd", level)[1] for level in (-100, 1, 19, 22)]
    assert sizes == sorted(sizes, reverse=True)
    assert len(set(sizes)) > 2
    for level in (-100, 3, 22):
        assert written(raw, "zstd", level) == stored(raw, "zstd", level)
    assert written(raw, "zstd", 99) == written(raw, "zstd", 22)
    assert open_block(written(raw, "zstd", -(2**40))[0]) == raw
    assert written(raw, "lz4", 9) == written(raw, "lz4", 1)


def test_an_lz4_block_of_java_is_as_small_as_ours() -> None:
    raw = open_block(LZ4_BLOCK)
    data, size = written(raw, "lz4")
    assert data[-5] == 2
    assert size == len(LZ4_BLOCK) - 5


@pytest.mark.parametrize("name", ["lzo", "snappy"])
def test_only_none_zstd_and_lz4_are_written(name: str) -> None:
    with pytest.raises(Unsupported, match=name):
        compressor(name)


@given(st.data(), st.sampled_from([written(b"abc", "none")[0], written(b"abc" * 99, "zstd")[0], LZ4_BLOCK]))
def test_changed_blocks_are_corrupt(data: st.DataObject, block: bytes) -> None:
    changed = data.draw(mutated(block).filter(lambda found: found != block))
    with pytest.raises(CorruptFile):
        open_block(changed)


class Recorder:
    """A payload that notes what was read."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.reads: list[tuple[int, int]] = []

    def __call__(self, offset: int, length: int) -> bytes:
        self.reads.append((offset, length))
        return self.data[offset : offset + length]


def test_the_end_is_read_once() -> None:
    recorder = Recorder(bytes(range(256)) * 1024)
    source = PayloadBytes(recorder, len(recorder.data))
    size = len(recorder.data)
    assert not source.is_at_hand(size - TAIL_SIZE)
    assert source.range(size - 52, 52) == recorder.data[-52:]
    assert source.range(size - 1000, 100) == recorder.data[-1000:-900]
    assert recorder.reads == [(size - TAIL_SIZE, TAIL_SIZE)]
    assert source.is_at_hand(size - TAIL_SIZE)
    assert not source.is_at_hand(0)
    assert source.range(size - TAIL_SIZE - 10, 30) == recorder.data[-TAIL_SIZE - 10 : 20 - TAIL_SIZE]
    assert recorder.reads[1:] == [(size - TAIL_SIZE - 10, 10)]


def test_without_its_end_a_payload_is_read_as_it_is_asked_for() -> None:
    recorder = Recorder(bytes(range(256)) * 1024)
    source = PayloadBytes(recorder, len(recorder.data))
    assert source.range(len(recorder.data) - 20, 10) == recorder.data[-20:-10]
    assert source.range(7, 0) == b""
    assert recorder.reads == [(len(recorder.data) - 20, 10)]


def test_the_end_of_a_large_payload_is_larger() -> None:
    size = 300 << 20
    reads = []

    def read(offset: int, length: int) -> bytes:
        reads.append((offset, length))
        return bytes(length)

    PayloadBytes(read, size).range(size - 10, 10)
    assert reads == [(size - size // 1500, size // 1500)]


def test_neighbours_are_read_together() -> None:
    recorder = Recorder(bytes(range(256)) * (1 << 15))
    source = PayloadBytes(recorder, len(recorder.data))
    spans = [(offset, 1000) for offset in range(0, 5 << 20, 1000)]
    assert [*source.ranges(spans)] == [recorder.data[offset : offset + length] for offset, length in spans]
    assert len(recorder.reads) == 2
    assert max(length for _, length in recorder.reads) <= READ_AHEAD
    del recorder.reads[:]
    spans = [(0, 10), (GAP + 10, 10), (2 * GAP + 21, 10), (5, 3), (9, 0)]
    assert [*source.ranges(iter(spans))] == [recorder.data[offset : offset + length] for offset, length in spans]
    assert recorder.reads == [(0, GAP + 20), (2 * GAP + 21, 10), (5, 4)]


def test_blocks_are_read_together() -> None:
    pieces = [written(bytes(100) * number, name)[0] for number, name in ((1, "none"), (9, "zstd"), (20, "lz4"))]
    recorder = Recorder(b"".join(pieces))
    source = PayloadBytes(recorder, len(recorder.data))
    ends = [sum(map(len, pieces[: number + 1])) for number in range(3)]
    handles = [(end - len(piece), len(piece) - 5) for end, piece in zip(ends, pieces, strict=True)]
    assert [*source.blocks(handles)] == [bytes(100), bytes(900), bytes(2000)]
    assert len(recorder.reads) == 1
    with pytest.raises(CorruptFile, match="a block of -1 bytes"):
        [*source.blocks([(0, -1)])]


@pytest.mark.parametrize(("offset", "length"), [(-1, 2), (0, 101), (100, 1), (2**62, 1), (5, -1)])
def test_ranges_outside_of_the_payload_are_corrupt(offset: int, length: int) -> None:
    source = PayloadBytes(Recorder(bytes(100)), 100)
    with pytest.raises(CorruptFile, match="outside"):
        source.range(offset, length)
    with pytest.raises(CorruptFile):
        source.block(offset, length)


def test_a_payload_shorter_than_its_metadata_says_is_corrupt() -> None:
    source = PayloadBytes(Recorder(bytes(90)), 100)
    with pytest.raises(CorruptFile, match="shorter"):
        source.range(85, 10)
