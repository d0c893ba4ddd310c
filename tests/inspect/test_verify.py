"""Verification: silent on sound tables, and every kind of damage is a problem of the right rule that does not stop the rest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import maintainer
from maintainer.format import manifest, snapshot_json
from maintainer.inspect.verify import Verification
from maintainer.model.snapshot import Snapshot
from tests.support.java_cases import CASES, has_after, java_case
from tests.support.tables import append, make_busy_table, make_table, paths

SOUND = [
    "all_deleted", "dv_bitmap64", "dv_many_index_files", "dv_minor", "dv_minor_then_full", "dv_switch_bitmap64", "empty_table", "expired",
    "idx_added_later", "idx_bitmap_blocks", "idx_bitmap_types", "idx_btree_blocks", "idx_btree_types", "idx_full_compaction", "idx_levels",
    "idx_partial", "idx_partitioned", "idx_stale", "keys_composite", "large_kept", "manifest_merging", "maxlevel_dv_full", "partitioned",
    "tags_branches", "upgrade_append",
]  # fmt: skip


@pytest.mark.parametrize("name", SOUND)
def test_tables_of_java_are_sound(name: str) -> None:
    for after in {False, has_after(name)}:
        found = maintainer.open_table(str(java_case(name, after).directory)).verify(deep=True)
        assert found.problems == ()
        assert found.ok


@pytest.mark.parametrize("name", sorted(path.stem for path in CASES.glob("*.json")))
def test_no_table_of_java_has_a_problem_whatever_its_kind(name: str) -> None:
    for after in {False, has_after(name)}:
        assert maintainer.open_table(str(java_case(name, after).directory)).verify().problems == ()


@pytest.mark.parametrize("name", ["append_only", "pk_nullable"])
def test_data_that_cannot_be_read_is_refused_and_no_problem(name: str) -> None:
    with pytest.raises(maintainer.Unsupported):
        maintainer.open_table(str(java_case(name).directory)).verify(deep=True)


def test_our_own_tables_are_sound(tmp_path: Path) -> None:
    table = make_busy_table(tmp_path)
    found = table.verify(deep=True)
    assert found.problems == ()
    assert {rule for rule, count in found.checked.items() if count} >= {
        "snapshot", "manifest", "manifest-count", "live-files", "record-total", "record-change", "data-file", "bucket", "key-range", "level",
        "index-file", "deletion-vector", "index-group", "index-payload", "key-order", "key-bounds", "sequence-bounds", "delete-count",
        "unique-key", "index-content",
    }  # fmt: skip
    table.maintain(full=True)
    assert table.verify(deep=True).ok


def test_an_empty_table_is_sound(tmp_path: Path) -> None:
    found = make_table(tmp_path).verify(deep=True)
    assert (found.snapshot, found.ok) == (None, True)


def rules(found: Verification) -> set[str]:
    assert not found.ok
    return {problem.rule for problem in found.problems}


def flip(path: Path, at: int | None = None) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2 if at is None else at] ^= 0xFF
    path.write_bytes(data)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


@pytest.fixture
def busy(tmp_path: Path) -> maintainer.Table:
    return make_busy_table(tmp_path)


def latest(table: maintainer.Table) -> Snapshot:
    snapshot = table.store.latest_snapshot()
    assert snapshot is not None
    return snapshot


def live(table: maintainer.Table, level_0: bool) -> Path:
    file = next(file for file in table.files().files if (file.level == 0) is level_0)
    return Path(table.store.uri) / f"bucket-{file.bucket}" / file.name


def index_file(table: maintainer.Table, kind: str) -> Path:
    entry = next(e for e in table.store.manifests.index(str(latest(table).index_manifest), "") if e.file.index_type == kind)
    return Path(table.store.uri) / "index" / entry.file.file_name


@pytest.mark.parametrize("damage", [Path.unlink, cut], ids=["missing", "too short"])
@pytest.mark.parametrize(
    ("choose", "rule"),
    [
        (lambda table: live(table, True), "data-file"),
        (lambda table: live(table, False), "data-file"),
        (lambda table: index_file(table, "DELETION_VECTORS"), "deletion-vector"),
        (lambda table: index_file(table, "btree"), "index-payload"),
        (lambda table: index_file(table, "bitmap"), "index-payload"),
        (lambda table: Path(table.store.uri) / "manifest" / str(latest(table).index_manifest), "manifest"),
    ],
    ids=["level-0 file", "compacted file", "deletion vectors", "btree", "bitmap", "index manifest"],
)
def test_a_missing_or_short_file_is_found(
    busy: maintainer.Table, choose: Callable[[maintainer.Table], Path], rule: str, damage: Callable[[Path], None]
) -> None:
    path = choose(busy)
    damage(path)
    found = maintainer.open_table(busy.store.uri).verify()
    assert rule in rules(found)
    assert any(path.name in problem.where + problem.message for problem in found.problems)


@pytest.mark.parametrize("kind", ["btree", "bitmap", "DELETION_VECTORS"])
def test_a_flipped_byte_in_an_index_file_is_found_by_its_checksum(busy: maintainer.Table, kind: str) -> None:
    path = index_file(busy, kind)
    flip(path)
    found = maintainer.open_table(busy.store.uri).verify()
    assert rules(found) <= {"index-payload", "deletion-vector"}


def test_a_damaged_manifest_does_not_stop_the_rest(busy: maintainer.Table) -> None:
    flip(Path(busy.store.uri) / "manifest" / latest(busy).delta_manifest_list)
    found = maintainer.open_table(busy.store.uri).verify()
    assert {"manifest", "live-files"} <= rules(found)
    assert found.checked["manifest"] > 1


def test_an_unreadable_snapshot_is_a_problem(busy: maintainer.Table) -> None:
    path = paths(busy, "snapshot/snapshot-*")[-1]
    path.write_bytes(b"{")
    assert rules(maintainer.open_table(busy.store.uri).verify()) == {"snapshot"}


def test_a_wrong_record_total_is_found(busy: maintainer.Table) -> None:
    snapshot = latest(busy)
    path = Path(busy.store.uri) / "snapshot" / f"snapshot-{snapshot.id}"
    path.write_bytes(snapshot_json.encode(replace(snapshot, total_record_count=snapshot.total_record_count + 1)))
    assert rules(maintainer.open_table(busy.store.uri).verify()) == {"record-total"}


def rewrite_last_manifest(table: maintainer.Table, change: Callable[[list[manifest.ManifestEntry]], list[manifest.ManifestEntry]]) -> None:
    """The manifest of the latest delta with other entries, in as many bytes as before or with its list left behind."""
    (meta,) = table.store.manifests.files_of(latest(table).delta_manifest_list, "")
    path = Path(table.store.uri) / "manifest" / meta.file_name
    path.write_bytes(manifest.encode(change(manifest.decode(path.read_bytes()))))


def test_metadata_that_is_not_the_files_is_found(busy: maintainer.Table) -> None:
    rewrite_last_manifest(busy, lambda entries: [replace(e, file=replace(e.file, row_count=e.file.row_count + 1)) for e in entries])
    assert {"data-file", "record-total"} <= rules(maintainer.open_table(busy.store.uri).verify())


def test_overlapping_files_of_a_level_are_found(tmp_path: Path) -> None:
    table = make_table(tmp_path, {"bucket": "1"})
    append(table, 0, 100)
    append(table, 50, 100)
    rewrite_last_manifest(table, lambda entries: [replace(e, file=replace(e.file, level=3)) for e in entries])
    table = maintainer.open_table(table.store.uri)
    assert "level" not in {problem.rule for problem in table.verify().problems}  # one file alone overlaps nothing
    append(table, 70, 10)
    rewrite_last_manifest(table, lambda entries: [replace(e, file=replace(e.file, level=3)) for e in entries])
    found = maintainer.open_table(table.store.uri).verify()
    assert "level" in rules(found)
    assert {problem.where for problem in found.problems if problem.rule == "level"} <= {f"bucket {number} level 3" for number in range(2)}


class TestDeep:
    """Damage that only the data shows: the file is replaced by one of the same rows and size in other respects."""

    def replaced(self, table: maintainer.Table, path: Path, change: Callable[[pa.Table], pa.Table]) -> Verification:
        changed = change(pq.ParquetFile(path).read())
        pq.write_table(changed, path)
        size = path.stat().st_size
        rewrite_last_manifest(
            table, lambda entries: [replace(e, file=replace(e.file, file_size=size)) if e.file.file_name == path.name else e for e in entries]
        )
        opened = maintainer.open_table(table.store.uri)
        assert {problem.rule for problem in opened.verify().problems} <= {"manifest"}
        return opened.verify(deep=True)

    @pytest.fixture
    def table(self, tmp_path: Path) -> maintainer.Table:
        table = make_table(tmp_path, {"bucket": "1"})
        append(table, 0, 100)
        return table

    def test_rows_out_of_order(self, table: maintainer.Table) -> None:
        found = self.replaced(table, live(table, True), lambda rows: rows.take(list(range(99, -1, -1))))
        assert {"key-order", "key-bounds"} <= rules(found)

    def test_sequence_numbers_and_deletes_that_the_metadata_does_not_know(self, table: maintainer.Table) -> None:
        def change(rows: pa.Table) -> pa.Table:
            shifted = pa.array([number + 5 for number in rows.column("_SEQUENCE_NUMBER").to_pylist()])
            kinds = pa.array([3, *[0] * 99], pa.int8())
            at = rows.schema.get_field_index
            rows = rows.set_column(at("_SEQUENCE_NUMBER"), rows.schema.field("_SEQUENCE_NUMBER"), shifted)
            return rows.set_column(at("_VALUE_KIND"), rows.schema.field("_VALUE_KIND"), kinds)

        assert {"sequence-bounds", "delete-count"} <= rules(self.replaced(table, live(table, True), change))

    def test_an_index_of_other_values(self, table: maintainer.Table) -> None:
        table.maintain()

        def change(rows: pa.Table) -> pa.Table:
            return rows.set_column(rows.schema.get_field_index("n"), rows.schema.field("n"), pa.array([1] * 100, pa.int32()))

        assert "index-content" in rules(self.replaced(table, live(table, False), change))

    def test_a_key_that_is_visible_twice(self, tmp_path: Path) -> None:
        table = make_table(tmp_path / "twice", {"bucket": "1"})
        append(table, 0, 100)
        table.maintain(full=True)
        append(table, 50, 10)
        rewrite_last_manifest(table, lambda entries: [replace(e, file=replace(e.file, level=1)) for e in entries])
        found = maintainer.open_table(table.store.uri).verify(deep=True)
        assert "unique-key" in rules(found)


def test_a_column_that_is_not_read_is_no_problem(tmp_path: Path) -> None:
    table = make_table(tmp_path, {"pk-bitmap.index.columns": None})
    append(table, 0, 5)
    schema = Path(table.store.uri, "schema", "schema-0")
    schema.write_text(schema.read_text().replace('"STRING"', '"BLOB"'))
    opened = maintainer.open_table(table.store.uri)
    assert opened.verify().problems == ()
    with pytest.raises(maintainer.Unsupported, match="column v: type BLOB"):
        opened.verify(deep=True)
