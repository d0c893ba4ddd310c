"""Which groups are built and dropped, and what becomes of a build that fails."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from maintainer.errors import CorruptFile, MaintainerError, MissingFile, SpillError, StorageError, UsageError
from maintainer.format import source_meta
from maintainer.format.source_meta import SourceMeta
from maintainer.index import family, groups
from maintainer.index.definition import definitions
from maintainer.index.payload import BuiltPayload, Resources
from maintainer.maintain import rebuild
from maintainer.maintain.rebuild import GroupChanges, Site, group_plans, rebuild_groups
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


def nothing(*arguments: Any) -> None:
    pass


def changes(
    files: list[DataFileMeta],
    payloads: list[IndexFileMeta],
    *,
    open_file: Any = None,
    count: Any = nothing,
    check_store: Any = nothing,
    unchanged: Any = None,
    forced: frozenset[Rebuild] = frozenset(),
) -> tuple[GroupChanges, list[Payload]]:
    state = BucketState(EMPTY_ROW, 0, 1, tuple(files), None, tuple(payloads))
    written: list[Payload] = []

    @contextmanager
    def create() -> Iterator[Payload]:
        file = Payload(f"index-{len(written) + 1}")
        yield file
        written.append(file)

    def opened(meta: DataFileMeta) -> Column:
        return Column(meta.row_count)

    site = Site(open_file or opened, lambda payload: lambda offset, length: b"", create, count, check_store, Resources(), unchanged)
    return rebuild_groups(state, group_plans(state, DEFINITIONS, forced), [], site), written


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


ERROR = ValueError("keeps what it happened with for as long as it lives")


class Stopped(Exception):
    """What `count` raises to end the work."""


class TestFailedBuilds:
    """A failure is that of one group, whatever it is; what is of use stays."""

    NOW, BEFORE = builders.file_meta("now", 5), builders.file_meta("gone", 5, keys=(100, 101))

    @pytest.mark.parametrize(
        ("error", "about_values"),
        [
            (ValueError("a value"), True),
            (UsageError("an option"), True),
            (RecursionError(), True),
            (CorruptFile("torn"), False),
            (MissingFile("lost"), False),
            (StorageError("one file is refused"), False),
            (SpillError("no room"), False),
            (MemoryError(), False),
        ],
    )
    @pytest.mark.parametrize("survives", [False, True])
    def test_a_superseded_payload_stays_if_it_is_of_use_and_no_value_is_at_fault(
        self, error: Exception, about_values: bool, survives: bool
    ) -> None:
        old = group(5, self.BEFORE, *([self.NOW] if survives else []))
        found, written = changes([self.NOW], [old], open_file=raising(error))
        assert (found.added, written) == ((), [])
        (failure,) = found.failures
        assert (failure.column, failure.level, failure.about_values) == ("v", 5, about_values)
        assert failure.reason == (str(error) if isinstance(error, MaintainerError) else f"{type(error).__name__}: {error}")
        assert failure.sources == groups.fingerprint([("now", 10)])
        assert found.removed == (() if survives and not about_values else (old,))

    @pytest.mark.parametrize("error", [ValueError("a value"), MemoryError()])
    def test_a_current_payload_stays_when_it_was_to_be_built_again(self, error: Exception) -> None:
        current = group(5, self.NOW)
        found, _ = changes([self.NOW], [current], open_file=raising(error), forced=frozenset({Rebuild("v", 5)}))
        assert (found.added, found.removed, len(found.failures)) == ((), (), 1)

    def test_two_payloads_of_a_level_go_though_it_cannot_be_built(self) -> None:
        """No reader trusts either of them."""
        twice = [group(5, self.NOW, name="one"), group(5, self.NOW, name="two")]
        found, _ = changes([self.NOW], twice, open_file=raising(MemoryError()))
        assert [payload.file_name for payload in found.removed] == ["one", "two"]

    def test_the_other_levels_are_built(self) -> None:
        def open_file(meta: DataFileMeta) -> Column:
            if meta.level == 4:
                raise CorruptFile("torn")
            return Column(meta.row_count)

        found, _ = changes([builders.file_meta("low", 4), self.NOW, builders.file_meta("three", 3)], [], open_file=open_file)
        assert len(found.added) == 2
        assert [failure.level for failure in found.failures] == [4]

    def test_a_store_that_is_away_fails_the_work(self) -> None:
        with pytest.raises(StorageError, match="nobody answers"):
            changes([self.NOW], [], open_file=raising(StorageError("cannot read")), check_store=raising(StorageError("nobody answers")))

    def test_a_request_that_fails_once_is_made_again(self) -> None:
        tries = iter([StorageError("reset by peer"), None])

        def open_file(meta: DataFileMeta) -> Column:
            error = next(tries)
            if error is not None:
                raise error
            return Column(meta.row_count)

        found, _ = changes([self.NOW], [], open_file=open_file)
        assert (len(found.added), found.failures) == (1, ())

    def test_no_room_to_spill_asks_no_store(self) -> None:
        tried: list[DataFileMeta] = []
        found, _ = changes([self.NOW], [], open_file=raising(SpillError("full"), tried), check_store=raising(StorageError("never asked")))
        assert (len(tried), len(found.failures)) == (1, 1)

    def test_what_is_known_of_older_payloads_can_be_wrong_in_any_way(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(rebuild, "reuse", raising(MissingFile("a schema")))
        found, _ = changes([self.NOW], [group(5, self.BEFORE, self.NOW)], unchanged=lambda definition, file: True)
        assert (len(found.added), found.failures) == (1, ())

    def test_a_file_that_was_being_read_is_closed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        closed: list[bool] = []

        class Closing(Column):
            def __exit__(self, *error: object) -> None:
                closed.append(True)

        def build(rows: Any, *rest: Any) -> Any:
            next(rows)
            raise ERROR

        monkeypatch.setattr(family, "family", lambda name: SimpleNamespace(build=build))
        changes([self.NOW], [], open_file=lambda meta: Closing(meta.row_count))
        assert closed == [True]

    def test_stopping_is_no_failure_of_the_group(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with pytest.raises(Stopped):
            changes([self.NOW], [], count=raising(Stopped()))

        def swallow(rows: Any, *rest: Any) -> BuiltPayload:
            with suppress(Exception):
                list(rows)
            return BuiltPayload(0, 10, b"")

        monkeypatch.setattr(family, "family", lambda name: SimpleNamespace(build=swallow))
        with pytest.raises(Stopped):
            changes([self.NOW], [], count=raising(Stopped()))


def raising(error: Exception, calls: list[Any] | None = None) -> Any:
    def call(*arguments: Any) -> Any:
        if calls is not None:
            calls.extend(arguments)
        raise error

    return call


def test_what_is_read_is_counted_batch_by_batch() -> None:
    """So a build that takes long is seen to go on, and can be stopped."""

    class Batches(Column):
        def batches(self, columns: list[str], batch_rows: int) -> Iterator[tuple[int, pa.RecordBatch]]:
            for first in range(0, self.rows, 3):
                yield first, pa.record_batch([pa.array(range(first, min(first + 3, self.rows)), pa.int64())], names=columns)

    told: list[int] = []
    found, _ = changes([builders.file_meta("now", 5)], [], open_file=lambda meta: Batches(meta.row_count), count=told.append)
    assert len(found.added) == 1
    assert [size for size in told if size] == [24, 24, 24, 8]
