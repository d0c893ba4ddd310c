"""Merging manifests: the thresholds, Java's own choices, and that the entries say the same before and after."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maintainer.commit.manifest_files import ManifestWriter, Merged, describe, merge_manifests, splice
from maintainer.format import binary_row, manifest
from maintainer.model.files import FileIdentity, FileKind, ManifestEntry, ManifestFileMeta, SimpleStats
from maintainer.model.types import DataType
from maintainer.storage.layout import Layout
from maintainer.storage.local import LocalStorage
from maintainer.table.manifests import merge_into
from maintainer.table.opening import open_store
from maintainer.table.options import TableOptions
from tests.support.builders import entry, file_meta, row, types
from tests.support.java_cases import java_case

STRING = types("STRING")


class Shelf:
    """Manifests in memory: what the writer writes can be read again; sizes are what a test says, or the bytes written."""

    def __init__(self, tmp_path: Path, partition_types: Sequence[DataType] = (), **options: str) -> None:
        self.partition_types = tuple(partition_types)
        self.options = TableOptions(
            {
                "manifest.target-file-size": options.get("target", "8 mb"),
                "manifest.full-compaction-threshold-size": options.get("full", "16 mb"),
                "manifest.merge-min-count": options.get("count", "30"),
            }
        )
        self.storage = LocalStorage(str(tmp_path))
        self.writer = ManifestWriter(self.storage, Layout(), partition_types, self.options)
        self.entries: dict[str, Sequence[ManifestEntry]] = {}

    def put(self, *entries: ManifestEntry, size: int = 1000) -> ManifestFileMeta:
        name = f"manifest-{len(self.entries)}"
        self.entries[name] = entries
        return describe(name, size, entries, self.partition_types)

    def read(self, meta: ManifestFileMeta) -> Sequence[ManifestEntry]:
        if meta.file_name in self.entries:
            return self.entries[meta.file_name]
        return manifest.decode(self.storage.read(f"manifest/{meta.file_name}"))

    def merge(self, manifests: Sequence[ManifestFileMeta]) -> Merged:
        return merge_manifests(manifests, self.read, self.writer, self.options, self.partition_types)

    def live(self, manifests: Sequence[ManifestFileMeta]) -> dict[FileIdentity, ManifestEntry]:
        live: dict[FileIdentity, ManifestEntry] = {}
        for meta in manifests:
            merge_into(live, self.read(meta))
        return live


def add(number: int, partition: str | None = None) -> ManifestEntry:
    return entry(file_meta(f"f-{number}.parquet"), **({} if partition is None else {"partition": row(partition, "STRING")}))  # type: ignore[arg-type]


def delete(of: ManifestEntry) -> ManifestEntry:
    return replace(of, kind=FileKind.DELETE)


def kept(merged: Merged) -> list[ManifestFileMeta]:
    return [meta for meta in merged.after if meta in merged.before]


class TestMinor:
    def test_29_small_manifests_stay_and_30_become_one(self, tmp_path: Path) -> None:
        shelf = Shelf(tmp_path)
        manifests = [shelf.put(add(number)) for number in range(30)]
        assert shelf.merge(manifests[:29]).after == tuple(manifests[:29])
        merged = shelf.merge(manifests)
        assert len(merged.after) == 1 and merged.after[0].num_added_files == 30
        assert merged.created == (f"manifest/{merged.after[0].file_name}",)
        assert shelf.live(merged.after) == shelf.live(manifests)

    def test_a_group_is_complete_at_exactly_the_target_size(self, tmp_path: Path) -> None:
        shelf = Shelf(tmp_path, target="3000 b", full="1 tb")
        manifests = [shelf.put(add(number)) for number in range(7)]
        merged = shelf.merge(manifests)
        assert [meta.num_added_files for meta in merged.after] == [3, 3, 1]
        assert kept(merged) == [manifests[6]]

    def test_one_manifest_of_the_target_size_is_passed_through(self, tmp_path: Path) -> None:
        shelf = Shelf(tmp_path, target="1000 b", full="1 tb")
        manifests = [shelf.put(add(number)) for number in range(3)]
        assert shelf.merge(manifests) == Merged(tuple(manifests), tuple(manifests))

    def test_a_group_that_deletes_all_it_adds_leaves_no_manifest(self, tmp_path: Path) -> None:
        shelf = Shelf(tmp_path, count="2")
        assert shelf.merge([shelf.put(add(1)), shelf.put(delete(add(1)))]).after == ()

    def test_a_delete_whose_add_is_older_is_kept(self, tmp_path: Path) -> None:
        shelf = Shelf(tmp_path, target="2000 b", full="1 tb", count="2")
        manifests = [shelf.put(add(1), size=2000), shelf.put(add(2), size=500), shelf.put(delete(add(1)), size=500)]
        merged = shelf.merge(manifests)
        assert [(meta.num_added_files, meta.num_deleted_files) for meta in merged.after] == [(1, 0), (1, 1)]
        assert shelf.live(merged.after).keys() == {add(2).identity}

    def test_an_upgrade_is_kept_as_two_identities(self, tmp_path: Path) -> None:
        shelf = Shelf(tmp_path, count="2")
        upgraded = entry(replace(add(1).file, level=5))
        merged = shelf.merge([shelf.put(add(1)), shelf.put(delete(add(1)), upgraded)])
        assert [list(shelf.read(meta)) for meta in merged.after] == [[upgraded]]


class TestFull:
    def test_deletes_disappear_when_what_must_change_is_large_enough(self, tmp_path: Path) -> None:
        shelf = Shelf(tmp_path, target="1000 b", full="2000 b")
        large = shelf.put(add(1), add(2), size=5000)
        manifests = [large, shelf.put(delete(add(1)), size=1000), shelf.put(add(3), size=999)]
        assert shelf.merge(manifests).after == tuple(manifests)
        manifests[2] = replace(manifests[2], file_size=1000)
        assert shelf.merge(manifests).after == tuple(manifests)
        manifests[1] = replace(manifests[1], file_size=1001)
        manifests[2] = replace(manifests[2], file_size=999)
        merged = shelf.merge(manifests)
        assert [meta.num_deleted_files for meta in merged.after] == [0]
        assert shelf.live(merged.after).keys() == {add(2).identity, add(3).identity}

    def test_large_manifests_that_lose_nothing_stay(self, tmp_path: Path) -> None:
        shelf = Shelf(tmp_path, target="1000 b", full="1 kb")
        large = [shelf.put(add(number), size=5000) for number in range(3)]
        merged = shelf.merge([*large, shelf.put(add(7), size=600), shelf.put(delete(large_entry(shelf, large[1])), size=600)])
        assert kept(merged) == [large[0], large[2]]
        assert shelf.live(merged.after).keys() == {add(0).identity, add(2).identity, add(7).identity}

    def test_without_deletes_large_manifests_are_not_even_read(self, tmp_path: Path) -> None:
        shelf = Shelf(tmp_path, target="1000 b", full="1 kb")
        large = shelf.put(add(0), size=5000)
        small = [shelf.put(add(number), size=600) for number in (1, 2)]
        del shelf.entries[large.file_name]
        merged = shelf.merge([large, *small])
        assert merged.after[0] == large and len(merged.after) == 2

    def test_partitions_without_deletes_are_not_read(self, tmp_path: Path) -> None:
        shelf = Shelf(tmp_path, STRING, target="1000 b", full="1 kb")
        first, second = shelf.put(add(0, "a"), add(1, "c"), size=5000), shelf.put(add(2, "x"), size=5000)
        del shelf.entries[second.file_name]
        merged = shelf.merge([first, second, shelf.put(delete(add(0, "a")), size=2000)])
        assert kept(merged) == [second]
        assert [m.num_added_files for m in merged.after] == [1, 1]

    def test_a_single_manifest_to_rewrite_is_left_alone(self, tmp_path: Path) -> None:
        shelf = Shelf(tmp_path, target="1000 b", full="1 b")
        manifests = [shelf.put(add(number), size=5000) for number in range(2)] + [shelf.put(add(9), size=10)]
        assert shelf.merge(manifests).after == tuple(manifests)

    def test_a_null_partition(self, tmp_path: Path) -> None:
        shelf = Shelf(tmp_path, STRING, target="1000 b", full="1 b")
        none = entry(file_meta("n.parquet"), partition=row(None, "STRING"))
        with_null, without = shelf.put(none, add(1, "a"), size=5000), shelf.put(add(2, "a"), size=5000)
        merged = shelf.merge([with_null, without, shelf.put(delete(none), size=10)])
        assert kept(merged) == [without]
        assert shelf.live(merged.after).keys() == {add(1, "a").identity, add(2, "a").identity}


def large_entry(shelf: Shelf, meta: ManifestFileMeta) -> ManifestEntry:
    return shelf.entries[meta.file_name][0]


def test_entries_roll_into_manifests_of_about_the_target_size(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path, target="20 kb")
    entries = [entry(file_meta(f"data-{number * 7919:09d}-{number}.parquet", keys=(number, number))) for number in range(4321)]
    metas = shelf.writer.write_entries(entries)
    assert len(metas) > 1 and [e for meta in metas for e in shelf.read(meta)] == entries
    assert all(meta.num_added_files % 1000 == 0 for meta in metas[:-1])
    assert all(shelf.storage.size(f"manifest/{meta.file_name}") == meta.file_size for meta in metas)
    assert shelf.writer.write_entries([]) == []


def test_what_a_list_says_about_a_manifest() -> None:
    entries = [
        entry(file_meta("a", 0, schema_id=3), partition=row(None, "STRING"), bucket=4),
        entry(file_meta("b", 5), FileKind.DELETE, partition=row("x", "STRING"), bucket=2),
        entry(file_meta("c", 1), partition=row("k", "STRING"), bucket=3),
        entry(file_meta("d", 1), partition=row(None, "STRING"), bucket=3),
    ]
    stats = SimpleStats(row("k", "STRING"), row("x", "STRING"), (2,))
    assert describe("m", 77, entries, STRING) == ManifestFileMeta("m", 77, 3, 1, stats, 3, 2, 4, 0, 5, None, None)
    nulls = describe("m", 77, entries[:1], STRING).partition_stats
    assert nulls == SimpleStats(row(None, "STRING"), row(None, "STRING"), (1,))
    ids = [entry(file_meta("a", first_row_id=100)), entry(file_meta("b", first_row_id=50))]
    assert (describe("m", 1, ids, ()).min_row_id, describe("m", 1, ids, ()).max_row_id) == (50, 109)
    assert describe("m", 1, [*ids, entry(file_meta("c"))], ()).min_row_id is None
    assert describe("m", 1, ids, ()).partition_stats == SimpleStats()


def test_java_describes_its_manifests_the_same_way() -> None:
    seen = 0
    for name in ("partitioned", "manifest_merging", "dv_minor", "idx_partitioned", "overwrite_rollback", "postpone"):
        store = open_store(str(java_case(name).directory))
        types_ = store.latest_schema().partition_types
        for snapshot_id in store.snapshot_ids():
            for metas in store.manifests.lists_of(store.snapshot(snapshot_id)):
                for meta in metas:
                    entries = store.manifests.entries(meta.file_name, "test")
                    assert describe(meta.file_name, meta.file_size, entries, types_) == meta
                    seen += 1
    assert seen > 50


def test_java_makes_the_same_choices(tmp_path: Path) -> None:
    """The case `manifest_merging`: for each snapshot, which manifests of the one before stay, and what becomes of the others."""
    case = java_case("manifest_merging")
    store = open_store(str(case.directory))
    options = store.options()
    rewritten = 0
    for snapshot_id in store.snapshot_ids()[1:]:
        previous, following = store.snapshot(snapshot_id - 1), store.snapshot(snapshot_id)
        before = [meta for metas in store.manifests.lists_of(previous) for meta in metas]
        java = list(store.manifests.lists_of(following)[0])
        writer = ManifestWriter(LocalStorage(str(tmp_path)), Layout(), (), options)
        merged = merge_manifests(before, lambda meta: store.manifests.entries(meta.file_name, "test"), writer, options, ())
        assert [meta in before for meta in merged.after] == [meta in before for meta in java]
        assert [m.file_name for m in kept(merged)] == [meta.file_name for meta in java if meta in before]
        assert [(m.num_added_files, m.num_deleted_files) for m in merged.after] == [(m.num_added_files, m.num_deleted_files) for m in java]
        rewritten += bool(merged.created)
    assert rewritten > 3


def test_a_merge_is_used_again_where_it_still_stands(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path)
    a, b, c, d, merged = (shelf.put(add(number)) for number in range(5))
    previous = Merged((b, c), (merged,), ("manifest/m",))
    assert splice(previous, [a, b, c, d]) == [a, merged, d]
    assert splice(previous, [b, c]) == [merged]
    assert splice(previous, [b, d, c]) == [b, d, c]
    assert splice(None, [a]) == [a]
    assert splice(Merged((), ()), [a]) == [a]


@st.composite
def histories(draw: st.DrawFn) -> list[list[ManifestEntry]]:
    """Deltas of a consistent table: adds, deletes of what lives, upgrades."""
    live: list[ManifestEntry] = []
    deltas = []
    for number in range(draw(st.integers(1, 12))):
        delta = []
        for step in range(draw(st.integers(0, 5))):
            if live and draw(st.booleans()):
                old = live.pop(draw(st.integers(0, len(live) - 1)))
                delta.append(delete(old))
                if draw(st.booleans()):
                    upgraded = replace(old, file=replace(old.file, level=old.file.level + 1))
                    delta.append(upgraded)
                    live.append(upgraded)
            else:
                new = add(number * 10 + step, draw(st.sampled_from("abc")))
                delta.append(new)
                live.append(new)
        deltas.append(delta)
    return deltas


@settings(max_examples=60)
@given(
    histories(),
    st.integers(1, 4000),
    st.integers(1, 8000),
    st.integers(1, 6),
    st.lists(st.integers(1, 2000), min_size=12, max_size=12),
)
def test_merging_never_changes_what_is_live(
    tmp_path_factory: pytest.TempPathFactory, deltas: list[list[ManifestEntry]], target: int, full: int, count: int, sizes: list[int]
) -> None:
    """Merged again and again as commits do it, the manifests mean the same as the plain history."""
    shelf = Shelf(tmp_path_factory.mktemp("m"), STRING, target=f"{target} b", full=f"{full} b", count=str(count))
    manifests: list[ManifestFileMeta] = []
    history: list[ManifestFileMeta] = []
    for delta, size in zip(deltas, sizes, strict=False):
        manifests = list(shelf.merge(manifests).after)
        if delta:
            meta = shelf.put(*delta, size=size)
            manifests.append(meta)
            history.append(meta)
        expected = shelf.live(history)
        assert shelf.live(manifests) == expected
        assert all(e.kind is FileKind.ADD for e in expected.values())
    for meta in manifests:
        assert meta == describe(meta.file_name, meta.file_size, shelf.read(meta), STRING)
        assert binary_row.deserialize(meta.partition_stats.min_values, STRING)
