"""Level-0 files as Java's writer leaves them (spec 04 §9.5), visible only by a commit."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maintainer.api.create import schema_of
from maintainer.commit.committer import Committer
from maintainer.data.reader import open_data_file
from maintainer.errors import CommitStateUnknown, StorageError, Unsupported, UsageError
from maintainer.model.files import DataFileMeta, FileSource
from maintainer.model.schema import KIND_FIELD, SEQUENCE_FIELD
from maintainer.table.opening import create_store, open_store
from maintainer.table.state import load_state
from maintainer.table.store import TableStore
from maintainer.write import writer as writer_module
from maintainer.write.writer import Writer
from tests.support.builders import type_
from tests.support.evolve import retype_column, set_options
from tests.support.small_table import SmallTable, arrow_of

OPTIONS = {"bucket": "1", "deletion-vectors.enabled": "true"}


def table(directory: Path, columns: str = "id BIGINT, v STRING", keys: str = "id", partitions: str = "", **options: str) -> TableStore:
    settings = {**OPTIONS, **{key.replace("_", "-"): value for key, value in options.items()}}
    pairs = ", ".join(f"'{key}' = '{value}'" for key, value in settings.items())
    partitioned = f"PARTITIONED BY ({partitions})" if partitions else ""
    definition = f"CREATE TABLE t ({columns}, PRIMARY KEY ({keys}) NOT ENFORCED) {partitioned} WITH ({pairs})"
    return create_store(str(directory / "t"), schema_of(definition))


def writing(store: TableStore) -> Writer:
    return Writer(store, Committer(store).commit_append)


def files_of(store: TableStore) -> Iterator[tuple[DataFileMeta, pa.Table]]:
    """Live files in order of their first sequence number, each with all its rows."""
    snapshot = store.latest_snapshot()
    assert snapshot is not None
    state = load_state(store, snapshot)
    columns = [SEQUENCE_FIELD.name, KIND_FIELD.name, *state.schema.names]
    for bucket in state.buckets.values():
        for file in sorted(bucket.files, key=lambda file: file.min_sequence_number):
            path = store.layout.data_file_path(bucket.partition, bucket.bucket, file)
            with open_data_file(store.storage, path, file, store.schema(file.schema_id), state.schema) as opened:
                yield file, opened.read(columns)


def rows_of(store: TableStore) -> list[tuple[Any, ...]]:
    """(sequence, kind, columns…) of all rows, file after file."""
    return [tuple(row.values()) for _, rows in files_of(store) for row in rows.to_pylist()]


def everything(directory: Path) -> set[str]:
    return {str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file()}


def test_rows_are_sorted_by_key_and_the_last_of_a_key_is_kept(tmp_path: Path) -> None:
    store = table(tmp_path)
    with writing(store) as writer:
        writer.write(pa.table({"id": [3, 1, 2, 1], "v": ["c", "a", "b", "A"]}))
    assert rows_of(store) == [(3, 0, 1, "A"), (2, 0, 2, "b"), (0, 0, 3, "c")]
    ((file, _),) = files_of(store)
    assert (file.level, file.file_source, file.delete_row_count) == (0, FileSource.APPEND, 0)
    assert (file.min_sequence_number, file.max_sequence_number) == (0, 3)


def test_a_delete_is_kept_as_a_row_and_order_within_a_batch_decides(tmp_path: Path) -> None:
    store = table(tmp_path)
    with writing(store) as writer:
        writer.write(pa.table({"id": [1, 2], "v": ["a", "b"]}))
        writer.delete(pa.table({"id": [2, 3]}))
        writer.write(pa.table({"id": [3], "v": ["c"]}))
    assert rows_of(store) == [(0, 0, 1, "a"), (2, 3, 2, None), (4, 0, 3, "c")]
    ((file, _),) = files_of(store)
    assert file.delete_row_count == 1


def test_sequence_numbers_go_on_behind_those_of_the_bucket(tmp_path: Path) -> None:
    store = table(tmp_path, "p STRING, id BIGINT", "p, id", "p")
    with writing(store) as writer:
        writer.write(pa.table({"p": ["a", "a", "b"], "id": [1, 2, 1]}))
        assert writer.commit() == 1
        writer.write(pa.table({"p": ["a"], "id": [1]}))
        assert writer.commit() == 2
    with writing(store) as writer:
        writer.write(pa.table({"p": ["b", "a"], "id": [1, 2]}))
    found = {(row[2], row[0]) for row in rows_of(store)}
    assert found == {("a", 0), ("a", 1), ("a", 2), ("a", 3), ("b", 0), ("b", 1)}


def test_a_writer_that_stays_open_follows_the_numbers_of_another_one(tmp_path: Path) -> None:
    store = table(tmp_path)
    with writing(store) as first, writing(store) as second:
        first.write(pa.table({"id": [1]}))
        first.commit()
        second.write(pa.table({"id": [1], "v": ["newer"]}))
        second.commit()
        first.write(pa.table({"id": [1], "v": ["newest"]}))
    assert [row[0] for row in rows_of(store)] == [0, 1, 2]


def test_the_snapshots_property_is_heeded_where_the_table_says_so(tmp_path: Path) -> None:
    store = table(tmp_path, **{"write.sequence-number-init-mode": "snapshot"})
    for _ in range(2):
        with writing(store) as writer:
            writer.write(pa.table({"id": [1, 2]}))
    snapshot = store.latest_snapshot()
    assert snapshot is not None
    assert (snapshot.properties or {}).get(writer_module.MAX_SEQUENCE_PROPERTY) == "3"


def test_a_commit_without_rows_makes_no_snapshot(tmp_path: Path) -> None:
    store = table(tmp_path)
    with writing(store) as writer:
        assert writer.commit() is None
        writer.write(pa.table({"id": pa.array([], pa.int64())}))
    assert store.latest_snapshot() is None


def test_an_exception_leaves_nothing_behind(tmp_path: Path) -> None:
    store = table(tmp_path)
    before = everything(tmp_path)
    with pytest.raises(RuntimeError), writing(store) as writer:
        writer.write(pa.table({"id": [1]}))
        writer._flush()
        assert everything(tmp_path) > before
        raise RuntimeError
    assert everything(tmp_path) == before
    assert store.latest_snapshot() is None


def test_a_bad_row_aborts_when_the_block_is_left(tmp_path: Path) -> None:
    store = table(tmp_path)
    before = everything(tmp_path)
    with pytest.raises(UsageError), writing(store) as writer:
        writer.write(pa.table({"id": [1]}))
        writer.write(pa.table({"nothing": [1]}))
    assert everything(tmp_path) == before


@pytest.mark.parametrize("unknown", [CommitStateUnknown("perhaps"), KeyboardInterrupt(), OSError("?")], ids=repr)
def test_a_failed_commit_deletes_the_files_but_one_of_unknown_outcome_does_not(tmp_path: Path, unknown: BaseException) -> None:
    store = table(tmp_path)
    before = everything(tmp_path)

    def fail(error: BaseException) -> Any:
        def publish(messages: Any) -> Any:
            raise error

        return publish

    with pytest.raises(StorageError), Writer(store, fail(StorageError("full"))) as writer:
        writer.write(pa.table({"id": [1]}))
    assert everything(tmp_path) == before
    with pytest.raises(type(unknown)), Writer(store, fail(unknown)) as writer:
        writer.write(pa.table({"id": [1]}))
    assert len(everything(tmp_path) - before) == 1


def test_an_abort_goes_on_after_a_file_that_cannot_be_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the error that led to it is the one that is told."""
    table = SmallTable(tmp_path, bucket="2")
    asked: list[str] = []

    def refuse(path: str) -> None:
        asked.append(path)
        raise StorageError("denied")

    def fail(messages: object) -> None:
        raise StorageError("no space")

    with pytest.raises(StorageError, match="no space"), Writer(table.store, fail) as writer:  # type: ignore[arg-type]
        writer.write(arrow_of({key: (key, "s") for key in range(50)}))
        monkeypatch.setattr(table.store.storage, "delete", refuse)
    assert len(asked) == 2 and set(asked) == table.paths()


