from __future__ import annotations

import errno
import io
import os
import threading
from pathlib import Path

import pyarrow as pa
import pytest

from maintainer.errors import CorruptFile, CorruptTable, MissingFile, StorageError, Unsupported, UsageError
from maintainer.storage import local
from maintainer.storage.storage import OutcomeUnknown, Storage, join_uri


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage.open(str(tmp_path / "t"))


def test_writes_make_directories_and_reads_see_every_byte(storage: Storage) -> None:
    storage.write("a/b/c", b"hello")
    assert storage.read("a/b/c") == b"hello"
    assert storage.read_range("a/b/c", 1, 3) == b"ell"
    assert storage.size("a/b/c") == 5
    assert storage.exists("a/b/c") and not storage.exists("a/b") and not storage.exists("a/b/d")


def test_the_end_of_a_file_proves_its_size(storage: Storage) -> None:
    storage.write("f", b"hello")
    assert storage.read_end("f", 3, 5) == b"lo"
    assert storage.read_end("f", 0, 5) == b"hello"
    for size in (4, 6, 50):
        with pytest.raises(CorruptFile, match=f"its metadata says {size}"):
            storage.read_end("f", 3, size)
    with pytest.raises(MissingFile):
        storage.read_end("g", 0, 1)


def test_a_file_is_never_replaced_by_create(storage: Storage) -> None:
    storage.write("f", b"first")
    with pytest.raises(StorageError, match="never replaced"):
        storage.write("f", b"second")
    assert storage.read("f") == b"first"


def test_leaving_by_an_exception_removes_the_file(storage: Storage) -> None:
    with pytest.raises(KeyError), storage.create("d/f") as output:
        output.write(b"half")
        raise KeyError
    assert storage.list("d") == []


def test_a_closed_file_stays_when_a_later_step_fails(storage: Storage) -> None:
    with pytest.raises(KeyError), storage.create("f") as output:
        output.write(b"whole")
        output.close()
        raise KeyError
    assert storage.read("f") == b"whole"


def test_missing_files_are_an_error_of_their_own(storage: Storage) -> None:
    for ask in (storage.read, storage.size, storage.open_input):
        with pytest.raises(MissingFile, match="no such file"):
            ask("x/y")
    with pytest.raises(FileNotFoundError):
        storage.read_range("x", 0, 1)
    storage.write("f", b"")
    with pytest.raises(MissingFile):
        storage.read("f/inside-a-file")


@pytest.mark.parametrize(("offset", "length"), [(0, 4), (3, 1), (4, 0), (-1, 2), (0, -1), (2**62, 2**62)])
def test_a_range_that_is_not_in_the_file_is_corrupt(storage: Storage, offset: int, length: int) -> None:
    storage.write("f", b"abc")
    with pytest.raises(CorruptFile, match="f: corrupt"):
        storage.read_range("f", offset, length)


def test_listing_is_in_order_and_of_nothing_is_empty(storage: Storage) -> None:
    for name in ("b", "a", "c/d"):
        storage.write(f"x/{name}", b"12")
    entries = storage.list("x")
    assert [(e.name, e.is_directory) for e in entries] == [("a", False), ("b", False), ("c", True)]
    assert entries[0].size == 2 and entries[0].modified_ms > 1_500_000_000_000
    assert storage.list("y") == []
    assert [e.name for e in storage.list("")] == ["x"]


@pytest.mark.parametrize("path", ["../x", "a/../../x", "/etc/passwd", "", "a//b", "a/./b", "a\0b", ".."])
def test_no_path_leads_out_of_the_root(storage: Storage, path: str) -> None:
    for do in (storage.read, storage.exists, storage.delete, storage.open_input, storage.create):
        with pytest.raises(CorruptTable, match="refusing"):
            do(path)


def test_create_if_absent_happens_once_and_leaves_no_temporary_file(storage: Storage) -> None:
    assert storage.create_if_absent("s/snapshot-1", b"one")
    assert not storage.create_if_absent("s/snapshot-1", b"two")
    assert storage.read("s/snapshot-1") == b"one"
    assert [entry.name for entry in storage.list("s")] == ["snapshot-1"]


