"""Predicates on Java's tables: the same keys as Java with and without indexes, the same plans, and the same answers of single payloads.

Where our plans differ from Java's, they differ in one of the ways that `differs` names.
"""

from __future__ import annotations

import base64
import tarfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from maintainer.data.values import json_rows
from maintainer.index.definition import MAINTAINED, FamilyName, IndexDefinition, definitions
from maintainer.index.family import family
from maintainer.model.files import FileSource
from maintainer.model.predicate import And, Leaf, Predicate, leaves
from maintainer.model.schema import TableSchema
from maintainer.model.types import FLOATS
from maintainer.read.decisions import INDEXED, PRUNED, RAW
from maintainer.read.explanation import FileDecision
from maintainer.read.residual import evaluate
from maintainer.read.scan import Scan
from maintainer.read.sql import parse_predicate
from maintainer.table.opening import open_store
from maintainer.table.state import load_state
from tests.support import golden
from tests.support.builders import schema
from tests.support.built_tables import BuiltTable, table_of

CASES = (
    "async_index",
    "data_file_names",
    "idx_added_later",
    "idx_bitmap_blocks",
    "idx_bitmap_types",
    "idx_btree_blocks",
    "idx_btree_types",
    "idx_full_compaction",
    "idx_levels",
    "idx_multivalue",
    "idx_multivalue_empty",
    "idx_partial",
    "idx_partial_update",
    "idx_partitioned",
    "idx_stale",
    "index_in_data_dir",
    "inline_compaction",
    "schema_evolution",
)
"""All cases with predicates but `de_global_index`, whose rows are spread over files (data evolution): of that the payloads alone are asked."""

FILE_INDEX_CASES = ("fi_append", "fi_pk_embedded", "fi_pk_file")


def differs(predicate: Any, ours: FileDecision | None, java: Mapping[str, Any] | None) -> str | None:
    """Why our plan of a file may be another than Java's; None: it may not."""
    tested = list(leaves(predicate))
    if ours is None or ours.decision == PRUNED:
        return "we prune more" if java is not None and java.get("raw") else None
    if any(isinstance(literal, float) and literal == 0 for leaf in tested for literal in leaf.literals):
        return "the payload is asked for both zeros"
    return None


@pytest.mark.parametrize("name", CASES)
def test_keys_and_plans_are_those_of_java(name: str, tmp_path: Path) -> None:
    found = golden.case(name)
    if found is None:
        pytest.skip(f"case {name} is not here")
    store = open_store(str(golden.unpack(name, tmp_path)))
    keys = found["table"]["primaryKeys"]
    assert found["predicates"]
    for asked in found["predicates"]:
        snapshot = asked["snapshot"]
        everything = Scan(store, columns=keys, snapshot_id=snapshot)
        predicate = golden.predicate_of(asked["predicate"], everything.plan().schema)
        for use_index, expected in ((True, asked["keys"]), (False, asked.get("keysWithoutIndex", asked["keys"]))):
            with capture_logs() as logs:
                scan = Scan(store, predicate, keys, snapshot_id=snapshot, use_index=use_index)
                rows = [list(row.values()) for row in json_rows(scan.to_arrow(), scan.fields)]
            assert logs == []
            assert sorted(rows) == sorted(key if len(keys) > 1 else [key] for key in expected), asked["predicate"]
        ours = {file.file: file for file in Scan(store, predicate, snapshot_id=snapshot).explain().files}
        java = {file["file"]: file for file in asked["plan"]}
        assert set(java) <= set(ours)
        for file in ours:
            if _decision(ours[file]) != _java_decision(java.get(file)):
                assert differs(predicate, ours[file], java.get(file)), (asked["predicate"], ours[file], java.get(file))


