from __future__ import annotations

import random
import threading

import pytest
import zstandard

from maintainer.format import zstd_frame

TEXT = b"".join(b"%d " % number for number in range(50_000))
SIZED = zstandard.ZstdCompressor(level=3).compress(TEXT)
_STREAM = zstandard.ZstdCompressor(level=3).compressobj()
UNSIZED = _STREAM.compress(TEXT) + _STREAM.flush()


@pytest.mark.parametrize("frame", [SIZED, UNSIZED], ids=["with its size", "without"])
def test_no_more_than_was_asked_for_comes_out(frame: bytes) -> None:
    assert zstd_frame.content(frame, len(TEXT)) == zstd_frame.content(frame, len(TEXT) + 1) == TEXT
    for most in (0, 1, len(TEXT) - 1):
        assert zstd_frame.content(frame, most) == TEXT[:most]


def test_small_frames_that_become_very_large_are_cut() -> None:
    bomb = zstandard.ZstdCompressor(level=3).compress(bytes(200 << 20))
    assert len(bomb) < 1 << 16
    assert zstd_frame.content(bomb, 1000) == bytes(1000)


def test_nothing() -> None:
    assert zstd_frame.content(zstandard.ZstdCompressor().compress(b""), 10) == b""


def test_damaged_frames_are_errors_or_other_bytes() -> None:
    chance, refused = random.Random(1), 0
    for _ in range(300):
        damaged = bytearray(chance.choice([SIZED, UNSIZED])[: chance.choice([20, 1000, 1 << 20])])
        damaged[chance.randrange(len(damaged))] ^= 1 << chance.randrange(8)
        try:
            assert len(zstd_frame.content(bytes(damaged), len(TEXT))) <= len(TEXT)
        except zstandard.ZstdError:
            refused += 1
        assert zstd_frame.content(SIZED, len(TEXT)) == TEXT, "the next one is not troubled"
    assert refused


@pytest.mark.parametrize("sized", [True, False], ids=["with its size", "without"])
@pytest.mark.parametrize("text", [TEXT, bytes(1 << 20), b"short", random.Random(2).randbytes(300_000)])
@pytest.mark.parametrize("checksum", [True, False])
def test_a_frame_that_is_cut_off_is_damaged(text: bytes, sized: bool, checksum: bool) -> None:
    stream = zstandard.ZstdCompressor(write_content_size=sized, write_checksum=checksum).compressobj(size=len(text) if sized else -1)
    frame = stream.compress(text) + stream.flush()
    assert zstd_frame.content(frame, len(text)) == text
    for end in {*range(max(0, len(frame) - 9), len(frame)), *range(0, len(frame), len(frame) // 9 + 1)}:
        with pytest.raises(zstandard.ZstdError):
            zstd_frame.content(frame[:end], len(text))


def test_threads_do_not_disturb_one_another() -> None:
    wrong: list[int] = []

    def work(number: int) -> None:
        found = (zstd_frame.content([SIZED, UNSIZED][number % 2], len(TEXT)) for _ in range(50))
        wrong.extend(number for content in found if content != TEXT)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
