from __future__ import annotations

import random
import zlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from maintainer.errors import CorruptFile, UsageError
from maintainer.format import deletion_vector
from maintainer.model.files import DeletionRange
from tests.support import campaign

VECTORS = [  # spec 02 §12.5: 64-bit form, positions, f2, bytes from the length to the CRC
    (False, [], 12, "0000000c 5e43f2d0 3a30000000000000 5de5c7e9"),
    (False, [0], 22, "00000016 5e43f2d0 3a3000000100000000000000100000000000 e33060d3"),
    (False, [1, 3, 5], 26, "0000001a 5e43f2d0 3a300000010000000000020010000000010003000500 f39291eb"),
    (False, range(20), 19, "00000013 5e43f2d0 3b3000000100001300010000001300 fe182db1"),
    (
        False,
        [65535, 65536, 70000],
        34,
        "00000022 5e43f2d0 3a300000020000000000000001000100180000001a000000ffff00007011 f8ed18f2",
    ),
    (True, [], 20, "0000000c d1d33964 0000000000000000 bf18480c"),
    (True, [0], 42, "00000022 d1d33964 0100000000000000 00000000 3a3000000100000000000000100000000000 f7a6b4b5"),
    (True, [1, 3, 5], 46, "00000026 d1d33964 0100000000000000 00000000 3a300000010000000000020010000000010003000500 5a9e5d39"),
    (True, range(20), 39, "0000001f d1d33964 0100000000000000 00000000 3b3000000100001300010000001300 0b533d4f"),
    (
        True,
        [7, 2 * 2**32 + 9],
        76,
        "00000044 d1d33964 0300000000000000 00000000 3a3000000100000000000000100000000700 01000000 3a30000000000000"
        " 02000000 3a3000000100000000000000100000000900 31ea1d3a",
    ),
]


@pytest.mark.parametrize(("bitmap64", "positions", "length", "data"), VECTORS)
def test_vectors_of_java(bitmap64: bool, positions: list[int], length: int, data: str) -> None:
    encoded, ranges = deletion_vector.encode_file({"f": BitMap64(positions)}, bitmap64)
    assert encoded == b"\x01" + bytes.fromhex(data)
    assert ranges == (DeletionRange("f", 1, length, len(positions)),)
    assert deletion_vector.decode_file(encoded, ranges) == {"f": BitMap64(positions)}


def test_whole_file_of_java() -> None:
    data = bytes.fromhex("01 00000022 d1d33964 0100000000000000 00000000 3a3000000100000000000000100000000200 c590d637")
    assert len(data) == 43
    ranges = (DeletionRange("f", 1, 42, 1),)
    assert deletion_vector.decode_file(data, ranges) == {"f": BitMap64([2])}
    assert deletion_vector.encode_file({"f": BitMap64([2])}, True) == (data, ranges)


def test_file_without_vectors_is_one_byte() -> None:
    assert deletion_vector.encode_file({}, False) == (b"\x01", ())
    assert deletion_vector.decode_file(b"\x01", ()) == {}


def test_one_file_may_hold_both_forms() -> None:
    small, (first,) = deletion_vector.encode_file({"a": BitMap64([1])}, False)
    large, (second,) = deletion_vector.encode_file({"b": BitMap64([2, 2**33])}, True)
    moved = replace(second, offset=len(small))
    assert deletion_vector.decode_file(small + large[1:], (first, moved)) == {"a": BitMap64([1]), "b": BitMap64([2, 2**33])}


def test_cardinality_may_be_unknown() -> None:
    data, (vector,) = deletion_vector.encode_file({"a": BitMap64([1, 2])}, False)
    assert deletion_vector.decode_vector(data, replace(vector, cardinality=None)) == BitMap64([1, 2])


def test_sparse_high_keys_are_read() -> None:
    body = BitMap64([9 * 2**32]).serialize()
    data = bytes.fromhex("d1d33964") + body
    file = b"\x01" + len(data).to_bytes(4, "big") + data + zlib.crc32(data).to_bytes(4, "big")
    assert deletion_vector.decode_vector(file, DeletionRange("f", 1, len(data) + 8)) == BitMap64([9 * 2**32])


def test_enormous_gaps_between_high_keys_are_not_written_out() -> None:
    largest = BitMap64([0, (2**31 - 2) * 2**32 + 2**31])
    data, ranges = deletion_vector.encode_file({"f": largest}, True)
    assert len(data) < 200
    assert deletion_vector.decode_file(data, ranges) == {"f": largest}


@pytest.mark.parametrize(("position", "bitmap64"), [(2**31, False), ((2**31 - 2) * 2**32 + 2**31 + 1, True)])
def test_positions_beyond_the_form_are_refused(position: int, bitmap64: bool) -> None:
    with pytest.raises(UsageError, match="f: position"):
        deletion_vector.encode_file({"f": BitMap64([position])}, bitmap64)


def _framed(data: bytes) -> bytes:
    return b"\x01" + len(data).to_bytes(4, "big") + data + zlib.crc32(data).to_bytes(4, "big")


