"""Which groups are built and dropped, and what becomes of a build that fails."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest

from maintainer.errors import CorruptFile, StorageError
from maintainer.format import source_meta
from maintainer.format.source_meta import SourceMeta
from maintainer.index.definition import definitions
from maintainer.index.payload import Resources
from maintainer.maintain.rebuild import GroupChanges, group_plans, rebuild_groups
from maintainer.model.bucket import BucketState
from maintainer.model.files import EMPTY_ROW, DataFileMeta, IndexFileMeta
from maintainer.model.work import Rebuild
from tests.support import builders

SCHEMA = builders.schema(
    {"id": "INT", "v": "BIGINT"}, options={"bucket": "1", "deletion-vectors.enabled": "true", "pk-btree.index.columns": "v"}
)
DEFINITIONS = definitions(SCHEMA)


class Column:
    """An open data file whose rows hold their own positions."""

    def __init__(self, rows: int) -> None:
        self.rows = rows

    def __enter__(self) -> Column:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def batches(self, columns: list[str], batch_rows: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        assert columns == ["v"]
        yield 0, pa.record_batch([pa.array(range(self.rows), pa.int64())], names=columns)

    def stored_bytes(self, column: str) -> int:
        return 8 * self.rows


class Payload:
    """A payload file in memory."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.data = bytearray()

    def write(self, data: Any) -> None:
        self.data += data


def changes(files: list[DataFileMeta], payloads: list[IndexFileMeta], *, open_file: Any = None) -> tuple[GroupChanges, list[Payload]]:
    state = BucketState(EMPTY_ROW, 0, 1, tuple(files), None, tuple(payloads))
    written: list[Payload] = []

    @contextmanager
    def create() -> Iterator[Payload]:
        file = Payload(f"index-{len(written) + 1}")
        yield file
        written.append(file)

    def opened(meta: DataFileMeta) -> Column:
        return Column(meta.row_count)

    plans = group_plans(state, DEFINITIONS)
    return rebuild_groups(state, plans, [], open_file or opened, create, lambda size: None, Resources()), written


def group(level: int, *files: DataFileMeta, name: str = "old") -> IndexFileMeta:
    meta = SourceMeta(level, source_meta.ordered((file.file_name, file.row_count) for file in files))
    return builders.payload(name, "btree", meta.total_rows, 1, source_meta.encode(meta))


def test_a_level_without_a_group_gets_one_over_all_its_sources_in_order() -> None:
    files = [builders.file_meta(name, 5, 3, keys=(low, low + 1)) for name, low in (("b", 0), ("a", 10))]
    found, written = changes([*files, builders.file_meta("up", 4)], [])
    assert [(payload.file_name, payload.row_count) for payload in found.added] == [("index-1", 10), ("index-2", 6)]
    meta = found.added[1].global_index
    assert meta is not None
    assert meta.source_meta is not None
    assert source_meta.decode(meta.source_meta) == SourceMeta(5, (("a", 3), ("b", 3)))
    assert (found.removed, found.failures, len(written)) == ((), (), 2)


def test_a_changed_level_replaces_its_payload_and_a_vanished_one_only_loses_it() -> None:
    now = builders.file_meta("now", 5)
    stale, vanished = group(5, builders.file_meta("before", 5), name="stale"), group(4, builders.file_meta("gone", 4), name="vanished")
    found, _ = changes([now], [stale, vanished])
    assert {payload.file_name for payload in found.removed} == {"stale", "vanished"}
    assert len(found.added) == 1


def test_current_groups_are_built_only_when_forced() -> None:
    file = builders.file_meta("now", 5)
    state = BucketState(EMPTY_ROW, 0, 1, (file,), None, (group(5, file),))
    assert group_plans(state, DEFINITIONS) == []
    ((_, plan),) = group_plans(state, DEFINITIONS, frozenset({Rebuild("v", 5), Rebuild("v", 3), Rebuild("other", 5)}))
    assert (plan.level, plan.sources, plan.inputs) == (5, (("now", 10),), (group(5, file),))


def test_a_source_name_that_cannot_be_stored_fails_before_anything_is_written() -> None:
    found, written = changes([builders.file_meta("x" * 70_000, 5)], [group(5, builders.file_meta("before", 5))])
    assert [failure.level for failure in found.failures] == [5]
    assert written == []
    assert found.added == ()
    assert [payload.file_name for payload in found.removed] == ["old"]


@pytest.mark.parametrize("error", [StorageError("away"), CorruptFile("torn"), MemoryError()])
def test_what_is_not_about_values_fails_the_whole_work(error: Exception) -> None:
    def open_file(meta: DataFileMeta) -> Column:
        raise error

    with pytest.raises(type(error)):
        changes([builders.file_meta("now", 5)], [], open_file=open_file)
