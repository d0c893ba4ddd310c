"""Key columns that are kept come back as they were, or not at all."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maintainer.data import key_cache
from maintainer.data.key_cache import DamagedCache, KeyCache
from maintainer.errors import StorageError
from maintainer.merge.order import Keys


def keys_of(numbers: list[int]) -> Keys:
    texts = pa.array([b"x" * (number % 5) for number in numbers], pa.large_binary())
    return Keys([np.array(numbers, np.int64), texts], len(numbers))


def put(cache: KeyCache, identity: str, blocks: list[list[int]]) -> None:
    writer = cache.create(identity)
    first = 0
    for block in blocks:
        writer.append(first, keys_of(block))
        first += len(block)
    writer.commit()


def got(cache: KeyCache, identity: str) -> list[tuple[int, list[tuple[int, bytes]]]] | None:
    cached = cache.open(identity)
    if cached is None:
        return None
    try:
        return [(first, [keys.at(row) for row in range(len(keys))]) for first, keys in cached.read(range(len(cached.bounds)))]
    except DamagedCache:
        return None
    finally:
        cached.close()


def expected(blocks: list[list[int]]) -> list[tuple[int, list[tuple[int, bytes]]]]:
    firsts = np.cumsum([0, *map(len, blocks)])
    return [(first, [keys_of(block).at(row) for row in range(len(block))]) for first, block in zip(firsts, blocks, strict=False)]


BLOCKS = [[1, 2, 3], [5], [7, 8]]


@given(numbers=st.lists(st.integers(-(2**63), 2**63 - 1), unique=True, min_size=1).map(sorted), size=st.integers(1, 5))
def test_what_is_kept_comes_back(numbers: list[int], size: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    cache = KeyCache(str(tmp_path_factory.mktemp("cache")))
    blocks = [numbers[at : at + size] for at in range(0, len(numbers), size)]
    put(cache, "a", blocks)
    assert got(cache, "a") == expected(blocks)
    assert got(cache, "b") is None
    cached = cache.open("a")
    assert cached is not None
    assert cached.bounds == [(keys_of(block).at(0), keys_of(block).at(len(block) - 1)) for block in blocks]
    cached.close()


def test_slices_of_columns_are_kept_as_slices(tmp_path: Path) -> None:
    cache = KeyCache(str(tmp_path))
    writer = cache.create("a")
    writer.append(0, keys_of(list(range(10))).slice(3, 7))
    writer.commit()
    assert got(cache, "a") == expected([[3, 4, 5, 6]])


@settings(max_examples=200)
@given(at=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7), cut=st.booleans())
def test_damage_is_never_believed_and_removed(at: float, bit: int, cut: bool, tmp_path_factory: pytest.TempPathFactory) -> None:
    directory = tmp_path_factory.mktemp("cache")
    cache = KeyCache(str(directory))
    put(cache, "a", BLOCKS)
    (path,) = directory.glob("*.keys")
    data = bytearray(path.read_bytes())
    place = int(at * len(data))
    if cut:
        del data[place:]
    else:
        data[place] ^= 1 << bit
    path.write_bytes(data)
    assert got(cache, "a") is None
    assert not path.exists()


def test_a_file_that_stands_where_another_should_is_not_believed(tmp_path: Path) -> None:
    cache = KeyCache(str(tmp_path))
    put(cache, "a", BLOCKS)
    os.replace(cache._path("a"), cache._path("b"))
    assert got(cache, "b") is None


def test_what_was_used_longest_ago_goes_first(tmp_path: Path) -> None:
    cache = KeyCache(str(tmp_path))
    put(cache, "a", BLOCKS)
    cache.limit = 3 * cache.used
    for name in "bc":
        put(cache, name, BLOCKS)
    for age, name in enumerate("cba"):
        os.utime(cache._path(name), (age, age))
    assert got(cache, "c") == expected(BLOCKS)  # and so it was used last
    put(cache, "d", BLOCKS)
    assert [name for name in "abcd" if got(cache, name)] == ["a", "c", "d"]
    assert cache.used <= cache.limit


def test_a_file_above_the_limit_is_not_kept(tmp_path: Path) -> None:
    cache = KeyCache(str(tmp_path), limit=200)
    put(cache, "a", [list(range(100))])
    assert got(cache, "a") is None
    assert cache.used == 0


def test_a_reader_goes_on_when_its_file_is_removed(tmp_path: Path) -> None:
    cache = KeyCache(str(tmp_path))
    put(cache, "a", BLOCKS)
    cached = cache.open("a")
    assert cached is not None
    cache._path("a").unlink()
    assert [len(keys) for _, keys in cached.read(range(3))] == [3, 1, 2]
    cached.close()


def test_what_a_dead_process_has_left_is_removed(tmp_path: Path) -> None:
    cache = KeyCache(str(tmp_path))
    old, new = tmp_path / "old.part", tmp_path / "new.part"
    for path in (old, new):
        path.write_bytes(b"x")
    os.utime(old, (0, 0))
    put(cache, "a", BLOCKS)
    assert not old.exists()
    assert new.exists()


def test_a_full_disk_is_no_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = KeyCache(str(tmp_path))
    monkeypatch.setattr(key_cache.KeyFileWriter, "_append", lambda self, data: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    put(cache, "a", BLOCKS)
    assert cache.used == 0


def test_a_directory_that_cannot_be_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StorageError, match=r"set `cache\.directory`"):
        KeyCache(str(tmp_path / "file" / "cache"))


def test_threads_and_processes_share_a_directory(tmp_path: Path) -> None:
    cache = KeyCache(str(tmp_path))
    put(cache, "0", BLOCKS)
    limit = cache.limit = 4 * cache.used
    program = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from maintainer.data.key_cache import KeyCache
from tests.data.test_key_cache import BLOCKS, expected, got, put
cache = KeyCache({str(tmp_path)!r}, {limit})
for number in range(50):
    put(cache, str(number % 7), BLOCKS)
    assert got(cache, str((number + 3) % 7)) in (None, expected(BLOCKS))
"""
    other = subprocess.Popen([sys.executable, "-c", program])
    wrong = []

    def work() -> None:
        for number in range(50):
            put(cache, str(number % 7), BLOCKS)
            found = got(cache, str((number + 3) % 7))
            wrong.extend([found] if found not in (None, expected(BLOCKS)) else [])

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert other.wait() == 0
    assert not wrong
    assert 0 < cache.used <= limit
