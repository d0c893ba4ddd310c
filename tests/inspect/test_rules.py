"""Each rule of verification alone: damage of exactly that kind, and no other rule complains."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import maintainer
from maintainer.format import binary_row, manifest_list, snapshot_json, source_meta
from maintainer.format.source_meta import SourceMeta
from maintainer.index.family.btree import BTreeReader
from maintainer.inspect import deep, index_content, rows
from maintainer.inspect import verify as verify_module
from maintainer.inspect.verify import Verification
from maintainer.model.files import EMPTY_ROW, HASH, BucketKey, DataFileMeta, IndexFileMeta, ManifestFileMeta, SimpleStats
from maintainer.model.snapshot import Snapshot
from maintainer.table.state import SnapshotExpired
from tests.support.builders import schema, types
from tests.support.built_tables import BuiltTable

SCHEMA = schema(
    {"id": "INT", "s": "STRING", "d": "DOUBLE", "n": "INT", "day": "DATE", "at": "TIMESTAMP(6)", "list": "ARRAY<INT>"},
    options={"bucket": "1", "deletion-vectors.enabled": "true", "pk-btree.index.columns": "n,s", "pk-bitmap.index.columns": "d,at"},
)
TWO_BUCKETS = replace(SCHEMA, options={**SCHEMA.options, "bucket": "2"})


def row(number: int) -> dict[str, Any]:
    return {
        "id": number,
        "s": None if number % 5 == 0 else f"text {number % 7}",
        "d": (float("nan"), -0.0, 0.0, None, 1.5, -2.5)[number % 6],
        "n": number % 11 if number % 3 else None,
        "day": 19_000 + number,
        "at": 1_700_000_000_000_000_000 + number * 1_000,
        "list": [number, None],
    }


@pytest.fixture
def built(tmp_path: Path) -> BuiltTable:
    return BuiltTable(tmp_path / "t", SCHEMA)


def put(built: BuiltTable, first: int = 0, count: int = 100, **others: Any) -> DataFileMeta:
    (meta,) = built.put([row(number) for number in range(first, first + count)], **others)
    return meta


def verified(built: BuiltTable, is_deep: bool = True) -> Verification:
    return maintainer.open_table(built.store.uri).verify(deep=is_deep)


def broken(found: Verification) -> set[str]:
    return {problem.rule for problem in found.problems}


class TestExpiry:
    """Verification is of one snapshot; when that goes away, what is missing is no problem of the table."""

    def expiring(self, built: BuiltTable, monkeypatch: pytest.MonkeyPatch, tag: bool = False) -> maintainer.Table:
        """A data file that goes with its snapshot, as soon as the state is loaded."""
        meta = put(built)
        snapshot = built.publish()
        directory = Path(built.store.uri)
        original = verify_module.load_state

        def loaded(*given: Any) -> Any:
            state = original(*given)
            if tag:
                (directory / "tag").mkdir()
                shutil.copy(directory / built.store.snapshot_path(snapshot.id), directory / "tag" / "tag-t")
            (directory / built.store.snapshot_path(snapshot.id)).unlink()
            (directory / built.store.layout.data_file_path(EMPTY_ROW, 0, meta)).unlink()
            return state

        monkeypatch.setattr(verify_module, "load_state", loaded)
        return maintainer.open_table(built.store.uri)

    @pytest.mark.parametrize("is_deep", [False, True])
    def test_a_snapshot_that_expires_is_an_error_that_says_so(self, built: BuiltTable, is_deep: bool, monkeypatch: pytest.MonkeyPatch) -> None:
        with pytest.raises(SnapshotExpired, match="snapshot 1 expired or was replaced while it was verified; try again"):
            self.expiring(built, monkeypatch).verify(deep=is_deep)

    @pytest.mark.parametrize("still_needed", [False, True])
    def test_files_may_go_before_their_snapshot_does(self, built: BuiltTable, still_needed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
        """Java deletes them in this order. What the latest snapshot needs, too, is missed all the same."""
        meta = put(built)
        built.publish()
        original = verify_module.load_state

        def loaded(*given: Any) -> Any:
            state = original(*given)
            monkeypatch.setattr(verify_module, "load_state", original)
            if not still_needed:
                built._manifests.clear()
            put(built, 100)
            built.publish()
            (Path(built.store.uri) / built.store.layout.data_file_path(EMPTY_ROW, 0, meta)).unlink()
            return state

        monkeypatch.setattr(verify_module, "load_state", loaded)
        if still_needed:
            found = verified(built)
            assert (found.snapshot, broken(found)) == (1, {"data-file"})
        else:
            with pytest.raises(SnapshotExpired):
                verified(built)

    def test_what_a_tag_keeps_must_be_there(self, built: BuiltTable, monkeypatch: pytest.MonkeyPatch) -> None:
        assert broken(self.expiring(built, monkeypatch, tag=True).verify()) == {"data-file"}

    def test_commits_meanwhile_do_not_matter(self, built: BuiltTable, monkeypatch: pytest.MonkeyPatch) -> None:
        put(built)
        built.publish()
        original = verify_module.load_state

        def loaded(*given: Any) -> Any:
            state = original(*given)
            put(built, 100)
            built.publish()
            return state

        monkeypatch.setattr(verify_module, "load_state", loaded)
        found = verified(built)
        assert (found.snapshot, found.problems) == (1, ())


def test_a_sound_table_breaks_no_rule(built: BuiltTable) -> None:
    put(built)
    built.delete(put(built, 50, 100, level=4), range(50))
    put(built, 0, 10, level=0)
    built.index()
    built.publish()
    assert verified(built).problems == ()


class TestMetadata:
    """Rules that need no row."""

    def changed_list(self, built: BuiltTable, change: Callable[[ManifestFileMeta], ManifestFileMeta]) -> None:
        """Let the delta list say something else about its manifest."""
        snapshot = self.snapshot(built)
        path = Path(built.store.uri) / "manifest" / snapshot.delta_manifest_list
        path.write_bytes(manifest_list.encode([change(meta) for meta in manifest_list.decode(path.read_bytes())]))
        self.changed_snapshot(built, delta_manifest_list_size=path.stat().st_size)

    def snapshot(self, built: BuiltTable) -> Snapshot:
        found = built.store.latest_snapshot()
        assert found is not None
        return found

    def changed_snapshot(self, built: BuiltTable, **others: Any) -> None:
        snapshot = replace(self.snapshot(built), **others)
        (Path(built.store.uri) / built.store.snapshot_path(snapshot.id)).write_bytes(snapshot_json.encode(snapshot))

    def test_snapshot(self, built: BuiltTable) -> None:
        put(built)
        built.publish()
        self.changed_snapshot(built, schema_id=7)
        assert broken(verified(built)) == {"snapshot"}

    def test_manifest(self, built: BuiltTable) -> None:
        put(built)
        built.publish()
        self.changed_list(built, lambda meta: replace(meta, file_size=meta.file_size + 1))
        assert broken(verified(built)) == {"manifest"}

    def test_manifest_count(self, built: BuiltTable) -> None:
        put(built)
        built.publish()
        self.changed_list(built, lambda meta: replace(meta, num_added_files=0, num_deleted_files=1))
        assert broken(verified(built)) == {"manifest-count"}

    def test_live_files(self, built: BuiltTable) -> None:
        """A file that is added twice."""
        meta = put(built)
        built.publish()
        put(built, 100)
        built._buckets[BucketKey(EMPTY_ROW, 0)].files.append(meta)
        built.publish()
        assert broken(verified(built)) == {"live-files"}

    def test_record_total(self, built: BuiltTable) -> None:
        put(built)
        built.publish()
        self.changed_snapshot(built, total_record_count=99)
        assert broken(verified(built)) == {"record-total"}

    def test_data_file(self, built: BuiltTable) -> None:
        built.change(put(built), row_count=99)
        built.publish()
        assert broken(verified(built)) == {"data-file"}

    def test_extra_file(self, built: BuiltTable) -> None:
        built.change(put(built), extra_files=("data-1.parquet.index",))
        built.publish()
        assert broken(verified(built)) == {"extra-file"}

    def test_bucket(self, built: BuiltTable) -> None:
        put(built, key=BucketKey(EMPTY_ROW, 3))
        built.publish()
        assert broken(verified(built, is_deep=False)) == {"bucket"}

    def test_key_range(self, built: BuiltTable) -> None:
        meta = put(built)
        built.change(meta, min_key=meta.max_key, max_key=meta.min_key)
        built.publish()
        assert broken(verified(built, is_deep=False)) == {"key-range"}

    def test_level(self, built: BuiltTable) -> None:
        put(built)
        put(built, 99, 2, deleted=[0])
        built.publish()
        assert broken(verified(built)) == {"level"}

    def test_index_file(self, built: BuiltTable) -> None:
        put(built)
        built.put_index_file(IndexFileMeta(HASH, "index-of-keys", 4, 1))
        built.publish()
        assert broken(verified(built)) == {"index-file"}

    def test_deletion_vector(self, built: BuiltTable) -> None:
        put(built, deleted=[100])
        built.publish()
        assert broken(verified(built)) == {"deletion-vector"}

    def test_index_group(self, built: BuiltTable) -> None:
        put(built)
        first = built.index(["n"])[0]
        built.put_index_file(replace(first, row_count=99), replacing=first)
        built.publish()
        assert broken(verified(built)) == {"index-group"}

    @pytest.mark.parametrize("column", ["n", "s", "d", "at"])
    def test_index_payload(self, built: BuiltTable, column: str) -> None:
        put(built)
        path = built.index_path(built.index([column])[0])
        data = bytearray(path.read_bytes())
        data[0] ^= 0xFF
        path.write_bytes(data)
        built.publish()
        assert broken(verified(built)) >= {"index-payload"}
        assert broken(verified(built, is_deep=False)) == {"index-payload"}


def swap(table: pa.Table, one: int, other: int) -> pa.Table:
    order = list(range(table.num_rows))
    order[one], order[other] = order[other], order[one]
    return table.take(order)


def set_value(name: str, position: int, value: Any) -> Callable[[pa.Table], pa.Table]:
    def change(table: pa.Table) -> pa.Table:
        values = table.column(name).to_pylist()
        values[position] = value
        return table.set_column(table.schema.get_field_index(name), table.schema.field(name), pa.array(values, table.schema.field(name).type))

    return change


class TestRows:
    """Rules that the rows of a file show."""

    def test_file_schema(self, built: BuiltTable) -> None:
        built.rewrite(put(built), lambda table: table.drop_columns(["list"]))
        built.publish()
        assert broken(verified(built)) == {"file-schema"}
        assert "lacks: list" in verified(built).problems[0].message

    def test_rows(self, built: BuiltTable) -> None:
        """Text where the schema has a date."""
        built.rewrite(put(built), lambda table: table.set_column(table.schema.get_field_index("day"), "day", pa.array(["x"] * 100)))
        built.publish()
        assert broken(verified(built, is_deep=False)) == set()
        assert broken(verified(built)) == {"rows"}

    def test_key_order(self, built: BuiltTable) -> None:
        built.rewrite(put(built), lambda table: swap(table, 40, 41))
        built.publish()
        assert broken(verified(built)) == {"key-order"}

    def test_a_key_twice_in_a_file(self, built: BuiltTable) -> None:
        built.rewrite(put(built), set_value("id", 41, 40))
        built.publish()
        assert broken(verified(built)) == {"key-order"}

    def test_order_across_batches(self, built: BuiltTable, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(rows, "BATCH_BYTES", 1)  # 64 rows each
        built.rewrite(put(built, 200, 200, level=4), lambda table: swap(table, 63, 64))
        built.publish()
        assert broken(verified(built)) == {"key-order"}

    @pytest.mark.parametrize("end", ["min_key", "max_key"])
    def test_key_bounds(self, built: BuiltTable, end: str) -> None:
        built.change(put(built), **{end: binary_row.serialize([50], types("INT"))})
        built.publish()
        assert broken(verified(built)) == {"key-bounds"}

    @pytest.mark.parametrize(
        ("low", "high", "nulls"), [(1, 99, 0), (0, 98, 0), (0, 99, 1)], ids=["smallest above a value", "largest below a value", "NULLs"]
    )
    def test_key_stats(self, built: BuiltTable, low: int, high: int, nulls: int) -> None:
        stats = SimpleStats(binary_row.serialize([low], types("INT")), binary_row.serialize([high], types("INT")), (nulls,))
        built.change(put(built), key_stats=stats)
        built.publish()
        assert broken(verified(built)) == {"key-stats"}

    @pytest.mark.parametrize(
        ("column", "low", "high", "nulls"),
        [
            ("s", "text 1", "text 6", 20),
            ("s", "text 0", "text 5", 20),
            ("s", "text 0", "text 6", 19),
            ("n", 1, 10, 34),
            ("n", 0, 9, 34),
            ("n", None, None, 33),
            ("day", 19_001, 19_099, 0),
            ("day", 19_000, 19_098, 0),
            ("d", -2.0, 1.5, 17),
            ("d", -2.5, 0.0, 17),
            ("at", 1_700_000_000_000_000_000, 1_700_000_000_000_098_000, 0),
        ],
    )
    def test_value_stats(self, built: BuiltTable, column: str, low: Any, high: Any, nulls: int) -> None:
        kind = [built.schema.field(column).type]
        stats = SimpleStats(binary_row.serialize([low], kind), binary_row.serialize([high], kind), (nulls,))
        built.change(put(built), value_stats=stats, value_stats_cols=(column,))
        built.publish()
        found = verified(built)
        assert broken(found) == {"value-stats"}
        assert f"column {column}: " in found.problems[0].message

    @pytest.mark.parametrize(
        ("column", "low", "high", "nulls"),
        [
            ("s", "t", "u", 20),  # cut
            ("s", "t", "te?", None),  # what Java makes of half a surrogate pair
            ("n", None, None, None),
            ("d", -2.5, 1.5, 17),  # NaN is left out
            ("d", -2.5, float("nan"), 17),
        ],
    )
    def test_value_stats_that_are_right_in_their_way(self, built: BuiltTable, column: str, low: Any, high: Any, nulls: int | None) -> None:
        kind = [built.schema.field(column).type]
        stats = SimpleStats(binary_row.serialize([low], kind), binary_row.serialize([high], kind), (nulls,))
        built.change(put(built), value_stats=stats, value_stats_cols=(column,))
        built.publish()
        assert verified(built).problems == ()

    def test_statistics_that_are_no_row(self, built: BuiltTable) -> None:
        meta = put(built)
        built.change(meta, value_stats=replace(meta.value_stats, min_values=meta.value_stats.min_values[:20]))
        built.publish()
        assert broken(verified(built)) == {"value-stats"}

    @pytest.mark.parametrize("which", ["min_sequence_number", "max_sequence_number"])
    def test_sequence_bounds(self, built: BuiltTable, which: str) -> None:
        built.change(put(built), **{which: 50})
        built.publish()
        assert broken(verified(built)) == {"sequence-bounds"}

    def test_delete_count(self, built: BuiltTable) -> None:
        built.change(put(built), delete_row_count=1)
        built.publish()
        assert broken(verified(built)) == {"delete-count"}

    def test_key_bucket(self, tmp_path: Path) -> None:
        built = BuiltTable(tmp_path / "t", TWO_BUCKETS)
        put(built, key=BucketKey(EMPTY_ROW, 1))
        built.publish()
        found = verified(built)
        assert broken(found) == {"key-bucket"}
        assert "such as bucket 0" in found.problems[0].message

    def test_visible_delete(self, built: BuiltTable) -> None:
        put(built, kinds=[3, *[0] * 99])
        built.publish()
        assert broken(verified(built)) == {"visible-delete"}

    def test_a_delete_that_is_not_visible(self, built: BuiltTable) -> None:
        put(built, kinds=[3, *[0] * 99], deleted=[0])
        put(built, 0, 100, kinds=[3] * 100, level=0)
        built.publish()
        assert verified(built).problems == ()

    def test_unique_key(self, built: BuiltTable) -> None:
        put(built)
        put(built, 50, 100, level=4)
        built.publish()
        found = verified(built)
        assert broken(found) == {"unique-key"}
        assert "50 live rows" in found.problems[0].message

    @pytest.mark.parametrize("batch", [1, 7, 64, 1 << 16])
    def test_keys_are_compared_by_what_is_visible_whatever_the_batches_are(
        self, built: BuiltTable, batch: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(deep, "BATCH_ROWS", batch)
        monkeypatch.setattr(rows, "_FEWEST_ROWS", 1)
        for level, first in ((5, 0), (5, 300), (4, 100), (3, 150), (2, 399)):
            put(built, first, 200 if level > 2 else 1, level=level)
        built.publish()
        found = verified(built)
        assert broken(found) == {"unique-key"}
        expected = sum(count - 1 for count in _times([(0, 200), (300, 200), (100, 200), (150, 200), (399, 1)]).values())
        assert f"{expected} live rows" in found.problems[0].message


def _times(ranges: list[tuple[int, int]]) -> dict[int, int]:
    found: dict[int, int] = {}
    for first, count in ranges:
        for number in range(first, first + count):
            found[number] = found.get(number, 0) + 1
    return found


class TestIndexes:
    """Rules about index groups and the data."""

    @pytest.mark.parametrize("column", ["n", "s", "d", "at"])
    def test_index_content(self, built: BuiltTable, column: str) -> None:
        """The index is of other rows than the file."""
        meta = put(built)
        (payload,) = built.index([column])
        other = BuiltTable(Path(built.store.uri).parent / "other", SCHEMA)
        put(other, 1)
        (theirs,) = other.index([column])
        built.index_path(payload).write_bytes(other.index_path(theirs).read_bytes())
        assert payload.global_index is not None and theirs.global_index is not None
        meant = replace(payload.global_index, index_meta=theirs.global_index.index_meta)
        built.put_index_file(replace(payload, file_size=theirs.file_size, global_index=meant), replacing=payload)
        built.publish()
        found = verified(built)
        assert broken(found) == {"index-content"}
        assert f"column {column}: of {meta.file_name} the index has" in found.problems[0].message

    def test_one_value_at_the_position_of_another(self, built: BuiltTable) -> None:
        meta = put(built)
        built.index(["n"])
        built.rewrite(meta, lambda table: _swapped_values(table, "n", 1, 2))
        built.publish()
        found = verified(built)
        assert broken(found) == {"index-content"}
        assert "at other positions or of other values" in found.problems[0].message

    def test_the_file_with_the_difference_is_named(self, built: BuiltTable) -> None:
        first, second = put(built), put(built, 100)
        built.index(["n"])
        built.rewrite(second, lambda table: _swapped_values(table, "n", 1, 2))
        built.publish()
        (problem,) = verified(built).problems
        assert problem.rule == "index-content"
        assert second.file_name in problem.message and first.file_name not in problem.message

    @pytest.mark.parametrize("column", ["n", "s", "d", "at"])
    def test_a_null_that_is_none(self, built: BuiltTable, column: str) -> None:
        put(built)
        built.index([column])
        (meta,) = built._buckets[BucketKey(EMPTY_ROW, 0)].files
        changed = built.rewrite(meta, set_value(column, 4, None))
        built.change(changed, value_stats=SimpleStats(), value_stats_cols=())
        built.publish()
        assert broken(verified(built)) == {"index-content"}

    def test_index_answer(self, built: BuiltTable, monkeypatch: pytest.MonkeyPatch) -> None:
        """A reader that loses a row."""
        put(built)
        built.index(["n"])
        built.publish()
        assert verified(built).problems == ()
        original = BTreeReader._lookup
        monkeypatch.setattr(BTreeReader, "_lookup", lambda self, keys: (found := original(self, keys)) - type(found)([found.max()]))
        found = verified(built)
        assert broken(found) == {"index-answer"}
        assert "the index loses 1 of" in found.problems[0].message

    def test_a_group_that_the_reader_cannot_use(self, built: BuiltTable, monkeypatch: pytest.MonkeyPatch) -> None:
        put(built)
        built.index(["n"])
        built.publish()
        monkeypatch.setattr(BTreeReader, "_lookup", lambda self, keys: 1 // 0)
        found = verified(built)
        assert broken(found) == {"index-answer"}
        assert "the index is not used" in found.problems[0].message

    def test_a_group_that_is_merely_out_of_date_breaks_no_rule(self, built: BuiltTable) -> None:
        put(built)
        first = built.index(["n"])[0]
        assert first.global_index is not None
        stale = source_meta.encode(SourceMeta(5, (("data-gone.parquet", 100),)))
        built.put_index_file(replace(first, global_index=replace(first.global_index, source_meta=stale)), replacing=first)
        built.publish()
        assert verified(built).problems == ()

    def test_every_group_is_tried(self, built: BuiltTable) -> None:
        put(built)
        put(built, 200, level=4)
        built.index()
        built.publish()
        found = verified(built)
        assert found.ok
        assert found.checked["index-content"] == found.checked["index-answer"] == 8

    def test_many_batches_and_parts(self, built: BuiltTable, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(rows, "BATCH_BYTES", 1)
        monkeypatch.setattr(index_content, "_HASHED_BYTES", 5)
        monkeypatch.setattr(index_content, "_LONG_KEY", 5)
        monkeypatch.setattr(index_content, "_POSTING_PART", 3)
        monkeypatch.setattr("maintainer.format.bitmap_file.CHUNK_IDS", 3)
        put(built, count=300)
        built.index()
        built.publish()
        assert verified(built).problems == ()


def _swapped_values(table: pa.Table, name: str, one: int, other: int) -> pa.Table:
    values = table.column(name).to_pylist()
    values[one], values[other] = values[other], values[one]
    return table.set_column(table.schema.get_field_index(name), table.schema.field(name), pa.array(values, table.schema.field(name).type))
