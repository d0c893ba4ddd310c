"""Temporary files: what was written is read again, the limit counts over threads, and nothing is left behind by anybody."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from maintainer.data.spill import Spill
from maintainer.errors import StorageError


def rows(count: int, width: int = 20) -> pa.RecordBatch:
    return pa.record_batch({"id": pa.array(range(count), pa.int64()), "s": [f"{at}".rjust(width) if at % 7 else None for at in range(count)]})


@pytest.mark.parametrize("count", [1, 10, 20_000])
def test_batches_are_read_as_they_were_in_any_order(count: int, tmp_path: Path) -> None:
    columns = {
        "number": pa.array(range(3 * count), pa.int32()),
        "text": pa.array([f"{at} é" if at % 3 else None for at in range(3 * count)]),
        "list": pa.array([[at, None] if at % 2 else None for at in range(3 * count)], pa.list_(pa.int64())),
        "row": pa.array([{"a": at, "b": "x" * (at % 9)} if at % 5 else None for at in range(3 * count)]),
        "map": pa.array([[("k", at)] for at in range(3 * count)], pa.map_(pa.string(), pa.int64())),
        "decimal": pa.array([Decimal(at) for at in range(3 * count)], pa.decimal128(30, 2)),
        "bool": pa.array([at % 2 == 0 for at in range(3 * count)]),
    }
    whole = pa.record_batch(columns)
    with Spill(str(tmp_path)).file() as file:
        numbers = [file.append(whole.slice(start, count)) for start in (0, count, 2 * count)]
        for at in (2, 0, 1, 0):
            read = file.read(numbers[at])
            read.validate(full=True)
            assert read.equals(whole.slice(at * count, count))


def test_only_the_rows_of_a_slice_are_written(tmp_path: Path) -> None:
    spill = Spill(str(tmp_path))
    with spill.file() as file:
        file.append(rows(100_000).slice(5, 10))
        assert spill.used < 5_000


def test_columns_of_some_length_are_compressed(tmp_path: Path) -> None:
    spill = Spill(str(tmp_path))
    with spill.file() as file:
        batch = rows(50_000)
        file.append(batch)
        assert spill.used < batch.nbytes / 3


def test_files_have_no_names_and_give_their_bytes_back(tmp_path: Path) -> None:
    spill = Spill(str(tmp_path / "not" / "there"))
    first, second = spill.file(), spill.file()
    first.append(rows(1000))
    once = spill.used
    second.append(rows(1000))
    assert spill.used == 2 * once > 0
    assert os.listdir(spill.directory) == []
    first.close()
    first.close()
    assert spill.used == once
    second.close()
    assert spill.used == 0


def test_an_exception_gives_the_bytes_back(tmp_path: Path) -> None:
    spill = Spill(str(tmp_path))
    with pytest.raises(RuntimeError), spill.file() as file:
        file.append(rows(1000))
        raise RuntimeError
    assert spill.used == 0


def test_a_killed_process_leaves_nothing_and_another_one_loses_nothing(tmp_path: Path) -> None:
    with Spill(str(tmp_path)).file() as file:
        number = file.append(rows(1000))
        program = f"""
import time, pyarrow as pa
from maintainer.data.spill import Spill
file = Spill({str(tmp_path)!r}).file()
file.append(pa.record_batch({{"a": list(range(1000))}}))
print("ready", flush=True)
time.sleep(60)
"""
        with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            process.send_signal(signal.SIGKILL)
        Spill(str(tmp_path)).file().close()
        assert file.read(number).equals(rows(1000))
        assert os.listdir(tmp_path) == []


def test_the_limit_counts_over_threads_and_says_what_to_raise(tmp_path: Path) -> None:
    limit = 200_000
    spill = Spill(str(tmp_path), limit)

    def write(_: int) -> int:
        written = 0
        with spill.file() as file:
            try:
                while True:
                    file.append(rows(100))
                    assert spill.used <= limit
                    written += 1
            except StorageError as error:
                assert str(error).startswith(f"{tmp_path}: ")
                assert "above the limit of 200000; raise `spill.limit`" in str(error)
                return written

    with ThreadPoolExecutor(4) as pool:
        written = sum(pool.map(write, range(4)))
    assert written > 20
    assert spill.used == 0


class FullDisk:
    """A file on a disk that takes a few bytes more."""

    def __init__(self, file: Any) -> None:
        self.file = file
        self.left = 1000

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)

    def write(self, data: memoryview) -> int:
        if not self.left:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        count: int = self.file.write(data[: self.left])
        self.left -= count
        return count


def test_a_full_disk_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    spill = Spill(str(tmp_path))
    with spill.file() as file:
        file._file = FullDisk(file._file)
        with pytest.raises(StorageError, match=r"cannot spill: No space left on device; .*`spill\.directory`"):
            file.append(rows(1000))
    assert spill.used == 0


def test_a_directory_that_cannot_be_used_is_an_error_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for directory in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(StorageError, match=r"file.*: cannot make a file to spill to: .*`spill\.directory`"):
            Spill(str(directory))


def test_the_default_is_the_directory_of_the_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    spill = Spill()
    assert spill.directory == str(tmp_path)
    with spill.file() as file:
        number = file.append(rows(10))
        assert file.read(number).equals(rows(10))
