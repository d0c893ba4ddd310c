from __future__ import annotations

import base64
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maintainer.format import schema_json, source_meta
from maintainer.format.source_meta import SourceMeta
from maintainer.index.definition import definitions
from maintainer.index.groups import GroupPlan, evaluate, orphans, pick, sources
from maintainer.index.payload import BuiltPayload, payload_entry
from maintainer.model.bucket import BucketState
from maintainer.model.files import EMPTY_ROW, DataFileMeta, FileSource, GlobalIndexMeta, IndexFileMeta
from tests.support import golden
from tests.support.builders import file_meta
from tests.support.sorted_index import definition
from tests.support.strategies import mutated

INDEX = definition("btree", "INT")
OTHER = replace(INDEX, field_id=2)


def file(name: str, level: int, rows: int = 10, source: FileSource | None = FileSource.COMPACT) -> DataFileMeta:
    return replace(file_meta(name, level, rows), file_source=source)


def group(name: str, level: int, *files: tuple[str, int], **changes: Any) -> IndexFileMeta:
    """A payload over these files; `changes` are those of its index metadata."""
    made = payload_entry(INDEX, level, files, BuiltPayload(100, sum(rows for _, rows in files), b""), name)
    assert made.global_index is not None
    return replace(made, global_index=replace(made.global_index, **changes))


def bucket(files: list[DataFileMeta], payloads: list[IndexFileMeta]) -> BucketState:
    return BucketState(EMPTY_ROW, 0, 1, tuple(files), payloads=tuple(payloads))


A, B, C = ("a", 10), ("b", 10), ("c", 10)
FILES = [file("b", 5), file("a", 5), file("c", 4), file("new", 0, source=FileSource.APPEND), file("up", 3, source=FileSource.APPEND)]


def test_entry_of_a_payload() -> None:
    made = payload_entry(INDEX, 5, [A, ("b", 3)], BuiltPayload(1, 13, b"meta"), "index-1-0")
    assert (made.index_type, made.file_name, made.file_size, made.row_count, made.deletion_ranges) == ("btree", "index-1-0", 1, 13, None)
    assert made.global_index == GlobalIndexMeta(0, 12, 1, None, b"meta", source_meta.encode(SourceMeta(5, (A, ("b", 3)))))


def test_only_compact_files_above_level_0_are_sources() -> None:
    unknown = file("old", 5, source=None)
    at_zero = file("zero", 0)
    assert sources([*FILES, unknown, at_zero]) == {4: [C], 5: [A, B]}


def test_complete_groups_are_active() -> None:
    state = bucket(FILES, [group("g5", 5, A, B), group("g4", 4, C)])
    found = evaluate(state, INDEX)
    assert {level: payload.file_name for level, payload in found.active.items()} == {4: "g4", 5: "g5"}
    assert {name: payload.file_name for name, payload in found.covered.items()} == {"a": "g5", "b": "g5", "c": "g4"}
    assert found.sources[5].files == (A, B)
    assert found.stale == ()
    assert pick(state, INDEX) == []
    assert [found.reason(one) for one in FILES] == [
        None,
        None,
        None,
        "level 0: not visible until compacted",
        "APPEND file above level 0: not an index source",
    ]
    assert found.reason(file("old", 5, source=None)) == "file of unknown source above level 0: not an index source"


def test_a_level_without_a_group_is_built() -> None:
    state = bucket(FILES, [group("g5", 5, A, B)])
    assert evaluate(state, INDEX).reason(FILES[2]) == "no group for level 4"
    assert pick(state, INDEX) == [GroupPlan(4, (C,), ())]


def test_a_vanished_level_is_dropped() -> None:
    stale = group("g2", 2, ("gone", 5))
    state = bucket(FILES, [group("g5", 5, A, B), group("g4", 4, C), stale])
    assert evaluate(state, INDEX).stale == ((stale, "stale: level 2 has no source file"),)
    assert pick(state, INDEX) == [GroupPlan(2, (), (stale,))]


def test_an_upgraded_file_changes_both_levels() -> None:
    files = [file("a", 5), file("b", 5), file("c", 5)]
    old5, old4 = group("g5", 5, A, B), group("g4", 4, C)
    assert pick(bucket(files, [old5, old4]), INDEX) == [GroupPlan(4, (), (old4,)), GroupPlan(5, (A, B, C), (old5,))]


def test_two_payloads_for_one_level_reject_each_other() -> None:
    first, second = group("x", 5, A, B), group("y", 5, A, B)
    state = bucket(FILES, [first, second, group("g4", 4, C)])
    found = evaluate(state, INDEX)
    assert 5 not in found.active
    assert found.reason(FILES[0]) == "two payloads for level 5"
    assert [payload.file_name for payload, _ in found.stale] == ["x", "y"]
    assert pick(state, INDEX) == [GroupPlan(5, (A, B), (first, second))]


