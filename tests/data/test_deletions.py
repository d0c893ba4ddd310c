from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pyroaring import BitMap64

from maintainer.data.deletions import read_deletions, write_deletions
from maintainer.errors import CorruptFile, MissingFile
from maintainer.model.files import DELETION_VECTORS, IndexFileMeta
from maintainer.storage.layout import FileNames, Layout
from maintainer.storage.storage import Storage

VECTORS = {"data-b": BitMap64([0, 5]), "data-a": BitMap64(range(100))}


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage.open(str(tmp_path))


def written(storage: Storage, vectors: dict[str, BitMap64], bitmap64: bool = False) -> IndexFileMeta:
    return write_deletions(storage, Layout(), FileNames("index-"), vectors, bitmap64)


@pytest.mark.parametrize("bitmap64", [False, True])
def test_vectors_of_a_bucket(storage: Storage, bitmap64: bool) -> None:
    entry = written(storage, VECTORS, bitmap64)
    assert (entry.index_type, entry.row_count, entry.global_index) == (DELETION_VECTORS, 2, None)
    assert entry.file_size == storage.size(f"index/{entry.file_name}")
    assert entry.deletion_ranges is not None
    assert [(vector.data_file, vector.cardinality) for vector in entry.deletion_ranges] == [("data-a", 100), ("data-b", 2)]
    assert read_deletions(storage, Layout(), entry) == VECTORS


def test_bucket_whose_vectors_are_all_gone(storage: Storage) -> None:
    entry = written(storage, {})
    assert (entry.file_size, entry.row_count, entry.deletion_ranges) == (1, 0, ())
    assert read_deletions(storage, Layout(), entry) == {}


def test_bucket_without_a_file(storage: Storage) -> None:
    assert read_deletions(storage, Layout(), None) == {}


def test_errors_name_the_file(storage: Storage) -> None:
    entry = written(storage, VECTORS)
    with pytest.raises(MissingFile, match="index-none"):
        read_deletions(storage, Layout(), replace(entry, file_name="index-none"))
    with pytest.raises(CorruptFile, match=rf"{entry.file_name}: corrupt: .*the index manifest says 9"):
        read_deletions(storage, Layout(), replace(entry, file_size=9))
    with pytest.raises(CorruptFile, match=rf"{entry.file_name}: corrupt: .*no ranges"):
        read_deletions(storage, Layout(), replace(entry, deletion_ranges=None))
    with pytest.raises(CorruptFile, match="not a file name"):
        read_deletions(storage, Layout(), replace(entry, file_name="../index-1"))
    assert entry.deletion_ranges is not None
    wrong = (replace(entry.deletion_ranges[0], cardinality=3), entry.deletion_ranges[1])
    with pytest.raises(CorruptFile, match=rf"{entry.file_name}: corrupt at offset 1: .*data-a deletes 100 positions"):
        read_deletions(storage, Layout(), replace(entry, deletion_ranges=wrong))