@pytest.mark.parametrize("name", CASES)
def test_single_payloads_answer_as_in_java(name: str, tmp_path: Path) -> None:
    found = golden.case(name)
    if found is None:
        pytest.skip(f"case {name} is not here")
    store = open_store(str(golden.unpack(name, tmp_path)))
    compared = 0
    for asked in found["predicates"]:
        snapshot = store.snapshot(asked["snapshot"])
        schema = store.schema_of(snapshot)
        state = load_state(store, snapshot, schema=schema)
        payloads = {payload.file_name: (bucket, payload) for bucket in state.buckets.values() for payload in bucket.payloads}
        for answer in asked.get("groups", ()):
            leaf = golden.predicate_of(asked["predicate"], schema)
            assert isinstance(leaf, Leaf)
            bucket, payload = payloads[answer["file"]]
            definition = next((each for each in definitions(store.latest_schema()) if each.column == leaf.field), None)
            if definition is None or definition.family not in MAINTAINED:
                continue
            data = store.storage.read(store.layout.index_file_path(payload, bucket.partition, bucket.bucket))
            assert payload.global_index is not None
            read = lambda offset, length, data=data: data[offset : offset + length]  # noqa: E731
            reader = family(definition.family).open(read, len(data), definition, payload.global_index.index_meta, payload.row_count)
            ordinals = reader.evaluate(leaf)
            expected = answer["ordinals"]
            if expected is None:
                assert ordinals is None, asked["predicate"]
            elif _speaks_of_a_zero(leaf, definition.data_type.root in FLOATS):
                assert ordinals is not None and set(expected) <= set(ordinals)  # the other zero may come along
            else:
                assert list(ordinals or ()) == expected, asked["predicate"]
            compared += 1
    assert compared or not any("groups" in asked for asked in found["predicates"])


def _speaks_of_a_zero(leaf: Leaf, is_float: bool) -> bool:
    return is_float and any(literal == 0 for literal in leaf.literals)


def _decision(file: FileDecision) -> Any:
    return {PRUNED: None, RAW: RAW}.get(file.decision, file.ranges and [list(pair) for pair in file.ranges])


def _java_decision(file: Mapping[str, Any] | None) -> Any:
    return None if file is None else RAW if file.get("raw") else file["ranges"]


@pytest.mark.parametrize("name", FILE_INDEX_CASES)
def test_keys_of_predicates_on_columns_with_file_indexes(name: str, tmp_path: Path) -> None:
    """We read no file-level index; a file that Java left out for its statistics is left out here, too."""
    found = golden.case(name)
    if found is None:
        pytest.skip(f"case {name} is not here")
    store = open_store(str(golden.unpack(name, tmp_path)))
    keys = found["table"]["primaryKeys"] or [found["table"]["columns"][0]["name"]]
    assert found["fileIndexPredicates"]
    for asked in found["fileIndexPredicates"]:
        snapshot = asked["snapshot"]
        predicate = golden.predicate_of(asked["predicate"], store.schema_of(store.snapshot(snapshot)))
        scan = Scan(store, predicate, keys, snapshot_id=snapshot)
        rows = [list(row.values()) for row in json_rows(scan.to_arrow(), scan.fields)]
        assert sorted(rows) == sorted(key if len(keys) > 1 else [key] for key in asked["keys"]), asked["predicate"]
        by_file_index = {file["file"] for file in asked["files"] if not file["remain"]}
        read = {file.file for file in scan.explain().files if file.decision != PRUNED}
        assert read <= by_file_index.union(asked["planned"]), asked["predicate"]


def test_payloads_over_row_ids_answer_as_in_java(tmp_path: Path) -> None:
    """Data evolution: no scan, but its payloads are those of the same families, and the residual gives Java's rows of Java's table."""
    found = golden.case("de_global_index")
    if found is None:
        pytest.skip("case de_global_index is not here")
    directory = golden.unpack("de_global_index", tmp_path)
    store = open_store(str(directory))
    schema, last = store.latest_schema(), found["snapshots"][-1]
    known = [dict(zip(schema.names, _internal(row, schema), strict=True)) for row in last["rows"]["data"]]
    rows = table_of(known, schema)
    readers = {}
    for group in last["indexGroups"]:
        column = schema.field(group["field"])
        definition = IndexDefinition(column.name, column.id, group["type"], FamilyName(group["type"]), {}, column.type)
        data = (directory / "index" / group["file"]).read_bytes()
        read = lambda offset, length, data=data: data[offset : offset + length]  # noqa: E731
        meta = base64.b64decode(group["indexMeta"])
        readers[column.name] = group["file"], family(definition.family).open(read, len(data), definition, meta, group["rowCount"])

    def answer(predicate: Predicate) -> set[int]:
        if isinstance(predicate, Leaf):
            return set(readers[predicate.field][1].evaluate(predicate))
        sets = [answer(child) for child in predicate.children]
        return set.intersection(*sets) if isinstance(predicate, And) else set.union(*sets)

    assert len(found["predicates"]) == 10
    for asked in found["predicates"]:
        predicate = golden.predicate_of(asked["predicate"], schema)
        assert sorted(answer(predicate)) == asked["rows"]["fast"], asked["predicate"]
        assert sorted(rows.filter(evaluate(predicate, rows, schema))["id"].to_pylist()) == asked["rows"]["full"], asked["predicate"]
        for group in asked.get("groups") or ():
            assert isinstance(predicate, Leaf)
            assert group["file"] == readers[predicate.field][0]
            assert sorted(answer(predicate)) == group["ordinals"]