def test_a_closed_writer_says_so(tmp_path: Path) -> None:
    store = table(tmp_path)
    with writing(store) as writer:
        pass
    with pytest.raises(UsageError, match="was closed"):
        writer.write(pa.table({"id": [1]}))


def test_several_flushes_are_one_snapshot_and_later_ones_win(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "FLUSH_BYTES", 1)
    store = table(tmp_path)
    with writing(store) as writer:
        writer.write(pa.table({"id": [1, 2]}))
        writer.write(pa.table({"id": [2, 3]}))
    assert store.snapshot_ids() == (1,)
    assert [(row[0], row[2]) for row in rows_of(store)] == [(0, 1), (1, 2), (2, 2), (3, 3)]


def test_a_flush_that_fails_aborts_so_that_no_later_commit_lacks_its_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "FLUSH_BYTES", 1)
    store = table(tmp_path)
    writer = writing(store)
    writer.write(pa.table({"id": [1]}))
    before = everything(tmp_path)

    def fail(self: object) -> None:
        raise StorageError("the disk is full")

    monkeypatch.setattr(writer_module.DataFileWriter, "close", fail)
    with pytest.raises(StorageError, match="full"):
        writer.write(pa.table({"id": [2]}))
    with pytest.raises(UsageError, match="was closed"):
        writer.commit()
    assert not store.snapshot_ids()
    assert everything(tmp_path) < before