BODY_32 = bytes.fromhex("5e43f2d0 3a300000010000000000020010000000010003000500")
BODY_64 = bytes.fromhex("d1d33964 0100000000000000 00000000 3a300000010000000000020010000000010003000500")
ERRORS = {
    "empty file": (b"", DeletionRange("f", 1, 26), "version byte"),
    "version": (b"\x02" + _framed(BODY_32)[1:], DeletionRange("f", 1, 26), "version 2"),
    "magic": (_framed(b"\x00" + BODY_32[1:]), DeletionRange("f", 1, 26), "magic"),
    "length of the 32-bit form": (_framed(BODY_32), DeletionRange("f", 1, 34), "the manifest says 34"),
    "length of the 64-bit form": (_framed(BODY_64), DeletionRange("f", 1, 38), "the manifest says 38"),
    "offset before the first vector": (_framed(BODY_32), DeletionRange("f", 0, 26), "outside"),
    "negative offset": (_framed(BODY_32), DeletionRange("f", -5, 26), "outside"),
    "offset behind the end": (_framed(BODY_32), DeletionRange("f", 99, 26), "outside"),
    "truncated": (_framed(BODY_32)[:-1], DeletionRange("f", 1, 26), "has 26 bytes"),
    "negative length": (b"\x01\xff\xff\xff\xff" + bytes(20), DeletionRange("f", 1, -1), "has -1 bytes"),
    "checksum": (_framed(BODY_32)[:-1] + b"\x00", DeletionRange("f", 1, 26), "checksum"),
    "trailing bytes": (_framed(BODY_32 + b"\x00"), DeletionRange("f", 1, 27), "follow"),
    "negative key": (_framed(BODY_64.replace(bytes(4) + b":", b"\xff\xff\xff\xff:")), DeletionRange("f", 1, 46), "negative"),
    "cardinality": (_framed(BODY_32), DeletionRange("f", 1, 26, 4), "deletes 3 positions"),
    "position too large for the form": (
        _framed(bytes.fromhex("5e43f2d0 3a300000 01000000 ffff 0000 10000000 0000")),
        DeletionRange("f", 1, 22),
        "deletes position 4294901760",
    ),
}


@pytest.mark.parametrize("error", ERRORS)
def test_error(error: str) -> None:
    data, vector, reason = ERRORS[error]
    with pytest.raises(CorruptFile, match=reason):
        deletion_vector.decode_file(data, [vector])


def test_two_vectors_for_one_data_file_are_corrupt() -> None:
    with pytest.raises(CorruptFile, match="two deletion vectors for f"):
        deletion_vector.decode_file(_framed(BODY_32), [DeletionRange("f", 1, 26), DeletionRange("f", 1, 26)])


positions = st.sets(st.integers(0, 300)) | st.sets(st.integers(0, 2**31 - 1), max_size=20)


@given(st.dictionaries(st.sampled_from("abcdef"), positions), st.booleans())
def test_round_trip(vectors: dict[str, set[int]], bitmap64: bool) -> None:
    wanted = {name: BitMap64(values) for name, values in vectors.items()}
    data, ranges = deletion_vector.encode_file(wanted, bitmap64)
    assert [vector.data_file for vector in ranges] == sorted(vectors)
    assert ranges[-1].offset + ranges[-1].length + (0 if bitmap64 else 8) == len(data) if ranges else data == b"\x01"
    assert deletion_vector.decode_file(data, ranges) == wanted


def test_random_vectors_of_every_container_kind() -> None:
    chance = random.Random(7)
    for _ in range(campaign.share("deletion vectors", short=200, long=800)):
        bitmap = BitMap64()
        for _ in range(chance.randint(1, 4)):
            start = chance.choice([0, 65536 * chance.randrange(20), chance.randrange(2**31 - 200_000)])
            kind = chance.randrange(3)
            if kind == 0:
                bitmap |= BitMap64(range(start, start + chance.randint(1, 100_000)))
            elif kind == 1:
                bitmap |= BitMap64(chance.sample(range(start, start + 70_000), chance.randint(1, 6000)))
            else:
                bitmap |= BitMap64(range(start, start + 65536, chance.randint(2, 40)))
        for bitmap64 in (False, True):
            data, ranges = deletion_vector.encode_file({"f": bitmap}, bitmap64)
            assert deletion_vector.decode_file(data, ranges) == {"f": bitmap}


def test_mutated_files_are_corrupt_or_the_same() -> None:
    chance = random.Random(3)
    wanted = {"a": BitMap64([1, 3, 5]), "b": BitMap64(range(5000)), "c": BitMap64(range(0, 99999, 7))}
    for bitmap64 in (False, True):
        data, ranges = deletion_vector.encode_file(wanted, bitmap64)
        for _ in range(3000):
            mutated = bytearray(data)
            mutated[chance.randrange(len(mutated))] ^= 1 << chance.randrange(8)
            with pytest.raises(CorruptFile):
                deletion_vector.decode_file(bytes(mutated), ranges)
            with pytest.raises(CorruptFile):
                deletion_vector.decode_file(data[: chance.randrange(len(data))], ranges)