def test_a_stale_payload_beside_a_valid_one_is_dropped_alone() -> None:
    stale = group("x", 5, A)
    state = bucket(FILES, [stale, group("y", 5, A, B), group("g4", 4, C)])
    assert evaluate(state, INDEX).active[5].file_name == "y"
    assert evaluate(state, INDEX).reason(FILES[0]) is None
    assert pick(state, INDEX) == [GroupPlan(5, (), (stale,))]


REJECTED = {
    "fewer sources": (group("g", 5, A), "stale: sources differ"),
    "more sources": (group("g", 5, A, B, C), "stale: sources differ"),
    "another order": (group("g", 5, B, A), "stale: sources differ"),
    "another count": (group("g", 5, A, ("b", 9)), "stale: sources differ"),
    "twice": (group("g", 5, A, A, B), "stale: sources differ"),
    "range start": (group("g", 5, A, B, row_range_start=1), "stale: row range [1, 19] is not that of 20 source rows"),
    "range end": (group("g", 5, A, B, row_range_end=20), "stale: row range [0, 20] is not that of 20 source rows"),
    "row count": (replace(group("g", 5, A, B), row_count=19), "stale: row count 19 is not that of 20 source rows"),
}


@pytest.mark.parametrize(("payload", "reason"), REJECTED.values(), ids=REJECTED)
def test_payloads_that_do_not_fit_their_level_are_stale(payload: IndexFileMeta, reason: str) -> None:
    state = bucket(FILES, [payload, group("g4", 4, C)])
    found = evaluate(state, INDEX)
    assert found.stale == ((payload, reason),)
    assert found.reason(FILES[0]) == reason
    assert pick(state, INDEX) == [GroupPlan(5, (A, B), (payload,))]


@pytest.mark.parametrize("meta", [b"", b"\x00\x00\x00\x02" + bytes(24), group("g", 5, A, B).global_index.source_meta + b"\x00", None])  # type: ignore[union-attr,operator]
def test_unreadable_source_metadata_rejects_the_payload_only(meta: bytes | None) -> None:
    bad = group("bad", 5, A, B, source_meta=meta)
    state = bucket(FILES, [bad, group("g5", 5, A, B), group("g4", 4, C)])
    found = evaluate(state, INDEX)
    assert sorted(found.active) == [4, 5]
    ((payload, reason),) = found.stale
    assert payload is bad
    assert reason.startswith("stale: unreadable source metadata: ")
    assert pick(state, INDEX) == [GroupPlan(0, (), (bad,))]


@given(st.data())
def test_changed_source_metadata_never_raises(data: st.DataObject) -> None:
    whole = group("g", 5, A, B)
    assert whole.global_index is not None
    assert whole.global_index.source_meta is not None
    changed = group("g", 5, A, B, source_meta=data.draw(mutated(whole.global_index.source_meta)))
    state = bucket(FILES, [changed])
    for relaxed in (False, True):
        evaluate(state, INDEX, relaxed)
    assert {plan.level for plan in pick(state, INDEX)} >= {4}
    orphans(state, [])


def test_payloads_of_other_definitions_do_not_matter() -> None:
    state = bucket(FILES, [replace(group("g", 5, A, B), index_type="bitmap"), group("h", 5, A, B, index_field_id=2)])
    found = evaluate(state, INDEX)
    assert (found.active, found.stale) == ({}, ())
    assert [payload.file_name for payload in evaluate(state, OTHER).active.values()] == ["h"]


def test_payloads_without_definition_are_orphans() -> None:
    removed = group("removed", 5, A, B, index_field_id=9)
    retyped = replace(group("retyped", 5, A, B), index_type="bitmap")
    row_ids = group("row-ids", 5, A, B, index_field_id=9, source_meta=bytes.fromhex("44454958000000010000000000000001"))
    regular = group("regular", 5, A, B, index_field_id=9, source_meta=None)
    state = bucket(FILES, [group("kept", 5, A, B), removed, retyped, row_ids, regular])
    assert orphans(state, [INDEX]) == [removed, retyped]
    assert orphans(state, [INDEX, replace(INDEX, field_id=9), definition("bitmap", "INT")]) == []