def test_of_many_threads_exactly_one_creates(storage: Storage) -> None:
    for round_ in range(20):
        barrier = threading.Barrier(8)
        won: list[int] = []

        def race(number: int, path: str = f"snapshot-{round_}", barrier: threading.Barrier = barrier, won: list[int] = won) -> None:
            barrier.wait()
            if storage.create_if_absent(path, str(number).encode() * 1000):
                won.append(number)

        threads = [threading.Thread(target=race, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(won) == 1
        assert storage.read(f"snapshot-{round_}") == str(won[0]).encode() * 1000


def test_a_failing_link_leaves_the_outcome_unknown(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    def link(source: str, target: str) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "link", link)
    with pytest.raises(OutcomeUnknown, match="Input/output"):
        storage.create_if_absent("f", b"")


def test_a_file_system_without_hard_links_is_refused(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    def link(source: str, target: str) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", link)
    with pytest.raises(Unsupported, match="hard links"):
        storage.create_if_absent("f", b"")
    assert storage.list("") == []


def test_a_full_disk_is_a_storage_error_with_the_path(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    def fsync(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(StorageError, match=r"t/d/f: .*No space left") as caught:
        storage.write("d/f", b"x")
    assert not isinstance(caught.value, OutcomeUnknown)
    with pytest.raises(StorageError, match="No space left") as caught:
        storage.create_if_absent("d/g", b"x")
    assert not isinstance(caught.value, OutcomeUnknown)
    assert storage.list("d") == []


def test_a_file_that_cannot_be_closed_is_a_storage_error_and_gone(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some network file systems only say at the end that there is no space."""

    class Failing(io.FileIO):
        def close(self) -> None:
            super().close()
            raise OSError(errno.EDQUOT, "Disk quota exceeded")

    monkeypatch.setattr(local, "FileIO", Failing)
    with pytest.raises(StorageError, match="d/f: cannot write: Disk quota exceeded"):
        storage.write("d/f", b"data")
    assert storage.list("d") == []


@pytest.mark.parametrize("kind", ["a file", "a link to nowhere"])
def test_a_directory_that_cannot_be_made_is_a_storage_error(storage: Storage, kind: str) -> None:
    """Not a missing file: that would be a damaged table."""
    Path(storage.root).parent.mkdir(exist_ok=True)
    if kind == "a file":
        Path(storage.root).write_text("")
    else:
        Path(storage.root).symlink_to("nowhere")
    for make in (storage.write, storage.create_if_absent, storage.replace):
        with pytest.raises(StorageError, match=r"d/f: cannot (create|publish|write): N"):
            make("d/f", b"")


def test_a_directory_that_is_cleaned_up_meanwhile_is_made_again(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    made = local._make_directory
    removed: list[str] = []

    def make(path: str) -> None:
        made(path)
        if path.endswith("bucket-0") and not removed:
            removed.append(path)
            os.rmdir(path)

    monkeypatch.setattr(local, "_make_directory", make)
    storage.write("bucket-0/f", b"data")
    assert removed and storage.read("bucket-0/f") == b"data"


def test_replace_and_delete(storage: Storage) -> None:
    storage.replace("LATEST", b"1")
    storage.replace("LATEST", b"2")
    assert storage.read("LATEST") == b"2"
    storage.delete("LATEST")
    storage.delete("LATEST")
    assert storage.list("") == []


def test_arrow_reads_and_writes_through_it(storage: Storage) -> None:
    with storage.create("f") as output, pa.PythonFile(output, mode="w") as sink:
        sink.write(b"abcdef")
    with storage.open_input("f") as source:
        source.seek(2)
        assert source.read(3) == b"cde"


def test_places_are_paths_or_file_uris(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert Storage.open("file:///data/a%20b").root == "/data/a b"
    assert Storage.open("file:/data/x/").root == "/data/x"
    assert Storage.open("file:///data/a?b#c/t").root == "/data/a?b#c/t"
    assert Storage.open("x/../y").root == f"{tmp_path}/y"
    with pytest.raises(UsageError, match="this machine"):
        Storage.open("file://server/data")
    assert join_uri("/wh/", "db.db", "t") == "/wh/db.db/t"
    assert join_uri("s3://b/wh", "db.db", "t") == "s3://b/wh/db.db/t"
