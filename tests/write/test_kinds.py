"""Kinds of rows, and what a flush makes of them (spec 05 §1.1, §1.4, 04 §9.5)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maintainer.data.reader import open_data_file
from maintainer.errors import UsageError
from maintainer.model.schema import KIND_FIELD, SEQUENCE_FIELD, TableSchema
from maintainer.model.snapshot import CommitKind
from maintainer.table.merging import MergeRules
from maintainer.table.store import TableStore
from maintainer.write import writer as writer_module
from maintainer.write.flush import Flush
from maintainer.write.kinds import RowKinds
from tests.support import builders
from tests.write.test_writer import everything, rows_of, table, writing

KINDS = ("+I", "-U", "+U", "-D")


def changelog_of(store: TableStore) -> list[tuple[Any, ...]]:
    """(sequence, kind, columns…) of the changelog of the latest snapshot, file after file."""
    snapshot = store.latest_snapshot()
    assert snapshot is not None and snapshot.commit_kind is CommitKind.APPEND
    if snapshot.changelog_manifest_list is None:
        return []
    schema, found = store.latest_schema(), []
    for manifest in store.manifests.files_of(snapshot.changelog_manifest_list, "the snapshot"):
        for entry in store.manifests.entries(manifest.file_name, "the snapshot"):
            assert entry.file.level == 0 and entry.file.file_name.startswith("changelog-")
            path = store.layout.data_file_path(entry.partition, entry.bucket, entry.file)
            with open_data_file(store.storage, path, entry.file, schema, schema) as file:
                found += [tuple(row.values()) for row in file.read([SEQUENCE_FIELD.name, KIND_FIELD.name, *schema.names]).to_pylist()]
    assert len(found) == snapshot.changelog_record_count
    return found


def test_the_newest_row_of_a_key_keeps_its_kind(tmp_path: Path) -> None:
    store = table(tmp_path)
    with writing(store) as writer:
        writer.write(pa.table({"id": [1, 2, 3, 4], "v": list("abcd")}))
        writer.write(pa.table({"id": [1], "v": ["A"]}), kind="+U")
        writer.write(pa.table({"id": [2]}), kind="-U")
        writer.write(pa.table({"id": [3, 4], "v": ["C", "D"], "_VALUE_KIND": ["-D", "+U"]}))
    assert rows_of(store) == [(4, 2, 1, "A"), (5, 1, 2, None), (6, 3, 3, "C"), (7, 2, 4, "D")]
    assert changelog_of(store) == []


@pytest.mark.parametrize("column", [[0, 3, 1, 2], ["+I", "-D", "-U", "+U"], pa.array(["+I", "-D", "-U", "+U"]).dictionary_encode()])
def test_a_column_of_kinds(column: Any, tmp_path: Path) -> None:
    store = table(tmp_path)
    with writing(store) as writer:
        writer.write(pa.table({"_VALUE_KIND": column, "id": [1, 2, 3, 4]}))
    assert [(kind, key) for _, kind, key, _ in rows_of(store)] == [(0, 1), (3, 2), (1, 3), (2, 4)]


@pytest.mark.parametrize(
    ("columns", "kind", "message"),
    [
        ({"id": [1]}, "I", "'I' is no kind of a row; the kinds are"),
        ({"id": [1], "_VALUE_KIND": ["+X"]}, "+I", "'\\+X' is no kind"),
        ({"id": [1], "_VALUE_KIND": [None]}, "+I", "None is no kind"),
        ({"id": [1], "_VALUE_KIND": [4]}, "+I", "4 is no kind"),
        ({"id": [1], "_VALUE_KIND": [0]}, "-D", "are in column _VALUE_KIND already"),
        ({"id": [1], "_VALUE_KIND": [[0]]}, "+I", "cannot say of which kind"),
    ],
)
def test_what_is_no_kind_is_refused(columns: dict[str, Any], kind: str, message: str, tmp_path: Path) -> None:
    store = table(tmp_path)
    before = everything(tmp_path)
    with pytest.raises(UsageError, match=message), writing(store) as writer:
        writer.write(pa.table(columns), kind)
    assert everything(tmp_path) == before


def test_the_kind_comes_from_a_column_of_the_table(tmp_path: Path) -> None:
    store = table(tmp_path, "id BIGINT, op STRING", **{"rowkind.field": "op"})
    with writing(store) as writer:
        writer.write(pa.table({"id": [1, 2, 3], "op": ["+I", "-D", "+U"]}))
    assert rows_of(store) == [(0, 0, 1, "+I"), (1, 3, 2, "-D"), (2, 2, 3, "+U")]
    for columns, message in (
        ({"id": [1], "op": ["delete"]}, "column 'op': 'delete' is no kind"),
        ({"id": [1], "op": [None]}, "column 'op': None is no kind"),
        ({"id": [1]}, "no column 'op'"),
        ({"id": [1], "op": ["+I"], "_VALUE_KIND": [0]}, "cannot be given otherwise"),
    ):
        with pytest.raises(UsageError, match=message):
            writing(store).write(pa.table(columns))
    with pytest.raises(UsageError, match=r"rowkind.field"):
        writing(store).delete(pa.table({"id": [1], "op": ["-D"]}))


def row_kinds(options: dict[str, str]) -> RowKinds:
    return RowKinds(MergeRules.of(builders.schema({"id": "INT", "s": "INT", "v": "INT", "op": "INT"}, options=options)))


def test_a_column_of_numbers_cannot_say_the_kind() -> None:
    with pytest.raises(UsageError, match=r"rowkind.field = op: the column must be of a character type, not INT"):
        row_kinds({"rowkind.field": "op"})


def test_updates_that_are_to_be_ignored_get_no_number(tmp_path: Path) -> None:
    store = table(tmp_path, **{"ignore-update-before": "true", "changelog-producer": "input"})
    with writing(store) as writer:
        writer.write(pa.table({"id": [1, 1, 2], "v": ["a", "b", "c"], "_VALUE_KIND": ["-U", "+U", "-D"]}))
    assert rows_of(store) == changelog_of(store) == [(0, 2, 1, "b"), (1, 3, 2, "c")]


@pytest.mark.parametrize("key", ["ignore-delete", "first-row.ignore-delete", "deduplicate.ignore-delete", "partial-update.ignore-delete"])
def test_deletes_that_are_to_be_ignored(key: str) -> None:
    kept = row_kinds({key: "true"}).kept(np.array([0, 1, 2, 3], np.int8))
    assert kept.tolist() == [True, False, True, False]


def test_first_row_tables_take_no_deletes() -> None:
    kinds = np.array([0, 3], np.int8)
    with pytest.raises(UsageError, match="set ignore-delete"):
        row_kinds({"merge-engine": "first-row"}).kept(kinds)
    assert row_kinds({"merge-engine": "first-row", "ignore-delete": "true"}).kept(kinds).tolist() == [True, False]


@pytest.mark.parametrize(
    "options", [{"ignore-delete": "true"}, {"partial-update.remove-record-on-delete": "true"}, {"fields.s.sequence-group": "v"}], ids=str
)
def test_partial_updates_take_deletes_only_if_they_can_be_merged(options: dict[str, str]) -> None:
    kinds = np.array([0, 3], np.int8)
    with pytest.raises(UsageError, match=r"set ignore-delete .* partial-update.remove-record-on-delete .* sequence groups"):
        row_kinds({"merge-engine": "partial-update"}).kept(kinds)
    assert row_kinds({"merge-engine": "partial-update"}).kept(kinds[:1]).all()
    assert row_kinds({"merge-engine": "partial-update", **options}).kept(kinds)[0]


def test_the_input_is_the_changelog(tmp_path: Path) -> None:
    store = table(tmp_path, **{"changelog-producer": "input", "changelog-file.prefix": "changelog-x"})
    with writing(store) as writer:
        writer.write(pa.table({"id": [2, 1, 2], "v": ["b", "a", "B"]}))
        writer.delete(pa.table({"id": [1], "v": ["a"]}))
    assert changelog_of(store) == [(1, 0, 1, "a"), (3, 3, 1, "a"), (0, 0, 2, "b"), (2, 0, 2, "B")]
    assert rows_of(store) == [(3, 3, 1, "a"), (2, 0, 2, "B")]
    assert writing(store).commit() is None


def test_an_aborted_writer_takes_its_changelog_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = table(tmp_path, **{"changelog-producer": "input"})
    before = everything(tmp_path)
    monkeypatch.setattr(writer_module, "FLUSH_BYTES", 1)
    with pytest.raises(RuntimeError), writing(store) as writer:
        writer.write(pa.table({"id": [1]}))
        assert any("changelog-" in path for path in everything(tmp_path))
        raise RuntimeError
    assert everything(tmp_path) == before


def test_kinds_of_many_flushes_are_one_changelog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = table(tmp_path, "id BIGINT, p STRING", keys="id, p", partitions="p", bucket="2", **{"changelog-producer": "input"})
    monkeypatch.setattr(writer_module, "FLUSH_BYTES", 1)
    with writing(store) as writer:
        for number in range(4):
            writer.write(pa.table({"id": [number, 0], "p": ["x", "y/z"]}), KINDS[number])
    assert sorted((key, p, kind) for _, kind, key, p in changelog_of(store)) == sorted(
        (key, p, kind) for kind in range(4) for key, p in ((kind, "x"), (0, "y/z"))
    )


def by_hand(rows: list[tuple[int, int | None, int | None]], descending: bool) -> list[int]:
    """Row numbers in order of a flush, as a plain sort gives them."""

    def place(value: int | None) -> tuple[bool, int]:
        return (value is not None, 0 if value is None else -value if descending else value)

    return sorted(range(len(rows)), key=lambda row: (rows[row][0], place(rows[row][1]), place(rows[row][2]), row))


@given(
    st.lists(st.tuples(st.integers(0, 3), st.none() | st.integers(-2, 2), st.none() | st.integers(0, 1)), min_size=1, max_size=30),
    st.booleans(),
)
def test_sequence_fields_come_before_arrival(rows: list[tuple[int, int | None, int | None]], descending: bool) -> None:
    schema: TableSchema = builders.schema({"id": "INT", "s": "INT", "t": "INT"})
    given_rows = pa.table(
        {name: pa.array([row[place] for row in rows], pa.int32()) for place, name in enumerate(("id", "s", "t"))}
        | {"n": list(range(len(rows)))}
    )
    numbers = pa.array(range(len(rows)), pa.int64())
    given_rows = given_rows.append_column(SEQUENCE_FIELD.name, numbers).append_column(KIND_FIELD.name, pa.array([0] * len(rows), pa.int8()))
    options = {"sequence.field": "s,t", "sequence.field.sort-order": "descending" if descending else "ascending"}
    flush = Flush.of(given_rows, MergeRules.of(replace(schema, options=options)))
    expected = by_hand(rows, descending)
    assert flush.changes()["n"].to_pylist() == expected
    newest = {rows[row][0]: row for row in expected}
    assert flush.merged()["n"].to_pylist() == list(newest.values())
