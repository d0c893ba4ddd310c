"""Which rows an older payload of a bucket saves reading."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from maintainer.format import source_meta
from maintainer.format.source_meta import SourceMeta
from maintainer.index.definition import definitions
from maintainer.index.moves import Reuse, reuse
from maintainer.index.payload import Move
from maintainer.model.bucket import BucketState
from maintainer.model.files import EMPTY_ROW, DataFileMeta, IndexFileMeta
from tests.support import builders

SCHEMA = builders.schema(
    {"id": "INT", "v": "BIGINT"}, options={"bucket": "1", "deletion-vectors.enabled": "true", "pk-btree.index.columns": "v"}
)
(DEFINITION,) = definitions(SCHEMA)
Files = Sequence[tuple[str, int]]


def payload(files: Files, level: int = 5, name: str = "older") -> IndexFileMeta:
    meta = SourceMeta(level, tuple(files))
    return builders.payload(name, "btree", meta.total_rows, 1, source_meta.encode(meta), b"metadata")


def found(older: Sequence[IndexFileMeta], now: Files, unchanged: Callable[[DataFileMeta], bool] = lambda file: True) -> Reuse | None:
    files = tuple(builders.file_meta(name, 5, rows) for name, rows in now)
    return reuse(BucketState(EMPTY_ROW, 0, 1, files, None, tuple(older)), DEFINITION, now, unchanged)


BEFORE = (("a", 10), ("b", 5), ("c", 3), ("d", 30))


def test_rows_of_files_that_are_there_move_and_others_are_read() -> None:
    one = found([payload(BEFORE)], [("a", 10), ("bb", 20), ("c", 3), ("d", 30), ("e", 1)])
    assert one is not None
    assert one.moves == (Move(0, 0, 10), Move(15, 30, 3), Move(18, 33, 30))
    assert (one.total_rows, one.rows, one.files) == (48, 43, ("a", "c", "d"))


def test_a_file_may_have_come_from_another_level() -> None:
    one = found([payload(BEFORE, level=4), payload([("e", 2), ("f", 2)], level=5, name="smaller")], [*BEFORE[1:], ("e", 2)])
    assert one is not None
    assert (one.payload.file_name, one.files) == ("older", ("b", "c", "d"))


def test_a_payload_of_which_little_is_left_is_not_worth_reading() -> None:
    assert found([payload(BEFORE)], [("a", 10), ("c", 3), ("z", 1000)]) is None
    assert found([payload(BEFORE)], [("a", 10), ("b", 5), ("c", 3), ("z", 1000)]) is not None
    assert found([payload(BEFORE)], [("z", 1000)]) is None
    assert found([payload([("a", 0), ("b", 5)])], [("a", 0), ("c", 5)]) is None


NOW = (*BEFORE[:3], ("new", 1))
INDEX = payload(BEFORE).global_index
assert INDEX is not None


@pytest.mark.parametrize(
    "older",
    [
        payload(NOW),  # the same sources: whoever wants a new payload doubts this one
        payload([("b", 5), ("a", 10), ("c", 3)]),  # not in order
        payload([("a", 10), ("a", 10), ("b", 5)]),
        payload([("a", 11), ("b", 5), ("c", 3)]),  # another row count than now
        replace(payload(BEFORE), row_count=47),
        replace(payload(BEFORE), global_index=replace(INDEX, row_range_end=48)),
        replace(payload(BEFORE), global_index=replace(INDEX, row_range_start=1)),
        replace(payload(BEFORE), global_index=replace(INDEX, index_meta=None)),
        replace(payload(BEFORE), global_index=replace(INDEX, source_meta=b"\0\0\0\1")),
        replace(payload(BEFORE), global_index=replace(INDEX, source_meta=None)),
        replace(payload(BEFORE), global_index=replace(INDEX, index_field_id=7)),  # of another column
        replace(payload(BEFORE), index_type="bitmap"),
        replace(payload(BEFORE), global_index=None),
    ],
)
def test_a_payload_that_is_not_as_it_should_be_is_not_used(older: IndexFileMeta) -> None:
    assert found([payload(BEFORE)], NOW) is not None
    assert found([older], NOW) is None


def test_of_two_payloads_for_one_level_none_is_used() -> None:
    assert found([payload(BEFORE), payload(BEFORE[1:], name="other")], NOW) is None


def test_a_file_from_before_the_column_was_retyped_is_doubt_enough() -> None:
    assert found([payload(BEFORE)], NOW, lambda file: file.file_name != "b") is None
    assert found([payload(BEFORE)], NOW, lambda file: file.file_name != "new") is not None