def _internal(row: list[Any], schema: TableSchema) -> Iterator[Any]:
    for value, column in zip(row, schema.fields, strict=True):
        of = column.type.element
        yield golden.value_of(value, column.type) if of is None or value is None else [golden.value_of(each, of) for each in value]


# spec 07 §15.1: covered file C holds ids 1-4 at positions 0-3, uncovered file U holds ids 5 and 6

PK_CASES: list[tuple[str, list[tuple[int, int]] | None, bool, list[int]]] = [
    ("name = 'name-2'", [(1, 1)], False, [2]),
    ("name = 'zzz'", None, False, []),
    ("name <> 'name-2'", [(0, 0), (2, 3)], True, [1, 3, 4, 5, 6]),
    ("name IN ('name-1', 'name-4', 'x')", [(0, 0), (3, 3)], False, [1, 4]),
    ("name NOT IN ('name-1', 'name-4', 'x')", [(1, 2)], True, [2, 3, 5, 6]),
    ("name > 'name-2'", [(2, 3)], True, [3, 4, 5, 6]),
    ("name >= 'name-2'", [(1, 3)], True, [2, 3, 4, 5, 6]),
    ("name < 'name-2'", [(0, 0)], False, [1]),
    ("name <= 'name-2'", [(0, 1)], False, [1, 2]),
    ("name BETWEEN 'name-2' AND 'name-3'", [(1, 2)], False, [2, 3]),
    ("name NOT BETWEEN 'name-2' AND 'name-3'", [(0, 0), (3, 3)], True, [1, 4, 5, 6]),
    ("name IS NULL", None, False, []),
    ("name IS NOT NULL", [(0, 3)], True, [1, 2, 3, 4, 5, 6]),
    ("startswith(name, 'name-')", [(0, 3)], True, [1, 2, 3, 4, 5, 6]),
    ("endswith(name, '-3')", [(0, 3)], True, [3]),
    ("contains(name, 'e-1')", [(0, 3)], True, [1]),
    ("name LIKE 'name-%'", [(0, 3)], True, [1, 2, 3, 4, 5, 6]),
    ("name LIKE '%-3'", [(0, 3)], True, [3]),
    ("name LIKE 'n_me-4'", [(0, 3)], True, [4]),
    ("category = 'odd'", [(0, 0), (2, 2)], True, [1, 3, 5]),
    ("category <> 'odd'", [(1, 1), (3, 3)], True, [2, 4, 6]),
    ("category IN ('even', 'zzz')", [(1, 1), (3, 3)], True, [2, 4, 6]),
    ("category < 'f'", [(1, 1), (3, 3)], True, [2, 4, 6]),
    ("category NOT IN ('even')", [(0, 0), (2, 2)], True, [1, 3, 5]),
    ("startswith(category, 'o')", [(0, 0), (2, 2)], True, [1, 3, 5]),
    ("category IS NULL", None, False, []),
    ("category IS NOT NULL", [(0, 3)], True, [1, 2, 3, 4, 5, 6]),
    ("name = 'name-2' AND category = 'even'", [(1, 1)], False, [2]),
    ("name = 'name-2' AND category = 'odd'", None, False, []),
    ("name = 'name-2' OR category = 'odd'", [(0, 2)], True, [1, 2, 3, 5]),
    ("category = 'odd' AND id > 1", [(0, 0), (2, 2)], True, [3, 5]),
    ("name LIKE 'name-3'", [(2, 2)], True, [3]),
    ("name LIKE '%me-2%'", [(0, 3)], True, [2]),
    ("contains(category, 'e')", [(1, 1), (3, 3)], True, [2, 4, 6]),
    ("endswith(category, 'n')", [(1, 1), (3, 3)], True, [2, 4, 6]),
    ("category LIKE '_dd'", [(0, 0), (2, 2)], True, [1, 3, 5]),
    ("startswith(name, '')", [(0, 3)], True, [1, 2, 3, 4, 5, 6]),
    ("contains(name, '')", [(0, 3)], True, [1, 2, 3, 4, 5, 6]),
    ("name NOT IN ()", [(0, 3)], True, [1, 2, 3, 4, 5, 6]),
    ("name IN ()", None, False, []),
    ("name IN (NULL)", None, False, []),
    ("name NOT IN ('name-1', NULL)", None, False, []),
    ("name IS NULL AND name IS NOT NULL", None, False, []),
]
"""Condition, ranges in C (None: pruned), whether U is read, ids."""

