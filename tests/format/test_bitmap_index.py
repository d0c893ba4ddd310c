"""The Bitmap payload's bytes; building from values is in tests/index."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from maintainer.errors import CorruptFile
from maintainer.format import posting
from maintainer.format.bitmap_file import BitmapFile
from maintainer.format.bitmap_index import BitmapWriter
from maintainer.format.byte_column import ByteColumn
from maintainer.format.stored_block import PayloadBytes, compressor
from maintainer.model.types import DataType
from tests.support.builders import type_
from tests.support.sorted_index import bitmap, reading, reference_bitmap, stored, varint

INT, STRING = type_("INT"), type_("STRING")


def opened(data: bytes, data_type: DataType = STRING, size: int | None = None) -> BitmapFile:
    return BitmapFile(PayloadBytes(reading(data), len(data) if size is None else size), data_type)


def key(number: int) -> bytes:
    return number.to_bytes(4, "little", signed=True)


def found(file: BitmapFile, wanted: bytes) -> list[int]:
    entry = file.lookup(wanted)
    return [] if entry is None else list(file.posting(entry))


@pytest.mark.parametrize("compression", ["none", "zstd"])
@pytest.mark.parametrize("block_size", [1, 6, 7, 30, 100, 10**6])
def test_blocks_are_cut_alike_however_keys_come(block_size: int, compression: str) -> None:
    rows = sorted((b"k%03d" % i if i % 7 else b"a longer key %d" % i, [i, i + 1000] if i % 3 else [i]) for i in range(100))
    expected = reference_bitmap(rows, [5000, 5001], block_size, compression)
    for batch in (1, 3, 100):
        parts: list[bytes] = []
        writer = BitmapWriter(lambda data, parts=parts: parts.append(bytes(data)), block_size, compressor(compression))
        for start in range(0, len(rows), batch):
            some = rows[start : start + batch]
            ids = np.array([i for _, own in some for i in own], np.int64)
            starts = np.cumsum([0, *(len(own) for _, own in some)])[:-1].astype(np.int64)
            writer.add(ByteColumn.of_rows([k for k, _ in some]), posting.encode_groups(ids, starts))
        writer.finish(*(posting.encode(np.array(ids)) for ids in ([5000, 5001], sorted(i for _, own in rows for i in own))))
        assert b"".join(parts) == expected


def test_block_size_must_be_positive() -> None:
    with pytest.raises(ValueError, match="must be greater than 0"):
        BitmapWriter(lambda data: None, 0)


NUMBERS = [-70000, -256, -1, 0, 1, 2, 255, 256, 257, 65535, 65536, 10**6]


@pytest.mark.parametrize("block_size", [1, 20, 60, 10**6])
@pytest.mark.parametrize("order", ["logical", "bytes"])
def test_dictionaries_of_either_order_are_read(order: str, block_size: int) -> None:
    # pypaimon and old Java snapshots order keys by their bytes (spec 08 §7.6)
    numbers = NUMBERS if order == "logical" else sorted(NUMBERS, key=key)
    data = reference_bitmap([(key(number), [NUMBERS.index(number)]) for number in numbers], [], block_size)
    for number in NUMBERS:
        assert found(opened(data, INT), key(number)) == [NUMBERS.index(number)]
    for number in (-5, 3, 7, 2**31 - 1, -(2**31), 512):
        assert found(opened(data, INT), key(number)) == []
    for low in (-300, 0, 3, 65536):
        for high in (-2, 0, 256, 10**6):
            between = {entry.key for entry in opened(data, INT).entries(low, high)}
            assert {key(number) for number in NUMBERS if low <= number <= high} <= between


def test_known_order_saves_reading_blocks() -> None:
    data = reference_bitmap([(b"%04d" % i, [i]) for i in range(1000)], [], 60)
    assert len(list(opened(data).entries(b"0100", b"0109"))) < 30
    assert len(list(opened(data).entries())) == 1000


def test_footer_is_checked() -> None:
    data = reference_bitmap([(b"a", [0])], [])
    with pytest.raises(CorruptFile, match="bad footer magic"):
        opened(data[:-1] + b"\x00")
    with pytest.raises(CorruptFile, match="Invalid bitmap global index file size"):
        opened(data[-47:])
    with pytest.raises(CorruptFile, match="Unsupported bitmap global index file version: 2"):
        opened(data[:-8] + struct.pack(">i", 2) + data[-4:])
    with pytest.raises(CorruptFile, match="negative"):
        opened(data[:-12] + struct.pack(">i", -1) + data[-8:])
    with pytest.raises(CorruptFile):
        opened(data, size=len(data) - 1)


def crafted(dictionary: bytes, index: bytes | None = None, values: int = 1) -> bytes:
    """A payload with one posting {0} and this dictionary block."""
    out = bitmap([0])
    block, size = stored(dictionary, "none")
    at = len(out)
    out += block
    rows = len(out)
    out += bitmap([0])
    index_block, index_size = stored(index if index is not None else b"\x01\x01a" + varint(at) + varint(size), "none")
    at = len(out)
    return out + index_block + struct.pack(">qiqiqiiii", rows, len(bitmap([0])), rows, len(bitmap([0])), at, index_size, values, 1, 0x42474958)


GOOD = b"\x01\x01a\x00" + varint(len(bitmap([0])))


def test_crafted_payload_is_read() -> None:
    assert found(opened(crafted(GOOD)), b"a") == [0]


@pytest.mark.parametrize(
    "dictionary",
    [b"", b"\x00", b"\x02" + GOOD[1:], GOOD + b"\x00", GOOD[:-1], b"\x01\x01b\x00\x1e", b"\x01\xff\xff\xff\xff\x7f",
     b"\x02\x01a\x00\x1e\x01a\x00\x1e", b"\x01\x01a\x00\x1d", b"\x01\x01a\x01\x1e", b"\x01\x01a\x00\xff\xff\x7f", b"\x01\x01a\x00\x00"],
)  # fmt: skip
def test_malformed_dictionaries_are_corrupt(dictionary: bytes) -> None:
    with pytest.raises(CorruptFile):
        found(opened(crafted(dictionary)), b"a")


@pytest.mark.parametrize(
    "index", [b"", b"\x02", b"\xff\xff\xff\xff\x7f", b"\x01\x01a\x1e", b"\x01\x01a\x1e\x05\x00", b"\x01\x01a\xff\xff\xff\x7f\x05"]
)
def test_malformed_index_blocks_are_corrupt(index: bytes) -> None:
    with pytest.raises(CorruptFile):
        found(opened(crafted(GOOD, index)), b"a")


def test_dictionary_without_an_order_is_corrupt() -> None:
    data = reference_bitmap([(key(number), [i]) for i, number in enumerate([256, 1, 0, 2])], [], 1)
    with pytest.raises(CorruptFile, match="no known order"):
        opened(data, INT).lookup(key(1))


def test_missing_keys_are_noticed_by_a_scan() -> None:
    with pytest.raises(CorruptFile, match="1 keys instead of 2"):
        list(opened(crafted(GOOD, values=2)).entries())