def test_a_level_without_rows_gets_no_group() -> None:
    empty = file("e", 5, rows=0)
    state = bucket([empty], [])
    assert pick(state, INDEX) == []
    assert evaluate(state, INDEX).reason(empty) == "level 5 holds no rows"
    leftover = group("g", 5, ("e", 0))
    assert pick(bucket([empty], [leftover]), INDEX) == [GroupPlan(5, (), (leftover,))]


RELAXED = {
    "a retired source after": (group("g", 5, A, B, ("z", 5)), {"a", "b"}),
    "a retired source before": (group("g", 5, ("0", 5), A, B), {"a", "b"}),
    "one of two": (group("g", 5, A), {"a"}),
    "one of two and a retired one": (group("g", 5, B, ("z", 5)), {"b"}),
    "complete": (group("g", 5, A, B), {"a", "b"}),
    "another count": (group("g", 5, A, ("b", 9)), set()),
    "not in order": (group("g", 5, B, A), set()),
    "twice": (group("g", 5, A, A, B), set()),
    "nothing left": (group("g", 5, ("z", 5)), set()),
    "another level": (group("g", 5, C), set()),
}


@pytest.mark.parametrize(("payload", "covered"), RELAXED.values(), ids=RELAXED)
def test_relaxed_acceptance_uses_what_is_still_there(payload: IndexFileMeta, covered: set[str]) -> None:
    state = bucket(FILES, [payload])
    found = evaluate(state, INDEX, relaxed=True)
    assert set(found.covered) == covered
    assert bool(found.active) == bool(covered)
    for one in FILES[:2]:
        assert (found.reason(one) is None) == (one.file_name in covered)
    if covered == {"a"}:
        assert found.reason(FILES[0]) == "the group of level 5 was built without this file"
    strict = evaluate(state, INDEX)
    assert set(strict.covered) in (set(), {"a", "b"})


def test_relaxed_acceptance_is_not_for_search_indexes() -> None:
    search = replace(definition("full-text", "STRING"), options={})
    payload = replace(group("g", 5, A), index_type="full-text")
    assert evaluate(bucket(FILES, [payload]), search, relaxed=True).active == {}


def test_vector_payloads_may_have_fewer_rows() -> None:
    vector = replace(INDEX, index_type="ivf-flat", family=definition("vector", "INT").family)
    payload = replace(group("g", 5, A, B), index_type="ivf-flat", row_count=17)
    assert evaluate(bucket(FILES, [payload]), vector).active == {5: payload}


def test_levels_ascend() -> None:
    files = [file("x", 5), file("y", 1), file("z", 3)]
    assert [plan.level for plan in pick(bucket(files, []), INDEX)] == [1, 3, 5]


@pytest.mark.parametrize(
    "name", ["idx_levels", "idx_stale", "idx_partial", "idx_full_compaction", "idx_added_later", "idx_partitioned", "data_file_names"]
)
def test_java_agrees_on_which_groups_are_current(name: str) -> None:
    case = golden.case(name)
    assert case is not None
    fields = {column["name"]: column["id"] for column in case["table"]["columns"]}
    judged = 0
    for snapshot in case["snapshots"]:
        for one in snapshot["buckets"]:
            files = [file(f["name"], f["level"], f["rowCount"], FileSource[f["fileSource"]]) for f in one["files"]]
            own = [g for g in snapshot.get("indexGroups", ()) if (g["partition"], g["bucket"]) == (one["partition"], one["bucket"])]
            for entry in own:
                index = replace(INDEX, index_type=entry["type"], field_id=fields[entry["field"]])
                payloads = [
                    IndexFileMeta(
                        g["type"], g["file"], g["fileSize"], g["rowCount"],
                        global_index=GlobalIndexMeta(*g["rowRange"], g["fieldId"], source_meta=base64.b64decode(g["sourceMeta"])),
                    )
                    for g in own
                ]  # fmt: skip
                found = evaluate(bucket(files, payloads), index)
                assert (entry["file"] in {p.file_name for p in found.active.values()}) == entry["current"]
                judged += 1
    assert judged


def test_definitions_of_java_tables_are_known() -> None:
    case = golden.case("idx_levels")
    assert case is not None
    options = case["table"]["options"]
    text = (
        '{"id":0,"fields":[{"id":0,"name":"id","type":"INT NOT NULL"},{"id":1,"name":"name","type":"STRING"},{"id":2,"name":"cat",'
        '"type":"STRING"},{"id":3,"name":"n","type":"INT"}],"highestFieldId":3,"partitionKeys":[],"primaryKeys":["id"],"options":{},"timeMillis":0}'
    )
    schema = replace(schema_json.decode(text.encode()), options=options)
    assert [d.identity for d in definitions(schema)] == [("btree", 1), ("bitmap", 2), ("btree", 3)]