def test_tables_outside_of_the_scope_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    store = table(tmp_path)
    set_options(store.uri, **{"sequence.snapshot-ordering": "true"})
    before = everything(tmp_path)
    with pytest.raises(Unsupported, match=r"sequence\.snapshot-ordering"):
        writing(open_store(store.uri))
    assert everything(tmp_path) == before


def test_a_column_that_no_cast_can_read_is_refused_before_a_file_is_written(tmp_path: Path) -> None:
    store = table(tmp_path, "id BIGINT, v INT")
    with writing(store) as writer:
        writer.write(pa.table({"id": [1]}))
    retype_column(store.uri, "v", type_("DATE"))
    before = everything(tmp_path)
    with pytest.raises(Unsupported, match=r"column v: .*\(INT to DATE\)"), writing(open_store(store.uri)) as writer:
        writer.write(pa.table({"id": [2]}))
    assert everything(tmp_path) == before


def test_a_changed_bucket_count_is_refused(tmp_path: Path) -> None:
    store = table(tmp_path)
    with writing(store) as writer:
        writer.write(pa.table({"id": [1]}))
    set_options(store.uri, bucket="2")
    changed = open_store(store.uri)
    with pytest.raises(Unsupported, match="written with 1 buckets"), writing(changed) as writer:
        writer.write(pa.table({"id": [1, 2, 3, 4]}))


def test_writers_side_by_side_lose_nothing(tmp_path: Path) -> None:
    store = table(tmp_path)

    def append(first: int) -> None:
        with writing(open_store(store.uri)) as writer:
            for number in range(5):
                writer.write(pa.table({"id": [first + number]}))
                writer.commit()

    threads = [threading.Thread(target=append, args=(100 * number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {row[2] for row in rows_of(store)} == {100 * number + step for number in range(3) for step in range(5)}
    assert store.snapshot_ids() == tuple(range(1, 16))


@settings(max_examples=30)
@given(
    operations=st.lists(st.tuples(st.sampled_from("wd"), st.lists(st.integers(0, 9), min_size=1, max_size=6)), max_size=8),
    buckets=st.integers(1, 3),
)
def test_the_last_operation_on_a_key_decides(
    operations: list[tuple[str, list[int]]], buckets: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Across commits, reading all files by sequence number, against a dict."""
    store = table(tmp_path_factory.mktemp("t"), bucket=str(buckets))
    model: dict[int, tuple[str, str | None]] = {}
    with writing(store) as writer:
        for number, (kind, keys) in enumerate(operations):
            if kind == "w":
                writer.write(pa.table({"id": keys, "v": [f"{number}-{i}" for i in range(len(keys))]}))
                model.update({key: ("w", f"{number}-{i}") for i, key in enumerate(keys)})
            else:
                writer.delete(pa.table({"id": keys}))
                model.update(dict.fromkeys(keys, ("d", None)))
            if number % 3 == 2:
                writer.commit()
    if not operations:
        return
    newest: dict[int, tuple[int, tuple[str, str | None]]] = {}
    for sequence, kind, key, value in rows_of(store):
        assert key not in newest or newest[key][0] != sequence
        newest[key] = max(newest.get(key, (-1, ("", None))), (sequence, ("w" if kind == 0 else "d", value)))
    assert {key: found for key, (_, found) in newest.items()} == model
