"""Damaged FM payloads: whatever was changed is found, at the price of an error that says so, and of nothing more (spec 09 §9, §20)."""

from __future__ import annotations

import random
import struct
import time
import tracemalloc
from collections.abc import Callable

import pytest

from maintainer.errors import CorruptFile, Unsupported
from maintainer.format import fm_block
from maintainer.format.fm_layout import ContainerFooter, Metadata, PartitionDirectory, PartitionFooter
from maintainer.index.family.fm_reader import FMReader
from maintainer.model.predicate import Leaf, Op
from tests.support import fm_reference
from tests.support.campaign import share
from tests.support.sorted_index import definition, reading

GOLDEN = [b"banana", None, b"\x00\xffbanana", b""]
DATA, META = fm_reference.write(GOLDEN, 4)  # spec 09 §15: Java's golden file
LARGEST = struct.pack(">q", 2**63 - 1)


def reader(data: bytes = DATA, meta: bytes | None = META, rows: int = len(GOLDEN), **options: str) -> FMReader:
    given = {f"fm-index.{name.replace('_', '-')}": value for name, value in options.items()}
    return FMReader(reading(data), len(data), definition("fm", "STRING", given), meta, rows)


def flips(data: bytes, name: str, short: int) -> list[int]:
    count = share(name, short=short, long=8 * len(data))
    return sorted(random.Random(len(data)).sample(range(8 * len(data)), count))