WE_PRUNE_MORE = {
    "name LIKE 'name-3'",  # by the statistics of U: a pattern is tested by what stands before its first wildcard
}


@pytest.fixture(scope="module")
def pk_table(tmp_path_factory: pytest.TempPathFactory) -> Any:
    if not golden.PK_JAVA.exists():
        pytest.skip(f"{golden.PK_JAVA.name} is not here (public test data that is not kept in this repository)")
    directory = tmp_path_factory.mktemp("pk-java")
    with tarfile.open(golden.PK_JAVA) as tar:
        tar.extractall(directory, filter="data")
    (table,) = directory.rglob("test_pk_global_index_golden")
    return open_store(str(table))


@pytest.mark.parametrize(("sql", "ranges", "uncovered", "ids"), PK_CASES)
def test_plans_of_a_public_table(pk_table: Any, sql: str, ranges: list[tuple[int, int]] | None, uncovered: bool, ids: list[int]) -> None:
    scan = Scan(pk_table, sql, ["id"])
    state = load_state(pk_table, pk_table.latest_snapshot())
    levels = {file.file_name: file.level for file in state.files()}
    files = {levels[file.file]: file for file in scan.explain().files}
    assert (files[2].ranges if ranges else files[2].decision) == (tuple(ranges) if ranges else PRUNED)
    assert (files[1].decision == RAW) == (uncovered and sql not in WE_PRUNE_MORE)
    assert sorted(scan.to_arrow()["id"].to_pylist()) == ids
    assert sorted(Scan(pk_table, sql, ["id"], use_index=False).to_arrow()["id"].to_pylist()) == ids


@pytest.mark.parametrize(("sql", "ids"), [("name = 'name-2' OR id = 1", [1, 2]), ("id = 3", [3])])
def test_indexes_do_not_help_where_another_column_decides(pk_table: Any, sql: str, ids: list[int]) -> None:
    scan = Scan(pk_table, sql, ["id"])
    assert INDEXED not in {file.decision for file in scan.explain().files}
    assert scan.to_arrow()["id"].to_pylist() == ids


# the tables derived from it: a deletion vector on C, and C in two files with one group over both


@pytest.fixture
def derived(tmp_path: Path) -> Iterator[Callable[..., BuiltTable]]:
    """A table with these files at level 2 and ids 5 and 6 in an uncovered one at level 1."""
    columns = {"id": "INT", "name": "STRING", "category": "STRING"}
    options = {"bucket": "1", "deletion-vectors.enabled": "true", "pk-btree.index.columns": "name", "pk-bitmap.index.columns": "category"}

    def row(number: int) -> dict[str, Any]:
        return {"id": number, "name": f"name-{number}", "category": "odd" if number % 2 else "even"}

    def build(*files: list[int], deleted: list[int]) -> BuiltTable:
        built = BuiltTable(tmp_path / "t", schema(columns, options=options))
        for ids in files:
            built.put([row(number) for number in ids], level=2, deleted=deleted)
        built.put([row(5), row(6)], level=1, source=FileSource.APPEND)
        built.index()
        built.publish()
        return built

    return build


DERIVED: list[tuple[str, list[list[int]], list[int], list[Any], list[int]]] = [
    ("category = 'even'", [[1, 2, 3, 4]], [1], [((1, 1), (3, 3)), RAW], [4, 6]),
    ("category = 'even'", [[1, 2], [3, 4]], [], [((1, 1),), ((1, 1),), RAW], [2, 4, 6]),
    ("name = 'name-3'", [[1, 2], [3, 4]], [], [PRUNED, ((0, 0),), PRUNED], [3]),
    ("category = 'even' AND id > 2", [[1, 2], [3, 4]], [], [PRUNED, ((1, 1),), RAW], [4, 6]),
]
"""Condition, ids of the files at level 2, deleted positions in each, what is done with each file, ids that come out."""


@pytest.mark.parametrize(("sql", "files", "deleted", "decisions", "ids"), DERIVED)
def test_plans_of_tables_derived_from_it(
    derived: Callable[..., BuiltTable], sql: str, files: list[list[int]], deleted: list[int], decisions: list[Any], ids: list[int]
) -> None:
    scan = Scan(derived(*files, deleted=deleted).store, sql)
    assert [file.ranges or file.decision for file in scan.explain().files] == decisions
    assert sorted(scan.to_arrow()["id"].to_pylist()) == ids


def test_the_condition_can_be_given_as_a_bound_predicate(pk_table: Any) -> None:
    predicate = parse_predicate("name = 'name-2'", pk_table.latest_schema())
    assert Scan(pk_table, predicate).to_arrow()["id"].to_pylist() == [2]