def flipped(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def refused(*args: object) -> str:
    with pytest.raises((CorruptFile, Unsupported)) as caught:
        reader(*args).verify()  # type: ignore[arg-type]
    return str(caught.value)


def test_every_flipped_bit_of_a_payload_is_found() -> None:
    assert reader().verify() == []
    for bit in flips(DATA, "flipped bits of Java's FM payload", 4000):
        refused(flipped(DATA, bit))


def test_every_flipped_bit_of_metadata_is_found() -> None:
    for bit in flips(META, "flipped bits of FM metadata", 480):
        refused(DATA, flipped(META, bit))


def test_questions_are_right_or_refused_when_a_bit_is_flipped() -> None:
    leaves = [Leaf(Op.CONTAINS, "c", ("ana",)), Leaf(Op.EQ, "c", ("banana",)), Leaf(Op.IS_NULL, "c")]
    right = [list(reader(locate_cost_ratio="1").evaluate(leaf) or ()) for leaf in leaves]
    for bit in flips(DATA, "flipped bits of an FM payload that is asked", 300):
        for leaf, expected in zip(leaves, right, strict=True):
            try:
                found = reader(flipped(DATA, bit), locate_cost_ratio="1").evaluate(leaf)
            except (CorruptFile, Unsupported):
                continue
            assert list(found or ()) == expected


@pytest.mark.parametrize("size", [0, 1, 59, 63, 64, 1000, len(DATA) - 1])
def test_a_payload_that_is_cut_off(size: int) -> None:
    refused(DATA[:size])
    refused(DATA[-size:] if size else b"")


def test_bytes_after_the_end() -> None:
    assert "not the footer" in refused(DATA + b"\0")
    refused(b"\0" * 8 + DATA)


def test_a_file_that_is_shorter_than_the_index_manifest_says() -> None:
    with pytest.raises(CorruptFile, match="shorter than its metadata"):
        FMReader(reading(DATA[:1000]), len(DATA), definition("fm", "STRING", {}), META, 4).verify()


def test_metadata_must_be_there_and_that_of_the_file() -> None:
    assert "no metadata" in refused(DATA, None)
    assert "no metadata" in refused(DATA, b"")
    other = fm_reference.write([b"banana", None, b"\x00\xffbanana!", b""], 4)[1]
    assert "not that of the file" in refused(DATA, other)
    assert "4 rows from 0 on, its sources have 5" in refused(DATA, META, 5)
    shifted = Metadata(7, 4, tuple(part.__class__(part.start, part.end, 7, part.rows) for part in Metadata.decode(META).partitions))
    assert "from 7 on" in refused(DATA, shifted.encode())


FOOTER = ContainerFooter.decode(DATA[-64:], len(DATA))
PART = Metadata.decode(META).partitions[0]
PART_FOOTER = PartitionFooter.decode(DATA[PART.end - 64 : PART.end], PART)
DIRECTORY = DATA[PART_FOOTER.directory.offset : PART_FOOTER.directory.end]


def with_footer(at: int, value: bytes) -> bytes:
    """The payload with other bytes in its footer, and the right checksum."""
    footer = bytearray(DATA[-64:])
    footer[at : at + len(value)] = value
    footer[60:] = struct.pack(">I", fm_block.checksum(bytes(footer[:60])))
    return DATA[:-64] + bytes(footer)


def with_partition_footer(at: int, value: bytes) -> bytes:
    footer = bytearray(DATA[PART.end - 64 : PART.end])
    footer[at : at + len(value)] = value
    footer[60:] = struct.pack(">I", fm_block.checksum(bytes(footer[:60])))
    return DATA[: PART.end - 64] + bytes(footer) + DATA[PART.end :]


def with_directory(change: Callable[[bytearray], None]) -> bytes:
    """The payload with another directory of its partition, and right checksums."""
    raw = bytearray(DIRECTORY)
    change(raw)
    return with_block(PART_FOOTER.directory, bytes(raw))


def with_block(info: fm_block.BlockInfo, raw: bytes) -> bytes:
    """The payload with other bytes in a block, and the right checksum wherever it is said."""
    assert len(raw) == info.size
    sealed = info.__class__(info.offset, len(raw), len(raw), 0, fm_block.checksum(raw))
    changed = (DATA[: info.offset] + raw + DATA[info.end :]).replace(info.encode(), sealed.encode())
    if info != PART_FOOTER.directory:
        directory = changed[PART_FOOTER.directory.offset : PART_FOOTER.directory.end]
        again = fm_block.BlockInfo(PART_FOOTER.directory.offset, len(directory), len(directory), 0, fm_block.checksum(directory))
        changed = changed.replace(PART_FOOTER.directory.encode(), again.encode())
    footer = changed[PART.end - 64 : PART.end - 4]
    return changed[: PART.end - 4] + struct.pack(">I", fm_block.checksum(footer)) + changed[PART.end :]


@pytest.mark.parametrize(
    ("at", "value", "says"),
    [
        (52, b"\0\0\0\2", "version 2"),
        (44, b"\0\0\0\x0f", "feature flags 15"),
        (44, b"\0\0\0\3", "feature flags 3"),
        (48, b"\0\0\0\1", "reserved"),
        (24, LARGEST, "rows"),
        (32, LARGEST, "contradicts its directory"),
        (40, b"\0\0\0\0", "partitions"),
        (40, b"\x7f\xff\xff\xff", "partitions"),
        (0, LARGEST, "impossible block"),
        (8, b"\x7f\xff\xff\xff\x7f\xff\xff\xff", "impossible block"),
        (12, b"\x01\x00\x00\x01", "impossible block"),
        (16, b"\0\0\0\4", "codec 4"),
    ],
)
def test_footers_that_claim_what_cannot_be(at: int, value: bytes, says: str) -> None:
    assert says in refused(with_footer(at, value))


@pytest.mark.parametrize(
    ("at", "value", "says"),
    [
        (52, b"\0\0\0\2", "version 2"),
        (44, b"\0\0\0\x0f", "feature flags 15"),
        (48, b"\0\0\0\1", "reserved"),
        (24, LARGEST, "other rows"),
        (32, b"\0\0\0\5", "other rows"),
        (36, b"\0\0\0\4", "4 symbols"),
        (36, b"\x7f\xff\xff\xff", "contradicts its footer"),
        (40, b"\0\0\0\0", "sample rate 0"),
        (40, b"\0\0\0\3", "sample rate 3"),
        (40, b"\0\0\x08\0", "sample rate 2048"),
        (12, b"\x01\x00\x00\x01", "impossible block"),
        (16, b"\0\0\0\3", "impossible block|lzo|checksum"),
    ],
)
def test_footers_of_partitions_that_claim_what_cannot_be(at: int, value: bytes, says: str) -> None:
    message = refused(with_partition_footer(at, value))
    assert any(word in message for word in says.split("|"))


def test_blocks_that_are_compressed_by_lzo_are_refused_by_name() -> None:
    info = FOOTER.directory
    stored = DATA[info.offset : info.end]
    lzo = fm_block.BlockInfo(info.offset, len(stored), info.size, fm_block.LZO, fm_block.checksum(stored, fm_block.LZO))
    assert "lzo" in refused(with_footer(0, lzo.encode()))


def test_any_number_of_a_directory_may_be_anything() -> None:
    """With right checksums: each is found, or means the same (there is none that does)."""
    chosen = random.Random(5)
    for at in range(0, len(DIRECTORY), 4):
        for value in (0, 1, -1, 2**31 - 1, chosen.randint(-(2**31), 2**31 - 1)):

            def change(raw: bytearray, at: int = at, value: int = value) -> None:
                struct.pack_into(">i", raw, at, value)

            data = with_directory(change)
            if data != DATA:
                refused(data)


def test_blocks_that_do_not_hold_what_is_said_of_them() -> None:
    """Any bit of any block, with right checksums."""
    for info in PartitionDirectory.decode(DIRECTORY, PART_FOOTER, PART.start).blocks:
        raw = DATA[info.offset : info.end]
        for bit in flips(raw, f"flipped bits of a block of {len(raw)} bytes", 50):
            refused(with_block(info, flipped(raw, bit)))


def test_a_null_that_moved_to_a_row_with_a_value_is_found() -> None:
    info = PartitionDirectory.decode(DIRECTORY, PART_FOOTER, PART.start).nulls.blocks[0]
    raw = bytearray(DATA[info.offset : info.end])
    raw[-1] = 0b0100
    assert "null and has a value" in refused(with_block(info, bytes(raw)))


def test_boundaries_that_moved_are_found() -> None:
    info = PartitionDirectory.decode(DIRECTORY, PART_FOOTER, PART.start).boundaries.blocks[0]
    raw = bytearray(DATA[info.offset : info.end])
    raw[-1] = 0xA0
    assert "do not end where it says" in refused(with_block(info, bytes(raw)))


def test_samples_that_changed_places_are_found() -> None:
    info = PartitionDirectory.decode(DIRECTORY, PART_FOOTER, PART.start).samples.blocks[0]
    raw = bytearray(DATA[info.offset : info.end])
    raw[:8] = raw[4:8] + raw[:4]
    assert "samples of an FM partition are not those of its text" in refused(with_block(info, bytes(raw)))
    raw[:8] = raw[:4] * 2
    assert "occurs twice" in refused(with_block(info, bytes(raw)))


def test_refusing_takes_neither_time_nor_memory() -> None:
    payloads = [with_footer(8, struct.pack(">ii", 2**31 - 1, 2**31 - 1)), with_partition_footer(32, struct.pack(">ii", 2**31 - 2, 2**31 - 1))]
    tracemalloc.start()
    started = time.process_time()
    for data in payloads:
        refused(data)
    assert tracemalloc.get_traced_memory()[1] < 16 << 20
    tracemalloc.stop()
    assert time.process_time() - started < 2


@pytest.mark.parametrize("seed", range(share("FM payloads with random damage", short=40, long=3000)))
def test_random_damage(seed: int) -> None:
    chosen = random.Random(seed)
    data = bytearray(DATA)
    for _ in range(chosen.randint(1, 6)):
        at = chosen.randrange(len(data))
        kind = chosen.randrange(3)
        if kind == 0:
            data[at : at + chosen.randint(1, 30)] = chosen.randbytes(chosen.randint(0, 30))
        elif kind == 1:
            del data[at:]
            break
        else:
            data[at] = chosen.choice([0, 1, 127, 128, 255])
    if bytes(data) != DATA:
        refused(bytes(data))
